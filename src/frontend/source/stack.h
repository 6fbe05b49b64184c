// What recursion over a user's program or data needs: an error instead of the end of the stack.
#pragma once

namespace qd::frontend {

// Raises if the calling thread's stack is nearly used up. A load and a comparison.
void need_stack();
bool is_stack_short();  // the same as an answer

}  // namespace qd::frontend
