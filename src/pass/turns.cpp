// The groups of a plan for a launcher that has its tasks one after the other.
//
// Sections, and streams side by side, are branches of a region, which may run at the same time. A
// checkpoint is entered at its first task, a do-while loop left at its last. No two meet at one
// task: checkpoints do not nest, and each loop ends with a task of its own that sets its flag.
//
// Cost: O(tasks x depth of groups + instructions in branches).

#include <span>
#include <unordered_map>

#include "pass/pass.h"
#include "support/error.h"

namespace qd::pass {

namespace {

// The group that makes the task's branch; -1: none does.
int branch_of(const Plan& plan, const Task& t) {
    for (int g = t.group; g >= 0; g = plan.groups[size_t(g)].parent) {
        const ir::Op op = plan.groups[size_t(g)].op;
        if (op == ir::Op::section || op == ir::Op::stream) return g;
    }
    return -1;
}

// The temporaries of a branch by offset, and whether it writes them. Not those of bounds: they are
// values, which no other branch has.
using Temps = std::unordered_map<uint64_t, bool>;

void add_temps(const Task& t, Temps& temps) {
    for (const ir::Function* f : {t.body, t.finish}) {
        if (!f) continue;
        ir::walk(*f->body, [&](ir::Inst& i) {
            if (i.op == ir::Op::temp) temps.try_emplace(i.imm, false);
            if (i.effect() != ir::Effect::write && i.effect() != ir::Effect::atomic) return;
            const ir::Inst* root = ir::root_of_place(i.operand(0))->def;
            if (root && root->op == ir::Op::temp) temps[root->imm] = true;
        });
    }
}

// Names that one branch assigns and another reads: the author means them to be in order.
bool are_independent(std::span<const Task> tasks, std::span<const Turns> turns) {
    std::unordered_map<uint32_t, Temps> by_branch;
    for (size_t k = 0; k < tasks.size(); ++k) add_temps(tasks[k], by_branch[turns[k].branch]);
    Temps all;
    for (const auto& [branch, temps] : by_branch)
        for (const auto& [offset, written] : temps) {
            const auto [at, fresh] = all.try_emplace(offset, written);
            if (!fresh && (written || at->second)) return false;
        }
    return true;
}

void number_branches(const Plan& plan, std::vector<Turns>& turns) {
    uint32_t regions = 0;
    int last = -1;
    const auto share_region = [&](int group) {
        if (last < 0) return false;
        const Group &a = plan.groups[size_t(last)], &b = plan.groups[size_t(group)];
        return a.op == b.op && a.parent == b.parent;
    };
    for (size_t k = 0; k < turns.size(); ++k) {
        const int group = branch_of(plan, plan.tasks[k]);
        if (group >= 0) {
            const bool together = share_region(group);
            turns[k].region = together ? regions : ++regions;
            turns[k].branch = together ? turns[k - 1].branch + (group != last) : 1;
        }
        last = group;
    }
    for (size_t from = 0, to; from < turns.size(); from = to) {
        for (to = from + 1; to < turns.size() && turns[to].region == turns[from].region; ++to) {
        }
        const std::span<Turns> region(&turns[from], to - from);
        if (!turns[from].region ||
            are_independent(std::span(plan.tasks).subspan(from, to - from), region))
            continue;
        for (Turns& t : region) t.region = t.branch = 0;
    }
}

}  // namespace

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
    number_branches(plan, turns);
    return turns;
}

}  // namespace qd::pass
