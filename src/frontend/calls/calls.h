// Calls of funcs: what bodies ask for.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/facts/facts.h"

namespace qd::frontend {

Val call_definition(PyObject* definition, const TracedArgs& args);
Val call_own_func(PyObject* func, TracedArgs args);  // of this package, called by native code
// For an ndarray that no argument of the kernel leads to, as an argument of a real function: raises
// if the parameter, found by name or position, takes arrays or templates.
void refuse_array_of_real_func(PyObject* definition, size_t position, PyObject* name,
                               PyObject* array);

std::shared_ptr<void> functions_owner();
void use_field(Unit& unit, PyObject* field);
void finish_unit(Unit& kernel_unit);  // callees, fields and guards into the module

}  // namespace qd::frontend
