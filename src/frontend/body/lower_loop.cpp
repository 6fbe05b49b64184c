// Loops: unrolled ones over compile-time items; counted ones over ranges, boxes and data.
//
// A counted loop directly in a kernel's body is parallel and becomes a task; every other one is
// serial. All counted loops are one op, `for_`, over one or more dimensions.

#include <algorithm>
#include <cstring>

#include "frontend/body/body.h"
#include "frontend/values/values.h"
#include "support/abi.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

ir::Value* as_i32(Lowering& l, ir::Value* v, bool warn) {
    if (v->type.prim == ir::Prim::i32) return v;
    if (warn && (type::is_float(v->type.prim) || v->type.prim == ir::Prim::u32 ||
                 type::bits(v->type.prim) == 64)) {
        const std::string message = std::string("Casting range_for boundary values from ") +
                                    type::info(v->type.prim).name +
                                    " to i32, which may cause numerical issues";
        l.body->unit.notice({Notice::Category::general, message});
    }
    return l.b.cast(v, ir::Prim::i32);
}

void check_loop_target(const Node* t) {
    if (t->kind != K::Name)
        raise_at(t, Kind::syntax, "Unsupported loop target",
                 "targets are names; assign the index to what is meant in the body");
}

// A bound of a loop: Python integers need no default_ip range check against i64.
ir::Value* bound(Lowering& l, PyObject* o, bool warn) {
    ir::Value* v = to_value(o);
    if (!v->type.is_scalar()) raise(Kind::type, "Loop bounds must be scalars");
    if (!is_expr(o) && ir::is_constant(v) && type::is_int(v->type.prim))
        return l.b.int_const(ir::Prim::i32, ir::constant_int(v));
    return as_i32(l, v, warn);
}

std::vector<int> axes_in_order(size_t count) {
    std::vector<int> order(count);
    for (size_t k = 0; k < count; ++k) order[k] = static_cast<int>(k);
    return order;
}

// As they lie in memory, those with the longest steps first. Tiled fields are visited axis by axis.
std::vector<int> axes_in_order(const ir::Field& f) {
    std::vector<int> order = axes_in_order(static_cast<size_t>(f.ndim));
    int64_t steps[12];
    std::ranges::fill(steps, INT64_MAX);  // an axis of one index
    for (const ir::Field::Term& t : f.terms) {
        if (t.div != 1 || t.mod != 0 || steps[t.axis] != INT64_MAX) return order;
        steps[t.axis] = t.stride;
    }
    std::ranges::stable_sort(order, [&](int a, int b) { return steps[a] > steps[b]; });
    return order;
}
std::vector<int> axes_in_order(int ndim, uint64_t layout) {
    std::vector<int> order = axes_in_order(static_cast<size_t>(ndim));
    for (int level = 0; layout && level < ndim; ++level)
        order[static_cast<size_t>(level)] = static_cast<int>(layout >> (4 * level) & 15);
    return order;
}

// The names that a loop gives to its indices, none twice.
std::vector<const Node*> names_of(const Node* target) {
    std::vector<const Node*> names;
    if (target->kind == K::Name)
        names = {target};
    else if (target->kind == K::Tuple)
        names.assign(target->list.begin(), target->list.end());
    else
        check_loop_target(target);
    for (size_t k = 0; k < names.size(); ++k) {
        check_loop_target(names[k]);
        for (size_t j = 0; j < k; ++j)
            if (names[j]->name == names[k]->name && text(names[k]->name) != "_")
                raise_at(target, Kind::syntax, "Recreating variables is not allowed",
                         "the loop has two targets of one name");
    }
    return names;
}

// Whether a `for` that is not unrolled surrounds this place, in this body or in one that calls it.
bool inside_a_for(const Lowering& innermost) {
    for (const Lowering* l = &innermost; l; l = l->caller)
        for (const LoopFrame& f : l->body->loops)
            if (f.kind == LoopFrame::Kind::runtime || f.kind == LoopFrame::Kind::parallel)
                return true;
    return false;
}

}  // namespace

// Whether the target's threads work in blocks (asked rarely).
bool targets_have_blocks() {
    const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang.simt._target"));
    const Ref answer = Ref::steal(PyObject_CallMethod(module.get(), "has_blocks", nullptr));
    return answer.get() == Py_True;
}

Flow Body::for_stmt(const Node* n) {
    if (!n->list2.empty())
        raise(Kind::syntax, "'else' clause for 'for' not supported in Quadrants kernels");
    const Node* over = n->b;
    if (over->kind == K::IfExp) {
        if (!is_static_call(over->a))
            raise(Kind::syntax,
                  "Using non static inlined if statement as for-loop iterable is not currently "
                  "supported.");
        over = static_truth(over->a) ? over->b : over->c;
        low.node = n;
    }
    if (over->kind == K::Call && over->a->kind != K::Call) {
        std::string_view op;
        Val callee = expr(over->a);
        op = operation_of(callee.get());
        low.node = n;
        if (op == "static") {
            if (over->list.size() == 1 && is_static_call(over->list[0]))
                raise(Kind::syntax, "'qd.static' cannot be nested");
            Val items = static_value(over);
            low.node = n;
            return unrolled(n, items);
        }
        if (callee.get() == reinterpret_cast<PyObject*>(&PyRange_Type)) return range_loop(n, over);
        if (op == "ndrange") return ndrange_loop(n, over, false);
        if (op == "grouped") {
            if (over->list.size() != 1) raise(Kind::type, "qd.grouped takes one argument");
            const Node* inner = over->list[0];
            if (inner->kind == K::Call) {
                const std::string_view inner_op = operation_of(expr(inner->a).get());
                low.node = n;
                if (inner_op == "ndrange") return ndrange_loop(n, inner, true);
                if (inner_op == "static" || inner_op == "grouped")
                    raise(Kind::syntax, "'qd.grouped' cannot contain 'qd.static' or 'qd.grouped'");
            }
            Val data = expr(inner);
            low.node = n;
            return data_loop(n, data, true);
        }
    }
    Val data = expr(over);
    low.node = n;
    return data_loop(n, data, false);
}

// --- unrolled ----------------------------------------------------------------------------------

Flow Body::unrolled(const Node* n, const Val& given) {
    const Val over = is_expr(given.get()) ? given : iterable(given);
    Ref it = Ref::steal(PyObject_GetIter(over.get()));
    loops.push_back({LoopFrame::Kind::unrolled});
    Flow flow = Flow::normal;
    Py_ssize_t turn = 0;
    const int limit = low.kernel->options.unrolling_limit;
    while (Ref item = next_item(over, it.get())) {
        if (limit > 0 && turn == limit) {
            const std::string message = "You are unrolling more than " + std::to_string(limit) +
                                        " iterations, so the compile time may be extremely long.";
            locate(source, const_cast<Node&>(*n));
            unit.notice({Notice::Category::syntax, message, source.file->name,
                         static_cast<uint32_t>(n->line)});
        }
        low.node = n;
        check_end(over.get(), turn);
        Scope scope(*this);
        Val v = unit_item(over, std::move(item), turn++);
        bind_static_target(n->a, v);
        const Flow f = block(n->list);
        if (f == Flow::static_break) break;
        if (f == Flow::returned || f == Flow::ended) {
            flow = f;
            break;
        }
    }
    loops.pop_back();
    if (PyErr_Occurred()) throw PyError{};
    return flow;
}

// --- counted -----------------------------------------------------------------------------------

Flow Body::range_loop(const Node* n, const Node* call) {
    if (!call->list2.empty()) raise(Kind::syntax, "Range does not take keyword arguments");
    CallArgs args;
    arguments(call, args, nullptr, nullptr);
    low.node = n;
    const size_t count = args.positional.size();
    if (count != 1 && count != 2)
        raise(Kind::syntax, "Range should have 1 or 2 arguments, found " + std::to_string(count));
    if (n->a->kind != K::Tuple) check_loop_target(n->a);
    if (n->a->kind != K::Name)
        raise(Kind::syntax,
              "Range for should have 1 loop target, found " + std::to_string(n->a->list.size()));
    Bounds b;
    b.begin =
        count == 2 ? bound(low, args.positional[0].get(), true) : low.b.int_const(ir::Prim::i32, 0);
    b.end = bound(low, args.positional[count - 1].get(), true);
    return counted(n, {Counted::Over::range, {b}, {0}});
}

// NumPy's and torch's arrays without axes are the number that they hold.
static Ref held_number(PyObject* o) {
    if (is_expr(o) || !is_external_array(o)) return Ref::borrow(o);
    const Ref ndim = Ref::steal(PyObject_GetAttrString(o, "ndim"));
    if (static_int(ndim.get()) != 0) return Ref::borrow(o);
    Ref item = Ref::steal(PyObject_CallMethod(o, "item", nullptr));
    return PyBool_Check(item.get()) ? Ref::steal(PyNumber_Long(item.get())) : item;
}

Flow Body::ndrange_loop(const Node* n, const Node* call, bool grouped) {
    CallArgs args;
    arguments(call, args, nullptr, nullptr);
    low.node = n;
    std::vector<Bounds> bounds;
    const auto need_int = [](ir::Value* v) {
        if (!v->type.is_scalar() || type::is_float(v->type.prim))
            raise(Kind::type,
                  "Every argument of ndrange should be an integer scalar or a tuple/list of (int, "
                  "int)");
        return v;
    };
    const auto number = [&](PyObject* given) {
        const Ref held = held_number(given);
        PyObject* o = held.get();
        if (!is_expr(o) && PyFloat_Check(o))
            raise(Kind::type,
                  "Every argument of ndrange should be an integer scalar or a tuple/list of (int, "
                  "int)");
        need_int(to_value(o));
        return bound(low, o, false);
    };
    for (const Ref& a : args.positional) {
        const Ref held = held_number(a.get());
        PyObject* o = held.get();
        const bool tensor = is_expr(o) && type_of(o).is_tensor();
        const bool sequence = !is_expr(o) && (PyTuple_Check(o) || PyList_Check(o) ||
                                              (PySequence_Check(o) && !PyUnicode_Check(o)));
        if (!is_expr(o) && PyIter_Check(o))
            raise(Kind::value, "A generator cannot be an argument of ndrange");
        if (tensor || sequence) {
            const Py_ssize_t len = tensor ? type_of(o).n : PySequence_Size(o);
            if (len < 0) forget_error();
            if (len != 2)
                raise(Kind::syntax,
                      "Every argument of ndrange should be a scalar or a tuple/list like (begin, "
                      "end)");
            Ref zero = Ref::steal(PyLong_FromLong(0)), one = Ref::steal(PyLong_FromLong(1));
            bounds.push_back(
                {number(subscript(o, zero.get()).get()), number(subscript(o, one.get()).get())});
        } else {
            if (!is_expr(o) && PyUnicode_Check(o))
                raise(Kind::syntax,
                      "Every argument of ndrange should be a scalar or a tuple/list like (begin, "
                      "end)");
            bounds.push_back({low.b.int_const(ir::Prim::i32, 0), number(o)});
        }
    }
    std::vector<int> order = axes_in_order(bounds.size());
    for (const auto& [name, v] : args.keywords) {
        if (PyUnicode_CompareWithASCIIString(name.get(), "axes"))
            raise(Kind::type, "qd.ndrange has no argument " + text(name.get()));
        if (v.get() == Py_None) continue;
        Ref axes = Ref::steal(PySequence_Tuple(v.get()));
        const size_t count = static_cast<size_t>(PyTuple_GET_SIZE(axes.get()));
        const std::string shown = "qd.ndrange(axes=" + text(axes.get()) + ")";
        std::vector<bool> seen(bounds.size());
        for (size_t k = 0; k < count; ++k) {
            PyObject* e = PyTuple_GET_ITEM(axes.get(), static_cast<Py_ssize_t>(k));
            if (!PyLong_CheckExact(e))
                raise(Kind::type, shown + " entries must be Python ints; got " +
                                      std::string(Py_TYPE(e)->tp_name) + " (" +
                                      text(Ref::steal(PyObject_Repr(e)).get()) + ")");
        }
        if (count != bounds.size())
            raise(Kind::syntax, shown + " has " + std::to_string(count) +
                                    " entries but ndrange was called with " +
                                    std::to_string(bounds.size()) +
                                    " dimension argument(s); they must match");
        for (size_t k = 0; k < count; ++k) {
            const long axis =
                PyLong_AsLong(PyTuple_GET_ITEM(axes.get(), static_cast<Py_ssize_t>(k)));
            if (axis < 0 || static_cast<size_t>(axis) >= count || seen[static_cast<size_t>(axis)])
                raise(Kind::syntax,
                      shown + " is not a permutation of range(" + std::to_string(count) + ")");
            seen[static_cast<size_t>(axis)] = true;
            order[k] = static_cast<int>(axis);
        }
    }
    if (bounds.size() > abi::kMaxDims)
        raise(Kind::syntax,
              "qd.ndrange takes at most " + std::to_string(abi::kMaxDims) + " dimensions, found " +
                  std::to_string(bounds.size()),
              "multiply extents, and divide the index in the loop");
    return counted(n, {Counted::Over::box, std::move(bounds), std::move(order), grouped});
}

Flow Body::data_loop(const Node* n, const Val& over, bool grouped) {
    std::vector<Bounds> bounds;
    PyObject* o = over.get();
    std::vector<int> order;
    if (!grouped && (is_mesh_elements(o) || is_mesh_relation(o))) return mesh_loop(n, over);
    const auto constant = [&](int64_t v) { return low.b.int_const(ir::Prim::i32, v); };
    FieldObject* f = first_field(o);
    if (!is_expr(o) && !is_field(o) && has_attribute(o, "_cells")) {
        const Val cells = member(over, interned("_cells").get());
        if (cells.get() != Py_None) return sparse_loop(n, cells, grouped);
    } else if (f && bind_field(f)->sparse) {
        const Val cells = field_member(f, "_first_cells");
        if (cells.get() != Py_None) return sparse_loop(n, cells, grouped);
    }
    if (f) {
        const ir::Field* field = bind_field(f);
        order = axes_in_order(*field);
        const bool by_node = !is_field(o) && has_attribute(o, "_path_from_root");
        const auto begin = [&](int k) { return by_node ? 0 : field->offset[k]; };
        const auto end = [&](int k) { return begin(k) + field->shape[k]; };
        bool wide = false;  // the last index may be the largest i32
        for (int k = 0; k < field->ndim; ++k) wide |= end(k) > INT32_MAX;
        const ir::Prim p = wide ? ir::Prim::i64 : ir::Prim::i32;
        for (int k = 0; k < field->ndim; ++k)
            bounds.push_back({low.b.int_const(p, begin(k)), low.b.int_const(p, end(k))});
    } else if (is_expr(o) && as_expr(o)->kind == ExprKind::array) {
        ir::Value* array = as_expr(o)->value();
        order = axes_in_order(array->type.ndim, as_expr(o)->access.layout);
        for (int k = 0; k < array->type.ndim; ++k)
            bounds.push_back({constant(0), low.b.typed(ir::Op::array_shape, type::kI32, {&array, 1},
                                                       static_cast<uint64_t>(k))});
    } else if (!is_expr(o) && has_attribute(o, "_path_from_root")) {
        // A node: the root, which is one cell without an index, or one with no field below it.
        const Val shape = member(over, names().shape_);
        const Py_ssize_t axes = PyTuple_Check(shape.get()) ? PyTuple_GET_SIZE(shape.get()) : 0;
        for (Py_ssize_t k = 0; k < axes; ++k)
            bounds.push_back(
                {constant(0), constant(*static_int(PyTuple_GET_ITEM(shape.get(), k)))});
    } else {
        raise(Kind::type, "Cannot loop over the object " + type_name(o) +
                              " in Quadrants scope. Only ranges, fields and arrays can be looped "
                              "over at run time; use qd.static to unroll other iterables.");
    }
    check_loop_rank(n, bounds.size(), grouped);
    if (order.empty()) order = axes_in_order(bounds.size());
    return counted(n, {Counted::Over::data, std::move(bounds), std::move(order), grouped});
}

void Body::check_loop_rank(const Node* n, size_t rank, bool grouped) {
    const size_t given = n->a->kind == K::Tuple ? n->a->list.size() : 1;
    if (!grouped && given != rank)
        throw_index("Number of struct-for indices does not match loop variable dimensionality (" +
                    std::to_string(given) + " != " + std::to_string(rank) +
                    "). Maybe you wanted to use \"for I in qd.grouped(x)\" to group all "
                    "indices into a single vector I?");
}

void Body::throw_index(const std::string& message) {
    PyErr_SetString(PyExc_IndexError, message.c_str());
    throw PyError{};
}

// The first scalar or tensor field behind a field, a struct field or a node that holds one.
FieldObject* Body::first_field(PyObject* o) {
    if (is_expr(o) || is_struct(o)) return nullptr;
    if (is_field(o)) return reinterpret_cast<FieldObject*>(o);
    for (const char* name : {"_qd_loop_field", "_loop_range"}) {
        Ref found = Ref::steal_or_null(PyObject_GetAttrString(o, name));
        if (!found) {
            forget_error();
            continue;
        }
        Ref value =
            PyCallable_Check(found.get()) ? Ref::steal(PyObject_CallNoArgs(found.get())) : found;
        if (is_field(value.get()))
            return reinterpret_cast<FieldObject*>(value.get());  // owned by its parent
    }
    return nullptr;
}

std::vector<const Node*> Body::targets_of(const Node* n, const Counted& c) {
    const Node* target = n->a;
    if (c.grouped && target->kind != K::Name)
        raise(Kind::syntax,
              "Group for should have 1 loop target, found " + std::to_string(target->list.size()));
    std::vector<const Node*> targets = names_of(target);
    const size_t dims = c.bounds.size();
    if (!c.grouped && c.over == Counted::Over::box && targets.size() != dims &&
        !(dims == 0 && targets.size() == 1))
        raise(Kind::syntax,
              "Ndrange for loop with number of the loop variables not equal to the dimension of "
              "the ndrange is not supported. Please check if the number of arguments of "
              "qd.ndrange() is equal to the number of the loop variables.");
    if (c.over != Counted::Over::box)
        for (const Node* t : targets)
            if (find(t->name) && text(t->name) != "_")
                raise(Kind::syntax, "Variable '" + text(t->name) +
                                        "' is already declared in the outer scope and cannot be "
                                        "used as loop variable");
    return targets;
}

// What the qd.loop_config in front says, if no loop has taken it.
LoopSettings Body::take_settings(const Counted& c) {
    LoopSettings chosen;
    if (!settings_used) chosen = settings;
    settings_used = true;
    const auto warn = [&](const std::string& message) {
        const ir::Loc* at = builder().loc;
        unit.notice({Notice::Category::log, message, at ? std::string(at->file) : "",
                     at ? static_cast<uint32_t>(at->line) : 0});
    };
    if (chosen.serialize && c.over == Counted::Over::data) {
        warn("qd.loop_config(serialize=True) does not have effect on the struct for.");
        chosen.threads = 1;  // yet programs that ask for it may count on the order
    }
    if (!chosen.name.empty() && inside_a_for(low))
        warn("qd.loop_config(name=\"" + chosen.name +
             "\") has no effect on a loop nested inside another for-loop");
    return chosen;
}

ir::Inst* Body::emit_for(const Counted& c, const LoopSettings& chosen, bool parallel) {
    std::vector<ir::Value*> operands;
    for (const int axis : c.order) {
        operands.push_back(c.bounds[static_cast<size_t>(axis)].begin);
        operands.push_back(c.bounds[static_cast<size_t>(axis)].end);
    }
    // Without dimensions the body runs once.
    if (operands.empty())
        operands = {low.b.int_const(ir::Prim::i32, 0), low.b.int_const(ir::Prim::i32, 1)};
    ir::Inst* loop = low.b.emit(ir::Op::for_, operands, {}, 1);
    loop->imm = operands.size() / 2;
    if (low.kernel->out->derivative && c.over == Counted::Over::data) loop->flags = ir::kOverData;
    if (unit.is_kernel && (parallel || chosen.serialize || !chosen.name.empty())) {
        auto config = std::make_unique<ir::LoopConfig>();
        config->parallel = parallel;
        config->strictly_serial = chosen.serialize && !parallel;
        config->block_dim = chosen.block_dim;
        config->max_threads = chosen.threads;
        config->name = chosen.name;
        loop->ref = config.get();
        low.kernel->module->owned_loops.push_back(std::move(config));
    }
    for (uint64_t k = 0; k < loop->imm; ++k)
        low.b.function->add_param(loop->body(), operands[0]->type);
    return loop;
}

// Returns the indices, one per axis.
std::vector<ir::Value*> Body::bind_targets(const Node* n, const std::vector<const Node*>& targets,
                                           const Counted& c, const ir::Region& body) {
    std::vector<ir::Value*> indices(c.bounds.size());
    for (uint32_t k = 0; k < c.order.size(); ++k)
        indices[static_cast<size_t>(c.order[k])] = low.b.cast(body.params[k], ir::Prim::i32);
    if (c.indices) indices = c.indices(indices);
    std::vector<ir::Value*> all = indices;
    if (indices.empty()) {
        if (c.grouped)
            declare(targets[0]->name, {empty_matrix("Vector")}, Binding::Kind::loop_variable);
        return all;
    }
    if (c.grouped)
        indices = {low.b.typed(ir::Op::build,
                               ir::Type::vector(ir::Prim::i32, static_cast<int>(indices.size())),
                               indices)};
    for (size_t k = 0; k < targets.size(); ++k) {
        Ref e = c.target ? c.target(indices[k]) : make_value(indices[k]);
        // As the established package has it: those of a box are the iteration's own.
        if (c.over == Counted::Over::box && assigns(n->list, targets[k]->name)) {
            declare(targets[k]->name, {new_variable(e.get())}, Binding::Kind::variable);
            continue;
        }
        if (is_expr(e.get())) as_expr(e.get())->read_only = true;
        declare(targets[k]->name, {std::move(e)}, Binding::Kind::loop_variable);
    }
    return all;
}

// The body, where the element's cell is active.
Flow Body::guarded_block(const Node* n, const Counted& c, std::span<ir::Value* const> index) {
    const Ref at = index_tensor({index.begin(), index.end()});
    const Val there = library("quadrants._library.sparse", "is_there", {*c.cells, {at}});
    ir::Value* operands[] = {to_condition(there.get(), "if")};
    ir::Inst* branch = low.b.emit(ir::Op::if_, operands, {}, 2);
    {
        InRegion in(low, branch->regions[1]);
        low.b.end(ir::Op::yield);
    }
    InRegion in(low, branch->regions[0]);
    Deeper deeper(low.runtime_depth);
    ++loops.back().runtime_ifs;
    Scope scope(*this);
    if (block(n->list) == Flow::normal) low.b.end(ir::Op::yield);
    --loops.back().runtime_ifs;
    return Flow::normal;
}

Flow Body::counted(const Node* n, const Counted& c) {
    const std::vector<const Node*> targets = targets_of(n, c);
    const bool top_level = unit.is_kernel && low.runtime_depth == 0 && low.parallel_depth == 0;
    if (!unit.is_kernel && low.runtime_depth == entry_depth) unit.could_hold_task = true;
    const bool gated = top_level && !low.kernel->gate_stands;
    if (ir::Value* open = gated ? std::exchange(low.kernel->gate, nullptr) : nullptr) {
        const Flow flow = group(ir::Op::checkpoint, {&open, 1}, [&] { return counted(n, c); });
        low.kernel->gate = open;
        return flow;
    }
    const LoopSettings chosen = take_settings(c);
    const bool parallel = top_level && !(chosen.serialize && c.over != Counted::Over::data);
    ir::Inst* loop = emit_for(c, chosen, parallel);

    InRegion in(low, &loop->body());
    Deeper deeper(low.runtime_depth);
    if (parallel) ++low.parallel_depth;
    loops.push_back({parallel ? LoopFrame::Kind::parallel : LoopFrame::Kind::runtime});
    {
        Scope scope(*this);
        std::vector<ir::Value*> index = bind_targets(n, targets, c, loop->body());
        if (c.cells) visit(n, *c.cells, index);
        const Flow flow = c.is_guarded ? guarded_block(n, c, index) : block(n->list);
        if (flow == Flow::normal) low.b.end(ir::Op::continue_);
        if (c.cells) visited.pop_back();
    }
    loops.pop_back();
    if (parallel) {
        --low.parallel_depth;
        leave_shared_views();
    }
    return Flow::normal;
}

// --- qd.loop_config ------------------------------------------------------------------------------

static long whole_number(const std::string& key, PyObject* o) {
    if (!PyIndex_Check(o))
        raise(Kind::type, "qd.loop_config: " + key + " must be an integer, got " + text(o));
    const long n = PyLong_AsLong(o);
    if (n == -1 && PyErr_Occurred()) throw PyError{};
    return n;
}

void Body::set_loop_config(const Node* call) {
    for (const Node* k : call->list2)
        if (!k->name || k->name == Py_None)
            raise_at(call, Kind::compilation, "qd.loop_config takes keywords, no **dict");
    CallArgs args;
    arguments(call, args, nullptr, nullptr);
    low.node = call;
    if (!args.positional.empty()) raise(Kind::type, "qd.loop_config takes keyword arguments only");
    settings = {};
    settings_used = false;
    for (const auto& [name, v] : args.keywords) {
        const std::string key = text(name.get());
        PyObject* o = v.get();
        if (is_expr(o)) raise(Kind::type, "qd.loop_config takes compile-time values only");
        if (key == "serialize") {
            settings.serialize = PyObject_IsTrue(o) == 1;
        } else if (key == "parallelize") {
            const long n = o == Py_None ? 0 : whole_number(key, o);
            if (n < 0) raise(Kind::syntax, "parallelize must not be negative, got " + text(o));
            if (n > INT32_MAX) raise(Kind::type, "parallelize is an i32, got " + text(o));
            settings.threads = static_cast<int>(n);
            if (settings.threads == 1) settings.serialize = true;
        } else if (key == "block_dim") {
            if (o == Py_None) continue;
            const long d = whole_number(key, o);
            if (d <= 0 || ((d & (d - 1)) && !(d % 32 == 0 && targets_have_blocks())))
                raise(Kind::compilation, "block_dim must be a power of two, got " + text(o) +
                                             " (Assertion failure: is_power_of_two(block_dim))");
            if (d > INT32_MAX) raise(Kind::type, "block_dim is an i32, got " + text(o));
            settings.block_dim = static_cast<int>(d);
        } else if (key == "name") {
            if (o == Py_None) continue;
            if (!PyUnicode_Check(o))
                raise(Kind::type, "qd.loop_config: name must be a string, got " + text(o));
            settings.name = text(o);
        } else if (key != "block_dim_adaptive" && key != "bit_vectorize") {
            raise(Kind::type, "loop_config() got an unexpected keyword argument '" + key + "'");
        }
        if (PyErr_Occurred()) throw PyError{};
    }
}

}  // namespace qd::frontend
