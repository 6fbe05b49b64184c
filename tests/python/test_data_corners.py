"""Corners of containers: what counts as a compiled function, loops over nodes, arrays that are views
of fields, clamped views, wrong values, memory beside a field."""

import dataclasses
import enum
import re

import numpy as np
import pytest

import quadrants as qd
from helpers import Array, raises

clamp = "clamp"
vec2 = qd.types.vector(2, qd.f32)
vec3 = qd.types.vector(3, qd.f32)


def compiled():
    return qd.lang.impl.get_runtime().get_num_compiled_functions()


# --- counting: the first use of a conversion counts one function, its repetition none


def scalar():
    return qd.field(qd.f32, 3)


def vectors():
    return qd.Vector.field(2, qd.f32, 3)


def arrays():
    return qd.ndarray(qd.f32, 3)


COUNTED = {
    "fill": (scalar, lambda x: x.fill(1), 1),
    "fill vectors": (vectors, lambda x: x.fill(1), 1),
    "to_numpy": (scalar, lambda x: x.to_numpy(), 1),
    "from_numpy": (vectors, lambda x: x.from_numpy(np.ones((3, 2), np.float32)), 1),
    "copy_from": (scalar, lambda x: x.copy_from(x), 1),
    "element": (scalar, lambda x: x[0], 0),
    "sync": (scalar, lambda x: qd.sync(), 0),
    "fill array": (arrays, lambda x: x.fill(1), 0),
    "array to_numpy": (arrays, lambda x: x.to_numpy(), 1),
    "array from_numpy": (arrays, lambda x: x.from_numpy(np.ones(3, np.float32)), 1),
    "element of array": (arrays, lambda x: x[0], 0),
}


@pytest.mark.parametrize("name", COUNTED)
def test_conversions_count_once(backend, name):
    make, use, count = COUNTED[name]
    x = make()
    qd.sync()
    before = compiled()
    use(x)
    assert compiled() - before == count
    use(x)
    assert compiled() - before == count
    if make is not arrays:  # arrays of one kind share what is compiled
        use(make())
        assert compiled() - before == 2 * count


def test_counts_end_with_the_runtime(backend):
    scalar().fill(1)
    backend.init()
    assert compiled() == 0


# --- loops over nodes: every cell of the node, with the node's coordinates


def test_loops_over_inner_nodes(backend):
    top = qd.root.dense(qd.i, 3)
    middle = top.dense(qd.j, 4)
    bottom = middle.dense(qd.i, 2)
    middle.place(qd.field(qd.i32))
    bottom.place(y := qd.field(qd.i32))
    row, grid = qd.field(qd.i32, 8), qd.field(qd.i32, (8, 8))

    @qd.kernel
    def over_rows(node: qd.template()):
        for i in node:
            row[i] += 1

    @qd.kernel
    def over_cells(node: qd.template()):
        for i, j in node:
            grid[i, j] += 1

    @qd.kernel
    def over_grouped(node: qd.template()):
        for cell in qd.grouped(node):
            grid[cell] += 10

    @qd.kernel
    def over_parents():
        for i in y.parent(3):
            row[i] += 10

    over_rows(top)
    over_parents()
    assert row.to_numpy().tolist() == [11] * 3 + [0] * 5
    for node, rows in ((middle, 3), (bottom, 6)):
        grid.fill(0)
        over_cells(node)
        over_grouped(node)
        expected = np.zeros((8, 8), int)
        expected[:rows, :4] = 11
        assert np.array_equal(grid.to_numpy(), expected)


# --- an array argument that is a view of a field in the same kernel


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
@pytest.mark.oracle_differs("views of fields need torch there")
def test_view_of_a_field_beside_it(backend):
    total, x = qd.field(qd.f64, 4), qd.field(qd.f64, 1000)

    @qd.kernel
    def add(a: Array):
        for i in range(1000):
            total[0] += 1.0
            a[1] = total[0] * 0 + 5

    @qd.kernel
    def scatter(a: Array):
        for i in range(1000):
            x[i % 10] += 1.0
            if i == 999:
                a[990] = 7.0

    @qd.kernel
    def forward(a: Array) -> qd.f64:
        total[2] = 3.0
        a[2] = 4.0
        return total[2]

    @qd.kernel
    def reduce(a: Array):
        for i in range(1000):
            total[3] += 1.0
            a[3] += 1.0

    apart = np.zeros(1000)
    for a, view in ((apart, apart), (total.to_numpy(copy=False), x.to_numpy(copy=False))):
        shared = a is not apart
        total.fill(0)
        x.fill(0)
        add(a)
        assert total[0] == 1000 and a[1] == 5
        assert forward(a) == (4 if shared else 3)
        scatter(view)
        assert x[0] == 100 and view[990] == 7
        a[3] = 0
        reduce(a)
        assert total[3] == (2000 if shared else 1000)
    add(apart)  # the version for arrays of their own serves again
    assert total[0] == 2000


# --- BufferView


def test_clamped_views(backend):
    x, v = qd.ndarray(qd.f32, 10), qd.Vector.ndarray(2, qd.f32, 4)
    x.from_numpy(np.arange(10, dtype=np.float32))
    v.from_numpy(np.arange(8, dtype=np.float32).reshape(4, 2))

    @qd.kernel
    def number(b: qd.BufferView[qd.f32, clamp], i: qd.i32) -> qd.f32:
        return b[i]

    @qd.kernel
    def component(b: qd.BufferView[vec2, clamp], i: qd.i32, j: qd.i32) -> qd.f32:
        return b[i][j]

    for i, expected in ((-5, 0), (0, 3), (3, 6), (99, 9)):  # into the array, not into the view
        assert number(x[3:7], i) == expected
    for i, j, expected in ((0, 0, 2), (9, 9, 7), (-3, -3, 0), (1, 0, 4), (1, 5, 5)):
        assert component(v[1:3], i, j) == expected


def test_a_view_is_wanted(backend):
    x = qd.ndarray(qd.f32, 10)

    @qd.kernel
    def size(b: qd.BufferView) -> qd.i32:
        return b.size

    for _ in range(2):  # also after a good launch
        for wrong in (x, np.zeros(3, np.float32), 3, None):
            with raises(qd.QuadrantsRuntimeTypeError):
                size(wrong)
        assert size(x[1:4]) == 3


def test_negative_size_of_a_view(debug_backend):
    x = qd.ndarray(qd.f32, 10)

    @qd.kernel
    def size(a: Array, n: qd.i32) -> qd.i32:
        return qd.BufferView(a, 7, n).size

    assert size(x, 3) == 3
    for n in (4, -1):
        with raises(qd.QuadrantsAssertionError, "BufferView construction out of range"):
            size(x, n)


# --- wrong values


def unpacked():
    return qd.types.vector(3, qd.f32, unpacked=True)


def run_with_unpacked():
    @qd.kernel
    def k(x: unpacked()):
        pass

    k([1, 2, 3])


def tensor_of_columns():
    @qd.kernel
    def k(x: qd.Tensor):
        x[0] = 1

    k(np.zeros((6, 2), np.float32)[::2, 0])


@dataclasses.dataclass
class Holder:
    x: qd.types.ndarray()


def field_in_an_array_member():
    @qd.kernel
    def k(h: Holder):
        h.x[0] = 1

    k(Holder(arrays()))
    k(Holder(scalar()))


WRONG = {
    "field as array member": (field_in_an_array_member, qd.QuadrantsRuntimeTypeError, ""),
    "complex into field": (lambda: scalar().from_numpy(np.ones(3, complex)), Exception, "complex128"),
    "complex into array": (lambda: arrays().from_numpy(np.ones(3, complex)), Exception, "complex128"),
    "text into array": (lambda: arrays().from_numpy(np.array(["a"] * 3)), Exception, "U1"),
    "fill with None": (lambda: scalar().fill(None), TypeError, ""),
    "fill array with None": (lambda: arrays().fill(None), TypeError, ""),
    "vector of None": (lambda: vec3(None), TypeError, ""),
    "axis 12": (lambda: qd.axes(12), RuntimeError, "Too many dimensions"),
    "unpacked parameter": (run_with_unpacked, qd.QuadrantsSyntaxError, "unpacked=True"),
    "strided tensor": (tensor_of_columns, ValueError, "Non contiguous numpy arrays are not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values(backend, name):
    use, kind, text = WRONG[name]
    with raises(kind, text):
        use()


# --- memory beside a field


@pytest.mark.oracle_differs("writes into its neighbours", run=False)
def test_an_index_off_by_a_row_stays_inside(backend):
    n = 64
    fields = []
    for _ in range(3):  # trees of their own: within one, fields follow each other
        fields.append(qd.field(qd.f32, (n, n)))
        qd.sync()
    hit = fields[1]

    @qd.kernel
    def write(row: qd.i32):
        for j in range(n):
            hit[row, j] = 1.0

    @qd.kernel
    def add(row: qd.i32):  # threads may add to copies of their own
        for i, j in qd.ndrange(1000, n):
            hit[row, j] += 1.0

    for row in (-1, n):
        write(row)
        add(row)
    assert not any(f.to_numpy().any() for f in fields)


# --- enumerations


class Level(enum.IntEnum):
    low = 1
    high = 5


class Kind(enum.Enum):
    round = 1
    square = 2


def test_enumerations(backend):
    x = qd.field(qd.i32, 8)

    @qd.kernel
    def numbers(level: qd.i32) -> qd.i32:
        r = 0
        if level == Level.high:
            r = 10
        if qd.static(Level.low == 1):
            r += Level.low.value
        x[Level.high] = Level.low + 2
        return r + Kind.square.value

    @qd.kernel
    def choose(kind: qd.template()) -> qd.i32:
        r = 0
        if qd.static(kind == Kind.square):
            r = 4
        elif qd.static(kind == Level.low):
            r = 1
        return r

    assert numbers(Level.high) == 13 and numbers(Level.low) == 3 and x[Level.high] == 3
    assert [choose(k) for k in (Kind.square, Kind.round, Level.low, Level.high)] == [4, 0, 1, 0]


# --- offsets with orders


@pytest.mark.oracle_differs("takes the process down", run=False)
def test_offset_and_order(backend):
    x = qd.field(qd.i32, (2, 3, 4), order="kij", offset=(-1, 5, 0))
    m = qd.Matrix.field(2, 2, qd.f32, 3, offset=-1, order="i", layout=qd.Layout.SOA)

    @qd.kernel
    def number() -> qd.i32:
        for i, j, k in x:
            x[i, j, k] = i * 100 + j * 10 + k
        for i in m:
            m[i][0, 1] += i
        s = 0
        for cell in qd.grouped(x):
            s += x[cell] * (cell[0] + 2) * cell[1] * (cell[2] + 1)
        return s

    i, j, k = np.ogrid[-1:1, 5:8, 0:4]
    values = i * 100 + j * 10 + k
    assert number() == (values * (i + 2) * j * (k + 1)).sum()
    assert np.array_equal(x.to_numpy(), values)
    assert x.snode.shape == (4, 2, 3) and x[-1, 5, 3] == -47
    assert m.to_numpy()[:, 0, 1].tolist() == [-1, 0, 1]


def test_slices_of_views_with_run_time_bounds(backend):
    @qd.kernel
    def run(v: qd.BufferView, n: qd.i32) -> qd.i32:
        u = v[n : n + 2]
        u[1] = 5
        w = v[n:]
        return u.size * 100 + w.size * 10 + w[1]

    a = qd.ndarray(qd.i32, 8)
    assert run(a[1:7], 3) == 235 and a.to_numpy().tolist() == [0, 0, 0, 0, 0, 5, 0, 0]

    @qd.kernel
    def constant_list(n: qd.i32) -> qd.i32:
        return qd.static([1, 2, 3])[0:n][0]

    with pytest.raises(qd.QuadrantsCompilationError):
        constant_list(2)


@pytest.mark.oracle_differs("counts lines from the decorator on")
def test_failing_views_name_the_calls_that_led_there(debug_backend):
    @qd.func
    def put(v: qd.BufferView, i):
        v[i] = 1

    @qd.func
    def pass_on(v: qd.BufferView, i):
        put(v, i)

    @qd.kernel
    def outer(v: qd.BufferView, i: qd.i32):
        for _ in range(1):
            pass_on(v, i)

    @qd.kernel
    def narrow(v: qd.BufferView, o: qd.i32, n: qd.i32):
        for _ in range(1):
            w = v.subview(o, n)
            w[0] = 1

    @qd.kernel
    def construct(a: qd.types.ndarray(dtype=qd.i32, ndim=1), o: qd.i32, n: qd.i32):
        for _ in range(1):
            w = qd.BufferView(a, o, n)
            w[0] = 1

    def text(kernel, *args):
        with pytest.raises(qd.QuadrantsAssertionError) as e:
            kernel(*args)
        return re.sub(r"tid=\d+", "tid=N", str(e.value)).strip().replace(__file__, "F")

    a = qd.ndarray(qd.i32, 8)
    outer(a[2:5], 2)
    line = outer.__wrapped__.__code__.co_firstlineno
    assert text(outer, a[2:5], 3) == (
        "BufferView Out Of Range: kernel[outer] tid=N, got index 3 (offset=2, size=3).\nCallstack:\n"
        f"outer (F:{line + 3})\n  pass_on (F:{line - 2})\n    put (F:{line - 6})"
    )
    narrow(a[2:5], 1, 2)
    for o, n in ((1, 3), (-1, 1), (2**31 - 1, 2**31 - 1)):
        assert text(narrow, a[2:5], o, n).startswith(
            f"BufferView subview Out Of Range: kernel[narrow] tid=N, subview offset={o}, "
            f"subview size={n}, parent size=3.\nCallstack:\nnarrow (F:"
        )
    construct(a, 5, 3)
    assert text(construct, a, 6, 3) == (
        "BufferView construction out of range: offset=6, size=3, ndarray length=8."
    )
