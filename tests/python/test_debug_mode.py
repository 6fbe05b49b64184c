"""Checks of debug mode: what a failure says, where it stands and who called it; native crashes."""

import dataclasses
import datetime
import os
import re
import subprocess
import sys
import textwrap
import traceback

import numpy as np
import pytest

import quadrants as qd

Ints = qd.types.ndarray(qd.i32, ndim=1)
Grid = qd.types.ndarray(qd.i32, ndim=2)
Matrices = qd.types.ndarray(qd.types.matrix(2, 3, qd.i32), ndim=1)


@pytest.fixture(params=[dict(debug=True), dict(check_out_of_bound=True)], ids=["debug", "bounds"])
def checked(request, backend):
    backend.init(**request.param)
    return backend


def failure(run, *args):
    with pytest.raises(qd.QuadrantsAssertionError) as e:
        run(*args)
    assert isinstance(e.value, RuntimeError) and isinstance(e.value, AssertionError)
    return e.value


def blocks(text):
    """(function, source line, what the carets mark) of each block with one line of source."""
    found = re.findall(r'File "[^"]+", line \d+, in (\w+):\n([^\n]*)\n( *)(\^+)\n', text)
    return [(f, line[len(gap) :][: len(carets)]) for f, line, gap, carets in found]


# --- one check each -----------------------------------------------------------------------------


@pytest.mark.oracle_differs("asks for failures with debug=True only")
def test_fields(checked):
    f = qd.field(qd.i32, shape=(4, 5))

    @qd.kernel
    def k(i: int, j: int):
        f[0, 0] = f[i, j] + 1

    for i, j in ((4, 0), (0, 5), (-1, 0), (1 << 30, 2)):
        text = str(failure(k, i, j))
        assert re.match(
            rf"\n?\(kernel=k_c\d+_\d+\) Accessing field \(\S+<i32>\) of size \(4, 5\) "
            rf"with indices \({i}, {j}\)\n",
            text,
        )
        assert blocks(text) == [("k", "f[i, j]")]
    k(3, 4)


@pytest.mark.oracle_differs("asks for failures with debug=True only")
def test_fields_with_offsets(checked):
    f = qd.field(qd.f32, shape=8, offset=-3)

    @qd.kernel
    def k(i: int):
        f[i] += 1

    for i in (-4, 5):
        text = str(failure(k, i))
        assert re.search(rf"of size \(8\) offset \(-3\) with indices \({i}\)", text)
        assert blocks(text) == [("k", "f[i]")]
    k(-3)
    assert f[-3] == 1


@pytest.mark.oracle_differs("asks for failures with debug=True only")
def test_arrays(checked):
    @qd.kernel
    def k(n: int, x: Grid, i: int):
        x[i, n] = 1

    for array in (np.zeros((3, 4), np.int32), qd.ndarray(qd.i32, (3, 4))):
        for i in (-1, 3):
            text = str(failure(k, 0, array, i))
            assert re.match(
                rf"\n?\[kernel=k_c\d+_\d+\] Out of bound access to ndarray at arg 1 with indices "
                rf"\[{i}, 0\]\n",
                text,
            )
            assert blocks(text) == [("k", "x[i, n]")]


Row = qd.types.ndarray(qd.i32, 1)


@dataclasses.dataclass
class Rows:
    x: Row
    y: Row


@qd.data_oriented
class Holder:
    def __init__(self):
        self.own = qd.ndarray(qd.i32, 2)

    @qd.kernel
    def write_own(self, z: Row, i: int):
        self.own[i] = z[0]


@qd.func
def write_to(w: Row, i):
    total = 0
    for k in range(i):
        total += k * w[0]
    w[i] = total


def kernels_of_arrays():
    """Kernels that write out of bounds, what they are called with (A: an array, R: two), which argument."""

    @qd.kernel
    def member(d: Rows, i: int):
        d.y[i] = 1

    @qd.kernel
    def behind_members(i: int, d: Rows, z: Row):
        z[i] = d.y[0] + d.x[0]

    @qd.kernel
    def behind_an_unused_member(d: Rows, z: Row, i: int):
        z[i] = d.x[0]

    @qd.kernel
    def behind_a_template(t: qd.template(), z: Row, i: int):
        z[i] = t

    @qd.kernel
    def through_a_func(q: Row, z: Row, i: int):
        write_to(z, i)

    @qd.kernel
    def of_two_calls(q: Row, z: Row, i: int):
        for _ in range(2):
            write_to(z, 1)
            write_to(q, i)

    return [
        (member, "R3", "0"),
        (behind_members, "3RA", "3"),
        (behind_an_unused_member, "RA3", "1"),
        (behind_a_template, "7A3", "0"),
        (through_a_func, "AA3", "1"),
        (Holder().write_own, "A3", "2"),
        (of_two_calls, "AA3", "of func write_to"),
    ]


@pytest.mark.oracle_differs("asks for failures with debug=True only")
@pytest.mark.parametrize("at", range(7))
def test_arrays_are_named_by_argument(checked, at):
    array = lambda: qd.ndarray(qd.i32, 2)
    kernel, given, argument = kernels_of_arrays()[at]
    made = {"A": array, "R": lambda: Rows(array(), array())}
    text = str(failure(kernel, *[made[c]() if c in made else int(c) for c in given]))
    assert f"ndarray at arg {argument} with indices [3]" in text


@pytest.mark.oracle_differs("asks for failures with debug=True only")
def test_components(checked):
    @qd.kernel
    def k(i: int) -> int:
        v = qd.Vector([1, 2, 3])
        return v[i]

    text = str(failure(k, 5))
    assert "Out of bound access to a [3] matrix with index [5]" in text
    assert blocks(text) == [("k", "v[i]")]


@pytest.mark.oracle_differs("checks the number of the component only")
def test_axes_of_matrices(checked):
    field = qd.Matrix.field(2, 3, qd.i32, 2)
    array = qd.Matrix.ndarray(2, 3, qd.i32, 2)

    @qd.kernel
    def value(a: Matrices, i: int, j: int) -> int:
        m = qd.Matrix([[1, 2, 3], [4, 5, 6]])
        return (m + 1)[i, j]

    @qd.kernel
    def variable(a: Matrices, i: int, j: int):
        m = qd.Matrix([[1, 2, 3], [4, 5, 6]])
        m[i, j] += 1
        a[0][0, 0] = m[1, 1]

    @qd.kernel
    def of_field(a: Matrices, i: int, j: int):
        field[1][i, j] = 1

    @qd.kernel
    def of_array(a: Matrices, i: int, j: int):
        a[1][i, j] = 1

    subscripts = {value: "(m + 1)[i, j]", variable: "m[i, j]", of_field: "field[1][i, j]"}
    for k in (value, variable, of_field, of_array):
        k(array, 1, 2)
        for i, j in ((0, 3), (1, -1), (-1, 3), (0, 5)):  # of components that exist
            text = str(failure(k, array, i, j))
            assert f"Out of bound access to a [2, 3] matrix with index [{i}, {j}]" in text
            assert blocks(text) == [(k.__name__, subscripts.get(k, "a[1][i, j]"))]
        for i, j in ((2, 0), (1, 3), (-1, 0)):  # and that do not
            text = str(failure(k, array, i, j))
            assert f"Out of bound access to a [2, 3] matrix with index [{3 * i + j}]" in text
        # Their number does not fit 32 bits.
        assert "Out of bound access to a [2, 3] matrix" in str(failure(k, array, (1 << 31) - 1, 0))


@pytest.mark.oracle_differs("checks the number of the component only")
def test_constant_axes_of_matrices(checked):
    @qd.kernel
    def both(i: int) -> int:
        m = qd.Matrix([[1, 2], [3, i]])
        return m[0, 2]

    @qd.kernel
    def one(i: int) -> int:
        m = qd.Matrix([[1, 2], [3, i]])
        return m[i, 2]

    @qd.kernel
    def typed(i: int) -> int:
        m = qd.Matrix([[1, 2], [3, i]])
        return m[qd.u8(0), qd.i64(2)]

    for k in (both, one, typed):
        assert "access to a [2, 2] matrix with index [0, 2]" in str(failure(k, 0))


@pytest.mark.oracle_differs("takes the process down", run=False)
def test_typed_literals_as_components(checked):
    @qd.kernel
    def load(i: int) -> int:
        v = qd.Vector([i, 2, 3])
        return v[qd.i32(5)]

    @qd.kernel
    def store(i: int) -> int:
        v = qd.Vector([i, 2, 3])
        v[qd.i32(5)] = 7
        return v[i]

    for k in (load, store):
        assert "Out of bound access to a [3] matrix with index [5]" in str(failure(k, 0))


@pytest.mark.oracle_differs("names no place")
def test_members_and_subscripts_of_elements(checked):
    v = qd.Vector.field(3, qd.f32, shape=4)
    s = qd.Struct.field({"a": qd.i32, "b": qd.f32}, shape=4)

    @qd.kernel
    def vectors(i: int):
        v[i][1] = 2

    @qd.kernel
    def structs(i: int) -> int:
        return s[i].a

    assert blocks(str(failure(vectors, 4))) == [("vectors", "v[i]")]
    assert blocks(str(failure(structs, 4))) == [("structs", "s[i]")]


def test_powers(backend):
    backend.init(debug=True)

    @qd.kernel
    def k(i: int) -> int:
        return 3 + 2**i

    text = str(failure(k, -1))
    assert text.lstrip().startswith("Negative exponent in pow(int, int) is not allowed.\n")
    assert blocks(text) == [("k", "2**i")]


# --- who called ---------------------------------------------------------------------------------

x = None


@qd.func
def large(i, limit):
    """Large enough to stay a function of its own."""
    total = 0
    for j in range(3):
        for k in qd.static(range(12)):
            if total % (k + 2) == limit:
                total += x[(j + k) % 8] * k
            x[(j * k) % 8] = total - x[(j + 3 * k) % 8]
            while total > 1000 + k:
                total -= limit + k + 1
    assert limit < 5, "limit is %d" % limit  # noqa: UP031
    return total + x[i]


@qd.func
def middle(i, limit):
    first = large(i, limit)
    return first + large(i + 1, limit)


@pytest.fixture
def calls(backend):
    global x
    backend.init(debug=True)
    x = qd.field(qd.i32, shape=64)

    @qd.kernel
    def run(n: int, limit: int):
        for i in range(n):
            middle(i, limit)
            if i > 3:
                middle(i * 20, limit)

    return run


@pytest.mark.oracle_differs("shows the innermost function only")
def test_calls_around_an_access(calls):
    text = str(failure(calls, 5, 1))
    assert "with indices (80)" in text
    assert blocks(text) == [
        ("run", "middle(i * 20, limit)"),
        ("middle", "large(i, limit)"),
        ("large", "x[i]"),
    ]
    text = str(failure(calls, 64, 1))  # the index is the thread's; only the sites are certain
    assert blocks(text)[0][0] == "run" and blocks(text)[-1] == ("large", "x[i]")
    calls(3, 1)


@pytest.mark.oracle_differs("has no notes")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_calls_around_an_assertion(calls):
    e = failure(calls, 1, 6)
    assert str(e) == "limit is 6"
    (note,) = e.__notes__
    assert re.match(r"in kernel run_c\d+_\d+:\n", note)
    assert blocks(note) == [
        ("run", "middle(i, limit)"),
        ("middle", "large(i, limit)"),
        ("large", 'assert limit < 5, "limit is %d" % limit'),
    ]
    assert note in "".join(traceback.format_exception(type(e), e, None))


@pytest.mark.oracle_differs("shows the innermost function only")
def test_both_calls_of_one_function(calls):
    """The second call of a line's function is told apart from the first."""

    @qd.kernel
    def run(i: int):
        middle(i, 1)

    text = str(failure(run, 63))
    assert "with indices (64)" in text
    assert blocks(text) == [
        ("run", "middle(i, 1)"),
        ("middle", "large(i + 1, limit)"),
        ("large", "x[i]"),
    ]


@pytest.mark.oracle_differs("shows the innermost function only")
def test_small_functions(checked):
    f = qd.field(qd.i32, shape=4)

    @qd.func
    def put(i):
        f[i] = 1

    @qd.kernel
    def run(i: int):
        put(i + 1)

    assert blocks(str(failure(run, 3))) == [("run", "put(i + 1)"), ("put", "f[i]")]


@pytest.mark.oracle_differs("shows the innermost function only")
def test_a_long_chain_is_cut(checked):
    f = qd.field(qd.i32, shape=4)

    @qd.real_func
    def down(n: qd.i32) -> qd.i32:
        out = 0
        if n > 0:
            out = down(n - 1) + 1
        else:
            out = f[n - 1]
        return out

    @qd.kernel
    def run(n: int) -> int:
        return down(n)

    text = str(failure(run, 40))
    assert "... 26 more calls ..." in text
    assert blocks(text)[0] == ("run", "down(n)") and blocks(text)[-1] == ("down", "f[n - 1]")


@pytest.mark.oracle_differs("shows the innermost function only")
def test_calls_around_an_overflow(backend, capfd):
    backend.init(debug=True)
    f = qd.field(qd.i32, shape=8)

    @qd.func
    def grow(a):
        for k in range(8):
            for j in qd.static(range(20)):
                if f[k] % (j + 2) == 5:
                    f[k] = j - a % 3
        return a + a

    @qd.func
    def twice(a):
        b = grow(a)
        return grow(b // 2) + 0

    @qd.kernel
    def run(a: int) -> int:
        return twice(a)

    assert run(1 << 30) == -(1 << 31)
    qd.sync()
    said = capfd.readouterr().out
    assert said.count("Addition overflow detected in File") == 1
    found = re.search(
        r", in grow:\n        return a \+ a\n               \^\^\^\^\^\n"
        r'called from File "[^"]+test_debug_mode.py", line (\d+), in twice\n'
        r'called from File "[^"]+test_debug_mode.py", line (\d+), in run\n\n',
        said,
    )
    assert found and int(found[2]) == int(found[1]) + 5


WARM = """
import sys
import quadrants as qd

qd.init(arch=qd.cpu, debug=True, offline_cache_file_path=sys.argv[1])
f = qd.field(qd.i32, shape=4)

@qd.func
def put(i):
    f[i] = 1

@qd.kernel
def run(i: int):
    put(i)

try:
    run(7)
except qd.QuadrantsAssertionError as e:
    print(e)
from quadrants._lib import core
print("compiled", core.counters()["cache_misses"])
"""


@pytest.mark.oracle_differs("counts otherwise")
def test_a_warm_start_says_the_same(tmp_path):
    (tmp_path / "prog.py").write_text(WARM)
    said = [
        subprocess.run(
            [sys.executable, "prog.py", str(tmp_path / "cache")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]
    assert "with indices (7)" in said[0] and "in put:\n    f[i] = 1\n    ^^^^\n" in said[0]
    assert said[0].split("compiled")[0] == said[1].split("compiled")[0]
    assert said[1].rstrip().endswith("compiled 0")


# --- from Python --------------------------------------------------------------------------------


@pytest.mark.oracle_differs("raises the native class alone")
def test_elements_from_python(backend):
    backend.init(debug=True)
    f = qd.field(qd.i32, shape=(4, 5))
    g = qd.field(qd.f32, shape=8, offset=-3)
    with pytest.raises(qd.QuadrantsAssertionError) as e:
        f[4, 0]
    assert re.search(
        r"\(kernel=snode_reader_\d+\) Accessing field \(\S+<i32>\) of size \(4, 5\) "
        r"with indices \(4, 0\)",
        str(e.value),
    )
    with pytest.raises(qd.QuadrantsAssertionError, match=r"\(kernel=snode_writer_\d+\)"):
        f[0, 5] = 1
    with pytest.raises(
        qd.QuadrantsAssertionError, match=r"of size \(8\) offset \(-3\) with indices \(5\)"
    ):
        g[5]
    assert g[4] == 0


# --- crashes ------------------------------------------------------------------------------------

CRASH = """
import ctypes, os, signal, sys
import quadrants as qd

{before}
qd.init(arch=qd.cpu, offline_cache=False, {options})
{after}
if {signal} == signal.SIGSEGV:
    ctypes.string_at(8)
os.kill(os.getpid(), {signal})
"""


def crash(tmp_path, options="debug=True", signal="signal.SIGSEGV", before="", after="", **env):
    (tmp_path / "prog.py").write_text(
        CRASH.format(options=options, signal=signal, before=before, after=after)
    )
    return subprocess.run(
        [sys.executable, "prog.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )


LINE = r"^\[E \d\d/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3} \d+\] \[\S+:\w+@\d+\] Received signal %d \(%s\)$"
SIGNALS = [
    ("SIGSEGV", 11, "Segmentation fault"),
    ("SIGABRT", 6, "Aborted"),
    ("SIGFPE", 8, "Floating point exception"),
    ("SIGBUS", 7, "Bus error"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of signals")
@pytest.mark.oracle_differs("other lines, another end")
@pytest.mark.parametrize("name, number, meaning", SIGNALS)
def test_crashes_are_reported(tmp_path, name, number, meaning):
    before = datetime.datetime.now()
    done = crash(tmp_path, signal=f"signal.{name}")
    assert done.returncode == -number
    line = re.search(LINE % (number, meaning), done.stderr, re.M)
    assert line, done.stderr
    told = datetime.datetime.strptime(line[0][3:20], "%m/%d/%y %H:%M:%S")
    assert before - datetime.timedelta(seconds=1) <= told <= datetime.datetime.now()
    assert re.search(r"^\S+\(.*\) ?\[0x[0-9a-f]+\]$", done.stderr, re.M)
    assert done.stderr.count("Received signal") == 1


@pytest.mark.oracle_differs("handlers stay", run=False)
def test_without_debug_nobody_reports(tmp_path):
    assert crash(tmp_path, "").stderr == ""
    after = "qd.init(arch=qd.cpu, offline_cache=False)"
    done = crash(tmp_path, after=after)
    assert done.stderr == "" and done.returncode == -11


@pytest.mark.oracle_differs("does not", run=False)
def test_the_report_names_the_kernel(tmp_path):
    kernel = """
        @qd.kernel
        def spin():
            while qd.volatile_load(x[0]) == 0:
                pass

        import threading, time, numpy as np
        x = qd.field(qd.i32, shape=1)
        def kill():
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGABRT)
        threading.Thread(target=kill).start()
        spin()
        """
    done = crash(tmp_path, after=textwrap.dedent(kernel))
    assert re.search(r"Received signal 6 \(Aborted\) in kernel spin_c\d+_\d+\n", done.stderr)


@pytest.mark.oracle_differs("drops it", run=False)
def test_faulthandler_still_works(tmp_path):
    done = crash(tmp_path, before="import faulthandler; faulthandler.enable()")
    assert "Received signal 11" in done.stderr
    assert "Fatal Python error: Segmentation fault" in done.stderr and "prog.py" in done.stderr
    assert done.returncode == -11


@pytest.mark.skipif(sys.platform != "linux", reason="gdb_trigger is for Linux")
@pytest.mark.oracle_differs("calls sudo", run=False)
def test_gdb_is_attached(tmp_path):
    gdb = tmp_path / "gdb"
    gdb.write_text('#!/bin/sh\necho "gdb was called with $@, its parent is $PPID"\n')
    gdb.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = crash(tmp_path, "gdb_trigger=True", PATH=path)
    said = re.search(r"gdb was called with -q -p (\d+), its parent is (\d+)", done.stdout)
    assert said and said[1] == said[2] and done.returncode == -11


@pytest.mark.oracle_differs("its type checker ends the process")
def test_wide_indices_of_vectors_are_checked_whole(backend):
    """Cut to 32 bits before the check, 2^32 + 1 was 1."""
    backend.init(debug=True)
    f = qd.Vector.field(4, qd.i32, 3)

    @qd.kernel
    def read(i: qd.i64) -> qd.i32:
        v = qd.Vector([1, 2, 3, 4])
        return v[i]

    @qd.kernel
    def write(i: qd.i64):
        f[1][i] = 7

    for kernel in (read, write):
        kernel(3)
        for i in (2**32 + 1, -(2**32) + 1, 2**63 - 1, 4):
            with pytest.raises(AssertionError, match="Out of bound access"):
                kernel(i)
    assert f.to_numpy().sum() == 7
