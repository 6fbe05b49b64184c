// NumPy arrays, torch tensors, and what says by the "CUDA Array Interface" where on a GPU it lies
// (CuPy, JAX, Numba), as kernel arguments; read without importing any of the packages.

#pragma once

#include <Python.h>

#include <cstdint>

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
    uint64_t stream = 0;  // of the device, that writes it; 0: none, or the default one
};

bool is_numpy(PyObject* o);  // an instance of numpy.ndarray
bool is_torch(PyObject* o);  // an instance of torch.Tensor; false while torch is not imported
type::Prim prim_of_array_dtype(PyObject* dtype);  // of NumPy or torch; none: not one of ours
// Whether its class has __cuda_array_interface__, and is no torch.Tensor.
bool has_interface(PyObject* o);
bool is_external(PyObject* o);  // any of the three
// Whether another process may see the memory of any kind.
bool may_be_shared(PyObject* o);
// Reads any kind. False with a Python exception set.
bool read_external(PyObject* o, ExternalArray& out);

}  // namespace qd::data
