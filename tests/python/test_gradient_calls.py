"""Gradients of kernels whose funcs stay funcs: their expansion would be many times their source."""

import numpy as np
import pytest

import quadrants as qd
from gradient_helpers import X, differences, field, gradient

N = 5
AS_CALLS = {"disable_pass": "inline_calls"}  # every func that can be


@pytest.fixture(params=[{}, {"debug": True}], ids=["plain", "debug"])
def calls(backend, request):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    return backend.init(default_fp=qd.f64, ad_general_control=True, **AS_CALLS, **request.param)


@qd.func
def leaf(a, b):
    s = qd.sin(a) * b
    if s > 0.3:
        s = s * a + qd.exp(-b)
    return s + a * b


@qd.func
def loops(a, b, n):
    s = a
    for j in range(n):
        s = s * 0.5 + qd.tanh(leaf(s, b)) * 0.4
        if s > 3.0:
            break
    return s


@qd.func
def middle(v, b, i):
    w = qd.Vector([leaf(v[0], b), leaf(v[1], v[0]), b])
    w[i % 3] = qd.tanh(w[i % 3]) * loops(v[i % 2], b, i + 2)
    return w, leaf(w[1], b)


@qd.func
def half_used(a, b, flag):
    """Of its results and parameters not all carry derivatives everywhere."""
    return a * 2.0, b * b, flag + 1


@qd.func
def nothing(n):
    return n * 3 + 1


def programs():
    x, y, z, loss = field(N), field(N), field(N, 2), field()
    v = qd.Vector.field(2, qd.f64, N, needs_grad=True)

    @qd.func
    def reads(i):
        return qd.sin(x[i]) * x[(i + 1) % N]

    @qd.func
    def adds(i, by):
        loss[None] += by * by
        z[i, 0] += by
        return by + x[i]

    @qd.func
    def puts(i, by):
        z[i, 1] = by * x[i]

    @qd.kernel
    def leaves():
        for i in x:
            loss[None] += leaf(x[i], 0.5) + leaf(0.25, x[i]) * leaf(x[i], x[i])

    @qd.kernel
    def in_loops():
        for i in x:
            s = x[i]
            for j in range(3):
                s += loops(s, x[i], j + i) * 0.5
            loss[None] += s

    @qd.kernel
    def vectors():
        for i in x:
            w, s = middle(qd.Vector([x[i], x[i] * x[i]]), x[(i + 1) % N], i)
            for _ in range(2):
                w, t = middle(qd.Vector([w[2], w[0]]), qd.sin(s), i + 1)
                s = s * qd.sin(t)
            loss[None] += w.dot(w) + s

    @qd.kernel
    def storage():
        for i in x:
            k = i
            while k < i + 2:
                puts(i, reads(i) + adds(i, reads(k % N)))
                k += 1
        for i in x:
            loss[None] += z[i, 0] * z[i, 1]

    @qd.kernel
    def branches():
        for i in x:
            a, b, n = half_used(x[i], 2.0, i)
            if x[i] > 0.5:
                c, d, m = half_used(1.0, x[i] * a, nothing(n))
                loss[None] += d * c + m
            else:
                c, d, m = half_used(leaf(a, b), 1.0, n)
                loss[None] += c
            loss[None] += a * b

    @qd.kernel
    def statements():
        s, t = x[0], x[1]
        s += leaf(s, t)
        loss[None] += leaf(s, t * s) * leaf(t, s)

    return x, loss, locals()


NAMES = "leaves in_loops vectors storage branches statements".split()


def model_of(name):
    """The loss of a kernel, differences of which are taken; storage() goes through z."""
    x, loss, kernels = programs()

    def value(at):
        x.from_numpy(at)
        kernels["z"].fill(0)
        loss[None] = 0
        kernels[name]()
        return loss[None]

    return x, loss, kernels, value


@pytest.mark.parametrize("name", NAMES)
def test_calls(calls, name):
    x, loss, kernels, value = model_of(name)
    slopes = differences(value, X)
    kernels["z"].fill(0)
    kernels["z"].grad.fill(0)
    _, slope = gradient(kernels[name], x, loss, X)
    assert slope == pytest.approx(slopes, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_calls_and_their_expansion_agree(backend, name):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    slopes = []
    for options in ({}, AS_CALLS, {"ad_tape_bytes": 4000, **AS_CALLS}):
        backend.init(default_fp=qd.f64, ad_general_control=True, **options)
        x, loss, kernels, value = model_of(name)
        value(X)
        kernels["z"].grad.fill(0)
        x.grad.fill(0)
        loss.grad[None] = 1
        kernels[name].grad()
        slopes.append(x.grad.to_numpy())
    assert slopes[1] == pytest.approx(slopes[0], rel=1e-12, abs=1e-14)
    assert slopes[2] == pytest.approx(slopes[1], rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_tangents_go_through_calls(calls, name):
    x, loss, kernels, value = model_of(name)
    qd.root.lazy_dual()
    along = np.random.default_rng(3).normal(size=N).astype(np.float32)  # as seeds are
    value(X)
    z = kernels["z"]
    x.grad.fill(0)
    z.grad.fill(0)
    loss.grad[None] = 1
    kernels[name].grad()
    slope = x.grad.to_numpy()
    x.from_numpy(X)
    z.fill(0)
    with qd.ad.FwdMode(loss=[loss, z], param=x, seed=along):
        kernels[name]()
    assert loss.dual[None] == pytest.approx(slope @ along, rel=1e-9)


def test_tangents_follow_what_callees_read_and_overwrite(calls):
    x, y = (qd.field(qd.f64, 2, needs_dual=True) for _ in range(2))

    @qd.func
    def loaded(i):
        return x[i] * 2.0

    @qd.func
    def cleared(i):
        y[i] = 1.0

    @qd.kernel
    def k():
        for i in range(1):
            y[i] = loaded(0) + loaded(1)
            cleared(1)

    x.dual.from_numpy(np.array([3.0, 4.0]))
    y.dual.fill(5)
    k._forward()
    assert y.dual.to_numpy().tolist() == [14, 0]


def test_arrays_are_passed_on(calls):
    @qd.func
    def part(a: qd.types.ndarray(), i, s):
        return qd.sin(a[i]) * s

    @qd.func
    def both(a: qd.types.ndarray(), b: qd.types.ndarray(), i):
        return part(a, i, b[i]) + part(a, (i + 1) % N, b[i] * b[i])

    @qd.kernel
    def k(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        for i in range(N):
            c[i] = both(a, b, i) + both(a, b, (i + 2) % N)

    a, b, c = (qd.ndarray(qd.f64, N, needs_grad=True) for _ in range(3))
    b.from_numpy(np.linspace(0.5, 1.5, N))

    def value(at):
        a.from_numpy(at)
        k(a, b, c)
        return c.to_numpy().sum()

    slopes = differences(value, X)
    value(X)
    a.grad.fill(0)
    b.grad.fill(0)
    c.grad.fill(1)
    k.grad(a, b, c)
    assert a.grad.to_numpy() == pytest.approx(slopes, rel=1e-6)
    assert np.abs(b.grad.to_numpy()).min() > 0


def test_effects_of_callees(calls):
    """A func with other effects is expanded: they happen once in the reverse kernel too."""
    x, loss, count = field(N), field(), qd.field(qd.i32, ())

    @qd.func
    def counts(a):
        count[None] += 1
        return a * a

    @qd.func
    def outer(a):
        return counts(a) * counts(a + 1.0)

    @qd.kernel
    def k():
        for i in x:
            loss[None] += outer(x[i]) + outer(x[i] * 2.0)

    _, slope = gradient(k, x, loss, X)
    assert count[None] == 2 * 4 * N

    def value(at):
        return sum(a * a * (a + 1) ** 2 + 4 * a * a * (2 * a + 1) ** 2 for a in at)

    assert slope == pytest.approx(differences(value, X), rel=1e-6, abs=1e-6)


def test_recurrences_in_funcs_are_refused(calls):
    x, loss = field(N), field()

    @qd.func
    def step(i):
        x[i] = x[i - 1] * 2.0

    @qd.func
    def twice(i):
        step(i)
        step(i)

    @qd.kernel
    def k():
        for i in range(1, N):
            twice(i)

    with pytest.raises(RuntimeError, match="Cross-iteration read-after-write"):
        k.grad()


def test_refusals_show_the_call(calls):
    x, loss = field(N), field()

    @qd.func
    def rounds(a):
        return qd.round(a) * a

    @qd.func
    def between(a):
        return rounds(a) + rounds(a * 2.0)

    @qd.kernel
    def k():
        for i in x:
            loss[None] += between(x[i])

    with pytest.raises(
        RuntimeError, match="(?s)derivative of round.*in rounds:.*in between:.*in k:"
    ):
        k.grad()


def test_loops_of_funcs_need_the_option(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    backend.init(default_fp=qd.f64, **AS_CALLS)
    x, loss = field(N), field()

    @qd.func
    def powers(a, n):
        s = a
        for _ in range(n):
            s = s * a
        return s

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            loss[None] += powers(x[i], n) + powers(x[i] * 0.5, n)

    with pytest.raises(qd.QuadrantsCompilationError, match="Cannot use non static range"):
        k.grad(3)


def test_work_grows_with_the_source(backend, capfd, monkeypatch):
    """Nine funcs that call each other thrice: 3^9 copies of the last if they were expanded."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    monkeypatch.setenv("QD_COMPILE_REPORT", "1")
    backend.init(default_fp=qd.f64)
    x, loss = field(N), field()

    def calls_thrice(inner):
        @qd.func
        def outer(a, b):
            s = inner(a * 0.5, b) + inner(b, a * 0.25)
            t = inner(s * 0.125, a)
            return qd.sin(s) * t + 0.1 * a

        return outer

    top = leaf
    for _ in range(9):
        top = calls_thrice(top)

    @qd.kernel
    def k():
        for i in x:
            loss[None] += top(x[i], 0.5)

    def value(at):
        x.from_numpy(at)
        loss[None] = 0
        k()
        return loss[None]

    slopes = differences(value, X)
    _, slope = gradient(k, x, loss, X)
    assert slope == pytest.approx(slopes, rel=1e-5, abs=1e-7)
    qd.reset()
    line = next(n for n in capfd.readouterr().err.splitlines() if "reverse_grad:" in n)
    before, after = (
        int(n)
        for n in line.split("; ")[1].split(" in ")[0].replace("instructions ", "").split("-> ")
    )
    assert after < 20 * before
