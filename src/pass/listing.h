// The dump that people and scripts read: chapter 50 says what its lines look like. Nothing reads it
// back; ir::print writes what our parser does.

#pragma once

#include <span>
#include <string>

#include "pass/pass.h"

namespace qd::pass {

// Before offload (no tasks): the kernel and its functions. After it: the tasks, and functions.
// `located`: behind each statement stands where it is in the source, for who has that text:
//   <indentation>\x01<line> <column> <last line> <column> <function> <file>
std::string listing(const ir::Module& module, std::span<const Task> tasks, bool located = false);
// Of them only that function, or the task that it belongs to.
std::string listing(const ir::Module& module, std::span<const Task> tasks, const ir::Function& f);

}  // namespace qd::pass
