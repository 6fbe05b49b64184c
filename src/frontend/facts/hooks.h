// Where Python runs code of the user that no call in the source shows: properties, `__getattr__`,
// operators and the like of the user's classes. Such code may answer otherwise each time, and
// change what facts say.

#pragma once

#include <Python.h>

namespace qd::frontend {

// To find o.name. Properties that only look and count do not matter.
bool member_runs_hook(PyObject* o, PyObject* name);
bool item_runs_hook(PyObject* o);  // to find o[...]
// Some operator, conversion or index of its class.
bool has_hooks(PyObject* o);

}  // namespace qd::frontend
