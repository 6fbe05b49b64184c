"""Which code a kernel runs on: what runs for long is optimised, in this process or a later one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import quadrants as qd

PROGRAM = """
import json, sys
import numpy as np
import quadrants as qd

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)

@qd.kernel
def large(a: qd.types.NDArray, rounds: qd.i32):
    for r in range(rounds):
        for i in range(4):
            for k in qd.static(range(300)):
                if a[i] > k:
                    a[i] = qd.sin(a[i] * k) * qd.exp(-a[i])
                else:
                    a[i] = a[i] + 0.5 * k

a = np.linspace(0, 1, 4).astype(np.float32)
large(a, 1)
if sys.argv[2] == "long":
    large(a, 100_000)
    qd._lib.core.wait_for_optimisations()
tier = large._primal._specialisations()[0]["tier"]
loaded = qd._lib.core.counters()["compiler_loaded"]
b = np.linspace(0, 1, 4).astype(np.float32)
large(b, 7)
print(json.dumps([tier, loaded, b.tolist()]))
"""


@pytest.mark.oracle_differs("about our tiers")
def test_code_improves_in_any_process_that_runs_it_for_long(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0")
    env.pop("QD_CPU_TIER", None)

    def run(length):
        done = subprocess.run(
            [sys.executable, program, tmp_path / "cache", length],
            capture_output=True,
            text=True,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    tier, loaded, expected = run("short")  # is not worth optimising
    assert (tier, loaded) == (0, True)
    assert run("short") == [0, False, expected]
    assert run("long") == [1, True, expected]  # from the module that the quick code carries
    assert run("short") == [1, False, expected]  # which the next process finds


@pytest.mark.oracle_differs("about our threads")
def test_background_optimisation_is_the_least_urgent(backend, monkeypatch):
    monkeypatch.delenv("QD_CPU_TIER", raising=False)
    backend.init(offline_cache=False)
    x = qd.field(qd.f32, 64)

    @qd.kernel
    def long():
        for i in x:
            for k in qd.static(range(60)):
                x[i] += qd.sin(x[i] * k) * qd.exp(x[i])

    long()
    qd._lib.core.finish_optimisations()
    tasks = pathlib.Path("/proc/self/task").glob("*/stat")
    niceness = [int(t.read_text().rpartition(")")[2].split()[16]) for t in tasks]
    assert min(os.nice(0) + 10, 19) in niceness
