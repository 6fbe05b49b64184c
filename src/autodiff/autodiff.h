// Derivatives of kernels, as changes to their IR: what the launcher does to a module before it is
// hashed, interpreted or compiled.
//
// Reverse mode: an iteration of a parallel loop first does what it did (all but its stores and
// additions to storage that has gradients), and keeps what it will need again; then it goes the
// same way backwards and adds to the gradients of what it read. Forward mode computes a tangent
// beside each value.

#pragma once

#include <string>
#include <vector>

#include "ir/ir.h"
#include "pass/pass.h"

namespace qd::autodiff {

enum class Mode : uint8_t { none, reverse, forward, validation };

struct Request {
    Mode mode = Mode::none;
    // Of Module::fields[k]: the number of the field that holds its gradients (reverse), tangents
    // (forward) or marks (validation); -1: it has none. Arrays have gradients if Param::needs_grad.
    std::vector<int32_t> companions;
    bool inner_loops = false;      // whether loops with run-time bounds may stand in loops
    bool general_control = false;  // whether while, break, continue and early returns may be
    int64_t most_records = 0;      // of a loop, per iteration of what is around it; 0: no limit
};

// Changes the kernel of a module that owns all its functions. The result has no calls, and is no
// less general than the kernel: it goes through the pipeline like any other. Returns why not, if
// it can't be done; then the module is of no use. O(instructions of the expanded kernel).
pass::Refusal differentiate(ir::Module& m, const Request& request);

}  // namespace qd::autodiff
