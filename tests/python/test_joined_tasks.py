"""Short loops and serial code that follow each other: one task of a block on a GPU, and the same numbers anywhere."""

import numpy as np
import pytest

import quadrants as qd
from cuda_standin import driver_marks
from quadrants.lang import impl

I32 = qd.types.ndarray(qd.i32, 0)


def test_each_sees_what_those_before_it_did(backend):
    n, m = 100, 128
    a, b, c = qd.field(qd.i32, n), qd.field(qd.i32, m), qd.field(qd.i32, ())

    @qd.kernel
    def k(seed: qd.i32):
        c[None] = seed
        for i in a:
            a[i] = c[None] + i
        s = 0
        for j in range(1):  # serial: between two loops
            for i in range(n):
                s += a[i] * (i + 1)
        c[None] = s % 1000
        for i in b:
            b[i] = a[n - 1 - i % n] + c[None]
        for i in a:
            a[i] = b[(i * 7) % m] - b[(i * 5) % m]
        c[None] += b[0]

    for seed in (3, 11, -4):
        k(seed)
        x = seed + np.arange(n)
        s = int((x * (np.arange(n) + 1)).sum()) % 1000
        y = x[n - 1 - np.arange(m) % n] + s
        i = np.arange(n)
        assert c[None] == s + y[0]
        assert (b.to_numpy() == y).all()
        assert (a.to_numpy() == y[i * 7 % m] - y[i * 5 % m]).all()


@pytest.mark.parametrize("n", [1, 31, 32, 33, 127, 129, 500, 1024, 1025, 3000])
def test_of_any_length(backend, n):
    x, y = qd.field(qd.f32, n), qd.field(qd.f32, n)
    total = qd.field(qd.f32, ())

    @qd.kernel
    def k():
        for i in x:
            x[i] = i
        for i in y:
            y[i] = x[n - 1 - i] + 1
        for i in x:
            x[i] = y[(i + 1) % n] * 2
        total[None] = x[0] + x[n - 1]
        for i in y:
            y[i] += total[None]

    for _ in range(2):
        k()
    i = np.arange(n, dtype=np.float32)
    second = n - i  # reversed, plus 1
    first = 2 * np.roll(second, -1)
    assert (x.to_numpy() == first).all()
    assert total[None] == first[0] + first[-1]
    assert (y.to_numpy() == second + total[None]).all()


def test_heavy_and_light_bodies_of_several_dimensions(backend):
    x = qd.field(qd.i32, (5, 3, 7))
    y = qd.Vector.field(3, qd.i32, 40)
    counts = qd.field(qd.i32, 4)

    @qd.func
    def collatz(n):
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    @qd.kernel
    def k():
        for i, j, l in x:
            x[i, j, l] = collatz(100 * i + 10 * j + l + 1)
        for i in qd.static(range(4)):
            counts[i] = 0
        for i, j, l in x:
            qd.atomic_add(counts[x[i, j, l] % 4], 1)
        for i in y:
            y[i] = [x[i % 5, 0, 0], counts[i % 4], i]
        for i in range(40):
            y[i].x += y[39 - i].z

    def steps(n):
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    k()
    i, j, m = np.indices((5, 3, 7))
    want = np.vectorize(steps)(100 * i + 10 * j + m + 1)
    assert (x.to_numpy() == want).all()
    found = np.bincount(want.ravel() % 4, minlength=4)
    assert (counts.to_numpy() == found).all()
    at = np.arange(40)
    assert (y.to_numpy() == np.stack([want[at % 5, 0, 0] + 39 - at, found[at % 4], at], 1)).all()


@pytest.mark.parametrize("rounds", [1, 2, 255, 256, 257, 513, 2000])
def test_loops_of_short_tasks(backend, rounds):
    x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

    @qd.kernel(graph=True)
    def k(left: I32, turns: I32):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += turns[()] * i
            turns[()] += 1
            for i in y:
                y[i] = x[63 - i]
            for i in x:
                x[i] += y[i] % 3
            left[()] -= 1
        for i in x:
            x[i] *= 2

    left, turns = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
    want = np.zeros(64, np.int32)
    for _ in range(3):
        left.fill(rounds)
        turns.fill(0)
        k(left, turns)
        for turn in range(rounds):
            want = want + turn * np.arange(64, dtype=np.int32)
            want = want + want[::-1] % 3
        want = want * 2
        assert turns.to_numpy() == rounds
        assert (x.to_numpy() == want).all()


def test_nested_loops_of_short_tasks(backend):
    x = qd.field(qd.i32, 40)

    @qd.kernel(graph=True)
    def k(outer: I32, inner: I32):
        while qd.graph.do_while(outer):
            inner[()] = outer[()] * 100
            for i in x:
                x[i] += 1
            while qd.graph.do_while(inner):
                for i in x:
                    x[i] += 2
                inner[()] -= 1
            for i in x:
                x[i] += 1
            outer[()] -= 1

    outer, inner = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
    for n in (4, 1, 3):
        x.fill(0)
        outer.fill(n)
        k(outer, inner)
        want = sum(2 + 2 * 100 * left for left in range(1, n + 1))
        assert (x.to_numpy() == want).all()


def test_what_is_counted_is_what_was_written(backend):
    x = qd.field(qd.i32, 64)

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            x[i] = i
        x[0] = 5
        for i in x:
            x[i] += 1
        for i in range(n):
            x[i] = 2

    k(3)
    assert impl.get_runtime().prog.get_num_offloaded_tasks_on_last_call() == 5


def test_random_numbers_and_checks_keep_their_tasks(backend):
    qd.init(arch=qd.cfg.arch, random_seed=7, debug=True)
    x, y = qd.field(qd.f32, 64), qd.field(qd.f32, 64)

    @qd.kernel
    def k(limit: qd.i32):
        for i in x:
            x[i] = qd.random()
        for i in y:
            y[i] = x[63 - i]
        for i in x:
            assert i < limit, "beyond"
            x[i] = 2
        for i in y:
            y[i] = 3

    k(64)
    assert (x.to_numpy() == 2).all() and (y.to_numpy() == 3).all()
    with pytest.raises(AssertionError, match="beyond"):
        k(10)
    assert len(set(y.to_numpy().tolist())) > 50  # what would have come then did not


CHAIN = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x, y, c = qd.field(qd.f32, 100), qd.field(qd.f32, LENGTH), qd.field(qd.i32, ())
@qd.kernel
def k():
    c[None] = 3
    for i in x: x[i] = i + c[None]
    for i in y: y[i] = x[i % 100]
    c[None] = c[None] + 1
    for i in x: x[i] += y[i % LENGTH] * c[None]
k()
"""


class TestOnTheStandIn:
    pytestmark = driver_marks

    @pytest.mark.parametrize(
        ("length", "launched"),
        [
            ("90", ["task0 1 x 128"]),
            ("1000", ["task0 1 x 1024"]),
            ("3000", ["task0 1 x 128", "task1 24 x 128", "task2 1 x 128"]),
        ],
    )
    def test_a_block_does_what_is_short(self, cuda_run, tmp_path, length, launched):
        _, log, _ = cuda_run(CHAIN.replace("LENGTH", length))
        assert [x[7:] for x in log if x.startswith("launch ")] == launched
        text = (tmp_path / "log.ptx").read_text()
        assert text.count("bar.sync") == (0 if length == "3000" else 2)

    def test_passes_can_be_left_out(self, cuda_run):
        _, log, _ = cuda_run(CHAIN.replace("LENGTH", "90"), QD_DISABLE_PASS="join_tasks")
        assert len([x for x in log if x.startswith("launch ")]) == 5

    def test_a_loop_goes_on_inside(self, cuda_run, tmp_path):
        _, log, _ = cuda_run("""
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 100)
Count = qd.types.ndarray(qd.i32, ndim=0)
@qd.kernel(graph=True)
def g(n: Count):
    while qd.graph_do_while(n):
        for i in x: x[i] += 1
        n[()] -= 1
n = qd.ndarray(qd.i32, ())
for _ in range(3): g(n)
""")
        # The device may still repeat it: each launch does some hundred rounds.
        assert "launch task0 1 x 128" in log and not [
            x for x in log if x.startswith("launch task1")
        ]
        text = (tmp_path / "log.ptx").read_text()
        assert text.count("bar.red.or") == 1 and "bar.sync" not in text
