// Exceptions of the package.

#include <string_view>

#include "cpython/cpython.h"

namespace qd::cpython {

void set_error(const char* name, const std::string& text) { set_error(name, text.c_str()); }

void set_error(const char* name, const char* text) noexcept {
    if (PyObject* builtin = std::string_view(name) == "TypeError"      ? PyExc_TypeError
                            : std::string_view(name) == "ValueError"   ? PyExc_ValueError
                            : std::string_view(name) == "IndexError"   ? PyExc_IndexError
                            : std::string_view(name) == "RuntimeError" ? PyExc_RuntimeError
                            : std::string_view(name) == "MemoryError"  ? PyExc_MemoryError
                                                                       : nullptr)
        return PyErr_SetString(builtin, text);
    PyObject* module = PyImport_ImportModule("quadrants.lang.exception");
    if (!module) return;
    PyObject* cls = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    if (!cls) return;
    PyErr_SetString(cls, text);
    Py_DECREF(cls);
}

}  // namespace qd::cpython
