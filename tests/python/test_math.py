"""Mathematical functions: values, accuracy, element-wise use, bit operations, random numbers."""

import math

import numpy as np
import pytest

import op_table
import quadrants as qd
from helpers import NUMPY, Array, assert_close, draw, dtype, raises

N = 1000
# Of one real number, as the op table has them: rows of it name references and ranges.
ROWS = {k: v for k, v in op_table.rows().items() if v.get("elementary") and v["operands"] == 1}
HALVES = {"round": lambda x: np.trunc(x + np.copysign(0.5, x))}  # NumPy's go to even


def reference(name):
    text = ROWS[name].get("numpy") or f"np.{name}(x)"
    return HALVES.get(name) or (lambda x: eval(text, {"np": np, "x": x}))


FUNCTIONS = {name: (reference(name), row["tested"]) for name, row in ROWS.items()}
REAL = [name for name, row in ROWS.items() if not row.get("promotes")]


def test_binary_functions(backend):
    x, y = draw(N, qd.f32, x=(-5, 5), y=(-5, 5))
    out = np.zeros((6, N), np.float32)

    @qd.kernel
    def run(x: Array, y: Array, out: Array):
        for i in range(N):
            out[0, i] = qd.atan2(x[i], y[i])
            out[1, i] = qd.pow(abs(x[i]), y[i])
            out[2, i] = qd.min(x[i], y[i], 0.5)
            out[3, i] = qd.max(x[i], y[i], 0.5, 1)
            out[4, i] = qd.raw_mod(i - 20, 3) + qd.raw_div(i - 20, 2)
            out[5, i] = max(x[i], y[i]) - min(x[i], y[i])

    run(x, y, out)
    d = x.astype(np.float64), y.astype(np.float64)
    k = np.arange(N) - 20
    e = [np.arctan2(*d), np.abs(d[0]) ** d[1], np.minimum(np.minimum(*d), 0.5),
         np.maximum(np.maximum(*d), 1), np.fmod(k, 3) + np.trunc(k / 2), np.abs(d[0] - d[1])]  # fmt: skip
    assert_close(out, np.stack(e), rtol=5e-6, atol=1e-6)


def test_special_values(backend):
    backend.init(fast_math=False)
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    out = np.zeros((6, 6), np.float32)

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(6):
            out[0, i] = qd.math.isnan(x[i])
            out[1, i] = qd.math.isinf(x[i])
            out[2, i] = qd.sqrt(x[i])
            out[3, i] = qd.exp(x[i])
            out[4, i] = qd.log(x[i])
            out[5, i] = x[i] == x[i]

    run(x, out)
    with np.errstate(all="ignore"):
        e = [np.isnan(x), np.isinf(x), np.sqrt(x), np.exp(x), np.log(x), x == x]
    assert_close(out, np.stack(e).astype(np.float32), rtol=1e-6)


def test_integer_inputs(backend):
    out = np.zeros(5, np.float32)

    @qd.kernel
    def run(n: qd.i32, out: Array):
        out[0] = qd.sqrt(n)
        out[1] = qd.exp(n - 9)
        out[2] = qd.log(n - 8)
        out[3] = qd.atan2(n, n)
        out[4] = qd.floor(n / 2, qd.i32)

    run(9, out)
    assert_close(out, np.float32([3, 1, 0, math.pi / 4, 4]), atol=1e-6)


@pytest.mark.parametrize("f", REAL)
def test_real_functions_reject_integers(backend, f):
    op = getattr(qd, f)

    @qd.kernel
    def run(n: qd.i32) -> qd.f32:
        return op(n)

    with raises(qd.QuadrantsTypeError, f"'{f}' takes real inputs only, however 'i32' is provided"):
        run(1)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2)])
@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_component_by_component(backend, f, name, shape):
    """In a kernel, of a constant of a kernel, in plain Python: what NumPy has."""
    op, dt = getattr(qd, f), dtype(name)
    low, high = ROWS[f]["tested"]
    x = np.linspace(0.7 * low + 0.3 * high, high - 0.01, math.prod(shape)).reshape(shape)
    first = float(x.flat[0])
    given = (qd.Vector if len(shape) == 1 else qd.Matrix)(x.tolist(), dt)
    out = qd.Matrix.field(*shape, *([1] if len(shape) == 1 else []), dt, shape=())
    constant = qd.field(dt, shape=())

    @qd.kernel
    def run():
        y = op(given)
        for i in qd.static(range(shape[0])):
            for j in qd.static(range(1 if len(shape) == 1 else shape[1])):
                out[None][i, j] = y[i] if qd.static(len(shape) == 1) else y[i, j]
        constant[None] = op(first)

    run()
    expect = reference(f)(x.astype(NUMPY[name]))
    assert_close(out[None].to_numpy().reshape(shape), expect, rtol=1e-4, atol=1e-6)
    assert_close(op(given).to_numpy().astype(NUMPY[name]), expect, rtol=1e-4, atol=1e-6)
    assert constant[None] == pytest.approx(expect.flat[0], rel=1e-4, abs=1e-6)


@pytest.mark.oracle_differs("the established package aborts the process on the CPU", run=False)
def test_frexp(backend):
    x = draw(100, qd.f32, x=(-100, 100))
    fraction, exponent = np.zeros(100, np.float32), np.zeros(100, np.int32)

    @qd.kernel
    def run(x: Array, fraction: Array, exponent: Array):
        for i in range(100):
            fraction[i], exponent[i] = qd.frexp(x[i])

    try:
        run(x, fraction, exponent)
    except Exception:
        if backend.name == "cpu":
            pytest.skip("promised for the GPU targets only")
        raise
    f, e = np.frexp(x)
    assert_close(fraction, f)
    assert_close(exponent, e)


def test_functions_on_vectors(backend):
    x = draw(30, qd.f32, x=(0.1, 3)).reshape(10, 3)
    out = np.zeros((4, 10, 3), np.float32)
    V = qd.types.vector(3, qd.f32)

    @qd.kernel
    def run(x: qd.types.ndarray(dtype=V, ndim=1), out: qd.types.ndarray(dtype=V, ndim=2)):
        for i in range(10):
            out[0, i] = qd.sin(x[i])
            out[1, i] = qd.sqrt(x[i]) + qd.exp(-x[i])
            out[2, i] = qd.pow(x[i], 2)
            out[3, i] = qd.max(x[i], 1.5)

    run(x, out)
    e = [np.sin(x), np.sqrt(x) + np.exp(-x), x**2, np.maximum(x, 1.5)]
    assert_close(out, np.stack(e), rtol=1e-5)


def test_math_module_functions(backend):
    m = qd.math
    out = np.zeros((12, 8), np.float32)
    x = np.array([-2.5, -1.0, -0.25, 0.0, 0.25, 0.5, 1.0, 2.75], np.float32)

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(8):
            out[0, i] = m.clamp(x[i], -1, 1)
            out[1, i] = m.mix(x[i], 10.0, 0.25)
            out[2, i] = m.step(0.25, x[i])
            out[3, i] = m.smoothstep(-1.0, 1.0, x[i])
            out[4, i] = m.fract(x[i])
            out[5, i] = m.mod(x[i], 2.0)
            out[6, i] = m.sign(x[i])
            out[7, i] = m.degrees(x[i])
            out[8, i] = m.radians(x[i])
            out[9, i] = m.log2(x[i] * x[i] + 1)
            out[10, i] = m.pi + m.e
            out[11, i] = m.eye(3)[1, 1] + m.eye(2)[0, 1]

    run(x, out)
    t = np.clip((x + 1) / 2, 0, 1)
    e = [np.clip(x, -1, 1), x * 0.75 + 2.5, x >= 0.25, t * t * (3 - 2 * t), x - np.floor(x),
         x - 2 * np.floor(x / 2), np.sign(x), np.degrees(x), np.radians(x), np.log2(x * x + 1),
         np.full(8, math.pi + math.e), np.ones(8)]  # fmt: skip
    assert_close(out, np.stack(e).astype(np.float32), rtol=2e-6, atol=1e-6)


def test_math_module_vectors_and_matrices(backend):
    m = qd.math
    vec2, vec3, mat4 = m.vec2, m.vec3, m.mat4

    @qd.kernel
    def k(a: m.vec3, b: m.vec3) -> qd.types.vector(12, qd.f32):
        r = m.reflect(a, m.normalize(b))
        f = m.refract(m.normalize(a), m.normalize(-b), 0.9)
        t = m.translate(1, 2, 3) @ m.scale(2, 3, 4) @ m.vec4(1.0, 1.0, 1.0, 1.0)
        q = m.rotation2d(0.5) @ m.vdir(0.25)
        return qd.Vector(
            [m.dot(a, b), m.length(a), m.distance(a, b), m.cross(a, b).x, r.x, r.z,
             f.x, t.x, t.y, t.z, q.x, q.y]
        )  # fmt: skip

    a, b = np.array([1.0, -2.0, 0.5]), np.array([0.2, 1.5, 0.3])
    n = b / np.linalg.norm(b)
    d = a / np.linalg.norm(a)
    c = np.dot(-n, d)
    kk = 1 - 0.81 * (1 - c * c)
    f = 0.9 * d - (0.9 * c + np.sqrt(kk)) * -n if kk >= 0 else np.zeros(3)
    r = a - 2 * np.dot(a, n) * n
    e = [a @ b, np.linalg.norm(a), np.linalg.norm(a - b), np.cross(a, b)[0], r[0], r[2], f[0],
         3, 5, 7, np.cos(0.75), np.sin(0.75)]  # fmt: skip
    assert_close(k(a.astype(np.float32), b.astype(np.float32)).to_numpy(), e, atol=2e-6)


def test_complex_arithmetic(backend):
    m = qd.math

    @qd.kernel
    def k(a: m.vec2, b: m.vec2) -> qd.types.matrix(8, 2, qd.f32):
        return qd.Matrix.rows(
            [m.cmul(a, b), m.cdiv(a, b), m.cconj(a), m.cinv(b), m.cexp(a), m.clog(b), m.csqrt(a),
             m.cpow(b, 3)]
        )  # fmt: skip

    a, b = 0.5 + 0.75j, -1.25 + 0.5j
    e = [a * b, a / b, a.conjugate(), 1 / b, np.exp(a), np.log(b), np.sqrt(a), b**3]
    got = k(qd.Vector([a.real, a.imag]), qd.Vector([b.real, b.imag])).to_numpy()
    assert_close(got, [[z.real, z.imag] for z in e], atol=5e-6)


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
def test_bit_operations(backend, name):
    m = qd.math
    t = NUMPY[name]
    w = int(name[1:])
    edge = np.array([0, 1, 2, 3, 1 << (w - 2), (1 << (w - 1)) - 1], t)
    info = np.iinfo(t)
    x = np.concatenate([edge, [t(info.max), t(info.min)], draw(40, dtype(name), x=(0, 10**9))])
    out = np.zeros((3, x.size), np.int32)

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(x.shape[0]):
            out[0, i] = m.popcnt(x[i])
            out[1, i] = m.clz(x[i])
            out[2, i] = m.ffs(x[i])

    run(x, out)
    raw = [int(v) & ((1 << w) - 1) for v in x]
    assert out[0].tolist() == [bin(v).count("1") for v in raw]
    assert out[1].tolist() == [w - v.bit_length() for v in raw]
    assert out[2].tolist() == [(v & -v).bit_length() for v in raw]


def test_half_precision(backend):
    x = draw(200, qd.f16, x=(-4, 4))
    out = np.zeros((4, 200), np.float16)
    mixed = np.zeros(200, np.float32)

    @qd.kernel
    def run(x: Array, out: Array, mixed: Array):
        for i in range(200):
            out[0, i] = x[i] * x[i] + qd.cast(1, qd.f16)
            out[1, i] = -x[i]
            out[2, i] = abs(x[i])
            out[3, i] = qd.floor(x[i])
            mixed[i] = x[i] + qd.f32(0.001)

    run(x, out, mixed)
    f = x.astype(np.float32)
    assert_close(
        out, np.stack([f * f + 1, -f, np.abs(f), np.floor(f)]).astype(np.float16), rtol=2e-3
    )
    assert_close(mixed, f + np.float32(0.001), rtol=1e-6)


def test_denormals_flush_to_zero(backend):
    out = np.zeros(2, np.float32)

    @qd.kernel
    def run(x: qd.f32, out: Array):
        out[0] = x * qd.f32(0.5)
        out[1] = x

    run(1.2e-38, out)
    assert out[0] == 0 and out[1] > 0


# --- random numbers ----------------------------------------------------------------------------


def stream(n=4096, dt=qd.f32):
    out = np.zeros(n, NUMPY[str(dt)])

    @qd.kernel
    def run(out: Array):
        qd.loop_config(serialize=True)
        for i in range(n):
            out[i] = qd.random(dt)

    run(out)
    return out


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_uniform_moments(backend, name):
    x = stream(1 << 18, dtype(name)).astype(np.float64)
    assert x.min() >= 0 and x.max() < 1
    for k in (1, 2, 3):
        assert abs((x**k).mean() * (k + 1) - 1) < 0.02
    assert abs((x[1:] * x[:-1]).mean() - 0.25) < 0.005
    if name == "f64":
        assert np.unique((x * 2**40) % 2**8).size > 100  # more than 32 random bits


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
def test_integers_cover_the_range(backend, name):
    x = stream(4096, dtype(name))
    info = np.iinfo(x.dtype)
    span = float(info.max) - float(info.min)
    u = (x.astype(np.float64) - float(info.min)) / span
    assert abs(u.mean() - 0.5) < 0.03 and u.min() < 0.01 and u.max() > 0.99
    assert np.unique(x).size > 4000


def test_normal_moments(backend):
    n = 1 << 17
    out = np.zeros(n, np.float32)

    @qd.kernel
    def run(out: Array):
        for i in range(n):
            out[i] = qd.randn()

    run(out)
    assert np.isfinite(out).all()
    for k, expect in enumerate((0, 1, 0, 3), 1):
        assert abs((out.astype(np.float64) ** k).mean() - expect) < 0.15


def test_random_seeds(backend):
    runs = []
    for seed in (0, 0, 7, -3):
        backend.init(random_seed=seed)
        runs.append(np.concatenate([stream(64), stream(64)]))
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2]) and not np.array_equal(runs[2], runs[3])
    assert not np.array_equal(runs[0][:64], runs[0][64:])


@pytest.mark.parametrize("tier", ["0", "1", "interpret"])
def test_launches_that_draw_nothing_leave_the_sequence_as_it_is(backend, monkeypatch, tier):
    # A viewer's kernels made another simulation of a seeded one.
    monkeypatch.setenv("QD_CPU_TIER", tier)

    @qd.func
    def inner():
        return qd.random()

    @qd.kernel
    def draw() -> qd.f32:
        return inner()

    @qd.kernel
    def look(x: qd.f32) -> qd.f32:
        return x * 2

    def sequence(look_between):
        backend.init(random_seed=5)
        numbers = []
        for _ in range(3):
            numbers.append(draw())
            if look_between:
                look(1.0), look(2.0)
        return numbers

    plain = sequence(False)
    assert len(set(plain)) == 3
    assert sequence(True) == plain


def test_a_draw_that_passes_drop_counts(backend, monkeypatch):
    @qd.kernel
    def draw() -> qd.f32:
        return qd.random()

    @qd.kernel
    def waste():
        x = qd.random()

    def second(tier, wastes):
        monkeypatch.setenv("QD_CPU_TIER", tier)
        backend.init(random_seed=5)
        draw()
        if wastes:
            waste()
        return draw()

    numbers = {second(tier, True) for tier in ("0", "1", "interpret")}
    assert len(numbers) == 1 and second("0", False) not in numbers


def test_random_under_a_parallel_loop(backend):
    n = 1 << 16
    out = np.zeros(n, np.float32)

    @qd.kernel
    def run(out: Array):
        for i in range(n):
            out[i] = qd.random()

    run(out)
    assert np.unique(out).size > n * 0.95
    assert abs(out.mean() - 0.5) < 0.01


@pytest.mark.oracle_differs("it computes constants as NumPy does: half to even, NaN wins")
def test_constants_and_arguments_round_and_compare_alike(backend):
    numbers = [0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.0, -0.0, np.inf, -np.inf, np.nan]
    n = len(numbers)
    once, each = qd.field(qd.f64, (3, n)), qd.field(qd.f64, (3, n))
    low, high = qd.field(qd.f64, (2, n, n)), qd.field(qd.f64, (2, n, n))

    @qd.kernel
    def run(x: Array):
        for i in qd.static(range(n)):
            once[0, i] = qd.round(numbers[i])
            once[1, i] = qd.floor(numbers[i])
            once[2, i] = qd.ceil(numbers[i])
            for j in qd.static(range(n)):
                low[0, i, j] = qd.min(numbers[i], numbers[j])
                high[0, i, j] = qd.max(numbers[i], numbers[j])
        for i in range(n):
            each[0, i] = qd.round(x[i])
            each[1, i] = qd.floor(x[i])
            each[2, i] = qd.ceil(x[i])
            for j in range(n):
                low[1, i, j] = qd.min(x[i], x[j])
                high[1, i, j] = qd.max(x[i], x[j])

    run(np.array(numbers))
    for a, b in [
        (once.to_numpy(), each.to_numpy()),
        (low.to_numpy()[0], low.to_numpy()[1]),
        (high.to_numpy()[0], high.to_numpy()[1]),
    ]:
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))


def test_one_number_is_its_own_extreme(backend):
    numbers, one = [0.5], 3

    @qd.kernel
    def k(a: qd.f32) -> qd.f32:
        return max(*numbers) + min(np.float64(1.5)) + max(True) + max(one) + min([a, 2.0]) + max(a)

    assert k(1.0) == 0.5 + 1.5 + 1 + 3 + 1 + 1
