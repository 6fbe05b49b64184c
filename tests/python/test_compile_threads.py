"""The first code of a large kernel is made by several threads: the same code, failures and ends as by one."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.oracle_differs("about our compiler's threads")

_COMMON = """
import ctypes, os, pathlib, signal, sys, time
import numpy as np
import quadrants as qd

cache = pathlib.Path(sys.argv[1])
qd.init(arch=qd.cpu, offline_cache_file_path=str(cache), log_level=qd.WARN)
core = qd._lib.core
library = pathlib.Path(qd.__file__).parent / "_lib" / "libqd_compiler.so"

def fault(text):
    ctypes.CDLL(str(library)).qd_compiler_fault(text.encode())

def make(n, functions=9):
    def func(k):
        @qd.func
        def f(x):
            y = x
            for j in qd.static(range(n)):
                if y > j + k:
                    y = y * 0.5 + qd.sin(y)
                else:
                    y = y + 0.25 * j
            return y
        return f
    funcs = [func(k) for k in range(functions)]
    @qd.kernel
    def large(a: qd.types.NDArray):
        for i in range(a.shape[0]):
            for k in qd.static(range(functions)):
                a[i] = funcs[k](a[i]) - funcs[k](a[i] + 1)  # more than once: calls stay calls
    return large

def values(kernel):
    a = np.linspace(0, 50, 100).astype(np.float32)
    kernel(a)
    return a.tobytes()

def threads():
    return set(os.listdir("/proc/self/task"))

def wait_for(true, seconds=50):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, true
        time.sleep(0.01)
"""


def run(tmp_path, body: str, **environment: str) -> str:
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", TMPDIR=str(tmp_path))
    env.pop("QD_CPU_TIER", None)
    env.pop("QD_NUM_COMPILE_THREADS", None)
    env.update(environment)
    code = _COMMON + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path / "cache"],
        capture_output=True, text=True, env=env, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.partition("arch=x64\n")[2]


def test_code_and_values_do_not_depend_on_the_number(tmp_path):
    body = """
    import hashlib
    print(hashlib.sha256(values(make(60))).hexdigest())
    qd.reset()
    for file in sorted(cache.rglob("*")):
        if file.is_file() and b"QDART" in file.read_bytes():
            content = file.read_bytes()
            print(hashlib.sha256(content[content.index(b"QDART"):]).hexdigest())
    """
    made = {
        count: run(tmp_path / count, body, QD_NUM_COMPILE_THREADS=count, QD_CPU_TIER="0")
        for count in ("1", "2", "8", "-3")
        if not (tmp_path / count).mkdir()
    }
    assert len(made["1"].split()) >= 2, made["1"]
    assert len(set(made.values())) == 1, made


def test_the_number_is_in_no_key(tmp_path):
    body = "values(make(60))\nprint(core.counters()['compiler_loaded'])\n"
    assert run(tmp_path, body, QD_NUM_COMPILE_THREADS="1") == "True\n"
    assert run(tmp_path, body, QD_NUM_COMPILE_THREADS="2") == "False\n"


@pytest.mark.parametrize("kind", ["segv", "stack", "throw"])
def test_one_of_the_threads_fails(tmp_path, kind):
    out = run(
        tmp_path,
        f"""
        want = values(make(61))
        for n, stage in enumerate(["lowering", "code generation"]):
            large = make(50 + n)
            fault(f"{{stage}}:{kind} once")
            try:
                values(large)
            except qd.QuadrantsRuntimeError as e:
                assert f"; in {{stage}}" in str(e), e
                print("raised")
            assert values(make(61)) == want
            print(values(large) == values(make(50 + n)))
        """,
        QD_OFFLINE_CACHE="0",
        QD_CPU_TIER="0",
    )
    assert out.split() == ["raised", "True"] * 2


def test_a_signal_ends_the_work_of_all(tmp_path):
    out = run(
        tmp_path,
        """
        values(make(61))
        before = threads()
        for stage in "lowering", "code generation":
            large = make(120 + len(stage))  # enough for a thread of its own
            fault(f"{stage}:wait")
            def handler(signum, frame):
                raise KeyboardInterrupt
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                values(large)
            except KeyboardInterrupt:
                print("left")
            fault("")
            wait_for(lambda: not threads() - before)
            print(len(values(large)))
        """,
        QD_CPU_TIER="0",
    )
    assert out.split() == ["left", "400"] * 2


def test_forks_while_several_threads_compile(tmp_path):
    out = run(
        tmp_path,
        """
        import threading
        want = values(make(60))
        compiling = threading.Event()
        def compile_on():
            for k in range(6):
                compiling.set()
                values(make(61 + k))
        thread = threading.Thread(target=compile_on)
        thread.start()
        for k in range(4):
            compiling.wait()
            time.sleep(0.02 * k)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(0 if values(make(60)) == want and values(make(80 + k)) else 1)
            print(os.waitpid(child, 0)[1])
        thread.join()
        print(values(make(60)) == want)
        """,
        QD_OFFLINE_CACHE="0",
        QD_CPU_TIER="0",
    )
    assert out.split() == ["0"] * 4 + ["True"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_that_optimise_later(tmp_path, count):
    expected = min(count, len(os.sched_getaffinity(0)))
    out = run(
        tmp_path,
        """
        kernels = [make(12 + k) for k in range(6)]
        wants = [values(k) for k in kernels]
        core.finish_optimisations()
        print([values(k) for k in kernels] == wants)
        print({k._primal._specialisations()[0]["tier"] for k in kernels})
        def patient():
            stats = pathlib.Path("/proc/self/task").glob("*/stat")
            niceness = [int(t.read_text().rpartition(")")[2].split()[16]) for t in stats]
            return niceness.count(min(os.nice(0) + 10, 19))
        # The last may have begun without having had a turn on a CPU.
        wait_for(lambda: patient() >= int(os.environ["EXPECTED"]))
        print(patient())
        """,
        EXPECTED=str(expected),
        QD_NUM_COMPILE_THREADS=str(count),
        QD_OFFLINE_CACHE="0",
    )
    assert out.split() == ["True", "{1}", str(expected)]
