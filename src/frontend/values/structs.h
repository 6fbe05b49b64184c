// Structs, buffer views and views of tensors: what subscript, tensor and the builtins share about
// values that are neither one Expr nor an ordinary Python object. Private to the front end.

#pragma once

#include <span>

#include "frontend/values/values.h"

namespace qd::frontend {

// --- struct values and fields (structs.cpp)
bool is_struct_field(PyObject* o);  // quadrants.lang.field.StructField
Ref struct_element(PyObject* struct_field, PyObject* index);
Ref struct_attribute(PyObject* self, PyObject* name);
bool is_struct_type_object(PyObject* o);  // qd.types.struct(...), @qd.dataclass
Ref cast_to_member(PyObject* member_type, PyObject* value);
// A value of a struct type from positional and named members; missing members are 0.
Ref make_typed_struct(PyObject* struct_type, const CallArgs& args);
Ref make_adhoc_struct(const CallArgs& args);  // qd.Struct(...)
Ref struct_of_host(PyObject* host_struct);    // a captured qd.Struct
bool is_host_struct(PyObject* o);
void check_returned_struct(PyObject* struct_type, PyObject* value);  // raises unless of that type

// --- types of the Python side
bool is_tensor_type_object(PyObject* o);  // qd.types.vector / matrix
Type tensor_type_of_object(PyObject* o);  // its value type; raises on wildcards
Value* tensor_of_items_as(std::span<const Ref> items, Prim p);  // every element cast
// A vector or matrix from one scalar, all components, or any mixture of tensors, lists and scalars.
Value* typed_tensor(Type t, std::span<const Ref> args);
bool is_dtype_object(PyObject* o);
Ref dtype_object(Prim p);
PyTypeObject* python_class(const char* module, const char* name, PyTypeObject*& cache);
// Cheap, too, before the program has imported the module: nobody can have an instance then.
bool is_instance(PyObject* o, const char* module, const char* name, PyTypeObject*& cache);
Ref attribute_of(PyObject* o, const char* name);

Value* array_extent(PyObject* array, int axis);  // canonical axis, i32 (subscript.cpp)

// --- arrays that the threads of a block share (builtins_simt.cpp)
bool is_shared_array(PyObject* o);  // quadrants.lang.simt.block.SharedArray
Ref shared_element(PyObject* array, std::span<const Ref> indices);

// --- matrices in the lanes of a subgroup (tile.cpp)
bool is_tile_type(PyObject* o);
bool is_tile(PyObject* o);
bool is_array_part(PyObject* o);    // x[r0:r1, c0:c1] and x[r0:r1, c]: no values
bool is_tile_operand(PyObject* o);  // those, and what qd.outer gives
Ref array_part(PyObject* array, std::span<const Ref> indices);       // null: there are no tiles yet
void assign_tile(PyObject* tile, PyObject* index, PyObject* value);  // tile[index] = value
void store_part(PyObject* part, PyObject* value);                    // part = value
void update_tile(Op with, PyObject* tile, PyObject* value);          // tile -= value and the like

// An element of a captured matrix is a constant of default_ip or default_fp, so that arithmetic on
// it wraps and rounds as the kernel's does; Python's where it works on it, and where the type has
// no room. `uncaptured`: Python's number again, or what it was given.
Ref captured_number(const Ref& number);
Ref uncaptured(Ref o);

// --- several places as one value (subscript.cpp)
bool is_view(PyObject* o);
// Of a function's parameter that stands for a view of its caller: who writes to it must be expanded
// there.
void stand_for_view(PyObject* value);
bool stands_for_view(PyObject* o);
// A view that is read anew at each use, as places are: a parameter of an expanded function.
Ref live_view(PyObject* view);
bool is_live_view(PyObject* o);
Value* value_of_live(const ExprObject& view);
void check_view(PyObject* target);  // a write to it: throws HoldsTask if it is one
Ref make_view(Type t,
              std::span<const Ref> parts);  // parts: scalar Exprs, writable if all are places

// --- part of a 1-D array (buffer_view.cpp): a struct of arr, offset and size with a type of its
// own
PyObject* buffer_view_mark();
inline bool is_buffer_view(PyObject* o) {
    return is_struct(o) && reinterpret_cast<StructObject*>(o)->type == buffer_view_mark();
}
Ref make_buffer_view(PyObject* array, Value* offset, Value* size);
Ref buffer_view_of(PyObject* array_or_view, PyObject* offset, PyObject* size);
Ref buffer_view_slice(PyObject* array, PyObject* slice);
Ref buffer_view_subscript(PyObject* view, PyObject* index);
Ref buffer_view_attribute(PyObject* view, PyObject* name);

}  // namespace qd::frontend
