// Waiting for turns (turn.h).

#include "session/turn.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

#include "cpython/cpython.h"
#include "session/session.h"

namespace qd::session {

using cpython::Ref;

namespace {

constexpr std::chrono::milliseconds kDoze{5};

struct WhoWaits {
    std::mutex mutex;  // never waited for with the GIL held by who waits for the GIL
    std::condition_variable changed;
};
WhoWaits& who_waits = *new WhoWaits;  // never destroyed: threads may wait while the process ends

}  // namespace

// As a kernel call: the end of the interpreter waits for it, since who then gets the GIL is ended
// by unwinding the stack.
bool wait_for_turn() {
    Turn<PythonThreads>& turn = session().turn;
    if (!turn.must_wait()) return true;
    const KernelCall call;
    return turn.wait();
}

namespace {

// CPython 3.11 allocates the frames with a lock of its own held: if that begins a collection, whose
// callbacks let others run, the next who asks waits for that lock with the GIL in hand.
Ref frames_of_threads() {
    PyObject* get = PySys_GetObject("_current_frames");
    const bool collects = PyGC_Disable();
    Ref frames = Ref::steal_or_null(get ? PyObject_CallNoArgs(get) : nullptr);
    if (collects) PyGC_Enable();
    return frames;
}

}  // namespace

bool runs_code_of_others(uint64_t thread) {
    const Ref frames = frames_of_threads();
    const Ref key = Ref::steal_or_null(PyLong_FromUnsignedLongLong(thread));
    PyObject* frame = frames && key ? PyDict_GetItem(frames.get(), key.get()) : nullptr;
    cpython::forget_error();
    return !frame || !cpython::is_own_module(cpython::module_of(frame));
}

namespace {

// Hooks of others run between the begin and the end of a fork, and signal handlers amid those may
// wait for this very thread: then the fork waits for it, and not the other way round.
void pass_a_fork_that_waits() {
    thread_local int64_t since = 0;
    Session& s = session();
    const bool waits = s.forker && s.turn.is_of(s.forker) && runs_code_of_others(s.forker);
    const int64_t now = PythonThreads::now_ns();
    if (!waits || !since) since = waits ? now : 0;
    if (!waits || now - since < kPatienceNs) return;
    since = 0;
    s.turn.set_aside();
}

}  // namespace

void PythonThreads::doze_for_turn() {
    {
        std::unique_lock lock(who_waits.mutex);  // before the GIL goes: whoever wakes has it
        const Waiting waiting;
        who_waits.changed.wait_for(lock, kDoze);
        lock.unlock();
    }
    pass_a_fork_that_waits();
}

void PythonThreads::wake() {
    const std::lock_guard lock(who_waits.mutex);
    who_waits.changed.notify_all();
}

void turn_in_forked_child() {
    new (&who_waits) WhoWaits;  // a lost thread may have the lock
    session().turn.in_forked_child();
    if (session().forker != PythonThreads::this_thread()) session().forker = 0;
}

}  // namespace qd::session
