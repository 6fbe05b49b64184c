"""What a kernel may write to though nobody sees it outside: struct arguments, indices of boxes."""

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

vec2 = qd.types.vector(2, qd.f32)


@qd.dataclass
class Part:
    a: qd.f32
    v: vec2

    @qd.func
    def add(self, by):
        self.a += by
        self.v[1] -= by


Whole = qd.types.struct(part=Part, n=qd.i32, m=qd.types.matrix(2, 2, qd.f32))


@qd.func
def set_first(p: qd.template()):
    p.v[0] = 100


def part(a=1.0, v=(3.0, 4.0)):
    return Part(a, list(v))


def whole(a=1.0, v=(3.0, 4.0), n=2):
    return Whole(part(a, v), n, qd.Matrix([[1.0, 2.0], [3.0, 4.0]]))


def test_struct_arguments_are_the_call_s_own(backend):
    @qd.kernel
    def k(p: Part) -> qd.f32:
        set_first(p)
        p.v.y += 1
        p.a, p.v[0] = p.v[0], p.a
        return p.v.x + 10 * p.v.y + p.a

    given = part()
    for _ in range(2):  # another call begins with what it is given
        assert k(given) == 1 + 50 + 100
    assert (given.a, list(given.v)) == (1, [3, 4])
    assert k(part(2.0, (5.0, 6.0))) == 2 + 70 + 100


def test_members_of_struct_arguments(backend):
    @qd.kernel
    def k(x: Whole, y: Whole) -> qd.types.vector(8, qd.f32):
        x.n += 5
        x.part.a, y.part.a = y.part.a, x.part.a
        x.part.v = [5, 6]
        x.m = qd.math.mat2(1)
        x.m[0, 1] = 7
        x.part.add(2.0)
        y.part.add(3.0)
        for i in range(3):
            x.n += i
        x.part.v *= 2
        return qd.Vector(
            [x.n, x.part.a, y.part.a, x.part.v[0], x.part.v[1], x.m[0, 1], x.m[1, 1], y.part.v[1]]
        )

    got = k(whole(), whole(10.0, (30.0, 40.0), 20))
    assert got.to_numpy().tolist() == [10, 12, 4, 10, 8, 7, 1, 37]


def test_struct_arguments_in_parallel_loops(backend):
    n = 100_000  # more than a thread has
    y = qd.field(qd.f32, n)

    @qd.kernel
    def reads(p: Part):
        for i in y:
            y[i] = p.a + p.v[1] * i

    @qd.kernel
    def writes(p: Part):
        for i in y:
            p.a += 1
        for i in y:
            y[i] = p.a

    reads(part())
    assert y.to_numpy().tolist() == [1 + 4 * i for i in range(n)]
    if backend.name == "cpu":
        program = qd.lang.impl.get_runtime().prog
        assert program.get_num_offloaded_tasks_on_last_call() == 1
    for _ in range(2):
        writes(part())
        assert y.to_numpy().tolist() == [n + 1] * n


def test_whole_arguments_stay(backend):
    @qd.kernel
    def k(p: Part):
        p = part()

    with raises(qd.QuadrantsSyntaxError, "p"):
        k(part())


def test_vectors_that_are_arguments_stay_as_they_are(backend):
    @qd.kernel
    def k(v: vec2) -> qd.f32:
        v[0] = 5
        return v[0] + v[1]

    assert k([1, 2]) == 3


def test_struct_arguments_have_gradients(backend):
    y, z = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))

    @qd.kernel
    def k(p: Part):
        for i in y:
            z[i] = y[i] * y[i] * p.a + p.v[0]

    y.from_numpy(np.arange(4, dtype=np.float32))
    z.grad.fill(1.0)
    k.grad(part(3.0))
    assert y.grad.to_numpy().tolist() == [0, 6, 12, 18]


def test_struct_arguments_that_loops_write_to_have_no_gradients(backend):
    """As other variables of a kernel, which has either loops or statements then."""
    y, total = (qd.field(qd.f32, s, needs_grad=True) for s in (4, ()))

    @qd.kernel
    def adds(p: Part):
        for i in y:
            p.a += y[i]
        for i in y:
            total[None] += p.a

    @qd.kernel
    def by_a_func(p: Part):
        for i in y:
            set_first(p)
            total[None] += p.v[0] * y[i]

    @qd.kernel
    def own_copy(p: Part):
        for i in y:
            t = p
            t.a *= y[i]
            total[None] += t.a * y[i]

    for refused in (adds, by_a_func):
        with raises(RuntimeError, "Mixed usage of for-loops and statements"):
            refused.grad(part())
    y.from_numpy(np.arange(4, dtype=np.float32))
    total.grad[None] = 1
    own_copy.grad(part(3.0))
    assert y.grad.to_numpy().tolist() == [0, 6, 12, 18]


def shared_variables(y, total):
    """Kernels whose loops share variables, with the arguments that each is called with."""

    @qd.kernel
    def summed():
        t = 0.0
        for i in y:
            t += y[i] * y[i]
        total[None] += t * t

    @qd.kernel
    def in_a_struct(p: Part):
        for i in y:
            p.a += y[i] * (i + 1)
        for i in y:
            total[None] += p.a * y[i] * p.v[1]

    @qd.kernel
    def in_a_member(p: Part):
        for i in y:
            p.v[i % 2] -= y[i] * y[i]
        q = p.v * 2.0
        for i in y:
            total[None] += q[i % 2] * y[i]

    @qd.kernel
    def in_a_vector():
        v = qd.Vector([1.0, 2.0, 3.0])
        for i in y:
            v[i % 3] += y[i] * (i + 1)
        for i in range(3):
            w = v * v[i]
            total[None] += w.sum()

    @qd.func
    def adds(t: qd.template(), a):
        t += a
        return t * 0.0 + a

    @qd.kernel
    def by_a_func():
        t = 1.0
        for i in y:
            total[None] += adds(t, y[i])
        total[None] += t * t

    @qd.kernel
    def replaced():
        t = 0.0
        s = 0.0
        qd.loop_config(serialize=True)
        for i in range(4):
            t = 3.0 if i == 2 else y[i] * t + y[i]
            s += t * y[i]
        for i in range(1):
            total[None] += t * s

    @qd.kernel
    def in_turn():
        a = 0.0
        b = 2.0
        for i in y:
            a += y[i]
        for i in range(1):
            b = a * a
        for i in y:
            total[None] += b * y[i]

    @qd.kernel
    def inside(p: Part):
        for i in y:
            t = p.a
            for j in range(3):
                t += y[i] * j
            total[None] += t * p.v[1]

    @qd.kernel
    def in_a_branch():
        if total[None] < 100:
            t = y[0]
            v = qd.Vector([1.0, 2.0])
            for i in range(4):
                t += y[i] * y[i]
                v[i % 2] += y[i]
            total[None] += t * v[0] * v[1]

    alone = (summed, in_a_vector, by_a_func, replaced, in_turn, in_a_branch)
    return [(k, ()) for k in alone] + [(k, (part(),)) for k in (in_a_struct, in_a_member, inside)]


@pytest.mark.parametrize("at", range(9))
def test_tangents_of_variables_that_loops_share(backend, at):
    y, total = (qd.field(qd.f64, s, needs_dual=True) for s in (4, ()))
    kernel, args = shared_variables(y, total)[at]
    x, towards = np.array([0.5, -1.25, 2.0, 0.75]), np.array([1.0, 0.5, -2.0, 3.0])

    def value(h):
        y.from_numpy(x + h * towards)
        total[None] = 0
        kernel(*args)
        return total[None]

    step = 0.125  # exact for polynomials of degree 4, which these are at most
    difference = (8 * (value(step) - value(-step)) - value(2 * step) + value(-2 * step)) / (
        12 * step
    )
    y.from_numpy(x)
    total[None] = 0
    with qd.ad.FwdMode(loss=total, param=y, seed=towards.tolist()):
        kernel(*args)
    assert total.dual[None] == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("on", [True, False])
def test_tangents_of_variables_whose_stores_in_loops_fold_away(backend, on):
    p, total = (qd.field(qd.f32, (), needs_dual=True) for _ in range(2))

    @qd.func
    def up(s: qd.template(), n):
        if n > 2:
            s += 1.0

    @qd.kernel
    def by_a_flag(flag: qd.template()):
        s = p[None] * 2
        for i in range(4):
            if flag:
                s += 5.0
        total[None] += s

    @qd.kernel
    def by_a_trip_count(flag: qd.template()):
        s = p[None] * 2
        v = qd.Vector([p[None], 1.0])
        for i in range(4):
            for j in range(int(flag)):
                s += 5.0
                v[i % 2] += 1.0
        total[None] += s * v[0]

    @qd.kernel
    def by_a_func(flag: qd.template()):
        s = p[None] * 2
        for i in range(4):
            up(s, 3 * int(flag))
        s = s * s
        total[None] += s

    slopes = {by_a_flag: (2, 2), by_a_trip_count: (2 * 2.5 + 21, 2), by_a_func: (20, 4)}
    for kernel, (with_stores, without) in slopes.items():
        p[None], total[None] = 0.5, 0
        with qd.ad.FwdMode(loss=total, param=p):
            kernel(on)
        assert total.dual[None] == (with_stores if on else without), kernel.__name__


def test_tangents_of_shared_variables_that_have_no_derivative_are_refused(backend):
    y, total = (qd.field(qd.f32, s, needs_dual=True) for s in (4, ()))

    @qd.kernel
    def largest():
        t = 0.0
        for i in y:
            qd.atomic_max(t, y[i])
        total[None] += t

    @qd.kernel
    def rounded():
        t = 0.0
        for i in y:
            t += y[i]
        for i in range(1):
            total[None] += qd.floor(t)

    for kernel, word in ((largest, "atomic_max"), (rounded, "floor")):
        with raises(RuntimeError, "derivative", word):
            with qd.ad.FwdMode(loss=total, param=y, seed=[1.0] * 4):
                kernel()


# --- indices of boxes


@pytest.mark.parametrize("place", ["kernel", "func"])
def test_indices_of_boxes_may_be_written_to(backend, place):
    f = qd.field(qd.i32, (4, 4))

    def body() -> qd.i32:
        r = 0
        for i, j in qd.ndrange(2, 3):
            i += 1
            r += i
        for i in qd.ndrange(3):
            i = i * 2
            r += 100 * i
        for i, j in qd.ndrange((1, 3), 2):
            for t in range(2):
                r += 1000 * i
                if j > 0:
                    i, j = j, i
        for k in qd.grouped(qd.ndrange(2, 3)):
            k += 1
            r += 100000 * k[0]
        for k in qd.grouped(qd.ndrange(2, 2)):
            for t in range(2):
                r += 10000000 * k.x  # what it was, then what is written
                k.x = 5
        return r

    inner = qd.func(body)

    @qd.kernel
    def outer() -> qd.i32:
        return inner()

    @qd.kernel
    def moved():
        for k in qd.grouped(qd.ndrange(3, 3)):
            k[0] += 1
            f[k] = 1

    run = qd.kernel(body) if place == "kernel" else outer
    assert run() == 9 + 600 + 11000 + 900000 + 220000000
    moved()
    assert f.to_numpy().tolist() == [[0] * 4, *[[1, 1, 1, 0]] * 3]


def test_indices_of_boxes_that_are_only_read_are_indices(backend):
    f, g = qd.field(qd.i32, (3, 4)), qd.field(qd.i32, 4)

    @qd.kernel
    def k():
        for i, j in qd.ndrange(3, 4):
            t = i
            t += 1
            f[i, j] += 10 * t + j
            g[j] = j

    k()
    assert f.to_numpy().tolist() == [[10 * (i + 1) + j for j in range(4)] for i in range(3)]
    assert g.to_numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["range", "field", "grouped"])
def test_other_indices_stay(backend, kind):
    f = qd.field(qd.i32, 3)

    @qd.kernel
    def k():
        if qd.static(kind == "range"):
            for i in range(3):
                i += 1
        if qd.static(kind == "field"):
            for i in f:
                i = 1
        if qd.static(kind == "grouped"):
            for I in qd.grouped(f):
                I += 1

    with raises(qd.QuadrantsSyntaxError, "Loop variable", "cannot be assigned"):
        k()
