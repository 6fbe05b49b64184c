// NumPy arrays in Fortran order or with odd addresses are launched through C-ordered copies, which
// are copied back.
#pragma once

#include "launcher/kernel.h"

namespace qd::launcher {

bool needs_copy(PyObject* argument);

// Arguments and members of dataclass arguments. Null without an error: none needs a copy.
PyObject* launch_with_copies(KernelObject& k, PyObject* const* args, size_t count);

}  // namespace qd::launcher
