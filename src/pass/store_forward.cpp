// Loads of what is known, and stores that nobody sees.
//
// Walks in order of execution and remembers what each place holds after a load or store of it.
// Equal places are one value (cse), so places are compared by identity; a write to any other place
// of the same memory class makes the class forgotten. Entering a loop forgets what the loop writes.
// What is learnt in a region is forgotten behind it, so nothing goes from a group to its sibling.
// A store followed in its region by another to the same place, with nothing between that might
// read the class or end the launch, is dropped.
//
// Iterations of a parallel loop may run at the same time, but one that reads plainly what another
// writes is undefined; atomics and volatile loads are never forwarded. Where an atomic may be a
// lock (ir::may_lock), nothing is known across atomics but slots.
//
// Needs: cse.
// Cost:  O(instructions x loop depth).

#include <unordered_map>

#include "ir/locks.h"
#include "pass/memory.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Forwarder {
    Session& s;
    bool locks;
    bool changed = false;

    struct Known {
        Value* value;
        uint64_t memory, generation, all_generation;
        uint32_t scope;
    };
    struct LastStore {
        Inst* store;
        uint64_t memory, reads, barriers;
        const Region* region;
    };
    struct Class {
        uint64_t generation = 0, reads = 0;
    };
    std::unordered_map<const Value*, Known> known;
    std::unordered_map<const Value*, LastStore> stores;
    std::unordered_map<uint64_t, Class> classes;
    uint64_t all_generation = 0;  // of everything but slots
    uint64_t barriers = 0;
    std::vector<bool> open;  // scopes by number
    std::vector<uint32_t> scopes;

    void remember(const Value* place, Value* v) {
        const uint64_t c = memory_class(place, s);
        known[place] = {v, c, classes[c].generation, all_generation, scopes.back()};
    }
    Value* recall(const Value* place) {
        const auto found = known.find(place);
        if (found == known.end()) return nullptr;
        const Known& k = found->second;
        if (!open[k.scope] || classes[k.memory].generation != k.generation) return nullptr;
        if (!is_local_class(k.memory) && k.all_generation != all_generation) return nullptr;
        return k.value;
    }

    void forget_written(Region& r) {
        walk(r, [&](Inst& i) {
            if (i.effect() == Effect::write || i.effect() == Effect::atomic) {
                ++classes[memory_class(i.operand(0), s)].generation;
                if (locks && i.effect() == Effect::atomic) ++all_generation;
            } else if (info(i.op).fences ||
                       (i.op == Op::call && s.summaries[i.callee()->id].writes)) {
                ++all_generation;
            }
        });
    }

    void store(Inst& i) {
        const Value* place = i.operand(0);
        const uint64_t c = memory_class(place, s);
        Class& memory = classes[c];
        const auto last = stores.find(place);
        if (last != stores.end()) {
            const LastStore& l = last->second;
            if (l.region == i.parent && l.reads == memory.reads && l.barriers == barriers) {
                l.store->remove();
                changed = true;
            }
        }
        ++memory.generation;
        stores[place] = {&i, c, memory.reads, barriers, i.parent};
        remember(place, i.operand(1));
    }

    void region(Region& r) {
        scopes.push_back(static_cast<uint32_t>(open.size()));
        open.push_back(true);
        for (Inst& i : r) {
            switch (i.effect()) {
                case Effect::read:
                    if (i.op != Op::load) break;
                    if (Value* v = recall(i.operand(0))) {
                        replace(i.result(), v);
                        i.remove();
                        changed = true;
                    } else {
                        ++classes[memory_class(i.operand(0), s)].reads;
                        remember(i.operand(0), i.result());
                    }
                    break;
                case Effect::write:
                    store(i);
                    break;
                case Effect::atomic: {
                    Class& memory = classes[memory_class(i.operand(0), s)];
                    ++memory.reads;
                    ++memory.generation;
                    if (locks) ++all_generation, ++barriers;
                    break;
                }
                case Effect::check:
                case Effect::io:
                    if (info(i.op).fences) ++all_generation;
                    ++barriers;
                    break;
                case Effect::call: {
                    const Summary& c = s.summaries[i.callee()->id];
                    if (c.writes) ++all_generation;
                    ++barriers;
                    break;
                }
                case Effect::region:
                    ++barriers;
                    if (info(i.op).repeats) forget_written(i.body());
                    for (Region* c : i.region_list()) region(*c);
                    ++barriers;
                    break;
                default:
                    break;
            }
        }
        open[scopes.back()] = false;
        scopes.pop_back();
    }
};

}  // namespace

bool store_forward(Session& s, Function& f) {
    Forwarder run{.s = s,
                  .locks = may_lock(f),
                  .known = {},
                  .stores = {},
                  .classes = {},
                  .open = {},
                  .scopes = {}};
    run.region(*f.body);
    return run.changed;
}

}  // namespace qd::pass
