// NumPy arrays and torch tensors as kernel arguments, read without importing either package.

#pragma once

#include <Python.h>

#include "type/type.h"

namespace qd::python {

struct ExternalArray {
    char* data = nullptr;
    char* grad = nullptr;  // of a torch tensor that requires one; made if it was missing
    type::Prim prim = type::Prim::none;  // none: a dtype we do not take
    int ndim = 0;
    int64_t shape[32] = {};
    bool c_contiguous = false, f_contiguous = false;
    bool is_torch = false;
    bool on_device = false;
};

bool is_numpy(PyObject* o);  // an instance of numpy.ndarray
bool is_torch(PyObject* o);  // an instance of torch.Tensor; false while torch is not imported
// Reads either kind. False with a Python exception set.
bool read_external(PyObject* o, ExternalArray& out);

}  // namespace qd::python
