// What Python code does to elements of fields and to whole containers (fill, to_numpy ...). It
// needs no compiling, but programs count it as small kernels: each has its file in the cache, which
// holds its IR, and print_accessor_ir shows it.

#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "ir/ir.h"

namespace qd::data {

struct FieldPlace {
    const ir::Field& field;
    uint32_t tree;
    int64_t base;  // of the first element in the tree's memory
};

// The first read or write of a scalar field, or of a component, in this session.
void note_access(const FieldPlace& place, bool writes);
// The first conversion of its kind in this session: of a field, or of all containers of a kind.
void note_conversion(const FieldPlace& place, const std::string& operation);
void note_conversion(const std::string& kind, const std::string& operation);

}  // namespace qd::data
