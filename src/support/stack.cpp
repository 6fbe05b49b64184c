#include "support/stack.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace qd::support {
namespace {

struct Extent {
    void* begin = reinterpret_cast<void*>(1);
    size_t size = 0;
};

// Of the main thread. glibc reads /proc/self/maps for it, half of what a warm first call may take.
// The stack begins behind the program's name, a word of zeros between, and may grow to its limit:
// the kernel keeps that free. The dynamic loader, started by name, gives another name, farther in.
bool find_main_stack(Extent& e) {
    constexpr size_t kUsual = 8 << 20;  // a limit that was raised later is not kept free
    const auto* name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    rlimit limit;
    if (!name || getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur > kUsual) return false;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const char* behind = name + std::strlen(name) + 1;
    const uintptr_t top = reinterpret_cast<uintptr_t>(behind) + sizeof(void*);
    void* word;
    if (top % page != 0 || (std::memcpy(&word, behind, sizeof word), word)) return false;
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (here >= top || here < top - limit.rlim_cur) return false;  // on another thread's
    e.begin = reinterpret_cast<void*>(top - limit.rlim_cur);
    e.size = limit.rlim_cur;
    return true;
}

Extent extent() {
    Extent e;
    if (find_main_stack(e)) return e;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes)) return e;
    pthread_attr_getstack(&attributes, &e.begin, &e.size);
    pthread_attr_destroy(&attributes);
    return e;
}

// Of the calling thread: where it ends, and the limit under which that was found out.
struct End {
    uintptr_t address = 0;
    rlim_t limit = 0;
    size_t size = 0;
};
thread_local End end;

}  // namespace

bool see_stack_limit() {
    rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || (end.address && limit.rlim_cur == end.limit))
        return false;
    const Extent e = extent();
    end = {reinterpret_cast<uintptr_t>(e.begin), limit.rlim_cur, e.size};
    return true;
}

uintptr_t stack_end() {
    if (!end.address) see_stack_limit();
    return end.address ? end.address : 1;
}

bool has_stack(size_t bytes) {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    return here > stack_end() + bytes || (see_stack_limit() && here > stack_end() + bytes);
}

bool has_stack_beside(size_t bytes, size_t reserve) {
    (void)stack_end();
    return has_stack(bytes + (end.size ? std::min(reserve, end.size / 4) : reserve));
}

size_t stack_left() {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    return stack_end() > 1 && here > stack_end() ? here - stack_end() : 0;
}

size_t stack_size() { return extent().size; }

}  // namespace qd::support
