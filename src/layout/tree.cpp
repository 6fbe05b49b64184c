// See tree.h.

#include "layout/tree.h"

#include <algorithm>

#include "support/error.h"

namespace qd::layout {
namespace {

int64_t multiply(int64_t a, int64_t b) {
    int64_t out;
    if (__builtin_mul_overflow(a, b, &out) || out > (int64_t(1) << 62))
        throw support::Error("a field tree is larger than the address space");
    return out;
}

int64_t align_up(int64_t value, int64_t align) {
    if (value > (int64_t(1) << 62))
        throw support::Error("a field tree is larger than the address space");
    return (value + align - 1) / align * align;
}

// One subdivision of an axis by a container on the way to a place.
struct Split {
    int axis;  // of the tree
    int64_t extent, stride;
};

// From the root to the place: containers' splits, outermost first, and the place's fixed offset.
std::vector<Split> path_to(std::span<const Node> nodes, int place, int64_t& base) {
    std::vector<int> path;
    for (int n = place; n > 0; n = nodes[static_cast<size_t>(n)].parent) path.push_back(n);
    std::reverse(path.begin(), path.end());
    std::vector<Split> splits;
    base = 0;
    for (int n : path) {
        const Node& node = nodes[static_cast<size_t>(n)];
        base += node.offset;
        const size_t first = splits.size();
        for (size_t k = 0; k < node.axes.size(); ++k)
            splits.push_back({node.axes[k], node.extents[k], 0});
        int64_t stride = node.cell_bytes;
        for (size_t k = node.axes.size(); k-- > 0;) {
            splits[first + k].stride = stride;
            stride *= node.extents[k];
        }
    }
    return splits;
}

// Axes of the tree become index positions by rank.
std::vector<int> axes_of(const std::vector<Split>& splits) {
    std::vector<int> axes;
    for (const Split& s : splits) axes.push_back(s.axis);
    std::sort(axes.begin(), axes.end());
    axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
    return axes;
}

// Where the instances of a place lie: its start, and the terms of the canonical axes.
struct Cells {
    int64_t base = 0;
    std::vector<int64_t> shape;
    std::vector<ir::Field::Term> terms;
};

Cells cells_of(std::span<const Node> nodes, int place, const std::vector<int>& order) {
    Cells c;
    const std::vector<Split> splits = path_to(nodes, place, c.base);
    const std::vector<int> axes = axes_of(splits);
    c.shape.assign(axes.size(), 1);
    std::vector<int64_t> inner(axes.size(), 1);  // extents of deeper subdivisions of that axis
    for (size_t k = splits.size(); k-- > 0;) {
        const auto position = static_cast<size_t>(
            std::lower_bound(axes.begin(), axes.end(), splits[k].axis) - axes.begin());
        const int canonical = order.empty() ? static_cast<int>(position) : order[position];
        if (splits[k].extent > 1)  // a subdivision into one part adds nothing to any address
            c.terms.push_back({canonical, inner[position], splits[k].extent, splits[k].stride});
        inner[position] = multiply(inner[position], splits[k].extent);
        c.shape[static_cast<size_t>(canonical)] = inner[position];
    }
    std::reverse(c.terms.begin(), c.terms.end());
    for (ir::Field::Term& t : c.terms)  // the outermost part needs no remainder
        if (t.div * t.mod == c.shape[static_cast<size_t>(t.axis)]) t.mod = 0;
    return c;
}

}  // namespace

void lay_out(std::span<Node> nodes) {
    for (Node& n : nodes) {
        n.cells = 1;
        for (int64_t e : n.extents) n.cells = multiply(n.cells, e);
        n.cell_bytes = n.packed ? 0 : type::bytes(n.prim);
        n.align = std::max<int64_t>(1, n.cell_bytes);
        n.offset = 0;
    }
    // Nodes from the last to the first: children have larger numbers, so their sizes are final.
    std::vector<std::vector<size_t>> children(nodes.size());
    for (size_t k = 1; k < nodes.size(); ++k)
        children[static_cast<size_t>(nodes[k].parent)].push_back(k);
    for (size_t k = nodes.size(); k-- > 0;) {
        Node& n = nodes[k];
        if (n.prim != type::Prim::none) continue;
        int64_t at = 0;
        for (size_t c : children[k]) {
            at = align_up(at, nodes[c].align);
            nodes[c].offset = at;
            at += multiply(nodes[c].cells, nodes[c].cell_bytes);
            n.align = std::max(n.align, nodes[c].align);
        }
        n.cell_bytes = align_up(at, n.align);
        multiply(n.cells, n.cell_bytes);
    }
}

ir::Field make_field(std::span<const Node> nodes, const FieldSpec& spec, int64_t& base) {
    ir::Field f;
    f.name = spec.name;
    f.elem = spec.elem;
    f.alias_group = spec.alias_group;
    f.sparse = spec.sparse;
    f.packed = spec.packed;
    const Cells first = cells_of(nodes, spec.places.at(0), spec.order);
    base = first.base;
    f.ndim = static_cast<int>(first.shape.size());
    std::copy(first.shape.begin(), first.shape.end(), f.shape);
    f.terms = first.terms;
    for (size_t k = 0; k < spec.offset.size() && k < first.shape.size(); ++k)
        f.offset[k] = spec.offset[k];

    f.component_offsets.push_back(0);
    std::vector<std::vector<ir::Field::Term>> terms{first.terms};
    bool even = true;
    for (size_t c = 1; c < spec.places.size(); ++c) {
        Cells other = cells_of(nodes, spec.places[c], spec.order);
        if (other.shape != first.shape)
            throw support::Error("Members of the following field have different shapes: " +
                                 spec.name);
        f.component_offsets.push_back(other.base - base);
        even &= other.terms == first.terms;
        terms.push_back(std::move(other.terms));
    }
    if (!even) f.uneven_terms = std::move(terms);
    return f;
}

ir::Field component_field(const ir::Field& field, int component) {
    ir::Field f = field;
    f.elem = field.elem.element();
    f.terms = field.terms_of(component);
    f.uneven_terms.clear();
    f.component_offsets = {0};
    f.name += "[" + std::to_string(component) + "]";
    return f;
}

bool axis_stride(const ir::Field& field, int axis, int64_t& stride) {
    const ir::Field::Term* unit = nullptr;
    for (const ir::Field::Term& t : field.terms)
        if (t.axis == axis && t.div == 1) unit = &t;
    stride = unit ? unit->stride : 0;
    for (const ir::Field::Term& t : field.terms) {
        if (t.axis == axis && t.stride != t.div * stride) return false;
    }
    return true;
}

int64_t address(const ir::Field& field, const int64_t* indices, int component) {
    int64_t at = field.component_offsets.at(static_cast<size_t>(component));
    for (const ir::Field::Term& t : field.terms_of(component)) {
        int64_t i = (indices[t.axis] - field.offset[t.axis]) / t.div;
        if (t.mod) i %= t.mod;
        at += i * t.stride;
    }
    return at;
}

}  // namespace qd::layout
