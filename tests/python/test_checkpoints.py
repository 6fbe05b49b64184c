"""Graph kernels that yield at a checkpoint and are resumed there."""

import dataclasses
import enum
import linecache
import subprocess
import sys
import threading

import pytest

import quadrants as qd
from helpers import flag, raises, zeros

Flag = qd.types.ndarray(qd.i32, 0)
Vec = qd.types.ndarray(qd.i32, 1)
S = qd.QuadrantsSyntaxError
LIMIT = 5


class Stage(enum.IntEnum):
    A = 3
    B = 7


class Below(enum.IntEnum):
    A = -1


def shown(status):
    return (status.yielded, status.checkpoint)


def last_yield():
    return qd.lang.impl.get_runtime().prog.get_graph_last_yield_cp_id_on_last_call()


@pytest.fixture
def two_stages(backend):
    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, f: Flag, g: Flag):
        a[7] += 1
        for i in range(1):
            a[0] += 1
        with qd.checkpoint(Stage.A, yield_on=f):
            for i in range(1):
                a[1] += 1
        for i in range(1):
            a[2] += 1
        with qd.checkpoint(cp_id=Stage.B, yield_on=g):
            for i in range(1):
                a[3] += 1
            for i in range(1):
                a[4] += 1
        for i in range(1):
            a[5] += 1
        a[6] += 1

    return k


def test_what_a_yield_skips_and_where_a_resume_begins(two_stages):
    k, a = two_stages, zeros(8)
    done, at_a, at_b = (False, None), (True, Stage.A), (True, Stage.B)
    for f, g, from_, status, dense, values in [
        (0, 0, None, done, -1, [1, 1, 1, 1, 1, 1, 1, 1]),
        (1, 0, None, at_a, 1, [2, 2, 1, 1, 1, 1, 2, 2]),  # bare statements always run
        (0, 1, None, at_b, 3, [3, 3, 2, 2, 2, 1, 3, 3]),
        (1, 1, None, at_a, 1, [4, 4, 2, 2, 2, 1, 4, 4]),  # the first one wins
        (0, 0, Stage.B, done, -1, [4, 4, 2, 3, 3, 2, 5, 5]),
        (0, 0, 3, done, -1, [4, 5, 3, 4, 4, 3, 6, 6]),
        (0, 1, Stage.A, at_b, 3, [4, 6, 4, 5, 5, 3, 7, 7]),
    ]:
        flags = flag(f), flag(g)
        s = k(a, *flags) if from_ is None else k.resume(a, *flags, from_checkpoint=from_)
        assert shown(s) == status and isinstance(s, qd.GraphStatus)
        assert s.checkpoint is None or type(s.checkpoint) is Stage
        assert last_yield() == dense
        assert a.to_numpy().tolist() == values
        assert [int(x.to_numpy()) for x in flags] == [f, g]  # nobody clears them


def test_in_a_loop_only_the_first_turn_skips(backend):
    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, c: Flag, f: Flag, n: qd.i32):
        for i in range(1):
            a[0] += 1
        while qd.graph.do_while(c):
            for i in range(1):
                a[1] += 1
            with qd.checkpoint(0, yield_on=f):
                for i in range(1):
                    a[2] += 1
                    if a[2] == n:
                        f[()] = 1
            for i in range(1):
                a[3] += 1
            c[()] -= 1
        for i in range(1):
            a[4] += 1

    a, c, f = zeros(8), flag(5), flag()
    assert shown(k(a, c, f, 3)) == (True, 0)
    assert a.to_numpy().tolist()[:5] == [1, 3, 3, 2, 0] and c.to_numpy() == 2
    f.fill(0)
    assert shown(k.resume(a, c, f, 100, from_checkpoint=0)) == (False, None)
    assert a.to_numpy().tolist()[:5] == [1, 4, 5, 4, 1] and c.to_numpy() == 0


@pytest.mark.oracle_differs("loops for ever", run=False)
def test_a_loop_before_the_label_does_not_repeat(backend):
    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, c: Flag, f: Flag):
        while qd.graph.do_while(c):
            for i in range(1):
                a[0] += 1
            c[()] -= 1
        with qd.checkpoint(9, yield_on=f):
            for i in range(1):
                a[1] += 1

    a, c = zeros(8), flag(3)
    assert shown(k(a, c, flag(1))) == (True, 9)
    k.resume(a, c, flag(), from_checkpoint=9)
    assert a.to_numpy().tolist()[:2] == [3, 2]


def test_which_loops_are_checkpoints(backend):
    @qd.func
    def both(a: Vec, k: qd.template()):
        for i in range(1):
            a[k] += 1

    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, f: Flag):
        with qd.checkpoint(LIMIT, yield_on=f):
            "Statements of a body may branch."
            if a[0] == 0:
                a[0] = 1
            while a[0] < 3:
                a[0] += 1
            if qd.static(LIMIT > 0):
                for i in range(1):
                    a[1] += 1
        both(a, 2)  # a call and a branch are bare statements
        if a[1] > 0:
            for i in range(1):
                a[3] += 1
        for s in qd.static(range(2)):
            for i, j in qd.ndrange(1, 2):
                a[4] += 1
        for i in a:
            if i == 5:
                a[5] += 1

    a = zeros(8)
    assert shown(k(a, flag(1))) == (True, 5)
    assert a.to_numpy().tolist() == [3, 1, 1, 1, 0, 0, 0, 0]
    k.resume(a, flag(), from_checkpoint=LIMIT)
    assert a.to_numpy().tolist() == [3, 2, 2, 2, 4, 1, 0, 0]


def test_what_of_a_checkpoint_that_is_skipped_runs(backend):
    """Bare statements, those of static loops too, and no loops however they are bounded."""

    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, f: Flag):
        with qd.checkpoint(LIMIT, yield_on=f):
            for i in range(1):
                a[0] += 1
        for s in qd.static(range(2)):
            a[1] += 1
            for i in range(a[0]):
                a[2] += 1
        n = a[0] + a[1]
        for i in range(n):
            for j in range(2):
                a[3] += 1

    a = zeros(4)
    assert shown(k(a, flag(1))) == (True, LIMIT)
    assert a.to_numpy().tolist() == [1, 2, 0, 0]
    k.resume(a, flag(), from_checkpoint=LIMIT)
    assert a.to_numpy().tolist() == [2, 4, 4, 12]


@pytest.mark.oracle_differs("keeps the last one")
def test_the_last_yield_is_that_of_the_last_call(two_stages):
    @qd.kernel
    def plain(a: Vec):
        for i in a:
            a[i] += 1

    two_stages(zeros(8), flag(1), flag())
    assert last_yield() == 1
    plain(zeros(4))
    assert last_yield() == -1


def test_results(backend):
    @qd.kernel(graph=True, checkpoints=True)
    def named(a: Vec, f: Flag) -> qd.i32:
        with qd.checkpoint(1, yield_on=f):
            for i in a:
                a[i] += 1
        return a[1]

    @qd.kernel(graph=True, checkpoints=True)
    def unnamed(a: Vec) -> qd.i32:
        for i in a:
            a[i] += 1
        return a[1]

    if qd.cfg.arch == qd.cuda:  # a native graph has none
        for launch in (lambda: named(zeros(8), flag()), lambda: unnamed(zeros(8))):
            with pytest.raises(RuntimeError, match="cannot return a value"):
                launch()
        return
    assert repr(named(zeros(8), flag())) == "GraphStatus(yielded=False)"
    assert repr(named(zeros(8), flag(2))) == "GraphStatus(yielded=True, checkpoint=1)"
    assert unnamed(zeros(8)) == 1


def test_members_as_flags(backend):
    @dataclasses.dataclass
    class Data:
        a: Vec
        f: Flag

    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.a, self.f = zeros(8), flag(1)

        @qd.kernel(graph=True, checkpoints=True)
        def step(self):
            with qd.checkpoint(1, yield_on=self.f):
                for i in self.a:
                    self.a[i] += 1

    @qd.kernel(graph=True, checkpoints=True)
    def k(d: Data):
        with qd.checkpoint(1, yield_on=d.f):
            for i in d.a:
                d.a[i] += 1

    solver = Solver()
    assert solver.step().yielded
    solver.f = flag(0)  # another array
    assert not solver.step.resume(from_checkpoint=1).yielded
    assert solver.a.to_numpy().tolist() == [2] * 8
    assert k(Data(zeros(8), flag(1))).yielded
    assert not k.resume(Data(zeros(8), flag(0)), from_checkpoint=1).yielded


@pytest.mark.oracle_differs("packs arguments without reading the property")
def test_another_thread_launches_the_same_kernel_from_the_start(backend):
    """While one thread resumes: here at the moment when its arguments are looked up."""

    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.a, self._f, self.beside = zeros(4), flag(), None

        @property
        def f(self):
            call, self.beside = self.beside, None
            if call:
                thread = threading.Thread(target=call)
                thread.start()
                thread.join()
            return self._f

        @qd.kernel(graph=True, checkpoints=True)
        def step(self):
            for i in range(1):
                self.a[0] += 1
            with qd.checkpoint(1, yield_on=self.f):
                for i in range(1):
                    self.a[1] += 1

    solver = Solver()
    solver.step()
    assert solver.a.to_numpy().tolist() == [1, 1, 0, 0]
    solver.beside = solver.step
    solver.step.resume(from_checkpoint=1)
    assert solver.beside is None
    assert solver.a.to_numpy().tolist() == [2, 3, 0, 0]


def test_tables(two_stages):
    @qd.kernel(graph=True)
    def loops(c: Flag, d: Flag, a: Vec):
        while qd.graph.do_while(c):
            d[()] = 2
            while qd.graph.do_while(d):
                for i in a:
                    a[i] += 1
                d[()] -= 1
            c[()] -= 1

    two_stages(zeros(8), flag(), flag())
    p = two_stages._primal
    assert p.use_graph and p.use_checkpoints and p.graph_do_while_arg is None
    assert p.checkpoint_yield_on_args == [None, "f", None, "g", None]
    assert p.checkpoint_user_labels_by_cp_id == [None, Stage.A, None, Stage.B, None]
    ids = p.checkpoint_yield_on_cpp_arg_ids
    assert [n < 0 for n in ids] == [True, False, True, False, True] and ids[1] != ids[3]
    loops(flag(2), flag(), zeros(8))
    p = loops._primal
    assert p.use_graph and not p.use_checkpoints and p.graph_do_while_arg == "c"
    assert [(x.cond_arg_name, x.parent_id) for x in p.graph_do_while_levels] == [
        ("c", -1),
        ("d", 0),
    ]
    first, second = (x.cond_cpp_arg_id for x in p.graph_do_while_levels)
    assert first >= 0 and second >= 0 and first != second


def test_mistakes_of_resume(two_stages):
    a, f, g = zeros(8), flag(), flag()
    for label, words in [
        ("A", "must be an int or IntEnum value"),
        (None, "must be an int or IntEnum value"),
        (4, "does not match any qd.checkpoint"),
    ]:
        with raises(RuntimeError, words):
            two_stages(a, f, g)
            two_stages.resume(a, f, g, from_checkpoint=label)
    assert a.to_numpy().tolist() == [3] * 8
    with pytest.raises(TypeError):
        two_stages.resume(a, f, g)
    assert a.to_numpy().tolist() == [3] * 8


def test_resume_of_a_kernel_without_checkpoints(backend):
    @qd.kernel(graph=True)
    def plain(a: Vec):
        for i in a:
            a[i] += 1

    with raises(qd.QuadrantsSyntaxError, "Unexpected argument"):
        plain.resume(zeros(8), from_checkpoint=1)


LOOP = "\n    for i in a: a[i] += 1"
MISTAKES = [
    ("with qd.checkpoint():" + LOOP, "qd.checkpoint(cp_id, yield_on=flag)"),
    ("with qd.checkpoint(1):" + LOOP, "missing required argument `yield_on`"),
    ("with qd.checkpoint(yield_on=f):" + LOOP, "missing required argument `cp_id`"),
    ("with qd.checkpoint(1, yield_on=f, z=1):" + LOOP, "unexpected keyword argument"),
    ("with qd.checkpoint(1, f, yield_on=f):" + LOOP, "got `yield_on` both positionally and as a keyword"),
    ("with qd.checkpoint(1, cp_id=1, yield_on=f):" + LOOP, "got `cp_id` both positionally and as a keyword"),
    ("with qd.checkpoint(True, yield_on=f):" + LOOP, "must be an int literal or an IntEnum value"),
    ("with qd.checkpoint(-1, yield_on=f):" + LOOP, "must be an int literal or an IntEnum value"),
    ("with qd.checkpoint(Below.A, yield_on=f):" + LOOP, "must be an int literal or an IntEnum value"),
    ("with qd.checkpoint(n, yield_on=f):" + LOOP, "must be an int literal or an IntEnum value"),
    ("with qd.checkpoint('a', yield_on=f):" + LOOP, "must be an int literal or an IntEnum value"),
    ("with qd.checkpoint(LIMIT + 1, yield_on=f):" + LOOP, "must be an int literal or an IntEnum"),
    (
        "with qd.checkpoint(Stage.A, yield_on=f):" + LOOP + "\nwith qd.checkpoint(3, yield_on=f):" + LOOP,
        "already used by another checkpoint",
    ),
    ("with qd.checkpoint(1, yield_on=f):\n    with qd.checkpoint(2, yield_on=f):\n        pass", "cannot be nested"),
    ("for j in range(3):\n    with qd.checkpoint(1, yield_on=f):\n        pass", "cannot be nested"),
    ("with qd.checkpoint(1, yield_on=f[()]):" + LOOP, "must reference a kernel ndarray argument"),
    ("with qd.checkpoint(1, yield_on=zz):" + LOOP, "does not resolve to an ndarray kernel parameter"),
    ("with qd.checkpoint(1, yield_on=n):" + LOOP, "does not resolve to an ndarray kernel parameter"),
    ("with qd.checkpoint(1, yield_on=f):\n    a[0] = 1", "bare top-level Assign statement", "for _ in range(1):"),
    ("with qd.checkpoint(1, yield_on=f):\n    a[0] += 1", "bare top-level AugAssign statement"),
    ("with qd.checkpoint(1, yield_on=f):\n    print(1)", "bare top-level Expr statement"),
    ("with qd.checkpoint(1, yield_on=f) as q:" + LOOP, "'with ... as ...'"),
    ("with qd.graph.parallel_context():\n    pass", "checkpoints=True"),
]  # fmt: skip


@pytest.mark.parametrize("code,words", [(m[0], m[1:]) for m in MISTAKES])
def test_mistakes(backend, code, words):
    lines = ["def k(a: Vec, f: Flag, n: qd.i32):", *("    " + x for x in code.split("\n"))]
    name = f"<checkpoint {MISTAKES.index((code, *words))}>"
    linecache.cache[name] = (1, None, [x + "\n" for x in lines], name)
    names = dict(globals())
    exec(compile("\n".join(lines), name, "exec"), names)
    with raises(S, *words):
        qd.kernel(names["k"], graph=True, checkpoints=True)(zeros(8), flag(), 1)


def test_where_checkpoints_belong(backend):
    @qd.func
    def inside(a: Vec, f: Flag):
        with qd.checkpoint(1, yield_on=f):
            for i in a:
                a[i] += 1

    @qd.kernel(graph=True, checkpoints=True)
    def calls(a: Vec, f: Flag):
        inside(a, f)

    @qd.kernel(graph=True)
    def not_asked(a: Vec, f: Flag):
        with qd.checkpoint(1, yield_on=f):
            for i in a:
                a[i] += 1

    with raises(S, "can only be used inside @qd.kernel"):
        calls(zeros(8), flag())
    with raises(S, "checkpoints=True"):
        not_asked(zeros(8), flag())
    with raises(S, "checkpoints=True) requires graph=True"):
        qd.kernel(checkpoints=True)(inside.fn)
    with qd.checkpoint(1, yield_on=None):  # outside of kernels nothing happens
        pass


def test_a_loop_in_a_skipped_checkpoint_does_nothing(backend):
    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, c: Flag, d: Flag, f: Flag, g: Flag):
        with qd.checkpoint(1, yield_on=f):
            for i in a:
                a[i] += 1
        with qd.checkpoint(2, yield_on=g):
            while qd.graph.do_while(c):
                for i in a:
                    a[i] += 10
                c[()] -= 1
                d[()] += 1

    a, c, d, f, g = qd.ndarray(qd.i32, 4), flag(3), flag(), flag(1), flag()
    a.fill(0)
    assert k(a, c, d, f, g).yielded
    assert (a.to_numpy().tolist(), c[()], d[()]) == ([1] * 4, 3, 0)
    f.fill(0)
    assert not k.resume(a, c, d, f, g, from_checkpoint=2).yielded
    assert (a.to_numpy().tolist(), c[()], d[()]) == ([31] * 4, 0, 3)


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_loop_before_the_label_skips_in_its_first_turn_alone(backend, turns):
    @qd.kernel(graph=True, checkpoints=True)
    def k(a: Vec, c: Flag, d: Flag, f: Flag):
        while qd.graph.do_while(c):
            for i in range(1):
                a[0] += 1
            c[()] -= 1
            d[()] = 2
            a[1] += 1
            while qd.graph.do_while(d):
                with qd.checkpoint(0, yield_on=f):
                    for i in range(1):
                        a[2] += 1
                d[()] -= 1
        for i in range(1):
            a[3] += 1
        with qd.checkpoint(1, yield_on=f):
            for i in range(1):
                a[4] += 1

    def resumed(label):
        a, c = zeros(5), flag(turns)
        assert not k.resume(a, c, flag(), flag(), from_checkpoint=label).yielded
        assert c[()] == 0
        return a.to_numpy().tolist()

    # The inner loop skips in its first turn of the first turn; behind the loops the skipping goes on.
    assert resumed(1) == [turns - 1, turns, 2 * turns - 1, 0, 1]
    assert resumed(0) == [turns - 1, turns, 2 * turns, 1, 1]


PROGRAM = """
import enum, sys
import quadrants as qd

class Stage(enum.IntEnum):
    A = 3

Flag, Vec = qd.types.ndarray(qd.i32, 0), qd.types.ndarray(qd.i32, 1)

@qd.kernel(graph=True, checkpoints=True)
def k(a: Vec, c: Flag, f: Flag):
    while qd.graph.do_while(c):
        with qd.checkpoint(Stage.A, yield_on=f):
            for i in a:
                a[i] += 1
        c[()] -= 1

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1])
a, c, f = qd.ndarray(qd.i32, 4), qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
c.fill(3)
f.fill(1)
status = k(a, c, f)
f.fill(0)
after = k.resume(a, c, f, from_checkpoint=Stage.A)
print(status, after, a.to_numpy().tolist(), k._primal.checkpoint_user_labels_by_cp_id)
print([x.cond_arg_name for x in k._primal.graph_do_while_levels], qd._lib.core.counters()["lowered"])
"""


@pytest.mark.oracle_differs("has no such counters")
def test_another_process(backend, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    runs = [
        subprocess.run(
            [sys.executable, path, tmp_path / "cache"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[-2:]
        for _ in range(2)
    ]
    assert runs[0][0] == runs[1][0]
    assert "checkpoint=<Stage.A: 3>" in runs[1][0] and "[3, 3, 3, 3]" in runs[1][0]
    assert runs[0][1] == "['c'] 1" and runs[1][1] == "['c'] 0"
