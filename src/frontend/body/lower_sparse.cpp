// Sparse trees: loops over active cells, and activation in front of writes.
//
// Both call kernel code of ours, python/quadrants/_library/sparse.py, which works on the hidden
// fields of the tree (python/quadrants/lang/_data/activity.py). A task over active cells runs over
// a list that the task before has made; other loops ask every element.

#include <algorithm>
#include <utility>

#include "cpython/names.h"
#include "frontend/body/body.h"
#include "frontend/calls/calls.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

constexpr const char *kLibrary = "quadrants._library.sparse",
                     *kPacked = "quadrants._library.packed",
                     *kTriplets = "quadrants._library.triplets";

Ref integer(long n) { return Ref::steal(PyLong_FromLong(n)); }
Ref truth_of(bool b) { return Ref::borrow(b ? Py_True : Py_False); }

long number_of(const Val& v) {
    const long n = PyLong_AsLong(v.get());
    if (n == -1 && PyErr_Occurred()) throw PyError{};
    return n;
}

}  // namespace

void touch(ir::Value* place) {
    const ir::Inst* def = place->def;
    while (def && def->op == ir::Op::comp_place) def = def->operand(0)->def;
    if (def && def->op == ir::Op::field_place && def->field()->sparse) current()->body->touch(*def);
}

Val Body::library(const char* from, const char* name, std::vector<Val> given) {
    const Ref module = Ref::steal(PyImport_ImportModule(from));
    const Ref function = Ref::steal(PyObject_GetAttrString(module.get(), name));
    TracedArgs args;
    for (Val& v : given) {
        args.positional.push_back(std::move(v.obj));
        args.provs.push_back(v.prov);
    }
    return call_own_func(function.get(), args);
}

// What a field that the kernel uses knows of itself.
Val Body::field_member(FieldObject* f, const char* name) {
    PyObject* o = reinterpret_cast<PyObject*>(f);
    const auto place = unit.field_places.find(o);
    if (place == unit.field_places.end()) return {Ref::steal(PyObject_GetAttrString(o, name))};
    return member({Ref::borrow(o), place->second}, interned(name).get());
}

// How the elements of a field lie in sparse cells; one for each node that holds components.
std::vector<Val> Body::cells_of(FieldObject* f) {
    const Val all = field_member(f, "_cells");
    std::vector<Val> found;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all.get()); ++k)
        found.push_back(element(all, integer(k).get()));
    return found;
}

bool Body::is_of(std::string_view module_name) const {
    if (!PyFunction_Check(function.get())) return false;
    PyObject* module = PyFunction_GET_MODULE(function.get());
    return module && PyUnicode_Check(module) && text(module) == module_name;
}
bool Body::is_own_library() const { return is_of(kLibrary); }

// What functions of the library write besides numbers of the user: bits, lengths and counters of
// cells, and words of quantised numbers, in loops until no other thread has come in between.
void Body::mark_upkeep() {
    const std::string_view name = source.name;
    const bool of_cells =
        (name == "set_active" || name == "count_more" || name == "mark_above") && is_own_library();
    const bool of_words = (name == "store" || name == "update") && is_of(kPacked);
    if (!of_cells && !of_words) return;
    ir::walk(*low.b.function->body, [](ir::Inst& i) {
        const ir::Effect e = i.effect();
        if (e == ir::Effect::write || e == ir::Effect::atomic || i.is_loop())
            i.flags |= ir::kUpkeep;
    });
}

// An element that is about to be written. `place` is its field_place.
void Body::touch(const ir::Inst& place) {
    const auto known = low.kernel->special_fields.find(place.field());
    if (is_own_library() || known == low.kernel->special_fields.end()) return;
    std::vector<ir::Value*> index;
    for (int k = 0; k < place.operand_count; ++k) index.push_back(place.operand(k));
    touch(reinterpret_cast<FieldObject*>(known->second), index);
}

void Body::touch(FieldObject* f, std::span<ir::Value* const> index) {
    for (Val& c : cells_of(f)) {
        if (is_visited(c, index)) continue;
        library(kLibrary, "touch",
                {std::move(c),
                 {index_tensor({index.begin(), index.end()})},
                 {truth_of(low.kernel->options.check_indices())}});
    }
}

void touch_gradient(FieldObject* f, std::span<ir::Value* const> index) {
    Body& body = *current()->body;
    const int derivative = body.low.kernel->out->derivative;
    if (body.is_own_library() || derivative > 2) return;
    PyObject* name = derivative == 1 ? names().grad_ : names().dual_;
    PyObject* o = reinterpret_cast<PyObject*>(f);
    const Ref companion = Ref::steal(PyObject_GetAttr(o, name));
    if (!is_field(companion.get())) return;
    auto* held = reinterpret_cast<FieldObject*>(companion.get());
    if (!held->field || !held->field->sparse) return;
    const auto place = body.unit.field_places.find(o);
    if (place != body.unit.field_places.end())
        guard_value(body.unit, companion.get(), body.unit.attribute(place->second, name));
    const ir::Inst* last = body.low.b.region->last;
    body.touch(held, index);
    for (ir::Inst* i = last ? last->next : body.low.b.region->first; i; i = i->next)
        if (i->op == ir::Op::call) i->flags |= ir::kForGradient;
}

// Whether to evaluate it twice is to evaluate it once.
static bool is_plain_path(const Node* n) {
    for (; n->kind == NodeKind::Attribute; n = n->a) {
    }
    return n->kind == NodeKind::Name;
}

std::optional<Val> Body::list_call(const Node* n) {
    const std::string name = text(n->a->name);
    if (name != "append" && name != "length" && name != "deactivate") return {};
    const Node* inner = n->a->a;
    const bool indexed = inner->kind == NodeKind::Subscript;
    const Node* subject = indexed ? inner->a : inner;
    if (!is_plain_path(subject)) return {};
    const Val f = expr(subject);
    PyObject* o = is_expr(f.get()) ? nullptr : unwrap(f.get());
    if (!o || (!is_field(o) && !is_struct_field(o))) return {};
    const Val node = member({Ref::borrow(o), f.prov}, interned("_list_node").get());
    if (node.get() == Py_None) return {};
    std::vector<Val> args = {node, {indexed ? index(inner->b) : Ref::steal(PyTuple_New(0))}};
    CallArgs given;
    arguments(n, given, nullptr, nullptr);
    for (Ref& v : given.positional) args.push_back({std::move(v)});
    low.node = n;
    return library(kLibrary, name.c_str(), std::move(args));
}

static bool is_triplets(PyObject* o) {
    static PyObject* const mark = interned("_qd_triplets").release();
    return !is_expr(o) && _PyType_Lookup(Py_TYPE(o), mark);
}

static void refuse_triplets() {
    raise(Kind::syntax, "a sparse matrix builder takes `A[i, j] += v` and `-= v` alone");
}

void Body::refuse_items(PyObject* base) {
    if (is_triplets(base)) refuse_triplets();
}

bool Body::add_triplet(const Node* n, ir::Op op) {
    const Node* subject = n->a->a;
    if (!is_plain_path(subject)) return false;
    const Val builder = expr(subject);
    if (!is_triplets(builder.get())) return false;
    if (op != ir::Op::add && op != ir::Op::sub) refuse_triplets();
    const std::vector<Ref> at = index_list(index(n->a->b).get());
    if (at.size() != 2)
        raise(Kind::index, "a sparse matrix has 2 axes, got " + std::to_string(at.size()) +
                               (at.size() == 1 ? " index" : " indices"));
    Ref v = value(n->b);
    low.node = n;
    // No gradients flow through it, and the kernel itself has added it.
    if (low.kernel->out->derivative == 1) return true;
    library(kTriplets, "insert",
            {builder,
             {make_value(index_value(at[0].get(), 0))},
             {make_value(index_value(at[1].get(), 1))},
             {std::move(v)},
             {truth_of(op == ir::Op::sub)}});
    return true;
}

// Whether what a loop visits may be deactivated by its body: by name, or in a func of the user.
static bool may_deactivate(std::span<Node* const> nodes);
static bool may_deactivate(const Node* n) {
    if (!n) return false;
    if (n->kind == NodeKind::Call) {
        static constexpr std::string_view kHarmless[] = {"range", "int", "float", "bool",
                                                         "abs",   "min", "max",   "len"};
        const Node* root = n->a;
        while (root->kind == NodeKind::Attribute) root = root->a;
        const std::string first = root->kind == NodeKind::Name ? text(root->name) : "";
        const bool is_op = n->a->kind == NodeKind::Attribute
                               ? first == "qd" && text(n->a->name) != "deactivate"
                               : std::ranges::find(kHarmless, first) != std::end(kHarmless);
        if (!is_op) return true;
    }
    return may_deactivate(n->a) || may_deactivate(n->b) || may_deactivate(n->c) ||
           may_deactivate(n->list) || may_deactivate(n->list2);
}
static bool may_deactivate(std::span<Node* const> nodes) {
    return std::ranges::any_of(nodes, [](const Node* n) { return may_deactivate(n); });
}

void Body::visit(const Node* loop, const Val& cells, std::vector<ir::Value*> index) {
    if (may_deactivate(loop->list)) index.clear();
    visited.push_back({cells, std::move(index)});
}

// Whether a loop around visits the cell that such an element lies in, at this very element.
bool Body::is_visited(const Val& cells, std::span<ir::Value* const> index) {
    const auto key = [](const Val& c) {
        return Ref::steal(PyObject_GetAttrString(c.get(), "key"));
    };
    for (const Visited& v : visited) {
        if (!std::ranges::equal(v.index, index)) continue;
        const int same = PyObject_RichCompareBool(key(v.cells).get(), key(cells).get(), Py_EQ);
        if (same < 0) throw PyError{};
        if (same) return true;
    }
    return false;
}

// A loop over the elements of a field, or the cells of a node, that lie in active cells.
Flow Body::sparse_loop(const Node* n, const Val& cells, bool grouped) {
    const auto attribute_of = [&](const char* name) { return member(cells, interned(name).get()); };
    const Val ratios = attribute_of("ratio"), at = attribute_of("at"),
              shape = attribute_of("shape"), offset = attribute_of("offset");
    const Py_ssize_t rank = PyTuple_GET_SIZE(shape.get());
    const auto entry = [&](const Val& tuple, Py_ssize_t k) {
        return number_of(element(tuple, integer(k).get()));
    };
    const auto constant = [&](long v) { return low.b.int_const(ir::Prim::i32, v); };
    check_loop_rank(n, static_cast<size_t>(rank), grouped);
    Counted loop{Counted::Over::data, {}, {}, grouped};
    loop.cells = &cells;
    const bool task = unit.is_kernel && low.runtime_depth == 0 && low.parallel_depth == 0;
    if (!task) {
        for (Py_ssize_t k = 0; k < rank; ++k) {
            const long first = entry(offset, k);
            loop.bounds.push_back({constant(first), constant(first + entry(shape, k))});
            loop.order.push_back(static_cast<int>(k));
        }
        loop.is_guarded = true;
        return counted(n, loop);
    }
    const Val last = attribute_of("last");
    const Val lists = member(last, interned("lists").get());
    // Gradients are of tasks, of which those that list cells would be none.
    const bool in_parallel = !low.kernel->out->derivative && targets_have_blocks();
    const char* collect = in_parallel ? "collect_in_parallel" : "collect";
    const Val count = library(kLibrary, collect, {last});
    loop.bounds.push_back({constant(0), low.b.cast(to_value(count.get()), ir::Prim::i32)});
    loop.order.push_back(0);
    struct Axis {
        long ratio, first;
        int dim = -1;  // of the loop, if a cell has several elements along it
        Ref list;      // of the cells' indices; null: one cell has them all
    };
    std::vector<Axis> axes;
    for (Py_ssize_t k = 0; k < rank; ++k) {
        Axis a{entry(ratios, k), entry(offset, k), -1, {}};
        if (a.ratio > 1) {
            a.dim = static_cast<int>(loop.bounds.size());
            loop.bounds.push_back({constant(0), constant(a.ratio)});
            loop.order.push_back(a.dim);
        }
        if (const long cell_axis = entry(at, k); cell_axis >= 0)
            a.list = element(lists, integer(cell_axis).get()).obj;
        axes.push_back(std::move(a));
    }
    loop.indices = [&](std::span<ir::Value* const> dims) {
        std::vector<ir::Value*> out;
        for (const Axis& a : axes) {
            ir::Value* v = constant(a.first);
            if (a.list) {
                const Ref listed = make_value(dims[0]);
                const Ref cell = subscript(a.list.get(), listed.get());
                ir::Value* first = low.b.op(ir::Op::mul, {to_value(cell.get()), constant(a.ratio)});
                v = low.b.op(ir::Op::add, {first, v});
            }
            if (a.dim >= 0) v = low.b.op(ir::Op::add, {v, dims[static_cast<size_t>(a.dim)]});
            out.push_back(v);
        }
        return out;
    };
    return counted(n, loop);
}

}  // namespace qd::frontend
