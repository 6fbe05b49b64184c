"""What a long launch works on stays, whatever other threads let go of meanwhile."""

import dataclasses
import signal
import threading
import time

import numpy as np
import pytest

import quadrants as qd

N = 1 << 20  # so large that freed memory is unmapped
TURNS = 60


@dataclasses.dataclass
class Data:
    a: qd.types.NDArray[qd.i32, 1]
    out: qd.types.NDArray[qd.i64, 1]


@qd.kernel
def sum_data(d: Data, turns: qd.i32):
    for _ in range(1):
        for t in range(turns):
            for i in range(N):
                d.out[0] += d.a[i] ^ (t & 1)


@qd.data_oriented
class Owner:
    def __init__(self, a, out):
        self.a = a
        self.out = out

    @qd.kernel
    def sum(self, turns: qd.i32):
        for _ in range(1):
            for t in range(turns):
                for i in range(N):
                    self.out[0] += self.a[i] ^ (t & 1)


@qd.kernel
def sum_field(a: qd.template(), out: qd.types.ndarray(), turns: qd.i32):
    for _ in range(1):
        for t in range(turns):
            for i in range(N):
                out[0] += a[i] ^ (t & 1)


def ours():
    a = qd.ndarray(qd.i32, (N,))
    a.fill(2)
    return a


def foreign():
    return np.full(N, 2, np.int32)


def run(launch, let_go, out):
    launch(1)
    out[0] = 0
    thread = threading.Thread(target=launch, args=(TURNS,))
    thread.start()
    time.sleep(0.005)  # the launch takes tens of times as long
    let_go()
    for _ in range(3):  # in the same places, if these are free
        ours().fill(9)
        np.full(N, 9, np.int32)
    thread.join()
    assert out[0] == N * (TURNS // 2 * 5)


@pytest.mark.parametrize("make", [ours, foreign])
def test_a_member_is_replaced(backend, make):
    out = np.zeros(1, np.int64)
    d = Data(make(), out)
    run(lambda turns: sum_data(d, turns), lambda: setattr(d, "a", make()), out)


def test_a_member_of_self_is_replaced(backend):
    o = Owner(ours(), qd.ndarray(qd.i64, (1,)))
    run(o.sum, lambda: setattr(o, "a", ours()), o.out)


def test_a_tree_is_destroyed(backend):
    out = np.zeros(1, np.int64)
    builder = qd.FieldsBuilder()
    a = qd.field(qd.i32)
    builder.dense(qd.i, N).place(a)
    tree = builder.finalize()
    a.fill(2)
    run(lambda turns: sum_field(a, out, turns), tree.destroy, out)


def test_a_member_is_replaced_by_a_signal_handler_amid_the_interpreter(backend, monkeypatch):
    monkeypatch.setenv("QD_CPU_TIER", "interpret")
    qd.init(arch=qd.cpu)
    out = np.zeros(1, np.int64)
    d = Data(ours(), out)
    new = []

    def let_go(signum, frame):
        d.a = ours()
        for _ in range(3):
            new.append(ours())
            new[-1].fill(9)

    old = signal.signal(signal.SIGALRM, let_go)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        sum_data(d, 2)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert new and out[0] == N * 5


@pytest.mark.of_cpus("launches run on threads of the host")
def test_memory_goes_after_the_launch(backend):
    out = np.zeros(1, np.int64)
    d = Data(ours(), out)
    for _ in range(3):
        run(lambda turns: sum_data(d, turns), lambda: setattr(d, "a", ours()), out)

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    before = resident()
    for _ in range(20):
        run(lambda turns: sum_data(d, turns), lambda: setattr(d, "a", ours()), out)
    assert resident() - before < 10 * 4 * N
