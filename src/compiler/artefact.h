// Writing artefacts: header, tasks, formats, strings and object files as abi::Artefact says.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/llvm/codegen.h"

namespace qd::compiler {

// What quick code carries so that it can be improved later.
struct Upgrade {
    uint32_t optimise_us;  // estimate
    std::span<const uint8_t> ir;
};

// With an upgrade it is tier 0's artefact, without one tier 1's.
[[nodiscard]] std::vector<uint8_t> write_artefact(const codegen::Prepared& prepared,
                                                  const codegen::Emitted& emitted,
                                                  const Upgrade* upgrade);

}  // namespace qd::compiler
