// See autodiff.h.

#include "autodiff/autodiff.h"

#include "autodiff/calls.h"

namespace qd::autodiff {
namespace {

// With the calls that lead there, of a function that is not expanded.
const Loc* with_callers(const Module& m, Function& in, const Loc* at) {
    if (&in == &m.kernel() || !at || at->caller) return at;
    for (Function* f : m.functions) {
        const Inst* call = nullptr;
        walk(*f->body, [&](Inst& i) {
            if (i.op == Op::call && i.callee() == &in) call = &i;
        });
        if (!call) continue;
        Loc l = *at;
        l.caller = with_callers(m, *f, call->loc);
        return in.new_loc(l);
    }
    return at;
}

}  // namespace

pass::Refusal differentiate(Module& m, const Request& request) {
    const bool reverses = request.mode == Mode::reverse;
    try {
        if (request.mode == Mode::validation) return validate(m, request), pass::Refusal{};
        check_statements(m, request);
        check_gradients_of_arrays(m);
        if (reverses) check_mixed(m);
        pass::number_streams(m);
        if (reverses) enclose_serial_loops(m);
        const pass::KeptCalls kept = choose_calls(m, request);
        if (pass::Refusal r = pass::straighten(m, !reverses || request.inner_loops, kept);
            !r.what.empty())
            return r;
        if (reverses && !request.inner_loops) check_inner_loops(*m.kernel().body);
        if (reverses) check_recurrences(m, Storage(m, request));
        forget_depths(m);
        for (Function* function : m.functions) expand_reductions(*function);
        // Before the sweep that records and the one that records again.
        if (reverses)
            for (Function* function : m.functions) pass::settle_products(*function);
        reverses ? reverse(m, request) : forward(m, request);
        pass::tidy(m);
        if (reverses) gather(m), pass::tidy(m);
    } catch (const Refused& r) {
        pass::Refusal why = r.why;
        if (r.in) why.loc = with_callers(m, *r.in, why.loc);
        return why;
    }
    return {};
}

}  // namespace qd::autodiff
