"""Ndarrays, and NumPy arrays as arguments: dtypes, shapes, in-place use, errors."""

import copy
import pickle

import numpy as np
import pytest

import quadrants as qd
from helpers import DTYPES, NUMPY, Array, dtype, raises


@pytest.mark.parametrize("name", DTYPES)
def test_ndarrays_of_every_dtype(backend, name):
    a = qd.ndarray(dtype(name), (2, 3))
    assert a.shape == (2, 3) and a.dtype == dtype(name) and a.element_shape == ()
    assert not a.to_numpy().any() and a.to_numpy().dtype == NUMPY[name]
    x = np.arange(6).reshape(2, 3).astype(NUMPY[name])
    a.from_numpy(x)
    assert np.array_equal(a.to_numpy(), x)
    a[1, 2] = 1
    assert a[1, 2] == 1
    b = qd.ndarray(dtype(name), (2, 3))
    b.copy_from(a)
    assert b[0, 1] == 1
    a.fill(1)
    assert (a.to_numpy() == 1).all()


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_arguments_of_every_dtype(backend, name):
    x = np.array([0, 1, 1, 0], NUMPY[name])
    y = np.ones(4, NUMPY[name])

    @qd.kernel
    def run(x: Array, y: Array):
        for i in x:
            y[i] = x[i]

    run(x, y)
    assert np.array_equal(x, y)


def test_vector_and_matrix_ndarrays(backend):
    v = qd.Vector.ndarray(3, qd.f32, 4)
    m = qd.Matrix.ndarray(2, 2, qd.i32, (2, 2))
    w = qd.ndarray(qd.types.vector(3, qd.f32), 4)
    assert v.element_shape == (3,) and m.element_shape == (2, 2)
    vec, mat = qd.types.vector(3, qd.f32), qd.types.matrix(2, 2, qd.i32)

    @qd.kernel
    def run(
        v: qd.types.ndarray(dtype=vec, ndim=1),
        w: qd.types.NDArray[vec, 1],
        m: qd.types.ndarray(dtype=mat),
        k: qd.i32,
    ):
        for i in range(v.shape[0]):
            v[i] = [i, 1, 2]
            w[i] = v[i] * 2
            w[i][k] = -1
        for i, j in m:
            m[i, j] = [[i, j], [k, 0]]
            m[i, j][1, k] += 5

    run(v, w, m, 1)
    assert v.to_numpy().tolist() == [[i, 1, 2] for i in range(4)]
    assert w.to_numpy().tolist() == [[2 * i, -1, 4] for i in range(4)]
    assert m.to_numpy()[1, 0].tolist() == [[1, 0], [1, 5]]
    v[2] = [7, 8, 9]
    v[2][0] = 70
    v[2].z = 90
    assert v[2].to_list() == [70, 8, 90]
    v.fill([1, 2, 3])
    assert v.to_numpy()[3].tolist() == [1, 2, 3]
    m[0, 0] = [[1, 2], [3, 4]]
    assert m[0, 0].to_list() == [[1, 2], [3, 4]]


def test_numpy_arrays_are_used_in_place(backend):
    a = np.zeros(4, np.int64)

    @qd.kernel
    def address(a: Array) -> qd.u64:
        for i in a:
            a[i] += 1
        return qd.cast(a[0], qd.u64)

    address(a)
    view = a[1:3]
    address(view)
    assert a.tolist() == [1, 2, 2, 1]


def test_numpy_array_forms(backend):
    @qd.kernel
    def run(a: qd.types.ndarray(ndim=2)):
        for i, j in a:
            a[i, j] += i * 10 + j

    c = np.zeros((2, 3), np.int32)
    run(c)
    assert c.tolist() == [[0, 1, 2], [10, 11, 12]]
    f = np.asfortranarray(np.zeros((2, 3), np.int32))
    run(f)
    assert f.tolist() == [[0, 1, 2], [10, 11, 12]]
    run(np.zeros((0, 3), np.int32))
    with pytest.raises(ValueError, match="^Non contiguous numpy arrays are not supported"):
        run(np.zeros((4, 6), np.int32)[::2, ::2])

    @qd.kernel
    def zero_dim(a: Array):
        a[None] = 5

    z = np.zeros((), np.float32)
    zero_dim(z)
    assert z == 5


def test_compound_numpy_arguments(backend):
    vec = qd.types.vector(3, qd.f32)

    @qd.kernel
    def run(a: qd.types.ndarray(dtype=vec, ndim=1)):
        for i in a:
            a[i] = [i, i, 1]

    x = np.zeros((4, 3), np.float32)
    run(x)
    assert x.tolist() == [[i, i, 1] for i in range(4)]


def test_same_kernel_over_shapes_and_dtypes(backend):
    @qd.kernel
    def total(a: Array) -> qd.f64:
        s = qd.f64(0.0)
        for I in qd.grouped(a):
            s += a[I]
        return s

    for shape in ((5,), (2, 3), (2, 3, 4), (7,)):
        for t in (np.float32, np.int32, np.uint8):
            assert total(np.ones(shape, t)) == np.prod(shape)
    nd = qd.ndarray(qd.f32, (3, 3))
    nd.fill(2)
    assert total(nd) == 18


def test_shape_is_a_runtime_value(backend):
    @qd.kernel
    def run(a: Array) -> qd.i32:
        return a.shape[0] * 100 + a.shape[1]

    assert run(np.zeros((2, 3))) == 203 and run(np.zeros((5, 7))) == 507


def test_read_only_numpy_arrays(backend):
    x = np.arange(3.0)
    x.flags.writeable = False

    @qd.kernel
    def total(a: Array) -> qd.f64:
        s = qd.f64(0.0)
        for i in a:
            s += a[i]
        return s

    assert total(x) == 3


def test_zero_dimensional_ndarray(backend):
    a = qd.ndarray(qd.f32, ())
    a[None] = 3.5
    assert a[None] == 3.5 and a[()] == 3.5 and a.to_numpy() == 3.5


def test_clamped_boundary(backend):
    out = np.zeros(4, np.int32)

    @qd.kernel
    def run(a: qd.types.ndarray(dtype=qd.i32, ndim=1, boundary="clamp"), out: Array):
        out[0], out[1] = a[-5 + 0 * out[3]], a[100]
        out[2] = a[1]

    run(np.array([7, 8, 9], np.int32), out)
    assert out.tolist() == [7, 9, 8, 0]


vec3, mat2 = qd.types.vector(3, qd.f32), qd.types.matrix(2, 2, qd.f32)
Vectors = qd.types.ndarray(dtype=vec3, ndim=1, boundary="clamp")
Matrices = qd.types.ndarray(dtype=mat2, ndim=1, boundary="clamp")
View = qd.BufferView[vec3, "clamp"]


@pytest.mark.parametrize("debug", [False, True])
def test_clamped_components_of_vectors(backend, debug):
    backend.init(debug=debug)
    a = qd.Vector.ndarray(3, qd.f32, 2)

    @qd.func
    def last(v: qd.template()):
        return v[7]

    @qd.kernel
    def store(a: Vectors, view: View):
        for _ in range(1):
            for k in qd.static(range(5)):
                a[0][k] = 10 + k
            a[1][3] += 4
            view[0][9] += 0.5
            qd.atomic_add(a[0][2**20], 100)

    @qd.kernel
    def load(a: Vectors, view: View, i: int, out: Array):
        for _ in range(1):
            out[0], out[1], out[2] = a[0][5], a[9][3], view[0][4]
            out[3], out[4] = last(a[0]), view[0][i]

    out = np.zeros(5, np.float32)
    a.from_numpy(np.array([[0, 1, 2], [3, 4, 5]], np.float32))
    store(a, a[1:2])
    assert a.to_numpy().tolist() == [[10, 11, 114], [3, 4, 9.5]]
    for i in (-2, 0, 2, 3):
        load(a, a[1:2], i, out)
        assert out.tolist() == [114, 9.5, 9.5, 114, a[1][min(max(i, 0), 2)]]


@pytest.mark.oracle_differs("clamps the number of the component, not each of its indices")
@pytest.mark.parametrize("debug", [False, True])
def test_clamped_components_of_matrices(backend, debug):
    backend.init(debug=debug)
    a = qd.Matrix.ndarray(2, 2, qd.f32, 2)

    @qd.kernel
    def at(a: Matrices, i: int, j: int) -> qd.types.vector(5, qd.f32):
        return qd.Vector([a[0][i, j], a[0][i, 5], a[0][5, j], a[0][0, 5], a[0][5, 0]])

    @qd.kernel
    def row(a: Matrices) -> qd.types.vector(2, qd.f32):
        return a[1][7, :]

    @qd.kernel
    def store(a: Matrices, i: int, j: int):
        a[1][i, j] = 20
        a[1][5, 0] += 30

    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    a.from_numpy(x)
    for i, j in ((0, 0), (0, 5), (5, 0), (-1, 1), (1, -1), (2**31 - 1, -(2**31))):
        r, c = min(max(i, 0), 1), min(max(j, 0), 1)
        assert at(a, i, j).to_list() == [x[0, r, c], x[0, r, 1], x[0, 1, c], 1, 2]
    assert row(a).to_list() == [6, 7]
    store(a, -3, 9)
    assert a.to_numpy()[1].tolist() == [[4, 20], [36, 7]]


@pytest.mark.oracle_differs("takes 32 bits only")
def test_clamped_components_of_long_indices(backend):
    a = qd.Vector.ndarray(3, qd.f32, 1)
    a.from_numpy(np.array([[1, 2, 3]], np.float32))

    @qd.kernel
    def at(a: Vectors, i: qd.i64) -> qd.f32:
        return a[0][i]

    assert [at(a, i) for i in (2**32, 1, -(2**32) + 2)] == [3, 2, 1]


def test_copies_and_pickles(backend):
    a = qd.Vector.ndarray(2, qd.f32, 3)
    a.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2))
    for b in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        b[0][0] = 100
        assert b.shape == (3,) and b[2].to_list() == [4, 5] and a[0][0] == 0


def test_repr(backend):
    assert repr(qd.ndarray(qd.f32, 2)) == "<qd.ndarray>"
    assert repr(qd.Vector.ndarray(3, qd.f32, 2)) == "<3 Layout.AOS qd.Vector.ndarray>"
    assert repr(qd.Matrix.ndarray(2, 3, qd.f32, 2)) == "<2x3 Layout.AOS qd.Matrix.ndarray>"


@pytest.mark.parametrize("shape", [-1, (2, 0), 1.5, "x"])
def test_bad_shapes(backend, shape):
    with raises(qd.QuadrantsRuntimeError, "is not a valid shape for ndarray"):
        qd.ndarray(qd.f32, shape)


def test_bad_dtype(backend):
    with raises(qd.QuadrantsRuntimeError, "is not supported as ndarray element type"):
        qd.ndarray("f32", 3)


def test_host_access_errors(backend):
    a = qd.ndarray(qd.i32, (2, 2))
    with raises(qd.QuadrantsCompilationError, "2d ndarray indexed with 1d indices"):
        a[0]
    with pytest.raises(TypeError):
        a[0, 0] = 1.5
    with raises(ValueError, "Mismatch shape: (2, 2) expected, but (2, 3) provided"):
        a.from_numpy(np.zeros((2, 3)))
    with pytest.raises(TypeError):
        a.from_numpy([[1, 2], [3, 4]])
    with raises(AssertionError, "copy_from shape mismatch"):
        a.copy_from(qd.ndarray(qd.i32, (2, 3)))
    with pytest.raises(ValueError):
        qd.types.ndarray(boundary="wrap")


vec3 = qd.types.vector(3, qd.f32)


@qd.kernel
def wants_f32(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    a[0] = 1


@qd.kernel
def wants_vec3(a: qd.types.ndarray(dtype=vec3, ndim=1)):
    a[0] = [1, 2, 3]


@pytest.mark.parametrize(
    "kernel,make,cls,text",
    [
        (wants_f32, lambda: np.zeros(3), ValueError,
         "Invalid value for argument a - required array has dtype=f32, array with dtype=f64 is provided"),
        (wants_f32, lambda: np.zeros((3, 3), np.float32), ValueError, "required array has ndim=1"),
        (wants_f32, lambda: qd.ndarray(qd.i32, 3), TypeError,
         "Expect element type f32 for argument a, but get i32"),
        (wants_f32, lambda: qd.ndarray(qd.f32, (12, 13)), ValueError,
         "required ndim=1, but 2d ndarray with shape (12, 13) is provided"),
        (wants_vec3, lambda: np.zeros((4, 2), np.float32), ValueError, "required element_shape=(3,)"),
        (wants_vec3, lambda: qd.Vector.ndarray(2, qd.f32, 4), ValueError, "required element type"),
        (wants_f32, lambda: qd.field(qd.f32, 3), qd.QuadrantsRuntimeTypeError, ""),
        (wants_f32, lambda: [1.0], qd.QuadrantsRuntimeTypeError, "Invalid type for argument a"),
    ],
)  # fmt: skip
def test_mismatched_arguments(backend, kernel, make, cls, text):
    with raises(cls, text):
        kernel(make())
    good = np.zeros(3, np.float32)
    wants_f32(good)
    assert good[0] == 1


def test_number_types_of_vector_elements(backend):
    """A foreign array may bring another number type than a vector annotation says, an ndarray not:
    not even after a foreign array of its type was there."""
    for name in ("f64", "i32"):
        wrong = qd.Vector.ndarray(3, dtype(name), 2)
        for _ in range(2):
            with raises(ValueError, "required element type"):
                wants_vec3(wrong)
            foreign = np.zeros((2, 3), NUMPY[name])
            wants_vec3(foreign)
            assert foreign[0].tolist() == [1, 2, 3]
    right = qd.Vector.ndarray(3, qd.f32, 2)
    wants_vec3(np.zeros((2, 3), np.float32))
    wants_vec3(right)
    assert right.to_numpy()[0].tolist() == [1, 2, 3]


def test_complex_arrays_raise(backend):
    @qd.kernel
    def run(a: Array):
        pass

    with pytest.raises(Exception):
        run(np.zeros(3, np.complex64))


def test_misuse_in_kernels(backend):
    a = np.zeros((2, 2), np.float32)

    @qd.kernel
    def negative(a: Array):
        a[-1, 0] = 1

    @qd.kernel
    def count(a: Array):
        a[0] = 1

    with raises(
        qd.QuadrantsSyntaxError, "Negative indices are not supported in Quadrants kernels."
    ):
        negative(a)
    with pytest.raises(qd.QuadrantsCompilationError):
        count(a)


def test_arrays_are_released(backend):
    import gc
    import weakref

    a = qd.ndarray(qd.f32, 1000)
    wants_f32(a)
    ref = weakref.ref(a)
    del a
    gc.collect()
    assert ref() is None
