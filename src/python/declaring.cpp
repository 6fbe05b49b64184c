// The lock of declarations: one thread at a time adds to field trees or makes storage of them.
//
// Python's own would hang who waits where a signal handler or finaliser, run amid a declaration,
// waits for another thread that declares or launches. Here that thread goes on as a guest: once the
// owner has run code of others for a while, one thread may enter beside it, and treats what the
// owner is changing as the handler itself would. All of it happens under the GIL. `with` takes and
// leaves it without a line of Python, where a handler could raise.

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "python/areas.h"
#include "session/session.h"

namespace qd::python {
namespace {

using namespace session;
using cpython::entry;
using cpython::Ref;

struct Place {
    uint64_t thread = 0;  // 0: none
    int depth = 0;        // how often it has entered
};
Place owner, guest;
bool is_stuck = false;  // the owner, which has let a guest in

// False if a signal handler raises meanwhile; with `signals` false none is run.
bool enter(bool signals) {
    const uint64_t me = PythonThreads::this_thread();
    for (Place* p : {&guest, &owner})
        if (p->thread == me) return ++p->depth;
    int64_t since = PythonThreads::now_ns();
    while (owner.thread) {
        const bool never = interpreter_ends();  // the others have stopped for ever
        const int64_t now = PythonThreads::now_ns();
        if (!never && !runs_code_of_others(owner.thread)) {
            since = now;
            is_stuck = false;
        }
        if (never || (!guest.thread && (is_stuck || now - since > kPatienceNs))) {
            guest = {me, 1};
            is_stuck = true;
            return true;
        }
        PythonThreads::doze();
        if (signals && PythonThreads::interrupted()) return false;
    }
    owner = {me, 1};
    is_stuck = false;
    return true;
}

void leave() {
    const uint64_t me = PythonThreads::this_thread();
    for (Place* p : {&guest, &owner}) {
        if (p->thread != me) continue;
        if (!--p->depth) *p = {};
        return;
    }
}

PyObject* enter_with(PyObject*, PyObject*) { return enter(true) ? Py_NewRef(Py_None) : nullptr; }
PyObject* leave_with(PyObject*, PyObject*) {
    leave();
    Py_RETURN_FALSE;
}
PyObject* is_mine(PyObject*, PyObject*) {
    const uint64_t me = PythonThreads::this_thread();
    return PyBool_FromLong(owner.thread == me || guest.thread == me);
}

PyMethodDef methods[] = {
    {"__enter__", entry<enter_with>, METH_NOARGS, "Waits for the thread that declares."},
    {"__exit__", entry<leave_with>, METH_VARARGS, nullptr},
    {"is_mine", entry<is_mine>, METH_NOARGS, "Whether this thread has entered."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject Declaring_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.Declaring",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
};

}  // namespace

void declaring_before_fork() { enter(false); }
void declaring_after_fork() { leave(); }
void declaring_in_forked_child() {
    for (Place* p : {&guest, &owner})
        if (p->thread != PythonThreads::this_thread()) *p = {};
}

bool add_declaring(PyObject* module) {
    if (PyType_Ready(&Declaring_Type) != 0) return false;
    const Ref lock = Ref::steal_or_null(PyObject_New(PyObject, &Declaring_Type));
    return lock && PyModule_AddObjectRef(module, "declaring", lock.get()) == 0 &&
           PyModule_AddObjectRef(module, "Declaring",
                                 reinterpret_cast<PyObject*>(&Declaring_Type)) == 0;
}

}  // namespace qd::python
