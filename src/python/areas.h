// The areas of the extension module: one file each, registered by module.cpp. Each returns false
// with a Python exception set if it fails.

#pragma once

#include <Python.h>

namespace qd::python {

bool add_runtime(PyObject* module);     // runtime.cpp: init, reset, sync, counters
bool add_turn(PyObject* module);        // turn.cpp: who may touch what kernels work on
bool add_options(PyObject* module);     // options.cpp
bool add_cache_tool(PyObject* module);  // cache_tool.cpp: for the command line
bool add_code_lines(PyObject* module);  // code_lines.cpp: where functions end
bool add_kernel(PyObject* module);      // kernel.cpp: the callable that users launch
bool add_field(PyObject* module);       // field.cpp: field trees and element access
bool add_ndarray(PyObject* module);     // ndarray.cpp: arrays, element access, exports
bool add_expr(PyObject* module);        // expr.cpp: symbolic values
bool add_profile(PyObject* module);     // profile.cpp: times of tasks
bool add_debug(PyObject* module);       // debug.cpp: dumps of the intermediate representation

}  // namespace qd::python
