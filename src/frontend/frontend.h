// The front end: CPython `ast` objects in, ir::Function out.
//
// While a body is lowered every value is a PyObject*: either an Expr (symbolic: an IR value, or a
// place that can be read and written) or any other Python object, a compile-time value. Operations
// among compile-time values are done by Python itself. Lists, tuples and dicts stay Python
// containers and may hold Exprs. Struct values are StructValue objects (a dict of members plus the
// struct type, for methods). Vectors and matrices that are known to Python (host qd.Matrix) are
// compile-time values; symbolic ones are one Expr of tensor type.
//
// Plain Python helpers called by a kernel run natively on Exprs: Expr implements the number,
// sequence and attribute protocols by emitting IR into the innermost active Lowering (`current()`).
//
// Errors: a user's mistake is thrown as Diag (C++); a Python exception that is already set is
// thrown as PyError. Both are turned, at the boundary, into the spec's classes with source carets.
//
// Folders, each of which may use those before it: source (text, trees), values (Expr, operators,
// tensors, structs, tables of qd.* functions), facts (provenance, guards, what annotations and
// callables mean), then calls (of funcs: arguments, keys, the specialisation cache) and body
// (walking statements and expressions), which use each other. Here: specialise (kernels) and diag
// (errors).
//
// All of it runs under the GIL and the process-wide compile lock.

#pragma once

#include <Python.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cpython/cpython.h"
#include "data/objects.h"
#include "ir/ir.h"
#include "support/format_table.h"

namespace qd::frontend {

using namespace cpython;  // both are written everywhere here
using namespace data;

struct Node;  // of a syntax tree (ast.h)

// --- errors -----------------------------------------------------------------------------------
enum class Kind {
    compilation,
    syntax,
    name,
    type,
    index,
    runtime,
    runtime_type,
    plain_runtime,
    value,
};
// Python class by kind: QuadrantsCompilationError, ...SyntaxError, ...NameError, ...TypeError,
// ...IndexError, ...RuntimeError, ...RuntimeTypeError; RuntimeError and ValueError of Python (which
// the boundary wraps).
struct Diag {
    Kind kind;
    std::string text;            // the spec's fragment first
    std::string help;            // optional second line
    const Node* node = nullptr;  // to underline; null: the node being lowered
    Diag& hint(std::string h) {
        help = std::move(h);
        return *this;
    }
};
[[noreturn]] void raise(Kind kind, std::string text, std::string hint = {});
// "did you mean 'x'?" if one of `names` is close to `word`.
std::string similar_name(PyObject* word, PyObject* names);
// The mistake behind a type's complaint about its size.
inline Diag too_large(const std::length_error& e) {
    return {Kind::type, e.what(), "use the axes of a field or an array instead"};
}
// Sets the Python exception of a Diag, for slots of Expr that plain Python helpers call (diag.cpp).
void set_python_error(const Diag& diag);
// Inside a handler: as what is being handled. Needs no memory where there is none.
void set_thrown_error() noexcept;

// --- symbolic values --------------------------------------------------------------------------
struct Lowering;

enum class ExprKind : uint8_t {
    value,     // rvalue
    variable,  // lvalue: a local variable; `value` is its slot (place type)
    element,   // lvalue: part of a field, array or variable; `value` is a place
    array,  // an array parameter; `value` is a handle (Type::array), `access` its layout/boundary
};
struct ExprObject {
    PyObject_HEAD
    ir::Value* raw;          // ask value()
    ir::ArrayAccess access;  // of kind array
    ExprKind kind;
    bool read_only;    // kernel argument, loop variable: not assignable (the message says which)
    bool shared;       // lvalue other threads may see: augmented assignment must be atomic
    uint8_t reserved;  // of kind array: 1 if it is known to have no gradient (ask lacks_gradient);
                       // of kind value: what a write to it does (subscript.cpp)
    uint32_t kernel;   // KernelState::number of the lowering that made it
    PyObject* origin;  // what to name in messages (str) or null

    // The value, which is of the kernel being lowered and can be used where that stands. Python
    // code of the user keeps values in lists and attributes and brings them back anywhere: that
    // raises.
    ir::Value* value() const;
    bool in_reach() const;  // whether value() would not raise
    ir::Type type() const;  // of `value`; of the kernel being lowered
};
extern PyTypeObject Expr_Type;
inline bool is_expr(PyObject* o) { return Py_IS_TYPE(o, &Expr_Type); }
inline ExprObject* as_expr(PyObject* o) { return reinterpret_cast<ExprObject*>(o); }

Ref make_value(ir::Value* v);  // rvalue
Ref make_place(ir::Value* place, ExprKind kind, bool shared, bool read_only = false);
Ref make_array(ir::Value* handle, ir::ArrayAccess access);
// Type as the user sees it: value type of an lvalue; kNone for arrays.
ir::Type type_of(PyObject* expr);

// A struct value: ordered members (Exprs, compile-time values, nested StructValues).
struct StructObject {
    PyObject_HEAD
    PyObject* type;     // the StructType (methods), or None for ad-hoc qd.Struct
    PyObject* members;  // dict name -> value; lvalues if the struct itself is an lvalue
};
extern PyTypeObject StructValue_Type;
inline bool is_struct(PyObject* o) { return Py_IS_TYPE(o, &StructValue_Type); }
Ref make_struct(PyObject* type, PyObject* members);  // shares the dict

// --- lowering state ---------------------------------------------------------------------------
// One per function body being lowered; nested calls push another (linked by `caller`).
enum class FunctionKind : uint8_t { kernel, func, real_func };

struct KernelState;  // shared by all Lowerings of one kernel: module, options, guards, task state
                     // (specialise.h)

struct Lowering {
    KernelState* kernel = nullptr;
    Lowering* caller = nullptr;
    ir::Builder b;  // b.function, b.region = insertion point, b.loc = current source
    FunctionKind kind = FunctionKind::kernel;
    const Node* node = nullptr;  // being lowered, for carets
    bool undecided = false;      // the body, lowered as a function, may be expanded after all
    bool may_be_walked_again() const {  // it, or one that calls it
        return undecided || (caller && caller->may_be_walked_again());
    }
    bool expanded_in_place =
        false;               // a func with tasks, expanded into its caller: shares b.function
    int runtime_depth = 0;   // enclosing runtime if/for/while: 0 = top level of this body
    int static_depth = 0;    // inside qd.static(...)
    int dead_depth = 0;      // inside branches that a constant condition never takes
    int parallel_depth = 0;  // inside a parallel loop
    struct Body;             // AST side: scopes, source, return handling (body/body.h)
    Body* body = nullptr;
};
Lowering* current();  // this thread's innermost active lowering, or null
// This thread's lowerings stand still while it lives: Python code is the user's own again.
class NotTracing {
  public:
    NotTracing();
    ~NotTracing();
    NotTracing(const NotTracing&) = delete;
    static bool active();  // in this thread

  private:
    Lowering* const kept_;
    const bool before_;
};
extern int tracing;  // how many there are in all threads, under the GIL: worth asking
Lowering& current_or_raise(const char* what);  // "`what` cannot be called in Python-scope"

// --- ops.cpp: what both AST walking and the Expr protocols use ---------------------------------
enum class UnOp : uint8_t { neg, pos, bit_not, logical_not };

// Loads an lvalue, types a Python number by default_ip/default_fp, turns lists/tuples/host
// matrices into a tensor. Raises for what has no value ("Invalid constant scalar data type: ...").
ir::Value* to_value(PyObject* o);
ir::Value* to_value_as(PyObject* o,
                       ir::Prim p);  // typed literal where it is a Python number, cast otherwise
Ref to_rvalue(PyObject* o);          // an lvalue becomes its loaded value; else unchanged
bool is_symbolic(PyObject* o);       // Expr, StructValue, or container that holds one
ir::Value* to_condition(
    PyObject* o, const char* what);  // u1; "`if` conditions must be an integer; found f32 ..."

// An op whose row has a special method; both compile-time: done by Python.
Ref binary(ir::Op op, PyObject* a, PyObject* b);
Ref unary(UnOp op, PyObject* a);
Ref cast(PyObject* a, ir::Prim p);
Ref select(PyObject* c, PyObject* a, PyObject* b);
// Stores `value` with conversion into lvalue `target` (Expr or StructValue); broadcasts, checks
// shapes.
void assign(PyObject* target, PyObject* value);
// += and friends; atomic if the target is shared (spec 10 section 7).
void assign_op(ir::Op op, PyObject* target, PyObject* value);
// A new variable holding a copy of `value`: slot(s) for Exprs/numbers, containers and structs
// element-wise; compile-time objects that cannot be stored raise. Optional primitive annotation.
Ref new_variable(PyObject* value, const ir::Prim* annotation = nullptr);
// base[index]; index is one object or a tuple, slices as slice objects. Exprs, fields, struct
// fields, ndarray params, tensors, containers, ordinary Python objects.
Ref subscript(PyObject* base, PyObject* index);
// base.name for Exprs, StructValues and data objects in kernel scope (swizzles, .shape, .n, .grad,
// bound methods); falls back to Python getattr for compile-time objects (guards recorded by
// caller).
Ref attribute(PyObject* base, PyObject* name);
// Places of a field element / array element.
Ref field_element(FieldObject* f, PyObject* const* indices, size_t n);
bool lacks_gradient(const ExprObject* array);
Ref array_element(ExprObject* array, PyObject* const* indices, size_t n);

// --- builtins: Python callables with kernel meaning ---------------------------------------------
// The block of text that shows a place in the source: file, line, function, carets.
std::string site_text(const support::SourceSite& s);

// A callable is a builtin if it has a `_qd_op` str attribute or is one of Python's own (print, min,
// abs, int, ...). Handlers get evaluated arguments; those that need AST (static, ndrange in loop
// headers, grouped) are handled by the walkers before arguments are evaluated.
struct CallArgs {
    std::vector<Ref> positional;
    std::vector<std::pair<Ref, Ref>> keywords;  // name, value
};
using BuiltinFn = Ref (*)(Lowering&, const CallArgs&);
struct Builtin {
    const char* name;
    BuiltinFn fn;
    bool takes_callable = false;  // handler wants the callable itself as first positional argument:
                                  // dtypes, vector/matrix/struct types, bound tensor methods
};
const Builtin* find_builtin(PyObject* callable);  // cached by identity; null if none
const char* operation_mark(PyObject* callable);   // its own `_qd_op`, not a copied one; or null
// What the walkers call: runs the handler, with the callable in front if it takes it.
Ref call_builtin(const Builtin& builtin, PyObject* callable, const CallArgs& args);
Ref call_builtin(const char* name,
                 const CallArgs& args);  // by name: "sin", "select", "atomic_add", ...

// --- formatted text
// ------------------------------------------------------------------------------- What an f-string
// or `"...".format(...)` with symbolic values evaluates to (made by lower_format.cpp, consumed by
// print and assert). Pieces: str = literal text; tuple (value, spec: str or None) = one conversion
// of `value` (anything print accepts) by printf rules. All-constant texts are plain str.
struct FormatObject {
    PyObject_HEAD
    PyObject* pieces;  // list
};
extern PyTypeObject FormatValue_Type;
inline bool is_format(PyObject* o) { return Py_IS_TYPE(o, &FormatValue_Type); }
inline FormatObject* as_format(PyObject* o) { return reinterpret_cast<FormatObject*>(o); }

// Statements and operators that reach the tables by name through call_builtin:
//   "assert": condition, message (None, str or FormatValue)      "print": positional + sep/end
//   "and" / "or" on tensors: a, b (element-wise 0/1)
// bind_field: the layout of a live, materialised field; registers it as a binding of this kernel.
const ir::Field* bind_field(FieldObject* f);
// Formats outlive the module (functions are shared among kernels): never Module::owned_formats.
const ir::Format* own_format(ir::Format format);

// --- calls of qd.func from C++ (matrix inverse and other library code written in the language)
// ----
Ref call_func(PyObject* func, const CallArgs& args);  // call_func.cpp
// Later processes trace this kernel anew: no fact says what the body read.
void note_opaque(const char* reason);  // specialise.cpp
bool traces_for_caller();  // and not for a signal handler that has interrupted this thread's trace
// A place is about to be written: activates the cells that an element of a sparse field lies in.
void touch(ir::Value* place);  // lower_sparse.cpp
// Elements of quantised fields, whose numbers lie packed in words (lower_packed.cpp).
bool is_packed(ir::Value* place);
ir::Value* load_place(ir::Value* place);  // of any element or variable
void store_packed(ir::Value* place, ir::Value* v);
// The old value. `atomic` is the operation's name in the language.
ir::Value* update_packed(ir::Value* place, const char* atomic, ir::Value* operand);
// Elements of meshes and their relations: struct values (lower_mesh.cpp).
bool is_mesh_elements(PyObject* o);  // mesh.verts and the like
bool is_mesh_value(PyObject* o);
bool is_mesh_relation(PyObject* o);
Ref mesh_attribute(PyObject* value, PyObject* name);  // null: not one of a mesh's
Ref mesh_neighbour(PyObject* relation, PyObject* index);
Ref mesh_patch();
// In kernels that are differentiated: of what holds the gradients of a sparse field's element.
void touch_gradient(FieldObject* f, std::span<ir::Value* const> index);

}  // namespace qd::frontend
