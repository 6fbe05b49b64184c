// Short loops become straight code.
//
// `for k in range(3)` costs more in counting and branching than its body does, keeps local matrices
// in memory because their indices vary, and keeps the loop around it from becoming vectors. A
// serial loop is copied out, inner loops first, if its trip count is a constant up to kMostTrips,
// what comes out is at most kLargest scalar operations, and nothing in it breaks or continues.
// Loops that only iterate on variables, `for _ in range(50): v = v * a + b`, may take kMostSteps
// and kMostComputed: only without them can the loop around become vectors, which is a tenth of the
// time. (Sums over elements have lanes instead: serial_reduce.)
//
// Runs before anything else has worked on the body, so later passes see what the constants bring.
//
// Keeps: the order of everything.
// Cost:  O(instructions x loop depth + instructions copied): a constant per loop.

#include <algorithm>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int64_t kMostTrips = 9;  // 3 x 3
constexpr int64_t kMostSteps = 64;
constexpr uint32_t kLargest = 128, kMostComputed = 400;
constexpr int64_t kMostCopied = 2000;  // instructions, whatever they cost

bool jumps(const Region& r) {  // out of an iteration, but at its end
    for (const Inst* i = r.first; i; i = i->next) {
        if (i->is_loop()) continue;
        for (const Region* c : i->region_list()) {
            const Op last = c->last->op;
            if (last == Op::break_ || last == Op::continue_ || jumps(*c)) return true;
        }
    }
    return r.owner && r.owner->is_loop() && r.last->op != Op::continue_;
}

// Whether it works on variables, and on elements only in that it reads those that stay the same.
bool only_computes(const Region& body) {
    for (const Inst& i : body) {
        if (i.region_count) return false;
        const Effect e = i.effect();
        if (is_element(i.op))
            for (int k = 0; k < i.operand_count; ++k)
                if (is_inside(i.operand(k), *body.owner)) return false;
        if (e == Effect::pure || e == Effect::alloc || e == Effect::terminator) continue;
        const Inst* place = i.operand_count ? root_of_place(i.operand(0))->def : nullptr;
        if (!(place && place->op == Op::slot) && e != Effect::read) return false;
    }
    return true;
}

// Whether it is a kernel's, or the only iteration of one has it.
bool stands_outermost(const Inst& loop) {
    const Inst* around = loop.parent->owner;
    return !around || is_only_iteration(*around);
}

// 0: not for copying.
int64_t trips(const Session& s, const Inst& loop) {
    const auto dims = static_cast<int>(loop.imm);
    if (is_parallel(loop) || loop.operand_count != 2 * dims || loop.result_count) return 0;
    if (s.straightens && stands_outermost(loop)) return 0;  // what its iterations share is checked
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) {
        const Value *begin = loop.operand(2 * d), *end = loop.operand(2 * d + 1);
        if (!is_constant(begin) || !is_constant(end)) return 0;
        const int64_t count = constant_int(end) - constant_int(begin);
        if (count < 1 || count > kMostSteps) return 0;
        n *= count;
    }
    const bool computes = only_computes(loop.body());
    if (n > (computes ? kMostSteps : kMostTrips) || jumps(loop.body())) return 0;
    uint32_t cost = 0;
    int64_t size = 0;
    for (const Inst& i : loop.body()) {
        ++size;
        if (computes && (i.op == Op::load || i.op == Op::store)) continue;  // will be values
        cost += summary_of(s, i).cost;
    }
    if (n * size > kMostCopied) return 0;
    return n * cost <= (computes ? kMostComputed : kLargest) ? n : 0;
}

void copy_out(Inst& loop, int64_t n) {
    Function& f = *loop.parent->function;
    const Region& body = loop.body();
    for (int64_t trip = 0; trip < n; ++trip) {
        Builder b = before(loop);
        std::vector<std::pair<const Value*, Value*>> indices;
        int64_t rest = trip;
        for (auto d = static_cast<int>(loop.imm); d-- > 0;) {  // the last index runs fastest
            const int64_t begin = constant_int(loop.operand(2 * d));
            const int64_t count = constant_int(loop.operand(2 * d + 1)) - begin;
            const Value* index = body.params[static_cast<uint32_t>(d)];
            indices.emplace_back(index, b.int_const(index->type.prim, begin + rest % count));
            rest /= count;
        }
        splice_before(*clone_into(body, f, std::move(indices), nullptr), loop);
    }
    loop.remove();
}

}  // namespace

bool unroll(Session& s, Function& f) {
    std::vector<Inst*> loops;
    walk_post(*f.body, [&](Inst& i) {
        if (i.op == Op::for_) loops.push_back(&i);
    });
    bool changed = false;
    for (Inst* loop : loops) {
        if (const int64_t n = trips(s, *loop)) {
            copy_out(*loop, n);
            changed = true;
        }
    }
    return changed;
}

}  // namespace qd::pass
