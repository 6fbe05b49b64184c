// NumPy arrays and torch tensors as kernel arguments, read without importing either package.

#pragma once

#include <Python.h>

#include "type/type.h"

namespace qd::data {

constexpr int kMostAxes = 12 + 2;  // of an array, and of its elements

struct ExternalArray {
    char* data = nullptr;
    bool has_grad = false;               // a torch tensor that requires one; made if it was missing
    char* grad = nullptr;                // of that; also null if it is empty
    type::Prim prim = type::Prim::none;  // none: nothing that a kernel can use
    int ndim = 0;
    int64_t shape[kMostAxes] = {};  // if it can
    bool c_contiguous = false;      // and aligned: used in place
    bool dense = false;             // or Fortran-ordered, or not aligned: launched through a copy
    bool read_only = false;
    bool is_torch = false;
    bool on_device = false;
};

bool is_numpy(PyObject* o);  // an instance of numpy.ndarray
bool is_torch(PyObject* o);  // an instance of torch.Tensor; false while torch is not imported
type::Prim prim_of_array_dtype(PyObject* dtype);  // of NumPy or torch; none: not one of ours
// Whether another process may see the memory of either kind.
bool may_be_shared(PyObject* o);
// Reads either kind. False with a Python exception set.
bool read_external(PyObject* o, ExternalArray& out);

}  // namespace qd::data
