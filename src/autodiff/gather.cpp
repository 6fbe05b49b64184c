// Scattered additions of a stencil, gathered.
//
// A loop that reads u at i - 1, i and i + 1 adds to three gradients on its way back: iterations
// meet, and atomics are in order. But element j gets what iterations j + 1, j and j - 1 have for
// it, so another loop, over elements, adds that up by itself:
//
//   for j: u.grad[j] += (a(j + 1) if j + 1 is an iteration) + b(j) + ...
//
// It computes again what the iterations hand on, and runs before the loop, which keeps its other
// effects: it may take the gradients that both need.
//
// A loop qualifies if its body is straight code, and each addition's index is, axis by axis,
// another index of the loop plus a constant. What it stores, it stores at indices of its own,
// behind all loads of the same memory.
//
// Needs: promoted slots. Cost: O(additions x what leads to them), at most kMost instructions more.

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "autodiff/parts.h"

namespace qd::autodiff {
namespace {

constexpr size_t kMost = 400;      // instructions of all that is computed again
constexpr int64_t kFarthest = 16;  // from one addition's element to another's, along an axis

struct Add {
    Inst* inst;
    std::vector<int64_t> offset;  // by dimension of the loop
};
struct Group {
    std::vector<int> dimension;  // by axis
    std::vector<Add> adds;
};

struct Gatherer {
    Function& f;
    Inst& loop;
    const bool arrays_may_overlap;
    const size_t dims = static_cast<size_t>(loop.imm);
    std::map<std::pair<const void*, uint64_t>, Group> groups = {};

    // Wide enough for indices: what is narrower wraps around.
    static bool counts(Type t) {
        return t.is_scalar() && (t.prim == Prim::i32 || t.prim == Prim::i64);
    }

    // An index as (dimension of the loop, constant).
    bool index_of(const Value* v, int& dimension, int64_t& constant) const {
        constant = 0;
        for (int depth = 0; depth < 16; ++depth) {
            v = resolve(const_cast<Value*>(v));
            if (v->owner == &loop.body()) {
                dimension = static_cast<int>(v->index);
                return true;
            }
            const Inst* d = v->def;
            if (!d || !counts(v->type)) return false;
            if (d->op == Op::cast) {
                if (!counts(d->operand(0)->type) ||
                    type::bits(v->type.prim) < type::bits(d->operand(0)->type.prim))
                    return false;
                v = d->operand(0);
            } else if ((d->op == Op::add || d->op == Op::sub) && is_constant(d->operand(1))) {
                const Value* c = d->operand(1);
                const int64_t by = constant_int(c);
                constant += d->op == Op::add ? by : -by;
                v = d->operand(0);
            } else if (d->op == Op::add && is_constant(d->operand(0))) {
                const Value* c = d->operand(0);
                constant += constant_int(c);
                v = d->operand(1);
            } else {
                return false;
            }
        }
        return false;
    }

    static bool is_element_place(const Value* v) {
        return v->def && (v->def->op == Op::field_place || v->def->op == Op::array_place);
    }
    static std::pair<const void*, uint64_t> key_of(const Inst& place) {
        if (place.op == Op::field_place) return {place.field(), 0};
        return {place.operand(0), place.imm + 1};
    }
    bool may_meet(const Inst& a, const Inst& b) const {
        if (a.op != b.op) return arrays_may_overlap;
        if (a.op == Op::field_place) return a.field()->alias_group == b.field()->alias_group;
        return arrays_may_overlap || key_of(a) == key_of(b);
    }

    // The dimension and constant of each axis: a loop's dimension belongs to one axis, and all do.
    bool axes_of(const Inst& place, std::vector<int>& dimension,
                 std::vector<int64_t>& offset) const {
        const int first = place.op == Op::array_place;
        if (static_cast<size_t>(place.operand_count - first) != dims) return false;
        dimension.resize(dims);
        offset.resize(dims);
        std::vector<bool> seen(dims);
        for (size_t a = 0; a < dims; ++a) {
            int d = 0;
            int64_t c = 0;
            if (!index_of(place.operand(first + static_cast<int>(a)), d, c)) return false;
            if (seen[static_cast<size_t>(d)]) return false;
            seen[static_cast<size_t>(d)] = true;
            dimension[a] = d;
            offset[static_cast<size_t>(d)] = c;
        }
        return true;
    }

    bool find() {
        std::unordered_map<const Value*, int> uses;
        for (Inst& i : loop.body()) {
            if (i.region_count) return false;
            for (int k = 0; k < i.operand_count; ++k) ++uses[i.operand(k)];
        }
        struct Access {
            const Inst* place;
            bool stores;
        };
        std::vector<Access> accesses;
        for (Inst& i : loop.body()) {
            const Effect e = i.effect();
            if (e == Effect::pure || e == Effect::terminator) continue;
            const bool adds = i.op == Op::atomic_add && !uses[i.result()];
            if ((!adds && i.op != Op::load && i.op != Op::store) || !i.operand_count) return false;
            if (!is_element_place(i.operand(0))) return false;
            const Inst& place = *i.operand(0)->def;
            if (!adds) {
                accesses.push_back({&place, i.op == Op::store});
                continue;
            }
            Add add{&i, {}};
            std::vector<int> dimension;
            if (!axes_of(place, dimension, add.offset)) return false;
            Group& g = groups[key_of(place)];
            if (!g.adds.empty() && g.dimension != dimension) return false;
            g.dimension = dimension;
            g.adds.push_back(std::move(add));
        }
        // Nothing else touches what is added to; what is stored is loaded before, at the same
        // place.
        for (size_t k = 0; k < accesses.size(); ++k) {
            const Access& a = accesses[k];
            for (const auto& [key, g] : groups)
                if (may_meet(*a.place, *g.adds[0].inst->operand(0)->def)) return false;
            if (!a.stores) continue;
            std::vector<int> dimension, others;
            std::vector<int64_t> offset, other_offset;
            if (!axes_of(*a.place, dimension, offset)) return false;
            for (size_t n = 0; n < accesses.size(); ++n) {
                const Inst& other = *accesses[n].place;
                if (n == k || !may_meet(other, *a.place)) continue;
                if (n > k || key_of(other) != key_of(*a.place) ||
                    !axes_of(other, others, other_offset) || others != dimension ||
                    other_offset != offset)
                    return false;
            }
        }
        for (auto a = groups.begin(); a != groups.end(); ++a)
            for (auto b = std::next(a); b != groups.end(); ++b)
                if (may_meet(*a->second.adds[0].inst->operand(0)->def,
                             *b->second.adds[0].inst->operand(0)->def))
                    return false;
        // Only where iterations meet.
        std::erase_if(groups, [](const auto& g) {
            const std::vector<Add>& adds = g.second.adds;
            return std::ranges::all_of(adds,
                                       [&](const Add& a) { return a.offset == adds[0].offset; });
        });
        std::erase_if(groups, [&](const auto& g) { return !is_narrow(g.second); });
        return !groups.empty() && is_worth_it();
    }

    static int weight(const Inst& d) {
        const OpInfo& row = info(d.op);
        if (row.elementary && !row.in_place) return 20;
        return d.op == Op::div || d.op == Op::sqrt || d.op == Op::rsqrt || d.op == Op::powi ? 8 : 1;
    }

    // What leads to a value, but no more than is bearable.
    void collect(const Value* of, std::unordered_set<const Value*>& seen) const {
        std::vector<const Value*> work = {of};
        while (!work.empty() && seen.size() <= kMost) {
            const Value* v = resolve(const_cast<Value*>(work.back()));
            work.pop_back();
            if (!v->def || v->def->parent != &loop.body() || !seen.insert(v).second) continue;
            for (int k = 0; k < v->def->operand_count; ++k) work.push_back(v->def->operand(k));
        }
    }
    static int work_of(const std::unordered_set<const Value*>& values) {
        int all = 0;
        for (const Value* v : values) all += weight(*v->def);
        return all;
    }
    // Whether it takes less than atomics would.
    bool is_worth_it() const {
        constexpr int kAtomic = 24;
        size_t values = 0;
        int again = 0, adds = 0;
        std::unordered_set<const Value*> once;
        for (const auto& [key, g] : groups)
            for (const Add& a : g.adds) {
                std::unordered_set<const Value*> seen;
                collect(a.inst->operand(1), seen);
                values += seen.size();
                if (values > kMost) return false;
                again += work_of(seen);
                once.insert(seen.begin(), seen.end());
                ++adds;
            }
        return again <= work_of(once) + kAtomic * adds;
    }

    // Elements between the additions are visited too.
    bool is_narrow(const Group& g) const {
        for (size_t d = 0; d < dims; ++d) {
            const auto [least, most] =
                std::ranges::minmax(g.adds, {}, [&](const Add& a) { return a.offset[d]; });
            if (most.offset[d] - least.offset[d] > kFarthest) return false;
        }
        return true;
    }

    // What leads to a value, of another iteration.
    Value* copy(Value* v, Builder& b, std::unordered_map<const Value*, Value*>& map) const {
        if (v->owner != &loop.body() && (!v->def || v->def->parent != &loop.body())) return v;
        if (const auto at = map.find(v); at != map.end()) return at->second;
        const Inst& d = *v->def;
        std::vector<Value*> operands;
        for (int k = 0; k < d.operand_count; ++k) operands.push_back(copy(d.operand(k), b, map));
        return map[v] = emit_like(b, d, operands)->result();
    }

    void gather(const Group& g) {
        Builder b{&f, f.body, &loop, loop.loc};
        const Type index = loop.operand(0)->type;
        std::vector<Value*> bounds;
        Value* any = nullptr;
        for (size_t d = 0; d < dims; ++d) {
            Value *low = loop.operand(static_cast<int>(2 * d)),
                  *high = loop.operand(static_cast<int>(2 * d + 1));
            int64_t least = INT64_MAX, most = INT64_MIN;
            for (const Add& a : g.adds) {
                least = std::min(least, a.offset[d]);
                most = std::max(most, a.offset[d]);
            }
            Value* some = b.op(Op::lt, {low, high});
            any = any ? b.op(Op::bit_and, {any, some}) : some;
            bounds.push_back(b.op(Op::add, {low, b.int_const(index.prim, least)}));
            bounds.push_back(b.op(Op::add, {high, b.int_const(index.prim, most)}));
        }
        bounds[1] = b.op(Op::select, {any, bounds[1], bounds[0]});
        Inst* over = b.emit(Op::for_, bounds, {}, 1);
        over->imm = loop.imm;
        over->ref = loop.ref;
        Region& body = over->body();
        std::vector<Value*> element;
        for (size_t d = 0; d < dims; ++d) element.push_back(f.add_param(body, index));
        Builder in{&f, &body, nullptr, loop.loc};
        Value* sum = nullptr;
        for (const Add& a : g.adds) {
            std::unordered_map<const Value*, Value*> map;
            Value* is = nullptr;
            for (size_t d = 0; d < dims; ++d) {
                Value* at = in.op(Op::sub, {element[d], in.int_const(index.prim, a.offset[d])});
                map[loop.body().params[static_cast<uint32_t>(d)]] = at;
                for (const bool end : {false, true}) {
                    Value* bound = loop.operand(static_cast<int>(2 * d) + end);
                    Value* inside = in.op(end ? Op::lt : Op::ge, {at, bound});
                    is = is ? in.op(Op::bit_and, {is, inside}) : inside;
                }
            }
            Value* on[] = {is};
            const Type types[] = {a.inst->operand(1)->type};
            Inst* test = in.emit(Op::if_, on, types, 2);
            Builder yes{&f, test->regions[0], nullptr, loop.loc},
                no{&f, test->regions[1], nullptr, loop.loc};
            Value *some[] = {copy(a.inst->operand(1), yes, map)}, *none[] = {zero(no, types[0])};
            yes.end(Op::yield, some);
            no.end(Op::yield, none);
            sum = sum ? in.op(Op::add, {sum, test->result()}) : test->result();
        }
        const Inst& place = *g.adds[0].inst->operand(0)->def;
        std::vector<Value*> operands;
        if (place.op == Op::array_place) operands.push_back(place.operand(0));
        for (const int d : g.dimension) operands.push_back(element[static_cast<size_t>(d)]);
        Value* at = in.typed(place.op, place.results[0].type, operands, place.imm, place.ref);
        in.op(Op::atomic_add, {at, sum});
        in.end(Op::continue_);
    }

    void run() {
        if (!find()) return;
        for (const auto& [key, g] : groups) gather(g);
        for (const auto& [key, g] : groups)
            for (const Add& a : g.adds) a.inst->remove();
    }
};

}  // namespace

void gather(Module& m) {
    Function& f = m.kernel();
    std::vector<Inst*> loops;
    for (Inst& i : *f.body)
        if (i.op == Op::for_ && i.loop_config() && i.loop_config()->parallel) loops.push_back(&i);
    for (Inst* loop : loops) Gatherer{f, *loop, m.arrays_may_overlap}.run();
}

}  // namespace qd::autodiff
