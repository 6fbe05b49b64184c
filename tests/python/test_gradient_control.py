"""Derivatives of while, break, continue and early returns (ad_general_control), and of loops whose
records do not fit the tape."""

import math
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from gradient_helpers import X, differences, field, gradient
from helpers import module_at

N = 5
GENERAL = {"ad_general_control": True}


@pytest.fixture(params=[False, True], ids=["plain", "debug"])
def general(backend, request):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    return backend.init(default_fp=qd.f64, debug=request.param, **GENERAL)


@qd.func
def grow(v):
    """A while loop that two conditions end."""
    s = 0.0
    while v < 20.0:
        v = v * 1.5 + 0.1 * qd.sin(v) + 0.2
        s += v * v * 0.01
        if s > 3.0:
            break
    return s + v


@qd.real_func
def root(a: qd.f64) -> qd.f64:
    """Newton's, which returns from a loop; and at once."""
    if a < 1.0:
        return a * 3.0
    r = a
    for _ in range(40):
        n = 0.5 * (r + a / r)
        if abs(n - r) < 1e-12:
            return n * n * a
        r = n
    return r


def programs():
    x, y, loss = field(N), field(N), field()
    steps = qd.field(qd.i32, N)

    @qd.kernel
    def whiles():
        for i in x:
            loss[None] += grow(x[i])

    @qd.kernel
    def early_returns():
        for i in x:
            loss[None] += root(x[i]) + root(qd.abs(x[i]) + 1.0)

    @qd.kernel
    def jumps():
        for i in x:
            s = x[i]
            for j in range(100):
                if j % 3 == 1:
                    continue
                s = s * 0.99 + qd.cos(s) * 0.1
                for a, b in qd.ndrange((1, 5), (-2, 4)):
                    if a * b > 4 + i:
                        break
                    if (a + b) % 2 == 0:
                        continue
                    s += 0.001 * x[(i + a) % N] * s
                if s > 4.0:
                    break
                s += 0.01 * x[i]
            y[i] = s
            loss[None] += s * s

    @qd.kernel
    def skips():
        for i in x:
            if x[i] < 0.2:
                continue
            v = qd.Vector([x[i], x[i] * x[i], 1.0])
            k = 0
            while True:
                if k == 2:
                    k += 1
                    continue
                if k > 5:
                    break
                v[k % 3] = v[k % 3] * qd.sin(v[(k + 1) % 3])
                k += 1
            loss[None] += v.dot(v)

    @qd.kernel
    def statements():
        s = 0.0
        i = 0
        while True:
            if i >= N:
                break
            s = s * 0.5 + x[i] * x[i] * qd.exp(-s)
            i += 1
            if s > 100.0:
                break
        loss[None] += s

    @qd.kernel
    def several():
        for i in x:
            k = 0
            while k < i + 1:
                y[i] += x[i] * qd.sin(x[i] + k)
                k += 1
                steps[i] += 1
        for i in x:
            for k in range(10):
                if k == i:
                    break
                loss[None] += y[i] * y[i]

    @qd.kernel
    def for_ever_but_once():
        for i in x:
            s = x[i]
            while True:
                s = s * s
                break
            for _ in range(10**9):
                s = s * x[i]
                if s < 1e3:
                    break
            for _ in range(i + 2):
                s = s * x[i]
                break
            loss[None] += s

    @qd.kernel
    def atomics_of_variables():
        for i in x:
            v = qd.Vector([1.0, 2.0, 0.5])
            n = qd.Vector([0, 1, 2])
            for j in range(i + 1):
                v[(j + 1) % 3] += qd.atomic_add(v[j % 3], x[i])
                qd.atomic_max(v[(j + 2) % 3], x[i] * x[i])
                qd.atomic_cas(n[j % 3], j % 3, 7)
                v[j % 3] *= 1.0 + 0.1 * qd.atomic_exchange(n[(i + j) % 3], 5)
            loss[None] += v[i % 3] * v[(i + 1) % 3] * n[i % 3]

    return x, loss, locals()


NAMES = (
    "whiles early_returns jumps skips statements several for_ever_but_once"
    " atomics_of_variables".split()
)  # of programs()


@pytest.mark.parametrize("name", NAMES)
def test_control(general, name):
    x, loss, kernels = programs()
    kernel, y = kernels[name], kernels["y"]

    def value(at):
        x.from_numpy(at)
        y.fill(0)
        loss[None] = 0
        kernel()
        return loss[None]

    y.fill(0)
    y.grad.fill(0)
    _, slope = gradient(kernel, x, loss, X)
    assert slope == pytest.approx(differences(value, X), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode(general, name):
    x, loss, kernels = programs()
    kernel, y = kernels[name], kernels["y"]
    qd.root.lazy_dual()
    along = np.random.default_rng(2).normal(size=N).astype(np.float32)  # as seeds are
    x.from_numpy(X)
    y.fill(0)
    with qd.ad.FwdMode(loss=[loss, y], param=x, seed=along):
        kernel()
    tangent = loss.dual[None]
    y.fill(0)
    if name == "several":
        kernel()
    x.grad.fill(0)
    y.grad.fill(0)
    loss.grad[None] = 1
    kernel.grad()
    assert tangent == pytest.approx(np.dot(x.grad.to_numpy(), along), rel=1e-9)


def test_control_needs_the_option(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    backend.init(default_fp=qd.f64, ad_stack_experimental_enabled=True)
    x, loss, kernels = programs()
    gradient_of = {name: kernels[name].grad for name in NAMES}
    for name in ("whiles", "jumps", "skips", "statements"):
        with pytest.raises(RuntimeError, match="(?s)Not supported.*ad_general_control=True"):
            gradient_of[name]()
    with pytest.raises(qd.QuadrantsSyntaxError, match="(?s)Real function in gradient kernels"):
        gradient_of["early_returns"]()


def test_functions_that_call_themselves_are_refused(general):
    x, loss = field(N), field()

    @qd.real_func
    def power(a: qd.f64, n: qd.i32) -> qd.f64:
        if n == 0:
            return 1.0
        return a * power(a, n - 1)

    @qd.kernel
    def k():
        for i in x:
            loss[None] += power(x[i], i)

    k()
    with pytest.raises(RuntimeError, match="calls itself"):
        k.grad()


# --- tapes that are too short


def long_programs():
    x, y, loss = field(N), field(N), field()
    some = qd.field(qd.i32, N)

    @qd.kernel
    def one_loop(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                s = qd.sin(s) * 1.1 + 0.01 * x[(i + j) % N]
            loss[None] += s * s

    @qd.kernel
    def ragged(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                t = s
                for k in range(j % 17 + some[i]):
                    t = t * 0.99 + qd.cos(t) * 0.02
                    if t > 2.0:
                        t = t * 0.5
                s = 0.7 * s + 0.3 * qd.sin(t)
            loss[None] += s * s

    @qd.kernel
    def vectors(n: qd.i32):
        for i in x:
            s = x[i]
            j = 0
            v = qd.Vector([s, s * s, 1.0])
            while j < n + i:
                v[j % 3] = v[j % 3] * 0.5 + qd.sin(v[(j + 1) % 3])
                for a, b in qd.ndrange(3, j % 5 + 1):
                    s = s * 0.95 + 0.05 * qd.cos(s * v[a])
                j += 1
            y[i] = s
            loss[None] += s * s + v.norm_sqr()

    @qd.kernel
    def outer_short_inner_long(n: qd.i32):
        for i in range(2):
            s = x[i]
            for j in range(2):
                u = s * x[j]
                for k in range(n * 5):
                    s = qd.sin(s + u) * 0.9
            loss[None] += s

    @qd.kernel
    def branches(n: qd.i32):
        for i in x:
            s = x[i]
            p = 1
            for j in range(-3, n):
                if j % 4 != 0:
                    q = qd.exp(-s * s)
                    if p > 2:
                        s += q * 0.1
                    else:
                        s += 0.001 * x[i] - q * 0.05
                    p = (p * 5 + j) % 7
                elif s > 3.0:
                    break
            loss[None] += s

    @qd.kernel
    def kept_by_a_branch(n: qd.i32):
        """What the branch keeps is behind the tape's end when the loop behind it records again."""
        for i in x:
            s = 0.77
            for t in range(5):
                if t > 1:
                    y[i] -= qd.sqrt(1.3 + s)
                r = s
                for j in range(n // 10):
                    s = qd.abs(0.15 * s) - 0.6 * r
                    r = r * qd.tanh(x[(i + j) % N])
            loss[None] += s * s * x[i] * x[i]

    some.from_numpy(np.arange(N, dtype=np.int32))
    y.grad.fill(1)
    return x, loss, locals()


@pytest.mark.parametrize(
    "name",
    ["one_loop", "ragged", "vectors", "outer_short_inner_long", "branches", "kept_by_a_branch"],
)
@pytest.mark.parametrize("debug", [False, True])
def test_what_does_not_fit_is_recorded_again(backend, name, debug):
    """To the same bits; one per cent of what it takes is enough of long loops."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    bits = {}
    for most in (0, 40_000, 1_200 if name == "kept_by_a_branch" else 8_000):
        backend.init(
            default_fp=qd.f64, debug=debug, ad_tape_bytes=most, cpu_max_num_threads=1, **GENERAL
        )
        x, loss, kernels = long_programs()
        _, slope = gradient(kernels[name], x, loss, X, 400)
        assert np.abs(slope).max() > 0
        bits[most] = slope.tobytes()
    assert len(set(bits.values())) == 1


def test_what_is_recorded_again_has_the_same_bits(backend):
    """A product that only the sweep there uses twice (in the loop, and behind it) is rounded alike in both."""
    seen = []
    for most in (0, 3_000):
        backend.init(default_fp=qd.f64, ad_tape_bytes=most, cpu_max_num_threads=1, **GENERAL)
        x, total, out = field(6), field(), field(6)

        @qd.kernel
        def run(n: qd.i32):
            for i in range(1, 5):
                total[None] += qd.abs(qd.sin(qd.sin(qd.tanh(x[i - 1]))))
            for i in range(1, 5):
                v = 0.1 * i
                for _ in range(n):
                    v *= 0.25
                    if qd.cos(v) < 0.406:
                        continue
                    v = 0.02 * total[None] + v
                    v = v * x[5] + x[i]
                    out[0] -= qd.sin(qd.select(v > 0.302, 0.1, v) + v)
                w = qd.Vector([0.6, v, 0.02 * total[None]])
                out[i] += 0.4 * w.dot(w)

        slopes = []
        for seed in range(40):
            numbers = np.random.default_rng(seed)
            x.from_numpy(numbers.normal(size=6)), total.fill(0)
            run(60)
            out.grad.from_numpy(numbers.normal(size=6))
            x.grad.fill(0), total.grad.fill(0)
            run.grad(60)
            slopes.append([*x.grad.to_numpy(), total.grad[None]])
        seen.append(slopes)
    assert np.isfinite(seen[0]).all() and np.count_nonzero(seen[0]) > 200
    assert seen[0] == seen[1]


@pytest.mark.parametrize("most", [0, 6_000])
def test_calls_write_behind_what_branches_keep(backend, most):
    """A branch writes to the record itself, and may read it only until something else records."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    backend.init(default_fp=qd.f64, ad_tape_bytes=most, disable_pass="inline_calls", **GENERAL)
    x, loss = field(N), field()

    @qd.func
    def settle(a, n):
        for _ in range(n):
            a = qd.sin(a) * 1.1 + 0.1 * a * a
        return a

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                if j % 3 != 1:
                    q = s
                    for _ in qd.static(range(12)):
                        q = qd.sin(q * 1.5) + qd.cos(q * s)
                    if q > 0.1:
                        q = q * q
                        for _ in qd.static(range(12)):
                            q = qd.sin(q * 1.25) + qd.cos(q + s)
                        s += 0.01 * q * q
                    s += 0.1 * q * q * x[i]
                s = 0.3 * settle(0.5 * s, 7 + j % 2)
                loss[None] += s

    def value(at):
        x.from_numpy(at)
        loss[None] = 0
        k(30)
        return loss[None]

    _, slope = gradient(k, x, loss, X, 30)
    assert np.abs(slope).min() > 0.01
    assert slope == pytest.approx(differences(value, X), rel=1e-5)


@pytest.mark.parametrize("dtype", [qd.f32, qd.f64])
def test_words_of_the_tape(backend, dtype):
    """A GPU's words are as large as the largest number: of threads that keep different things, with
    numbers of iterations of 8 bytes among them. One tape for all, or recorded again."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    n = 200
    slopes = {}
    for most in (0, 30_000, 3_000):
        backend.init(default_fp=dtype, ad_tape_bytes=most, cpu_max_num_threads=1, **GENERAL)
        x = qd.field(dtype, n, needs_grad=True)
        y = qd.field(dtype, n, needs_grad=True)

        @qd.kernel
        def k(limit: qd.i64):
            for i in x:
                s = x[i]
                t = qd.cast(i, qd.i64) * qd.i64(10_000_000_000)
                small = qd.cast(i % 5, qd.i8)
                for j in range(150 + i % 40):
                    if (t + j) % 3 == 0:
                        s = qd.sin(s) * 1.01 + 0.001 * small
                        t = t * 3 + 1
                        small = qd.cast((small * 3 + j) % 7, qd.i8)
                    else:
                        w = s
                        steps = 0
                        while w < 0.9 and steps < 5 + i % 3:
                            w = w * 1.05 + 0.01 * qd.cos(s * w)
                            steps += 1
                            if t % limit == steps:
                                break
                        s = 0.8 * w + 0.05 * qd.tanh(s) + 0.1 * x[i]
                        t = t // 2 + i
                y[i] = s

        x.from_numpy(np.linspace(0.1, 1.1, n).astype(x.to_numpy().dtype))
        y.grad.fill(1)
        k.grad(17)
        slopes[most] = x.grad.to_numpy()
    assert len({v.tobytes() for v in slopes.values()}) == 1
    if dtype == qd.f64:
        h = 1e-7

        def value(at):
            x.from_numpy(at)
            k(17)
            return y.to_numpy()

        at = np.linspace(0.1, 1.1, n)
        got, by = slopes[0], (value(at + h) - value(at - h)) / (2 * h)
        near = np.isclose(got, by, rtol=1e-5, atol=1e-7)
        assert near.mean() > 0.9 and np.abs(got).max() > 0.1  # a branch may lie between


JUMPS = """
import quadrants as qd
x, loss = qd.field(qd.f64, 4, needs_grad=True), qd.field(qd.f64, (), needs_grad=True)

@qd.kernel
def k():
    for i in x:
        s = x[i]
"""
FORMS = {  # what stands in front, what is said again and again
    "loop": ("for j in range(3):", "    if s > {}.7: continue\n    s = qd.sin(s) * x[i] + {}.0"),
    "top": ("", "if s > {}.7:\n    loss[None] += s\n    continue\ns = qd.sin(s) * x[i] + {}.0"),
    "records": (
        "for j in range(3):",
        "    if s > {}.7: break\n    for _ in range(j + 1): s = qd.sin(s) * x[i]\n    s += {}.0",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_jumps_grow_with_the_source(backend, form, tmp_path, monkeypatch):
    """What a jump's branch keeps is not handed on through all those around it."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    monkeypatch.setenv("QD_DUMP_IR", "1")
    operands = []
    for n in (12, 48):
        dumps = tmp_path / str(n)
        backend.init(default_fp=qd.f64, offline_cache=False, debug_dump_path=str(dumps), **GENERAL)
        head, again = FORMS[form]
        lines = head.splitlines() + [l for j in range(n) for l in again.format(j, j).splitlines()]
        text = JUMPS + "".join(f"        {l}\n" for l in lines + ["loss[None] += s"])
        path = tmp_path / f"jumps{n}.py"
        path.write_text(text)
        m = module_at(path)

        def value(at, m=m):
            m.x.from_numpy(at)
            m.loss[None] = 0
            m.k()
            return m.loss[None]

        at = np.array([0.3, 0.8, 1.2, 1.9])
        _, slope = gradient(m.k, m.x, m.loss, at)
        assert slope == pytest.approx(differences(value, at), rel=1e-5, abs=1e-9)
        (code,) = dumps.glob("k_*reverse_grad_after_simplify_III.qir")
        operands.append(code.read_text().count("%"))
    assert operands[1] < 4.5 * operands[0]


def test_one_record_that_does_not_fit_is_an_error(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    backend.init(default_fp=qd.f64, ad_tape_bytes=64, **GENERAL)
    x, loss, kernels = long_programs()
    with pytest.raises(qd.QuadrantsAssertionError, match="(?s)overflow.*64 bytes.*one_loop"):
        gradient(kernels["one_loop"], x, loss, X, 100)
    backend.init(default_fp=qd.f64, ad_tape_bytes=4000, **GENERAL)  # the next one is right
    x, loss, kernels = long_programs()
    _, slope = gradient(kernels["one_loop"], x, loss, X, 100)
    expected = np.zeros(N)
    for i in range(N):
        s, d = X[i], np.eye(N)[i]
        for j in range(100):
            s, d = (
                math.sin(s) * 1.1 + 0.01 * X[(i + j) % N],
                math.cos(s) * d * 1.1 + 0.01 * np.eye(N)[(i + j) % N],
            )
        expected += 2 * s * d
    assert slope == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("state", ["read", "asked for", "added to"])
def test_loops_that_cannot_run_again_need_room(backend, state, debug):
    """What a loop reads and writes besides gradients is not the same a second time."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    backend.init(default_fp=qd.f64, ad_tape_bytes=4000, debug=debug, **GENERAL)
    x, loss, seen = field(2), field(), qd.field(qd.i32, 2)

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                if qd.static(state == "read"):
                    seen[i] = (seen[i] * 5 + 1) % 7
                    s = qd.sin(s) + 0.01 * seen[i]
                elif qd.static(state == "asked for"):
                    s = qd.sin(s) + 0.01 * (qd.atomic_add(seen[i], 1) % 7)
                else:
                    s = qd.sin(s) + 0.01 * j
                    seen[i] += 1
            loss[None] += s

    at = np.array([0.5, 1.5])
    if state != "added to":
        gradient(k, x, loss, at, 100)
        with pytest.raises(qd.QuadrantsAssertionError, match="overflow"):
            gradient(k, x, loss, at, 5000)
        return
    _, slope = gradient(k, x, loss, at, 5000)
    assert seen.to_numpy().tolist() == [10_000, 10_000]  # once forward, once in `.grad`
    for start, got in zip(at, slope):
        s, d = start, 1.0
        for j in range(5000):
            s, d = math.sin(s) + 0.01 * j, math.cos(s) * d
        assert got == pytest.approx(d, rel=1e-9, abs=1e-300)


# --- what does not happen contributes nothing


def guards():
    v, w, loss = qd.Vector.field(3, qd.f64, 2, needs_grad=True), field(N), field()

    @qd.kernel
    def spring(n: qd.i32):
        for i in range(1):
            d = v[0] - v[1]
            if d.norm() > 1e-6:
                loss[None] += (d.norm() - 1.0) ** 2

    @qd.kernel
    def unit(n: qd.i32):
        for i in range(1):
            d = v[0]
            if d.norm() > 1e-6:
                loss[None] += d.normalized()[0]
            else:
                loss[None] += d[0] * 0.0

    @qd.kernel
    def powers(n: qd.i32):
        for i in w:
            loss[None] += w[i] ** 0.3 if w[i] ** 0.3 > 1e-3 else w[i] * 0.0

    @qd.kernel
    def no_turns(n: qd.i32):
        for i in w:
            r = 0.0
            for j in range(n):
                r += w[j] * v[0].norm() + qd.sqrt(w[i]) + 1.0 / w[i]
            loss[None] += r

    @qd.kernel
    def quotients(n: qd.i32):
        for i in w:
            if 1.0 / w[i] < 1e6 and qd.log(w[i]) > -5.0:
                loss[None] += 1.0 / w[i] + qd.log(w[i])

    @qd.kernel
    def loops(n: qd.i32):
        for i in w:
            s = w[i]
            while qd.sqrt(s) > 1e-3:
                s = s - 2.0 * qd.sqrt(s)
            for j in range(3):
                if qd.sqrt(w[i]) < 1e-3:
                    continue
                s += qd.sqrt(w[i])
            loss[None] += s

    return v, w, loss, locals()


@pytest.mark.parametrize("name", "spring unit powers no_turns quotients loops".split())
def test_what_does_not_happen_contributes_nothing(general, name):
    """A guard computes what the branch computes too, whose derivative is infinite."""
    v, w, loss, kernels = guards()
    loss.grad[None] = 1
    kernels[name].grad(0)
    assert np.isfinite(v.grad.to_numpy()).all() and np.isfinite(w.grad.to_numpy()).all()
    if name != "loops":  # there the carried value is the field's
        assert not v.grad.to_numpy().any() and not w.grad.to_numpy().any()


def test_any_number_of_bytes_is_a_limit(backend):
    """The option takes 64 bits without a sign; what is above half of them limits nothing."""
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no tape")
    for most in (2**63 - 1, 2**63, 2**64 - 1):
        backend.init(default_fp=qd.f64, ad_tape_bytes=most, **GENERAL)
        assert qd.is_extension_enabled(qd.extension.adstack)
        x, loss, kernels = long_programs()
        _, slope = gradient(kernels["one_loop"], x, loss, X, 20)
        assert np.isfinite(slope).all() and slope.any()


def test_tapes_leave_addresses_to_others(tmp_path):
    """Under `ulimit -v`: of six threads that ran a gradient none keeps a part of what is allowed."""
    path = tmp_path / "limited.py"
    path.write_text("""
import resource, threading
import numpy as np
import quadrants as qd

qd.init(arch=qd.cpu, default_fp=qd.f64, ad_stack_experimental_enabled=True, cpu_max_num_threads=2)
x, loss = qd.field(qd.f64, 1000, needs_grad=True), qd.field(qd.f64, (), needs_grad=True)

@qd.kernel
def long():
    for i in x:
        v = x[i] + 1.0
        for t in range(2000):
            v -= 0.0005 * v * v
        loss[None] += v

def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

long()
loss.grad[None] = 1
room = 1 << 30
resource.setrlimit(resource.RLIMIT_AS, (size() + room, -1))
for _ in range(6):
    thread = threading.Thread(target=long.grad)
    thread.start()
    thread.join()
np.zeros(room // 2, np.uint8)
v = slope = 1.0
for t in range(2000):
    slope *= 1 - 0.001 * v
    v -= 0.0005 * v * v
assert np.allclose(x.grad.to_numpy(), 6 * slope), (x.grad[3], slope)
print("end")
""")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.stdout.endswith("end\n"), done.stderr[-2000:]


def test_no_addresses_for_a_tape(tmp_path):
    """MemoryError, not an overflow of a tape of no bytes; the next launch is right."""
    path = tmp_path / "starved.py"
    path.write_text("""
import mmap, resource, threading
import quadrants as qd

qd.init(arch=qd.cpu, default_fp=qd.f64, ad_stack_experimental_enabled=True, cpu_max_num_threads=1)
x, loss = qd.field(qd.f64, 8, needs_grad=True), qd.field(qd.f64, (), needs_grad=True)

@qd.kernel
def long():
    for i in x:
        v = x[i] + 1.0
        for t in range(100):
            v -= 0.0005 * v * v
        loss[None] += v

loss.grad[None] = 1
compiles = threading.Thread(target=long.grad)  # its tape goes with it
compiles.start(), compiles.join()
right = x.grad.to_numpy()
x.grad.fill(0)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20), -1))
held = []
try:
    while True:
        held.append(mmap.mmap(-1, 1 << 19))
except OSError:
    pass
try:
    long.grad()
except MemoryError:
    held.clear()
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    x.grad.fill(0)
    long.grad()
    print("end", (x.grad.to_numpy() == right).all())
""")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.stdout.endswith("end True\n"), done.stderr[-2000:]
