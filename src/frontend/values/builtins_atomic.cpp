// Atomic operations and volatile_load.
//
// A target that only this thread can see is read, computed and written plainly, so that it can stay
// in a register.

#include "frontend/values/builtins.h"

namespace qd::frontend {
namespace {

const ExprObject& target_of(PyObject* x, const char* name) {
    check_view(x);
    if (is_field(x))
        raise(Kind::syntax,
              std::string("cannot use a non-writable target as the first operand of '") + name +
                  "': it is a field; index it first");
    const bool writable =
        is_expr(x) && !as_expr(x)->read_only &&
        (as_expr(x)->kind == ExprKind::variable || as_expr(x)->kind == ExprKind::element);
    if (!writable)
        raise(
            Kind::syntax,
            std::string("cannot use a non-writable target as the first operand of '") + name + "'");
    return *as_expr(x);
}

[[noreturn]] void integers_required(const char* word, Prim p) {
    raise(Kind::type, std::string("'atomic_") + word + "' requires integer operands, got " +
                          type::info(p).name);
}

// Of atomic_exchange the new value is the operand itself.
const char* word_of(Op atomic) {  // in messages about operand types
    const Op step = ir::info(atomic).step;
    return step == Op::count_ ? "exchange" : ir::info(step).python;
}

// Gives the old value.
Value* change(Op op, const ExprObject& target, Value* operand) {
    const ir::OpInfo& row = ir::info(op);
    ir::Builder& b = builder();
    if (target.shared) return atomic_arithmetic(op, target.value(), operand);
    Value* old = b.load(target.value());
    Value* changed = row.step == Op::count_ ? operand : b.op(row.step, {old, operand});
    report_overflow(row.step, old, operand, changed);
    b.store(target.value(), changed);
    return old;
}

template <Op op>
Ref atomic(Lowering&, const CallArgs& a) {
    constexpr const ir::OpInfo& row = ir::kOps[static_cast<int>(op)];
    const char* word = word_of(op);
    static const char* const names[] = {"x", "y"};
    const auto p = parameters(a, row.python, names);
    PyObject* x = unwrap(p[0]);
    const ExprObject* whole = is_view(x) ? nullptr : &target_of(x, row.python);
    const Type t = whole ? whole->type().value() : type_of(x);
    if (row.takes == ir::Takes::ints) {
        if (type::is_float(t.prim)) integers_required(word, t.prim);
        const Prim given = to_value(p[1])->type.prim;
        if (type::is_float(given)) integers_required(word, given);
    }
    const std::string verb = std::string("Atomic ") + word;
    Value* operand = fit(p[1], t, verb.c_str());
    if (whole) return make_value(change(op, *whole, operand));
    PyObject* places = as_expr(x)->origin;
    std::vector<Value*> olds;
    for (int k = 0; k < t.count(); ++k)
        olds.push_back(
            change(op, target_of(PyTuple_GET_ITEM(places, k), row.python), component(operand, k)));
    return make_value(build(t, olds));
}

Ref compare_and_swap(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"x", "expected", "desired"};
    const auto p = parameters(a, "atomic_cas", names);
    const ExprObject& target = target_of(unwrap(p[0]), "atomic_cas");
    const Type t = target.type().value();
    if (t.rank)
        raise(Kind::type, "'atomic_cas' on tensor (vector / matrix) destinations is not supported",
              "use it on one component");
    if (type::is_float(t.prim)) integers_required("cas", t.prim);
    Value* wanted[2];
    for (int k = 0; k < 2; ++k) {
        Value* v = to_value(p[static_cast<size_t>(k) + 1]);
        if (v->type.rank) raise(Kind::type, "'atomic_cas' takes scalars");
        wanted[k] = builder().cast(v, t.prim);
    }
    ir::Builder& b = builder();
    if (is_packed(target.value()))
        raise(Kind::type, "'atomic_cas' is not supported on quantised fields",
              "their numbers share words; use another atomic operation");
    if (target.shared) {
        touch(target.value());
        return make_value(b.op(Op::atomic_cas, {target.value(), wanted[0], wanted[1]}));
    }
    Value* old = b.load(target.value());
    b.store(target.value(), b.op(Op::select, {b.op(Op::eq, {old, wanted[0]}), wanted[1], old}));
    return make_value(old);
}

Ref volatile_load(Lowering&, const CallArgs& a) {
    PyObject* x = unwrap(single(a, "volatile_load", "target"));
    if (is_field(x))
        raise(Kind::syntax, "volatile_load cannot pass a Field directly", "index it first");
    if (!is_expr(x) || as_expr(x)->kind == ExprKind::value || as_expr(x)->kind == ExprKind::array)
        raise(Kind::syntax, "volatile_load requires an lvalue");
    const ir::Inst* def = as_expr(x)->value()->def;
    while (def && def->op == Op::comp_place) def = def->operand(0)->def;
    if (def && def->op == Op::slot)
        raise(Kind::type, "volatile_load of a local variable or local array has no meaning");
    if (is_packed(as_expr(x)->value())) return make_value(load_place(as_expr(x)->value()));
    return make_value(builder().op(Op::volatile_load, {as_expr(x)->value()}));
}

constexpr bool changes_a_place(const ir::OpInfo& row) {
    return row.kind == ir::Kind::atomic && row.operands == 2;
}

template <size_t... op>
std::vector<Builtin> rows(std::index_sequence<op...>) {
    std::vector<Builtin> all{{"atomic_cas", compare_and_swap}, {"volatile_load", volatile_load}};
    const auto add = [&]<size_t k>() {
        if constexpr (changes_a_place(ir::kOps[k]))
            all.push_back({ir::kOps[k].python, atomic<Op(k)>});
    };
    (add.template operator()<op>(), ...);
    return all;
}

}  // namespace

std::span<const Builtin> atomic_builtins() {
    static const auto all = rows(std::make_index_sequence<std::size(ir::kOps)>());
    return all;
}

}  // namespace qd::frontend
