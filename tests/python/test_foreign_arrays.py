"""NumPy arrays that are unusual: read-only ones, odd addresses, dtypes and ranks."""

import dataclasses

import numpy as np
import pytest

import quadrants as qd
from helpers import Array, raises
from test_robustness import run

pytestmark = pytest.mark.usefixtures("backend")


def read_only_error(argument, kernel):
    return raises(
        ValueError,
        f"Argument {argument} is a read-only array, and the kernel writes to it",
        f"argument {argument} of {kernel}",
    )


def read_only(shape=4, dtype=np.float32):
    a = np.ones(shape, dtype)
    a.flags.writeable = False
    return a


@qd.func
def store(y: Array, j):
    y[j] = 3


@qd.func
def store_deeper(y: Array, unused: Array, j):
    store(y, j)


@qd.kernel
def by_store(x: Array):
    for i in range(4):
        x[i] = 3


@qd.kernel
def by_augmented(x: Array):
    for i in range(4):
        x[i] += 2


@qd.kernel
def by_atomic(x: Array):
    for i in range(4):
        qd.atomic_max(x[0], 3)


@qd.kernel
def by_func(x: Array):
    for i in range(4):
        store_deeper(x, x, i)


@qd.kernel
def by_branch(x: Array):
    if x[0] > 5:
        x[0] = 3


@pytest.mark.oracle_differs("it writes to read-only memory", run=False)
@pytest.mark.parametrize("kernel", [by_store, by_augmented, by_atomic, by_func, by_branch])
def test_read_only_array_that_is_written(kernel):
    frozen = read_only()
    with read_only_error("x", kernel.__name__):
        kernel(frozen)
    kernel(np.ones(4, np.float32))
    with read_only_error("x", kernel.__name__):  # the specialisation is there by now
        kernel(frozen)
    with read_only_error("x", kernel.__name__):
        kernel(np.frombuffer(b"\0" * 16, np.float32))
    assert (frozen == 1).all()


@pytest.mark.oracle_differs("it writes to read-only memory", run=False)
def test_only_what_is_written_must_be_writeable():
    @qd.kernel
    def k(x: Array, y: Array, z: Array):
        for i in range(4):
            store_deeper(x, y, i)
            x[i] += y[i] + z[i]

    frozen, x = read_only(), np.zeros(4, np.float32)
    k(x, frozen, frozen)
    assert (x == 5).all()
    with read_only_error("x", "k"):
        k(frozen, x, x)


@pytest.mark.oracle_differs("it writes to read-only memory", run=False)
def test_read_only_member_and_elements():
    @dataclasses.dataclass
    class Pair:
        a: Array[qd.f32, 1]
        b: Array[qd.f32, 1]

    @qd.kernel
    def members(p: Pair):
        for i in range(4):
            p.b[i] = p.a[i] + 1

    @qd.kernel
    def component(x: qd.types.ndarray(dtype=qd.types.vector(3, qd.f32))):
        for i in range(4):
            x[i][1] = 2

    x = np.zeros(4, np.float32)
    members(Pair(read_only(), x))
    assert (x == 2).all()
    with read_only_error("b", "members"):
        members(Pair(x, read_only()))
    with read_only_error("x", "component"):
        component(read_only((4, 3)))


@pytest.mark.oracle_differs("it writes to read-only memory", run=False)
def test_read_only_array_in_fortran_order():
    @qd.kernel
    def read(x: Array) -> qd.f32:
        return x[1, 2]

    @qd.kernel
    def write(x: Array):
        x[1, 2] = 3

    x = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    x.flags.writeable = False
    assert read(x) == 5
    with read_only_error("x", "write"):
        write(x)
    assert x[1, 2] == 5


@dataclasses.dataclass(frozen=True)
class Part:
    a: Array


@dataclasses.dataclass
class Whole:
    part: Part
    b: Array
    n: qd.i32


@pytest.mark.oracle_differs("an array that comes twice is two there")
def test_views_of_one_array_in_fortran_order(backend):
    """Two views of the same elements are one copy."""

    @qd.kernel
    def twice(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i, j in a:
            a[i, j] += 1
        for i, j in b:
            b[i, j] *= 2

    z = np.arange(4, dtype=np.int32).reshape(2, 2)
    twice(z.T, z.T)
    assert z.tolist() == [[2, 4], [6, 8]]


def test_arrays_in_fortran_order_that_hide_their_memory(backend):
    """Whether these are two views of the same cannot be told: they are copies of their own."""

    class Hidden(np.ndarray):
        @property
        def __array_interface__(self):
            raise AttributeError("hidden")

    @qd.kernel
    def both(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i, j in a:
            a[i, j] += 1
            b[i, j] *= 2

    a, b = (np.asfortranarray(np.arange(4, dtype=np.int32).reshape(2, 2)) for _ in range(2))
    both(a.view(Hidden), b.view(Hidden))
    assert a.tolist() == [[1, 2], [3, 4]] and b.tolist() == [[0, 2], [4, 6]]


def test_members_in_fortran_order_or_at_odd_addresses():
    @qd.kernel
    def k(w: Whole, c: Array) -> qd.i32:
        for i, j in qd.ndrange(2, 3):
            w.part.a[i, j] += 10 * i + j
        return w.b[1, 2] + c[0, 1] * 1000 + w.n * 100000

    c = np.arange(6, dtype=np.int32).reshape(2, 3)
    odd = np.frombuffer(bytearray(25), np.int32, offset=1).reshape(2, 3)
    odd[...] = c
    expected = [[0, 2, 4], [13, 15, 17]]
    for _ in range(2):
        for a in (c.copy(), np.asfortranarray(c), odd.copy("F"), odd):
            kept = a.copy()
            assert k(Whole(Part(a), a, 3), a) == 302017
            assert a.tolist() == expected
            a[...] = kept
    f = np.asfortranarray(c)
    f.flags.writeable = False
    with raises(ValueError, "is a read-only array, and the kernel writes to it"):
        k(Whole(Part(f), c, 3), c)


@pytest.mark.oracle_differs("it writes to read-only memory", run=False)
def test_read_only_array_in_a_warm_process(tmp_path):
    body = """
    @qd.kernel
    def k(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(4):
            x[i] = y[i]
    x, y = np.zeros(4, np.float32), np.ones(4, np.float32)
    y.flags.writeable = False
    error = ""
    try:
        if len(sys.argv) > 2:
            k(y, x)
    except ValueError as e:
        error = str(e)
    k(x, y)
    result([error, x.tolist(), qd._lib.core.counters()["lowered"]])
    """
    cache = tmp_path / "cache"
    assert run(tmp_path, body, cache)[0] == ["", [1.0] * 4, 1]
    error, values, lowered = run(tmp_path, body, cache, "warm")[0]
    assert "read-only" in error and values == [1.0] * 4 and lowered == 1  # for the message


def test_unaligned_array():
    x = np.zeros(17, np.uint8)[1:].view(np.float32)
    assert not x.flags.aligned
    by_store(x)
    by_augmented(x)
    assert (x == 5).all()


ODD = {
    "object": (np.array([1, None], object), qd.QuadrantsRuntimeTypeError, "dtype=object"),
    "struct": (np.zeros(4, [("a", "f4")]), qd.QuadrantsRuntimeTypeError, "is not supported"),
    "complex": (np.zeros(4, complex), qd.QuadrantsRuntimeTypeError, "dtype=complex128"),
    "text": (np.zeros(4, "U5"), qd.QuadrantsRuntimeTypeError, "dtype=<U5"),
    "time": (np.zeros(4, "M8[s]"), qd.QuadrantsRuntimeTypeError, "dtype=datetime64[s]"),
    "long double": (np.zeros(4, np.longdouble), qd.QuadrantsRuntimeTypeError, "dtype=float128"),
    "byte order": (np.zeros(4, ">f4"), qd.QuadrantsRuntimeTypeError, "byte order"),
    "backwards": (np.zeros(4, np.float32)[::-1], ValueError, "Non contiguous"),
    "13 axes": (np.zeros((1,) * 13, np.float32), ValueError, "at most 12"),
    "32 axes": (np.zeros((1,) * 32, np.float32), ValueError, "at most 12"),
}


@pytest.mark.oracle_differs("other texts")
@pytest.mark.parametrize("name", ODD)
def test_odd_array(name):
    array, cls, text = ODD[name]

    @qd.kernel
    def first(x: Array):
        pass

    @qd.kernel
    def second(x: Array):
        pass

    second(np.zeros(4, np.float32))
    for kernel in (first, second):
        with raises(cls, text):
            kernel(array)


def test_array_without_elements_or_axes():
    @qd.kernel
    def count(x: Array) -> qd.i32:
        n = 0
        for i in range(x.shape[0]):
            n += 1
        return n

    @qd.kernel
    def one(x: Array):
        x[None] = 7

    assert count(np.zeros(0, np.float32)) == 0
    x = np.zeros((), np.float32)
    one(x)
    assert x == 7
