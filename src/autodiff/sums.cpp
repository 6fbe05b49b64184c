// Sums of what an adjoint is given.
//
// The way back multiplies before it adds: what x gets from f(a @ x + b) + g(a @ x + c) is
// a' @ t + a' @ u, from x * x it is t * x + t * x. By hand one writes a' @ (t + u), and (t + t) *
// x. Sums go on to be looked at likewise, so what was done to all of them in several steps is done
// once. What is left without uses is removed later.
//
// Cost: O(values x kNearest x kMostSteps).

#include "autodiff/sums.h"

#include <algorithm>
#include <vector>

#include "ir/edit.h"

namespace qd::autodiff {
namespace {

using namespace ir;

constexpr size_t kNearest = 16;  // how many different terms a value is compared with
constexpr int kDeepest = 4;      // of instructions that compute the same
constexpr int kMostSteps = 32;   // that terms have in common, one a call below the other

// Operands along which an instruction is linear, as bits.
unsigned linear_along(Op op) {
    switch (op) {
        case Op::neg:
        case Op::splat:
        case Op::transpose:
        case Op::div:
            return 1;
        case Op::mul:
        case Op::matmul:
            return 3;
        default:
            return 0;
    }
}

bool same(Value* x, Value* y, int depth = 0) {
    x = resolve(x), y = resolve(y);
    if (x == y) return true;
    const Inst *a = x->def, *b = y->def;
    if (!a || !b || depth == kDeepest || a->op != b->op || a->effect() != Effect::pure)
        return false;
    if (a->region_count || a->result_count != 1 || a->imm != b->imm || a->ref != b->ref ||
        a->flags != b->flags || !(x->type == y->type) || a->operand_count != b->operand_count)
        return false;
    for (int k = 0; k < a->operand_count; ++k)
        if (!same(a->operand(k), b->operand(k), depth + 1)) return false;
    return true;
}

// Values that differ in one operand, along which they are linear; or a single one.
struct Term {
    Inst* like;
    int along = -1;  // not known before a second comes
    std::vector<Value*> values;

    bool take(Value* v) {
        const Inst* d = v->def;
        if (!like || !d || d->op != like->op || d->flags != like->flags) return false;
        for (int k = 0; k < d->operand_count; ++k) {
            if ((along >= 0 && along != k) || !(linear_along(d->op) >> k & 1)) continue;
            if (!(resolve(d->operand(k))->type == resolve(like->operand(k))->type)) continue;
            if (d->operand_count == 2 && !same(d->operand(1 - k), like->operand(1 - k))) continue;
            along = k;
            values.push_back(v);
            return true;
        }
        return false;
    }
};

Value* sum(Builder& b, std::span<Value* const> values, int steps) {
    std::vector<Term> terms;
    for (Value* v : values) {
        v = resolve(v);
        const size_t far = terms.size() - std::min(terms.size(), kNearest);
        const auto near = terms.begin() + static_cast<std::ptrdiff_t>(far);
        if (steps > 0 && std::any_of(near, terms.end(), [&](Term& t) { return t.take(v); }))
            continue;
        Inst* d = v->def && linear_along(v->def->op) ? v->def : nullptr;
        terms.push_back({d, -1, {v}});
    }
    Value* all = nullptr;
    for (const Term& t : terms) {
        Value* one = t.values[0];
        if (t.values.size() > 1) {
            std::vector<Value*> parts, operands;
            for (const Value* v : t.values) parts.push_back(v->def->operand(t.along));
            for (int k = 0; k < t.like->operand_count; ++k)
                operands.push_back(k == t.along ? sum(b, parts, steps - 1) : t.like->operand(k));
            one = emit_like(b, *t.like, operands)->result();
        }
        all = all ? b.op(Op::add, {all, one}) : one;
    }
    return all;
}

}  // namespace

Value* sum_of(Builder& b, std::span<Value* const> values, bool factors) {
    return sum(b, values, factors ? kMostSteps : 0);
}

}  // namespace qd::autodiff
