// Slots become SSA values.
//
// A slot is promoted if all that happens to it are loads, stores and atomics, of the whole or of a
// component whose number is constant. One walk keeps the current value of every slot; an if yields
// and a loop carries the slots that are stored inside. A slot that is stored inside a parallel loop
// but lives outside of it stays: it is shared. So does one that is stored inside a group and lives
// outside of it: no value leaves one.
//
// An atomic on a promoted slot is plain arithmetic: nobody else sees the slot.
// A load before any store reads zero.
//
// Keeps: everything else. Carried values that nobody needs are left to dce.
// Cost:  O(instructions + stores x loop depth).

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

bool is_access(Op op) {
    return op == Op::load || op == Op::store || op == Op::volatile_load ||
           info(op).effect == Effect::atomic;
}

struct Target {  // what a place stands for
    int slot = -1;
    int component = -1;  // -1: the whole
};

struct Promoter {
    Function& f;
    std::vector<Inst*> slots;
    std::vector<bool> good;
    std::unordered_map<const Value*, Target> places;
    std::unordered_map<const Inst*, std::vector<int>>
        stored;  // per region instruction, ascending first met
    std::vector<Value*> current;
    std::vector<Inst*> dead;

    Target target(const Value* v) const {
        const auto found = places.find(v);
        return found == places.end() ? Target{} : found->second;
    }

    void find(Region& r) {
        for (Inst* i = r.first; i; i = i->next) {
            if (i->op == Op::slot) {
                places[i->result()] = {static_cast<int>(slots.size()), -1};
                slots.push_back(i);
                good.push_back(true);
            }
            for (int k = 0; k < i->operand_count; ++k) {
                const Target t = target(i->operand(k));
                if (t.slot < 0) continue;
                const auto n = static_cast<size_t>(t.slot);
                if (k == 0 && i->op == Op::comp_place) {
                    const Value* at = i->operand(1);
                    const int64_t c = is_constant(at) ? constant_int(at) : -1;
                    if (t.component >= 0 || c < 0 || c >= slots[n]->results[0].type.count()) {
                        good[n] = false;
                    } else {
                        places[i->result()] = {t.slot, static_cast<int>(c)};
                    }
                } else if (k != 0 || !is_access(i->op)) {
                    good[n] = false;
                }
            }
            for (Region* c : i->region_list()) find(*c);
        }
    }

    // Which region instructions store to which slots that live outside of them.
    void find_stores() {
        std::unordered_set<uint64_t> seen;
        std::unordered_map<const Inst*, uint32_t> numbers;
        walk(*f.body, [&](Inst& i) {
            if (i.op != Op::store && i.effect() != Effect::atomic) return;
            if (i.op == Op::volatile_load) return;
            const Target t = target(i.operand(0));
            if (t.slot < 0 || !good[static_cast<size_t>(t.slot)]) return;
            const Region* home = slots[static_cast<size_t>(t.slot)]->parent;
            for (const Region* r = i.parent; r != home; r = r->owner->parent) {
                const Inst* owner = r->owner;
                const auto n =
                    numbers.emplace(owner, static_cast<uint32_t>(numbers.size())).first->second;
                if (!seen.insert(static_cast<uint64_t>(n) << 32 | static_cast<uint32_t>(t.slot))
                         .second)
                    break;
                if (owner->is_group() || (owner->op == Op::for_ && owner->loop_config() &&
                                          owner->loop_config()->parallel)) {
                    good[static_cast<size_t>(t.slot)] = false;
                }
                stored[owner].push_back(t.slot);
            }
        });
        for (auto& [owner, list] : stored) {
            std::erase_if(list, [&](int n) { return !good[static_cast<size_t>(n)]; });
        }
    }

    Type type_of(int slot) const {
        return slots[static_cast<size_t>(slot)]->results[0].type.value();
    }
    Value* value(Builder& b, int slot) {
        Value* v = current[static_cast<size_t>(slot)];
        return v ? resolve(v) : zero(b, type_of(slot));  // not remembered: b may be in a branch
    }

    void set(Inst& i, Builder& b, Target t, Value* v) {
        if (t.component >= 0) {
            Value* whole = value(b, t.slot);
            v = whole->type.is_scalar()
                    ? v
                    : b.op(Op::insert, {whole, v}, static_cast<uint64_t>(t.component));
        }
        current[static_cast<size_t>(t.slot)] = v;
        dead.push_back(&i);
    }
    Value* get(Builder& b, Target t) {
        Value* whole = value(b, t.slot);
        if (t.component < 0 || whole->type.is_scalar()) return whole;
        return b.op(Op::extract, {whole}, static_cast<uint64_t>(t.component));
    }

    void access(Inst& i, Target t) {
        Builder b = before(i);
        if (i.op == Op::store) {
            set(i, b, t, i.operand(1));
            return;
        }
        Value* old = get(b, t);
        if (i.op != Op::load && i.op != Op::volatile_load) {
            Value* next = i.operand(1);
            if (i.op == Op::atomic_cas) {
                next = b.op(Op::select, {b.op(Op::eq, {old, i.operand(1)}), i.operand(2), old});
            } else if (i.op != Op::atomic_exchange) {
                next = b.op(info(i.op).step, {old, next});
            }
            set(i, b, t, next);
        } else {
            dead.push_back(&i);
        }
        replace(i.result(), old);
    }

    void visit_if(Inst& i, const std::vector<int>& list) {
        std::vector<Value*> outer, branch[2];
        Builder b = before(i);
        for (const int n : list) outer.push_back(value(b, n));
        for (int k = 0; k < 2; ++k) {
            for (size_t n = 0; n < list.size(); ++n)
                current[static_cast<size_t>(list[n])] = outer[n];
            region(*i.regions[k]);
            for (const int n : list) branch[k].push_back(current[static_cast<size_t>(n)]);
        }
        const bool falls[] = {i.regions[0]->last->op == Op::yield,
                              i.regions[1]->last->op == Op::yield};
        if (!falls[0] && !falls[1]) {
            for (size_t n = 0; n < list.size(); ++n)
                current[static_cast<size_t>(list[n])] = outer[n];
            return;
        }
        merge(i, list, branch[0], branch[1], falls);
    }
    void merge(Inst& i, const std::vector<int>& list, const std::vector<Value*>& a,
               const std::vector<Value*>& b, const bool falls[2]) {
        std::vector<Type> types;
        for (const int n : list) types.push_back(type_of(n));
        const int first = i.result_count;
        if (falls[0]) add_operands(*i.regions[0]->last, a);
        if (falls[1]) add_operands(*i.regions[1]->last, b);
        add_results(i, types);
        for (size_t n = 0; n < list.size(); ++n) {
            current[static_cast<size_t>(list[n])] = i.result(first + static_cast<int>(n));
        }
    }

    void visit_loop(Inst& i, const std::vector<int>& list) {
        std::vector<Value*> initial;
        std::vector<Type> types;
        Builder b = before(i);
        for (const int n : list) {
            initial.push_back(value(b, n));
            types.push_back(type_of(n));
        }
        add_operands(i, initial);
        for (const int n : list)
            current[static_cast<size_t>(n)] = f.add_param(i.body(), type_of(n));
        loops.push_back(&i);
        region(i.body());
        loops.pop_back();
        const int first = i.result_count;
        add_results(i, types);
        for (size_t n = 0; n < list.size(); ++n) {
            current[static_cast<size_t>(list[n])] = i.result(first + static_cast<int>(n));
        }
    }
    std::vector<Inst*> loops;

    void exit(Inst& i) {
        const auto found = stored.find(loops.back());
        if (found == stored.end()) return;
        Builder b = before(i);
        std::vector<Value*> values;
        for (const int n : found->second) values.push_back(value(b, n));
        add_operands(i, values);
    }

    void region(Region& r) {
        for (Inst& i : r) {
            if (i.op == Op::slot) {
                const Target t = target(i.result());
                if (good[static_cast<size_t>(t.slot)]) {
                    current[static_cast<size_t>(t.slot)] = nullptr;
                    dead.push_back(&i);
                }
                continue;
            }
            if (i.op == Op::comp_place || is_access(i.op)) {
                const Target t = target(i.operand(0));
                if (t.slot < 0 || !good[static_cast<size_t>(t.slot)]) continue;
                if (i.op == Op::comp_place) {
                    dead.push_back(&i);
                } else {
                    access(i, t);
                }
                continue;
            }
            if (i.op == Op::continue_ || i.op == Op::break_) {
                exit(i);
                continue;
            }
            if (i.region_count == 0) continue;
            static const std::vector<int> none;
            const auto found = stored.find(&i);
            const std::vector<int>& list = found == stored.end() ? none : found->second;
            if (i.is_group()) {
                region(i.body());
            } else if (i.op == Op::if_) {
                visit_if(i, list);
            } else {
                visit_loop(i, list);
            }
        }
    }
};

}  // namespace

bool promote(Session&, Function& f) {
    Promoter p{.f = f,
               .slots = {},
               .good = {},
               .places = {},
               .stored = {},
               .current = {},
               .dead = {},
               .loops = {}};
    p.find(*f.body);
    if (std::ranges::find(p.good, true) == p.good.end()) return false;
    p.find_stores();
    p.current.resize(p.slots.size());
    p.region(*f.body);
    for (Inst* i : p.dead) i->remove();
    return !p.dead.empty();
}

}  // namespace qd::pass
