// Constructors and methods of vectors and matrices, and constructors of structs.

#include <algorithm>
#include <array>

#include "frontend/source/ast.h"
#include "frontend/values/builtins.h"

namespace qd::frontend {
namespace {

// Arithmetic on values in formulas.
struct Num {
    Value* v;
};
// Sums round each product by itself, so that those of singular matrices cancel.
Num rounded(Value* v) {
    if (v->def && (v->def->op == Op::add || v->def->op == Op::sub))
        v->def->flags |= ir::kNoFastMath;
    return {v};
}
Num operator+(Num a, Num b) { return rounded(add(a.v, b.v)); }
Num operator-(Num a, Num b) { return rounded(subtract(a.v, b.v)); }
Num operator*(Num a, Num b) { return {multiply(a.v, b.v)}; }
Num operator-(Num a) { return {builder().op(Op::neg, {a.v})}; }

std::string shape_text(Type t) {
    return t.rank == 2 ? "(" + std::to_string(t.n) + ", " + std::to_string(t.m) + ")"
                       : "(" + std::to_string(t.n) + ",)";
}

[[noreturn]] void different_shapes(std::span<Value* const> values) {
    std::string list;
    for (Value* v : values) list += (list.empty() ? "" : ", ") + shape_text(v->type);
    raise(Kind::compilation, "required shapes to be the same, got shapes [" + list + "]");
}

Value* tensor(PyObject* o, const char* method) {
    Value* v = to_value(o);
    if (!v->type.rank)
        raise(Kind::compilation, std::string("`") + method + "` needs a vector or matrix, got " +
                                     type::to_user_string(v->type));
    return v;
}

Value* real(Value* v) {
    return type::is_int(v->type.prim) ? builder().cast(v, default_float()) : v;
}

Value* transposed(Value* v) {
    Value* operands[] = {v};
    return builder().typed(Op::transpose, Type::matrix(v->type.prim, v->type.m, v->type.n),
                           operands);
}

// Whether a list literal stands among the operands of `e`, an operator's node.
bool operates_on_list(const Node* e) {
    if (e->kind != NodeKind::BinOp) return e->kind == NodeKind::List || e->kind == NodeKind::Tuple;
    return operates_on_list(e->a) || operates_on_list(e->b);
}

// `[0] * n` makes a list of n elements only where n is known: at run time it is arithmetic on a
// vector, whose length stays as written.
void refuse_list_arithmetic(const Node* call) {
    if (call->kind == NodeKind::Call && !call->list.empty() && operates_on_list(call->list[0]))
        raise(Kind::type,
              "a list times a run-time value, or added to one, is arithmetic on its elements: the "
              "length must be known while compiling",
              "use a constant, qd.static or a qd.template() argument for the length");
}

// --- constructors -------------------------------------------------------------------------------
template <bool vector>
Ref literal(Lowering& low, const CallArgs& a) {
    static const char* const names[] = {"arr", "dt"};
    const char* function = vector ? "Vector" : "Matrix";
    const auto p = parameters(a, function, names, 1);
    const bool typed = p[1] && p[1] != Py_None;
    PyObject* arr = p[0];
    Ref list;
    if (is_expr(arr) || is_host_matrix(arr)) {
        Value* v = tensor(arr, function);
        if (is_expr(arr) && low.node) refuse_list_arithmetic(low.node);
        return make_value(typed ? builder().cast(v, prim_argument(p[1], function)) : v);
    }
    if (!PyList_Check(arr) && !PyTuple_Check(arr) && has_attribute(arr, "tolist")) {  // NumPy array
        list = Ref::steal(PyObject_CallMethod(arr, "tolist", nullptr));
        arr = list.get();
    }
    if (PyRange_Check(arr)) {
        list = Ref::steal(PySequence_List(arr));
        arr = list.get();
    }
    if (!PyList_Check(arr) && !PyTuple_Check(arr))
        raise(Kind::type, "An Matrix/Vector can only be initialized with an array-like object");
    if (PySequence_Fast_GET_SIZE(arr) == 0) return empty_matrix(function);
    std::vector<Ref> items;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(arr); ++k)
        items.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(arr, k)));
    PyObject* first = items[0].get();
    if (is_host_matrix(first) || (is_expr(first) && type_of(first).rank))
        raise(Kind::compilation, "cols/rows required when using list of vectors",
              "write qd.Matrix.rows([...]) or qd.Matrix.cols([...])");
    return make_value(typed ? tensor_of_items_as(items, prim_argument(p[1], function))
                            : tensor_of_items(items));
}

Ref typed(Lowering&, const CallArgs& a) {
    PyObject* type = a.positional.at(0).get();
    if (has_attribute(reinterpret_cast<PyObject*>(Py_TYPE(type)), "misuse")) {  // it is unpacked
        const Ref why = Ref::steal(PyObject_CallMethod(type, "misuse", "s", "instantiate"));
        raise(Kind::syntax, text_of(why.get()));
    }
    const Type t = tensor_type_of_object(type);
    if (!a.keywords.empty()) raise(Kind::type, "vector and matrix types take no keyword arguments");
    if (a.positional.size() == 1)
        raise(Kind::syntax, "Custom type instances need to be created with an initial value.");
    return make_value(typed_tensor(t, std::span(a.positional).subspan(1)));
}

template <int value>
Ref filled(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"dt", "n", "m"};
    const char* function = value ? "one" : "zero";
    const auto p = parameters(a, function, names, 2);
    const Prim prim = prim_argument(p[0], function);
    const int n = int_argument(p[1], function, "n");
    const Type t = p[2] && p[2] != Py_None
                       ? Type::matrix(prim, n, int_argument(p[2], function, "m"))
                       : Type::vector(prim, n);
    return make_value(broadcast(builder().int_const(prim, value), t));
}

Ref square(int n, Value* diagonal) {
    const Prim p = diagonal->type.prim;
    Value* zero = builder().int_const(p, 0);
    std::vector<Value*> parts(static_cast<size_t>(n * n), zero);
    for (int k = 0; k < n; ++k) parts[static_cast<size_t>(k * n + k)] = diagonal;
    return make_value(build(Type::matrix(p, n, n), parts));
}

Ref identity(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"dt", "n"};
    const auto p = parameters(a, "identity", names);
    return square(int_argument(p[1], "identity", "n"),
                  builder().int_const(prim_argument(p[0], "identity"), 1));
}

Ref diag(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"dim", "val"};
    const auto p = parameters(a, "diag", names);
    Value* v = is_static_number(p[1]) && PyBool_Check(p[1]) ? to_value_as(p[1], default_int())
                                                            : to_value(p[1]);
    if (v->type.rank) raise(Kind::type, "diag() needs a scalar");
    return square(int_argument(p[0], "diag", "dim"), v);
}

Ref unit(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"n", "i", "dt"};
    const auto p = parameters(a, "unit", names, 2);
    const Prim prim = p[2] && p[2] != Py_None ? prim_argument(p[2], "unit") : default_int();
    const int n = int_argument(p[0], "unit", "n");
    if (const auto i = static_int(p[1]); i && (*i < 0 || *i >= n))
        raise(Kind::value, "unit() needs 0 <= i < n, got i = " + std::to_string(*i) +
                               ", n = " + std::to_string(n));
    Value* at = to_value(p[1]);
    if (at->type.rank || type::is_float(at->type.prim))
        raise(Kind::type, "unit() needs an integer i");
    std::vector<Value*> parts;
    for (int k = 0; k < n; ++k)
        parts.push_back(builder().cast(
            builder().op(Op::eq, {at, builder().int_const(at->type.prim, k)}), prim));
    return make_value(build(Type::vector(prim, n), parts));
}

template <bool as_columns>
Ref stacked(Lowering&, const CallArgs& a) {
    const char* name = as_columns ? "cols" : "rows";
    PyObject* list = single(a, name, name);
    const Ref items = Ref::steal(PySequence_List(list));
    std::vector<Value*> lines;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items.get()); ++k)
        lines.push_back(tensor(PyList_GET_ITEM(items.get(), k), "rows"));
    if (lines.empty()) different_shapes(lines);
    Prim p = lines[0]->type.prim;
    for (Value*& v : lines) {
        if (v->type.rank != 1 || v->type.n != lines[0]->type.n) different_shapes(lines);
        p = type::promote(p, v->type.prim);
    }
    if (lines.size() == 1) p = lines[0]->type.prim;
    std::vector<Value*> parts;
    for (Value* v : lines)
        for (Value* c : components(builder().cast(v, p))) parts.push_back(c);
    Value* m = build(Type::matrix(p, static_cast<int>(lines.size()), lines[0]->type.n), parts);
    return make_value(as_columns ? transposed(m) : m);
}

// --- reductions ---------------------------------------------------------------------------------
template <Op op>
Ref reduction(Lowering&, const CallArgs& a) {
    const char* name = op == Op::reduce_min ? "min" : "max";
    return make_value(builder().op(op, {tensor(single(a, name, "self"), name)}));
}

Ref sum(Lowering&, const CallArgs& a) {
    return make_value(sum_of(tensor(single(a, "sum", "self"), "sum")));
}

template <Op op>
Ref truth(Lowering&, const CallArgs& a) {
    const char* name = op == Op::reduce_or ? "any" : "all";
    Value* v = tensor(single(a, name, "self"), name);
    Value* zero = broadcast(builder().int_const(v->type.prim, 0), v->type);
    return make_value(builder().op(op, {builder().op(Op::ne, {v, zero})}));
}

// --- lengths and products -----------------------------------------------------------------------
// sqrt(sum of squares + eps)
Value* norm_value(Value* v, PyObject* eps) {
    const Ref square = make_value(inner_product(v, v));
    const bool none = !eps || (is_static_number(eps) && PyObject_IsTrue(eps) == 0);
    const Ref sum = none ? square : binary(Op::add, square.get(), eps);
    return builder().op(Op::sqrt, {real(to_value(sum.get()))});
}

struct SelfEps {
    Value* self;
    PyObject* eps;
};
SelfEps self_eps(const CallArgs& a, const char* method) {
    static const char* const names[] = {"self", "eps"};
    const auto p = parameters(a, method, names, 1);
    return {tensor(p[0], method), p[1]};
}

Ref norm_sqr(Lowering&, const CallArgs& a) {
    Value* v = tensor(single(a, "norm_sqr", "self"), "norm_sqr");
    return make_value(inner_product(v, v));
}
Ref norm(Lowering&, const CallArgs& a) {
    const SelfEps s = self_eps(a, "norm");
    return make_value(norm_value(s.self, s.eps));
}
Ref norm_inv(Lowering&, const CallArgs& a) {
    const SelfEps s = self_eps(a, "norm_inv");
    Value* n = norm_value(s.self, s.eps);
    Value* one = broadcast(builder().int_const(n->type.prim, 1), n->type);
    return make_value(builder().op(Op::div, {one, n}));
}
Ref normalized(Lowering&, const CallArgs& a) {
    const SelfEps s = self_eps(a, "normalized");
    if (s.self->type.rank != 1)
        raise(Kind::compilation, "expected a vector, got shape " + shape_text(s.self->type));
    Ref length = make_value(norm_value(s.self, nullptr));
    if (s.eps) length = binary(Op::add, length.get(), s.eps);
    return binary(Op::div, make_value(s.self).get(), length.get());
}

Parameters<2> self_other(const CallArgs& a, const char* method) {
    static const char* const names[] = {"self", "other"};
    return parameters(a, method, names);
}

// Both as one primitive type, shapes apart.
Pair same_prim(Value* x, Value* y) {
    const Prim p = type::promote(x->type.prim, y->type.prim);
    return {builder().cast(x, p), builder().cast(y, p)};
}

Pair two_vectors(PyObject* a, PyObject* b, const char* method) {
    Value* const values[] = {to_value(a), to_value(b)};
    for (Value* v : values)
        if (v->type.rank != 1)
            raise(Kind::compilation, std::string(v == values[0] ? "lhs" : "rhs") + " for " +
                                         method + " is not a vector");
    return same_prim(values[0], values[1]);
}

Ref dot(Lowering&, const CallArgs& a) {
    const auto p = self_other(a, "dot");
    const Pair v = two_vectors(p[0], p[1], "dot");
    if (v.a->type.n != v.b->type.n) unsupported_operands("*", p[0], p[1]);
    return make_value(inner_product(v.a, v.b));
}

Ref cross(Lowering&, const CallArgs& a) {
    const auto p = self_other(a, "cross");
    const Pair v = two_vectors(p[0], p[1], "cross");
    const Type t = v.a->type;
    if (v.b->type != t) different_shapes(std::array{v.a, v.b});
    if (t.n != 2 && t.n != 3)
        raise(Kind::compilation, "only dimension < 4 is supported, got shape " + shape_text(t));
    Num x[3], y[3];
    for (int k = 0; k < t.n; ++k) x[k] = {component(v.a, k)}, y[k] = {component(v.b, k)};
    if (t.n == 2) return make_value((x[0] * y[1] - x[1] * y[0]).v);
    Value* parts[] = {(x[1] * y[2] - x[2] * y[1]).v, (x[2] * y[0] - x[0] * y[2]).v,
                      (x[0] * y[1] - x[1] * y[0]).v};
    return make_value(build(t, parts));
}

Ref outer_product(Lowering&, const CallArgs& a) {
    const auto p = self_other(a, "outer_product");
    const Pair v = two_vectors(p[0], p[1], "outer_product");
    std::vector<Value*> parts;
    const std::vector<Value*> x = components(v.a), y = components(v.b);
    for (Value* i : x)
        for (Value* j : y) parts.push_back((Num{i} * Num{j}).v);
    return make_value(build(Type::matrix(v.a->type.prim, v.a->type.n, v.b->type.n), parts));
}

Ref frobenius_inner(Lowering&, const CallArgs& a) {
    const auto p = self_other(a, "frobenius_inner");
    const Pair v = same_prim(tensor(p[0], "frobenius_inner"), tensor(p[1], "frobenius_inner"));
    if (v.a->type != v.b->type) different_shapes(std::array{v.a, v.b});
    return make_value(inner_product(v.a, v.b));
}

// --- square matrices ----------------------------------------------------------------------------
Value* square_matrix(const CallArgs& a, const char* method) {
    Value* v = tensor(single(a, method, "self"), method);
    if (v->type.rank != 2 || v->type.n != v->type.m)
        raise(Kind::compilation, "expected a square matrix, got shape " + shape_text(v->type));
    return v;
}

Ref transpose(Lowering&, const CallArgs& a) {
    Value* v = tensor(single(a, "transpose", "self"), "transpose");
    if (v->type.rank != 2)
        raise(Kind::compilation,
              "`transpose()` cannot apply to a vector. If you want something like `a @ "
              "b.transpose()`, write `a.outer_product(b)` instead.");
    return make_value(transposed(v));
}

Ref trace(Lowering&, const CallArgs& a) {
    Value* v = square_matrix(a, "trace");
    Num sum{component(v, 0)};
    for (int k = 1; k < v->type.n; ++k) sum = sum + Num{component(v, k * v->type.n + k)};
    return make_value(sum.v);
}

// Entries of a matrix of at most 4 rows.
struct Entries {
    Num e[4][4];
    explicit Entries(Value* m) {
        for (int i = 0; i < m->type.n; ++i)
            for (int j = 0; j < m->type.n; ++j) e[i][j] = {component(m, i * m->type.n + j)};
    }
    Num minor2(int i, int k, int j, int l) const { return e[i][j] * e[k][l] - e[i][l] * e[k][j]; }
};

Num determinant2(const Entries& m) { return m.minor2(0, 1, 0, 1); }
Num determinant3(const Entries& m) {
    return m.e[0][0] * m.minor2(1, 2, 1, 2) - m.e[0][1] * m.minor2(1, 2, 0, 2) +
           m.e[0][2] * m.minor2(1, 2, 0, 1);
}

// 2x2 minors of the upper two rows (s) and the lower two (c), by pairs of columns 01 02 03 12
// 13 23.
struct Minors4 {
    Num s[6], c[6];
    explicit Minors4(const Entries& m) {
        static const int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
        for (int k = 0; k < 6; ++k) {
            s[k] = m.minor2(0, 1, pairs[k][0], pairs[k][1]);
            c[k] = m.minor2(2, 3, pairs[k][0], pairs[k][1]);
        }
    }
    Num determinant() const {
        return s[0] * c[5] - s[1] * c[4] + s[2] * c[3] + s[3] * c[2] - s[4] * c[1] + s[5] * c[0];
    }
};

Ref determinant(Lowering&, const CallArgs& a) {
    Value* v = square_matrix(a, "determinant");
    const int n = v->type.n;
    if (n > 4)
        raise(Kind::compilation,
              "only dimension < 5 is supported, got shape " + shape_text(v->type));
    const Entries m(v);
    if (n == 1) return make_value(m.e[0][0].v);
    return make_value((n == 2   ? determinant2(m)
                       : n == 3 ? determinant3(m)
                                : Minors4(m).determinant())
                          .v);
}

std::vector<Num> adjugate3(const Entries& m) {
    return {m.minor2(1, 2, 1, 2),  -m.minor2(0, 2, 1, 2), m.minor2(0, 1, 1, 2),
            -m.minor2(1, 2, 0, 2), m.minor2(0, 2, 0, 2),  -m.minor2(0, 1, 0, 2),
            m.minor2(1, 2, 0, 1),  -m.minor2(0, 2, 0, 1), m.minor2(0, 1, 0, 1)};
}

std::vector<Num> adjugate4(const Entries& m, const Minors4& f) {
    const auto& e = m.e;
    const auto &s = f.s, &c = f.c;
    return {
        e[1][1] * c[5] - e[1][2] * c[4] + e[1][3] * c[3],
        -(e[0][1] * c[5]) + e[0][2] * c[4] - e[0][3] * c[3],
        e[3][1] * s[5] - e[3][2] * s[4] + e[3][3] * s[3],
        -(e[2][1] * s[5]) + e[2][2] * s[4] - e[2][3] * s[3],
        -(e[1][0] * c[5]) + e[1][2] * c[2] - e[1][3] * c[1],
        e[0][0] * c[5] - e[0][2] * c[2] + e[0][3] * c[1],
        -(e[3][0] * s[5]) + e[3][2] * s[2] - e[3][3] * s[1],
        e[2][0] * s[5] - e[2][2] * s[2] + e[2][3] * s[1],
        e[1][0] * c[4] - e[1][1] * c[2] + e[1][3] * c[0],
        -(e[0][0] * c[4]) + e[0][1] * c[2] - e[0][3] * c[0],
        e[3][0] * s[4] - e[3][1] * s[2] + e[3][3] * s[0],
        -(e[2][0] * s[4]) + e[2][1] * s[2] - e[2][3] * s[0],
        -(e[1][0] * c[3]) + e[1][1] * c[1] - e[1][2] * c[0],
        e[0][0] * c[3] - e[0][1] * c[1] + e[0][2] * c[0],
        -(e[3][0] * s[3]) + e[3][1] * s[1] - e[3][2] * s[0],
        e[2][0] * s[3] - e[2][1] * s[1] + e[2][2] * s[0],
    };
}

// Above 4 rows elimination, written in the language itself.
Ref library_inverse(PyObject* self) {
    const Ref library = Ref::steal(PyImport_ImportModule("quadrants._library"));
    const Ref function = Ref::steal(PyObject_GetAttrString(library.get(), "inverse"));
    CallArgs args;
    args.positional.push_back(Ref::borrow(self));
    return call_func(function.get(), args);
}

// The derivative of an inverse R is -R dA R: that of the elimination's steps is not asked for.
Ref inverse_by_elimination(Value* v) {
    const Ref found = library_inverse(make_value(v).get());
    Value* r = real(to_value(found.get()));
    ir::Builder& b = builder();
    const auto product = [&](Value* x, Value* y) {
        Value* of[] = {x, y};
        return b.typed(Op::matmul, r->type, of);
    };
    Value* zero = broadcast(b.constant(r->type.element(), 0), r->type);
    Value* still = b.op(Op::attach, {r, zero});
    return make_value(b.op(Op::attach, {r, b.op(Op::neg, {product(product(still, v), still)})}));
}

Ref inverse(Lowering&, const CallArgs& a) {
    Value* v = real(square_matrix(a, "inverse"));
    const int n = v->type.n;
    if (n > 12)
        raise(Kind::compilation,
              "only dimension < 13 is supported, got shape " + shape_text(v->type));
    if (n > 4) return inverse_by_elimination(v);
    const Entries m(v);
    const Prim p = v->type.prim;
    std::vector<Num> adjugate;
    Num determinant = m.e[0][0];
    if (n == 1) adjugate = {{builder().int_const(p, 1)}};
    if (n == 2)
        adjugate = {m.e[1][1], -m.e[0][1], -m.e[1][0], m.e[0][0]}, determinant = determinant2(m);
    if (n == 3) adjugate = adjugate3(m), determinant = determinant3(m);
    if (n == 4) {
        const Minors4 f(m);
        adjugate = adjugate4(m, f), determinant = f.determinant();
    }
    std::vector<Value*> parts;
    for (Num x : adjugate) parts.push_back(x.v);
    Value* scaled = build(v->type, parts);
    return make_value(builder().op(Op::div, {scaled, broadcast(determinant.v, v->type)}));
}

// --- the rest -----------------------------------------------------------------------------------
Ref cast_method(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"self", "dtype"};
    const auto p = parameters(a, "cast", names);
    return cast(p[0], prim_argument(p[1], "cast"));
}

Ref fill(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"self", "val"};
    const auto p = parameters(a, "fill", names);
    assign(p[0], p[1]);
    return Ref::borrow(Py_None);
}

Ref get_shape(Lowering&, const CallArgs& a) {
    const Type t = tensor(single(a, "get_shape", "self"), "get_shape")->type;
    return Ref::steal(t.rank == 1 ? Py_BuildValue("(i)", int(t.n))
                                  : Py_BuildValue("(ii)", int(t.n), int(t.m)));
}

Ref to_list(Lowering&, const CallArgs& a) {
    Value* v = tensor(single(a, "to_list", "self"), "to_list");
    const Ref list = Ref::steal(PyList_New(v->type.n));
    for (int i = 0; i < v->type.n; ++i) {
        if (v->type.rank == 1) {
            PyList_SET_ITEM(list.get(), i, make_value(component(v, i)).release());
            continue;
        }
        PyObject* row = Ref::steal(PyList_New(v->type.m)).release();
        PyList_SET_ITEM(list.get(), i, row);
        for (int j = 0; j < v->type.m; ++j)
            PyList_SET_ITEM(row, j, make_value(component(v, i * v->type.m + j)).release());
    }
    return list;
}

// --- structs ------------------------------------------------------------------------------------
Ref adhoc_struct(Lowering&, const CallArgs& a) { return make_adhoc_struct(a); }

// Called as a type (type, members...) or by traced Python (type, args tuple, kwargs dict).
Ref typed_struct(Lowering&, const CallArgs& a) {
    PyObject* type = a.positional.at(0).get();
    CallArgs members;
    const bool traced = a.positional.size() == 3 && PyTuple_CheckExact(a.positional[1].get()) &&
                        PyDict_CheckExact(a.positional[2].get());
    if (!traced) {
        members.positional.assign(a.positional.begin() + 1, a.positional.end());
        members.keywords = a.keywords;
        return make_typed_struct(type, members);
    }
    PyObject* args = a.positional[1].get();
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); ++k)
        members.positional.push_back(Ref::borrow(PyTuple_GET_ITEM(args, k)));
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(a.positional[2].get(), &at, &key, &value))
        members.keywords.emplace_back(Ref::borrow(key), Ref::borrow(value));
    return make_typed_struct(type, members);
}

const Builtin kRows[] = {
    {"Vector", literal<true>},
    {"Matrix", literal<false>},
    {"typed_tensor", typed},
    {"Struct", adhoc_struct},
    {"typed_struct", typed_struct},
    {"Matrix.zero", filled<0>},
    {"Matrix.one", filled<1>},
    {"Matrix.identity", identity},
    {"Matrix.unit", unit},
    {"Matrix.diag", diag},
    {"Matrix.rows", stacked<false>},
    {"Matrix.cols", stacked<true>},
    {"Matrix.sum", sum},
    {"Matrix.min", reduction<Op::reduce_min>},
    {"Matrix.max", reduction<Op::reduce_max>},
    {"Matrix.any", truth<Op::reduce_or>},
    {"Matrix.all", truth<Op::reduce_and>},
    {"Matrix.norm", norm},
    {"Matrix.norm_sqr", norm_sqr},
    {"Matrix.norm_inv", norm_inv},
    {"Matrix.normalized", normalized},
    {"Matrix.dot", dot},
    {"Matrix.cross", cross},
    {"Matrix.outer_product", outer_product},
    {"Matrix.frobenius_inner", frobenius_inner},
    {"Matrix.transpose", transpose},
    {"Matrix.trace", trace},
    {"Matrix.determinant", determinant},
    {"Matrix.inverse", inverse},
    {"Matrix.cast", cast_method},
    {"Matrix.fill", fill},
    {"Matrix.get_shape", get_shape},
    {"Matrix.to_list", to_list},
};

}  // namespace

std::span<const Builtin> tensor_builtins() { return kRows; }

}  // namespace qd::frontend
