// Waiting for turns (turn.h), and what takes one beside launches: NumPy's copies, which give up the
// GIL, and forks.

#include "session/turn.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "python/areas.h"
#include "session/session.h"

namespace qd::python {
namespace {

constexpr std::chrono::milliseconds kDoze{5};

struct WhoWaits {
    std::mutex mutex;  // never waited for with the GIL held by who waits for the GIL
    std::condition_variable changed;
};
WhoWaits* who_waits = new WhoWaits;  // never destroyed: threads may wait while the process ends

// copy_alone([(to, from, shape), ...]): arrays' elements, `from` in this shape unless it is None.
// No Python code runs while launches wait: a signal handler may want a lock whose owner launches.
PyObject* copy_alone(PyObject*, PyObject* copies) {
    const KernelCall call;
    if (!wait_for_launches()) return nullptr;
    const Working working;
    Turn<PythonThreads>& turn = session().turn;
    const bool took = turn.take();
    bool ok = true;
    for (Py_ssize_t n = 0; ok && n < PyList_Size(copies); ++n) {
        PyObject *to, *from, *shape;
        ok = PyArg_ParseTuple(PyList_GetItem(copies, n), "OOO", &to, &from, &shape) != 0;
        if (!ok) break;
        PyObject* shaped =
            shape == Py_None ? Py_NewRef(from) : PyObject_CallMethod(from, "reshape", "(O)", shape);
        ok = shaped && PyObject_SetItem(to, Py_Ellipsis, shaped) == 0;
        Py_XDECREF(shaped);
    }
    if (took) turn.leave();
    return ok ? Py_NewRef(Py_None) : nullptr;
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
    {"copy_alone", copy_alone, METH_O, "Copies arrays' elements while no kernel runs."},
    {"fork_begins", fork_begins, METH_NOARGS, "Waits for launches, and keeps new ones waiting."},
    {"fork_ends", fork_ends, METH_NOARGS, "Launches go on."},
    {nullptr, nullptr, 0, nullptr},
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
    session().turn.in_forked_child();
}

bool add_turn(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace qd::python
