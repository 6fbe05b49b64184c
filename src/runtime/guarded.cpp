// Guarded memory: the CPU as a device whose memory the host must not touch (QD_GUARDED_MEMORY=1).
//
// For tests. Each allocation has pages of its own that nobody may read or write but in calls of
// the device and while kernels run, whatever thread they run on. Host code that takes an address
// for a pointer dies at once, as it would (or worse) with the memory of a GPU.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "runtime/device.h"
#include "runtime/fork.h"

namespace qd::runtime {
namespace {

struct Guard {
    std::mutex lock;
    std::map<uintptr_t, size_t> blocks;  // pages: where they begin, bytes. Not what is exposed
    int launches = 0;                    // that run; all is open then
};
Guard& guard = *new Guard;  // never destroyed: threads may launch while the process ends
thread_local int launches_here = 0;

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

size_t up_to_page(size_t n) { return (n + kPage - 1) & ~(kPage - 1); }

// What fails to be shut goes unguarded.
void set_open(uintptr_t begin, size_t bytes, bool open) {
    (void)mprotect(reinterpret_cast<void*>(begin), bytes,
                   open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void set_all_open(bool open) {
    for (const auto& [begin, bytes] : guard.blocks) set_open(begin, bytes, open);
}

bool is_guarded(uintptr_t at) {
    const auto after = guard.blocks.upper_bound(at);
    return after != guard.blocks.begin() && std::prev(after)->first + std::prev(after)->second > at;
}

// Calls `access` while these bytes, all of one allocation, are open.
template <class Access>
void while_open(const char* at, size_t bytes, Access access) {
    const std::lock_guard hold(guard.lock);
    const uintptr_t begin = reinterpret_cast<uintptr_t>(at) & ~(kPage - 1);
    const size_t pages = up_to_page(reinterpret_cast<uintptr_t>(at) + bytes - begin);
    const bool shut = !guard.launches && is_guarded(begin);
    if (shut) set_open(begin, pages, true);
    access();
    if (shut) set_open(begin, pages, false);
}

Memory allocate(size_t bytes, size_t margin) {
    const size_t pages = up_to_page(bytes + 2 * margin + 1);
    void* raw = mmap(nullptr, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return {};
    const std::lock_guard hold(guard.lock);
    const auto begin = reinterpret_cast<uintptr_t>(raw);
    guard.blocks[begin] = pages;
    if (guard.launches) set_open(begin, pages, true);
    return {static_cast<char*>(raw) + margin, bytes, raw};
}

void release(const Memory& m) {
    const std::lock_guard hold(guard.lock);
    const auto margin = static_cast<size_t>(m.data - static_cast<char*>(m.raw));
    guard.blocks.erase(reinterpret_cast<uintptr_t>(m.raw));
    (void)munmap(m.raw, up_to_page(m.bytes + 2 * margin + 1));
}

void expose(const Memory& m) {
    const std::lock_guard hold(guard.lock);
    const auto block = guard.blocks.find(reinterpret_cast<uintptr_t>(m.raw));
    if (block == guard.blocks.end()) return;
    set_open(block->first, block->second, true);
    guard.blocks.erase(block);
}

bool read(void* to, const char* from, size_t bytes) {
    while_open(from, bytes, [&] { (void)cpu_device.read(to, from, bytes); });
    return true;
}
void write(char* to, const void* from, size_t bytes) {
    while_open(to, bytes, [&] { cpu_device.write(to, from, bytes); });
}
void fill(char* to, uint64_t bits, size_t size, size_t count) {
    while_open(to, size * count, [&] { cpu_device.fill(to, bits, size, count); });
}

void launch_begins() {
    const std::lock_guard hold(guard.lock);
    if (!guard.launches++) set_all_open(true);
    ++launches_here;
}

void launch_ends() {
    const std::lock_guard hold(guard.lock);
    if (!--guard.launches) set_all_open(false);
    --launches_here;
}

void in_forked_child() {  // other threads' launches are not here
    new (&guard.lock) std::mutex;
    if (guard.launches && !launches_here) set_all_open(false);
    guard.launches = launches_here;
}

const bool listed = at_fork(AtFork::guarded_memory, {[] { guard.lock.lock(); },
                                                     [] { guard.lock.unlock(); }, in_forked_child});

}  // namespace

const Device guarded_device = {
    .name = "guarded",
    .dlpack_type = 1,
    .is_host = false,
    .allocate = allocate,
    .reserve = nullptr,
    .release = release,
    .discard = nullptr,
    .read = read,
    .write = write,
    .fill = fill,
    .expose = expose,
    .share = nullptr,
    .trim = nullptr,
    .launch_begins = launch_begins,
    .launch_ends = launch_ends,
    .synchronise = nullptr,
    .give_up = nullptr,
    .queues = nullptr,
};

}  // namespace qd::runtime
