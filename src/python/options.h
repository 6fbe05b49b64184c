// The live options: Python's values checked into ir::Options, and the option table for Python.

#pragma once

#include <Python.h>

#include "ir/options.h"

namespace qd::python {

// Sets one option; what has no row is Python's alone. False, with an exception, for what is no
// value of it.
bool set_option(ir::Options& options, PyObject* name, PyObject* value);

}  // namespace qd::python
