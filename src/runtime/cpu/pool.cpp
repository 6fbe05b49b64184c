// See pool.h.

#include "runtime/cpu/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>

#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/tickets.h"
#include "runtime/fork.h"
#include "support/own_thread.h"

namespace qd::runtime {
namespace {

struct Futexes {
    template <class T>
    using Atomic = std::atomic<T>;
    template <class T>
    using Plain = T;
    static constexpr int kIdleSpins = 100, kCallerSpins = 2000;

    // Sleeps while the word has this value, until a wake whose mask shares a bit.
    static void wait(std::atomic<uint32_t>& word, uint32_t expected, uint32_t mask) {
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET_PRIVATE, expected,
                nullptr, nullptr, mask);
    }
    static void wake(std::atomic<uint32_t>& word, int count, uint32_t mask) {
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_BITSET_PRIVATE, count,
                nullptr, nullptr, mask);
    }
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        asm volatile("yield");
#endif
    }
    static void at_rest() {}
};

}  // namespace

struct Pool::Shared {
    Tickets<Futexes> tickets;
    void work(int thread) {
        const StandardFloats floats;
        tickets.work(thread);
    }
};

// Locked during fork, so that the child finds it whole.
struct Pool::Registry {
    std::mutex lock;
    std::vector<Pool*> pools;

    static Registry& get() {
        static auto* all = new Registry;
        return *all;
    }
    static void forget_workers() {
        for (Pool* p : get().pools) p->forget_workers();
        get().lock.unlock();
    }
    static const bool registered;
};
const bool Pool::Registry::registered = at_fork(
    AtFork::pools, {[] { get().lock.lock(); }, [] { get().lock.unlock(); }, forget_workers});

size_t Pool::worker_stack() {
    static const size_t size = [] {  // glibc's, as the process found it when it began
        pthread_attr_t usual;
        size_t bytes = 0;
        if (pthread_getattr_default_np(&usual)) return bytes;
        pthread_attr_getstacksize(&usual, &bytes);
        pthread_attr_destroy(&usual);
        return bytes;
    }();
    return size;
}

Pool::Pool(int threads)
    : threads_(std::clamp(threads, 1, Tickets<Futexes>::kMostThreads)),
      shared_(std::make_unique<Shared>()) {
    Registry& all = Registry::get();
    std::lock_guard guard(all.lock);
    all.pools.push_back(this);
}

Pool::~Pool() {
    {
        Registry& all = Registry::get();
        std::lock_guard guard(all.lock);
        std::erase(all.pools, this);
    }
    if (workers_.empty()) return;
    shared_->tickets.stop();
    for (std::thread& t : workers_) t.join();
}

// A system without room for more threads gets by with those that it has.
void Pool::start_workers() {
    std::lock_guard guard(Registry::get().lock);
    if (started_.load(std::memory_order_relaxed)) return;
    const support::QuietThreads quiet;
    try {
        for (int t = 1; t < threads(); ++t)
            workers_.emplace_back([s = shared_.get(), t] { s->work(t); });
    } catch (const std::exception&) {  // nor for their records
        threads_ = static_cast<int>(workers_.size()) + 1;
    }
    started_.store(true, std::memory_order_release);
}

// What the parent's threads were using, a lock among it, is leaked: once a fork.
void Pool::forget_workers() {
    if (workers_.empty()) return;
    new (&workers_) std::vector<std::thread>;
    started_ = false;
    new (shared_.get()) Shared;
}

void Pool::run(ChunkFn fn, void* job, int64_t first, int64_t count, int max_threads) {
    const int all = threads();
    const int limit = max_threads > 0 && max_threads < all ? max_threads : all;
    if (limit > 1 && count - first > 1) {
        if (!started_.load(std::memory_order_acquire)) start_workers();
        if (shared_->tickets.run(fn, job, first, count, limit)) return;
    }
    for (int64_t c = first; c < count; ++c) fn(job, c, 0);
}

}  // namespace qd::runtime
