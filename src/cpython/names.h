// Interned attribute names, so that look-ups compare pointers. One row a name.

#pragma once

#include <Python.h>

// clang-format off
#define QD_NAMES(X) \
    X(_fields) X(lineno) X(col_offset) X(end_lineno) X(end_col_offset) X(body) X(orelse) \
    X(test) X(fn) X(params) X(returns) X(_qd_op) X(_qd_func) X(_qd_kernel) \
    X(_is_real) X(_qd_requires_top_level) X(is_method) X(_data_oriented) X(_name_) X(_value_) X(_qd_template_primitives) \
    X(__dataclass_fields__) X(__name__) X(__qualname__) X(__module__) X(__code__) \
    X(__globals__) X(__closure__) X(__wrapped__) X(__self__) X(__func__) X(__class__) \
    X(__dict__) X(__call__) X(co_filename) X(co_firstlineno) X(co_freevars) X(co_name) \
    X(co_code) X(co_linetable) X(co_names) X(co_consts) \
    X(cell_contents) X(name) X(id) X(dtype) X(ndim) X(shape) X(n) X(m) X(needs_grad) \
    X(boundary) X(type) X(inner) X(_unwrap) X(__origin__) X(__args__) X(append) X(keys) \
    X(values) X(items) X(bounds) X(axes) X(r) X(block_dim) X(serialize) X(parallelize) \
    X(block_dim_adaptive) X(bit_vectorize) X(element_type) X(format) X(grad) X(dual) X(_checkbit) X(derivative) X(value) \
    X(__builtins__) X(layout) X(get_shape) X(is_real) X(members) X(filename) X(__doc__) X(tp) \
    X(_qd_annotation) X(fields) X(_impl) X(__get__) X(__set__) X(_tc) X(is_pure) \
    X(graph) X(checkpoints) X(requires_grad) X(data_ptr) X(is_contiguous) X(is_neg) X(is_cpu) X(__cuda_array_interface__)
// clang-format on

namespace qd::cpython {

struct Names {
#define X(name) PyObject* name##_ = nullptr;
    QD_NAMES(X)
#undef X
};
const Names& names();  // made on first use, never freed; throws PyError

}  // namespace qd::cpython
