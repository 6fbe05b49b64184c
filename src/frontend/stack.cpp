// How much stack a thread has is asked once per thread. What is kept back serves the passes and the
// code generator, which walk what the front end made, with smaller frames.

#include "frontend/stack.h"

#include <pthread.h>

#include <cstdint>

#include "frontend/frontend.h"

namespace qd::frontend {
namespace {

constexpr uintptr_t kReserve = 96 << 10;

uintptr_t lowest_address() {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes)) return 1;
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
    return reinterpret_cast<uintptr_t>(begin) + kReserve;
}

thread_local uintptr_t limit = 0;

}  // namespace

void need_stack() {
    if (!limit) limit = lowest_address();
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (here < limit)
        raise(Kind::compilation, "nested too deeply for the stack of this thread",
              "split it, or give the thread a larger stack with threading.stack_size()");
}

}  // namespace qd::frontend
