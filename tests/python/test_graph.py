"""Constructs of graph kernels: do-while loops whose body is tasks, and blocks of independent work."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import flag, module_at, raises, zeros
from quadrants.lang import impl

Flag = qd.types.ndarray(qd.i32, 0)
Vec = qd.types.ndarray(qd.i32, 1)
S, C = qd.QuadrantsSyntaxError, qd.QuadrantsCompilationError


def test_nested_loops(backend):
    @qd.kernel(graph=True)
    def k(rounds: Flag, sweeps: Flag, u: Vec):
        u[0] = 100  # once
        while qd.graph.do_while(rounds):
            sweeps[()] = 3
            while qd.graph.do_while(sweeps):
                for i in u:
                    u[i] += 1
                sweeps[()] -= 1
            for i in u:
                u[i] += 1000
            rounds[()] -= 1
        u[3] = -1

    for n in (2, 1, 5):  # flags are read at every launch
        rounds, sweeps, u = flag(n), flag(7), zeros(4)
        k(rounds, sweeps, u)
        each = 1003 * n
        assert u.to_numpy().tolist() == [each + 100, each, each, -1]
        assert rounds.to_numpy() == 0 and sweeps.to_numpy() == 0


def test_siblings_and_functions(backend):
    @qd.func
    def halve(c: Flag, u: Vec):
        while qd.graph.do_while(c):
            for i in u:
                u[i] = u[i] // 2
            c[()] -= 1

    @qd.kernel(graph=True)
    def k(c: Flag, d: Flag, u: Vec):
        for i in u:
            u[i] = 64
        halve(c, u)
        u[0] += 1
        halve(d, u)

    u = zeros(4)
    k(flag(2), flag(3), u)
    assert u.to_numpy().tolist() == [2, 2, 2, 2]


@pytest.mark.oracle_differs("locals do not live through the turns")
def test_locals_live_through_the_turns(backend):
    @qd.kernel(graph=True)
    def k(c: Flag, u: Vec, n: qd.i32):
        s = 0
        x = n * 2
        while qd.graph.do_while(c):
            t = s * 10
            for i in u:
                s += u[i] + 1
            s += x
            u[0] = t
            c[()] -= 1
        u[1] = s

    u = zeros(4)
    k(flag(3), u, 5)
    s, t, first = 0, 0, 0
    for _ in range(3):
        t, s = s * 10, s + first + 4 + 10
        first = t
    assert u.to_numpy().tolist() == [t, s, 0, 0]


def test_flags_that_are_members(backend):
    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.more, self.u = flag(3), zeros(4)

        @qd.kernel(graph=True)
        def run(self):
            while qd.graph.do_while(self.more):
                for i in self.u:
                    self.u[i] += i
                self.more[()] -= 1

    solver = Solver()
    solver.run()
    assert solver.u.to_numpy().tolist() == [0, 3, 6, 9]
    solver.more = flag(1)
    solver.run()
    assert solver.u.to_numpy().tolist() == [0, 4, 8, 12]


def test_flags_of_dataclasses(backend):
    @dataclasses.dataclass(frozen=True)
    class State:
        u: Vec
        more: Flag

    @qd.kernel(graph=True)
    def k(s: State):
        while qd.graph.do_while(s.more):
            for i in s.u:
                s.u[i] += 1
            s.more[()] -= 1

    s = State(zeros(4), flag(4))
    k(s)
    assert s.u.to_numpy().tolist() == [4] * 4


@pytest.mark.oracle_differs("needs_torch or repeats draws", run=False)
def test_every_turn_draws_other_numbers(backend):
    @qd.kernel(graph=True)
    def k(c: Flag, u: qd.types.ndarray(qd.i32, 2)):
        while qd.graph.do_while(c):
            c[()] -= 1
            for i in range(4):
                u[c[()], i] = qd.random(qd.i32)

    u = qd.ndarray(qd.i32, (5, 4))
    k(flag(5), u)
    assert len(set(u.to_numpy().ravel().tolist())) == 20


def test_statements_of_a_body(backend):
    @qd.kernel(graph=True)
    def k(c: Flag, u: Vec):
        while qd.graph.do_while(c):
            """Docstrings are fine."""
            x: qd.i32 = 3
            if c[()] == 2:
                u[0] += x
            for j in qd.static(range(2)):
                for i in u:
                    u[i] += 10
            qd.loop_config(serialize=True)
            for i in range(4):
                if i == 3:
                    break
                u[i] += 100
            c[()] -= 1

    u = zeros(4)
    k(flag(3), u)
    assert u.to_numpy().tolist() == [363, 360, 360, 60]


def test_a_failing_check_leaves_the_loop(debug_backend):
    f = qd.field(qd.i32, 4)

    @qd.kernel(graph=True)
    def k(c: Flag):
        while qd.graph.do_while(c):
            for i in range(4):
                f[c[()] + i] = 1
            c[()] += 1

    with raises(qd.QuadrantsAssertionError, "Accessing field"):
        k(flag(1))
    assert f.to_numpy().sum() >= 3


def test_sections(backend):
    @qd.kernel(graph=True)
    def k(c: Flag, u: Vec, wide: qd.template()):
        while qd.graph.do_while(c):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in u:
                        u[i] += 1
                if qd.static(wide):
                    with qd.graph.parallel():
                        c[()] -= 1
                for j in qd.static(range(1)):
                    with qd.graph.parallel():
                        u[0] += 0
            if qd.static(not wide):
                c[()] -= 1

    for wide in (True, False):
        u = zeros(4)
        k(flag(3), u, wide)
        assert u.to_numpy().tolist() == [3] * 4


def test_names_outlive_sections(backend):
    @qd.kernel(graph=True)
    def k(u: Vec, v: Vec):
        outer = 1
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                n = u[0] + 3
                vector = qd.Vector([n, 2 * n])
                outer = 7
                for i in range(n):
                    u[1] += 1
            with qd.graph.parallel():
                before = n
                n = 5  # a variable of this section
                n += outer
                for i in range(n):
                    v[1] += before
        u[2] = n + outer * 100
        for i in range(n):
            u[3] += vector[1]
        v[0] = vector.sum()

    u, v = zeros(4), zeros(2)
    k(u, v)
    assert u.to_numpy().tolist() == [0, 3, 12 + 700, 12 * 6]
    assert v.to_numpy().tolist() == [9, 12 * 3]


def test_names_of_one_section_in_the_next(backend):
    @qd.kernel(graph=True)
    def k(u: Vec, v: Vec):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                n = u[0]
                w = qd.Vector([n, n + 1])
                for i in range(n):
                    u[i] += 1
            with qd.graph.parallel():
                for i in range(n):
                    v[i] += w.sum() + n

    u, v = zeros(4), zeros(4)
    for start in (2, 3, 4):
        u.fill(start)
        v.fill(0)
        k(u, v)
        assert u.to_numpy().tolist() == [start + (i < start) for i in range(4)]
        assert v.to_numpy().tolist() == [(3 * start + 1) * (i < start) for i in range(4)]


def test_sections_that_assign_one_name_have_a_variable_each(backend):
    @qd.kernel(graph=True)
    def k(u: Vec, v: Vec):
        with qd.graph.parallel_context():
            for s in qd.static(range(2)):
                with qd.graph.parallel():
                    n = (u, v)[s].shape[0]
                    n -= 1
                    for i in range(n):
                        (u, v)[s][i] = n

    u, v = zeros(4), zeros(2)
    k(u, v)
    assert u.to_numpy().tolist() == [3, 3, 3, 0] and v.to_numpy().tolist() == [1, 0]


@pytest.mark.oracle_differs("repeats draws")
def test_sections_draw_different_numbers(backend):
    @qd.kernel(graph=True)
    def k(c: Flag, u: Vec):
        u[0] = qd.random(qd.i32)
        while qd.graph.do_while(c):
            u[1] = qd.random(qd.i32)
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    u[2] = qd.random(qd.i32)
                with qd.graph.parallel():
                    u[3] = qd.random(qd.i32)
            u[4] = qd.random(qd.i32)
            c[()] -= 1
        u[5] = qd.random(qd.i32)

    u = zeros(6)
    k(flag(1), u)
    assert len(set(u.to_numpy().tolist())) == 6


@pytest.mark.oracle_differs("counts what only this implementation has")
def test_kernels_that_differ_in_groups_alone_share_no_code(tmp_path):
    from quadrants._lib import core

    qd.init(arch=qd.cpu, offline_cache=True, offline_cache_file_path=str(tmp_path))

    @qd.func
    def one(u: Vec):
        for i in u:
            u[i] += 1

    @qd.kernel(graph=True)
    def plain(u: Vec):
        one(u)
        one(u)

    @qd.kernel(graph=True)
    def equal(u: Vec):
        one(u)
        one(u)

    @qd.kernel(graph=True)
    def section(u: Vec):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                one(u)
                one(u)

    @qd.kernel(graph=True)
    def sections(u: Vec):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                one(u)
            with qd.graph.parallel():
                one(u)

    @qd.kernel(graph=True)
    def regions(u: Vec):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                one(u)
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                one(u)

    @qd.kernel
    def streams(u: Vec):
        with qd.stream_parallel():
            one(u)
        with qd.stream_parallel():
            one(u)

    u = zeros(4)
    misses = []
    for k in (plain, equal, section, sections, regions, streams):
        before = core.counters()["cache_misses"]
        k(u)
        misses.append(core.counters()["cache_misses"] - before)
    assert misses == [1, 0, 1, 1, 1, 1]
    assert u.to_numpy().tolist() == [12] * 4


def test_stream_blocks(backend):
    @qd.kernel
    def k(u: Vec):
        """Documented."""
        with qd.stream_parallel():
            for i in range(2):
                u[i] = 1
        with qd.stream_parallel():
            u[2] = 5
            for i in range(3, 4):
                u[i] = 6

    u = zeros(4)
    k(u)
    assert u.to_numpy().tolist() == [1, 1, 5, 6]
    with qd.stream_parallel(), qd.graph.parallel_context(), qd.graph.parallel():
        pass
    assert qd.graph.do_while(1) is True and qd.graph_do_while is qd.graph.do_while


MORE = "while qd.graph.do_while(c):\n    c[()] -= 1\n"
REGION = "with qd.graph.parallel_context():\n"
SECTION = "    with qd.graph.parallel():\n"
ERRORS = [
    # kernel option, class, text, body
    (0, S, "requires @qd.kernel(graph=True)", MORE),
    (0, S, "requires @qd.kernel(graph=True)", "repeat(c)"),
    (1, S, "another qd.graph.do_while(); repeat() is called inside a loop or an if-statement",
     "for i in range(2):\n    repeat(c)"),
    (1, S, "cannot appear inside an if-statement (line",
     "u[0] = 1\nif n:\n    " + MORE.replace("\n    c", "\n        c")),
    (1, S, "cannot appear inside a for-loop (line",
     "for i in range(2):\n    if qd.static(True):\n        while qd.graph.do_while(c): c[()] -= 1"),
    (1, S, "can only be the whole condition of a while-loop", "if qd.graph.do_while(c): u[0] = 1"),
    (1, S, "can only be the whole condition of a while-loop",
     "while qd.graph.do_while(c) and n: u[0] = 1"),
    (1, S, "kernel top level",
     "for i in range(2):\n    while qd.graph.do_while(c):\n        c[()] -= 1"),
    (1, S, "Allowed: for-loops", "while qd.graph.do_while(c):\n    pass"),
    (1, S, "may not contain a Break statement", MORE + "    break"),
    (1, S, "may not contain a Return statement", MORE + "    return"),
    (1, S, "the kernel body may not contain a Return", MORE + "return"),
    (1, S, "may not contain a While statement", MORE + "    while n > 3: u[0] = 1"),
    (1, S, "the kernel body may not contain a While", "while n > 9: u[0] = 1\n" + MORE),
    (1, S, "'else' clause", MORE + "else:\n    u[0] = 1"),
    (1, S, "'n' which does not resolve to an ndarray kernel parameter",
     MORE.replace("(c)", "(n)")),
    (1, S, "does not resolve to an ndarray kernel parameter", MORE.replace("(c)", "(gone)")),
    (1, S, "does not resolve to an ndarray kernel parameter", MORE.replace("(c)", "(line)")),
    (1, S, "does not resolve to an ndarray kernel parameter", MORE.replace("(c)", "(qd.gone)")),
    (0, S, "requires @qd.kernel(graph=True)", REGION + SECTION + "        u[0] = 1"),
    (1, S, "may contain only 'with qd.graph.parallel", REGION + "    u[0] = 1"),
    (1, S, "may contain only 'with qd.graph.parallel",
     REGION + "    if n:\n    " + SECTION + "            u[0] = 1"),
    (1, S, "may contain only 'with qd.graph.parallel",
     REGION + "    if qd.static(True):\n    " + SECTION + "            u[0] = 1\n"
     "    else:\n        u[0] = 1"),
    (1, S, "qd.graph.parallel() can only be used directly inside a qd.graph.parallel_context",
     "with qd.graph.parallel():\n    u[0] = 1"),
    (1, S, "sections cannot be nested", REGION + SECTION + "    " + SECTION + "            u[0] = 1"),
    (1, S, "qd.graph.do_while() cannot appear inside a qd.graph.parallel()",
     REGION + SECTION + "        while qd.graph.do_while(c):\n            c[()] -= 1"),
    (1, S, "qd.checkpoint() cannot",
     REGION + SECTION + "        with qd.checkpoint(1, yield_on=c): u[0] = 1"),
    (1, S, "qd.graph.parallel_context() cannot",
     REGION + SECTION + "        with qd.graph.parallel_context():\n            pass"),
    (1, S, "qd.graph.parallel_context() takes no arguments",
     "with qd.graph.parallel_context(1):\n    pass"),
    (1, S, "qd.graph.parallel() takes no arguments",
     REGION + "    with qd.graph.parallel(1):\n        u[0] = 1"),
    (1, S, "only be used inside @qd.kernel", "region(u)"),
    (0, S, "can only be used inside @qd.kernel", "streams(u)"),
    (0, S, "all top-level statements", "with qd.stream_parallel():\n    u[0] = 1\nu[1] = 2"),
    (0, S, "all top-level statements",
     "with qd.stream_parallel():\n    u[0] = 1\nwith open('x'):\n    u[1] = 2"),
    (1, S, "not compatible with graph=True", "with qd.stream_parallel():\n    u[0] = 1"),
    (0, C, "Nested stream_parallel",
     "with qd.stream_parallel():\n    with qd.stream_parallel():\n        u[0] = 1"),
    (0, S, "single context manager",
     "with qd.stream_parallel(), qd.stream_parallel():\n    u[0] = 1"),
    (0, S, "'with ... as ...'", "with qd.stream_parallel() as x:\n    u[0] = 1"),
    (0, S, "requires a call expression", "with n:\n    u[0] = 1"),
    (0, S, "only supports qd.stream_parallel", "with open('x'):\n    u[0] = 1"),
    (1, S, "checkpoints=True", "with qd.checkpoint(1, yield_on=c):\n    u[0] = 1"),
    (0, S, "requires @qd.kernel(graph=True)", "with qd.checkpoint(1, yield_on=c):\n    u[0] = 1"),
]  # fmt: skip

PREFIX = """\
import quadrants as qd
Flag = qd.types.ndarray(qd.i32, 0)
Vec = qd.types.ndarray(qd.i32, 1)
line = qd.field(qd.i32, 3)

@qd.func
def repeat(c: Flag):
    while qd.graph.do_while(c):
        c[()] -= 1

@qd.func
def region(u: Vec):
    with qd.graph.parallel_context():
        with qd.graph.parallel():
            u[0] = 1

@qd.func
def streams(u: Vec):
    with qd.stream_parallel():
        u[0] = 1
"""


def load(path, source):

    path.write_text(PREFIX + source)
    return module_at(path)


def test_mistakes_in_funcs_show_the_func(backend, tmp_path):
    module = load(tmp_path / "frames.py", '''
@qd.func
def wrong(c: Flag):
    while qd.graph.do_while(c):
        c[()] -= missing

@qd.kernel(graph=True)
def k(c: Flag):
    wrong(c)
''')  # fmt: skip
    with pytest.raises(qd.QuadrantsNameError) as e:
        module.k(flag(1))
    shown = [line.rsplit(" ", 1)[1] for line in str(e.value).splitlines() if ", line " in line]
    assert shown == ["k:", "wrong:"], str(e.value)


def test_sections_beside_statements_that_do_nothing(backend):
    @qd.kernel(graph=True)
    def k(u: Vec):
        with qd.graph.parallel_context():
            """Each writes an element of its own."""
            pass
            with qd.graph.parallel():
                u[0] = 1
            with qd.graph.parallel():
                u[1] = 2

    u = zeros(3)
    k(u)
    assert u.to_numpy().tolist() == [1, 2, 0]


def test_mistakes(backend, tmp_path):
    source = ""
    for k, (graph, _, _, body) in enumerate(ERRORS):
        lines = "".join(f"    {line}\n" for line in body.rstrip().split("\n"))
        source += (
            f"\n@qd.kernel(graph={bool(graph)})\ndef k{k}(c: Flag, u: Vec, n: qd.i32):\n{lines}"
        )
    module = load(tmp_path / "mistakes.py", source)
    wrong = []
    for k, (_, cls, text, body) in enumerate(ERRORS):
        try:
            getattr(module, f"k{k}")(flag(1), zeros(4), 3)
        except Exception as e:
            if not isinstance(e, cls) or text not in str(e):
                wrong.append(f"{body!r}: {type(e).__name__} {str(e)[-200:]}")
        else:
            wrong.append(f"{body!r}: no error")
    assert not wrong, "\n".join(wrong)


def test_flat_names_warn(backend, tmp_path):
    module = load(tmp_path / "flat.py", """
@qd.kernel(graph=True)
def k(c: Flag, u: Vec):
    while qd.graph_do_while(c):
        with qd.graph_parallel_context():
            with qd.graph_parallel():
                u[0] += 1
        c[()] -= 1
""")  # fmt: skip
    u = zeros(4)
    with pytest.warns(DeprecationWarning) as seen:
        module.k(flag(2), u)
    assert u.to_numpy()[0] == 2
    texts = " ".join(str(w.message) for w in seen)
    for name in ("do_while()", "parallel_context()", "parallel()"):
        assert f"use qd.graph.{name}" in texts


PROGRAM = """
import sys, numpy as np, quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
Flag, Vec = qd.types.ndarray(qd.i32, 0), qd.types.ndarray(qd.i32, 1)

@qd.kernel(graph=True)
def k(a: Flag, b: Flag, u: Vec):
    s = 0
    while qd.graph.do_while(a):
        b[()] = 2
        while qd.graph.do_while(b):
            for i in u: u[i] += 1 + s
            b[()] -= 1
        s += 10
        a[()] -= 1
    u[0] = s

a, b, u = (np.array(3, np.int32), np.array(0, np.int32), np.zeros(40, np.int32))
k(a, b, u)
from quadrants._lib import core
print(u[0], u[1:].tolist() == [66] * 39, int(a), core.counters()["lowered"])
"""


@pytest.mark.oracle_differs("counts what only this implementation has")
@pytest.mark.parametrize("tier", ["", "0", "1", "interpret"])
def test_tiers_and_warm_start(tmp_path, tier):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    import os

    env = {**os.environ, "QD_KERNEL_COVERAGE": "0"}  # instrumented kernels start cold
    if tier:
        env["QD_CPU_TIER"] = tier
    for lowered in (1, 1 if tier == "interpret" else 0):
        out = subprocess.run(
            [sys.executable, str(path), str(tmp_path / "cache")],
            capture_output=True, text=True, env=env, check=True,
        )  # fmt: skip
        assert out.stdout.split("\n")[-2] == f"30 True 0 {lowered}"


def test_numpy_flags(backend):
    @qd.kernel(graph=True)
    def k(c: Flag, u: Vec):
        while qd.graph.do_while(c):
            u[0] += 1
            c[()] -= 1

    c, u = np.array(4, np.int32), np.zeros(2, np.int32)
    if qd.cfg.arch == qd.cuda:
        for args in ((c, u), (flag(1), u), (c, zeros(2))):
            with pytest.raises(RuntimeError, match="lies on the host"):
                k(*args)
        u = zeros(2)
        k(flag(4), u)
        assert u.to_numpy()[0] == 4
        return
    k(c, u)
    assert u[0] == 4 and c == 0


def test_results(backend):
    @qd.kernel(graph=True)
    def k(u: Vec) -> qd.i32:
        for i in u:
            u[i] += 1
        return u[0]

    u = zeros(3)
    if qd.cfg.arch == qd.cuda:
        with pytest.raises(RuntimeError, match="cannot return a value"):
            k(u)
        assert u.to_numpy().tolist() == [0, 0, 0]
    else:
        assert k(u) == 1


@pytest.mark.oracle_differs("its CPU has none either")
def test_native_graphs_are_counted(backend):
    @qd.kernel(graph=True)
    def two(u: Vec, a: qd.i32):
        for i in u:
            u[i] += a
        for i in u:
            u[i] *= 2

    x = qd.field(qd.i32, 9)

    @qd.kernel(graph=True)
    def one():
        for i in x:  # whose length is known: one task
            x[i] += 1

    @qd.kernel
    def plain(u: Vec):
        for i in u:
            u[i] += 1
        for i in u:
            u[i] += 2

    @qd.kernel(graph=True)
    def beside(u: Vec, v: Vec):
        for i in u:
            u[i] += 1
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in u:
                    u[i] += 1
            with qd.graph.parallel():
                for i in v:
                    v[i] += 1
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in v:
                    v[i] += 1

    @qd.kernel(graph=True)
    def loop(c: Flag, u: Vec):
        while qd.graph.do_while(c):
            for i in u:
                u[i] += 1
            c[()] -= 1

    def seen():
        prog = qd.lang.impl.get_runtime().prog
        nodes, tasks = (
            prog.get_graph_num_nodes_on_last_call(),
            prog.get_num_offloaded_tasks_on_last_call(),
        )
        used = prog.get_graph_cache_used_on_last_call()
        return (
            used,
            nodes and nodes - tasks,
            prog.get_graph_cache_size(),
            prog.get_graph_total_builds(),
        )

    cuda = qd.cfg.arch == qd.cuda
    u, v, large = zeros(4), zeros(3), zeros(5000)
    for launch, used, joins, graphs in [
        (lambda: two(u, 1), True, 0, 1),
        (lambda: two(large, 2), True, 0, 1),
        (one, False, 0, 1),
        (lambda: two(u, 3), True, 0, 1),
        (lambda: plain(u), False, 0, 1),
        (lambda: beside(u, v), True, 1, 2),
        (lambda: loop(flag(3), u), True, 0, 3),
        (lambda: loop(flag(2), v), True, 0, 3),
    ]:
        launch()
        assert seen() == ((used, joins, graphs, graphs) if cuda else (False, 0, 0, 0))
    qd.reset()
    backend.init()
    assert seen() == (False, 0, 0, 0)
    u = zeros(4)
    two(u, 1)
    assert seen() == ((True, 0, 1, 1) if cuda else (False, 0, 0, 0))


@pytest.mark.parametrize("around", [0, 2])
def test_the_condition_of_a_loop_is_no_task_of_the_count(backend, around):
    backend.init()
    f, c = qd.field(qd.i32, 4), qd.ndarray(qd.i32, ())

    @qd.kernel(graph=True)
    def alone(c: qd.types.ndarray(qd.i32, 0)):
        while qd.graph.do_while(c):
            for i in range(4):
                f[i] += 1
            for i in range(1):
                c[()] -= 1

    @qd.kernel(graph=True)
    def between(c: qd.types.ndarray(qd.i32, 0)):
        for i in range(4):
            f[i] += 1
        while qd.graph.do_while(c):
            for i in range(4):
                f[i] += 1
            for i in range(1):
                c[()] -= 1
        for i in range(4):
            f[i] += 1

    c[()] = 2
    (between if around else alone)(c)
    assert impl.get_runtime().prog.get_num_offloaded_tasks_on_last_call() == 2 + around
    assert f[0] == 2 + around
