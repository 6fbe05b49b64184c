"""Torch's CUDA tensors and ours on one GPU: no copies, in the order of the default stream."""

import numpy as np
import pytest

import quadrants as qd
from conftest import PRESENT
from helpers import Array, Backend

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.oracle_differs("other numbers of copies"),
    pytest.mark.skipif(
        "cuda" not in PRESENT or not torch.cuda.is_available(), reason="no CUDA device with torch"
    ),
]


@pytest.fixture(autouse=True)
def cuda(cache_folder):
    Backend("cuda", cache_folder).init()
    yield
    qd.reset()


def test_tensors_are_used_in_place():
    @qd.kernel
    def add(a: Array, b: Array):
        for i in a:
            a[i] += b[i]

    a, b = torch.arange(1000.0, device="cuda"), torch.ones(1000, device="cuda")
    at = a.data_ptr()
    for _ in range(10):
        add(a, b)
        b *= 2
    assert a.data_ptr() == at
    assert torch.equal(a, torch.arange(1000.0, device="cuda") + 1023)


def test_sources_mix():
    @qd.kernel
    def add(a: Array, b: Array, c: Array, d: Array):
        for i in a:
            d[i] = a[i] + b[i] + c[i]

    ours = qd.ndarray(qd.f32, 100)
    ours.fill(1)
    tensor = torch.full((100,), 2.0)
    out = np.zeros(100, np.float32)
    add(ours, tensor, torch.full((100,), 3.0, device="cuda"), out)
    assert (out == 6).all()
    add(ours, out, torch.full((100,), 3.0, device="cuda"), tensor)
    assert (tensor == 10).all()


def test_views_share_memory():
    for x in (qd.field(qd.f32, (3, 4)), qd.ndarray(qd.f32, (3, 4))):
        x.fill(1)
        view = x.to_torch(copy=False)
        assert view.device.type == "cuda" and view.shape == (3, 4)
        view[1, 2] = 7
        torch.cuda.synchronize()
        assert x[1, 2] == 7
        x[0, 0] = 5
        assert view[0, 0].item() == 5
        assert torch.utils.dlpack.from_dlpack(x.to_dlpack()).data_ptr() == view.data_ptr()
        assert x.to_torch().device.type == "cpu"
        x.from_torch(torch.full((3, 4), 9.0, device="cuda"))
        assert (view == 9).all().item()


def test_gradients_of_tensors():
    @qd.kernel
    def double(a: Array):
        for i in a:
            a.grad[i] = 2 * a[i]

    a = torch.arange(5.0, device="cuda").requires_grad_()
    double(a)
    assert a.grad.tolist() == [0, 2, 4, 6, 8]
