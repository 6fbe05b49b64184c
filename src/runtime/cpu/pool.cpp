// See pool.h.

#include "runtime/cpu/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <system_error>

#include "runtime/cpu/float_mode.h"

namespace qd::runtime {
namespace {

constexpr int kSpins = 100;

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
            nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word, int count) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr,
            nullptr, 0);
}
void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

}  // namespace

// Fields of the current job may be read while the next one is being written: a worker that read a
// mixture holds an old generation, so its claim fails.
struct Pool::Shared {
    alignas(64) std::atomic<uint64_t> ticket{0};      // generation << 40 | next chunk
    alignas(64) std::atomic<uint32_t> generation{0};  // futex: sleeping workers wait for a change
    std::atomic<int32_t> sleepers{0};
    std::atomic<ChunkFn> fn{nullptr};
    std::atomic<void*> job{nullptr};
    std::atomic<int64_t> count{0};
    std::atomic<int32_t> max_threads{0};
    alignas(64) std::atomic<uint32_t> done{0};  // chunks finished; futex for the caller
    std::atomic<bool> caller_sleeps{false};
    std::atomic<bool> stop{false};

    static constexpr int kShift = 40;
    static constexpr uint64_t kMask = (uint64_t(1) << kShift) - 1;

    // Takes the next chunk of generation g; -1 if there is none.
    int64_t claim(uint64_t g, int64_t count) {
        uint64_t t = ticket.load(std::memory_order_acquire);
        for (;;) {
            if (t >> kShift != (g & 0xffffff)) return -1;
            const auto chunk = static_cast<int64_t>(t & kMask);
            if (chunk >= count) return -1;
            if (ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel)) return chunk;
        }
    }

    void work(int thread) {
        FlushDenormals flush;
        uint32_t seen = 0;
        for (;;) {
            uint32_t g = generation.load(std::memory_order_acquire);
            for (int spin = 0; g == seen && spin < kSpins; ++spin) {
                pause();
                g = generation.load(std::memory_order_acquire);
            }
            while (g == seen) {
                sleepers.fetch_add(1);
                futex_wait(generation, seen);
                sleepers.fetch_sub(1);
                g = generation.load(std::memory_order_acquire);
            }
            if (stop.load(std::memory_order_relaxed)) return;
            seen = g;
            const ChunkFn f = fn.load(std::memory_order_relaxed);
            void* const j = job.load(std::memory_order_relaxed);
            const int64_t n = count.load(std::memory_order_relaxed);
            if (thread >= max_threads.load(std::memory_order_relaxed)) continue;
            for (int64_t chunk; (chunk = claim(g, n)) >= 0;) {
                f(j, chunk, thread);
                done.fetch_add(1, std::memory_order_seq_cst);
                if (caller_sleeps.load(std::memory_order_seq_cst)) futex_wake(done, 1);
            }
        }
    }
};

// Locked during fork, so that the child finds it whole.
struct Pool::Registry {
    std::mutex lock;
    std::vector<Pool*> pools;

    static Registry& get() {
        static auto* all = [] {
            pthread_atfork([] { get().lock.lock(); }, [] { get().lock.unlock(); },
                           [] {
                               for (Pool* p : get().pools) p->forget_workers();
                               get().lock.unlock();
                           });
            return new Registry;
        }();
        return *all;
    }
};

Pool::Pool(int threads)
    : threads_(threads < 1 ? 1 : threads),
      busy_(std::make_unique<std::mutex>()),
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
    shared_->stop.store(true);
    shared_->generation.fetch_add(1);
    futex_wake(shared_->generation, INT_MAX);
    for (std::thread& t : workers_) t.join();
}

// A system without room for more threads gets by with those that it has.
void Pool::start_workers() {
    if (!workers_.empty()) return;
    try {
        for (int t = 1; t < threads_; ++t)
            workers_.emplace_back([s = shared_.get(), t] { s->work(t); });
    } catch (const std::system_error&) {
        if (workers_.empty()) threads_ = 1;
    }
}

// What the parent's threads were using, a lock among it, is leaked: once a fork.
void Pool::forget_workers() {
    (void)atomics_.release();  // another thread may have held it
    atomics_ = std::make_unique<std::recursive_mutex>();
    if (workers_.empty()) return;
    (void)new std::vector<std::thread>(std::move(workers_));
    workers_.clear();
    (void)shared_.release();
    (void)busy_.release();
    shared_ = std::make_unique<Shared>();
    busy_ = std::make_unique<std::mutex>();
}

void Pool::run(ChunkFn fn, void* job, int64_t first, int64_t count, int max_threads) {
    const int limit = max_threads > 0 && max_threads < threads_ ? max_threads : threads_;
    std::unique_lock lock(*busy_, std::try_to_lock);
    if (limit == 1 || count - first < 2 || !lock.owns_lock()) {
        for (int64_t c = first; c < count; ++c) fn(job, c, 0);
        return;
    }
    start_workers();
    Shared& s = *shared_;
    const uint32_t g = s.generation.load(std::memory_order_relaxed) + 1;
    s.fn.store(fn, std::memory_order_relaxed);
    s.job.store(job, std::memory_order_relaxed);
    s.count.store(count, std::memory_order_relaxed);
    s.max_threads.store(limit, std::memory_order_relaxed);
    s.done.store(0, std::memory_order_relaxed);
    s.ticket.store(uint64_t(g & 0xffffff) << Shared::kShift | static_cast<uint64_t>(first),
                   std::memory_order_release);
    s.generation.store(g, std::memory_order_seq_cst);
    if (s.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake(s.generation, limit - 1);

    uint32_t mine = 0;
    for (int64_t chunk; (chunk = s.claim(g, count)) >= 0; ++mine) fn(job, chunk, 0);
    // Every chunk is claimed; wait for those that workers took.
    const auto others = static_cast<uint32_t>(count - first) - mine;
    for (int spin = 0;;) {
        const uint32_t finished = s.done.load(std::memory_order_acquire);
        if (finished == others) break;
        if (++spin < 2000) {
            pause();
        } else {
            s.caller_sleeps.store(true, std::memory_order_seq_cst);
            futex_wait(s.done, finished);
        }
    }
    s.caller_sleeps.store(false, std::memory_order_relaxed);
}

}  // namespace qd::runtime
