// Launches through the IR interpreter (QD_CPU_TIER=interpret): the oracle that tests compare
// compiled code with.

#pragma once

#include <memory>

#include "ir/ir.h"
#include "runtime/cpu/kernel.h"

namespace qd::launcher {

class Raised;

struct Interpreted {
    std::unique_ptr<ir::Module> module;
    bool uses_random;
};

// A copy of `module` to run, with the checks that its options ask for.
std::unique_ptr<Interpreted> prepare_interpreted(const ir::Module& module);

// As runtime::launch; `context` lacks runtime and temps. Under the GIL; may end early where a
// signal handler raises.
bool interpret_launch(const ir::Module& module, abi::Context& context,
                      runtime::LaunchOutcome& outcome, Raised& raised);

}  // namespace qd::launcher
