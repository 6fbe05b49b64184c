// Turns the parallel loop of a range task into the work of one thread, for targets that start a
// thread for each iteration (Target::threads).
//
// Thread t has iteration t of the loop as it lies in memory, the last dimension fastest, if there
// is one. Under a reduction (reduce.cpp), and where only the device knows the bounds, it has
// iterations t, t + threads and so on; the number of threads depends on the trip count alone, or is
// what the device likes best.
//
// Cost: O(dimensions).

#include <algorithm>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Threads {
    Function& f;
    Inst& loop;
    std::span<const abi::Bound> bounds;  // begin/end pairs
    Prim index;
    const bool strides = std::ranges::any_of(
        bounds, [](const abi::Bound& b) { return b.kind == abi::BoundKind::temp; });

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

    // The indices of iteration `number`, outermost first.
    std::vector<Value*> indices(Builder& b, Value* number, const std::vector<Value*>& begin,
                                const std::vector<Value*>& extent) {
        std::vector<Value*> out(begin.size());
        for (size_t d = begin.size(); d-- > 0;) {
            Value* own = number;
            if (d > 0) {
                Value* outer = b.op(Op::raw_div, {number, extent[d]});
                own = b.op(Op::sub, {number, b.op(Op::mul, {outer, extent[d]})});
                number = outer;
            }
            out[d] = b.cast(b.op(Op::add, {begin[d], own}), index);
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
        Value* thread = value(b, TaskValue::begin);
        Value* threads = value(b, TaskValue::end);
        Value* turns = nullptr;
        const bool one_each = accumulators.empty() && !strides;
        if (one_each) {
            turns = b.cast(b.op(Op::lt, {thread, count}), Prim::i64);
        } else {
            Value* rest = b.op(Op::sub, {b.op(Op::add, {count, threads}), thread});
            turns = b.op(Op::raw_div, {b.op(Op::sub, {rest, one}), threads});
        }
        Inst* turn_loop = new_for(b, zero, turns);
        // What it had as indices are computed at the begin of its body.
        Region& body = loop.body();
        Value* turn = f.add_param(body, type::kI64);
        Builder in{&f, &body, body.first, loop.loc};
        Value* number = thread;
        if (!one_each) number = in.op(Op::add, {thread, in.op(Op::mul, {turn, threads})});
        take_body(*turn_loop, body, indices(in, number, begin, extent));
        accumulate(accumulators, nullptr);
        loop.remove();
    }
};

}  // namespace

void lower_threads(Session& s, Task& task, Inst& loop, std::vector<Accumulator>& accumulators) {
    constexpr int64_t kFoldingBlock = 256, kLargestBlock = 1024;
    int64_t block = task.block_dim;
    if (!block) block = accumulators.empty() ? s.m.options.default_gpu_block_dim : kFoldingBlock;
    task.block_dim = int(std::clamp<int64_t>(block, 1, kLargestBlock));
    const std::span<const abi::Bound> bounds(task.bounds, static_cast<size_t>(2 * task.dims));
    Threads{*task.body, loop, bounds, loop.operand(0)->type.prim}.run(accumulators);
}

}  // namespace qd::pass
