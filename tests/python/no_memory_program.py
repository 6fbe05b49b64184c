"""One stage of a program, again and again in forked children, each with another allocation refused.

`no_memory_program.py STAGE POINTS`: POINTS are numbers of allocations as our extension counts them, with
commas between; `+` behind one: all from there on are refused. standins/malloc.c is preloaded. Prints a line a
point: END, the point, how the child ended, how many were refused, what came of it.
"""

import ctypes
import faulthandler
import os
import select
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import quadrants as qd

INIT = {
    "arch": qd.cpu,
    "log_level": "error",
    "offline_cache": False,
    "ad_stack_experimental_enabled": True,
}
SHIM = ctypes.CDLL(None)
SHIM.refuse_memory.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_long, ctypes.c_long]
SHIM.refuse_memory.restype = ctypes.c_long


def extension():
    """From its first address to behind its last."""
    places = [line.split()[0] for line in open("/proc/self/maps") if "quadrants_python" in line]
    numbers = [int(n, 16) for place in places for n in place.split("-")]
    return min(numbers), max(numbers)


# Each makes what it needs and gives what is to be done while memory runs out.
def stage_init():
    return lambda: qd.init(**INIT)


def stage_reset():
    x = qd.field(qd.f32, 10)
    x.fill(1)
    a = qd.ndarray(qd.f32, 4)
    stage_compile()()
    return lambda: (qd.reset(), a, x)


def stage_field():
    def work():
        x = qd.field(qd.f32, 100, needs_grad=True)
        x.fill(2)
        x[3] = 1
        x.from_numpy(x.to_numpy())
        v = qd.Vector.field(2, qd.i32, 3)
        v[1] = [1, 2]
        s = qd.Struct.field({"a": qd.f32, "b": qd.types.vector(2, qd.i32)}, shape=4)
        s[1].a = 3.0
        qd.root.pointer(qd.i, 4).dense(qd.i, 8).place(y := qd.field(qd.f32))
        y[9] = 1
        str(v)

    return work


def stage_ndarray():
    def work():
        x = qd.ndarray(qd.f32, (10, 10))
        x.fill(2)
        x[3, 3] = 1
        x.from_numpy(x.to_numpy())
        m = qd.Matrix.ndarray(2, 2, qd.f32, 3)
        m[1] = [[1, 2], [3, 4]]
        try:
            x[1000, 1000]
        except IndexError:
            pass

    return work


def stage_compile():
    y = qd.field(qd.f32, 100)

    @qd.dataclass
    class Pair:
        a: qd.f32
        b: qd.f32

        @qd.func
        def sum(self):
            return self.a + self.b

    @qd.func
    def scaled(v, by):
        return v * by + qd.sqrt(by)

    @qd.kernel
    def k(a: qd.f32, b: qd.types.ndarray()) -> qd.f32:
        s = 0.0
        p = Pair(a=a, b=1.0)
        for i in y:
            m = qd.Matrix([[1.0, a, i], [2.0, 3.0, a], [a, i, 5.0]])
            y[i] = scaled((m @ m).determinant() * 1e-6, p.sum()) + b[i % 4]
        for i in y:
            s += y[i]
        return s

    b = np.ones(4, np.float32)
    return lambda: [k(2.0, b) for _ in range(3)]


def stage_error():
    @qd.kernel
    def k() -> qd.i32:
        return nosuch  # noqa: F821

    def work():
        try:
            k()
        except qd.QuadrantsNameError:
            pass

    return work


def stage_launch():
    work = stage_compile()
    work()

    @qd.kernel
    def k(a: qd.types.ndarray(), v: qd.types.vector(3, qd.f32)) -> qd.types.vector(3, qd.f32):
        for i in range(a.shape[0]):
            a[i] += 1
            assert a[i] < 90, "too large"
        print("ended", a[0])
        return v * 2

    a = np.ones(40000, np.float32)
    k(a, [1, 2, 3])

    def launches():
        work()
        k(a, [1, 2, 3])
        a[7] = 90
        try:
            k(a, [1, 2, 3])
        except AssertionError:
            a[7] = 1

    return launches


def stage_small_launch():
    x = qd.field(qd.i32, 16)

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        for i in x:
            x[i] += n
        return n

    k(1)
    k(1)
    x[3]
    return lambda: [(k(2), x[3]) for _ in range(5)]


def stage_gradient():
    x = qd.field(qd.f32, 10, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def k():
        for i in x:
            v = x[i]
            for _ in range(4):
                v = qd.sin(v) * x[i]
            loss[None] += v

    def work():
        with qd.ad.Tape(loss):
            k()

    return work


def stage_threads():
    work = stage_compile()
    threads = ThreadPoolExecutor(3)
    list(threads.map(lambda _: time.sleep(0.01), range(3)))

    def all_at_once():
        ends = [threads.submit(go) for go in (work, stage_compile(), stage_gradient())]
        said = [end.exception() for end in ends]
        threads.shutdown()
        for e in said:
            if e:
                raise e

    return all_at_once


def stage_fork():
    stage_compile()()

    def work():
        if pid := os.fork():
            assert os.waitpid(pid, 0)[1] == 0
            return
        try:
            stage_field()()
            stage_compile()()
        except BaseException:
            pass
        os._exit(0)

    return work


def what_works():
    """After all that: what a program does goes on."""
    for stage in (stage_field, stage_ndarray, stage_compile):
        stage()()


def in_child(stage, point, count):
    """Gives the child's word on one point."""
    work = globals()["stage_" + stage]()
    SHIM.refuse_memory(*extension(), point, count)
    try:
        work()
        word = "went on"
    except BaseException as e:
        word = type(e).__name__ + " " + " ".join(str(e).split())[-150:]
    refused = SHIM.refuse_memory(0, 0, 0, 0)
    if stage in ("init", "reset"):
        qd.init(**INIT)
    what_works()
    return f"{refused} {word}"


def of_point(stage, point, count):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(w, 1)
        os.dup2(w, 2)
        faulthandler.enable()
        try:
            said, code = in_child(stage, point, count), 0
        except BaseException as e:
            said, code = f"0 afterwards: {type(e).__name__} {e}", 1
        os.write(w, f"\nSAID {' '.join(said.split())}".encode())
        os._exit(code)
    os.close(w)
    text, end = b"", time.monotonic() + 60
    while (left := end - time.monotonic()) > 0 and select.select([r], [], [], left)[0]:
        if not (more := os.read(r, 65536)):
            break
        text += more
    else:
        os.kill(pid, signal.SIGKILL)
        text += b"SAID 0 hangs"
    os.close(r)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    words = text.decode(errors="replace")
    return code, words.split("SAID ")[-1] if "SAID " in words else "0 " + " ".join(words.split())[
        :300
    ]


if __name__ == "__main__":
    stage, points = sys.argv[1:]
    qd.init(**INIT)
    what_works()
    stage_gradient()()
    for point in points.split(","):
        every = point.endswith("+")
        code, said = of_point(stage, int(point.strip("+")), 10**9 if every else 1)
        print("END", point, code, said, flush=True)
