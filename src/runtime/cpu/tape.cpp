// See tape.h.

#include "runtime/cpu/tape.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace qd::runtime {
namespace {

constexpr int64_t kMost = int64_t{1} << 38, kLeast = int64_t{1} << 20;
constexpr int64_t kKept = int64_t{64} << 20;

// Half of the machine's memory: who asks for more is told so, and not killed by the system.
int64_t wanted() {
    const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    return std::clamp(memory / 2, kLeast, kMost) & -kLeast;
}

struct Range {
    Tape tape{nullptr, 0};

    Range() {
        for (int64_t bytes = wanted(); bytes >= kLeast; bytes /= 2) {
            void* at = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED) continue;
            tape = {static_cast<uint8_t*>(at), bytes};
            return;
        }
    }
    ~Range() {
        if (tape.at) munmap(tape.at, size_t(tape.bytes));
    }
    Range(const Range&) = delete;
};
thread_local Range range;

}  // namespace

Tape thread_tape() { return range.tape; }

void trim_thread_tape() {
    const Tape t = range.tape;
    if (t.bytes > kKept) madvise(t.at + kKept, size_t(t.bytes - kKept), MADV_DONTNEED);
}

}  // namespace qd::runtime
