"""What a case script needs: command line, clock, protocol, and the choice of a package.

A case runs as `python cases/NAME.py --contender WHO` in a process of its own and prints one JSON
line: `numbers` (what was measured), `result` (what the measured code computed, compared between
contenders before any time is shown) and `notes`. Nothing here imports more than the standard
library, so that a case can time imports.
"""

import argparse
import ctypes
import importlib
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
DSL = ("ours", "established", "taichi")
ALL = (*DSL, "numba", "warp", "cpp")

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
    """Import `source` as a module. The file's place and time stay the same in the next process."""
    folder = pathlib.Path(os.environ.get("BENCH_TMP", "/tmp"))
    path = folder / f"{name}.py"
    if not path.exists() or path.read_text() != source:
        path.write_text(source)
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


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
    if args.prime:
        return 0.0, 0.0
    per_call = (clock() - begin) / calls
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


def main(case):
    """Run `case(args) -> (numbers, result[, notes])` and print the JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--contender", choices=ALL, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--prime", action="store_true", help="fill the cache, measure nothing")
    parser.add_argument("--part", default="", help="one part of a case that has several")
    args = parser.parse_args()
    numbers, result, *notes = case(args)
    print(json.dumps({"numbers": numbers, "result": result, "notes": notes}))
