// Walking conditions: comparison chains, `and`, `or`, conditional expressions.

#include <optional>

#include "frontend/body/body.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

ir::Value* scalar_int(PyObject* o, PyObject* a, PyObject* b, const char* symbol) {
    ir::Value* v = to_value(o);
    if (type::is_float(v->type.prim)) {
        const auto name = [](PyObject* x) { return type::to_user_string(to_value(x)->type); };
        raise(Kind::type, std::string("unsupported operand type(s) for '") + symbol + "': '" +
                              name(a) + "' and '" + name(b) + "'");
    }
    return v;
}

bool has_tensor_value(PyObject* o) {
    return is_host_matrix(o) || (is_expr(o) && type_of(o).is_tensor());
}

ir::Type type_of_both(ir::Type a, ir::Type b) {
    if (a.is_tensor() && b.is_tensor() && (a.rank != b.rank || a.n != b.n || a.m != b.m))
        raise(Kind::type, "Cannot broadcast tensor to tensor");
    return (a.is_scalar() ? b : a).with(type::promote(a.prim, b.prim));
}

ir::Value* cast_to(ir::Builder& b, ir::Value* v, ir::Type t) {
    v = b.cast(v, t.prim);
    return v->type.is_scalar() && t.is_tensor() ? b.splat(v, t) : v;
}

// `a and b` or `a or b` of tensors.
Val elementwise(bool is_and, PyObject* a, PyObject* b) {
    CallArgs args;
    args.positional = {Ref::borrow(a), Ref::borrow(b)};
    return {call_builtin(is_and ? "and" : "or", args)};
}

// A branch that is never taken: what stands in it says of what type it is, and goes again.
class NeverTaken {
    Lowering& low_;
    ir::Inst* branch_;

  public:
    explicit NeverTaken(Lowering& low) : low_(low) {
        ir::Value* never[] = {low.b.constant(ir::Type::scalar(ir::Prim::u1), 0)};
        branch_ = low.b.emit(ir::Op::if_, never, {}, 2);
    }
    ~NeverTaken() { branch_->remove(); }
    NeverTaken(const NeverTaken&) = delete;

    template <class F>
    auto lower(F f) {
        InRegion in(low_, branch_->regions[0]);
        Deeper deeper(low_.runtime_depth);
        return f();
    }
};

}  // namespace

bool Body::truth(const Val& v) {
    PyObject* o = v.get();
    const auto ask = [&] {
        const int answer = PyObject_IsTrue(o);
        if (answer < 0) throw PyError{};
        return Ref::borrow(answer == 1 ? Py_True : Py_False);
    };
    const bool length_is_fact =
        PyList_CheckExact(o) || PyTuple_CheckExact(o) || (v.prov && PyDict_CheckExact(o));
    if (is_symbolic(o) || length_is_fact) return ask().get() == Py_True;
    return operation("truth", {&v, 1}, ask).get() == Py_True;
}

Val Body::compare_chain(const Node* n) {
    Val left = expr(n->a), result;
    for (size_t k = 0; k < n->list.size(); ++k) {
        Val right = expr(n->list[k]);
        low.node = n;
        const uint8_t op = n->ops[k];
        Val r;
        if (op >= kIs) {
            const bool negated = op == kIsNot || op == kNotIn;
            if (op == kIs || op == kIsNot) {
                if (!low.static_depth)
                    raise(Kind::syntax, std::string("Operator \"") + (negated ? "is not" : "is") +
                                            "\" in Quadrants scope is not supported.");
                const auto is_none = [](const Node* side, const Val& v) {
                    return side->kind == K::Constant && v.get() == Py_None;
                };
                const bool fits = is_none(n->list[k], right)
                                      ? is_direct_argument(n->a)
                                      : is_none(n->a, left) && is_direct_argument(n->list[k]);
                if (!fits || n->list.size() != 1)
                    raise(Kind::syntax,
                          std::string("Operator \"") + (negated ? "is not" : "is") +
                              "\" inside `qd.static` requires a direct `qd.template()` or "
                              "`qd.Tensor` kernel argument and `None`.");
                r = {Ref::borrow((left.get() == right.get()) != negated ? Py_True : Py_False)};
            } else {
                if (!low.static_depth)
                    raise(Kind::syntax, negated ? "\"NotIn\" is only supported inside `qd.static`."
                                                : "\"In\" is only supported inside `qd.static`.");
                const Val operands[] = {right, left};
                const Val found = operation("contains", operands, [&] {
                    const int is_in = PySequence_Contains(right.get(), left.get());
                    if (is_in < 0) throw PyError{};
                    return Ref::borrow(is_in == 1 ? Py_True : Py_False);
                });
                r = {Ref::borrow((found.get() == Py_True) != negated ? Py_True : Py_False)};
            }
        } else {
            // Each operand is evaluated once: a variable is read before later operands can change
            // it.
            r = binary_op(n, static_cast<ir::Op>(op), left, right);
        }
        if (!result.obj)
            result = r;
        else if (low.static_depth || (!is_symbolic(result.get()) && !is_symbolic(r.get())))
            result = truth(result) ? r : result;
        else
            result = {binary(ir::Op::bit_and, result.get(), r.get())};
        left = right;
    }
    return result;
}

// A parameter of the kernel itself that may be None.
bool Body::is_direct_argument(const Node* n) {
    if (n->kind != K::Name || low.kind != FunctionKind::kernel ||
        text(n->name).starts_with("__qd_"))
        return false;
    const Binding* b = find(n->name);
    if (!b || static_cast<size_t>(b - bindings.data()) >= parameter_count) return false;
    const Ref params = Ref::steal(PyObject_GetAttr(definition.get(), names().params_));
    PyObject* annotation = PyTuple_GetItem(
        PyTuple_GetItem(params.get(), static_cast<Py_ssize_t>(b - bindings.data())), 1);
    PyObject* inner = strip_optional(annotation);
    return inner != annotation || is_template(inner) || is_tensor_annotation(inner);
}

// `a or b or c` is `a or (b or c)`, here and in the established package: types meet in that order.
Val Body::bool_op(const Node* n, size_t first) {
    const bool is_and = n->op == 0;
    const char* symbol = is_and ? "&&" : "||";
    Val left = expr(n->list[first]);
    if (first + 1 == n->list.size()) return left;
    low.node = n;
    const auto rest = [&] {
        Val right = bool_op(n, first + 1);
        unit.consume(right);
        low.node = n;
        return right;
    };
    if (low.static_depth) return truth(left) != is_and ? left : bool_op(n, first + 1);
    if (!low.kernel->options.short_circuit_operators)
        return binary_op(n, is_and ? ir::Op::bit_and : ir::Op::bit_or, left, rest());
    if (is_host_matrix(left.get())) left = {make_value(to_value(left.get()))};
    if (!is_symbolic(left.get()) || is_container(left.get())) {
        const bool decided = truth(left) != is_and;
        return known_left(std::move(left), decided, n, first + 1);
    }
    const ir::Type lt = type_of(left.get());
    if (lt.is_tensor()) return elementwise(is_and, left.get(), rest().get());
    if (type::is_float(lt.prim)) scalar_int(left.get(), left.get(), rest().get(), symbol);
    ir::Value* l = to_value(left.get());
    ir::Value* operands[] = {low.b.cast(l, ir::Prim::u1)};
    const ir::Type placeholder = l->type;
    ir::Inst* branch = low.b.emit(ir::Op::if_, operands, {&placeholder, 1}, 2);
    ir::Region *evaluated = branch->regions[is_and ? 0 : 1],
               *decided = branch->regions[is_and ? 1 : 0];
    {
        InRegion in(low, evaluated);
        Deeper deeper(low.runtime_depth);
        Val right = rest();
        if (has_tensor_value(right.get())) right = elementwise(is_and, left.get(), right.get());
        ir::Value* r = scalar_int(right.get(), left.get(), right.get(), symbol);
        const ir::Prim p = type::promote(l->type.prim, r->type.prim);
        branch->results[0].type = r->type.with(p);
        ir::Value* out[] = {low.b.cast(r, p)};
        low.b.end(ir::Op::yield, out);
    }
    {
        InRegion in(low, decided);
        const ir::Type type = branch->results[0].type;
        ir::Value* v = low.b.cast(l, type.is_tensor() ? ir::Prim::u1 : type.prim);
        ir::Value* out[] = {low.b.splat(low.b.cast(v, type.prim), type)};
        low.b.end(ir::Op::yield, out);
    }
    return {make_value(branch->result())};
}

// What a compile-time `left` makes of `left and right` or `left or right`. Beside a run-time
// operand the result is a run-time value too, of the type of both.
Val Body::known_left(Val left, bool decided, const Node* n, size_t rest) {
    const bool is_and = n->op == 0, is_float = PyFloat_Check(left.get());
    std::optional<NeverTaken> left_out;
    const auto lower_rest = [&] { return bool_op(n, rest); };
    Val right = decided && !is_float ? left_out.emplace(low).lower(lower_rest) : lower_rest();
    low.node = n;
    const bool is_sequence = PyList_Check(left.get()) || PyTuple_Check(left.get());
    if (left_out && is_sequence && has_tensor_value(right.get())) {  // it decides nothing
        left_out.reset();
        right = lower_rest();
    }
    const auto beside_right = [&](auto f) { return left_out ? left_out->lower(f) : f(); };
    if (has_tensor_value(right.get()) && !is_float) {
        if (left_out) {  // its components don't matter
            const ir::Type t = beside_right([&] { return to_value(right.get())->type; });
            right = {make_value(low.b.splat(low.b.constant(t.element(), 0), t))};
        }
        return elementwise(is_and, left.get(), right.get());
    }
    if (!is_number(left.get()) || !is_expr(right.get())) return decided ? left : right;
    beside_right([&] {  // a float is a mistake where it doesn't count, too
        for (PyObject* side : {left.get(), right.get()})
            scalar_int(side, left.get(), right.get(), is_and ? "&&" : "||");
    });
    unit.consume(left);
    ir::Value* v = to_value((decided ? left : right).get());
    const ir::Prim other = type_of(right.get()).prim;
    const ir::Prim p = type::promote(to_value(left.get())->type.prim, other);
    return {make_value(low.b.cast(v, p))};
}

Val Body::if_exp(const Node* n) {
    if (is_static_call(n->a)) return expr(static_truth(n->a) ? n->b : n->c);
    Val c = expr(n->a);
    low.node = n;
    if (has_tensor_value(c.get()))
        raise(Kind::syntax,
              "The condition of a conditional expression must be a scalar. Please use "
              "\"qd.select\" instead.");
    if (!is_symbolic(c.get()) || is_container(c.get())) return known_side(n, truth(c));
    ir::Value* condition = to_condition(c.get(), "ternary");
    ir::Value* operands[] = {condition};
    const ir::Type placeholder = ir::Type::scalar(ir::Prim::i32);
    ir::Inst* branch = low.b.emit(ir::Op::if_, operands, {&placeholder, 1}, 2);
    ir::Value* v[2];
    Val parts[2];
    const Node* sides[2] = {n->b, n->c};
    for (int k = 0; k < 2; ++k) {
        InRegion in(low, branch->regions[k]);
        Deeper deeper(low.runtime_depth);
        parts[k] = {value(sides[k])};
        low.node = n;
        v[k] = to_value(parts[k].get());
    }
    const ir::Type t = type_of_both(v[0]->type, v[1]->type);
    branch->results[0].type = t;
    for (int k = 0; k < 2; ++k) {
        InRegion in(low, branch->regions[k]);
        ir::Value* outs[] = {cast_to(low.b, v[k], t)};
        low.b.end(ir::Op::yield, outs);
    }
    return {make_value(branch->result())};
}

// The side that a compile-time condition chooses. Beside a run-time value the other one still says
// what type the result has: `x if FLAG else 0` is a float, whatever FLAG is.
Val Body::known_side(const Node* n, bool condition) {
    if (low.static_depth) return expr(condition ? n->b : n->c);
    Val taken, other;
    std::optional<NeverTaken> left_out;
    for (const bool side : {true, false}) {
        const Node* part = side ? n->b : n->c;
        if (side == condition)
            taken = expr(part);
        else
            other = left_out.emplace(low).lower([&] { return expr(part); });
    }
    low.node = n;
    const auto has_type = [](const Val& v) {
        return is_expr(v.get()) || is_number(v.get()) || is_host_matrix(v.get());
    };
    const bool either_at_run_time = is_expr(taken.get()) || is_expr(other.get());
    if (!either_at_run_time || !has_type(taken) || !has_type(other)) return taken;
    unit.consume(taken), unit.consume(other);
    ir::Value* v = to_value(taken.get());
    const ir::Type t =
        left_out->lower([&] { return type_of_both(v->type, to_value(other.get())->type); });
    return {make_value(cast_to(low.b, v, t))};
}

}  // namespace qd::frontend
