// Indices of Python's containers that the source computes from constants: components of a vector
// that qd.static goes through are constants of the kernel, and so is what follows from them.

#include <optional>

#include "frontend/values/containers.h"
#include "frontend/values/values.h"
#include "ir/edit.h"
#include "ir/fold.h"

namespace qd::frontend {
namespace {

using namespace ir;

constexpr int kDeepest = 16, kMostOperands = 4;

// One component of a value that constants alone make.
std::optional<Scalar> known(Value* v, size_t component, int depth) {
    v = resolve(v);
    if (is_constant(v)) return Scalar{v->type.prim, constant_bits(v)};
    const Inst* d = v->def;
    if (!d || depth == 0 || d->result_count != 1 || d->region_count) return {};
    const auto operand = [&](int k, size_t c) { return known(d->operand(k), c, depth - 1); };
    switch (d->op) {
        case Op::build:
            return operand(static_cast<int>(component), 0);
        case Op::splat:
            return operand(0, 0);
        case Op::extract:
            return operand(0, d->imm);
        case Op::cast:
            if (const auto from = operand(0, component))
                return Scalar{v->type.prim, fold_cast(from->prim, v->type.prim, from->bits)};
            return {};
        default:
            break;
    }
    if (info(d->op).kind != ir::Kind::elementwise || d->effect() != Effect::pure ||
        d->operand_count > kMostOperands || d->op == Op::bit_cast)
        return {};
    Scalar operands[kMostOperands];
    for (int k = 0; k < d->operand_count; ++k) {
        const auto one = operand(k, d->operand(k)->type.is_scalar() ? 0 : component);
        if (!one) return {};
        operands[k] = *one;
    }
    const std::span given(operands, static_cast<size_t>(d->operand_count));
    return Scalar{v->type.prim, fold(d->op, v->type.prim, given, false)};
}

}  // namespace

Ref known_index(PyObject* container, Ref index) {
    if (!PyList_Check(container) && !PyTuple_Check(container) && !PyDict_Check(container) &&
        !PyRange_Check(container))
        return index;
    return map_leaves(index.get(), [](PyObject* o) {
        if (!is_expr(o) || as_expr(o)->kind != ExprKind::value) return Ref::borrow(o);
        Value* v = as_expr(o)->value();
        if (!v->type.is_scalar() || !type::is_int(v->type.prim)) return Ref::borrow(o);
        const auto number = known(v, 0, kDeepest);
        if (!number) return Ref::borrow(o);
        return Ref::steal(PyLong_FromLongLong(int_of_bits(number->prim, number->bits)));
    });
}

}  // namespace qd::frontend
