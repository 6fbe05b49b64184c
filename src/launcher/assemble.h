// From a lowered kernel and its code to a specialisation: what it depends on and how its arguments
// are packed.

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "launcher/kernel.h"

namespace qd::launcher {

// Whether what lies on the way to each leaf and fact is a struct or dataclass as the annotations
// want it: lowering raises if not. Recipes hold no fact of it, or one of the class's name.
bool classes_fit(const std::vector<Parameter>& parameters, PyObject* const* args,
                 const frontend::LoweredKernel& kernel);
// `slot`: null for the interpreter, whose module `kernel` then has. Null: an exception is set.
std::unique_ptr<Specialisation> assemble(KernelObject& k, PyObject* const* args,
                                         const frontend::LoweredKernel& kernel,
                                         std::span<const ir::Param> params,
                                         std::shared_ptr<runtime::ImageSlot> slot,
                                         const std::vector<uint8_t>& code_hash);

}  // namespace qd::launcher
