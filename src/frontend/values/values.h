// What the files behind the symbolic values share: conversions between Python objects and IR
// values, types of dtype objects, tensors by component. Private to expr, ops, assign, subscript,
// tensor and builtins_*.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpython/numpy_scalar.h"
#include "frontend/frontend.h"

namespace qd::frontend {

using ir::Op;
using ir::Prim;
using ir::Type;
using ir::Value;

ir::Builder& builder();  // of the innermost lowering; raises in Python scope
ir::Prim default_int();
ir::Prim default_float();

// A dtype object, or Python's int, float, bool; nullopt for anything else.
std::optional<Prim> prim_of_dtype(PyObject* o);
// Python numbers: bool, int, float, NumPy scalars, 0-d arrays, enum members that are ints.
// Whether a value made in `home` can be used in `at`: at is home or lies inside it.
bool encloses(const ir::Region* home, const ir::Region* at);
// outlive.cpp. Whether what made the value is over, but it can be had all the same; and so it is.
bool can_outlive(const ir::Value* v);
ir::Value* outlived(ir::Value* v);
// Whether the variable is of a section or a stream that is over, and another one is being lowered.
bool is_of_sibling(const ir::Value* variable);
bool is_number(PyObject* o);
// A NumPy scalar or 0-d array as a Python number; null Ref if it is neither.
Ref numpy_item(PyObject* o);
// Of a type whose instances are guarded by value.
bool is_plain_constant(PyObject* o);
bool is_enum_member(PyObject* o);
bool is_host_matrix(PyObject* o);        // quadrants.lang.matrix.Matrix with components
bool is_empty_matrix(PyObject* o);       // without: has no value in the IR, stays a Python object
inline bool is_container(PyObject* o) {  // Python's own
    return PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o);
}
Ref empty_matrix(const char* function);

Value* const_of(Prim p, double v);
// The bits of an integer literal of type p, which is `what` ("default_ip" or "specified dtype"):
// out of its range is an error.
int64_t literal_bits(PyObject* o, Prim p, const char* what);
int64_t default_literal(PyObject* o);  // of type default_ip
Value* integer_literal(PyObject* o, Prim p, const char* what);

// Two operands brought to one type and shape. `divide`: integers become default_float first.
struct Pair {
    Value *a, *b;
};
Pair promoted(PyObject* a, PyObject* b, const char* symbol, bool divide = false);
Type shaped(Type shape, Prim p);         // p with the shape of a value type
Value* broadcast(Value* v, Type shape);  // scalar to tensor, else unchanged
Value* component(Value* tensor, int flat);
std::vector<Value*> components(Value* v);  // row-major; one for a scalar
Value* build(Type t, std::span<Value* const> parts);
Ref index_tensor(std::vector<Value*> indices);  // a vector of i32
Value* index_value(PyObject* o,
                   int position);  // integer scalar for an index; errors of spec 10 section 4
std::vector<Ref> index_list(
    PyObject* index);  // one object or a tuple; vectors and sequences flattened
// Whether operators leave this operand to Python: it is no value of the kernel.
bool is_left_to_python(PyObject* o);
std::optional<long long> static_int(PyObject* o);  // a compile-time integer
[[noreturn]] void invalid_scalar(PyObject* o, std::string hint = {});
[[noreturn]] void unsupported_operands(const char* symbol, PyObject* a, PyObject* b);
std::string type_text(PyObject* o);  // how a value's type reads in messages
Ref unary_op(Op op, PyObject* a);
Ref float_op(Op op, PyObject* a,
             bool promote_ints);  // real functions; `promote_ints`: sqrt exp log
Ref interned(const char* text);
std::string text_of(PyObject* o);                    // str(o)
Value* tensor_of_items(std::span<const Ref> items);  // list or tuple literal to vector/matrix
// The value as type `target`: converted and broadcast; shapes must agree. `verb` starts the
// precision warning ("Assign", "Atomic add").
Value* fit(PyObject* value, Type target, const char* verb);
Op atomic_of(Op op);  // what `x op= y` is where other threads may see x; count_ if it is no atomic
bool assign_op_special(Op op, PyObject* target, PyObject* value);
// Targets that are neither Expr nor struct (swizzles, slices): true if it was one and is stored.
bool assign_special(PyObject* target, PyObject* value);
// Tensor members and methods (tensor.cpp): null Ref if there is no such name.
Ref tensor_attribute(PyObject* self, std::string_view name);
bool is_tensor_method(std::string_view name);
Ref tensor_attribute_names(ir::Type t);           // list of str, without swizzles
const Builtin* bound_method(PyObject* callable);  // null if it is not one made by make_bound
Ref make_bound(
    PyObject* self,
    const char* method);  // callable that runs call_builtin("Matrix.<method>", self, ...)

// Integer arithmetic that reports its overflow in debug mode (overflow.cpp).
void report_overflow(Op op, Value* a, Value* b, Value* r);          // r = a op b, computed already
Value* atomic_arithmetic(Op atomic, Value* place, Value* operand);  // any atomic; the old value
Value* add(Value* a, Value* b);
Value* subtract(Value* a, Value* b);
Value* multiply(Value* a, Value* b);
Value* sum_of(Value* v);
Value* inner_product(Value* a, Value* b);
Value* matrix_times(Value* x, Value* y, Type result);  // matrix x vector or matrix

// Runs f and turns Diag / PyError / anything else into a set Python exception and null.
template <class F>
PyObject* guarded(F&& f) noexcept;

}  // namespace qd::frontend

namespace qd::frontend {
// Thrown when a body that is lowered on its own must be expanded instead: it calls what must be at
// the kernel's top level, or it changes a list or dict of its caller.
struct HoldsTask {};
void hold_in_python();  // in its place where Python is between: a Python exception is set

template <class F>
PyObject* guarded(F&& f) noexcept {
    try {
        return f().release();
    } catch (...) {
        set_thrown_error();
        return nullptr;
    }
}
}  // namespace qd::frontend
