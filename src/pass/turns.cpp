// The groups of a plan for a launcher that runs its tasks one after the other.
//
// Sections and streams are nothing to it. A checkpoint is entered at its first task, a do-while
// loop left at its last. No two meet at one task: checkpoints do not nest, and each loop ends with
// a task of its own that sets its flag.
//
// Cost: O(tasks x depth of groups).

#include "pass/pass.h"
#include "support/error.h"

namespace qd::pass {

std::vector<Turns> turns_in_order(const Plan& plan) {
    std::vector<Turns> turns(plan.tasks.size());
    struct Extent {
        uint32_t first = UINT32_MAX, last = 0;
    };
    std::vector<Extent> extents(plan.groups.size());
    for (uint32_t k = 0; k < plan.tasks.size(); ++k) {
        for (int g = plan.tasks[k].group; g >= 0; g = plan.groups[static_cast<size_t>(g)].parent) {
            Extent& e = extents[static_cast<size_t>(g)];
            if (e.first == UINT32_MAX) e.first = k;
            e.last = k;
        }
    }
    for (size_t g = 0; g < extents.size(); ++g) {
        const Group& group = plan.groups[g];
        const Extent& e = extents[g];
        if (group.flag < 0 || e.first == UINT32_MAX) continue;
        if (ir::info(group.op).repeats) {
            QD_CHECK(turns[e.last].again < 0, "two loops of tasks end at one");
            turns[e.last].again = group.flag;
            turns[e.last].from = e.first;
        } else {
            QD_CHECK(turns[e.first].gate < 0, "two checkpoints begin at one task");
            turns[e.first].gate = group.flag;
            turns[e.first].behind = e.last + 1;
        }
    }
    return turns;
}

}  // namespace qd::pass
