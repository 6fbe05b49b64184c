// What the pure ops compute, on numbers: the definition that constant folding and the interpreter
// run and that code generation reproduces bit for bit.
//
// Bits of a scalar are zero-extended to 64. Arithmetic on f32 and f64 treats subnormal operands and
// results as zeros of their sign (the mode that kernels run in); f16 is computed in f32 and rounded
// once per op. Integers wrap; division by zero gives 0 and never traps.

#pragma once

#include <cstdint>
#include <span>

#include "ir/ir.h"

namespace qd::ir {

struct Scalar {
    Prim prim = Prim::none;
    uint64_t bits = 0;
};

// Of an element-wise op; the operands are one component each. `fused`: whether the target has fused
// multiply-add, which elementary functions then use.
uint64_t fold(Op op, Prim result, std::span<const Scalar> operands, bool fused);

uint64_t fold_cast(Prim from, Prim to, uint64_t bits);

}  // namespace qd::ir
