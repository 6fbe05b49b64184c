// Where the calling thread's stack ends.
#pragma once

#include <cstdint>

namespace qd::support {

// The lowest address of the stack; 1 if that is not known. Asked once per thread.
uintptr_t stack_end();

}  // namespace qd::support
