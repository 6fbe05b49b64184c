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
