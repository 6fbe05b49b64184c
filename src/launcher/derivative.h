// Kernels' derivatives, made from their IR.

#pragma once

#include <memory>

#include "frontend/specialise.h"
#include "ir/ir.h"

namespace qd::launcher {

// The module that computes what is wanted of the kernel (LoweredKernel::derivative), with the same
// parameters, fields and results. Null with an exception set: it can't be done.
std::unique_ptr<ir::Module> derive(const frontend::LoweredKernel& kernel);

}  // namespace qd::launcher
