// Turns the parallel loop of a range task into loops over the units that one call of the task gets
// (abi.h: what a unit is).
//
// One dimension: one loop from begin0 + first unit. Several: a loop over units around a loop over
// the innermost dimension; the indices of the outer ones are divided out once at the start and then
// counted on, so the inner loop stays contiguous and free of divisions.
//
// Reductions (reduce.cpp) cut the innermost loop into blocks of as many iterations as there are
// lanes, iteration k of a tile adding to lane k % lanes: a form whose result depends on neither
// vector width nor threads and that vectorises without reassociation.
//
// Cost: O(1) instructions a loop; bodies with accumulators may be copied once.

#include <algorithm>
#include <bit>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr uint32_t kCopyLimit = 200;  // instructions of a body that blocks and rest may both hold

struct Units {
    Session& s;
    Function& f;
    Inst& loop;
    std::vector<Accumulator>& accumulators;
    int dims;
    Prim index;  // of the original loop

    Value* value(Builder& b, TaskValue which, int k = 0) {
        return b.typed(Op::task_value, type::kI64, {},
                       static_cast<uint64_t>(which) + static_cast<uint64_t>(k));
    }
    Value* wide(Builder& b, int64_t v) { return b.int_const(Prim::i64, v); }
    Value* add(Builder& b, Value* x, Value* y) { return b.op(Op::add, {x, y}); }
    Value* sub(Builder& b, Value* x, Value* y) { return b.op(Op::sub, {x, y}); }

    LoopConfig& new_config(Inst& i) {
        s.m.owned_loops.push_back(std::make_unique<LoopConfig>());
        i.ref = s.m.owned_loops.back().get();
        return *s.m.owned_loops.back();
    }
    // The innermost loop over [low, high), both i64, at b.
    void innermost(Builder& b, Value* low, Value* high, const std::vector<Value*>& outer) {
        if (accumulators.empty() || accumulators[0].lanes == 1) {
            Inst* inner = new_for(b, narrowed(b, low, index), narrowed(b, high, index));
            new_config(*inner).units = true;
            take_body(*inner, loop.body(), outer);
            accumulate(accumulators, nullptr);
            return;
        }
        // Blocks: for k = 0 to count / lanes { for lane = 0 to lanes { i = low + k * lanes + lane }
        // }
        const int lanes = accumulators[0].lanes;
        Value* count = b.op(Op::max, {sub(b, high, low), wide(b, 0)});
        Value* blocks = b.op(Op::shr, {count, wide(b, std::countr_zero(unsigned(lanes)))});
        Region* body = &loop.body();
        const bool twice = summary_of(s, loop).cost <= kCopyLimit;
        Region* copy = nullptr;
        std::vector<Accumulator> first = accumulators;
        if (twice) {
            // The atomics of the copy are found by position in the walk.
            std::vector<Inst*> original, cloned;
            walk(*body, [&](Inst& i) { original.push_back(&i); });
            copy = clone_into(*body, f, {});
            walk(*copy, [&](Inst& i) { cloned.push_back(&i); });
            for (Accumulator& a : accumulators) {
                const auto at = std::ranges::find(original, a.atomic) - original.begin();
                a.atomic = cloned[static_cast<size_t>(at)];
            }
        } else {
            blocks = b.op(Op::shr, {add(b, count, wide(b, lanes - 1)),
                                    wide(b, std::countr_zero(unsigned(lanes)))});
        }
        std::vector<Accumulator> second = accumulators;
        Inst* block = new_for(b, wide(b, 0), blocks);
        Builder in_block{&f, &block->body(), nullptr, loop.loc};
        Value* k = f.add_param(block->body(), type::kI64);
        Value* start = in_block.op(Op::mul, {k, wide(in_block, lanes)});
        Value* lanes_here =
            twice ? wide(in_block, lanes)
                  : in_block.op(Op::min, {sub(in_block, count, start), wide(in_block, lanes)});
        Value* base = add(in_block, low, start);
        prefetch(in_block, *body, base, outer);
        Inst* lane_loop = new_for(in_block, wide(in_block, 0), lanes_here);
        in_block.end(Op::continue_);
        fill_lane_loop(*lane_loop, *body, base, outer, first);
        if (!twice) return;
        Value* done = b.op(Op::mul, {blocks, wide(b, lanes)});
        Inst* rest = new_for(b, wide(b, 0), sub(b, count, done));
        fill_lane_loop(*rest, *copy, add_before(*rest, low, done), outer, second);
    }
    // A reduction over memory waits for it: what a block will read 4 KiB later is asked for now,
    // line by line, where hardware looks no further than the page.
    void prefetch(Builder& b, Region& body, Value* base, const std::vector<Value*>& outer) {
        const int64_t ahead = s.options.target.prefetch_ahead;
        constexpr int kLine = 16;  // elements; of larger ones each second line is left out
        constexpr uint32_t kMostWork = 24, kMostStreams = 4;
        if (ahead == 0 || summary_of(s, loop).cost > kMostWork) return;
        const Value* inner = body.params[body.params.size() - 1];
        const auto outside = [&](const Value* v) {
            return v->owner ? v->owner != &body : v->def->parent != &body;
        };
        uint32_t streams = 0;
        for (Inst* i = body.first; i && streams < kMostStreams; i = i->next) {
            if (i->op != Op::load || type::bits(i->operand(0)->type.prim) < 32) continue;
            const Inst* at = i->operand(0)->def;
            if (!at || i->operand(0)->type.rank || at->parent != &body || !is_element(at->op) ||
                at->operand_count == 0 || at->operand(at->operand_count - 1) != inner)
                continue;  // a field without dimensions has no operand
            std::vector<Value*> operands;
            for (int k = 0; k < at->operand_count - 1; ++k) {
                Value* v = at->operand(k);
                if (v->owner == &body && v != inner) v = outer[v->index];
                if (v == inner || !outside(v)) break;
                operands.push_back(v);
            }
            if (operands.size() + 1 != static_cast<size_t>(at->operand_count)) continue;
            operands.push_back(nullptr);
            for (int line = 0; line < accumulators[0].lanes; line += kLine) {
                operands.back() = b.cast(add(b, base, wide(b, ahead + line)), index);
                Inst* place = copy_inst(*at, f);
                for (size_t k = 0; k < operands.size(); ++k) place->operands[k] = operands[k];
                place->append_to(*b.region);
                b.op(Op::prefetch, {place->result()});
            }
            ++streams;
        }
    }

    Value* add_before(Inst& at, Value* x, Value* y) {
        Builder b = before(at);
        return add(b, x, y);
    }

    // The lane is the loop's own index; the original index is base + lane.
    void fill_lane_loop(Inst& lane_loop, Region& body, Value* base,
                        const std::vector<Value*>& outer, std::vector<Accumulator>& here) {
        Value* old_index = body.params[body.params.size() - 1];
        std::vector<Value*> all = outer;
        Value* lane = f.add_param(body, type::kI64);
        Builder b{&f, &body, body.first, loop.loc};
        all.push_back(narrowed(b, add(b, base, lane), index));
        (void)old_index;
        take_body(lane_loop, body, all);
        accumulators.swap(here);
        accumulate(accumulators, lane);
        accumulators.swap(here);
    }

    void run() {
        Builder b = before(loop);
        Value* first = value(b, TaskValue::begin);
        Value* last = value(b, TaskValue::end);
        if (dims == 1) {
            Value* base = value(b, TaskValue::bound, 0);
            innermost(b, add(b, base, first), add(b, base, last), {});
            loop.remove();
            return;
        }
        // State of the unit loop: tile number, then the outer indices from the innermost on.
        const int outer = dims - 1;
        Value* tile = value(b, TaskValue::tile);
        Value* tiles = value(b, TaskValue::tiles);
        Value* row = b.op(Op::raw_div, {first, tiles});
        std::vector<Value*> initial = {sub(b, first, b.op(Op::mul, {row, tiles}))};
        std::vector<Value*> begin(static_cast<size_t>(dims)), extent(static_cast<size_t>(dims));
        for (int k = 0; k < dims; ++k) {
            begin[static_cast<size_t>(k)] = value(b, TaskValue::bound, 2 * k);
            extent[static_cast<size_t>(k)] =
                sub(b, value(b, TaskValue::bound, 2 * k + 1), begin[static_cast<size_t>(k)]);
        }
        for (int k = outer - 1; k >= 0; --k) {
            if (k == 0) {
                initial.push_back(row);
                break;
            }
            Value* next = b.op(Op::raw_div, {row, extent[static_cast<size_t>(k)]});
            initial.push_back(sub(b, row, b.op(Op::mul, {next, extent[static_cast<size_t>(k)]})));
            row = next;
        }
        Value* end_last = add(b, begin.back(), extent.back());
        Inst* units = new_for(b, first, last, initial);
        Region& body = units->body();
        f.add_param(body, type::kI64);
        std::vector<Value*> state;
        for (size_t k = 0; k < initial.size(); ++k) state.push_back(f.add_param(body, type::kI64));

        Builder in{&f, &body, nullptr, loop.loc};
        std::vector<Value*> indices;
        for (int k = 0; k < outer; ++k) {
            Value* x =
                add(in, begin[static_cast<size_t>(k)], state[static_cast<size_t>(outer - k)]);
            indices.push_back(narrowed(in, x, index));
        }
        Value* low = add(in, begin.back(), in.op(Op::mul, {state[0], tile}));
        Value* high = in.op(Op::min, {add(in, low, tile), end_last});
        innermost(in, low, high, indices);
        // Count on: the tile, and with each wrap the next outer index.
        std::vector<Value*> next;
        Value* carry = nullptr;
        for (size_t k = 0; k < state.size(); ++k) {
            Value* step = k == 0 ? wide(in, 1) : in.cast(carry, Prim::i64);
            Value* x = add(in, state[k], step);
            if (k + 1 == state.size()) {
                next.push_back(x);
                break;
            }
            Value* limit =
                k == 0 ? tiles : extent[static_cast<size_t>(outer - static_cast<int>(k))];
            carry = in.op(Op::eq, {x, limit});
            next.push_back(in.op(Op::select, {carry, wide(in, 0), x}));
        }
        in.end(Op::continue_, next);
        loop.remove();
    }
};

}  // namespace

void take_body(Inst& to, Region& body, std::span<Value* const> outer) {
    for (size_t k = 0; k < outer.size(); ++k)
        replace(body.params[static_cast<uint32_t>(k)], outer[k]);
    body.params.data += outer.size();
    body.params.count -= static_cast<uint32_t>(outer.size());
    body.params.capacity = body.params.count;
    body.params[0]->index = 0;
    body.owner = &to;
    to.regions[0] = &body;
}

void accumulate(std::vector<Accumulator>& accumulators, Value* lane) {
    for (Accumulator& a : accumulators) {
        Builder b = before(*a.atomic);
        Value* place = a.slot;
        if (lane) {
            Value* operands[] = {a.slot, lane};
            place = b.typed(Op::comp_place, a.type.place(), operands);
        }
        Value* v = a.atomic->operand(1);
        b.store(place, b.op(info(a.atomic->op).step, {b.load(place), v}));
        a.atomic->remove();
    }
}

void lower_units(Session& s, Task& task, Inst& loop, std::vector<Accumulator>& accumulators) {
    Units u{s, *task.body, loop, accumulators, task.dims, loop.operand(0)->type.prim};
    u.run();
}

}  // namespace qd::pass
