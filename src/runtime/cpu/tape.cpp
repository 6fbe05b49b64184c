// See tape.h.

#include "runtime/cpu/tape.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/tape_limit.h"
#include "support/abi.h"

namespace qd::runtime {
namespace {

constexpr int64_t kMost = int64_t{1} << 38, kLeast = int64_t{1} << 20;
constexpr int64_t kHeader = abi::kTapeHeader;
constexpr int64_t kKept = int64_t{64} << 20;
constexpr int64_t kExact = int64_t{1} << 20;  // where bytes are marked before they are written
constexpr uint32_t kMark = 0xa5c3e197;

// What the process may have of addresses (`ulimit -v`).
int64_t address_limit() {
    rlimit limit;
    const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < rlim_t(INT64_MAX);
    return limited ? int64_t(limit.rlim_cur) : INT64_MAX;
}

// Half of the machine's memory: who asks for more is told so, and not killed by the system. Where
// addresses are limited all threads together take a quarter of them, a thread a sixteenth at most.
int64_t wanted() {
    const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    const int64_t threads = std::max<int64_t>(sysconf(_SC_NPROCESSORS_ONLN), 4);
    const int64_t addresses = address_limit() / (4 * threads);
    return std::clamp(std::min(memory / 2, addresses), kLeast, kMost) & -kLeast;
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
        throw std::bad_alloc();
    }
    ~Range() { munmap(at, size_t(bytes)); }
    Range(const Range&) = delete;

    void trim() {  // gives memory back beyond what is kept for the next use
        if (bytes > kKept) madvise(at + kKept, size_t(bytes - kKept), MADV_DONTNEED);
    }

    uint8_t* begin() const { return at + kHeader; }  // of the tape
    uint32_t* words() const { return reinterpret_cast<uint32_t*>(begin()); }
    int64_t marked_words() const { return (std::min(bytes, kExact) - kHeader) / 4; }
    abi::TapeCounts& counts() const { return reinterpret_cast<abi::TapeCounts*>(begin())[-1]; }

    void mark() {  // from there on pages that are there were written to
        madvise(at, size_t(bytes), MADV_DONTNEED);
        madvise(at, size_t(bytes), MADV_NOHUGEPAGE);
        std::fill_n(words(), marked_words(), kMark);
        counts() = {};
    }

    int64_t written() const {
        constexpr int64_t kStep = int64_t{64} << 20;  // a tape has no holes of that size
        const int64_t page = sysconf(_SC_PAGESIZE);
        std::vector<unsigned char> present(size_t(kStep / page));
        int64_t most = 0;
        for (int64_t from = kExact, found = 1; from < bytes && found; from += kStep) {
            const int64_t step = std::min(kStep, bytes - from), pages = step / page;
            if (mincore(at + from, size_t(step), present.data())) break;
            for (found = pages; found > 0 && !(present[size_t(found) - 1] & 1);) --found;
            if (found) most = from + found * page - kHeader;
        }
        if (most) return most;
        int64_t words_used = marked_words();
        while (words_used > 0 && words()[words_used - 1] == kMark) --words_used;
        return words_used * 4;
    }
};

namespace {
thread_local std::unique_ptr<Range> idle;
}

Tape::Tape(bool marked) : range_(idle ? idle.release() : new Range) {
    if (marked) range_->mark();
    at = range_->begin();
    bytes = range_->bytes - kHeader;
    if (const int64_t most = tape_limit.load(std::memory_order_relaxed))
        bytes = std::min(most, bytes);
}

TapeUse Tape::use() const { return {range_->written(), range_->counts().recorded_again}; }

Tape::~Tape() {
    range_->trim();
    if (idle || address_limit() != INT64_MAX) {
        delete range_;
    } else {
        idle.reset(range_);
    }
}

}  // namespace qd::runtime
