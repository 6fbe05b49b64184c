// See fork.h.

#include "runtime/fork.h"

#include <pthread.h>

#include "runtime/fork_gate.h"
#include "runtime/threads.h"
#include "support/error.h"

namespace qd::runtime {
namespace {

ForkHandlers handlers[static_cast<int>(AtFork::kCount)];

// Never destroyed: threads compile during exit.
ForkGate<Threads>& gate = *new ForkGate<Threads>;

void before() {
    gate.keep_compilations_out(std::chrono::nanoseconds(kForkPatience).count());
    for (const ForkHandlers& h : handlers)
        if (h.before) h.before();
    gate.before_fork();
}

void in_parent() {
    gate.in_parent();
    for (int k = static_cast<int>(AtFork::kCount); k-- > 0;)
        if (handlers[k].in_parent) handlers[k].in_parent();
}

void in_child() {
    gate.in_child();
    for (int k = static_cast<int>(AtFork::kCount); k-- > 0;)
        if (handlers[k].in_child) handlers[k].in_child();
}

const bool registered = [] { return pthread_atfork(before, in_parent, in_child) == 0; }();

}  // namespace

bool at_fork(AtFork which, ForkHandlers h) {
    (void)registered;
    handlers[static_cast<int>(which)] = h;
    return true;
}

Compiling::Compiling() : allowed_(gate.begins()) {}
Compiling::~Compiling() { gate.ends(); }

void Compiling::need() const {
    if (allowed_) return;
    throw support::Error(
        "this process was forked while its parent was compiling a kernel for very long, so it "
        "cannot compile; fork before that, or start it by multiprocessing's 'spawn'");
}

}  // namespace qd::runtime
