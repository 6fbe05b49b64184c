// Loop-invariant code motion.
//
// Moves a pure instruction in front of its loop if its operands are defined outside. Pure ops never
// trap, so a loop that runs never is no obstacle. Inner loops go first: a value climbs as far as it
// can in one run. Constants climb out of branches too, with move_loop_invariant_outside_if
// everything.
//
// What a do-while loop of tasks computes leaves it like any loop, from groups in it too. Out of
// other groups nothing goes: in front of them it may cost a task of its own.
//
// Loads stay: proving that a loop runs and that nothing writes is cheaper after address
// computation, in the back end. Nothing leaves a parallel loop before it is a task, because what
// the kernel's body computes may cost a task of its own.
//
// Cost: O(instructions x nesting depth).

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

bool hoist(const Session& s, Inst& loop, Region& r, bool constants_only, bool of_branches) {
    bool changed = false;
    for (Inst& i : r) {
        if (i.op == Op::if_) {
            for (Region* c : i.region_list())
                changed |= hoist(s, loop, *c, !of_branches, of_branches);
        }
        if (i.is_group()) changed |= hoist(s, loop, i.body(), constants_only, of_branches);
        if (i.effect() != Effect::pure || (constants_only && i.op != Op::constant)) continue;
        if (may_be_steep(s, i)) continue;
        bool invariant = true;
        for (int k = 0; k < i.operand_count && invariant; ++k)
            invariant = !is_inside(i.operand(k), loop);
        if (!invariant) continue;
        i.move_before(loop);
        changed = true;
    }
    return changed;
}

}  // namespace

bool licm(Session& s, Function& f) {
    const bool of_branches = s.m.options.move_loop_invariant_outside_if;
    bool changed = false;
    walk_post(*f.body, [&](Inst& i) {
        const bool parallel = i.op == Op::for_ && i.loop_config() && i.loop_config()->parallel;
        if (info(i.op).repeats && !parallel) changed |= hoist(s, i, i.body(), false, of_branches);
    });
    return changed;
}

}  // namespace qd::pass
