// Which of the kernel's arrays the array parameters of its functions are.
//
// Distinct array parameters of a kernel never overlap (else the launcher has it compiled again with
// Module::arrays_may_overlap), so each is a memory class of its own. A callee's parameter is the
// kernel's parameter that all its calls bring; if they bring several, those become one class.
//
// Cost: O(calls), once more for each level of recursion.

#include "pass/passes.h"

namespace qd::pass {

using namespace ir;

uint32_t ArrayClasses::find(uint32_t k) const {
    while (joined[k] != k) k = joined[k];
    return k;
}

ArrayClasses::Root ArrayClasses::root(const Value* array) const {
    const auto at = callees.find(array);
    return at != callees.end() ? at->second : Root{static_cast<int32_t>(array->index), true};
}

uint32_t ArrayClasses::of(const Value* array) const {
    const Root r = root(array);
    return r.parameter < 0 ? 0 : find(static_cast<uint32_t>(r.parameter));
}

ArrayClasses find_arrays(const Module& m, std::span<Function* const> functions) {
    ArrayClasses out;
    for (uint32_t k = 0; k < m.params.size(); ++k) out.joined.push_back(k);
    std::vector<Inst*> calls;
    for (size_t k = functions.size(); k-- > 0;) {  // callees come first
        walk(*functions[k]->body, [&](Inst& i) {
            if (i.op != Op::call) return;
            calls.push_back(&i);
            for (const Value* v : i.callee()->body->params) {
                if (v->type.is_array()) out.callees.try_emplace(v, ArrayClasses::Root{-1, true});
            }
        });
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (const Inst* i : calls) {
            for (int k = 0; k < i->operand_count; ++k) {
                const Value* p = i->callee()->body->params[static_cast<uint32_t>(k)];
                if (!p->type.is_array()) continue;
                const ArrayClasses::Root from = out.root(i->operand(k));
                if (from.parameter < 0) continue;
                ArrayClasses::Root& to = out.callees[p];
                if (to.parameter < 0) {
                    to = from;
                    changed = true;
                    continue;
                }
                const uint32_t a = out.find(static_cast<uint32_t>(to.parameter)),
                               b = out.find(static_cast<uint32_t>(from.parameter));
                const bool only = to.only && from.only && to.parameter == from.parameter;
                changed |= a != b || only != to.only;
                out.joined[b] = a;
                to.only = only;
            }
        }
    }
    return out;
}

}  // namespace qd::pass
