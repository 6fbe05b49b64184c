// Names of recipes in the cache: what must be equal for them to be looked at at all.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/kernel.h"

namespace qd::launcher {

// Of the folder of a kernel's recipes: all that a process knows before it reads one. Only narrows
// the search. "": it has none.
std::string kernel_key(KernelObject& k, std::span<PyObject* const> args);
// What a kernel, func or method runs; null if it is no Python function.
Ref plain_function(PyObject* o);

}  // namespace qd::launcher
