"""Ndarrays and buffer views on the host: creation, element access, conversion, exports. No kernels."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import quadrants as qd
from helpers import DTYPES, FLOATS, INTS, NUMPY, bits, dtype, raises

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("name", DTYPES)
def test_numbers_round_trip(name):
    a = qd.ndarray(dtype(name), (2, 3))
    assert a.shape == (2, 3) and a.dtype == dtype(name) and a.element_shape == ()
    assert a.to_numpy().dtype == NUMPY[name] and not a.to_numpy().any()
    a[1, 2] = 1
    assert a[1, 2] == 1 and type(a[1, 2]) is (float if name in FLOATS else int)
    values = np.array([[0, 1, 1], [1, 0, 1]], NUMPY[name])
    a.from_numpy(values)
    assert (a.to_numpy() == values).all()
    a.fill(0)
    assert not a.to_numpy().any()


@pytest.mark.parametrize("name", INTS)
def test_integers_wrap(name):
    a = qd.ndarray(dtype(name), 2)
    a[0] = -1
    assert a[0] == (-1 if name[0] == "i" else 2 ** bits(name) - 1)
    with pytest.raises(TypeError):
        a[0] = 1.5


def test_keys():
    a = qd.ndarray(qd.f32, (2, 3))
    a[np.int32(1), np.int64(2)] = np.float32(2.5)
    assert a[1, 2] == 2.5
    zero = qd.ndarray(qd.i32, ())
    zero[None] = 3
    assert zero[None] == 3 and zero[()] == 3
    for key, text in ((5, "1d indices: (5,)"), ((0, 0, 0), "3d indices: (0, 0, 0)")):
        with raises(qd.lang.exception.QuadrantsIndexError, "2d ndarray indexed with " + text):
            a[key]


@pytest.mark.oracle_differs("iterating crashes there", run=False)
def test_not_iterable():
    with pytest.raises(TypeError):
        iter(qd.ndarray(qd.f32, 3))


def test_vectors_and_matrices():
    v = qd.Vector.ndarray(3, qd.i32, (2,))
    v[1] = [1, 2, 3]
    v[1].y = 9
    v[1][2] += 1
    assert v[1].to_list() == [1, 9, 4] and v.to_numpy().shape == (2, 3)
    m = qd.Matrix.ndarray(2, 2, qd.f32, ())
    m[None] = [[1, 2], [3, 4]]
    m[None][1, 0] = 7
    assert m.to_numpy().tolist() == [[1, 2], [7, 4]]
    assert (v.n, m.n, m.m) == (3, 2, 2) and v.element_shape == (3,) and m.element_shape == (2, 2)
    assert str(v.element_type) == "[Tensor (3) i32]" and v.element_type.element_type() == qd.i32
    assert (
        repr(v) == "<3 Layout.AOS qd.Vector.ndarray>"
        and repr(m) == "<2x2 Layout.AOS qd.Matrix.ndarray>"
    )
    assert repr(qd.ndarray(qd.f32, 2)) == "<qd.ndarray>"
    assert isinstance(qd.ndarray(qd.types.vector(2, qd.f32), 3), qd.VectorNdarray)
    assert isinstance(qd.ndarray(qd.types.matrix(2, 3, qd.f32), 3), qd.MatrixNdarray)


def test_fill():
    v = qd.Vector.ndarray(2, qd.f32, 3)
    v.fill([1, 2])
    assert v.to_numpy().tolist() == [[1, 2]] * 3
    v.fill(qd.Vector([3.0, 4.0]))
    assert v.to_numpy().tolist() == [[3, 4]] * 3
    with pytest.raises(TypeError):
        qd.ndarray(qd.i32, 3).fill(1.5)
    for kind in (qd.i32, qd.u32, qd.i64):  # components are cast
        for array in (qd.Vector.ndarray(2, kind, 2), qd.Matrix.ndarray(1, 2, kind, 2)):
            array.fill(2.5)
            assert array.to_numpy().flatten().tolist() == [2] * 4


@pytest.mark.parametrize("shape", [0, (0,), (2, -1), 2.5, (2.5,), "ab", 2**31])
def test_wrong_shapes(shape):
    with raises(qd.QuadrantsRuntimeError, "is not a valid shape for ndarray"):
        qd.ndarray(qd.f32, shape)


def test_wrong_dtypes():
    with raises(qd.QuadrantsRuntimeError, "is not supported as ndarray element type"):
        qd.ndarray("f32", 2)
    with raises(qd.QuadrantsRuntimeError, "needs_grad"):
        qd.ndarray(qd.i32, 3, needs_grad=True)


def test_gradient():
    a = qd.ndarray(qd.f32, (2, 3), needs_grad=True)
    a.grad[1, 2] = 4
    assert a.has_grad() and not a.has_dual() and a.grad.shape == (2, 3) and a[1, 2] == 0
    plain = qd.ndarray(qd.f32, 2)
    assert plain.grad is None and not plain.has_grad()
    assert a.get_type().needs_grad and not plain.get_type().needs_grad


def test_conversion_checks():
    a = qd.ndarray(qd.f32, (2, 3))
    with pytest.raises(TypeError):
        a.from_numpy([[1, 2, 3]] * 2)
    with raises(ValueError, "Mismatch shape: (2, 3) expected, but (3, 2) provided"):
        a.from_numpy(np.zeros((3, 2)))
    a.from_numpy(np.arange(12).reshape(2, 6)[:, ::2])
    assert a.to_numpy().tolist() == [[0, 2, 4], [6, 8, 10]]
    assert a.to_numpy(dtype=np.int32).dtype == np.int32
    b = qd.ndarray(qd.i32, (2, 3))
    b.copy_from(a)
    assert b.to_numpy().tolist() == [[0, 2, 4], [6, 8, 10]]
    with raises(AssertionError, "copy_from shape mismatch"):
        b.copy_from(qd.ndarray(qd.i32, 2))
    with pytest.raises(AssertionError):
        b.copy_from(np.zeros((2, 3)))


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_views():
    a = qd.ndarray(qd.i32, (2, 3))
    view = a.to_numpy(copy=False)
    a[1, 1] = 4
    assert view[1, 1] == 4
    assert qd.ndarray(qd.f32, ()).to_numpy(copy=False).shape == ()
    with raises(ValueError, "copy=False is incompatible with dtype conversion"):
        a.to_numpy(dtype=np.float64, copy=False)
    with raises(ValueError, "Zero-copy not available"):
        qd.ndarray(qd.f16, 3).to_numpy(copy=False)
    assert qd.ndarray(qd.f16, 3).to_numpy(copy=None).dtype == np.float16
    del a
    gc.collect()
    assert view[1, 1] == 4


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", ["i32", "i64", "f32", "f64", "u1"])
def test_dlpack(name, versioned):
    class Holder:
        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **options):
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    a = qd.ndarray(dtype(name), (2, 3))
    a[1, 2] = 1
    capsule = a.to_dlpack(versioned=versioned)
    assert ('"dltensor_versioned"' if versioned else '"dltensor"') in repr(capsule)
    out = np.from_dlpack(Holder(capsule))
    assert out.dtype == NUMPY[name] and out.shape == (2, 3) and out[1, 2] == 1
    unused = a.to_dlpack(versioned=versioned)
    del a, unused, capsule
    gc.collect()
    assert out[1, 2] == 1


def test_dlpack_dtypes():
    for name in ("i8", "u16", "u32", "f16"):
        with pytest.raises(RuntimeError):
            qd.ndarray(dtype(name), 3).to_dlpack()


@pytest.mark.parametrize("name", DTYPES)
def test_pickle_and_deepcopy(name):
    a = qd.ndarray(dtype(name), (2, 3))
    a[1, 2] = 1
    for b in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert b.shape == a.shape and b.dtype == a.dtype and (b.to_numpy() == a.to_numpy()).all()
        b[0, 0] = 1
        assert a[0, 0] == 0
    m = qd.Matrix.ndarray(2, 3, qd.f32, 4)
    m[1] = [[1, 2, 3], [4, 5, 6]]
    n = pickle.loads(pickle.dumps(m))
    assert n.element_shape == (2, 3) and (n.to_numpy() == m.to_numpy()).all()


def test_unpickling_needs_a_runtime(backend):
    data = pickle.dumps(qd.ndarray(qd.f32, 2))
    qd.reset()
    with raises(RuntimeError, "qd.init() must be called before unpickling ndarrays"):
        pickle.loads(data)


def test_reset_leaves_shells(backend):
    a = qd.ndarray(qd.f32, (2, 3), needs_grad=True)
    runtime = qd.lang.impl.get_runtime()
    assert runtime.prog._get_num_ndarrays() == 2 and a in runtime.ndarrays
    qd.reset()
    for name in ("shape", "dtype", "element_type", "grad", "arr"):
        assert getattr(a, name) is None
    assert len(runtime.ndarrays) == 0
    backend.init()
    with pytest.raises(Exception):
        a[0, 0]
    with pytest.raises(Exception):
        a.to_numpy()


def test_memory_goes_with_the_object():
    prog = qd.lang.impl.get_runtime().prog
    a = qd.ndarray(qd.f32, 1000)
    ref = weakref.ref(a)
    before = prog._get_num_ndarrays()
    del a
    gc.collect()
    assert ref() is None and prog._get_num_ndarrays() == before - 1


def test_without_runtime():
    qd.reset()
    with raises(qd.QuadrantsRuntimeError, "qd.init()"):
        qd.ndarray(qd.f32, 3)


def test_facts():
    m = qd.Matrix.ndarray(2, 3, qd.f32, (4, 5))
    assert m.arr.total_shape() == [4, 5, 2, 3] or tuple(m.arr.total_shape()) == (4, 5, 2, 3)
    assert m._get_element_size() == 24 and m._get_nelement() == 20
    assert m._physical_shape == (4, 5)
    m._tc = 1
    assert m._tc == 1


BASE = "copy_from element_shape fill get_type has_dual has_grad layout shape to_dlpack"


@pytest.mark.parametrize("name", ["Ndarray", "ScalarNdarray", "VectorNdarray", "MatrixNdarray"])
def test_public_names(name):
    more = "" if name == "Ndarray" else " from_numpy from_torch to_numpy to_torch"
    found = [n for n in dir(getattr(qd, name)) if not n.startswith("_")]
    assert found == sorted((BASE + more).split())


# --- buffer views ----------------------------------------------------------------------------------


def test_buffer_views():
    a = qd.ndarray(qd.f32, 8)
    view = a[2:6]
    assert (view.offset, view.size, view.shape) == (2, 4, (4,)) and view.get_ndarray() is a
    inner = view[1:]
    assert (inner.offset, inner.size) == (3, 3) and (view[-1:].offset, view[3:1].size) == (5, 0)
    assert view.subview(1, 2).offset == 3 and qd.BufferView(a, 0, 8).size == 8
    assert qd.Vector.ndarray(2, qd.f32, 4)[1:3].size == 2


def test_buffer_view_errors():
    a = qd.ndarray(qd.f32, 4)
    view = qd.BufferView(a, 0, 3)
    for use, cls, text in (
        (lambda: qd.BufferView(a, 2, 9), ValueError, "BufferView out of range: "),
        (lambda: view.subview(2, 5), ValueError, "subview out of range: "),
        (lambda: a[::2], ValueError, "step=1"),
        (lambda: view[1], TypeError, "slice"),
        (lambda: qd.BufferView(qd.ndarray(qd.f32, (2, 3)), 0, 1), TypeError, "1D"),
        (lambda: qd.BufferView(view, 0, 1), TypeError, "BufferView"),
        (lambda: qd.BufferView(qd.ndarray(qd.f32, 4, needs_grad=True), 0, 1), TypeError, "grad"),
    ):
        with raises(cls, text):
            use()
