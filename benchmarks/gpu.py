"""The same programs on a GPU by several packages of one name, side by side.

    python benchmarks/gpu.py ours=python established=/path/to/site-packages [--rounds 2] [--only WORD ...]

A contender is a name and the folder that its `quadrants` is imported from. Each runs in processes of its
own, in turn. A number is the best burst of launches over its length, the device's time included; of `first`
programs it is the time from `init` to the result, in a new process, with an empty cache and with a filled
one. Prints a table, the ratio of each contender to the first, and where results differ.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 2e-3  # of the largest value; sums by atomics differ from run to run
clock = time.perf_counter


def burst_ms(call, sync, seconds=0.25):
    for _ in range(3):
        call()
    sync()
    count, best, spent = 1, float("inf"), 0.0
    while spent < seconds:
        begin = clock()
        for _ in range(count):
            call()
        sync()
        taken = clock() - begin
        spent += taken
        best = min(best, taken / count)
        if taken < seconds / 20:
            count *= 2
    return 1e3 * best


def launches(qd):
    import launch

    for name in ("field", "ndarrays", "scalar"):
        call, reset, result = getattr(launch, name)(qd)
        reset()
        call()
        yield f"launch {name}", call, {"value": np.asarray(result())}


def saxpy(qd, n=1 << 26):
    x, y = qd.field(qd.f32, n), qd.field(qd.f32, n)
    x.fill(1.0)

    @qd.kernel
    def step():
        for i in x:
            y[i] = 0.5 * x[i] + 0.5 * y[i]

    return step, lambda: y.fill(0), lambda: {"some": y.to_numpy()[:1000]}


def total(qd, n=1 << 26):
    x, s = qd.field(qd.f32, n), qd.field(qd.f32, ())
    x.from_numpy(np.random.default_rng(0).random(n, dtype=np.float32))

    @qd.kernel
    def step():
        for i in x:
            s[None] += x[i]

    return step, lambda: s.fill(0), lambda: {"total": np.asarray(s[None])}


def jacobi(qd, n=8192):
    import programs

    step, a, b = programs.jacobi(qd, n)
    data = np.random.default_rng(0).random((n, n), dtype=np.float32)
    return step, lambda: (a.from_numpy(data), b.from_numpy(data)), lambda: {"a": a.to_numpy()[::64]}


def n_body(qd, n=32768):
    import programs

    step, pos, acc = programs.n_body(qd, n)
    pos.from_numpy(np.random.default_rng(0).random((n, 3), dtype=np.float32))
    return step, lambda: acc.fill(0), lambda: {"pull": acc.to_numpy()}


def mpm(qd, particles=1 << 20):
    import programs

    load, step, changes = programs.mpm(qd, particles)
    return step, load, changes


def programs_of(qd):
    """(name, call, reset, results) of what is launched again and again."""
    import user_programs

    for make in (saxpy, total, jacobi, n_body, mpm):
        yield make.__name__, *make(qd)
    for name in (
        "lattice_boltzmann", "cloth", "struct_particles", "jump_flood", "box_filter", "matrix_product",
        "neighbour_grid", "tree_walk", "mandelbrot", "sparse_product", "local_sort", "batched_dynamics",
        "constraints",
    ):  # fmt: skip
        yield name, *getattr(user_programs, name)(qd)


def gradients(qd):
    import gradients as cases

    for name in cases.PROGRAMS:
        program = cases.differentiable(qd, name)
        program.kernel()
        results = lambda p=program: {f"gradient {k}": g for k, g in enumerate(p.gradients())}
        yield name, program.kernel, lambda: None, dict
        yield f"{name} reverse", program.reverse, program.reset, results


def digest(results):
    """A few numbers that stand for arrays: sums with fixed random weights, and the largest value."""
    out = {}
    for k, v in results.items():
        v = np.asarray(v, np.float64).ravel()
        weights = np.random.default_rng(7).random(v.size)
        out[k] = [float(v @ weights / max(1.0, np.sqrt(v.size))), float(np.abs(v).max(initial=0))]
    return out


def measure(only, arch):
    import quadrants as qd

    wanted = lambda name: not only or any(w in name for w in only)
    numbers, results, notes = {}, {}, []
    start = lambda: qd.init(
        arch=getattr(qd, arch), log_level=qd.ERROR, ad_stack_experimental_enabled=True
    )

    start()
    for name, call, result in launches(qd):
        if wanted(name):
            numbers[name] = burst_ms(call, qd.sync)
            results[name] = digest(result)
    for room in (programs_of, gradients):
        start()
        rest = room(qd)
        while True:
            try:
                name, call, reset, read = next(rest)
            except StopIteration:
                break
            except Exception as e:
                notes.append(f"{room.__name__}: {type(e).__name__}: {str(e).splitlines()[0][:100]}")
                break
            if not wanted(name):
                continue
            try:
                reset()
                call()
                qd.sync()
                results[name] = digest(read())
                numbers[name] = burst_ms(call, qd.sync)
            except Exception as e:
                notes.append(f"{name}: {type(e).__name__}: {str(e).splitlines()[0][:100]}")
    print(json.dumps({"numbers": numbers, "results": results, "notes": notes}))


def first(what, arch):
    begin = clock()
    import quadrants as qd

    numbers = {"import": clock() - begin}
    begin = clock()
    qd.init(arch=getattr(qd, arch), log_level=qd.ERROR)
    numbers["init"] = clock() - begin
    import programs

    if what == "trivial":
        _, kernel, _ = programs.trivial(qd)
    else:
        load, kernel, _ = programs.mpm(qd, 8192)
        load()
    begin = clock()
    kernel()
    qd.sync()
    numbers[f"first {what}"] = clock() - begin
    print(json.dumps({"numbers": {k: 1e3 * v for k, v in numbers.items()}}))


def child(folder, home, *arguments):
    os.makedirs(home, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": folder,
        "HOME": home,
        "XDG_CACHE_HOME": f"{home}/.cache",
    }
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"notes": [f"exit {done.returncode}: {(done.stderr or done.stdout)[-300:]}"]}
    return json.loads(lines[-1])


def differences(name, mine, theirs):
    for k in mine.keys() & theirs.keys():
        scale = max(mine[k][1], theirs[k][1], 1e-30)
        worst = max(abs(a - b) for a, b in zip(mine[k], theirs[k], strict=True)) / scale
        if not worst <= TOLERANCE:
            yield f"{name}: {k} differs by {worst:.2g} of the largest value"


def runs_of(folder, args):
    """(prefix of the numbers' names, what a process said), process by process."""
    ask = lambda home, what, *more: child(folder, home, "--child", what, "--arch", args.arch, *more)
    with tempfile.TemporaryDirectory() as home:
        yield "", ask(f"{home}/steady", "steady", "--only", *args.only)
        if args.only:
            return
        for what in ("trivial", "mpm"):
            for state in ("cold", "warm"):  # of the caches in this home
                yield f"{state} ", ask(f"{home}/{what}", what)


def report(table, results, notes, names):
    ratios = [f"{n} / {names[0]}" for n in names[1:]]
    print("| ms | " + " | ".join(names + ratios) + " |")
    print("|---" * (1 + len(names) + len(ratios)) + "|")
    for k, at in table.items():
        cells = [f"{at[n]:.4g}" if n in at else "" for n in names]
        both = lambda n, at=at: n in at and names[0] in at
        cells += [f"{at[n] / at[names[0]]:.2f}" if both(n) else "" for n in names[1:]]
        print(f"| {k} | " + " | ".join(cells) + " |")
    for other in names[1:]:
        for k in results[names[0]].keys() & results[other].keys():
            notes += differences(f"{k}, {other}", results[names[0]][k], results[other][k])
    for n in notes:
        print("-", n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contenders", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--arch", default="cuda")
    parser.add_argument("--child", choices=("steady", "trivial", "mpm"))
    args = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE / "cases")]
    if args.child == "steady":
        return measure(args.only, args.arch)
    if args.child:
        return first(args.child, args.arch)

    table, results, notes = {}, {}, []
    for r in range(args.rounds):
        for entry in args.contenders:
            name, folder = entry.split("=", 1)
            for prefix, run in runs_of(str(pathlib.Path(folder).resolve()), args):
                for k, v in run.get("numbers", {}).items():
                    at = table.setdefault(prefix + k, {})
                    at[name] = min(v, at.get(name, v))
                if r == 0:
                    notes += [f"{name}: {n}" for n in run.get("notes", [])]
                    results[name] = results.get(name, {}) | run.get("results", {})
    report(table, results, notes, [c.split("=", 1)[0] for c in args.contenders])


if __name__ == "__main__":
    main()
