// Random numbers become arithmetic on two words (ir/random.h): of the thread's record at the end of
// the pipeline, and variables where iterations happen again (autodiff).
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
};

// The places of a stream's key and of how often it was drawn from.
struct Stream {
    Value* key;
    Value* draws;
};

Stream of_thread(Builder& b) {
    const auto word = [&](ThreadWord which) {
        return b.typed(Op::thread_word, type::kU64.place(), {}, uint64_t(which));
    };
    return {word(ThreadWord::random_key), word(ThreadWord::random_draw)};
}

Stream of_variables(Builder& b) {
    const auto variable = [&] { return b.typed(Op::slot, type::kU64.place(), {}); };
    return {variable(), variable()};
}

void lower_seed(Inst& i, const Stream& to) {
    Bits x{before(i)};
    Value* launch = x.b.typed(Op::task_value, type::kI64, {}, uint64_t(TaskValue::launch_key));
    Value* stream =
        x.mix(x.add(x.b.cast(launch, Prim::u64), x.constant((i.imm + 1) * kRandomStep)));
    Value* iteration = x.add(x.b.cast(i.operand(0), Prim::u64), x.constant(1));
    Value* key = x.mix(x.add(stream, x.mul(iteration, kRandomStep)));
    x.b.store(to.key, key);
    x.b.store(to.draws, x.constant(0));
}

Value* draw(Bits& x, const Stream& from) {
    Value* key = x.b.load(from.key);
    Value* next = x.add(x.b.load(from.draws), x.constant(1));
    x.b.store(from.draws, next);
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

void lower_draw(Inst& i, Bits& x, const Stream& from) {
    replace(i.result(), as_result(x, draw(x, from), i.result()->type.prim));
}

// With numbers from `stream` up to the next seed.
void draw_from_variables(Region& r, Stream stream) {
    for (Inst *i = r.first, *next; i; i = next) {
        next = i->next;
        Bits x{before(*i)};
        if (i->op == Op::seed) {
            stream = of_variables(x.b);
            lower_seed(*i, stream);
            i->remove();
        } else if (i->op == Op::random) {
            lower_draw(*i, x, stream);
            i->remove();
        } else {
            for (Region* inner : i->region_list()) draw_from_variables(*inner, stream);
        }
    }
}

}  // namespace

void draw_from_variables(Function& kernel) { draw_from_variables(*kernel.body, {}); }

bool lower_random(Session&, Function& f) {
    bool changed = false;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::seed) {
            Bits x{before(i)};
            lower_seed(i, of_thread(x.b));
        } else if (i.op == Op::random) {
            Bits x{before(i)};
            lower_draw(i, x, of_thread(x.b));
        } else {
            return;
        }
        i.remove();
        changed = true;
    });
    return changed;
}

}  // namespace qd::pass
