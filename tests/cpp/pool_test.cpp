// The thread pool: every chunk runs exactly once, whoever runs it, however launches nest, race or
// fork.

#include "runtime/cpu/pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace qd::runtime {
namespace {

struct Counts {
    std::vector<std::atomic<int>> ran;
    std::array<std::atomic<int64_t>, 64> by_thread{};
    explicit Counts(size_t n) : ran(n) {}
    static void chunk(void* self, int64_t chunk, int thread) {
        auto& c = *static_cast<Counts*>(self);
        ++c.ran[static_cast<size_t>(chunk)];
        ++c.by_thread[static_cast<size_t>(thread)];
    }
    bool all_from(size_t first) const {
        for (size_t k = 0; k < ran.size(); ++k)
            if (ran[k] != (k >= first)) return false;
        return true;
    }
};

TEST(pool, runs_every_chunk_once) {
    for (const int threads : {1, 2, 3, 8}) {
        Pool pool(threads);
        for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
            for (const int64_t first : {int64_t(0), int64_t(1), count}) {
                if (first > count) continue;
                Counts c(static_cast<size_t>(count));
                pool.run(Counts::chunk, &c, first, count, 0);
                EXPECT_TRUE(c.all_from(static_cast<size_t>(first))) << threads << " " << count;
            }
        }
    }
}

TEST(pool, thread_numbers_stay_below_the_limit) {
    Pool pool(4);
    for (int limit = 1; limit <= 4; ++limit) {
        Counts c(500);
        for (int round = 0; round < 20; ++round) pool.run(Counts::chunk, &c, 0, 500, limit);
        for (size_t t = static_cast<size_t>(limit); t < c.by_thread.size(); ++t)
            EXPECT_EQ(c.by_thread[t], 0) << "limit " << limit << " thread " << t;
    }
}

TEST(pool, senseless_sizes) {
    Pool none(0), negative(-3);
    EXPECT_EQ(none.threads(), 1);
    EXPECT_EQ(negative.threads(), 1);
    Counts c(5);
    none.run(Counts::chunk, &c, 0, 5, 100);
    EXPECT_TRUE(c.all_from(0));
}

TEST(pool, many_small_jobs) {
    Pool pool(3);
    for (int job = 0; job < 100000; ++job) {
        std::atomic<int> sum{0};
        pool.run([](void* s, int64_t k, int) { *static_cast<std::atomic<int>*>(s) += int(k) + 1; },
                 &sum, 0, 4, 0);
        ASSERT_EQ(sum, 10);
    }
}

// Jobs of all sizes and limits, by several threads, each job on a stack frame that is soon
// another's. (Every interleaving of the protocol itself: tickets_test.cpp.)
TEST(pool, jobs_of_varied_sizes) {
    struct Job {
        uint64_t begin = 0x1234;  // what a late worker would find in a dead frame is another
        std::atomic<int> ran[70]{};
        std::atomic<int> strange{0};
        int64_t count;
        int limit;
        static void chunk(void* self, int64_t chunk, int thread) {
            auto& j = *static_cast<Job*>(self);
            if (j.begin != 0x1234 || chunk >= j.count || thread >= j.limit) ++j.strange;
            ++j.ran[chunk];
            if ((chunk & 7) == 3) std::this_thread::yield();
        }
    };
    const auto launch = [](Pool& pool, uint32_t draw) {
        Job j;
        j.count = draw % 5 == 0 ? 64 : 2 + draw % 13;
        j.limit = 2 + static_cast<int>(draw / 16 % 3);
        const int64_t first = draw / 64 % 2;
        pool.run(Job::chunk, &j, first, j.count, j.limit);
        bool good = j.strange == 0;
        for (int64_t c = 0; c < 70; ++c) good &= j.ran[c] == (first <= c && c < j.count);
        j.begin = 0;
        return good;
    };
    for (const int callers : {1, 2, 3}) {
        Pool pool(4);
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < callers; ++t)
            threads.emplace_back([&, t] {
                uint32_t draw = 1 + static_cast<uint32_t>(t);
                const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
                while (std::chrono::steady_clock::now() < end) {
                    wrong += !launch(pool, draw >> 8);
                    draw = draw * 1664525 + 1013904223;
                }
            });
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(wrong, 0) << callers;
    }
}

struct Nested {
    Pool* pool;
    std::atomic<int> leaves{0};
    static void leaf(void* self, int64_t, int) { ++static_cast<Nested*>(self)->leaves; }
    static void branch(void* self, int64_t, int) {
        auto& n = *static_cast<Nested*>(self);
        n.pool->run(leaf, self, 0, 10, 0);
    }
};

TEST(pool, launches_nest_and_race) {
    Pool pool(3);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
        callers.emplace_back([&] {
            for (int round = 0; round < 300; ++round) {
                Nested n{&pool};
                pool.run(Nested::branch, &n, 0, 10, 0);
                wrong += n.leaves != 100;
            }
        });
    for (std::thread& t : callers) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST(pool, comes_and_goes) {
    for (int round = 0; round < 200; ++round) {
        Pool pool(3);
        Counts c(20);
        if (round % 2) pool.run(Counts::chunk, &c, 0, 20, 0);
    }
}

// The child uses the pool, makes another, and ends both; the parent's works on.
TEST(pool, fork) {
    Pool pool(3);
    Counts before(50);
    pool.run(Counts::chunk, &before, 0, 50, 0);
    for (int round = 0; round < 3; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            Counts inside(200), other(200);
            pool.run(Counts::chunk, &inside, 0, 200, 0);
            {
                Pool second(2);
                second.run(Counts::chunk, &other, 0, 200, 0);
            }
            _exit(inside.all_from(0) && other.all_from(0) ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    Counts after(50);
    pool.run(Counts::chunk, &after, 0, 50, 0);
    EXPECT_TRUE(after.all_from(0));
}

// A fork in the middle of another thread's job: the lock that it holds is not the child's.
TEST(pool, fork_while_busy) {
    Pool pool(3);
    std::atomic<bool> stop{false}, started{false};
    std::thread worker([&] {
        while (!stop) {
            Counts c(100);
            pool.run(Counts::chunk, &c, 0, 100, 0);
            started = true;
        }
    });
    while (!started) std::this_thread::yield();
    for (int round = 0; round < 5; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            Counts c(100);
            pool.run(Counts::chunk, &c, 0, 100, 0);
            _exit(c.all_from(0) ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = true;
    worker.join();
}

}  // namespace
}  // namespace qd::runtime
