"""Streams and events: on the CPU kernels run in order and every method is a valid no-op."""

import gc

import pytest

import quadrants as qd


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
        assert first.handle == done.handle == 0
    first.destroy()
    assert count(4, qd_stream=first) == 10  # as the default stream


def test_foreign_handles_are_left_alone(count):
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
