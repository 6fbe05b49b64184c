// The compile queue's protocol and fork's under every interleaving: nothing asked for is lost or
// compiled twice, nobody waits for ever, a launch that turns out long is optimised before it ends,
// a module is whole wherever somebody may compile it, and a forked child has all that again. What
// leaves out a lock, a notice or a handler is found.

#include "runtime/queue_protocol.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "explore.h"
#include "runtime/fork_gate.h"

namespace qd::runtime {
namespace {

using explore::Explorer;
using explore::now;
using explore::Tally;

enum class Fault { none, no_lock, no_notice, two_steps, module_dropped_early };

// What is wrong: a lock that everybody gets, notices that nobody hears, and an exchange in
// two steps, a module that is given up outside of the lock.
template <Fault F>
class Mutex : public explore::Mutex {
  public:
    void lock() {
        if (F != Fault::no_lock) explore::Mutex::lock();
    }
    void unlock() {
        if (F != Fault::no_lock) explore::Mutex::unlock();
    }
};
template <Fault F>
struct Condition : explore::Condition {
    template <class L>
    void wait(L& lock) {
        wait_until(lock, explore::kNever);
    }
    template <class L>
    void wait_until(L& lock, int64_t deadline) {
        if (F == Fault::no_lock) return now->wait(location(), 0, ~0u);
        now->wait_for_notice(location(), lock.mutex()->location(), deadline);
    }
    void notify_all() {
        if (F != Fault::no_notice) explore::Condition::notify_all();
    }
};
template <class T, Fault F>
struct Atomic : explore::Atomic<T> {
    using explore::Atomic<T>::Atomic;
    using explore::Atomic<T>::operator=;
    T exchange(T v) {
        if (F != Fault::two_steps) return explore::Atomic<T>::exchange(v);
        const T old = this->load();
        return this->store(v), old;
    }
};

template <Fault F>
struct Explored {
    template <class T>
    using Atomic = qd::runtime::Atomic<T, F>;
    template <class T>
    using Plain = explore::Plain<T>;
    template <class T>
    using List = explore::List<T>;
    using Mutex = qd::runtime::Mutex<F>;
    using Condition = qd::runtime::Condition<F>;
    static int64_t now_ns() { return now->time(); }
    static void wait_until(Condition& c, std::unique_lock<Mutex>& lock, int64_t ns) {
        c.wait_until(lock, ns);
    }
};

// What a slot's module is about to be: its compilation reads it, and may be left in the middle.
struct Act {  // of a launching thread
    enum What { run, run_until_better, optimise, compile, finish, finish_all_asked, drop, stop };
    What what;
    size_t slot = 0;
    int64_t took = 0;  // the launch
};
constexpr int64_t kPatience = 2, kForEver = 100;
constexpr size_t kNewborn = 3;  // the thread of a child's queue
constexpr Act kLong{Act::run, 0, kPatience}, kShort{Act::run, 0, 0},
    kEndless{Act::run_until_better};

template <Fault F>
struct Machine : Explored<F> {
    using Queue = QueueProtocol<Machine>;
    static constexpr int kMostThreads = 3;
    static inline int most = 2;                // one for each line
    static inline bool third_started = false;  // in some run
    static int most_threads() { return most; }

    struct World;
    struct ModelSlot {
        Progress<Machine> progress;
        explore::Plain<int> module{1};
        explore::Atomic<uint32_t> settled{0};
        Tally compiling, compiled;
        World* world;
    };
    using Slot = ModelSlot*;
    struct World {
        Queue queue;
        ForkGate<Explored<F>> gate;
        ModelSlot slots[2];
        explore::Atomic<uint32_t> born[3] = {0, 0, 0}, died[3] = {0, 0, 0};
        Tally launchers, in_child, out_of_patience;
        int64_t room_for_threads = 2;
        World() {
            for (ModelSlot& s : slots) {
                s.world = this;
                s.progress.patience_ns = kPatience;
                s.progress.optimise_us = 1;
                s.progress.state.begin_with(Improving::waiting);
            }
        }

        // A thread of the queue; those that never start end with the program.
        void worker(size_t thread, size_t life) {
            for (uint32_t b; (b = born[life].load()) != 1;) {
                if (b == 2) return;
                now->wait(born[life].location(), 0, 1);
            }
            queue.work(int(thread));
            died[life].store(1);
            now->wake(died[life].location(), 100, 1);
        }
        void act(const Act& a) {
            Slot s = &slots[a.slot];
            switch (a.what) {
                case Act::run: {
                    const bool counted = queue.run_begins(s, now->time());
                    now->step();
                    if (counted) queue.run_ends(s, a.took);
                    break;
                }
                case Act::run_until_better: {  // its end is not in sight
                    const bool counted = queue.run_begins(s, now->time());
                    while (!s->settled.load()) now->wait(s->settled.location(), 0, 1);
                    if (counted) queue.run_ends(s, 0);
                    break;
                }
                case Act::optimise:
                    queue.optimise(s);
                    break;
                case Act::compile:  // in the foreground
                    gate.begins();
                    now->step();
                    gate.ends();
                    break;
                case Act::finish:
                    queue.finish();
                    break;
                case Act::finish_all_asked:
                    queue.finish();
                    now->check(s->settled.load(), "finish does not wait for what was asked for");
                    break;
                case Act::drop:
                    queue.drop();
                    break;
                case Act::stop:
                    queue.stop();
                    break;
            }
        }
        // What fork.cpp does, with the queue's row. `left_out`: 1 the gate, 2 the queue's lock, 3
        // the queue's part in the child.
        void fork(bool to_the_child, int64_t patience, int left_out) {
            const int64_t begin = now->time();
            if (left_out != 1) gate.keep_compilations_out(patience);
            if (left_out != 2) queue.before_fork();
            gate.before_fork();
            now->step();
            if (!to_the_child) {
                gate.in_parent();
                queue.in_parent();
                return;
            }
            if (now->time() >= begin + patience) out_of_patience.set(1);
            now->check(patience < kForEver || !out_of_patience.get(), "fork waits for nothing");
            now->become_child(kNewborn);
            in_child.set(1);
            gate.in_child();
            if (left_out != 3) queue.in_child();
            for (ModelSlot& s : slots) {
                s.compiling.set(0);
                s.compiled.set(0);
                const Improving state = s.progress.state.load();
                if (state == Improving::settled) continue;
                now->check(state == Improving::waiting, "a child's slot waits for nobody");
                now->check(s.module == 1, "a child's slot has lost its module");
                queue.optimise(&s);
                queue.finish();
                now->check(s.settled.load(), "a child does not optimise");
            }
            queue.stop();
            born[1].store(2);
            now->wake(born[1].location(), 1, 1);
        }
        void launcher_ends(uint64_t of) {
            if (++launchers != of) return;
            queue.stop();
            queue.stop();
            for (int k = 0; k < most; ++k)
                if (born[k].load() == 0) {
                    born[k].store(2);
                    now->wake(born[k].location(), 1, 1);
                }
            for (ModelSlot& s : slots)
                now->check(s.progress.state.load() != Improving::asked, "a slot is lost");
            now->check(!queue.pending(), "something is pending after the end");
        }
    };

    static Progress<Machine>& progress(Slot s) { return s->progress; }
    static bool start(Queue& q, int thread) {
        World& w = world_of(q);
        if (thread >= w.room_for_threads) return false;
        third_started |= thread == 2;
        auto& born = w.born[thread + w.in_child.get()];
        born.store(1);
        now->wake(born.location(), 1, 1);
        return true;
    }
    static void join(Queue& q, int thread) {
        World& w = world_of(q);
        auto& died = w.died[thread + w.in_child.get()];
        while (!died.load()) now->wait(died.location(), 0, 1);
    }
    static void compile(Slot s) {
        auto& gate = s->world->gate;
        const bool can = gate.begins();
        now->check(++s->compiling == 1, "a slot is compiled twice at once");
        now->check(s->progress.state.load() == Improving::asked, "a settled slot is compiled");
        now->check(can || s->world->out_of_patience.get(), "a child cannot compile");
        now->check(s->module == 1, "a module is compiled that is gone");
        now->step();
        s->compiling.set(0);
        now->check(++s->compiled == 1, "a slot is compiled again");
        gate.ends();
        if (F == Fault::module_dropped_early) s->module = 0, now->step();
    }
    static void drop_module(Slot s) {
        s->module = 0;
        s->settled.store(1);
        now->wake(s->settled.location(), 100, 1);
    }
    static void at_rest(int thread) { now->at_rest(uint64_t(thread)); }
    static World& world_of(Queue& q) { return reinterpret_cast<World&>(q); }  // its first member
};

// Runs launching threads against the queue's `most`; "" or what goes wrong.
template <Fault F = Fault::none>
using World = typename Machine<F>::World;
template <Fault F = Fault::none>
std::string explore_queue(std::vector<std::vector<Act>> launchers, int64_t most_time = 0,
                          int preemptions = explore::kAnyNumber, int64_t room = 2, int most = 2) {
    using W = World<F>;
    Machine<F>::most = most;
    Machine<F>::third_started = false;
    alignas(W) static char place[sizeof(W)];  // one address in every run
    auto explorer = std::make_unique<Explorer>();
    explorer->most_time = most_time;
    explorer->preemptions = preemptions;
    const std::string failure = explorer->explore([&] {
        auto* w = new (place) W;
        w->room_for_threads = room;
        Explorer::Program program;
        for (const auto& acts : launchers)
            program.threads.push_back([w, &acts, n = launchers.size()] {
                for (const Act& a : acts) {
                    w->act(a);
                    now->at_rest(reinterpret_cast<uint64_t>(&a));
                }
                w->launcher_ends(n);
            });
        for (size_t k = 0; k < size_t(most); ++k)
            program.threads.push_back([=] { w->worker(k, k); });
        return program;
    });
    Machine<F>::most = 2;
    return failure;
}

TEST(queue, what_is_asked_for_is_compiled) {
    EXPECT_EQ(explore_queue({{kLong, {Act::finish_all_asked}}}), "");
}

TEST(queue, two_threads_ask) {
    EXPECT_EQ(explore_queue({{kLong}, {kLong, {Act::finish_all_asked}}}, 0, 2), "");
    EXPECT_EQ(explore_queue({{kLong}, {{Act::optimise, 1}, {Act::finish_all_asked, 1}}}, 0, 2), "");
}

TEST(queue, a_launch_that_turns_out_long_is_optimised_before_it_ends) {
    EXPECT_EQ(explore_queue({{kEndless}}, 3), "");
    EXPECT_EQ(explore_queue({{kShort, kEndless}}, 3, 2), "");
    EXPECT_EQ(explore_queue({{kShort}, {kEndless}}, 3, 1), "");
}

TEST(queue, endings) {
    EXPECT_EQ(explore_queue({{kLong, {Act::finish}}, {{Act::drop}}}, 0, 2), "");
    EXPECT_EQ(explore_queue({{kLong, {Act::finish}}, {{Act::stop}}}, 0, 2), "");
    EXPECT_EQ(explore_queue({{kShort}, {{Act::stop}}}, 2, 2), "");
}

TEST(queue, systems_without_room_for_threads) {
    EXPECT_EQ(explore_queue({{kEndless}}, 3, explore::kAnyNumber, 1), "");
    EXPECT_EQ(explore_queue({{kLong, {Act::finish}}}, 0, explore::kAnyNumber, 0), "");
}

// With a thread for what runs hot and two for what can wait.
TEST(queue, several_threads_for_what_can_wait) {
    // The first launch starts the queue; what is asked for when it has one thread counts as hot.
    const std::vector<Act> both = {kShort, {Act::optimise, 0}, {Act::optimise, 1}},
                           stop = {kShort, {Act::optimise, 0}, {Act::optimise, 1}, {Act::stop}};
    std::vector<Act> wait = both;
    wait.insert(wait.end(), {{Act::finish_all_asked, 0}, {Act::finish_all_asked, 1}});
    EXPECT_EQ(explore_queue({wait}, 0, 2, 3, 3), "");
    EXPECT_TRUE(Machine<Fault::none>::third_started);
    EXPECT_EQ(explore_queue({wait}, 0, 1, 2, 3), "");  // the system has no room for the third
    EXPECT_FALSE(Machine<Fault::none>::third_started);
    EXPECT_EQ(explore_queue({stop}, 0, 2, 3, 3), "");
    EXPECT_EQ(explore_queue({{kShort, {Act::optimise, 1}, kEndless}}, 3, 1, 3, 3), "");
    EXPECT_NE(explore_queue<Fault::no_notice>({wait}, 0, 2, 3, 3), "");
}

TEST(queue, what_is_wrong_is_found) {
    EXPECT_NE(explore_queue<Fault::no_lock>({{kLong, {Act::finish_all_asked}}}), "");
    EXPECT_NE(explore_queue<Fault::no_notice>({{kLong, {Act::finish_all_asked}}}), "");
}

// A launching thread, the queue's thread, a thread that forks, and the child's queue's thread.
template <Fault F = Fault::none>
std::string explore_fork(std::vector<Act> acts, bool to_the_child, int64_t most_time = 0,
                         int64_t patience = kForEver, int left_out = 0, int preemptions = 2) {
    using W = World<F>;
    alignas(W) static char place[sizeof(W)];
    auto explorer = std::make_unique<Explorer>();
    explorer->most_time = most_time;
    explorer->preemptions = preemptions;
    const std::string failure = explorer->explore([&] {
        auto* w = new (place) W;
        w->room_for_threads = 1;
        return Explorer::Program{{
                                     [=, &acts] {
                                         for (const Act& a : acts) {
                                             w->act(a);
                                             now->at_rest(reinterpret_cast<uint64_t>(&a));
                                         }
                                         w->launcher_ends(2);
                                     },
                                     [=] { w->worker(0, 0); },
                                     [=] {
                                         w->fork(to_the_child, patience, left_out);
                                         if (!to_the_child) w->launcher_ends(2);
                                     },
                                     [=] { w->worker(0, kNewborn - 2); },
                                 },
                                 {}};
    });
    return failure;
}

TEST(fork, a_child_optimises_and_its_parent_goes_on) {
    for (const bool child : {false, true}) {
        EXPECT_EQ(explore_fork({kLong, {Act::finish}}, child, 0, kForEver, 0, 3), "");
        EXPECT_EQ(explore_fork({{Act::compile}, {Act::optimise, 1}}, child), "");
        EXPECT_EQ(explore_fork({kShort}, child, 2), "");
    }
}

TEST(fork, a_child_of_a_long_compilation_waits_for_nobody) {
    EXPECT_EQ(explore_fork({kLong, {Act::finish}}, true, 1, 1), "");
}

TEST(fork, what_is_left_out_is_found) {
    for (const int left_out : {1, 2, 3})
        EXPECT_NE(explore_fork({kLong, {Act::finish}}, true, 0, kForEver, left_out), "")
            << left_out;
    EXPECT_NE(explore_fork<Fault::module_dropped_early>({kLong}, true), "");
}

}  // namespace
}  // namespace qd::runtime
