// Atomic operations and volatile_load.
//
// A target that only this thread can see is read, computed and written plainly, so that it can stay
// in a register.

#include "frontend/builtins.h"

namespace qd::frontend {
namespace {

struct AtomicRow {
    Op atomic;
    Op plain;            // Op::count_: the new value is the operand itself
    const char* python;  // qd.<python>
    const char* word;    // in messages about operand types
    bool integers_only;
};
const AtomicRow kAtomics[] = {
    {Op::atomic_add, Op::add, "atomic_add", "add", false},
    {Op::atomic_sub, Op::sub, "atomic_sub", "sub", false},
    {Op::atomic_mul, Op::mul, "atomic_mul", "mul", false},
    {Op::atomic_min, Op::min, "atomic_min", "min", false},
    {Op::atomic_max, Op::max, "atomic_max", "max", false},
    {Op::atomic_and, Op::bit_and, "atomic_and", "bit_and", true},
    {Op::atomic_or, Op::bit_or, "atomic_or", "bit_or", true},
    {Op::atomic_xor, Op::bit_xor, "atomic_xor", "bit_xor", true},
    {Op::atomic_exchange, Op::count_, "atomic_exchange", "exchange", false},
};

const ExprObject& target_of(PyObject* x, const char* name) {
    x = unwrap(x);
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

template <size_t k>
Ref atomic(Lowering&, const CallArgs& a) {
    const AtomicRow& row = kAtomics[k];
    static const char* const names[] = {"x", "y"};
    const auto p = parameters(a, row.python, names);
    const ExprObject& target = target_of(p[0], row.python);
    const Type t = target.type().value();
    if (row.integers_only) {
        if (type::is_float(t.prim)) integers_required(row.word, t.prim);
        const Prim given = to_value(p[1])->type.prim;
        if (type::is_float(given)) integers_required(row.word, given);
    }
    const std::string verb = std::string("Atomic ") + row.word;
    Value* operand = fit(p[1], t, verb.c_str());
    ir::Builder& b = builder();
    if (target.shared) return make_value(atomic_arithmetic(row.atomic, target.value(), operand));
    Value* old = b.load(target.value());
    Value* changed = row.plain == Op::count_ ? operand : b.op(row.plain, {old, operand});
    if (row.plain == Op::add) report_overflow(BinOp::add, old, operand, changed);
    if (row.plain == Op::sub) report_overflow(BinOp::sub, old, operand, changed);
    if (row.plain == Op::mul) report_overflow(BinOp::mul, old, operand, changed);
    b.store(target.value(), changed);
    return make_value(old);
}

Ref compare_and_swap(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"x", "expected", "desired"};
    const auto p = parameters(a, "atomic_cas", names);
    const ExprObject& target = target_of(p[0], "atomic_cas");
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
    if (target.shared)
        return make_value(b.op(Op::atomic_cas, {target.value(), wanted[0], wanted[1]}));
    Value* old = b.load(target.value());
    b.store(target.value(), b.op(Op::select, {b.op(Op::eq, {old, wanted[0]}), wanted[1], old}));
    return make_value(old);
}

Ref volatile_load(Lowering&, const CallArgs& a) {
    PyObject* x = unwrap(single(a, "volatile_load"));
    if (is_field(x))
        raise(Kind::syntax, "volatile_load cannot pass a Field directly", "index it first");
    if (!is_expr(x) || as_expr(x)->kind == ExprKind::value || as_expr(x)->kind == ExprKind::array)
        raise(Kind::syntax, "volatile_load requires an lvalue");
    const ir::Inst* def = as_expr(x)->value()->def;
    while (def && def->op == Op::comp_place) def = def->operand(0)->def;
    if (def && def->op == Op::slot)
        raise(Kind::type, "volatile_load of a local variable or local array has no meaning");
    return make_value(builder().op(Op::volatile_load, {as_expr(x)->value()}));
}

const Builtin kRows[] = {
    {"atomic_add", atomic<0>},        {"atomic_sub", atomic<1>},
    {"atomic_mul", atomic<2>},        {"atomic_min", atomic<3>},
    {"atomic_max", atomic<4>},        {"atomic_and", atomic<5>},
    {"atomic_or", atomic<6>},         {"atomic_xor", atomic<7>},
    {"atomic_exchange", atomic<8>},   {"atomic_cas", compare_and_swap},
    {"volatile_load", volatile_load},
};

}  // namespace

std::span<const Builtin> atomic_builtins() { return kRows; }

}  // namespace qd::frontend
