// Serial float reductions become strided partials, under fast_math.
//
// `for j: s += f(j)` is a chain of additions that no vector unit can shorten. Where the loop only
// accumulates, iterations run in blocks of 16 (f32) or 8 (f64) lanes: lane k adds to partial k, the
// partials fold as a binary tree, and the rest of the iterations go on in order from there:
//
//   if count >= 2 * lanes:
//     for block: for lane: partial[lane] = partial[lane] + f(begin + block * lanes + lane)
//     s = s + tree(partial)
//   for the rest: s += f(j)
//
// The order depends on the trip count alone, so every tier and vector width gives the same bits.
//
// A loop qualifies if it is innermost, has one dimension, no effect but loads and additions to
// memory (which keep their order), one exit, and carries nothing but sums, minima and maxima of
// floats (and of integers, which are left alone).
//
// Needs: promoted slots. Keeps: the order of everything that is no such reduction.
// Cost:  O(instructions); bodies up to kCopyLimit are copied once.

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr uint32_t kCopyLimit = 250;  // scalar operations of a body
constexpr int kMostComponents = 16;   // of all accumulators
constexpr int64_t kFewestBlocks = 2;  // below, the plain loop is faster

// Integers are carried along as they are.
bool accumulates(Op op) { return info(op).joins != Op::count_ && info(op).takes != Takes::ints; }

// What a carried value becomes in an iteration, followed down to the value itself.
struct Chain {
    const Value* carried;
    Op kind = Op::count_;
    std::unordered_map<const Value*, uint32_t> uses;  // by the chain
    // What leads to the carried value through accumulating ops; of two operands one must not, which
    // the count of uses shows.
    std::unordered_set<const Value*> leading;

    Chain(const Value* v, const Region& body) : carried(v), leading{v} { mark(body); }

    void mark(const Region& r) {
        for (const Inst* i = r.first; i; i = i->next) {
            if (accumulates(i->op)) {
                if (leading.contains(i->operand(0)) || leading.contains(i->operand(1)))
                    leading.insert(&i->results[0]);
            } else if (i->op == Op::if_) {
                for (const Region* c : i->region_list()) {
                    mark(*c);
                    for (int k = 0; k < i->result_count; ++k)
                        if (leading.contains(c->last->operand(k))) leading.insert(&i->results[k]);
                }
            }
        }
    }
    bool join(Op op) {
        if (kind == Op::count_) kind = op;
        return kind == op;
    }
    bool follow(const Value* v) {
        ++uses[v];
        if (v == carried) return true;
        if (!leading.contains(v) || uses[v] > 1) return false;
        const Inst* d = v->def;
        if (d->flags & kNoFastMath) return false;
        if (d->op == Op::if_)
            return follow(d->regions[0]->last->operand(static_cast<int>(v->index))) &&
                   follow(d->regions[1]->last->operand(static_cast<int>(v->index)));
        if (!accumulates(d->op)) return false;
        const Op joins = info(d->op).joins;  // what is subtracted is no part of the chain
        const int along = joins == d->op && !leading.contains(d->operand(0));
        return join(joins) && follow(d->operand(along));
    }
};

struct Carried {
    int number;  // among the carried values
    Op kind;
    bool lanes;  // false: an integer, carried along as it is
    Type type;
    std::vector<Value*> slots = {};  // one a component
};

struct Blocks {
    Function& f;
    Inst& loop;
    int bytes;  // of floats that are added at a time
    std::vector<Carried> carried = {};
    int lanes = bytes / 4;

    bool find() {
        if (loop.op != Op::for_ || loop.imm != 1 || loop.result_count == 0) return false;
        if (loop.loop_config() &&
            (loop.loop_config()->parallel || loop.loop_config()->strictly_serial))
            return false;
        if (is_constant(loop.operand(0)) && is_constant(loop.operand(1))) {
            if (constant_int(loop.operand(1)) - constant_int(loop.operand(0)) < 32) return false;
        }
        if (!is_plain(loop.body(), kCopyLimit, Plain::adds)) return false;

        // Value::id counts the uses inside the body.
        for (Value* v : loop.body().params) v->id = 0;
        walk(loop.body(), [](Inst& i) {
            for (Value& v : i.result_values()) v.id = 0;
        });
        walk(loop.body(), [](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k) ++i.operand(k)->id;
        });
        bool asks_old = false;
        walk(loop.body(),
             [&](Inst& i) { asks_old |= i.effect() == Effect::atomic && i.results[0].id != 0; });
        if (asks_old) return false;
        int components = 0;
        for (int k = 0; k < loop.result_count; ++k) {
            const Value* param = loop.body().params[static_cast<uint32_t>(1 + k)];
            const Type t = param->type;
            Chain chain(param, loop.body());
            if (!chain.follow(loop.body().last->operand(k)) || chain.kind == Op::count_)
                return false;
            for (const auto& [v, uses] : chain.uses) {
                if (v->id != uses) return false;
            }
            const bool is_float = type::is_float(t.prim);
            if (is_float && t.prim != Prim::f32 && t.prim != Prim::f64) return false;
            if (!is_float && !t.is_scalar()) return false;
            carried.push_back({.number = k, .kind = chain.kind, .lanes = is_float, .type = t});
            if (!is_float) continue;
            components += t.count();
            if (t.prim == Prim::f64) lanes = bytes / 8;
        }
        return components > 0 && components <= kMostComponents;
    }

    // All components of the accumulator's lane, as one value.
    Value* read(Builder& b, const Carried& c, Value* lane) {
        std::vector<Value*> parts;
        for (Value* slot : c.slots) {
            Value* operands[] = {slot, lane};
            parts.push_back(b.load(b.typed(Op::comp_place, c.type.element().place(), operands)));
        }
        return c.type.is_scalar() ? parts[0] : b.typed(Op::build, c.type, parts);
    }
    void write(Builder& b, const Carried& c, Value* lane, Value* v) {
        for (size_t k = 0; k < c.slots.size(); ++k) {
            Value* operands[] = {c.slots[k], lane};
            Value* place = b.typed(Op::comp_place, c.type.element().place(), operands);
            b.store(place, c.type.is_scalar() ? v : b.op(Op::extract, {v}, k));
        }
    }

    // Lanes fold as a binary tree.
    Value* fold(Builder& b, const Carried& c) {
        std::vector<Value*> parts;
        for (Value* slot : c.slots) {
            Value* whole = b.load(slot);
            std::vector<Value*> lane;
            for (int k = 0; k < lanes; ++k)
                lane.push_back(b.op(Op::extract, {whole}, static_cast<uint64_t>(k)));
            for (size_t half = lane.size() / 2; half >= 1; half /= 2) {
                for (size_t k = 0; k < half; ++k) lane[k] = b.op(c.kind, {lane[k], lane[k + half]});
            }
            parts.push_back(lane[0]);
        }
        return c.type.is_scalar() ? parts[0] : b.typed(Op::build, c.type, parts);
    }

    Value* initial(const Carried& c) const { return loop.operand(2 + c.number); }
    Prim index() const { return loop.operand(0)->type.prim; }
    Builder into(Region& r) { return {&f, &r, nullptr, loop.loc}; }

    // if enough iterations: ... else: start where the loop does
    Inst* make_choice(Builder& b, Value* count) {
        Value* enough = b.op(Op::ge, {count, b.int_const(Prim::i64, kFewestBlocks * lanes)});
        std::vector<Type> types = {Type::scalar(index())};
        std::vector<Value*> none = {loop.operand(0)};
        for (const Carried& c : carried) {
            types.push_back(c.type);
            none.push_back(initial(c));
        }
        Value* condition[] = {enough};
        Inst* choice = b.emit(Op::if_, condition, types, 2);
        into(*choice->regions[1]).end(Op::yield, none);
        return choice;
    }

    // A slot for each component of what is added in lanes.
    void make_slots(Builder& b) {
        for (Carried& c : carried) {
            if (!c.lanes) continue;
            const Type whole = Type::vector(c.type.prim, lanes);
            for (int k = 0; k < c.type.count(); ++k) {
                Value* slot = b.slot(whole);
                // A minimum may count the initial value any number of times.
                Value* neutral = c.kind == Op::add ? b.float_const(c.type.prim, -0.0)
                                 : c.type.is_scalar()
                                     ? initial(c)
                                     : b.op(Op::extract, {initial(c)}, static_cast<uint64_t>(k));
                b.store(slot, b.splat(neutral, whole));
                c.slots.push_back(slot);
            }
        }
    }

    // A loop from 0 to `end` that carries the integers on; its body has its parameters only.
    struct Nested {
        Inst* loop;
        Value* index;
        std::vector<Value*> along;
    };
    Nested nest(Builder& b, Value* end, const std::vector<Value*>& along) {
        Nested n{new_for(b, b.int_const(index(), 0), end, along), nullptr, {}};
        n.index = f.add_param(n.loop->body(), Type::scalar(index()));
        for (const Value* v : along) n.along.push_back(f.add_param(n.loop->body(), v->type));
        return n;
    }

    // The original body at iteration start + lane; sums go to the partials of the lane.
    void fill_lane(const Nested& lane, Value* start) {
        Builder top = into(lane.loop->body());
        std::vector<std::pair<const Value*, Value*>> arguments;
        const Region& body = loop.body();
        arguments.emplace_back(body.params[0], top.op(Op::add, {start, lane.index}));
        size_t next = 0;
        for (const Carried& c : carried) {
            arguments.emplace_back(body.params[static_cast<uint32_t>(1 + c.number)],
                                   c.lanes ? read(top, c, lane.index) : lane.along[next++]);
        }
        Region* copy = clone_into(body, f, std::move(arguments));
        Inst* bottom = top.emit(Op::continue_, {}, {});
        const Inst* last = splice_before(*copy, *bottom);
        Builder tail = before(*bottom);
        std::vector<Value*> ends;
        for (const Carried& c : carried) {
            Value* v = last->operand(c.number);
            if (c.lanes)
                write(tail, c, lane.index, v);
            else
                ends.push_back(v);
        }
        add_operands(*bottom, ends);
    }

    // for block { for lane { body } }
    Inst* make_blocks(Builder& b, Value* blocks) {
        std::vector<Value*> along;  // integers that are carried as they are
        for (const Carried& c : carried)
            if (!c.lanes) along.push_back(initial(c));
        const Nested block = nest(b, b.cast(blocks, index()), along);
        Builder in = into(block.loop->body());
        Value* start =
            in.op(Op::add,
                  {loop.operand(0), in.op(Op::mul, {block.index, in.int_const(index(), lanes)})});
        const Nested lane = nest(in, in.int_const(index(), lanes), block.along);
        std::vector<Value*> results;
        for (int k = 0; k < lane.loop->result_count; ++k) results.push_back(lane.loop->result(k));
        in.end(Op::continue_, results);
        fill_lane(lane, start);
        return block.loop;
    }

    // Where the rest begins, and with what.
    void yield_sums(Builder& b, Value* blocks, const Inst& done) {
        std::vector<Value*> results = {
            b.op(Op::add, {loop.operand(0),
                           b.op(Op::mul, {b.cast(blocks, index()), b.int_const(index(), lanes)})})};
        int next = 0;
        for (const Carried& c : carried) {
            if (!c.lanes)
                results.push_back(done.result(next++));
            else if (c.kind == Op::add)
                results.push_back(b.op(Op::add, {initial(c), fold(b, c)}));
            else
                results.push_back(fold(b, c));
        }
        b.end(Op::yield, results);
    }

    void run() {
        Builder b = before(loop);
        Value* count =
            b.op(Op::sub, {b.cast(loop.operand(1), Prim::i64), b.cast(loop.operand(0), Prim::i64)});
        Inst* choice = make_choice(b, count);
        Builder in = into(*choice->regions[0]);
        Value* blocks =
            in.op(Op::shr, {count, in.int_const(Prim::i64, std::countr_zero(unsigned(lanes)))});
        make_slots(in);
        const Inst* done = make_blocks(in, blocks);
        adopt(*choice->regions[0], f);
        yield_sums(in, blocks, *done);
        loop.operands[0] = choice->result(0);
        for (int k = 0; k < loop.result_count; ++k) loop.operands[2 + k] = choice->result(1 + k);
    }
};

}  // namespace

bool serial_reduce(Session& s, Function& f) {
    if (!s.m.options.fast_math || s.options.target.serial_sum_bytes == 0) return false;
    std::vector<Inst*> loops;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::for_) loops.push_back(&i);
    });
    bool changed = false;
    for (Inst* i : loops) {
        Blocks b{.f = f, .loop = *i, .bytes = s.options.target.serial_sum_bytes};
        if (!b.find()) continue;
        b.run();
        changed = true;
    }
    return changed;
}

}  // namespace qd::pass
