// See tape.h.

#include "runtime/cpu/tape.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "runtime/tape_limit.h"

namespace qd::runtime {
namespace {

constexpr int64_t kMost = int64_t{1} << 38, kLeast = int64_t{1} << 20;
constexpr int64_t kKept = int64_t{64} << 20;

// What the process may have of addresses (`ulimit -v`).
int64_t address_limit() {
    rlimit limit;
    const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < rlim_t(INT64_MAX);
    return limited ? int64_t(limit.rlim_cur) : INT64_MAX;
}

// Half of the machine's memory: who asks for more is told so, and not killed by the system. Where
// addresses are limited a small part of them, which all threads want.
int64_t wanted() {
    const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    return std::clamp(std::min(memory / 2, address_limit() / 16), kLeast, kMost) & -kLeast;
}

}  // namespace

struct Range {
    uint8_t* at = nullptr;
    int64_t bytes = 0;

    Range() {
        for (int64_t size = wanted(); size >= kLeast; size /= 2) {
            void* where = mmap(nullptr, size_t(size), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (where == MAP_FAILED) continue;
            at = static_cast<uint8_t*>(where);
            bytes = size;
            return;
        }
    }
    ~Range() {
        if (at) munmap(at, size_t(bytes));
    }
    Range(const Range&) = delete;

    void trim() {  // gives memory back beyond what is kept for the next use
        if (bytes > kKept) madvise(at + kKept, size_t(bytes - kKept), MADV_DONTNEED);
    }
};

namespace {
thread_local std::unique_ptr<Range> idle;
}

Tape::Tape() : range_(idle ? idle.release() : new Range) {
    at = range_->at;
    const int64_t most = tape_limit.load(std::memory_order_relaxed);
    bytes = most ? std::min(most, range_->bytes) : range_->bytes;
}

Tape::~Tape() {
    range_->trim();
    if (idle || address_limit() != INT64_MAX) {
        delete range_;
    } else {
        idle.reset(range_);
    }
}

}  // namespace qd::runtime
