// See parallel.h.

#include "compiler/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "support/own_thread.h"

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
    const auto run = [](void* data) -> void* {
        static_cast<Work*>(data)->run();
        return nullptr;
    };
    return support::start_thread(thread, false, run, &work);
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
