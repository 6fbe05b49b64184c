"""Python that runs while a kernel is compiled may change what the kernel and its funcs read."""

import os
import subprocess
import sys

import pytest

import quadrants as qd


class Slots:
    """Gives out numbers while a kernel is compiled."""

    def __init__(self):
        self.given = 0
        self.names = []

    def take(self):
        self.given += 1
        self.names.append(f"slot {self.given}")
        return self.given


slots = Slots()


@qd.func
def taken():
    return slots.take()


@qd.func
def taken_for(x):
    return x * 0 + taken()


@qd.func
def given():
    return slots.given


@qd.func
def named():
    return qd.static(len(slots.names))


@pytest.fixture(autouse=True)
def fresh(backend):
    slots.__init__()


def test_a_func_asks_its_helper_at_each_call():
    @qd.kernel
    def k(x: qd.i32) -> qd.types.vector(4, qd.i32):
        return qd.Vector([taken(), taken(), taken_for(x), taken_for(x)])

    @qd.kernel
    def again() -> qd.types.vector(2, qd.i32):
        return qd.Vector([taken(), taken()])

    for kernel, args in (k, (1,)), (again, ()):
        found = list(kernel(*args))
        assert [x - found[0] for x in found] == list(range(len(found)))


def test_a_func_sees_what_a_helper_changed():
    @qd.kernel
    def k() -> qd.types.vector(6, qd.i32):
        a = given()
        b = named()
        slots.take()
        c = given()
        d = named()
        return qd.Vector([a, b, c, d, taken(), given()])

    a, b, c, d, e, f = k()
    assert (c - a, d - b, e - c, f - c) == (1, 1, 1, 1)


def test_a_func_sees_what_the_kernel_appended():
    @qd.kernel
    def k() -> qd.types.vector(2, qd.i32):
        a = named()
        for i in qd.static(range(3)):
            qd.static(slots.names.append(i))
        return qd.Vector([a, named()])

    a, b = k()
    assert b - a == 3


PROGRAM = """
import sys
import quadrants as qd

class Later:
    def __init__(self): self.n, self.items = 0, [1]
    def prepare(self): self.n = int(sys.argv[2]); self.items.append(self.n); return 0

first, second, third = Later(), Later(), Later()

@qd.func
def read(): return second.n

@qd.kernel
def direct() -> qd.types.vector(3, qd.i32):
    a = first.n
    b = first.prepare()
    return qd.Vector([a, b, first.n])

@qd.kernel
def by_func() -> qd.types.vector(2, qd.i32):
    a = read()
    second.prepare()
    return qd.Vector([a, read()])

@qd.kernel
def contents() -> qd.i32:
    a = sum(third.items)
    third.prepare()
    return sum(third.items) - a

qd.init(qd.cpu, offline_cache_file_path=sys.argv[1])
print(list(map(int, direct())), list(map(int, by_func())), contents())
"""


@pytest.mark.oracle_differs("our cache; it walks a kernel twice")
def test_what_a_helper_changed_is_asked_in_each_process(tmp_path):
    (tmp_path / "later.py").write_text(PROGRAM)
    env = dict(os.environ, PYTHONWARNINGS="ignore")
    for n in (3, 5, 3, 7):
        done = subprocess.run(
            [sys.executable, "later.py", str(tmp_path / "cache"), str(n)], capture_output=True, text=True, timeout=100,
            env=env, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1:] == [f"[0, 0, {n}] [0, {n}] {n}"], done.stderr[-2000:]
