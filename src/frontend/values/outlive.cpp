// What a section or a stream makes and what follows it uses.
//
// Python's names outlive `with` blocks, but the values of a group end with it (ir/ir.h). A variable
// moves in front of the group when it is met behind it; a place is computed again; any other value
// goes through a variable. Nothing outlives a loop or a checkpoint, which may never get there.

#include "frontend/specialise.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using ir::Inst;
using ir::Region;
using ir::Value;

// The outermost of the groups between a value and where it is used. Null: there is something else.
Inst* group_between(const Region* home, const Region* now) {
    if (home->function != now->function) return nullptr;
    Inst* group = nullptr;
    for (const Region* r = home; !encloses(r, now); r = r->owner->parent) {
        group = r->owner;
        const ir::OpInfo& row = ir::info(group->op);
        if (!row.group || row.repeats || row.operands != 0) return nullptr;
    }
    return group;
}

}  // namespace

bool encloses(const Region* home, const Region* at) {
    while (at != home) {
        if (!at->owner) return false;
        at = at->owner->parent;
    }
    return true;
}

bool can_outlive(const Value* v) {
    return v->def && group_between(v->def->parent, builder().region);
}

Value* outlived(Value* v) {
    ir::Builder& b = builder();
    Inst& d = *v->def;
    if (encloses(d.parent, b.region)) return v;
    Inst* between = group_between(d.parent, b.region);
    // Beside a section stand others alone.
    if (ir::info(between->op).inside != ir::Op::count_) between = between->parent->owner;
    Inst& group = *between;
    if (d.op == ir::Op::slot) {
        d.move_before(group);
        return v;
    }
    if (v->type.is_place()) {
        std::vector<Value*> operands;
        for (int k = 0; k < d.operand_count; ++k) {
            Value* x = d.operand(k);
            operands.push_back(x->def ? outlived(x) : x);
        }
        return b.typed(d.op, v->type, operands, d.imm, d.ref);
    }
    Value*& slot = current()->kernel->outliving[v];
    if (!slot) {
        slot = ir::Builder{b.function, group.parent, &group, group.loc}.slot(v->type);
        ir::Builder{b.function, d.parent, d.next, d.loc}.store(slot, v);
    }
    return b.load(slot);
}

bool is_of_sibling(const Value* variable) {
    using Section = KernelState::Section;
    const Section now = current()->kernel->section;
    const Region* here = builder().region;
    if (now != Section::branch && now != Section::stream) return false;
    return here->owner && here->owner->is_group() && variable->def &&
           variable->def->op == ir::Op::slot && !encloses(variable->def->parent, here);
}

}  // namespace qd::frontend
