"""A warm first call reads its recipe and nothing else: counted in modules, not in time."""

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import quadrants as qd

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1])


@qd.func
def twice(v):
    return v * 2


@qd.kernel
def run(x: qd.types.ndarray()):
    for i in range(x.shape[0]):
        x[i] = twice(x[i])


x = np.ones(4, np.float32)
before = set(sys.modules)
run(x)
assert x.tolist() == [2] * 4
from quadrants._lib import core

heavy = {"quadrants.lang.matrix", "quadrants.lang._data.arguments", "quadrants._compat.observations"}
print(core.counters()["lowered"], sorted(heavy & (set(sys.modules) - before)))
"""


def test_a_warm_first_call_imports_nothing_heavy(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def last_line():
        command = [sys.executable, str(program), str(tmp_path / "cache")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    assert last_line().startswith("1 ")
    assert last_line() == "0 []"
