// Where the threads of a GPU's subgroup add to one element, they add up what they have and one of
// them hands it on: memory takes atomics on an element one after the other.
//
// In an inner loop whose counter is the index, as gradients have them. Whether all threads are
// there is asked in front of the loops that all of them run alike, else at the atomics; and there
// too whether their indices are equal, where loads decide. Neighbours are done together.
//
//   if whole { total = total over lanes; if lane == 0 { atomic_add(place, total) } }
//   else { atomic_add(place, value) }
//
// Needs: a task whose threads have an iteration each. Keeps: sums of floats but for their order.
// Cost:  O(instructions x loop depth).

#include <unordered_map>

#include "pass/divergence.h"
#include "pass/memory.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int kThreads = 32;
constexpr int64_t kAll = 0xffffffff;

struct Joiner {
    Function& f;
    const Divergence maybe{f, true}, surely{f, false};
    std::unordered_map<const Inst*, Value*> whole = {};  // asked in front of it
    bool changed = false;

    static Value* word(Builder& b, int64_t v) { return b.int_const(Prim::u32, v); }

    // The indices of a place.
    template <class What>
    static void each_index(const Inst& atomic, What what) {
        for (const Value* v = atomic.operand(0); v->def; v = v->def->operand(0)) {
            const bool within = v->def->op == Op::comp_place;
            for (int k = within; k < v->def->operand_count; ++k)
                if (v->def->operand(k)->type.is_scalar()) what(v->def->operand(k));
            if (!within) return;
        }
    }
    static bool agree(const Inst& atomic, const Divergence& d) {
        bool yes = true;
        each_index(atomic, [&](const Value* v) { yes &= !d.differs(v); });
        return yes;
    }

    bool is_candidate(const Inst& i, const std::unordered_set<const Value*>& used) const {
        if (i.effect() != Effect::atomic || fold_of(i.op) == Op::count_) return false;
        if (!type::is_float(i.operand(1)->type.prim) || used.contains(i.results)) return false;
        const Inst* root = root_of(i.operand(0));
        return root && root->op != Op::slot && agree(i, maybe);
    }

    // Whether all that come to it run it alike, and to its end.
    bool alike(const Inst& i) const {
        for (int k = 0; k < i.operand_count; ++k)
            if (surely.differs(i.operand(k))) return false;
        if (i.op == Op::if_) return true;
        bool ends = i.op == Op::for_;
        walk(i.body(), [&](const Inst& j) {
            ends &= j.op != Op::continue_ || j.parent->owner->is_loop();
            ends &= j.op != Op::break_ && j.op != Op::return_ && j.op != Op::call &&
                    j.effect() != Effect::check && info(j.op).kind != Kind::threads;
        });
        return ends;
    }

    // Whether all threads are here: known from the loops around, or asked now.
    Value* all_here(Inst& at) {
        Inst* outermost = nullptr;
        for (Inst* i = at.parent->owner; i && alike(*i); i = i->parent->owner)
            if (i->is_loop()) outermost = i;
        Inst& in_front = outermost ? *outermost : at;
        Value*& v = whole[&in_front];
        if (!v) {
            Builder b = before(in_front);
            v = b.op(Op::eq, {b.typed(Op::active_mask, type::kU32, {}), word(b, kAll)});
        }
        return v;
    }

    void join(std::span<Inst* const> group) {
        Inst& last = *group.back();
        Value* all = all_here(last);
        Builder b = before(last);
        std::unordered_set<const Value*> asked;
        for (const Inst* i : group)
            each_index(*i, [&](Value* index) {
                if (is_constant(index) || !surely.differs(index) || !asked.insert(index).second)
                    return;
                Value* mask = b.typed(Op::active_mask, type::kU32, {});
                Value* equal =
                    b.typed(Op::vote, type::kU32, {{index, mask}}, uint64_t(Vote::all_equal));
                all = b.op(Op::bit_and, {all, b.op(Op::eq, {equal, word(b, kAll)})});
            });
        Inst* branch = b.emit(Op::if_, {{all}}, {}, 2);
        Builder one{&f, branch->regions[0], nullptr, last.loc};
        std::vector<Value*> totals;
        for (const Inst* i : group) totals.push_back(i->operand(1));
        Value* mask = word(one, kAll);
        for (int far = kThreads / 2; far; far /= 2) {
            Value* distance = word(one, far);
            for (size_t k = 0; k < group.size(); ++k) {
                Value*& total = totals[k];
                Value* other = one.typed(Op::shuffle, total->type, {{total, distance, mask}},
                                         uint64_t(Shuffle::flip));
                total = one.op(fold_of(group[k]->op), {total, other});
            }
        }
        Value* lane = one.typed(Op::thread_index, type::kI32, {}, uint64_t(ThreadNumber::lane));
        Value* is_first = one.op(Op::eq, {lane, one.int_const(Prim::i32, 0)});
        Inst* first = one.emit(Op::if_, {{is_first}}, {}, 2);
        one.end(Op::yield);
        Builder in{&f, first->regions[0], nullptr, last.loc};
        for (size_t k = 0; k < group.size(); ++k)
            in.op(group[k]->op, {group[k]->operand(0), totals[k]});
        in.end(Op::yield);
        Builder{&f, first->regions[1], nullptr, last.loc}.end(Op::yield);
        for (Inst* i : group) {
            i->remove();
            i->append_to(*branch->regions[1]);
        }
        Builder{&f, branch->regions[1], nullptr, last.loc}.end(Op::yield);
        changed = true;
    }

    void region(Region& r, const std::unordered_set<const Value*>& used) {
        std::vector<std::vector<Inst*>> groups(1);
        for (Inst* i = r.first; i; i = i->next) {
            for (Region* c : i->region_list()) region(*c, used);
            if (is_candidate(*i, used))
                groups.back().push_back(i);
            else if (i->effect() != Effect::pure && !groups.back().empty())
                groups.emplace_back();
        }
        for (const auto& group : groups)
            if (!group.empty()) join(group);
    }
};

}  // namespace

bool join_atomics(Session& s, Function& f) {
    if (!s.options.target.threads) return false;
    bool has_iterations = false, has_atomics = false;
    std::unordered_set<const Value*> used;
    walk(*f.body, [&](const Inst& i) {
        has_iterations |= i.op == Op::task_value && TaskValue(i.imm) == TaskValue::begin;
        has_atomics |= i.effect() == Effect::atomic;
        for (int k = 0; k < i.operand_count; ++k) used.insert(i.operand(k));
    });
    if (!has_iterations || !has_atomics) return false;
    Joiner j{.f = f};
    j.region(*f.body, used);
    return j.changed;
}

}  // namespace qd::pass
