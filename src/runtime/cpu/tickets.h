// How one job's chunks are shared among threads: the protocol of the pool, without its threads.
//
// One word holds how many chunks of the current job nobody has taken, and how many threads may
// take them. Taking one is a compare-and-swap of that word alone; what the job is gets read after
// it. So nothing that was read before can be stale: whoever takes a chunk takes it of the job that
// is there, keeps that job open by it, and finds its fields whole. A word that comes back with the
// same value is as good as the first. The caller ends a job when what others took is done; who took
// nothing touches the word only, never the job, and nobody waits for it.
//
// Idle threads spin briefly, then sleep on `epoch_`. A publisher changes it if it sees a sleeper;
// who goes to sleep says so, and then looks at the word once more. Both pairs of accesses are
// sequentially consistent: one of the two sees the other.
//
// `Machine` brings atomics, sleeping and the length of spins. tests/cpp/tickets_test.cpp brings one
// that runs this very code under every interleaving.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace qd::runtime {

template <class Machine>
class Tickets {
    template <class T>
    using Atomic = typename Machine::template Atomic<T>;
    template <class T>
    using Plain = typename Machine::template Plain<T>;
    using enum std::memory_order;

  public:
    using ChunkFn = void (*)(void* job, int64_t chunk, int thread);
    static constexpr int kMostThreads = (1 << 16) - 1;

    // Runs chunks [first, count) with threads 0 .. limit - 1, as thread 0. False, without a chunk
    // run, while another thread does.
    bool run(ChunkFn fn, void* job, int64_t first, int64_t count, int limit) {
        if (busy_.exchange(true, acquire)) return false;
        for (; first < count; first += kMost)
            run_piece(fn, job, first, std::min(count, first + kMost), limit);
        busy_.store(false, release);
        return true;
    }

    // The life of thread `thread`, until stop().
    void work(int thread) {
        do {
            uint32_t taken = 0;
            for (int64_t left; (left = take(thread)) != 0; ++taken) fn_(job_, end_ - left, thread);
            if (taken && (done_.fetch_add(taken, acq_rel) & kCallerSleeps))
                Machine::wake(done_, 1, ~0u);
            Machine::at_rest();
        } while (idle(thread));
    }

    void stop() {
        stop_.store(true, seq_cst);
        epoch_.fetch_add(1, seq_cst);
        Machine::wake(epoch_, INT32_MAX, ~0u);
    }

  private:
    static constexpr int kLimitShift = 48;
    static constexpr uint64_t kLeft = (uint64_t(1) << kLimitShift) - 1;
    static constexpr uint32_t kCallerSleeps = uint32_t(1) << 31;
    static constexpr int64_t kMost = kCallerSleeps - 1;  // chunks that `done_` can count

    static bool may_take(uint64_t word, int thread) {
        return (word & kLeft) != 0 && thread < static_cast<int>(word >> kLimitShift);
    }

    // Takes a chunk: the last but `left` ones. 0: there is none.
    int64_t take(int thread) {
        uint64_t word = word_.load(relaxed);
        while (may_take(word, thread))
            if (word_.compare_exchange_weak(word, word - 1, acquire, relaxed))
                return static_cast<int64_t>(word & kLeft);
        return 0;
    }

    // Sleepers are told apart by a bit, so that none is woken that may not take anything.
    static uint32_t bit_of(int thread) { return uint32_t(1) << (thread % 32); }
    static uint32_t bits_below(int limit) {
        return limit >= 32 ? ~uint32_t(0) : (uint32_t(1) << limit) - 1;
    }

    // Waits until there may be a chunk. False when the pool ends.
    bool idle(int thread) {
        for (int spin = 0; spin < Machine::kIdleSpins; ++spin) {
            if (may_take(word_.load(relaxed), thread)) return true;
            Machine::pause();
        }
        sleepers_.fetch_add(1, seq_cst);
        const uint32_t epoch = epoch_.load(seq_cst);
        const bool stopped = stop_.load(seq_cst);
        if (!stopped && !may_take(word_.load(seq_cst), thread))
            Machine::wait(epoch_, epoch, bit_of(thread));
        sleepers_.fetch_sub(1, relaxed);
        return !stopped;
    }

    void run_piece(ChunkFn fn, void* job, int64_t first, int64_t end, int limit) {
        fn_ = fn;
        job_ = job;
        end_ = end;
        done_.store(0, relaxed);
        const auto chunks = static_cast<uint64_t>(end - first);
        word_.store(uint64_t(limit) << kLimitShift | chunks, seq_cst);
        if (sleepers_.load(seq_cst) > 0) {
            epoch_.fetch_add(1, seq_cst);
            const auto useful = std::min<uint64_t>(chunks, static_cast<uint64_t>(limit)) - 1;
            Machine::wake(epoch_, static_cast<int>(useful), bits_below(limit));
        }
        uint32_t mine = 0;
        for (int64_t left; (left = take(0)) != 0; ++mine) fn(job, end - left, 0);
        wait_for(static_cast<uint32_t>(chunks) - mine);
    }

    // Every chunk is taken; `others` of them by other threads.
    void wait_for(uint32_t others) {
        for (int spin = 0;; ++spin) {
            uint32_t done = done_.load(acquire);
            if ((done & ~kCallerSleeps) == others) return;
            if (spin < Machine::kCallerSpins) {
                Machine::pause();
            } else if (done & kCallerSleeps) {
                Machine::wait(done_, done, ~0u);
            } else {
                done_.compare_exchange_weak(done, done | kCallerSleeps, relaxed, relaxed);
            }
        }
    }

    alignas(64) Atomic<uint64_t> word_{0};  // limit << 48 | chunks left
    // Of the job; written while no chunk of any is taken, read by who took one.
    Plain<ChunkFn> fn_{nullptr};
    Plain<void*> job_{nullptr};
    Plain<int64_t> end_{0};
    alignas(64) Atomic<uint32_t> epoch_{0};  // futex of idle threads
    Atomic<int32_t> sleepers_{0};            // threads that sleep or are about to
    Atomic<bool> stop_{false};
    alignas(64) Atomic<uint32_t> done_{0};  // chunks that others finished; futex of the caller
    Atomic<bool> busy_{false};              // a job is running
};

}  // namespace qd::runtime
