// Waiting for turns (turn.h), and `launches_wait`: around Python code that works on what kernels
// work on and may give up the GIL amid it.

#include "python/turn.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "python/areas.h"
#include "python/session.h"

namespace qd::python {
namespace {

constexpr std::chrono::milliseconds kDoze{5};

struct WhoWaits {
    std::mutex mutex;  // never waited for with the GIL held by who waits for the GIL
    std::condition_variable changed;
};
WhoWaits* who_waits = new WhoWaits;  // never destroyed: threads may wait while the process ends

int entered = 0;  // how often, by the thread that has the turn

PyObject* enter(PyObject*, PyObject*) {
    Session& s = session();
    s.door.call_begins();
    if (!wait_for_launches()) return s.door.call_ends(), nullptr;
    s.door.work_begins();  // a reset waits
    s.turn.take();
    ++entered;
    Py_RETURN_NONE;
}

PyObject* leave(PyObject*, PyObject* const*, Py_ssize_t) {
    Session& s = session();
    if (--entered == 0) s.turn.leave();
    s.door.work_ends();
    s.door.call_ends();
    Py_RETURN_NONE;
}

// Around a fork: a child has no half of what another thread's launch writes. Signals wait.
bool forks_with_turn = false;

PyObject* fork_begins(PyObject*, PyObject*) {
    Turn<PythonThreads>& turn = session().turn;
    if (!turn.is_mine()) {
        turn.resume();
        forks_with_turn = true;
    }
    Py_RETURN_NONE;
}

PyObject* fork_ends(PyObject*, PyObject*) {
    if (std::exchange(forks_with_turn, false)) session().turn.leave();
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"fork_begins", fork_begins, METH_NOARGS, "Waits for launches, and keeps new ones waiting."},
    {"fork_ends", fork_ends, METH_NOARGS, "Launches go on."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, "Waits for launches, and keeps new ones waiting."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(leave)), METH_FASTCALL,
     "Launches go on."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject LaunchesWait_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.LaunchesWait",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "With it, kernels of other threads are not running.",
    .tp_methods = methods,
};

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
    if (!session().turn.in_forked_child()) entered = 0;
}

bool add_turn(PyObject* module) {
    if (PyType_Ready(&LaunchesWait_Type) < 0) return false;
    PyObject* the_one = PyObject_New(PyObject, &LaunchesWait_Type);
    const bool added = the_one && PyModule_AddObjectRef(module, "launches_wait", the_one) == 0;
    Py_XDECREF(the_one);
    return added && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace qd::python
