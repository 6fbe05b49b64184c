// Tier 1's passes: see optimise.cpp.

#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "ir/ir.h"

namespace qd::codegen {

// First of a whole plan: small functions into those that call them.
void expand_calls(llvm::Module& module, llvm::TargetMachine& tm);
// Then function by function. `time_passes` tells on stderr what each pass took.
void optimise(llvm::Module& module, llvm::TargetMachine& tm, const ir::ModuleOptions& asked,
              bool time_passes);

void optimise_for_gpu(llvm::Module& module, llvm::TargetMachine& tm,
                      const ir::ModuleOptions& asked);

}  // namespace qd::codegen
