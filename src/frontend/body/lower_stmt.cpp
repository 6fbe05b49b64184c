// Walking statements.
//
// A statement returns how control goes on. `ended`: a runtime break or continue closed the region,
// so what follows in this block is dead. `returned`, `static_break`, `static_continue` unwind to
// the function or the unrolled loop. Dead code is not examined.

#include <functional>

#include "frontend/body/body.h"
#include "frontend/source/stack.h"
#include "frontend/values/containers.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

std::string quoted(PyObject* name) { return "\"" + text(name) + "\""; }

bool is_lvalue(PyObject* o) {
    if (is_struct(o)) return true;
    if (!is_expr(o)) return false;
    // Several components at once (swizzles, slices) remember their places.
    if (as_expr(o)->origin && PyTuple_Check(as_expr(o)->origin)) return true;
    check_view(o);
    return as_expr(o)->kind != ExprKind::value && as_expr(o)->kind != ExprKind::array &&
           !as_expr(o)->read_only;
}

[[noreturn]] void immutable_argument(PyObject* name) {
    raise(Kind::syntax, "Kernel argument " + quoted(name) +
                            " is immutable in the kernel. If you want to change its value, please "
                            "create a new variable.");
}

}  // namespace

void Body::immutable_member(const Node* target) {
    const Ref name = Ref::steal(PyUnicode_FromString(source_text(source, target).c_str()));
    immutable_argument(name.get());
}

void Body::not_assignable(const Node* target) {
    raise(Kind::syntax, "Variable '" + source_text(source, target) +
                            "' cannot be assigned. Maybe it is not a Quadrants object?");
}

// Whether `n` is a container that a local variable holds, at any depth: a copy, and so not an
// object of the user's.
bool Body::is_local_container(const Node* n) {
    while (n->kind == K::Subscript) n = n->a;
    const Binding* b = n->kind == K::Name ? find(n->name) : nullptr;
    return b && b->kind == Binding::Kind::variable && !b->value.prov &&
           static_cast<size_t>(b - bindings.data()) >= parameter_count;
}

void Body::set_location(const Node* n) {
    locate(source, const_cast<Node&>(*n));
    ir::Loc loc;
    loc.file = file_name;
    loc.function = function_name;
    loc.line = n->line;
    loc.col = n->col;
    loc.end_line = n->end_line;
    loc.end_col = n->end_col;
    loc.caller = call_site;
    low.b.loc = low.b.function->new_loc(loc);
}

Flow Body::block(std::span<Node* const> list) {
    for (const Node* n : list) {
        const Flow f = stmt(n);
        if (f != Flow::normal) return f;
    }
    return Flow::normal;
}

// Notes for coverage that a statement is reached. Derivatives count nothing, and a checkpoint that
// is skipped does not either.
void Body::probe(const Node* n) {
    const auto found = source.probes.find(n);
    if (found == source.probes.end() || low.kernel->out->derivative) return;
    KernelState& kernel = *low.kernel;
    if (!kernel.gate || kernel.gate_stands || low.runtime_depth > 0) {
        stmt(found->second);
        return;
    }
    ir::Inst* branch = low.b.emit(ir::Op::if_, {&kernel.gate, 1}, {}, 2);
    {
        InRegion in(low, branch->regions[0]);
        const Deeper deeper(low.runtime_depth);
        stmt(found->second);
        low.b.end(ir::Op::yield);
    }
    InRegion otherwise(low, branch->regions[1]);
    low.b.end(ir::Op::yield);
}

Flow Body::stmt(const Node* n) {
    let_handlers_raise();
    if (!source.probes.empty()) probe(n);
    low.node = n;
    set_location(n);
    switch (n->kind) {
        case K::Expr:
            if (n->a->kind != K::Constant) expr(n->a);
            return Flow::normal;
        case K::Assign: {
            // qd.static(...) on the right binds compile-time names.
            const bool is_static = is_static_call(n->a);
            Val v = is_static ? static_value(n->a) : expr(n->a);
            for (const Node* target : n->list) {
                low.node = n;
                assign_to(target, v, is_static);
            }
            return Flow::normal;
        }
        case K::AugAssign:
            aug_assign(n);
            return Flow::normal;
        case K::AnnAssign:
            ann_assign(n);
            return Flow::normal;
        case K::If:
            return if_stmt(n);
        case K::For:
            return is_task_statement(n) ? gated_for(n) : for_stmt(n);
        case K::While:
            return while_stmt(n);
        case K::Return:
            return return_stmt(n);
        case K::Break:
            return jump(n, true);
        case K::Continue:
            return jump(n, false);
        case K::Assert:
            assert_stmt(n);
            return Flow::normal;
        case K::Pass:
            return Flow::normal;
        case K::With:
            return with_stmt(n);
        case K::FunctionDef:
            raise(Kind::syntax, std::string("Function definition is not allowed in '") +
                                    (low.kind == FunctionKind::kernel ? "qd.kernel" : "qd.func") +
                                    "'.");
        default:
            break;
    }
    expr(n);  // says that the node is unsupported
    return Flow::normal;
}

// --- assignment
// ------------------------------------------------------------------------------------

void Body::assign_to(const Node* target, Val v, bool is_static) {
    switch (target->kind) {
        case K::Name:
            return assign_name(target, std::move(v), is_static);
        case K::Tuple:
            return unpack(target, v, is_static);
        case K::Attribute:
        case K::Subscript:
            break;
        default:
            raise(Kind::syntax, "Unsupported assignment target");
    }
    if (is_static) raise(Kind::syntax, "Static assign cannot be used on elements in arrays");
    const Node* statement = low.node;
    // Elements of Python containers are replaced unless they are variables already.
    if (target->kind == K::Subscript) {
        Val base = expr(target->a);
        Ref i = known_index(base.get(), index(target->b));
        low.node = statement;
        unit.consume(v);
        if ((PyList_Check(base.get()) || PyDict_Check(base.get())) && !is_symbolic(i.get())) {
            Ref now = Ref::steal(PyObject_GetItem(base.get(), i.get()));
            if (is_lvalue(now.get())) return assign(now.get(), v.get());
            if (!is_local_container(target->a)) not_assignable(target);
            Ref made = new_variable(v.get());
            if (PyObject_SetItem(base.get(), i.get(), made.get()) < 0) throw PyError{};
            return;
        }
        if (is_tile(base.get())) {
            low.node = statement;
            return assign_tile(base.get(), i.get(), v.get());
        }
        low.node = target;
        refuse_items(base.get());
        Ref place = [&] {
            const CheckedHere here(*this, target);
            return subscript(base.get(), i.get());
        }();
        low.node = statement;
        if (is_array_part(place.get())) return store_part(place.get(), v.get());
        if (!is_lvalue(place.get()) && !is_symbolic(place.get())) not_assignable(target);
        return assign(place.get(), v.get());
    }
    Val base = expr(target->a);
    unit.consume(v);
    if (is_expr(base.get()) || is_struct(base.get())) {
        low.node = target;
        Ref place = attribute(base.get(), target->name);
        low.node = statement;
        if (!is_symbolic(place.get())) not_assignable(target);
        return assign(place.get(), v.get());
    }
    low.node = statement;
    if (base.prov && base.prov->flattened) immutable_member(target);
    Val place = member(base, target->name);
    if (!is_lvalue(place.get())) not_assignable(target);
    assign(place.get(), v.get());
}

// What a local name may stand for without becoming a value.
static bool stays_an_object(PyObject* o) {
    return o == Py_None || is_shared_array(o) || is_tile_operand(o) ||
           _PyType_Lookup(Py_TYPE(o), names()._data_oriented_);
}

void Body::assign_name(const Node* target, Val v, bool is_static) {
    Binding* b = find(target->name);
    if (is_static) {
        if (b) {
            if (b->kind == Binding::Kind::kernel_argument) immutable_argument(target->name);
            raise(Kind::syntax, "Recreating variables is not allowed");
        }
        return declare(target->name, std::move(v), Binding::Kind::fixed);
    }
    if (is_tile_operand(v.get()) || (!b && stays_an_object(v.get())))
        return declare(target->name, std::move(v), Binding::Kind::variable);
    unit.consume(v);
    if (!b) return declare(target->name, {new_variable(v.get())}, Binding::Kind::variable);
    if (b->kind == Binding::Kind::kernel_argument) immutable_argument(target->name);
    if (b->kind == Binding::Kind::loop_variable)
        raise(Kind::syntax, "Loop variable '" + text(target->name) + "' cannot be assigned");
    const Val place = lookup(target->name);
    if (is_expr(place.get()) && !is_lvalue(place.get()))
        raise(Kind::syntax, "cannot use a non-writable target as the first operand of 'assign': '" +
                                text(target->name) + "' stands for a value or a kernel argument");
    if (!is_lvalue(place.get())) not_assignable(target);
    if (Ref own = own_variable(place.get(), v.get()))
        return declare(target->name, {std::move(own)}, Binding::Kind::variable);
    assign(place.get(), v.get());
}

// Sections and streams that assign the same name first of all have a variable each, of one type:
// they may run at the same time. Null where they have not.
Ref Body::own_variable(PyObject* place, PyObject* value) {
    if (!is_expr(place) || as_expr(place)->kind != ExprKind::variable ||
        !is_of_sibling(as_expr(place)->raw))
        return {};
    const ir::Type t = type_of(place);
    const bool both_scalars = t.is_scalar() && is_expr(value) && type_of(value).is_scalar();
    const bool number = PyLong_Check(value) || PyFloat_Check(value);
    const bool fits =
        is_expr(value) ? both_scalars || type_of(value) == t : t.is_scalar() && number;
    return fits ? new_variable(value, &t.prim) : Ref{};
}

void Body::unpack(const Node* target, const Val& v, bool is_static) {
    const size_t count = target->list.size();
    PyObject* o = v.get();
    std::vector<Val> items;
    if (is_struct(o)) raise(Kind::syntax, "Cannot unpack type: " + type_name(o));
    Ref tensor;  // of a captured matrix
    if (is_host_matrix(o) && !is_static) {
        unit.consume(v);
        tensor = make_value(to_value(o));
        o = tensor.get();
    }
    if (is_expr(o)) {
        const ir::Type t = type_of(o);
        if (t.rank == 2 && t.m > 1)
            raise(Kind::value, "Matrices with more than one columns cannot be unpacked",
                  "index it first: m[i, j]");
        if (!t.is_tensor() || as_expr(o)->kind == ExprKind::array)
            raise(Kind::syntax, "Cannot unpack type: " + type_name(o));
        if (t.n != count) raise(Kind::syntax, "The number of targets is not equal to value length");
        for (size_t k = 0; k < count; ++k) {
            Ref i = Ref::steal(PyLong_FromSize_t(k));
            if (t.rank == 2) i = Ref::steal(Py_BuildValue("(Oi)", i.get(), 0));
            items.push_back({to_rvalue(subscript(o, i.get()).get())});
        }
    } else {
        Val over = v;
        if (!is_static)
            unit.consume(v);
        else if (PySequence_Check(o))
            over = iterable(v);
        o = over.get();
        Ref list;
        try {
            if (PySequence_Check(o)) list = all_items(o);
        } catch (const PyError&) {
            forget_error();
        }
        if (!list) raise(Kind::syntax, "Cannot unpack type: " + type_name(o));
        if (static_cast<size_t>(PyList_GET_SIZE(list.get())) != count)
            raise(Kind::syntax, "The number of targets is not equal to value length");
        for (size_t k = 0; k < count; ++k) {
            // All right sides are read before any target is written.
            Ref item = Ref::borrow(PyList_GET_ITEM(list.get(), static_cast<Py_ssize_t>(k)));
            items.push_back(
                is_static ? unit_item(over, item, static_cast<Py_ssize_t>(k))
                          : Val{map_leaves(item.get(), [](PyObject* e) { return to_rvalue(e); })});
        }
    }
    for (size_t k = 0; k < count; ++k) {
        if (target->list[k]->kind == K::Starred)
            raise(Kind::syntax, "Starred assignment targets are not supported");
        if (target->list[k]->kind == K::Tuple || target->list[k]->kind == K::List)
            raise(Kind::syntax, "Nested assignment targets are not supported",
                  "take the inner values apart in a statement of its own");
        assign_to(target->list[k], items[k], is_static);
    }
}

void Body::aug_assign(const Node* n) {
    const ir::Op op = static_cast<ir::Op>(n->op);
    if (n->a->kind == K::Subscript && add_triplet(n, op)) return;
    Val place;
    if (n->a->kind == K::Name) {
        Binding* b = find(n->a->name);
        if (b && b->kind == Binding::Kind::kernel_argument) immutable_argument(n->a->name);
        if (b && b->kind == Binding::Kind::loop_variable)
            raise(Kind::syntax, "Loop variable '" + text(n->a->name) + "' cannot be assigned");
        place = lookup(n->a->name);
    } else {
        place = expr(n->a);
        const Node* root = n->a;
        while (root->kind == K::Attribute) root = root->a;
        const Binding* b = root->kind == K::Name ? find(root->name) : nullptr;
        if (b && b->value.prov && b->value.prov->flattened && !is_lvalue(place.get())) {
            low.node = n;
            immutable_member(n->a);
        }
    }
    Val v{value(n->b)};
    low.node = n;
    if (is_tile(place.get())) return update_tile(op, place.get(), v.get());
    if (!is_lvalue(place.get()) && !is_symbolic(place.get())) not_assignable(n->a);
    if (op == ir::Op::matmul) raise(Kind::syntax, "Unsupported operator @=");
    assign_op(op, place.get(), v.get());
}

void Body::ann_assign(const Node* n) {
    if (!n->c) raise(Kind::syntax, "An annotation without a value is not supported");
    if (is_static_call(n->c)) raise(Kind::syntax, "Static assign cannot have type annotation");
    Val annotation = expr(n->b);
    Val v{value(n->c)};
    low.node = n;
    const auto p = prim_of(annotation.get());
    if (!p) {
        PyObject* given = annotation.get();
        const bool is_value = is_expr(given) || is_number(given) || given == Py_None;
        raise(
            is_value ? Kind::value : Kind::type,
            (is_value ? "Invalid data type " : "Invalid constant scalar data type: ") + text(given),
            "variables are annotated with dtypes, such as qd.f32");
    }
    if (is_struct(v.get()))
        raise(Kind::type, "A variable annotated with a number type cannot hold a struct");
    if (PyObject* o = v.get();
        !is_expr(o) && !is_number(o) && !is_host_matrix(o) && !is_plain_container(o))
        raise(Kind::type, "Invalid constant scalar data type: " + type_name(o));
    if (n->a->kind != K::Name) return assign_to(n->a, {cast(v.get(), *p)}, false);
    if (Binding* b = find(n->a->name)) {
        if (b->kind == Binding::Kind::kernel_argument) immutable_argument(n->a->name);
        if (!is_expr(b->value.get()) || type_of(b->value.get()).prim != *p)
            raise(Kind::syntax, "Static assign cannot have type overloading");
        return assign(lookup(n->a->name).get(), v.get());
    }
    const ir::Prim prim = *p;
    declare(n->a->name, {new_variable(v.get(), &prim)}, Binding::Kind::variable);
}

// --- branches
// --------------------------------------------------------------------------------------

Flow Body::if_stmt(const Node* n) {
    if (is_static_call(n->a)) {
        const bool taken = static_truth(n->a);
        Scope scope(*this);
        return block(taken ? n->list : n->list2);
    }
    Val c = expr(n->a);
    unit.consume(c);
    low.node = n;
    ir::Value* condition = to_condition(c.get(), "if");
    ir::Value* operands[] = {condition};
    ir::Inst* branch = low.b.emit(ir::Op::if_, operands, {}, 2);
    Flow flows[2];
    const bool known = !is_symbolic(c.get());
    const int taken = known && truth(c) ? 0 : 1;
    for (int k = 0; k < 2; ++k) {
        InRegion in(low, branch->regions[k]);
        Deeper deeper(low.runtime_depth);
        std::optional<Deeper> dead;
        if (known && k != taken) dead.emplace(low.dead_depth);
        if (!loops.empty()) ++loops.back().runtime_ifs;
        Scope scope(*this);
        flows[k] = block(k == 0 ? n->list : n->list2);
        if (flows[k] == Flow::normal) low.b.end(ir::Op::yield);
        if (!loops.empty()) --loops.back().runtime_ifs;
    }
    // Code behind two closed branches is unreachable, yet still checked.
    return Flow::normal;
}

Flow Body::while_stmt(const Node* n) {
    if (graph_op(n->a) == "graph_do_while") return do_while(n);
    low.node = n;
    if (!n->list2.empty())
        raise(Kind::syntax, "'else' clause for 'while' not supported in Quadrants kernels");
    const bool is_static = is_static_call(n->a);
    if (is_static && !static_truth(n->a)) return Flow::normal;
    ir::Inst* loop = low.b.emit(ir::Op::loop, {}, {}, 1);
    InRegion in(low, loop->regions[0]);
    Deeper deeper(low.runtime_depth);
    loops.push_back({LoopFrame::Kind::repeated});
    {
        Scope scope(*this);
        if (!is_static) {
            Val c{value(n->a)};
            low.node = n;
            ir::Value* operands[] = {to_condition(c.get(), "if")};
            ir::Inst* branch = low.b.emit(ir::Op::if_, operands, {}, 2);
            {
                InRegion then(low, branch->regions[0]);
                low.b.end(ir::Op::yield);
            }
            {
                InRegion otherwise(low, branch->regions[1]);
                low.b.end(ir::Op::break_);
            }
        }
        if (block(n->list) == Flow::normal) low.b.end(ir::Op::continue_);
    }
    loops.pop_back();
    return Flow::normal;
}

Flow Body::jump(const Node* n, bool is_break) {
    const char* word = is_break ? "break" : "continue";
    if (loops.empty()) {
        if (!is_break && low.expanded_in_place) raise(Kind::syntax, "'continue' outside of a loop");
        raise(Kind::syntax, std::string("'") + word + "' outside of a loop");
    }
    const LoopFrame& loop = loops.back();
    if (loop.kind == LoopFrame::Kind::unrolled) {
        if (loop.runtime_ifs)
            raise(Kind::syntax, std::string("You are trying to `") + word +
                                    "` a static `for` loop, but the `" + word +
                                    "` statement is inside a non-static `if`.");
        return is_break ? Flow::static_break : Flow::static_continue;
    }
    if (loop.kind == LoopFrame::Kind::graph)
        raise(Kind::syntax,
              std::string("'") + word + "' is not allowed in a qd.graph.do_while() body");
    if (is_break && loop.kind == LoopFrame::Kind::parallel)
        raise(Kind::syntax, "Cannot break in the outermost loop");
    low.b.end(is_break ? ir::Op::break_ : ir::Op::continue_);
    return Flow::ended;
}

Flow Body::return_stmt(const Node* n) {
    for (const LoopFrame& loop : loops)  // hidden in a static `if`
        if (loop.kind == LoopFrame::Kind::graph)
            raise(Kind::syntax, "'return' is not allowed in a qd.graph.do_while() body");
    if (!is_real && low.runtime_depth > entry_depth)
        raise(Kind::syntax, "Return inside non-static if/for is not supported");
    if (n->a) {
        Val v = expr(n->a);
        if (!low.expanded_in_place) unit.consume(v);  // the caller gets no places
        low.node = n;
        const bool is_kernel = low.kind == FunctionKind::kernel;
        const bool is_value = !is_kernel || v.get() != Py_None;
        if (!is_kernel)
            result = std::move(v);
        else if (is_value)
            set_kernel_result(v);
        has_return = has_return || is_value;
        if (!is_value && returns.get() != Py_None && !is_empty(returns.get()))
            raise(Kind::syntax, "Kernel has a return type but does not have a return statement",
                  "`" + source_text(source, n->a) + "` is None here");
    }
    if (is_real) {
        emit_real_return();
        return Flow::ended;
    }
    return Flow::returned;
}

// --- assert
// ----------------------------------------------------------------------------------

void Body::assert_stmt(const Node* n) {
    Val c{value(n->a)};
    CallArgs args;
    args.positional.push_back(c.obj);
    Ref message = Ref::borrow(Py_None);
    if (n->b) {
        const Node* m = n->b;
        // "...%d" % values: the values are formatted when the check fails.
        if (m->kind == K::BinOp && static_cast<ir::Op>(m->op) == ir::Op::mod &&
            m->a->kind == K::Constant && PyUnicode_Check(m->a->name)) {
            Ref values = value(m->b);
            message = percent_format(m->a->name, values.get());
        } else {
            message = value(m);
            // Text that was put together while tracing; what has run-time values is formatted.
            const bool formats = m->kind == K::Call && m->a->kind == K::Attribute;  // "".format()
            if (PyUnicode_Check(message.get()) && m->kind != K::Constant &&
                m->kind != K::JoinedStr && !formats && !is_own_library())
                raise_at(m, Kind::syntax,
                         "assert info must be constant or formatted string, not <class 'str'>",
                         "write it in quotes, as an f-string, or as \"...%d\" % (value,)");
            if (PyLong_Check(message.get()) || PyFloat_Check(message.get()))
                message = Ref::steal(PyObject_Str(message.get()));
        }
    }
    low.node = n;
    if (!n->b && low.kernel->options.debug) {
        const std::string condition = source_text(source, n->a);
        message = Ref::steal(PyUnicode_FromStringAndSize(
            condition.data(), static_cast<Py_ssize_t>(condition.size())));
    }
    args.positional.push_back(message);
    call_builtin("assert", args);
}

}  // namespace qd::frontend
