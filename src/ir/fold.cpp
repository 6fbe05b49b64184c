// Folding of scalars.
//
// Needs: -ffp-contract=off, so that a*b + c rounds twice.

#include "ir/fold.h"

#include <bit>
#include <cmath>

#include "ir/elementary_fold.h"
#include "ir/elementwise.h"
#include "support/error.h"
#include "support/half.h"

namespace qd::ir {
namespace {

namespace el = ir::elementary;

// --- integers

// Of one primitive: bits in, bits out, zero-extended.
struct Integers {
    using U = uint64_t;
    Prim p;
    int width = type::bits(p);
    bool is_signed = type::is_signed(p);
    U mask = width >= 64 ? ~U(0) : (U(1) << width) - 1;

    U cut(U a) const { return a & mask; }
    int64_t value(U a) const { return int_of_bits(p, a); }

    U add(U a, U b) const { return cut(a + b); }
    U sub(U a, U b) const { return cut(a - b); }
    U mul(U a, U b) const { return cut(a * b); }
    U neg(U a) const { return cut(0 - a); }
    U abs(U a) const { return is_signed && value(a) < 0 ? neg(a) : a; }
    U min(U a, U b) const { return lt(a, b) ? a : b; }
    U max(U a, U b) const { return lt(a, b) ? b : a; }

    // By zero 0; by -1 the quotient wraps.
    U raw_div(U a, U b) const {
        if (b == 0) return 0;
        if (!is_signed) return a / b;
        return value(b) == -1 ? neg(a) : cut(static_cast<U>(value(a) / value(b)));
    }
    U raw_mod(U a, U b) const { return b == 0 ? 0 : sub(a, mul(raw_div(a, b), b)); }
    bool rounds_up(U a, U b) const {  // to zero, from the floor
        const U rest = raw_mod(a, b);
        return is_signed && rest != 0 && (value(rest) < 0) != (value(b) < 0);
    }
    U floordiv(U a, U b) const { return sub(raw_div(a, b), rounds_up(a, b)); }
    U mod(U a, U b) const { return rounds_up(a, b) ? add(raw_mod(a, b), b) : raw_mod(a, b); }
    U power(U base, int64_t e) const {
        if (e <= 0) return 1;  // undefined for negative exponents
        el::Fold64 n(true);
        return cut(static_cast<U>(
            el::powi_integer(n, static_cast<int64_t>(base), static_cast<uint64_t>(e))));
    }

    int count(U b) const { return static_cast<int>(b & static_cast<U>(width - 1)); }
    U shl(U a, U b) const { return cut(a << count(b)); }
    U shr(U a, U b) const {
        return is_signed ? cut(static_cast<U>(value(a) >> count(b))) : lshr(a, b);
    }
    U lshr(U a, U b) const { return a >> count(b); }
    U bit_and(U a, U b) const { return a & b; }
    U bit_or(U a, U b) const { return a | b; }
    U bit_xor(U a, U b) const { return a ^ b; }
    U bit_not(U a) const { return cut(~a); }
    U popcnt(U a) const { return static_cast<U>(std::popcount(a)); }
    U clz(U a) const { return static_cast<U>(std::countl_zero(a) - (64 - width)); }
    U ctz(U a) const { return static_cast<U>(a ? std::countr_zero(a) : width); }

    bool lt(U a, U b) const { return is_signed ? value(a) < value(b) : a < b; }
    bool gt(U a, U b) const { return lt(b, a); }
    bool le(U a, U b) const { return !lt(b, a); }
    bool ge(U a, U b) const { return !lt(a, b); }
    bool eq(U a, U b) const { return a == b; }
    bool ne(U a, U b) const { return a != b; }
};

// --- floats

// Also of a thread that flushes itself, where a subnormal equals zero and keeps its bits.
template <class F>
F flushed(F v) {
    return std::fabs(v) < std::numeric_limits<F>::min() ? std::copysign(F(0), v) : v;
}

double float_value(Prim p, uint64_t bits) {  // as an operand: subnormals are zero
    if (p == Prim::f32) return flushed(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    if (p == Prim::f64) return flushed(std::bit_cast<double>(bits));
    return support::half_to_double(static_cast<uint16_t>(bits));
}

template <class F>
F float_of(uint64_t bits) {
    if constexpr (sizeof(F) == 8)
        return std::bit_cast<double>(bits);
    else
        return std::bit_cast<float>(static_cast<uint32_t>(bits));
}
uint64_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t bits_of(double v) { return std::bit_cast<uint64_t>(v); }
uint64_t bits_of(bool v) { return v; }

template <class N>
uint64_t float_op(Op op, std::span<const Scalar> in, bool fused) {
    using F = typename N::F;
    const auto operand = [&](size_t k) { return k < in.size() ? float_of<F>(in[k].bits) : F(0); };
    N n(fused);
    const F x = operand(0), y = operand(1), z = operand(2);
    if (op == Op::powi) {
        const int64_t e = int_of_bits(in[1].prim, in[1].bits);
        if constexpr (std::is_same_v<F, float>)
            return bits_of(el::pow_integer(n, x, el::exponent32(e)));
        else
            return bits_of(el::pow_integer(n, x, e));
    }
    if (info(op).elementary) return bits_of(by_template(op, n, x, y));
    return by_member<Takes::floats>(op, n, x, y, z, [](auto v) { return bits_of(v); });
}

// In f32, rounded once; signs are one bit.
uint64_t half_op(Op op, std::span<const Scalar> in, bool fused) {
    if (op == Op::neg) return in[0].bits ^ 0x8000;
    if (op == Op::abs) return in[0].bits & 0x7fff;
    Scalar wide[3];
    for (size_t k = 0; k < in.size(); ++k)
        wide[k] = in[k].prim == Prim::f16
                      ? Scalar{Prim::f32, fold_cast(Prim::f16, Prim::f32, in[k].bits)}
                      : in[k];
    const uint64_t bits = float_op<el::Fold32>(op, {wide, in.size()}, fused);
    if (info(op).rule == Rule::boolean) return bits;
    return support::double_to_half(float_of<float>(bits));
}

}  // namespace

uint64_t fold_cast(Prim from, Prim to, uint64_t bits) {
    if (from == to) return bits;
    if (type::is_float(from)) {
        const double v = float_value(from, bits);
        if (to == Prim::f32) return std::bit_cast<uint32_t>(flushed(static_cast<float>(v)));
        return bits_of_double(to, v);
    }
    const int64_t x = int_of_bits(from, bits);
    if (!type::is_float(to)) {
        return to == Prim::u1 ? bits != 0 : Integers{to}.cut(static_cast<uint64_t>(x));
    }
    const bool is_signed = type::is_signed(from);
    if (to == Prim::f64) {
        return std::bit_cast<uint64_t>(is_signed ? static_cast<double>(x)
                                                 : static_cast<double>(bits));
    }
    const float v = is_signed ? static_cast<float>(x) : static_cast<float>(bits);
    return to == Prim::f32 ? std::bit_cast<uint32_t>(v) : support::double_to_half(v);
}

uint64_t fold(Op op, Prim result, std::span<const Scalar> in, bool fused) {
    const auto [p, a] = in[0];
    if (op == Op::select) return a ? in[1].bits : in[2].bits;
    if (op == Op::cast) return fold_cast(p, result, a);
    if (op == Op::bit_cast) return result == Prim::u1 ? a != 0 : a;
    if (p == Prim::f64) return float_op<el::Fold64>(op, in, fused);
    if (p == Prim::f32) return float_op<el::Fold32>(op, in, fused);
    if (p == Prim::f16) return half_op(op, in, fused);
    const Integers n{p};
    const uint64_t b = in.size() > 1 ? in[1].bits : 0;
    if (op == Op::powi) return n.power(a, int_of_bits(in[1].prim, b));
    return by_member<Takes::ints>(op, n, a, b, uint64_t(0), [](uint64_t v) { return v; });
}

void has_no_meaning(Op op) {
    throw support::Error(std::string("op ") + info(op).name + " has no meaning for these operands");
}

}  // namespace qd::ir
