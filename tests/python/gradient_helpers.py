"""What tests of gradients share: fields, differences, a kernel's gradient."""

import numpy as np
import pytest

import quadrants as qd

X = np.array([0.55, -1.23, 2.07, 0.13, 1.08])


def field(*shape, **kwargs):
    return qd.field(qd.f64, shape, needs_grad=True, **kwargs)


def differences(f, x, h=1e-6):
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += h
        down[at] -= h
        out[at] = (f(up) - f(down)) / (2 * h)
    return out


def gradient(kernel, x, loss, value, *args):
    """Of `loss` after the kernel by the field x, which begins as `value`."""
    x.from_numpy(value)
    x.grad.fill(0)
    loss[None] = 0
    kernel(*args)
    loss.grad[None] = 1
    kernel.grad(*args)
    assert loss.grad[None] == 1  # additions keep it
    return loss[None], x.grad.to_numpy()


def check(kernel, model, x, loss, value=X, *args, rel=1e-6):
    got, slope = gradient(kernel, x, loss, value, *args)
    assert got == pytest.approx(model(value), rel=1e-9)
    assert slope == pytest.approx(differences(model, value), rel=rel, abs=rel)
