"""Loops of a kernel in reverse mode: what one reads and another writes, of storage without gradients.

Losses are linear in x, which is 1: the gradient's sum is the loss, unless the way back finds other
values than the way there.
"""

import ctypes

import numpy as np
import pytest

import quadrants as qd
from gradient_helpers import field
from helpers import raises

N = 6
OVERWRITES = "A loop reads what it, or a loop behind it, overwrites"

again = pytest.mark.oracle_differs("goes back over what the kernel left")
refused = pytest.mark.oracle_differs("goes back over what the kernel left, or dies", run=False)


@pytest.fixture
def f64(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    return backend.init(default_fp=qd.f64, ad_stack_experimental_enabled=True)


def is_refused(kernel, loss, *args):
    """Where the way back would find something else; the kernel itself runs as ever."""
    with raises(RuntimeError, OVERWRITES) as e:
        with qd.ad.Tape(loss):
            kernel(*args)
    assert f"in {kernel.__name__}:" in str(e.value) and "^" in str(e.value)
    return str(e.value)


def is_exact(kernel, x, loss, *args):
    x.fill(1)
    with qd.ad.Tape(loss):
        kernel(*args)
    slope = x.grad.to_numpy()
    assert slope.any() and slope.sum() == loss[None]


# --- loops that give storage all its values


def given_in_part(x: qd.template(), loss: qd.template()):
    vector, other = (qd.Vector.field(2, qd.f64, N) for _ in range(2))
    matrix, counts = qd.Matrix.field(2, 2, qd.f64, N), qd.Vector.field(2, qd.i32, N)
    pair = qd.types.struct(v=qd.types.vector(3, qd.f64), at=qd.i32).field(shape=N)
    array = qd.Vector.ndarray(2, qd.f64, N)
    first = other.get_scalar_field(0)
    scalar, single, long = qd.field(qd.f64, N), qd.field(qd.i32, ()), qd.field(qd.f64, 300)
    for f in (vector, other, matrix, counts, pair.v, array, scalar, single, long):
        f.fill(3)

    @qd.kernel
    def vectors(n: qd.i32):
        for i in range(N):
            vector[i][i % 2] = 1.0
        for i in range(N):
            vector[i] = vector[i] * 2
        for i in range(N):
            loss[None] += x[i] * vector[i][0] * vector[i][1]

    @qd.kernel
    def rows(n: qd.i32):
        for i in range(N):
            matrix[i][0, i % 2] = 1.0
        for i in range(N):
            matrix[i] += matrix[i]
        for i in range(N):
            loss[None] += x[i] * matrix[i][0, 1] * matrix[i][0, 0]

    @qd.kernel
    def members(n: qd.i32):
        for i in range(N):
            pair[i].v[i % 3] = 1.0
        for i in range(N):
            pair[i].v[(i + 1) % 3] += 1.0
        for i in range(N):
            loss[None] += x[i] * pair[i].v.sum()

    @qd.kernel
    def arrays(n: qd.i32, a: qd.types.ndarray(qd.types.vector(2, qd.f64), 1)):
        for i in range(a.shape[0]):
            a[i][i % 2] = 1.0
        for i in range(a.shape[0]):
            a[i] = a[i] * 2
        for i in range(a.shape[0]):
            loss[None] += x[i] * a[i][0] * a[i][1]

    @qd.kernel
    def trips(n: qd.i32):
        for i in range(N):
            counts[i][i % 2] = 0
        for i in range(N):
            counts[i][(i + 1) % 2] += 1
        for i in range(N):
            for _ in range(counts[i][0] + counts[i][1]):
                loss[None] += x[i]

    @qd.kernel
    def fields_of_components(n: qd.i32):
        for i in range(N):
            first[i] = 1.0
        for i in range(N):
            other[i] = other[i] * 2
        for i in range(N):
            loss[None] += x[i] * other[i][1]

    @qd.kernel
    def narrow(n: qd.i32):
        for i in range(300):
            long[qd.cast(qd.cast(i, qd.u8), qd.i32)] = 1.0
        for i in range(300):
            long[i] = long[i] * 2
        for i in range(300):
            loss[None] += x[i % N] * long[i]

    @qd.kernel
    def truths(n: qd.i32):
        for i in range(N):
            scalar[qd.cast(qd.cast(i, qd.u1), qd.i32)] = 1.0
        for i in range(N):
            scalar[i] = scalar[i] * 2
        for i in range(N):
            loss[None] += x[i] * scalar[i]

    @qd.kernel
    def never(n: qd.i32):
        for _ in range(n):
            single[None] = 1
        for _ in range(1):
            single[None] += 1
        for i in range(N):
            loss[None] += x[i] * single[None]

    @qd.kernel
    def in_no_column(n: qd.i32):
        for i, j in qd.ndrange(N, n):
            scalar[i] = 1.0
        for i in range(N):
            scalar[i] *= 2
        for i in range(N):
            loss[None] += x[i] * scalar[i]

    return {k.__name__: (k, [array] if k is arrays else []) for k in (
        vectors, rows, members, arrays, trips, fields_of_components, narrow, truths, never, in_no_column,
    )}  # fmt: skip


@refused
@pytest.mark.parametrize(
    "name",
    [
        "vectors",
        "rows",
        "members",
        "arrays",
        "trips",
        "fields_of_components",
        "narrow",
        "truths",
        "never",
        "in_no_column",
    ],
)
def test_a_part_of_storage_is_not_all_of_it(f64, name):
    """A loop that stores to some component, or may skip elements, gives no storage its values."""
    x, loss = field(N), field()
    kernel, arrays = given_in_part(x, loss)[name]
    is_refused(kernel, loss, 0, *arrays)
    kernel(1, *arrays)


@pytest.mark.parametrize("ip", [qd.i32, qd.i64], ids=["i32", "i64"])
@pytest.mark.parametrize("kind", ["field", "array", "component", "all", "moved", "cast", "rows"])
def test_storage_that_is_given_all_its_values(backend, established, kind, ip):
    if established and kind == "array" and ip == qd.i64:
        pytest.skip("other values")
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    backend.init(default_fp=qd.f64, default_ip=ip, ad_stack_experimental_enabled=True)
    x, loss = field(N), field()
    scalar, moved, total = qd.field(qd.f64, N), qd.field(qd.f64, N, offset=-2), qd.field(qd.i32, ())
    vector, array = qd.Vector.field(2, qd.f64, N), qd.Vector.ndarray(2, qd.f64, N)
    for f in (scalar, moved, total, vector, array):
        f.fill(3)

    @qd.kernel
    def of_field():
        for i in scalar:
            scalar[i] = i
        for i in range(N):
            scalar[i] *= 2
        for i in range(N):
            loss[None] += x[i] * scalar[i]

    @qd.kernel
    def of_array(a: qd.types.ndarray(qd.types.vector(2, qd.f64), 1)):
        for i in range(a.shape[0]):
            a[i] = qd.Vector([1.0, i])
        for i in range(a.shape[0]):
            a[i] = a[i] * 2
            a[i][i % 2] += 1.0
        for i in range(a.shape[0]):
            loss[None] += x[i] * a[i][0] * a[i][1]

    @qd.kernel
    def of_component():
        for i in range(N):
            vector[i].y = i
        for i in range(N):
            vector[i].y *= 2
        for i in range(N):
            loss[None] += x[i] * vector[i].y

    @qd.kernel
    def of_all():
        for _ in range(2):
            total[None] = 2
        for _ in range(1):
            total[None] += 1
        for i in range(N):
            loss[None] += x[i] * total[None]

    @qd.kernel
    def of_moved():
        for i in range(-2, N - 2):
            moved[i] = i
        for i in range(-2, N - 2):
            moved[i] *= 2
        for i in range(N):
            loss[None] += x[i] * moved[i - 2]

    @qd.kernel
    def by_cast():
        for i in range(N):
            scalar[qd.cast(qd.cast(qd.cast(i, qd.u8), qd.i64), qd.i32)] = i
        for i in range(N):
            scalar[i] *= 2
        for i in range(N):
            loss[None] += x[i] * scalar[i]

    @qd.kernel
    def by_rows():
        for i, j in qd.ndrange(N, 2):
            scalar[i] = i
        for i in range(N):
            scalar[i] *= 2
        for i in range(N):
            loss[None] += x[i] * scalar[i]

    kernels = {"field": of_field, "array": of_array, "component": of_component, "all": of_all}
    kernels |= {"moved": of_moved, "cast": by_cast, "rows": by_rows}
    is_exact(kernels[kind], x, loss, *[array] * (kind == "array"))


# --- bounds of outermost loops


def overwritten_bounds(x: qd.template(), loss: qd.template()):
    """Storage that bounds are computed from; two more than is there when the kernel is done."""
    single, counts = qd.field(qd.i32, ()), qd.field(qd.i32, N)
    vector = qd.Vector.field(2, qd.i32, 2)
    array = qd.ndarray(qd.i32, 3)

    def start():
        for f in (single, counts, vector, array):
            f.fill(2)

    @qd.kernel
    def end(n: qd.i32):
        for i in range(single[None]):
            loss[None] += x[i]
        for _ in range(1):
            single[None] = 5

    @qd.kernel
    def begin(n: qd.i32):
        for i in range(single[None], N):
            loss[None] += x[i]
        for _ in range(1):
            single[None] = 5

    @qd.kernel
    def of_array(n: qd.i32, a: qd.types.ndarray(qd.i32, 1)):
        for i in range(a[1]):
            loss[None] += x[i]
        for i in range(3):
            a[i] = 5

    @qd.kernel
    def dimension(n: qd.i32):
        for i, j in qd.ndrange(2, (counts[4], single[None] + 4)):
            loss[None] += x[i + j - 2]
        for _ in range(1):
            single[None] = 1

    @qd.kernel
    def grouped(n: qd.i32):
        for at in qd.grouped(qd.ndrange(single[None], vector[0][1])):
            loss[None] += x[at.sum()]
        for _ in range(1):
            vector[0].y = 4

    @qd.kernel
    def element(n: qd.i32):
        for i in range(counts[3]):
            loss[None] += x[i]
        for i in range(N):
            counts[i] += 1

    @qd.kernel
    def element_of_element(n: qd.i32):
        for i in range(counts[counts[1] + 1]):
            loss[None] += x[i]
        for i in range(2):
            counts[i] = 5

    @qd.kernel
    def expression(n: qd.i32):
        for i in range(qd.max(n * single[None], 1)):
            loss[None] += x[i]
        for _ in range(1):
            single[None] = 5

    @qd.kernel
    def sum_of_vector(n: qd.i32):
        for i in range(vector[0].sum() // 2):
            loss[None] += x[i]
        for i in range(1):
            vector[i][n - 1] = 6

    @qd.kernel
    def own(n: qd.i32):
        for i in range(single[None]):
            loss[None] += x[i]
            single[None] = 4
        for i in range(N):
            loss[None] += x[i]

    @qd.kernel
    def serial(n: qd.i32):
        for i in range(N):
            loss[None] += x[i]
        qd.loop_config(serialize=True)
        for i in range(single[None]):
            loss[None] += x[i]
        qd.loop_config(serialize=True)
        for _ in range(1):
            single[None] = 5

    @qd.kernel
    def of_stores(n: qd.i32):
        for i in range(single[None]):
            counts[i] = i
        for _ in range(1):
            single[None] = 1
        for i in range(N):
            loss[None] += x[i] * counts[i]

    kernels = (
        end, begin, of_array, dimension, grouped, element, element_of_element, expression,
        sum_of_vector, own, serial, of_stores,
    )  # fmt: skip
    return start, {k.__name__: (k, [array] if k is of_array else []) for k in kernels}


BOUNDS = (
    "end begin of_array dimension grouped element element_of_element expression sum_of_vector own "
    "serial of_stores"
)


@refused
@pytest.mark.parametrize("name", BOUNDS.split())
def test_bounds_that_are_overwritten(f64, name):
    x, loss = field(N), field()
    start, kernels = overwritten_bounds(x, loss)
    kernel, arrays = kernels[name]
    start()
    text = is_refused(kernel, loss, 1, *arrays)
    assert "    for " in text or name == "of_stores"  # that shows the store


@again
def test_bounds_that_the_kernel_gives(f64):
    """They are what they were, each time; storage that nothing overwrites is at hand."""
    x, loss = field(N), field()
    single, counts, rest = qd.field(qd.i32, ()), qd.field(qd.i32, N), qd.field(qd.i32, ())
    counts.fill(3)

    @qd.kernel
    def k():
        for _ in range(1):
            single[None] = 1
        for i in range(single[None]):
            loss[None] += x[i]
        for _ in range(1):
            single[None] = 4
        for i, j in qd.ndrange(single[None], counts[5]):
            loss[None] += x[i]
            rest[None] = 7  # no loop reads it
        for i in range(single[None], counts[0] + 3):
            loss[None] += x[i] * 5

    for _ in range(2):
        x.fill(1)
        with qd.ad.Tape(loss):
            k()
        assert x.grad.to_numpy().tolist() == [4, 3, 3, 3, 5, 5]
        assert single[None] == 4


def test_bounds_behind_what_waits(f64):
    """Counters that go on at each way back are read as the kernel left them."""
    x, loss = field(N), field()
    single = qd.field(qd.i32, ())

    @qd.kernel
    def k():
        for _ in range(1):
            single[None] += 2
        for i in range(single[None]):
            loss[None] += x[i]

    x.fill(1)
    for n in (2, 6):
        with qd.ad.Tape(loss):
            k()
        assert x.grad.to_numpy().tolist() == [1] * n + [0] * (N - n)


@refused
@pytest.mark.parametrize("name", ["appends", "deactivates", "deactivates_bits"])
def test_active_cells_that_are_taken_away(f64, name):
    """Or numbers that a list gets; cells that are only activated are gone over, too."""
    x, loss = field(N), field()
    number, cell, bit = (qd.field(qd.i32) for _ in range(3))
    lists, cells = qd.root.dense(qd.i, 2).dynamic(qd.j, 8), qd.root.pointer(qd.i, N)
    bits = qd.root.bitmasked(qd.i, N)
    for node, placed in ((lists, number), (cells.dense(qd.j, 1), cell), (bits, bit)):
        node.place(placed)

    @qd.kernel
    def start():
        for i in range(2):
            qd.append(lists, 0, i)
            cell[i, 0] = 1
            bit[i] = 1

    @qd.kernel
    def appends():
        for i, j in number:
            loss[None] += x[j]
        for _ in range(1):
            qd.append(lists, 0, 7)

    @qd.kernel
    def deactivates():
        for i, j in cell:
            loss[None] += x[i]
        for i in range(2):
            qd.deactivate(cells, [i])

    @qd.kernel
    def deactivates_bits():
        for i in bit:
            loss[None] += x[i]
        for i in range(2):
            qd.deactivate(bits, [i])

    @qd.kernel
    def activates():
        for i, j in cell:
            loss[None] += x[i]
        for i in range(N):
            cell[i, 0] = 1

    start()
    is_refused({k.__name__: k for k in (appends, deactivates, deactivates_bits)}[name], loss)
    activates.grad()


def test_a_last_loop_may_write_its_bound(f64):
    """As what it reads otherwise; its gradient is then that of another number of iterations."""
    x, loss = field(N), field()
    single = qd.field(qd.i32, ())
    single.fill(2)

    @qd.kernel
    def k():
        for i in range(N):
            loss[None] += x[i]
        for i in range(single[None]):
            loss[None] += x[i]
            single[None] = 2

    is_exact(k, x, loss)


# --- arrays that share memory


def alike(name):
    """Two arrays of i32, of which the second may be the first."""
    if name == "distinct":
        return qd.ndarray(qd.i32, N), qd.ndarray(qd.i32, N)
    if name == "ndarray":
        return [qd.ndarray(qd.i32, N)] * 2
    memory = np.zeros(N + 1, np.int32)
    return (memory[:N], memory[:N]) if name == "numpy" else (memory[1:], memory[:N])


def kernels_of_two_arrays(x: qd.template(), loss: qd.template()):
    counts = qd.field(qd.i32, N)

    @qd.kernel
    def read(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(N):
            loss[None] += x[i] * a[i]
        for i in range(N):
            b[i] = 5

    @qd.kernel
    def bound(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(a[0]):
            loss[None] += x[i]
        for i in range(N):
            b[i] = 4

    @qd.kernel
    def given(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(a.shape[0]):
            a[i] = i + 1
        for i in range(N):
            loss[None] += x[i] * a[i]
        for i in range(N):
            b[i] = 7

    @qd.kernel
    def waits(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(N):
            a[i] = i + 1
        for i in range(N):
            loss[None] += x[i] * b[i]

    @qd.kernel
    def doubles(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(N):
            b[i] = b[i] * 2
        for i in range(N):
            loss[None] += x[i] * a[i]

    @qd.kernel
    def beside(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in counts:
            counts[i] = i % 2
        for i in range(N):
            loss[None] += x[i] * counts[i]
        for i in range(N):
            b[i] = a[i] + 1

    return {k.__name__: k for k in (read, bound, given, waits, doubles, beside)}


@pytest.mark.parametrize("tier", ["interpret", "0", "1"])
@pytest.mark.parametrize("name", ["read", "bound", "given", "waits", "doubles", "beside"])
@pytest.mark.parametrize("second", ["ndarray", "numpy", "views"])
def test_an_array_that_is_passed_twice(backend, established, monkeypatch, tier, name, second):
    """Is one memory in what loops read and write, and distinct arrays are two, in turn."""
    if established or backend.name not in ("cpu", "cuda"):
        pytest.skip("it goes back over what the kernel left, or no f64")
    monkeypatch.setenv("QD_CPU_TIER", tier)
    backend.init(default_fp=qd.f64, ad_stack_experimental_enabled=True)
    x, loss = field(N), field()
    kernel = kernels_of_two_arrays(x, loss)[name]

    def start(arrays):
        for a in arrays:
            a.fill(2)
        return arrays

    for _ in range(2):
        is_exact(kernel, x, loss, *start(alike("distinct")))
        arrays = start(alike(second))
        if name in ("read", "bound", "given"):
            is_refused(kernel, loss, *arrays)
        else:
            is_exact(kernel, x, loss, *arrays)


@pytest.mark.parametrize("tier", ["interpret", "0", "1"])
def test_an_array_that_is_a_field(backend, established, monkeypatch, tier):
    if established or backend.name != "cpu":
        pytest.skip("fields without views, or of other memory")
    monkeypatch.setenv("QD_CPU_TIER", tier)
    from quadrants.lang._data import convert

    backend.init(default_fp=qd.f64)
    x, loss, counts = field(N), field(), qd.field(qd.i32, N)

    @qd.kernel
    def of_field(a: qd.types.ndarray()):
        for i in range(N):
            loss[None] += x[i] * counts[i]
        for i in range(N):
            a[i] = 5

    @qd.kernel
    def of_array(a: qd.types.ndarray()):
        for i in range(N):
            loss[None] += x[i] * a[i]
        for i in range(N):
            counts[i] = 5

    class Exporter:
        def __dlpack__(self, **kwargs):
            return convert.capsule_of(counts, versioned=False, needs_torch=False)

        def __dlpack_device__(self):
            return 1, 0

    seen = np.from_dlpack(Exporter())
    view = np.ctypeslib.as_array((ctypes.c_int32 * N).from_address(seen.ctypes.data))
    for kernel in (of_field, of_array):
        for _ in range(2):
            counts.fill(2)
            is_exact(kernel, x, loss, np.full(N, 3, np.int32))
            counts.fill(2)
            is_refused(kernel, loss, view)
