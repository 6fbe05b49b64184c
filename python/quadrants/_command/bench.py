"""`bench`: a minute's measurements of this machine, as a table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

_START = """
import time
begin = time.perf_counter()
import quadrants as qd
imported = time.perf_counter()
qd.init(arch=qd.cpu, log_level=qd.ERROR)
started = time.perf_counter()
x = qd.ndarray(qd.f32, 4096)
@qd.kernel
def step(x: qd.types.ndarray(dtype=qd.f32, ndim=1), dt: qd.f32):
    for i in x:
        v = qd.sin(x[i]) * dt
        for k in range(4):
            v = v * 0.5 + qd.sqrt(x[i] * x[i] + k)
        x[i] = v
before = time.perf_counter()
step(x, 0.1)
print("TIMES", imported - begin, started - imported, time.perf_counter() - before)
"""
_STEADY = """
import time
import quadrants as qd
from quadrants._lib import core
qd.init(arch=qd.cpu, log_level=qd.ERROR)
N, BODIES = 1 << 24, 2048
a, b, c = (qd.ndarray(qd.f32, N) for _ in range(3))
tiny = qd.ndarray(qd.f32, 8)
pos, acc = (qd.Vector.ndarray(3, qd.f32, BODIES) for _ in range(2))
F32 = qd.types.ndarray(dtype=qd.f32, ndim=1)
V = qd.types.ndarray(dtype=qd.math.vec3, ndim=1)
@qd.kernel
def small(x: F32):
    for i in x: x[i] += 1.0
@qd.kernel
def saxpy(a: F32, b: F32, c: F32, s: qd.f32):
    for i in a: c[i] = a[i] * s + b[i]
@qd.kernel
def total(a: F32) -> qd.f32:
    t = 0.0
    for i in a: t += a[i]
    return t
@qd.kernel
def place(pos: V):
    for i in pos: pos[i] = [qd.sin(i * 1.0), qd.cos(i * 0.7), i / 2048]
@qd.kernel
def gravity(pos: V, acc: V):
    for i in pos:
        g = qd.math.vec3(0.0)
        for j in range(2048):
            d = pos[j] - pos[i]
            r = d.norm_sqr() + 1e-3
            g += d / (r * qd.sqrt(r))
        acc[i] = g
a.fill(1.0); b.fill(2.0); place(pos)
def per_call(call, seconds=1.5):
    call(); core.finish_optimisations(); call()
    best, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        n, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 0.05:
            call(); n += 1
        best = min(best, (time.perf_counter() - begin) / n)
    return best
print("launch", per_call(lambda: small(tiny)))
print("saxpy", per_call(lambda: saxpy(a, b, c, 0.5)))
print("sum", per_call(lambda: total(a)))
print("gravity", per_call(lambda: gravity(pos, acc)))
"""


def _child(program: str, folder: str, name: str) -> str:
    path = os.path.join(folder, f"{name}.py")
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as f:
            f.write(program)
    env = {**os.environ, "QD_OFFLINE_CACHE_FILE_PATH": os.path.join(folder, "cache")}
    done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return done.stdout


def _starts(folder: str) -> list[tuple[float, ...]]:
    """Seconds to import, to initialise and for a first call: of a cold process and nine warm ones."""
    runs = []
    for _ in range(10):
        line = next(x for x in _child(_START, folder, "start").splitlines() if x[:5] == "TIMES")
        runs.append(tuple(float(x) for x in line.split()[1:]))
    return runs


def run() -> int:
    """Prints the table; exit status 1 if a program fails."""
    try:
        with tempfile.TemporaryDirectory(prefix="quadrants-bench") as folder:
            print("measuring for about twenty seconds; other work on this machine disturbs it ...")
            cold, *warm = _starts(folder)
            times = dict(
                (name, float(value))
                for name, value in (
                    line.split()
                    for line in _child(_STEADY, folder, "steady").splitlines()
                    if line[:1] != "["
                )
            )
    except (OSError, RuntimeError) as e:
        print(f"error: {e}; see python -m quadrants doctor", file=sys.stderr)
        return 1
    middle = [sorted(column)[len(warm) // 2] for column in zip(*warm)]
    elements = 1 << 24
    rows = (
        ("import quadrants", f"{1e3 * middle[0]:.1f} ms"),
        ("qd.init", f"{1e3 * middle[1]:.1f} ms"),
        ("first call, cold (compiler loaded)", f"{1e3 * cold[2]:.1f} ms"),
        ("first call, warm (from the cache)", f"{1e3 * middle[2]:.2f} ms"),
        ("launch of a tiny kernel", f"{1e6 * times['launch']:.2f} us"),
        ("saxpy, 16 M floats", f"{12e-9 * elements / times['saxpy']:.1f} GB/s"),
        ("sum, 16 M floats", f"{4e-9 * elements / times['sum']:.1f} GB/s"),
        ("n-body, 2,048 bodies", f"{1e-9 * 2048**2 / times['gravity']:.2f} G pairs/s"),
    )
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value:>14}")
    return 0
