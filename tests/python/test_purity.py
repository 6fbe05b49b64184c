"""What kernels that promise to depend on their arguments only may read from around them."""

import enum
import math
import types
import warnings

import numpy as np
import pytest

import quadrants as qd

number = 3
LIMIT = 4
half = 0.5
text = "a"
numbers = [1, 2]
vector = qd.Vector([1, 2, 3])
small = np.float32(2)
_qd_hidden = 6
settings = types.SimpleNamespace(eps=0.5, EPS=2, dtype=qd.i32, items=(7, 8))


class Mode(enum.IntEnum):
    A = 1
    B = 2


@pytest.fixture(autouse=True)
def cpu():
    qd.init(arch=qd.cpu, offline_cache=False)


@pytest.fixture
def x():
    return qd.ndarray(qd.f32, (3,))


def launch(kernel, x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel(x)
    messages = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    return [m for m in messages if "[PURE.VIOLATION]" in m]


def refused(kernel, x, name):
    with pytest.raises(
        qd.QuadrantsCompilationError, match=r"\[PURE.VIOLATION\] WARNING: Accessing global"
    ) as e:
        kernel(x)
    assert name in str(e.value)


def test_globals_are_refused(x):
    @qd.kernel(fastcache=True)
    def integer(x: qd.types.ndarray()):
        for i in x:
            x[i] = number

    @qd.kernel(fastcache=True)
    def real(x: qd.types.ndarray()):
        for i in x:
            x[i] = half

    @qd.kernel(fastcache=True)
    def bound(x: qd.types.ndarray()):
        for i in range(number):
            x[i] = 1

    refused(integer, x, "variable number")
    refused(integer, x, "variable number")
    refused(real, x, "variable half")
    refused(bound, x, "variable number")


def test_closures_and_attributes_are_refused(x):
    n = 5

    @qd.kernel(fastcache=True)
    def closure(x: qd.types.ndarray()):
        for i in x:
            x[i] = n

    @qd.kernel(fastcache=True)
    def attribute(x: qd.types.ndarray()):
        for i in x:
            x[i] = settings.eps

    refused(closure, x, "variable n")
    refused(attribute, x, "global var eps")


def test_fields_are_refused(x):
    f = qd.field(qd.f32, 3)

    @qd.kernel(fastcache=True)
    def k(x: qd.types.ndarray()):
        for i in x:
            x[i] = f[i]

    refused(k, x, "variable f")


def test_funcs_are_checked_with_their_callers(x):
    @qd.func
    def inner(i):
        return i + number

    @qd.func
    def outer(i):
        return inner(i)

    @qd.func
    def member(s: qd.template()):
        return s.eps

    @qd.kernel
    def free(x: qd.types.ndarray()):
        for i in x:
            x[i] = outer(i) + member(settings)

    @qd.kernel(fastcache=True)
    def pure(x: qd.types.ndarray()):
        for i in x:
            x[i] = outer(i)

    @qd.kernel(fastcache=True)
    def through_argument(x: qd.types.ndarray()):
        for i in x:
            x[i] = member(settings)

    assert launch(free, x) == []
    refused(pure, x, "variable number")
    assert launch(through_argument, x) == []


def test_capitals_and_static_warn(x):
    @qd.kernel(fastcache=True)
    def capitals(x: qd.types.ndarray()):
        for i in x:
            x[i] = LIMIT + settings.EPS

    @qd.kernel(fastcache=True)
    def static(x: qd.types.ndarray()):
        for i in x:
            if qd.static(number == 3):
                x[i] = 1
            if qd.static(text == "a"):
                x[i] += 1

    found = launch(capitals, x)
    assert any("variable LIMIT" in m for m in found) and any("var EPS" in m for m in found)
    assert x.to_numpy().tolist() == [6] * 3
    assert launch(capitals, x) == []
    found = launch(static, x)
    assert any("variable number" in m for m in found) and any("variable text" in m for m in found)
    assert x.to_numpy().tolist() == [2] * 3


def test_what_is_allowed(x):
    @qd.kernel(fastcache=True)
    def k(x: qd.types.ndarray()):
        for _ in range(1):
            x[0] = Mode.B + math.pi + np.pi + qd.math.pi
            x[1] = _qd_hidden + numbers[0] + vector[1] + small + settings.items[0]
            x[2] = qd.cast(2.5, settings.dtype) + qd.cast(1, qd.i32)

    assert launch(k, x) == []
    assert x.to_numpy().tolist() == pytest.approx([2 + 3 * math.pi, 18, 3], 1e-6)


def test_members_of_arguments_are_no_capture():
    @qd.data_oriented
    class C:
        def __init__(self):
            self.n = 3
            self.x = qd.ndarray(qd.i32, (3,))

        @qd.kernel(fastcache=True)
        def k(self):
            for i in self.x:
                self.x[i] = self.n

    c = C()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c.k()
    assert c.x.to_numpy().tolist() == [3] * 3


def test_captured_ndarrays_are_refused_everywhere(x):
    y = qd.ndarray(qd.f32, (3,))

    @qd.kernel
    def k(x: qd.types.ndarray()):
        for i in x:
            x[i] = y[i]

    with pytest.raises(qd.QuadrantsCompilationError):
        k(x)


def test_kernels_that_are_not_pure_are_free(x):
    @qd.kernel
    def k(x: qd.types.ndarray()):
        for i in x:
            x[i] = number + settings.eps

    assert launch(k, x) == []
    assert x.to_numpy().tolist() == [3.5] * 3


def test_print_non_pure(capfd, x):
    qd.init(arch=qd.cpu, offline_cache=False, print_non_pure=True)
    y, z = qd.ndarray(qd.f32, (3,)), qd.ndarray(qd.i32, (3,))

    @qd.kernel
    def impure_kernel(x: qd.types.ndarray()):
        for i in x:
            x[i] = 1

    @qd.kernel(fastcache=True)
    def pure_kernel(x: qd.types.ndarray()):
        for i in x:
            x[i] = 1

    capfd.readouterr()
    for a in (y, y, z):
        impure_kernel(a)
        pure_kernel(a)
    qd.sync()
    out = capfd.readouterr().out
    assert out.count("[NOT_PURE] Debug information: not pure: impure_kernel") == 2
    assert "pure: pure_kernel" not in out


chosen = Mode.A
holder = types.SimpleNamespace(mode=Mode.B)


def test_enum_members_behind_attributes_are_constants(x):
    module = types.ModuleType("client")
    module.mode = Mode.B

    @qd.kernel(fastcache=True)
    def behind(x: qd.types.ndarray()):
        for i in x:
            x[i] = module.mode + holder.mode

    @qd.kernel(fastcache=True)
    def bare(x: qd.types.ndarray()):
        for i in x:
            x[i] = chosen

    assert launch(behind, x) == []
    assert x[0] == 4
    refused(bare, x, "chosen")
