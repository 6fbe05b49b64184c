// Which functions may take locks.

#pragma once

#include <unordered_map>
#include <unordered_set>

#include "ir/ir.h"

namespace qd::ir {

// Whether a loop's body can leave it.
inline bool is_left(const Region& body) {
    for (const Inst& i : body) {
        if (i.op == Op::break_) return true;
        if (i.op == Op::if_ && (is_left(*i.regions[0]) || is_left(*i.regions[1]))) return true;
    }
    return false;
}

// Whether some atomic may be a lock: a compare and swap, an exchange, or one, or a volatile load,
// whose result is used in a loop that can be left, which may wait for its turn. Then all atomics of
// the function order what stands around them, as the language has it; elsewhere they need not, and
// code around them moves freely.
inline bool may_lock(const Function& f) {
    std::unordered_set<const Value*> polled;
    std::unordered_map<const Region*, bool> left;  // of loops: each body is looked through once
    const auto can_leave = [&](const Region& r) {
        const auto [at, fresh] = left.try_emplace(&r, false);
        if (fresh) at->second = is_left(r);
        return at->second;
    };
    bool swaps = false;
    walk(*f.body, [&](Inst& i) {
        if (i.effect() != Effect::atomic) return;
        swaps |= i.op == Op::atomic_cas || i.op == Op::atomic_exchange;
        for (const Region* r = i.parent; r->owner; r = r->owner->parent) {
            if (r->owner->is_loop() && can_leave(*r)) polled.insert(i.result());
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
