"""A generated file of many kernels: does compiling it take time linear in its size?

    python benchmarks/large_file.py [--kernels 62,125,250,500] [--rounds N]

A kernel has three parallel loops with inner loops, branches, vectors and calls of funcs, 49 lines with
its func; 500 of them are 24,500 lines. Each size runs cold and warm in processes of their own. The
exponent is that of CPU time (all threads) over lines, between the smallest and the largest file.
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HEAD = """
import json, resource, sys, time
import quadrants as qd
from quadrants._lib import core
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level="warn")
x, y = qd.field(qd.f32, 256), qd.field(qd.f32, 256)
a, b = qd.ndarray(qd.f32, 256), qd.ndarray(qd.i32, 256)
"""
FUNC = """
@qd.func
def f{k}(u, v):
    w = u * {a} + v
    if w > {b}:
        w = w - {c}
    else:
        w = w * 0.5
    return w
"""
KERNEL = """
@qd.kernel
def k{k}(a: qd.types.ndarray(qd.f32, 1), b: qd.types.ndarray(qd.i32, 1), n: qd.i32):
"""
LOOP = """\
    for i in range(n):
        s = a[i] * {a}
        for j in range({turns}):
            s += f{f}(x[(i + j) % 256], s)
            if s > {limit}:
                s = s - y[i % 256] * {b}
        for j in range({turns} + 1):
            s += f{g}(y[(i + j) % 256], s)
            if s > {limit}:
                s = s - x[i % 256] * {a}
        q = qd.Vector([s, s * {a}, {b}])
        a[i] = q.dot(q) + {c}
        b[i] += qd.cast(s, qd.i32) % {turns}
"""
TAIL = """
start = time.process_time()
for k in KERNELS:
    k(a, b, 8)
calls = time.process_time() - start
print(json.dumps({
    "first calls s": calls,
    "process s": time.process_time(),
    "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "lowered": core.counters()["lowered"],
}))
"""


def program(kernels):
    r = random.Random(5)
    text = [HEAD]
    for k in range(kernels):
        text.append(
            FUNC.format(k=k, a=round(r.random(), 3), b=round(r.random(), 2), c=r.randint(1, 9))
        )
        text.append(KERNEL.format(k=k))
        for _ in range(3):
            text.append(LOOP.format(
                a=round(r.random(), 3), b=round(r.random(), 3), c=r.randint(0, 9), turns=r.randint(2, 5),
                f=r.randint(max(0, k - 3), k), g=r.randint(max(0, k - 3), k), limit=r.randint(10, 99),
            ))  # fmt: skip
    text.append(f"KERNELS = [{', '.join(f'k{k}' for k in range(kernels))}]")
    text.append(TAIL)
    return "".join(text)


def run(path, cache):
    env = {**os.environ, "ENABLE_QUADRANTS_HEADER_PRINT": "0"}
    done = subprocess.run(
        [sys.executable, path, cache], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", default="62,125,250,500")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    print(
        "| kernels | lines | first calls, cold, CPU s | ms a kernel | peak MB | warm, CPU s | us a kernel |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in map(int, args.kernels.split(",")):
        cold, warm = [], []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "many.py")
            path.write_text(program(count))
            lines = len(path.read_text().splitlines())
            for n in range(args.rounds):
                cold.append(run(path, f"{folder}/cache{n}"))
                warm.append(run(path, f"{folder}/cache{n}"))
        assert all(c["lowered"] == count for c in cold) and not any(w["lowered"] for w in warm)
        seconds = statistics.median(c["first calls s"] for c in cold)
        again = statistics.median(w["first calls s"] for w in warm)
        rows.append((lines, seconds))
        print(
            f"| {count} | {lines} | {seconds:.3f} | {1e3 * seconds / count:.2f} | {max(c['peak MB'] for c in cold):.0f} | "
            f"{again:.3f} | {1e6 * again / count:.0f} |", flush=True,
        )  # fmt: skip
    if len(rows) > 1:
        (l0, s0), (l1, s1) = rows[0], rows[-1]
        print(f"\nExponent: {math.log(s1 / s0) / math.log(l1 / l0):.2f}")


if __name__ == "__main__":
    main()
