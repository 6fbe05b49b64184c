// Waiting for turns (turn.h).

#include "session/turn.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "session/session.h"

namespace qd::session {
namespace {

constexpr std::chrono::milliseconds kDoze{5};

struct WhoWaits {
    std::mutex mutex;  // never waited for with the GIL held by who waits for the GIL
    std::condition_variable changed;
};
WhoWaits* who_waits = new WhoWaits;  // never destroyed: threads may wait while the process ends

}  // namespace

// As a kernel call: the end of the interpreter waits for it, since who then gets the GIL is ended
// by unwinding the stack.
bool wait_for_turn() {
    Turn<PythonThreads>& turn = session().turn;
    if (!turn.must_wait()) return true;
    const KernelCall call;
    return turn.wait();
}

void PythonThreads::doze_for_turn() {
    std::unique_lock lock(who_waits->mutex);  // before the GIL goes: whoever wakes has it
    const Released released;
    who_waits->changed.wait_for(lock, kDoze);
    lock.unlock();
}

void PythonThreads::wake() {
    const std::lock_guard lock(who_waits->mutex);
    who_waits->changed.notify_all();
}

void turn_in_forked_child() {
    who_waits = new WhoWaits;  // a lost thread may have the lock
    session().turn.in_forked_child();
}

}  // namespace qd::session
