// a * b + c with one rounding, under fast_math on targets that have it.
//
// The only place where op fma is made: every tier and every vector width computes what is decided
// here. A product is fused only if all its uses are sums, so that it disappears. Products of
// matrices are marked and stay one instruction. What is built of products (outer products in
// derivatives) joins a sum component by component.
//
// Needs: cse, or equal products count as used once.
// Cost:  O(instructions).

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int kLongestDot = 16;
constexpr int kMostComponents = 16;  // of what is built of products

const Inst* product(const Value* v) {
    return v->def && v->def->op == Op::mul && !(v->def->flags & kNoFastMath) ? v->def : nullptr;
}

// The sum of a product's components, as in dot and norm: a chain, ascending as before.
bool contract_dot(Inst& i) {
    const Inst* m = product(i.operand(0));
    if (!m || i.operand(0)->id != 0 || (i.flags & kNoFastMath)) return false;
    const int n = m->results[0].type.count();
    if (n < 2 || n > kLongestDot) return false;
    Builder b = before(i);
    const auto part = [&](int which, int k) {
        return b.op(Op::extract, {m->operand(which)}, static_cast<uint64_t>(k));
    };
    Value* sum = b.op(Op::mul, {part(0, 0), part(1, 0)});
    for (int k = 1; k < n; ++k) sum = b.op(Op::fma, {part(0, k), part(1, k), sum});
    replace(i.result(), sum);
    i.remove();
    return true;
}

bool is_sum(const Inst& i) { return i.op == Op::add || i.op == Op::sub; }

// Of products that nobody else uses, as outer products are. Value::id counts uses that are no sums.
const Inst* built_of_products(const Value* v) {
    const Inst* d = v->def;
    if (!d || d->op != Op::build || v->id != 0 || d->operand_count > kMostComponents)
        return nullptr;
    for (int k = 0; k < d->operand_count; ++k)
        if (!product(d->operand(k)) || d->operand(k)->id != 1) return nullptr;
    return d;
}

// What is built of products joins a sum component by component.
bool contract_built(Inst& i) {
    for (int k = 0; k < 2; ++k) {
        const Inst* built = built_of_products(i.operand(k));
        if (!built) continue;
        Builder b = before(i);
        Value* other = i.operand(1 - k);
        const Inst* parts = other->def && other->def->op == Op::build ? other->def : nullptr;
        std::vector<Value*> sums;
        for (int c = 0; c < built->operand_count; ++c) {
            const Inst* m = built->operand(c)->def;
            Value *x = m->operand(0), *y = m->operand(1);
            Value* z =
                parts ? parts->operand(c) : b.op(Op::extract, {other}, static_cast<uint64_t>(c));
            if (i.op == Op::sub && k == 0) z = b.op(Op::neg, {z});
            if (i.op == Op::sub && k == 1) x = b.op(Op::neg, {x});
            sums.push_back(b.op(Op::fma, {x, y, z}));
        }
        replace(i.result(), b.typed(Op::build, i.results[0].type, sums));
        i.remove();
        return true;
    }
    return false;
}

// Value::id of a product: its uses that are not sums.
void count_uses(Function& f) {
    walk(*f.body, [](Inst& i) {
        for (Value& v : i.result_values()) v.id = 0;
    });
    walk(*f.body, [&](Inst& i) {
        const bool twice = i.operand_count == 2 && i.operand(0) == i.operand(1);
        for (int k = 0; k < i.operand_count; ++k) {
            Value* v = i.operand(k);
            if (v->def && ((!is_sum(i) && i.op != Op::reduce_add) || twice)) ++v->id;
        }
        // Of two products in one sum only the first is fused; the second stays.
        if (is_sum(i) && !twice && product(i.operand(0)) && product(i.operand(1)))
            ++i.operand(1)->id;
    });
}

}  // namespace

void settle_products(Function& f) {
    count_uses(f);
    walk(*f.body, [](Inst& i) {
        if (i.op == Op::mul && type::is_float(i.results[0].type.prim) && i.results[0].id != 0)
            i.flags |= kNoFastMath;
    });
}

bool contract(Session& s, Function& f) {
    if (!s.m.options.fast_math || !s.options.target.fused) return false;
    count_uses(f);
    bool changed = false;
    walk(*f.body, [&](Inst& i) {
        if (i.result_count != 1 || (i.flags & kNoFastMath)) return;
        const Prim p = i.results[0].type.prim;
        if (p != Prim::f32 && p != Prim::f64) return;
        if (i.op == Op::reduce_add) {
            changed |= contract_dot(i);
            return;
        }
        if (i.op == Op::matmul) {
            changed |= i.imm != kFusedProducts;
            i.imm = kFusedProducts;
            return;
        }
        if (!is_sum(i)) return;
        if (contract_built(i)) {
            changed = true;
            return;
        }
        for (int k = 0; k < 2; ++k) {
            Value* v = i.operand(k);
            const Inst* m = product(v);
            if (!m || v->id != 0) continue;
            Builder b = before(i);
            Value *x = m->operand(0), *y = m->operand(1), *z = i.operand(1 - k);
            if (i.op == Op::sub && k == 0) z = b.op(Op::neg, {z});
            if (i.op == Op::sub && k == 1) x = b.op(Op::neg, {x});
            replace(i.result(), b.op(Op::fma, {x, y, z}));
            i.remove();
            changed = true;
            return;
        }
    });
    return changed;
}

}  // namespace qd::pass
