"""Sums in serial loops run in lanes; scatters add to copies of a field. Neither changes meaning."""

import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd


@pytest.mark.parametrize("count", [0, 1, 15, 31, 32, 33, 48, 100, 1000])
def test_sums_of_every_length(backend, count):
    rng = np.random.default_rng(count)
    x = rng.random(max(count, 1), dtype=np.float32)
    y = rng.random(max(count, 1))

    @qd.kernel
    def sums(a: qd.types.ndarray(), b: qd.types.ndarray(), n: qd.i32, out: qd.types.ndarray()):
        for _ in range(1):
            total, wide, low, high, some, many = 0.5, qd.f64(0.25), 2.0, -2.0, 0.0, 0
            for i in range(n):
                total += a[i]
                wide -= b[i]
                low = qd.min(low, a[i])
                high = qd.max(high, a[i])
                if a[i] > 0.5:
                    some += a[i]
                    many += 1
            out[0], out[1], out[2], out[3], out[4], out[5] = total, wide, low, high, some, many

    out = np.zeros(6)
    sums(x, y, count, out)
    x, y = x[:count], y[:count]
    assert out[0] == pytest.approx(0.5 + x.sum(dtype=np.float64), rel=1e-5)
    assert out[1] == pytest.approx(0.25 - y.sum(), rel=1e-5)
    assert out[2] == min([2.0, *x]) and out[3] == max([-2.0, *x])
    assert out[4] == pytest.approx(x[x > 0.5].sum(dtype=np.float64), rel=1e-5)
    assert out[5] == (x > 0.5).sum()


def test_sum_of_vectors_from_a_start(backend):
    n = 77
    x = qd.Vector.field(3, qd.f32, n)
    x.from_numpy(np.arange(3 * n, dtype=np.float32).reshape(n, 3))
    out = qd.Vector.field(3, qd.f32, ())

    @qd.kernel
    def run(first: qd.i32):
        for _ in range(1):
            s = qd.Vector([1.0, 2.0, 3.0])
            for i in range(first, n):
                s += 2.0 * x[i]
            out[None] = s

    for first in (-0, 5, 60, 77, 80):
        run(first)
        assert (out.to_numpy() == [1, 2, 3] + 2 * x.to_numpy()[first:].sum(0)).all()


@pytest.mark.of_cpus("one thread")
def test_a_recurrence_stays_in_order(backend):
    @qd.kernel
    def run(n: qd.i32) -> qd.f32:
        s, t = 1.0, 0.0
        for i in range(n):
            t += s
            s = 0.5 * s + 1.0
        return t

    s, t = np.float32(1), np.float32(0)
    for _ in range(100):
        t, s = t + s, np.float32(0.5) * s + np.float32(1)
    assert run(100) == t


SCATTER = """
import sys, numpy as np, quadrants as qd
qd.init(arch=qd.cpu, cpu_max_num_threads=int(sys.argv[1]), log_level=qd.ERROR)
n, m = 300000, 97
whole, real, vec = qd.field(qd.i32, m), qd.field(qd.f64, m), qd.Vector.field(2, qd.f32, (m, 3))
old = qd.field(qd.i32, m)
whole.fill(7); real.fill(0.5); vec.fill(1)

@qd.kernel
def scatter():
    for i in range(n):
        j = i * 31 % m
        whole[j] += i % 5
        real[j] -= 0.25
        vec[j, i % 3] += [1.0, 2.0]
        qd.atomic_max(old[j], i)

scatter()
i = np.arange(n); j = i * 31 % m
assert (whole.to_numpy() == 7 + np.bincount(j, i % 5, m)).all()
assert (real.to_numpy() == 0.5 - 0.25 * np.bincount(j, minlength=m)).all()
count = np.bincount(j * 3 + i % 3, minlength=3 * m).reshape(m, 3)
assert (vec.to_numpy() == np.stack([1 + count, 1 + 2 * count], -1)).all()
assert (old.to_numpy() == [i[j == k].max() for k in range(m)]).all()
"""


@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_scatter_on_any_number_of_threads(tmp_path, threads):
    program = tmp_path / "scatter.py"
    program.write_text(SCATTER)
    subprocess.run([sys.executable, program, threads], check=True)


def test_one_iteration_adds_in_the_written_order(backend):
    """With fast_math=False; sums of several iterations have an order of their own."""
    qd.init(arch=backend, fast_math=False, log_level="error")

    @qd.kernel
    def once(c: qd.f32, n: qd.i32, o: qd.types.ndarray(qd.f32, ndim=1)):
        for _ in range(1):
            o[0] += c
            o[0] += c * 3
            o[0] -= c
            for _ in range(n):
                o[1] += c
        for i, j in qd.ndrange(1, (3, 4)):
            o[2] += c
            o[2] += c * 3

    c, n = np.float32(0.7654321), 100
    for start in (-90.123, 1e4, 0.1):
        o = np.full(3, start, np.float32)
        expected = o.copy()
        once(c, n, o)
        for k, terms in enumerate([(c, c * 3, -c), [c] * n, (c, c * 3)]):
            for term in terms:
                expected[k] = expected[k] + np.float32(term)
        assert o.tolist() == expected.tolist()
