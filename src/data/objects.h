// Native layouts of the Python objects that hold data. The launcher and the front end read these
// slots directly; the Python classes (ScalarField, MatrixField, ScalarNdarray, ...) derive from the
// two base types and add the rest of the public surface. Implemented in
// {field,ndarray,tensor}.cpp.
//
// Touched under the GIL only. `generation` is the runtime's number at creation (1, 2, ... counts
// qd.init); an object of an older generation is stale: every use raises, none crashes.

#pragma once

#include <Python.h>

#include "ir/ir.h"

namespace qd::data {

// A scalar, vector or matrix field. Struct fields are Python objects made of these.
struct FieldObject {
    PyObject_HEAD
    PyObject* dict;
    PyObject* weakrefs;
    const ir::Field* field;  // null until its tree is materialised; then fixed. Owned by the tree
                             // record, which outlives every compiled kernel of the generation
    char* base;              // address of element zero's member: what Module::fields binding wants
    uint32_t generation;
    uint32_t tree;     // number of the SNode tree
    uint64_t uid;      // process-wide number of this field object, never reused
    bool has_storage;  // gradient companions may have none
    bool destroyed;
};

// An ndarray: dense row-major elements, possibly with permuted axes (layout).
struct NdarrayObject {
    PyObject_HEAD
    PyObject* dict;
    PyObject* weakrefs;
    PyObject* grad;   // NdarrayObject or null
    PyObject* owner;  // object that keeps `data` alive
    char* data;
    ir::Type elem;    // value type of one element
    uint64_t layout;  // as ir::ArrayAccess::layout; 0 identity
    uint32_t generation;
    uint8_t ndim;
    bool layout_tagged;  // explicit identity tag specialises apart
    int32_t shape[12];   // canonical
};

// qd.Tensor: a wrapper around a field or an ndarray.
struct TensorObject {
    PyObject_HEAD
    PyObject* dict;
    PyObject* weakrefs;
    PyObject* impl;
};

extern PyTypeObject FieldBase_Type;
extern PyTypeObject TensorBase_Type;
extern PyTypeObject NdarrayBase_Type;
// Whether who asks runs while this thread traces a kernel; the front end sets it. A host access
// there would happen once, whatever later launches find.
extern bool (*is_traced)();
bool refuse_while_traced(const char* method);  // then an exception is set

inline bool is_field(PyObject* o) { return PyObject_TypeCheck(o, &FieldBase_Type); }
inline bool is_ndarray(PyObject* o) { return PyObject_TypeCheck(o, &NdarrayBase_Type); }
inline bool is_tensor(PyObject* o) { return PyObject_TypeCheck(o, &TensorBase_Type); }
// The bare field or ndarray behind a wrapper; anything else unchanged. Borrowed.
inline PyObject* unwrap(PyObject* o) {
    return is_tensor(o) ? reinterpret_cast<TensorObject*>(o)->impl : o;
}

// Number of the live runtime; 0 when there is none.
uint32_t current_generation();
// Whether fields were declared since the last materialisation.
bool has_pending_fields();

// What the extension module has of them; false with a Python exception set.
bool add_field(PyObject* module);    // field trees and element access
bool add_ndarray(PyObject* module);  // arrays, element access, exports

}  // namespace qd::data
