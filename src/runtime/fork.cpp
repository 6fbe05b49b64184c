// See fork.h.

#include "runtime/fork.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>

#include "support/error.h"

namespace qd::runtime {
namespace {

ForkHandlers handlers[static_cast<int>(AtFork::kCount)];

// Compilations in progress; fork keeps new ones out. Never destroyed: threads compile during exit.
struct Gate {
    std::mutex lock;  // guards everything here
    std::condition_variable changed;
    int compiling = 0, forks = 0;
    bool unusable = false;
};
Gate& gate = *new Gate;

void before() {
    {
        std::unique_lock guard(gate.lock);
        ++gate.forks;
        gate.changed.wait_for(guard, kForkPatience, [] { return gate.compiling == 0; });
    }
    for (const ForkHandlers& h : handlers)
        if (h.before) h.before();
    gate.lock.lock();
}

void in_parent() {
    --gate.forks;
    gate.changed.notify_all();
    gate.lock.unlock();
    for (int k = static_cast<int>(AtFork::kCount); k-- > 0;)
        if (handlers[k].in_parent) handlers[k].in_parent();
}

void in_child() {
    const bool unusable = gate.unusable || gate.compiling > 0;
    new (&gate) Gate;  // nobody waits here
    gate.unusable = unusable;
    for (int k = static_cast<int>(AtFork::kCount); k-- > 0;)
        if (handlers[k].in_child) handlers[k].in_child();
}

const bool registered = [] { return pthread_atfork(before, in_parent, in_child) == 0; }();

}  // namespace

void at_fork(AtFork which, ForkHandlers h) {
    (void)registered;
    handlers[static_cast<int>(which)] = h;
}

Compiling::Compiling() {
    std::unique_lock guard(gate.lock);
    gate.changed.wait(guard, [] { return gate.forks == 0; });
    if (gate.unusable)
        throw support::Error(
            "this process was forked while its parent was compiling a kernel for very long, so it "
            "cannot compile; fork before that, or start it by multiprocessing's 'spawn'");
    ++gate.compiling;
}

Compiling::~Compiling() {
    const std::lock_guard guard(gate.lock);
    --gate.compiling;
    gate.changed.notify_all();
}

}  // namespace qd::runtime
