// Which functions may take locks.

#pragma once

#include <unordered_set>

#include "ir/ir.h"

namespace qd::ir {

// Whether some atomic may be a lock: a compare and swap, an exchange, or one in a while loop whose
// result is used. Then all atomics of the function order what stands around them, as the language
// has it; elsewhere they need not, and code around them moves freely.
inline bool may_lock(const Function& f) {
    std::unordered_set<const Value*> polled;
    bool swaps = false;
    walk(*f.body, [&](Inst& i) {
        if (i.effect() != Effect::atomic || i.op == Op::volatile_load) return;
        swaps |= i.op == Op::atomic_cas || i.op == Op::atomic_exchange;
        for (const Region* r = i.parent; r->owner; r = r->owner->parent) {
            if (r->owner->op == Op::loop) polled.insert(i.result());
        }
    });
    if (swaps || polled.empty()) return swaps;
    bool used = false;
    walk(*f.body, [&](Inst& i) {
        for (int k = 0; k < i.operand_count; ++k) used |= polled.contains(i.operand(k));
    });
    return used;
}

}  // namespace qd::ir
