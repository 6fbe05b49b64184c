// Parts of an LLVM module: see parts.cpp.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <llvm/IR/Module.h>

#include "codegen/llvm/codegen.h"

namespace qd::codegen {

void let_other_parts_call(llvm::Function& f);
void drop_unused_declarations(llvm::Module& part);

// A module of all functions of a plan as one of each of its parts. Names by Function::id; one that
// is not there was expanded where it was called.
[[nodiscard]] std::vector<std::unique_ptr<llvm::Module>> cut(llvm::Module& whole,
                                                             const Prepared& prepared,
                                                             std::span<const std::string> names);

// Of what is made of a module; `how` says all that decides beside it.
[[nodiscard]] PartKey key_of(const llvm::Module& part, std::string_view how);

// An object file and the bytes of stack that its functions take, by name; 0 if one is missing.
struct MadePart {
    std::vector<uint8_t> object;
    std::unordered_map<std::string, uint64_t> frames;
};
[[nodiscard]] std::vector<uint8_t> write_part(const MadePart& part);
[[nodiscard]] MadePart read_part(std::span<const uint8_t> bytes);  // throws support::Error

}  // namespace qd::codegen
