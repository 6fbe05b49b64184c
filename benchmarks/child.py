"""What a case script needs: command line, clock, protocol, and the choice of a package.

A case runs as `python cases/NAME.py --contender WHO` in a process of its own and prints one JSON
line: `numbers` (what was measured), `result` (what the measured code computed, compared between
contenders before any time is shown: steady states by the code that the clock ran on) and `notes`. Nothing here imports more than the standard
library, so that a case can time imports.
"""

import argparse
import ctypes
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
DSL = ("ours", "established", "taichi")
SPIN = "-spin"  # the same contender, whose threads spin at barriers
CPP = ("cpp", "cpp" + SPIN)
ALL = (*DSL, "numba", "warp", "jax", *CPP)
LOOPS = tuple(who for who in ALL if who != "jax")  # who is given loops; JAX has functions of arrays

clock = time.perf_counter


def load(contender):
    """The package under test: `quadrants` (whichever this interpreter has) or taichi."""
    return importlib.import_module("taichi" if contender == "taichi" else "quadrants")


def start(args):
    qd = load(args.contender)
    qd.init(arch=qd.cpu, cpu_max_num_threads=args.threads, log_level=qd.ERROR)
    return qd


def cpp():
    return ctypes.CDLL(str(HERE / "build" / "libkernels.so"))


def pointer(array):
    """Address for a C++ function; keeps the array alive."""
    return array.ctypes.data_as(ctypes.c_void_p)


def compiler_loaded():
    """1 if our compiler object is mapped into this process, 0 if not."""
    return int("libqd_compiler" in pathlib.Path("/proc/self/maps").read_text())


def first_call(qd, kernel, *operands):
    """Milliseconds of one call, device time included."""
    begin = clock()
    kernel(*operands)
    qd.sync()
    return 1e3 * (clock() - begin)


def generated(name, source):
    """Import `source` as a module, from a file that is older than the process, as users' files are.

    What changed about when the process began is looked at more closely by ours (it might not be
    what was imported), so the process that writes the file hands its work to another one.
    """
    folder = pathlib.Path(os.environ.get("BENCH_TMP", "/tmp"))
    path = folder / f"{name}.py"
    if not path.exists() or path.read_text() != source:
        path.write_text(source)
        time.sleep(0.1)
        raise SystemExit(subprocess.call([sys.executable, *sys.argv]))
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def settle(args):
    """Waits for better code of what has run, which ours compiles meanwhile; the others have one tier."""
    if args.contender == "ours":
        load(args.contender)._lib.core.finish_optimisations()


def steady(args, call, sync=lambda: None, warm=2.0, measure=1.5):
    """Milliseconds per call once nothing changes any more: (median of batches, best batch)."""
    if args.quick:
        warm, measure = 1.2, 0.6
    end, calls, begin = clock() + warm, 0, clock()
    while clock() < end:
        call()
        calls += 1
        if calls % 16 == 0:
            sync()
    sync()
    per_call = (clock() - begin) / calls
    settle(args)
    call()  # takes the new code
    sync()
    if args.prime:
        return 0.0, 0.0
    batch, times = max(1, int(0.02 / per_call)), []
    end = clock() + measure
    while clock() < end or len(times) < 5:
        begin = clock()
        for _ in range(batch):
            call()
        sync()
        times.append(1e3 * (clock() - begin) / batch)
    times.sort()
    return times[len(times) // 2], times[0]


def throughput(args, name, *how):
    """`steady` as numbers: the median counts, the best batch shows what noise has cost."""
    median, best = steady(args, *how)
    return {f"{name} ms": median, f"{name} best ms": best}


def fingerprint(**arrays):
    """Numbers that nothing done, a loop left half way, or a forgotten component change.

    Each array gives, for each eighth of it, a mean weighted by place and the root of the mean square.
    """
    import numpy as np

    out = {}
    for name, a in arrays.items():
        flat = np.asarray(a, np.float64).ravel()
        weights = np.random.default_rng(len(flat)).uniform(0.5, 1.5, len(flat))
        pieces = list(zip(np.array_split(flat, 8), np.array_split(weights, 8)))
        out[name] = [float((x * w).mean()) for x, w in pieces]
        out[f"{name} squared"] = [float((x * x).mean() ** 0.5) for x, _ in pieces]
    return out


def checked(args, name, call, sync, reset, results, repeats=1):
    """`throughput`, and the fingerprint of what the timed code makes of a fresh start.

    Args:
        reset: puts the start back, and into what is only written something that no call leaves there.
        results: arrays by name, such that a call changes all of them.
    """
    numbers = throughput(args, name, call, sync)
    reset()
    for _ in range(repeats):
        call()
    sync()
    return numbers, {f"{name} {k}": v for k, v in fingerprint(**results()).items()}


def main(case):
    """Run `case(args) -> (numbers, result[, notes])` and print the JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--contender", choices=[w for w in ALL if not w.endswith(SPIN)], required=True
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--prime", action="store_true", help="fill the cache, measure nothing")
    parser.add_argument("--part", default="", help="one part of a case that has several")
    args = parser.parse_args()
    numbers, result, *notes = case(args)
    print(json.dumps({"numbers": numbers, "result": result, "notes": notes}))
