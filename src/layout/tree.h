// Trees of containers: from declarations to byte offsets and address terms.
//
// A tree is a root with containers and places below it. A container repeats its cell over the
// extents of its axes, in listed order, last fastest; a cell packs its children in order with
// natural alignment; extents are exact and cells are padded only to their own alignment. A place
// is one number. Everything is 64-bit.
//
// Cost: linear in the nodes of the tree.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/ir.h"

namespace qd::layout {

struct Node {
    int parent = -1;                     // an earlier node; -1 for the root, which is node 0
    type::Prim prim = type::Prim::none;  // of a place; none for containers
    std::vector<int> axes;               // of a container, in memory order
    std::vector<int64_t> extents;        // parallel to axes
    bool packed = false;                 // a place whose numbers lie in words elsewhere: no bytes

    // Filled by lay_out.
    int64_t cells = 1;       // of one instance of this container
    int64_t cell_bytes = 0;  // of a place: of the number
    int64_t align = 1;
    int64_t offset = 0;  // in the parent's cell
    int64_t bytes() const { return cells * cell_bytes; }
};

// Offsets and sizes of all nodes; throws support::Error if a size does not fit 63 bits.
void lay_out(std::span<Node> nodes);

// What a field needs beside its places (one per component, in component order).
struct FieldSpec {
    std::string name;
    ir::Type elem;
    std::vector<int> places;
    std::vector<int> order;       // physical axis p holds canonical axis order[p]; empty: identity
    std::vector<int64_t> offset;  // per canonical axis; empty: zeros
    uint64_t alias_group = 0;
    uint64_t sparse = 0;
    bool packed = false;
};

// Address terms of a field; `base` gets the bytes from the tree's start to component 0 of the first
// cell. Throws support::Error if the components lie in different shapes.
ir::Field make_field(std::span<const Node> nodes, const FieldSpec& spec, int64_t& base);

// One component of a field as a scalar field of its own, sharing the storage.
ir::Field component_field(const ir::Field& field, int component);

// The distance of neighbours along an axis, if the axis is one arithmetic progression.
bool axis_stride(const ir::Field& field, int axis, int64_t& stride);

// Bytes from the base to a component of an element; the indices are canonical, offsets included.
int64_t address(const ir::Field& field, const int64_t* indices, int component = 0);

}  // namespace qd::layout
