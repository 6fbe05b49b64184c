// Containers of kernels: lists, tuples, dicts and structs whose leaves are values and variables.

#pragma once

#include <functional>

#include "frontend/frontend.h"

namespace qd::frontend {

Ref map_leaves(PyObject* o,
               const std::function<Ref(PyObject* expr)>& f);  // containers and structs rebuilt
inline bool is_plain_container(PyObject* o) {
    return PyList_CheckExact(o) || PyTuple_CheckExact(o) || PyDict_CheckExact(o);
}
// An index of one of Python's containers, with Python's numbers where constants alone make it.
Ref known_index(PyObject* container, Ref index);       // known_index.cpp
Ref copy_tree(PyObject* o);                            // other containers, the same leaves
bool same_tree(PyObject* a, PyObject* b);              // equal forms, the same leaves
void join_shared_view(PyObject* own, PyObject* view);  // what was done to the view is done to `own`

}  // namespace qd::frontend
