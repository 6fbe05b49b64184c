// The areas of the extension module that lie here, one file each; module.cpp registers them, those
// of data and the launcher. Each returns false with a Python exception set if it fails.

#pragma once

#include <Python.h>

#include <functional>

#include "runtime/device.h"

namespace qd::python {

bool add_runtime(PyObject* module);     // runtime.cpp: init, reset, sync, counters
bool add_turn(PyObject* module);        // turn.cpp: who may touch what kernels work on
bool add_streams(PyObject* module);     // streams.cpp: of the device, and its events
bool add_declaring(PyObject* module);   // declaring.cpp: who may add to field trees
bool add_options(PyObject* module);     // options.cpp
bool add_cache_tool(PyObject* module);  // cache_tool.cpp: for the command line
bool add_code_lines(PyObject* module);  // code_lines.cpp: where functions end
bool add_expr(PyObject* module);        // expr.cpp: symbolic values
bool add_debug(PyObject* module);       // debug.cpp: dumps of the intermediate representation

// Asks again and again with the GIL released, and looks at signals in between: None, or null with
// an exception set. streams.cpp
PyObject* wait_for_device(const std::function<runtime::Wait(int64_t most_ns)>& wait);

// A fork waits for who declares: the child would not have that thread.
void declaring_before_fork();
void declaring_after_fork();
void declaring_in_forked_child();

}  // namespace qd::python
