// What is kept back serves the passes and the code generator, which walk what the front end made,
// with smaller frames.

#include "frontend/source/stack.h"

#include <cstdint>

#include "frontend/frontend.h"
#include "support/stack.h"

namespace qd::frontend {

bool is_stack_short() {
    constexpr size_t kReserve = 96 << 10;
    return !support::has_stack(kReserve);
}

void need_stack() {
    if (is_stack_short())
        raise(Kind::compilation, "nested too deeply for the stack of this thread",
              "split it, or give the thread a larger stack with threading.stack_size()");
}

}  // namespace qd::frontend
