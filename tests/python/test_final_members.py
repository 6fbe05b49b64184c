"""Members of dataclass arguments that `typing.Final` makes constants of kernels."""

import dataclasses
import enum
from typing import Final

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

frozen = dataclasses.dataclass(frozen=True)


class Kind(enum.Enum):
    near, far = 1, 2


@frozen
class Options:
    n: Final[int]
    name: Final[str] = "plain"
    kind: Final[Kind] = Kind.near
    scale: Final[float] = 1.0
    wide: Final[bool] = False
    z: qd.i32 = 0


@qd.func
def weight(o: Options):
    return o.n * o.scale


def test_each_value_is_a_version(backend):
    @qd.kernel
    def k(o: Options) -> qd.f32:
        r = weight(o)
        for _ in qd.static(range(o.n)):
            r += 10
        if qd.static(o.name == "other"):
            r += 100
        if qd.static(o.kind == Kind.far):
            r += 1000
        if qd.static(o.wide):
            r += 10000
        return r + o.z

    for _ in range(2):
        assert k(Options(3)) == 33
        assert k(Options(4, z=5)) == 49
        assert k(Options(1, "other", scale=0.5)) == 110.5
        assert k(Options(np.int64(1), kind=Kind.far, wide=True)) == 11011
    assert len(k._primal.materialized_kernels) == 4


def test_inside_other_dataclasses(backend):
    @frozen
    class Outer:
        inner: Options
        v: qd.f32

    @qd.kernel
    def k(o: Outer) -> qd.f32:
        r = o.v
        for _ in qd.static(range(o.inner.n)):
            r += o.inner.z
        return r

    assert [k(Outer(Options(n, z=2), 0.5)) for n in (1, 3, 1)] == [2.5, 6.5, 2.5]


def test_they_may_be_mutable_if_they_have_a_hash(backend):
    @dataclasses.dataclass(unsafe_hash=True)
    class Mutable:
        n: Final[int]

    @qd.kernel
    def k(o: Mutable) -> qd.i32:
        return o.n

    o = Mutable(1)
    assert k(o) == 1 and k(Mutable(2)) == 2
    o.n = 5
    assert k(o) == 5


def test_what_is_no_constant(backend):
    def kernel_of(cls):
        @qd.kernel
        def k(o: cls) -> qd.i32:
            return o.n

        return k

    @dataclasses.dataclass
    class Mutable:
        n: Final[int]

    @dataclasses.dataclass
    class Around:
        inner: Options
        n: qd.i32

    @frozen
    class Narrow:
        n: Final[np.int32]

    @frozen
    class Bare:
        n: Final

    with raises(TypeError, "frozen=True"):
        kernel_of(Mutable)(Mutable(1))
    with raises(TypeError, "Around"):
        kernel_of(Around)(Around(Options(1), 2))
    with raises(TypeError, "Narrow.n"):
        kernel_of(Narrow)(Narrow(np.int32(1)))
    with raises(TypeError, "Final"):
        kernel_of(Bare)(Bare(1))
    with raises(TypeError, "None"):
        kernel_of(Options)(Options(None))
    with raises(TypeError, "[1]"):
        kernel_of(Options)(Options([1]))

    @qd.kernel
    def assigns(o: Options):
        o.n = 3

    with raises(qd.QuadrantsSyntaxError, "o.n"):
        assigns(Options(1))
    assert kernel_of(Options)(Options(7)) == 7


@pytest.mark.parametrize("fastcache", [False, True])
def test_a_later_process_knows_them(tmp_path, fastcache):
    program = f"""
import sys, dataclasses
from typing import Final
import quadrants as qd
from quadrants._lib import core
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path={str(tmp_path / "cache")!r})
@dataclasses.dataclass(frozen=True)
class O:
    n: Final[int]
    s: Final[str]
@qd.kernel(fastcache={fastcache})
def k(o: O) -> qd.i32:
    r = 0
    for i in qd.static(range(o.n)):
        r += 1
    if qd.static(o.s == "x"):
        r += 10
    return r
print(k(O(int(sys.argv[1]), sys.argv[2])), core.counters()["lowered"])
"""
    import subprocess
    import sys

    path = tmp_path / "program.py"
    path.write_text(program)

    def say(*args):
        done = subprocess.run(
            [sys.executable, path, *args], capture_output=True, text=True, check=True, timeout=100
        )
        return done.stdout.split()[-2:]

    assert say("3", "y") == ["3", "1"]
    assert say("3", "x") == ["13", "1"]
    assert say("4", "x") == ["14", "1"]
    assert say("3", "y") == ["3", "0"] and say("3", "x") == ["13", "0"]
