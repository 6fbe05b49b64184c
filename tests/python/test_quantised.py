"""Quantised fields: numbers of a few bits that share words, in kernels and on the host."""

import itertools
import math
import random
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

pytestmark = pytest.mark.usefixtures("backend")
Q = qd.types.quant


def packed(*types, bits=32, extents=4, shared=False, offset=None):
    """Fields of these types in one word per cell."""
    fields = [qd.field(t) for t in types]
    word = qd.BitpackedFields(max_num_bits=bits)
    word.place(*fields, shared_exponent=shared)
    qd.root.dense(qd.i, extents).place(word, offset=offset)
    return fields


def wrapped(value, bits, signed):
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


@qd.kernel
def set_all(x: qd.template(), values: qd.types.ndarray()):
    for i in x:
        x[i] = values[i]


@qd.kernel
def get_all(x: qd.template(), values: qd.types.ndarray()):
    for i in x:
        values[i] = x[i]


def through_kernels(x, values, dtype):
    set_all(x, np.array(values, dtype))
    out = np.zeros(len(values), dtype)
    get_all(x, out)
    assert out.tolist() == [x[i] for i in range(len(values))]  # the host reads the same
    return out.tolist()


# --- types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 5, 8, 13, 31, 32])
def test_integers_wrap(bits, signed):
    (x,) = packed(Q.int(bits, signed), extents=7)
    values = [0, 1, 3, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, (1 << bits) + 2]
    values = [wrapped(v, 32, signed) for v in values]
    got = through_kernels(x, values, np.int32 if signed else np.uint32)
    assert got == [wrapped(v, bits, signed) for v in values]


@pytest.mark.parametrize("bits", [33, 40, 63, 64])
def test_wide_integers(bits):
    x, u = (
        packed(t, bits=64)[0] for t in (Q.int(bits, compute=qd.i64), Q.int(bits, False, qd.u64))
    )
    values = [0, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))]
    assert through_kernels(x, values, np.int64) == values
    values = [0, 1, (1 << bits) - 1, 1 << (bits - 1)]
    assert through_kernels(u, values, np.uint64) == values


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("step", [1 / 128, 0.1, 0.25])
def test_fixed_point_rounds_to_nearest_and_wraps(signed, step):
    (x,) = packed(Q.fixed(8, signed, scale=step), extents=8)
    counts = [0, 1, 2, 127, 100, -3, 300, 128]
    values = [np.float32(c * step + step * 0.3) for c in counts]
    got = through_kernels(x, values, np.float32)
    assert got == [np.float32(wrapped(c, 8, signed)) * np.float32(step) for c in counts]


def test_ties_of_fixed_point_go_away_from_zero():
    (x,) = packed(Q.fixed(8, scale=0.25))
    assert through_kernels(x, [0.125, 0.375, -0.125, -0.375], np.float32) == [
        0.25,
        0.5,
        -0.25,
        -0.5,
    ]


def test_the_step_of_fixed_point():
    assert Q.fixed(10, max_value=2.0).scale == 2 / 512
    assert Q.fixed(10, False, max_value=2.0).scale == 2 / 1024


def nearest_float(value, exponent_bits, digits, signed=True):
    """`digits` after the leading 1, ties away from zero, underflow to zero."""
    if value == 0:
        return 0.0
    mantissa, exponent = math.frexp(abs(value))
    scaled = math.floor(mantissa * 2.0 ** (digits + 1) + 0.5)
    result = math.ldexp(scaled, exponent - digits - 1)
    if math.frexp(result)[1] - 1 + (1 << (exponent_bits - 1)) - 1 < 1:
        return 0.0
    return math.copysign(result, value if signed else 1.0)


@pytest.mark.parametrize(
    "exponent, digits, signed", [(5, 10, True), (6, 7, False), (8, 24, True), (3, 5, True)]
)
def test_floats(exponent, digits, signed):
    (x,) = packed(Q.float(exponent, digits, signed), extents=200)
    rng = random.Random(exponent * 100 + digits)
    most = (1 << (exponent - 1)) - 1 if exponent < 8 else 60
    values = [
        rng.choice([-1, 1]) * rng.uniform(1, 2) * 2.0 ** rng.randint(-most - 2, most)
        for _ in range(196)
    ]
    values = [float(np.float32(v)) for v in [0.0, 1.0, 1.5, -1.0, *values]]
    magnitude = digits - signed
    assert through_kernels(x, values, np.float32) == [
        nearest_float(v, exponent, magnitude, signed) for v in values
    ]


def test_a_float_beyond_the_largest_is_the_largest():
    (x,) = packed(Q.float(4, 4))
    assert through_kernels(x, [1e9, -1e9, 480.0, 479.0], np.float32) == [
        480.0,
        -480.0,
        480.0,
        480.0,
    ]


def shared_model(values, bias, digits):
    """Digits of values that have the exponent of the largest."""
    largest = max(abs(v) for v in values)
    if largest == 0:
        return [0.0] * len(values)
    exponent = math.frexp(largest)[1] - 1
    while True:
        steps = [2.0 ** (exponent - d + 1) for d in digits]
        counts = [math.floor(abs(v) / s + 0.5) for v, s in zip(values, steps)]
        if all(c < 1 << d for c, d in zip(counts, digits)):
            return [math.copysign(c * s, v) if c else 0.0 for c, s, v in zip(counts, steps, values)]
        exponent += 1


@pytest.mark.parametrize("seed", range(4))
def test_a_shared_exponent_is_that_of_the_largest(seed):
    rng = random.Random(seed)
    fracs = [rng.randint(4, 14) for _ in range(3)]
    fields = packed(*(Q.float(6, f) for f in fracs), bits=64, shared=True, extents=1)
    model = [0.0] * 3
    for _ in range(60):
        k = rng.randrange(3)
        v = rng.choice([0.0, rng.uniform(-4, 4) * 2.0 ** rng.randint(-8, 8)])
        model[k] = float(np.float32(v))
        fields[k][0] = v
        model = shared_model(model, 31, [f - 1 for f in fracs])
        assert [x[0] for x in fields] == model


def test_zeroing_one_member_keeps_the_others():
    x, y, z = packed(*[Q.float(5, 8)] * 3, shared=True, extents=2)
    x[1], y[1], z[1] = 100.0, 3.0, 0.001
    assert (x[1], y[1], z[1]) == (100.0, 3.0, 0.0)
    x[1] = 0
    assert (x[1], y[1], z[1]) == (0.0, 3.0, 0.0) and x[0] == 0.0


# --- places -------------------------------------------------------------------------------------------


def test_members_of_a_word_do_not_touch_each_other():
    rng = random.Random(5)
    types = [Q.int(3), Q.fixed(9, False), Q.float(5, 7), Q.int(11, False), Q.int(1, False)]
    fields = packed(*types, bits=64, extents=5)
    kept = {}
    for _ in range(200):
        k, i = rng.randrange(5), rng.randrange(5)
        fields[k][i] = rng.choice([0, 1, rng.randint(-4, 900)]) if k in (0, 3, 4) else rng.random()
        kept[k, i] = fields[k][i]
        assert all(fields[a][b] == v for (a, b), v in kept.items())


@pytest.mark.parametrize("axes, extents", [(qd.i, 8), (qd.ij, (4, 2)), (qd.ij, (2, 4))])
def test_quant_arrays(axes, extents):
    x = qd.field(Q.int(4))
    qd.root.dense(axes, 3).quant_array(axes, extents, max_num_bits=32).place(x)
    shape = x.shape

    @qd.kernel
    def fill():
        for at in qd.grouped(x):
            n = 0
            for k in qd.static(range(len(x.shape))):
                n = n * 5 + at[k]
            x[at] = n

    fill()
    found = x.to_numpy(dtype=np.int32)
    for at in np.ndindex(*shape):
        n = 0
        for k in at:
            n = n * 5 + k
        assert found[at] == wrapped(n, 4, True) == x[at]


def test_a_vector_is_its_components():
    v = qd.Vector.field(3, dtype=Q.int(10))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(v)
    qd.root.dense(qd.ij, (2, 3)).place(word, offset=(1, -2))

    @qd.kernel
    def work() -> qd.i32:
        for at in qd.grouped(v):
            v[at] = [at[0], at[1], 3]
            v[at].y += 1
            v[at][2] *= 2
            v[at] += qd.Vector([1, 1, 1])
        return v[1, -2].sum()

    assert work() == 2 + 0 + 7
    expected = [[[1 + i + 1, -2 + j + 2, 7] for j in range(3)] for i in range(2)]
    assert v.to_numpy(dtype=np.int32).tolist() == expected
    v[2, 0] = [7, 8, -9]
    v[2, 0][1] = 4
    assert v[2, 0].to_list() == [7, 4, -9] and v.shape == (2, 3)
    v.fill(5)
    assert (v.to_numpy() == 5).all()


def test_components_in_words_of_their_own():
    v = qd.Matrix.field(2, 2, dtype=[[Q.int(5), Q.int(6)], [Q.int(7), Q.int(8)]])
    one, other = qd.BitpackedFields(max_num_bits=16), qd.BitpackedFields(max_num_bits=32)
    one.place(v.get_scalar_field(0, 0))
    other.place(*(v.get_scalar_field(*at) for at in ((0, 1), (1, 0), (1, 1))))
    cell = qd.root.dense(qd.i, 3)
    cell.place(one)
    cell.place(other)
    v[1] = [[100, 100], [100, 100]]
    assert v[1].to_list() == [[4, -28], [-28, 100]]
    with raises(qd.QuadrantsRuntimeError, "must have the same compute type"):
        qd.Vector.field(2, dtype=[Q.int(5), Q.int(5, compute=qd.i64)])


def test_structs():
    s = qd.Struct.field({"a": Q.int(5), "b": Q.fixed(6, max_value=4.0)})
    word = qd.BitpackedFields(max_num_bits=16)
    word.place(s.a, s.b)
    qd.root.dense(qd.i, 3).place(word)

    @qd.kernel
    def work():
        for i in s:
            s[i].a = i + 1
            s[i].b = s[i].a * 0.5

    work()
    assert [s[i].a for i in range(3)] == [1, 2, 3] and [s[i].b for i in range(3)] == [0.5, 1.0, 1.5]


def test_below_sparse_nodes():
    x, y = qd.field(Q.int(5)), qd.field(Q.fixed(7))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x, y)
    block = qd.root.pointer(qd.i, 8)
    block.dense(qd.i, 4).place(word)
    lists = qd.root.dynamic(qd.i, 16)
    z = qd.field(Q.int(6))
    apart = qd.BitpackedFields(max_num_bits=8)
    apart.place(z)
    lists.place(apart)

    @qd.kernel
    def visited() -> qd.i32:
        n = 0
        for i in x:
            n += 100 + x[i]
        return n

    assert visited() == 0 and x[9] == 0
    x[9] = 7
    y[10] = 0.5
    assert visited() == 407 and x.to_numpy().sum() == 7

    @qd.kernel
    def append():
        for i in range(5):
            z.append(i * 10)

    append()
    assert sorted(z[i] for i in range(5)) == sorted(wrapped(10 * i, 6, True) for i in range(5))
    block.deactivate_all()
    assert visited() == 0
    x[8] = 1
    assert (x[9], y[10]) == (0, 0.0)  # what was deactivated is zero


def test_a_loop_over_nodes():
    x = qd.field(Q.int(4))
    array = qd.root.dense(qd.i, 2).quant_array(qd.i, 4, max_num_bits=16)
    array.place(x)
    (y,) = packed(Q.int(4), extents=3)

    @qd.kernel
    def count(node: qd.template()) -> qd.i32:
        n = 0
        for i in node:
            n += 10 + i
        return n

    assert count(array) == count(x) == 80 + 28
    assert count(y.parent()) == count(y) == 30 + 3
    assert "bit_struct" in repr(y.parent()) and "quant_array" in repr(x.parent())


def test_bit_vectorised_copies():
    x, y = qd.field(Q.int(1, False)), qd.field(Q.int(1, False))
    for f in (x, y):
        qd.root.dense(qd.i, 5).quant_array(qd.i, 32, max_num_bits=32).place(f)

    @qd.kernel
    def fill():
        for i in x:
            x[i] = i % 3 == 0

    @qd.kernel
    def copy():
        qd.loop_config(bit_vectorize=True)
        for i in x:
            y[i] = x[i]

    fill()
    copy()
    assert y.to_numpy(dtype=np.int32).tolist() == [int(i % 3 == 0) for i in range(160)]


# --- operations --------------------------------------------------------------------------------------


def test_augmented_assignment_and_atomics():
    x, y = packed(Q.int(13), Q.int(13), extents=9)

    @qd.kernel
    def work(out: qd.types.ndarray()):
        out[0] = qd.atomic_add(x[1], 5)
        x[1] &= 6
        x[2] |= 9
        x[3] -= 1
        y[2] = 7
        y[2] //= 2
        y[0] = -3.7
        out[1] = qd.atomic_max(x[0], 9)
        out[2] = qd.atomic_min(x[0], 4)
        out[3] = qd.atomic_xor(x[0], 5)
        out[4] = qd.atomic_exchange(x[4], 77)
        out[5] = qd.atomic_mul(x[4], 2)
        out[6] = qd.atomic_sub(x[4], 200)

    out = np.zeros(7, np.int32)
    work(out)
    assert out.tolist() == [0, 0, 9, 4, 0, 77, 154]
    assert [x[i] for i in range(5)] == [1, 4, 9, -1, -46] and [y[i] for i in range(3)] == [-3, 0, 3]


def test_neighbours_change_one_word_at_once():
    x, y, z = packed(Q.int(10), Q.fixed(10, max_value=512.0), Q.int(12), extents=1)
    a = qd.field(Q.int(8, False))
    qd.root.quant_array(qd.i, 4, max_num_bits=32).place(a)

    @qd.kernel
    def work(n: qd.i32):
        for i in range(n):
            x[0] += 1
            y[0] += 1.0
            z[0] -= 1
            a[i % 4] += 1

    work(400)
    assert (x[0], y[0], z[0]) == (400, 400.0, -400) and [a[i] for i in range(4)] == [100] * 4


def test_an_element_as_an_argument_is_read_when_it_is_used():
    (x,) = packed(Q.int(8))

    @qd.func
    def twice(a: qd.template()):
        a = a + 1
        a = a * 2

    @qd.func
    def value(a):
        return a + 1

    @qd.kernel
    def work() -> qd.i32:
        x[1] = 3
        twice(x[1])
        return value(x[1])

    assert work() == 9 and x[1] == 8


def test_a_component_as_an_argument_is_that_component():
    v = qd.Vector.field(3, dtype=Q.int(8))
    m = qd.Matrix.field(2, 2, dtype=Q.int(8))
    w = qd.Vector.field(2, dtype=Q.int(8))
    cell = qd.root.dense(qd.i, 2)
    for f in (v, m):
        word = qd.BitpackedFields(max_num_bits=32)
        word.place(f)
        cell.place(word)
    for k in range(2):  # in words of their own
        qd.root.quant_array(qd.i, 2, max_num_bits=16).place(w.get_scalar_field(k))

    @qd.func
    def value(x: qd.template()):
        return x

    @qd.func
    def add(x: qd.template(), n):
        x += n

    @qd.func
    def put(x: qd.template(), n):
        x = n

    @qd.func
    def old(x: qd.template(), n):
        return qd.atomic_add(x, n)

    @qd.func
    def deep(x: qd.template()):
        add(x[1], 1)

    @qd.kernel
    def work() -> qd.i32:
        m[0] = [[1, 2], [3, 4]]
        for i in v:
            add(v[i][1], 5)
            put(v[i].z, 7)
            deep(v[i])
            deep(w[i])
            for c in qd.static(range(2)):
                add(w[i][c], 10 * (c + 1))
        return 0

    @qd.kernel
    def read() -> qd.i32:
        s = value(m[0][0, 0]) * 1000 + value(m[0][0, 1]) * 100
        return s + value(m[0][1, 0]) * 10 + value(m[0][1, 1]) + 10000 * old(m[0][1, 1], 5)

    work()
    assert v.to_numpy(dtype=np.int32).tolist() == [[0, 6, 7]] * 2
    assert w.to_numpy(dtype=np.int32).tolist() == [[10, 21]] * 2
    assert read() == 41234 and m[0].to_list() == [[1, 2], [3, 9]]


def test_the_host_writes_no_float_into_an_integer():
    (x,) = packed(Q.int(8))
    for value in (1.5, float("inf"), float("nan")):
        with raises(TypeError, "an integer is required for an element of type i32"):
            x[0] = value
    assert x[0] == 0


def test_conversions():
    x, y = packed(Q.fixed(12, max_value=4.0), Q.int(9), extents=6, offset=-2)
    given = np.array([0.5, -1.25, 3.0, 0.0, 1.0, 2.0])
    x.from_numpy(given)
    y.from_numpy(np.arange(6) * 10)
    assert (x.to_numpy() == given).all() and x.to_numpy().dtype == np.float32
    assert x[-2] == 0.5 and x[3] == 2.0 and y[-1] == 10
    plain = qd.field(qd.f32, 6)
    plain.copy_from(x)
    assert (plain.to_numpy() == given).all()
    plain.fill(0.25)
    x.copy_from(plain)
    assert (x.to_numpy(dtype=np.float64) == 0.25).all() and (
        y.to_numpy() == np.arange(6) * 10
    ).all()
    y.fill(-1)
    assert y.to_numpy().tolist() == [-1] * 6 and (x.to_numpy() == 0.25).all()
    with raises(ValueError, "Zero-copy not available"):
        x.to_numpy(copy=False)


def test_fill_in_a_kernel():
    x, y = packed(Q.int(6), Q.int(6))

    @qd.kernel
    def work():
        x.fill(9)

    y.fill(3)
    work()
    assert x.to_numpy().tolist() == [9] * 4 and y.to_numpy().tolist() == [3] * 4


def test_zero_dimensional():
    x, y = qd.field(Q.int(7)), qd.field(Q.float(5, 9))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x, y)
    qd.root.place(word)

    @qd.kernel
    def work():
        x[None] += 5
        y[None] = 1.5

    work()
    x[None] = x[None] * 2
    assert x[None] == 10 and y[None] == 1.5 and x.to_numpy() == 10
    x.fill(3)
    assert x[None] == 3 and y[None] == 1.5


def test_gradients_stay_beside():
    x = qd.field(Q.fixed(10))
    word = qd.BitpackedFields(max_num_bits=16)
    word.place(x)
    loss = qd.field(qd.f32, (), needs_grad=True)
    plain = qd.field(qd.f32, 4, needs_grad=True)
    cell = qd.root.dense(qd.i, 4)
    cell.place(word)

    @qd.kernel
    def work():
        for i in range(4):
            loss[None] += x[i] * plain[i]

    x.fill(0.5)
    with qd.ad.Tape(loss):
        work()
    assert plain.grad.to_numpy().tolist() == [0.5] * 4


def test_a_gradient_of_a_quantised_field_is_refused():
    x = qd.field(Q.fixed(10))
    word = qd.BitpackedFields(max_num_bits=16)
    word.place(x)
    loss = qd.field(qd.f32, (), needs_grad=True)
    qd.root.dense(qd.i, 4).place(word)
    qd.root.lazy_grad()

    @qd.kernel
    def work():
        for i in x:
            loss[None] += x[i]

    assert x.grad.shape == (4,)
    x.grad[1] = 0.123
    assert x.grad[1] == np.float32(0.123)  # it is an ordinary number
    with raises(qd.QuadrantsRuntimeError, "gradients do not flow through quantised fields"):
        with qd.ad.Tape(loss):
            work()


# --- random programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_stores(seed):
    rng = random.Random(seed)
    types, used, bits = [], 0, rng.choice([32, 64])
    while True:
        width, signed = rng.randint(2, 14), rng.random() < 0.5
        if used + width > bits:
            break
        used += width
        types.append((width, signed))
    fields = packed(
        *(Q.int(w, s) for w, s in types), bits=bits, extents=16, offset=rng.choice([None, 5, -9])
    )
    first = fields[0].snode._index_offset[0] if fields[0].snode._index_offset else 0
    model = np.zeros((len(fields), 16), np.int64)

    @qd.kernel
    def store(x: qd.template(), y: qd.template(), a: qd.i32, b: qd.i32):
        for i in x:
            x[i] = y[i] * a + b
            y[i] += b

    for _ in range(12):
        k, j = rng.sample(range(len(fields)), 2)
        a, b = rng.randint(-3, 3), rng.randint(0, 5)
        store(fields[k], fields[j], a, b)
        for i in range(16):
            model[k, i] = wrapped(int(model[j, i]) * a + b, *types[k])
            model[j, i] = wrapped(int(model[j, i]) + b, *types[j])
        for n, x in enumerate(fields):
            assert x.to_numpy(dtype=np.int64).tolist() == model[n].tolist()
    assert fields[0][first] == model[0, 0]


# --- mistakes ---------------------------------------------------------------------------------------


def test_words():
    for bits in (0, 20, 128, None, "32"):
        with raises(RuntimeError, f"No primitive int type has {bits} bits"):
            qd.BitpackedFields(max_num_bits=bits)
        with raises(RuntimeError, f"No primitive int type has {bits} bits"):
            qd.root.quant_array(qd.i, 4, max_num_bits=bits)


def test_what_a_word_holds():
    word = qd.BitpackedFields(max_num_bits=8)
    x, y = qd.field(Q.int(5)), qd.field(Q.int(5))
    with raises(RuntimeError, "BitStructType overflows: 10 bits used out of 8."):
        word.place(x, y)
    word.place(x)
    with raises(RuntimeError, "BitStructType overflows: 10 bits used out of 8."):
        word.place(y)
    with raises(RuntimeError, "This variable has been placed."):
        word.place(x)
    plain = qd.field(qd.i32)
    with raises(RuntimeError, "Only a QuantType can be a member of a BitStructType."):
        word.place(plain)
    with raises(ValueError, "cannot be placed"):
        word.place(5)
    node = qd.root.dense(qd.i, 4)
    node.place(word, plain)
    with raises(RuntimeError, "This variable has been placed."):
        node.place(word)
    other = qd.BitpackedFields(max_num_bits=8)
    other.place(y)
    qd.root.place(other)
    x[1] = 3
    assert x[1] == 3


def test_shared_exponents_that_do_not_agree():
    word = qd.BitpackedFields(max_num_bits=32)
    x, y, z = qd.field(Q.float(5, 8)), qd.field(Q.float(4, 8)), qd.field(Q.int(4))
    with raises(
        qd.QuadrantsSyntaxError, "At least 2 fields need to be placed when shared_exponent"
    ):
        word.place(x, shared_exponent=True)
    with raises(RuntimeError, "must have exactly the same exponent type"):
        word.place(x, y, shared_exponent=True)
    with raises(RuntimeError, "Only quantised floats can share an exponent"):
        word.place(x, z, shared_exponent=True)
    word.place(x, y, z)
    qd.root.place(word)
    assert x[None] == 0


def test_what_a_quant_array_holds():
    array = qd.root.quant_array(qd.i, 4, max_num_bits=32)
    f, x, y, plain = (
        qd.field(Q.float(5, 3)),
        qd.field(Q.int(9)),
        qd.field(Q.int(8)),
        qd.field(qd.i32),
    )
    with raises(RuntimeError, "Quant array only supports quant int/fixed type"):
        array.place(f)
    with raises(RuntimeError, "needs 36 bits, but its word has 32"):
        array.place(x)
    with raises(RuntimeError, "Only a QuantType"):
        array.place(plain)
    array.place(y)
    with raises(RuntimeError, "A quant array has one field"):
        array.place(qd.field(Q.int(2)))
    qd.reset()


def test_a_quantised_field_lies_in_a_word():
    with raises(RuntimeError, "place it in qd.BitpackedFields or a quant_array"):
        qd.field(Q.int(5), shape=4)
    x = qd.field(Q.int(5))
    with raises(RuntimeError, "place it in qd.BitpackedFields or a quant_array"):
        qd.root.dense(qd.i, 4).place(x)
    qd.reset()


def test_types_that_cannot_be():
    for make in (
        lambda: Q.float(9, 8),
        lambda: Q.float(5, 25),
        lambda: Q.float(5, 24, False),
        lambda: Q.float(5, 1),
    ):
        with raises(RuntimeError, "a quantised float has"):
            make()
    with raises(RuntimeError, "the type in kernels is a float"):
        Q.fixed(8, compute=qd.i32)


def test_what_has_no_meaning_for_bits():
    (x,) = packed(Q.int(5))
    v = qd.Vector.field(2, dtype=Q.int(5))
    word = qd.BitpackedFields(max_num_bits=16)
    word.place(v)
    qd.root.dense(qd.i, 4).place(word)

    @qd.kernel
    def swap():
        qd.atomic_cas(x[0], 0, 1)

    @qd.kernel
    def dynamic(k: qd.i32):
        v[0][k] = 1

    with raises(qd.QuadrantsTypeError, "'atomic_cas' is not supported on quantised fields"):
        swap()
    with raises(RuntimeError, "Element of the MatrixField is not dynamic indexable."):
        dynamic(1)
    with raises(RuntimeError, "DLPack cannot export a quantised field"):
        pytest.importorskip("torch")
        x.to_dlpack()


def test_indices_outside(backend):
    qd.reset()
    qd.init(arch=backend, debug=True)
    (x,) = packed(Q.int(5), offset=2)
    a = qd.field(Q.int(8))
    qd.root.quant_array(qd.i, 4, max_num_bits=32).place(a)

    @qd.kernel
    def write(f: qd.template(), i: qd.i32):
        f[i] = 1

    for f, at in ((x, 6), (x, 1), (a, 4), (a, -1)):
        with raises(AssertionError, "Accessing field", f"with indices ({at})"):
            write(f, at)
        with raises(AssertionError, "Accessing field"):
            f[at]
        with raises(AssertionError, "Accessing field"):
            f[at] = 1
    write(x, 5)
    write(a, 3)
    assert x[5] == 1 and a[3] == 1


def test_an_index_outside_on_the_host_is_refused_always():
    (x,) = packed(Q.int(5))
    with raises(AssertionError, "with indices (9)"):
        x[9]
    with raises(AssertionError, "Slicing is not supported"):
        x[1, 2]
    with raises(TypeError):
        x[1] = "a"


# --- other processes -------------------------------------------------------------------------------

PROGRAM = """
import sys
import quadrants as qd
qd.init(arch=getattr(qd, sys.argv[1]), offline_cache=True, offline_cache_file_path=sys.argv[2])
bits, step = int(sys.argv[3]), float(sys.argv[4])
x, y = qd.field(qd.types.quant.int(bits)), qd.field(qd.types.quant.fixed(8, scale=step))
word = qd.BitpackedFields(max_num_bits=32)
word.place(x, y)
qd.root.dense(qd.i, 4).place(word)

@qd.kernel
def work() -> qd.f32:
    for i in x:
        x[i] = 100 + i
        y[i] = 3.0
    return x[1] + y[2]

print(work())
"""


def test_a_kept_kernel_is_of_its_types(tmp_path, backend):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(bits, step):
        command = [sys.executable, program, backend.name, tmp_path / "cache", str(bits), str(step)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return float(done.stdout.split()[-1])

    for bits, step in itertools.product((8, 5), (0.5, 0.25)):
        expected = wrapped(101, bits, True) + 3.0
        assert [run(bits, step) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("default", [qd.f16, qd.f32, qd.f64])
def test_the_default_float_does_not_matter(backend, default):
    backend.init(default_fp=default)
    (x,) = packed(Q.fixed(20, scale=0.1, compute=qd.f64))
    (y,) = packed(Q.float(exp=6, frac=20, compute=qd.f32))
    one, two = packed(*[Q.float(exp=5, frac=10, compute=qd.f32)] * 2, shared=True)
    for field, values in ((x, [1000.0, 3.1]), (y, [3.141592, -123.75]), (one, [0.3, 1e3])):
        for k, value in enumerate(values):
            field[k] = value
    two[0] = 0.7
    assert [x[0], x[1]] == [1000.0, 31 * 0.1]
    assert np.allclose([y[0], y[1]], [3.141592, -123.75], rtol=2**-20)
    assert np.allclose([one[0], two[0], one[1]], [0.3, 0.7, 1e3], rtol=2**-8)


def test_numbers_beyond_any_word(backend):
    backend.init(debug=True)
    for compute, dtype in ((qd.f32, np.float32), (qd.f64, np.float64)):
        (x,) = packed(Q.fixed(20, scale=1.0, compute=compute), extents=8)
        given = [1e19, -1e19, 2.0**63, -(2.0**62), math.inf, math.nan, -2.5, 2.0**25 + 4]
        set_all(x, np.array(given, dtype))
        assert x.to_numpy().tolist() == [0, 0, 0, 0, 0, 0, -3, 4]


def test_vector_types_of_quantised_numbers():
    q = Q.int(7)
    pair = qd.types.vector(2, q)
    assert pair.dtype is qd.i32
    one, two = pair.field(), qd.Struct.field({"a": pair})
    for place in (one, two.a):
        word = qd.BitpackedFields(32)
        word.place(place)
        qd.root.dense(qd.i, 3).place(word)

    @qd.kernel
    def fill():
        for i in range(3):
            one[i] = [i, -i]
            two[i].a = [64 + i, 5]

    fill()
    assert one.to_numpy().tolist() == [[0, 0], [1, -1], [2, -2]]
    assert two.a.to_numpy().tolist() == [[-64, 5], [-63, 5], [-62, 5]]


@pytest.mark.parametrize("exp", [5, 8])
def test_the_whole_range_of_shared_exponents(exp):
    kind = Q.float(exp=exp, frac=20, compute=qd.f32)
    x, y = packed(kind, kind, bits=64, extents=1, shared=True)
    most = 2.0 ** (2 ** (exp - 1) - 1)
    for given in ((1.5 * most, most / 8), (most, 1.0), (-most, most), (2.0 / most, 4.0 / most)):
        x[0], y[0] = 0, 0  # which have no part in the exponent
        x[0], y[0] = given
        step = max(map(abs, given)) * 2**-18
        assert abs(x[0] - given[0]) <= step and abs(y[0] - given[1]) <= step, given


def test_descriptions_that_mean_nothing():
    for scale in ("a", 1j, np.ones(2), [1.0]):
        with raises(TypeError, "scale is a number"):
            Q.fixed(8, scale=scale)
    for value in ("a", 1j):
        with raises(TypeError, "max_value is a number"):
            Q.fixed(8, max_value=value)
    for given in ({"scale": 0}, {"scale": math.inf}, {"scale": math.nan}, {"scale": 1e-60}):
        with raises(qd.QuadrantsRuntimeError, "can divide by"):
            Q.fixed(8, **given, compute=qd.f32)
    assert Q.fixed(8, scale=1e-60, compute=qd.f64).scale == 1e-60
    with raises(qd.QuadrantsRuntimeError, "can divide by"):
        Q.fixed(8, max_value=0)
    for make in (Q.int, Q.fixed):
        with raises(TypeError, "signed is True or False"):
            make(8, signed="no")
    array = qd.root.quant_array(qd.i, 4, 32)
    for add in (
        lambda: array.dense(qd.i, 2),
        lambda: array.quant_array(qd.i, 2, 32),
        lambda: array.place(word),
    ):
        word = qd.BitpackedFields(32)
        word.place(qd.field(Q.int(4)))
        with raises(qd.QuadrantsRuntimeError, "Quant array only supports"):
            add()


def test_booleans_on_the_host_are_numbers():
    (x,) = packed(Q.int(1, signed=False, compute=qd.u1))
    x[1] = True
    assert [repr(x[k]) for k in range(2)] == ["0", "1"]


@pytest.mark.parametrize("kind", ["int", "fixed", "float"])
def test_differentiated_kernels_write_quantised_fields(kind):
    """No gradient goes through them; what goes around them is right."""
    quant = {"int": Q.int(9), "fixed": Q.fixed(16, scale=0.25), "float": Q.float(5, 9)}[kind]
    (q,) = packed(quant)
    x, y = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def store():
        for i in range(4):
            q[i] = i + 1
            y[None] += x[i] * x[i]

    @qd.kernel
    def add():
        for i in q:
            q[i] += 1
            y[None] += x[i] * x[i]

    @qd.kernel
    def apart():
        for i in range(4):
            q[i] = i + 1
        for i in range(4):
            y[None] += x[i] * x[i] * q[i]

    given = np.arange(1, 5, dtype=np.float32)
    for kernel, slopes, most in (
        (store, 2 * given, 4),
        (add, 2 * given, 6),
        (apart, 2 * given**2, 4),
    ):
        x.from_numpy(given)
        with qd.ad.Tape(loss=y):
            kernel()
        assert (x.grad.to_numpy() == slopes).all() and q[3] == most
