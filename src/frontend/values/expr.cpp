// The Expr and StructValue Python types: symbolic values as Python sees them.
//
// Plain Python helpers that a kernel calls compute with these, so the number, sequence and
// attribute protocols emit IR into the innermost lowering. Expr objects come and go by the hundred
// thousand while a body is lowered; a free list keeps them cheap. Under the GIL.

#include <cstring>

#include "cpython/entry.h"
#include "frontend/specialise.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

constexpr int kFreeMost = 256;
ExprObject* free_list[kFreeMost];
int free_count = 0;

// Number of the kernel being lowered; 0: none is.
uint32_t kernel_now() {
    const Lowering* l = current();
    return l ? static_cast<uint32_t>(l->kernel->number) : 0;
}

[[noreturn, gnu::cold]] void not_of_this_kernel() {
    raise(Kind::compilation,
          std::string("A value of a kernel is used ") +
              (current() ? "in the compilation of another one" : "in Python, outside of kernels"),
          "it was computed while a kernel was compiled and kept in a Python object; what kernels "
          "compute leaves them as a result or through fields and arrays");
}

[[noreturn, gnu::cold]] void out_of_reach() {
    raise(
        Kind::compilation,
        "A value is used outside of the function, branch or loop that computes it",
        "it was kept in a Python object; assign it to a variable that is defined outside, or pass "
        "it as an argument");
}

ExprObject* new_expr() {
    ExprObject* e;
    if (free_count) {
        e = free_list[--free_count];
        (void)PyObject_Init(reinterpret_cast<PyObject*>(e), &Expr_Type);
    } else {
        e = PyObject_New(ExprObject, &Expr_Type);
        if (!e) throw PyError{};
    }
    e->raw = nullptr;
    e->access = {};
    e->kind = ExprKind::value;
    e->read_only = e->shared = false;
    e->reserved = 0;
    e->kernel = kernel_now();
    e->origin = nullptr;
    return e;
}

void expr_dealloc(PyObject* o) {
    ExprObject* e = as_expr(o);
    Py_XDECREF(e->origin);
    if (free_count < kFreeMost)
        free_list[free_count++] = e;
    else
        PyObject_Free(e);
}

template <Op op>
PyObject* number_slot(PyObject* a, PyObject* b) {
    return guarded([&] { return binary(op, a, b); });
}
PyObject* number_pow(PyObject* a, PyObject* b, PyObject* modulus) {
    if (modulus == Py_None) return number_slot<Op::pow>(a, b);
    PyErr_SetString(PyExc_TypeError, "pow() takes two arguments in a kernel; write a ** b % m");
    return nullptr;
}
template <UnOp op>
PyObject* unary_slot(PyObject* a) {
    return guarded([&] { return unary(op, a); });
}
PyObject* absolute(PyObject* a) {
    return guarded([&] {
        CallArgs args;
        args.positional.push_back(Ref::borrow(a));
        return call_builtin("abs", args);
    });
}

int expr_bool(PyObject*) {
    PyErr_SetString(PyExc_TypeError,
                    "a value that is only known when the kernel runs cannot decide a Python "
                    "branch; use it in the kernel's own `if`, or qd.select");
    return -1;
}

PyObject* compare_slot(PyObject* a, PyObject* b, int op) {
    static const Op table[] = {Op::lt, Op::le, Op::eq,
                               Op::ne, Op::gt, Op::ge};  // Py_LT, LE, EQ, NE, GT, GE
    return guarded([&] { return binary(table[op], a, b); });
}

Py_hash_t expr_hash(PyObject* o) {
    return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(o) >> 4);
}

// The type for slots that cannot throw; none with a Python exception set unless it is a tensor's.
Type tensor_type(PyObject* o, const char* otherwise) {
    Type t = type::kNone;
    Py_XDECREF(guarded([&] {
        t = type_of(o);
        if (!t.is_tensor())
            PyErr_Format(
                PyExc_TypeError, otherwise,
                as_expr(o)->kind == ExprKind::array ? "ndarray" : type::to_user_string(t).c_str());
        return Ref::borrow(t.is_tensor() ? Py_None : nullptr);
    }));
    return t.is_tensor() ? t : type::kNone;
}

Py_ssize_t expr_length(PyObject* o) {
    const Type t = tensor_type(o, "object of type '%s' has no len()");
    return t.is_tensor() ? t.n : -1;
}

PyObject* expr_item(PyObject* o, PyObject* key) {
    return guarded([&] { return subscript(o, key); });
}

// Stores through the place that `find` returns.
template <class Find>
int store_to(Find find, PyObject* value) {
    PyObject* done = guarded([&] {
        if (!value) raise(Kind::syntax, "parts of a value cannot be deleted");
        const Ref place = find();
        assign(place.get(), value);
        return Ref::borrow(Py_None);
    });
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int expr_set_item(PyObject* o, PyObject* key, PyObject* value) {
    return store_to([&] { return subscript(o, key); }, value);
}

// Attributes of structs, too.
PyObject* expr_getattr(PyObject* o, PyObject* name) {
    return guarded([&] { return attribute(o, name); });
}

int expr_setattr(PyObject* o, PyObject* name, PyObject* value) {
    return store_to([&] { return attribute(o, name); }, value);
}

// Vectors iterate over components, matrices over rows.
PyObject* expr_iter(PyObject* o) {
    const Type t = tensor_type(o, "'%s' object is not iterable");
    if (!t.is_tensor()) return nullptr;
    PyObject* list = PyList_New(0);
    for (int k = 0; list && k < t.n; ++k) {
        PyObject* item = guarded([&] {
            if (t.rank == 1) {
                const Ref key = Ref::steal(PyLong_FromLong(k));
                return subscript(o, key.get());
            }
            Value* v = to_value(o);
            std::vector<Value*> row;
            for (int j = 0; j < t.m; ++j) row.push_back(component(v, k * t.m + j));
            return make_value(build(Type::vector(t.prim, t.m), row));
        });
        if (!item || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            Py_CLEAR(list);
            break;
        }
        Py_DECREF(item);
    }
    if (!list) return nullptr;
    PyObject* it = PyObject_GetIter(list);
    Py_DECREF(list);
    return it;
}

PyObject* expr_repr(PyObject* o) {
    const ExprObject& e = *as_expr(o);
    if (e.kernel != kernel_now())
        return PyUnicode_FromString("<Quadrants Expression of a kernel that is compiled>");
    return PyUnicode_FromFormat(
        "<Quadrants Expression of type %s>",
        e.kind == ExprKind::array ? "ndarray" : type::to_user_string(type_of(o)).c_str());
}

PyNumberMethods number_methods = {
    .nb_add = entry<number_slot<Op::add>>,
    .nb_subtract = entry<number_slot<Op::sub>>,
    .nb_multiply = entry<number_slot<Op::mul>>,
    .nb_remainder = entry<number_slot<Op::mod>>,
    .nb_power = entry<number_pow>,
    .nb_negative = entry<unary_slot<UnOp::neg>>,
    .nb_positive = entry<unary_slot<UnOp::pos>>,
    .nb_absolute = entry<absolute>,
    .nb_bool = entry<expr_bool>,
    .nb_invert = entry<unary_slot<UnOp::bit_not>>,
    .nb_lshift = entry<number_slot<Op::shl>>,
    .nb_rshift = entry<number_slot<Op::shr>>,
    .nb_and = entry<number_slot<Op::bit_and>>,
    .nb_xor = entry<number_slot<Op::bit_xor>>,
    .nb_or = entry<number_slot<Op::bit_or>>,
    .nb_floor_divide = entry<number_slot<Op::floordiv>>,
    .nb_true_divide = entry<number_slot<Op::div>>,
    .nb_matrix_multiply = entry<number_slot<Op::matmul>>,
};
PyMappingMethods mapping_methods = {entry<expr_length>, entry<expr_item>, entry<expr_set_item>};

// --- struct values
// --------------------------------------------------------------------------------
StructObject* as_struct(PyObject* o) { return reinterpret_cast<StructObject*>(o); }

int struct_traverse(PyObject* o, visitproc visit, void* arg) {
    Py_VISIT(as_struct(o)->type);
    Py_VISIT(as_struct(o)->members);
    return 0;
}
int struct_clear(PyObject* o) {
    Py_CLEAR(as_struct(o)->type);
    Py_CLEAR(as_struct(o)->members);
    return 0;
}
void struct_dealloc(PyObject* o) {
    PyObject_GC_UnTrack(o);
    struct_clear(o);
    PyObject_GC_Del(o);
}
PyObject* struct_item(PyObject* o, PyObject* key) {
    PyObject* member = PyDict_GetItemWithError(as_struct(o)->members, key);
    if (!member && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
    return Py_XNewRef(member);
}
Py_ssize_t struct_length(PyObject* o) { return PyDict_Size(as_struct(o)->members); }
PyMappingMethods struct_mapping = {entry<struct_length>, entry<struct_item>, nullptr};

}  // namespace

PyTypeObject Expr_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants.lang.expr.Expr",
    .tp_basicsize = sizeof(ExprObject),
    .tp_dealloc = entry<expr_dealloc>,
    .tp_repr = entry<expr_repr>,
    .tp_as_number = &number_methods,
    .tp_as_mapping = &mapping_methods,
    .tp_hash = entry<expr_hash>,
    .tp_getattro = entry<expr_getattr>,
    .tp_setattro = entry<expr_setattr>,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A value that is known when the kernel runs.",
    .tp_richcompare = entry<compare_slot>,
    .tp_iter = entry<expr_iter>,
};

PyTypeObject StructValue_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants.lang.struct.StructValue",
    .tp_basicsize = sizeof(StructObject),
    .tp_dealloc = entry<struct_dealloc>,
    .tp_as_mapping = &struct_mapping,
    .tp_getattro = entry<expr_getattr>,
    .tp_setattro = entry<expr_setattr>,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A struct in a kernel: its members by name.",
    .tp_traverse = entry<struct_traverse>,
    .tp_clear = entry<struct_clear>,
};

Ref make_value(ir::Value* v) {
    ExprObject* e = new_expr();
    e->raw = v;
    return Ref::steal(reinterpret_cast<PyObject*>(e));
}

Ref make_place(ir::Value* place, ExprKind kind, bool shared, bool read_only) {
    ExprObject* e = new_expr();
    e->raw = place;
    e->kind = kind;
    e->shared = shared;
    e->read_only = read_only;
    return Ref::steal(reinterpret_cast<PyObject*>(e));
}

Ref make_array(ir::Value* handle, ir::ArrayAccess access) {
    ExprObject* e = new_expr();
    e->raw = handle;
    e->kind = ExprKind::array;
    e->access = access;
    return Ref::steal(reinterpret_cast<PyObject*>(e));
}

Ref make_struct(PyObject* type, PyObject* members) {
    auto* s = PyObject_GC_New(StructObject, &StructValue_Type);
    if (!s) throw PyError{};
    s->type = Py_NewRef(type);
    s->members = Py_NewRef(members);
    PyObject_GC_Track(s);
    return Ref::steal(reinterpret_cast<PyObject*>(s));
}

ir::Builder& builder() {
    Lowering* l = current();
    if (!l) not_of_this_kernel();
    return l->b;
}

ir::Value* ExprObject::value() const {
    if (kernel != kernel_now()) not_of_this_kernel();
    const ir::Region* home = raw->def ? raw->def->parent : raw->owner;
    if (encloses(home, current()->b.region)) return raw;
    if (!can_outlive(raw)) out_of_reach();
    return outlived(raw);
}

bool ExprObject::in_reach() const {
    if (kernel != kernel_now()) return false;
    const ir::Region* home = raw->def ? raw->def->parent : raw->owner;
    return encloses(home, current()->b.region) || can_outlive(raw);
}

ir::Type ExprObject::type() const {
    if (kernel != kernel_now()) not_of_this_kernel();
    return raw->type;
}

ir::Type type_of(PyObject* expr) {
    if (!is_expr(expr)) invalid_scalar(expr);
    const ExprObject& e = *as_expr(expr);
    return e.kind == ExprKind::array ? type::kNone : e.type().value();
}

}  // namespace qd::frontend
