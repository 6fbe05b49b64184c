// See parallel.h.

#include "compiler/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "support/own_thread.h"
#include "support/stack.h"

namespace qd::compiler {
namespace {

struct Work {
    std::atomic<size_t> next{0};
    size_t count;
    bool (*body)(void* data, size_t k);
    void* data;

    void run() {
        for (size_t k; (k = next++) < count;)
            if (!body(data, k)) next = count;
    }
};

bool start(Work& work, pthread_t& thread) {
    constexpr size_t kLeast = 8 << 20, kMost = 1 << 30;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return false;
    pthread_attr_setstacksize(&attributes, std::clamp(support::stack_size(), kLeast, kMost));
    const support::QuietThreads quiet;
    const auto run = [](void* data) -> void* {
        static_cast<Work*>(data)->run();
        return nullptr;
    };
    const bool started = pthread_create(&thread, &attributes, run, &work) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

}  // namespace

void for_each(size_t count, int threads, bool (*body)(void*, size_t), void* data) {
    Work work{{}, count, body, data};
    constexpr size_t kMost = 64;
    pthread_t others[kMost];
    const size_t wanted = std::min({count, size_t(std::max(threads, 1)), kMost});
    size_t started = 0;
    while (started + 1 < wanted && start(work, others[started])) ++started;
    work.run();
    for (size_t k = 0; k < started; ++k) pthread_join(others[k], nullptr);
}

}  // namespace qd::compiler
