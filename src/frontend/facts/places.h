// Looking at a place again: the steps that walking provenance and walking stored paths share.
//
// Null where nothing is there any more; no exception is left set.

#pragma once

#include <span>

#include "frontend/frontend.h"

namespace qd::frontend {

Ref global_of(PyObject* function, PyObject* name);  // a global, else a builtin
Ref cell_of(PyObject* function, PyObject* name);    // a free variable
Ref module_of(PyObject* name);
Ref display_of(std::span<const Ref> items, bool is_tuple);
// Of what a wrapper holds: an attribute, or else an item.
Ref part_of(PyObject* base, PyObject* key, bool attribute);

}  // namespace qd::frontend
