"""print, format strings, assert and bounds checks."""

# ruff: noqa: UP031, UP032, F522, F524

import os
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import quadrants as qd
from helpers import Array, module_at, raises


def printed(capfd, kernel, *args):
    qd.sync()
    capfd.readouterr()
    kernel(*args)
    qd.sync()
    return capfd.readouterr().out


def test_print_defaults(backend, capfd):
    @qd.kernel
    def k(n: qd.i32, x: qd.f32, y: qd.f64, u: qd.u64):
        print(n, x, y, u)
        print("a", n > 0, sep="-", end="!\n")
        print()
        print("100% {braces}", 7)
        print(qd.Vector([n, 2]), qd.Matrix([[x, 1.0], [2.0, 3.0]]))
        print([n, 2], (x, "s"))

    assert printed(capfd, k, -3, 1.5, 2.25, 2**63).splitlines() == [
        "-3 1.500000 2.250000000000 9223372036854775808",
        "a-0!",
        "",
        "100% {braces} 7",
        "[-3, 2] [[1.500000, 1.000000], [2.000000, 3.000000]]",
        "[-3, 2] [1.500000, s]",
    ]


def test_format_strings(backend, capfd):
    scale = 3

    @qd.kernel
    def k(n: qd.i32, x: qd.f32, u: qd.u32):
        print(f"n={n} x={x:.2f} s={scale}")
        print(f"{n:05d}|{u:x}|{x:e}|{x:8.3f}|{x = :.1f}")
        print("{} {}".format(n, x))
        print("{1} {0} {k}".format(n, x, k=7))
        print(f"{qd.Vector([x, 2.0]):.1f}")
        print(f"{7:03d}|{1.5:.2}|{2.5:-7.1f}|{3:lld}|{True}|{'a'}|{n:hd}|{u:hhx}|{n:5hhd}")

    assert printed(capfd, k, 42, 1.5, 255).splitlines() == [
        "n=42 x=1.50 s=3",
        "00042|ff|1.500000e+00|   1.500|x = 1.5",
        "42 1.500000",
        "1.500000 42 7",
        "[1.5, 2.0]",
        "007|1.50|2.5    |3|True|a|42|ff|   42",
    ]


def test_f64_shows_twelve_places_under_every_conversion(backend, capfd):
    @qd.kernel
    def k(d: qd.f64, x: qd.f32):
        print(f"{d:e}|{d:E}|{d:f}|{d:g}|{d:+G}|{d:18f}|{d:-12g}|{d:lf}|{d:a}")
        print(f"{d:.3e}|{d:.0f}|{d:.2}|{d:9.1f}")
        print(f"{qd.Vector([d, 1.5]):e}", "{:f}".format(d))
        print(f"{x:e}|{x:f}|{x:g}|{x:12f}|{x:a}")

    assert printed(capfd, k, 1e5 / 3, 1.5).splitlines() == [
        "3.333333333333e+04|3.333333333333E+04|33333.333333333336|33333.3333333|+33333.3333333"
        "|33333.333333333336|33333.3333333|33333.333333333336|0x1.046aaaaaaaabp+15",
        "3.333e+04|33333|33333.33|  33333.3",
        "[3.333333333333e+04, 1.500000000000e+00] 33333.333333333336",
        "1.500000e+00|1.500000|1.5|    1.500000|0x1.8p+0",
    ]


def test_captured_texts_and_vectors(backend, capfd):
    text, v, m = "n = {}", qd.Vector([1.0, 2.5]), qd.Matrix([[1, 2], [3, 4]])

    @qd.kernel
    def k(n: qd.i32):
        print(text.format(n))
        print(f"{v} {v:.1f} {m}")
        print("{:.2f}".format(v))

    assert printed(capfd, k, 3).splitlines() == [
        "n = 3",
        "[1.000000, 2.500000] [1.0, 2.5] [[1, 2], [3, 4]]",
        "[1.00, 2.50]",
    ]


@pytest.mark.oracle_differs("the established package shows the text of an expression")
def test_str_of_a_value_is_a_format_string(backend, capfd):
    @qd.kernel
    def k(n: qd.i32, x: qd.f32):
        print(str(n), "n is " + str(n) + "!", str(qd.Vector([x, 2.0])))
        print(f"<{str(x)}>", str(n) + str(7), "a" + "b" + f"{n}")

    assert printed(capfd, k, 3, 1.5).splitlines() == [
        "3 n is 3! [1.500000, 2.000000]",
        "<1.500000> 37 ab3",
    ]


@pytest.mark.oracle_differs("the established package refuses str() there")
def test_str_of_a_value_as_message(debug_backend):
    @qd.kernel
    def k(n: qd.i32):
        assert n == 0, "n is " + str(n)

    k(0)
    with raises(qd.QuadrantsAssertionError, "n is 5"):
        k(5)


def test_print_order_within_a_serial_loop(backend, capfd):
    @qd.kernel
    def k():
        qd.loop_config(serialize=True)
        for i in range(50):
            print("line", i)

    assert printed(capfd, k).splitlines() == [f"line {i}" for i in range(50)]


@pytest.mark.oracle_differs("the established package decides once per process")
def test_print_through_replaced_stdout(backend):
    import contextlib
    import io

    @qd.kernel
    def k():
        print("captured", 1)

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        k()
        qd.sync()
    assert "captured 1" in text.getvalue()


def test_static_print(backend, capsys):
    @qd.kernel
    def k(f: qd.template()):
        qd.static_print("tracing", f)

    k(5)
    assert "tracing 5" in capsys.readouterr().out


def test_static_print_of_a_mapping(backend, capsys):
    options = {"sep": "-"}

    @qd.kernel
    def k():
        qd.static_print(1, 2, **options, end="!")

    k()
    assert "1-2!" in capsys.readouterr().out


@pytest.mark.parametrize("spec,dt", [(".2d", "f32"), ("f", "i32"), ("d", "u32")])
def test_mismatched_format(backend, spec, dt, tmp_path):

    path = tmp_path / "mismatch.py"
    path.write_text(
        f"import quadrants as qd\n@qd.kernel\ndef k(x: qd.{dt}):\n    print(f'{{x:{spec}}}')\n"
    )
    module = module_at(path, "mismatch")
    with raises(qd.QuadrantsTypeError, f"'{spec}' doesn't match '{dt}'."):
        module.k(1)


def test_format_counts(backend):
    @qd.kernel
    def few(n: qd.i32):
        print("{} {} {}".format(n, n))

    @qd.kernel
    def missing(n: qd.i32):
        print("{k}".format(n=n))

    with raises(
        qd.QuadrantsSyntaxError, "Expected 3 positional argument(s), but received 2 instead"
    ):
        few(1)
    with raises(qd.QuadrantsSyntaxError, "Keyword 'k' not found."):
        missing(1)


def test_print_rejects_structs(backend):
    S = qd.types.struct(a=qd.i32)

    @qd.kernel
    def k():
        print(S(1))

    with pytest.raises(qd.QuadrantsTypeError):
        k()


# --- assert ------------------------------------------------------------------------------------


def test_assert_in_debug(debug_backend):
    @qd.kernel
    def plain(n: qd.i32):
        assert n > 0

    @qd.kernel
    def message(n: qd.i32):
        assert n > 0, "n must be positive"

    @qd.kernel
    def formatted(n: qd.i32, x: qd.f32):
        assert n > 0, f"x[{n}] expect=0 got={n + 1}"
        assert n > 1, "got %d and %d" % (n, 7)

    plain(1), message(1), formatted(2, 0.5)
    with raises(qd.QuadrantsAssertionError, "n > 0"):
        plain(0)
    with raises(qd.QuadrantsAssertionError, "n must be positive"):
        message(-1)
    with raises(qd.QuadrantsAssertionError, "x[-2] expect=0 got=-1"):
        formatted(-2, 0.5)
    with raises(qd.QuadrantsAssertionError, "got 1 and 7"):
        formatted(1, 0.5)
    plain(3)


def test_assert_without_debug(backend):
    n = qd.field(qd.i32, ())

    @qd.func
    def touch():
        n[None] += 1
        return n[None]

    @qd.kernel
    def k():
        assert touch() > 100, "never reported"

    k()
    assert n[None] == 1


def test_assert_message_must_be_formatable(backend):
    @qd.kernel
    def k(n: qd.i32):
        assert n > 0, n

    with raises(qd.QuadrantsSyntaxError, "assert info must be constant or formatted string"):
        k(1)


@pytest.mark.parametrize("message", ["WORDS", "'too ' + 'small'", "str(5)"])
def test_assert_messages_are_written_out(backend, message, tmp_path):
    path = tmp_path / "asserting.py"
    path.write_text(
        f"import quadrants as qd\nWORDS = 'too small'\n\n@qd.kernel\ndef k(n: qd.i32):\n"
        f"    assert n > 0, {message}\n"
    )
    with raises(qd.QuadrantsSyntaxError, "assert info must be constant or formatted string, not"):
        module_at(path).k(1)


# --- bounds ------------------------------------------------------------------------------------


def test_field_bounds(debug_backend):
    f = qd.field(qd.i32, (3, 4))
    o = qd.field(qd.f32, 5, offset=-2)

    @qd.kernel
    def put(i: qd.i32, j: qd.i32):
        f[i, j] = 1

    @qd.kernel
    def shifted(i: qd.i32) -> qd.f32:
        return o[i]

    put(2, 3), shifted(-2), shifted(2)
    for i, j in ((3, 0), (0, 4), (-1, 0)):
        with raises(qd.QuadrantsAssertionError, "Accessing field", "of size (3, 4)",
                    f"with indices ({i}, {j})"):  # fmt: skip
            put(i, j)
    for i in (3, -3):
        with raises(qd.QuadrantsAssertionError, "offset (-2)", f"with indices ({i})"):
            shifted(i)
    put(0, 0)
    assert f[0, 0] == 1 and f[2, 3] == 1


@pytest.mark.oracle_differs("has no interpreter")
@pytest.mark.of_cpus("the interpreter writes to the array itself")
@pytest.mark.parametrize("debug", [False, True])
def test_the_interpreter_checks_bounds_in_debug_mode_alone(backend, debug, monkeypatch):
    monkeypatch.setenv("QD_CPU_TIER", "interpret")
    backend.init(debug=debug, offline_cache=False)
    a = np.zeros(6, np.int32)

    @qd.kernel
    def put(a: Array, i: qd.i32):
        a[i] = 1

    put(a[:4], 3)
    if debug:
        with pytest.raises(qd.QuadrantsAssertionError):
            put(a[:4], 4)
    else:
        put(a[:4], 4)
    assert a.tolist() == [0, 0, 0, 1, int(not debug), 0]


def test_array_bounds(debug_backend):
    @qd.kernel
    def put(a: Array, i: qd.i32):
        a[i] = 1

    a, b = np.zeros(4, np.int32), qd.ndarray(qd.i32, 4)
    for x in (a, b):
        put(x, 3)
        for i in (4, -1):
            with raises(qd.QuadrantsAssertionError,
                        f"Out of bound access to ndarray at arg 0 with indices [{i}]"):  # fmt: skip
                put(x, i)
    assert a.tolist() == [0, 0, 0, 1]


def test_matrix_bounds(debug_backend):
    @qd.kernel
    def k(i: qd.i32) -> qd.i32:
        v = qd.Vector([1, 2, 3])
        return v[i]

    assert k(2) == 3
    with raises(qd.QuadrantsAssertionError, "Out of bound access to a [3] matrix with index [5]"):
        k(5)


def test_bounds_name_the_place(debug_backend):
    f = qd.field(qd.i32, 3)

    @qd.kernel
    def guilty(i: qd.i32):
        f[i] = 1

    with raises(qd.QuadrantsAssertionError, "guilty", "test_output.py", "f[i] = 1"):
        guilty(7)


@pytest.mark.oracle_differs("the established package forgets to poll without debug")
def test_bounds_without_debug(backend):
    backend.init(check_out_of_bound=True)
    f = qd.field(qd.i32, 3)

    @qd.kernel
    def k(i: qd.i32):
        f[i] = 1

    with raises(qd.QuadrantsAssertionError, "with indices (7)"):
        k(7)


def test_host_bounds_in_debug(debug_backend):
    f = qd.field(qd.i32, 3)
    f[2] = 1
    with raises(AssertionError, "of size (3)", "with indices (5)"):
        f[5] = 1


def test_runtime_usable_after_a_failure_in_a_parallel_loop(debug_backend):
    f = qd.field(qd.i32, 100)

    @qd.kernel
    def k(limit: qd.i32):
        for i in range(200):
            if i < limit:
                f[i] = i

    with pytest.raises(qd.QuadrantsAssertionError):
        k(200)
    k(100)
    assert f.to_numpy().tolist() == list(range(100))


@pytest.mark.parametrize("op", ["Addition", "Subtraction", "Multiplication"])
def test_overflow_reports(debug_backend, capfd, op):
    @qd.kernel
    def k(a: qd.i32, b: qd.i32) -> qd.i32:
        r = 0
        if qd.static(op == "Addition"):
            r = a + b
        elif qd.static(op == "Subtraction"):
            r = -a - b - 2
        else:
            r = a * b
        return r

    out = printed(capfd, k, 2**31 - 1, 2**31 - 1)
    assert f"{op} overflow detected in" in out
    assert "overflow" not in printed(capfd, k, 3, 4)


LINES = """
import os
import quadrants as qd

qd.init(qd.cpu, log_level="error")

@qd.kernel
def k(n: qd.i32):
    for i in range(n):
        print("line", i, "of many that do not fit into a pipe at once")

os.set_blocking(1, False)
k(4000)
"""


def test_a_full_pipe_that_does_not_block(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LINES)
    run = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE)
    assert run.stdout is not None
    text = b""
    while part := os.read(run.stdout.fileno(), 1 << 16):
        text += part
        time.sleep(0.01)
    assert run.wait(60) == 0
    assert text.count(b"line ") == 4000


def test_a_pipe_that_nobody_reads(tmp_path):
    """What cannot be written is dropped."""
    program = tmp_path / "program.py"
    closed = "r, w = os.pipe(); os.dup2(w, 1); os.close(w); os.close(r)"
    program.write_text(LINES.replace("os.set_blocking(1, False)", closed))
    done = subprocess.run([sys.executable, program], capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_print_keeps_the_stdout_that_it_writes_to(tmp_path):
    """Another thread, or Python that runs amid it, may put another in its place."""
    program = tmp_path / "swapped.py"
    program.write_text(
        textwrap.dedent("""
        import io, sys
        import quadrants as qd
        from quadrants import _logging

        said = []

        class Screen(io.TextIOBase):
            def write(self, text):
                said.append(text)
                return len(text)

        def info(text):
            sys.stdout = sys.__stdout__

        @qd.kernel
        def k():
            print("hello")

        qd.init(arch=qd.cpu, offline_cache=False)
        _logging.info = info
        sys.stdout = Screen()
        k()
        assert sys.stdout is sys.__stdout__ and "hello" in "".join(said), said
        print("end")
        """)
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONMALLOC": "debug"},  # what is freed is overwritten
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.endswith("end\n"), done.stderr[-2000:]


PRINTING = """
import threading
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error")
@qd.kernel
def tell(t: qd.i32):
    for i in range(3000):
        print("T", t, "I", i, "E")
threads = [threading.Thread(target=tell, args=(t,)) for t in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
"""


def test_lines_of_threads_stay_whole_in_a_pipe(tmp_path):
    (tmp_path / "prog.py").write_text(PRINTING)
    reader = subprocess.Popen([sys.executable, tmp_path / "prog.py"], stdout=subprocess.PIPE)
    text = b""
    while piece := os.read(reader.stdout.fileno(), 3000):  # slowly, so that the pipe is full
        time.sleep(0.001)
        text += piece
    assert reader.wait() == 0
    lines = [line for line in text.decode().splitlines() if line.startswith("T")]
    assert sorted(lines) == sorted(f"T {t} I {i} E" for t in range(4) for i in range(3000))


def test_many_values_in_one_print(backend, capfd):
    @qd.kernel
    def k(x: qd.template()):
        print(x[None])

    x = qd.Matrix.field(10, 10, qd.i32, shape=())
    values = np.arange(100).reshape(10, 10) - 50
    x.from_numpy(values.astype(np.int32))
    k(x)
    qd.sync()
    assert [
        int(v) for v in re.findall(r"-?[0-9]+", capfd.readouterr().out)
    ] == values.ravel().tolist()
