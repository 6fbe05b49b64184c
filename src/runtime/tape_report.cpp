// See tape_report.h.

#include "runtime/tape_report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/cpu/kernel.h"
#include "runtime/cpu/tape.h"

namespace qd::runtime {

void tell_tape(const char* kernel, const KernelImage& image, size_t task, const TaskTapes& use) {
    if (!use.threads) return;
    const auto bytes = static_cast<long long>(use.threads * use.stride);
    const char* kind = image.tasks[task].kind == abi::TaskKind::serial ? "serial" : "range_for";
    // Ours holds floats and integers side by side.
    std::fprintf(stderr,
                 "[adstack_heap] arch=llvm kind=FI src=%s num_threads=%lld stride=%lld "
                 "required_bytes=%lld (%.2f MB) task=%s_kernel_%zu_%s\n",
                 use.source, static_cast<long long>(use.threads),
                 static_cast<long long>(use.stride), bytes, double(bytes) / (1 << 20), kernel, task,
                 kind);
    if (use.recorded_again)
        std::fprintf(stderr, "[adstack_again] segments=%lld task=%s_kernel_%zu_%s\n",
                     static_cast<long long>(use.recorded_again), kernel, task, kind);
}

void TapeMarks::note(int32_t thread, const TapeUse& use) {
    const std::lock_guard guard(lock_);
    if (most_.size() <= size_t(thread)) most_.resize(size_t(thread) + 1);
    most_[size_t(thread)] = std::max(most_[size_t(thread)], use.written);
    recorded_again_ += use.recorded_again;
}

TaskTapes TapeMarks::take() {
    const std::lock_guard guard(lock_);
    TaskTapes use{"high_water_mark", std::ranges::count_if(most_, [](int64_t b) { return b > 0; }),
                  most_.empty() ? 0 : std::ranges::max(most_), std::exchange(recorded_again_, 0)};
    most_.clear();
    return use;
}

}  // namespace qd::runtime
