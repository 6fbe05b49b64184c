"""What a user sees when the compiler crashes: an exception or a warning; all else goes on."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.oracle_differs("faults are put into our compiler")

COMMON = """
import ctypes, os, pathlib, sys, threading
import numpy as np
import quadrants as qd

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.WARN)
core = qd._lib.core
library = pathlib.Path(qd.__file__).parent / "_lib" / "libqd_compiler.so"

def fault(text):
    ctypes.CDLL(str(library)).qd_compiler_fault(text.encode())

def attempt(kernel, *args):
    try:
        return kernel(*args)
    except (qd.QuadrantsRuntimeError, MemoryError) as e:
        assert isinstance(e, MemoryError) == ("out of memory" in str(e))
        return f"raised {e}"

x = qd.field(qd.i32, 100)

@qd.kernel
def small(n: qd.i32):
    for i in x:
        x[i] += n

@qd.kernel
def other() -> qd.i32:
    return x[0] + 40

@qd.kernel
def large(a: qd.types.NDArray):
    for i in range(a.shape[0]):
        for k in qd.static(range(300)):
            if a[i] > k:
                a[i] = qd.sin(a[i] * k) * qd.exp(-a[i])
            else:
                a[i] = a[i] + 0.5 * k
"""


def run(tmp_path, body, *python_options, **environment):
    file = tmp_path / "program.py"
    file.write_text(COMMON + textwrap.dedent(body))
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", TMPDIR=str(tmp_path), **environment)
    env.pop("QD_CPU_TIER", None)
    done = subprocess.run(
        [sys.executable, *python_options, file, tmp_path / "cache"],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
    )
    done.stdout = done.stdout.partition("arch=x64\n")[2]
    return done


@pytest.mark.parametrize("where", ["unroll", "licm:stack", "offload:abort", "lowering:trap",
                                   "code generation:ill", "prepare:memory"])  # fmt: skip
def test_a_first_call_raises_and_the_rest_goes_on(established, tmp_path, where):
    if established:
        pytest.skip("faults are put into our compiler")
    body = """
        for _ in range(2):
            print(attempt(small, 2))
        fault("")
        print(other())
        print(attempt(small, 2))
        print(other())
    """
    first = run(tmp_path, body, QD_TEST_FAULT=where)
    assert first.returncode == 0, first.stderr
    lines = first.stdout.splitlines()
    assert lines[2:] == ["40", "None", "42"], first.stdout + first.stderr
    stage = where.split(":")[0]
    assert lines[0] == lines[1]
    how = "compiling" if where.endswith("memory") else "internal error while compiling"
    assert lines[0].startswith(f"raised {how} small: ")
    assert f"; in {stage}" in lines[0]
    dumped = pathlib.Path(lines[0].split("what was compiled is in ")[1])
    assert dumped.parent == tmp_path
    assert "field @" in dumped.read_text()
    warm = run(tmp_path, "small(1)\nprint(other(), core.counters()['compiled'])")
    assert warm.stdout.split()[0] == "41", warm.stderr


@pytest.mark.parametrize("where", ["derivative:segv", "derivative:stack", "derivative:memory",
                                   "derivative:throw", "licm:segv", "lowering:abort"])  # fmt: skip
@pytest.mark.parametrize("how", ["reverse", "forward"])
def test_a_derivative_raises_and_the_rest_goes_on(established, tmp_path, where, how):
    if established:
        pytest.skip("faults are put into our compiler")
    body = """
        y, z = (qd.field(qd.f32, n, needs_grad=True, needs_dual=True) for n in (3, ()))

        @qd.kernel
        def squares():
            for i in y:
                z[None] += y[i] * y[i]

        y.fill(3)
        squares()

        def reverse():
            z.grad[None] = 1
            squares.grad()
            return y.grad[1]

        def forward():
            with qd.ad.FwdMode(loss=z, param=y, seed=[1.0] * 3):
                squares()
            return z.dual[None]

        fault(WHERE)
        print(attempt(HOW))
        fault("")
        squares()
        print(z[None], other())
        print(attempt(HOW))
    """
    done = run(tmp_path, body.replace("WHERE", repr(where)).replace("HOW", how))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    told = "compiling" if where.endswith("memory") else "internal error while compiling"
    assert lines[0].startswith(f"raised {told} squares"), lines
    assert f"; in {where.split(':')[0]}" in lines[0]
    assert lines[1:] == ["54.0 40", "6.0" if how == "reverse" else "18.0"]


def test_quick_code_serves_where_optimised_code_fails(established, tmp_path):
    if established:
        pytest.skip("faults are put into our compiler")
    body = """
        print(other(), other(), [s["tier"] for s in other._primal._specialisations()])
        core.finish_optimisations()
        print(other())
    """
    done = run(tmp_path, body, QD_TEST_FAULT="optimisation:segv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["40 40 [0]", "40"]
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("[W ")
    assert "other" in warning
    assert "keeps its quick code: the compiler died of SIGSEGV; in optimisation" in warning
    again = run(tmp_path, "print(other(), other._primal._specialisations()[0]['tier'])")
    assert again.stdout.split() == ["40", "1"], again.stderr  # the quick code was not stored


@pytest.mark.parametrize("where", ["cse:segv", "licm:stack", "optimisation:abort",
                                   "code generation:segv"])  # fmt: skip
def test_the_queue_survives(established, tmp_path, where):
    if established:
        pytest.skip("faults are put into our compiler")
    one = "large(np.zeros(1, np.float32))"  # leaves quick code in the cache
    assert run(tmp_path, one, QD_TEST_FAULT="optimisation:throw").returncode == 0
    body = """
        a, b = np.linspace(0, 1, 8).astype(np.float32), np.linspace(0, 1, 8).astype(np.float32)
        large(a)
        core.finish_optimisations()
        fault("")
        large(b)
        assert a.tobytes() == b.tobytes()
        print([s["tier"] for s in large._primal._specialisations()])
        core.finish_optimisations()
        print([s["tier"] for s in large._primal._specialisations()])

        @qd.kernel
        def later(a: qd.types.NDArray):
            for i in range(a.shape[0]):
                for k in qd.static(range(200)):
                    if a[i] > k:
                        a[i] = qd.cos(a[i] * k)
        later(a)
        core.finish_optimisations()
        print([s["tier"] for s in later._primal._specialisations()])
    """
    done = run(tmp_path, body, QD_TEST_FAULT=where)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0]", "[0]", "[1]"], done.stderr
    warnings = [t for t in done.stderr.splitlines() if "keeps its quick code" in t]
    assert len(warnings) == 1, done.stderr
    assert "large" in warnings[0] and f"; in {where.split(':')[0]}" in warnings[0]


def test_crashes_that_are_not_the_compilers_stay_crashes(established, tmp_path):
    if established:
        pytest.skip("faults are put into our compiler")
    body = """
        fault("licm")
        print(attempt(small, 2)[:6], flush=True)
        ctypes.string_at(0)
    """
    done = run(tmp_path, body, "-X", "faulthandler")
    assert done.stdout.splitlines() == ["raised"]
    assert done.returncode == -11
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert "string_at" in done.stderr


def test_memory_that_runs_out(established, tmp_path):
    if established:
        pytest.skip("faults are put into our compiler")
    body = """
        import resource
        other()

        @qd.kernel
        def huge(a: qd.types.NDArray):
            for i in range(a.shape[0]):
                for k in qd.static(range(6000)):
                    if a[i] > k:
                        a[i] = qd.sin(a[i] * k) * qd.exp(-a[i])

        size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * 4096
        seen = set()
        for room in (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28):
            resource.setrlimit(resource.RLIMIT_AS, (size + (room << 20), -1))
            try:
                huge(np.zeros(1, np.float32))
                seen.add("compiled")
            except (MemoryError, RuntimeError, qd.QuadrantsCompilationError) as e:
                seen.add(f"raised {type(e).__name__}: {e}")
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        print(any("MemoryError: compiling huge: out of memory" in t for t in seen), *seen)
        small(2)
        print(other())
    """
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("True"), lines
    assert lines[-1] == "42"
