"""What a parallel loop accumulates: loop-invariant values, NaN, places that nothing reaches."""

import numpy as np
import pytest

import quadrants as qd
from helpers import NUMPY, Array, dtype

N = 40


@pytest.mark.parametrize("name", ["i32", "u8", "i64", "f16", "f32", "f64"])
def test_values_that_do_not_vary(backend, name):
    dt = dtype(name)
    c = qd.field(dt, ())
    n = qd.field(qd.i32, ())
    x = qd.field(dt, N)
    v = qd.Vector.field(2, dt, ())
    out = qd.field(dt, 6)
    y = qd.field(dt, ())

    @qd.kernel
    def run(a: dt, b: Array):
        for i in range(4):
            y[None] += c[None]
        for i in range(4):
            out[0] += c[None] * x[i]
        for i in range(N):
            out[1] += a
        for _ in range(n[None]):
            out[2] += a
        for i in range(4):
            out[3] += v[None][1] + b[0]
        for i in range(4):
            for j in range(2):
                out[4] += c[None] * v[None].x
        for i in x:
            qd.atomic_max(out[5], c[None])

    c[None] = 3
    n[None] = 5
    x.fill(2)
    v[None] = [1, 2]
    run(1, np.full(1, 4, NUMPY[name]))
    assert y[None] == 12
    assert out.to_numpy().tolist() == [24, N, 5, 24, 24, 3]


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("first", [np.nan, 1.5], ids=str)
@pytest.mark.parametrize("values", [[], [np.nan] * 3, [np.nan, 2], [3, np.nan, -1] * 500], ids=len)
def test_a_number_wins_over_nan_and_nan_over_nothing(backend, name, first, values):
    f = qd.field(dtype(name), 4)

    @qd.kernel
    def run(x: Array, n: qd.i32):
        for i in range(n):
            qd.atomic_min(f[0], x[i])
            qd.atomic_max(f[1], x[i])
        low = f[2]
        high = f[3]
        qd.loop_config(serialize=True)
        for i in range(n):
            low = min(low, x[i])
            high = max(high, x[i])
        f[2] = low
        f[3] = high

    f.fill(first)
    run(np.array([*values, 0], NUMPY[name]), len(values))
    all_values = np.array([first, *values], NUMPY[name])
    low, high = np.fmin.reduce(all_values), np.fmax.reduce(all_values)
    np.testing.assert_array_equal(f.to_numpy(), [low, high, low, high])


def test_a_place_that_no_iteration_reaches_is_not_touched(backend):
    @qd.kernel
    def run(x: Array, n: qd.i32, far: qd.i32, limit: qd.i32):
        for i in range(n):
            x[far] += 1.0
        for i in range(N):
            if far < limit:
                x[far] += 1.0
                qd.atomic_min(x[far + 1], 1.0)

    x = np.array([1e-40, -0.0], np.float32)
    kept = x.tobytes()
    run(x, 0, 2_000_000_000, 2)
    run(x, -3, 0, 0)
    assert x.tobytes() == kept
    run(x, 1, 0, 2)
    assert x.tolist() == [1 + N, -0.0]


def test_clamped_iterations_meet_in_the_last_cell(backend):
    n = 200_000

    @qd.kernel
    def run(a: qd.types.ndarray(qd.i32, ndim=1, boundary="clamp")):
        for i in range(n):
            a[i] += 1
        for i in range(n):
            a[i - n] += 1

    @qd.kernel
    def beside(a: qd.types.ndarray(qd.i32, ndim=1, boundary="clamp")):
        for _ in range(n):
            a[5] += 1
            a[9] += 2

    a = qd.ndarray(qd.i32, 4)
    run(a)
    beside(a)
    assert a.to_numpy().tolist() == [n + 1, 1, 1, n - 3 + 3 * n]


@pytest.mark.parametrize("name", ["i8", "u32", "i64", "f32", "f64"])
def test_what_is_subtracted_is_summed_as_what_is_added(backend, name):
    dt = dtype(name)
    added, subtracted, both = (qd.field(dt, ()) for _ in range(3))

    @qd.kernel
    def run(x: Array, y: Array) -> dt:
        left = qd.cast(0, dt)
        for i in x:
            added[None] += x[i]
            subtracted[None] -= x[i]
            left -= x[i]
        for i in x:
            both[None] += x[i]
            both[None] -= y[i]
        return left

    x, y = np.random.default_rng(3).integers(1, 100, (2, 100_000)).astype(NUMPY[name])
    if name[0] == "f":
        x, y = x / NUMPY[name](3), y / NUMPY[name](7)
    left = run(x, y)
    assert left == subtracted[None] == np.negative(added.to_numpy())
    if name[0] == "f":
        exact = float(x.astype(np.longdouble).sum() - y.astype(np.longdouble).sum())
        assert both[None] == pytest.approx(exact, rel=64 * float(np.finfo(NUMPY[name]).eps))
    else:
        assert both[None] == (x - y).sum(dtype=NUMPY[name])


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_elements_are_reduced_beside_each_other_as_alone(backend, name):
    dt = dtype(name)
    f = qd.field(dt, (2, 3), offset=(-1, 4))
    v = qd.Vector.field(2, dt, 2)

    @qd.kernel
    def run(x: Array, y: Array, s: Array):
        for i in x:
            f[-1, 4] += x[i]
            f[-1, 6] += y[i]
            f[0, 4] += x[i]
        for i in x:
            v[0] += qd.Vector([x[i], y[i]])
            v[1] += qd.Vector([y[i], x[i]])
        for i in x:
            s[1] += x[i]
            s[3] += y[i]
            qd.atomic_max(s[0], x[i])
        for i in x:
            s[4] += x[i]

    x, y = np.random.default_rng(3).random((2, 100_000)).astype(NUMPY[name])
    s = np.zeros(5, NUMPY[name])
    run(x, y, s)
    a, b = s[1], s[3]
    assert s.tolist() == [x.max(), a, 0, b, a]
    assert f.to_numpy().tolist() == [[a, 0, b], [a, 0, 0]]
    assert v.to_numpy().tolist() == [[a, b], [b, a]]


@pytest.mark.parametrize("name", ["i32", "f32", "f64"])
@pytest.mark.parametrize("count", [5, 20, 64, 70])
def test_many_accumulators(backend, name, count):
    dt = dtype(name)
    total = qd.Vector.field(count, dt, ())
    apart = qd.field(dt, count)
    low = qd.field(dt, ())

    @qd.kernel
    def run(x: Array):
        for i in x:
            total[None] += qd.Vector([x[i] * (k + 1) for k in range(count)])
        for i in x:
            qd.atomic_min(low[None], x[i])
            for k in qd.static(range(count)):
                apart[k] += x[i] * (k + 1)
                if i % 2 == 0:
                    apart[k] -= x[i]

    x = np.random.default_rng(3).integers(-99, 99, 30_001).astype(NUMPY[name])
    run(x)
    sums = np.arange(1, count + 1) * x.sum()
    np.testing.assert_array_equal(total.to_numpy(), sums)
    np.testing.assert_array_equal(apart.to_numpy(), sums - x[::2].sum())
    assert low[None] == x.min()


def test_half_precision(backend):
    n = 100_003
    h = qd.field(qd.f16, n)
    total, low, high = (qd.field(qd.f16, ()) for _ in range(3))

    @qd.kernel
    def run():
        for i in h:
            total[None] += h[i]
            qd.atomic_min(low[None], h[i])
            qd.atomic_max(high[None], h[i])

    x = np.random.default_rng(5).integers(-4, 5, n).astype(np.float16)  # every sum is exact
    x[77], x[-5] = -9, 11
    h.from_numpy(x)
    run()
    run()
    assert (total[None], low[None], high[None]) == (2 * x.astype(np.int64).sum(), -9, 11)
