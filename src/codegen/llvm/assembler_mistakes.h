// What NVIDIA's assembler gets wrong: see assembler_mistakes.cpp.

#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Module.h>

namespace qd::codegen {

// Last before code generation for NVIDIA GPUs.
void avoid_assembler_mistakes(llvm::Module& module);
// The same of what instruction selection makes, in its text.
void avoid_assembler_mistakes(llvm::SmallVectorImpl<char>& ptx);

}  // namespace qd::codegen
