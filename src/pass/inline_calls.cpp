// Expands calls in place where that is cheap.
//
// A callee is copied if it is tiny, or small and called from one place only; everything else stays
// a call, so that the work grows with the source and not with its expansion. Callees are finished
// before their callers, so a copy needs no further inlining. A function that returns early, or that
// asks not to be, is never expanded.
//
// Keeps: locations, which get the call site appended.
// Cost:  O(instructions copied): at most a tiny function per call beyond the single call sites.

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

bool worth_it(const Session& s, const Function& callee) {
    if (callee.never_inline || callee.returns_early) return false;
    if (s.straightens) return !s.kept || !s.kept->contains(&callee);
    const Summary& c = s.summaries[callee.id];
    const Target& target = s.options.target;
    return c.cost <= target.tiny_function ||
           (s.call_sites[callee.id] == 1 && c.cost <= target.small_function);
}

}  // namespace

bool inline_calls(Session& s, Function& f) {
    std::vector<Inst*> calls;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::call && worth_it(s, *i.callee())) calls.push_back(&i);
    });
    for (Inst* i : calls) {
        const Region& body = *i->callee()->body;
        std::vector<std::pair<const Value*, Value*>> arguments;
        for (int k = 0; k < i->operand_count; ++k)
            arguments.emplace_back(body.params[static_cast<uint32_t>(k)], i->operand(k));
        Region* copy = clone_into(body, f, std::move(arguments), i->loc);
        if (i->flags & kForGradient)
            walk(*copy, [](Inst& inner) {
                if (inner.op == Op::call || inner.flags & kUpkeep) inner.flags |= kForGradient;
            });
        Inst* end = splice_before(*copy, *i);
        for (int k = 0; k < i->result_count; ++k) {
            if (!i->results[k].replaced) replace(i->result(k), end->operand(k));
        }
        i->remove();
    }
    return !calls.empty();
}

}  // namespace qd::pass
