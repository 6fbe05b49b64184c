// Atomics on the iteration's own element become a load and a store.
//
// In `for i, j in x: x[i, j] += ...` no other iteration comes near x[i, j]. Users write += and get
// an atomic, which costs a locked instruction (for floats a loop around one) and hides the element
// from every other pass. An element is an iteration's own if each index of the parallel loop, plus
// a constant at most, is one of its indices, and if everything that the loop writes of that memory
// is such an element by the same indices. Reads of other elements do not matter: what they see is
// undefined with an atomic too.
//
// Needs: simplify and inlined calls, to see indices; a call that writes ends the search. Should run
//        before store_forward, which takes it from here.
// Cost:  O(instructions of the kernel).

#include <optional>
#include <unordered_map>

#include "pass/memory.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

// Where a place's root has the loop's indices, and what it is a place of.
struct Own {
    const void* memory;  // the field, or the array parameter
    uint64_t access;
    struct Index {
        int operand;
        int64_t offset;
        bool operator==(const Index&) const = default;
    };
    std::vector<Index> indices;
    bool operator==(const Own&) const = default;
};

// v = index + constant?
std::optional<int64_t> offset_from(const Value* v, const Value* index) {
    if (v == index) return 0;
    if (!v->def) return {};
    const Inst& d = *v->def;
    if (d.op == Op::cast && v->type.prim == Prim::i64 && d.operand(0)->type.prim == Prim::i32)
        return offset_from(d.operand(0), index);
    if ((d.op != Op::add && d.op != Op::sub) || d.operand(0) != index || !is_constant(d.operand(1)))
        return {};
    const int64_t k = constant_int(d.operand(1));
    return d.op == Op::add ? k : -k;
}

std::optional<Own> own_element(const Value* place, const Inst& loop) {
    const Inst* root = root_of(place);
    if (!root || !is_element(root->op)) return {};
    const int first = root->op == Op::array_place;
    // Clamped, several indices mean one element.
    if (first && ArrayAccess::unpack(root->imm).clamp) return {};
    Own own{first ? static_cast<const void*>(root->operand(0)) : root->ref, root->imm, {}};
    for (uint64_t d = 0; d < loop.imm; ++d) {
        const Value* index = loop.body().params[d];
        const size_t before = own.indices.size();
        for (int k = first; k < root->operand_count && own.indices.size() == before; ++k)
            if (const auto offset = offset_from(root->operand(k), index))
                own.indices.push_back({k, *offset});
        if (own.indices.size() == before) return {};
    }
    return own;
}

struct Class {
    std::optional<Own> own;
    bool shared = false;
    std::vector<Inst*> atomics;
};

bool splittable(Op op) {
    return op == Op::atomic_exchange || op == Op::atomic_cas || info(op).step != Op::count_;
}

// What an atomic leaves in its place, which held `old`.
Value* left_by(const Inst& atomic, Value* old, Builder& b) {
    Value* v = atomic.operand(1);
    if (atomic.op == Op::atomic_exchange) return v;
    if (atomic.op == Op::atomic_cas)
        return b.op(Op::select, {b.op(Op::eq, {old, v}), atomic.operand(2), old});
    return b.op(info(atomic.op).step, {old, v});
}

bool in_loop(const Session& s, Inst& loop) {
    std::unordered_map<uint64_t, Class> classes;
    bool unknown = false;
    walk(loop.body(), [&](Inst& i) {
        if (i.op == Op::call) unknown |= s.summaries[i.callee()->id].writes;
        const bool atomic = i.effect() == Effect::atomic;
        if (!atomic && i.effect() != Effect::write) return;
        const uint64_t memory = memory_class(i.operand(0), s);
        if (is_local_class(memory)) return;
        unknown |= !root_of(i.operand(0));
        Class& c = classes[memory];
        const auto own = own_element(i.operand(0), loop);
        if (!c.own) c.own = own;
        c.shared |= !own || *own != *c.own || (atomic && !splittable(i.op));
        if (atomic) c.atomics.push_back(&i);
    });
    if (unknown) return false;
    bool changed = false;
    for (auto& [memory, c] : classes) {
        if (c.shared) continue;
        for (Inst* i : c.atomics) {
            Builder b = before(*i);
            Value* old = b.load(i->operand(0));
            b.store(i->operand(0), left_by(*i, old, b));
            replace(i->result(), old);
            i->remove();
            changed = true;
        }
    }
    return changed;
}

}  // namespace

// Where other sections or streams of the kernel may run at the same time.
static bool is_in_branch(const Inst& loop) {
    for (const Inst* i = loop.parent->owner; i; i = i->parent->owner)
        if (i->op == Op::section || i->op == Op::stream) return true;
    return false;
}

bool own_elements(Session& s, Function& f) {
    if (&f != &s.m.kernel() || f.returns_early) return false;
    bool changed = false;
    walk(*f.body, [&](Inst& i) {
        if (!is_parallel(i) || (s.options.target.runs_together && is_in_branch(i))) return;
        changed |= in_loop(s, i);
    });
    return changed;
}

}  // namespace qd::pass
