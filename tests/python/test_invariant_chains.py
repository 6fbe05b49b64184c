"""Long computations that are the same in every turn of a loop: compiled in no time, and right."""

import itertools
import math
import os
import subprocess
import sys

PROGRAM = """
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache=False, default_fp=qd.f64, log_level=qd.ERROR)
x = qd.ndarray(qd.f64, 3)
x.from_numpy(np.array([0.5, 0.7, 0.9]))
y = qd.ndarray(qd.f64, 100)
A = qd.types.ndarray(qd.f64, 1)
"""
KERNEL = """
@qd.kernel
def k{n}(x: A, y: A):
    for i in range(y.shape[0]):
        y[i] = {expression}

k{n}(x, y)
print(repr(y[99]))
"""


def test_functions_of_functions_of_an_element(tmp_path):
    names = ("sin", "cos", "tan")
    chains = [f"qd.{a}(qd.{b}(x[1]))" for a, b in itertools.product(names, repeat=2)]
    chains += [f"qd.{a}(x[1] * qd.{a}(x[1]) + i)" for a in names]
    chains += ["qd.sin(qd.cos(qd.tan(qd.sin(x[1]))))", "qd.exp(qd.sin(qd.log(qd.cos(x[1]))))"]
    path = tmp_path / "program.py"
    path.write_text(
        PROGRAM + "".join(KERNEL.format(n=n, expression=e) for n, e in enumerate(chains))
    )
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, "QD_CPU_TIER": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = [float(line) for line in done.stdout.split("\n") if line and line[0] in "-0123456789"]
    expected = [
        eval(e.replace("qd.", "math."), {"math": math, "x": [0, 0.7], "i": 99}) for e in chains
    ]
    assert len(found) == len(chains)
    for e, a, b in zip(chains, found, expected):
        assert math.isclose(a, b, rel_tol=1e-12), e
