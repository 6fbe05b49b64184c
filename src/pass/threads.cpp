// Turns the parallel loop of a range task into the work of one thread, for targets that start a
// thread for each iteration (Target::threads).
//
// Thread t has iteration t of the loop as it lies in memory, the last dimension fastest, if there
// is one. Where a body does little, it has two, a block apart. Under a reduction (reduce.cpp), and
// where only the device knows the bounds, it has iterations t, t + threads and so on; the number of
// threads depends on the trip count alone, or is what the device likes best. So it is where
// iterations keep records on tapes, which then are as many as threads that run at one time: the
// next iteration finds its tape in the cache.
//
// Cost: O(dimensions).

#include <algorithm>
#include <unordered_set>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int64_t kFew = int64_t(1) << 31;

struct Threads {
    Function& f;
    Inst& loop;
    std::span<const abi::Bound> bounds;  // begin/end pairs
    Prim index;
    int64_t block_dim;
    int iterations;  // of a thread, beside those of strides
    bool strides;
    bool few;  // iterations: fewer than kFew, whatever the launch says

    Value* value(Builder& b, TaskValue which, int k = 0) {
        return b.typed(Op::task_value, type::kI64, {},
                       static_cast<uint64_t>(which) + static_cast<uint64_t>(k));
    }

    // What an earlier task computed stays on the device: nobody waits for it.
    Value* bound(Builder& b, size_t k) {
        const abi::Bound& of = bounds[k];
        if (of.kind == abi::BoundKind::constant) return b.int_const(Prim::i64, of.value);
        if (of.kind == abi::BoundKind::arg) return value(b, TaskValue::bound, static_cast<int>(k));
        const Type type = Type::scalar(of.bytes == 4 ? Prim::i32 : Prim::i64);
        return b.cast(b.load(b.typed(Op::temp, type.place(), {}, uint64_t(of.value))), Prim::i64);
    }

    static Value* no_wrap(Value* v) {
        v->def->flags |= kNoWrap;
        return v;
    }

    // The indices of iteration `number`, outermost first. A `few` iterations have numbers of 32
    // bits, whose division is a fifth of the work.
    std::vector<Value*> indices(Builder& b, Value* number, const std::vector<Value*>& begin,
                                const std::vector<Value*>& extent, bool few) {
        const auto narrow = [&](Value* v) { return few ? no_wrap(b.cast(v, Prim::u32)) : v; };
        std::vector<Value*> out(begin.size());
        number = narrow(number);
        for (size_t d = begin.size(); d-- > 0;) {
            Value* own = number;
            if (d > 0) {
                Value* length = narrow(extent[d]);
                Value* outer = b.op(Op::raw_div, {number, length});
                Value* before_it = b.op(Op::mul, {outer, length});
                own = b.op(Op::sub, {number, before_it});
                if (few) no_wrap(before_it), no_wrap(own);
                number = outer;
            }
            out[d] = b.cast(b.op(Op::add, {begin[d], b.cast(own, Prim::i64)}), index);
        }
        return out;
    }

    void run(std::vector<Accumulator>& accumulators) {
        Builder b = before(loop);
        Value* zero = b.int_const(Prim::i64, 0);
        Value* one = b.int_const(Prim::i64, 1);
        std::vector<Value*> begin, extent;
        Value* count = one;
        for (size_t d = 0; d < bounds.size() / 2; ++d) {
            begin.push_back(bound(b, 2 * d));
            Value* length = b.op(Op::sub, {bound(b, 2 * d + 1), begin.back()});
            extent.push_back(b.op(Op::max, {length, zero}));
            count = d == 0 ? extent[0] : b.op(Op::mul, {count, extent.back()});
        }
        if (iterations > 1) {
            several(b, count, begin, extent);
        } else {
            Value* thread = value(b, TaskValue::begin);
            Value* threads = value(b, TaskValue::end);
            if (accumulators.empty() && !strides) {
                Value* turns = b.cast(b.op(Op::lt, {thread, count}), Prim::i64);
                repeat(b, turns, loop.body(), begin, extent, few,
                       [&](Builder&, Value*) { return thread; });
            } else {
                Value* rest = b.op(Op::sub, {b.op(Op::add, {count, threads}), thread});
                Value* turns = b.op(Op::raw_div, {b.op(Op::sub, {rest, one}), threads});
                repeat(b, turns, loop.body(), begin, extent, few, [&](Builder& in, Value* turn) {
                    return in.op(Op::add, {thread, in.op(Op::mul, {turn, threads})});
                });
            }
        }
        accumulate(accumulators, nullptr);
        loop.remove();
    }

    // for turn = 0 to turns { body of iteration number_of(turn) }; takes the body.
    template <class Number>
    void repeat(Builder& b, Value* turns, Region& body, const std::vector<Value*>& begin,
                const std::vector<Value*>& extent, bool narrow, Number number_of) {
        Inst* turn_loop = new_for(b, b.int_const(Prim::i64, 0), turns);
        // What it had as indices are computed at the begin of its body.
        Value* turn = f.add_param(body, type::kI64);
        Builder in{&f, &body, body.first, loop.loc};
        Value* number = number_of(in, turn);
        take_body(*turn_loop, body, indices(in, number, begin, extent, narrow));
    }

    // Blocks have several times as many neighbours as threads. Where all of a block's are
    // iterations, a thread's are straight code, whose loads need not wait for each other: not where
    // there are so many that numbers take 64 bits, which LLVM divides with branches.
    void several(Builder& b, Value* count, const std::vector<Value*>& begin,
                 const std::vector<Value*>& extent) {
        const auto constant = [](Builder& at, int64_t v) { return at.int_const(Prim::i64, v); };
        Value* whole = constant(b, block_dim * iterations);
        Value* low = b.op(Op::mul, {value(b, TaskValue::chunk), whole});
        Value* first = b.op(Op::add, {low, value(b, TaskValue::in_block)});
        Value* full_block = b.op(Op::le, {b.op(Op::add, {low, whole}), count});
        Value* is_full[] = {
            few ? full_block
                : b.op(Op::bit_and, {full_block, b.op(Op::lt, {count, constant(b, kFew)})})};
        std::vector<Region*> copies;
        for (int k = 0; k < iterations; ++k) copies.push_back(clone_into(loop.body(), f, {}));
        Inst* choice = b.emit(Op::if_, is_full, {}, 2);
        Builder full{&f, choice->regions[0], nullptr, loop.loc};
        for (int k = 0; k < iterations; ++k)
            repeat(full, constant(full, 1), *copies[size_t(k)], begin, extent, true,
                   [&](Builder& in, Value*) {
                       return in.op(Op::add, {first, constant(in, k * block_dim)});
                   });
        full.end(Op::yield);
        Builder part{&f, choice->regions[1], nullptr, loop.loc};
        Value* rest = part.op(Op::sub, {part.op(Op::max, {count, first}), first});
        Value* turns = part.op(
            Op::raw_div,
            {part.op(Op::add, {rest, constant(part, block_dim - 1)}), constant(part, block_dim)});
        repeat(part, part.op(Op::min, {turns, constant(part, iterations)}), loop.body(), begin,
               extent, few, [&](Builder& in, Value* turn) {
                   Value* ahead = in.op(Op::mul, {turn, constant(in, block_dim)});
                   return in.op(Op::add, {first, ahead});
               });
        part.end(Op::yield);
    }
};

// Whether several iterations of a thread are worth it: a body that does little but wait for memory,
// and enough iterations for all threads of a large device.
bool is_light(const Session& s, const Task& task, const Inst& loop) {
    constexpr uint32_t kLight = 40;
    constexpr int64_t kOneEach = 1 << 17;
    if (task.most_iterations >= 0 && task.most_iterations < kOneEach) return false;
    const Summary body = summary_of(s, loop.body());
    bool plain = !body.loops && !body.meets && !body.observable && body.cost <= kLight;
    walk(loop.body(),
         [&](Inst& i) { plain = plain && i.effect() != Effect::call && i.op != Op::thread_index; });
    return plain;
}

// On the tape, itself or what it calls.
bool keeps_records(const Inst& loop) {
    std::unordered_set<const Function*> seen;
    const auto keeps = [&](const auto& self, Region& r) -> bool {
        bool found = false;
        walk(r, [&](const Inst& i) {
            found |= i.op == Op::tape;
            if (i.op == Op::call && seen.insert(i.callee()).second)
                found |= self(self, *i.callee()->body);
        });
        return found;
    };
    return keeps(keeps, loop.body());
}

}  // namespace

void lower_threads(Session& s, Task& task, Inst& loop, std::vector<Accumulator>& accumulators) {
    constexpr int64_t kFoldingBlock = 256, kLargestBlock = 1024;
    constexpr int kIterations = 2;
    int64_t block = task.block_dim;
    if (!block) block = accumulators.empty() ? s.m.options.default_gpu_block_dim : kFoldingBlock;
    task.block_dim = int(std::clamp<int64_t>(block, 1, kLargestBlock));
    const std::span<const abi::Bound> bounds(task.bounds, static_cast<size_t>(2 * task.dims));
    // Option saturating_grid_dim: a thread has what is left of the blocks that it does not get.
    const int most_blocks = int(std::clamp<int64_t>(s.m.options.saturating_grid_dim, 0, INT32_MAX));
    task.max_threads = most_blocks;
    const bool fills_device =
        accumulators.empty() && !task.fixed_mapping &&
        (keeps_records(loop) || (most_blocks && !summary_of(s, loop.body()).meets));
    const bool strides = fills_device || std::ranges::any_of(bounds, [](const abi::Bound& b) {
                             return b.kind == abi::BoundKind::temp;
                         });
    if (strides && accumulators.empty()) task.iterations = 0;
    const bool few = task.most_iterations >= 0 && task.most_iterations < kFew;
    Threads threads{*task.body,     loop, bounds,  loop.operand(0)->type.prim,
                    task.block_dim, 1,    strides, few};
    if (accumulators.empty() && !threads.strides && is_light(s, task, loop))
        threads.iterations = task.iterations = kIterations;
    threads.run(accumulators);
}

}  // namespace qd::pass
