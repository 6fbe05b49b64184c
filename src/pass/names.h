// Passes that a module can do without: what disable_pass takes, which options switch them, and what
// docs/passes.md says of them.

#pragma once

#include <algorithm>
#include <string_view>

namespace qd::pass {

struct OptionalPass {
    const char *name, *switches, *documentation;
};

inline constexpr OptionalPass kOptionalPasses[] = {
    {"unroll", "advanced_optimization", "short loops become straight code"},
    {"simplify", "advanced_optimization (repeats), constant_folding, fast_math, flatten_if",
     "constants, identities such as `x * 1`, branches that constants decide"},
    {"inline_calls", "advanced_optimization",
     "calls of tiny funcs, and of small ones that are called once, are expanded"},
    {"cse", "advanced_optimization, opt_level", "what was computed already is not computed again"},
    {"own_elements", "advanced_optimization",
     "atomics on the element that belongs to the iteration become a load and a store"},
    {"store_forward", "advanced_optimization, opt_level, cfg_optimization",
     "a load of what was just stored or loaded takes the value; stores that are overwritten go"},
    {"licm", "advanced_optimization, move_loop_invariant_outside_if",
     "what a loop does not change is computed once, before it"},
    {"serial_reduce", "advanced_optimization, fast_math",
     "sums of floats in serial loops add up in lanes"},
    {"contract", "fast_math", "`a * b + c` becomes one operation where the CPU has it"},
    {"dce", "", "what nobody uses goes"},
    {"reduce", "make_thread_local",
     "atomics of a parallel loop on one place become partial results of each chunk"},
    {"private_fields", "make_thread_local",
     "fields that a parallel loop only adds to get a copy for each thread"},
};

constexpr bool is_optional(std::string_view pass) {
    return std::ranges::find(kOptionalPasses, pass, &OptionalPass::name) !=
           std::end(kOptionalPasses);
}

}  // namespace qd::pass
