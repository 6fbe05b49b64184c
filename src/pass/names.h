// The names that disable_pass takes: passes that a module can do without.

#pragma once

#include <algorithm>
#include <string_view>

namespace qd::pass {

inline constexpr std::string_view kOptionalPasses[] = {
    "unroll",        "inline_calls", "cse",      "own_elements", "store_forward",  "licm",
    "serial_reduce", "contract",     "simplify", "dce",          "private_fields", "reduce",
};

constexpr bool is_optional(std::string_view pass) {
    return std::ranges::find(kOptionalPasses, pass) != std::end(kOptionalPasses);
}

}  // namespace qd::pass
