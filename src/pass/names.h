// The rows of passes.inc without their functions, for rooms that do not run passes.

#pragma once

namespace qd::pass {

struct PassRow {
    const char* name;
    bool function;  // a PASS
    bool optional;  // disable_pass may name it
    const char *switches, *documentation;
};

namespace leave {
inline constexpr bool needed = false, optional = true;
}

inline constexpr PassRow kPasses[] = {
#define PASS(name, kind, ...) {#name, true, leave::kind, __VA_ARGS__},
#define PART(name, kind, ...) {#name, false, leave::kind, __VA_ARGS__},
#include "pass/passes.inc"
};

}  // namespace qd::pass
