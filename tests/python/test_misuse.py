"""Mistakes that must end in an error: no crash, no hang, no symbolic value in the user's objects.

A row is a program. It runs in a process of its own, because what it shows once took the process
down or poisoned it.
"""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import quadrants as qd

HERE = pathlib.Path(__file__).parent

# What the programs share.
HEAD = """\
a = qd.field(qd.i32, 4)
kept = []

def keep(x):
    kept.append(x)
    return x

@qd.kernel
def k(n: qd.i32):
    keep(n + 1)
"""


@pytest.fixture(scope="module")
def server():
    environment = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONWARNINGS="ignore")
    with subprocess.Popen(
        [sys.executable, HERE / "fork_server.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=HERE,
    ) as process:  # fmt: skip
        yield process
        process.stdin.close()


def run(server, tmp_path, program, head=HEAD):
    path = tmp_path / "program.py"
    path.write_text(head + textwrap.dedent(program))
    server.stdin.write(f"{path}\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def check(end, cls, fragments):
    assert end["end"] == "raised", end
    assert end["class"] == cls, end
    for fragment in fragments.split("…"):
        assert fragment in end["text"], end


# --- symbolic values that outlive their place ---------------------------------------------------

OUTSIDE = "A value of a kernel is used in Python, outside of kernels"
ANOTHER = "A value of a kernel is used in the compilation of another one"
REACH = "A value is used outside of the function, branch or loop that computes it"
COMPILATION = "QuadrantsCompilationError"

KEPT = {
    "added": ("k(1); kept[0] + 1", COMPILATION, OUTSIDE),
    "added_right": ("k(1); 1 + kept[0]", COMPILATION, OUTSIDE),
    "negated": ("k(1); -kept[0]", COMPILATION, OUTSIDE),
    "compared": ("k(1); kept[0] == 1", COMPILATION, OUTSIDE),
    "ordered": ("k(1); sorted([kept[0], 1])", COMPILATION, OUTSIDE),
    "attribute": ("k(1); kept[0].x", COMPILATION, OUTSIDE),
    "indexed": ("k(1); kept[0][0]", COMPILATION, OUTSIDE),
    "stored_to": ("k(1); kept[0][0] = 1", COMPILATION, OUTSIDE),
    "length": ("k(1); len(kept[0])", COMPILATION, OUTSIDE),
    "iterated": ("k(1); list(kept[0])", COMPILATION, OUTSIDE),
    "absolute": ("k(1); abs(kept[0])", "AssertionError", "cannot be called in Python-scope"),
    "function": ("k(1); qd.sin(kept[0])", "AssertionError", "cannot be called in Python-scope"),
    "float": ("k(1); float(kept[0])", "TypeError", "must be a string or a real number"),
    "truth": ("k(1)\nif kept[0]: pass", "TypeError", "cannot decide a Python branch"),
    "pickle": ("import pickle; k(1); pickle.dumps(kept[0])", "TypeError", "cannot pickle"),
    "copy": ("import copy; k(1); copy.deepcopy(kept)", "TypeError", "cannot pickle"),
    "numpy": ("k(1); np.array(kept) + 1", COMPILATION, OUTSIDE),
    "field": ("k(1); a[0] = kept[0]", "TypeError", ""),
    "fill": ("k(1); a.fill(kept[0])", "QuadrantsTypeError", "a number is expected"),
    "index": ("k(1); a[kept[0]]", "TypeError", ""),
    "argument": ("k(1); k(kept[0])", "QuadrantsRuntimeTypeError", "cannot be converted"),
    "vector": ("k(1); qd.Vector([kept[0], 1])", "AssertionError", "in Python-scope"),
    "shape": ("k(1); qd.field(qd.i32, kept[0])", COMPILATION, OUTSIDE),
    "captured": (
        "k(1)\n@qd.kernel\ndef m():\n    a[0] = kept[0]\nm()", COMPILATION, ANOTHER + "…a[0] = kept[0]",
    ),
    "captured_index": (
        "k(1)\n@qd.kernel\ndef m():\n    a[kept[0]] = 1\nm()", COMPILATION, ANOTHER,
    ),
    "captured_bound": (
        "k(1)\n@qd.kernel\ndef m():\n    for i in range(kept[0]): a[0] = i\nm()",
        COMPILATION, ANOTHER,
    ),
    "captured_condition": (
        "k(1)\n@qd.kernel\ndef m():\n    if kept[0]: a[0] = 1\nm()", COMPILATION, ANOTHER,
    ),
    "captured_argument": (
        "k(1)\n@qd.func\ndef f(x): return x + 1\n@qd.kernel\ndef m(): a[0] = f(kept[0])\nm()",
        COMPILATION, ANOTHER,
    ),
    "captured_target": (
        "k(1)\n@qd.kernel\ndef m():\n    kept[0] += 1\nm()", "QuadrantsSyntaxError", "",
    ),
    "captured_print": ("k(1)\n@qd.kernel\ndef m():\n    print(kept[0])\nm()", COMPILATION, ANOTHER),
    "captured_format": (
        "k(1)\n@qd.kernel\ndef m():\n    print(f'{kept[0]}')\nm()", COMPILATION, ANOTHER,
    ),
    "captured_return": (
        "k(1)\n@qd.kernel\ndef m() -> qd.i32:\n    return kept[0]\nm()", COMPILATION, ANOTHER,
    ),
    "setdefault": (
        """
        memory = {}
        @qd.kernel
        def m(n: qd.i32):
            a[0] = memory.setdefault("n", n)
        @qd.kernel
        def again(n: qd.i32):
            a[1] = memory.setdefault("n", n)
        m(1)
        again(2)
        """,
        COMPILATION, ANOTHER,
    ),
    "attribute_of_an_object": (
        """
        class O: pass
        def put(x): O.x = x
        @qd.kernel
        def m(n: qd.i32):
            put(n)
        @qd.kernel
        def again():
            a[1] = O.x
        m(1)
        again()
        """,
        COMPILATION, ANOTHER,
    ),
    "struct": (
        """
        S = qd.types.struct(x=qd.i32)
        @qd.kernel
        def m(n: qd.i32):
            keep(S(x=n))
        m(1)
        kept[0].x + 1
        """,
        COMPILATION, OUTSIDE,
    ),
    "array": (
        """
        @qd.kernel
        def m(n: qd.types.ndarray()):
            keep(n)
        m(np.zeros(3, np.int32))
        kept[0][1]
        """,
        COMPILATION, OUTSIDE,
    ),
    "array_in_another": (
        """
        @qd.kernel
        def m(n: qd.types.ndarray()):
            keep(n)
        @qd.kernel
        def again():
            a[0] = kept[0][1]
        m(np.zeros(3, np.int32))
        again()
        """,
        COMPILATION, ANOTHER,
    ),
    "exception": (
        """
        def fail(x): raise keep(ValueError(x))
        @qd.kernel
        def m(n: qd.i32):
            fail(n)
        try:
            m(1)
        except Exception:
            kept[0].args[0] + 1
        """,
        COMPILATION, OUTSIDE,
    ),
    "thread": (
        """
        import threading
        seen = []
        def other(x):
            try:
                x + 1
            except Exception as e:
                seen.append(e)
        def helper(x):
            t = threading.Thread(target=other, args=(x,))
            t.start()
            t.join()
        k(1)
        t = threading.Thread(target=other, args=(kept[0],))
        t.start()
        t.join()
        raise seen[0]
        """,
        COMPILATION, OUTSIDE,
    ),
    "loop": (
        """
        @qd.kernel
        def m(n: qd.i32):
            for i in range(n):
                keep(i + 1)
            a[0] = kept[0]
        m(1)
        """,
        COMPILATION, REACH + "…a[0] = kept[0]",
    ),
    "branch": (
        """
        @qd.kernel
        def m(n: qd.i32):
            if n > 0:
                keep(n + 1)
            a[0] = kept[0]
        m(1)
        """,
        COMPILATION, REACH,
    ),
    "other_branch": (
        """
        @qd.kernel
        def m(n: qd.i32):
            if n > 0:
                keep(n + 1)
            else:
                a[0] = kept[0]
        m(1)
        """,
        COMPILATION, REACH,
    ),
    "func": (
        """
        @qd.func
        def f(): return kept[0] + 1
        @qd.kernel
        def m(n: qd.i32):
            keep(n + 1)
            a[0] = f()
        m(1)
        """,
        COMPILATION, REACH,
    ),
    "of_a_func": (
        """
        @qd.func
        def f(n): keep(n + 1)
        @qd.kernel
        def m(n: qd.i32):
            for _ in range(n):
                f(n)
            a[0] = kept[0]
        m(1)
        """,
        COMPILATION, REACH,
    ),
    "variable_of_a_loop": (
        """
        @qd.kernel
        def m(n: qd.i32):
            for i in range(n):
                x = i
                x += 1
                kept.append(x)
            a[0] = kept[0]
        m(1)
        """,
        COMPILATION, REACH,
    ),
}  # fmt: skip


@pytest.mark.oracle_differs("it crashes, or goes on with values of another kernel", run=False)
@pytest.mark.parametrize("name", KEPT)
def test_kept_value(server, tmp_path, name):
    program, cls, fragments = KEPT[name]
    check(run(server, tmp_path, program), cls, fragments)


def test_kept_value_can_be_looked_at(server, tmp_path):
    end = run(
        server, tmp_path, "k(1); print(kept, {kept[0]: 1}, kept[0] is kept[0], kept.index(kept[0]))"
    )
    assert end["end"] == "ok", end
    assert "a kernel that is compiled" in end["printed"]


def test_kept_value_in_reach_is_a_value(server, tmp_path):
    program = """
    @qd.kernel
    def m(n: qd.i32):
        keep(n + 1)
        for i in range(n):
            a[i] = kept[0] * 2
    m(3)
    print(a.to_numpy().tolist())
    """
    assert run(server, tmp_path, program)["printed"] == "[8, 8, 8, 0]\n"


# --- stores into Python's objects ----------------------------------------------------------------

STORES = {
    "list": ("G = [1, 2]", "G[0]", "G == [1, 2]"),
    "nested": ("G = [[1], 2]", "G[0][0]", "G == [[1], 2]"),
    "dict": ("G = {'a': 1}", "G['a']", "G == {'a': 1}"),
    "attribute": ("class G: x = 1", "G.x", "G.x == 1"),
    "numpy": ("G = np.zeros(2)", "G[0]", "(G == 0).all()"),
    "list_of_an_object": ("class G: x = [1]", "G.x[0]", "G.x == [1]"),
}


@pytest.mark.parametrize("value", ["7", "i"])
@pytest.mark.parametrize("name", STORES)
def test_store_to_a_captured_object(server, tmp_path, name, value):
    declaration, target, unchanged = STORES[name]
    program = f"""
{declaration}
@qd.kernel
def m():
    for i in range(3):
        {target} = {value}
try:
    m()
finally:
    assert {unchanged}
"""
    check(
        run(server, tmp_path, program),
        "QuadrantsSyntaxError",
        f"Variable '{target}' cannot be assigned",
    )


def test_store_to_a_captured_list_through_a_static_name(server, tmp_path):
    program = """
    G = [1, 2]
    @qd.kernel
    def m():
        x = qd.static([G])
        x[0][0] = 5
    try:
        m()
    finally:
        assert G == [1, 2]
    """
    check(
        run(server, tmp_path, program),
        "QuadrantsSyntaxError",
        "Variable 'x[0][0]' cannot be assigned",
    )


def test_store_to_a_list_of_the_kernel(server, tmp_path):
    program = """
    G = [[1, 2], 3]
    @qd.func
    def f(x):
        x[0] = 7
        return x[0]
    @qd.kernel
    def m():
        x = G
        for i in range(3):
            x[0][1] = i
            a[i] = x[0][1]
        y = [j for j in range(3)]
        y[1] = 8
        a[3] = f(y) + y[1]
    m()
    print(a.to_numpy().tolist(), G)
    """
    assert run(server, tmp_path, program)["printed"] == "[0, 1, 2, 15] [[1, 2], 3]\n"


# --- truth of containers that hold run-time values -----------------------------------------------

TRUTHS = {
    "(i, 2) and 1": [1, 1, 1],
    "() or i": [0, 1, 2],
    "{'p': i} and i": [0, 1, 2],
    "a.shape and 5": [5, 5, 5],
    "(i,) and (i, 3) and 4": [4, 4, 4],
    "4 if (i, 2) else 5": [4, 4, 4],
    "4 if {'p': i} else 5": [4, 4, 4],
    "4 if [] else 5": [5, 5, 5],
    "[i] or 2": "cannot assign '[Tensor (1) i32]' to 'i32'",
    "{'p': i} or 1": "Invalid constant scalar data type: <class 'dict'>",
    "not {'p': i}": "Invalid constant scalar data type: <class 'dict'>",
    "i and {'p': i}": "Invalid constant scalar data type: <class 'dict'>",
    "S(x=i) and 1": "Invalid constant scalar data type",
    "1 and S(x=i)": "cannot assign a struct to 'i32'",
    "1 if S(x=i) else 2": "Invalid constant scalar data type",
    "not S(x=i)": "Invalid constant scalar data type",
    "i or S(x=i)": "Invalid constant scalar data type",
}


@pytest.mark.parametrize("expression", TRUTHS)
def test_truth_of_a_container(server, tmp_path, expression):
    program = f"""
    S = qd.types.struct(x=qd.i32)
    @qd.kernel
    def m():
        for i in range(3):
            a[i] = {expression}
    m()
    print(a.to_numpy().tolist()[:3])
    """
    wanted = TRUTHS[expression]
    end = run(server, tmp_path, program)
    if isinstance(wanted, list):
        assert end["end"] == "ok" and end["printed"] == f"{wanted}\n", end
    else:
        check(end, "QuadrantsTypeError", wanted)


STATEMENTS = [
    "if C: a[i] = 1",
    "while C: a[i] = 1",
    "assert C",
    "assert C, C",
    "x = [j for j in qd.static(range(3)) if C]",
    "a[i] = any([C, 0])",
    "a[i] = bool(C)",
    "a[i] = 1 in C",
    "a[i] = C in (1, 2)",
    "a[i] = C == C",
    "a[i] = C is C",
    "a[i] = qd.select(C, 1, 2)",
    "a[i] = qd.static(C) and 1",
    "a[i] = 1 if qd.static(C) else 2",
    "for j in range(C): a[i] = 1",
    "for j in qd.static(range(C)): a[i] = 1",
    "a[i] = min(C, 1)",
    "a[i] += C",
    "a[C] = 1",
    "print(C, '{}'.format(C))",
]


@pytest.mark.parametrize(
    "container", ["(i, 2)", "[i]", "{'p': i}", "S(x=i)", "a.shape", "(i, 2)[:1]"]
)
def test_container_in_a_statement(server, tmp_path, container):
    """None of these crashes; most are refused."""
    program = "S = qd.types.struct(x=qd.i32)\nlast = None\n"
    for n, statement in enumerate(STATEMENTS):
        program += f"""
@qd.kernel
def m{n}():
    for i in range(1):
        {statement.replace("C", container)}
sys.stderr.write({statement!r})
try:
    qd._lib.core._lower_to_text(m{n})
except Exception as e:
    assert "internal error" not in str(e), e
"""
    end = run(server, tmp_path, program)
    assert end["end"] == "ok", end


# --- functions without end -----------------------------------------------------------------------

RECURSIONS = {
    "last": """
        @qd.real_func
        def f(n: qd.i32) -> qd.i32:
            return f(n + 1)
        """,
    "twice": """
        @qd.real_func
        def f(n: qd.i32) -> qd.i32:
            return f(n + 1) + 3 * f(n + 2)
        """,
    "mutual": """
        @qd.real_func
        def f(n: qd.i32) -> qd.i32:
            return 1 + g(n + 1)
        @qd.real_func
        def g(n: qd.i32) -> qd.i32:
            return 2 * f(n + 1)
        """,
    "large_frame": """
        @qd.real_func
        def f(n: qd.i32) -> qd.i32:
            v = qd.Vector([1] * 100)
            v[n % 100] = 3
            return f(n + 1) + v[(n * 7) % 100]
        """,
    "loop": """
        @qd.real_func
        def f(n: qd.i32) -> qd.i32:
            r = 1
            while r > 0:
                r = f(n + 1)
            return r
        """,
}


@pytest.mark.oracle_differs("it overflows the stack", run=False)
@pytest.mark.parametrize("tier", ["0", "1", "interpret"])
@pytest.mark.parametrize("name", RECURSIONS)
def test_real_function_that_never_returns(server, tmp_path, name, tier):
    program = (
        f"""
import os
os.environ["QD_CPU_TIER"] = {tier!r}
qd.init(arch=qd.cpu, offline_cache=False, cpu_max_num_threads=2)
"""
        + textwrap.dedent(RECURSIONS[name])
        + """
b = qd.field(qd.i32, 100)
@qd.kernel
def once() -> qd.i32:
    return f(1)
@qd.kernel
def often():
    for i in b:
        b[i] = f(i)
@qd.kernel
def fine():
    for i in b:
        b[i] = i
for kernel in (once, often, once):
    try:
        kernel()
        print("returned")
    except (AssertionError, RuntimeError) as e:
        assert "too often for the stack" in str(e) or "nested too deeply" in str(e), e
fine()
print(b.to_numpy().sum())
"""
    )
    end = run(server, tmp_path, program)
    assert end["end"] == "ok" and end["printed"].splitlines()[1:] == ["4950"], end


def test_deep_recursion_ends(server, tmp_path):
    program = """
    @qd.real_func
    def f(n: qd.i32) -> qd.i32:
        r = 0
        if n > 0:
            r = f(n - 1) + n
        return r
    @qd.kernel
    def sum_of(n: qd.i32) -> qd.i32:
        return f(n)
    print(sum_of(10), sum_of(10000))
    """
    assert run(server, tmp_path, program)["printed"] == "55 50005000\n"


# --- messages -------------------------------------------------------------------------------------

SYNTAX = "QuadrantsSyntaxError"
MESSAGES = {
    "subscript as loop target": (
        "x = [0]\n@qd.kernel\ndef m():\n    for x[0] in range(3): a[0] = 1\nm()",
        SYNTAX, "for x[0] in…\n        ^^^^…Unsupported loop target",
    ),
    "attribute as loop target": (
        "class O: pass\n@qd.kernel\ndef m():\n    for O.x in a: a[0] = 1\nm()",
        SYNTAX, "Unsupported loop target",
    ),
    "nested loop targets": (
        "@qd.kernel\ndef m():\n    for (i, j), l in qd.ndrange(2, 3): a[0] = 1\nm()",
        SYNTAX, "Unsupported loop target",
    ),
    "equal loop targets": (
        "@qd.kernel\ndef m():\n    for i, i in qd.ndrange(2, 3): a[i] = 1\nm()",
        SYNTAX, "Recreating variables is not allowed…two targets of one name",
    ),
    "None returned": (
        "N = None\n@qd.kernel\ndef m() -> qd.i32:\n    return N\nm()",
        SYNTAX, "return N…does not have a return statement…`N` is None here",
    ),
    "empty cell": (
        "def outer():\n    @qd.kernel\n    def m() -> qd.i32:\n        return later\n    m()\n    later = 1\nouter()",
        "QuadrantsNameError", 'Name "later" is not defined…gives it a value only later',
    ),
    "store to a property": (
        "x = np.zeros(3)\n@qd.kernel\ndef m(n: qd.i32):\n    x.shape = n\nm(1)",
        SYNTAX, "x.shape = n\n    ^^^^^^^^^^^…Variable 'x.shape' cannot be assigned",
    ),
    "store to a member that is none": (
        "@qd.kernel\ndef m(n: qd.i32):\n    a.q = n + 1\nm(1)",
        "QuadrantsCompilationError", "a.q = n + 1\n    ^^^^^^^^^^^…object has no attribute 'q'",
    ),
    "letters of five components": (
        "v = qd.Vector.field(3, qd.f32, 4)\n@qd.kernel\ndef m():\n    v[0].xyxyx\nm()",
        "QuadrantsCompilationError", "has no attribute 'xyxyx'",
    ),
    "no letters": (
        "v = qd.Vector.field(3, qd.f32, 4)\n@qd.kernel\ndef m():\n    getattr(v[0], '')\nm()",
        "QuadrantsCompilationError", "has no attribute ''",
    ),
    "unit behind the last": (
        "@qd.kernel\ndef m():\n    qd.Vector.unit(3, 3)\nm()",
        "QuadrantsCompilationError", "unit() needs 0 <= i < n, got i = 3, n = 3",
    ),
    "unit before the first": (
        "@qd.kernel\ndef m():\n    qd.Vector.unit(3, -1)\nm()",
        "QuadrantsCompilationError", "unit() needs 0 <= i < n, got i = -1, n = 3",
    ),
    "shift of a float": (
        "@qd.kernel\ndef m(x: qd.f32, n: qd.i64):\n    qd.bit_shr(x, n)\nm(1, 1)",
        "QuadrantsTypeError", "unsupported operand type(s) for '>>>': 'f32' and 'i64'",
    ),
    "number as an array of a func": (
        "@qd.func\ndef f(x: qd.types.ndarray()): return 1\n@qd.kernel\ndef m(n: qd.i32): f(n)\nm(1)",
        "QuadrantsTypeError", "Expected ndarray in the kernel argument for argument x, got",
    ),
    "array that is gone": (
        "@qd.kernel\ndef m(x: qd.types.ndarray(qd.i32, 1)): x[0] = 1\n"
        "x = qd.ndarray(qd.i32, 3)\nqd.init(arch=qd.cpu, offline_cache=False)\nm(x)",
        "QuadrantsRuntimeError", "belongs to a runtime that has been reset",
    ),
    "long integer": (
        "H = 10 ** 5000\n@qd.kernel\ndef m() -> qd.i32:\n    return H\nm()",
        "QuadrantsTypeError", "Integer literal of 16610 bits exceeded the range of default_ip: i32",
    ),
    "long integer in arithmetic": (
        "H = 10 ** 5000\n@qd.kernel\ndef m(x: qd.i32) -> qd.i32:\n    return x + H\nm(1)",
        "QuadrantsTypeError", "Integer literal of 16610 bits",
    ),
    "long integer as argument": (
        "k(10 ** 5000)", "TypeError", "Argument n: of 16610 bits does not fit type i32…argument n of k",
    ),
    "text as argument": ("k('a')", "QuadrantsRuntimeTypeError", "cannot be converted…argument n of k"),
    "no argument": ("k()", SYNTAX, "Missing argument 'n'.…in a call of k(n : i32)"),
    "no memory": (
        """
        big = qd.field(qd.f32, (2**31 - 1, 2**15))
        try:
            big[0, 0] = 1
        except RuntimeError:
            pass
        big[0, 0]
        """,
        "QuadrantsRuntimeError", "Field has no allocation: it was not placed, or there was no memory",
    ),
    "copy of an ndarray that is gone": (
        "import copy\nx = qd.ndarray(qd.i32, 3)\nqd.init(arch=qd.cpu)\ncopy.deepcopy(x)",
        "QuadrantsRuntimeError", "belongs to a runtime that has been reset",
    ),
    "huge offset": (
        "qd.field(qd.i32, 3, offset=10**20)", "TypeError", "an offset is an integer of at most 2147483647",
    ),
    "huge offset of a placed field": (
        "qd.root.dense(qd.i, 4).place(qd.field(qd.i32), offset=-2**40)", "TypeError", "at least -2147483647",
    ),
    "offset whose last index leaves i32": (
        "qd.field(qd.i32, 4, offset=2**31 - 3)", "TypeError", "an offset of at most 2147483644",
    ),
    "offset of a placed field whose last index leaves i32": (
        "qd.root.dense(qd.ij, (2, 4)).place(qd.field(qd.i32), offset=(0, 2**31 - 3))", "TypeError", "the last index",
    ),
    "fraction as offset": (
        "qd.field(qd.i32, 3, offset=1.5)", "TypeError", "an offset is one integer per axis, got 1.5",
    ),
    "number as order": (
        "qd.field(qd.i32, (3, 3), order=5)", "TypeError", "an order is a string of axes such as 'ji', got 5",
    ),
    "text as axes": (
        "qd.root.dense('i', 4)", "TypeError", "axes such as qd.ij are expected, got 'i'",
    ),
    "text as number of an axis": (
        "qd.axes('i')", "TypeError", "axes takes ints from 0 to 11, got 'i'",
    ),
    "fraction as number of an axis": (
        "qd.axes(0, 1.0)", "TypeError", "axes takes ints from 0 to 11, got 1.0",
    ),
    "no length of a vector field": (
        "qd.Vector.field(None, qd.f32, 2)", "TypeError", "n and m of a field's elements are ints, got (None,)",
    ),
    "no columns of a matrix field": (
        "qd.Matrix.field(2, None, qd.f32, 2)", "TypeError", "ints, got (2, None)",
    ),
    "fraction as rows of a matrix field": (
        "qd.Matrix.field(2.0, 2, qd.f32, 2)", "TypeError", "rows and columns are ints, got 2.0",
    ),
    "list of one for a member": (
        "s = qd.types.struct(v=qd.types.vector(2, qd.f32))([2, 3])\ns.v = [9]",
        "ValueError", "could not broadcast input array from shape (1,) into shape (2,)",
    ),
    "one row for a member": (
        "s = qd.types.struct(m=qd.types.matrix(2, 2, qd.f32))([[1, 2], [3, 4]])\ns.m = [1, 2]",
        "ValueError", "could not broadcast input array from shape (2,) into shape (2,2)",
    ),
    "list of one for a member of an element": (
        "s = qd.types.struct(v=qd.types.vector(2, qd.f32)).field(shape=2)\ns[0].v = [9]",
        "ValueError", "could not broadcast input array from shape (1,) into shape (2,)",
    ),
    "copy of a tensor that is gone": (
        "import copy\nx = qd.tensor(qd.i32, (3,))\nqd.reset()\ncopy.deepcopy(x)",
        "QuadrantsRuntimeError", "Maybe you forgot to call `qd.init()` first?",
    ),
    "no number as extent of a node": (
        "qd.root.dense(qd.ij, float('nan'))", "TypeError", "an extent is an integer of at most 2147483647, got nan",
    ),
    "number as dataclass": ("qd.dataclass(3)", "TypeError", "@qd.dataclass decorates a class, got 3"),
    "number as data-oriented class": (
        "qd.data_oriented(3)", "TypeError", "@qd.data_oriented decorates a class, got 3",
    ),
    "huge index": ("a[10**30]", "IndexError", f"index {10**30} lies outside every field and array"),
    "index of an ndarray": (
        "qd.ndarray(qd.i32, (2, 3))[1, 7]", "IndexError", "ndarray index (1, 7) lies outside…shape (2, 3)",
    ),
    "index of an ndarray that wraps": (
        "qd.ndarray(qd.i32, 3)[2**62]", "IndexError", f"ndarray index ({2**62}) lies outside",
    ),
    "component that is not there": (
        "qd.Matrix.field(2, 2, qd.i32, 3).get_scalar_field(0, 3)", "IndexError",
        "there is no component (0, 3) in 2 x 2",
    ),
    "array of another rank": (
        "import numpy as np\nqd.Vector.field(3, qd.i32, 2).from_numpy(np.zeros(2, np.int32))",
        "AssertionError", "an array of rank 2 is expected, got rank 1",
    ),
    "number as log level": (
        "qd.init(arch=qd.cpu, log_level=5)", "TypeError", "Option 'log_level' takes str, got 5",
    ),
    "number as name": ("qd.field(qd.i32, 3, name=5)", "TypeError", "a field's name is a str, not 5"),
    "name that cannot be printed": (
        "qd.field(qd.i32, 3, name='\\udc80')", "UnicodeEncodeError", "surrogates not allowed",
    ),
}  # fmt: skip


@pytest.mark.oracle_differs("other texts", run=False)
@pytest.mark.parametrize("name", MESSAGES)
def test_message(server, tmp_path, name):
    program, cls, fragments = MESSAGES[name]
    check(run(server, tmp_path, program), cls, fragments)


def test_name_that_is_refused_poisons_nothing(server, tmp_path):
    program = """
    for name in (5, b"x", None):
        try:
            qd.field(qd.i32, 3, name=name)
        except TypeError:
            pass
    a[0] = 3
    print(a[0])
    """
    assert run(server, tmp_path, program)["printed"] == "3\n"


def test_cache_path_of_any_bytes(server, tmp_path):
    program = """
    import os, tempfile
    folder = os.fsdecode(tempfile.mkdtemp().encode() + b"/\\xff")
    qd.init(arch=qd.cpu, offline_cache_file_path=folder)
    @qd.kernel
    def m() -> qd.i32:
        return 7
    print(m(), sorted(os.listdir(folder)) != [])
    """
    end = run(server, tmp_path, program)
    assert end["end"] == "ok" and end["printed"].splitlines()[1:] == ["7 True"], end


# --- containers nested deeper than the stack ------------------------------------------------------

DEEP = """
def nested(depth):
    value = (1,)
    for _ in range(depth):
        value = (value,)
    return value

A, B = nested(100_000), nested(100_000)

@qd.func
def length(x):
    return len(x)

@qd.kernel
def template(x: qd.template()) -> qd.i32:
    return len(x)

@qd.kernel
def captured() -> qd.i32:
    return len(A)

@qd.kernel
def of_a_func() -> qd.i32:
    return length(A)

@qd.kernel
def unrolled() -> qd.i32:
    r = 0
    for x in qd.static(A):
        r += len(x)
    return r

@qd.kernel
def as_key() -> qd.i32:
    return qd.static({A: 1}[A])

ring = [1]
ring += [ring, ring]

@qd.kernel
def holds_itself() -> qd.i32:
    return length(ring)

LISTS = [1]
for _ in range(100_000):
    LISTS = [LISTS]

@qd.real_func
def declared(a: qd.i32) -> LISTS:
    return a

@qd.kernel
def of_an_annotation() -> qd.i32:
    return declared(2)

def attempt(f, *args):
    try:
        print("value", f(*args))
    except qd.QuadrantsCompilationError as e:
        print("refused", "nested too deeply" in str(e))

@qd.kernel
def after() -> qd.i32:
    return 7
"""


@pytest.mark.oracle_differs("it crashes or overflows Python's own stack", run=False)
def test_containers_nested_too_deeply(server, tmp_path):
    program = """
    for k in (captured, of_a_func, unrolled, as_key, holds_itself, of_an_annotation):
        attempt(k)
    attempt(template, A)
    shallow, equal = nested(2000), nested(2000)
    print(template(shallow), template(equal), template(shallow), after())
    """
    end = run(server, tmp_path, DEEP + textwrap.dedent(program), head="")
    assert end["end"] == "ok", end
    lines = end["printed"].splitlines()
    assert len(lines) == 8 and set(lines[:7]) <= {"value 1", "refused True"}, end
    assert "refused True" in lines and lines[7] == "1 1 1 7"


# --- objects whose own code ends the runtime ------------------------------------------------------

EVIL = """
class Evil:
    def __index__(self):
        qd.reset()
        return 1
    __int__ = __float__ = lambda self: float(self.__index__())
"""


@pytest.mark.oracle_differs("it crashes", run=False)
@pytest.mark.parametrize(
    "make",
    ["qd.field(qd.f32, 4)", "qd.ndarray(qd.f32, 4)", "qd.field(qd.i32, 4)", "qd.ndarray(qd.i32, 4)",
     "qd.Vector.field(3, qd.f32, 4)", "qd.Vector.ndarray(3, qd.f32, 4)"],
)  # fmt: skip
@pytest.mark.parametrize("action", ["x[Evil()]", "x[Evil()] = 1", "x[0] = Evil()", "x[(Evil(),)]"])
def test_reset_in_the_middle_of_an_access(server, tmp_path, make, action):
    program = f"""
x = {make}
y = {make}
try:
    {action}
    print("done")
except Exception as e:
    print(type(e).__name__)
"""
    end = run(server, tmp_path, program, EVIL)
    assert end["end"] == "ok", end
    # Elements of vector fields are views, which say so when they are used.
    refusals = ("QuadrantsRuntimeError", "TypeError", "ValueError")
    assert end["printed"].strip() in refusals + ("done",) * ("Vector.field" in make), end


def test_odd_arrays_as_templates(server, tmp_path):
    program = """
    @qd.kernel
    def m(x: qd.template()): pass
    for x in (np.zeros((2, 2), object), np.zeros(3, complex), np.zeros(3, "U3"), np.zeros((1,) * 20)):
        try:
            m(x)
        except (TypeError, ValueError):
            print("refused")
    """
    assert run(server, tmp_path, program)["printed"] == "refused\n" * 4


ODD_CALLS = {
    "pow of three": ("@qd.kernel\ndef m(n: qd.i32): a[0] = helper(n)\n"
                     "def helper(n): return pow(n, 2, 3)\nm(1)", "pow() takes two arguments"),
    "capsule": ("qd.ndarray(qd.f32, 3).to_dlpack(np.zeros(3))", "truth value of an array"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_CALLS)
def test_odd_call(server, tmp_path, name):
    program, text = ODD_CALLS[name]
    end = run(server, tmp_path, program)
    assert end["end"] == "raised" and text in end["text"], end


def test_parent_beyond_the_root(server, tmp_path):
    assert run(server, tmp_path, "print(a.parent(10**18), a.parent(3))")["printed"] == "None None\n"


MODULES_NEEDED = {
    "lang._data.arguments": (
        "@qd.kernel\ndef m(x: qd.types.ndarray(qd.math.vec2)): x[0] = 7\n"
        "def use():\n    x = np.zeros((1, 2), np.float32)\n    m(x)\n    return x[0]"
    ),
    "lang.matrix": "@qd.kernel\ndef m() -> qd.math.vec2: return qd.math.vec2(7)\ndef use(): return m()",
}  # fmt: skip


@pytest.mark.oracle_differs("it has other modules", run=False)
@pytest.mark.parametrize("name", MODULES_NEEDED)
def test_own_module_that_cannot_be_imported(server, tmp_path, name):
    """As when Ctrl-C or the lack of memory ends its first import."""
    program = f"""
module = sys.modules.pop("quadrants.{name}", None)
sys.modules["quadrants.{name}"] = None
try:
    use()
except ImportError as e:
    print("refused:", e.name)
del sys.modules["quadrants.{name}"]
if module: sys.modules["quadrants.{name}"] = module
print(*use())
"""
    end = run(server, tmp_path, MODULES_NEEDED[name] + program)
    assert end["end"] == "ok" and end["printed"] == f"refused: quadrants.{name}\n7.0 7.0\n", end


def test_lists_that_hold_themselves(backend):
    x = qd.field(qd.i32, 4)
    endless = [1]
    endless.append(endless)
    deep = [0]
    for _ in range(100_000):
        deep = [deep]

    for index in (endless, deep):

        @qd.kernel
        def stores():
            x[index] = 1

        with pytest.raises(qd.QuadrantsCompilationError, match="deeply"):
            stores()

    @qd.kernel
    def vector() -> qd.f32:
        return qd.math.vec3(endless)[0]

    with pytest.raises(qd.QuadrantsCompilationError, match="deeply"):
        vector()


def test_stand_ins_that_have_every_attribute(backend):
    class Anything:
        def __getattr__(self, name):
            return self

        def __call__(self, *args, **kwargs):
            return self

        def __iter__(self):
            return iter([self, self])

    @qd.kernel
    def takes(x: qd.template()) -> qd.i32:
        return 1

    assert takes(Anything()) == 1


@pytest.mark.parametrize("symbol", ["&", "|", "^"])
def test_bits_of_floats_are_refused(backend, symbol, tmp_path):
    for target, value in [("i", "1.5"), ("x[0]", "3.9"), ("v", "2.5"), ("i", "y")]:
        name = f"bits_{ord(symbol)}_{len(target)}_{len(value)}"
        (tmp_path / f"{name}.py").write_text(
            "import quadrants as qd\n"
            f"def make(x):\n @qd.kernel\n def run(y: qd.f32):\n  i = 3\n  v = qd.Vector([1, 2])\n"
            f"  {target} {symbol}= {value}\n return run\n"
        )
        space = {}
        path = str(tmp_path / f"{name}.py")
        exec(compile((tmp_path / f"{name}.py").read_text(), path, "exec"), space)
        with pytest.raises(qd.QuadrantsTypeError, match="unsupported operand type"):
            space["make"](qd.field(qd.i32, 4))(1.0)


def test_streams_and_sections_in_branches_and_loops(backend):
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def run(a: qd.i32) -> qd.i32:
        turns = 0
        if a:
            with qd.stream_parallel():
                x[0] = 2.0
        while turns < 5:
            turns += 1
            with qd.stream_parallel():
                if turns == 3:
                    break
        return turns

    assert run(1) == 3
    assert x.to_numpy().tolist() == [2.0, 0, 0, 0]
