// Writing artefacts: header, tasks, formats, strings and object file as abi::Artefact says.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/llvm/codegen.h"

namespace qd::compiler {

[[nodiscard]] std::vector<uint8_t> write_artefact(const codegen::Prepared& prepared, int tier,
                                                  std::span<const uint8_t> object);

}  // namespace qd::compiler
