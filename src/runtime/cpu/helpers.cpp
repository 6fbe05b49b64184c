// Helper routines that generated code may call. LLVM emits calls to them for operations without an
// instruction on the target: block copies, half-precision conversions on CPUs without F16C, and
// 128-bit products. The half conversions round to nearest even and are our own, so that every CPU
// computes the same bits.

#include <bit>
#include <cstdint>
#include <cstring>

#include "runtime/cpu/loader.h"

namespace qd::runtime {
namespace {

float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16;
    const uint32_t exponent = h >> 10 & 31;
    uint32_t fraction = h & 0x3ff;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
    if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    if (!fraction) return std::bit_cast<float>(sign);
    int shift = 0;
    while (!(fraction & 0x400)) {
        fraction <<= 1;
        ++shift;
    }
    return std::bit_cast<float>(sign | uint32_t(113 - shift) << 23 | (fraction & 0x3ff) << 13);
}

// Rounds a finite or special double to half, nearest even.
uint16_t double_to_half(double d) {
    const auto bits = std::bit_cast<uint64_t>(d);
    const auto sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & ((uint64_t(1) << 52) - 1);
    if (exponent == 0x7ff)
        return sign | 0x7c00 | (fraction ? 0x200 | static_cast<uint16_t>(fraction >> 42) : 0);
    if (exponent == 0) return sign;
    const int e = exponent - 1023 + 15;
    if (e >= 31) return sign | 0x7c00;
    fraction |= uint64_t(1) << 52;
    const int drop = e > 0 ? 42 : 43 - e;  // bits below the half's last place
    if (drop > 54) return sign;
    uint64_t kept = fraction >> drop;
    const uint64_t rest = fraction & ((uint64_t(1) << drop) - 1), half = uint64_t(1) << (drop - 1);
    if (rest > half || (rest == half && (kept & 1))) ++kept;
    if (e > 0)
        kept += (uint64_t(e) - 1) << 10;  // the leading one adds the last unit of the exponent
    return sign | static_cast<uint16_t>(kept);
}

// The compiler passes half values in the low bits of an XMM register, as float or as _Float16
// by age of the ABI; LLVM 22 uses the _Float16 register convention on x86-64 with SSE2.
#if defined(__x86_64__)
using HalfRegister = float;  // same register; the low 16 bits hold the half
uint16_t low_half(HalfRegister r) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(r)); }
HalfRegister in_low_half(uint16_t h) { return std::bit_cast<float>(uint32_t(h)); }
#else
using HalfRegister = __fp16;
uint16_t low_half(HalfRegister r) { return std::bit_cast<uint16_t>(r); }
HalfRegister in_low_half(uint16_t h) { return std::bit_cast<__fp16>(h); }
#endif

float extend_half(HalfRegister r) { return half_to_float(low_half(r)); }
double extend_half_to_double(HalfRegister r) { return half_to_float(low_half(r)); }
HalfRegister truncate_float(float f) { return in_low_half(double_to_half(f)); }
HalfRegister truncate_double(double d) { return in_low_half(double_to_half(d)); }

// LLVM counts iterations of some loops with 128 bits.
using Wide = unsigned __int128;
Wide divide(Wide a, Wide b) { return a / b; }
Wide remainder(Wide a, Wide b) { return a % b; }
__int128 divide_signed(__int128 a, __int128 b) { return a / b; }
__int128 remainder_signed(__int128 a, __int128 b) { return a % b; }

struct Helper {
    std::string_view name;
    void* address;
};

template <class F>
void* pointer(F* f) {
    return reinterpret_cast<void*>(f);
}

}  // namespace

void* helper_routine(std::string_view name) {
    static const Helper helpers[] = {
        {"memcpy", pointer<void*(void*, const void*, size_t)>(std::memcpy)},
        {"memmove", pointer<void*(void*, const void*, size_t)>(std::memmove)},
        {"memset", pointer<void*(void*, int, size_t)>(std::memset)},
        {"__extendhfsf2", pointer(extend_half)},
        {"__extendhfdf2", pointer(extend_half_to_double)},
        {"__truncsfhf2", pointer(truncate_float)},
        {"__truncdfhf2", pointer(truncate_double)},
        {"__udivti3", pointer(divide)},
        {"__umodti3", pointer(remainder)},
        {"__divti3", pointer(divide_signed)},
        {"__modti3", pointer(remainder_signed)},
    };
    for (const Helper& h : helpers)
        if (h.name == name) return h.address;
    return nullptr;
}

}  // namespace qd::runtime
