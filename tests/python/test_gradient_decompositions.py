"""Gradients of decompositions, beside finite differences: where matrices are diagonal, rotations, or nearly so."""

import numpy as np
import pytest

import quadrants as qd

STEP = 1e-6


def differences(loss, at):
    """Of a function of a matrix, element by element."""
    out = np.zeros_like(at)
    for k in np.ndindex(at.shape):
        d = np.zeros_like(at)
        d[k] = STEP
        out[k] = (loss(at + d) - loss(at - d)) / (2 * STEP)
    return out


def rotation_of(A):
    u, _, v = np.linalg.svd(A)
    if len(A) == 3 and np.linalg.det(A) < 0:  # a rotation, in 3-D
        u[:, 2] *= -1
    return u @ v


WEIGHTS = np.arange(1.0, 10.0).reshape(3, 3) ** 1.5
DIAGONALS = {
    "diagonal": np.diag([3.0, 2.0, 0.5]),
    "ascending": np.diag([0.5, 2.0, 3.0]),
    "nearly": np.diag([3.0, 2.0, 0.5]) + 1e-9,
    "block": np.array([[2.0, 0.3, 0], [0.2, 1.5, 0], [0, 0, 1]]),
    "full": np.array([[1.2, -0.4, 0.3], [0.1, 0.9, -0.7], [0.5, 0.2, 1.6]]),
    "equal": np.array([[1.0, -2, 0.5], [-2, 1, 0.25], [0.5, 0.25, 1]]),
}
EQUAL_VALUES = {
    "identity": np.eye(3),
    "twice": 2 * np.eye(3),
    "rotation": np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]),
    "two alike": np.diag([2.0, 1.0, 1.0]),
}


def gradient_of(n, body, at, general=False):
    qd.init(arch=qd.cfg.arch, default_fp=qd.f64, ad_general_control=general,
            ad_stack_experimental_enabled=general)  # fmt: skip
    A = qd.Matrix.field(n, n, qd.f64, (), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    weights = qd.Matrix(WEIGHTS[:n, :n].tolist())

    @qd.kernel
    def k():
        for _ in range(1):
            M = body(A[None])
            for i, j in qd.static(qd.ndrange(n, n)):
                loss[None] += weights[i, j] * M[i, j]

    A[None] = at.tolist()
    with qd.ad.Tape(loss):
        k()
    return A.grad.to_numpy()


@qd.func
def turned(A):
    u, s, v = qd.svd(A)
    return u @ v.transpose()


@qd.func
def stretched(A):
    u, s, v = qd.svd(A)
    return u @ (s @ s @ s) @ v.transpose()


@qd.func
def polar_rotation(A):
    r, p = qd.polar_decompose(A)
    return r


@pytest.mark.parametrize("name", [*DIAGONALS, *EQUAL_VALUES])
@pytest.mark.parametrize("n", [2, 3])
def test_rotations_of_singular_value_decompositions(backend, n, name):
    at = {**DIAGONALS, **EQUAL_VALUES}[name][:n, :n]
    W = WEIGHTS[:n, :n]
    want = differences(lambda A: (W * rotation_of(A)).sum(), at)
    for body in (turned, polar_rotation):
        found = gradient_of(n, body, at, general=n == 3)
        assert np.abs(found - want).max() < 1e-6 * max(1, np.abs(want).max()), body


@pytest.mark.parametrize("name", DIAGONALS)
@pytest.mark.parametrize("n", [2, 3])
def test_functions_of_singular_values(backend, n, name):
    at = DIAGONALS[name][:n, :n]
    W = WEIGHTS[:n, :n]

    def loss(A):
        u, s, v = np.linalg.svd(A)
        return (W * (u @ np.diag(s**3) @ v)).sum()

    want = differences(loss, at)
    found = gradient_of(n, stretched, at, general=n == 3)
    assert np.abs(found - want).max() < 1e-5 * max(1, np.abs(want).max())


@qd.func
def spectral(A):
    l, v = qd.sym_eig((A + A.transpose()) / 2)
    M = v @ v.transpose() * 0
    for k in qd.static(range(A.n)):
        M += l[k] ** 2 * v[:, k].outer_product(v[:, k]) * (k + 1)
    return M


@pytest.mark.parametrize("name", DIAGONALS)
@pytest.mark.parametrize("n", [2, 3])
def test_eigenvectors(backend, n, name):
    """Of two rows without any option."""
    at = DIAGONALS[name][:n, :n]
    W = WEIGHTS[:n, :n]

    def loss(A):
        l, v = np.linalg.eigh((A + A.T) / 2)
        return (W * (v @ np.diag(l**2 * np.arange(1, n + 1)) @ v.T)).sum()

    want = differences(loss, at)
    found = gradient_of(n, spectral, at, general=n == 3)
    assert np.abs(found - want).max() < 1e-5 * max(1, np.abs(want).max())


def test_blocks_of_streams_are_differentiated(backend):
    qd.init(arch=qd.cfg.arch, default_fp=qd.f64)
    x, loss = qd.field(qd.f64, 3, needs_grad=True), qd.field(qd.f64, (), needs_grad=True)
    y, other = qd.field(qd.f64, 3, needs_dual=True), qd.field(qd.f64, (), needs_dual=True)

    @qd.kernel
    def k():
        with qd.stream_parallel():
            for i in x:
                loss[None] += x[i] ** 3
        with qd.stream_parallel():
            for i in x:
                loss[None] += x[i]

    @qd.kernel
    def forward():
        with qd.stream_parallel():
            for i in y:
                other[None] += y[i] ** 3

    x.fill(2.0)
    with qd.ad.Tape(loss):
        k()
    assert x.grad.to_numpy().tolist() == [13.0] * 3 and loss[None] == 30
    y.fill(2.0)
    with qd.ad.FwdMode(loss=other, param=y, seed=[1.0, 0.0, 0.0]):
        forward()
    assert other.dual[None] == 12
