// What NVIDIA's assembler gets wrong: see assembler_mistakes.cpp.

#pragma once

#include <llvm/IR/Module.h>

namespace qd::codegen {

// Last before code generation for NVIDIA GPUs.
void avoid_assembler_mistakes(llvm::Module& module);

}  // namespace qd::codegen
