// Sums of what an adjoint is given. Private to reverse mode.

#pragma once

#include <span>

#include "ir/ir.h"

namespace qd::autodiff {

// The sum of values of one type, the first ones first. `factors`: what several were multiplied with
// (or divided by, or negated) at last is done to their sum instead.
ir::Value* sum_of(ir::Builder& b, std::span<ir::Value* const> values, bool factors);

}  // namespace qd::autodiff
