"""At exit, Python frees the globals of a program: files are flushed, __del__ runs, whatever kernels saw."""

import gc
import subprocess
import sys
import textwrap
import weakref

import pytest

import quadrants as qd

FRAME = """
import dataclasses, enum, typing
import quadrants as qd

out = open({path!r}, "w")
out.write("unflushed ")

class Canary:
    def __del__(self, write=open({path!r} + ".del", "w").write):
        write("freed")

canary = Canary()
qd.init(qd.cpu, log_level="error")
"""

USES = {
    "kernel": """
        @qd.kernel
        def k(x: qd.i32) -> qd.i32:
            return x
        assert k(3) == 3
    """,
    "funcs": """
        @qd.func
        def f(x):
            return x + 1
        @qd.real_func
        def g(x: qd.i32) -> qd.i32:
            return f(x)
        @qd.kernel
        def k(x: qd.i32) -> qd.i32:
            return g(f(x))
        assert k(3) == 5
    """,
    "dataclass": """
        @dataclasses.dataclass
        class A:
            n: qd.i32
            def m(self):
                return canary
        @qd.kernel
        def k(a: A) -> qd.i32:
            return a.n
        assert k(A(3)) == 3
    """,
    "data_oriented": """
        @qd.data_oriented
        class A:
            def __init__(self):
                self.x = qd.field(qd.i32, 4)
            @qd.func
            def f(self, i):
                return i
            @qd.kernel
            def m(self) -> qd.i32:
                return self.f(self.x[0] + 3)
        a = A()
        assert a.m() == 3
    """,
    "struct": """
        @qd.dataclass
        class T:
            p: qd.i32
            @qd.func
            def m(self):
                return self.p
        s = T.field(shape=3)
        @qd.kernel
        def k() -> qd.i32:
            return s[1].m()
        assert k() == 0
    """,
    "template": """
        class N(typing.NamedTuple):
            a: int
            def m(self):
                return canary
        @qd.kernel
        def k(x: qd.template()) -> qd.i32:
            return x.a
        assert k(N(3)) == 3
    """,
    "enum": """
        class E(enum.IntEnum):
            A = 3
            def m(self):
                return canary
        @qd.kernel
        def k() -> qd.i32:
            return E.A
        assert k() == 3
    """,
    "helper that fails": """
        def h():
            raise ValueError(canary)
        @qd.kernel
        def k():
            h()
        try:
            k()
        except Exception:
            pass
    """,
    "reset": """
        @qd.func
        def f(x):
            return x
        @qd.kernel
        def k(x: qd.i32) -> qd.i32:
            return f(x)
        assert k(3) == 3
        qd.reset()
    """,
}


@pytest.mark.parametrize("use", USES)
def test_globals_are_freed(tmp_path, use):
    path = str(tmp_path / "out")
    program = tmp_path / "program.py"
    program.write_text(FRAME.format(path=path) + textwrap.dedent(USES[use]))
    for _ in "cold", "warm":
        subprocess.run([sys.executable, program], check=True, timeout=120)
        assert (tmp_path / "out").read_text() == "unflushed "
        assert (tmp_path / "out.del").read_text() == "freed"


def test_dead_kernels_are_freed(backend):
    class Big:
        pass

    def use():
        big = Big()

        @qd.kernel
        def k(x: qd.template()) -> qd.i32:
            return qd.static(3 if big else 4)

        assert k(use) == 3
        return weakref.ref(big)

    big = use()
    gc.collect()
    assert big() is None
