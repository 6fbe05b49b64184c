"""Fields on the host: declaration, trees, element access, conversion, errors. No kernels."""

import copy
import gc
import pickle
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import DTYPES, FLOATS, INTS, NUMPY, bits, dtype, raises

pytestmark = pytest.mark.usefixtures("backend")


# --- scalar fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_numbers_round_trip(name):
    x = qd.field(dtype(name), shape=(2, 3))
    assert x.shape == (2, 3) and x.dtype == dtype(name)
    assert x.to_numpy().dtype == NUMPY[name] and not x.to_numpy().any()
    x[1, 2] = 1
    assert x[1, 2] == 1 and type(x[1, 2]) is (float if name in FLOATS else int)
    values = np.array([[0, 1, 1], [1, 0, 1]], NUMPY[name])
    x.from_numpy(values)
    assert (x.to_numpy() == values).all()
    x.fill(0)
    assert not x.to_numpy().any()


@pytest.mark.parametrize("name", INTS)
def test_integers_wrap(name):
    x = qd.field(dtype(name), shape=3)
    x[0] = -1
    x[1] = 2 ** (bits(name) - 1)
    signed = name[0] == "i"
    assert x[0] == (-1 if signed else 2 ** bits(name) - 1)
    assert x[1] == (-1 if signed else 1) * 2 ** (bits(name) - 1)
    with pytest.raises(TypeError):
        x[0] = 1.5
    x[0] = np.float32(1.5)
    assert x[0] == 1


def test_bool_takes_any_number_as_truth():
    x = qd.field(qd.u1, shape=2)
    x[0] = 2
    x[1] = True
    assert x[0] == 1 and x[1] == 1


def test_keys():
    x = qd.field(qd.f32, shape=(2, 3))
    x[[1, 2]] = 5
    x[np.int32(0), np.int64(1)] = np.float32(2.5)
    assert x[1, 2] == 5 and x[0, 1] == 2.5
    zero = qd.field(qd.i32, shape=())
    zero[None] = 3
    assert zero[None] == 3 and zero[()] == 3 and zero.shape == ()
    with raises(AssertionError, "Slicing is not supported on qd.field"):
        x[0]
    for key in ((0, "a"), (slice(0, 1), 1), (1.5, 1)):
        with raises(TypeError, "Detected illegal element of type: <class '"):
            x[key]


def test_debug_checks_bounds(backend):
    backend.init(debug=True)
    x = qd.field(qd.i32, shape=3)
    for index in (5, -1, 3):
        with raises(
            qd._lib.core.QuadrantsAssertionError, "Accessing field (", f"with indices ({index})"
        ):
            x[index]


def test_not_iterable():
    x = qd.field(qd.i32, shape=3)
    with raises(NotImplementedError, "Struct for is only available in Quadrants scope."):
        iter(x)
    with pytest.raises(TypeError):
        len(x)


def test_texts():
    x = qd.field(qd.i32, shape=3, name="mine")
    assert repr(x) == "<qd.field>" and str(x) == "[0 0 0]"
    assert x._name == "mine" and x.snode._name == "mine"
    y = qd.field(qd.i32)
    assert str(y) == "<Field: Definition of this field is incomplete>"
    qd.root.place(y)
    assert repr(qd.Vector.field(3, qd.f32, shape=2)) == "<3x1 qd.Matrix.field>"


def test_wrong_shapes():
    for bad in (0, -1, (2, 0)):
        with raises(
            qd._lib.core.QuadrantsRuntimeError,
            "Every dimension of a Quadrants field should be positive",
        ):
            qd.field(qd.f32, bad)
    for bad in (2.5, 2**31):
        with pytest.raises(TypeError):
            qd.field(qd.f32, bad)
    with raises(RuntimeError, "Too many dimensions. The maximum dimensionality is 12"):
        qd.field(qd.f32, (1,) * 13)
    with raises(ValueError, "Invalid data type"):
        qd.field("f32", 2)


@pytest.mark.oracle_differs("a declaration that fails leaves its field behind there")
def test_a_failed_declaration_leaves_nothing_behind():
    with pytest.raises(TypeError):
        qd.field(qd.f32, 2.5)
    x = qd.field(qd.f32, 3)
    assert x[0] == 0


@pytest.mark.parametrize(
    "text, options",
    [
        ("shape cannot be None when offset is set", dict(offset=1)),
        ("shape cannot be None when order is set", dict(order="i")),
        ("The dimensionality of shape and order must be the same", dict(shape=(2, 3), order="i")),
        ("The axes in order must be different", dict(shape=(2, 3), order="ii")),
        ("Invalid axis", dict(shape=(2, 3), order="iz")),
        ("The dimensionality of shape and offset must be the same", dict(shape=(2, 3), offset=1)),
    ],
)
def test_wrong_options(text, options):
    with raises(qd.QuadrantsSyntaxError, text):
        qd.field(qd.f32, **options)


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_order():
    x = qd.field(qd.i32, shape=(2, 3), order="ji")
    plain = qd.field(qd.i32, shape=(2, 3), order="ij")
    assert x.layout == (1, 0) and plain.layout is None and plain._qd_layout == (0, 1)
    assert x.shape == (2, 3) and x.snode.shape == (3, 2)
    x.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))
    assert x[1, 0] == 3
    assert (x.to_numpy() == np.arange(6).reshape(2, 3)).all()
    view = x.to_numpy(copy=False)
    assert view.strides == (4, 8) and view[1, 2] == 5


def test_offset():
    x = qd.field(qd.i32, shape=(3, 4), offset=(-1, 2))
    x[-1, 2] = 1
    x[1, 5] = 2
    out = x.to_numpy()
    assert out[0, 0] == 1 and out[2, 3] == 2 and out.sum() == 3
    assert x.snode.ptr.offset == [-1, 2]


# --- vectors and matrices --------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_matrix_elements_are_live(layout):
    m = qd.Matrix.field(2, 3, qd.f32, shape=4, layout=getattr(qd.Layout, layout))
    m[1] = [[1, 2, 3], [4, 5, 6]]
    element = m[1]
    element[0, 1] = 9
    assert m[1][0, 1] == 9 and m.to_numpy()[1, 0, 1] == 9
    m[np.int32(2)][np.int64(1), 2] = 7
    m[3] += 1
    assert (m.to_numpy()[3] == 1).all() and m[2][1, 2] == 7
    assert m.n == 2 and m.m == 3 and m.ndim == 2 and m.to_numpy().shape == (4, 2, 3)
    assert m.get_scalar_field(1, 2)[2] == 7


@pytest.mark.parametrize("make", [qd.Vector.field, qd.Vector.ndarray])
def test_elements_are_computed_with_as_python_numbers(make):
    """Reads give Python's int and float, so what is computed with them does not wrap."""
    whole, small, real = (make(2, t, shape=1) for t in (qd.i32, qd.u8, qd.f32))
    whole[0], small[0], real[0] = [2**31 - 1, 0], [200, 100], [1e30, 0]
    assert whole[0].norm() == 2**31 - 1 and (whole[0] + 1).to_list() == [2**31, 1]
    assert small[0].sum() == 300 and (-small[0]).to_list() == [-200, -100]
    assert abs(real[0].norm_sqr() / 1e60 - 1) < 1e-6 and real[0].to_numpy().dtype == np.float64


def test_sums_of_live_elements_are_numbers_of_python():
    wide = qd.types.struct(v=qd.types.vector(2, qd.i64), m=qd.types.matrix(2, 2, qd.f32))
    cells = wide.field(shape=2)
    cells[1] = wide([2**62, 2**62], [[1, 2], [3, 4.5]])
    array = qd.Vector.ndarray(2, qd.u8, 1)
    array[0] = [200, 100]
    v, m = cells[1].v, cells[1].m
    for found, expected in (
        (v.sum(), 2**63),  # past what NumPy's have room for
        (v.cross(array[0]), -100 * 2**62),
        (m.sum(), 10.5),
        (m.trace(), 5.5),
        (array[0].sum(), 300),
    ):
        assert found == expected and type(found) is type(expected)
    assert type(array[0].cross(qd.Vector([1, 2]))) is np.int64  # of which one is NumPy's
    assert type(array[0].xy.sum()) is np.int64  # no longer live


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_vector_elements():
    v = qd.Vector.field(3, qd.i32, shape=(2,))
    v[0] = (1, 2, 3)
    v[0].x = 5
    v[0].yz = [6, 7]
    assert v[0].to_list() == [5, 6, 7]
    v[1] = v[0] * 2
    assert v.to_numpy().tolist() == [[5, 6, 7], [10, 12, 14]]
    detached = v[0] + 1
    detached[0] = 100
    assert v[0][0] == 5
    zero = qd.Vector.field(2, qd.f32, shape=())
    zero[None] = [1, 2]
    assert zero.to_numpy().tolist() == [1, 2] and zero.to_numpy(copy=False).shape == (2,)


NO_NUMBERS = [
    np.ones(3, np.float32),
    np.ones(1, np.float32),
    np.ones((1, 3)),
    np.array(["1.5"] * 3),
    np.ones(3, complex),
    np.ones(3, object),
    np.array(1 + 2j),
    np.complex64(1 + 2j),
    np.array("1.5"),
    np.str_("1.5"),
    np.bytes_(b"1"),
    np.datetime64(3, "ns"),
    np.timedelta64(3, "ns"),
    1 + 2j,
    "1.5",
    [1, 2, 3],
    np.ma.masked,
]


@pytest.mark.oracle_differs("ndarrays take some of them")
@pytest.mark.parametrize("dt", [qd.f32, qd.f64, qd.f16, qd.i32, qd.u8, qd.u1], ids=str)
def test_what_no_fill_takes(dt):
    x, y = qd.field(dt, 3), qd.ndarray(dt, 3)
    s = qd.Struct.field({"a": dt}, shape=3)
    for value in NO_NUMBERS:
        for container in (x, y, s):
            with pytest.raises(TypeError):
                container.fill(value)
    assert not x.to_numpy().any() and not y.to_numpy().any() and not s.a.to_numpy().any()


@pytest.mark.oracle_differs("another kind of error")
@pytest.mark.parametrize("dt", [qd.f32, qd.i32], ids=str)
def test_what_no_fill_of_vectors_takes(dt):
    x, y = qd.Vector.field(2, dt, 3), qd.Vector.ndarray(2, dt, 3)
    for value in (
        np.complex64(1 + 2j),
        np.str_("1.5"),
        np.timedelta64(3, "ns"),
        np.array(["1", "2"]),
        np.array([1j, 2]),
        ["1", "2"],
    ):
        for container in (x, y):
            with pytest.raises(TypeError):
                container.fill(value)
    assert not x.to_numpy().any() and not y.to_numpy().any()


@pytest.mark.oracle_differs("ndarrays take them")
@pytest.mark.parametrize("kind", ["field", "ndarray"])
def test_what_has_no_order_is_no_vector(kind):
    x = getattr(qd.Vector, kind)(2, qd.f32, 3)
    for value in ({5, 3}, frozenset((5, 3)), {3: 1, 4: 2}):
        with pytest.raises(TypeError, match="2 values are expected"):
            x[0] = value
    x[0] = range(1, 3)
    assert x.to_numpy()[0].tolist() == [1, 2]


@pytest.mark.oracle_differs("fields take no arrays and fractions")
def test_numbers_of_numpy_fill():
    from decimal import Decimal
    from fractions import Fraction

    x, y = qd.field(qd.f32, 3), qd.ndarray(qd.f32, 3)
    for value in (
        np.float64(1.5),
        np.array(1.5),
        np.array(1.5, object),
        Fraction(3, 2),
        Decimal("1.5"),
    ):
        for container in (x, y):
            container.fill(0)
            container.fill(value)
            assert container.to_numpy().tolist() == [1.5] * 3
    big = qd.field(qd.u64, 2)
    for value in (np.uint64(2**64 - 1), np.array(2**64 - 1), np.int8(-1), 2**64 - 1):
        big.fill(0)
        big.fill(value)
        assert big.to_numpy().tolist() == [2**64 - 1] * 2
    flags = qd.field(qd.u1, 2)
    flags.fill(np.bool_(True))
    assert flags.to_numpy().tolist() == [1, 1]


@pytest.mark.oracle_differs("other texts")
def test_struct_misuse():
    s = qd.Struct.field({"a": qd.f32, "b": qd.types.struct(c=qd.i32)}, shape=3)
    s[0] = {"a": 1, "b": {"c": 2}, "more": 3}
    with pytest.raises(KeyError, match="no b: values are expected for a, b"):
        s[0] = {"a": 5}
    with pytest.raises(KeyError, match="no c: values are expected for c"):
        s[0].b = {"d": 5}
    for value in (3, [1, 2], None, "ab", np.array([1, 2])):
        with pytest.raises(TypeError, match="a struct or dict is expected, got"):
            s[0] = value
        with pytest.raises(TypeError, match="a struct or dict is expected, got"):
            s[0].b = value
    assert s[0].to_dict() == {"a": 1, "b": {"c": 2}}
    s[1] = np.zeros(1, [("a", "f4"), ("b", [("c", "i4")])])[0]  # it has members, too
    s[1] = s[0]
    assert s[1].to_dict() == {"a": 1, "b": {"c": 2}}
    for other in (s.a, qd.Struct.field({"a": qd.f32}, shape=3)):
        with pytest.raises(AssertionError, match="a struct field of a, b is expected, got <qd"):
            s.copy_from(other)
    for members in ([("a", qd.f32)], None, qd.types.struct(a=qd.f32), "ab"):
        with pytest.raises(TypeError, match="a dict of types by member name is expected, got"):
            qd.Struct.field(members, shape=3)


@pytest.mark.parametrize("member", [5, None, [1], np.zeros(3), qd.i32, qd.types.vector(3, qd.f32)])
def test_members_of_a_struct_field_are_fields(member):
    for members in ({"x": member}, {"a": qd.field(qd.f32, 3), "x": member}):
        with pytest.raises(AttributeError, match="object has no attribute 'grad'"):
            qd.StructField(members, {}, "made")
    made = qd.StructField(
        {"a": qd.field(qd.f32, 3), "v": qd.Vector.field(2, qd.i32, 3)}, {}, "made"
    )
    assert made.keys == ["a", "v"] and made.shape == (3,)


def test_matrix_fill():
    v = qd.Vector.field(2, qd.f32, shape=3)
    v.fill([1, 2])
    assert v.to_numpy().tolist() == [[1, 2]] * 3
    v.fill(qd.Vector([3, 4]))
    v.fill(5)
    assert (v.to_numpy() == 5).all()
    with pytest.raises(AssertionError):
        v.fill([1, 2, 3])


def test_matrix_conversion():
    v = qd.Vector.field(3, qd.f32, shape=(2,))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    v.from_numpy(values)
    assert (v.to_numpy() == values).all()
    v.from_numpy(values.reshape(2, 3, 1) + 1)
    assert (v.to_numpy(keep_dims=True) == values.reshape(2, 3, 1) + 1).all()
    assert (v.to_numpy(dtype=np.float64) == values + 1).all()
    column = qd.Matrix.field(3, 1, qd.f32, shape=2)
    assert column.to_numpy().shape == (2, 3)
    assert qd.Matrix.field(1, 3, qd.f32, shape=2).to_numpy().shape == (2, 1, 3)
    with raises(AssertionError, "This is not a vector field"):
        qd.Matrix.field(2, 2, qd.f32, shape=2).from_numpy(np.zeros((2, 4), np.float32))


@pytest.mark.oracle_differs("it reads beyond the first number there")
def test_rows_for_a_vector_field():
    v = qd.Vector.field(3, qd.f32, shape=2)
    values = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    v.from_numpy(values)
    assert (v.to_numpy() == values[:, 0]).all()


def test_dtype_lists():
    with pytest.raises(AssertionError):
        qd.Vector.field(3, [qd.f32] * 2, shape=2)
    same = qd.Vector.field(2, [qd.f32, qd.f32], shape=2)
    assert same.shape == (2,)


# --- structs ---------------------------------------------------------------------------------------


def struct():
    return qd.types.struct(a=qd.f32, v=qd.types.vector(2, qd.i32), inner=qd.types.struct(q=qd.i32))


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_struct_field(layout):
    s = struct().field(shape=3, layout=getattr(qd.Layout, layout))
    assert s.keys == ["a", "v", "inner"] and s.shape == (3,)
    s[1].a = 4
    s[1].v = [1, 2]
    s[1].inner.q = 7
    assert s.a[1] == 4 and s.v[1].to_list() == [1, 2] and s.inner.q[1] == 7
    s[2] = {"a": 5, "v": [3, 4], "inner": {"q": 8}}
    assert s[2].a == 5 and s[2].inner.q == 8
    out = s.to_numpy()
    assert out["a"].tolist() == [0, 4, 5] and out["inner"]["q"].tolist() == [0, 7, 8]
    other = struct().field(shape=3)
    other.copy_from(s)
    assert other.v.to_numpy().tolist() == [[0, 0], [1, 2], [3, 4]]
    other.fill(1)
    other.from_numpy(out)
    assert (other.to_numpy()["a"] == out["a"]).all()
    assert s.get_member_field("a") is s.a


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_struct_views():
    aos = qd.types.struct(a=qd.f32, b=qd.f32).field(shape=3)
    soa = qd.types.struct(a=qd.f32, b=qd.f32).field(shape=3, layout=qd.Layout.SOA)
    with raises(ValueError, "Zero-copy not available"):
        aos.a.to_numpy(copy=False)
    soa.a.to_numpy(copy=False)[1] = 3
    assert soa.a[1] == 3


# --- trees -----------------------------------------------------------------------------------------


def test_blocks():
    x = qd.field(qd.i32)
    block = qd.root.dense(qd.ij, (2, 3)).dense(qd.ij, (4, 2))
    block.place(x)
    assert x.shape == (8, 6) and block.shape == (8, 6)
    values = np.arange(48, dtype=np.int32).reshape(8, 6)
    x.from_numpy(values)
    assert (x.to_numpy() == values).all() and x[5, 3] == values[5, 3]
    assert (x.to_numpy(dtype=np.float64, copy=None) == values).all()


@pytest.mark.oracle_differs("the reference returns a scrambled view")
def test_blocks_are_not_shared():
    x = qd.field(qd.i32)
    qd.root.dense(qd.ij, (2, 2)).dense(qd.ij, (2, 2)).place(x)
    with raises(ValueError, "Zero-copy not available"):
        x.to_numpy(copy=False)


def test_axes_without_gaps():
    x, y = qd.field(qd.i32), qd.field(qd.i32)
    k = qd.root.dense(qd.k, 3)
    k.place(y)
    k.dense(qd.i, 2).place(x)
    assert x.shape == (2, 3) and y.shape == (3,)
    x[1, 2] = 4
    y[2] = 5
    assert x.to_numpy()[1, 2] == 4 and y.to_numpy()[2] == 5 and x.to_numpy().sum() == 4


def test_nodes():
    x, y = qd.field(qd.u8), qd.field(qd.f64)
    outer = qd.root.dense(qd.i, 3)
    inner = outer.dense(qd.ij, (1, 4))
    inner.place(x, y)
    assert x.parent() == inner and x.parent(2) == outer and x.parent(3) == qd.root
    assert x.parent(4) is None and qd.root.parent() is None and inner.parent(0) == inner
    assert str(inner) == "qd.root => dense [3] => dense [3, 4]"
    assert repr(inner) == "<qd.SNode of type dense>" and repr(qd.root) == "qd.root"
    assert outer._get_children() == [inner] and x.snode._path_from_root()[1:] == [
        outer,
        inner,
        x.snode,
    ]
    assert inner._cell_size_bytes == 16 and y.snode._offset_bytes_in_parent_cell == 8
    assert inner._physical_index_position() == {0: 0, 1: 1}
    assert x.snode.ptr.type == qd._lib.core.SNodeType.place


def test_placing_errors():
    node = qd.root.dense(qd.i, 3)
    x = qd.field(qd.f32)
    with raises(ValueError, "cannot be placed"):
        node.place(3)
    node.place(x)
    with raises(RuntimeError, "This variable has been placed."):
        node.place(x)
    with raises(qd._lib.core.QuadrantsRuntimeError, "axes and sizes must have the same size"):
        qd.root.dense(qd.ij, (2, 3, 4))


def test_unplaced():
    qd.field(qd.f32, shape=3)
    qd.field(qd.f32)
    with raises(RuntimeError, "These field(s) are not placed:", "test_fields_host.py"):
        qd.sync()


def test_empty_container():
    qd.root.dense(qd.i, 3)
    with raises(RuntimeError, "dense node must have at least one child.", "of dimensions"):
        qd.sync()


def test_members_of_different_shapes():
    v = qd.Vector.field(2, qd.f32)
    qd.root.dense(qd.i, 3).place(v.get_scalar_field(0))
    qd.root.dense(qd.i, 4).place(v.get_scalar_field(1))
    with raises(RuntimeError, "Members of the following field have different shapes"):
        qd.sync()


def test_components_placed_by_hand():
    v = qd.Vector.field(2, qd.f32)
    qd.root.dense(qd.i, 3).place(v.get_scalar_field(0))
    qd.root.dense(qd.i, 3).place(v.get_scalar_field(1))
    v[1] = [1, 2]
    assert v.get_scalar_field(1)[1] == 2 and v._get_dynamic_index_stride() == 12
    assert v.to_numpy().tolist() == [[0, 0], [1, 2], [0, 0]]


def test_builder():
    builder = qd.FieldsBuilder()
    x = qd.field(qd.f32)
    builder.dense(qd.i, 4).place(x)
    with raises(qd.QuadrantsRuntimeError, "is not finalized"):
        x[0]
    tree = builder.finalize()
    x[2] = 3
    assert x[2] == 3 and not tree.destroyed
    with raises(qd.QuadrantsRuntimeError, "FieldsBuilder finalized"):
        builder.dense(qd.i, 2)
    tree.destroy()
    assert tree.destroyed
    for use in (tree.destroy, lambda: tree.id):
        with raises(qd.QuadrantsRuntimeError, "SNode tree has been destroyed"):
            use()


def test_numbers_of_destroyed_trees_come_again():
    def tree():
        builder = qd.FieldsBuilder()
        x = qd.field(qd.f32)
        builder.dense(qd.i, 4).place(x)
        made = builder.finalize()
        assert not x.to_numpy().any()
        x.fill(1)
        return made

    made = [tree() for _ in range(4)]
    made[1].destroy()
    made[2].destroy()
    made += [tree() for _ in range(3)]
    assert [t.id for t in made if not t.destroyed] == [0, 3, 2, 1, 4]


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
@pytest.mark.oracle_differs("touching a destroyed field crashes there", run=False)
def test_destroyed_field():
    builder = qd.FieldsBuilder()
    x = qd.field(qd.f32)
    builder.dense(qd.i, 4).place(x)
    tree = builder.finalize()
    x[0] = 1
    view = x.to_numpy(copy=False)
    tree.destroy()
    for use in (lambda: x[0], lambda: x.fill(0), x.to_numpy):
        with raises(qd.QuadrantsRuntimeError, "SNode tree has been destroyed"):
            use()
    assert view[0] == 1


def test_tree_numbers():
    runtime = qd.lang.impl.get_runtime()
    first = qd.field(qd.i32, shape=2)
    first[0] = 1
    second = qd.field(qd.i32, shape=2)
    second[0] = 2
    assert (first.snode._snode_tree_id, second.snode._snode_tree_id) == (0, 1)
    assert runtime.prog.get_snode_tree_size() == 2
    assert first[0] == 1 and second[0] == 2


# --- companions ------------------------------------------------------------------------------------


def test_companions():
    x = qd.field(qd.f32, shape=(2, 3), needs_grad=True, needs_dual=True)
    assert x.has_grad() and x.has_dual() and x.grad.shape == (2, 3)
    x.grad[1, 2] = 4
    assert x.grad[1, 2] == 4 and x[1, 2] == 0 and x.dual[1, 2] == 0
    assert x.parent()._snode.ptr.get_num_ch() == 1
    plain = qd.field(qd.f32, shape=3)
    assert not plain.has_grad() and plain.grad is not None
    for use in (lambda: plain.grad.fill(1), lambda: plain.grad[0]):
        with raises(qd.QuadrantsRuntimeError, "Field has no allocation."):
            use()
    assert qd.field(qd.i32, shape=3).grad is None
    with raises(qd.QuadrantsRuntimeError, "is not supported for field with `needs_grad=True`"):
        qd.field(qd.i32, shape=3, needs_grad=True)


def test_explicit_and_lazy_gradients():
    x, y, n = qd.field(qd.f32), qd.Vector.field(2, qd.f32), qd.field(qd.i32)
    node = qd.root.dense(qd.i, 3)
    node.place(x, x.grad)
    node.place(y, n)
    node.lazy_grad() if hasattr(node, "lazy_grad") else qd.root.lazy_grad()
    assert x.has_grad() and y.has_grad()
    y.grad[1] = [1, 2]
    assert y.grad.to_numpy()[1].tolist() == [1, 2] and y.grad.parent() == node


def test_wanted_gradient_must_be_placed():
    x = qd.field(qd.f32, needs_grad=True)
    qd.root.dense(qd.i, 3).place(x)
    with raises(
        RuntimeError, "requrie `needs_grad=True`, however their grad field(s) are not placed"
    ):
        qd.sync()


# --- copies, views, life ---------------------------------------------------------------------------


def test_copy_from():
    x, y = qd.field(qd.f32, shape=(2, 2)), qd.field(qd.i32, shape=(2, 2))
    y.from_numpy(np.arange(4, dtype=np.int32).reshape(2, 2))
    x.copy_from(y)
    assert x.to_numpy().tolist() == [[0, 1], [2, 3]]
    with pytest.raises(TypeError):
        x.copy_from(np.zeros((2, 2)))
    with pytest.raises(ValueError):
        x.copy_from(qd.field(qd.f32, shape=3))


def test_from_numpy_checks():
    x = qd.field(qd.i32, shape=3)
    with raises(ValueError, "qd.field shape (3,) does not match the numpy array shape (4,)"):
        x.from_numpy(np.zeros(4))
    with pytest.raises(AttributeError):
        x.from_numpy([1, 2, 3])
    x.from_numpy(np.arange(6)[::2])
    assert x.to_numpy().tolist() == [0, 2, 4]


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_views():
    x = qd.field(qd.f32, shape=(2, 3))
    view = x.to_numpy(copy=False)
    x[1, 1] = 4
    assert view[1, 1] == 4 and x.to_numpy(copy=None)[1, 1] == 4
    with raises(ValueError, "copy=False is incompatible with dtype conversion"):
        x.to_numpy(dtype=np.float64, copy=False)
    for refused in (
        qd.field(qd.i8, shape=3),
        qd.field(qd.f32, shape=()),
        qd.Vector.field(2, qd.f32, shape=3, layout=qd.Layout.SOA),
    ):
        with raises(ValueError, "Zero-copy not available"):
            refused.to_numpy(copy=False)


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
@pytest.mark.oracle_differs("old fields and views may crash there", run=False)
def test_reset_makes_fields_stale(backend):
    x = qd.field(qd.f32, shape=3)
    x[1] = 2
    view = x.to_numpy(copy=False)
    qd.reset()
    with pytest.raises(qd.QuadrantsRuntimeError):
        x[1]
    backend.init()
    for use in (lambda: x[1], lambda: x.fill(1), x.to_numpy):
        with pytest.raises(qd.QuadrantsRuntimeError):
            use()
    assert view[1] == 2
    y = qd.field(qd.f32, shape=3)
    assert y[1] == 0
    del y
    gc.collect()


def test_no_pickle_no_copy():
    x = qd.field(qd.f32, shape=3)
    copy.copy(x)[1] = 4
    assert x[1] == 4
    for use in (lambda: copy.deepcopy(x), lambda: pickle.dumps(x)):
        with pytest.raises(TypeError):
            use()


@pytest.mark.oracle_differs("not everything is checked there")
def test_without_runtime():
    qd.reset()
    with raises(qd.QuadrantsRuntimeError, "qd.init()"):
        qd.field(qd.f32, shape=3)
    with raises(qd.QuadrantsRuntimeError, "Please call init() first"):
        qd.root.dense(qd.i, 3)


def test_arbitrary_attributes_and_classes():
    x = qd.field(qd.f32, shape=3)
    x._tc = "cached"
    assert x._tc == "cached"
    s = qd.types.struct(a=qd.f32).field(shape=2)
    v = qd.Vector.field(2, qd.f32, shape=2)
    assert all(isinstance(f, qd.Field) for f in (x, s, v))
    assert isinstance(x, qd.ScalarField) and isinstance(v, qd.MatrixField)


COMMON = "copy_from dtype fill from_numpy from_torch has_dual has_grad layout parent shape snode to_dlpack to_numpy to_torch"
NODE = "bitmasked deactivate_all dense dynamic lazy_dual lazy_grad place pointer quant_array"


@pytest.mark.parametrize(
    "name, names",
    [
        ("Field", COMMON),
        ("ScalarField", COMMON),
        ("MatrixField", COMMON + " get_scalar_field"),
        ("StructField", COMMON + " get_member_field keys"),
        ("FieldsBuilder", NODE + " finalize"),
        ("SNode", NODE + " parent shape"),
    ],
)
def test_public_names(name, names):
    found = [n for n in dir(getattr(qd, name)) if not n.startswith("_")]
    assert found == sorted(names.split())


def place_unevenly():
    """A field whose components lie in cells of 8, 4 and 16 bytes, one of them in columns."""
    v, beside = qd.Vector.field(3, qd.f32), qd.field(qd.f64)
    pair = qd.field(qd.i32)
    qd.root.dense(qd.ij, (2, 3)).place(v.get_scalar_field(0), pair)
    qd.root.dense(qd.i, 2).dense(qd.j, 3).place(v.get_scalar_field(1))
    qd.root.dense(qd.j, 3).dense(qd.i, 2).place(v.get_scalar_field(2), beside)
    return v, pair, beside


def test_components_in_cells_of_different_sizes():
    v, pair, beside = place_unevenly()
    values = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    v.from_numpy(values)
    assert v.shape == (2, 3) and v._get_dynamic_index_stride() is None
    assert (v.to_numpy() == values).all() and not pair.to_numpy().any()
    assert v[1, 2].to_list() == [15, 16, 17] and v.get_scalar_field(2)[0, 1] == 5
    v[1, 0] = [1, 2, 3]
    v[1, 1].y += 0.5
    v[1, 1][2] = -1
    assert v.to_numpy()[1].tolist() == [[1, 2, 3], [12, 13.5, -1], [15, 16, 17]]
    v.fill(7)
    assert (v.to_numpy() == 7).all() and not pair.to_numpy().any() and not beside.to_numpy().any()
    w = qd.Vector.field(3, qd.f32, (2, 3))
    w.copy_from(v)
    v.get_scalar_field(0).fill(1)
    assert w[1, 2].to_list() == [7, 7, 7] and v[1, 2].to_list() == [1, 7, 7]


def test_uneven_components_have_no_view():
    v, _, _ = place_unevenly()
    with raises(ValueError, "Zero-copy not available"):
        v.to_numpy(copy=False)
    assert v.to_numpy(copy=None).shape == (2, 3, 3)


def calls_of(action):
    """How many Python functions an action calls."""
    count = 0

    def see(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_cost_of_a_wide_vector_field_is_linear():
    def make(n):
        return lambda: qd.Vector.field(n, qd.f32, 2)[0]

    calls_of(make(300))  # imports
    assert calls_of(make(1200)) < 4.5 * calls_of(make(300))


def test_integer_arrays_without_dimensions_are_indices():
    f, n, m = qd.field(qd.i32, 3), qd.ndarray(qd.i32, 3), qd.field(qd.i32, (2, 3))
    for c in (f, n):
        c[np.array(1)] = 4
        assert c[1] == 4 and c[np.array(1, np.uint8)] == 4
        with pytest.raises(TypeError):
            c[np.array(1.5)]
    m[np.array(1), np.array(2)] = 7
    assert m[1, 2] == 7


@pytest.mark.of_cpus("of a machine's memory")
def test_a_builder_without_memory_is_nobody_s_concern():
    y = qd.field(qd.i32, 2)
    y.fill(1)
    builder = qd.FieldsBuilder()
    x = qd.field(qd.f32)
    builder.dense(qd.ijk, (2**16, 2**16, 2**16)).place(x)
    with pytest.raises(RuntimeError, match="[Oo]ut of memory"):
        builder.finalize()
    z = qd.field(qd.i32, 2)
    z.fill(2)
    assert y[0] == 1 and z[1] == 2
    with pytest.raises(qd.QuadrantsRuntimeError):
        x[0, 0, 0]


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**40])
def test_integers_that_no_dtype_holds_are_refused(backend, value):
    """What 64 bits hold wraps to the width; of more nothing would be left. For `fill`: test_fill_range.py."""
    backend.init()
    places = [qd.field(dt, 3) for dt in (qd.i32, qd.u8, qd.u1)] + [qd.ndarray(qd.i32, 3)]
    for x in places:
        x[1] = 1
        with raises(TypeError, "at most 64 bits"):
            x[1] = value
        with raises(TypeError, "out of range"):
            x.fill(value)
        assert x[1] == 1
        x[1] = 2**64 - 1
        x[2] = -(2**63)
    assert [x[1] for x in places] == [-1, 255, 1, -1]
    assert [x[2] for x in places] == [0, 0, 1, 0]
