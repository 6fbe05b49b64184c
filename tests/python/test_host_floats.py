"""The thread that launches has floating point of its own: kernels neither take nor change it."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, ctypes.util, platform
import numpy as np
small, smallest, single = float("1e-310"), float("5e-324"), np.array([1e-40], np.float32)
tiny, few = [1e-200, 1e-300], 1e-10  # arithmetic on literals happens in the parser
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR)

@qd.kernel
def third(x: qd.f64) -> qd.f64:
    return 1.0 / x

x = qd.field(qd.f64, 1000)

@qd.kernel
def thirds(v: qd.f64):
    for i in x:
        x[i] = 1.0 / v

def seen():
    return [small > 0, repr(small), repr(smallest), bool(single[0]), tiny[0] ** 2, tiny[1] * few]

for _ in range(3):
    third(3.0), thirds(3.0)
    print(seen())
m = ctypes.CDLL(ctypes.util.find_library("m"))
up = {"x86_64": 0x800, "aarch64": 0x400000}[platform.machine()]
m.fesetround(up)
thirds(3.0)
print(third(3.0).hex(), x.to_numpy()[7].hex(), m.fegetround() == up)
"""


@pytest.mark.oracle_differs("rounds as the thread does")
def test_the_hosts_floats_are_its_own(tmp_path):
    """qd.init makes the thread flush subnormal results (chapter 50); what it reads stays what it is. And
    kernels round to nearest, whatever the thread does."""
    path = tmp_path / "floats.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=100)
    lines = [l for l in done.stdout.splitlines() if not l.startswith("[Quadrants]")]
    if platform.machine() != "aarch64":  # whose one bit says both
        seen = "[True, '1e-310', '5e-324', True, 0.0, 0.0]"
        assert lines[:3] == [seen] * 3, done.stderr
    assert lines[3] == f"{(1 / 3).hex()} {(1 / 3).hex()} True", done.stderr
