// Code of a module: shared with kernels of equal IR, from the cache, or compiled.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "launcher/kernel.h"

namespace qd::launcher {

std::vector<uint8_t> code_hash_of(const ir::Module& module);
// Of an artefact that has been read. Throws support::Error if it is damaged.
std::shared_ptr<runtime::ImageSlot> slot_of_artefact(const std::vector<uint8_t>& hash,
                                                     std::span<const uint8_t> artefact,
                                                     const std::string& name, int64_t& load_ns);
// From memory, the store or the compiler; `making` is told which, and what it took. Throws PyError,
// support::Error.
std::shared_ptr<runtime::ImageSlot> code_of(PyObject* definition, const ir::Module& module,
                                            const std::vector<uint8_t>& hash, Making& making);

}  // namespace qd::launcher
