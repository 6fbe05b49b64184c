#include "support/stack.h"

#include <pthread.h>

#include <cstddef>

namespace qd::support {
namespace {

uintptr_t lowest_address() {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes)) return 1;
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
    return reinterpret_cast<uintptr_t>(begin);
}

}  // namespace

uintptr_t stack_end() {
    static thread_local uintptr_t end = 0;
    if (!end) end = lowest_address();
    return end;
}

}  // namespace qd::support
