// The clock by which everything here measures.

#pragma once

#include <time.h>

#include <cstdint>

namespace qd::support {

// Of std::chrono::steady_clock, without its types.
inline int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

}  // namespace qd::support
