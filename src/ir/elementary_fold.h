// The arithmetic domains of elementary.h on numbers: constant folding.
//
// `fused` must equal the target's, and `flush` (subnormals are zero, as operand and as result) the
// mode that kernels run in; then folding yields the bits that the compiled code yields, whatever
// the mode of the compiling thread. Integers wrap; no operation is undefined.
//
// Needs: -ffp-contract=off where it is compiled. Without it g++ fuses a*b + c on targets with
//        FMA, and bits then depend on the compiler.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace qd::ir::elementary {

template <class Float, class Int>
struct Fold {
    using F = Float;
    using I = Int;
    using B = bool;
    using U = std::make_unsigned_t<Int>;
    static constexpr int bits = int(sizeof(Float) * 8);

    explicit Fold(bool fused, bool flush = true) : fused_(fused), flush_(flush) {}
    bool fused() const { return fused_; }

    F f(double c) const { return F(c); }
    I i(int64_t c) const { return I(c); }

    F add(F a, F b) const { return out(in(a) + in(b)); }
    F sub(F a, F b) const { return out(in(a)-in(b)); }
    F mul(F a, F b) const { return out(in(a)*in(b)); }
    F div(F a, F b) const { return out(in(a) / in(b)); }
    F sqrt(F a) const { return std::sqrt(in(a)); }
    F floor(F a) const { return std::floor(in(a)); }
    F ceil(F a) const { return std::ceil(in(a)); }
    F trunc(F a) const { return std::trunc(in(a)); }
    F floordiv(F a, F b) const { return floor(div(a, b)); }
    F mod(F a, F b) const { return sub(a, mul(floordiv(a, b), b)); }
    F fma(F a, F b, F c) const { return out(std::fma(in(a), in(b), in(c))); }
    F muladd(F a, F b, F c) const { return fused_ ? fma(a, b, c) : add(mul(a, b), c); }
    // -0 is below +0; a NaN loses to a number.
    F min(F a, F b) const {
        a = in(a), b = in(b);
        if (a == b) return from_bits(bits_of(a) | bits_of(b));
        return a < b || isnan(b) ? a : b;
    }
    F max(F a, F b) const {
        a = in(a), b = in(b);
        if (a == b) return from_bits(bits_of(a) & bits_of(b));
        return a > b || isnan(b) ? a : b;
    }
    F attach(F a, F) const { return a; }
    // Sign operations touch one bit and nothing else.
    F neg(F a) const { return from_bits(I(U(bits_of(a)) ^ sign)); }
    F abs(F a) const { return from_bits(I(U(bits_of(a)) & U(~sign))); }

    B lt(F a, F b) const { return in(a) < in(b); }
    B le(F a, F b) const { return in(a) <= in(b); }
    B gt(F a, F b) const { return in(a) > in(b); }
    B ge(F a, F b) const { return in(a) >= in(b); }
    B eq(F a, F b) const { return in(a) == in(b); }
    B ne(F a, F b) const { return in(a) != in(b); }
    B isnan(F a) const { return a != a; }
    F select(B c, F a, F b) const { return c ? a : b; }
    I selecti(B c, I a, I b) const { return c ? a : b; }
    B band(B a, B b) const { return a && b; }
    B bor(B a, B b) const { return a || b; }
    B bnot(B a) const { return !a; }

    I iadd(I a, I b) const { return I(U(a) + U(b)); }
    I isub(I a, I b) const { return I(U(a) - U(b)); }
    I imul(I a, I b) const { return I(U(a) * U(b)); }
    I iand(I a, I b) const { return a & b; }
    I ior(I a, I b) const { return a | b; }
    I ixor(I a, I b) const { return a ^ b; }
    I shl(I a, int by) const { return I(U(a) << by); }
    I shr(I a, int by) const { return I(U(a) >> by); }
    I sar(I a, int by) const { return a >> by; }
    B ieq(I a, I b) const { return a == b; }
    B ilt(I a, I b) const { return a < b; }

    I bits_of(F a) const { return std::bit_cast<I>(a); }
    F from_bits(I a) const { return std::bit_cast<F>(a); }
    F to_float(I a) const { return F(a); }

  private:
    static constexpr U sign = U(1) << (bits - 1);

    F zero_if_subnormal(F a) const {
        if (!flush_ || !(std::fabs(a) < std::numeric_limits<F>::min())) return a;
        return from_bits(I(U(bits_of(a)) & sign));
    }
    F in(F a) const { return zero_if_subnormal(a); }
    F out(F a) const { return zero_if_subnormal(a); }

    bool fused_, flush_;
};

using Fold32 = Fold<float, int32_t>;
using Fold64 = Fold<double, int64_t>;

}  // namespace qd::ir::elementary
