"""Where errors point: file, line, carets, the chain of calls; and that the process goes on."""

import textwrap

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at


def load(tmp_path, source, name="snippet"):
    path = tmp_path / f"{name}.py"
    path.write_text("import quadrants as qd\n" + textwrap.dedent(source).lstrip("\n"))
    module = module_at(path, name)
    return module, str(path)


def blocks(error):
    """The location blocks of a compile error and what follows them."""
    text = str(error)
    assert text == error.args[0]
    assert text.startswith("\n") and "quadrants stack trace:" in text
    return text.split("Your code:\n", 1)[1]


def frame(path, line, function, code):
    return f'File "{path}", line {line}, in {function}:\n' + code


def test_caret_of_an_undefined_name(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        @qd.kernel
        def foo():
            a = 1 + zz * 2
        """,
    )
    with pytest.raises(qd.QuadrantsNameError) as e:
        m.foo()
    assert frame(path, 4, "foo", "    a = 1 + zz * 2\n            ^^\n") in blocks(e.value)
    assert 'Name "zz" is not defined' in str(e.value)


def test_caret_of_an_undefined_callee(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        @qd.kernel
        def foo():
            if True:
                bar(3)
        """,
    )
    with pytest.raises(qd.QuadrantsNameError) as e:
        m.foo()
    assert frame(path, 5, "foo", "        bar(3)\n        ^^^\n") in blocks(e.value)


def test_frames_from_kernel_to_innermost_func(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        @qd.func
        def inner(x):
            return x + zz

        @qd.func
        def outer(x):
            return inner(x) + 1

        @qd.kernel
        def foo(n: qd.i32):
            y = outer(n)
        """,
    )
    with pytest.raises(qd.QuadrantsNameError) as e:
        m.foo(1)
    text = blocks(e.value)
    places = [
        frame(path, 12, "foo", "    y = outer(n)\n        ^^^^^^^^\n"),
        frame(path, 8, "outer", "    return inner(x) + 1\n           ^^^^^^^^\n"),
        frame(path, 4, "inner", "    return x + zz\n               ^^\n"),
    ]
    for place in places:
        assert place in text
    assert 'Name "zz" is not defined' in text


@pytest.mark.oracle_differs("the established package nests one message in another")
def test_order_of_frames(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        @qd.func
        def inner(x):
            return x + zz

        @qd.func
        def outer(x):
            return inner(x) + 1

        @qd.kernel
        def foo(n: qd.i32):
            y = outer(n)
        """,
    )
    with pytest.raises(qd.QuadrantsNameError) as e:
        m.foo(1)
    text = blocks(e.value)
    places = [
        frame(path, 12, "foo", "    y = outer(n)\n        ^^^^^^^^\n"),
        frame(path, 8, "outer", "    return inner(x) + 1\n           ^^^^^^^^\n"),
        frame(path, 4, "inner", "    return x + zz\n               ^^\n"),
    ]
    found = [text.find(p) for p in places]
    assert -1 not in found and found == sorted(found), text
    assert text.find('Name "zz" is not defined') > found[-1]


def test_a_compound_statement_shows_its_header(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        @qd.kernel
        def foo():
            for i in range(0, 9, 3):
                pass
        """,
    )
    with pytest.raises(qd.QuadrantsSyntaxError) as e:
        m.foo()
    code = "    for i in range(0, 9, 3):\n    ^^^^^^^^^^^^^^^^^^^^^^^^\n"
    assert frame(path, 4, "foo", code) in blocks(e.value)


def test_expression_over_several_lines(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        @qd.kernel
        def foo(n: qd.i32):
            a = qd.floor(
                n
                + 1
            )
        """,
    )
    with pytest.raises(qd.QuadrantsTypeError) as e:
        m.foo(1)
    text = blocks(e.value)
    assert f'File "{path}", line 4, in foo:\n' in text
    assert (
        "    a = qd.floor(\n        ^^^^^^^^^\n        n\n        ^\n        + 1\n        ^^^\n"
        in text
    )


@pytest.mark.oracle_differs("the established package drops the second piece")
def test_carets_over_two_pieces_of_a_long_line(backend, tmp_path):
    call = "qd.floor(" + " + ".join("n" for _ in range(30)) + ")"
    m, path = load(
        tmp_path,
        f"""
        @qd.kernel
        def foo(n: qd.i32):
            a = {call}
        """,
    )
    with pytest.raises(qd.QuadrantsTypeError) as e:
        m.foo(1)
    line, carets = f"    a = {call}", " " * 8 + "^" * len(call)
    expect = line[:80] + "\n" + carets[:80] + "\n" + line[80:] + "\n" + carets[80:] + "\n"
    assert expect in blocks(e.value)


@pytest.mark.oracle_differs("the established package drops the piece that the carets are under")
def test_long_lines_wrap_with_their_carets(backend, tmp_path):
    names = " + ".join("n" for _ in range(30))
    m, path = load(
        tmp_path,
        f"""
        @qd.kernel
        def foo(n: qd.i32):
            a = {names} + missing_name_here
        """,
    )
    with pytest.raises(qd.QuadrantsNameError) as e:
        m.foo(1)
    line = f"    a = {names} + missing_name_here"
    at = line.index("missing")
    pieces = [line[i : i + 80] for i in range(0, len(line), 80)]
    carets = " " * at + "^" * len("missing_name_here")
    marks = [carets[i : i + 80] for i in range(0, len(line), 80)]
    text = blocks(e.value)
    for piece, mark in zip(pieces, marks):
        assert piece.rstrip() in text
        if "^" in mark:
            assert piece + "\n" + mark.rstrip() + "\n" in text


def test_tabs_expand_to_four_columns(backend, tmp_path):
    path = tmp_path / "tabbed.py"
    path.write_text("import quadrants as qd\n@qd.kernel\ndef foo():\n\ta = zz\n")
    m = module_at(path, "tabbed")
    with pytest.raises(qd.QuadrantsNameError) as e:
        m.foo()
    assert "    a = zz\n        ^^\n" in blocks(e.value)


def test_foreign_exceptions_are_wrapped(backend, tmp_path):
    m, path = load(
        tmp_path,
        """
        def helper(n):
            raise ValueError("from the helper")

        @qd.kernel
        def foo():
            for i in qd.static(helper(3)):
                pass
        """,
    )
    with pytest.raises(qd.QuadrantsCompilationError) as e:
        m.foo()
    assert "from the helper" in str(e.value) and "line 7, in foo" in str(e.value)


def test_what_is_no_dtype_is_a_value_error(backend):
    @qd.kernel
    def foo():
        x = qd.cast(1, "f32")

    with pytest.raises(qd.QuadrantsCompilationError, match="ValueError: Invalid data type f32"):
        foo()
    backend.init(print_full_traceback=True)
    with pytest.raises(ValueError, match="Invalid data type f32"):
        foo()


def test_full_traceback_keeps_the_class(backend, tmp_path):
    backend.init(print_full_traceback=True)
    m, _ = load(
        tmp_path,
        """
        def helper(n):
            raise KeyError("from the helper")

        @qd.kernel
        def foo():
            for i in qd.static(helper(3)):
                pass

        @qd.kernel
        def bar():
            a = zz
        """,
    )
    with pytest.raises(KeyError):
        m.foo()
    with pytest.raises(NameError, match='Name "zz" is not defined'):
        m.bar()


def test_bool_and_string_misuse(backend, tmp_path):
    m, _ = load(
        tmp_path,
        """
        @qd.kernel
        def string_variable():
            a = "text"

        @qd.kernel
        def dict_key(n: qd.i32):
            d = {"a": n}
            b = d["c"]
        """,
    )
    with pytest.raises(qd.QuadrantsTypeError, match="Invalid constant scalar data type"):
        m.string_variable()
    with pytest.raises(qd.QuadrantsCompilationError, match="KeyError"):
        m.dict_key(1)


def test_errors_leave_the_kernel_usable(backend):
    switch = {"bad": True}

    @qd.kernel
    def k(a: qd.types.NDArray):
        if qd.static(switch["bad"]):
            b = a[0, 0, 0, 0] + nothing  # noqa: F821
        for i in a:
            a[i] += 1

    a = np.zeros(3, np.int32)
    for _ in range(2):
        with pytest.raises(qd.QuadrantsCompilationError):
            k(a)
    switch["bad"] = False
    k(a)
    assert a.tolist() == [1, 1, 1]


def test_file_changed_after_import(backend, tmp_path):
    """Either the text of the import time is used, or an error says so; never garbage."""
    m, path = load(
        tmp_path,
        """
        @qd.kernel
        def foo() -> qd.i32:
            return 1
        """,
    )
    with open(path, "w") as f:
        f.write("# nothing\n" * 3)
    try:
        assert m.foo() == 1
    except Exception as e:
        assert not isinstance(e, (SystemError, AssertionError))


def test_hierarchy():
    assert issubclass(qd.QuadrantsSyntaxError, (qd.QuadrantsCompilationError, SyntaxError))
    for cls, base in [
        (qd.QuadrantsSyntaxError, SyntaxError),
        (qd.QuadrantsNameError, NameError),
        (qd.QuadrantsTypeError, TypeError),
    ]:
        assert issubclass(cls, qd.QuadrantsCompilationError) and issubclass(cls, base)
    assert issubclass(qd.QuadrantsRuntimeError, RuntimeError)
    assert issubclass(qd.QuadrantsRuntimeTypeError, (qd.QuadrantsRuntimeError, TypeError))
    assert issubclass(qd.QuadrantsAssertionError, qd.QuadrantsRuntimeError)
    assert issubclass(qd.QuadrantsAssertionError, AssertionError)
    assert not issubclass(qd.QuadrantsCompilationError, RuntimeError)


def test_decorator_order():
    import functools

    def other(f):
        @functools.wraps(f)
        def inner(*args):
            return f(*args)

        return inner

    with pytest.raises(qd.QuadrantsSyntaxError, match="KERNEL_ANNOTATION_ORDER"):

        @qd.kernel
        @other
        def k():
            pass


def _without_first(v):
    del v[0]
    return v


@pytest.mark.oracle_differs("a keyword that is no text ends the process there")
def test_names_and_deletions_that_cannot_be(backend):
    @qd.kernel
    def run() -> qd.f32:
        return _without_first(qd.Vector([1.0, 2.0]))[0]

    with pytest.raises(qd.QuadrantsSyntaxError, match="Unexpected argument"):
        run(**{"\ud800": 1})
    with pytest.raises(qd.QuadrantsSyntaxError, match="cannot be deleted"):
        run()


def test_library_code_is_not_shown(backend):
    """The user's call is; and what private names there are is nobody's advice."""
    x = qd.field(qd.f32)
    qd.root.bitmasked(qd.i, 4).place(x)

    @qd.kernel
    def of_number() -> qd.f32:
        u, s, v = qd.svd(x[0])
        return s[0, 0]

    @qd.kernel
    def of_field():
        qd.activate(x, [0])

    @qd.kernel
    def of_node():
        x.parent().append(1)

    said = []
    for kernel, code in ((of_number, "qd.svd(x[0])"), (of_field, "qd.activate(x, [0])")):
        with pytest.raises((qd.QuadrantsCompilationError, qd.QuadrantsRuntimeError)) as caught:
            kernel()
        said.append(str(caught.value))
        assert code in said[-1] and "_library" not in said[-1] and "File" in said[-1], said[-1]
    assert "of the package: see which arguments it takes" in said[0]
    with pytest.raises(qd.QuadrantsCompilationError) as caught:
        of_node()
    assert "did you mean '_" not in str(caught.value)


def test_perf_dispatch_takes_functions():
    with pytest.raises(TypeError, match="takes functions and kernels"):

        @qd.perf_dispatch(get_geometry_hash=lambda *a: 0)
        class Wave:
            pass


def test_functions_without_arguments(backend):
    @qd.kernel
    def thread() -> qd.i32:
        return qd.global_thread_idx(1)

    @qd.kernel
    def clock() -> qd.i64:
        return qd.clock_counter(x=1)

    for kernel in (thread, clock):
        with pytest.raises(qd.QuadrantsTypeError, match="takes no arguments"):
            kernel()


def test_calls_that_python_refuses_with_whole_tracebacks(backend):
    """They are QuadrantsTypeErrors there too; what a helper itself raises is its own."""
    backend.init(print_full_traceback=True)
    field = qd.field(qd.i32, 4)

    def helper(a):
        return a

    def raiser():
        raise TypeError("of the helper")

    @qd.kernel
    def k(which: qd.template()):
        if qd.static(which == 0):
            field(3)
        elif qd.static(which == 1):
            helper(1, 2)
        elif qd.static(which == 2):
            abs("a")
        else:
            raiser()

    for which, text in enumerate(
        ["`field`: 'ScalarField' object", "`helper`", "`abs`: bad operand"]
    ):
        with pytest.raises(qd.QuadrantsTypeError, match=f"TypeError when calling {text}"):
            k(which)
    with pytest.raises(TypeError, match="of the helper") as e:
        k(3)
    assert type(e.value) is TypeError
