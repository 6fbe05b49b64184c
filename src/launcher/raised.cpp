// See raised.h.

#include "launcher/raised.h"

#include <utility>

#include "support/clock.h"

namespace qd::launcher {
namespace {
void add_context(PyObject* exception,
                 PyObject* before) {  // takes `before`; handlers may raise one twice
    if (before && before != exception) {
        PyException_SetContext(exception, before);
    } else {
        Py_XDECREF(before);
    }
}
}  // namespace

void Raised::keep() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    Py_DECREF(type);
    Py_XDECREF(trace);
    add_context(value, std::exchange(value_, value));
}

bool Raised::check_signals() {
    const bool again = value_;
    if (PyErr_CheckSignals() != 0) {
        keep();
        if (again) return true;
        since_ns_ = support::now_ns();
    }
    return value_ && support::now_ns() - since_ns_ >= kWholeNs;
}

void Raised::restore() {
    PyObject* const own = std::exchange(value_, nullptr);
    if (PyErr_Occurred()) keep();
    add_context(own, std::exchange(value_, nullptr));
    PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(own))), own,
                  PyException_GetTraceback(own));
}

}  // namespace qd::launcher
