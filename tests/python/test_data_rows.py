"""Rows of the data chapter that tables say best: what a value, a shape or a keyword does on the host."""

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

pytestmark = pytest.mark.usefixtures("backend")

vec3 = qd.types.vector(3, qd.f32)
mixed = qd.types.struct(
    a=qd.f32, v=vec3, m=qd.types.matrix(2, 2, qd.i32), s=qd.types.struct(b=qd.f32, c=qd.i32)
)

# --- elements of wrong size: as in calls of vector types, surplus is ignored, shortage an error

ELEMENTS = {
    "list": ([1, 2, 3], [1, 2, 3]),
    "tuple": ((1, 2, 3), [1, 2, 3]),
    "array": (np.array([1, 2, 3]), [1, 2, 3]),
    "vector": (qd.Vector([1, 2, 3]), [1, 2, 3]),
    "long list": ([1, 2, 3, 4], [1, 2, 3]),
    "long vector": (qd.Vector([1, 2, 3, 4]), [1, 2, 3]),
    "short list": ([1, 2], IndexError),
    "short tuple": ((1, 2), IndexError),
    "short array": (np.array([1, 2]), IndexError),
    "short vector": (qd.Vector([1, 2]), IndexError),
    "number": (3, TypeError),
    "None": (None, TypeError),
    "text": ("abc", TypeError),
    "fraction": ([1.5, 2, 3], TypeError),
}


def vector_field():
    return qd.Vector.field(3, qd.i32, 2)


def vector_array():
    return qd.Vector.ndarray(3, qd.i32, 2)


def matrix_field():
    return qd.Matrix.field(2, 2, qd.i32, 2)


def matrix_array():
    return qd.Matrix.ndarray(2, 2, qd.i32, 2)


@pytest.mark.parametrize("name", ELEMENTS)
def test_vector_elements(name):
    value, expected = ELEMENTS[name]
    x = vector_field()
    if isinstance(expected, list):
        x[1] = value
        assert x.to_numpy().tolist() == [[0, 0, 0], expected]
    else:
        with raises(expected):
            x[1] = value


MATRICES = {
    "nested": ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    "tuples": (((1, 2), (3, 4)), [[1, 2], [3, 4]]),
    "matrix": (qd.Matrix([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "more rows": ([[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4]]),
    "longer rows": ([[1, 2, 3], [4, 5, 6]], [[1, 2], [4, 5]]),
    "one row": ([[1, 2]], IndexError),
    "short rows": ([[1], [2]], IndexError),
    "flat": ([1, 2, 3, 4], TypeError),
    "number": (5, TypeError),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrix_elements(name):
    value, expected = MATRICES[name]
    x = matrix_field()
    if isinstance(expected, list):
        x[1] = value
        assert x[1].to_list() == expected
    else:
        with raises(expected):
            x[1] = value


NO_NUMBERS = {
    "None": None,
    "Nones": [None, None, None],
    "complex": [1j, 2, 3],
    "text": "123",
    "texts": ["1", "2", "3"],
    "array of texts": np.array(["1", "2", "3"]),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_components_that_are_no_numbers(name):
    value = NO_NUMBERS[name]
    s, v = mixed(), qd.Vector([1.0, 2.0, 3.0])
    for put in (
        lambda: setattr(s, "v", value),
        lambda: mixed(v=value),
        lambda: v.fill(value),
        lambda: vec3(value),
    ):
        with raises(TypeError):
            put()
    assert s.v.to_list() == [0, 0, 0] and v.to_list() == [1, 2, 3]


# A matrix parameter takes the upper left block of what is larger, row by row.
MATRIX_ARGUMENTS = {
    "same": (np.arange(6.0).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
    "larger": (np.arange(16.0).reshape(4, 4), [[0, 1, 2], [4, 5, 6]]),
    "larger matrix": (qd.Matrix(np.arange(16.0).reshape(4, 4)), [[0, 1, 2], [4, 5, 6]]),
    "longer rows": ([[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2], [4, 5, 6]]),
    "rows": ([qd.Vector([0, 1, 2]), np.array([3, 4, 5])], [[0, 1, 2], [3, 4, 5]]),
    "flat": ([0, 1, 2, 3, 4, 5], [[0, 1, 2], [3, 4, 5]]),
    "transposed": (np.arange(6.0).reshape(3, 2), IndexError),
    "transposed matrix": (qd.Matrix(np.arange(6.0).reshape(3, 2)), IndexError),
    "short row": ([[0, 1, 2], [3, 4]], IndexError),
    "one row": (np.arange(12.0).reshape(1, 12), IndexError),
    "deeper": (np.arange(12.0).reshape(2, 3, 2), qd.QuadrantsRuntimeTypeError),
}


@qd.kernel
def matrix_argument(m: qd.types.matrix(2, 3, qd.f32)) -> qd.types.matrix(2, 3, qd.f32):
    return m


@pytest.mark.parametrize("name", MATRIX_ARGUMENTS)
def test_matrix_arguments(name):
    value, expected = MATRIX_ARGUMENTS[name]
    if isinstance(expected, list):
        assert matrix_argument(value).to_list() == expected
    else:
        with raises(expected):
            matrix_argument(value)


@pytest.mark.parametrize("make", [vector_field, vector_array])
@pytest.mark.parametrize("index", [3, 1.0, "a"])
def test_indices_of_elements(make, index):
    with raises((IndexError, TypeError)):
        make()[0][index]


# --- fill of arrays: only i32 and u32 refuse fractions

FILLS = {
    "i64": (qd.i64, 2.5, 2),
    "u8": (qd.u8, 2.5, 2),
    "u1": (qd.u1, 2.5, 1),
    "i32": (qd.i32, 2.5, TypeError),
    "u32": (qd.u32, 2.5, TypeError),
    "list": (qd.i32, [1, 2], TypeError),
    "text": (qd.i32, "a", TypeError),
    "bool": (qd.i32, True, 1),
}


@pytest.mark.parametrize("name", FILLS)
def test_fill_of_arrays(name):
    dtype, value, expected = FILLS[name]
    x = qd.ndarray(dtype, 2)
    if isinstance(expected, int):
        x.fill(value)
        assert x.to_numpy().tolist() == [expected] * 2
    else:
        with raises(expected):
            x.fill(value)


# --- declarations


@pytest.mark.parametrize("make", [qd.Vector.ndarray, qd.Vector.field])
@pytest.mark.parametrize("dtype", ["f32", np.float32, None, 3])
def test_element_types_of_vectors(make, dtype):
    with raises(ValueError, "Invalid data type"):
        make(3, dtype, 2)


def test_texts_of_types():
    assert vec3.to_string() == "VectorType[3, f32]"
    assert qd.types.vector(3).to_string() == "VectorType[3, ]"
    assert qd.types.matrix(3).to_string() == "MatrixType[3,None, ]"
    assert (
        qd.types.vector(3, qd.f32, unpacked=True).to_string() == "VectorType[3, f32, unpacked=True]"
    )


@pytest.mark.parametrize("offset", [(-1.5, 5), ("a", 1)])
def test_offsets_are_integers(offset):
    with raises(TypeError):
        qd.field(qd.f32, (3, 2), offset=offset)


def test_axes_are_bounded():
    for number in (-1, 12):
        with raises(RuntimeError, "Too many dimensions"):
            qd.axes(number)


def test_positional_arguments_of_struct_fields():
    x = qd.Struct.field({"a": qd.f32, "v": vec3}, {}, 3, "name", None, False, False, qd.Layout.SOA)
    assert x.shape == (3,) and x.a._name == "name.a" and x.name == "name"


def facts(field):
    return field.parent()._cell_size_bytes, field.parent()._snode.ptr.get_num_ch()


def test_cells_of_struct_fields():
    """AOS: one cell for all members. SOA: one node for each member, which keeps its own elements."""
    aos = mixed.field(shape=3)
    assert [facts(f) for f in (aos.a, aos.v, aos.m, aos.s.b)] == [(40, 10)] * 4
    soa = mixed.field(shape=3, layout=qd.Layout.SOA)
    found = [facts(f) for f in (soa.a, soa.v, soa.m, soa.s.b, soa.s.c)]
    assert found == [(4, 1), (12, 3), (16, 4), (8, 2), (8, 2)]


def test_gradients_of_struct_fields():
    real = qd.types.struct(a=qd.f32, v=vec3)
    soa = real.field(shape=3, needs_grad=True, layout=qd.Layout.SOA)
    assert [facts(f) for f in (soa.grad.a, soa.grad.v)] == [(4, 1), (12, 3)]
    aos = real.field(shape=3, needs_grad=True)
    assert aos.a.grad.parent() == aos.v.grad.parent() != aos.a.parent()


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
@pytest.mark.oracle_differs("views of fields need torch there")
def test_views_of_soa_members():
    soa = qd.types.struct(a=qd.f32, v=vec3).field(shape=2, layout=qd.Layout.SOA)
    views = soa.to_numpy(copy=False)
    views["v"][1] = [1, 2, 3]
    assert soa[1].v.to_list() == [1, 2, 3]


def test_structs_have_no_capsule():
    with raises(RuntimeError):
        mixed.field(shape=2).to_dlpack()


def test_open_builders():
    builder = qd.FieldsBuilder()
    x = qd.field(qd.i32, 3)
    with raises(qd.QuadrantsRuntimeError, "is not finalized"):
        x[0]
    builder.place(qd.field(qd.i32))
    builder.finalize()
    assert x[0] == 0


def test_unplaced_fields():
    qd.field(qd.i32)
    with raises(RuntimeError, "These field(s) are not placed"):
        qd.field(qd.i32, 3)[0]


# --- tensors


def test_keys_of_tagged_tensors():
    x = qd.tensor(qd.f32, (2, 3), layout=(1, 0))
    for key in (None, 1):
        with raises(TypeError):
            x[key]


@pytest.mark.oracle_differs("takes the process down", run=False)
def test_tensors_are_not_iterable():
    with raises(TypeError):
        list(qd.tensor(qd.f32, 3))
