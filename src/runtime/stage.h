// A stage of making code, while it lives: its time is added up, and it shows in the trace file and
// in the terminal's line.

#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "runtime/progress.h"
#include "runtime/trace_file.h"

namespace qd::runtime {

class Stage {
  public:
    using Clock = std::chrono::steady_clock;

    // `kind` lives for ever.
    Stage(const char* kind, std::string_view kernel, int64_t& total_ns)
        : total_ns_(total_ns), traced_(is_traced() ? trace_begins(kind, kernel) : 0) {
        show_stage(kind);
    }
    ~Stage() {
        total_ns_ += std::chrono::nanoseconds(Clock::now() - began_).count();
        if (traced_) trace_ends(traced_);
    }
    Stage(const Stage&) = delete;

  private:
    int64_t& total_ns_;
    const uint32_t traced_;
    const Clock::time_point began_ = Clock::now();
};

}  // namespace qd::runtime
