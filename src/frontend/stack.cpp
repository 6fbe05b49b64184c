// What is kept back serves the passes and the code generator, which walk what the front end made,
// with smaller frames.

#include "frontend/stack.h"

#include <cstdint>

#include "frontend/frontend.h"
#include "support/stack.h"

namespace qd::frontend {

void need_stack() {
    constexpr uintptr_t kReserve = 96 << 10;
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (here < support::stack_end() + kReserve)
        raise(Kind::compilation, "nested too deeply for the stack of this thread",
              "split it, or give the thread a larger stack with threading.stack_size()");
}

}  // namespace qd::frontend
