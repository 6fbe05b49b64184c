// Constants that overwrite what was just loaded are stored later, for GPUs.
//
// There a store to a line whose load is still under way holds up the loads behind it: the reverse
// sweep's `a = y.grad[i]; y.grad[i] = 0; ...` ran at a fifth of the memory's speed (H100). Such a
// store goes behind the next one that waits for the loaded value, or for a later one. It passes
// nothing that might touch its memory class, nor anything but loads, stores and arithmetic. Only
// constants: other values would live longer.
//
// Needs: cse (equal places are one value).
// Cost:  O(instructions).

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "pass/memory.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Delays {
    Session& s;
    bool changed = false;

    struct Waiting {
        Inst* store;
        uint64_t memory;
        int load;  // number of the one that it waits for
    };

    void region(Region& r) {
        std::vector<Waiting> waiting;
        std::unordered_map<const Value*, int> loads;  // by place
        std::unordered_map<const Value*, int> needs;  // value: the latest load behind it
        int count = 0;
        const auto latest = [&](const Inst& i) {
            int n = 0;
            for (int k = 0; k < i.operand_count; ++k)
                if (const auto at = needs.find(i.operand(k)); at != needs.end())
                    n = std::max(n, at->second);
            return n;
        };
        // Puts those that `is_due` names in front of `at`.
        const auto release = [&](Inst* at, auto is_due) {
            std::erase_if(waiting, [&](const Waiting& w) {
                if (!is_due(w)) return false;
                if (at && w.store->next != at) {
                    w.store->remove();
                    w.store->insert_before(*at);
                    changed = true;
                }
                return true;
            });
        };
        const auto all = [](const Waiting&) { return true; };
        for (Inst *i = r.first, *next; i; i = next) {
            next = i->next;
            for (Region* c : i->region_list()) region(*c);
            if (i->effect() == Effect::pure || i->effect() == Effect::alloc) {
                const int n = latest(*i);
                for (int k = 0; n && k < i->result_count; ++k) needs[&i->results[k]] = n;
                continue;
            }
            const bool loads_one = i->op == Op::load, stores_one = i->op == Op::store;
            if (!loads_one && !stores_one) {
                release(i, all);
                if (i->effect() != Effect::read) loads.clear();
                continue;
            }
            const uint64_t memory = memory_class(i->operand(0), s);
            if (is_local_class(memory)) continue;
            if (memory == kUnknownMemory) {
                release(i, all);
                continue;
            }
            release(i, [&](const Waiting& w) { return w.memory == memory; });
            if (loads_one) {
                loads[i->operand(0)] = needs[i->result()] = ++count;
                continue;
            }
            const int n = latest(*i);
            release(next, [&](const Waiting& w) { return w.load <= n; });
            const auto loaded = loads.find(i->operand(0));
            if (loaded != loads.end() && n < loaded->second && next && i->operand(1)->def &&
                i->operand(1)->def->op == Op::constant)
                waiting.push_back({i, memory, loaded->second});
        }
    }
};

}  // namespace

bool late_stores(Session& s, Function& f) {
    if (!s.options.target.threads) return false;
    Delays d{s};
    d.region(*f.body);
    return d.changed;
}

}  // namespace qd::pass
