// What is known of a callable: what it means to a kernel, and what an answer of it says.

#pragma once

#include <string>
#include <string_view>

#include "frontend/frontend.h"

namespace qd::frontend {

enum class Callee : uint8_t { python, operation, builtin, func, kernel };

struct Known {
    Ref object, owner;  // keep the key and the definition alive
    Callee callee = Callee::python;
    std::string op;
    const Builtin* builtin = nullptr;
    PyObject* definition = nullptr;
};

const Known& known(PyObject* o);
std::string_view operation_of(PyObject* callable);  // its _qd_op, "" if none
PyObject* func_of(PyObject* callable);  // FuncDef behind a callable, borrowed; null if it is none
bool is_kernel_callable(PyObject* callable);
bool is_harmless(PyObject* callable);            // Python's own, which does what it says
bool is_own_code(PyObject* callable);            // a function, class or method of this package
bool is_our(PyTypeObject* t, const char* name);  // users have classes of these names too
bool is_long_lived(PyObject* o);
PyObject* owner_of(PyObject* callable);  // the object of a bound method, or null
std::string callee_name(PyObject* f);

// Of harmless ones: sees more than its operands; changes the object that it is a method of.
bool sees_more(const std::string& name);
bool changes_object(const std::string& name);
bool is_of_chance(PyObject* f);
bool is_function_of_numbers(PyObject* f);

}  // namespace qd::frontend
