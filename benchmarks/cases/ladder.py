"""How does compile time grow with the source: one long function, and the same spread over many?

Distinct straight-line statements, x1 x4 x16 x64, each rung in a process of its own in which a
trivial kernel has loaded the compiler already. The smallest rung is sized per contender so that it
takes at least 20 ms more than a trivial kernel. `exponent` is the slope of log time over log size
by least squares. The same slope is shown for the instructions that our passes visit (counted by
the compiler itself, in a process that is not timed) and, where the machine lets `perf stat` count
them, for the CPU instructions of the whole process.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile

import child
import programs

CONTENDERS = child.DSL
PHASES = ("cold",)
PARTS = ("one", "many")
TIMEOUT = 600
RUNG_TIMEOUT = 60
TOLERANCE = 1e-4
TARGETS = {
    f"cold {part} {exponent}": 1.1
    for part in PARTS
    for exponent in ("exponent", "visited exponent")
}


def rung(args, part, statements):
    """In the child: first-call milliseconds of a trivial kernel (the second) and of the rung."""
    import numpy as np

    qd = child.load(args.contender)
    threads = args.threads
    qd.init(arch=qd.cpu, offline_cache=False, cpu_max_num_threads=threads, log_level=qd.ERROR)
    _, ramp, shift = programs.trivial(qd)
    ramp()
    trivial = child.first_call(qd, shift)
    x = np.linspace(0, 1, 64, dtype=np.float32)
    if not statements:
        return {"trivial": trivial, "ms": trivial}, []
    source = programs.straight_line(qd.__name__, statements, 16 if part == "many" else 0)
    kernel = child.generated(f"ladder_{part}_{statements}", source).ladder
    expected = programs.straight_line_result(x.copy(), statements)
    time = child.first_call(qd, kernel, x)
    if not np.abs(x - expected).max() <= TOLERANCE * np.abs(expected).max():
        raise SystemExit(f"{part}, {statements} statements: not what NumPy computes")
    return {"trivial": trivial, "ms": time}, x.tolist()


def count_instructions():
    """Whether `perf stat` counts CPU instructions here."""
    try:
        probe = ["perf", "stat", "-x,", "-e", "instructions:u", "true"]
        seen = subprocess.run(probe, capture_output=True, text=True).stderr
        return seen.split(",")[0].isdigit()
    except OSError:
        return False


def visited(args, part, statements):
    """IR instructions that our passes look at, summed over passes."""
    command = [sys.executable, __file__, "--contender", "ours", "--part", f"{part}:{statements}"]
    environment = os.environ | {"QD_COMPILE_REPORT": "2"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    report = run.stderr.rpartition("before ->")[2]  # the last kernel's table
    return sum(map(int, re.findall(r"^\S+\s+[\d.]+\s+(\d+) ->", report, re.MULTILINE)))


def run_rung(args, part, statements, counting):
    """(numbers, result, CPU instructions or 0), or None after a timeout."""
    command = [sys.executable, __file__, "--contender", args.contender]
    command += ["--part", f"{part}:{statements}", "--threads", str(args.threads)]
    with tempfile.NamedTemporaryFile("r") as counts:
        if counting:
            perf = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", counts.name]
            command = [*perf, *command]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=RUNG_TIMEOUT)
        except subprocess.TimeoutExpired:
            return None
        if run.returncode:
            raise SystemExit(run.stderr)
        line = json.loads(run.stdout.splitlines()[-1])
        instructions = 0
        if counting:
            instructions = int(next(t for t in counts if "instructions" in t).split(",")[0])
        return line["numbers"], line["result"], instructions


def slope(points):
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mx, my = (sum(c) / len(logs) for c in zip(*logs))
    return sum((x - mx) * (y - my) for x, y in logs) / sum((x - mx) ** 2 for x, _ in logs)


def case(args):
    part, _, statements = args.part.partition(":")
    if statements:
        return rung(args, part, int(statements))
    counting = count_instructions()
    sizes = (1, 4, 16) if args.quick else (1, 4, 16, 64)
    notes = [] if counting else ["perf stat counts no instructions on this machine"]
    base, first = 64, run_rung(args, part, 64, counting)
    result = {part: first[1]}
    while first and first[0]["ms"] < 20 + first[0]["trivial"]:
        base *= 2
        first = run_rung(args, part, base, counting)
    empty = run_rung(args, part, 0, counting)[2] if counting else 0
    numbers = {f"{part} x1 statements": base}
    slopes = {"exponent": [], "visited exponent": [], "CPU instruction exponent": []}
    for size in sizes:
        done = first if size == 1 else run_rung(args, part, base * size, counting)
        if done is None:
            notes.append(f"{part} x{size}: more than {RUNG_TIMEOUT} s")
            break
        numbers[f"{part} x{size} ms"] = done[0]["ms"]
        slopes["exponent"].append((size, done[0]["ms"]))
        slopes["CPU instruction exponent"].append((size, done[2] - empty))
        if args.contender == "ours":
            slopes["visited exponent"].append((size, visited(args, part, base * size)))
    for name, points in slopes.items():
        if len(points) > 1 and all(y > 0 for _, y in points):
            numbers[f"{part} {name}"] = slope(points)
    return numbers, result, *notes


if __name__ == "__main__":
    child.main(case)
