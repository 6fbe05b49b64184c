"""N queens with bit masks and an explicit stack; prime sieve; Gray codes and popcounts."""

import numpy as np

import quadrants as qd

LIMIT = 2000
sieve = qd.field(qd.u1, LIMIT)


@qd.func
def solutions(n, first):
    """Completes boards whose first queen stands in column `first`."""
    full = (1 << n) - 1
    cols = qd.Vector.zero(qd.i32, 16)
    left = qd.Vector.zero(qd.i32, 16)
    right = qd.Vector.zero(qd.i32, 16)
    free = qd.Vector.zero(qd.i32, 16)
    row = 1
    bit = 1 << first
    cols[1], left[1], right[1] = bit, bit << 1, bit >> 1
    free[1] = full & ~(cols[1] | left[1] | right[1])
    count = 0
    while row >= 1:
        if row == n:
            count += 1
            row -= 1
        elif free[row] == 0:
            row -= 1
        else:
            b = free[row] & -free[row]
            free[row] ^= b
            cols[row + 1] = cols[row] | b
            left[row + 1] = ((left[row] | b) << 1) & full
            right[row + 1] = (right[row] | b) >> 1
            free[row + 1] = full & ~(cols[row + 1] | left[row + 1] | right[row + 1])
            row += 1
    return count


@qd.kernel
def queens(n: qd.i32) -> qd.i32:
    total = 0
    for first in range(n):
        total += solutions(n, first)
    return total


@qd.kernel
def primes() -> qd.i32:
    for i in sieve:
        sieve[i] = i >= 2
    qd.loop_config(serialize=True)
    for i in range(2, 45):
        if sieve[i]:
            for k in range(i, LIMIT // i + 1):
                if k * i < LIMIT:
                    sieve[k * i] = 0
    n = 0
    for i in sieve:
        n += qd.cast(sieve[i], qd.i32)
    return n


@qd.kernel
def gray(
    codes: qd.types.ndarray(dtype=qd.u32, ndim=1), ones: qd.types.ndarray(dtype=qd.i32, ndim=1)
):
    for i in codes:
        g = qd.u32(i) ^ (qd.u32(i) >> 1)
        codes[i] = g
        v = g * qd.u32(2654435769)
        v ^= v >> 15
        ones[i] = qd.math.popcnt(v) * 100 + qd.math.clz(g | 1)


def main():
    codes, ones = np.zeros(256, np.uint32), np.zeros(256, np.int32)
    gray(codes, ones)
    return {"queens": np.array([queens(n) for n in (4, 5, 6, 7, 8)]), "primes": primes(),
            "sieve": np.flatnonzero(sieve.to_numpy())[-20:], "codes": codes, "ones": ones}  # fmt: skip
