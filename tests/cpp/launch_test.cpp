// Launches of images whose tasks are functions of this file: cutting, reductions, failed checks,
// interruption, output, nesting.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/compile_queue.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/kernel.h"
#include "type/type.h"

namespace qd::runtime {
namespace {

struct Test {  // bound as the first field
    std::vector<std::atomic<int>> seen = std::vector<std::atomic<int>>(100000);
    std::atomic<int> tasks{0}, units{0};
    int64_t fail_at = -1;
    Pool* pool = nullptr;
    const KernelImage* inner = nullptr;
};
Test& test_of(abi::Thread* t) { return *static_cast<Test*>(t->context->bindings[0]); }

void count_units(abi::Thread* t, int64_t begin, int64_t end, int64_t) {
    Test& test = test_of(t);
    for (int64_t u = begin; u < end; ++u) {
        if (u == test.fail_at) t->context->runtime->fail(t, 0, nullptr);
        const int64_t row = u / t->tiles, tile = u % t->tiles;
        const int64_t* b = t->context->bounds;
        if (t->tile == 1 && t->tiles == 1) {
            ++test.seen[static_cast<size_t>(b[0] + u)];
            continue;
        }
        const int64_t extent = b[3] - b[2], last = std::min(extent, (tile + 1) * t->tile);
        for (int64_t i = tile * t->tile; i < last; ++i)
            ++test.seen[static_cast<size_t>(row * extent + i)];
    }
}
void serial(abi::Thread* t, int64_t begin, int64_t end, int64_t chunk) {
    test_of(t).tasks += begin == 0 && end == 1 && chunk == 0;
}
void print_unit(abi::Thread* t, int64_t begin, int64_t end, int64_t) {
    for (int64_t u = begin; u < end; ++u) {
        abi::Cell c{.i = u};
        t->context->runtime->print(t, 1, &c);
    }
}
void sum_units(abi::Thread* t, int64_t begin, int64_t end, int64_t chunk) {
    float sum = 0;
    for (int64_t u = begin; u < end; ++u) sum += 1.0f / static_cast<float>(u + 1);
    reinterpret_cast<float*>(t->context->partials)[chunk * 2] = sum;
}
void sum_partials(abi::Thread* t, int64_t, int64_t chunks, int64_t) {
    float sum = 0;
    for (int64_t c = 0; c < chunks; ++c)
        sum += reinterpret_cast<float*>(t->context->partials)[c * 2];
    *reinterpret_cast<float*>(t->context->results) = sum;
}

struct Fixture {
    KernelImage image;
    std::vector<std::vector<abi::Bound>> bounds;
    Test test;
    LaunchOutcome outcome;
    float result = 0;

    Fixture() {
        support::FormatEntry failed, printed;
        failed.pieces = {{"it failed", 0}};
        failed.sites = {{.file = "a.py", .line = 7}};
        printed.pieces = {{"", '*'}, {"\n", 0}};
        printed.operands = {{static_cast<uint8_t>(type::Prim::i64), 0, 1, 1}};
        image.formats = {failed, printed};
    }
    void add_serial(abi::TaskFn f = serial) {
        image.tasks.push_back({abi::TaskKind::serial, 0, f, nullptr, 0, 0, 0, {}});
    }
    void add_range(std::vector<int64_t> limits, abi::TaskFn f = count_units,
                   abi::TaskFn finish = nullptr) {
        std::vector<abi::Bound> b;
        for (const int64_t v : limits)
            b.push_back({.kind = abi::BoundKind::constant, .bytes = 8, .value = v});
        bounds.push_back(std::move(b));
        image.tasks.push_back({abi::TaskKind::range, static_cast<int>(limits.size() / 2), f, finish,
                               finish ? 8u : 0u, 0, 0, bounds.back()});
    }
    bool run(Pool& pool, LaunchHooks hooks = {}, bool shared = false) {
        void* bindings[] = {&test};
        abi::Context c{};
        c.shared = shared;
        c.bindings = bindings;
        c.results = reinterpret_cast<uint8_t*>(&result);
        outcome = {};
        return launch(image, c, pool, hooks, outcome);
    }
    int64_t total() const {
        int64_t n = 0;
        for (const auto& s : test.seen) n += s == 1 ? 1 : s == 0 ? 0 : 1000000;
        return n;
    }
};

TEST(launch, every_index_once) {
    for (const int threads : {1, 2, 5}) {
        Pool pool(threads);
        for (const std::vector<int64_t>& limits :
             std::vector<std::vector<int64_t>>{{0, 1},
                                               {0, 99999},
                                               {10, 17},
                                               {0, 1, 0, 1000},
                                               {0, 100, 0, 100},
                                               {0, 3, 0, 10001},
                                               {0, 70, 0, 1},
                                               {0, 3, 0, 1, 0, 5000}}) {
            if (limits.size() == 6) continue;  // three dimensions enumerate rows of two
            Fixture f;
            f.add_range(limits);
            EXPECT_FALSE(f.run(pool));
            int64_t n = 1;
            for (size_t k = 0; k < limits.size(); k += 2) n *= limits[k + 1] - limits[k];
            EXPECT_EQ(f.total(), n) << threads << " threads";
        }
    }
}

// Chunk k begins after k blocks at least.
void count_blocks(abi::Thread* t, int64_t begin, int64_t end, int64_t chunk) {
    count_units(t, begin, end, chunk);
    if (begin < chunk * 64) ++test_of(t).tasks;
}

// The same of a loop that is long enough for several threads.
void count_blocks_slowly(abi::Thread* t, int64_t begin, int64_t end, int64_t chunk) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    count_blocks(t, begin, end, chunk);
}

// Whether atomics may be plain.
void is_lone(abi::Thread* t, int64_t, int64_t, int64_t) {
    if (t->alone & abi::kAlone) ++test_of(t).tasks;
}

TEST(launch, other_processes_are_company) {
    Pool pool(1);
    for (const bool shared : {false, true}) {
        Fixture f;
        f.add_range({0, 10}, is_lone, is_lone);
        f.add_serial(is_lone);  // one task, in which the language has no atomics
        f.run(pool, {}, shared);
        EXPECT_EQ(f.test.tasks, shared ? 1 : 3);
    }
}

// The first iteration waits for the last.
void wait_for_last(abi::Thread* t, int64_t begin, int64_t end, int64_t) {
    Test& test = test_of(t);
    const auto end_of_all = t->context->bounds[1];
    if (end == end_of_all) test.tasks = 1;
    if (begin == 0)
        while (!test.tasks) std::this_thread::yield();
}

TEST(launch, who_may_wait_for_others_has_them) {
    Pool pool(2);
    Fixture f;
    f.add_range({0, 1000}, wait_for_last);
    f.image.tasks[0].polls = true;
    EXPECT_FALSE(f.run(pool));
}

TEST(launch, chunks_are_whole_blocks) {
    Pool pool(2);
    for (const int64_t n : {int64_t(128), int64_t(1000), int64_t(4097)}) {
        Fixture f;
        f.add_range({0, n}, count_blocks);
        f.image.tasks[0].block_dim = 64;
        EXPECT_FALSE(f.run(pool));
        EXPECT_EQ(f.total(), n);
        EXPECT_EQ(f.test.tasks, 0);
    }
    Fixture few;  // less than a block for each: every thread gets something all the same
    few.add_range({0, 100}, count_blocks_slowly);
    few.image.tasks[0].block_dim = 64;
    few.run(pool);
    EXPECT_EQ(few.total(), 100);
    EXPECT_GT(few.test.tasks, 0);
}

// What is too short for several threads is one call behind its first chunk, and remembered as such.
TEST(launch, short_loops_are_two_calls) {
    Pool pool(2);
    Fixture f;
    f.add_range({0, 100}, [](abi::Thread* t, int64_t begin, int64_t end, int64_t) {
        auto& test = test_of(t);
        test.units += int(end - begin);
        ++test.tasks;
    });
    const auto calls_of_a_run = [&] {
        f.test.tasks = f.test.units = 0;
        f.run(pool);
        EXPECT_EQ(f.test.units, 100);
        return int(f.test.tasks);
    };
    pool.wake_ns = INT64_MAX;  // how long a loop takes depends on the machine
    calls_of_a_run();
    EXPECT_TRUE(f.image.tasks[0].was_brief);
    EXPECT_EQ(calls_of_a_run(), 2);
    pool.wake_ns = -1;
    EXPECT_GT(calls_of_a_run(), 2);
    EXPECT_FALSE(f.image.tasks[0].was_brief);
}

TEST(launch, empty_ranges) {
    Pool pool(2);
    for (const std::vector<int64_t>& limits : std::vector<std::vector<int64_t>>{
             {0, 0}, {5, 2}, {0, 0, 0, 9}, {0, 9, 4, 4}, {9, 0, 9, 0}}) {
        Fixture f;
        f.add_range(limits);
        f.add_serial();
        EXPECT_FALSE(f.run(pool));
        EXPECT_EQ(f.total(), 0);
        EXPECT_EQ(f.test.tasks, 1);
    }
}

TEST(launch, reductions_do_not_depend_on_threads) {
    float first = 0;
    for (const int threads : {1, 2, 3, 8}) {
        Pool pool(threads);
        Fixture f;
        f.add_range({0, 54321}, sum_units, sum_partials);
        f.run(pool);
        if (!first) first = f.result;
        EXPECT_EQ(f.result, first) << threads;
    }
    Pool pool(2);
    Fixture none;
    none.result = 5;
    none.add_range({3, 3}, sum_units, sum_partials);
    none.run(pool);
    EXPECT_EQ(none.result, 0);
}

TEST(launch, a_failed_check_ends_the_kernel) {
    for (const int threads : {1, 4}) {
        Pool pool(threads);
        for (const int64_t at : {int64_t(0), int64_t(500), int64_t(999)}) {
            Fixture f;
            f.add_range({0, 1000});
            f.add_serial();
            f.test.fail_at = at;
            EXPECT_TRUE(f.run(pool));
            EXPECT_TRUE(f.outcome.failed);
            EXPECT_EQ(f.outcome.failure, "it failed");
            ASSERT_NE(f.outcome.stack, nullptr);
            ASSERT_EQ(f.outcome.stack->size(), 1u);
            EXPECT_EQ(f.outcome.stack->front()->sites[0].line, 7);
            EXPECT_EQ(f.test.tasks, 0);
            f.test.fail_at = -1;
            EXPECT_FALSE(f.run(pool));
            EXPECT_EQ(f.test.tasks, 1);
        }
    }
}

TEST(launch, a_failure_without_text_is_one) {
    Pool pool(1);
    Fixture f;
    f.image.formats[0].pieces.clear();
    f.add_range({0, 10});
    f.test.fail_at = 3;
    EXPECT_TRUE(f.run(pool));
    EXPECT_TRUE(f.outcome.failed);
}

TEST(launch, prints_in_order_on_one_thread) {
    Pool pool(1);
    Fixture f;
    f.add_range({0, 5}, print_unit);
    EXPECT_TRUE(f.run(pool));
    EXPECT_EQ(f.outcome.printed, "0\n1\n2\n3\n4\n");
    Pool many(4);
    Fixture g;
    g.add_range({0, 2000}, print_unit);
    g.run(many);
    EXPECT_EQ(std::count(g.outcome.printed.begin(), g.outcome.printed.end(), '\n'), 2000);
}

void wait_a_while(abi::Thread* t, int64_t, int64_t, int64_t) {
    ++test_of(t).tasks;
    std::this_thread::sleep_for(std::chrono::milliseconds(8));
}

TEST(launch, stops_between_tasks) {
    Pool pool(2);
    Fixture f;
    for (int k = 0; k < 5; ++k) f.add_serial(wait_a_while);
    struct Asked {
        int stops = 0, longs = 0;
    } asked;
    const LaunchHooks hooks{[](void* a) { return ++static_cast<Asked*>(a)->stops == 2; },
                            [](void* a) { ++static_cast<Asked*>(a)->longs; }, &asked};
    EXPECT_TRUE(f.run(pool, hooks));
    EXPECT_TRUE(f.outcome.interrupted);
    EXPECT_EQ(f.test.tasks, 2);
    EXPECT_EQ(asked.stops, 2);
    EXPECT_EQ(asked.longs, 1);
}

TEST(launch, short_tasks_never_ask) {
    Pool pool(2);
    Fixture f;
    for (int k = 0; k < 5; ++k) f.add_serial();
    int asked = 0;
    EXPECT_FALSE(
        f.run(pool, {[](void* n) { return ++*static_cast<int*>(n) > 1000; }, nullptr, &asked}));
    EXPECT_LE(asked, 1);  // a stall of this machine may look like a long task
    EXPECT_EQ(f.test.tasks, 5);
}

void launch_inner(abi::Thread* t, int64_t, int64_t, int64_t) {
    Test& test = test_of(t);
    void* bindings[] = {&test};
    abi::Context c{};
    c.bindings = bindings;
    LaunchOutcome outcome;
    launch(*test.inner, c, *test.pool, {}, outcome);
}

TEST(launch, nests_and_races) {
    Pool pool(3);
    Fixture inner;
    inner.add_serial();
    inner.add_range({0, 3000});
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int round = 0; round < 20; ++round) {
                Fixture f;
                f.test.pool = &pool;
                f.test.inner = &inner.image;
                f.add_serial(launch_inner);
                f.add_range({5000, 6000});
                f.run(pool);
                wrong += f.total() != 4000 || f.test.tasks != 1;
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST(launch, the_callers_float_mode_comes_back) {
    const auto before = float_mode();
    set_float_mode(before & ~kFlushBits);
    Pool pool(2);
    Fixture f;
    f.add_serial([](abi::Thread* t, int64_t, int64_t, int64_t) {
        test_of(t).tasks += (float_mode() & kFlushBits) == kFlushBits;
    });
    f.run(pool);
    EXPECT_EQ(f.test.tasks, 1);
    EXPECT_EQ(float_mode() & kFlushBits, 0u);
    set_float_mode(before);
}

}  // namespace
}  // namespace qd::runtime
