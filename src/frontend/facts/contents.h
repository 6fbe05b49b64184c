// Constants and containers of them as text that another process can compare with its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cpython/cpython.h"

namespace qd::frontend {

constexpr size_t kMostContents = 8192;  // bytes of text that are kept as they are

bool has_type_named(PyObject* o, const char* name);
bool is_dtype(PyObject* o);
bool shows_array(PyObject* o);        // whether its text holds an array's of NumPy
std::string class_id(PyObject* cls);  // module and name
// Those of its class, and the built-in class that it is derived from.
cpython::Ref type_id(PyObject* o);

// A constant as a plain Python value that another process can read back and compare. A member of an
// enumeration is named with its class, since members of others may have its value, and by what it
// is beside: IntEnum may have become Enum.
cpython::Ref normalised(PyObject* o);

// Null if not all of it are constants, or if it is longer than `most`. A long text is told by its
// hash.
cpython::Ref contents_of(PyObject* o, size_t most = SIZE_MAX);

// A text that only compares: a long one by how it begins, which misses show, and its hash. A
// dataclass of dataclasses means tens of kilobytes, and each func that takes one would repeat them.
cpython::Ref abridged(std::string_view s);

// Of two that are equal to Python; true as well if they are more than constants and containers.
bool have_same_contents(PyObject* a, PyObject* b);

}  // namespace qd::frontend
