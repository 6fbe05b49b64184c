"""What tasks cost on a GPU where they do little, and sparse trees where memory comes with their cells.

    python benchmarks/gpu_tasks.py

Prints a line of JSON: milliseconds of the import, of the driver's context, and of `init` after it; microseconds a task of fifty short ones and of
fifty of two blocks a multiprocessor in one kernel; microseconds a turn of do-while loops of two short tasks, and of two of
that many, 1,000 turns; how much faster two kernels of one thread are on two streams, and two such blocks of
stream_parallel, than one after the other; milliseconds to fill a ball in a sparse tree of 4096^3 numbers, first and again, and
to sum it up. Best of some.
"""

import ctypes
import json
import time


def make_context():
    """What the driver takes to start, whoever asks; `qd.init` finds it there."""
    driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


BEGAN = time.perf_counter()
import quadrants as qd  # noqa: E402

IMPORTED = time.perf_counter()
make_context()
HAS_CONTEXT = time.perf_counter()
qd.init(arch=qd.cuda, log_level="error")
READY = time.perf_counter()
LARGE, TURNS = 264 * 256, 1000
x, y, large = qd.field(qd.f32, 64), qd.field(qd.f32, 64), qd.field(qd.f32, LARGE)
Count = qd.types.ndarray(qd.i32, 0)


@qd.kernel
def short():
    for r in qd.static(range(25)):
        for i in x:
            x[i] = y[63 - i] * 0.5 + 1
        for i in y:
            y[i] = x[(i + 1) % 64] + r


@qd.kernel
def long():
    for r in qd.static(range(50)):
        for i in large:
            large[i] = large[i] * 0.5 + r


@qd.kernel(graph=True)
def loop_short(n: Count):
    while qd.graph.do_while(n):
        for i in x:
            x[i] = y[63 - i] * 0.5 + 1
        for i in y:
            y[i] = x[(i + 1) % 64]
        n[()] -= 1


@qd.kernel(graph=True)
def loop_long(n: Count):
    while qd.graph.do_while(n):
        for i in large:
            large[i] = large[i] * 0.5 + 1
        for i in range(LARGE):
            if i == 0:
                n[()] -= 1
            large[i] += 1


def best_us(call, calls, per, rounds=12):
    call()
    call()
    found = float("inf")
    for _ in range(rounds):
        qd.sync()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        qd.sync()
        found = min(found, time.perf_counter() - began)
    return round(found / calls / per * 1e6, 3)


turns = qd.ndarray(qd.i32, ())


def turning(kernel):
    def call():
        turns.fill(TURNS)
        kernel(turns)

    return call


spun = qd.field(qd.f32, 2)


@qd.kernel
def alone(at: qd.i32):
    for i in range(1):  # of one thread
        for _ in range(200_000):
            spun[at] = spun[at] * 0.999 + 0.5


@qd.kernel
def beside():
    with qd.stream_parallel():
        for i in range(1):
            for _ in range(200_000):
                spun[0] = spun[0] * 0.999 + 0.5
    with qd.stream_parallel():
        for i in range(1):
            for _ in range(200_000):
                spun[1] = spun[1] * 0.999 + 0.5


first, second = qd.create_stream(), qd.create_stream()


def on_streams():
    alone(0, qd_stream=first)
    alone(1, qd_stream=second)
    first.synchronize()
    second.synchronize()


def in_turn():
    alone(0)
    alone(1)
    qd.sync()


turned_us = best_us(in_turn, 1, 1, 5)

out = {
    "streams x": round(turned_us / best_us(on_streams, 1, 1, 5), 2),
    "stream_parallel x": round(turned_us / best_us(beside, 1, 1, 5), 2),
    "import ms": round((IMPORTED - BEGAN) * 1e3),
    "context ms": round((HAS_CONTEXT - IMPORTED) * 1e3),
    "init ms": round((READY - HAS_CONTEXT) * 1e3, 1),
    "short task us": best_us(short, 20, 50),
    "long task us": best_us(long, 20, 50),
    "turn of short tasks us": best_us(turning(loop_short), 1, TURNS),
    "turn of long tasks us": best_us(turning(loop_long), 1, TURNS),
}

sparse = qd.field(qd.f32)
qd.root.pointer(qd.ijk, 512).dense(qd.ijk, 8).place(sparse)  # 256 GB if it were dense


@qd.kernel
def fill(shift: qd.i32):
    for i, j, k in qd.ndrange(256, 256, 256):
        if (i - 128) ** 2 + (j - 128) ** 2 + (k - 128) ** 2 < 110**2:
            sparse[i * 2 + shift, j * 2, k * 2] = 1.0


@qd.kernel
def total() -> qd.f32:
    r = 0.0
    for i, j, k in sparse:
        r += sparse[i, j, k]
    return r


def ms_of(call, *args):
    qd.sync()
    began = time.perf_counter()
    call(*args)
    qd.sync()
    return round((time.perf_counter() - began) * 1e3, 2)


out["sparse fill ms"] = [ms_of(fill, k) for k in range(3)]
out["sparse sum ms"] = [ms_of(total) for _ in range(3)]
print(json.dumps(out))
