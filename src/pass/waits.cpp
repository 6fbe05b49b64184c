// What the launcher is to know of parallel tasks: whether an iteration may wait for a later one,
// and whether they use atomics on arrays, which other processes may see.
//
// O(instructions x depth of loops).

#include <unordered_set>

#include "ir/locks.h"
#include "pass/memory.h"

namespace qd::pass {
namespace {

using namespace ir;

// Whether a loop goes on until memory says so: it may wait for a later iteration.
struct Polls {
    std::unordered_set<const Function*> asking, polling;  // callees
    std::unordered_set<const Value*> used;                // of the function that is looked at
    bool asks = false, polls = false;

    // Reads of what others change whose answer somebody looks at.
    bool is_question(const Inst& i) const {
        if (i.op == Op::volatile_load) return true;
        if (i.op == Op::call) return asking.contains(i.callee());
        return info(i.op).kind == Kind::atomic && used.contains(i.result());
    }
    void region(const Region& r, bool in_loop) {
        for (const Inst& i : r) {
            const bool question = is_question(i);
            asks |= question;
            polls |= (question && in_loop) || (i.op == Op::call && polling.contains(i.callee()));
            for (const Region* c : i.region_list())
                region(*c, in_loop || (i.is_loop() && is_left(*c)));
        }
    }
    void look_at(Region& r) {
        used.clear();
        walk(r, [&](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k) {
                Value* v = i.operand(k);
                if (v->def && info(v->def->op).kind == Kind::atomic) used.insert(v);
            }
        });
        asks = polls = false;
        region(r, false);
    }
};

}  // namespace

bool waits_for_others(Inst& loop) {
    Polls waits;
    waits.look_at(loop.body());
    return waits.polls;
}

void find_waits(Plan& plan) {
    std::unordered_set<const Function*> atomic;
    Polls waits;
    const auto uses_array_atomics = [&](const Function& f) {
        bool found = false;
        walk(*f.body, [&](Inst& i) {
            const Inst* root = info(i.op).kind == Kind::atomic ? root_of(i.operand(0)) : nullptr;
            found |= root && info(root->op).root == Root::array;
            found |= i.op == Op::call && atomic.contains(i.callee());
        });
        return found;
    };
    for (const Function* f : plan.callees) {
        waits.look_at(*f->body);
        if (waits.asks) waits.asking.insert(f);
        if (waits.polls) waits.polling.insert(f);
        if (uses_array_atomics(*f)) atomic.insert(f);
    }
    for (Task& t : plan.tasks) {
        if (t.kind == abi::TaskKind::serial) continue;
        waits.look_at(*t.body->body);
        t.polls = waits.polls;
        plan.array_atomics |=
            uses_array_atomics(*t.body) || (t.finish && uses_array_atomics(*t.finish));
    }
}

}  // namespace qd::pass
