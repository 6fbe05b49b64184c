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
// Several totals are added up in one go: at each distance a lane keeps one half of them and hands
// the other to its partner, so that 12 take 13 shuffles and not 60. Each is then another lane's,
// and memory sees one atomic of neighbours. Loops that do little else make kTurns turns at once.
//
// Needs: a task whose threads have an iteration each. Keeps: sums of floats but for their order.
// Cost:  O(instructions x loop depth).

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pass/divergence.h"
#include "pass/memory.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int kThreads = 32;
constexpr int64_t kAll = 0xffffffff;
constexpr int kTurnBits = 2, kTurns = 1 << kTurnBits;
constexpr uint32_t kMostSize = 100;  // of a body whose turns are made at once, in instructions

std::unordered_set<const Value*> used_values(const Function& f) {
    std::unordered_set<const Value*> used;
    walk(*f.body, [&](const Inst& i) {
        for (int k = 0; k < i.operand_count; ++k) used.insert(i.operand(k));
    });
    return used;
}

struct Joiner {
    Session& s;
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

    static Value* is_equal_over_lanes(Builder& b, Value* v, Value* mask) {
        Value* equal = b.typed(Op::vote, type::kU32, {{v, mask}}, uint64_t(Vote::all_equal));
        return b.op(Op::eq, {equal, word(b, kAll)});
    }

    static bool turns_once(const Inst& loop) {  // at most: a thread with one iteration
        const Inst* high = loop.operand(1)->def;
        return loop.imm == 1 && is_constant(loop.operand(0)) && !constant_bits(loop.operand(0)) &&
               high && high->op == Op::cast && high->operand(0)->type.prim == Prim::u1;
    }

    struct Answer {
        Value* yes = nullptr;
        Value* mask = nullptr;  // of the threads that asked
    };

    // Whether all threads are here, and in one turn of the loops around: some may have gone ahead,
    // and come by again when others do for the first time. Null if nobody can tell.
    static Answer all_in_one_turn(Inst& at) {
        Builder b = before(at);
        for (const Inst* i = at.parent->owner; i; i = i->parent->owner)
            if (i->op == Op::loop) return {};
        Value* mask = b.typed(Op::active_mask, type::kU32, {});
        Value* yes = b.op(Op::eq, {mask, word(b, kAll)});
        for (const Inst* i = at.parent->owner; i; i = i->parent->owner) {
            if (i->op != Op::for_ || turns_once(*i)) continue;
            for (uint32_t d = 0; d < i->imm; ++d)
                yes = b.op(Op::bit_and, {yes, is_equal_over_lanes(b, i->body().params[d], mask)});
        }
        return {yes, mask};
    }

    // Known from the loops around, or asked now; null as above.
    Value* all_here(Inst& at) {
        Inst* outermost = nullptr;
        for (Inst* i = at.parent->owner; i && alike(*i); i = i->parent->owner)
            if (i->is_loop()) outermost = i;
        Inst& in_front = outermost ? *outermost : at;
        const auto [known, is_new] = whole.try_emplace(&in_front);
        if (is_new) known->second = all_in_one_turn(in_front).yes;
        return known->second;
    }

    static bool same_number(const Value* a, const Value* b) {
        return a == b || (is_constant(a) && is_constant(b) && constant_bits(a) == constant_bits(b));
    }

    // Places that differ in numbers alone: a lane may choose among them.
    static bool are_alike(const Value* a, const Value* b) {
        if (a == b) return true;
        if (a->type != b->type) return false;
        if (a->type.is_scalar()) return true;
        const Inst *x = a->def, *y = b->def;
        if (!a->type.is_place() || !x || !y || x->op != y->op) return false;
        if (x->op == Op::comp_place && !same_number(x->operand(1), y->operand(1))) {
            const Inst* field = root_of(a);
            if (field->op == Op::field_place && !field->field()->component_stride()) return false;
        }
        if (x->ref != y->ref || x->imm != y->imm || x->operand_count != y->operand_count ||
            x->op == Op::slot)
            return false;
        for (int k = 0; k < x->operand_count; ++k)
            if (!are_alike(x->operand(k), y->operand(k))) return false;
        return true;
    }
    static Value* choose(Builder& b, Value* which, Value* yes, Value* no) {
        if (yes == no) return no;
        if (!yes->type.is_place())
            return same_number(yes, no) ? no : b.op(Op::select, {which, yes, no});
        std::vector<Value*> operands;
        for (int k = 0; k < no->def->operand_count; ++k)
            operands.push_back(choose(b, which, yes->def->operand(k), no->def->operand(k)));
        return emit_like(b, *no->def, operands)->result();
    }

    // A value of which a lane has the total for one place.
    struct Share {
        Value *value, *place;
        uint32_t owners;  // the lanes that hand it on
    };

    void add_up(Builder& b, std::span<Inst* const> group, Value* mask, Value* lane) {
        const Op fold = fold_of(group[0]->op);
        const auto over = [&](Value* v, Value* distance) {
            return b.typed(Op::shuffle, v->type, {{v, distance, mask}}, uint64_t(Shuffle::flip));
        };
        std::vector<Share> shares;
        for (Inst* i : group) shares.push_back({i->operand(1), i->operand(0), 1});
        for (int far = kThreads / 2; far; far /= 2) {
            Value* distance = word(b, far);
            Value* upper = nullptr;
            std::vector<Share> next;
            for (size_t k = 0; k + 1 < shares.size(); k += 2) {
                if (!upper)
                    upper = b.op(Op::ne, {b.op(Op::bit_and, {lane, b.int_const(Prim::i32, far)}),
                                          b.int_const(Prim::i32, 0)});
                const Share &low = shares[k], &high = shares[k + 1];
                Value* kept = b.op(Op::select, {upper, high.value, low.value});
                Value* given = b.op(Op::select, {upper, low.value, high.value});
                next.push_back({b.op(fold, {kept, over(given, distance)}),
                                choose(b, upper, high.place, low.place),
                                low.owners | high.owners << far});
            }
            if (shares.size() % 2) {
                Share& single = shares.back();
                single.value = b.op(fold, {single.value, over(single.value, distance)});
                next.push_back(single);
            }
            shares = std::move(next);
        }
        const auto& [total, place, owners] = shares[0];
        Value* bit = b.op(Op::lshr, {word(b, owners), b.cast(lane, Prim::u32)});
        Value* is_owner = b.op(Op::ne, {b.op(Op::bit_and, {bit, word(b, 1)}), word(b, 0)});
        Inst* only = b.emit(Op::if_, {{is_owner}}, {}, 2);
        Builder in{&f, only->regions[0], nullptr, group[0]->loc};
        in.op(group[0]->op, {place, total});
        in.end(Op::yield);
        Builder{&f, only->regions[1], nullptr, group[0]->loc}.end(Op::yield);
    }

    // Turns of a loop that may be made at once.
    bool is_short(const Inst& loop, const std::unordered_set<const Value*>& used) const {
        if (loop.op != Op::for_ || loop.imm != 1 || is_parallel(loop) || !alike(loop)) return false;
        uint32_t size = 0, atomics = 0;
        for (const Inst& i : loop.body()) {
            const Effect e = i.effect();
            const bool joins = is_candidate(i, used);
            if (!joins && e != Effect::pure && i.op != Op::load && e != Effect::terminator)
                return false;
            size += i.op != Op::constant;
            atomics += joins;
        }
        return loop.body().last->op == Op::continue_ && atomics && size <= kMostSize &&
               atomics * kTurns <= kThreads;
    }

    // for j = low to high becomes one over kTurns turns each, and the loop itself for what is left.
    void turn_together(Inst& loop) {
        Builder b = before(loop);
        const Value* index = loop.body().params[0];
        const auto wide = [&](Builder& at, int64_t v) { return at.int_const(Prim::i64, v); };
        Value* low = b.cast(loop.operand(0), Prim::i64);
        Value* high = b.cast(loop.operand(1), Prim::i64);
        Value* count = b.op(Op::max, {b.op(Op::sub, {high, low}), wide(b, 0)});
        std::vector<Value*> carried(loop.operands + 2, loop.operands + loop.operand_count);
        Value* turns = b.op(Op::lshr, {count, wide(b, kTurnBits)});
        Inst* together = new_for(b, wide(b, 0), turns, carried);
        Value* turn = f.add_param(together->body(), type::kI64);
        std::vector<Value*> now;
        for (const Value* v : carried) now.push_back(f.add_param(together->body(), v->type));
        Builder in{&f, &together->body(), nullptr, loop.loc};
        Value* first = in.op(Op::add, {low, in.op(Op::shl, {turn, wide(in, kTurnBits)})});
        Inst* end = in.emit(Op::continue_, {}, {});
        for (int k = 0; k < kTurns; ++k) {
            Builder at = before(*end);
            std::vector<std::pair<const Value*, Value*>> params;
            params.emplace_back(index,
                                at.cast(at.op(Op::add, {first, wide(at, k)}), index->type.prim));
            for (size_t c = 0; c < now.size(); ++c)
                params.emplace_back(loop.body().params[static_cast<uint32_t>(c) + 1], now[c]);
            const Inst* last = splice_before(*clone_into(loop.body(), f, std::move(params)), *end);
            for (size_t c = 0; c < now.size(); ++c) now[c] = last->operand(static_cast<int>(c));
        }
        add_operands(*end, now);
        Value* left = b.op(Op::add, {low, b.op(Op::shl, {turns, wide(b, kTurnBits)})});
        loop.operands[0] = b.cast(left, index->type.prim);
        for (size_t c = 0; c < carried.size(); ++c)
            loop.operands[c + 2] = together->result(static_cast<int>(c));
    }

    void join(std::span<Inst* const> group) {
        Inst& last = *group.back();
        Value* all = all_here(last);
        std::unordered_set<const Value*> asked;
        std::vector<Value*> indices;  // of which loads decide whether they are equal
        for (const Inst* i : group)
            each_index(*i, [&](Value* index) {
                if (!is_constant(index) && surely.differs(index) && asked.insert(index).second)
                    indices.push_back(index);
            });
        const Answer now = indices.empty() ? Answer{all} : all_in_one_turn(last);
        if (!all || !now.yes) return;
        Builder b = before(last);
        if (now.yes != all) all = b.op(Op::bit_and, {all, now.yes});
        for (Value* index : indices)
            all = b.op(Op::bit_and, {all, is_equal_over_lanes(b, index, now.mask)});
        Inst* branch = b.emit(Op::if_, {{all}}, {}, 2);
        Builder one{&f, branch->regions[0], nullptr, last.loc};
        Value* mask = word(one, kAll);
        Value* lane = one.typed(Op::thread_index, type::kI32, {}, uint64_t(ThreadNumber::lane));
        std::vector<Inst*> rest(group.begin(), group.end());
        while (!rest.empty()) {  // those that are folded alike
            const auto alike = [&](const Inst* i) {
                return i->op == rest[0]->op && are_alike(i->operand(0), rest[0]->operand(0));
            };
            const auto end = std::ranges::stable_partition(rest, alike).begin();
            const auto count = std::min<std::ptrdiff_t>(end - rest.begin(), kThreads);
            add_up(one, {rest.begin(), rest.begin() + count}, mask, lane);
            rest.erase(rest.begin(), rest.begin() + count);
        }
        one.end(Op::yield);
        for (Inst* i : group) {
            i->remove();
            i->append_to(*branch->regions[1]);
        }
        Builder{&f, branch->regions[1], nullptr, last.loc}.end(Op::yield);
        changed = true;
    }

    // Whether a load may stand in front of atomics that stood in front of it.
    bool is_apart(const Inst& i, std::span<Inst* const> group) const {
        if (i.op != Op::load) return false;
        const uint64_t c = memory_class(i.operand(0), s);
        return c != kUnknownMemory && std::ranges::none_of(group, [&](const Inst* a) {
                   const uint64_t other = memory_class(a->operand(0), s);
                   return other == c || other == kUnknownMemory;
               });
    }

    void region(Region& r, const std::unordered_set<const Value*>& used) {
        std::vector<std::vector<Inst*>> groups(1);
        for (Inst* i = r.first; i; i = i->next) {
            for (Region* c : i->region_list()) region(*c, used);
            if (is_candidate(*i, used))
                groups.back().push_back(i);
            else if (i->effect() != Effect::pure && !groups.back().empty() &&
                     !is_apart(*i, groups.back()))
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
    walk(*f.body, [&](const Inst& i) {
        has_iterations |= i.op == Op::task_value && TaskValue(i.imm) == TaskValue::begin;
        has_atomics |= i.effect() == Effect::atomic;
    });
    if (!has_iterations || !has_atomics) return false;
    {
        Joiner turner{.s = s, .f = f};
        const auto used = used_values(f);
        std::vector<Inst*> loops;
        walk(*f.body, [&](Inst& i) {
            if (turner.is_short(i, used)) loops.push_back(&i);
        });
        for (Inst* loop : loops) turner.turn_together(*loop);
    }
    Joiner j{.s = s, .f = f};  // knows the copies too
    j.region(*f.body, used_values(f));
    return j.changed;
}

}  // namespace qd::pass
