// QD_DEBUG_ADSTACK=1: what the tapes of reverse sweeps take, a line a task and launch on stderr.

#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace qd::runtime {

struct KernelImage;

struct TapeUse {
    const char* source;               // how the numbers are known
    int64_t threads = 0, stride = 0;  // that have one; bytes of the largest
};

// Nothing, if no thread has one.
void tell_tape(const char* kernel, const KernelImage& image, size_t task, const TapeUse& use);

// How far the threads of a task wrote on their tapes. Any thread.
class TapeMarks {
  public:
    void note(int32_t thread, int64_t bytes);
    TapeUse take();  // since it was asked last

  private:
    std::mutex lock_;
    std::vector<int64_t> most_;  // by thread
};

}  // namespace qd::runtime
