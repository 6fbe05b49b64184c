// What the run time's protocols are made from: threads.h for the process's own threads, and
// tests/cpp/explore.h for threads whose every interleaving is tried.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace qd::runtime {

struct Threads {
    template <class T>
    using Atomic = std::atomic<T>;
    template <class T>
    using Plain = T;
    template <class T>
    using List = std::vector<T>;
    using Mutex = std::mutex;
    using Condition = std::condition_variable;
    using Clock = std::chrono::steady_clock;

    static int64_t now_ns() {
        return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
    }
    static void wait_until(Condition& condition, std::unique_lock<Mutex>& lock, int64_t ns) {
        condition.wait_until(lock, Clock::time_point(std::chrono::nanoseconds(ns)));
    }
};

}  // namespace qd::runtime
