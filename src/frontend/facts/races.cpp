// Hints about races, in debug mode: stores to one element that every iteration of a parallel loop
// carries out, and that cannot all be meant.
//
// Only what is certain counts: the element's indices are constants, the store stands in the loop's
// own body, which nothing leaves before, and what it stores depends on the element itself or on the
// iteration. What goes through variables, branches or funcs is not looked at.
//
// Cost: O(instructions of parallel loops).

#include "frontend/facts/facts.h"
#include "frontend/specialise.h"
#include "support/format_table.h"

namespace qd::frontend {
namespace {

using namespace ir;

constexpr int kDeep = 16;  // operands of operands that are looked at

// The element that a place is, if that is the same in each iteration.
const Inst* fixed_element(const Value* place, uint64_t& component) {
    place = resolve(const_cast<Value*>(place));
    component = 0;
    const Inst* d = place->def;
    if (d && d->op == Op::comp_place) {
        if (!is_constant(d->operand(1))) return nullptr;
        component = constant_bits(d->operand(1)) + 1;
        d = d->operand(0)->def;
    }
    if (!d || (d->op != Op::field_place && d->op != Op::array_place)) return nullptr;
    for (int k = d->op == Op::array_place; k < d->operand_count; ++k)
        if (!is_constant(d->operand(k))) return nullptr;
    return d;
}

bool same_element(const Value* a, const Value* b) {
    uint64_t one = 0, other = 0;
    const Inst *x = fixed_element(a, one), *y = fixed_element(b, other);
    if (!x || !y || x->op != y->op || one != other || x->imm != y->imm || x->ref != y->ref ||
        x->operand_count != y->operand_count)
        return false;
    int k = 0;
    if (x->op == Op::array_place && x->operand(k) != y->operand(k)) return false;
    for (k = x->op == Op::array_place; k < x->operand_count; ++k)
        if (constant_bits(x->operand(k)) != constant_bits(y->operand(k))) return false;
    return true;
}

struct Loop {
    const Inst& loop;

    bool depends(const Value* v, const auto& found, int depth = kDeep) const {
        v = resolve(const_cast<Value*>(v));
        if (found(v)) return true;
        const Inst* d = v->def;
        if (!d || depth == 0 || d->region_count || d->op == Op::call) return false;
        for (int k = 0; k < d->operand_count; ++k)
            if (depends(d->operand(k), found, depth - 1)) return true;
        return false;
    }
    bool reads(const Value* v, const Value* place) const {
        return depends(v, [&](const Value* x) {
            return x->def && x->def->op == Op::load && same_element(x->def->operand(0), place);
        });
    }
    bool is_of_iteration(const Value* v) const {
        const Region& body = loop.body();
        return depends(v, [&](const Value* x) { return x->owner == &body && !x->def; });
    }
    bool may_run_twice() const {
        uint64_t count = 1;
        for (int k = 0; k + 1 < loop.operand_count && k < 2 * int(loop.imm); k += 2) {
            const Value *low = loop.operand(k), *high = loop.operand(k + 1);
            if (!is_constant(low) || !is_constant(high)) return true;
            const int64_t length = constant_int(high) - constant_int(low);
            count *= length > 0 ? uint64_t(length) : 0;
        }
        return count > 1;
    }
    // Whether something in it ends the iteration, or the loop.
    static bool may_leave(const Inst& i) {
        bool leaves = false;
        for (int k = 0; k < i.region_count; ++k) {
            walk(*i.regions[k], [&](const Inst& x) {
                const Inst* owner = x.parent->owner;
                const bool own_end = x.op == Op::continue_ && owner && owner->is_loop();
                leaves |= x.effect() == Effect::terminator && x.op != Op::yield && !own_end;
            });
        }
        return leaves;
    }

    void look(Unit& unit) const {
        if (!may_run_twice()) return;
        for (const Inst& i : loop.body()) {
            if (may_leave(i)) return;
            uint64_t component;
            if (i.op != Op::store || !i.loc || !fixed_element(i.operand(0), component)) continue;
            const bool updates = reads(i.operand(1), i.operand(0));
            if (updates || is_of_iteration(i.operand(1))) hint(unit, *i.loc, updates);
        }
    }

    static void hint(Unit& unit, const Loc& at, bool updates) {
        const std::string what =
            updates
                ? "Race: every iteration of a parallel loop reads this element and writes it, so "
                  "updates are lost. `+=` and qd.atomic_add, qd.atomic_min ... lose none."
                : "Race: every iteration of a parallel loop writes a value of its own to this "
                  "element, and any of them may stay.";
        unit.notice(
            {Notice::Category::log, what + "\n" +
                                        site_text({std::string(at.file), std::string(at.function),
                                                   at.line, at.col, at.end_line, at.end_col})});
    }
};

}  // namespace

void note_races(Unit& unit, const Module& m) {
    walk(*m.functions[0]->body, [&](const Inst& i) {
        const LoopConfig* c = i.op == Op::for_ ? i.loop_config() : nullptr;
        if (c && c->parallel) Loop{i}.look(unit);
    });
}

}  // namespace qd::frontend
