"""Local vectors and matrices that fill a thread's stack: the call raises, the process goes on."""

import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd

# Its workers have the stack that the process was started with; the calling threads choose theirs.
PROGRAM = """
import sys, threading
import numpy as np
import quadrants as qd

N = 40_000  # 320 KB, more than is kept back for small frames
KB = 1024

@qd.func
def fill(n, at):
    v = qd.Vector.zero(qd.i64, N)
    for j in range(N):
        v[j] = j + n
    return qd.i32(v[at])

@qd.real_func
def filled(n: qd.i32, at: qd.i32) -> qd.i32:
    return fill(n, at)

@qd.real_func
def deeper(n: qd.i32, at: qd.i32) -> qd.i32:
    v = qd.Vector.zero(qd.i64, N)
    for j in range(N):
        v[j] = j + n
    r = qd.i32(v[at])
    if n > 0:
        r += deeper(n - 1, at)
    return r

@qd.func
def chain(n, at, depth: qd.template()):
    v = qd.Vector.zero(qd.i32, 900)  # each of the frames is small
    for j in range(900):
        v[j] = j + n
    r = v[at]
    if qd.static(depth > 0):
        r += chain(n + 1, at, depth - 1)
    return r

@qd.kernel
def serial(at: qd.i32) -> qd.i32:
    r = 0
    if at > 0:  # what stands at the top is cut into tasks, and shared through memory
        r = fill(1, at)
    return r

@qd.kernel
def by_func(at: qd.i32) -> qd.i32:
    return filled(1, at) + filled(2, at)  # one after the other

@qd.kernel
def chained(at: qd.i32) -> qd.i32:
    r = 0
    if at > 0:
        r = chain(1, at, 99)
    return r

@qd.kernel
def recursive(n: qd.i32) -> qd.i32:
    return deeper(n, 3)

@qd.kernel
def parallel(out: qd.types.ndarray(), at: qd.i32):
    for i in range(64):
        out[i] = fill(i, at)

@qd.kernel
def reduced(at: qd.i32) -> qd.i32:
    s = 0
    for i in range(64):
        s += fill(i, at)
    return s

@qd.kernel
def small(at: qd.i32) -> qd.i32:
    v = qd.Vector.zero(qd.i32, 10)
    for j in range(10):
        v[j] = j
    return v[at]

def loop():
    out = np.zeros(64, np.int32)
    parallel(out, 4)
    assert (out == np.arange(64) + 4).all()
    return 64

CALLS = {
    "serial": lambda: serial(3), "by_func": lambda: by_func(3), "chained": lambda: chained(3),
    "recursive": lambda: recursive(10),
    "parallel": loop, "reduced": lambda: reduced(2), "small": lambda: small(3),
}

def attempt(what, size):
    told = []
    def run():
        try:
            told.append(what())
        except RuntimeError as e:
            told.append(f"{type(e).__name__}: {e}")
    threading.stack_size(size)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return told[0]

qd.init(arch=qd.cpu, cpu_max_num_threads=3)
for kb in map(int, sys.argv[1:]):
    for name, call in CALLS.items():
        print("ANSWER", kb, name, attempt(call, kb * KB), flush=True)
"""
RIGHT = dict(serial=4, by_func=9, chained=5350, recursive=88, parallel=64, reduced=2144, small=3)


def answers(tmp_path, *sizes, workers_kb, **environment):
    """{size of the calling thread's stack in KB: {call: its answer}} of a process."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    env = dict(
        os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", QD_OFFLINE_CACHE_FILE_PATH=str(tmp_path / "cache")
    )  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", f'ulimit -s {workers_kb}; exec "$@"', "", sys.executable, path, *map(str, sizes)],
        capture_output=True, text=True, env=env | environment, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    found = {}
    for line in done.stdout.splitlines():
        if not line.startswith("ANSWER "):
            continue
        _, size, name, answer = line.split(" ", 3)
        found.setdefault(int(size), {})[name] = answer if ":" in answer else int(answer)
    return found


@pytest.mark.parametrize("tier", ["0", "1"])
def test_large_locals(tmp_path, tier):
    for _ in "cold", "warm":
        found = answers(tmp_path, 8192, 256, 600, workers_kb=256, QD_CPU_TIER=tier)
        assert found[8192] == RIGHT, "workers are too small: the caller computes alone"
        for name, answer in found[256].items():
            if name == "small":
                assert answer == RIGHT[name]
            else:
                assert answer.startswith("QuadrantsAssertionError: the kernel's local vectors"), (
                    name
                )
                assert "threading.stack_size" in answer, name
        deep = found[600].pop("recursive")
        assert "deeper calls itself too often for the stack of its thread" in deep
        assert found[600] == {name: answer for name, answer in RIGHT.items() if name != "recursive"}


def test_large_locals_in_workers(tmp_path):
    assert answers(tmp_path, 8192, workers_kb=8192) == {8192: RIGHT}


LIMITS = """
import resource
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache=False)

def outcome(limit):
    resource.setrlimit(resource.RLIMIT_STACK, (limit, resource.RLIM_INFINITY))

    @qd.real_func
    def down(n: qd.i32) -> qd.i32:
        v = qd.Vector.zero(qd.i32, 1000)
        for j in range(1000):
            v[j] = j + n
        r = v[3]
        if n > 0:
            r += down(n - 1)
        return r

    @qd.kernel
    def k() -> qd.i32:
        return down(500) + limit
    try:
        return k() - limit
    except Exception as e:
        return str(e).split("\\n")[-1]

small, large = 100_000, 8 << 20
for limit in (large, small, large, small, large):
    print("OUTCOME", outcome(limit))
"""


def test_the_limit_of_the_main_thread_s_stack_may_change(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(LIMITS)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    seen = [
        line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith("OUTCOME")
    ]
    right = str(sum(range(501)) + 3 * 501)
    assert seen[::2] == [right] * 3
    assert all("stack" in line for line in seen[1::2]), seen


SMALL = """
import sys, threading
import quadrants as qd

@qd.real_func
def deep(n: qd.i32) -> qd.i32:
    if n == 0:
        return 0
    return deep(n - 1) + 1

@qd.kernel
def k(n: qd.i32) -> qd.i32:
    return deep(n)

def run():
    for n in 0, 100, 1000000:
        try: print(k(n))
        except RuntimeError as e: print("too often for the stack" in str(e))

qd.init(arch=qd.cpu, log_level="error")
threading.stack_size(128 << 10)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("tier", ["0", "1", "interpret"])
def test_functions_call_themselves_on_small_stacks(tmp_path, tier):
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", QD_CPU_TIER=tier)
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=env, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()[-3:]
    assert answers == ["0", "100", "True"], (answers, done.stderr[-500:])


def test_recursion_on_any_device(backend):
    """Beyond the stack it is an error, after which all works as before."""

    @qd.real_func
    def down(n: qd.i32) -> qd.i32:
        r = 0
        if n > 0:
            r = down(n - 1) + 1
        return r

    @qd.real_func
    def ends(n: qd.i32) -> qd.i32:
        local = qd.Vector.zero(qd.i32, 16)
        for k in range(16):
            local[k] = n + k
        if n > 0:
            local[n % 16] += ends(n - 1)
        return local[n % 16]

    x = qd.field(qd.i32, 1000)

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        for i in x:
            x[i] = down(n + i % 4)
        return down(n)

    @qd.kernel
    def other(n: qd.i32) -> qd.i32:
        return ends(n)

    def want(n):
        return n + n % 16 + (want(n - 1) if n else 0)

    for n in (5, 60):
        assert k(n) == n and (x.to_numpy() == n + np.arange(1000) % 4).all()
    assert other(10) == want(10)
    for _ in range(2):
        with pytest.raises(AssertionError, match="too often for the stack"):
            k(100_000_000)
        with pytest.raises(AssertionError, match="too often for the stack"):
            other(100_000_000)
        assert k(7) == 7 and other(3) == want(3)
