// See own_thread.h.

#include "support/own_thread.h"

#include <algorithm>
#include <cstddef>

#include "support/stack.h"

namespace qd::support {

bool start_thread(pthread_t& thread, bool detached, void* (*body)(void*), void* data) {
    constexpr size_t kLeast = 8 << 20, kMost = 1 << 30;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return false;
    pthread_attr_setstacksize(&attributes, std::clamp(stack_size(), kLeast, kMost));
    if (detached) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const QuietThreads quiet;
    const bool started = pthread_create(&thread, &attributes, body, data) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

}  // namespace qd::support
