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

}  // namespace

std::unique_ptr<ir::Module> derive(const frontend::LoweredKernel& kernel) {
    auto copy = ir::deserialise(ir::serialise(*kernel.module));  // functions are shared
    const ir::Options& options = session::session().options;
    const autodiff::Request request{
        .mode = static_cast<autodiff::Mode>(kernel.derivative),
        .companions = kernel.companions,
        .inner_loops = options.ad_stack_experimental_enabled || options.ad_general_control,
        .general_control = options.ad_general_control,
        .most_records = options.ad_stack_size};
    const pass::Refusal refusal = autodiff::differentiate(*copy, request);
    if (!refusal.what.empty()) return raise(refusal), nullptr;
    return copy;
}

}  // namespace qd::launcher
