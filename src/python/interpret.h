// Launches through the IR interpreter (QD_CPU_TIER=interpret): the oracle that tests compare
// compiled code with.

#pragma once

#include "ir/ir.h"
#include "runtime/cpu/kernel.h"

namespace qd::python {

// As runtime::launch; `context` lacks runtime and temps.
bool interpret_launch(const ir::Module& module, abi::Context& context,
                      runtime::LaunchOutcome& outcome);

}  // namespace qd::python
