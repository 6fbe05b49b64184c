// The thread pool behind parallel tasks.
//
// tickets.h hands out chunks. The caller works too and waits only for chunks that a worker has
// really taken. Idle workers spin briefly, then sleep on a futex (100 spins measured best: longer
// spinning steals the caller's core).
//
// One job runs at a time; a second launching thread runs its own job alone, in its own thread.
// After fork the child has no workers: every pool of the process forgets them and starts new ones.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace qd::runtime {

class Pool {
  public:
    // Runs one chunk on thread `thread` (0: the caller). Must not throw.
    using ChunkFn = void (*)(void* job, int64_t chunk, int thread);

    explicit Pool(int threads);
    ~Pool();
    int threads() const { return threads_.load(std::memory_order_relaxed); }

    // What waking a sleeping worker costs, measured: what takes less is not shared.
    int64_t wake_ns = 4000;

    // How large the stack of a worker is.
    static size_t worker_stack();

    // Runs chunks [first, count) and returns when all are done.
    void run(ChunkFn fn, void* job, int64_t first, int64_t count, int max_threads);

  private:
    struct Shared;    // what workers touch
    struct Registry;  // of live pools, for fork
    void start_workers();
    void forget_workers();  // in a forked child, where this is the only thread

    std::atomic<int> threads_;
    std::unique_ptr<Shared> shared_;
    std::atomic<bool> started_{false};  // `workers_` is filled
    std::vector<std::thread> workers_;  // under the registry's lock
};

}  // namespace qd::runtime
