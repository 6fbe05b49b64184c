// The CPU as a device: its memory is the heap's.

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/device.h"

namespace qd::runtime {
namespace {

// Streams over large arrays are bound by page walks: a third of a sum's speed over 256 MB. Only a
// hint, which small arrays go without.
void ask_for_huge_pages(char* data, size_t bytes) {
    constexpr size_t kLeast = size_t(4) << 20, kPage = 4096;
    if (bytes < kLeast) return;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kPage - 1);
    (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

// Large blocks are mapped, hence zeroed lazily.
Memory allocate(size_t bytes, size_t margin) {
    void* raw = std::calloc(1, bytes + 2 * margin + 64);
    if (!raw) return {};
    const uintptr_t first = (reinterpret_cast<uintptr_t>(raw) + margin + 63) & ~uintptr_t(63);
    const Memory m{reinterpret_cast<char*>(first), bytes, raw};
    ask_for_huge_pages(m.data, bytes);
    return m;
}

// Small pages alone: cells that are used may lie far apart.
Memory reserve(size_t bytes, size_t margin) {
    constexpr size_t kPage = 4096;
    margin = (margin + kPage - 1) & ~(kPage - 1);
    const size_t mapped = (bytes + 2 * margin + kPage - 1) & ~(kPage - 1);
    if (mapped < bytes) return {};
    void* raw = mmap(nullptr, std::max(mapped, kPage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return {};
    (void)madvise(raw, mapped, MADV_NOHUGEPAGE);
    return {static_cast<char*>(raw) + margin, bytes, raw, std::max(mapped, kPage)};
}

void release(const Memory& m) {
    if (m.mapped)
        munmap(m.raw, m.mapped);
    else
        std::free(m.raw);
}

void discard(const Memory& m, size_t offset, size_t bytes) {
    constexpr size_t kPage = 4096;
    const size_t first = (offset + kPage - 1) & ~(kPage - 1), end = (offset + bytes) & ~(kPage - 1);
    const size_t before = std::min(first, offset + bytes);
    std::memset(m.data + offset, 0, before - offset);
    if (first >= end) return std::memset(m.data + before, 0, offset + bytes - before), void();
    (void)madvise(m.data + first, end - first, MADV_DONTNEED);
    std::memset(m.data + end, 0, offset + bytes - end);
}

bool read(void* to, const char* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return true;
}
void write(char* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

void fill(char* to, uint64_t bits, size_t size, size_t count) {
    for (size_t k = 0; k < count; ++k) std::memcpy(to + k * size, &bits, size);
}

void expose(const Memory&) {}

}  // namespace

const Device cpu_device = {
    .name = "cpu",
    .dlpack_type = 1,
    .is_host = true,
    .allocate = allocate,
    .reserve = reserve,
    .release = release,
    .discard = discard,
    .read = read,
    .write = write,
    .fill = fill,
    .expose = expose,
    .share = nullptr,
    .trim = nullptr,
    .launch_begins = nullptr,
    .launch_ends = nullptr,
    .synchronise = nullptr,
    .give_up = nullptr,
    .queues = nullptr,
};

}  // namespace qd::runtime
