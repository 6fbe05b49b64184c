"""Streams and events: real on a GPU; on the CPU kernels run in order and every method is a valid no-op."""

import gc
import threading

import numpy as np
import pytest

import quadrants as qd
from cuda_standin import driver_marks


def is_cuda():
    return qd.cfg.arch == qd.cuda


@pytest.fixture
def count(backend):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def add(n: qd.i32) -> qd.i32:
        for i in x:
            x[i] += n
        return x[0]

    return add


def test_order_and_results(count):
    with qd.create_stream() as first, qd.create_stream() as second, qd.create_event() as done:
        assert count(1, qd_stream=first) == 1
        done.record(first)
        done.wait(qd_stream=second)
        assert count(2, qd_stream=second) == 3
        assert count(n=3, qd_stream=None) == 6
        done.record()
        done.wait()
        done.synchronize()
        first.synchronize()
        handles = {first.handle, second.handle, done.handle}
        assert (0 not in handles and len(handles) == 3) if is_cuda() else handles == {0}
    assert first.handle == second.handle == done.handle == 0
    first.destroy()
    assert count(4, qd_stream=first) == 10  # as the default stream


def test_foreign_handles_are_left_alone(count):
    if is_cuda():
        with qd.create_stream() as own, qd.create_event() as mark:
            stream, event = qd.Stream(own.handle), qd.Event(mark.handle)
            assert count(1, qd_stream=stream) == 1
            event.record(stream)
            event.wait()
            event.synchronize()
            stream.synchronize()
            stream.destroy()
            event.destroy()
            assert stream.handle == own.handle and count(1, qd_stream=own) == 2
        return
    stream, event = qd.Stream(12345), qd.Event(678)
    stream.destroy()
    event.destroy()
    assert (stream.handle, event.handle) == (12345, 678)
    assert count(1, qd_stream=stream) == 1


def test_methods_of_classes(backend):
    @qd.data_oriented
    class Doubler:
        @qd.kernel
        def run(self, n: qd.i32) -> qd.i32:
            return 2 * n

    assert Doubler().run(4, qd_stream=qd.create_stream()) == 8


def test_refused(count):
    @qd.kernel(graph=True)
    def g(n: qd.i32):
        pass

    stream, event = qd.create_stream(), qd.create_event()
    for bad in (3, "stream"):
        with pytest.raises(AttributeError, match="handle"):
            count(1, qd_stream=bad)
        with pytest.raises(AttributeError, match="handle"):
            event.record(bad)
    with pytest.raises(RuntimeError, match="not compatible with graph=True"):
        g(1, qd_stream=stream)
    g(1, qd_stream=None)
    with pytest.raises(RuntimeError, match="not compatible with autodiff"):
        count.grad(1, qd_stream=stream)
    assert count(1) == 1


def test_after_the_program(count):
    stream, event = qd.create_stream(), qd.create_event()
    qd.reset()
    gc.collect()
    for use in (stream.synchronize, event.record, event.wait, event.synchronize):
        with pytest.raises(RuntimeError, match="owning Program has been destroyed"):
            use()
    stream.destroy()
    event.destroy()
    for make in (qd.create_stream, qd.create_event, qd.Stream(1).synchronize):
        with pytest.raises(qd.QuadrantsRuntimeError, match="qd.init"):
            make()


def test_what_the_program_says_of_graphs(count):
    program = qd.lang.impl.get_runtime().prog
    count(1)
    assert program.get_num_offloaded_tasks_on_last_call() >= 1
    assert program.get_graph_cache_size() == 0
    assert program.get_graph_cache_used_on_last_call() is False
    assert program.get_graph_num_nodes_on_last_call() == 0
    assert program.get_graph_total_builds() == 0
    assert program.get_graph_num_checkpoints_on_last_call() == 0
    assert program.get_graph_last_yield_cp_id_on_last_call() == -1


N = 20_000


def test_events_put_streams_in_order(backend):
    x, y = qd.field(qd.i32, N), qd.field(qd.i32, N)

    @qd.kernel
    def slow(turns: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(turns):
                v = (v * 3 + 1) % 1000003
            x[i] = v

    @qd.kernel
    def take(shift: qd.i32):
        for i in y:
            y[i] += x[(i + shift) % N]

    def turned(v, turns):
        for _ in range(turns):
            v = (v * 3 + 1) % 1000003
        return v

    want, total = np.arange(N, dtype=np.int64), np.zeros(N, np.int64)
    x.from_numpy(want.astype(np.int32))
    with (
        qd.create_stream() as first,
        qd.create_stream() as second,
        qd.create_event() as a,
        qd.create_event() as b,
    ):
        for turn in range(6):
            slow(200 + turn, qd_stream=first)
            a.record(first)
            a.wait(second)
            take(turn, qd_stream=second)
            b.record(second)
            b.wait(first)
            want = turned(want, 200 + turn)
            total += np.roll(want, -turn)
        second.synchronize()
        assert (y.to_numpy() == total.astype(np.int32)).all()
    assert (x.to_numpy() == want).all()


def test_results_prints_and_host_arrays_are_complete(backend, capfd):
    x = qd.field(qd.f32, N)

    @qd.kernel
    def total(a: qd.types.ndarray(qd.f32, 1), factor: qd.f32) -> qd.f32:
        s = 0.0
        for i in x:
            x[i] += 1
        for i in a:
            a[i] *= factor
            s += a[i]
        print("factor", factor)
        return s

    a = np.ones(100, np.float32)
    with qd.create_stream() as stream:
        for turn in range(4):
            assert total(a, 2.0, qd_stream=stream) == 100 * 2 ** (turn + 1)
            assert (a == 2 ** (turn + 1)).all()
    assert capfd.readouterr().out.count("factor 2.0") == 4
    assert (x.to_numpy() == 4).all()


def test_streams_of_threads(backend):
    fields = [qd.field(qd.i32, N) for _ in range(4)]

    @qd.kernel
    def work(f: qd.template(), a: qd.i32) -> qd.i32:
        s = 0
        for i in f:
            f[i] += a
        for i in f:
            s += f[i] % 7
        return s

    wrong = []

    def go(n):
        want = 0
        with qd.create_stream() as stream:
            for turn in range(30):
                want += turn + n
                if work(fields[n], turn + n, qd_stream=stream) != N * (want % 7):
                    wrong.append((n, turn))

    threads = [threading.Thread(target=go, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_they_outlive_resets_and_names(backend):
    kept = []
    for _ in range(5):
        backend.init()
        x = qd.field(qd.i32, N)

        @qd.kernel
        def k():
            for i in x:
                x[i] += 1

        streams = [qd.create_stream() for _ in range(3)]
        for s in streams * 2:
            k(qd_stream=s)
            qd.create_event().record(s)
        kept.append(streams.pop())
        del streams, s
        gc.collect()
        kept[-1].synchronize()
        assert (x.to_numpy() == 6).all()
        qd.reset()
    for s in kept:
        s.destroy()
        assert s.handle == 0


def test_blocks_beside_each_other(backend):
    """Their reductions and atomics meet nowhere but in memory."""
    x, y = qd.field(qd.f32, N), qd.field(qd.i32, N)
    total, most = qd.field(qd.i32, ()), qd.field(qd.f32, ())

    @qd.kernel
    def k(a: qd.i32):
        with qd.stream_parallel():
            for i in x:
                x[i] = i * a
            for i in x:
                qd.atomic_max(most[None], x[i])
            total[None] += 1
        with qd.stream_parallel():
            for i in y:
                total[None] += i % 5
        with qd.stream_parallel():
            for i in y:
                y[i] += a
            for i in y:
                total[None] += y[i]
            total[None] += 3

    want = 0
    for turn in range(1, 5):
        k(turn)
        want += 1 + 3 + 2 * N + N * turn * (turn + 1) // 2
        assert total[None] == want
        assert most[None] == (N - 1) * turn
        assert (y.to_numpy() == turn * (turn + 1) // 2).all()


def test_sections_in_loops(backend):
    x, y, z = (qd.field(qd.i32, N) for _ in range(3))
    total = qd.field(qd.i64, ())

    @qd.kernel(graph=True)
    def k(left: qd.types.ndarray(qd.i32, 0)):
        while qd.graph.do_while(left):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in x:
                        x[i] += y[i] + z[i]
                        total[None] += x[i]
                with qd.graph.parallel():
                    left[()] -= 1
                    for i in range(N):
                        total[None] += i % 3
            for i in y:
                y[i] += 1
            with qd.graph.parallel_context():
                for f in qd.static((y, z)):
                    with qd.graph.parallel():
                        for i in f:
                            f[i] += 1
                            f[i] += x[i] % 2
                        for i in f:
                            total[None] += f[i]

    left = qd.ndarray(qd.i32, ())
    u, v, w, s = 0, 0, 0, 0
    thirds = sum(i % 3 for i in range(N))
    for turns in (1, 4, 7):
        left.fill(turns)
        k(left)
        for _ in range(turns):
            u += v + w
            s += N * u + thirds
            v, w = v + 2 + u % 2, w + 1 + u % 2
            s += N * (v + w)
        assert (x.to_numpy() == u).all() and (y.to_numpy() == v).all() and (z.to_numpy() == w).all()
        assert total[None] == s


PROGRAM = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x, y, z = (qd.field(qd.f32, 9999) for _ in range(3))
t = qd.field(qd.f32, ())
@qd.kernel
def k(f: qd.template(), a: qd.f32):
    for i in f: f[i] += a
"""


class TestOnTheStandIn:
    pytestmark = driver_marks

    def test_kernels_go_where_they_are_sent(self, cuda_run):
        _, log, _ = cuda_run(
            PROGRAM
            + """
s, u = qd.create_stream(), qd.create_stream()
e = qd.create_event()
for _ in range(3): k(x, 1.0, qd_stream=s)
e.record(s); e.wait(u)
k(x, 1.0)
k(x, 1.0, qd_stream=u)
s.destroy()
k(x, 1.0, qd_stream=qd.Stream(777))
"""
        )
        told = [
            x
            for x in log
            if "launch" in x or "graph" in x or "event" in x or "waits" in x or "stream" in x
        ]
        task = "launch task0 79 x 128"
        assert told[:10] == [
            task + " on 901", "graph on 901", task, "graph on 901", task,  # one of its own
            "event of 901", "902 waits", "graph", task, "graph on 902",
        ]  # fmt: skip
        # Somebody else's may know nothing of the default stream: it is told to wait for that.
        assert told[11:16] == ["stream 901 destroyed", "event", "777 waits", "graph on 777", task]
        assert told[-1] == "stream 902 destroyed"

    @pytest.mark.parametrize("doubled", [False, True])
    @pytest.mark.parametrize("current", [False, True])
    def test_without_a_stream_to_the_current_one(self, cuda_run, doubled, current):
        _, log, _ = cuda_run(f"""
from quadrants.lang.kernel_impl import Kernel

qd.init(arch=qd.cuda)
x = qd.ndarray(qd.i32, 4)
prog = qd.lang.impl.get_runtime().prog
original = Kernel.launch_kernel
if {doubled}:
    Kernel.launch_kernel = lambda self, *args, **kwargs: original(self, *args, **kwargs)

@qd.kernel
def add(x: qd.types.ndarray()):
    for i in x:
        x[i] += 1

add(x)
stream = qd.create_stream()
if {current}:
    prog.set_current_cuda_stream(stream.handle)
    add(x)
    prog.set_current_cuda_stream(0)
else:
    add(x, qd_stream=stream)
add(x)
""")
        assert [line for line in log if line.startswith("graph")] == ["graph on 901", "graph"]

    def test_what_a_stream_keeps_goes_with_it(self, cuda_run):
        _, log, _ = cuda_run(
            PROGRAM
            + """
@qd.kernel
def total() -> qd.f32:
    r = 0.0
    for i in x: r += x[i]
    return r
s = qd.create_stream()
for _ in range(3): total(qd_stream=s)
s.destroy()
print("end", flush=True)
"""
        )
        kept = [n for n, line in enumerate(log) if line.startswith("alloc")]
        before = log.index("stream 901 destroyed")
        assert len(kept) == 3  # of fields, partials, temporaries
        assert log[log.index("wait 901") : before].count("free") == 2

    def test_blocks_are_branches_of_a_graph(self, cuda_run):
        _, log, _ = cuda_run(
            PROGRAM
            + """
@qd.kernel
def p(a: qd.f32):
    with qd.stream_parallel():
        for i in x: x[i] += a
        for i in x: x[i] *= a
    with qd.stream_parallel():
        for i in y: t[None] += y[i]
    with qd.stream_parallel():
        for i in z: t[None] += z[i]
for _ in range(3): p(1.0)
"""
        )
        build = log[: log.index("instantiate")]
        assert build.count("join of 3") == 1
        # In a branch one after the other; branches at the beginning wait for nothing.
        assert [x for x in build if x.startswith(("early", "beside"))] == [
            "early task1",
            "early finish2",
            "early finish3",
        ]

    def test_names_that_go_from_one_to_the_other_keep_them_in_order(self, cuda_run):
        _, log, _ = cuda_run(
            PROGRAM
            + """
@qd.kernel(graph=True)
def p(a: qd.types.ndarray(qd.i32, 1)):
    with qd.graph.parallel_context():
        with qd.graph.parallel():
            n = a[0]
            for i in range(n): x[i] += 1
        with qd.graph.parallel():
            for i in range(n): y[i] += 1
a = qd.ndarray(qd.i32, 3)
for _ in range(3): p(a)
"""
        )
        assert "instantiate" in log and not [x for x in log if x.startswith(("join", "beside"))]

    def test_loops_that_begin_and_end_with_sections(self, cuda_run):
        _, log, _ = cuda_run(
            PROGRAM
            + """
@qd.kernel(graph=True)
def p(n: qd.types.ndarray(qd.i32, 0), m: qd.types.ndarray(qd.i32, 0)):
    while qd.graph.do_while(n):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x: x[i] += 1
            with qd.graph.parallel():
                for i in y: y[i] += 1
        while qd.graph.do_while(m):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in x: x[i] += 2
                with qd.graph.parallel():
                    for i in z: z[i] += 2
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in y: y[i] += 3
            with qd.graph.parallel():
                for i in z: z[i] += 3
n, m = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
for _ in range(2): p(n, m)
"""
        )
        at = log.index("instantiate")
        # The inner loop's round is four turns, each with a join, and one more is on either side.
        assert log[:at].count("join of 2") == 6
        run = [
            line.split()[1] for line in log[at + 2 :] if line.startswith(("launch", "condition"))
        ]
        inner = 4 * ["task2", "task3", "task4"] + ["2"]
        turn = ["task0", "task1", "2", *inner, *inner, "task5", "task6", "task7", "1"]
        assert run == turn + turn
