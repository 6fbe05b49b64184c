// Python exceptions that no look-up may swallow.
//
// Much of the front end asks Python and takes a failure for an answer. A signal handler may raise
// in the middle of any such question. What it raised is kept for this thread, and raised by the
// kernel call in progress when it ends; outside of one, by the interpreter's next step.

#include "frontend/frontend.h"

namespace qd::frontend {
namespace {

struct Kept {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
};
thread_local Kept kept;

// Whether it is no answer to any question: an interrupt, an exit, no memory, no stack.
bool is_no_answer() {
    return !PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError) ||
           PyErr_ExceptionMatches(PyExc_RecursionError);
}

int raise_soon(void*) { return raise_kept_error() ? -1 : 0; }

}  // namespace

bool error_kept = false;

void forget_error() {
    if (!PyErr_Occurred()) return;
    if (kept.type || !is_no_answer()) return PyErr_Clear();
    PyErr_Fetch(&kept.type, &kept.value, &kept.trace);
    error_kept = true;
    (void)Py_AddPendingCall(raise_soon, nullptr);  // served by the main thread, as signals are
}

bool raise_kept_error() {
    if (!kept.type) return false;
    error_kept = false;
    PyErr_Clear();
    PyErr_Restore(kept.type, kept.value, kept.trace);
    kept = {};
    return true;
}

}  // namespace qd::frontend
