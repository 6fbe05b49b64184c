"""Derivatives of kernels, reverse and forward mode, against plain Python and differences."""

import math

import numpy as np
import pytest

import quadrants as qd
from gradient_helpers import X, check, differences, field, gradient
from helpers import raises

N = 5
LOOPS = {"ad_stack_experimental_enabled": True}


@pytest.fixture
def f64(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    return backend.init(default_fp=qd.f64)


@pytest.fixture
def loops(backend):
    """Loops in loops, whose values need a tape."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    return backend.init(default_fp=qd.f64, **LOOPS)


FUNCTIONS = {
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "exp": math.exp,
    "abs": abs, "sqrt": lambda v: math.sqrt(v), "rsqrt": lambda v: 1 / math.sqrt(v),
    "log": math.log, "asin": math.asin, "acos": math.acos,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(f64, name):
    x, loss = field(N), field()
    op = getattr(qd, name)

    @qd.kernel
    def k():
        for i in x:
            loss[None] += op(x[i]) * (i + 1)

    inside = np.array([0.9, 0.3, 0.5, 0.1, 0.7])
    check(k, lambda v: sum(FUNCTIONS[name](a) * (i + 1) for i, a in enumerate(v)), x, loss, inside)


def test_operators(f64):
    x, loss = field(N), field()

    @qd.kernel
    def k():
        for i in range(N - 1):
            a, b = x[i], x[i + 1]
            loss[None] += a * b - a / b + a % (b + 0.7) + (-a) + a**2 + qd.atan2(a, b) + abs(b) ** a
            loss[None] -= qd.min(a, b) * qd.max(a, 2 * b) + qd.select(a > b, a * a, b)
            loss[None] += qd.cast(qd.floor(a * 3), qd.f64) + qd.cast(qd.cast(a, qd.i32), qd.f64)

    def model(v):
        total = 0.0
        for a, b in zip(v[:-1], v[1:]):
            total += a * b - a / b + a % (b + 0.7) - a + a**2 + math.atan2(a, b) + abs(b) ** a
            total -= min(a, b) * max(a, 2 * b) + (a * a if a > b else b)
            total += math.floor(a * 3) + int(a)
        return total

    check(k, model, x, loss)


def test_ties_and_guards(f64):
    """Where operands are equal the second counts; what is not reached gives exactly nothing."""
    x, y = field(4), field(4)

    @qd.kernel
    def k():
        for i in x:
            if x[i] != 0:
                y[i] = 1 / x[i] + qd.log(x[i])
            else:
                y[i] = qd.max(x[i], 0.0) + qd.max(0.0, x[i]) * 10 + qd.abs(x[i]) * 100

    x.from_numpy(np.array([0.0, 1.0, 2.0, 0.0]))
    y.grad.fill(1)
    k.grad()
    assert list(x.grad.to_numpy()) == [10, 0, 0.25, 10]
    assert not y.grad.to_numpy().any()  # stores take it
    assert not y.to_numpy().any()  # and are not done again


def test_stores_additions_and_what_lies_between(f64):
    x, y, loss = field(N), field(N), field()

    @qd.kernel
    def k():
        for i in x:
            y[i] = x[i] * x[i]
            y[i] += qd.sin(x[i])
            y[i] -= 3 * x[i]
            loss[None] += y[i] ** 3

    def model(v):
        return sum((a * a + math.sin(a) - 3 * a) ** 3 for a in v)

    check(k, model, x, loss)


def test_loops_of_a_kernel_go_back_in_reverse_order(f64):
    x, y, loss = field(N), field(N), field()
    counted = qd.field(qd.i32, ())

    @qd.kernel
    def k():
        for i in x:
            y[i] = qd.sin(x[i])
        for i in range(N):
            counted[None] += 1
        for i in y:
            loss[None] += y[i] ** 3

    check(k, lambda v: sum(math.sin(a) ** 3 for a in v), x, loss)
    assert counted[None] == 2 * N  # what has no gradient is done again


def test_statements(f64):
    x, y, loss = field(N), field(N), field()

    @qd.kernel
    def k():
        y[0] = x[0] * x[1]
        y[1] = y[0] + x[2]
        loss[None] += y[1] * y[0]

    check(k, lambda v: (v[0] * v[1] + v[2]) * v[0] * v[1], x, loss)


@pytest.mark.parametrize("bound", ["constant", "argument", "field", "data"])
def test_loops_in_loops(loops, bound):
    x, loss = field(N), field()
    trips = qd.field(qd.i32, N)
    trips.from_numpy(np.array([0, 3, 1, 4, 2], dtype=np.int32))

    @qd.kernel
    def constant(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(6):
                s = qd.tanh(s) + x[(i + j) % N] * s
            loss[None] += s

    @qd.kernel
    def argument(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                s = qd.tanh(s) + x[(i + j) % N] * s
            loss[None] += s

    @qd.kernel
    def of_field(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(trips[i]):
                s = qd.tanh(s) + x[(i + j) % N] * s
            loss[None] += s

    @qd.kernel
    def of_data(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(qd.cast(qd.abs(s) * 2 + 0.3, qd.i32)):
                s = qd.tanh(s) + x[(i + j) % N] * s
            loss[None] += s

    def model(v):
        total = 0.0
        for i in range(N):
            s = v[i]
            n = {"constant": 6, "argument": 4, "field": [0, 3, 1, 4, 2][i]}
            for j in range(n.get(bound, int(abs(s) * 2 + 0.3))):
                s = math.tanh(s) + v[(i + j) % N] * s
            total += s
        return total

    k = {"constant": constant, "argument": argument, "field": of_field, "data": of_data}[bound]
    check(k, model, x, loss, X, 4)


def test_branches_and_loops_nest(loops):
    x, loss = field(N), field()
    trips = qd.field(qd.i32, N)
    trips.from_numpy(np.array([0, 3, 1, 4, 2], dtype=np.int32))

    @qd.func
    def step(s, p, j):
        r = s * 0.5
        if j % 2 == 0:
            for k in range(j):
                r += qd.sin(r) * p * s
        elif s > 0 and j > 1:
            r *= p
        return r + p

    @qd.kernel
    def k():
        for i in x:
            s = x[i]
            p = 1.0
            for j in range(trips[i]):
                s = step(s, p, j)
                if s > 1.5:
                    p *= x[(i + j) % N]
                for a, b in qd.ndrange(2, (1, 3)):
                    s += 0.1 * a * b * s * x[b]
            loss[None] += s * p

    def model(v):
        total = 0.0
        for i in range(N):
            s, p = v[i], 1.0
            for j in range([0, 3, 1, 4, 2][i]):
                r = s * 0.5
                if j % 2 == 0:
                    for _ in range(j):
                        r += math.sin(r) * p * s
                elif s > 0 and j > 1:
                    r *= p
                s = r + p
                if s > 1.5:
                    p *= v[(i + j) % N]
                for a in range(2):
                    for b in range(1, 3):
                        s += 0.1 * a * b * s * v[b]
            total += s * p
        return total

    check(k, model, x, loss, rel=1e-5)


def test_vectors_rebuilt_in_loops_at_components_chosen_there(loops):
    x, loss = field(N), field()

    @qd.kernel
    def k():
        for i in x:
            w = qd.Vector([x[i], x[i] ** 2, 1.0])
            for j in range(4):
                w[(i + j) % 3] = qd.sin(w[(i + j + 1) % 3]) * w[j % 3]
                w = w * 0.9 + qd.Vector([0.1, 0.2, w[0]])
            loss[None] += w.dot(w)

    def model(v):
        total = 0.0
        for i in range(N):
            w = [v[i], v[i] ** 2, 1.0]
            for j in range(4):
                w[(i + j) % 3] = math.sin(w[(i + j + 1) % 3]) * w[j % 3]
                w = [w[0] * 0.9 + 0.1, w[1] * 0.9 + 0.2, w[2] * 0.9 + w[0]]
            total += sum(c * c for c in w)
        return total

    check(k, model, x, loss)


def test_matrices(f64):
    v = qd.Vector.field(3, qd.f64, N, needs_grad=True)
    m = qd.Matrix.field(3, 3, qd.f64, N, needs_grad=True)
    loss = field()

    @qd.kernel
    def k():
        for i in v:
            a = m[i] @ v[i]
            loss[None] += a.dot(v[i]) + a.norm() * m[i].determinant()
            loss[None] += (m[i].transpose() @ m[i] @ m[i].inverse()).trace() + a.cross(v[i]).sum()
            loss[None] += m[i][1, 2] * v[i].max() + v[i].outer_product(a)[0, 2]

    def model(v, m):
        total = 0.0
        for b, c in zip(v, m):
            a = c @ b
            total += a @ b + np.linalg.norm(a) * np.linalg.det(c)
            total += np.trace(c.T @ c @ np.linalg.inv(c)) + np.cross(a, b).sum()
            total += c[1, 2] * b.max() + b[0] * a[2]
        return total

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(N, 3)), rng.normal(size=(N, 3, 3))
    v.from_numpy(a)
    m.from_numpy(b)
    k()
    assert loss[None] == pytest.approx(model(a, b))
    loss.grad[None] = 1
    k.grad()
    assert v.grad.to_numpy() == pytest.approx(differences(lambda x: model(x, b), a), rel=1e-5)
    assert m.grad.to_numpy() == pytest.approx(differences(lambda x: model(a, x), b), rel=1e-5)


def test_arrays(f64):
    @qd.kernel
    def square(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(a.shape[0]):
            b[i] = a[i] * a[i]

    @qd.kernel
    def total(b: qd.types.ndarray(), loss: qd.types.ndarray(), scale: qd.f64):
        for i in range(b.shape[0]):
            loss[0] += qd.exp(b[i]) * scale

    a, b, loss = (qd.ndarray(qd.f64, n, needs_grad=True) for n in (N, N, 1))
    plain = qd.ndarray(qd.f64, N)
    a.from_numpy(X * 0.5)
    square(a, b)
    loss.grad.fill(1)
    total.grad(b, loss, 2.0)
    square.grad(a, b)
    want = 2 * np.exp(X * X / 4) * X
    assert a.grad.to_numpy() == pytest.approx(want)
    square.grad(plain, b)  # nothing to add to
    square.grad(a, plain)
    assert a.grad.to_numpy() == pytest.approx(want)


def test_stop_grad(f64):
    x, y, loss = field(N), field(N), field()

    @qd.kernel
    def k():
        for i in x:
            loss[None] += x[i] * y[i]
            if i % 2 == 0:
                loss[None] += x[i] * y[i]
                qd.stop_grad(x)

    x.from_numpy(X)
    y.fill(1)
    loss.grad[None] = 1
    k.grad()
    assert list(x.grad.to_numpy()) == [1, 1, 1, 1, 1]
    assert y.grad.to_numpy() == pytest.approx(X * [2, 1, 2, 1, 2])


def test_forward_mode(loops):
    x = qd.field(qd.f64, N, needs_dual=True, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_dual=True, needs_grad=True)
    kept = qd.field(qd.f64, N, needs_dual=True, needs_grad=True)

    @qd.kernel
    def k():
        for i in x:
            s = x[i]
            w = qd.Vector([s, s * s])
            for j in range(3):
                if s > 0.7:
                    s = qd.sin(s) * x[i] + w[j % 2]
                else:
                    s = s * s + qd.exp(s) - w.norm()
            kept[i] = s
            loss[None] += kept[i] * s

    value, slope = gradient(k, x, loss, X)
    along = np.random.default_rng(1).normal(size=N)
    x.dual.from_numpy(along)
    loss[None] = 0
    for _ in range(2):  # stores replace tangents, additions add
        k._forward()
    assert loss[None] == pytest.approx(2 * value)
    assert loss.dual[None] == pytest.approx(2 * (slope @ along), rel=1e-12)


def test_long_recurrences(loops):
    """The tape grows as it must; what is not carried is not kept."""
    x, loss = field(2), field()

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                s = qd.sin(s) * 0.999 + 0.001 * x[i]
            loss[None] += s

    n = 200_000
    _, slope = gradient(k, x, loss, np.array([0.5, 1.5]), n)
    for start, got in zip((0.5, 1.5), slope):
        s, d = start, 1.0
        for _ in range(n):
            s, d = math.sin(s) * 0.999 + 0.001 * start, math.cos(s) * d * 0.999 + 0.001
        assert got == pytest.approx(d, rel=1e-9)


@pytest.mark.oracle_differs("the established package has limits of its own")
def test_ad_stack_size_is_a_limit(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    backend.init(default_fp=qd.f64, ad_stack_size=32, **LOOPS)
    x, loss = field(2), field()

    @qd.kernel
    def carried(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                s = qd.sin(s)
            loss[None] += s

    @qd.kernel
    def nothing(n: qd.i32):
        for i in x:
            for j in range(n):
                loss[None] += qd.sin(x[i])

    gradient(carried, x, loss, np.array([0.5, 1.5]), 30)
    with pytest.raises(qd.QuadrantsAssertionError, match="[Aa]dstack overflow") as e:
        carried.grad(100)
        qd.sync()  # a GPU says it then
    assert "Offending task: kernel `" in str(e.value)
    gradient(carried, x, loss, np.array([0.5, 1.5]), 30)  # the next launch is right
    _, slope = gradient(nothing, x, loss, np.array([0.5, 1.5]), 10**5)
    assert slope == pytest.approx(10**5 * np.cos([0.5, 1.5]), rel=1e-9)


def error_kernels():
    x, y, z = field(N), field(N), field(N, N)

    @qd.kernel
    def mixed():
        n = 4
        for i in range(n):
            y[i] += x[i]

    @qd.kernel
    def returns() -> qd.f64:
        s = 0.0
        for i in range(4):
            s += x[i]
        return s

    @qd.kernel
    def while_loop():
        for i in x:
            j = 0
            while j < 3:
                y[i] += x[i]
                j += 1

    @qd.kernel
    def continues():
        for i in x:
            if x[i] < 0:
                continue
            y[i] += x[i]

    @qd.kernel
    def draws():
        for i in x:
            y[i] += x[i] * qd.random()

    @qd.kernel
    def rounds():
        for i in x:
            y[i] += qd.round(x[i])

    @qd.kernel
    def is_nan():
        for i in x:
            if qd.math.isnan(x[i]):
                y[i] += x[i]

    @qd.kernel
    def least():
        for i in x:
            qd.atomic_min(y[i], x[i])

    @qd.kernel
    def old():
        for i in x:
            y[i] += qd.atomic_add(y[0], x[i])

    @qd.kernel
    def crosses():
        for i in range(1, N):
            y[i] = y[i - 1] * x[i]

    @qd.kernel
    def crosses_axis():
        for i in range(N):
            z[i, i] = z[i, 0] * x[i]

    return {k.__name__: k for k in (
        mixed, returns, while_loop, continues, draws, rounds, is_nan, least, old, crosses, crosses_axis,
    )}  # fmt: skip


@pytest.mark.parametrize(
    "name, fragment",
    [
        ("mixed", "Mixed usage of for-loops and statements without looping"),
        ("returns", "Mixed usage of for-loops and statements without looping"),
        ("while_loop", "Not supported."),
        ("continues", "Not supported."),
        ("draws", "RandStmt not supported"),
        ("rounds", "Not supported."),
        ("is_nan", "Not supported."),
        pytest.param("least", "Not supported.", marks=pytest.mark.oracle_differs("adds")),
        pytest.param("old", "Not supported.", marks=pytest.mark.oracle_differs("loses it")),
        ("crosses", "Cross-iteration read-after-write"),
        ("crosses_axis", "Cross-iteration read-after-write"),
    ],
)
def test_refused(loops, name, fragment):
    k = error_kernels()[name]
    with pytest.raises(RuntimeError, match=fragment) as e:
        k.grad()
    assert f"in {name}:" in str(e.value) and "^" in str(e.value)
    k()  # itself it runs as ever


def test_inner_loops_need_the_option(f64):
    x, y = field(N), field(N)

    @qd.kernel
    def k():
        for i in x:
            for j in range(3):
                y[i] += x[i] * j

    @qd.kernel
    def unrolled():
        for i in x:
            for j in qd.static(range(3)):
                y[i] += x[i] * j

    with pytest.raises(
        qd.QuadrantsCompilationError, match="Cannot use non static range in Backwards mode"
    ):
        k.grad()
    y.grad.fill(1)
    unrolled.grad()
    assert list(x.grad.to_numpy()) == [3] * N


def test_real_functions_are_refused(loops):
    x, y = field(N), field(N)

    @qd.real_func
    def double(a: qd.f64) -> qd.f64:
        return 2 * a

    @qd.kernel
    def k():
        for i in x:
            y[i] = double(x[i])

    with pytest.raises(
        qd.QuadrantsSyntaxError, match="Real function in gradient kernels unsupported"
    ):
        k.grad()


def test_recurrence_in_a_serial_loop_is_exact(loops):
    """Array recurrences go back in order where one more loop makes them serial."""
    x, y, loss = field(N), field(N), field()

    @qd.kernel
    def k():
        for _ in range(1):
            y[0] = x[0]
            for i in range(1, N):
                y[i] = y[i - 1] * x[i] + qd.sin(y[i - 1])
            loss[None] += y[N - 1]

    def model(v):
        s = v[0]
        for a in v[1:]:
            s = s * a + math.sin(s)
        return s

    check(k, model, x, loss, rel=1e-5)


def test_forward_mode_refuses(loops):
    x = qd.field(qd.f64, N, needs_dual=True)

    @qd.kernel
    def floors():
        for i in x:
            x[i] = qd.floor(x[i])

    @qd.kernel
    def arrays(a: qd.types.ndarray()):
        for i in x:
            a[i] = x[i]

    with pytest.raises(RuntimeError, match="Not supported."):
        floors._forward()
    with pytest.raises(RuntimeError, match="ndarrays are not supported in forward mode"):
        arrays._forward(qd.ndarray(qd.f64, N))


def test_gradients_that_appear_later_are_seen(f64):
    """Of a field without gradient nothing flows; the same kernel on another field is another."""

    @qd.kernel
    def k(a: qd.template(), b: qd.template()):
        for i in a:
            b[i] = a[i] * a[i]

    with_gradient, without, b = field(N), qd.field(qd.f64, N), field(N)
    for a in (without, with_gradient):
        a.from_numpy(X)
        b.grad.fill(1)
        k.grad(a, b)
    assert with_gradient.grad.to_numpy() == pytest.approx(2 * X)


def test_methods_have_gradients(f64):
    @qd.data_oriented
    class Body:
        def __init__(self):
            self.x, self.y = field(N), field(N)

        @qd.kernel
        def run(self, scale: qd.f64):
            for i in self.x:
                self.y[i] = scale * self.x[i] ** 2

    body = Body()
    body.x.from_numpy(X)
    body.y.grad.fill(1)
    body.run.grad(3.0)
    assert body.x.grad.to_numpy() == pytest.approx(6 * X)
    with pytest.raises(RuntimeError, match="not compatible with autodiff kernels"):
        body.run.grad(3.0, qd_stream=object())


def test_arrays_with_and_without_gradients_are_told_apart(f64):
    @qd.kernel
    def k(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(2):
            y[i] = x[i] * x[i]

    for x_has, y_has in ((0, 0), (1, 0), (1, 1), (0, 1), (1, 1)):
        x, y = (qd.ndarray(qd.f64, 2, needs_grad=bool(has)) for has in (x_has, y_has))
        x.fill(3)
        if y_has:
            y.grad.fill(1)
        k.grad(x, y)
        if x_has:
            assert list(x.grad.to_numpy()) == [6 * y_has] * 2
        if y_has:
            assert not y.grad.to_numpy().any()


def test_an_annotation_keeps_gradients_out(f64):
    @qd.kernel
    def k(
        x: qd.types.ndarray(dtype=qd.f64, ndim=1),
        w: qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=False),
        y: qd.types.ndarray(dtype=qd.f64, ndim=1),
    ):
        for i in range(2):
            y[i] = x[i] * w[i]

    x, w, y = (qd.ndarray(qd.f64, 2, needs_grad=True) for _ in range(3))
    x.fill(2)
    w.fill(3)
    for _ in range(2):
        y.grad.fill(1)
        k.grad(x, w, y)
    assert list(x.grad.to_numpy()) == [6, 6] and not w.grad.to_numpy().any()


@pytest.mark.parametrize("first", [True, False])
def test_serial_loops_beside_parallel_ones(f64, first):
    x, y, z = field(4), field(4), field(4)

    @qd.kernel
    def k():
        if qd.static(first):
            qd.loop_config(serialize=True)
            for i in range(4):
                y[i] = x[i] * x[i]
        for i in range(4):
            z[i] = x[i] * 3.0
        if qd.static(not first):
            qd.loop_config(serialize=True)
            for i in range(4):
                y[i] = x[i] * x[i]

    x.from_numpy(np.arange(1.0, 5.0))
    y.grad.fill(1)
    z.grad.fill(1)
    k.grad()
    assert list(x.grad.to_numpy()) == [5, 7, 9, 11]
    assert not y.grad.to_numpy().any() and not z.grad.to_numpy().any()


def test_loops_in_branches_beside_statements(loops):
    x, y, z = field(4), field(4), field(4)

    @qd.kernel
    def k(n: qd.i32):
        y[0] = x[1] * x[1]
        if n == max(n, n):
            for j in range(n):
                z[j] = x[j] * 2.0
        y[1] = x[1] * x[2]

    x.from_numpy(np.arange(1.0, 5.0))
    y.grad.fill(1)
    z.grad.fill(1)
    k.grad(2)
    assert list(x.grad.to_numpy()) == [2, 9, 2, 0]


@pytest.mark.parametrize("trips", ["unrolled", "known later"])
def test_stop_grad_holds_in_its_block_alone(loops, trips):
    x, y, z = field(4), field(4), field(4)

    @qd.kernel
    def k(n: qd.i32):
        for i in range(4):
            v = x[i]
            if qd.static(trips == "unrolled"):
                for j in range(2):
                    qd.stop_grad(x)
                    z[i] += x[i]
            else:
                for j in range(n):
                    qd.stop_grad(x)
                    z[i] += x[i] * x[i]
            y[i] = v * v

    x.fill(3)
    y.grad.fill(1)
    z.grad.fill(1)
    k.grad(2)
    assert list(x.grad.to_numpy()) == [6] * 4


def test_counters_of_kernels_with_several_loops(f64):
    """What a loop does to storage without gradients may serve that loop's way back."""
    x, y, z = field(4), field(4), field(4)
    power, next_one = qd.field(qd.i32, 4), qd.field(qd.i32, ())

    @qd.kernel
    def k():
        for i in range(4):
            power[i] = i % 2 + 1
            at = qd.atomic_add(next_one[None], 1)
            y[at] = x[i] ** power[i]
        for i in range(4):
            z[i] = x[i] * 3.0

    x.from_numpy(np.arange(1.0, 5.0))
    y.grad.fill(1)
    z.grad.fill(1)
    k.grad()
    assert list(x.grad.to_numpy()) == [4, 7, 4, 11] and next_one[None] == 4

    @qd.kernel
    def spoiled():
        for i in range(4):
            y[i] = x[i] * power[i]
        for i in range(4):
            power[i] += 1
            z[i] = x[i]

    with pytest.raises(RuntimeError, match="Not supported.*overwrites"):
        spoiled.grad()


def test_gradients_of_arrays_have_none(f64):
    @qd.kernel
    def k(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(2):
            y[i] = x[i] * x.grad[i]

    x, y = (qd.ndarray(qd.f64, 2, needs_grad=True) for _ in range(2))
    k(x, y)
    with pytest.raises(
        RuntimeError, match="Cannot automatically differentiate through a grad tensor"
    ):
        k.grad(x, y)


def test_nothing_is_kept_of_nests_that_carry_nothing(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    backend.init(default_fp=qd.f64, ad_stack_size=1, **LOOPS)
    x, y = field(2), field(2)

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            for a in range(n):
                for b in range(n):
                    y[i] += qd.sin(x[i])

    y.grad.fill(1)
    k.grad(300)
    assert list(x.grad.to_numpy()) == [90000, 90000]


def test_processes_tell_arrays_with_gradients_apart(tmp_path):
    import subprocess
    import sys

    program = tmp_path / "program.py"
    program.write_text(
        "import sys, quadrants as qd\n"
        "qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])\n"
        "@qd.kernel\n"
        "def k(x: qd.types.ndarray(), y: qd.types.ndarray()):\n"
        "    for i in range(2): y[i] = x[i] * x[i]\n"
        "x, y = (qd.ndarray(qd.f32, 2, needs_grad=n in sys.argv[2]) for n in 'xy')\n"
        "x.fill(3)\n"
        "if y.grad is not None: y.grad.fill(1)\n"
        "k.grad(x, y)\n"
        "print(x.grad and x.grad[0], y.grad and y.grad[0])\n"
    )
    said = []
    for which in ("x", "xy", "y", "xy"):
        command = [sys.executable, str(program), str(tmp_path / "cache"), which]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines()[-1])
    assert said == ["0.0 None", "6.0 0.0", "None 0.0", "6.0 0.0"]


@pytest.mark.parametrize(
    "what", ["row", "cross", "turned", "arrays", "two", "beside", "taken", "far"]
)
@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_stencils(f64, what, n):
    """Additions that meet are gathered; what iterations hand on, and where none is, must be right."""
    size = 11
    u, v, w = field(size, size), field(size, size), field(size, size)
    a, b = (qd.ndarray(qd.f64, (size, size), needs_grad=True) for _ in range(2))

    @qd.kernel
    def row(n: qd.i32):
        for i in range(1, n + 1):
            v[i, 3] = u[i - 1, 3] * u[i, 3] + qd.sin(u[i + 1, 3])

    @qd.kernel
    def cross(n: qd.i32):
        for i, j in qd.ndrange((1, n + 1), (1, size - 1)):
            v[i, j] = (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) * u[i, j]

    @qd.kernel
    def turned(n: qd.i32):
        for i, j in qd.ndrange(n, (1, size - 1)):
            v[i, j] = u[j, i] * u[j - 1, i] + u[j + 1, i + 1]

    @qd.kernel
    def arrays(a: qd.types.ndarray(), b: qd.types.ndarray(), n: qd.i32):
        for i, j in qd.ndrange((1, n + 1), (1, size - 1)):
            b[i, j] = (a[i - 1, j] + a[i + 1, j] - 2 * a[i, j]) * a[i, j + 1]

    @qd.kernel
    def two(n: qd.i32):
        for i, j in qd.ndrange((1, n + 1), (1, size - 1)):
            v[i, j] = u[i - 1, j] * u[i, j + 1] * w[i, j - 1] + w[i + 1, j]

    @qd.kernel
    def beside(n: qd.i32):
        for i, j in qd.ndrange((1, n + 1), (1, size - 1)):
            v[i, j] = u[i, j - 1] * u[i, j + 1] - w[i, j - 1] * w[i, j + 1]

    @qd.kernel
    def taken(n: qd.i32):
        for i, j in qd.ndrange((1, n + 1), (1, size - 1)):
            v[i, j] = u[i - 1, j] * u[i, j]
            v[i, j] += u[i + 1, j]
            w[i, j] = u[i, j] * w[i, j]

    @qd.kernel
    def far(n: qd.i32):
        for i, j in qd.ndrange((2, n + 1), (3, size - 1)):
            v[i, j] = u[i - 2, j - 3] * u[i + 1, j] + u[i, j + 1] ** 2

    def model(u, w):
        v, w = np.zeros((size, size)), w.copy()
        for i in range(
            0 if what == "turned" else 2 if what == "far" else 1, n + (what != "turned")
        ):
            if what == "row":
                v[i, 3] = u[i - 1, 3] * u[i, 3] + np.sin(u[i + 1, 3])
                continue
            for j in range(3 if what == "far" else 1, size - 1):
                if what == "cross":
                    v[i, j] = (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) * u[i, j]
                elif what == "turned":
                    v[i, j] = u[j, i] * u[j - 1, i] + u[j + 1, i + 1]
                elif what == "arrays":
                    v[i, j] = (u[i - 1, j] + u[i + 1, j] - 2 * u[i, j]) * u[i, j + 1]
                elif what == "two":
                    v[i, j] = u[i - 1, j] * u[i, j + 1] * w[i, j - 1] + w[i + 1, j]
                elif what == "beside":
                    v[i, j] = u[i, j - 1] * u[i, j + 1] - w[i, j - 1] * w[i, j + 1]
                elif what == "taken":
                    v[i, j] = u[i - 1, j] * u[i, j] + u[i + 1, j]
                    w[i, j] = u[i, j] * w[i, j]
                else:
                    v[i, j] = u[i - 2, j - 3] * u[i + 1, j] + u[i, j + 1] ** 2
        return v, w

    rng = np.random.default_rng(3)
    start, other, seed, seed_w, had = rng.normal(size=(5, size, size))
    if what != "taken":
        seed_w = np.zeros_like(seed_w)
    source, target = (a, b) if what == "arrays" else (u, v)
    source.from_numpy(start)
    w.from_numpy(other)
    target.grad.from_numpy(seed)
    source.grad.from_numpy(had)
    w.grad.from_numpy(seed_w)
    kernel = {k.__name__: k for k in (row, cross, turned, arrays, two, beside, taken, far)}[what]
    kernel.grad(*([a, b, n] if what == "arrays" else [n]))

    def loss(u):
        v, after = model(u, other)
        return (v * seed).sum() + (after * seed_w).sum()

    if what != "taken":  # there w.grad of what is overwritten is taken: checked below
        assert source.grad.to_numpy() - had == pytest.approx(differences(loss, start), abs=1e-8)
    else:
        touched = model(start, other)[0] != 0
        wanted = differences(loss, start)
        assert source.grad.to_numpy() - had == pytest.approx(wanted, abs=1e-8)
        assert w.grad.to_numpy()[touched] == pytest.approx((seed_w * start)[touched])
    stored = model(start, other)[0] != 0
    assert not target.grad.to_numpy()[stored].any()
    assert np.array_equal(target.grad.to_numpy()[~stored], seed[~stored])


def test_arrays_that_share_memory(f64):
    """What is written through another argument is not read again."""
    data = np.zeros(8)

    @qd.kernel
    def k(seen: qd.types.ndarray(), marks: qd.types.ndarray(), x: qd.template(), y: qd.template()):
        for i in range(4):
            if seen[i] < 0.5:
                y[i] = x[i] * 3.0
            else:
                y[i] = x[i] * x[i]
            marks[i] = 1.0

    x, y = field(4), field(4)
    x.from_numpy(np.arange(1.0, 5.0))
    for shared in (False, True):
        x.grad.fill(0)
        y.grad.fill(1)
        data[:] = 0
        k.grad(data[:4], data[:4] if shared else data[4:], x, y)
        assert list(x.grad.to_numpy()) == [3] * 4, shared
        assert data[0 if shared else 4] == 1


def test_stencils_of_indices_that_wrap(f64):
    x, y, beside = field(300), field(600), field(300)

    @qd.kernel
    def k():
        for i in range(600):
            y[i] = x[qd.cast(i, qd.u8)] * 3 + x[qd.cast(i + 1, qd.u8)]

    y.grad.fill(1)
    k.grad()
    reached = np.bincount(np.arange(600) % 256, minlength=300) * 3
    reached = reached + np.bincount(np.arange(1, 601) % 256, minlength=300)
    assert list(x.grad.to_numpy()) == list(reached) and not beside.grad.to_numpy().any()


def test_stencils_of_elements_far_apart(f64):
    x, y = field(100_000), field(4)

    @qd.kernel
    def k():
        for i in range(4):
            y[i] = x[i] * x[i + 90_000]

    x.fill(3)
    y.grad.fill(1)
    k.grad()
    slope = x.grad.to_numpy()
    assert slope.sum() == 24 and slope[2] == 3 and slope[90_003] == 3


def test_a_long_chain_behind_a_stencil_compiles(f64, tmp_path):
    import importlib.util

    lines = "".join(f"        s = s * 0.5 + x[i + {n % 3}]\n" for n in range(1500))
    path = tmp_path / "long_chain.py"
    path.write_text(
        "import quadrants as qd\ndef make(x, y):\n  @qd.kernel\n  def k():\n"
        f"    for i in range(4):\n        s = x[i]\n{lines}        y[i] = s\n  return k\n"
    )
    spec = importlib.util.spec_from_file_location("long_chain", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = field(8), field(4)
    y.grad.fill(1)
    module.make(x, y).grad()
    assert x.grad.to_numpy().sum() == pytest.approx(8)


def test_gradients_that_get_storage_after_a_launch(f64):
    x = qd.field(qd.f64)
    qd.root.dense(qd.i, 4).place(x)
    y = field(4)

    @qd.kernel
    def k():
        for i in range(4):
            y[i] = x[i] * x[i]

    x.fill(3)
    k()
    y.grad.fill(1)
    k.grad()
    qd.root.dense(qd.i, 4).place(x.grad)
    y.grad.fill(1)
    k.grad()
    assert list(x.grad.to_numpy()) == [6] * 4
    assert x.snode.ptr.has_adjoint() and not x.snode.ptr.has_dual() and x.snode.ptr.is_primal()
    assert x.grad.snode.ptr.get_snode_grad_type().name == "ADJOINT"


def test_numpy_arrays_have_no_gradients_and_are_taken(f64):
    @qd.kernel
    def k(a: qd.types.ndarray(needs_grad=True), x: qd.template(), y: qd.template()):
        for i in range(4):
            y[i] = a[i] * x[i]

    x, y = field(4), field(4)
    y.grad.fill(1)
    k.grad(np.arange(4.0), x, y)
    assert list(x.grad.to_numpy()) == [0, 1, 2, 3]


def test_derivatives_raise_the_level_of_optimisation(backend):
    backend.init(opt_level=0)
    x, y = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, 4, needs_grad=True)

    @qd.kernel
    def k():
        for i in x:
            y[i] = x[i] * 2

    k()
    assert qd.cfg.opt_level == 0
    y.grad.fill(1)
    k.grad()
    assert qd.cfg.opt_level == 1 and list(x.grad.to_numpy()) == [2] * 4
    backend.init(opt_level=0)  # the same kernel in another runtime
    x, y = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, 4, needs_grad=True)
    k.grad()
    assert qd.cfg.opt_level == 1


@pytest.mark.parametrize("mode", ["grad", "_forward"])
def test_while_is_refused_even_where_nothing_depends_on_it(loops, mode):
    x = qd.field(qd.f64, 4, needs_grad=True, needs_dual=True)

    @qd.kernel
    def k():
        for i in x:
            j = 0
            while j < 2:
                j += 1
            x[i] = x[i] * 2

    with pytest.raises(RuntimeError, match="Not supported.") as e:
        getattr(k, mode)()
    assert "while j < 2" in str(e.value)


def serial_recurrences(x, y):
    """Loops of a few trips, which would be copied out inside other loops."""

    @qd.kernel
    def before():
        qd.loop_config(serialize=True)
        for i in range(4):
            y[i + 1] = y[i] * x[i]

    @qd.kernel
    def behind():
        qd.loop_config(serialize=True)
        for i in range(4):
            y[i] = y[i + 1] * x[i]

    @qd.kernel
    def halves():
        qd.loop_config(serialize=True)
        for i in range(4):
            y[i // 2] = y[i // 2] * x[i] + 1.0

    @qd.kernel
    def backwards():
        qd.loop_config(serialize=True)
        for i in range(4):
            y[4 - i] = y[3 - i] * x[i]

    @qd.kernel
    def around():
        qd.loop_config(serialize=True)
        for i in range(5):
            y[i] = x[i] * x[i]
            y[i + 5] = y[i] * y[(i + 1) % 5]

    @qd.kernel
    def adds():
        qd.loop_config(serialize=True)
        for i in range(4):
            y[i] += y[i + 1] * x[i]

    @qd.kernel
    def beside_another():
        for i in x:
            y[i + 5] = x[i] * x[i]
        qd.loop_config(serialize=True)
        for i in range(4):
            y[i] = y[i + 1] * x[i]

    return before, behind, halves, backwards, around, adds, beside_another


@pytest.mark.parametrize("at", range(7))
def test_serial_recurrences_of_outermost_loops_are_refused(loops, at):
    kernel = serial_recurrences(field(N), field(2 * N))[at]
    with pytest.raises(RuntimeError, match="Cross-iteration read-after-write") as e:
        kernel.grad()
    assert f"in {kernel.__name__}:" in str(e.value)
    kernel()


def recurrences_of_ranges(y: qd.template(), v: qd.template(), a: qd.template()):
    """In loops over several ranges: of fields of 5 by 5, of vectors, and of an array."""

    @qd.func
    def double(i, j):
        y[i, j + 1] = y[i, j] * 2.0

    @qd.kernel
    def rightwards():
        for i, j in qd.ndrange(4, 3):
            y[i, j + 1] = y[i, j] * 2.0

    @qd.kernel
    def leftwards():
        for i, j in qd.ndrange(4, (1, 4)):
            y[i, j] = y[i, j] + y[i, j + 1] * 2.0

    @qd.kernel
    def grouped():
        for at in qd.grouped(qd.ndrange(3, 4)):
            y[at[0] + 1, at[1]] = y[at] * 2.0

    @qd.kernel
    def moved():
        for at in qd.grouped(qd.ndrange((1, 4), (1, 4))):
            y[at] = y[at - qd.Vector([1, 1])] * 2.0

    @qd.kernel
    def from_the_end():
        for i, j in qd.ndrange(4, 4):
            y[4 - i, 1 + j] = y[3 - i, j + 1] * 2.0

    @qd.kernel
    def of_the_first():
        for i, j in qd.ndrange(4, 4):
            y[i, j] = y[i, 0] * 2.0

    @qd.kernel
    def in_a_row(n: qd.i32):
        for i, j, _ in qd.ndrange(4, 4, 1):
            y[n + 1, i + 1] = y[n + 1, i] * 2.0

    @qd.kernel
    def in_a_func(n: qd.i32):
        for i, j in qd.ndrange(n, n):
            double(i, j)

    @qd.kernel
    def of_vectors():
        for i, j in qd.ndrange(4, 3):
            v[i, j + 1] = v[i, j] * 2.0

    @qd.kernel
    def of_a_component():
        for i, j in qd.ndrange(4, 3):
            v[i, j + 1].y = v[i, j].y * 2.0

    @qd.kernel
    def of_array(a: qd.types.ndarray(qd.f64, 2)):
        for i, j in qd.ndrange(4, 3):
            a[i, j + 1] = a[i, j] * 2.0

    @qd.kernel
    def serial():
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(4, 3):
            y[i, j] = y[i, j + 1] * 2.0

    return {
        rightwards: (), leftwards: (), grouped: (), moved: (), from_the_end: (), of_the_first: (),
        in_a_row: (2,), in_a_func: (3,), of_vectors: (), of_a_component: (), of_array: (a,), serial: (),
    }  # fmt: skip


@pytest.mark.oracle_differs("looks at one range")
@pytest.mark.parametrize("at", range(12))
def test_recurrences_of_several_ranges_are_refused(loops, at):
    y, v = field(5, 5), qd.Vector.field(2, qd.f64, (5, 5), needs_grad=True)
    kernels = recurrences_of_ranges(y, v, qd.ndarray(qd.f64, (5, 5), needs_grad=True))
    kernel, args = list(kernels.items())[at]
    with pytest.raises(RuntimeError, match="Cross-iteration read-after-write") as e:
        kernel.grad(*args)
    assert f"in {'double' if args == (3,) else kernel.__name__}:" in str(e.value)
    kernel(*args)


def loops_over_ranges(x: qd.template(), y: qd.template(), v: qd.template()):
    """That are no recurrences, or none that goes back wrong."""

    @qd.kernel
    def stencil():
        for i, j in qd.ndrange((1, 4), (1, 4)):
            y[i, j] = x[i - 1, j] * x[i, j + 1] - x[i, j] + y[i, j]

    @qd.kernel
    def own():
        for at in qd.grouped(qd.ndrange(5, 5)):
            y[at] = y[at] * 2.0 + x[at] * x[at]

    @qd.kernel
    def columns():
        for i, j in qd.ndrange(5, (1, 5)):
            y[i, j] = y[i, 0] * x[i, j]

    @qd.kernel
    def rows():
        for i, j in qd.ndrange(2, 4):
            y[i, j + 1] = y[i + 2, j] * x[i, j]

    @qd.kernel
    def one_cell():
        for i, j in qd.ndrange((1, 5), 5):
            y[i, j] = y[0, 0] * x[i, j]

    @qd.kernel
    def levels(t: qd.i32):
        for i, j in qd.ndrange((1, 4), 1):  # a cell is stored once
            y[t + 1, i] = y[t, i - 1] * x[t, i] + y[t, i + 1]

    @qd.kernel
    def components():
        for i, j in qd.ndrange(5, (1, 5)):
            v[i, j].x = v[i, j - 1].y * x[i, j]
            y[i, j] = v[i, j].x * x[i, 0]

    @qd.kernel
    def red_black():
        for i, j in qd.ndrange((1, 4), (1, 4)):
            if (i + j) % 2 == 0:
                y[i, j] = (y[i - 1, j] + y[i, j + 1]) * x[i, j]

    @qd.kernel
    def triangle():
        for i, j in qd.ndrange(5, 5):
            if i < j:
                y[i, j] = y[j, i] * x[i, j]

    @qd.kernel
    def serial():
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(4, 3):
            y[i, j + 1] = y[i, j] * x[i, j] + y[i, 0]

    kernels = (
        stencil,
        own,
        columns,
        rows,
        one_cell,
        levels,
        components,
        red_black,
        triangle,
        serial,
    )
    return {k: (1,) if k is levels else () for k in kernels}


@pytest.mark.parametrize("at", range(10))
def test_loops_over_several_ranges(loops, established, at):
    if established and at == 9:
        pytest.skip("serial loops go back in no order")
    x, y, v = field(5, 5), field(5, 5), qd.Vector.field(2, qd.f64, (5, 5), needs_grad=True)
    kernel, args = list(loops_over_ranges(x, y, v).items())[at]
    weights = np.cos(np.arange(25.0)).reshape(5, 5)

    def value(of):
        x.from_numpy(of)
        y.from_numpy(np.linspace(0.5, 1.5, 25).reshape(5, 5))
        v.fill(0.75)
        kernel(*args)
        return (y.to_numpy() * weights).sum()

    start = np.linspace(1.2, 0.3, 25).reshape(5, 5)
    expected = differences(value, start)
    value(start)
    y.grad.from_numpy(weights)
    kernel.grad(*args)
    assert x.grad.to_numpy() == pytest.approx(expected, abs=1e-6)


def check_serial_recurrence(kernel, lag, expected):
    """`kernel` stores an element of y times x[0], x[1], x[2] `lag` elements on."""
    x, y = (qd.ndarray(qd.f64, 8, needs_grad=True) for _ in range(2))
    x.from_numpy(np.arange(2.0, 10.0))
    y.fill(1)
    y.grad.fill(1)
    if lag < 0:
        with pytest.raises(RuntimeError, match="Cross-iteration read-after-write"):
            kernel.grad(x, y)
        return
    kernel(x, y)
    kernel.grad(x, y)
    assert x.grad.to_numpy().tolist() == expected + [0] * 5


# y[3] = a, y[4] = ab, y[5] = abc of x[:3] = a, b, c
ALL_BEFORE = [1 + 3 + 12, 2 + 8, 6]


@pytest.mark.parametrize("lag", [1, -1, 3])
def test_serial_recurrences_of_arrays(loops, lag):
    """What an earlier iteration stored goes back exactly; what a later one will store is refused."""

    @qd.kernel
    def k(x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 1)):
        qd.loop_config(serialize=True)
        for i in range(3):
            y[i + 3] = y[i + 3 - lag] * x[i]

    check_serial_recurrence(k, lag, ALL_BEFORE if lag == 1 else [1, 1, 1])  # or each alone


@pytest.mark.parametrize("lag", [1, -1])
def test_serial_recurrences_of_arrays_that_run_backwards(loops, lag):
    """Where the index falls, the later element is the one that was stored before."""

    @qd.kernel
    def k(x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 1)):
        qd.loop_config(serialize=True)
        for i in range(3):
            y[3 - i] = y[3 - i + lag] * x[i]

    check_serial_recurrence(k, lag, ALL_BEFORE)


@pytest.mark.parametrize("trips", [1, 4, 9, 12])
def test_recurrences_of_inner_loops_go_back_exactly(loops, trips):
    """Also of those that are copied out."""
    x, s = field(3), field(3 * (trips + 1))

    @qd.kernel
    def k():
        for i in range(3):
            for t in range(trips):
                s[(t + 1) * 3 + i] = s[t * 3 + i] * x[i]

    x.from_numpy(np.array([0.5, 0.75, 1.5]))
    s.fill(1)
    k()
    s.grad.fill(1)
    k.grad()
    a = x.to_numpy()
    expected = sum(t * a ** (t - 1) for t in range(1, trips + 1))
    assert x.grad.to_numpy() == pytest.approx(expected)


def test_an_element_of_ones_own_is_no_recurrence(f64):
    """Whatever its index is computed from."""
    x, y = field(N), field(2 * N)

    @qd.kernel
    def k():
        for i in range(N):
            at = i * 2
            y[at] = y[at] * x[i]

    x.from_numpy(np.arange(2.0, 2.0 + N))
    y.fill(3)
    y.grad.fill(1)
    k.grad()
    assert x.grad.to_numpy().tolist() == [3] * N
    assert y.grad.to_numpy()[::2].tolist() == x.to_numpy().tolist()


def test_arrays_behind_conditions_may_be_apart(loops):
    @qd.kernel
    def red_black(u: qd.types.ndarray(qd.f64, 1), c: qd.i32):
        for i in range(1, 7):
            if i % 2 == c:
                u[i] = 0.5 * (u[i - 1] + u[i + 1])

    u = qd.ndarray(qd.f64, 8, needs_grad=True)
    u.from_numpy(np.arange(8.0))
    u.grad.fill(1)
    red_black.grad(u, 1)
    assert u.grad.to_numpy().tolist() == [1.5, 0, 2, 0, 2, 0, 1.5, 1]


def test_indices_that_use_each_other_often_compile(f64):
    """Of an index that doubles itself 40 times each value is looked at once."""
    x, y = field(N), field(N)

    @qd.kernel
    def k(one: qd.i32):
        for i in range(N):
            at = i * one
            for _ in qd.static(range(30)):
                at = (at * at + at) % N
            y[i] = y[at] * 2.0 + x[i]

    with pytest.raises(RuntimeError, match="Cross-iteration read-after-write"):
        k.grad(1)


def test_derivatives_have_none(f64):
    x, loss = field(N), field()

    @qd.kernel
    def k():
        for i in x:
            loss[None] += x[i] * x[i]

    assert k.grad.grad is None and k.grad.autodiff_mode.name == "REVERSE"
    assert k.autodiff_mode.name == "NONE" and k._adjoint.grad is None
    _, slope = gradient(k, x, loss, X)
    assert slope == pytest.approx(2 * X)


@pytest.mark.parametrize("n", [2, 4, 5, 8, 12])
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_inverses_of_any_size(f64, n, mode):
    """The library finds large ones by loops, through which no derivative goes: it is -R dA R."""
    a, loss = qd.Matrix.field(n, n, qd.f64, 2, needs_grad=True), field()
    s, t = field(2), field()
    qd.root.lazy_dual()
    rng = np.random.default_rng(n)
    base, along, w = (rng.normal(size=(n, n)) for _ in range(3))
    base += n * np.eye(n)
    A, B, W = (qd.Matrix(x.tolist()) for x in (base, along, w))

    @qd.kernel
    def of_elements():
        for i in a:
            r = a[i].inverse()
            loss[None] += (i + 1) * (r * W).sum() + r.trace()

    @qd.kernel
    def of_numbers():
        for i in s:
            t[None] += ((A + s[i] * B).inverse() * W).sum()

    inverse = np.linalg.inv(base)
    if mode == "forward":
        with qd.ad.FwdMode(loss=t, param=s, seed=[1.0, 0.5]):
            of_numbers()
        expected = -1.5 * ((inverse @ along @ inverse) * w).sum()
        assert t.dual[None] == pytest.approx(expected, rel=1e-9)
        return
    a.from_numpy(np.stack([base, base]))
    loss.grad[None] = 1
    of_elements()
    of_elements.grad()
    for i in range(2):
        expected = -inverse.T @ ((i + 1) * w + np.eye(n)) @ inverse.T
        assert a.grad.to_numpy()[i] == pytest.approx(expected, rel=1e-8, abs=1e-10)


# --- storage without gradients, in kernels of several loops ---


def scratch_kernels(n):
    x, loss = field(n), field()
    a, b = qd.field(qd.f64, n), qd.Vector.field(2, qd.f64, n, layout=qd.Layout.SOA)
    v = qd.Vector.field(2, qd.f64, n)
    count, near = qd.field(qd.i32, n), qd.field(qd.i32, (n, n))

    @qd.kernel
    def in_two_loops():
        for i in x:
            a[i] = i
        for i in x:
            a[i] = a[i] * 2
        for i in x:
            loss[None] += x[i] ** 2 * a[i]

    @qd.kernel
    def in_one_iteration():
        for i in x:
            v[i] = qd.Vector([i, 1.0])
            v[i][1] = v[i][0] * 2
            a[i] = 3
            a[i] = a[i] + v[i].x
        for i in x:
            loss[None] += x[i] ** 2 * v[i].y * a[i]

    @qd.kernel
    def of_another_component():
        for i in x:
            v[i].y = v[i].x * 2 + 1
            b[i].y = b[i].x * 3 + 1
        for i in x:
            loss[None] += x[i] ** 2 * v[i].y * b[i].y

    @qd.kernel
    def neighbours():
        for i in x:
            count[i] = 0
            for j in range(n):
                if i != j and abs(x[i] - x[j]) < 0.4:
                    near[i, count[i]] = j
                    count[i] += 1
        for i in x:
            for k in range(count[i]):
                loss[None] += (x[i] - x[near[i, k]]) ** 2

    @qd.kernel
    def doubled():
        for i in x:
            a[i] = a[i] * 2
        for i in x:
            loss[None] += x[i] ** 2 * a[i]

    @qd.kernel
    def counted():
        for i in x:
            if x[i] > 0.5:
                count[i % 3] += 1
        for i in x:
            loss[None] += x[i] ** 2 * (count[i % 3] + 1)

    @qd.kernel
    def cells():
        for i in x:
            count[i] = 0
        for i in x:
            cell = qd.cast(x[i] * 2, qd.i32)
            near[cell, qd.atomic_add(count[cell], 1)] = i
        for i in x:
            for k in range(count[i]):
                loss[None] += x[near[i, k]] ** 2 * (i + 1)

    def fill():
        a.fill(1)
        v.fill(2)
        b.fill(3)
        count.fill(0)

    return (
        x,
        loss,
        fill,
        (
            in_two_loops,
            in_one_iteration,
            of_another_component,
            neighbours,
            doubled,
            counted,
            cells,
        ),
    )


def test_scratch_storage_of_several_loops(backend):
    backend.init(default_fp=qd.f64, ad_stack_experimental_enabled=True)
    x, loss, fill, kernels = scratch_kernels(7)
    start = np.linspace(0.2, 1.7, 7)
    for kernel in kernels:

        def value(at):
            fill()
            x.from_numpy(at)
            loss[None] = 0
            kernel()
            return loss[None]

        slopes = [
            (value(start + 1e-6 * e) - value(start - 1e-6 * e)) / 2e-6 for e in np.identity(7)
        ]
        fill()
        x.from_numpy(start)
        with qd.ad.Tape(loss):
            kernel()
        assert np.allclose(x.grad.to_numpy(), slopes, rtol=1e-6, atol=1e-7), kernel.__name__


def test_bounds_that_debug_mode_checks(backend):
    backend.init(default_fp=qd.f64, debug=True)
    x, loss = field(4), field()

    @qd.kernel
    def some(n: qd.i32):
        for i in range(n + 1):
            loss[None] += x[i] ** 2

    x.fill(2)
    with qd.ad.Tape(loss):
        some(2)
    assert x.grad.to_numpy().tolist() == [4, 4, 4, 0]


def test_what_would_differ_when_it_happens_again_is_refused(backend):
    backend.init(default_fp=qd.f64)
    x, loss, scratch = field(4), field(), qd.field(qd.f64, 4)
    pair = qd.Vector.field(2, qd.f64, 4)
    count, slot = qd.field(qd.i32, 2), qd.field(qd.i32, 4)

    @qd.kernel
    def begun_in_part():
        for i in range(2):
            scratch[i] = i
        for i in x:
            scratch[i] = scratch[i] * 2
        for i in x:
            loss[None] += x[i] * scratch[i]

    @qd.kernel
    def begun_never(n: qd.i32):
        for i in range(n):
            scratch[i] = i
        for i in x:
            scratch[i] += 1
        for i in x:
            loss[None] += x[i] * scratch[i]

    @qd.kernel
    def begun_beside():
        for i in x:
            pair[i].x = 1.0
        for i in x:
            pair[i].y = pair[i].y * 2
        for i in x:
            loss[None] += x[i] * pair[i].y

    @qd.kernel
    def counts():
        for i in x:
            slot[i] = qd.atomic_add(count[i % 2], 1)
        for i in x:
            loss[None] += x[i] * slot[i]

    @qd.kernel
    def reads_before():
        for i in x:
            scratch[i] = i
        for i in x:
            loss[None] += x[i] * scratch[i]
        for i in x:
            scratch[i] = 2 * i

    @qd.kernel
    def begun_in_turn():
        for i in x:
            scratch[i] += 1
        for i in x:
            loss[None] += x[i] * i
            scratch[i] = 5

    @qd.kernel
    def one_of_two():
        for i in x:
            slot[i] = i
            scratch[i] = scratch[i] * 2
        for i in x:
            loss[None] += x[i] * scratch[i] * slot[i]

    @qd.kernel
    def begun_behind():
        for i in x:
            pair[i].x = scratch[i] * 2
        for i in x:
            scratch[i] = i
            loss[None] += x[i] * pair[i].x

    for kernel in (
        begun_in_part, begun_never, begun_beside, begun_behind, begun_in_turn, one_of_two, counts,
        reads_before,
    ):  # fmt: skip
        given = [0] if kernel is begun_never else []
        with raises(RuntimeError, "A loop reads what it, or a loop behind it, overwrites"):
            with qd.ad.Tape(loss):
                kernel(*given)
