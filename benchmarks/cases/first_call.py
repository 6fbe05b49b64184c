"""How long does the first call of a kernel take, compiled from nothing and then from the cache?

Every kernel runs in a process of its own, so a cold number includes loading the compiler. `later`
is a second trivial kernel of the same process. The second process finds the first one's cache.
"""

import child
import programs

CONTENDERS = child.DSL
PHASES = ("cold", "warm")
PARTS = ("trivial", "mpm", "cholesky", "deep")
TOLERANCE = 1e-3
TIMEOUT = 150
TARGETS = {
    "cold trivial ms": 20,
    "cold later ms": 3,
    "cold mpm ms": 40,
    "cold cholesky ms": 150,
    "cold deep ms": 50,
    "warm trivial ms": 2,
    "warm later ms": 2,
    "warm mpm ms": 2,
    "warm cholesky ms": 2,
    "warm deep ms": 2,
    **{f"warm {part} compiler loaded": 0 for part in PARTS},
}


def trivial(qd, args):
    x, ramp, shift = programs.trivial(qd)
    times = {"trivial": child.first_call(qd, ramp), "later": child.first_call(qd, shift)}
    return times, lambda: {"x": x.to_numpy().tolist()}


def mpm(qd, args):
    load, step, changes = programs.mpm(qd, 4096)
    load()  # at the origin particles would reach outside the grid
    time = child.first_call(qd, step)
    return {"mpm": time}, lambda: child.fingerprint(**changes())


def cholesky(qd, args):
    a, b, out = programs.cholesky_input()
    time = child.first_call(qd, programs.cholesky(qd), a, b, out)
    return {"cholesky": time}, lambda: {"x": out.tolist()}


def deep(qd, args):
    import numpy as np

    x = np.linspace(0, 1, 64, dtype=np.float32)
    kernel = child.generated("deep_calls", programs.deep_calls(qd.__name__)).deep
    return {"deep": child.first_call(qd, kernel, x)}, lambda: {"x": x.tolist()}


def case(args):
    qd = child.start(args)
    times, digest = globals()[args.part](qd, args)
    numbers = {f"{name} ms": ms for name, ms in times.items()}
    if args.contender == "ours":
        numbers[f"{args.part} compiler loaded"] = child.compiler_loaded()
    return numbers, {f"{args.part} {k}": v for k, v in digest().items()}


if __name__ == "__main__":
    child.main(case)
