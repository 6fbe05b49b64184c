// See derivative.h.

#include "launcher/derivative.h"

#include "autodiff/autodiff.h"
#include "cpython/cpython.h"
#include "frontend/diag.h"
#include "session/session.h"
#include "support/format_table.h"

namespace qd::launcher {
namespace {

void raise(const pass::Refusal& refusal) {
    std::string text = refusal.what;
    for (const ir::Loc* l = refusal.loc; l; l = l->caller)
        text += "\n" + frontend::site_text({std::string(l->file), std::string(l->function), l->line,
                                            l->col, l->end_line, l->end_col});
    if (refusal.of_source)
        cpython::set_error("QuadrantsCompilationError", text);
    else
        PyErr_SetString(PyExc_RuntimeError, text.c_str());
}

pass::Refusal find_tape(const ir::Module& m) {
    pass::Refusal found;
    ir::walk(*m.kernel().body, [&](ir::Inst& i) {
        if (i.op == ir::Op::tape)
            found = {
                "Not supported on this device: a loop inside a loop carries values that the "
                "reverse sweep needs, which CPUs alone can keep in this build. Unroll it with "
                "qd.static(range(...)), or use qd.init(arch=qd.cpu)",
                i.loc};
    });
    return found;
}

}  // namespace

std::unique_ptr<ir::Module> derive(const frontend::LoweredKernel& kernel) {
    auto copy = ir::deserialise(ir::serialise(*kernel.module));  // functions are shared
    const ir::Options& options = session::session().options;
    const autodiff::Request request{.mode = static_cast<autodiff::Mode>(kernel.derivative),
                                    .companions = kernel.companions,
                                    .inner_loops = options.ad_stack_experimental_enabled,
                                    .most_records = options.ad_stack_size};
    pass::Refusal refusal = autodiff::differentiate(*copy, request);
    if (refusal.what.empty() && session::session().device != &runtime::cpu_device)
        refusal = find_tape(*copy);
    if (!refusal.what.empty()) return raise(refusal), nullptr;
    return copy;
}

}  // namespace qd::launcher
