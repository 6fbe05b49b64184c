// Makes the streams of random numbers explicit.
//
// Numbers the parallel loops of the kernel's body and its groups before any pass can drop one, so
// that a draw's stream (ir/random.h) does not depend on optimisation. Runs first. O(instructions).

#include <unordered_set>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

// Row-major number of the iteration, i64.
Value* iteration_number(Builder& b, const Inst& loop) {
    Value* n = nullptr;
    const auto wide = [&](Value* v) { return b.cast(v, Prim::i64); };
    for (uint32_t k = 0; k < loop.imm; ++k) {
        const int at = static_cast<int>(2 * k);
        Value* low = wide(loop.operand(at));
        Value* x = b.op(Op::sub, {wide(loop.body().params[k]), low});
        if (n) {
            Value* extent = b.op(Op::sub, {wide(loop.operand(at + 1)), low});
            n = b.op(Op::add, {b.op(Op::mul, {n, extent}), x});
        } else {
            n = x;
        }
    }
    return n;
}

bool draws(const Session& s, const Inst& i) { return summary_of(s, i).random; }

struct Numbering {
    const Session& s;
    Function& kernel;
    uint64_t loops = 0;
    int64_t stretch = 0;  // serial ones since the last loop
    bool seeded = false;  // the one under way
    bool changed = false;

    void begin_stretch(int64_t number) {
        stretch = number;
        seeded = false;
    }

    void visit(Region& r) {
        for (Inst& i : r) {
            if (i.is_group()) {
                begin_stretch(stretch + 1);
                visit(i.body());
                begin_stretch(stretch + 1);
            } else if (i.op == Op::for_ && i.loop_config() && i.loop_config()->parallel) {
                const uint64_t stream = 2 * loops++ + 1;
                begin_stretch(0);
                if (!draws(s, i)) continue;
                Builder b{&kernel, &i.body(), i.body().first, i.loc};
                b.op(Op::seed, {iteration_number(b, i)}, stream);
                changed = true;
            } else if (!seeded && draws(s, i)) {
                Builder b = before(i);
                b.op(Op::seed, {b.int_const(Prim::i64, stretch)}, 2 * loops);
                seeded = changed = true;
            }
        }
    }
};

bool draws_in(const Region& r, std::unordered_set<const Function*>& seen) {
    bool any = false;
    walk(const_cast<Region&>(r), [&](const Inst& i) {
        any |= i.op == Op::random || is_launch_key(i) ||
               (i.op == Op::call && seen.insert(i.callee()).second &&
                draws_in(*i.callee()->body, seen));
    });
    return any;
}

}  // namespace

bool is_launch_key(const Inst& i) {
    return i.op == Op::task_value && TaskValue(i.imm) == TaskValue::launch_key;
}

bool draws(const Region& r) {
    std::unordered_set<const Function*> seen;
    return draws_in(r, seen);
}

bool draws(const Module& m) { return draws(*m.kernel().body); }

void number_streams(Module& m) {
    if (!draws(m)) return;
    Session s{.m = m};
    const std::vector<Function*> order = callees_first(m);
    summarise(s, order);
    seed(s, m.kernel());
}

bool seed(Session& s, Function& kernel) {
    if (!s.summaries[kernel.id].random) return false;
    Numbering n{s, kernel};
    n.visit(*kernel.body);
    return n.changed;
}

}  // namespace qd::pass
