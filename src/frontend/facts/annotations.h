// What annotations and array objects mean.

#pragma once

#include <optional>
#include <string>

#include "frontend/frontend.h"

namespace qd::frontend {

struct ArrayInfo {
    ir::Type elem;
    int ndim = 0;
    ir::ArrayAccess access;
    bool has_grad = false;
    // What the annotation says: the last axes of others' arrays are an element's; and of such an
    // array, that an ndarray of the same type would be refused.
    bool splits = false, only_foreign = false;
};
// NumPy array, torch tensor, or an array of a GPU that says so.
bool is_external_array(PyObject* o);
bool array_info(PyObject* o, ArrayInfo& out);                  // any array; false if it is none
std::optional<ir::Prim> prim_of(PyObject* annotation);         // dtype objects, int, float, bool
std::optional<ir::Type> tensor_type_of(PyObject* annotation);  // vector and matrix types
// Raises if the sizes of a vector or matrix are open: `what` says of whom.
void need_sizes(const ir::Type& t, const std::string& what);
bool is_template(PyObject* annotation);
bool is_ndarray_annotation(PyObject* annotation);
bool is_tensor_annotation(PyObject* annotation);  // qd.Tensor
bool is_dataclass(PyObject* type);
bool is_instance_field(PyObject* field);  // of a dataclass
bool is_buffer_view_annotation(PyObject* annotation);
bool is_struct_type(PyObject* annotation);       // qd.types.struct, qd.dataclass
PyObject* strip_optional(PyObject* annotation);  // X | None -> X (borrowed)
bool is_empty(PyObject* annotation);             // no annotation

// The types of results; several if the annotation is a tuple of types.
std::vector<Ref> result_annotations(PyObject* annotation, bool& is_tuple);

void check_array_expr(PyObject* annotation, const ExprObject* array, const std::string& name);
void bind_array_type(PyObject* annotation, PyObject* array, const std::string& name,
                     ArrayInfo& a);  // checks; compound elements

}  // namespace qd::frontend
