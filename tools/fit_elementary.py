"""Computes src/ir/elementary_coefficients.h: minimax polynomials and split constants.

Run:  python3 tools/fit_elementary.py > src/ir/elementary_coefficients.h   (needs mpmath)

The fits are weighted Remez exchanges (Remez 1934; Muller, "Elementary Functions", ch. 3) in
60-digit arithmetic, each coefficient then rounded to its format. The comment behind a table
gives the weighted error before rounding as a power of two.
"""

from mpmath import (
    asin,
    atan,
    cos,
    floor,
    frexp,
    ldexp,
    log,
    lu_solve,
    matrix,
    mp,
    mpf,
    nint,
    pi,
    sqrt,
    tan,
)

mp.dps = 60


def remez(g, lo, hi, terms, weight):
    """Coefficients c of sum c[k] z^k that minimise max |weight * (g - p)| on [lo, hi]."""
    grid = [
        (lo + hi) / 2 - (hi - lo) / 2 * cos(pi * (k + mpf(1) / 2) / (24 * terms))
        for k in range(24 * terms)
    ]
    values = [(z, g(z), weight(z)) for z in grid]
    n = terms + 1
    points = [values[min(len(values) - 1, int((k + 0.5) * len(values) / n))] for k in range(n)]
    for _ in range(12):
        a = matrix(n, n)
        b = matrix(n, 1)
        for row, (z, y, w) in enumerate(points):
            for k in range(terms):
                a[row, k] = z**k
            a[row, terms] = (-1) ** row / w
            b[row] = y
        solved = lu_solve(a, b)
        c = [solved[k] for k in range(terms)]
        errors = []
        for z, y, w in values:
            p = mpf(0)
            for k in reversed(c):
                p = p * z + k
            errors.append((w * (y - p), (z, y, w)))
        peaks = []  # one extremum per run of equal sign
        for e, v in errors:
            if peaks and (peaks[-1][0] > 0) == (e > 0):
                if abs(e) > abs(peaks[-1][0]):
                    peaks[-1] = (e, v)
            else:
                peaks.append((e, v))
        while len(peaks) > n:
            peaks.pop(0 if abs(peaks[0][0]) < abs(peaks[-1][0]) else -1)
        worst = max(abs(e) for e, _ in errors)
        if len(peaks) < n:
            break
        points = [v for _, v in peaks]
        if worst < abs(solved[terms]) * mpf("1.01"):
            break
    return c, worst


def rounded(x, bits):
    """x to the nearest number with so many significant bits."""
    if x == 0:
        return mpf(0)
    _, e = frexp(x)
    return ldexp(nint(ldexp(x, bits - e)), e - bits)


def truncated(x, bits):
    _, e = frexp(x)
    return ldexp(floor(ldexp(x, bits - e)), e - bits)


def split(x, sizes, cut=rounded):
    """x as a sum of numbers with the given significant bits."""
    parts = []
    for bits in sizes:
        parts.append(cut(x, bits))
        x -= parts[-1]
    return parts


def hexes(numbers):
    return ", ".join(float(v).hex() for v in numbers)


def table(name, numbers, note=""):
    body = hexes(numbers)
    print(f"    static constexpr std::array<double, {len(numbers)}> {name} = {{{body}}};{note}")


def fit(name, g, lo, hi, terms, weight, bits):
    c, worst = remez(g, mpf(lo), mpf(hi), terms, weight)
    table(name, [rounded(v, bits) for v in c], f"  // 2^{float(log(worst, 2)):.1f}")


# Series keep the quotients exact where the closed forms cancel; the terms fall off fast enough.
def series(term, z, count=90):
    return sum(term(k) * z**k for k in range(count))


def factorial(n):
    return mp.factorial(n)


def sin_tail(z):
    return series(lambda k: (-1) ** (k + 1) / factorial(2 * k + 3), z, 30)


def cos_tail(z):
    return series(lambda k: (-1) ** k / factorial(2 * k + 4), z, 30)


def exp_tail(r):
    return series(lambda k: 1 / factorial(k + 2), r, 45)


def exp2_tail(r):
    return series(lambda k: log(2) ** (k + 1) / factorial(k + 1), r, 45)


def log_tail(z):
    return series(lambda k: mpf(2) / (2 * k + 3), z, 60)


def log_tail_second(z):
    return series(lambda k: mpf(2) / (2 * k + 5), z, 60)


def atan_tail(z):
    return (atan(sqrt(z)) / sqrt(z) - 1) / z


def tan_tail(z):
    return (tan(sqrt(z)) / sqrt(z) - 1) / z


def asin_tail(z):
    return (asin(sqrt(z)) / sqrt(z) - 1) / z


QUARTER = (pi / 4) ** 2 * mpf("1.01")
HALF_LN2 = log(2) / 2 * mpf("1.01")
LOG_Z = ((sqrt(2) - 1) / (sqrt(2) + 1)) ** 2 * mpf("1.001")

print("""// Polynomials and split constants of elementary.h, by precision.
//
// Written by tools/fit_elementary.py (own weighted Remez fits; classical splits after Cody and
// Waite); do not edit. The power of two behind a table is the largest error of the fit.

#pragma once

#include <array>

namespace qd::ir::elementary {

template <int bits>
struct Coefficients;""")

for width, p, terms in (
    (32, 24, dict(sin=3, cos=3, tan=6, exp=5, exp2=6, log=3, pow=3, atan=9, asin=5)),
    (64, 53, dict(sin=6, cos=6, tan=14, exp=11, exp2=11, log=7, pow=7, atan=19, asin=13)),
):
    print(f"\ntemplate <>\nstruct Coefficients<{width}> {{")
    fit("kSin", sin_tail, 0, QUARTER, terms["sin"], lambda z: z, p)
    fit("kCos", cos_tail, 0, QUARTER, terms["cos"], lambda z: z * z, p)
    fit("kTan", tan_tail, 0, QUARTER, terms["tan"], lambda z: z, p)
    fit("kExp", exp_tail, -HALF_LN2, HALF_LN2, terms["exp"], lambda r: abs(r), p)
    fit("kExp2", exp2_tail, "-0.501", "0.501", terms["exp2"], lambda r: abs(r), p)
    fit("kLog", log_tail, 0, LOG_Z, terms["log"], lambda z: z / 2, p)
    fit("kLogSecond", log_tail_second, 0, LOG_Z, terms["pow"], lambda z: z * z / 2, p)
    fit("kAtan", atan_tail, 0, 1, terms["atan"], lambda z: z * sqrt(z) / atan(sqrt(z)), p)
    fit("kAsin", asin_tail, 0, "0.2928", terms["asin"], lambda z: z, p)

    chunk = 11 if width == 32 else 24  # quotients have at most p - chunk bits: products are exact
    table("kHalfPi", split(pi / 2, [chunk, chunk, chunk, p], truncated))
    table("kHalfPiFused", split(pi / 2, [p, p, p]))  # where the product is not rounded
    ln2_bits = p - (8 if width == 32 else 11)  # times any exponent: exact
    table("kLn2", split(log(2), [ln2_bits, p], truncated))
    for name, value in (
        ("kHalfPiPair", pi / 2),
        ("kPiPair", pi),
        ("kLog2e", 1 / log(2)),
        ("kTwoThirds", mpf(2) / 3),
    ):
        table(name, split(value, [p, p]))
    print(f"    static constexpr double kTwoOverPi = {hexes([rounded(2 / pi, p)])};")

    # Whole arguments only (2^(p-1) and more) may lose multiples of 4 from their row.
    step, top = (20, 128) if width == 32 else (48, 1024)
    rows = []
    for j in range(-(-(top - p + 1) // step)):
        mp.dps = 420  # 2^1024 / pi to 100 digits behind the point
        value = ldexp(mpf(1), step * j) * 2 / pi
        value -= 4 * floor(value / 4)
        rows.append("{" + hexes(split(value, [p] * 4)) + "}")
        mp.dps = 60
    print(
        f"    static constexpr double kHugeFrom = {hexes([ldexp(mpf(1), 13 if width == 32 else 29)])};"
    )
    print(f"    static constexpr double kHugeStep = {hexes([ldexp(mpf(1), step)])};")
    print(
        f"    // Row j > 0, for arguments from 2^({p - 1} + {step} j): 2^({step} j) 2/pi modulo 4, a sum of four."
    )
    print(
        f"    static constexpr double kHuge[{len(rows)}][4] = {{\n        "
        + ",\n        ".join(rows)
        + "};"
    )
    print("};")

print("\n}  // namespace qd::ir::elementary")
