// Where the calling thread's stack ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qd::support {

// The lowest address of the stack; 1 if that is not known. Asked once per thread, and again when
// see_stack_limit finds that the process has changed its limit: then it returns true.
uintptr_t stack_end();
bool see_stack_limit();
// Whether more than `bytes` of it are left.
bool has_stack(size_t bytes);
// The same beside a reserve, which is at most a quarter of a small stack.
bool has_stack_beside(size_t bytes, size_t reserve);
// How many bytes of it are left; 0 if none or if that is not known.
size_t stack_left();
// How large it may become; 0 if that is not known.
size_t stack_size();

}  // namespace qd::support
