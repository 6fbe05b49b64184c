"""Operators of a user's own classes: the left operand's method answers for a run-time value."""

import dataclasses
import enum

import pytest

import quadrants as qd


@pytest.fixture(autouse=True)
def runtime():
    qd.init(arch=qd.cpu, log_level="error")


class Dual:
    def __init__(self, value, slope):
        self.value, self.slope = value, slope

    def __add__(self, other):
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slope + other.slope)
        return Dual(self.value + other, self.slope)

    def __mul__(self, other):
        return Dual(self.value * other, self.slope * other)

    def __matmul__(self, other):
        return self.value * other

    def __pow__(self, other):
        return self.value**other

    def __lshift__(self, other):
        return other + 100

    def __lt__(self, other):
        return self.value < other

    def __eq__(self, other):
        return self.value == other

    def __sub__(self, other):
        return NotImplemented

    def __mod__(self, other):
        raise ValueError("no remainder")


@qd.data_oriented
class Shift:
    def __init__(self, by):
        self.by = by

    @qd.func
    def __add__(self, other):
        r = other
        if other > 2:
            r = other + self.by
        return r

    @qd.func
    def __gt__(self, other):
        return self.by > other


@dataclasses.dataclass
class Plain:
    value: int


dual, shift, plain = Dual(2.0, 3.0), Shift(5), Plain(3)


def test_methods_of_python():
    @qd.kernel
    def k(x: qd.f32, n: qd.i32) -> qd.types.vector(6, qd.f32):
        total = 0.0
        for i in range(n):
            total += (dual + i).value
        return [
            (dual + x).value,
            (dual * x).slope,
            dual**n,
            dual << n,
            total,
            (dual < x) * 2 + (dual == x),
        ]

    assert k(1.5, 3).to_list() == [3.5, 4.5, 8.0, 103.0, 9.0, 0.0]
    assert k(2.5, 1).to_list() == [4.5, 7.5, 2.0, 101.0, 2.0, 2.0]


@pytest.mark.oracle_differs("the established package does not ask objects for @")
def test_matmul():
    @qd.kernel
    def k(x: qd.f32) -> qd.f32:
        return dual @ x

    assert k(1.5) == 3.0


def test_methods_that_are_funcs():
    @qd.kernel
    def k(n: qd.i32) -> qd.types.vector(3, qd.i32):
        return [shift + n, shift + n + shift.by, shift > n]

    assert k(3).to_list() == [8, 13, 1]
    assert k(2).to_list() == [2, 7, 1]
    assert k(5).to_list() == [10, 15, 0]


def test_a_changed_object_is_seen_by_new_kernels():
    def total(by):
        s = Shift(by)

        @qd.kernel
        def k(n: qd.i32) -> qd.i32:
            return s + n

        return k(3)

    assert [total(1), total(2), total(1)] == [4, 5, 4]


class Metres(float):
    def __add__(self, other):
        return other + 1000.0


class Code(int):
    def __mul__(self, other):
        return other - 1

    @classmethod
    def __or__(cls, other):
        return other + 7


class Level(enum.IntFlag):
    low = 1
    high = 4


metres, code = Metres(2.5), Code(3)


def test_numbers_with_methods_of_their_own():
    @qd.kernel
    def k(n: qd.i32) -> qd.types.vector(6, qd.f32):
        return [metres + n, metres * n, code * n, code + n, code | n, Level.high | n]

    assert k(2).to_list() == [1002.0, 5.0, 1.0, 5.0, 9.0, 6.0]


def test_a_method_runs_once():
    class Counting:
        calls = 0

        def __add__(self, other):
            Counting.calls += 1
            return other + 100 * Counting.calls

    counting = Counting()

    @qd.func
    def put(items: qd.template(), x):
        items.append(counting + x)

    @qd.kernel
    def k(x: qd.i32) -> qd.i32:
        items = [0]
        put(items, x)
        return items[1]

    assert k(7) % 100 == 7 and Counting.calls == k(7) // 100


def refused(how):
    @qd.kernel
    def k(x: qd.f32) -> qd.f32:
        if qd.static(how == "declines"):
            return dual - x
        if qd.static(how == "has none"):
            return dual // x
        if qd.static(how == "a dataclass"):
            return plain + x
        if qd.static(how == "the right one"):
            return x + dual
        return plain < x

    with pytest.raises(qd.QuadrantsTypeError) as e:
        k(1.0)
    return str(e.value)


@pytest.mark.parametrize("how", ["declines", "has none", "a dataclass", "the right one", "order"])
def test_the_rest_is_refused(how):
    assert "have bits" not in refused(how)


def test_what_a_method_raises_arrives():
    @qd.kernel
    def k(x: qd.f32) -> qd.f32:
        return dual % x

    with pytest.raises((qd.QuadrantsCompilationError, ValueError), match="no remainder"):
        k(1.0)
