"""Operators on all pairs of dtypes: values, promotion, wrapping; literals and casts."""

import numpy as np
import pytest

import quadrants as qd
from helpers import (
    DTYPES,
    FLOATS,
    INTS,
    NUMPY,
    Array,
    assert_close,
    bits,
    draw,
    dtype,
    promote,
    raises,
)


def samples(name, n=16):
    """Values of one dtype: extremes, small ones of both signs, and random ones."""
    t = NUMPY[name]
    if name == "u1":
        return np.resize(np.array([0, 1, 1], t), n)
    if name[0] == "f":
        small = np.array([0.0, 1.0, -1.0, 0.5, -2.5, 3.75, 7.0, -8.0], t)
        return np.concatenate([small, draw(n - 8, dtype(name), seed=7, x=(-9, 9))])
    info = np.iinfo(t)
    # no minimum divided by -1: that overflows
    edge = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min + 1]
    low, high = max(info.min, -100), min(info.max, 100)
    rest = draw(n - 8, dtype(name), seed=bits(name), x=(low, high))
    return np.concatenate([np.array(edge, t), rest])


def grid(a, b, nonzero=False):
    """All pairs of samples of the dtypes `a` and `b`; second operands without zero on request."""
    x, y = samples(a), samples(b)
    if nonzero:
        y = np.where(y == 0, NUMPY[b](1), y)
    x, y = np.meshgrid(x, y, indexing="ij")
    return np.ascontiguousarray(x.ravel()), np.ascontiguousarray(y.ravel())


@qd.kernel
def basic(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = a[i] + b[i]
        out[1, i] = a[i] - b[i]
        out[2, i] = a[i] * b[i]


@qd.kernel
def extremes(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = qd.min(a[i], b[i])
        out[1, i] = qd.max(a[i], b[i])


@qd.kernel
def compared(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = a[i] < b[i]
        out[1, i] = a[i] <= b[i]
        out[2, i] = a[i] > b[i]
        out[3, i] = a[i] >= b[i]
        out[4, i] = a[i] == b[i]
        out[5, i] = a[i] != b[i]


@qd.kernel
def bitwise(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = a[i] & b[i]
        out[1, i] = a[i] | b[i]
        out[2, i] = a[i] ^ b[i]


@qd.kernel
def divided(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = a[i] // b[i]
        out[1, i] = a[i] % b[i]


@qd.kernel
def truncated(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = qd.raw_div(a[i], b[i])
        out[1, i] = qd.raw_mod(a[i], b[i])


@qd.kernel
def true_division(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[i] = a[i] / b[i]


def wide(p):
    """The dtype that holds every value of dtype `p` for the comparison."""
    return np.float64 if p[0] == "f" else np.int64


def expected(a, b, x, y, functions):
    p = promote(a, b)
    with np.errstate(all="ignore"):
        u, v = x.astype(NUMPY[p]), y.astype(NUMPY[p])
        rows = [f(u, v) for f in functions]
        return np.stack([r.astype(NUMPY[p]).astype(wide(p)) for r in rows])


BYTES = ("i8", "u8", "u1")


def check_all_pairs(kernel, functions, a, others):
    for b in others:
        x, y = grid(a, b)
        p = promote(a, b)
        out = np.zeros((len(functions), x.size), wide(p))
        kernel(x, y, out)
        expect = expected(a, b, x, y, functions)
        if p[0] == "f":
            assert_close(out, expect, rtol=2e-3 if p == "f16" else 1e-6, atol=1e-30)
        else:
            assert_close(out, expect)


@pytest.mark.parametrize("a", [t for t in DTYPES if t != "u1"])
def test_basic_operators_of_all_pairs(backend, a):
    others = [t for t in DTYPES if t != "u1" or a not in BYTES]
    check_all_pairs(basic, [np.add, np.subtract, np.multiply], a, others)


@pytest.mark.parametrize("a", [t for t in DTYPES if t != "u1"])
def test_min_and_max_of_all_pairs(backend, a):
    others = [t for t in DTYPES if a not in BYTES or t not in BYTES]
    check_all_pairs(extremes, [np.minimum, np.maximum], a, others)


@pytest.mark.oracle_differs("the established package aborts the process", run=False)
@pytest.mark.parametrize("a", ["i8", "u8"])
def test_min_and_max_of_bytes(backend, a):
    check_all_pairs(extremes, [np.minimum, np.maximum], a, ["i8", "u8"])


@pytest.mark.oracle_differs("the established package computes booleans in 8 bits")
@pytest.mark.parametrize("a", ["u8", "u1"])
def test_booleans_with_bytes(backend, a):
    """u8 with u1 computes in u8; two u1 compute modulo 2."""
    x, y = grid(a, "u1")
    out = np.zeros((3, x.size), np.int64)
    basic(x, y, out)
    u, v = x.astype(np.int64), y.astype(np.int64)
    mask = 255 if a == "u8" else 1
    assert_close(out, np.stack([(u + v) & mask, (u - v) & mask, (u * v) & mask]))


@pytest.mark.parametrize("a", DTYPES)
def test_comparisons_of_all_pairs(backend, a):
    """Operands are promoted first: i32(-1) == u32(0xffffffff)."""
    for b in DTYPES:
        if "u1" in (a, b) and a in BYTES and b in BYTES:
            continue
        x, y = grid(a, b)
        p = promote(a, b)
        out = np.zeros((6, x.size), np.int32)
        compared(x, y, out)
        with np.errstate(all="ignore"):
            u, v = x.astype(NUMPY[p]), y.astype(NUMPY[p])
        expect = np.stack([u < v, u <= v, u > v, u >= v, u == v, u != v]).astype(np.int32)
        assert_close(out, expect)


@pytest.mark.parametrize("a", INTS)
def test_bitwise_operators_of_all_pairs(backend, a):
    for b in INTS:
        x, y = grid(a, b)
        p = promote(a, b)
        out = np.zeros((3, x.size), np.int64)
        bitwise(x, y, out)
        expect = expected(a, b, x, y, [np.bitwise_and, np.bitwise_or, np.bitwise_xor])
        assert_close(out, expect)


def check_integer_division(a, others):
    for b in others:
        x, y = grid(a, b, nonzero=True)
        p = promote(a, b)
        with np.errstate(all="ignore"):
            v = y.astype(NUMPY[p])
        keep = v != 0
        x, y = x[keep].copy(), y[keep].copy()
        out = np.zeros((2, x.size), np.int64)
        divided(x, y, out)
        assert_close(out, expected(a, b, x, y, [np.floor_divide, np.remainder]))
        truncated(x, y, out)

        def trunc_div(u, v):
            q, r = np.floor_divide(u, v), np.remainder(u, v)
            return np.where((r != 0) & ((u < 0) != (v < 0)), q + NUMPY[p](1), q)

        assert_close(out, expected(a, b, x, y, [trunc_div, np.fmod]))


division_differs = pytest.mark.oracle_differs(
    "the established package is wrong for 8 bits and for the upper half of unsigned ranges"
)


@pytest.mark.parametrize(
    "a", [pytest.param(t, marks=division_differs) if t == "i8" or t[0] == "u" else t for t in INTS]
)
def test_integer_division_of_equal_signedness(backend, a):
    """Floor semantics; the remainder has the divisor's sign. raw_div and raw_mod truncate."""
    check_integer_division(a, [t for t in INTS if t[0] == a[0] and (a in BYTES or t not in BYTES)])


@pytest.mark.oracle_differs("the established package mixes signed and unsigned steps")
@pytest.mark.parametrize("a", INTS)
def test_integer_division_of_mixed_signedness(backend, a):
    check_integer_division(a, [t for t in INTS if t[0] != a[0]])


@pytest.mark.parametrize("a", ["f32", "f64"])
def test_floor_division_and_modulo_of_floats(backend, a):
    for b in ["i32", "f32", "f64"]:
        x, y = grid(a, b, nonzero=True)
        keep = np.abs(y.astype(np.float64)) < 1e6
        x, y = x[keep].copy(), y[keep].copy()
        out = np.zeros((2, x.size), np.float64)
        divided(x, y, out)
        p = NUMPY[promote(a, b)]
        q = np.floor(x.astype(p) / y.astype(p))
        assert_close(out[0], q.astype(np.float64))
        r = x.astype(p) - y.astype(p) * q
        tolerance = 1e-5 if p == np.float32 else 1e-13
        assert_close(out[1], r.astype(np.float64), rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("a", [t for t in DTYPES if t not in ("u1", "f16")])
def test_true_division_makes_default_fp(backend, a):
    for b in ["i32", "u64", "f32", "f64"]:
        x, y = grid(a, b, nonzero=True)
        p = promote(*("f32" if t[0] != "f" else t for t in (a, b)))
        out = np.zeros(x.size, np.float64)
        true_division(x, y, out)
        u, v = (z if z.dtype.kind == "f" else z.astype(np.float32) for z in (x, y))
        expect = u.astype(NUMPY[p]) / v.astype(NUMPY[p])
        assert_close(out, expect.astype(np.float64), rtol=1e-6 if p == "f32" else 1e-14)


def test_true_division_by_zero(backend):
    out = np.zeros(3, np.float32)
    true_division(np.array([1, -1, 0], np.int32), np.zeros(3, np.int32), out)
    assert out[0] == np.inf and out[1] == -np.inf and np.isnan(out[2])


def test_default_types_decide_division(backend):
    backend.init(default_fp=qd.f64)
    out = np.zeros(1, np.float64)
    true_division(np.array([1], np.int32), np.array([3], np.int32), out)
    assert out[0] == 1.0 / 3.0


@qd.kernel
def shifted(a: Array, n: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = a[i] << n[i]
        out[1, i] = a[i] >> n[i]
        out[2, i] = qd.bit_shr(a[i], n[i])


@pytest.mark.parametrize("a", INTS)
def test_shifts_keep_the_left_type(backend, a):
    t = NUMPY[a]
    unsigned = NUMPY["u" + a[1:]]
    x, n = np.meshgrid(samples(a), np.arange(bits(a)), indexing="ij")
    x, n = np.ascontiguousarray(x.ravel()), n.ravel().astype(np.int32)
    out = np.zeros((3, x.size), np.int64)
    shifted(x, n, out)
    expect = np.stack(
        [
            np.left_shift(x, n.astype(t)).astype(np.int64),
            np.right_shift(x, n.astype(t)).astype(np.int64),
            np.right_shift(x.view(unsigned), n.astype(unsigned)).view(t).astype(np.int64),
        ]
    )
    assert_close(out, expect)


@qd.kernel
def unary_int(a: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = -a[i]
        out[1, i] = ~a[i]
        out[2, i] = not a[i]
        out[3, i] = +a[i]


@pytest.mark.parametrize("a", INTS)
def test_unary_operators_of_integers(backend, a):
    x = samples(a)
    out = np.zeros((4, x.size), np.int64)
    unary_int(x, out)
    t = NUMPY[a]
    rows = [(-x).astype(t), ~x, (x == 0), x]
    assert_close(out, np.stack([r.astype(np.int64) for r in rows]))


@qd.kernel
def absolute(a: Array, out: Array):
    for i in range(a.shape[0]):
        out[i] = abs(a[i])


aborts = pytest.mark.oracle_differs("the established package aborts the process", run=False)


@pytest.mark.parametrize(
    "a", [pytest.param(t, marks=aborts) if t[1:] in ("8", "16") else t for t in INTS]
)
def test_absolute_values_of_integers(backend, a):
    x = samples(a)
    out = np.zeros(x.size, np.int64)
    absolute(x, out)
    assert_close(out, np.abs(x).astype(np.int64))


@qd.kernel
def unary_float(a: Array, out: Array):
    for i in range(a.shape[0]):
        out[0, i] = -a[i]
        out[1, i] = abs(a[i])


@pytest.mark.parametrize("a", FLOATS)
def test_unary_operators_of_floats(backend, a):
    x = samples(a)
    out = np.zeros((2, x.size), NUMPY[a])
    unary_float(x, out)
    assert_close(out, np.stack([-x, np.abs(x)]))


@qd.kernel
def powers(a: Array, b: Array, out: Array):
    for i in range(a.shape[0]):
        out[i] = a[i] ** b[i]


@pytest.mark.parametrize("a", ["i32", "i64", "u32", "u64"])
@pytest.mark.parametrize("b", ["i32", "i64"])
def test_integer_powers_keep_the_base_type(backend, a, b):
    base, exponent = np.meshgrid(np.arange(0, 12), np.arange(0, 10), indexing="ij")
    if a[0] == "i":
        base = base - 5
    x, y = base.ravel().astype(NUMPY[a]), exponent.ravel().astype(NUMPY[b])
    out = np.zeros(x.size, NUMPY[a])
    powers(x, y, out)
    assert_close(out, np.array([int(u) ** int(v) for u, v in zip(x, y)]).astype(NUMPY[a]))


@pytest.mark.parametrize("a", ["f32", "f64"])
def test_float_powers(backend, a):
    x = draw(64, dtype(a), x=(0.1, 4))
    for y in (np.arange(64, dtype=np.int32) % 9 - 4, draw(64, dtype(a), y=(-3, 3))):
        out = np.zeros(64, np.float64)
        powers(x, y, out)
        expect = x.astype(np.float64) ** y.astype(np.float64)
        assert_close(out, expect, rtol=2e-6 if a == "f32" else 1e-12)


def test_constant_powers_of_negative_bases(backend):
    x = np.array([-2.0, -1.5, 0.0, 3.0], np.float32)
    out = np.zeros((5, 4), np.float32)

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(4):
            out[0, i] = x[i] ** 0
            out[1, i] = x[i] ** 2
            out[2, i] = x[i] ** 3
            out[3, i] = x[i] ** -1
            out[4, i] = (x[i] * x[i]) ** 0.5

    run(x, out)
    with np.errstate(divide="ignore"):
        expect = np.stack([np.ones(4), x**2, x**3, 1 / x, np.abs(x)]).astype(np.float32)
    assert_close(out, expect, ulp=2)


def test_boolean_arithmetic(backend):
    """Comparison results are u1, whose sums are modulo 2; a cast first gives a count."""
    out = np.zeros(3, np.int32)

    @qd.kernel
    def run(a: qd.i32, b: qd.i32, out: Array):
        out[0] = qd.cast(a > 0, qd.i32) + qd.cast(b > 0, qd.i32)
        out[1] = (a > 0) & (b > 0)
        out[2] = (a > 0) ^ (b > 0)

    run(1, 2, out)
    assert out.tolist() == [2, 1, 0]


def test_literals_take_the_default_types(backend):
    out = np.zeros(8, np.float64)

    @qd.kernel
    def run(x: qd.i32, out: Array):
        out[0] = 0.1  # f32 before it is stored
        out[1] = 1 / 3 + qd.cast(x, qd.f64)  # python folds the first operand in double precision
        out[2] = qd.f64(0.1)
        out[3] = (x + 2147483647) < 0
        out[4] = True
        out[5] = 7 // 2 - 7 % 4
        out[6] = -2147483648
        out[7] = qd.u32(4294967295)

    run(1, out)
    expect = [np.float32(0.1), np.float32(1 / 3) + 1.0, 0.1, 1, 1, 0, -2147483648, 4294967295]
    assert_close(out, np.array(expect, np.float64), rtol=1e-7)
    assert out[2] == 0.1


def test_default_integer_of_64_bits(backend):
    backend.init(default_ip=qd.i64, default_fp=qd.f64)
    out = np.zeros(3, np.int64)
    real = np.zeros(1, np.float64)

    @qd.kernel
    def run(n: int, x: float, out: Array, real: Array) -> int:
        out[0] = 4294967296 * 3
        out[1] = n + 1
        k = 1
        out[2] = k << 40
        real[0] = x + 0.1
        return n

    assert run(2**40, 1.0, out, real) == 2**40
    assert out.tolist() == [3 * 2**32, 2**40 + 1, 2**40]
    assert real[0] == 1.1


def cast_to(name, x):
    dt = dtype(name)
    out = np.zeros(x.size, NUMPY[name])

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(x.shape[0]):
            out[i] = qd.cast(x[i], dt)

    run(x, out)
    return out


@pytest.mark.parametrize("a", ["i8", "u8", "i32", "u32", "i64", "u64", "f32", "f64", "u1", "f16"])
def test_casts_to_all_types(backend, a):
    """Float to integer truncates, narrowing keeps low bits, anything to u1 is `!= 0`."""
    for b in DTYPES:
        x = samples(a)
        if a[0] == "f" and b == "u1":
            continue  # see test_cast_of_floats_to_boolean
        if a[0] == "f" and b[0] == "u" and b != "u1":
            x = np.abs(x)  # out of range is undefined
        out = cast_to(b, x)
        with np.errstate(all="ignore"):
            expect = (x != 0) if b == "u1" else x.astype(NUMPY[b])
        if b == "f16":
            assert_close(out, expect, rtol=1e-3)
        else:
            assert_close(out, expect)


BEYOND = {  # values that a type cannot hold
    "i8": {128.5: -128, -129: 127, 300: 44, -300: -44, 70000: 112, 3e9: 0, np.nan: 0},
    "u8": {-1: 255, -2.5: 254, 256: 0, 300: 44, -70000: 144, 3e9: 0, -np.inf: 0},
    "i16": {32768: -32768, -32769: 32767, 70000: 4464, -3e9: 0},
    "u16": {-1: 65535, 65536: 0, -70000: 61072, np.inf: 0},
    "i32": dict.fromkeys([2.0**31, 3e9, -3e9, 1e30, np.inf, -np.inf, np.nan], -(2**31)),
    "i64": dict.fromkeys([2.0**63, 1e19, -1e19, np.inf, -np.inf, np.nan], -(2**63)),
    "u32": {-1: 2**32 - 1, 3e9: 3000000000},
    "u64": {-1: 2**64 - 1, 2.0**63: 2**63},
}


@pytest.mark.parametrize("a", ["f32", "f64"])
@pytest.mark.parametrize("b", BEYOND)
def test_casts_of_floats_beyond_the_type(backend, a, b):
    """No saturation: narrow types keep the low bits of the conversion to i32, and what i32 or i64
    cannot hold is their least value, as on x86."""
    out = cast_to(b, np.array(list(BEYOND[b]), NUMPY[a]))
    assert out.tolist() == list(BEYOND[b].values())


@pytest.mark.oracle_differs("the established package aborts the process", run=False)
@pytest.mark.parametrize("a", FLOATS)
def test_cast_of_floats_to_boolean(backend, a):
    x = np.array([0.0, -0.0, 0.25, -1.0, 300.0], NUMPY[a])
    out = np.zeros(5, np.int32)

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(5):
            out[i] = qd.cast(x[i], qd.u1)

    run(x, out)
    assert out.tolist() == [0, 0, 1, 1, 1]


def test_cast_spellings(backend):
    out = np.zeros(6, np.float64)

    @qd.kernel
    def run(x: qd.f32, n: qd.i32, out: Array):
        out[0] = int(x)
        out[1] = float(n) / 2
        out[2] = bool(n)
        out[3] = qd.i32(x)
        out[4] = qd.u8(n)
        out[5] = qd.cast(n, float)

    run(-2.75, 300, out)
    assert out.tolist() == [-2, 150, 1, -2, 44, 300]


@pytest.mark.parametrize(
    "a,b", [("f32", "i32"), ("f32", "u32"), ("i32", "f32"), ("f64", "i64"), ("u64", "f64"),
            ("i16", "u16"), ("f16", "u16")]
)  # fmt: skip
def test_bit_cast(backend, a, b):
    source = (
        samples(a)
        if a[0] == "f"
        else samples("f" + b[1:]).view(NUMPY[a])
        if (b[0] == "f")
        else samples(a)
    )
    out = np.zeros(source.size, NUMPY[b])
    dt = dtype(b)

    @qd.kernel
    def run(x: Array, out: Array):
        for i in range(x.shape[0]):
            out[i] = qd.bit_cast(x[i], dt)

    run(source, out)
    assert_close(out.view(np.uint8), source.view(NUMPY[b]).view(np.uint8))


def test_bit_patterns_of_small_integers_reach_the_host(backend):
    """They are subnormal as f32, and neither a result nor an element read flushes them."""
    x = qd.field(qd.f32, 1)

    @qd.kernel
    def run(i: qd.i32) -> qd.f32:
        x[0] = qd.bit_cast(i, qd.f32)
        return x[0]

    for i, sign in ((1, 1), (2333, 1), (-(2**31) + 5, -1)):
        expect = sign * (i & 0x7FFFFF) * 2.0**-149
        assert run(i) == expect and x[0] == expect


def test_chained_comparisons_evaluate_once(backend):
    hits = qd.field(qd.i32, ())
    out = np.zeros((3, 8), np.int32)

    @qd.func
    def probe(x):
        hits[None] += 1
        return x

    @qd.kernel
    def run(out: Array):
        for i in range(8):
            out[0, i] = 2 < i < 6
            out[1, i] = 1 <= probe(i) <= 5 != 3
            out[2, i] = 0 < i < 4 < 5

    run(out)
    i = np.arange(8)
    assert_close(out, np.stack([(2 < i) & (i < 6), (1 <= i) & (i <= 5), (0 < i) & (i < 4)]) * 1)
    assert hits[None] == 8


def test_and_or_not_follow_python(backend):
    a, b = (v.ravel().astype(np.int32) for v in np.meshgrid([0, 1, 5, -3], [0, 2, 6]))
    out = np.zeros((5, a.size), np.int32)

    @qd.kernel
    def run(a: Array, b: Array, out: Array):
        for i in range(a.shape[0]):
            out[0, i] = a[i] and b[i]
            out[1, i] = a[i] or b[i]
            out[2, i] = not a[i]
            out[3, i] = a[i] and b[i] or 9
            out[4, i] = a[i] > 0 and b[i] > 0 and a[i] < b[i]

    run(a, b, out)
    pairs = list(zip(a.tolist(), b.tolist()))
    assert out[0].tolist() == [x and y for x, y in pairs]
    assert out[1].tolist() == [x or y for x, y in pairs]
    assert out[2].tolist() == [int(not x) for x, y in pairs]
    assert out[3].tolist() == [x and y or 9 for x, y in pairs]
    assert out[4].tolist() == [int(0 < x < y and y > 0) for x, y in pairs]


def test_right_operand_is_not_evaluated_when_the_left_decides(backend):
    backend.init(debug=True)
    x = qd.field(qd.i32, 4)
    out = np.zeros((2, 8), np.int32)
    x.fill(1)

    @qd.kernel
    def run(out: Array):
        for i in range(8):
            out[0, i] = i < 4 and x[i] > 0
            if i >= 4 or x[i] == 0:
                out[1, i] = 1

    run(out)
    assert out.tolist() == [[1] * 4 + [0] * 4, [0] * 4 + [1] * 4]


def test_short_circuit_can_be_turned_off(backend):
    backend.init(short_circuit_operators=False)
    out = np.zeros((6, 3), np.int32)

    @qd.kernel
    def run(a: Array, out: Array):
        for i in range(3):
            v = qd.Vector([a[i], 4]) and [3, 5]
            out[0, i] = a[i] and 3
            out[1, i] = a[i] or 8
            out[2, i] = 3 and a[i]
            out[3, i] = False or 12 or a[i]
            out[4, i] = v[0] * 10 + v[1]
            out[5, i] = 5 and 6

    run(np.array([0, 1, 6], np.int32), out)
    assert out[:4].tolist() == [[0, 1, 2], [8, 9, 14], [0, 1, 2], [12, 13, 14]]
    assert out[4:].tolist() == [[4, 14, 24], [4, 4, 4]]


def test_conditional_expression_evaluates_one_branch(backend):
    backend.init(debug=True)
    x = qd.field(qd.f32, 4)
    x.from_numpy(np.arange(4, dtype=np.float32))
    out = np.zeros(8, np.float32)

    @qd.kernel
    def run(out: Array):
        for i in range(8):
            out[i] = x[i] * 2 if i < 4 else -1

    run(out)
    assert out.tolist() == [0, 2, 4, 6, -1, -1, -1, -1]


def test_conditional_expression_promotes(backend):
    out = np.zeros((3, 2), np.float64)

    @qd.kernel
    def run(out: Array):
        for i in range(2):
            out[0, i] = 1 if i == 0 else 2.5
            out[1, i] = 10 if i == 0 else (20 if i == 1 else 30)
            out[2, i] = qd.select(i, 1, 2.5)

    run(out)
    assert out.tolist() == [[1, 2.5], [10, 20], [2.5, 1]]


def test_truth_literals_through_a_float_type(backend):
    """qd.f32(True) is 1.0, as in Python: a bool is no integer literal here."""
    captured, numpys = False, np.bool_(True)

    @qd.kernel
    def run() -> qd.types.vector(4, qd.f64):
        return [qd.f64(True), qd.f64(captured), qd.f64(numpys), qd.f64(2 > 1)]

    assert run().to_list() == [1, 0, 1, 1]


def test_numpy_numbers_are_literals_of_any_width(backend):
    golden, large = np.uint32(0x9E3779B9), np.int64(2**40)
    tenth, seven = np.array(0.1), np.array(7)

    @qd.kernel
    def floats() -> qd.types.vector(4, qd.f64):
        small = qd.f64(np.float32(0.1))
        return qd.Vector([qd.f64(tenth), qd.f64(np.array(0.1)), qd.f64(np.float64(0.1)), small])

    @qd.kernel
    def integers(a: qd.template()) -> qd.types.vector(6, qd.i64):
        inline = qd.u32(np.uint32(0x9E3779B9))
        of_array = qd.i64(np.array(2**40))
        return qd.Vector([qd.u32(golden), qd.i64(large), inline, of_array, qd.u8(seven), qd.u32(a)])

    assert floats().to_list() == [0.1, 0.1, 0.1, float(np.float32(0.1))]
    expect = [0x9E3779B9, 2**40, 0x9E3779B9, 2**40, 7]
    for a in (np.uint32(2**32 - 1), np.int64(5)):
        assert integers(a).to_list() == [*expect, int(a)]


@pytest.mark.parametrize(
    "number", [np.int64(300), np.int64(-1), np.array(256), np.array(-1)], ids=str
)
def test_numpy_integers_beyond_their_type(backend, number):
    text = f"Integer literal {number} exceeded the range of specified dtype: u8"

    @qd.kernel
    def captured() -> qd.i32:
        return qd.u8(number)

    @qd.kernel
    def passed(a: qd.template()) -> qd.i32:
        return qd.u8(a)

    with raises(qd.QuadrantsTypeError, text):
        captured()
    if isinstance(number, np.integer):  # arrays are no template arguments
        with raises(qd.QuadrantsTypeError, text):
            passed(number)


MISUSE = [
    ("bit_and_of_float", qd.QuadrantsTypeError, "unsupported operand type(s) for '&'"),
    ("not_of_float", qd.QuadrantsTypeError, "takes integral inputs only"),
    ("invert_of_float", qd.QuadrantsTypeError, "takes integral inputs only"),
    ("and_of_float", qd.QuadrantsTypeError, "unsupported operand type(s) for '&&'"),
    ("if_of_float", qd.QuadrantsTypeError, "`if` conditions must be an integer; found f32"),
    ("while_of_float", qd.QuadrantsTypeError, "conditions must be an integer; found f32"),
    ("big_literal", qd.QuadrantsTypeError,
     "Integer literal 4294967295 exceeded the range of default_ip: i32"),
    ("big_typed_literal", qd.QuadrantsTypeError, "exceeded the range of specified dtype: u16"),
    ("int_literal_as_float", qd.QuadrantsTypeError,
     "Integer literals must be annotated with a integer type"),
    ("float_literal_as_int", qd.QuadrantsTypeError,
     "Floating-point literals must be annotated with a floating-point type"),
    ("numpy_integer_as_float", qd.QuadrantsTypeError,
     "Integer literals must be annotated with a integer type"),
    ("zero_dimensional_integer_as_float", qd.QuadrantsTypeError,
     "Integer literals must be annotated with a integer type"),
    ("numpy_float_as_integer", qd.QuadrantsTypeError,
     "Floating-point literals must be annotated with a floating-point type"),
    ("zero_dimensional_float_as_integer", qd.QuadrantsTypeError,
     "Floating-point literals must be annotated with a floating-point type"),
    ("is_operator", qd.QuadrantsSyntaxError, 'Operator "is" in Quadrants scope is not supported.'),
    ("in_operator", qd.QuadrantsSyntaxError, '"In" is only supported inside `qd.static`.'),
    ("two_arguments", qd.QuadrantsSyntaxError,
     "A primitive type can only decorate a single expression"),
    ("compound_cast", qd.QuadrantsSyntaxError, "with a compound type"),
]  # fmt: skip


@qd.kernel
def bit_and_of_float(x: qd.f32, n: qd.i32) -> qd.i32:
    return n & x


@qd.kernel
def not_of_float(x: qd.f32, n: qd.i32) -> qd.i32:
    return not x


@qd.kernel
def invert_of_float(x: qd.f32, n: qd.i32) -> qd.i32:
    return ~x


@qd.kernel
def and_of_float(x: qd.f32, n: qd.i32) -> qd.i32:
    return n and x


@qd.kernel
def if_of_float(x: qd.f32, n: qd.i32):
    if x:
        pass


@qd.kernel
def while_of_float(x: qd.f32, n: qd.i32):
    while x:
        pass


@qd.kernel
def big_literal(x: qd.f32, n: qd.i32) -> qd.i32:
    return n + 4294967295


@qd.kernel
def big_typed_literal(x: qd.f32, n: qd.i32) -> qd.i32:
    return n + qd.u16(65536)


@qd.kernel
def int_literal_as_float(x: qd.f32, n: qd.i32) -> qd.f32:
    return x + qd.f64(3)


@qd.kernel
def float_literal_as_int(x: qd.f32, n: qd.i32) -> qd.f32:
    return x + qd.i32(3.5)


NUMPY_INTEGER, NUMPY_FLOAT = np.int64(3), np.float32(2.5)
ZERO_DIMENSIONAL_INTEGER, ZERO_DIMENSIONAL_FLOAT = np.array(3), np.array(2.5)


@qd.kernel
def numpy_integer_as_float(x: qd.f32, n: qd.i32) -> qd.f32:
    return x + qd.f32(NUMPY_INTEGER)


@qd.kernel
def zero_dimensional_integer_as_float(x: qd.f32, n: qd.i32) -> qd.f32:
    return x + qd.f64(ZERO_DIMENSIONAL_INTEGER)


@qd.kernel
def numpy_float_as_integer(x: qd.f32, n: qd.i32) -> qd.f32:
    return x + qd.i32(NUMPY_FLOAT)


@qd.kernel
def zero_dimensional_float_as_integer(x: qd.f32, n: qd.i32) -> qd.f32:
    return x + qd.u8(ZERO_DIMENSIONAL_FLOAT)


@qd.kernel
def is_operator(x: qd.f32, n: qd.i32) -> qd.i32:
    return n is n


@qd.kernel
def in_operator(x: qd.f32, n: qd.i32) -> qd.i32:
    return n in [1, 2]


@qd.kernel
def two_arguments(x: qd.f32, n: qd.i32) -> qd.i32:
    return qd.i32(n, n)


@qd.kernel
def compound_cast(x: qd.f32, n: qd.i32) -> qd.i32:
    v = qd.Vector([n, n])
    return qd.i32(v)


@pytest.mark.parametrize("name,cls,text", MISUSE, ids=[m[0] for m in MISUSE])
def test_misuse(backend, name, cls, text):
    with raises(cls, text):
        globals()[name](1.0, 1)


def test_negative_constant_exponent(backend):
    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        return n**-2

    with raises(RuntimeError, "Negative exponent in pow(int, int) is not allowed."):
        run(3)


@pytest.mark.oracle_differs("the established package raises a plain RuntimeError")
def test_negative_constant_exponent_class(backend):
    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        return n**-2

    with raises(qd.QuadrantsRuntimeError, "Negative exponent in pow(int, int) is not allowed."):
        run(3)


def test_negative_runtime_exponent_in_debug(debug_backend):
    @qd.kernel
    def run(n: qd.i32, k: qd.i32) -> qd.i32:
        return n**k

    assert run(3, 2) == 9
    with raises(qd.QuadrantsAssertionError, "Negative exponent in pow(int, int) is not allowed."):
        run(3, -1)
    assert run(3, 3) == 27


@pytest.mark.parametrize(
    "base, exponent, x, n, expect",
    [
        (qd.f32, qd.u32, 2.0, 2**32 - 1, np.inf),
        (qd.f32, qd.i64, -1.0, 2**40 + 1, -1.0),
        (qd.f32, qd.i64, 2.0, -(2**63), 0.0),
        (qd.f32, qd.i64, 1 - 2.0**-24, 2**31, 0.0),
        (qd.f16, qd.i64, 2.0, 2**32, np.inf),
        (qd.f64, qd.u64, -2.0, 2**64 - 1, -np.inf),
        (qd.u64, qd.u64, 2, 2**63, 0),
        (qd.u64, qd.u64, 3, 2**63 + 1, 3),
        (qd.i64, qd.u64, 7, 2**64 - 1, pow(7, 2**64 - 1, 2**64)),
        (qd.i32, qd.u64, 5, 2**63 + 1, 5),
    ],
)
def test_powers_of_exponents_beyond_their_type(backend, base, exponent, x, n, expect):
    """Cut to 32 or 63 bits they were others."""

    @qd.kernel
    def power(x: base, n: exponent) -> base:
        return x**n

    if base is qd.i64 and expect >= 2**63:
        expect -= 2**64
    assert power(x, n) == expect
    vector = qd.types.vector(2, base)

    @qd.kernel
    def powers(x: base, n: exponent) -> vector:
        return qd.Vector([x, x], base) ** n

    assert powers(x, n).to_list() == [expect] * 2


def test_magnitudes_of_the_least_integers(backend):
    """The magnitude of an i16 was taken for positive by a GPU's assembler."""
    for dt in (qd.i8, qd.i16, qd.i32, qd.i64):
        least = -(2 ** (dt.bits - 1))
        x = qd.field(dt, 4)
        x.from_numpy(np.array([least, -1, 0, -least - 1], NUMPY[str(dt)]))

        @qd.kernel
        def wide(k: qd.i32) -> qd.i64:
            return qd.cast(abs(x[k]), qd.i64)

        assert [wide(k) for k in range(4)] == [least, 1, 0, -least - 1]
