"""Does a sum into a scalar become a vectorised parallel reduction?

Over 16 MB, which caches may hold, and over 256 MB, where the memory is the limit.
"""

import numpy as np

import child

CONTENDERS = child.LOOPS
PHASES = ("warm",)
TOLERANCE = 1e-4
TARGETS = {"warm 16 MB ms": ("cpp", 0.95), "warm 256 MB ms": ("cpp", 0.95)}


def dsl(args, data):
    qd = child.start(args)
    x = qd.field(qd.f32, data.size)
    x.from_numpy(data)

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    return total


def numba(args, data):
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def total(x):
        s = np.float32(0)
        for i in numba.prange(x.size):
            s += x[i]
        return s

    return lambda: total(data)


def warp(args, data):
    import warp as wp

    x = wp.array(data, dtype=float, device="cpu")
    out = wp.zeros(1, dtype=float, device="cpu")

    def call():
        wp.utils.array_sum(x, out=out)
        return float(out.numpy()[0])

    return call


def cpp(args, data):
    import ctypes

    lib = child.cpp()
    lib.sum.restype = ctypes.c_float
    n, x = ctypes.c_long(data.size), child.pointer(data)
    return lambda: lib.sum(n, x)


def case(args):
    build = {"numba": numba, "warp": warp, "cpp": cpp}.get(args.contender, dsl)
    numbers, result = {}, {}
    for name, size in (("16 MB", 1 << 22), ("256 MB", 1 << 26)):
        if args.contender == "warp" and size > 1 << 24:
            continue  # its serial f32 sum stops growing there
        call = build(args, np.random.default_rng(0).random(size, dtype=np.float32))
        numbers |= child.throughput(args, name, call)
        result[name] = float(call()) / size  # by the code that was timed
    return numbers, result


if __name__ == "__main__":
    child.main(case)
