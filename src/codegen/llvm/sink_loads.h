// Loads of what a launch fixes, moved from a function's entry towards their uses.

#pragma once

#include <llvm/IR/Function.h>

namespace qd::codegen {

// Of functions that have many; run on optimised code, just before instruction selection.
void sink_entry_loads(llvm::Function& f);

}  // namespace qd::codegen
