// Lines of the log.

#include "cpython/cpython.h"

namespace qd::cpython {

bool log_line(const char* level, const std::string& text) {
    const Ref log = Ref::steal_or_null(PyImport_ImportModule("quadrants._logging"));
    return log && Ref::steal_or_null(PyObject_CallMethod(log.get(), level, "s", text.c_str()));
}

void try_to_log(const char* level, const std::string& text) {
    PyObject *type, *value, *trace;  // of what is on its way to the user
    PyErr_Fetch(&type, &value, &trace);
    if (!log_line(level, text)) forget_error();
    PyErr_Restore(type, value, trace);
}

void log_or_throw(const char* level, const std::string& text) {
    if (!log_line(level, text)) throw PyError{};
}

}  // namespace qd::cpython
