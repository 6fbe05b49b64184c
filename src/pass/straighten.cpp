// One function without calls or variables, whose regions are left at their ends alone: what
// gradients are made of.
//
// A component chosen at run time becomes an insertion into the whole value, so that every variable
// can be promoted but those that parallel loops share. Callees come first, as in the pipeline.
//
// Cost: O(instructions of the expanded kernel).

#include <unordered_map>
#include <unordered_set>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

// Variables from outside of parallel loops or groups that are stored to inside: promote leaves
// them.
std::unordered_set<const Value*> shared_slots(Function& f) {
    std::unordered_set<const Value*> out;
    walk(*f.body, [&](Inst& i) {
        if (i.op != Op::store && i.effect() != Effect::atomic) return;
        const Value* slot = root_of_place(i.operand(0));
        if (!slot->def || slot->def->op != Op::slot || out.contains(slot)) return;
        for (const Region* r = i.parent; r != slot->def->parent; r = r->owner->parent)
            if (is_parallel(*r->owner) || r->owner->is_group()) out.insert(slot);
    });
    return out;
}

// Accesses to components that are chosen at run time, of variables.
void whole_slots(Function& f) {
    const std::unordered_set<const Value*> shared = shared_slots(f);
    std::vector<Inst*> places;
    walk(*f.body, [&](Inst& i) {
        if (i.op != Op::comp_place || is_constant(i.operand(1)) || is_elimination(i)) return;
        const Value* of = i.operand(0);
        if (of->def && of->def->op == Op::slot && !shared.contains(of)) places.push_back(&i);
    });
    std::unordered_map<const Value*, Inst*> chosen;
    for (Inst* p : places) chosen[p->result()] = p;
    std::vector<Inst*> accesses;
    if (places.empty()) return;
    walk(*f.body, [&](Inst& i) {
        if (i.operand_count && chosen.contains(i.operand(0))) accesses.push_back(&i);
    });
    for (Inst* i : accesses) {
        Inst* p = chosen[i->operand(0)];
        Builder b = before(*i);
        Value *slot = p->operand(0), *at = p->operand(1);
        Value* whole = b.load(slot);
        if (i->op == Op::store) {
            b.store(slot, b.op(Op::insert_dyn, {whole, i->operand(1), at}));
            i->remove();
            continue;
        }
        QD_CHECK(i->op == Op::load, "a variable of one thread in an atomic");
        replace(i->result(), b.op(Op::extract_dyn, {whole, at}));
        i->remove();
    }
    for (Inst* p : places) p->remove();
}

// What qd.stop_grad says of a block goes to its loads, before blocks are taken apart. Of a callee's
// own block the caller's is meant.
void mark_constant_loads(Region& r, bool keeps) {
    for (Inst& i : r) {
        for (Region* c : i.region_list()) mark_constant_loads(*c, false);
        if (i.op != Op::stop_grad) continue;
        walk(r, [&](Inst& load) {
            if (load.op != Op::load && load.op != Op::volatile_load) return;
            const Inst* d = root_of_place(load.operand(0))->def;
            if (d && d->op == Op::field_place && d->field() == i.field())
                load.flags |= kStopsGradient;
        });
        if (!keeps) i.remove();
    }
}

// Accesses of loops inside the outermost ones: unroll may bring them out.
void mark_deeper(Region& r, int depth) {
    for (Inst& i : r) {
        const Effect e = i.effect();
        if (depth > 1 && (e == Effect::read || e == Effect::write || e == Effect::atomic))
            i.flags |= kDeeper;
        const bool deeper = i.is_loop() && !is_only_iteration(i);
        for (Region* c : i.region_list()) mark_deeper(*c, depth + deeper);
    }
}

// The test whether a loop goes on stands right in front of its end, and both hand on the same.
void close_loops(Function& f) {
    walk(*f.body, [](Inst& i) {
        Inst* end = i.op == Op::loop ? i.body().last : nullptr;
        if (!end || end->op != Op::continue_) return;
        Inst* test = end->prev;
        while (test && test->op != Op::if_) test = test->prev;
        if (!test) return;
        for (Region* r : test->region_list()) {
            if (r->last->op != Op::break_) continue;
            QD_CHECK(r->last->operand_count == end->operand_count, "a loop hands on two ways");
            for (int k = 0; k < end->operand_count; ++k) r->last->operands[k] = end->operand(k);
            test->move_before(*end);
        }
    });
}

}  // namespace

bool is_only_iteration(const Inst& i) {
    return i.is_loop() && i.flags & kStopsGradient && i.flags & kOverData;
}

bool is_elimination(const Inst& i) {
    return i.loc && i.loc->file.ends_with("quadrants/_library/inverses.py");
}

Refusal straighten(Module& m, bool unrolls, const KeptCalls& kept) {
    Session s{.m = m};
    s.straightens = true;
    s.kept = &kept;
    const std::vector<Function*> order = callees_first(m);
    s.arrays = find_arrays(m, order);
    summarise(s, order);
    for (Function* f : order) {
        if (f->never_inline)
            return {
                "Not supported. A function that calls itself, in a kernel that is differentiated",
                f->body->first->loc};
        single_exit(*f);
        inline_calls(s, *f);
        if (f == &m.kernel()) draw_from_variables(*f), mark_deeper(*f->body, 0);
        mark_constant_loads(*f->body, f != &m.kernel());
        if (unrolls && m.options.advanced_optimization) unroll(s, *f);
        whole_slots(*f);
        promote(s, *f);
        simplify(s, *f);
        s.summaries[f->id] = summary_of(s, *f->body);
    }
    Function* kernel = &m.kernel();
    m.functions = {kernel};
    for (Function* f : order)
        if (kept.contains(f)) m.functions.push_back(f);
    for (Function* f : m.functions) {
        cse(s, *f);
        if (m.options.advanced_optimization) licm(s, *f);
        dce(s, *f);
        close_loops(*f);
    }
    return {};
}

void tidy(Module& m) {
    Session s{.m = m};
    s.straightens = true;
    const std::vector<Function*> order = callees_first(m);
    s.arrays = find_arrays(m, order);
    summarise(s, order);
    for (Function* f : order) {
        promote(s, *f);
        simplify(s, *f);
        join_branches(*f);
        dce(s, *f);
    }
}

}  // namespace qd::pass
