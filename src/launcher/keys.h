// Names in the caches: what must be equal for recipes and code to be looked at at all.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/kernel.h"

namespace qd::python {

std::vector<uint8_t> hash_of(const std::vector<uint8_t>& data);
// Everything that must be equal for code to be reused at all, as a hash.
const std::vector<uint8_t>& environment();
// Of the folder of a kernel's recipes: all that a process knows before it reads one. Only narrows
// the search. "": it has none.
std::string kernel_key(KernelObject& k, std::span<PyObject* const> args);
// Of the file of this code, made by this build for this CPU.
std::string code_name(std::span<const uint8_t> code_hash);
// What a kernel, func or method runs; null if it is no Python function.
Ref plain_function(PyObject* o);

}  // namespace qd::python
