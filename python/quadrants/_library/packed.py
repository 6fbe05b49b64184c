"""Quantised numbers in kernels: reading and writing bits of words.

`p` is the `Packing` of a component (`lang/_data/packing.py`), `index` that of an element of its
field. A store changes bits of a word that other threads may be changing: it is tried until the word is
what it was when it was read.

Floats are kept as sign, exponent and digits after an implicit leading 1; an exponent of 0 is zero.
Those that share an exponent keep the leading 1, which only the largest of them needs to have.
"""

import quadrants as qd
from quadrants.lang.kernel_impl import func, kernel


@func
def word_of(p: qd.template(), index):
    """The index of the word that an element lies in."""
    return qd.Vector(
        [(index[axis] - first) // per for axis, first, per in qd.static(p.steps)], qd.i32
    )


@func
def bit_of(p: qd.template(), index):
    """The first bit of an element."""
    bit = p.shift
    for axis, first, extent, step in qd.static(p.slots):
        bit += (index[axis] - first) % extent * step
    return qd.cast(bit, p.unsigned)


@func
def bits_at(p: qd.template(), word, bit, mask: qd.template()):
    return (word >> bit) & p.unsigned(mask)


# --- floats ---


@func
def power_of_two(exponent):
    """2 ** exponent, for those of normal numbers."""
    return qd.bit_cast(qd.cast(exponent + 127, qd.u32) << qd.u32(23), qd.f32)


@func
def scaled(value, exponent):
    """value * 2 ** exponent, where that is twice what an f32 may have."""
    half = exponent >> 1
    return value * power_of_two(half) * power_of_two(exponent - half)


@func
def float_at(p: qd.template(), word, bit):
    exponent = qd.cast(bits_at(p, word, p.exponent_shift, (1 << p.exponent_bits) - 1), qd.i32)
    digits = qd.cast(bits_at(p, word, bit, (1 << p.magnitude_bits) - 1), qd.u32)
    value = qd.f32(0.0)
    if exponent != 0:
        if qd.static(p.group):
            value = scaled(qd.cast(digits, qd.f32), exponent - p.bias - (p.magnitude_bits - 1))
        else:
            high = qd.cast(exponent - p.bias + 127, qd.u32) << qd.u32(23)
            value = qd.bit_cast(high | (digits << qd.u32(23 - p.magnitude_bits)), qd.f32)
    if qd.static(p.has_sign):
        if bits_at(p, word, bit + p.magnitude_bits, 1) != 0:
            value = -value
    return value


@func
def exponent_of(p: qd.template(), value):
    """As it is stored; 0 for what is too small."""
    bits = qd.bit_cast(value, qd.u32)
    exponent = qd.cast((bits >> qd.u32(23)) & qd.u32(255), qd.i32)
    stored = qd.max(exponent - 127 + p.bias, 0)
    if exponent == 0:
        stored = 0
    return stored


@func
def sign_bit(p: qd.template(), value, digits):
    sign = qd.cast(0, p.unsigned)
    if qd.static(p.has_sign):
        if value < 0 and digits != 0:
            sign = qd.cast(1, p.unsigned) << qd.cast(p.magnitude_bits, p.unsigned)
    return sign


@func
def with_float(p: qd.template(), word, bit, value):
    drop = qd.static(23 - p.magnitude_bits)
    most = qd.static((1 << p.exponent_bits) - 1)
    rounded = qd.bit_cast(value, qd.u32) & qd.u32(0x7FFFFFFF)
    if qd.static(drop > 0):
        rounded += qd.u32(1 << (drop - 1))
    exponent = qd.cast(rounded >> qd.u32(23), qd.i32) - 127 + p.bias
    digits = (rounded & qd.u32(0x7FFFFF)) >> qd.u32(drop)
    if exponent <= 0:
        exponent = 0
        digits = qd.u32(0)
    if exponent > most:
        exponent = most
        digits = qd.u32((1 << p.magnitude_bits) - 1)
    new = replaced(p, word, p.exponent_shift, most, qd.cast(exponent, p.unsigned))
    return replaced(p, new, bit, p.mask, qd.cast(digits, p.unsigned) | sign_bit(p, value, exponent))


@func
def with_shared_float(p: qd.template(), word, value):
    """All that share the exponent are stored anew."""
    values = qd.Vector(
        [
            value if qd.static(q.shift == p.shift) else float_at(q, word, q.shift)
            for q in qd.static(p.shared)
        ],
        qd.f32,
    )
    most = qd.static((1 << p.exponent_bits) - 1)
    exponent = 0
    for k in qd.static(range(len(p.shared))):
        exponent = qd.max(exponent, exponent_of(p, values[k]))
    carried = False
    for k in qd.static(range(len(p.shared))):
        if shared_digits(p.shared[k], values[k], exponent) >> p.shared[k].magnitude_bits != 0:
            carried = True
    exponent = qd.min(exponent + qd.cast(carried, qd.i32), most)
    new = replaced(p, word, p.exponent_shift, most, qd.cast(exponent, p.unsigned))
    for k in qd.static(range(len(p.shared))):
        digits = shared_digits(p.shared[k], values[k], exponent)
        digits = qd.min(digits, qd.u32((1 << p.shared[k].magnitude_bits) - 1))
        bits = qd.cast(digits, p.unsigned) | sign_bit(p.shared[k], values[k], digits)
        new = replaced(p, new, p.shared[k].shift, p.shared[k].mask, bits)
    return new


@func
def shared_digits(p: qd.template(), value, exponent):
    digits = qd.u32(0)
    if exponent_of(p, value) != 0:
        whole = scaled(qd.abs(value), p.bias - exponent + (p.magnitude_bits - 1))
        digits = qd.cast(whole + qd.f32(0.5), qd.u32)
    return digits


# --- numbers of any kind ---


@func
def replaced(p: qd.template(), word, bit, mask: qd.template(), bits):
    """The word with other bits at a place."""
    low = p.unsigned(mask)
    at = qd.cast(bit, p.unsigned)
    return (word & ~(low << at)) | ((bits & low) << at)


@func
def decoded(p: qd.template(), word, bit):
    """The number at a bit of a word."""
    value = qd.cast(0, p.compute)
    if qd.static(p.kind == "float"):
        value = qd.cast(float_at(p, word, bit), p.compute)
    else:
        digits = bits_at(p, word, bit, p.mask)
        if qd.static(p.has_sign and p.bits < p.word_bits):
            sign = qd.static(1 << (p.bits - 1))
            value = qd.cast(
                (qd.cast(digits, p.signed) ^ p.signed(sign)) - p.signed(sign), p.compute
            )
        elif qd.static(p.has_sign):
            value = qd.cast(qd.cast(digits, p.signed), p.compute)
        else:
            value = qd.cast(digits, p.compute)
        if qd.static(p.kind == "fixed"):
            value *= p.compute(p.scale)
    return value


@func
def nearest(value):
    """Rounded, ties away from zero. What i64 does not hold is a multiple of any word, or none: 0."""
    whole = qd.i64(0)
    if qd.abs(value) < qd.f32(2.0**63):
        whole = qd.cast(value, qd.i64)
        rest = value - whole
        if rest >= 0.5:
            whole += 1
        elif rest <= -0.5:
            whole -= 1
    return whole


@func
def encoded(p: qd.template(), word, bit, value):
    """The word with a number at a bit."""
    new = word
    if qd.static(p.kind == "int"):
        new = replaced(p, word, bit, p.mask, qd.cast(value, p.unsigned))
    elif qd.static(p.kind == "fixed"):
        new = replaced(
            p, word, bit, p.mask, qd.cast(nearest(value / p.compute(p.scale)), p.unsigned)
        )
    elif qd.static(p.group):
        new = with_shared_float(p, word, qd.cast(value, qd.f32))
    else:
        new = with_float(p, word, bit, qd.cast(value, qd.f32))
    return new


@func
def combined(value, operand, op: qd.template()):
    """What an atomic operation leaves."""
    new = operand
    if qd.static(op == "atomic_add"):
        new = value + operand
    elif qd.static(op == "atomic_sub"):
        new = value - operand
    elif qd.static(op == "atomic_mul"):
        new = value * operand
    elif qd.static(op == "atomic_min"):
        new = qd.min(value, operand)
    elif qd.static(op == "atomic_max"):
        new = qd.max(value, operand)
    elif qd.static(op == "atomic_and"):
        new = value & operand
    elif qd.static(op == "atomic_or"):
        new = value | operand
    elif qd.static(op == "atomic_xor"):
        new = value ^ operand
    return new


@func
def load(p: qd.template(), index):
    return decoded(p, p.word[word_of(p, index)], bit_of(p, index))


@func
def store(p: qd.template(), index, value):
    at = word_of(p, index)
    bit = bit_of(p, index)
    waits = True
    while waits:
        old = p.word[at]
        waits = qd.atomic_cas(p.word[at], old, encoded(p, old, bit, value)) != old


@func
def update(p: qd.template(), index, operand, op: qd.template()):
    """An atomic operation; returns the number before it."""
    at = word_of(p, index)
    bit = bit_of(p, index)
    value = qd.cast(0, p.compute)
    waits = True
    while waits:
        old = p.word[at]
        value = decoded(p, old, bit)
        new = encoded(p, old, bit, combined(value, operand, op))
        waits = qd.atomic_cas(p.word[at], old, new) != old
    return value


# --- what the host does ---


@func
def element(x: qd.template(), at: qd.template()):
    return qd.Vector([at[k] for k in qd.static(range(len(x.shape)))], qd.i32)


@kernel
def read(x: qd.template(), at: qd.types.ndarray(), out: qd.types.ndarray()):
    out[0] = x[element(x, at)]


@kernel
def write(x: qd.template(), at: qd.types.ndarray(), values: qd.types.ndarray()):
    x[element(x, at)] = values[0]


@func
def without_offset(x: qd.template(), index):
    at = index
    if qd.static(len(x._index_offset) > 0):
        at = index - qd.Vector(x._index_offset, qd.i32)
    return at


@kernel
def export(x: qd.template(), out: qd.types.ndarray()):
    for index in qd.grouped(x):
        out[without_offset(x, index)] = x[index]


@kernel
def load_array(x: qd.template(), values: qd.types.ndarray()):
    for index in qd.grouped(x):
        x[index] = values[without_offset(x, index)]
