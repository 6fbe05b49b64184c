"""Serial loops that read cells with gradients and write to them: their iterations go back last first,
and what one adds to a gradient is there when an earlier one takes it."""

import numpy as np
import pytest

import quadrants as qd
from gradient_helpers import differences

N = 40  # not unrolled


@qd.func
def put(y: qd.template(), i, k, v):
    t = v
    for _ in qd.static(range(30)):
        t = t + v * 0.01
    y[i, k] = t


@qd.func
def put_and_read(y: qd.template(), i, k, v):
    y[i, k] += v
    return y[i, k] * 0.5


def running_sum(x: qd.template(), y: qd.template(), i, j):
    y[i, 0] += x[i, j]
    return y[i, 0] * 2.0


def recurrence(x: qd.template(), y: qd.template(), i, j):
    if j > 0:
        y[i, j] += y[i, j - 1] * 0.5 + x[i, j]
    return y[i, j]


def recurrence_by_stores(x: qd.template(), y: qd.template(), i, j):
    y[i, j] = x[i, j] * 0.3
    if j > 0:
        y[i, j] = qd.sin(y[i, j - 1]) + x[i, j]
    return y[i, j] * y[i, j]


def push(x: qd.template(), y: qd.template(), i, j):
    if j + 2 < N:
        y[i, j + 1] += y[i, j] * 0.3 + x[i, j]
        y[i, j + 2] += y[i, j] * 0.2
    return y[i, j]


def set_once(x: qd.template(), y: qd.template(), i, j):
    if j == 0:
        y[i, 0] = x[i, 0] * 3.0
    return y[i, 0] * x[i, j]


def last_wins(x: qd.template(), y: qd.template(), i, j):
    for k in qd.static(range(12)):
        put(y, i, k, x[i, j])
    return 0.0


def adds_and_reads_in_a_func(x: qd.template(), y: qd.template(), i, j):
    return put_and_read(y, i, 0, x[i, j]) + put_and_read(y, i, 1, x[i, j] * x[i, j])


def inner_loop(x: qd.template(), y: qd.template(), i, j):
    s = 0.0
    for k in range(j, j + 1):
        y[i, k] = x[i, k] * x[i, k]
        s += y[i, k] * y[i, k]
    return s


@pytest.mark.parametrize("tier", ["interpret", "0", "1"])
def test_an_array_that_is_passed_twice(backend, established, monkeypatch, tier):
    if established or backend.name not in ("cpu", "cuda"):
        pytest.skip("bounds that it does not take, or no f64")
    monkeypatch.setenv("QD_CPU_TIER", tier)
    backend.init(default_fp=qd.f64, ad_general_control=True)
    x, y, z = (qd.ndarray(qd.f64, n, needs_grad=True) for n in (N, 2, 2))
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def k(x: qd.types.ndarray(), y: qd.types.ndarray(), z: qd.types.ndarray()):
        for _ in range(1):
            for j in range(N):
                y[0] += z[0] * 0.5 + x[j]
        for _ in range(1):
            loss[None] += y[0]

    def slope(*arrays):
        for a in (x, y, z):
            a.fill(0)
            a.grad.fill(0)
        with qd.ad.Tape(loss):
            k(*arrays)
        return x.grad.to_numpy()[-3:].tolist()

    for _ in range(2):
        assert slope(x, y, z) == [1, 1, 1]
        assert slope(x, y, y) == [2.25, 1.5, 1]


BODIES = (
    running_sum,
    recurrence,
    recurrence_by_stores,
    push,
    set_once,
    last_wins,
    adds_and_reads_in_a_func,
    inner_loop,
)


@pytest.mark.parametrize("calls", ["expanded", "kept"])
@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_iterations_see_each_others_gradients(backend, established, body, kind, calls):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    if established:
        pytest.skip("bounds that it does not take, options that it lacks")
    disabled = "inline_calls" if calls == "kept" else ""
    backend.init(default_fp=qd.f64, disable_pass=disabled, ad_general_control=True)
    make = qd.field if kind == "field" else qd.ndarray
    x, y = (make(qd.f64, (2, N), needs_grad=True) for _ in range(2))
    trips = qd.field(qd.i32, 2)
    loss = qd.field(qd.f64, (), needs_grad=True)
    step = qd.func(body)
    annotation = qd.template() if kind == "field" else qd.types.ndarray()

    @qd.kernel
    def k(x: annotation, y: annotation):
        for i in range(2):
            for j in range(trips[i]):
                loss[None] += step(x, y, i, j)
        for i in range(2):
            for j in range(N):
                loss[None] += y[i, j] * 0.1

    def value(v):
        x.from_numpy(v)
        y.fill(0)
        loss[None] = 0
        k(x, y)
        return loss[None]

    trips.from_numpy(np.array([N, N - 3], np.int32))
    start = np.random.default_rng(0).uniform(0.5, 1, (2, N))
    expected = differences(value, start)
    value(start)
    x.grad.fill(0)
    y.grad.fill(0)
    loss.grad[None] = 1
    k.grad(x, y)
    assert x.grad.to_numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
