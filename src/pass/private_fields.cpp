// Fields that a range task only adds to: with several threads each may add to a copy of its own.
//
// A locked read-modify-write costs ten times a plain one even when nobody else is near, and scatter
// loops do little else. If all accesses of a task to a field are atomic additions whose old value
// nobody uses, the runtime may give every thread but the caller's a copy that starts as zeros, and
// add the copies up afterwards; it does so if the field is small for the work. The atomics are
// marked, and compiled code asks Thread::alone which way to go.
//
// Needs: a finished task: what is found here describes its final instructions.
// Cost:  O(instructions).

#include <algorithm>
#include <unordered_map>

#include "pass/memory.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Use {
    const Field* field = nullptr;
    bool only_adds = true;
    uint32_t components = 0;
    std::vector<Inst*> atomics;
};

// Whether the field's bytes are its own and all of one type.
bool contiguous(const Field& f, uint64_t& bytes) {
    if (!f.uneven_terms.empty()) return false;
    const int64_t element = f.elem.size_bytes(), one = type::bytes(f.elem.prim);
    int64_t cells = 1, last = 0;
    for (int d = 0; d < f.ndim; ++d) {
        if (f.shape[d] <= 0 || cells > (int64_t(1) << 40) / f.shape[d]) return false;
        cells *= f.shape[d];
    }
    for (const Field::Term& t : f.terms) {
        if (t.stride < 0 || t.div <= 0) return false;
        const int64_t n = t.mod ? t.mod : (f.shape[t.axis] + t.div - 1) / t.div;
        last += (n - 1) * t.stride;
    }
    for (size_t k = 0; k < f.component_offsets.size(); ++k) {
        if (f.component_offsets[k] != static_cast<int64_t>(k) * one) return false;
    }
    bytes = static_cast<uint64_t>(cells * element);
    return last + element == cells * element;
}

bool addable(Prim p) { return p != Prim::f16 && type::bits(p) >= 32; }

abi::Addend addend(Prim p) {
    if (p == Prim::f32) return abi::Addend::f32;
    if (p == Prim::f64) return abi::Addend::f64;
    return type::bits(p) == 32 ? abi::Addend::i32 : abi::Addend::i64;
}

}  // namespace

void private_fields(const Session& s, Task& task) {
    bool calls = false, has_atomics = false;
    walk(*task.body->body, [&](Inst& i) {
        for (Value& v : i.result_values()) v.id = 0;
        has_atomics |= i.effect() == Effect::atomic;
        if (i.op != Op::call) return;
        const Summary& c = s.summaries[i.callee()->id];
        calls |= c.reads || c.writes;
        has_atomics |= c.writes;
    });
    if (task.kind != abi::TaskKind::range || calls || !has_atomics) return;
    if (s.m.arrays_may_overlap) return;  // an array may be a view of the field
    walk(*task.body->body, [](Inst& i) {
        for (int k = 0; k < i.operand_count; ++k) i.operand(k)->id = 1;
    });
    std::unordered_map<uint64_t, Use> uses;  // by alias group
    std::vector<uint64_t> order;
    walk(*task.body->body, [&](Inst& i) {
        const Effect e = i.effect();
        const bool access = e == Effect::atomic || e == Effect::write || i.op == Op::load;
        const Inst* root = access && i.operand_count ? root_of(i.operand(0)) : nullptr;
        if (!root || info(root->op).root != Root::field) return;
        const Field* f = root->field();
        const auto [at, unknown] = uses.try_emplace(f->alias_group);
        if (unknown) order.push_back(f->alias_group);
        Use& use = at->second;
        const bool adds =
            (i.op == Op::atomic_add || i.op == Op::atomic_sub) && i.results[0].id == 0;
        if (!use.field) use.field = f;
        use.only_adds &= adds && use.field == f && addable(f->elem.prim);
        use.components += static_cast<uint32_t>(i.operand(0)->type.count());
        use.atomics.push_back(&i);
    });
    for (const uint64_t group : order) {
        Use& use = uses[group];
        uint64_t bytes = 0;
        if (!use.only_adds || !contiguous(*use.field, bytes)) continue;
        if (task.private_fields.size() == abi::kMaxPrivateFields) break;
        const auto at = std::ranges::find(s.m.fields, use.field);
        if (at == s.m.fields.end()) continue;
        task.private_fields.push_back({.binding = static_cast<uint32_t>(at - s.m.fields.begin()),
                                       .addend = addend(use.field->elem.prim),
                                       .bytes = bytes});
        task.private_atomics += use.components;
        for (Inst* i : use.atomics) i->flags |= kPrivateField;
    }
}

}  // namespace qd::pass
