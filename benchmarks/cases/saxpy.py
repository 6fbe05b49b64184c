"""Does `y = a x + y` over 16 MB arrays reach the memory's speed, on fields and on ndarrays?"""

import numpy as np

import child

CONTENDERS = child.LOOPS
PHASES = ("warm",)
TOLERANCE = 1e-5
TARGETS = {"warm field ms": ("cpp", 0.95), "warm ndarray ms": ("cpp", 0.95)}
N, A = 1 << 22, 1e-4


def dsl(args, x0, y0):
    qd = child.start(args)

    @qd.kernel
    def on_fields(a: qd.f32):
        for i in fy:
            fy[i] = a * fx[i] + fy[i]

    @qd.kernel
    def on_arrays(
        a: qd.f32,
        x: qd.types.ndarray(dtype=qd.f32, ndim=1),
        y: qd.types.ndarray(dtype=qd.f32, ndim=1),
    ):
        for i in y:
            y[i] = a * x[i] + y[i]

    fx, fy = qd.field(qd.f32, N), qd.field(qd.f32, N)
    nx, ny = qd.ndarray(qd.f32, N), qd.ndarray(qd.f32, N)
    fx.from_numpy(x0)
    nx.from_numpy(x0)
    yield "field", lambda: on_fields(A), qd.sync, lambda: fy.from_numpy(y0), fy.to_numpy
    yield "ndarray", lambda: on_arrays(A, nx, ny), qd.sync, lambda: ny.from_numpy(y0), ny.to_numpy


def numba(args, x, y0):
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def saxpy(a, x, y):
        for i in numba.prange(y.size):
            y[i] = a * x[i] + y[i]

    y = y0.copy()
    call = lambda: saxpy(np.float32(A), x, y)
    yield "both", call, lambda: None, lambda: np.copyto(y, y0), lambda: y


def warp(args, x0, y0):
    import warp as wp

    @wp.kernel
    def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = a * x[i] + y[i]

    x, y = (wp.array(v, dtype=float, device="cpu") for v in (x0, y0))
    call = lambda: wp.launch(saxpy, dim=N, inputs=[A, x, y], device="cpu")
    yield "both", call, wp.synchronize, lambda: y.assign(y0), y.numpy


def cpp(args, x, y0):
    import ctypes

    lib, y = child.cpp(), y0.copy()
    px, py = child.pointer(x), child.pointer(y)
    a = ctypes.c_float(A)
    call = lambda: lib.saxpy(ctypes.c_long(N), a, px, py)
    yield "both", call, lambda: None, lambda: np.copyto(y, y0), lambda: y


def case(args):
    rng = np.random.default_rng(0)
    x, y = (rng.random(N, dtype=np.float32) for _ in range(2))
    build = {"numba": numba, "warp": warp, "cpp": cpp}.get(args.contender, dsl)
    numbers, result = {}, {}
    for name, call, sync, reset, fetch in build(args, x, y):
        reset()
        change = lambda fetch=fetch: {"change": fetch() - y}
        times, sums = child.checked(args, name, call, sync, reset, change, repeats=30)
        for variant in ("field", "ndarray") if name == "both" else (name,):
            numbers |= {k.replace(name, variant): v for k, v in times.items()}
            result |= {k.replace(name, variant): v for k, v in sums.items()}
    return numbers, result


if __name__ == "__main__":
    child.main(case)
