// Option ad_tape_bytes.

#pragma once

#include <atomic>
#include <cstdint>

namespace qd::runtime {

inline std::atomic<int64_t> tape_limit{0};  // bytes of a thread's tape; 0: the device's own

}  // namespace qd::runtime
