"""A name that means something else, an order that Python sees: found again by no cache and no version."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at

SCOPES = """
import quadrants as qd

G = 1

@qd.func
def one():
    return 1

def outer_one():
    @qd.func
    def f():
        return {use}
    return f

def outer_two():
    {own}
    @qd.func
    def f():
        return {use}
    return f

def kernel_of(f):
    @qd.kernel
    def k() -> qd.f64:
        return f()
    return k

def both():
    return [kernel_of(make())() for make in (outer_one, outer_two)]
"""
OTHERS = {  # what the funcs say, what the second one's scope has, results
    "a number": ("G * 2", "G = 2", [2, 4]),
    "a func": ("one() + 1", "one = qd.func(lambda: 1) and two", [2, 3]),
    "a builtin": ("max(3, 5)", "max = min", [5, 3]),
    "a module": ("qd.max(3, 5)", "qd = Other", [5, 3]),
}
MORE = """
@qd.func
def two():
    return 2

class Other:
    max = qd.min
    func = qd.func
"""


@pytest.mark.parametrize("what", OTHERS)
def test_a_name_of_another_scope(backend, what, tmp_path):
    """Two functions of one text: what is global in the first is a variable around the second."""
    use, own, results = OTHERS[what]
    path = tmp_path / f"scopes_{what.replace(' ', '_')}.py"
    path.write_text(SCOPES.format(use=use, own=own) + MORE)
    for options in ({}, {"offline_cache": False}, {}):
        backend.init(**options)
        assert module_at(path).both() == results


@pytest.mark.filterwarnings("ignore:Calling non-quadrants function")
@pytest.mark.parametrize(
    "before, after",
    [
        (np.sqrt, np.square),
        (np.add, np.maximum),
        (np.frompyfunc(lambda x: x + 1, 1, 1), np.frompyfunc(lambda x: x * 10, 1, 1)),
    ],
)
def test_another_function_of_numpy(backend, before, after):
    """In a func that two kernels share."""
    numbers = (81, 2)[: before.nin]
    operation = before

    @qd.func
    def f():
        return operation(*numbers)

    @qd.kernel
    def first() -> qd.f64:
        return f()

    @qd.kernel
    def second() -> qd.f64:
        return f() + 0

    assert first() == before(*numbers)
    operation = after
    assert second() == after(*numbers)


def test_the_memory_order_of_an_array(backend):
    a = np.array([[0.0, 1.0], [2.0, 3.0]])

    @qd.func
    def f():
        return a.ravel(order="K")[1]

    @qd.kernel
    def first() -> qd.f64:
        return f()

    @qd.kernel
    def second() -> qd.f64:
        return f() + 0

    assert first() == 1
    a = np.asfortranarray(a)
    assert second() == 2


def run(path, *args, **environment):
    """What a program prints behind ANSWER, a line an item."""
    done = subprocess.run(
        [sys.executable, str(path), str(path.parent / "cache"), *args],
        capture_output=True, text=True, timeout=120,
        env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", **environment),
    )  # fmt: skip
    answers = [l[7:] for l in done.stdout.splitlines() if l.startswith("ANSWER ")]
    assert answers, done.stderr[-2000:]
    return answers


ORDERS = """
import functools, sys
import quadrants as qd
S = {"1", "2", "3", "4"}
KEYS = dict.fromkeys(S)

def number(text):
    return int("".join(c for c in text if c.isdigit()))

qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
"""
SHOWN = [
    "number(''.join([*S]))",
    "number(''.join((*S,)))",
    "number(''.join([*KEYS]))",
    "number(''.join([*S, *S][::-1]))",
    "number(repr(S))",
    "number(f'{S}')",
    "number('{}'.format(S))",
    "number('{0} {a}'.format(1, a=[S]))",
    "number('%s' % (S,))",
    "number(''.join(sorted(S, key=len)))",
    "int(next(iter(S)))",
    "int([*S][2])",
]


@pytest.mark.oracle_differs("its cache does not see")
def test_the_order_of_a_set(tmp_path):
    """Which each process has of its own, if it holds texts."""
    lines = [ORDERS]
    for n, use in enumerate(SHOWN):
        lines.append(f"@qd.kernel\ndef k{n}() -> qd.f64:\n    return {use}\n")
        lines.append(f"print('ANSWER', {use!r}, k{n}() == {use})")
    path = tmp_path / "orders.py"
    path.write_text("\n".join(lines))
    for seed in "01231":
        answers = run(path, PYTHONHASHSEED=seed)
        assert len(answers) == len(SHOWN)
        assert not [l for l in answers if not l.endswith("True")]


@pytest.mark.oracle_differs("its cache does not see")
def test_a_name_of_ours_that_was_replaced(tmp_path):
    """It is another program's, too: what that compiled is not what this name means here."""
    program = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
if sys.argv[2] == "replaced":
    qd.max = qd.min
@qd.kernel
def k(x: qd.f64) -> qd.f64:
    return qd.max(x, 2.0)
print("ANSWER", k(1.0))
"""
    path = tmp_path / "names.py"
    path.write_text(program)
    got = [a for how in ("replaced", "plain") * 2 for a in run(path, how)]
    assert got == ["1.0", "2.0"] * 2


@pytest.mark.oracle_differs("its cache does not see")
def test_a_module_of_ours_that_was_replaced(tmp_path):
    program = """
import sys, types
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
if sys.argv[2] == "replaced":
    qd.math = types.SimpleNamespace(fract=qd.sqrt)
@qd.kernel
def k() -> qd.f64:
    return qd.math.fract(2.25)
print("ANSWER", k())
"""
    path = tmp_path / "modules.py"
    path.write_text(program)
    got = [a for how in ("replaced", "plain") * 2 for a in run(path, how)]
    assert got == ["1.5", "0.25"] * 2


def unbound():
    class A:
        @qd.func
        def f(self, x: qd.template() = 7.0):
            return x

    return A, A()


@pytest.mark.parametrize("first", ["class", "object"])
def test_bound_or_not(backend, first):
    """The function is the same; what it is called with is not."""
    A, a = unbound()
    m, others = (A.f, a.f) if first == "class" else (a.f, A.f)

    @qd.func
    def g():
        return m(3.0)

    @qd.kernel
    def one() -> qd.f64:
        return g()

    @qd.kernel
    def two() -> qd.f64:
        return g() + 0

    assert one() == (7 if first == "class" else 3)
    m = others
    assert two() == (3 if first == "class" else 7)


DECORATED = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, default_fp=qd.f64, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
how = sys.argv[2]
decorate = (lambda f: f) if how == "plain" else qd.kernel if how == "kernel" else qd.func

@decorate
def f():
    x = 2147483647
    x += 1
    return x * 1.0

@qd.func(requires_top_level=how == "top")
def g():
    return 1.0

@qd.kernel
def k() -> qd.f64:
    return f()

@qd.kernel
def k2(n: qd.i32) -> qd.f64:
    r = 0.0
    for i in range(n):
        r += g()
    return r

for call in (k, lambda: k2(1)):
    try:
        print("ANSWER", call())
    except Exception as e:
        print("ANSWER", type(e).__name__)
"""


@pytest.mark.oracle_differs("our cache")
def test_what_a_decorator_makes_of_a_text(tmp_path):
    path = tmp_path / "decorated.py"
    path.write_text(DECORATED)
    expected = {
        "func": ["-2147483648.0", "1.0"],
        "plain": ["2147483648.0", "1.0"],
        "kernel": ["QuadrantsSyntaxError", "1.0"],
        "top": ["-2147483648.0", "QuadrantsSyntaxError"],
    }
    for how in ("func", "plain", "kernel", "top", "func", "plain"):
        assert run(path, how) == expected[how]


WRITES = """
import sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, default_fp=qd.f64, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
A, B = np.zeros(1), np.array([3.0, 1.0, 2.0])

def make(i):
    @qd.kernel
    def k() -> qd.f64:
        x = qd.static(np.add(A, 1, out=A)[0])
        return x
    @qd.kernel
    def k2() -> qd.f64:
        x = qd.static(B[0])
        y = qd.static(B.partition(0))
        return x
    return k, k2

for i in range(3):
    print("ANSWER", *[k() for k in make(i)])
class Length(float):
    def __add__(self, other):
        return float(self) * int(sys.argv[2]) + float(other)
C = np.array([Length(1), Length(2)], dtype=object)
@qd.kernel
def k3() -> qd.f64:
    return qd.static(C.sum())
print("ANSWER", k3())
"""


@pytest.mark.oracle_differs("our cache")
def test_arrays_that_are_written_while_a_kernel_is_compiled(tmp_path):
    """In each process; and arrays of objects of classes that mean what they like."""
    path = tmp_path / "writes.py"
    path.write_text(WRITES)
    for factor in ("1", "1", "5"):
        sums = f"{1.0 * int(factor) + 2}"
        assert run(path, factor) == ["1.0 3.0", "2.0 1.0", "3.0 1.0", sums]


@pytest.mark.parametrize("name", ["Tensor", "NDArray", "StructType", "BufferView", "Template"])
def test_users_classes_may_have_names_of_ours(backend, name):
    Data = dataclasses.make_dataclass(name, [("a", qd.types.ndarray(qd.f32, 1)), ("n", qd.i32)])

    @qd.kernel
    def k(t: Data) -> qd.f32:
        s = 0.0
        for i in range(t.n):
            s += t.a[i]
        return s

    a = qd.ndarray(qd.f32, 4)
    a.fill(2)
    assert k(Data(a, 4)) == 8
