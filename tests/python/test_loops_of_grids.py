"""Loops of tasks that are grids: turns are whole ones and as many as wanted, however many a GPU does in a round."""

import numpy as np
import pytest

import quadrants as qd
from cuda_standin import driver_marks

I32 = qd.types.ndarray(qd.i32, 0)
N = 5000  # more than a block has

TURNS = [1, 2, 3, 4, 5, 7, 8, 9, 16, 21]


@pytest.mark.parametrize("turns", TURNS)
def test_as_many_turns_as_wanted(backend, turns):
    x, y = qd.field(qd.i32, N), qd.field(qd.i32, N)
    total = qd.field(qd.i64, ())

    @qd.kernel(graph=True)
    def k(left: I32):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += y[N - 1 - i] + i
            for i in y:
                y[i] = x[i] % 7
                total[None] += x[i]  # blocks have parts of it
            left[()] -= 1

    left = qd.ndarray(qd.i32, ())
    u, v, s = np.zeros(N, np.int32), np.zeros(N, np.int32), 0
    for _ in range(3):
        left.fill(turns)
        k(left)
        for _ in range(turns):
            u = u + v[::-1] + np.arange(N, dtype=np.int32)
            v = u % 7
            s += int(u.sum())
        assert left.to_numpy() == 0
        assert (x.to_numpy() == u).all() and (y.to_numpy() == v).all()
        assert total[None] == s


@pytest.mark.parametrize("turns", [1, 3, 4, 6])
def test_tasks_that_find_nothing_to_do(backend, turns):
    """Their bounds are computed in each turn, or arguments that change between launches."""
    x, count = qd.field(qd.i32, N), qd.field(qd.i32, ())

    @qd.kernel(graph=True)
    def k(left: I32, more: qd.i32):
        while qd.graph.do_while(left):
            last = count[None] * 1000
            for i in range(last):
                x[i] += 1
            for i in range(more):
                x[i] += 100
            for i in range(N):
                if i == 0:
                    count[None] = count[None] + 1
                x[i] += 10000
            left[()] -= 1

    left = qd.ndarray(qd.i32, ())
    for more in (0, 3000, 0, 5):
        x.fill(0)
        count[None] = 0
        left.fill(turns)
        k(left, more)
        want = np.full(N, 10000 * turns)
        for turn in range(turns):
            want[: 1000 * turn] += 1
        want[:more] += 100 * turns
        assert (x.to_numpy() == want).all()
        assert count[None] == turns


@pytest.mark.parametrize("tasks", [1, 2, 5, 6, 7, 13])
def test_bodies_of_any_length(backend, tasks):
    x = qd.field(qd.i32, N)

    @qd.kernel(graph=True)
    def k(left: I32):
        while qd.graph.do_while(left):
            for t in qd.static(range(tasks)):
                for i in x:
                    x[i] = 3 * x[i] + t
            left[()] -= 1

    left = qd.ndarray(qd.i32, ())
    want = 0
    for turns in (5, 1, 2):
        left.fill(turns)
        k(left)
        for _ in range(turns):
            for t in range(tasks):
                want = (3 * want + t) % 2**32
        assert (x.to_numpy().view(np.uint32) == want).all()


def test_loops_in_loops(backend):
    x, y = qd.field(qd.i32, N), qd.field(qd.i32, N)

    @qd.kernel(graph=True)
    def k(outer: I32, inner: I32):
        while qd.graph.do_while(outer):
            for i in x:
                x[i] += 1
            inner[()] = outer[()] + 2
            while qd.graph.do_while(inner):
                for i in y:
                    y[i] += x[i]
                for i in x:
                    x[i] += 2
                inner[()] -= 1
            outer[()] -= 1

    outer, inner = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
    a = b = 0
    for n in (1, 3, 6):
        outer.fill(n)
        k(outer, inner)
        for left in range(n, 0, -1):
            a += 1
            for _ in range(left + 2):
                b += a
                a += 2
        assert (x.to_numpy() == a).all() and (y.to_numpy() == b).all()


@pytest.mark.parametrize("bad", [1, 2, 3, 4, 5, 6])
def test_a_failed_check_ends_the_turn_at_hand(debug_backend, bad):
    x, y = qd.field(qd.i32, N), qd.field(qd.i32, N)
    turn = qd.field(qd.i32, ())

    @qd.kernel(graph=True)
    def k(left: I32, bad: qd.i32):
        while qd.graph.do_while(left):
            turn[None] += 1
            for i in x:
                x[i] += 1
            for i in x:
                assert turn[None] != bad, "that turn"
            for i in y:
                y[i] += 1
            left[()] -= 1

    left = qd.ndarray(qd.i32, ())
    left.fill(8)
    k(left, -1)
    for _ in range(2):
        x.fill(0)
        y.fill(0)
        turn[None] = 0
        left.fill(8)
        with pytest.raises(AssertionError, match="that turn"):
            k(left, bad)
        assert turn[None] == bad
        assert (x.to_numpy() == bad).all() and (y.to_numpy() == bad - 1).all()


@pytest.mark.parametrize("at", ["0", "n", "m"])
def test_what_one_iteration_adds(backend, at):
    """On a GPU it is no reduction; every iteration's part is one, beside that of one alone too."""
    x, y, z = (qd.field(qd.f32, ()) for _ in range(3))

    @qd.kernel
    def k(n: qd.i32, m: qd.i32):
        for i in range(N):
            if i == (0 if qd.static(at == "0") else n if qd.static(at == "n") else m):
                x[None] += 3
                qd.atomic_max(y[None], i)
                z[None] += 1
            z[None] += 2

    k(7, -1)
    hit = at != "m"
    assert x[None] == (3 if hit else 0)
    assert y[None] == (7 if at == "n" else 0)
    assert z[None] == 2 * N + hit


LOOP = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 9999)
Count = qd.types.ndarray(qd.i32, ndim=0)
@qd.kernel(graph=True)
def g(n: Count):
    while qd.graph_do_while(n):
        for t in qd.static(range(TASKS)):
            for i in x: x[i] += t + 1
        n[()] -= 1
n = qd.ndarray(qd.i32, ())
for _ in range(3): g(n)
"""


class TestOnTheStandIn:
    pytestmark = driver_marks

    @pytest.mark.parametrize(("tasks", "turns"), [(1, 4), (2, 4), (3, 3), (4, 2), (5, 2), (6, 1)])
    def test_a_round_has_several_turns(self, cuda_run, tmp_path, tasks, turns):
        _, log, _ = cuda_run(LOOP.replace("TASKS", str(tasks)))
        rest = log[log.index("graph") + 1 :]
        first = rest[: rest.index("condition 1 of 1")]
        assert (
            first
            == [*[f"launch task{t} 79 x 128" for t in range(tasks)], f"launch task{tasks} 1 x 1"]
            * turns
        )
        # Whether the loop goes on without that turn is asked at its beginning.
        entry = (tmp_path / "log.ptx").read_text().split(".entry")[1]
        assert entry.index("ld.volatile.global") < entry.index("ld.global")

    def test_parameters_reach_every_turn(self, cuda_run):
        text = (
            LOOP.replace("n: Count)", "n: Count, a: qd.f32)")
            .replace("+= t", "+= a + t")
            .replace("TASKS", "2")
        )
        _, log, _ = cuda_run(text.replace("range(3): g(n)", "range(4): g(n, 0.5 * _)"))
        updates = [x for x in log if x.startswith("update")]
        assert updates == 2 * (4 * ["update task0"] + 4 * ["update task1"])
