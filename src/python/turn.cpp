// What takes a turn (session/turn.h) beside launches: NumPy's copies, which give up the GIL, and
// forks.

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/storage.h"
#include "python/areas.h"
#include "session/session.h"

namespace qd::python {
namespace {

using namespace session;
using cpython::entry;
using cpython::Ref;
using session::session;

// copy_alone([(to, from, shape, view, writes), ...]): see data::copy_elements. No Python code runs
// while launches wait: a signal handler may want a lock whose owner launches.
PyObject* copy_alone(PyObject*, PyObject* copies) {
    const KernelCall call;
    if (!wait_for_launches()) return nullptr;
    const Working working;
    Turn<PythonThreads>& turn = session().turn;
    const struct Taken {
        Turn<PythonThreads>& turn;
        const bool took = turn.take();
        ~Taken() {
            if (took) turn.leave();
        }
    } taken{turn};
    bool ok = true;
    for (Py_ssize_t n = 0; ok && n < PyList_Size(copies); ++n) {
        PyObject *to, *from, *shape, *view;
        int writes;
        ok = PyArg_ParseTuple(PyList_GetItem(copies, n), "OOOOp", &to, &from, &shape, &view,
                              &writes) &&
             data::copy_elements(to, from, shape, view, writes != 0);
    }
    return ok ? Py_NewRef(Py_None) : nullptr;
}

// Around a fork: a child has no half of what another thread declares, or its launch writes. Signals
// wait.
PyObject* fork_begins(PyObject*, PyObject*) {
    declaring_before_fork();  // first: who declares may launch
    Turn<PythonThreads>& turn = session().turn;
    if (!turn.is_mine()) {
        turn.resume();
        session().forker = PythonThreads::this_thread();
    }
    Py_RETURN_NONE;
}

PyObject* fork_ends(PyObject*, PyObject*) {
    Session& s = session();
    if (s.forker == PythonThreads::this_thread()) {
        s.forker = 0;
        if (s.turn.is_mine()) s.turn.leave();
    }
    declaring_after_fork();
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"copy_alone", entry<copy_alone>, METH_O, "Copies arrays' elements while no kernel runs."},
    {"fork_begins", entry<fork_begins>, METH_NOARGS,
     "Waits for declarations and launches, and keeps new ones waiting."},
    {"fork_ends", entry<fork_ends>, METH_NOARGS, "They go on."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_turn(PyObject* module) {
    if (PyModule_AddFunctions(module, functions) != 0) return false;
    PyObject* core = PyDict_GetItemString(PyImport_GetModuleDict(), "quadrants._lib.core");
    const Ref turn = Ref::steal_or_null(core ? PyObject_GetAttrString(core, "_turn") : nullptr);
    if (!turn) return cpython::forget_error(), true;  // imported beside the package, by tests
    for (const char* name : {"fork_begins", "fork_ends"}) {
        const Ref f = Ref::steal_or_null(PyObject_GetAttrString(module, name));
        if (!f || PyObject_SetAttrString(turn.get(), name, f.get()) != 0) return false;
    }
    return true;
}

}  // namespace qd::python
