"""Does an all-pairs n-body step (4096 bodies) keep the vector units busy?"""

import numpy as np

import child
import programs

CONTENDERS = child.LOOPS
PHASES = ("warm",)
TOLERANCE = 1e-3
TARGETS = {"warm nbody ms": ("cpp", 0.85)}
N = 4096


def dsl(args, data):
    qd = child.start(args)
    attract, pos, acc = programs.n_body(qd, N)
    pos.from_numpy(data)
    return attract, qd.sync, lambda: acc.fill(0), acc.to_numpy


def numba(args, p):
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def attract(p, acc):
        soft, one = np.float32(1e-3), np.float32(1)
        for i in numba.prange(N):
            x, y, z = p[i, 0], p[i, 1], p[i, 2]
            ax = ay = az = np.float32(0)
            for j in range(N):
                dx, dy, dz = p[j, 0] - x, p[j, 1] - y, p[j, 2] - z
                inv = one / np.sqrt(dx * dx + dy * dy + dz * dz + soft)
                pull = inv * inv * inv
                ax += dx * pull
                ay += dy * pull
                az += dz * pull
            acc[i, 0], acc[i, 1], acc[i, 2] = ax, ay, az

    acc = np.zeros_like(p)
    return lambda: attract(p, acc), lambda: None, lambda: acc.fill(0), lambda: acc


def warp(args, data):
    import warp as wp

    @wp.kernel
    def attract(p: wp.array(dtype=wp.vec3), acc: wp.array(dtype=wp.vec3)):
        i = wp.tid()
        here = p[i]
        pull = wp.vec3(0.0, 0.0, 0.0)
        for j in range(p.shape[0]):
            d = p[j] - here
            inv = 1.0 / wp.sqrt(wp.length_sq(d) + 1e-3)
            pull += d * (inv * inv * inv)
        acc[i] = pull

    p = wp.array(data, dtype=wp.vec3, device="cpu")
    acc = wp.zeros(N, dtype=wp.vec3, device="cpu")
    call = lambda: wp.launch(attract, dim=N, inputs=[p, acc], device="cpu")
    return call, wp.synchronize, acc.zero_, acc.numpy


def cpp(args, p):
    import ctypes

    lib, n, acc = child.cpp(), ctypes.c_long(N), np.zeros_like(p)
    pp, pa = child.pointer(p), child.pointer(acc)
    return lambda: lib.nbody(n, pp, pa), lambda: None, lambda: acc.fill(0), lambda: acc


def case(args):
    data = np.random.default_rng(0).random((N, 3), dtype=np.float32)
    build = {"numba": numba, "warp": warp, "cpp": cpp}.get(args.contender, dsl)
    call, sync, reset, fetch = build(args, data)
    return child.checked(args, "nbody", call, sync, reset, lambda: {"pull": fetch()})


if __name__ == "__main__":
    child.main(case)
