"""Which arrays share a compiled version of a kernel: what a call gives does not depend on those before it."""

import dataclasses
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from quadrants._lib import core

pytestmark = pytest.mark.oracle_differs("our cache and counters")

vector, matrix = qd.types.vector, qd.types.matrix
ANNOTATIONS = {
    "open": lambda: qd.types.ndarray(),
    "clamped": lambda: qd.types.ndarray(boundary="clamp"),
    "without gradient": lambda: qd.types.ndarray(needs_grad=False),
    "with gradient": lambda: qd.types.ndarray(needs_grad=True),
    "vectors": lambda: qd.types.ndarray(vector(3, qd.f32)),
    "a row of vectors": lambda: qd.types.ndarray(vector(3, qd.f32), ndim=1),
    "matrices": lambda: qd.types.ndarray(matrix(2, 2, qd.f32)),
    "two axes": lambda: qd.types.ndarray(ndim=2),
    "f32": lambda: qd.types.ndarray(qd.f32),
    "tensor": lambda: qd.Tensor,
}
ARRAYS = {
    "numpy 2x3": lambda: np.ones((2, 3), np.float32),
    "numpy 3": lambda: np.ones(3, np.float32),
    "numpy 2x2x2": lambda: np.ones((2, 2, 2), np.float32),
    "numpy 2x3x1": lambda: np.ones((2, 3, 1), np.float32),
    "numpy i32": lambda: np.ones((2, 3), np.int32),
    "numpy fortran": lambda: np.asfortranarray(np.ones((2, 3), np.float32)),
    "vectors": lambda: qd.Vector.ndarray(3, qd.f32, 2),
    "vectors i32": lambda: qd.Vector.ndarray(3, qd.i32, 2),
    "matrices": lambda: qd.Matrix.ndarray(2, 2, qd.f32, 2),
    "columns": lambda: qd.Matrix.ndarray(3, 1, qd.f32, 2),
    "2x3": lambda: qd.ndarray(qd.f32, (2, 3)),
    "2x3 i32": lambda: qd.ndarray(qd.i32, (2, 3)),
    "2x3 with gradient": lambda: qd.ndarray(qd.f32, (2, 3), needs_grad=True),
    "3": lambda: qd.ndarray(qd.f32, 3),
    "3 with gradient": lambda: qd.ndarray(qd.f32, 3, needs_grad=True),
}


def kernels(annotation):
    """A kernel of an array and one of a dataclass with it; both give 1000 * elements + length."""

    @qd.kernel
    def plain(x: annotation) -> qd.i32:
        s = 0
        for _ in qd.grouped(x):
            s += 1
        return s * 1000 + x.shape[0]

    Holder = dataclasses.make_dataclass("Holder", [("a", annotation)], frozen=True)

    @qd.kernel
    def member(h: Holder) -> qd.i32:
        s = 0
        for _ in qd.grouped(h.a):
            s += 1
        return s * 1000 + h.a.shape[0]

    return {"plain": plain, "member": lambda x: member(Holder(x))}


def answer(f, x):
    try:
        return f(x)
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_no_call_depends_on_those_before_it(annotation, cached, tmp_path):
    arch = dict(arch=qd.cpu, log_level="error")
    qd.init(**arch, offline_cache=cached, offline_cache_file_path=str(tmp_path))
    arrays = {name: make() for name, make in ARRAYS.items()}
    fresh = {
        (name, kind): answer(f, x)
        for name, x in arrays.items()
        for kind, f in kernels(ANNOTATIONS[annotation]()).items()
    }
    for seed in range(2):
        used = kernels(ANNOTATIONS[annotation]())
        for name in np.random.default_rng(seed).permutation(list(arrays) * 2):
            for kind, f in used.items():
                assert answer(f, arrays[name]) == fresh[name, kind], (name, kind)


def test_what_the_calls_give():
    qd.init(arch=qd.cpu, log_level="error")
    plain = kernels(qd.types.ndarray())["plain"]
    assert plain(qd.Vector.ndarray(3, qd.f32, 2)) == 2002
    assert plain(np.ones((2, 3), np.float32)) == 6002
    compound = kernels(qd.types.ndarray(vector(3, qd.f32), ndim=1))["plain"]
    assert (
        compound(np.ones((2, 3), np.float32)) == compound(qd.Vector.ndarray(3, qd.f32, 2)) == 2002
    )
    asks = kernels(qd.types.ndarray(needs_grad=True))["plain"]
    for _ in range(2):
        assert asks(np.ones(3, np.float32)) == 3003
        with pytest.raises(ValueError, match="needs_grad"):
            asks(qd.ndarray(qd.f32, 3))


def test_equal_arrays_share_a_version():
    qd.init(arch=qd.cpu, log_level="error")
    plain = kernels(qd.types.ndarray())["plain"]
    plain(np.ones((2, 3), np.float32))
    before = core.counters()["lowered"]
    for x in (qd.ndarray(qd.f32, (2, 3)), np.ones((4, 3), np.float32)):
        plain(x)
    assert core.counters()["lowered"] == before
    assert len(plain._primal._specialisations()) == 1


MEMBER = """
import dataclasses, sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])
kind, annotation = sys.argv[2].split("/")
ANNOTATIONS = {"open": qd.types.ndarray(), "compound": qd.types.ndarray(qd.types.vector(3, qd.f32))}

@dataclasses.dataclass(frozen=True)
class Holder:
    a: ANNOTATIONS[annotation]

@qd.func
def elements(h: Holder):
    s = 0
    for I in qd.grouped(h.a):
        s += 1
    return s

@qd.kernel
def count(h: Holder) -> qd.i32:
    s = 0
    for I in qd.grouped(h.a):
        s += 1
    return s

@qd.kernel
def counted(h: Holder) -> qd.i32:
    return elements(h)

print(*(k(Holder(qd.Vector.ndarray(3, qd.f32, 2) if kind == "vector" else np.zeros((2, 3), np.float32))) for k in (count, counted)))
"""


def test_members_of_other_processes(tmp_path):
    path = tmp_path / "member.py"
    path.write_text(MEMBER)
    expected = {"vector/open": 2, "numpy/open": 6, "vector/compound": 2, "numpy/compound": 2}
    for case in [*expected, *reversed(expected), *expected]:
        done = subprocess.run(
            [sys.executable, str(path), str(tmp_path / "cache"), case],
            capture_output=True,
            text=True,
            timeout=100,
            env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0"),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert [int(w) for w in done.stdout.split()[-2:]] == [expected[case]] * 2, case


ATTRIBUTE = """
import sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])

@qd.data_oriented
class Holder:
    def __init__(self, a):
        self.a = a
    @qd.func
    def count(self):
        return self.a.shape[0]
    @qd.kernel
    def length(self) -> qd.i32:
        return self.a.shape[0] + 10 * self.count()
    @qd.kernel
    def below(self) -> qd.i32:  # which a func alone looks at
        return self.count()
    @qd.kernel
    def add(self):
        for i in range(2):
            self.a[i] += 1

def words(make):
    h = Holder(make(2))
    out = [h.length()]
    h.a = make(3)
    out += [h.length(), h.below()]
    try:
        h.add()
        out.append(int(h.a[0]))
    except Exception as e:
        out.append(type(e).__name__)
    return out

print(*words(lambda n: qd.ndarray(qd.f32, n) if sys.argv[2] == "own" else np.zeros(n, np.float32)))
"""


def test_attributes_of_other_processes(tmp_path):
    """An array of NumPy's as an attribute is a constant or refused, whatever an ndarray there was before."""
    path = tmp_path / "attribute.py"
    path.write_text(ATTRIBUTE)

    def words(kind, cache):
        done = subprocess.run(
            [sys.executable, str(path), str(tmp_path / cache), kind],
            capture_output=True,
            text=True,
            timeout=100,
            env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0"),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.split()[-4:]

    fresh = {kind: words(kind, f"fresh {kind}") for kind in ("own", "others")}
    assert fresh["own"] == ["22", "33", "3", "1"] and fresh["others"] != fresh["own"]
    for kind in ("others", "own", "others", "own"):
        assert words(kind, "shared") == fresh[kind], kind


@pytest.mark.parametrize("kept", [True, False])
def test_members_of_frozen_dataclasses_are_replaced(backend, kept):
    """Whoever does that has no right to see it at once, but never what is gone."""
    I32 = qd.types.ndarray(qd.i32, 1)
    Holder = dataclasses.make_dataclass("Holder", [("a", I32), ("n", qd.i32)], frozen=True)

    def made(n, value):
        a = qd.ndarray(qd.i32, n)
        a.fill(value)
        return a

    @qd.kernel
    def k(h: Holder) -> qd.i32:
        return h.a[0] * 10 + h.n

    h = Holder(made(3_000_000, 1), 7)
    assert [k(h) for _ in range(4)] == [17] * 4
    old = h.a if kept else None
    object.__setattr__(h, "a", made(10, 5))
    found = {k(h) for _ in range(4)}
    assert found in ([{17}, {57}] if kept else [{57}])
    del old
    gc.collect()
    assert k(h) == 57
    other = Holder(made(5, 2), 7)
    assert [k(x) for x in (h, other, h, h, other, other, other)] == [57, 27, 57, 57, 27, 27, 27]


def test_numpy_members_of_frozen_dataclasses_may_move(backend):
    Holder = dataclasses.make_dataclass("Holder", [("a", qd.types.ndarray(qd.i32, 1))], frozen=True)

    @qd.kernel
    def k(h: Holder) -> qd.i32:
        return h.a[0]

    own = qd.ndarray(qd.i32, 3)
    own.fill(4)
    assert k(Holder(own)) == 4
    h = Holder(np.arange(10, dtype=np.int32) + 1)
    assert [k(h), k(h), k(h)] == [1, 1, 1]
    h.a.resize(3_000_000, refcheck=False)
    h.a[0] = 9
    assert k(h) == 9
