"""Coverage of kernels (spec 50, section 13), in processes of their own."""

import importlib.util
import os
import subprocess
import sys
import types

import pytest

PROGRAM = '''
import quadrants as qd

@qd.func
def twice(x):
    """A text is no statement."""
    y = x; y *= 2
    return y

@qd.kernel
def run(n: qd.i32) -> qd.i32:
    total = 0
    for i in range(n):
        if i > 100:
            total += 1
        else:
            total += twice(i)
    while total < 0:
        total += 1
    return total

def main():
    for debug in (False, True):
        qd.init(arch=qd.cpu, debug=debug, log_level="error")
        assert run(4) == 12
'''
LINES = [7, 8, 12, 13, 14, 17, 18, 20]  # 15 and 19 do not run; line 1 is empty


def start(folder, body, program=PROGRAM, **environment):
    (folder / "program.py").write_text(program)
    env = {**os.environ, "QD_KERNEL_COVERAGE": "1", "QD_OFFLINE_CACHE_FILE_PATH": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join([*sys.path, str(folder)])
    code = f"import program\nprogram.main()\n{body}"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert not out.returncode, out.stderr
    return out


SHOW = (
    "from quadrants.lang import _kernel_coverage as c\nc._harvest_field()\n"
    "print(sorted(l for f, ls in c._accumulated_lines.items() if f.endswith('program.py') for l in ls))"
)


def test_lines_that_ran(tmp_path):
    for _ in range(2):  # the second process finds the code in the cache
        lines = start(tmp_path, SHOW).stdout.splitlines()[-1]
        assert lines == str(LINES)


def test_files_have_their_plain_names(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "linked.py").symlink_to("program.py")
    start(tmp_path, "")
    show = "\nmain()\n" + SHOW + "\nprint(*c._accumulated_lines)\n"
    (tmp_path / "program.py").write_text(PROGRAM + show)
    for name in ("../program.py", "../linked.py"):
        out = subprocess.run(
            [sys.executable, name],
            env={**os.environ, "QD_KERNEL_COVERAGE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path / "inner", capture_output=True, text=True,
        )  # fmt: skip
        assert out.stdout.splitlines()[-1:] == [str(tmp_path / "program.py")], out.stderr


LOST = """
class Unreadable:
    def to_numpy(self):
        raise RuntimeError("gone")

c._cov_field = Unreadable()
program.qd.set_logging_level("warn")
program.qd.reset()
assert c._cov_field is c._cov_field_prog is None
"""


def test_a_failing_readback_loses_its_session_alone(tmp_path):
    out = start(tmp_path, SHOW + LOST + "program.main()\n" + SHOW)
    assert out.stderr.count("Kernel coverage of this runtime is lost: gone") == 1
    assert out.stdout.splitlines()[-1] == str(LINES)


DECLARED = """
import quadrants as qd

@qd.kernel(fastcache=True)
def run(n: qd.i32) -> qd.i32:
    return n + 1

def main():
    qd.init(arch=qd.cpu)
    assert run(1) == 2
    s = run._primal.src_ll_cache_observations
    print(int(s.cache_key_generated), int(s.cache_validated), int(s.cache_stored))
"""


@pytest.mark.oracle_differs("who is covered the second time stores nothing")
def test_declared_kernels_have_entries_of_their_own(tmp_path):
    """Probes are no field of the user's, and another key."""
    got = [
        start(tmp_path, "", program=DECLARED, QD_KERNEL_COVERAGE=on).stdout.splitlines()[-1]
        for on in ("0", "1", "1", "0")
    ]
    assert got == ["1 0 1", "1 0 1", "1 1 0", "1 1 0"]
    assert len(list(tmp_path.glob("python_side_cache/*.cache.txt"))) == 2


def test_a_full_map_warns_once(tmp_path):
    out = start(tmp_path, SHOW, QD_COVERAGE_MAX_PROBES="3")
    assert out.stderr.count("Kernel coverage is full") == 1


def test_nothing_is_imported_otherwise(tmp_path):
    out = start(
        tmp_path,
        "import sys; print('quadrants.lang._kernel_coverage' in sys.modules)",
        QD_KERNEL_COVERAGE="0",
    )
    assert out.stdout.splitlines()[-1] == "False"


@pytest.mark.skipif(not importlib.util.find_spec("coverage"), reason="needs the package coverage")
@pytest.mark.parametrize("arcs", ["0", "1"])
def test_written_data(tmp_path, arcs):
    from coverage import CoverageData

    start(tmp_path, "", _QD_KCOV_ARC=arcs)
    (file,) = tmp_path.glob("_qd_kcov.*")
    data = CoverageData(basename=str(file))
    data.read()
    assert data.has_arcs() == (arcs == "1")
    (measured,) = (f for f in data.measured_files() if f.endswith("program.py"))
    assert sorted(data.lines(measured)) == LINES


BRANCHES = """
@qd.kernel
def run(n: qd.i32) -> qd.i32:
    total = 0
    for i in range(n):
        if i > 100:
            total += 1
        elif i == 2:
            total += 2
        if i > 1:
            total += 3
    while total < 0:
        total += 1
    for i in range(3):
        while total > 0:
            if total > 1000:
                break
            total -= 1
    if n == 77:
        total = 1
    return total
"""


@pytest.mark.oracle_differs("it claims no arc between lines")
def test_arcs_between_lines(tmp_path):
    body = BRANCHES + "qd.init(arch=qd.cpu, log_level='error')\nrun(4)\n"
    show = (
        "from quadrants.lang import _kernel_coverage as c\nc._harvest_field()\n"
        "for f, ls in c._accumulated_lines.items(): print(sorted(c._arcs_that_ran(f, ls)))"
    )
    (tmp_path / "branches.py").write_text("import quadrants as qd" + body + show)
    env = {**os.environ, "QD_KERNEL_COVERAGE": "1", "_QD_KCOV_ARC": "1"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    out = subprocess.run(
        [sys.executable, "branches.py"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert not out.returncode, out.stderr
    assert eval(out.stdout.splitlines()[-1]) == [
        (-2, 4), (4, 5), (5, 6), (5, 12), (6, 8), (8, 9), (8, 10), (9, 10), (10, 5), (10, 11),
        (11, 5), (12, 14), (14, 15), (14, 19), (15, 14), (15, 16), (16, 18), (18, 15), (19, 21),
        (21, -2),
    ]  # fmt: skip


def test_rewriter():
    import ast

    from quadrants.lang._kernel_coverage import _CoverageASTRewriter

    tree = ast.parse(
        "def f():\n    try:\n        a = 1; b = 2\n    except E:\n        c = 3\n    return a\n"
    )
    rewriter = _CoverageASTRewriter(
        field_name="cov", filepath="f.py", start_lineno=11, probe_id_start=5
    )
    text = ast.unparse(rewriter.visit(tree))
    assert rewriter.next_probe_id == 9 and text.count("cov[") == 4
    assert [line for _, line in rewriter.probe_map.values()] == [12, 13, 15, 16]


def test_nothing_stands_between_sections():
    import ast

    from quadrants.lang._kernel_coverage import _CoverageASTRewriter

    body = "with qd.graph.parallel_context():\n  if qd.static(c):\n   with qd.graph.parallel():\n    a = 1"
    tree = ast.parse("def f():\n " + body.replace("\n", "\n ") + "\n b = 2\n")
    rewriter = _CoverageASTRewriter(
        field_name="cov", filepath="f.py", start_lineno=1, probe_id_start=0
    )
    rewriter.visit(tree)
    assert [line for _, line in rewriter.probe_map.values()] == [2, 5, 6]


CONSTRUCTS = """
import numpy as np
import quadrants as qd

V, F = qd.types.ndarray(qd.f32, ndim=1), qd.types.ndarray(qd.i32, ndim=0)

@qd.func
def half(a):
    if a > 3:
        a = a * 0.5
    return a

@qd.real_func
def real(a: qd.i32) -> qd.i32:
    if a > 2:
        return a * 2
    return a

@qd.kernel
def losses(x: qd.template(), y: qd.template(), loss: qd.template()):
    for i in x:
        y[i] = x[i] * x[i]
    for i in x:
        for j in range(2):
            a = y[i] * (j + 1)
            if a > 4.0:
                loss[None] += half(a)
            else:
                loss[None] += a

@qd.kernel
def recurrence(n: qd.i32, x: qd.template(), y: qd.template(), loss: qd.template()):
    for i in range(4):
        p = x[i]
        for j in range(n):
            p = p * 1.5 + 1
        loss[None] += p

def gradients():
    x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f32, (), needs_grad=True)
    for validation in (False, True):
        for kernel, args in (losses, ()), (recurrence, (3,)):
            x.from_numpy(np.array([1, 2, 3, 4], np.float32))
            with qd.ad.Tape(loss, validation=validation):
                kernel(*args, x, y, loss)
            print(kernel.__name__, loss[None], x.grad)

@qd.kernel(graph=True, checkpoints=True)
def checkpoints(v: V, first: F, second: F, again: F):
    with qd.checkpoint(1, yield_on=first):
        for i in v:
            v[i] += 1
    while qd.graph.do_while(again):
        with qd.checkpoint(2, yield_on=second):
            if qd.static(True):
                for i in v:
                    v[i] *= 2
            for i in range(1):
                again[None] -= 1
        for i in v:
            v[i] += 0.5

def launches():
    v = qd.ndarray(qd.f32, 4)
    first, second, again = (qd.ndarray(qd.i32, ()) for _ in range(3))
    for yields in (0, 0), (1, 0), (0, 1):
        v.fill(1)
        first[None], second[None], again[None] = *yields, 3
        status = checkpoints(v, first, second, again)
        print(status.yielded, v.to_numpy())
        if status.yielded:
            first[None] = second[None] = 0
            checkpoints.resume(v, first, second, again, from_checkpoint=status.checkpoint)
            print(v.to_numpy())

@qd.kernel(graph=True)
def sections(v: V, w: V, again: F):
    while qd.graph.do_while(again):
        with qd.graph.parallel_context():
            for n in qd.static(range(2)):
                with qd.graph.parallel():
                    k = n + 1
                    for i in range(2):
                        v[n * 2 + i] += k
            with qd.graph.parallel():
                for i in w:
                    w[i] += 2
        for i in range(1):
            again[None] -= 1

@qd.kernel
def streams(v: V, w: V):
    with qd.stream_parallel():
        for i in v:
            v[i] += 1
    with qd.stream_parallel():
        k = 3
        for i in w:
            w[i] *= k

def groups():
    v, w = qd.ndarray(qd.f32, 4), qd.ndarray(qd.f32, 4)
    v.fill(1), w.fill(2)
    again = qd.ndarray(qd.i32, ())
    again[None] = 2
    sections(v, w, again)
    streams(v, w)
    print(v.to_numpy(), w.to_numpy())

@qd.kernel
def controls(n: qd.i32, x: qd.template()) -> qd.i32:
    total = 0
    qd.loop_config(serialize=True)
    for i in range(n):
        if i == 2:
            continue
        elif i > 5:
            break
        total = total * 3 + real(i)
    for i, j in qd.ndrange(n, (1, 3)):
        x[i % 4] += j
    for I in qd.grouped(x):
        if qd.static(x.dtype == qd.i32):
            x[I] += 1
        elif x[I] > 2: x[I] -= 1
    for k in qd.static(range(3)):
        if qd.static(k == 1): continue
        x[k] += k
    while total > 100:
        total //= 2
        assert total > 0, f"{total}"
    return total if n > 3 else -total

def main():
    for debug in False, True:
        qd.init(arch=qd.cpu, log_level="error", debug=debug, ad_stack_experimental_enabled=True)
        groups()
        launches()
        x = qd.field(qd.i32, 4)
        print(controls(8, x), controls(3, x), x)
        gradients()
"""


def test_what_is_accepted_and_computed_is_the_same(tmp_path):
    """Probes stand among a kernel's statements: nothing that asks for those may take them for the user's."""
    plain, probed = (
        start(tmp_path, "", program=CONSTRUCTS, QD_KERNEL_COVERAGE=on).stdout for on in "01"
    )
    assert probed == plain and plain.count("losses") == 4 and "nan" not in plain


COUNTED = """
import quadrants as qd

@qd.kernel
def k(x: qd.template(), y: qd.template()):
    for i in x:
        y[None] += x[i] ** 2

def main():
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    x, y = (qd.field(qd.f32, shape, needs_grad=True, needs_dual=True) for shape in (3, ()))
    x.fill(2.0)
    y.grad.fill(1)
    {launch}
    print(x.grad, y.dual)
"""


@pytest.mark.parametrize(
    "launch, lines",
    [
        ("k(x, y); k.grad(x, y)", [6, 7]),
        ("k.grad(x, y)", []),
        ("with qd.ad.Tape(y): k(x, y)", [6, 7]),
        ("with qd.ad.Tape(y, validation=True): k(x, y)", []),
        ("with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 0, 0]): k(x, y)", []),
    ],
)
def test_derivatives_count_nothing(tmp_path, launch, lines):
    out = start(tmp_path, SHOW, program=COUNTED.replace("{launch}", launch))
    assert out.stdout.splitlines()[-1] == str(lines), out.stdout


SKIPPED = """
import quadrants as qd

V, F = qd.types.ndarray(qd.f32, ndim=1), qd.types.ndarray(qd.i32, ndim=0)

@qd.kernel(graph=True, checkpoints=True)
def k(v: V, flag: F):
    with qd.checkpoint(1, yield_on=flag):
        for i in v:
            v[i] += 1
    with qd.checkpoint(2, yield_on=flag):
        for i in v:
            v[i] += 1

def main():
    qd.init(arch=qd.cpu, log_level="error")
    v, flag = qd.ndarray(qd.f32, 4), qd.ndarray(qd.i32, ())
    flag.fill(1)
    assert k(v, flag).checkpoint == 1
"""


@pytest.mark.oracle_differs("whether its checkpoints take probes")
def test_checkpoints_that_are_skipped_count_nothing(tmp_path):
    out = start(tmp_path, SHOW, program=SKIPPED)
    assert out.stdout.splitlines()[-1] == "[8, 9, 10, 11]"


def test_threads_that_compile_one_kernel_at_once(tmp_path):
    """Python runs amid parsing: who parsed later must not free the tree that another walks."""
    program = """
import threading
import time
import quadrants as qd
from quadrants.lang import _kernel_coverage as coverage

def slow(x):
    time.sleep(0.01)
    return x

@qd.kernel
def k(f: qd.template()) -> qd.i32:
    total = 0
    for i in f: f[i] = slow(i) + slow(1)
    for i in f: total += slow(f[i]) * slow(2)
    for i in f: total += slow(f[i]) * slow(2)
    for i in f: total += slow(f[i]) * slow(2)
    return total

instrument, calls = coverage.instrument, []

def slowly(*args):
    calls.append(args)
    time.sleep(0.4)  # so long that the others stop waiting for it
    instrument(*args)

def main():
    qd.init(arch=qd.cpu)
    coverage.instrument = slowly
    fields = [qd.field(qd.i32, 4) for _ in range(6)]
    got = [0] * 6
    def run(n):
        got[n] = k(fields[n])
    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(len(calls) > 1, got)
"""
    out = start(tmp_path, "", program=program, MALLOC_PERTURB_="165")  # freed memory is no tree
    assert out.stdout.endswith("True [60, 60, 60, 60, 60, 60]\n")


SESSIONS = '''
import types
import quadrants as qd

TEXT = """
@qd.func
def twice(x):
    return x * 2

@qd.kernel
def k(n: qd.i32) -> qd.i32:
    total = 0
    for i in range(n):
        total += twice(i) + ADDED
    return total
"""

def main():
    with open("session.py", "w") as out:
        out.write(TEXT)
    code = compile(TEXT, "session.py", "exec")
    qd.init(arch=qd.cpu)
    sessions = []
    for n in range(3):
        sessions.append(types.ModuleType("session"))
        sessions[-1].__dict__.update(qd=qd, ADDED=n)
        exec(code, sessions[-1].__dict__)
        print(sessions[-1].k(4))
    qd.init(arch=qd.cpu)
    print([s.k(4) for s in sessions])
'''


def test_one_text_run_in_several_modules(tmp_path):
    """As servers do that run a script once per session: each has globals of its own."""
    out = start(tmp_path, SHOW.replace("program.py", "session.py"), program=SESSIONS)
    assert out.stdout.endswith("[12, 16, 20]\n[4, 8, 9, 10, 11]\n")


@pytest.mark.parametrize(
    "options, before, after",
    [
        ({}, {}, {}),  # no pytest-cov
        ({"cov_source": []}, {}, {}),
        ({"cov_source": ["x"], "no_cov": True}, {}, {}),
        ({"cov_source": ["x"], "cov_branch": None}, {}, {"QD_KERNEL_COVERAGE": "1"}),
        ({"cov_source": [True], "cov_branch": True}, {}, {"QD_KERNEL_COVERAGE": "1", "_QD_KCOV_ARC": "1"}),
        ({"cov_source": ["x"]}, {"QD_KERNEL_COVERAGE": "0"}, {"QD_KERNEL_COVERAGE": "0"}),
    ],
)  # fmt: skip
@pytest.mark.oracle_differs("its plugin is another package")
def test_plugin(monkeypatch, options, before, after):
    from quadrants import pytest_plugin

    monkeypatch.setattr(os, "environ", dict(before))
    config = types.SimpleNamespace(known_args_namespace=types.SimpleNamespace(**options))
    pytest_plugin.pytest_load_initial_conftests(config, None, [])
    assert os.environ == after


def test_the_plugin_starts_nothing():
    code = (
        "import sys, quadrants.pytest_plugin; print('quadrants_python' in str(list(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert out.stdout.splitlines()[-1:] == ["False"], out.stderr
