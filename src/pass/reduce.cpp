// Atomics on one place in a parallel loop become partial results of each chunk.
//
// `atomic_add(s, x[i])` in every iteration would serialise the machine on one cache line. If the
// place does not depend on the iteration, nobody uses the old value, and the loop touches that
// memory in no other way, each chunk accumulates for itself and `finish` folds the chunks in
// ascending order. Floats take 64 lanes (f32) or 32 (f64), enough to hide how long an addition
// takes, 8 where many accumulators hide it: iteration k of a tile adds to lane k % lanes, and the
// lanes are folded as a binary tree. The order depends on the trip counts only, so any number of
// threads and any vector width give the same bits.
//
// Where each thread has iterations of its own (Target::threads), it has one lane, a block is a
// chunk whose threads fold theirs, and `finish` is the work of one block.
//
// Array parameters are taken as distinct, from each other and from fields, unless the module says
// that they overlap; the artefact tells the launcher, which compares the arguments' ranges and
// compiles again if they do.
//
// Cost: O(instructions of the loop + accesses x reductions).

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "pass/memory.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr size_t kMost = 64;          // accumulators of one loop
constexpr int kFewLanes = 8;          // whose sums are written out
constexpr size_t kWithManyLanes = 4;  // accumulators; more hide the latency themselves

uint64_t identity(Op op, Prim p) {
    const int width = type::bits(p);
    const uint64_t ones = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
    // A number wins over NaN, so NaN is neutral; infinity would take the place of NaN.
    const uint64_t nan = bits_of_double(p, std::numeric_limits<double>::quiet_NaN());
    switch (info(op).neutral) {
        case Neutral::zero:
            return type::is_float(p) ? bits_of_double(p, -0.0) : 0;
        case Neutral::most:
            if (type::is_float(p)) return nan;
            return type::is_signed(p) ? ones >> 1 : ones;
        case Neutral::least:
            if (type::is_float(p)) return nan;
            return type::is_signed(p) ? uint64_t(1) << (width - 1) : 0;
        case Neutral::ones:
            return ones;
        case Neutral::none:
            break;
    }
    return 0;
}

// Whether it is known to have one iteration at most.
bool runs_once(const Inst& loop) {
    for (int k = 0; k < int(2 * loop.imm); k += 2) {
        const Value *begin = loop.operand(k), *end = loop.operand(k + 1);
        if (!is_constant(begin) || !is_constant(end)) return false;
        const int64_t low = constant_int(begin);
        const int64_t high = constant_int(end);
        if (low < high && low + 1 != high) return false;
    }
    return true;
}

// The integer that holds the bits of p.
Prim bits_of(Prim p) { return type::is_float(p) ? integer_of(p) : p; }

// The atomic that does this with what is in memory.
Op atomic_of(Op step) {
    const auto does = [&](const OpInfo& row) {
        return row.kind == Kind::atomic && row.step == step;
    };
    return Op(std::ranges::find_if(kOps, does) - std::begin(kOps));
}

struct Reducer {
    Session& s;
    Task& task;
    Inst& loop;
    std::vector<Accumulator>& out;
    std::vector<Inst*> accesses;  // in the loop
    const bool threads = s.options.target.threads;

    // Whether `finish` and the task's entry can compute v: no iteration in it, and nothing but
    // parameters, pure arithmetic and temporaries.
    bool computable(const Value* v, int depth = 0) const {
        if (v->owner) return !v->owner->owner;
        const Inst& d = *v->def;
        if (depth > 16) return false;
        if (d.op == Op::task_value || d.op == Op::slot) return false;
        if (d.op == Op::load)
            return !is_inside(v, loop) && d.operand(0)->def && d.operand(0)->def->op == Op::temp;
        if (d.effect() != Effect::pure) return false;
        for (int k = 0; k < d.operand_count; ++k) {
            if (!computable(d.operand(k), depth + 1)) return false;
        }
        return true;
    }

    static bool other_component(const Value* a, const Value* b) {
        if (a->def->op != Op::comp_place || b->def->op != Op::comp_place) return false;
        const Value *k = a->def->operand(1), *l = b->def->operand(1);
        if (!is_constant(k) || !is_constant(l) || constant_bits(k) == constant_bits(l))
            return false;
        return same_place(a->def->operand(0), b->def->operand(0));
    }

    // Elements of one field or array that have different numbers on an axis.
    static bool other_element(const Inst& x, const Inst& y) {
        const bool array = x.op == Op::array_place;
        if (!array && x.op != Op::field_place) return false;
        if (x.ref != y.ref || x.imm != y.imm || x.operand_count != y.operand_count) return false;
        if (array && (x.operand(0) != y.operand(0) || ArrayAccess::unpack(x.imm).clamp))
            return false;
        const auto number = [](const Value* v) { return constant_int(v); };
        for (int k = array ? 1 : 0; k < x.operand_count; ++k) {
            const Value *i = x.operand(k), *j = y.operand(k);
            if (is_constant(i) && is_constant(j) && number(i) != number(j)) return true;
        }
        return false;
    }

    // An atomic on a whole vector is one on each component; alone each can become a reduction.
    void split_tensors() {
        std::vector<Inst*> whole;
        walk(loop.body(), [&](Inst& i) {
            if (fold_of(i.op) == Op::count_ || i.results[0].id != 0) return;
            const Type t = i.operand(0)->type;
            if (t.rank != 0 && static_cast<size_t>(t.count()) <= kMost &&
                computable(i.operand(0))) {
                whole.push_back(&i);
            }
        });
        for (Inst* i : whole) {
            Builder b = before(*i);
            const Type one = i->operand(1)->type.element();
            for (int k = 0; k < i->operand(1)->type.count(); ++k) {
                Value* operands[] = {i->operand(0), b.int_const(Prim::i32, k)};
                Value* place = b.typed(Op::comp_place, one.place(), operands);
                Value* v = b.op(Op::extract, {i->operand(1)}, static_cast<uint64_t>(k));
                b.op(i->op, {place, v});
            }
            i->remove();
        }
    }

    // Two places that surely differ, or that may be taken to.
    bool distinct(const Value* a, const Value* b) {
        if (memory_class(a, s) != memory_class(b, s)) return true;
        const Inst *x = root_of(a), *y = root_of(b);
        if (!x || !y || x->op != y->op) return false;
        if (other_component(a, b) || other_element(*x, *y)) return true;
        if (x->op == Op::temp) return x->imm != y->imm;
        if (x->op == Op::array_place) {
            return !s.m.arrays_may_overlap &&
                   ArrayAccess::unpack(x->imm).grad != ArrayAccess::unpack(y->imm).grad;
        }
        return false;
    }
    static bool same_place(const Value* a, const Value* b, int depth = 0) {
        if (a == b) return true;
        if (!a->def || !b->def || depth > 8) return false;
        const Inst &x = *a->def, &y = *b->def;
        if (x.op != y.op || x.imm != y.imm || x.ref != y.ref || x.operand_count != y.operand_count)
            return false;
        if (x.effect() != Effect::pure || !(a->type == b->type)) return false;
        for (int k = 0; k < x.operand_count; ++k) {
            if (!same_place(x.operand(k), y.operand(k), depth + 1)) return false;
        }
        return true;
    }

    bool candidate(const Inst& i) const {
        const Type t = i.operand(0)->type;
        if (fold_of(i.op) == Op::count_ || t.rank != 0 || t.prim == Prim::u1) return false;
        if (i.results[0].id != 0) return false;  // somebody uses the old value
        const Inst* root = root_of(i.operand(0));
        if (!root || root->op == Op::slot) return false;
        return computable(i.operand(0));
    }
    bool alone(const Inst& i) {
        return std::ranges::all_of(accesses, [&](const Inst* other) {
            if (other == &i || distinct(i.operand(0), other->operand(0))) return true;
            return fold_of(other->op) == fold_of(i.op) && candidate(*other) &&
                   same_place(i.operand(0), other->operand(0));
        });
    }

    // Whether one iteration at most comes to i: `if index == n`.
    bool is_for_one(const Inst& i) const {
        const auto& indices = loop.body().params;
        const auto is_index = [&](const Value* v) {
            return indices.size() == 1 && v == indices[0];
        };
        const auto is_same_for_all = [&](const Value* v) { return !is_inside(v, loop); };
        for (const Region* r = i.parent; r != &loop.body(); r = r->owner->parent) {
            const Inst& around = *r->owner;
            if (info(around.op).repeats) return false;
            const Inst* asked = around.op == Op::if_ ? around.operand(0)->def : nullptr;
            if (!asked || asked->op != Op::eq || r != around.regions[0]) continue;
            const Value *x = asked->operand(0), *y = asked->operand(1);
            if ((is_index(x) && is_same_for_all(y)) || (is_index(y) && is_same_for_all(x)))
                return true;
        }
        return false;
    }
    // Where one iteration alone adds something, folding what all blocks have costs more.
    bool is_added_to_once(const Value* place) const {
        return std::ranges::all_of(accesses, [&](const Inst* i) {
            return !same_place(place, i->operand(0)) || is_for_one(*i);
        });
    }

    // A copy of v in front of `at` in another function.
    Value* copy(Value* v, Builder& b, std::unordered_map<const Value*, Value*>& done) {
        if (v->owner) return b.function->body->params[v->index];
        const auto known = done.find(v);
        if (known != done.end()) return known->second;
        Inst* c = copy_inst(*v->def, *b.function);
        for (int k = 0; k < c->operand_count; ++k) c->operands[k] = copy(c->operands[k], b, done);
        c->append_to(*b.region);
        return done[v] = c->result();
    }

    void build_finish(const std::vector<Value*>& places) {
        s.m.owned.push_back(std::make_unique<Function>("finish"));
        Function& f = *(task.finish = s.m.owned.back().get());
        for (const Value* p : task.body->body->params) f.add_param(*f.body, p->type);
        Builder b{&f, f.body, nullptr, loop.loc};
        std::unordered_map<const Value*, Value*> done;
        std::vector<Value*> neutrals;
        for (const Accumulator& a : out)
            neutrals.push_back(b.constant(a.type, identity(a.op, a.type.prim)));
        // The chunks in ascending order; or those of this thread of a block that folds them.
        Value* zero = b.int_const(Prim::i64, 0);
        Value* end = task_value(b, TaskValue::end);
        Value* turns = end;
        Value* thread = nullptr;
        if (threads) {
            thread = task_value(b, TaskValue::begin);
            Value* more = b.op(Op::sub, {end, b.int_const(Prim::i64, 1)});
            Value* rest = b.op(Op::sub, {task_value(b, TaskValue::bound), thread});
            turns = b.op(Op::raw_div, {b.op(Op::add, {rest, more}), end});
        }
        Inst* chunks = new_for(b, zero, turns, neutrals);
        Builder in{&f, &chunks->body(), nullptr, loop.loc};
        Value* chunk = f.add_param(chunks->body(), type::kI64);
        std::vector<Value*> next;
        std::vector<Value*> so_fars;
        for (const Accumulator& a : out) so_fars.push_back(f.add_param(chunks->body(), a.type));
        if (threads) chunk = in.op(Op::add, {thread, in.op(Op::mul, {chunk, end})});
        for (size_t k = 0; k < out.size(); ++k)
            next.push_back(in.op(out[k].op, {so_fars[k], in.load(partial(in, out[k], chunk))}));
        in.end(Op::continue_, next);
        for (size_t k = 0; k < out.size(); ++k) {
            Value* place = copy(places[k], b, done);
            Value* total = chunks->result(static_cast<int>(k));
            if (threads) total = fold_block(b, out[k], total);
            // If no iteration came to its atomic, the place may lie anywhere: it is not touched.
            const Prim bits = bits_of(out[k].type.prim);
            Value* raw = b.typed(Op::bit_cast, Type::scalar(bits), std::array{total});
            Value* neutral = b.constant(Type::scalar(bits), identity(out[k].op, out[k].type.prim));
            Value* any[] = {b.op(Op::ne, {raw, neutral})};
            if (threads) any[0] = b.op(Op::bit_and, {any[0], is_first(b)});
            Inst* choice = b.emit(Op::if_, any, {}, 2);
            Builder then{&f, choice->regions[0], nullptr, loop.loc};
            // Other processes may see an array; other tasks may run at the same time on a GPU.
            if (threads || root_of(place)->op == Op::array_place)
                then.op(atomic_of(out[k].op), {place, total});
            else
                then.store(place, then.op(out[k].op, {then.load(place), total}));
            then.end(Op::yield);
            Builder{&f, choice->regions[1], nullptr, loop.loc}.end(Op::yield);
        }
        b.end(Op::return_);
    }

    Value* task_value(Builder& b, TaskValue which) {
        return b.typed(Op::task_value, type::kI64, {}, static_cast<uint64_t>(which));
    }
    // What all threads of the block have.
    Value* fold_block(Builder& b, const Accumulator& a, Value* v) {
        return b.typed(Op::block_fold, a.type, std::array{v}, static_cast<uint64_t>(a.op));
    }
    Value* is_first(Builder& b) {  // of its block
        return b.op(Op::eq, {task_value(b, TaskValue::in_block), b.int_const(Prim::i64, 0)});
    }

    Value* partial(Builder& b, const Accumulator& a, Value* chunk) {
        Value* operands[] = {chunk};
        return b.typed(Op::partial, a.type.place(), operands,
                       a.offset | static_cast<uint64_t>(task.partial_bytes) << 32);
    }

    // The lanes of an accumulator as a binary tree: loops over the many of its first steps.
    Value* fold_lanes(Builder& b, const Accumulator& a, Value* slot) {
        if (a.lanes == 1) return b.load(slot);
        const auto lane = [&](Builder& at, Value* k) {
            Value* operands[] = {slot, k};
            return at.typed(Op::comp_place, a.type.place(), operands);
        };
        Function& f = *task.body;
        int left = a.lanes;
        for (; left > kFewLanes; left /= 2) {
            Value* bounds[] = {b.int_const(Prim::i32, 0), b.int_const(Prim::i32, left / 2)};
            Inst* step = b.emit(Op::for_, bounds, {}, 1);
            step->imm = 1;
            Value* k = f.add_param(step->body(), type::kI32);
            Builder in{&f, &step->body(), nullptr, loop.loc};
            Value* other = in.op(Op::add, {k, in.int_const(Prim::i32, left / 2)});
            Value* place = lane(in, k);
            in.store(place, in.op(a.op, {in.load(place), in.load(lane(in, other))}));
            in.end(Op::continue_);
        }
        std::vector<Value*> few;
        for (int k = 0; k < left; ++k) few.push_back(b.load(lane(b, b.int_const(Prim::i32, k))));
        for (size_t half = few.size() / 2; half >= 1; half /= 2)
            for (size_t k = 0; k < half; ++k) few[k] = b.op(a.op, {few[k], few[k + half]});
        return few[0];
    }

    void run() {
        bool calls = false;
        walk(loop.body(), [&](Inst& i) {
            for (Value& v : i.result_values()) v.id = 0;
            if (i.op == Op::call) {
                const Summary& c = s.summaries[i.callee()->id];
                calls |= c.reads || c.writes;
            }
        });
        // Where threads meet each runs one iteration, as who wrote them expects.
        // Nor are there chunks of many iterations where one may wait for another.
        if (calls || waits_for_others(loop) || summary_of(s, loop).meets) return;
        if (!s.m.options.fast_math && runs_once(loop)) return;  // in the written order
        walk(loop.body(), [&](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k) i.operand(k)->id = 1;
        });
        split_tensors();
        walk(loop.body(), [&](Inst& i) {
            const Effect e = i.effect();
            if ((e == Effect::read && i.op == Op::load) || e == Effect::write ||
                e == Effect::atomic)
                accesses.push_back(&i);
        });
        // Several atomics on one place share an accumulator's place but each has its own entry; the
        // first that is alone speaks for the others.
        std::vector<Value*> places;
        std::vector<Accumulator> all;
        int lanes = 1;
        for (Inst* i : accesses) {
            if (i->effect() != Effect::atomic || !candidate(*i)) continue;
            if (threads && is_added_to_once(i->operand(0))) continue;
            const auto known = std::ranges::find_if(
                places, [&](Value* p) { return same_place(p, i->operand(0)); });
            if (known == places.end() && (places.size() == kMost || !alone(*i))) continue;
            Accumulator a;
            a.op = fold_of(i->op);
            a.type = i->operand(1)->type;
            a.atomic = i;
            a.offset = static_cast<uint32_t>(8 * (known - places.begin()));
            if (known == places.end()) places.push_back(i->operand(0));
            const bool narrow = a.type.prim == Prim::f32 || a.type.prim == Prim::f16;
            if (narrow && lanes == 1 && !threads) lanes = 64;
            if (a.type.prim == Prim::f64 && !threads) lanes = 32;
            all.push_back(a);
        }
        if (all.empty()) return;
        if (places.size() > kWithManyLanes) lanes = std::min(lanes, kFewLanes);
        task.partial_bytes = static_cast<uint32_t>(8 * places.size());

        // Entry: accumulators start neutral. They live in slots; one lane is promoted again.
        std::vector<Value*> slots(places.size());
        Builder b = before(loop);
        for (Accumulator& a : all) {
            a.lanes = lanes;
            Value*& slot = slots[a.offset / 8];
            if (!slot) {
                const Type whole = lanes == 1 ? a.type : Type::vector(a.type.prim, lanes);
                slot = b.slot(whole);
                b.store(slot, b.splat(b.constant(a.type, identity(a.op, a.type.prim)), whole));
                out.push_back(a);
            }
            a.slot = slot;
        }
        build_finish(places);  // `out` holds one accumulator a place here

        // End: lanes fold as a tree into this chunk's partial result.
        Builder end = before(*task.body->body->last);
        Value* chunk = task_value(end, TaskValue::chunk);
        std::vector<Value*> folded;
        for (const Accumulator& a : out) {
            folded.push_back(fold_lanes(end, a, slots[a.offset / 8]));
            if (threads) folded.back() = fold_block(end, a, folded.back());
        }
        if (threads) {
            Value* first[] = {is_first(end)};
            Inst* choice = end.emit(Op::if_, first, {}, 2);
            Function* body = task.body;
            Builder{body, choice->regions[1], nullptr, loop.loc}.end(Op::yield);
            end = Builder{body, choice->regions[0], nullptr, loop.loc};
        }
        for (size_t k = 0; k < out.size(); ++k) end.store(partial(end, out[k], chunk), folded[k]);
        if (threads) end.end(Op::yield);
        out = std::move(all);  // one entry an atomic, for lower_units
    }
};

}  // namespace

void reduce(Session& s, Task& task, Inst& loop, std::vector<Accumulator>& out) {
    Reducer r{.s = s, .task = task, .loop = loop, .out = out, .accesses = {}};
    r.run();
}

}  // namespace qd::pass
