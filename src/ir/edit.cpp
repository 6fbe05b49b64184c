// See edit.h.

#include "ir/edit.h"

namespace qd::ir {

Value* zero(Builder& b, Type t) { return b.splat(b.constant(t.element(), 0), t); }

bool is_inside(const Value* v, const Inst& owner) {
    const Region* r = v->def ? v->def->parent : v->owner;
    for (; r && r->owner; r = r->owner->parent)
        if (r->owner == &owner) return true;
    return false;
}

Inst* emit_like(Builder& b, const Inst& i, std::span<Value* const> operands) {
    std::vector<Type> types;
    for (const Value& v : i.result_values()) types.push_back(v.type);
    Inst* out = b.emit(i.op, operands, types);
    out->imm = i.imm;
    out->ref = i.ref;
    out->flags = i.flags;
    return out;
}

Extents extents_of(Builder& b, const Inst& loop, std::span<Value* const> bounds) {
    Extents e{{}, {}, nullptr};
    for (size_t d = 0; d < loop.imm; ++d) {
        Value* low = b.cast(bounds[2 * d], Prim::i64);
        Value* length = b.op(Op::sub, {b.cast(bounds[2 * d + 1], Prim::i64), low});
        length = b.op(Op::max, {length, b.int_const(Prim::i64, 0)});
        e.low.push_back(low);
        e.length.push_back(length);
        e.count = e.count ? b.op(Op::mul, {e.count, length}) : length;
    }
    return e;
}

std::vector<Value*> indices_at(Builder& b, Value* at, const Extents& e) {
    std::vector<Value*> out(e.low.size());
    for (size_t d = out.size(); d-- > 0;) {
        Value* x = d ? b.op(Op::raw_mod, {at, e.length[d]}) : at;
        if (d) at = b.op(Op::raw_div, {at, e.length[d]});
        out[d] = b.op(Op::add, {e.low[d], x});
    }
    return out;
}

}  // namespace qd::ir
