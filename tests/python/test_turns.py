"""What several threads launch, read and write is done one after the other, as under the GIL.

Long launches give up the GIL, so these tests are about arrays that take a while.
"""

import os
import signal
import threading
import time

import numpy as np
import pytest

import quadrants as qd

N = 300_000


def together(*works):
    """Runs all at once; raises what one raised."""
    raised = []

    def run(work):
        try:
            work()
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=run, args=(w,)) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


@qd.kernel
def add_one(a: qd.types.ndarray()):
    for i in range(a.shape[0]):
        a[i] = a[i] + 1


@qd.kernel
def copy(a: qd.types.ndarray(), b: qd.types.ndarray()):
    for i in range(a.shape[0]):
        b[i] = a[i]


def ours():
    return qd.ndarray(qd.i32, (N,))


def foreign():
    return np.zeros(N, np.int32)


@pytest.mark.parametrize("make", [ours, foreign])
def test_no_update_is_lost(backend, make):
    a = make()
    add_one(a)

    def work():
        for _ in range(100):
            add_one(a)

    together(*[work] * 4)
    values = a if make is foreign else a.to_numpy()
    assert np.array_equal(values, np.full(N, 401))


def test_frames_are_whole(backend):
    field = qd.field(qd.i32, N)
    frame = ours()
    pair = qd.Vector.field(2, qd.i32, N, layout=qd.Layout.SOA)
    over = []

    @qd.kernel
    def step():
        for i in field:
            field[i] += 1
        for i in pair:
            pair[i] += qd.Vector([1, -1])

    @qd.kernel
    def copy_field(b: qd.types.ndarray()):
        for i in field:
            b[i] = field[i]

    def simulate():
        for _ in range(200):
            step()
        over.append(True)

    def view():
        while not over:
            values = field.to_numpy()
            assert values.min() == values.max()
            copy_field(frame)
            values = frame.to_numpy()
            assert values.min() == values.max()
            values = pair.to_numpy()
            assert values.min() == -values.max()

    step()
    together(simulate, view)
    assert field[0] == field[N - 1] == 201


def test_what_the_host_writes_stays(backend):
    field = qd.field(qd.i32, N)
    over = []

    @qd.kernel
    def step():
        for i in field:
            field[i] = field[i] + 1

    def simulate():
        while not over:
            step()

    def edit():
        try:
            for k in range(100):
                field.fill(1_000_000)
                assert field[k] >= 1_000_000
                field[k] = 5_000_000
                assert field[k] >= 5_000_000
                values = field.to_numpy()
                values[k] = -1
                assert values.min() == -1 and np.count_nonzero(values < 1_000_000) == 1
                field.from_numpy(np.full(N, 7, np.int32))
                values = field.to_numpy()
                assert values.min() == values.max()
        finally:
            over.append(True)

    step()
    together(simulate, edit)


def test_everybody_gets_turns(backend):
    a, b = ours(), ours()
    turns = {k: 0 for k in range(3)}
    over = []

    def work(k):
        while not over:
            add_one(a) if k else copy(a, b)
            turns[k] += 1
            if min(turns.values()) >= 20:
                over.append(True)

    began = time.monotonic()
    together(*[lambda k=k: work(k) for k in turns])
    assert time.monotonic() - began < 60


def test_a_signal_handler_waits_for_another_threads_launch(backend):
    a = ours()
    asked, answered = threading.Event(), threading.Event()

    @qd.kernel
    def long(b: qd.types.ndarray(), turns: qd.i32):
        for i in range(b.shape[0]):
            for t in range(turns):
                b[i] += t
        for i in range(b.shape[0]):
            for t in range(turns):
                b[i] -= t
        for i in range(b.shape[0]):
            for t in range(turns):
                b[i] += t

    def serve():
        asked.wait(60)
        add_one(a)
        answered.set()

    heard = []

    def ask(signum, frame):
        asked.set()
        heard.append(answered.wait(60))

    b = ours()
    add_one(a)
    long(b, 1)
    server = threading.Thread(target=serve)
    server.start()
    old = signal.signal(signal.SIGALRM, ask)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        long(b, 300)
        while not heard:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGALRM, old)
        server.join()
    assert heard == [True]
    assert a[0] == 2 and b[5] == 300 * 299 // 2


@pytest.mark.of_cpus("launches take the host's time")
def test_who_waits_for_a_turn_sees_signals(backend):
    a = ours()

    @qd.kernel
    def long(b: qd.types.ndarray(), turns: qd.i32):
        for _ in range(1):
            for t in range(turns):
                for i in range(b.shape[0]):
                    b[i] ^= t

    b = ours()
    long(b, 1)
    add_one(a)
    thread = threading.Thread(target=long, args=(b, 3000))

    def stop(signum, frame):
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, stop)
    thread.start()
    try:
        time.sleep(0.02)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            while True:
                add_one(a)
        assert thread.is_alive(), "the launch is to be so long that the signal comes amid it"
    finally:
        signal.signal(signal.SIGALRM, old)
        thread.join()


@pytest.mark.of_cpus("launches and copies take the host's time")
def test_a_child_has_no_half_of_a_launch(backend):
    a = ours()
    over = []

    def simulate():
        while not over:
            add_one(a)

    thread = threading.Thread(target=simulate)
    thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if not child:
                values = a.to_numpy()
                os._exit(int(values.min() != values.max()))
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.append(True)
        thread.join()


@pytest.mark.of_cpus("launches and copies take the host's time")
def test_a_child_forked_amid_a_copy_has_its_turns(backend):
    field = qd.field(qd.i32, N)
    a = ours()
    add_one(a)
    over = []

    def copies():
        while not over:
            field.from_numpy(field.to_numpy())

    thread = threading.Thread(target=copies)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                signal.alarm(30)
                together(*[lambda: [add_one(a), field.to_numpy()]] * 2)
                os._exit(0 if a[0] == 3 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.append(True)
        thread.join()


@pytest.mark.of_cpus("launches and copies take the host's time")
@pytest.mark.parametrize("layout", [qd.Layout.AOS, qd.Layout.SOA])
def test_a_handler_amid_a_copy_waits_for_who_launches(backend, layout):
    """Ctrl-C amid to_numpy: the handler wants a lock that a worker has while it launches."""
    x = qd.Vector.field(3, qd.f32, 300_000, layout=layout)
    lock, waits = threading.Lock(), []

    @qd.kernel
    def step():
        for i in x:
            x[i] += 1.0

    def handler(*_):
        waits.append(lock.acquire(timeout=10))
        if waits[-1]:
            lock.release()

    def work():
        while len(waits) < 8 and False not in waits:
            with lock:
                step()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        step()
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        while worker.is_alive():
            kick = threading.Timer(
                0.003, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1)
            )
            kick.start()
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                x.to_numpy()
            kick.join()
        assert all(waits)
    finally:
        signal.signal(signal.SIGUSR1, before)
