// Where Python runs code of the user that no call in the source shows: properties, `__getattr__`,
// operators and the like of the user's classes. Such code may answer otherwise each time, and
// change what facts say.

#pragma once

#include <Python.h>

#include <string_view>

namespace qd::frontend {

// What a class or its bases have under this name; borrowed.
PyObject* in_class(PyTypeObject* t, const char* name);
// To find o.name.
bool member_runs_hook(PyObject* o, PyObject* name);
bool item_runs_hook(PyObject* o);  // to find o[...]
// Some operator, conversion or index of its class, but for what a dataclass generates.
bool has_hooks(PyObject* o);
// Whether Python's own callable may call code of the user, or go on with it, for this operand.
bool may_run(std::string_view callee, PyObject* operand);
bool asks_for_class(std::string_view callee);  // of an operand, and for nothing else

}  // namespace qd::frontend
