// Arithmetic on groups of components, as they lie in memory.

#pragma once

#include <llvm/IR/Function.h>

namespace qd::codegen {

// Of functions that the vectoriser has been through. `most_interleaved`: how many operands of a
// store may be brought into the order of memory instead of the stored value; where the target
// stores interleaved by itself, none.
void work_on_whole_groups(llvm::Function& f, unsigned most_interleaved);

}  // namespace qd::codegen
