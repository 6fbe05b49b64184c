"""Whole small programs: control flow, containers and static code, compared with Python itself.

Functions in `PROGRAMS` mean the same in Python and in a kernel; one test runs each both ways.
"""

import enum

import numpy as np
import pytest

import quadrants as qd
from helpers import Array

PROGRAMS = []


def program(*calls):
    """Registers a function with the argument tuples it is run on."""

    def add(fn):
        PROGRAMS.extend(pytest.param(fn, args, id=f"{fn.__name__}{list(args)}") for args in calls)
        return fn

    return add


@program((20,), (2,), (0,))
def loops_in_a_while(n: qd.i32) -> qd.f64:
    s = 0.0
    k = 0
    while k < n:
        k += 1
        if k == 3:
            continue
        if k == 8:
            break
        for j in range(10):
            if j == 3:
                continue
            if j == 5:
                break
            s += k * j
    return s


@program((10,))
def loops_in_a_parallel_loop(n: qd.i32) -> qd.i32:
    r = 0
    for _ in range(1):
        for i in range(n):
            for j in range(i):
                if (i + j) % 2 == 0:
                    if j > 2:
                        continue
                    r += 1
                elif i > 5:
                    break
    return r


@program((6,))
def loop_locals_start_anew(n: qd.i32) -> qd.i32:
    s = 0
    for i in range(n):
        for j in range(n):
            t = 0
            for k in range(n):
                if k == i:
                    continue
                t += 1
            s += t
    return s


@program((10,))
def inner_sum_becomes_a_reduction(n: qd.i32) -> qd.i32:
    total = 0
    for i in range(n):
        inner = 0
        for j in range(i):
            inner += j
        total += inner
    return total


@program((4, 3.0), (4, 1.0), (1, 0.0), (0, 0.0))
def logic_of_mixed_operands(n: qd.i32, x: qd.f32) -> qd.i32:
    a = n > 3 and x > 2 or n == 1
    b = 1 < n < 5
    c = 5 if n > 2 else 7
    d = not (n > 3)
    e = n and 6
    return a * 1 + b * 10 + c * 100 + d * 1000 + e * 10000


@program((5,))
def flag_ends_a_while(n: qd.i32) -> qd.i32:
    ok = True
    count = 0
    j = 0
    while ok and j < 100:
        j += 1
        if j % 2 == 0:
            continue
        count += 1
        ok = count < n
    return count * 1000 + j


@program((5,), (0,))
def while_true(n: qd.i32) -> qd.i32:
    i = 0
    while True:
        i += 1
        if i > n:
            break
    return i


@program((1, 2))
def swap(x: qd.i32, y: qd.i32) -> qd.i32:
    a = x
    b = y
    a, b = b, a
    return a * 10 + b


@program((2,))
def named_expression(n: qd.i32) -> qd.i32:
    return (b := n + 1) * 2 + b


@program((2,))
def chained_assignment(n: qd.i32) -> qd.i32:
    a = b = n
    a += 1
    return a * 10 + b


@program((-7, 2), (7, -2), (7, 2))
def division_rounds_down(a: qd.i32, b: qd.i32) -> qd.f64:
    return a / b + (a // b) * 10 + (a % b) * 100 + a**2 * 1000


@program((3,))
def lists_and_dicts(a: qd.i32) -> qd.i32:
    first = [a, a + 1]
    longer = first + [7]
    longer[0] += 5
    table = {"x": a, "y": [a, 2 * a]}
    table["x"] = 100
    doubled = [i * a for i in range(4)]
    by_key = {k: k * 2 for k in range(3)}
    s = len(longer) + longer[2] * 10 + longer[0] * 100 + first[0] * 1000
    return s + table["x"] + table["y"][1] + doubled[3] + by_key[2] + sum(doubled) + min(longer)


@pytest.mark.parametrize("fn,args", PROGRAMS)
def test_means_the_same_as_in_python(backend, fn, args):
    assert qd.kernel(fn)(*args) == fn(*args)


def test_static_code_unrolls(backend):
    @qd.kernel
    def k() -> qd.i32:
        s = 0
        for i in qd.static(range(4)):
            if qd.static(i == 2):
                continue
            s += i
        for i, j in qd.static(qd.ndrange(3, 3)):
            s += i * j
        for a, b in qd.static(zip([1, 2], [3, 4])):
            s += a * b
        x = [s, 2, 3]
        y = [i * 2 for i in x]
        return s + y[0]

    assert k() == 3 * ((0 + 1 + 3) + 9 + 11)


def test_funcs_as_values(backend):
    @qd.func
    def successor(x):
        return x + 1

    @qd.func
    def double(x):
        return x * 2

    @qd.func
    def apply(g: qd.template(), x):
        return g(x)

    steps = [successor, double]

    @qd.kernel
    def chain(n: qd.i32) -> qd.i32:
        s = n
        for g in qd.static(steps):
            s = g(s)
        h = qd.static(successor)
        return h(s)

    @qd.kernel
    def passed(n: qd.i32) -> qd.i32:
        return apply(successor, n) * 100 + apply(double, n)

    assert chain(3) == 9 and passed(3) == 406


def test_closures_are_told_apart(backend):
    base = 5

    def make(k):
        @qd.func
        def g(x):
            return x * k

        @qd.kernel
        def h(n: qd.i32) -> qd.i32:
            return g(n) + base + k

        return h

    assert [make(2)(3), make(3)(3)] == [6 + 5 + 2, 9 + 5 + 3]


def test_template_values_make_specialisations(backend):
    f, g = qd.field(qd.f32, 5), qd.field(qd.i32, 5)

    @qd.kernel
    def count(a: qd.template(), n: qd.template()):
        for i in range(n):
            a[i] = n

    @qd.kernel
    def fill(x: qd.template(), y: qd.template()):
        for i in x:
            x[i] = y

    count(f, 4), count(f, 2)
    assert f.to_numpy().tolist() == [2, 2, 4, 4, 0]
    fill(f, 3), fill(g, 4)
    assert (f[0], g[4]) == (3, 4)


def test_an_absent_tensor_is_none(backend):
    @qd.kernel
    def k(a: qd.Tensor | None, n: qd.i32) -> qd.i32:
        r = 0
        if qd.static(a is not None):
            r = 1
        return r + n

    assert k(None, 1) == 1


def test_none_stands_on_either_side(backend):
    @qd.kernel
    def k(x: qd.template()) -> qd.i32:
        r = 0
        if qd.static(None is x):
            r = 1
        if qd.static(None is not x):
            r += 10
        return r

    assert (k(3), k(None)) == (10, 1)


def test_enumerators_index_and_add(backend):
    class Slot(enum.IntEnum):
        A = 1
        B = 2

    f = qd.field(qd.i32, 4)

    @qd.kernel
    def k():
        f[Slot.B] = Slot.A + 4

    k()
    assert f.to_numpy().tolist() == [0, 0, 5, 0]


def test_pyfunc_runs_in_both_worlds(backend):
    @qd.pyfunc
    def thrice(x):
        return x * 3

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        return thrice(n)

    assert k(2) == thrice(2) == 6


def test_neighbours_and_nested_conditionals(backend):
    @qd.kernel
    def k(a: Array, s: qd.f32):
        n = a.shape[0]
        for i in range(n - 1):
            a[i] = qd.select(i % 2 == 0, s, -s) if i > 1 else 0.5

    a = np.ones(5, np.float32)
    k(a, 2.0)
    assert a.tolist() == [0.5, 0.5, 2, -2, 1]


def test_local_vector_shared_by_a_parallel_loop(backend):
    @qd.kernel
    def k() -> qd.f32:
        v = qd.Vector([0.0, 0.0])
        for i in range(100):
            v[i % 2] += 1.0
            v += qd.Vector([1.0, 2.0])
        return v[0] + v[1]

    assert k() == 400


def test_loop_hints_keep_results(backend):
    f = qd.field(qd.i32, 10)

    @qd.kernel
    def k():
        for i in f:
            f[i] += qd.assume_in_range(i, i, 0, 1)
            qd.block_local(f)

    k()
    assert f.to_numpy().tolist() == list(range(10))


def test_fields_with_offset_and_order(backend):
    f = qd.field(qd.i32, (4, 3), offset=(-2, 1))
    g = qd.field(qd.i32, (3, 4), order="ji")

    @qd.kernel
    def k():
        for i, j in f:
            f[i, j] = i * 10 + j
        for i, j in g:
            g[i, j] = i * 10 + j

    k()
    assert f.to_numpy().tolist() == [[10 * i + j for j in range(1, 4)] for i in range(-2, 2)]
    assert g.to_numpy().tolist() == [[10 * i + j for j in range(4)] for i in range(3)]


def test_rescaled_index(backend):
    a, b = qd.field(qd.f32, (4, 8)), qd.field(qd.f32, (8, 2))
    out = np.zeros(2, np.int32)

    @qd.kernel
    def k(out: Array):
        at = qd.rescale_index(a, b, qd.Vector([3, 7]))
        out[0], out[1] = at[0], at[1]

    k(out)
    assert out.tolist() == [6, 1]
    assert qd.rescale_index(a, b, qd.Vector([3, 7])).to_list() == [6, 1]  # on the host
    assert qd.rescale_index(a.parent(), b, [3, 7, 5]).to_list() == [6, 1, 5]
    at = qd.Vector([3, 7], qd.i32)
    assert qd.rescale_index(b, a, at).entries.dtype == np.int32 and at.to_list() == [3, 7]
    for given, word in (((3, b, at), "first"), ((a, qd.root, at), "second"), ((a, b, 3), "third")):
        with pytest.raises(AssertionError, match=f"The {word} argument must be"):
            qd.rescale_index(*given)


def test_an_index_is_rescaled_along_the_axes_that_both_have(backend):
    line, plane, point = qd.field(qd.f32, 4), qd.field(qd.f32, (8, 2)), qd.field(qd.f32, ())
    tile, cell = qd.root.dense(qd.ij, (4, 8)), qd.field(qd.i32)
    tile.place(cell)
    out = qd.Vector.field(2, qd.i32, 6)

    @qd.kernel
    def k(i: qd.i32, j: qd.i32):
        at = qd.Vector([i, j])
        out[0] = qd.rescale_index(line, plane, at)
        out[1] = qd.rescale_index(plane, line, at)
        out[2] = qd.rescale_index(point, plane, at)
        out[3] = qd.rescale_index(plane, point, at)
        out[4] = qd.rescale_index(tile, plane, at)
        out[5][0] = qd.rescale_index(tile, plane, [i])[0]

    k(3, 5)
    assert out.to_numpy().tolist() == [[6, 5], [1, 5], [3, 5], [3, 5], [6, 1], [6, 0]]


@pytest.mark.parametrize("place, word", [(0, "first"), (1, "second")])
def test_only_fields_and_nodes_have_extents_to_rescale_by(backend, place, word):
    line = qd.field(qd.f32, 4)

    @qd.kernel
    def k(a: Array):
        if qd.static(place == 0):
            qd.rescale_index(a, line, [1])
        else:
            qd.rescale_index(line, a, [1])

    with pytest.raises(
        qd.QuadrantsCompilationError, match=f"The {word} argument must be a field or an SNode"
    ):
        k(np.zeros(4, np.int32))


FROM_NUMPY = np.array([3, 5, 7], np.int32)


def test_vectors_and_matrices_of_numpy_arrays(backend):
    grid = np.array([[1.5, 2.5], [3.5, 4.5]])

    @qd.kernel
    def k() -> qd.types.vector(4, qd.f32):
        v, m = qd.Vector(FROM_NUMPY, dt=qd.i64), qd.Matrix(grid)
        return qd.Vector([v[1], v[2], m[0, 1], m[1, 0]])

    assert k().to_list() == [5, 7, 2.5, 3.5]


@pytest.mark.oracle_differs("it unpacks no matrices")
def test_a_matrix_of_one_column_is_unpacked(backend):
    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        x, y, z = qd.Matrix([[n], [n + 1], [n + 2]])
        return x * 100 + y * 10 + z

    assert k(3) == 345
