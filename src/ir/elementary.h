// Elementary functions as plain arithmetic, generic over an arithmetic domain.
//
// One text serves two users: folding runs it on numbers (elementary_fold.h), lowering runs it on
// an IR builder, and both yield the same bits. All code is straight-line: choices are selects, so
// loops that contain a call still vectorise.
//
// A domain `N` is passed by reference as `n` and offers
//   types     N::F float value, N::I integer value of the same width (wraps), N::B truth value;
//   constant  N::bits = 32 or 64;
//   floats    f(double) i(int64_t) add sub mul div neg abs sqrt floor ceil, muladd(a, b, c) = a*b +
//   c,
//             lt le gt ge eq ne, isnan, select(B, F, F);
//   truths    band bor bnot;
//   integers  selecti(B, I, I) iadd isub iand ixor ior shl(I, int) shr(I, int), ieq ilt,
//             bits_of(F) from_bits(I), to_float(I);
//   fused()   whether muladd rounds once; a property of the target, fixed while code is made.
// Optional, for sin, cos and tan of huge arguments, whose reduction costs several times the rest:
//   rarely(B, Reduced<N> usual, make)   make() gives the Reduced<N> to use when B holds: a domain
//                                       may branch there. Without it both are computed, one
//                                       selected.
//
// Needs: each operation rounds once to nearest and is neither reassociated nor contracted
//        (-ffp-contract=off for C++, no fast-math flags on the emitted operations): rounding to
//        an integer is adding and subtracting 1.5 * 2^(p-1), which algebra would cancel.
//        f16 goes through f32. Arguments of nested calls are emitted in the C++ compiler's order.
// Keeps: NaN, infinities, -0 where C does (tan, asin, ... of -0). Subnormals count as zero, in
//        and out, so flush-to-zero makes no difference to other results.
// Cost:  see `Counts` in tests/cpp/elementary_test.cpp, which prints the operations of each.
//
// Method sources: reduction by split constants from Cody & Waite, "Software Manual for the
// Elementary Functions" (1980); huge arguments after Payne & Hanek, "Radian reduction for
// trigonometric functions" (1983), in floating point; error-free sums and products from Knuth,
// Dekker (1971) and Veltkamp; the rest cited at each function; "Muller" is J.-M. Muller,
// "Elementary Functions: Algorithms and Implementation". Coefficients are our own fits.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ir/elementary_coefficients.h"

namespace qd::ir::elementary {

template <class N>
using F = typename N::F;
template <class N>
using I = typename N::I;
template <class N>
using B = typename N::B;

// Facts about the float format of a domain.
template <int bits>
struct Format {
    static constexpr bool single = bits == 32;
    static constexpr int mantissa = single ? 23 : 52;  // stored bits
    static constexpr int bias = single ? 127 : 1023;
    static constexpr double infinity = std::numeric_limits<double>::infinity();
    static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    static constexpr double smallest = single ? 0x1p-126 : 0x1p-1022;  // normal
    static constexpr double integers = single ? 0x1p23 : 0x1p52;       // from here all are whole
    static constexpr double magic = single ? 0x1.8p23 : 0x1.8p52;      // its low half is zero bits
    static constexpr int64_t sign =
        single ? int64_t{-0x80000000LL} : std::numeric_limits<int64_t>::min();
    static constexpr int64_t high_half = single ? ~int64_t{0xfff} : ~int64_t{0x7ffffff};
    static constexpr int64_t half_unit = single ? 0x800 : 0x4000000;  // of the high half
};

template <class N>
using Of = Format<N::bits>;
template <class N>
using C = Coefficients<N::bits>;

// ---- Building blocks -----------------------------------------------------------------------

template <class N>
struct Pair {  // hi + lo, |lo| about half a unit of hi
    F<N> hi, lo;
};

// An angle as quadrant and rest: x = q pi/2 + r + low; only the low two bits of q count. `low`
// is below half a unit of r.
template <class N>
struct Reduced {
    F<N> r, low;
    I<N> q;
};

// c0 + z (c1 + z (c2 + ...)), Horner.
template <class N, size_t count>
F<N> polynomial(N& n, F<N> z, const std::array<double, count>& c) {
    F<N> p = n.f(c[count - 1]);
    for (size_t k = count - 1; k-- > 0;) p = n.muladd(p, z, n.f(c[k]));
    return p;
}

// The nearest integer to v (ties to even), |v| < 2^(p-2); `raw` holds it in its low bits.
template <class N>
struct Nearest {
    F<N> value;
    I<N> raw;
};

template <class N>
Nearest<N> nearest(N& n, F<N> v) {
    const F<N> magic = n.f(Of<N>::magic);
    const F<N> shifted = n.add(v, magic);
    return {n.sub(shifted, magic), n.bits_of(shifted)};
}

// a + b exactly, any order of size (Knuth).
template <class N>
Pair<N> two_sum(N& n, F<N> a, F<N> b) {
    const F<N> s = n.add(a, b);
    const F<N> t = n.sub(s, a);
    return {s, n.add(n.sub(a, n.sub(s, t)), n.sub(b, t))};
}

// a + b exactly if a is zero or at least as large as b (Dekker).
template <class N>
Pair<N> fast_two_sum(N& n, F<N> a, F<N> b) {
    const F<N> s = n.add(a, b);
    return {s, n.sub(b, n.sub(s, a))};
}

// a * b exactly: one fused operation, or halves of the mantissas (Dekker). The high half is
// rounded, not cut, so that the signed low half of a 53-bit mantissa has 26 bits.
template <class N>
Pair<N> two_product(N& n, F<N> a, F<N> b) {
    const F<N> p = n.mul(a, b);
    if (n.fused()) return {p, n.muladd(a, b, n.neg(p))};
    const auto high = [&](F<N> v) {
        return n.from_bits(
            n.iand(n.iadd(n.bits_of(v), n.i(Of<N>::half_unit)), n.i(Of<N>::high_half)));
    };
    const F<N> ah = high(a), al = n.sub(a, ah);
    const F<N> bh = high(b), bl = n.sub(b, bh);
    F<N> e = n.sub(n.mul(ah, bh), p);
    e = n.add(n.add(e, n.mul(ah, bl)), n.mul(al, bh));
    return {p, n.add(e, n.mul(al, bl))};
}

template <class N>
Pair<N> pair_product(N& n, Pair<N> a, Pair<N> b) {
    const Pair<N> p = two_product(n, a.hi, b.hi);
    return {p.hi, n.muladd(a.hi, b.lo, n.muladd(a.lo, b.hi, p.lo))};
}

template <class N>
Pair<N> constant_pair(N& n, const std::array<double, 2>& c) {
    return {n.f(c[0]), n.f(c[1])};
}

template <class N>
F<N> with_sign_of(N& n, F<N> magnitude, F<N> sign) {  // magnitude >= 0
    return n.from_bits(n.ior(n.bits_of(magnitude), n.iand(n.bits_of(sign), n.i(Of<N>::sign))));
}

template <class N>
F<N> flip_sign_by_bit(N& n, F<N> x, I<N> top_bit) {  // the other bits do not count
    return n.from_bits(n.ixor(n.bits_of(x), n.iand(top_bit, n.i(Of<N>::sign))));
}

template <class N>
F<N> flip_sign_by(N& n, F<N> x, F<N> sign) {
    return flip_sign_by_bit(n, x, n.bits_of(sign));
}

// m * 2^k, k in the low bits of `raw`, m near 1 and the result in range.
template <class N>
F<N> scale_by_power(N& n, F<N> m, I<N> raw) {
    return n.from_bits(n.iadd(n.bits_of(m), n.shl(raw, Of<N>::mantissa)));
}

// ---- Angles --------------------------------------------------------------------------------

// Without `low` on a target that fuses: what is left after the first step is exact, so two
// roundings of the size of r are all, and parts of pi/2 may be full numbers. |x| < 2^13 at 32 bits.
template <class N>
Reduced<N> reduce_fused(N& n, F<N> x) {
    const auto& part = C<N>::kHalfPiFused;
    const F<N> magic = n.f(Of<N>::magic);
    const F<N> shifted = n.muladd(x, n.f(C<N>::kTwoOverPi), magic);
    const F<N> q = n.sub(shifted, magic);
    F<N> r = x;
    for (const double p : part) r = n.muladd(q, n.f(-p), r);
    return {r, n.f(0), n.bits_of(shifted)};
}

// Cody & Waite: q times each of the first three parts of pi/2 is exact. The first two
// differences are exact too, the rest is added in one rounding, so r is within half a unit.
template <class N>
Reduced<N> reduce_usual(N& n, F<N> x) {
    const auto& part = C<N>::kHalfPi;
    const auto q = nearest(n, n.mul(x, n.f(C<N>::kTwoOverPi)));
    F<N> s = n.muladd(q.value, n.f(-part[0]), x);
    s = n.muladd(q.value, n.f(-part[1]), s);
    const F<N> t = n.mul(q.value, n.f(part[2]));
    const F<N> r = n.sub(s, t);
    const F<N> over = n.muladd(q.value, n.f(part[3]), n.add(n.sub(r, s), t));
    const F<N> rest = n.sub(r, over);
    return {rest, n.sub(n.sub(r, rest), over), q.raw};
}

// Payne & Hanek in floating point: x = y 2^(step j), and 2^(step j) 2/pi modulo 4 is a table
// row of four parts. y is whole for j > 0, so multiples of 4 may be missing from the row; the
// products are error-free, and the first drops its own multiples of 4.
template <class N>
Reduced<N> reduce_huge(N& n, F<N> ax) {
    const auto& rows = C<N>::kHuge;
    F<N> scale = n.f(1), c0 = n.f(rows[0][0]), c1 = n.f(rows[0][1]), c2 = n.f(rows[0][2]),
         c3 = n.f(rows[0][3]);
    double unit = 1, bound = Of<N>::integers;
    for (size_t j = 1; j < std::size(rows); ++j) {
        unit /= C<N>::kHugeStep, bound *= C<N>::kHugeStep;
        const B<N> from = n.ge(ax, n.f(bound));
        scale = n.select(from, n.f(unit), scale);
        c0 = n.select(from, n.f(rows[j][0]), c0);
        c1 = n.select(from, n.f(rows[j][1]), c1);
        c2 = n.select(from, n.f(rows[j][2]), c2);
        c3 = n.select(from, n.f(rows[j][3]), c3);
    }
    const F<N> y = n.mul(ax, scale);
    const Pair<N> p0 = two_product(n, y, c0), p1 = two_product(n, y, c1),
                  p2 = two_product(n, y, c2);

    const F<N> whole = n.f(Of<N>::integers);
    const F<N> fours = n.mul(p0.hi, n.f(0.25));
    const F<N> rounded = n.select(n.lt(fours, whole), n.sub(n.add(fours, whole), whole), fours);
    const F<N> top = n.sub(p0.hi, n.mul(rounded, n.f(4)));

    const Pair<N> a = two_sum(n, top, p1.hi);
    const Pair<N> b = two_sum(n, a.hi, p0.lo);
    const auto q = nearest(n, b.hi);
    Pair<N> f = two_sum(n, n.sub(b.hi, q.value), a.lo);
    F<N> low = f.lo;
    for (const F<N> part : {b.lo, p1.lo, p2.hi}) {
        f = two_sum(n, f.hi, part);
        low = n.add(low, f.lo);
    }
    low = n.add(low, n.muladd(y, c3, p2.lo));
    const auto more = nearest(n, f.hi);  // the parts below add up to more than a quarter
    f = fast_two_sum(n, n.sub(f.hi, more.value), low);
    const Pair<N> product = pair_product(n, f, constant_pair(n, C<N>::kHalfPiPair));
    const Pair<N> r = fast_two_sum(n, product.hi, product.lo);
    return {r.hi, r.lo, n.iadd(q.raw, more.raw)};
}

// Of the magnitude: callers give the sign back, -0 included. `low` is what r lacks, if it is
// wanted.
template <bool low, class N>
Reduced<N> reduce(N& n, F<N> x) {
    const F<N> ax = n.abs(x);
    const Reduced<N> usual = !low && n.fused() ? reduce_fused(n, ax) : reduce_usual(n, ax);
    const B<N> huge = n.ge(ax, n.f(C<N>::kHugeFrom));
    const auto make = [&] { return reduce_huge(n, ax); };
    if constexpr (requires { n.rarely(huge, usual, make); }) {
        return n.rarely(huge, usual, make);
    } else {
        const Reduced<N> other = make();
        return {n.select(huge, other.r, usual.r), n.select(huge, other.low, usual.low),
                n.selecti(huge, other.q, usual.q)};
    }
}

template <class N>
F<N> sin_of_rest(N& n, F<N> r, F<N> z) {  // r + r z P(z), |r| <= pi/4
    return n.muladd(n.mul(r, z), polynomial(n, z, C<N>::kSin), r);
}

template <class N>
F<N> cos_of_rest(N& n, F<N> z) {  // 1 - z/2 + z^2 Q(z)
    return n.muladd(n.mul(z, z), polynomial(n, z, C<N>::kCos), n.muladd(z, n.f(-0.5), n.f(1)));
}

// The value at quadrant q but for its sign.
template <class N>
F<N> sin_or_cos(N& n, F<N> r, I<N> q) {
    const F<N> z = n.mul(r, r);
    const B<N> even = n.ieq(n.iand(q, n.i(1)), n.i(0));
    return n.select(even, sin_of_rest(n, r, z), cos_of_rest(n, z));
}

// Both polynomials on [-pi/4, pi/4], so that sin and cos of one angle share everything (Muller,
// 11).
template <class N>
F<N> sin(N& n, F<N> x) {
    const Reduced<N> a = reduce<false>(n, x);
    const I<N> sign = n.ixor(n.shl(a.q, N::bits - 2), n.bits_of(x));
    return flip_sign_by_bit(n, sin_or_cos(n, a.r, a.q), sign);
}

template <class N>
F<N> cos(N& n, F<N> x) {
    const Reduced<N> a = reduce<false>(n, x);
    const I<N> q = n.iadd(a.q, n.i(1));
    return flip_sign_by_bit(n, sin_or_cos(n, a.r, q), n.shl(q, N::bits - 2));
}

template <class N>
struct SinCos {
    F<N> sin, cos;
};

// The bits of both, for little more than one of them.
template <class N>
SinCos<N> sin_cos(N& n, F<N> x) {
    const Reduced<N> a = reduce<false>(n, x);
    const F<N> z = n.mul(a.r, a.r), s = sin_of_rest(n, a.r, z), c = cos_of_rest(n, z);
    const B<N> even = n.ieq(n.iand(a.q, n.i(1)), n.i(0));
    const I<N> sign = n.ixor(n.shl(a.q, N::bits - 2), n.bits_of(x));
    const I<N> next = n.iadd(a.q, n.i(1));
    return {flip_sign_by_bit(n, n.select(even, s, c), sign),
            flip_sign_by_bit(n, n.select(even, c, s), n.shl(next, N::bits - 2))};
}

// Own polynomial r + r z P(z), -1/t in odd quadrants; the rounding of t enters to first order,
// else the reciprocal would double it.
template <class N>
F<N> tan(N& n, F<N> x) {
    const Reduced<N> a = reduce<true>(n, x);
    const F<N> z = n.mul(a.r, a.r);
    const F<N> excess = n.mul(n.mul(a.r, z), polynomial(n, z, C<N>::kTan));
    const F<N> rough = n.add(a.r, excess);
    const Pair<N> t = fast_two_sum(n, a.r, n.muladd(a.low, n.muladd(rough, rough, n.f(1)), excess));
    const F<N> inverse = n.div(n.f(-1), t.hi);
    const F<N> turned = n.muladd(n.mul(inverse, t.lo), inverse, inverse);
    return flip_sign_by(n, n.select(n.ieq(n.iand(a.q, n.i(1)), n.i(0)), t.hi, turned), x);
}

// ---- Inverse angles ------------------------------------------------------------------------

// atan(r) = r + r z P(z) on the whole of [0, 1]: one long polynomial costs about what a second
// reduction would and rounds less.
template <class N>
F<N> atan_of_unit(N& n, F<N> r) {
    const F<N> z = n.mul(r, r);
    return n.muladd(n.mul(r, z), polynomial(n, z, C<N>::kAtan), r);
}

// c - t for a constant in two parts.
template <class N>
F<N> constant_minus(N& n, const std::array<double, 2>& c, F<N> t) {
    return n.sub(n.f(c[0]), n.sub(t, n.f(c[1])));
}

// atan(x) = pi/2 - atan(1/x) above 1 (Muller, 3 and 11).
template <class N>
F<N> atan(N& n, F<N> x) {
    const F<N> ax = n.abs(x), one = n.f(1);
    const B<N> steep = n.gt(ax, one);
    const F<N> t = atan_of_unit(n, n.select(steep, n.div(one, ax), ax));
    return with_sign_of(n, n.select(steep, constant_minus(n, C<N>::kHalfPiPair, t), t), x);
}

// As atan of the smaller over the larger side, then unfolded; zeros and infinities as in C.
template <class N>
F<N> atan2(N& n, F<N> y, F<N> x) {
    const F<N> ay = n.abs(y), ax = n.abs(x), zero = n.f(0), one = n.f(1);
    const B<N> flat = n.lt(ay, ax);
    const F<N> small = n.select(flat, ay, ax), large = n.select(flat, ax, ay);
    F<N> ratio = n.div(small, n.select(n.eq(large, zero), one, large));
    const F<N> inf = n.f(Of<N>::infinity);
    ratio = n.select(n.band(n.eq(small, inf), n.eq(large, inf)), one, ratio);
    F<N> t = atan_of_unit(n, ratio);
    const B<N> steep = n.bnot(n.le(ay, ax));
    t = n.select(steep, constant_minus(n, C<N>::kHalfPiPair, t), t);
    const B<N> left = n.ilt(n.bits_of(x), n.i(0));
    t = n.select(left, constant_minus(n, C<N>::kPiPair, t), t);
    return with_sign_of(n, t, y);
}

// The shared part of asin and acos: below 0.541 directly; above, with s = sqrt((1 - |x|) / 2),
// acos(|x|) = 2 asin(s). (1 - |x|) is exact there, and acos is below 1. (Muller, 11.)
template <class N>
struct ArcParts {
    B<N> inner;   // |x| <= 0.541
    F<N> base;    // |x| or 2 s
    F<N> excess;  // asin(|x|) - |x|, or 2 (asin(s) - s)
};

template <class N>
ArcParts<N> arc_parts(N& n, F<N> ax) {
    const B<N> inner = n.le(ax, n.f(0x1.15p-1));
    const F<N> z = n.select(inner, n.mul(ax, ax), n.muladd(ax, n.f(-0.5), n.f(0.5)));
    const F<N> s = n.sqrt(z);
    const F<N> base = n.select(inner, ax, n.add(s, s));
    return {inner, base, n.mul(n.mul(base, z), polynomial(n, z, C<N>::kAsin))};
}

template <class N>
F<N> asin(N& n, F<N> x) {
    const ArcParts<N> a = arc_parts(n, n.abs(x));
    const F<N> t = n.add(a.base, a.excess);
    return with_sign_of(n, n.select(a.inner, t, constant_minus(n, C<N>::kHalfPiPair, t)), x);
}

template <class N>
F<N> acos(N& n, F<N> x) {
    const ArcParts<N> a = arc_parts(n, n.abs(x));
    const B<N> minus = n.lt(x, n.f(0));
    const auto& half = C<N>::kHalfPiPair;
    const auto& full = C<N>::kPiPair;
    const F<N> base = flip_sign_by(n, a.base, x), excess = flip_sign_by(n, a.excess, x);
    const F<N> inner = n.sub(n.f(half[0]), n.sub(base, n.sub(n.f(half[1]), excess)));
    const F<N> near = n.add(a.base, a.excess);
    const F<N> outer = n.select(minus, constant_minus(n, full, near), near);
    return n.select(a.inner, inner, outer);
}

// ---- Exponentials --------------------------------------------------------------------------

// x - k ln 2 in two parts (Cody & Waite), k the nearest integer to x / ln 2.
template <class N>
struct ExpParts {
    F<N> r;
    I<N> raw;
    F<N> k;
};

template <class N>
ExpParts<N> exp_parts(N& n, F<N> x) {
    const auto& ln2 = C<N>::kLn2;
    const auto k = nearest(n, n.mul(x, n.f(C<N>::kLog2e[0])));
    const F<N> s = n.muladd(k.value, n.f(-ln2[0]), x);
    return {n.muladd(k.value, n.f(-ln2[1]), s), k.raw, k.value};
}

// Zero below `low`, infinity where it does not fit, NaN for NaN, else the value.
template <class N>
F<N> in_range(N& n, F<N> x, double low, B<N> fits, F<N> value) {
    const F<N> at_most = n.select(fits, value, n.mul(x, n.f(Of<N>::infinity)));
    return n.select(n.lt(x, n.f(low)), n.f(0), at_most);
}

// 1 + r + r^2 P(r) (Muller, 11; own fit).
template <class N>
F<N> exp(N& n, F<N> x) {
    const double low = Of<N>::single ? -0x1.5d589ep+6 : -0x1.6232bdd7abcd2p+9;  // ln of smallest
    const double high = Of<N>::single ? 0x1.62e42ep+6 : 0x1.62e42fefa39efp+9;   // ln of largest
    const ExpParts<N> a = exp_parts(n, x);
    const F<N> tail = n.muladd(n.mul(a.r, a.r), polynomial(n, a.r, C<N>::kExp), a.r);
    return in_range(n, x, low, n.le(x, n.f(high)), scale_by_power(n, n.add(tail, n.f(1)), a.raw));
}

// 2^(hi + lo), |lo| below half a unit of hi, |hi| < 2^(p-2): 1 + r P(r), |r| <= 1/2.
template <class N>
F<N> exp2_of_pair(N& n, F<N> hi, F<N> lo) {
    const auto k = nearest(n, hi);
    const F<N> r = n.add(n.sub(hi, k.value), lo);
    const F<N> m = n.muladd(r, polynomial(n, r, C<N>::kExp2), n.f(1));
    const F<N> top = n.f(Of<N>::bias + 1);
    const B<N> fits = n.lt(n.add(n.sub(hi, top), lo), n.f(0));  // hi may be `top` with lo < 0
    return in_range(n, hi, 1 - Of<N>::bias, fits, scale_by_power(n, m, k.raw));
}

template <class N>
F<N> exp2(N& n, F<N> x) {
    return exp2_of_pair(n, x, n.f(0));
}

// y = -t / (2 + t) with t = e^(-2|x|) - 1, which keeps all digits near zero (Muller, 11). The
// roundings of t and 2 + t enter to first order; 1 / (2 + t) is (1 + y) / 2.
template <class N>
F<N> tanh(N& n, F<N> x) {
    const F<N> ax = n.abs(x);
    const F<N> limit = n.f(Of<N>::single ? 10 : 20);  // tanh is 1 there
    const F<N> bounded = n.select(n.gt(ax, limit), limit, ax);
    const ExpParts<N> a = exp_parts(n, n.mul(bounded, n.f(-2)));
    const F<N> tail = n.muladd(n.mul(a.r, a.r), polynomial(n, a.r, C<N>::kExp), a.r);
    const F<N> power = scale_by_power(n, n.f(1), a.raw);
    const Pair<N> t = fast_two_sum(n, n.sub(power, n.f(1)), n.mul(power, tail));
    const Pair<N> d = fast_two_sum(n, n.f(2), t.hi);
    const F<N> rough = n.div(t.hi, d.hi);
    const F<N> off = n.sub(t.lo, n.mul(rough, n.add(t.lo, d.lo)));
    const F<N> y = n.abs(n.muladd(off, n.muladd(rough, n.f(-0.5), n.f(0.5)), rough));
    return with_sign_of(n, y, x);
}

// ---- Logarithms ----------------------------------------------------------------------------

// x = 2^k m with m in [sqrt 1/2, sqrt 2), for normal positive x.
template <class N>
struct LogParts {
    F<N> m, k;
};

template <class N>
LogParts<N> log_parts(N& n, F<N> x) {
    using T = Of<N>;
    // Adding the distance from sqrt(1/2) to 1 carries into the exponent exactly from sqrt(1/2) up.
    const int64_t root = T::single ? 0x3f3504f3 : 0x3fe6a09e667f3bcdLL;
    const int64_t one = int64_t{T::bias} << T::mantissa;
    const I<N> shifted = n.iadd(n.bits_of(x), n.i(one - root));
    const I<N> exponent = n.shr(shifted, T::mantissa);
    const I<N> rest = n.iadd(n.iand(shifted, n.i((int64_t{1} << T::mantissa) - 1)), n.i(root));
    // exponent as a float: put it into the low bits of 2^(p-1).
    const int64_t base = T::single ? 0x4b000000 : 0x4330000000000000LL;
    const F<N> k = n.sub(n.from_bits(n.ior(exponent, n.i(base))), n.f(T::integers + T::bias));
    return {n.from_bits(rest), k};
}

// Minus infinity at zero, NaN below, x itself where it is infinite or NaN.
template <class N>
F<N> log_special(N& n, F<N> x, F<N> value) {
    const F<N> inf = n.f(Of<N>::infinity), least = n.f(Of<N>::smallest);
    value = n.select(n.lt(x, inf), value, x);
    const F<N> below =
        n.select(n.gt(x, n.f(-Of<N>::smallest)), n.f(-Of<N>::infinity), n.f(Of<N>::nan));
    return n.select(n.lt(x, least), below, value);
}

// log(1 + f) = 2 atanh(s) = f - s (f - z Q(z)), s = f / (2 + f), z = s^2 (Cody & Waite; Muller,
// 11); this is what to take from f.
template <class N>
F<N> log_of_rest(N& n, F<N> f) {
    const F<N> s = n.div(f, n.add(f, n.f(2)));
    const F<N> z = n.mul(s, s);
    const F<N> q = n.mul(z, polynomial(n, z, C<N>::kLog));
    return n.mul(s, n.sub(f, q));
}

template <class N>
F<N> log(N& n, F<N> x) {
    const LogParts<N> a = log_parts(n, x);
    const F<N> f = n.sub(a.m, n.f(1));
    const auto& ln2 = C<N>::kLn2;
    const F<N> minus = n.sub(log_of_rest(n, f), n.mul(a.k, n.f(ln2[1])));
    return log_special(n, x, n.muladd(a.k, n.f(ln2[0]), n.sub(f, minus)));
}

// log(m) times 1/ln 2 in two parts; powers of two are exact.
template <class N>
F<N> log2(N& n, F<N> x) {
    const LogParts<N> a = log_parts(n, x);
    const F<N> f = n.sub(a.m, n.f(1));
    const F<N> log_m = n.sub(f, log_of_rest(n, f));
    const auto& log2e = C<N>::kLog2e;
    const F<N> value = n.muladd(log_m, n.f(log2e[0]), n.mul(log_m, n.f(log2e[1])));
    return log_special(n, x, n.add(a.k, value));
}

// log2 of a normal positive number as a pair, to about twice the precision's digits less ten:
// s and the first terms of the series are pairs, 1/ln 2 too.
template <class N>
Pair<N> log2_pair(N& n, F<N> x) {
    const LogParts<N> a = log_parts(n, x);
    const F<N> one = n.f(1);
    const F<N> f = n.sub(a.m, one);
    const F<N> d = n.add(a.m, one), d_low = n.sub(a.m, n.sub(d, one));
    const F<N> inverse = n.div(one, d);
    const F<N> s = n.mul(f, inverse);
    const Pair<N> sd = two_product(n, s, d);
    const F<N> left = n.sub(n.sub(f, sd.hi), n.muladd(s, d_low, sd.lo));
    const Pair<N> root{s, n.mul(left, inverse)};
    const Pair<N> z = pair_product(n, root, root);
    // log m = 2 s + s z (2/3 + z Q(z))
    const F<N> q = n.mul(z.hi, polynomial(n, z.hi, C<N>::kLogSecond));
    const auto& two_thirds = C<N>::kTwoThirds;
    Pair<N> t = fast_two_sum(n, n.f(two_thirds[0]), q);
    t.lo = n.add(t.lo, n.f(two_thirds[1]));
    const Pair<N> rest = pair_product(n, pair_product(n, root, z), t);
    Pair<N> log_m = fast_two_sum(n, n.add(s, s), rest.hi);
    log_m.lo = n.add(log_m.lo, n.add(n.add(root.lo, root.lo), rest.lo));
    const Pair<N> log2_m = pair_product(n, log_m, constant_pair(n, C<N>::kLog2e));
    const Pair<N> sum = fast_two_sum(n, a.k, log2_m.hi);
    return {sum.hi, n.add(sum.lo, log2_m.lo)};
}

// ---- Powers --------------------------------------------------------------------------------

// 2^(y log2 |x|), y = y_hi + y_lo with y_lo an optional rest.
template <class N>
F<N> power_of_magnitude(N& n, F<N> ax, F<N> y, const F<N>* y_low) {
    // Beyond this bound every |x| != 1 over- or underflows; finite products follow.
    const F<N> most = n.f(Of<N>::single ? 0x1p40 : 0x1p80);
    F<N> bounded = n.select(n.gt(y, most), most, y);
    bounded = n.select(n.lt(bounded, n.neg(most)), n.neg(most), bounded);
    const Pair<N> l = log2_pair(n, ax);
    const Pair<N> p = two_product(n, bounded, l.hi);
    F<N> low = n.muladd(bounded, l.lo, p.lo);
    if (y_low) low = n.muladd(*y_low, l.hi, low);
    const Pair<N> e = fast_two_sum(n, p.hi, low);
    F<N> value = exp2_of_pair(n, e.hi, e.lo);

    const F<N> zero = n.f(0), inf = n.f(Of<N>::infinity);
    const B<N> none = n.lt(ax, n.f(Of<N>::smallest)), all = n.eq(ax, inf);
    const B<N> down = n.lt(y, zero);
    value = n.select(none, n.select(down, inf, zero), value);
    return n.select(all, n.select(down, zero, inf), value);
}

// C's pow. Pairs of numbers carry the exponent (Dekker; Muller, 11).
template <class N>
F<N> pow(N& n, F<N> x, F<N> y) {
    const F<N> zero = n.f(0), one = n.f(1);
    const F<N> value = power_of_magnitude<N>(n, n.abs(x), y, nullptr);
    const F<N> half = n.mul(y, n.f(0.5));
    const B<N> whole = n.eq(n.floor(y), y);
    const B<N> odd = n.band(whole, n.ne(n.floor(half), half));
    F<N> out = n.select(odd, flip_sign_by(n, value, x), value);
    const B<N> undefined = n.band(
        n.band(n.le(x, n.f(-Of<N>::smallest)), n.gt(x, n.f(-Of<N>::infinity))), n.bnot(whole));
    const B<N> nan = n.bor(undefined, n.bor(n.isnan(x), n.isnan(y)));
    out = n.select(nan, n.f(Of<N>::nan), out);
    out = n.select(n.eq(y, n.f(2)), n.mul(x, x), out);
    return n.select(n.bor(n.eq(y, zero), n.eq(x, one)), one, out);
}

// Float to the power of an integer of any size, as exact as pow and not by multiplying, the square
// excepted: it equals x * x, whether or not the compiler sees the exponent. The integer is split
// into two floats, so no digit of it is lost.
template <class N>
F<N> pow_integer(N& n, F<N> x, I<N> y) {
    constexpr int low_bits = Of<N>::single ? 12 : 26;
    const I<N> low = n.iand(y, n.i((int64_t{1} << low_bits) - 1));
    const Pair<N> split = fast_two_sum(n, n.to_float(n.isub(y, low)), n.to_float(low));
    const F<N> value = power_of_magnitude<N>(n, n.abs(x), split.hi, &split.lo);
    const B<N> odd = n.ieq(n.iand(y, n.i(1)), n.i(1));
    F<N> out = n.select(odd, flip_sign_by(n, value, x), value);
    out = n.select(n.isnan(x), x, out);
    out = n.select(n.ieq(y, n.i(2)), n.mul(x, x), out);
    return n.select(n.ieq(y, n.i(0)), n.f(1), out);
}

// What stands for an exponent beyond 32 bits where x is f32: of the same parity, and as far away as
// makes no difference there.
inline constexpr int64_t kFarExponent = 0x7ffffffe;
inline int32_t exponent32(int64_t e) {
    if (e == int32_t(e)) return int32_t(e);
    return int32_t((e < 0 ? -kFarExponent : kFarExponent) | (e & 1));
}

// x^e for a known e by repeated squaring (Knuth, TAOCP 4.6.3); 1/x^|e| for negative e. The
// relative error is up to |e| half-units; prefer pow_integer for |e| > 16.
template <class N>
F<N> powi(N& n, F<N> x, int64_t e) {
    if (e == 0) return n.f(1);
    uint64_t left = e < 0 ? 0 - uint64_t(e) : uint64_t(e);
    F<N> square = x;
    while (!(left & 1)) square = n.mul(square, square), left >>= 1;
    F<N> out = square;
    while (left >>= 1) {
        square = n.mul(square, square);
        if (left & 1) out = n.mul(out, square);
    }
    return e < 0 ? n.div(n.f(1), out) : out;
}

// The same for integers, wrapping; e >= 0. `imul` is needed here only.
template <class N>
I<N> powi_integer(N& n, I<N> x, uint64_t left) {
    if (left == 0) return n.i(1);
    I<N> square = x;
    while (!(left & 1)) square = n.imul(square, square), left >>= 1;
    I<N> out = square;
    while (left >>= 1) {
        square = n.imul(square, square);
        if (left & 1) out = n.imul(out, square);
    }
    return out;
}

// ---- Roots and rounding --------------------------------------------------------------------

template <class N>
F<N> sqrt(N& n, F<N> x) {
    return n.sqrt(x);
}

template <class N>
F<N> rsqrt(N& n, F<N> x) {
    return n.div(n.f(1), n.sqrt(x));
}

template <class N>
F<N> floor(N& n, F<N> x) {
    return n.floor(x);
}

template <class N>
F<N> ceil(N& n, F<N> x) {
    return n.ceil(x);
}

// Half away from zero: the fraction is exact, so 0.49999997 stays below.
template <class N>
F<N> round(N& n, F<N> x) {
    const F<N> ax = n.abs(x), one = n.f(1);
    const F<N> below = n.floor(ax);
    const B<N> up = n.ge(n.sub(ax, below), n.f(0.5));
    return with_sign_of(n, n.select(up, n.add(below, one), below), x);
}

// floor by plain arithmetic, for domains that lack it.
template <class N>
F<N> plain_floor(N& n, F<N> x) {
    const F<N> ax = n.abs(x), whole = n.f(Of<N>::integers);
    F<N> r = n.sub(n.add(ax, whole), whole);  // nearest
    r = with_sign_of(n, n.select(n.lt(ax, whole), r, ax), x);
    return n.select(n.gt(r, x), n.sub(r, n.f(1)), r);
}

template <class N>
F<N> plain_ceil(N& n, F<N> x) {
    return n.neg(plain_floor(n, n.neg(x)));
}

}  // namespace qd::ir::elementary
