// What only some lanes need, left out where none does.

#pragma once

#include <llvm/IR/Function.h>

namespace qd::codegen {

// Of functions that the vectoriser has been through.
void skip_unwanted_lanes(llvm::Function& f);

}  // namespace qd::codegen
