"""Sparse trees, one package beside another: ms of a launch, in processes that take turns.

    sparse.py NAME=PYTHON [NAME=PYTHON ...] [--rounds N] [--threads N] [--arch cpu|cuda]

PYTHON is an interpreter that has the package. The first is compared with the others. Results are compared too.
"""

import argparse
import json
import os
import subprocess
import sys
import time

N = 1024
CASES = "scatter decay stencil total bitmasked_total rebuild change_and_sum append list_total lists lists_total"


def programs(qd):
    """{name: (launch, result or None)}"""
    x, y, m = qd.field(qd.f32), qd.field(qd.f32), qd.field(qd.f32)
    blocks = qd.root.pointer(qd.ij, N // 16)
    blocks.dense(qd.ij, 16).place(x, y)
    bits = qd.root.pointer(qd.ij, N // 16).bitmasked(qd.ij, 16)
    bits.place(m)
    one, many = qd.field(qd.i32), qd.field(qd.i32)
    long = qd.root.dynamic(qd.i, 1 << 20, 1024)
    long.place(one)
    qd.root.dense(qd.ij, 64).dynamic(qd.k, 256, 32).place(many)

    @qd.kernel
    def scatter():
        for p in range(200000):
            i, j = 300 + p * 7 % 401, 300 + p * 13 % 397
            for a, b in qd.static(qd.ndrange(3, 3)):
                x[i + a, j + b] += 0.125

    @qd.kernel
    def decay():
        for i, j in x:
            x[i, j] = x[i, j] * 0.5

    @qd.kernel
    def stencil():
        for i, j in x:
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i, j in x:
            s += y[i, j]
        return s

    @qd.kernel
    def fill_bits():
        for i, j in qd.ndrange(N, N):
            if (i + j) % 3 != 0:
                m[i, j] = 1.0

    @qd.kernel
    def bitmasked_total() -> qd.f32:
        s = 0.0
        for i, j in m:
            s += m[i, j]
        return s

    @qd.kernel
    def drop_blocks():
        for i, j in blocks:
            qd.deactivate(blocks, [i, j])

    @qd.kernel
    def switch(i: qd.i32, j: qd.i32):
        qd.deactivate(bits, [i, j])
        m[i, j] = 1.0

    @qd.kernel
    def append():
        one.deactivate()
        for i in range(1 << 18):
            one.append(i)

    @qd.kernel
    def list_total() -> qd.i32:
        s = 0
        for i in one:
            s += one[i] & 3
        return s

    @qd.kernel
    def lists():
        for i, j in qd.ndrange(64, 64):
            many[i, j].deactivate()
        for p in range(200000):
            many[p % 64, (p // 64) % 64].append(p)

    @qd.kernel
    def lists_total() -> qd.i32:
        s = 0
        for i, j, k in many:
            s += many[i, j, k] & 3
        return s

    def rebuild():
        drop_blocks()
        scatter()

    def change_and_sum():
        switch(1, 1)
        return bitmasked_total()

    fill_bits()
    every = locals()
    return {name: every[name] for name in CASES.split()}


def measure(programs):
    import quadrants as qd

    arch = getattr(qd, os.environ["ARCH"])
    qd.init(arch=arch, log_level="error", cpu_max_num_threads=int(os.environ["THREADS"]))
    found = {}
    all_of = programs(qd)
    results = {name: launch() for name, launch in all_of.items()}
    if hasattr(qd._lib.core, "finish_optimisations"):
        qd._lib.core.finish_optimisations()
    for name, launch in all_of.items():
        launch()
        best = min(_time(qd, launch) for _ in range(7))
        found[name] = (best * 1e3, results[name])
    print("RESULT", json.dumps(found))


def _time(qd, launch):
    begin = time.perf_counter()
    launch()
    qd.sync()
    return time.perf_counter() - begin


def main(file, text):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arch", default="cpu")
    args = parser.parse_args()
    best = {}
    for _ in range(args.rounds):
        for package in args.packages:
            name, _, python = package.partition("=")
            done = subprocess.run(
                [python, file, "--measure"],
                capture_output=True,
                text=True,
                env=dict(os.environ, THREADS=str(args.threads), ARCH=args.arch),
            )
            assert done.returncode == 0, done.stderr[-2000:]
            for case, row in json.loads(done.stdout.split("RESULT ")[1]).items():
                rows = best.setdefault(case, {})
                rows[name] = min(rows.get(name, row), row)
    names = [p.partition("=")[0] for p in args.packages]
    print(
        f"| ms of a launch, {args.threads} thread(s) | " + " | ".join(names) + " | ratio | agree |"
    )
    print("|---" * (len(names) + 3) + "|")
    for case, rows in best.items():
        times = [rows[n][0] for n in names]
        same = all(
            abs((rows[n][1] or 0) - (rows[names[0]][1] or 0)) <= 1e-3 * abs(rows[n][1] or 1)
            for n in names
        )
        ratio = times[-1] / times[0]
        print(
            f"| {case} | "
            + " | ".join(f"{t:.3f}" for t in times)
            + f" | {ratio:.2f} | {'yes' if same else 'NO'} |"
        )


if __name__ == "__main__":
    measure(programs) if "--measure" in sys.argv else main(__file__, __doc__)
