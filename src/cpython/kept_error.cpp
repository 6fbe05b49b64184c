// Python exceptions that no look-up may swallow.
//
// Much of the front end asks Python and takes a failure for an answer. A signal handler may raise
// in the middle of any such question. What it raised is kept for this thread, and raised by the
// kernel call in progress at its next statement or when it ends; outside of one, by the
// interpreter's next step.

#include "cpython/cpython.h"
#include "cpython/entry.h"

#include <frameobject.h>  // PyFrame_GetBack of Python 3.10

namespace qd::cpython {
namespace {

struct Kept {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
};
thread_local Kept kept;

// Whether it is no answer to any question: an interrupt, an exit, no memory, no stack.
bool is_no_answer(PyObject* type) {
    return !PyErr_GivenExceptionMatches(type, PyExc_Exception) ||
           PyErr_GivenExceptionMatches(type, PyExc_MemoryError) ||
           PyErr_GivenExceptionMatches(type, PyExc_RecursionError);
}

bool is_signal_number(PyObject* o) {
    int overflow = 0;
    const long n = PyLong_Check(o) ? PyLong_AsLongAndOverflow(o, &overflow) : 0;
    return n > 0 && n < 128;
}

// Whether (signal number, interrupted frame) stand side by side, the frame being the caller.
bool has_arguments_of_handler(PyObject* frame) {
    const auto attribute = [](PyObject* o, const char* name) {
        return Ref::steal_or_null(o ? PyObject_GetAttrString(o, name) : nullptr);
    };
    const Ref caller = attribute(frame, "f_back"), locals = attribute(frame, "f_locals"),
              names = attribute(attribute(frame, "f_code").get(), "co_varnames");
    if (!caller || !locals || !names || !PyTuple_Check(names.get())) return false;
    Ref before;
    const auto ends_pair = [&](PyObject* value) {
        const bool ends = value == caller.get() && before && is_signal_number(before.get());
        before = Ref::borrow(value);
        return ends;
    };
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names.get()); ++k) {
        const Ref value =
            Ref::steal_or_null(PyObject_GetItem(locals.get(), PyTuple_GET_ITEM(names.get(), k)));
        if (!value) {
            PyErr_Clear();  // not bound yet
            continue;
        }
        if (PyTuple_Check(value.get()))  // def handler(*_)
            for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(value.get()); ++n)
                if (ends_pair(PyTuple_GET_ITEM(value.get(), n))) return true;
        if (ends_pair(value.get())) return true;
    }
    return false;
}

int raise_soon(void*) { return raise_kept_error() ? -1 : 0; }

}  // namespace

int errors_kept = 0;

bool amid_handler(PyObject* until) {
    bool is = false;
    Ref at = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    while (at && at.get() != Py_None && at.get() != until && !is) {
        auto* frame = reinterpret_cast<PyFrameObject*>(at.get());
        const Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
        const auto* c = reinterpret_cast<PyCodeObject*>(code.get());
        const bool fits = c->co_argcount >= 2 || c->co_flags & CO_VARARGS;
        is = fits && has_arguments_of_handler(at.get());
        at = Ref::steal_or_null(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
    }
    PyErr_Clear();
    return is;
}

bool raised_by_handler(PyObject* trace) {
    Ref at = trace ? Ref::borrow(trace) : Ref();
    bool is = false;
    while (at && at.get() != Py_None && !is) {
        const Ref frame = Ref::steal_or_null(PyObject_GetAttrString(at.get(), "tb_frame"));
        is = frame && has_arguments_of_handler(frame.get());
        at = Ref::steal_or_null(PyObject_GetAttrString(at.get(), "tb_next"));
    }
    PyErr_Clear();
    return is;
}

void forget_error() {
    if (!PyErr_Occurred()) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!kept.type && (is_no_answer(type) || raised_by_handler(trace))) {
        kept = {type, value, trace};
        ++errors_kept;
        (void)Py_AddPendingCall(entry<raise_soon>,
                                nullptr);  // served by the main thread, as signals are
        return;
    }
    Py_DECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

void drop_own_error(PyObject* type) {
    if (PyErr_Occurred() == type) PyErr_Clear();
}

bool has_attribute(PyObject* o, const char* name) {
    const Ref found = Ref::steal_or_null(PyObject_GetAttrString(o, name));
    if (!found) forget_error();
    return bool(found);
}

bool raise_kept_error() {
    if (!kept.type) return false;
    --errors_kept;
    PyErr_Clear();
    PyErr_Restore(kept.type, kept.value, kept.trace);
    kept = {};
    return true;
}

void let_handlers_raise() {
    if (errors_kept && raise_kept_error()) throw PyError{};
    if (PyErr_CheckSignals() != 0) throw PyError{};
}

}  // namespace qd::cpython
