// See derivative.h.

#include "launcher/derivative.h"

#include "cpython/cpython.h"
#include "frontend/diag.h"
#include "runtime/compiler.h"
#include "runtime/fork.h"
#include "session/session.h"
#include "support/no_derivative.h"

namespace qd::launcher {
namespace {

void raise(const support::NoDerivative& none) {
    std::string text = none.what;
    for (const support::SourceSite& s : none.sites) text += "\n" + frontend::site_text(s);
    if (none.of_source)
        cpython::set_error("QuadrantsCompilationError", text);
    else
        PyErr_SetString(PyExc_RuntimeError, text.c_str());
}

}  // namespace

std::unique_ptr<ir::Module> derive(const frontend::LoweredKernel& kernel) {
    const ir::Options& options = session::session().options;
    const abi::Derivative wanted{
        .mode = kernel.derivative,
        .companions = kernel.companions.data(),
        .companion_count = static_cast<uint32_t>(kernel.companions.size()),
        .inner_loops = options.ad_stack_experimental_enabled || options.ad_general_control,
        .general_control = options.ad_general_control,
        .most_records = options.ad_stack_size};
    const runtime::Compiling alone_with_fork;
    alone_with_fork.need();
    std::vector<uint8_t> refusal;
    const auto module =
        runtime::Compiler::get().differentiate(ir::serialise(*kernel.module), wanted, refusal);
    if (module.empty()) return raise(support::no_derivative(refusal)), nullptr;
    return ir::deserialise(module);
}

}  // namespace qd::launcher
