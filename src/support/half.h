// Conversions between IEEE half precision (as 16 bits) and double, rounding to nearest even.
// Subnormal halves are kept: only f32 and f64 flush.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace qd::support {

inline double half_to_double(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v;
    if (exponent == 31) {
        const uint64_t bits = uint64_t(0x7ff) << 52 | uint64_t(mantissa) << 42;
        v = std::bit_cast<double>(bits);
    } else if (exponent == 0) {
        v = mantissa * 0x1p-24;
    } else {
        v = std::ldexp(double(1024 + mantissa), exponent - 25);
    }
    return h >> 15 ? -v : v;
}

inline uint16_t double_to_half(double v) {
    const uint64_t bits = std::bit_cast<uint64_t>(v);
    const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    uint64_t mantissa = bits & ((uint64_t(1) << 52) - 1);
    if (exponent == 1024) {  // infinity or NaN (stays quiet)
        return static_cast<uint16_t>(sign | 0x7c00 | (mantissa ? 0x200 | mantissa >> 42 : 0));
    }
    if (exponent > 15) return sign | 0x7c00;
    if (exponent < -25) return sign;
    // A normal half drops 42 bits; a subnormal one drops more and has no hidden bit.
    mantissa |= uint64_t(1) << 52;
    const int drop = exponent >= -14 ? 42 : 42 + (-14 - exponent);
    uint64_t kept = mantissa >> drop;
    const uint64_t rest = mantissa & ((uint64_t(1) << drop) - 1), tie = uint64_t(1) << (drop - 1);
    if (rest > tie || (rest == tie && (kept & 1))) ++kept;
    const uint64_t base = exponent >= -14 ? uint64_t(exponent + 14) << 10 : 0;
    return static_cast<uint16_t>(sign | (base + kept));  // a carry moves on into the exponent
}

}  // namespace qd::support
