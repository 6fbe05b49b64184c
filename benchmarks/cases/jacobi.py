"""Is a 5-point stencil over a 2048 x 2048 field limited by memory rather than by index arithmetic?"""

import numpy as np

import child
import programs

CONTENDERS = child.LOOPS
PHASES = ("warm",)
TOLERANCE = 1e-5
TARGETS = {"warm jacobi ms": ("cpp", 0.95)}
N = 2048


def dsl(args, data):
    qd = child.start(args)
    relax, a, b = programs.jacobi(qd, N)
    a.from_numpy(data)
    b.from_numpy(data)
    reset = lambda: (a.from_numpy(data), b.from_numpy(data))
    return relax, qd.sync, reset, a.to_numpy


def numba(args, data):
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def relax(u, v):
        for i in numba.prange(1, N - 1):
            for j in range(1, N - 1):
                c = u[i, j] + u[i, j - 1] + u[i, j + 1] + u[i - 1, j] + u[i + 1, j]
                v[i, j] = np.float32(0.2) * c

    a, b = data.copy(), data.copy()
    reset = lambda: (np.copyto(a, data), np.copyto(b, data))
    return lambda: (relax(a, b), relax(b, a)), lambda: None, reset, lambda: a


def warp(args, data):
    import warp as wp

    @wp.kernel
    def relax(u: wp.array2d(dtype=float), v: wp.array2d(dtype=float)):
        k, m = wp.tid()
        i, j = k + 1, m + 1
        v[i, j] = 0.2 * (u[i, j] + u[i, j - 1] + u[i, j + 1] + u[i - 1, j] + u[i + 1, j])

    a, b = (wp.array(data, dtype=float, device="cpu") for _ in range(2))
    launch = lambda u, v: wp.launch(relax, dim=(N - 2, N - 2), inputs=[u, v], device="cpu")
    reset = lambda: (a.assign(data), b.assign(data))
    return lambda: (launch(a, b), launch(b, a)), wp.synchronize, reset, a.numpy


def cpp(args, data):
    import ctypes

    lib, n = child.cpp(), ctypes.c_long(N)
    a, b = data.copy(), data.copy()
    pa, pb = child.pointer(a), child.pointer(b)
    reset = lambda: (np.copyto(a, data), np.copyto(b, data))
    twice = lambda: (lib.jacobi(n, pa, pb), lib.jacobi(n, pb, pa))
    return twice, lambda: None, reset, lambda: a


def case(args):
    data = np.random.default_rng(0).random((N, N), dtype=np.float32)
    build = {"numba": numba, "warp": warp, "cpp": cpp}.get(args.contender, dsl)
    twice, sync, reset, fetch = build(args, data)
    change = lambda: {"change": fetch() - data}
    numbers, result = child.checked(args, "jacobi", twice, sync, reset, change)
    return {k: v / 2 for k, v in numbers.items()}, result


if __name__ == "__main__":
    child.main(case)
