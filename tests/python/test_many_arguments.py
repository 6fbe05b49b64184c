"""Kernels of hundreds of arrays, whose tasks read a few or all of them."""

import dataclasses

import numpy as np
import pytest

import quadrants as qd

pytestmark = pytest.mark.oracle_differs("takes minutes")

ONE = qd.types.ndarray(qd.f32, ndim=1)
N = 8


def arrays_of(count):
    out = []
    for k in range(count):
        a = qd.ndarray(qd.f32, N)
        a.from_numpy(np.arange(N, dtype=np.float32) + k)
        out.append(a)
    return out


def test_each_task_reads_its_own(backend):
    """Arrays, numbers, fields and reductions, read in loops and in funcs that find them by themselves."""
    backend.init()
    names = [f"m{k}" for k in range(200)]
    Holder = dataclasses.make_dataclass("Holder", [(n, ONE) for n in names], frozen=True)
    fields = [qd.field(qd.f32, N) for _ in range(5)]
    totals = qd.field(qd.f32, 3)

    @qd.func
    def inner(a: ONE, i):
        return a[i] * fields[3][i]

    @qd.func
    def outer(h: Holder, i):
        r = 0.0
        for k in range(3):
            r += inner(h.m77, i) + inner(h.m150, i) + k
        fields[4][i] = r
        return r

    @qd.kernel
    def k(h: Holder, scale: qd.f32, last: ONE, shift: qd.i32):
        for i in range(N):
            h.m3[i] = h.m140[i] * scale
        for i in range(N):
            fields[2][i] = outer(h, i) + shift
        for i in range(N):
            totals[0] += h.m199[i]
        fields[1][0] = h.m10[0] + last[N - 1]
        for i in range(h.m5.shape[0] - shift):
            last[i] = h.m3[i] + fields[2][i] + inner(h.m9, i)
        for i in range(N):
            totals[1] += outer(h, i)
        totals[2] = last[0]

    arrays = arrays_of(200)
    last = qd.ndarray(qd.f32, N)
    x = np.arange(N, dtype=np.float32)
    f3 = x * 0.5
    fields[3].from_numpy(f3)
    for turn in range(3):
        totals.fill(0)
        last.from_numpy(np.full(N, 7, np.float32))
        arrays[140].from_numpy(x + turn)
        scale, shift = 2.0 + turn, 1 + turn
        k(Holder(**dict(zip(names, arrays))), scale, last, shift)
        f2 = 3 * ((x + 77) * f3 + (x + 150) * f3) + 3 + shift
        expected = np.full(N, 7, np.float32)
        count = N - shift
        m3 = (x + turn) * scale
        expected[:count] = (m3 + f2 + (x + 9) * f3)[:count]
        np.testing.assert_allclose(arrays[3].to_numpy(), m3, rtol=1e-6)
        np.testing.assert_allclose(fields[2].to_numpy(), f2, rtol=1e-6)
        np.testing.assert_allclose(fields[4].to_numpy(), f2 - shift, rtol=1e-6)
        assert fields[1][0] == 10 + 7
        np.testing.assert_allclose(last.to_numpy(), expected, rtol=1e-6)
        sums = [(x + 199).sum(), (f2 - shift).sum(), expected[0]]
        np.testing.assert_allclose(totals.to_numpy(), sums, rtol=1e-5)


def test_a_task_reads_more_than_a_launch_can_carry(backend):
    """300 matrices of 4 x 4 f64 take more than 32,764 bytes; the next task reads none."""
    backend.init()
    count = 300
    M = qd.types.matrix(4, 4, qd.f64)
    names = [f"m{k}" for k in range(count)]
    Holder = dataclasses.make_dataclass("Holder", [(n, M) for n in names], frozen=True)
    out = qd.field(qd.f64, N)

    @qd.kernel
    def k(h: Holder, factor: qd.f64):
        for i in range(N):
            s = 0.0
            for n in qd.static(names):
                s += getattr(h, n)[1, 2] * (i + 1)
                s += getattr(h, n)[3, 0]
            out[i] = s * factor
        for i in range(N):
            out[i] += 1

    x = np.random.default_rng(0).normal(size=(count, 4, 4))
    for factor in (1.0, 0.5, 2.0):
        x[:, 1, 2] += factor
        k(Holder(**{n: qd.Matrix(x[j].tolist()) for j, n in enumerate(names)}), factor)
        expected = (x[:, 1, 2].sum() * (np.arange(N) + 1) + x[:, 3, 0].sum()) * factor + 1
        np.testing.assert_allclose(out.to_numpy(), expected, rtol=1e-4)
