"""Containers to and from torch: copies, views, capsules. Skipped where torch is absent."""

import gc

import numpy as np
import pytest

import quadrants as qd
from helpers import NUMPY, dtype, raises

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.needs_torch]


def containers(dt):
    return {
        "field": qd.field(dt, (2, 3)),
        "ordered": qd.field(dt, (2, 3), order="ji"),
        "ndarray": qd.ndarray(dt, (2, 3)),
        "tensor": qd.tensor(dt, (2, 3), layout=(1, 0)),
        "field tensor": qd.tensor(dt, (2, 3), layout=(1, 0), backend=qd.Backend.FIELD),
    }


@pytest.mark.parametrize(
    "name", ["i8", "u8", "i16", "i32", "i64", "u64", "f16", "f32", "f64", "u1"]
)
def test_copies(name):
    values = torch.from_numpy(np.array([[0, 1, 1], [1, 0, 1]], NUMPY[name]))
    for x in containers(dtype(name)).values():
        x.from_torch(values)
        out = x.to_torch()
        assert out.dtype == values.dtype and out.is_contiguous() and torch.equal(out, values)
        out[0, 0] = 1
        assert x[0, 0] == 0


@pytest.mark.of_cpus("of torch tensors on the CPU")
@pytest.mark.parametrize("name", ["i32", "i64", "f32", "f64", "u1"])
def test_views(name):
    for x in containers(dtype(name)).values():
        view = x.to_torch(copy=False)
        assert view.shape == (2, 3) and view.data_ptr() == x.to_torch(copy=None).data_ptr()
        view[1, 2] = 1
        x[0, 1] = 1
        assert x[1, 2] == 1 and view[0, 1] == 1 and view.sum() == 2
        assert x.to_torch("cpu", copy=False).data_ptr() == view.data_ptr()


def test_zero_dimensional_views():
    for x in (qd.ndarray(qd.f32, ()), qd.Vector.field(2, qd.f32, ())):
        assert x.to_torch(copy=False).data_ptr() == x.to_torch(copy=False).data_ptr()
    with raises(ValueError, "Zero-copy not available"):
        qd.field(qd.f32, ()).to_torch(copy=False)


def test_matrices():
    m = qd.Matrix.field(2, 3, qd.f32, 4)
    m.to_torch(copy=False)[1, 1, 2] = 5
    assert m[1][1, 2] == 5 and m.to_torch().shape == (4, 2, 3)
    v = qd.Vector.ndarray(3, qd.f32, 4)
    v.from_torch(torch.ones(4, 3))
    assert v.to_torch(copy=False).shape == (4, 3) and (v.to_numpy() == 1).all()
    assert qd.Vector.field(3, qd.f32, 4).to_torch(keep_dims=True).shape == (4, 3, 1)


def test_struct():
    s = qd.types.struct(a=qd.f32, v=qd.types.vector(2, qd.i32)).field(shape=3)
    s.from_torch({"a": torch.ones(3), "v": torch.ones(3, 2, dtype=torch.int32)})
    out = s.to_torch()
    assert out["a"].tolist() == [1, 1, 1] and out["v"].shape == (3, 2)


@pytest.mark.parametrize("versioned", [False, True])
def test_capsules(versioned):
    for x in containers(qd.f32).values():
        x[1, 2] = 4
        capsule = x.to_dlpack(versioned=versioned)
        assert ('"dltensor_versioned"' if versioned else '"dltensor"') in repr(capsule)
        tensor = torch.utils.dlpack.from_dlpack(capsule)
        del x, capsule
        gc.collect()
        assert tensor[1, 2] == 4
    zero = qd.field(qd.f32, ())
    assert torch.utils.dlpack.from_dlpack(zero.to_dlpack()).shape == ()


def test_views_survive():
    a = qd.ndarray(qd.f32, 1000)
    view = a.to_torch(copy=False)
    f = qd.field(qd.f32, 1000)
    other = f.to_torch(copy=False)
    del a, f
    gc.collect()
    view += 1
    qd.reset()
    assert view.sum() == 1000 and other.sum() == 0


def test_refusals():
    x = qd.ndarray(qd.f32, 3)
    with raises(ValueError, "incompatible with device transfer"):
        x.to_torch("meta", copy=False)
    assert x.to_torch("meta", copy=None).device.type == "meta"
    with raises(ValueError, "Mismatch shape"):
        x.from_torch(torch.zeros(4))
    y = qd.field(qd.f32, 3)
    y.from_torch(torch.arange(6.0)[::2])
    y.from_torch(torch.ones(3, dtype=torch.float64, requires_grad=True))
    assert y[0] == 1


# --- tensors that require a gradient, as arguments -------------------------------------------------


@qd.kernel
def double_into_gradient(a: qd.types.ndarray()):
    for i in a:
        a.grad[i] += 2 * a[i]


@qd.kernel
def overwrite(a: qd.types.ndarray()):
    for i in a:
        a[i] = i


@pytest.mark.parametrize("dt", [torch.float16, torch.float32, torch.float64])
def test_missing_gradients_are_made(dt):
    x = torch.ones(3, dtype=dt, requires_grad=True)
    double_into_gradient(x)
    grad = x.grad
    assert grad.tolist() == [2, 2, 2] and grad.dtype == dt
    double_into_gradient(x)
    assert x.grad is grad and grad.tolist() == [4, 4, 4]
    y = torch.ones(3, dtype=dt, requires_grad=True)
    overwrite(y)  # even where the kernel does not look at it
    assert y.detach().tolist() == [0, 1, 2] and y.grad.tolist() == [0, 0, 0]


def test_gradients_are_used_in_place():
    x, memory = torch.nn.Parameter(torch.arange(4.0)), torch.zeros(8)
    x.grad = memory[2:6]
    with torch.no_grad():
        double_into_gradient(x)
    assert memory.tolist() == [0, 0, 0, 2, 4, 6, 0, 0]
    x.grad = torch.ones(4)
    double_into_gradient(x)
    assert x.grad.tolist() == [1, 3, 5, 7] and memory[3] == 2
    x.grad = None
    double_into_gradient(x)
    assert x.grad.tolist() == [0, 2, 4, 6]


@pytest.mark.oracle_differs("passes torch's warning on")
def test_gradients_of_results_do_not_warn(recwarn):
    x = torch.ones(3, requires_grad=True) * 2
    double_into_gradient(x)
    assert not [w for w in recwarn if "leaf" in str(w.message) and "quadrants" in w.filename]


def test_gradients_of_elements_and_in_funcs():
    @qd.func
    def add(a: qd.template(), i):
        a.grad[i][1] += 1

    @qd.kernel
    def run(a: qd.types.ndarray(dtype=qd.types.vector(2, qd.f32), ndim=1)):
        for i in a:
            a.grad[i] = 3 * a[i]
            add(a, i)

    x = torch.ones(3, 2, requires_grad=True)
    run(x)
    assert x.grad.tolist() == [[3, 4]] * 3
    scalar = torch.tensor(2.0, requires_grad=True)

    @qd.kernel
    def zero_dimensional(a: qd.types.ndarray(ndim=0)):
        a.grad[None] = a[None]

    zero_dimensional(scalar)
    assert scalar.grad == 2


def test_gradients_that_do_not_fit():
    x = torch.ones(3, 2, requires_grad=True)
    x.grad = torch.ones(2, 3).t()

    @qd.kernel
    def run(a: qd.types.ndarray()):
        for i, j in a:
            a[i, j] = 1

    with raises(ValueError, "Non contiguous gradient tensors are not supported"):
        run(x)


@pytest.mark.oracle_differs("takes the process down", run=False)
def test_gradients_that_are_wanted_and_absent():
    @qd.kernel
    def run(a: qd.types.ndarray(dtype=qd.f32, ndim=1, needs_grad=True)):
        for i in a:
            a.grad[i] = 1

    x = torch.ones(3, requires_grad=True)
    run(x)
    assert x.grad.tolist() == [1, 1, 1]
    for a in (torch.ones(3), qd.ndarray(qd.f32, 3)):
        with raises(ValueError, "needs_grad"):
            run(a)
    with pytest.raises(qd.QuadrantsCompilationError, match="no gradient"):
        run(np.ones(3, np.float32))  # which is taken: NumPy's arrays never have one
    with pytest.raises(qd.QuadrantsCompilationError, match="no gradient"):
        double_into_gradient(torch.ones(3))


# --- tensors without memory of their own -----------------------------------------------------------


def freed():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(4)


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32, device="cpu")

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


UNUSUAL = {
    "freed": (freed, "has no memory"),
    "fake": (fake, "has no memory"),
    "wrapped": (Wrapped, "has no memory"),
    "meta": (lambda: torch.ones(4, device="meta"), "is a meta tensor"),
    "sparse": (lambda: torch.ones(4).to_sparse(), "pass tensor.to_dense()"),
    "compressed": (lambda: torch.eye(4).to_sparse_csr(), "pass tensor.to_dense()"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    "negative": (lambda: torch.ones(4)._neg_view(), "resolve_neg()"),
    "expanded": (lambda: torch.ones(1).expand(4), "Non contiguous tensors are not supported"),
}


@pytest.mark.oracle_differs("it crashes or has other texts", run=False)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNUSUAL)
def test_tensor_that_cannot_be_used_in_place(name):
    make, text = UNUSUAL[name]

    @qd.kernel
    def first(x: qd.types.ndarray()):
        for i in range(4):
            x[i] = 1

    @qd.kernel
    def second(x: qd.types.ndarray()):
        for i in range(4):
            x[i] = 1

    second(torch.zeros(4))
    for kernel in (first, second):
        with raises(ValueError, text):
            kernel(make())


@pytest.mark.oracle_differs("it loses the sign", run=False)
def test_negative_view_is_copied_with_its_sign():
    for x in (qd.field(qd.f32, 4), qd.ndarray(qd.f32, 4)):
        x.from_torch(torch.ones(4)._neg_view())
        assert (x.to_numpy() == -1).all()


@pytest.mark.oracle_differs("it crashes", run=False)
@pytest.mark.parametrize("name", ["freed", "fake", "meta", "sparse"])
@pytest.mark.filterwarnings("ignore")
def test_copy_of_a_tensor_without_memory(name):
    make, text = UNUSUAL[name]
    for x in (qd.field(qd.f32, 4), qd.ndarray(qd.f32, 4)):
        with raises(ValueError, text):
            x.from_torch(make())


@pytest.mark.of_cpus("of torch tensors on the CPU")
@pytest.mark.parametrize("first", [(0, 0), (3, 3), (0, 3), (3, 0)], ids=str)
def test_empty_tensors_with_gradients(first):
    """They have no memory, and neither have their gradients."""

    @qd.kernel
    def k(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(a.shape[0]):
            b[i] = a[i] + 1

    for n, m in (first, (0, 0), (3, 3), (0, 2)):
        for wanted in ((True, False), (True, True), (False, True), (False, False)):
            a = torch.ones(n, requires_grad=wanted[0])
            b = torch.zeros(max(n, m), requires_grad=wanted[1])
            k(a, b)
            assert b[:n].tolist() == [2.0] * n
