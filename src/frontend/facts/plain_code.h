// Code of the user that is seen at a glance to look only.
//
// It stores in nothing but its own variables, and all that its names can mean is numbers, texts,
// tuples of such, functions of this kind, and objects of classes without hooks, of which those
// members are such as well. Of anything else _inspect/effects.py tells, which takes longer to
// import than a stored kernel to find.

#pragma once

#include <Python.h>

#include <span>

#include "cpython/cpython.h"

namespace qd::frontend {

// True: to call it changes nothing that outlives the call. False: it may.
bool looks_plainly(PyObject* callee, std::span<const cpython::Ref> operands);

}  // namespace qd::frontend
