// Turns the parallel loop of a range task into the work of one thread, for targets that start a
// thread for each iteration (Target::threads).
//
// Thread t has iteration t of the loop as it lies in memory, the last dimension fastest, if there
// is one. Where a body does little, it has two, a block apart, or four of several rows, one below
// the other. Under a reduction (reduce.cpp), and
// where only the device knows the bounds, it has iterations t, t + threads and so on; the number of
// threads depends on the trip count alone, or is what the device likes best. So it is where
// iterations keep records on tapes, which then are as many as threads that run at one time: the
// next iteration finds its tape in the cache.
//
// Cost: O(dimensions).

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int64_t kFew = int64_t(1) << 31;
constexpr int64_t kShortRow = 64;

enum class Rows : uint8_t { never, sometimes, always };

struct Threads {
    Function& f;
    Inst& loop;
    std::span<const abi::Bound> bounds;  // begin/end pairs
    Prim index;
    int64_t block_dim;
    int iterations;  // of a thread, beside those of strides
    Rows rows;       // which are apart from each other
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
            out[d] = narrowed(b, b.op(Op::add, {begin[d], b.cast(own, Prim::i64)}), index);
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
                repeat(b, turns, loop.body(), [&](Builder& in, Value*) {
                    return indices(in, thread, begin, extent, few);
                });
            } else {
                Value* rest = b.op(Op::sub, {b.op(Op::add, {count, threads}), thread});
                Value* turns = b.op(Op::raw_div, {b.op(Op::sub, {rest, one}), threads});
                repeat(b, turns, loop.body(), [&](Builder& in, Value* turn) {
                    Value* number = in.op(Op::add, {thread, in.op(Op::mul, {turn, threads})});
                    return indices(in, number, begin, extent, few);
                });
            }
        }
        accumulate(accumulators, nullptr);
        loop.remove();
    }

    // for turn = 0 to turns { body with the indices indices_of(turn) }; takes the body.
    template <class Indices>
    void repeat(Builder& b, Value* turns, Region& body, Indices indices_of) {
        Inst* turn_loop = new_for(b, b.int_const(Prim::i64, 0), turns);
        // What it had as indices are computed at the begin of its body.
        Value* turn = f.add_param(body, type::kI64);
        Builder in{&f, &body, body.first, loop.loc};
        take_body(*turn_loop, body, indices_of(in, turn));
    }

    // Copies of the body as straight code, whose loads need not wait for each other.
    template <class Indices>
    void straight(Region& region, std::span<Region* const> copies, Indices indices_of) {
        Builder b{&f, &region, nullptr, loop.loc};
        for (size_t k = 0; k < copies.size(); ++k)
            repeat(b, b.int_const(Prim::i64, 1), *copies[k],
                   [&](Builder& in, Value*) { return indices_of(in, int64_t(k)); });
        b.end(Op::yield);
    }

    std::vector<Region*> copies_of(Region& body) {
        std::vector<Region*> copies;
        for (int k = 0; k < iterations; ++k) copies.push_back(clone_into(body, f, {}));
        return copies;
    }

    static Value* constant(Builder& b, int64_t v) { return b.int_const(Prim::i64, v); }

    // Iterations of a thread are a block apart or a row apart. Rows should be long, and numbers of
    // more than 32 bits LLVM divides with branches: what only the launch knows it chooses.
    void several(Builder& b, Value* count, const std::vector<Value*>& begin,
                 const std::vector<Value*>& extent) {
        if (rows == Rows::never) return blocks_apart(b, loop.body(), count, begin, extent);
        if (rows == Rows::always) return rows_apart(b, loop.body(), count, begin, extent);
        Value* is_wide[] = {
            b.op(Op::bit_and, {b.op(Op::ge, {extent.back(), constant(b, kShortRow)}),
                               b.op(Op::lt, {count, constant(b, kFew)})})};
        Inst* choice = b.emit(Op::if_, is_wide, {}, 2);
        Builder wide{&f, choice->regions[0], nullptr, loop.loc};
        rows_apart(wide, *clone_into(loop.body(), f, {}), count, begin, extent);
        wide.end(Op::yield);
        Builder other{&f, choice->regions[1], nullptr, loop.loc};
        blocks_apart(other, loop.body(), count, begin, extent);
        other.end(Op::yield);
    }

    // Blocks have several times as many neighbours as threads. Where all of a block's are
    // iterations, a thread's are straight code.
    void blocks_apart(Builder& b, Region& body, Value* count, const std::vector<Value*>& begin,
                      const std::vector<Value*>& extent) {
        Value* whole = constant(b, block_dim * iterations);
        Value* low = b.op(Op::mul, {value(b, TaskValue::chunk), whole});
        Value* first = b.op(Op::add, {low, value(b, TaskValue::in_block)});
        Value* full_block = b.op(Op::le, {b.op(Op::add, {low, whole}), count});
        Value* is_full[] = {
            few ? full_block
                : b.op(Op::bit_and, {full_block, b.op(Op::lt, {count, constant(b, kFew)})})};
        const std::vector<Region*> copies = copies_of(body);
        Inst* choice = b.emit(Op::if_, is_full, {}, 2);
        straight(*choice->regions[0], copies, [&](Builder& in, int64_t k) {
            Value* number = in.op(Op::add, {first, constant(in, k * block_dim)});
            return indices(in, number, begin, extent, true);
        });
        Builder part{&f, choice->regions[1], nullptr, loop.loc};
        Value* rest = part.op(Op::sub, {part.op(Op::max, {count, first}), first});
        Value* turns = part.op(
            Op::raw_div,
            {part.op(Op::add, {rest, constant(part, block_dim - 1)}), constant(part, block_dim)});
        repeat(part, part.op(Op::min, {turns, constant(part, iterations)}), body,
               [&](Builder& in, Value* turn) {
                   Value* ahead = in.op(Op::mul, {turn, constant(in, block_dim)});
                   return indices(in, in.op(Op::add, {first, ahead}), begin, extent, few);
               });
        part.end(Op::yield);
    }

    // Threads lie along a row, which is what the last dimension goes over, and have an element of
    // each of several rows: what neighbours of stencils read they read once. Rows that are too few
    // for that are shared by the threads behind.
    void rows_apart(Builder& b, Region& body, Value* count, const std::vector<Value*>& begin,
                    const std::vector<Value*>& extent) {
        Value* thread = value(b, TaskValue::begin);
        Value* columns = extent.back();
        const std::vector<Value*> outer_begin(begin.begin(), begin.end() - 1);
        const std::vector<Value*> outer_extent(extent.begin(), extent.end() - 1);
        Value* height = outer_extent[0];
        for (size_t d = 1; d < outer_extent.size(); ++d)
            height = b.op(Op::mul, {height, outer_extent[d]});
        Value* shift = constant(b, std::countr_zero(unsigned(iterations)));
        Value* bands = b.op(Op::lshr, {height, shift});
        Value* threads = b.op(Op::mul, {bands, columns});  // of bands
        Value* is_full[] = {b.op(Op::lt, {thread, threads})};
        const std::vector<Region*> copies = copies_of(body);
        Inst* choice = b.emit(Op::if_, is_full, {}, 2);

        Builder full{&f, choice->regions[0], nullptr, loop.loc};
        Value* number = no_wrap(full.cast(thread, Prim::u32));
        Value* width = no_wrap(full.cast(columns, Prim::u32));
        Value* band = full.op(Op::raw_div, {number, width});
        Value* before_it = no_wrap(full.op(Op::mul, {band, width}));
        Value* column = full.cast(no_wrap(full.op(Op::sub, {number, before_it})), Prim::i64);
        Value* last = narrowed(full, full.op(Op::add, {begin.back(), column}), index);
        Value* top = full.op(Op::mul, {full.cast(band, Prim::i64), constant(full, iterations)});
        straight(*choice->regions[0], copies, [&](Builder& in, int64_t k) {
            Value* row = in.op(Op::add, {top, constant(in, k)});
            std::vector<Value*> out = indices(in, row, outer_begin, outer_extent, true);
            out.push_back(last);
            return out;
        });

        Builder part{&f, choice->regions[1], nullptr, loop.loc};
        Value* done = part.op(Op::mul, {threads, constant(part, iterations)});
        Value* left = part.op(Op::sub, {count, done});
        Value* own = part.op(Op::sub, {thread, threads});
        Value* round = constant(part, iterations - 1);
        Value* sharing = part.op(Op::lshr, {part.op(Op::add, {left, round}), shift});
        Value* shares = part.cast(part.op(Op::lt, {own, sharing}), Prim::i64);
        Value* beside = part.op(Op::sub, {part.op(Op::add, {left, sharing}), own});
        Value* until =
            part.op(Op::max, {part.op(Op::sub, {beside, constant(part, 1)}), constant(part, 0)});
        Value* turns = narrow_div(part, until, part.op(Op::max, {sharing, constant(part, 1)}));
        repeat(part, part.op(Op::mul, {turns, shares}), body, [&](Builder& in, Value* turn) {
            Value* ahead = in.op(Op::add, {own, in.op(Op::mul, {turn, sharing})});
            return indices(in, in.op(Op::add, {done, ahead}), begin, extent, true);
        });
        part.end(Op::yield);
    }

    // Of numbers below 2^32.
    static Value* narrow_div(Builder& b, Value* x, Value* y) {
        Value* quotient =
            b.op(Op::raw_div, {no_wrap(b.cast(x, Prim::u32)), no_wrap(b.cast(y, Prim::u32))});
        return b.cast(quotient, Prim::i64);
    }
};

// Whether rows are so long that a warp reads them in one piece.
Rows rows_of(std::span<const abi::Bound> bounds, bool few) {
    if (bounds.size() < 4) return Rows::never;
    const abi::Bound &begin = bounds[bounds.size() - 2], &end = bounds.back();
    const bool known =
        begin.kind == abi::BoundKind::constant && end.kind == abi::BoundKind::constant;
    if (!known) return Rows::sometimes;
    if (end.value - begin.value < kShortRow) return Rows::never;
    return few ? Rows::always : Rows::sometimes;
}

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
    constexpr int kIterations = 2, kOfPlane = 4;
    int64_t block = task.block_dim;
    if (!block) block = accumulators.empty() ? s.m.options.default_gpu_block_dim : kFoldingBlock;
    task.block_dim = int(std::min(block, kLargestBlock));
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
    Threads threads{*task.body,  loop,    bounds, loop.operand(0)->type.prim, task.block_dim, 1,
                    Rows::never, strides, few};
    if (accumulators.empty() && !strides && is_light(s, task, loop)) {
        threads.rows = rows_of(bounds, few);
        // What a row of a volume shares with the next one is less.
        const bool plane = task.dims == 2 && threads.rows != Rows::never;
        threads.iterations = task.iterations = plane ? kOfPlane : kIterations;
    }
    threads.run(accumulators);
}

}  // namespace qd::pass
