// Whose kernels run, under every interleaving of what the GIL allows: what two threads launch never
// runs at once, who waits gets a turn, and a signal handler may wait for other threads' launches.

#include "session/turn.h"

#include <gtest/gtest.h>

#include <memory>
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

enum class Fault { none, no_waiting, never_set_aside, no_child };

struct Act {  // of a thread that has the GIL
    enum What {
        touch,         // keeps the GIL
        launch,        // gives it up
        launch_twice,  // one after the other, with nothing between
        launch_turns_long,
        // Gives up the GIL, and a signal handler amid it waits until another thread has launched.
        launch_and_handler_waits,
        launch_and_handler_launches,
        fork,  // the rest is the child's
        end,   // of the process: the other threads never get the GIL again
    };
};

template <Fault F>
struct Machine {
    struct World {
        explore::Mutex gil;
        Turn<Machine> turn;
        Tally inside, launched, ended, signal, clock;
        bool slices = false;  // which end when the clock moves; else there are none

        void without_gil() {
            gil.unlock();
            now->step();
            take_gil();
        }
        void take_gil() {
            if (ended.get() && ended.get() != this_thread()) now->sleep_for_ever();
            gil.lock();
        }
        void enter() {
            now->check(!inside.get() || ended.get(), "two threads' kernels run at once");
            inside.set(this_thread());
        }
        void leave() { inside.set(0); }
        bool wait() { return F == Fault::no_waiting || !turn.is_asked_for() || turn.wait(); }
        void do_launch(Act::What what) {
            if (!wait()) return;
            if (what == Act::launch_turns_long) {
                enter();
                now->step();
                leave();
            }
            const bool took = turn.take();
            enter();
            without_gil();
            leave();
            if (what == Act::launch_and_handler_waits || what == Act::launch_and_handler_launches) {
                if (took && F != Fault::never_set_aside) turn.set_aside();
                if (what == Act::launch_and_handler_launches) do_launch(Act::launch);
                while (what == Act::launch_and_handler_waits && !launched.get()) {
                    const uint64_t picture = now->picture(gil.location());
                    gil.unlock();
                    now->wait_for_change(picture, gil.location(), explore::kNever);
                    take_gil();
                }
                if (took && F != Fault::never_set_aside) turn.resume();
                enter();
                without_gil();
                leave();
            }
            if (took) turn.leave();
            ++launched;
        }
        void act(Act::What what) {
            switch (what) {
                case Act::touch:
                    if (!wait()) return;
                    enter();
                    now->step();
                    leave();
                    return;
                case Act::launch_twice:
                    do_launch(Act::launch);
                    return do_launch(Act::launch);
                case Act::fork:
                    now->become_child();
                    inside.set(0);
                    if (F != Fault::no_child) turn.in_forked_child();
                    return;
                case Act::end:
                    ended.set(this_thread());
                    return;
                default:
                    return do_launch(what);
            }
        }
    };
    template <class T>
    using Plain = explore::Plain<T>;
    static inline World* world;
    static uint64_t this_thread() { return now->thread() + 1; }
    static bool interpreter_ends() { return world->ended.get() != 0; }
    static bool interrupted() {
        if (!world->signal.get() || now->thread() != 0) return false;
        world->signal.set(0);
        return true;
    }
    static int64_t now_ns() { return world->slices ? int64_t(world->clock.get()) : 0; }
    static bool slice_is_over(int64_t began) { return !world->slices || now_ns() != began; }
    static void wake() {}  // who waits notices every change
    static void doze_for_turn() {
        const uint64_t picture = now->picture(world->gil.location());
        world->gil.unlock();
        now->wait_for_change(picture, world->gil.location(), explore::kNever);
        world->take_gil();
    }
};

template <Fault F = Fault::none>
std::string explore_turns(std::vector<std::vector<Act::What>> threads, bool signal = false,
                          bool slices = false) {
    using W = typename Machine<F>::World;
    alignas(W) static char place[sizeof(W)];
    auto explorer = std::make_unique<Explorer>();
    const std::string failure = explorer->explore([&] {
        auto* w = Machine<F>::world = new (place) W;
        w->slices = slices;
        Explorer::Program program;
        for (const auto& acts : threads) program.threads.push_back(explore::acting(w, acts));
        if (signal) program.threads.push_back(explore::setting(w->signal));
        if (slices) program.threads.push_back(explore::setting(w->clock));
        return program;
    });
    EXPECT_GT(explorer->states, failure.empty() ? 10u : 1u);
    return failure;
}

using enum Act::What;

TEST(turn, launches_take_turns) {
    EXPECT_EQ(explore_turns({{launch, touch}, {launch, touch}}), "");
    EXPECT_EQ(explore_turns({{launch_twice}, {launch_twice}, {touch}}), "");
    EXPECT_EQ(explore_turns({{launch_turns_long, launch}, {launch_turns_long, touch}}), "");
    EXPECT_EQ(explore_turns({{launch}, {launch}, {launch_turns_long, touch}}), "");
}

TEST(turn, who_has_waited_has_a_slice_of_time) {
    EXPECT_EQ(explore_turns({{launch_twice, touch}, {launch_twice}}, false, true), "");
    EXPECT_EQ(explore_turns({{launch_twice}, {touch, launch}, {touch}}, false, true), "");
    EXPECT_EQ(explore_turns({{launch_and_handler_waits}, {launch, launch}}, false, true), "");
}

TEST(turn, who_is_interrupted_waits_no_longer) {
    EXPECT_EQ(explore_turns({{launch, launch}, {launch_twice}, {touch}}, true), "");
}

TEST(turn, signal_handlers_wait_for_launches_and_launch) {
    EXPECT_EQ(explore_turns({{launch_and_handler_waits}, {launch, launch}}), "");
    EXPECT_EQ(explore_turns({{launch_and_handler_launches}, {launch_twice}, {touch}}), "");
    EXPECT_EQ(explore_turns({{launch_and_handler_launches}, {launch_and_handler_launches}}), "");
}

TEST(turn, children_and_the_end) {
    EXPECT_EQ(explore_turns({{touch, fork, launch, touch}, {launch_twice}, {launch}}), "");
    EXPECT_EQ(explore_turns({{touch, end, launch, touch}, {launch, touch}, {launch}}), "");
}

TEST(turn, what_is_wrong_is_found) {
    EXPECT_NE(explore_turns<Fault::no_waiting>({{launch}, {touch}}), "");
    EXPECT_NE(explore_turns<Fault::never_set_aside>({{launch_and_handler_waits}, {launch}}), "");
    EXPECT_NE(explore_turns<Fault::no_child>({{fork, launch}, {launch}}), "");
}

}  // namespace
}  // namespace qd::session
