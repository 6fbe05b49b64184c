// Flush-to-zero for the current thread while compiled code runs (spec 30 section 13).

#pragma once

#include <cstdint>

namespace qd::runtime {

#if defined(__x86_64__)
inline constexpr uint32_t kFlushBits = 0x8040;     // MXCSR: FTZ and DAZ
inline constexpr uint32_t kFlushResults = 0x8000;  // FTZ
inline constexpr uint32_t kStandardMode = 0x1f80;  // to nearest, nothing traps
inline uint32_t float_mode() { return __builtin_ia32_stmxcsr(); }
inline void set_float_mode(uint32_t mode) { __builtin_ia32_ldmxcsr(mode); }
#else
inline constexpr uint64_t kFlushBits = uint64_t(1) << 24;  // FPCR.FZ
inline constexpr uint64_t kFlushResults = kFlushBits;
inline constexpr uint64_t kStandardMode = 0;
inline uint64_t float_mode() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
inline void set_float_mode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#endif

// Of the thread that launches, which may round as its user likes and, after qd.init, flushes
// results alone: its own code sees subnormals as they are. Also while it compiles, for constants
// that are folded go to the cache, and to processes that round in another way.
class StandardFloats {
  public:
    StandardFloats() : old_(float_mode()) { set_float_mode(kStandardMode | kFlushBits); }
    ~StandardFloats() { set_float_mode(old_); }
    StandardFloats(const StandardFloats&) = delete;
    StandardFloats& operator=(const StandardFloats&) = delete;

  private:
    decltype(float_mode()) old_;
};

}  // namespace qd::runtime
