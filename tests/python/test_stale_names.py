"""A name that means something else, an order that Python sees: found again by no cache and no version."""

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
        lines.append(f"print({use!r}, k{n}() == {use})")
    path = tmp_path / "orders.py"
    path.write_text("\n".join(lines))
    for seed in "01231":
        done = subprocess.run(
            [sys.executable, str(path), str(tmp_path / "cache")],
            capture_output=True, text=True, timeout=120,
            env=dict(os.environ, PYTHONHASHSEED=seed, ENABLE_QUADRANTS_HEADER_PRINT="0"),
        )  # fmt: skip
        answers = [l for l in done.stdout.splitlines() if l.endswith(("True", "False"))]
        assert len(answers) == len(SHOWN), done.stderr[-2000:]
        assert not [l for l in answers if l.endswith("False")]


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
    got = []
    for how in ("replaced", "plain", "replaced", "plain"):
        done = subprocess.run(
            [sys.executable, str(path), str(tmp_path / "cache"), how],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        got += [l for l in done.stdout.splitlines() if l.startswith("ANSWER")]
    assert got == ["ANSWER 1.0", "ANSWER 2.0"] * 2
