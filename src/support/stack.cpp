#include "support/stack.h"

#include <pthread.h>

namespace qd::support {
namespace {

struct Extent {
    void* begin = reinterpret_cast<void*>(1);
    size_t size = 0;
};

Extent extent() {
    Extent e;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes)) return e;
    pthread_attr_getstack(&attributes, &e.begin, &e.size);
    pthread_attr_destroy(&attributes);
    return e;
}

}  // namespace

uintptr_t stack_end() {
    static thread_local uintptr_t end = 0;
    if (!end) end = reinterpret_cast<uintptr_t>(extent().begin);
    return end;
}

bool has_stack(size_t bytes) {
    return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) > stack_end() + bytes;
}

size_t stack_size() { return extent().size; }

}  // namespace qd::support
