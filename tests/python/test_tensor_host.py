"""`qd.tensor` on the host: both backends, layouts, wrapping, errors. No kernels."""

import copy
import pickle

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

pytestmark = pytest.mark.usefixtures("backend")

BACKENDS = ["FIELD", "NDARRAY"]


@pytest.fixture(params=BACKENDS)
def kind(request):
    return getattr(qd.Backend, request.param)


def test_backends():
    assert qd.Backend.FIELD == 0 and qd.Backend.NDARRAY == 1


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_canonical_face(kind):
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0))
    plain = qd.tensor(qd.f32, (2, 3), backend=kind)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for x in (t, plain):
        x.from_numpy(values)
        assert x.shape == (2, 3) and x.dtype == qd.f32 and x[1, 0] == 3
        x[1, 2] = 9
        assert x.to_numpy()[1, 2] == 9 and x.to_numpy(copy=False)[1, 2] == 9
        x[1, 2] = 5
        assert (x.to_numpy(dtype=np.float64) == values).all()
    assert t.layout == (1, 0) and plain.layout is None
    assert t.to_numpy(copy=False).strides == (4, 8) and plain.to_numpy(copy=False).strides == (
        12,
        4,
    )
    assert qd.tensor(qd.f32, (2, 3), backend=kind, layout=(0, 1)).layout is None
    with pytest.raises(ValueError):
        t.from_numpy(values.T)


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_three_axes(kind):
    t = qd.tensor(qd.i32, (2, 3, 4), backend=kind, layout=(2, 0, 1))
    values = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    t.from_numpy(values)
    assert t[1, 2, 3] == 23 and t[1, 0, 2] == values[1, 0, 2]
    assert t.to_numpy(copy=False).strides == (12, 4, 24)
    other = qd.tensor(qd.i32, (2, 3, 4), backend=kind)
    other.copy_from(t)
    assert (other.to_numpy() == values).all()
    other.copy_from(t._unwrap())


def test_classes_and_repr(kind):
    v = qd.Vector.tensor(3, qd.f32, (2,), backend=kind)
    m = qd.Matrix.tensor(2, 3, qd.f32, (2,), backend=kind)
    assert type(v) is qd.VectorTensor and v.element_shape == (3,)
    assert type(m) is qd.MatrixTensor and m.element_shape == (2, 3)
    assert type(qd.tensor(qd.types.vector(3, qd.f32), 2, backend=kind)) is qd.VectorTensor
    v[1] = [1, 2, 3]
    v[1].x = 5
    assert v.to_numpy().tolist() == [[0, 0, 0], [5, 2, 3]]
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0))
    text = f"Tensor(shape=(2, 3), dtype={qd.f32!r}, backend={kind.name}, layout=(1, 0))"
    assert repr(t) == text
    assert not isinstance(t, (qd.Field, qd.Ndarray)) and isinstance(v, qd.Tensor)
    assert t == t and hash(t) == hash(t) and t != v


def test_wrap():
    field, array = qd.field(qd.f32, 3), qd.Vector.ndarray(2, qd.f32, 3)
    assert qd.Tensor(field)._unwrap() is field and type(qd.wrap(array)) is qd.VectorTensor
    assert qd.wrap(array)._impl is array and qd._wrap is qd.wrap and qd._Tensor is qd.Tensor
    for bad in (3, qd.Tensor(field), np.zeros(3)):
        with raises(TypeError, "Tensor(impl) requires an Ndarray or Field; got "):
            qd.Tensor(bad)


def test_gradients(kind):
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0), needs_grad=True)
    assert t.has_grad() and t.grad is t.grad and t.grad.shape == (2, 3) and t.grad.layout == (1, 0)
    t.grad[1, 2] = 4
    assert t.grad.to_numpy()[1, 2] == 4 and t[1, 2] == 0
    plain = qd.tensor(qd.f32, 3, backend=kind)
    assert not plain.has_grad()
    if kind is qd.Backend.NDARRAY:
        assert plain.grad is None
    else:
        with raises(qd.QuadrantsRuntimeError, "Field has no allocation."):
            plain.grad.fill(0)


def test_copy_backends():
    f = qd.tensor(qd.f32, 3, backend=qd.Backend.FIELD)
    a = qd.tensor(qd.f32, 3, backend=qd.Backend.NDARRAY)
    with pytest.raises(TypeError):
        f.copy_from(a)
    with pytest.raises(AssertionError):
        a.copy_from(f)


def test_pickle_and_deepcopy(kind):
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0), needs_grad=True)
    t[1, 2] = 4
    for c in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(c) is type(t) and c.layout == (1, 0) and c.shape == (2, 3) and c.dtype == qd.f32
        assert (c.to_numpy() == t.to_numpy()).all() and not c.has_grad()
        c[0, 0] = 7
        assert t[0, 0] == 0


def test_layout_keys():
    t = qd.tensor(qd.f32, (2, 3), layout=(1, 0))
    with pytest.raises(TypeError):
        t[0]
    assert qd.tensor(qd.f32, 8)[2:5].size == 3


def test_bare_arrays_are_physical():
    t = qd.tensor(qd.f32, (2, 3), layout=(1, 0))
    t[1, 2] = 4
    bare = t._unwrap()
    assert bare[2, 1] == 4 and bare.shape == (2, 3) and bare._physical_shape == (3, 2)
    f = qd.tensor(qd.f32, (2, 3), layout=(1, 0), backend=qd.Backend.FIELD)
    f[1, 2] = 4
    assert f._unwrap()[1, 2] == 4


def test_tagging():
    from quadrants._tensor import Tensor, _with_layout

    assert Tensor is qd.Tensor
    a = qd.ndarray(qd.f32, (3, 2), needs_grad=True)
    _with_layout(a, (1, 0))
    assert a.shape == (2, 3) and a._qd_layout == (1, 0) and a.grad._qd_layout == (1, 0)
    b = qd.ndarray(qd.f32, (3, 2))
    b._qd_layout = (1, 0)
    assert b.shape == (2, 3) and b._physical_shape == (3, 2)
    with raises(ValueError, "layout has "):
        _with_layout(qd.ndarray(qd.f32, (3, 2)), (0,))
    with raises(ValueError, "not a permutation"):
        _with_layout(qd.ndarray(qd.f32, (3, 2)), (0, 0))


VEC = qd.types.vector(2, qd.f32)


@pytest.mark.parametrize(
    "make, cls, text",
    [
        (
            lambda: qd.tensor(qd.f32, 2, backend=7),
            ValueError,
            "backend=7 is not a valid qd.Backend",
        ),
        (
            lambda: qd.tensor(qd.f32, 2, order="i"),
            TypeError,
            "does not accept order=; pass layout=(...) instead",
        ),
        (lambda: qd.tensor(qd.f32, 2, foo=1), TypeError, "got unexpected keyword argument(s)"),
        (
            lambda: qd.Vector.tensor(2, qd.f32, 2, order="i"),
            TypeError,
            "does not accept order= (or layout=)",
        ),
        (
            lambda: qd.Vector.tensor(2, qd.f32, 2, foo=1),
            TypeError,
            "got unexpected keyword argument(s)",
        ),
        (lambda: qd.tensor(qd.f32, (2, 3), layout=(0,)), ValueError, "layout has 1 entries"),
        (
            lambda: qd.tensor(qd.f32, (2, 3), layout=(0, 0)),
            ValueError,
            "is not a permutation of range(2)",
        ),
        (
            lambda: qd.tensor(VEC, 2, layout=(0,)),
            TypeError,
            "layout= is not supported with compound dtypes",
        ),
        (lambda: qd.tensor(qd.field(qd.f32, 2), 2), TypeError, "qd.wrap"),
        (lambda: qd.tensor(qd.i32, 2, needs_grad=True), qd.QuadrantsRuntimeError, "needs_grad"),
    ],
)
def test_errors(make, cls, text):
    with raises(cls, text):
        make()


def test_backend_numbers():
    assert isinstance(qd.tensor(qd.f32, 2, backend=0)._unwrap(), qd.Field)


def test_public_names():
    names = "copy_from dtype fill from_numpy from_torch grad has_dual has_grad layout shape to_dlpack to_numpy to_torch"
    assert [n for n in dir(qd.Tensor) if not n.startswith("_")] == names.split()
