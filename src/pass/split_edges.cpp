// Loops whose first or last iterations are special: index set splitting.
//
// `x[(i + 1) % n]`, `x[min(i + 1, n - 1)]` or `if i > 0` say something else in the outermost
// iterations alone, and for their sake every iteration divides, gathers or branches. What such a
// guard says in between is written in its place, and the loop
//
//   for i = begin to end { body }
//
// becomes (carried values go along)
//
//   for turn = 0 to 2 {
//     for i = turn ? high : begin  to  turn ? end : low  { body }
//     for i = low                  to  turn ? low : high { body without guards }
//   }
//
// where [low, high) is where all guards hold: computed in 64 bits at run time, and empty if it is
// short. Iterations keep their order and every one does what it did, so all bits stay the same.
//
// A loop qualifies if it is innermost, has an i32 index and one exit, and does nothing but
// arithmetic, loads and stores. A guard counts if it decides an address or a branch, or divides.
// Where the bulk of a comparison cannot be known, the loop is left alone.
//
// Needs: licm, or invariants are not seen as such.
// Cost:  O(instructions); bodies up to kCopyLimit are copied once.

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr uint32_t kCopyLimit = 250;  // scalar operations of a body
constexpr int64_t kFewest = 16;       // iterations between the edges that are worth a loop
constexpr int64_t kLeastPeriod = 32;  // of a remainder that is taken for a wrap around
constexpr size_t kMostTerms = 3;      // that are added to the index

// An i32: the loop's index + constant + the sum of invariants.
struct Along {
    int64_t constant = 0;
    std::vector<Value*> plus = {}, minus = {};
    bool is_index() const { return constant == 0 && plus.empty() && minus.empty(); }
};

// What an instruction is where low <= index + offset < high, for its Along.
struct Guard {
    Inst* inst;
    Along along;
    Value* divisor = nullptr;  // of a remainder: low, high are `turns` and one more of it
    int64_t turns = 0;
    Value *low = nullptr, *high = nullptr;  // of a comparison or minimum: invariants, null if open
    int low_more = 0, high_more = 0;        // added to them
    std::optional<bool> says = {};          // of a comparison; else it is the Along itself
};

struct Splitter {
    Function& f;
    Inst& loop;
    Value* index = loop.body().params[0];
    std::unordered_set<const Value*> addresses = {}, conditions = {};  // what decides these
    std::vector<Guard> guards = {};

    bool inside(const Value* v) const { return is_inside(v, loop); }
    bool constant_bounds() const {
        return is_constant(loop.operand(0)) && is_constant(loop.operand(1));
    }

    bool qualifies() const {
        if (loop.op != Op::for_ || loop.imm != 1) return false;
        if (index->type != type::kI32) return false;
        if (const LoopConfig* c = loop.loop_config(); c && c->parallel) return false;
        if (constant_bounds() &&
            constant_int(loop.operand(1)) - constant_int(loop.operand(0)) < 2 * kFewest)
            return false;
        return is_plain(loop.body(), kCopyLimit, Plain::stores);
    }

    void mark(std::unordered_set<const Value*>& set, const Value* v) const {
        if (!inside(v) || !set.insert(v).second || !v->def) return;
        if (info(v->def->op).kind != Kind::elementwise) return;
        for (int k = 0; k < v->def->operand_count; ++k) mark(set, v->def->operand(k));
    }
    void mark() {
        walk(loop.body(), [&](Inst& i) {
            if (i.op == Op::if_) mark(conditions, i.operand(0));
            if (!is_element(i.op)) return;
            for (int k = 0; k < i.operand_count; ++k)
                if (i.operand(k)->type == type::kI32) mark(addresses, i.operand(k));
        });
    }

    bool follow(Value* v, Along& a) const {
        if (v == index) return true;
        if (!v->def || v->type != type::kI32 || (v->def->op != Op::add && v->def->op != Op::sub))
            return false;
        Value *x = v->def->operand(0), *y = v->def->operand(1);
        const bool minus = v->def->op == Op::sub;
        if (!minus && !inside(x)) std::swap(x, y);
        if (inside(y) || a.plus.size() + a.minus.size() >= kMostTerms) return false;
        if (is_constant(y))
            a.constant += minus ? -constant_int(y) : constant_int(y);
        else
            (minus ? a.minus : a.plus).push_back(y);
        return follow(x, a);
    }

    // The range in which a guard with constants holds; nothing if it has others.
    struct Range {
        int64_t low, high;
    };
    std::optional<Range> constant_range(const Guard& g) const {
        if (!g.along.plus.empty() || !g.along.minus.empty()) return {};
        Range r{std::numeric_limits<int32_t>::min(), int64_t{1} << 31};
        if (g.divisor) {
            if (!is_constant(g.divisor)) return {};
            const int64_t m = constant_int(g.divisor);
            r.low = std::max(r.low, g.turns * m);
            r.high = std::min(r.high, (g.turns + 1) * m);
        }
        for (const Value* v : {g.low, g.high})
            if (v && !is_constant(v)) return {};
        if (g.low) r.low = constant_int(g.low) + g.low_more;
        if (g.high) r.high = constant_int(g.high) + g.high_more;
        return Range{r.low - g.along.constant, r.high - g.along.constant};
    }
    // All but a few of the iterations; of a loop with other bounds that is not known.
    bool holds_mostly(const Guard& g) const {
        const auto range = constant_range(g);
        if (!range || !constant_bounds()) return true;
        const int64_t begin = constant_int(loop.operand(0)), end = constant_int(loop.operand(1));
        const int64_t held = std::min(range->high, end) - std::max(range->low, begin);
        return held >= kFewest && 4 * held >= 3 * (end - begin);
    }

    void add(Guard g) {
        if (holds_mostly(g)) guards.push_back(std::move(g));
    }

    void remainder(Inst& i) {
        Guard g{&i, {}};
        g.divisor = i.operand(1);
        if (inside(g.divisor) || !follow(i.operand(0), g.along)) return;
        if (is_constant(g.divisor)) {
            const int64_t m = constant_int(g.divisor);
            if (m < kLeastPeriod) return;
            // The index is taken to lie in [0, m), where nothing says more.
            int64_t middle = m / 2;
            if (constant_bounds())
                middle = (constant_int(loop.operand(0)) + constant_int(loop.operand(1))) / 2;
            g.turns = (middle + g.along.constant) / m;
        } else {
            const auto is_divisor = [&](const Value* v) { return v == g.divisor; };
            g.turns = std::ranges::count_if(g.along.plus, is_divisor) -
                      std::ranges::count_if(g.along.minus, is_divisor);
        }
        // An index without offset is taken apart rather than wrapped; so are those far away.
        if ((g.along.is_index() && !constant_bounds()) || g.turns < 0 || g.turns > 1) return;
        add(std::move(g));
    }

    void minimum(Inst& i) {
        if (!addresses.contains(i.result())) return;
        Guard g{&i, {}};
        for (const int k : {0, 1}) {
            Value* limit = i.operand(1 - k);
            g.along = {};
            if (inside(limit) || !follow(i.operand(k), g.along)) continue;
            if (i.op == Op::min)
                g.high = limit, g.high_more = 1;
            else
                g.low = limit;
            add(std::move(g));
            return;
        }
    }

    // index + offset `op` limit, where it is true.
    static void bound(Guard& g, Op op, Value* limit) {
        if (op == Op::lt || op == Op::le) g.high = limit, g.high_more = op == Op::le;
        if (op == Op::gt || op == Op::ge) g.low = limit, g.low_more = op == Op::gt;
    }
    static Op mirrored(Op op) {
        return op == Op::lt   ? Op::gt
               : op == Op::gt ? Op::lt
               : op == Op::le ? Op::ge
               : op == Op::ge ? Op::le
                              : op;
    }
    static Op negated(Op op) {
        return op == Op::lt ? Op::ge : op == Op::ge ? Op::lt : op == Op::gt ? Op::le : Op::gt;
    }

    // `index < limit` says the same in all iterations but the last few, or but the first few.
    enum class Border { unknown, first, last };
    Border border(const Along& a, Value* limit) const {
        const bool units = loop.loop_config() && loop.loop_config()->units;
        if (is_constant(limit) && a.plus.empty() && a.minus.empty()) {
            const int64_t at = constant_int(limit) - a.constant;
            if (constant_bounds()) {
                const int64_t begin = constant_int(loop.operand(0)),
                              end = constant_int(loop.operand(1));
                return at - begin < end - at ? Border::first : Border::last;
            }
            if (at >= -8 && at <= 8) return Border::first;
            return units ? Border::last : Border::unknown;
        }
        if (units) return Border::last;  // what else would it be compared with
        return a.plus.empty() && a.minus.empty() && base(loop.operand(1)) == base(limit)
                   ? Border::last
                   : Border::unknown;
    }
    static const Value* base(const Value* v) {  // without the constants that are added to it
        while (v->def && (v->def->op == Op::add || v->def->op == Op::sub) &&
               is_constant(v->def->operand(1)))
            v = v->def->operand(0);
        return v;
    }

    void comparison(Inst& i) {
        if (!addresses.contains(i.result()) && !conditions.contains(i.result())) return;
        for (const int k : {0, 1}) {
            Value* limit = i.operand(1 - k);
            Guard g{&i, {}};
            if (limit->type != type::kI32 || inside(limit) || !follow(i.operand(k), g.along))
                continue;
            const Border at = border(g.along, limit);
            if (at == Border::unknown) return;
            Op op = k == 0 ? i.op : mirrored(i.op);
            if (op == Op::eq || op == Op::ne) {
                g.says = op == Op::ne;
                op = at == Border::first ? Op::gt : Op::lt;
            } else {
                const bool upper = op == Op::gt || op == Op::ge;  // true for large indices
                g.says = upper == (at == Border::first);
                if (!*g.says) op = negated(op);
            }
            bound(g, op, limit);
            add(std::move(g));
            return;
        }
    }

    void find_guards() {
        mark();
        walk(loop.body(), [&](Inst& i) {
            if (i.operand_count != 2 || i.result_count != 1 || i.operand(0)->type != type::kI32)
                return;
            switch (i.op) {
                case Op::mod:
                case Op::raw_mod:
                    remainder(i);
                    break;
                case Op::min:
                case Op::max:
                    minimum(i);
                    break;
                case Op::lt:
                case Op::le:
                case Op::gt:
                case Op::ge:
                case Op::eq:
                case Op::ne:
                    comparison(i);
                    break;
                default:
                    break;
            }
        });
    }

    // --- the new loops

    static Value* wide(Builder& b, Value* v) { return b.cast(v, Prim::i64); }
    static Value* wide(Builder& b, int64_t v) { return b.int_const(Prim::i64, v); }

    // Of the index, in 64 bits: where the guard holds, and index + offset is what i32 can hold.
    void narrow(Builder& b, const Guard& g, Value*& low, Value*& high) {
        if (const auto r = constant_range(g)) {
            if (r->low > std::numeric_limits<int32_t>::min())
                low = b.op(Op::max, {low, wide(b, r->low)});
            if (r->high < int64_t{1} << 31) high = b.op(Op::min, {high, wide(b, r->high)});
            return;
        }
        Value* offset = wide(b, g.along.constant);
        for (Value* v : g.along.plus) offset = b.op(Op::add, {offset, wide(b, v)});
        for (Value* v : g.along.minus) offset = b.op(Op::sub, {offset, wide(b, v)});
        const auto at_least = [&](Value* v) {
            low = b.op(Op::max, {low, b.op(Op::sub, {v, offset})});
        };
        const auto below = [&](Value* v) {
            high = b.op(Op::min, {high, b.op(Op::sub, {v, offset})});
        };
        if (g.divisor) {
            Value* m = wide(b, g.divisor);
            at_least(b.op(Op::mul, {m, wide(b, g.turns)}));
            below(b.op(Op::mul, {m, wide(b, g.turns + 1)}));
        }
        if (g.low) at_least(b.op(Op::add, {wide(b, g.low), wide(b, g.low_more)}));
        if (g.high) below(b.op(Op::add, {wide(b, g.high), wide(b, g.high_more)}));
        at_least(wide(b, std::numeric_limits<int32_t>::min()));
        below(wide(b, int64_t{1} << 31));
    }

    // What the guard is between the edges, in front of its copy.
    static Value* between(const Guard& g, Inst& copy, Value* index) {
        Builder b = before(copy);
        if (g.says) return b.constant(type::kU1, *g.says);
        if (g.divisor && is_constant(g.divisor) && g.along.plus.empty() && g.along.minus.empty()) {
            const int64_t c = g.along.constant - g.turns * constant_int(g.divisor);
            return c ? b.op(Op::add, {index, b.int_const(Prim::i32, c)}) : index;
        }
        if (g.divisor) {
            Value* v = copy.operand(0);
            for (int64_t k = 0; k < g.turns; ++k) v = b.op(Op::sub, {v, g.divisor});
            return v;
        }
        const Value* limit = g.low ? g.low : g.high;
        return copy.operand(copy.operand(0) == limit ? 1 : 0);
    }

    static std::vector<Value*> results_of(Inst& i) {
        std::vector<Value*> all;
        for (Value& v : i.result_values()) all.push_back(&v);
        return all;
    }

    void run() {
        Builder b = before(loop);
        Value *begin = loop.operand(0), *end = loop.operand(1);
        Value *low = wide(b, begin), *high = wide(b, end), *last = high;
        for (const Guard& g : guards) narrow(b, g, low, high);
        Value* enough = b.op(Op::ge, {b.op(Op::sub, {high, low}), wide(b, kFewest)});
        low = narrowed(b, b.op(Op::select, {enough, low, last}), Prim::i32);
        high = narrowed(b, b.op(Op::select, {enough, high, last}), Prim::i32);

        std::vector<Value*> initial;
        for (int k = 0; k < loop.result_count; ++k) initial.push_back(loop.operand(2 + k));
        Inst* turns = new_for(b, b.int_const(Prim::i32, 0), b.int_const(Prim::i32, 2), initial);
        Region& around = turns->body();
        Builder in{&f, &around, nullptr, loop.loc};
        Value* turn = f.add_param(around, type::kI32);
        std::vector<Value*> carried;
        for (const Value* v : initial) carried.push_back(f.add_param(around, v->type));

        Value* first = in.op(Op::eq, {turn, in.int_const(Prim::i32, 0)});
        Inst* edge = new_for(in, in.op(Op::select, {first, begin, high}),
                             in.op(Op::select, {first, low, end}), carried);
        Inst* middle = new_for(in, low, in.op(Op::select, {first, high, low}), results_of(*edge));
        in.end(Op::continue_, results_of(*middle));
        edge->ref = middle->ref = loop.ref;

        Region* copy = clone_into(loop.body(), f, {});
        std::vector<Inst*> originals, copies;
        walk(loop.body(), [&](Inst& i) { originals.push_back(&i); });
        walk(*copy, [&](Inst& i) { copies.push_back(&i); });
        std::unordered_map<const Inst*, Inst*> copy_of;
        for (size_t k = 0; k < originals.size(); ++k) copy_of[originals[k]] = copies[k];

        give(*edge, &loop.body());
        give(*middle, copy);
        for (const Guard& g : guards) {
            Inst& at = *copy_of.at(g.inst);
            replace(at.result(), between(g, at, copy->params[0]));
        }
        for (int k = 0; k < loop.result_count; ++k) replace(loop.result(k), turns->result(k));
        loop.remove();
    }
    void give(Inst& to, Region* body) {
        body->owner = &to;
        to.regions[0] = body;
        adopt(*body, f);
    }
};

}  // namespace

bool split_edges(Session& s, Function& f) {
    if (s.options.target.threads) return false;  // a thread has few turns, and branches are cheap
    std::vector<Inst*> loops;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::for_) loops.push_back(&i);
    });
    bool changed = false;
    for (Inst* i : loops) {
        Splitter x{f, *i};
        if (!x.qualifies()) continue;
        x.find_guards();
        if (x.guards.empty()) continue;
        x.run();
        changed = true;
    }
    if (changed && enabled(s, "simplify")) simplify(s, f);  // constant conditions, empty branches
    return changed;
}

}  // namespace qd::pass
