// Flush-to-zero for the current thread while compiled code runs (spec 30 section 13).

#pragma once

#include <cstdint>

namespace qd::runtime {

#if defined(__x86_64__)
inline constexpr uint32_t kFlushBits = 0x8040;     // MXCSR: FTZ and DAZ
inline constexpr uint32_t kStandardMode = 0x1f80;  // to nearest, nothing traps
inline uint32_t float_mode() { return __builtin_ia32_stmxcsr(); }
inline void set_float_mode(uint32_t mode) { __builtin_ia32_ldmxcsr(mode); }
#else
inline constexpr uint64_t kFlushBits = uint64_t(1) << 24;  // FPCR.FZ
inline constexpr uint64_t kStandardMode = 0;
inline uint64_t float_mode() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
inline void set_float_mode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#endif

// Writing the register is slow, so an already flushing thread (after qd.init) pays one read.
class FlushDenormals {
  public:
    FlushDenormals() : old_(float_mode()) {
        if ((old_ & kFlushBits) != kFlushBits) set_float_mode(old_ | kFlushBits);
    }
    ~FlushDenormals() {
        if ((old_ & kFlushBits) != kFlushBits) set_float_mode(old_);
    }
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

  private:
    decltype(float_mode()) old_;
};

// For the current thread while it compiles: constants that are folded go to the cache, and to
// processes that round in another way.
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
