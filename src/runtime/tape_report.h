// QD_DEBUG_ADSTACK=1: what the tapes of reverse sweeps take, a line a task and launch on stderr.

#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace qd::runtime {

struct KernelImage;
struct TapeUse;

struct TaskTapes {
    const char* source;               // how the numbers are known
    int64_t threads = 0, stride = 0;  // that have one; bytes of the largest
    int64_t recorded_again = 0;       // segments, of all threads
};

// Nothing, if no thread has one.
void tell_tape(const char* kernel, const KernelImage& image, size_t task, const TaskTapes& use);

// What the threads of a task did with their tapes. Any thread.
class TapeMarks {
  public:
    void note(int32_t thread, const TapeUse& use);
    TaskTapes take();  // since it was asked last

  private:
    std::mutex lock_;
    std::vector<int64_t> most_;  // bytes, by thread
    int64_t recorded_again_ = 0;
};

}  // namespace qd::runtime
