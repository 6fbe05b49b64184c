// The pool's protocol under every interleaving: each chunk of each job runs once, while its job is
// there; nobody sleeps for ever; a job's fields are never read while they are written.

#include "runtime/cpu/tickets.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "explore.h"

namespace qd::runtime {
namespace {

using explore::Explorer;
using explore::now;
using explore::Tally;

struct Explored {
    template <class T>
    using Atomic = explore::Atomic<T>;
    template <class T>
    using Plain = explore::Plain<T>;
    static constexpr int kIdleSpins = 0, kCallerSpins = 0;
    static void wait(Atomic<uint32_t>& word, uint32_t expected, uint32_t mask) {
        now->wait(word.location(), expected, mask);
    }
    static void wake(Atomic<uint32_t>& word, int count, uint32_t mask) {
        now->wake(word.location(), count, mask);
    }
    static void pause() {}
    static void at_rest() { now->at_rest(1); }
};

struct Spec {  // of a job
    int64_t first, count;
    int limit;
    bool together = false;  // its chunks wait for each other: the workers must come
};

constexpr int64_t kMostChunks = 6;

struct Job {  // as much of it as a chunk needs; a dead one stands for a dead stack frame
    int64_t first = 0, count = 0;
    int limit = 0;
    bool together = false;
    explore::Atomic<uint32_t> met{0};
    Tally alive, ran[kMostChunks], by[4];

    static void chunk(void* self, int64_t chunk, int thread) {
        auto& j = *static_cast<Job*>(self);
        // All that its thread knows: which chunk this is, and how many it has taken.
        const uint64_t taken = ++j.by[thread];
        now->at_rest(reinterpret_cast<uint64_t>(self) + uint64_t(chunk) * 64 + taken * 8 +
                     uint64_t(thread));
        if (j.together) j.meet();
        now->step();  // it takes its time
        now->check(j.alive.get() != 0, "a chunk runs after its job's end");
        now->check(j.first <= chunk && chunk < j.count, "a chunk that the job does not have");
        now->check(thread < j.limit, "a thread above the limit");
        now->check(++j.ran[chunk] == 1, "a chunk runs twice");
    }
    void meet() {
        const auto all = static_cast<uint32_t>(count - first);
        if (met.fetch_add(1) + 1 == all) return now->wake(met.location(), 100, 1);
        for (uint32_t here; (here = met.load()) != all;) now->wait(met.location(), here, 1);
    }
};

struct World {
    Tickets<Explored> tickets;
    Job jobs[3];
    Tally callers;

    void launch(Job& j) {
        j.alive.set(1);
        if (!tickets.run(Job::chunk, &j, j.first, j.count, j.limit))
            for (int64_t c = j.first; c < j.count; ++c) Job::chunk(&j, c, 0);
        for (int64_t c = j.first; c < j.count; ++c)
            now->check(j.ran[c].get() == 1, "a chunk did not run");
        j.alive.set(0);
        for (Tally& t : j.ran) t.set(0);  // states that differ in the past only are one
        for (Tally& t : j.by) t.set(0);
    }
};

// `callers`: the jobs that each launching thread launches, one after the other; the last of them
// to be ready ends the pool.
void explore_jobs(const std::vector<std::vector<Spec>>& callers, int workers,
                  int preemptions = explore::kAnyNumber) {
    alignas(World) static char place[sizeof(World)];  // one address in every run
    auto explorer = std::make_unique<Explorer>();
    explorer->preemptions = preemptions;
    const std::string failure = explorer->explore([&] {
        auto* w = new (place) World;
        size_t n = 0;
        for (const auto& specs : callers)
            for (const Spec& s : specs) {
                w->jobs[n].first = s.first;
                w->jobs[n].count = s.count;
                w->jobs[n].together = s.together;
                w->jobs[n++].limit = s.limit;
            }
        Explorer::Program program;
        size_t next = 0;
        for (const auto& specs : callers) {
            program.threads.push_back(
                [w, begin = next, end = next + specs.size(), all = callers.size()] {
                    for (size_t k = begin; k < end; ++k) {
                        w->launch(w->jobs[k]);
                        now->at_rest(2 + k);
                    }
                    if (++w->callers == all) w->tickets.stop();
                });
            next += specs.size();
        }
        for (int t = 1; t <= workers; ++t)
            program.threads.push_back([w, t] { w->tickets.work(t); });
        return program;
    });
    EXPECT_EQ(failure, "");
    EXPECT_GT(explorer->states, 1000u);
}

// A job with more chunks after one with fewer is what a late worker could mistake.
TEST(tickets, one_worker_growing_jobs) { explore_jobs({{{0, 2, 2}, {0, 3, 2}, {1, 4, 2}}}, 1); }

TEST(tickets, one_worker_shrinking_jobs) { explore_jobs({{{0, 4, 2}, {1, 3, 2}}}, 1); }

TEST(tickets, two_launching_threads) { explore_jobs({{{0, 2, 2}}, {{0, 3, 2}}}, 1); }

TEST(tickets, two_workers) { explore_jobs({{{0, 2, 3}}}, 2); }

TEST(tickets, two_workers_two_jobs) { explore_jobs({{{0, 2, 3}, {0, 3, 3}}}, 2, 2); }

TEST(tickets, limits_between_jobs) { explore_jobs({{{0, 3, 2}, {1, 3, 3}, {0, 2, 2}}}, 2, 2); }

TEST(tickets, workers_are_woken) {
    explore_jobs({{{0, 2, 2, true}, {0, 2, 2, true}}}, 1);
    explore_jobs({{{0, 2, 2, true}, {0, 2, 2, true}}}, 2, 2);
    explore_jobs({{{0, 3, 3, true}, {0, 2, 2, true}}}, 2, 2);
}

// --- the explorer itself finds what it is for ---------------------------------------------------
using explore::Atomic;
using explore::Plain;

template <class W>
std::string explore_two(void (*first)(W&), void (*second)(W&), void (*end)(W&) = nullptr) {
    alignas(W) static char place[sizeof(W)];
    auto explorer = std::make_unique<Explorer>();
    return explorer->explore([&] {
        auto* w = new (place) W;
        return Explorer::Program{{[=] { first(*w); }, [=] { second(*w); }}, [=] {
                                     if (end) end(*w);
                                 }};
    });
}

struct Flags {
    Atomic<int> a{0}, b{0};
    Tally none;
    template <std::memory_order O>
    static std::string look() {
        const auto side = [](Flags& w, Atomic<int>& mine, Atomic<int>& other) {
            mine.store(1, O);
            if (!other.load(O)) ++w.none;
            now->check(w.none.get() < 2, "neither saw the other");
        };
        static const auto shared = side;
        return explore_two<Flags>([](Flags& w) { shared(w, w.a, w.b); },
                                  [](Flags& w) { shared(w, w.b, w.a); });
    }
};

TEST(explorer, stores_are_seen_late_unless_sequentially_consistent) {
    EXPECT_NE(Flags::look<std::memory_order_relaxed>(), "");
    EXPECT_EQ(Flags::look<std::memory_order_seq_cst>(), "");
}

struct Message {
    Plain<int> text{0};
    Atomic<int> sent{0};
    template <std::memory_order Store, std::memory_order Load>
    static std::string send() {
        return explore_two<Message>(
            [](Message& m) {
                m.text = 7;
                m.sent.store(1, Store);
            },
            [](Message& m) {
                if (m.sent.load(Load)) now->check(m.text == 7, "old");
            });
    }
};

TEST(explorer, races_are_found) {
    using enum std::memory_order;
    EXPECT_EQ((Message::send<release, acquire>()), "");
    EXPECT_NE((Message::send<relaxed, acquire>()), "");
    EXPECT_NE((Message::send<release, relaxed>()), "");
}

struct Bed {
    Atomic<uint32_t> word{0};
};

TEST(explorer, lost_wakes_are_found) {
    const auto sleep = [](Bed& b) { now->wait(b.word.location(), 0, 1); };
    EXPECT_EQ(explore_two<Bed>(sleep,
                               [](Bed& b) {
                                   b.word.store(1);
                                   now->wake(b.word.location(), 1, 1);
                               }),
              "");
    EXPECT_NE(explore_two<Bed>(sleep, [](Bed& b) { now->wake(b.word.location(), 1, 1); }), "");
}

}  // namespace
}  // namespace qd::runtime
