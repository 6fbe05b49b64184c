// Who uses the session when, under every interleaving of what the GIL allows: nobody works on it
// while it is reset, nobody waits for ever but for the end of the process, and not in a child.

#include "session/door.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "explore.h"

namespace qd::session {
namespace {

using explore::Explorer;
using explore::now;
using explore::Plain;
using explore::Tally;

enum class Fault {
    none,
    no_work_told,
    no_child,
    waits_for_its_own,
    generation_last,
    waits_for_python,
    gives_up_on_native,
};
enum class Handler { raises, resets, calls };  // of a signal that comes while thread 0 waits

struct Act {  // of a thread that has the GIL
    enum What {
        call,
        call_that_calls,   // its work runs Python code that calls a kernel
        call_that_resets,  // its work runs Python code that resets
        call_that_joins,   // its work runs Python code that waits for a thread that resets
        reset,
        fork,  // the rest is the child's
        end,
    };
    What what;
};

template <Fault F>
struct Machine {
    struct World {
        explore::Mutex gil;
        Door<Machine> door;
        Plain<int> generation{1};
        Tally work[explore::kMostThreads], resets, ended, signal, reset_is_over, native;
        Handler handler = Handler::raises;

        // Python code: others may get the GIL, and may close the session meanwhile.
        void take_gil() { gil.lock(); }
        void without_gil() {
            now->step();
            gil.unlock();
            door.before_gil();
            gil.lock();
        }
        void do_call(Act::What inside) {
            door.call_begins();
            const int mine = generation;
            without_gil();  // arguments are asked what they are
            if (generation == mine) {
                if (F != Fault::no_work_told) door.work_begins();
                check_work(mine);
                if (F != Fault::gives_up_on_native) door.native_begins();
                native.set(native.get() + 1);
                gil.unlock();
                now->step();
                door.before_gil();
                gil.lock();
                if (F != Fault::gives_up_on_native) door.native_ends();
                native.set(native.get() - 1);
                check_work(mine);
                while (inside == Act::call_that_joins && !reset_is_over.get()) doze();
                if (inside == Act::call_that_calls) do_call(Act::call);
                if (inside == Act::call_that_resets) do_reset();
                check_work(mine);
                if (F != Fault::no_work_told) door.work_ends();
            }
            door.call_ends();
        }
        void check_work(int mine) {
            now->check(!resets.get(), "a thread works while the session is reset");
            now->check(generation == mine, "a thread works on another generation");
        }
        void do_reset() {
            bool ours;
            using Door = qd::session::Door<Machine>;
            const auto closing = door.close(ours);
            if (closing == Door::Closing::stands_still)
                now->check(!native.get(), "a reset gives up though kernels run");
            if (closing == Door::Closing::done) {
                resets.set(1);
                if (F != Fault::generation_last) generation = generation + 1;
                without_gil();  // finalizers
                if (F == Fault::generation_last) generation = generation + 1;
                resets.set(0);
            }
            if (ours) door.open();
            reset_is_over.set(1);
        }
        void act(Act::What what) {
            switch (what) {
                case Act::call:
                case Act::call_that_calls:
                case Act::call_that_resets:
                case Act::call_that_joins:
                    return do_call(what);
                case Act::reset:
                    return do_reset();
                case Act::fork:
                    now->become_child();
                    ended.set(0);
                    resets.set(0);
                    if (F != Fault::no_child) door.in_forked_child();
                    return;
                case Act::end:
                    ended.set(1);
                    door.end(2);
                    return do_reset();  // does nothing if a thread still works
            }
        }
    };
    template <class T>
    using Plain = explore::Plain<T>;
    template <class T>
    using Atomic = explore::Atomic<T>;
    static inline World* world;
    static uint64_t this_thread() { return now->thread() + 1; }
    static Tally& work() { return world->work[now->thread()]; }
    static int my_work() {
        return F == Fault::waits_for_its_own ? 0 : static_cast<int>(work().get());
    }
    static void add_to_my_work(int n) { work().set(work().get() + static_cast<uint64_t>(n)); }
    static int64_t now_ns() { return now->time(); }
    static void give_gil_away() { world->gil.unlock(); }
    static void sleep_for_ever() { now->sleep_for_ever(); }
    static bool interrupted() {
        if (!world->signal.get() || now->thread() != 0) return false;
        if (world->handler == Handler::raises) return true;
        world->signal.set(0);
        world->handler == Handler::resets ? world->do_reset() : world->do_call(Act::call);
        return false;
    }
    static constexpr int kMostLooks =
        F == Fault::none || F == Fault::gives_up_on_native ? 2 : 1 << 30;
    static void doze_to_look() { doze(now->time() + 1); }
    static void doze(int64_t until = explore::kNever) {
        const uint64_t picture = now->picture(world->gil.location());
        world->gil.unlock();
        world->door.before_gil();  // nothing may change any more
        now->wait_for_change(picture, world->gil.location(), until);
        world->door.before_gil();
        world->gil.lock();
    }
};

// What the threads do, one after the other; a signal comes at any time, if any.
template <Fault F = Fault::none>
std::string explore_door(std::vector<std::vector<Act::What>> threads, bool signal = false,
                         int64_t most_time = 0, int preemptions = explore::kAnyNumber,
                         Handler handler = Handler::raises) {
    using W = typename Machine<F>::World;
    alignas(W) static char place[sizeof(W)];
    auto explorer = std::make_unique<Explorer>();
    explorer->most_time = most_time;
    explorer->preemptions = preemptions;
    const std::string failure = explorer->explore([&] {
        auto* w = Machine<F>::world = new (place) W;
        w->handler = handler;
        Explorer::Program program;
        for (const auto& acts : threads) program.threads.push_back(explore::acting(w, acts));
        if (signal) program.threads.push_back(explore::setting(w->signal));
        return program;
    });
    EXPECT_GT(explorer->states, 10u);
    return failure;
}

using enum Act::What;

TEST(door, calls_and_resets) {
    EXPECT_EQ(explore_door({{call, call}, {reset}}), "");
    EXPECT_EQ(explore_door({{call_that_calls}, {reset, call}}), "");
    EXPECT_EQ(explore_door({{call_that_resets}, {reset}}), "");
    EXPECT_EQ(explore_door({{call}, {reset}, {reset}}), "");
    EXPECT_EQ(explore_door({{call}, {call_that_calls}, {reset}}, false, 0, 4), "");
}

TEST(door, a_reset_that_a_signal_ends_leaves_the_session_open) {
    EXPECT_EQ(explore_door({{reset, call}, {call, call}}, true), "");
}

TEST(door, a_signal_handler_resets_or_calls_while_its_thread_waits_to_reset) {
    const auto explored = [](std::vector<std::vector<Act::What>> threads, Handler handler) {
        return explore_door(std::move(threads), true, 0, explore::kAnyNumber, handler);
    };
    EXPECT_EQ(explored({{reset, call}, {call, call}}, Handler::resets), "");
    EXPECT_EQ(explored({{reset, call}, {call, call}}, Handler::calls), "");
    EXPECT_EQ(explored({{reset}, {call}, {reset}}, Handler::resets), "");
}

TEST(door, a_child_waits_for_nobody) {
    EXPECT_EQ(explore_door({{fork, call, reset, call}, {call_that_calls}, {reset}}), "");
    EXPECT_EQ(explore_door({{fork, reset, end}, {call}, {end}}, false, 1), "");
}

TEST(door, the_end) {
    EXPECT_EQ(explore_door({{end}, {call, call}}, false, 3, 3), "");
    EXPECT_EQ(explore_door({{call, end}, {call_that_calls}, {reset}}, false, 1, 2), "");
}

TEST(door, python_code_amid_a_call_waits_for_a_reset) {
    EXPECT_EQ(explore_door({{call_that_joins}, {reset, call}}), "");
    EXPECT_EQ(explore_door({{call}, {reset, call}}, false, 4), "");
    EXPECT_EQ(explore_door({{call_that_joins, call}, {reset}, {call}}, false, 0, 3), "");
}

TEST(door, what_is_wrong_is_found) {
    EXPECT_NE(explore_door<Fault::waits_for_python>({{call_that_joins}, {reset}}), "");
    EXPECT_NE(explore_door<Fault::gives_up_on_native>({{call}, {reset}}, false, 3), "");

    EXPECT_NE(explore_door<Fault::no_work_told>({{call}, {reset}}), "");
    EXPECT_NE(explore_door<Fault::no_child>({{fork, reset}, {call}}), "");
    EXPECT_NE(explore_door<Fault::waits_for_its_own>({{call_that_calls}, {reset}}), "");
    EXPECT_NE(explore_door<Fault::generation_last>({{call}, {reset}}), "");
}

}  // namespace
}  // namespace qd::session
