"""Arrays that share memory give what plain Python gives, whatever code assumed of distinct ones."""

import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd

Array = qd.types.ndarray(dtype=qd.i64, ndim=1)


@qd.func
def pair(to: Array, of: Array, k: qd.i32) -> qd.i64:
    first = of[k]
    to[k] = first + 1
    return first * 10 + of[k]


@qd.func
def sums(to: Array, of: Array, n: qd.i32):
    """of[0] may change inside the loop."""
    for k in range(n):
        to[k] += of[0]


@qd.kernel
def work(a: Array, b: Array, c: Array):
    qd.loop_config(serialize=True)
    for k in range(a.shape[0]):
        before = b[k]
        a[k] = 3
        c[k] += before + b[k]
        c[k] += pair(a, b, k) + pair(b, c, k)
    for _ in range(1):
        sums(a, b, a.shape[0])
        sums(b, b, a.shape[0])


def expect(a, b, c):
    def pair(to, of, k):
        first = int(of[k])
        to[k] = first + 1
        return first * 10 + int(of[k])

    def sums(to, of):
        for k in range(len(a)):
            to[k] += of[0]

    for k in range(len(a)):
        before = int(b[k])
        a[k] = 3
        c[k] += before + b[k]
        # As in Python: the target is read after the calls.
        more = pair(a, b, k) + pair(b, c, k)
        c[k] += more
    sums(a, b)
    sums(b, b)


@pytest.mark.parametrize("tier", ["0", "1"])
def test_views_of_one_array(backend, tier, monkeypatch):
    monkeypatch.setenv("QD_CPU_TIER", tier)
    backend.init()
    for _ in range(2):  # the order of specialisations must not matter
        for starts in [
            (0, 8, 16),
            (0, 0, 0),
            (0, 0, 8),
            (0, 8, 0),
            (8, 0, 0),
            (0, 4, 8),
            (4, 0, 2),
        ]:
            ours, plain = (np.arange(1, 25, dtype=np.int64) for _ in range(2))
            work(*(ours[k : k + 8] for k in starts))
            expect(*(plain[k : k + 8] for k in starts))
            assert (ours == plain).all(), starts


def test_arrays_that_move(backend):
    """The comparison of one launch does not answer for the next."""
    backend.init()
    memory = np.zeros(24, np.int64)
    views = [memory[k : k + 8] for k in (0, 8, 16)]
    for order in [(0, 1, 2), (0, 1, 2), (1, 1, 2), (0, 1, 2), (2, 1, 2), (2, 1, 0)]:
        ours, plain = memory.copy() + 1, memory.copy() + 1
        work(*(ours[8 * k : 8 * k + 8] for k in order))
        expect(*(plain[8 * k : 8 * k + 8] for k in order))
        assert (ours == plain).all(), order
    work(*views)
    changed = memory.copy()
    work(views[0], views[0], views[0])
    assert (memory[8:] == changed[8:]).all()


@pytest.mark.oracle_differs("it has no such switch")
def test_perf_map(tmp_path):
    """QD_PERF_MAP names compiled functions for perf."""
    program = tmp_path / "p.py"
    program.write_text(
        "import os, quadrants as qd\n"
        "qd.init(arch=qd.cpu, offline_cache=False)\n"
        "@qd.kernel\n"
        "def one() -> qd.i32:\n"
        "    return 1\n"
        "assert one() == 1\n"
        "path = f'/tmp/perf-{os.getpid()}.map'\n"
        "print(open(path).read())\n"
        "os.remove(path)\n"
    )
    env = dict(os.environ, QD_PERF_MAP="1")
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if ":task0" in line]
    assert len(lines) == 1 and lines[0][2].startswith("one_") and int(lines[0][1], 16) > 0


@pytest.mark.oracle_differs("has no such counters")
def test_one_array_given_twice_compiles_once(backend, tmp_path):
    qd.init(arch=backend, offline_cache_file_path=str(tmp_path))

    @qd.kernel
    def k(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(a.shape[0]):
            b[i] = a[i] + 1.0

    a, b = np.zeros(4, np.float32), np.zeros(4, np.float32)
    before = qd._lib.core.counters()["cache_misses"]
    k(a, a)
    assert qd._lib.core.counters()["cache_misses"] == before + 1
    k(a, b)  # other code, which knows that they differ
    assert a.tolist() == [1] * 4 and b.tolist() == [2] * 4
    assert qd._lib.core.counters()["cache_misses"] == before + 2
