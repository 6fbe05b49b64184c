// See divergence.h. A fixpoint over loops. Cost: O(instructions x loop depth).

#include "pass/divergence.h"

#include "pass/memory.h"

namespace qd::pass {

using namespace ir;

// Says something else to each thread by itself.
bool Divergence::is_source(const Inst& i) const {
    if (i.op == Op::task_value)
        return TaskValue(i.imm) == TaskValue::begin || TaskValue(i.imm) == TaskValue::in_block;
    if (i.effect() == Effect::pure) return false;
    if (i.effect() != Effect::read || i.op == Op::thread_index || !loads_agree_) return true;
    const Inst* root = i.operand_count ? root_of(i.operand(0)) : nullptr;
    if (!root) return false;
    const Root kind = info(root->op).root;
    return kind == Root::slot || kind == Root::thread || kind == Root::tape;
}

Divergence::Divergence(Function& task, bool loads_agree) : loads_agree_(loads_agree) {
    while (flow(*task.body)) {
    }
}

bool Divergence::note(const Value* v, bool yes) { return yes && differs_.insert(v).second; }

bool Divergence::flow(Region& r) {
    bool changed = false;
    for (Inst& i : r) changed |= flow(i);
    return changed;
}

bool Divergence::flow(Inst& i) {
    if (i.is_loop()) return loop(i);
    bool yes = !i.region_count && is_source(i);
    for (int k = 0; k < i.operand_count; ++k) yes |= differs(i.operand(k));
    bool changed = false;
    for (Region* r : i.region_list()) changed |= flow(*r);
    for (int k = 0; k < i.result_count; ++k) {
        bool one = yes;
        for (const Region* r : i.region_list())
            if (r->last->op == Op::yield) one |= differs(r->last->operand(k));
        changed |= note(i.result(k), one);
    }
    return changed;
}

bool Divergence::loop(Inst& i) {
    Region& body = i.body();
    const auto bounds = i.op == Op::for_ ? static_cast<int>(2 * i.imm) : 0;
    const uint32_t indices = static_cast<uint32_t>(bounds / 2);
    bool changed = false;
    for (uint32_t d = 0; d < indices; ++d)
        changed |= note(body.params[d], differs(i.operand(static_cast<int>(2 * d))));
    const auto carries = [&](const Inst& from, int first) {
        for (int k = 0; k < i.result_count && first + k < from.operand_count; ++k)
            if (differs(from.operand(first + k))) {
                changed |= note(i.result(k), true);
                changed |= note(body.params[indices + static_cast<uint32_t>(k)], true);
            }
    };
    carries(i, bounds);
    changed |= flow(body);
    const auto ends = [&](const auto& self, const Region& r) -> void {
        for (const Inst* j = r.first; j; j = j->next) {
            if (j->op == Op::continue_ || j->op == Op::break_) carries(*j, 0);
            if (j->is_loop()) continue;  // its ends are its own
            for (const Region* c : j->region_list()) self(self, *c);
        }
    };
    ends(ends, body);
    return changed;
}

}  // namespace qd::pass
