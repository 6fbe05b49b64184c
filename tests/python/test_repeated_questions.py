"""One expression of Python that a kernel evaluates more than once, and that changes something."""

import subprocess
import sys

import pytest

import quadrants as qd
from quadrants.lang._inspect.effects import may_change

PROGRAM = """
import heapq, sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache=True, offline_cache_file_path=sys.argv[1])
values = [1, int(sys.argv[2]), 7]
asked = []

class Source:
    def __init__(self):
        self.at = 0
    def take(self):
        self.at += 1
        asked.append(self.at)
        return values[self.at - 1]
    value = property(take)
    def __getattr__(self, name):
        if name == "other":
            return self.take()
        raise AttributeError(name)
    def __getitem__(self, key):
        return self.take()
    def __len__(self):
        return self.take()
    def __int__(self):
        return self.take()
    def __call__(self):
        return self.take()

source = Source()

def helper():
    asked.append(0)
    return values[len(asked) - 1]

def given(*positional, **named):
    return helper()

def smallest():
    asked.append(0)
    return heapq.heappop(values)

@qd.func
def one():
    return qd.static(helper())

@qd.func
def another():
    return qd.static(helper())

{kernel}

print(k(), len(asked))
"""
TWICE = """
@qd.kernel
def k() -> qd.i32:
    return qd.static({0}) * 10 + qd.static({0}) * 100
"""
KERNELS = {
    "function": TWICE.format("helper()"),
    "keywords": TWICE.format("given(of=1, by='a')"),
    "module": TWICE.format("smallest()"),
    "method": TWICE.format("source.take()"),
    "property": TWICE.format("source.value"),
    "getattr": TWICE.format("source.other"),
    "item": TWICE.format("source[0]"),
    "length": TWICE.format("len(source)"),
    "int": TWICE.format("int(source)"),
    "call": TWICE.format("source()"),
    "loop": """
@qd.kernel
def k() -> qd.i32:
    s = 0
    p = 1
    for i in qd.static(range(2)):
        p = p * 10
        s += qd.static(helper()) * p
    return s
""",
    "funcs": """
@qd.kernel
def k() -> qd.i32:
    return one() * 10 + another() * 100
""",
    "func": """
@qd.kernel
def k() -> qd.i32:
    return one() * 10 + one() * 100
""",
}


GROWING = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache=True, offline_cache_file_path=sys.argv[1])
values = [1, 2]

def size():
    return len(values)

def grow():
    if sys.argv[2] == "2":
        values.append(9)
    return 0

@qd.kernel
def k() -> qd.i32:
    return qd.static(size()) + qd.static(grow()) + qd.static(size()) * 10

print(k(), len(values))
"""


def test_what_is_asked_before_and_after_a_change(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(GROWING)
    for grows, expected in (("1", "22 2"), ("2", "32 3"), ("1", "22 2"), ("2", "32 3")):
        done = subprocess.run(
            [sys.executable, path, tmp_path / "cache", grows],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == expected


@pytest.mark.parametrize("what", KERNELS)
def test_it_is_evaluated_as_often_as_the_source_says(what, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("{kernel}", KERNELS[what]))
    for second in (1, 2, 1, 2):
        done = subprocess.run(
            [sys.executable, path, tmp_path / "cache", str(second)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].split() == [str(10 + second * 100), "2"]


kept = [3, 4]


def test_what_changes_only_its_own_variables_changes_nothing():
    def builds():
        out = []
        table = {}
        for i in range(3):
            out.append(i)
            table[i] = i
        return len(out) + len(kept)

    def reads_methods():
        return kept.index(3) + len(str(kept))

    def changes():
        kept[0] = 3
        return 1

    def calls_what_changes():
        return changes()

    assert not may_change(builds, ()) and not may_change(reads_methods, ())
    assert may_change(changes, ()) and may_change(calls_what_changes, ())


BOUND = [1, 2]


def rebinds():
    global BOUND
    BOUND = [5, 6]
    return 1


def test_a_name_that_is_bound_anew_amid_a_kernel():
    """As when Python runs it: what comes behind the call sees the new object."""
    qd.init(arch=qd.cpu, log_level="error", offline_cache=False)

    @qd.kernel
    def k() -> qd.i32:
        return BOUND[0] + rebinds() * 10 + BOUND[1] * 1000

    assert k() == 6011
