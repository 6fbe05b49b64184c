// Random numbers become arithmetic on two words of the thread's record (ir/random.h).
//
// Needs: op seed in front of the first draw of each stream (pass seed).
// Cost:  O(instructions).

#include "ir/random.h"

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Bits {  // arithmetic on u64
    Builder b;

    Value* constant(uint64_t v) { return b.constant(type::kU64, v); }
    Value* add(Value* x, Value* y) { return b.op(Op::add, {x, y}); }
    Value* mul(Value* x, uint64_t y) { return b.op(Op::mul, {x, constant(y)}); }
    Value* lshr(Value* x, uint64_t n) { return b.op(Op::lshr, {x, constant(n)}); }
    Value* mix(Value* x) {
        const auto step = [&](Value* v, uint64_t n) { return b.op(Op::bit_xor, {v, lshr(v, n)}); };
        x = mul(step(x, 30), 0xbf58476d1ce4e5b9);
        x = mul(step(x, 27), 0x94d049bb133111eb);
        return step(x, 31);
    }
    Value* word(ThreadWord which) {
        return b.typed(Op::thread_word, type::kU64.place(), {}, uint64_t(which));
    }
};

void lower_seed(Inst& i) {
    Bits x{before(i)};
    Value* launch = x.b.typed(Op::task_value, type::kI64, {}, uint64_t(TaskValue::launch_key));
    Value* stream =
        x.mix(x.add(x.b.cast(launch, Prim::u64), x.constant((i.imm + 1) * kRandomStep)));
    Value* iteration = x.add(x.b.cast(i.operand(0), Prim::u64), x.constant(1));
    Value* key = x.mix(x.add(stream, x.mul(iteration, kRandomStep)));
    x.b.store(x.word(ThreadWord::random_key), key);
    x.b.store(x.word(ThreadWord::random_draw), x.constant(0));
}

Value* draw(Bits& x) {
    Value* key = x.b.load(x.word(ThreadWord::random_key));
    Value* place = x.word(ThreadWord::random_draw);
    Value* next = x.add(x.b.load(place), x.constant(1));
    x.b.store(place, next);
    return x.mix(x.add(key, x.mul(next, kRandomStep)));
}

// The table in ir/random.h. The kept bits fit a signed integer, whose conversion every CPU has.
Value* as_result(Bits& x, Value* bits, Prim p) {
    const auto scaled = [&](Prim of, uint64_t drop, double factor) {
        Value* whole = x.b.cast(x.b.cast(x.lshr(bits, drop), Prim::i64), of);
        return x.b.op(Op::mul, {whole, x.b.float_const(of, factor)});
    };
    switch (p) {
        case Prim::f64:
            return scaled(Prim::f64, 11, 0x1p-53);
        case Prim::f32:
        case Prim::f16:
            return x.b.cast(scaled(Prim::f32, 40, 0x1p-24), p);
        case Prim::u1:
            return x.b.cast(x.lshr(bits, 63), p);
        case Prim::i64:
        case Prim::u64:
            return x.b.cast(bits, p);
        default:
            return x.b.cast(x.lshr(bits, 32), p);
    }
}

}  // namespace

bool lower_random(Session&, Function& f) {
    bool changed = false;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::seed) {
            lower_seed(i);
        } else if (i.op == Op::random) {
            Bits x{before(i)};
            replace(i.result(), as_result(x, draw(x), i.result()->type.prim));
        } else {
            return;
        }
        i.remove();
        changed = true;
    });
    return changed;
}

}  // namespace qd::pass
