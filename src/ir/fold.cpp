// Folding of scalars.
//
// Needs: -ffp-contract=off, so that a*b + c rounds twice.

#include "ir/fold.h"

#include <bit>
#include <cmath>
#include <type_traits>

#include "ir/elementary.h"
#include "ir/elementary_fold.h"
#include "support/error.h"
#include "support/half.h"

namespace qd::ir {
namespace {

namespace el = ir::elementary;

template <class F>
using IntOf = std::conditional_t<sizeof(F) == 4, int32_t, int64_t>;
template <class F>
using BitsOf = std::make_unsigned_t<IntOf<F>>;

uint64_t mask_of(Prim p) {
    const int width = type::bits(p);
    return width >= 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
}

// Also of a thread that flushes itself, where a subnormal equals zero and keeps its bits.
template <class F>
F flushed(F v) {
    return std::fabs(v) < std::numeric_limits<F>::min() ? std::copysign(F(0), v) : v;
}

[[noreturn]] [[gnu::cold]] void unknown(Op op, Prim p) {
    throw support::Error(std::string("cannot fold ") + info(op).name + " of " + type::info(p).name);
}

// --- floats

// -0 is below +0; a NaN loses to a number; a subnormal counts as zero.
template <class F>
F min_max(bool max, F x, F y) {
    using B = BitsOf<F>;
    x = flushed(x), y = flushed(y);
    const B xb = std::bit_cast<B>(x), yb = std::bit_cast<B>(y);
    if (x == y) return std::bit_cast<F>(max ? B(xb & yb) : B(xb | yb));
    if (std::isnan(y)) return x;
    return (max ? x > y : x < y) ? x : y;
}

template <class F>
F float_op(Op op, F x, F y, F z, bool fused) {
    el::Fold<F, IntOf<F>> n(fused);
    switch (op) {
        case Op::neg:
            return n.neg(x);
        case Op::abs:
            return n.abs(x);
        case Op::min:
            return min_max(false, x, y);
        case Op::max:
            return min_max(true, x, y);
        case Op::pow:
            return el::pow(n, x, y);
        case Op::atan2:
            return el::atan2(n, x, y);
        case Op::rsqrt:
            return el::rsqrt(n, x);
        case Op::sin:
            return el::sin(n, x);
        case Op::cos:
            return el::cos(n, x);
        case Op::tan:
            return el::tan(n, x);
        case Op::asin:
            return el::asin(n, x);
        case Op::acos:
            return el::acos(n, x);
        case Op::tanh:
            return el::tanh(n, x);
        case Op::exp:
            return el::exp(n, x);
        case Op::log:
            return el::log(n, x);
        case Op::round:
            return el::round(n, x);
        default:
            break;
    }
    x = flushed(x), y = flushed(y), z = flushed(z);
    switch (op) {
        case Op::add:
            return flushed(x + y);
        case Op::sub:
            return flushed(x - y);
        case Op::mul:
            return flushed(x * y);
        case Op::div:
            return flushed(x / y);
        case Op::floordiv:
            return std::floor(flushed(x / y));
        case Op::raw_div:
            return std::trunc(flushed(x / y));
        case Op::mod:
            return flushed(x - flushed(std::floor(flushed(x / y)) * y));
        case Op::raw_mod:
            return flushed(x - flushed(std::trunc(flushed(x / y)) * y));
        case Op::fma:
            return flushed(std::fma(x, y, z));
        case Op::sqrt:
            return std::sqrt(x);
        case Op::floor:
            return std::floor(x);
        case Op::ceil:
            return std::ceil(x);
        case Op::trunc:
            return std::trunc(x);
        default:
            unknown(op, sizeof(F) == 4 ? Prim::f32 : Prim::f64);
    }
}

bool compare_floats(Op op, double x, double y) {
    switch (op) {
        case Op::lt:
            return x < y;
        case Op::le:
            return x <= y;
        case Op::gt:
            return x > y;
        case Op::ge:
            return x >= y;
        case Op::eq:
            return x == y;
        default:
            return x != y;
    }
}

double float_value(Prim p, uint64_t bits) {  // as an operand: subnormals are zero
    if (p == Prim::f32) return flushed(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    if (p == Prim::f64) return flushed(std::bit_cast<double>(bits));
    return support::half_to_double(static_cast<uint16_t>(bits));
}

// --- integers

uint64_t divide(Op op, Prim p, uint64_t a, uint64_t b) {
    const bool remainder = op == Op::mod || op == Op::raw_mod;
    if (b == 0) return 0;
    if (!type::is_signed(p)) return remainder ? a % b : a / b;
    const int64_t x = int_of_bits(p, a), y = int_of_bits(p, b);
    if (y == -1) return remainder ? 0 : (0 - a) & mask_of(p);
    int64_t q = x / y, r = x % y;
    if ((op == Op::floordiv || op == Op::mod) && r != 0 && (r ^ y) < 0) {
        --q;
        r += y;
    }
    return static_cast<uint64_t>(remainder ? r : q) & mask_of(p);
}

uint64_t integer_powi(Prim p, uint64_t base, int64_t e) {
    if (e <= 0) return 1;  // undefined for negative exponents
    el::Fold64 n(true);
    return static_cast<uint64_t>(
               el::powi_integer(n, static_cast<int64_t>(base), static_cast<uint64_t>(e))) &
           mask_of(p);
}

uint64_t int_op(Op op, Prim p, uint64_t a, uint64_t b) {
    const uint64_t mask = mask_of(p);
    const int width = type::bits(p);
    const int64_t x = int_of_bits(p, a), y = int_of_bits(p, b);
    const int count = static_cast<int>(b & static_cast<uint64_t>(width - 1));
    const bool less = type::is_signed(p) ? x < y : a < b;
    switch (op) {
        case Op::add:
            return (a + b) & mask;
        case Op::sub:
            return (a - b) & mask;
        case Op::mul:
            return (a * b) & mask;
        case Op::floordiv:
        case Op::mod:
        case Op::raw_div:
        case Op::raw_mod:
            return divide(op, p, a, b);
        case Op::min:
            return less ? a : b;
        case Op::max:
            return less ? b : a;
        case Op::bit_and:
            return a & b;
        case Op::bit_or:
            return a | b;
        case Op::bit_xor:
            return a ^ b;
        case Op::shl:
            return a << count & mask;
        case Op::shr:
            return (type::is_signed(p) ? static_cast<uint64_t>(x >> count) : a >> count) & mask;
        case Op::lshr:
            return a >> count;
        case Op::neg:
            return (0 - a) & mask;
        case Op::abs:
            return type::is_signed(p) && x < 0 ? (0 - a) & mask : a;
        case Op::bit_not:
            return ~a & mask;
        case Op::floor:
        case Op::ceil:
        case Op::round:
        case Op::trunc:
            return a;
        case Op::popcnt:
            return static_cast<uint64_t>(std::popcount(a));
        case Op::clz:
            return static_cast<uint64_t>(std::countl_zero(a) - (64 - width));
        case Op::ctz:
            return static_cast<uint64_t>(a ? std::countr_zero(a) : width);
        case Op::lt:
            return less;
        case Op::ge:
            return !less;
        case Op::eq:
            return a == b;
        case Op::ne:
            return a != b;
        case Op::le:
            return less || a == b;
        case Op::gt:
            return !less && a != b;
        default:
            unknown(op, p);
    }
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
        return to == Prim::u1 ? bits != 0 : static_cast<uint64_t>(x) & mask_of(to);
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
    const Prim p = in[0].prim;
    const uint64_t a = in[0].bits, b = in.size() > 1 ? in[1].bits : 0,
                   c = in.size() > 2 ? in[2].bits : 0;
    if (op == Op::select) return a ? b : c;
    if (op == Op::cast) return fold_cast(p, result, a);
    if (op == Op::bit_cast) return result == Prim::u1 ? a != 0 : a;
    if (!type::is_float(p)) {
        if (op == Op::powi) return integer_powi(p, a, int_of_bits(in[1].prim, b));
        return int_op(op, p, a, b);
    }
    if (info(op).rule == Rule::boolean)
        return compare_floats(op, float_value(p, a), float_value(p, b));
    if (op == Op::powi) {
        const int64_t e = int_of_bits(in[1].prim, b);
        if (p == Prim::f64) {
            el::Fold64 n(fused);
            return std::bit_cast<uint64_t>(el::pow_integer(n, std::bit_cast<double>(a), e));
        }
        el::Fold32 n(fused);
        const float x = static_cast<float>(double_of_bits(p, a));
        const float y = el::pow_integer(n, x, static_cast<int32_t>(e));
        return p == Prim::f32 ? std::bit_cast<uint32_t>(y) : support::double_to_half(y);
    }
    if (p == Prim::f64) {
        return std::bit_cast<uint64_t>(float_op(op, std::bit_cast<double>(a),
                                                std::bit_cast<double>(b), std::bit_cast<double>(c),
                                                fused));
    }
    if (p == Prim::f32) {
        const auto f = [](uint64_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v)); };
        return std::bit_cast<uint32_t>(float_op(op, f(a), f(b), f(c), fused));
    }
    if (op == Op::neg) return a ^ 0x8000;
    if (op == Op::abs) return a & 0x7fff;
    const auto f = [](uint64_t v) {
        return static_cast<float>(support::half_to_double(static_cast<uint16_t>(v)));
    };
    return support::double_to_half(float_op(op, f(a), f(b), f(c), fused));
}

}  // namespace qd::ir
