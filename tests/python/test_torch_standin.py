"""Torch tensors as arguments where torch is not installed: a module of that name stands in for it."""

import pathlib

import pytest

from test_robustness import run

pytestmark = pytest.mark.oracle_differs("it asks more of torch than the stand-in knows", run=False)

STANDINS = str(pathlib.Path(__file__).parent / "standins")


def with_standin(tmp_path, body):
    return run(tmp_path, f"import sys; sys.path.insert(0, {STANDINS!r}); import torch\n" + body)[0]


def test_tensors_of_every_dtype(tmp_path):
    body = """
Array = qd.types.NDArray

@qd.kernel
def count(a: Array):
    for i in a:
        a[i] = a[i] + 1

@qd.kernel
def typed(a: qd.types.ndarray(dtype=qd.f64, ndim=1)) -> qd.f64:
    return a[0]

rows = {}
for name, dtype in torch.DTYPES.items():
    if name == "bfloat16":
        continue
    array = np.zeros(3, name)
    count(torch.Tensor(array))
    count(torch.Parameter(array))
    rows[name] = array.tolist()
refused = {}
for tensor in (
    torch.Tensor(np.zeros(1, "uint16"), torch.bfloat16),
    torch.Tensor(np.zeros(1, "float32")),
    torch.Tensor(np.zeros((2, 2), "float64")[:, 0]),
):
    try:
        typed(tensor)
    except Exception as e:
        refused[repr(tensor.dtype)] = f"{type(e).__name__}: {e}"
result([rows, refused, typed(torch.Tensor(np.full(1, 0.5)))])
"""
    rows, refused, value = with_standin(tmp_path, body)
    assert len(rows) == 12 and rows.pop("bool") == [True] * 3
    assert all(row == [2] * 3 for row in rows.values())
    assert value == 0.5
    assert "dtype=torch.bfloat16 is not supported" in refused["torch.bfloat16"]
    assert "array has dtype=f64, array with dtype=f32 is provided" in refused["torch.float32"]
    assert "Non contiguous tensors are not supported" in refused["torch.float64"]
