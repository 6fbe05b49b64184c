// See autodiff.h.

#include "autodiff/autodiff.h"

#include "autodiff/parts.h"

namespace qd::autodiff {

pass::Refusal differentiate(Module& m, const Request& request) {
    const bool reverses = request.mode == Mode::reverse;
    try {
        if (request.mode == Mode::validation) return validate(m, request), pass::Refusal{};
        check_statements(m, request);
        check_gradients_of_arrays(m);
        if (reverses) check_mixed(m), enclose_serial_loops(m);
        if (pass::Refusal r = pass::straighten(m, !reverses || request.inner_loops);
            !r.what.empty())
            return r;
        if (reverses && !request.inner_loops) check_inner_loops(*m.kernel().body, false);
        if (reverses) check_recurrences(m, Storage(m, request));
        expand_reductions(m.kernel());
        reverses ? reverse(m, request) : forward(m, request);
        pass::tidy(m);
        if (reverses) gather(m), pass::tidy(m);
    } catch (const Refused& r) {
        return r.why;
    }
    return {};
}

}  // namespace qd::autodiff
