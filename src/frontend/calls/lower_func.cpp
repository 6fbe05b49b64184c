// Lowering the body of a func: into a function of its own, or in place where it is called.
//
// A body of its own knows its arguments by what the key says of them: values are parameters,
// references to variables are copied in and out, elements of fields and arrays are addressed again
// from their indices. One that holds a task or changes a container that it got cannot be a
// function; what finds that out is HoldsTask.

#include <algorithm>

#include "data/external.h"
#include "frontend/calls/entry.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

constexpr int kDeepest = 400;  // nested bodies; each takes a few kilobytes of stack
thread_local int depth_now = 0;

struct DepthGuard {
    DepthGuard() {
        if (++depth_now > kDeepest) {
            --depth_now;
            raise(Kind::compilation,
                  "Recursion in Quadrants functions is not supported: calls are nested more than " +
                      std::to_string(kDeepest) +
                      " deep while compiling. Only recursion that qd.static ends works.");
        }
    }
    ~DepthGuard() { --depth_now; }
};

// Rebuilds argument trees over the callee's parameters and collects what the caller passes.
struct Passing {
    Lowering& caller;
    Lowering& callee;
    struct Local {        // a variable passed by reference
        Ref target;       // the caller's Expr
        ir::Value* slot;  // the callee's copy
    };
    std::vector<Local> locals;
    bool must_expand = false;
    SharedVariables shared;
    std::vector<ir::Value*> shared_slots{shared.roots.size()};  // by number; null: not yet

    ir::Value* pass(ir::Value* v) {
        return callee.b.function->add_param(*callee.b.function->body, v->type);
    }
    // `slot`: what a local variable is in the callee.
    ir::Value* rebuild(ir::Value* place, ir::Value* slot = nullptr) {
        place = ir::resolve(place);
        const ir::Inst* d = place->def;
        if (slot && is_local_place(place)) return slot;
        std::vector<ir::Value*> inner;
        for (int i = 0; i < d->operand_count; ++i) {
            ir::Value* o = d->operand(i);
            inner.push_back(o->type.is_place() ? rebuild(o, slot) : pass(o));
        }
        return callee.b.typed(d->op, place->type, inner, d->imm, d->ref);
    }
    Ref leaf(PyObject* o, bool by_reference) {
        ExprObject* e = as_expr(o);
        if (e->kind == ExprKind::array) {
            Ref passed = make_array(pass(e->value()), e->access);
            as_expr(passed.get())->reserved = lacks_gradient(e);
            return passed;
        }
        if (!by_reference || e->kind == ExprKind::value) {
            Ref r = make_value(pass(to_value(o)));
            if (by_reference) as_expr(r.get())->read_only = e->read_only;
            // A real function cannot be expanded: there it is a value.
            if (by_reference && callee.kind != FunctionKind::real_func &&
                (is_view(o) || stands_for_view(o)))
                stand_for_view(r.get());
            return r;
        }
        const ir::Value* root = ir::root_of_place(e->value());
        if (!is_local_place(root))
            return make_place(rebuild(e->value()), e->kind, e->shared, e->read_only);
        if (const int number = shared.number(root); number >= 0) {
            ir::Value*& slot = shared_slots[static_cast<size_t>(number)];
            if (!slot) slot = copy_in(root_place(e));
            return make_place(rebuild(e->value(), slot), e->kind, false, e->read_only);
        }
        ir::Value* slot = copy_in(Ref::borrow(o));
        return make_place(slot, ExprKind::variable, false, e->read_only);
    }
    ir::Value* copy_in(Ref target) {
        ir::Value* in = pass(caller.b.load(as_expr(target.get())->value()));
        ir::Value* slot = callee.b.slot(in->type);
        callee.b.store(slot, in);
        locals.push_back({std::move(target), slot});
        return slot;
    }
};

// Whether anything but loads uses the slot.
bool is_written(const ir::Function& f, const ir::Value* slot) {
    bool written = false;
    int stores = 0;
    ir::walk(*f.body, [&](ir::Inst& i) {
        for (int k = 0; k < i.operand_count; ++k) {
            if (ir::resolve(i.operand(k)) != slot) continue;
            if (i.op == ir::Op::load) continue;
            if (i.op == ir::Op::store && k == 0)
                ++stores;
            else
                written = true;
        }
    });
    return written || stores > 1;  // the first store is the copy in
}

Ref cast_result(const FuncSignature& s, Ref value) {
    bool is_tuple = false;
    const std::vector<Ref> types = result_annotations(s.returns.get(), is_tuple);
    const auto no_number = [](const Ref& type) { return !prim_of(type.get()); };
    if (types.empty() || std::ranges::any_of(types, no_number)) return value;
    const auto fit = [](PyObject* v, const Ref& type) {
        return cast(Ref(make_value(to_value(v))).get(), *prim_of(type.get()));
    };
    const bool items_given = PyTuple_Check(value.get()) || PyList_Check(value.get());
    if (!is_tuple || (types.size() == 1 && !items_given)) return fit(value.get(), types[0]);
    if (!items_given || PySequence_Fast_GET_SIZE(value.get()) != Py_ssize_t(types.size()))
        raise(Kind::syntax, "The number of returned values is not equal to the return type's (" +
                                std::to_string(types.size()) + ")");
    const Ref out = Ref::steal(PyTuple_New(Py_ssize_t(types.size())));
    for (size_t k = 0; k < types.size(); ++k)
        PyTuple_SET_ITEM(
            out.get(), Py_ssize_t(k),
            fit(PySequence_Fast_GET_ITEM(value.get(), Py_ssize_t(k)), types[k]).release());
    return out;
}

// Walks a func's body with its parameters declared; gives the result.
Val run_body(Body& body, const FuncSignature& s, const std::vector<Val>& params) {
    for (size_t k = 0; k < params.size(); ++k)
        body.declare(s.params[k].name.get(), params[k], Binding::Kind::variable);
    body.parameter_count = params.size();
    body.block(body.source.body);
    const bool annotated = s.returns.get() != Py_None && !is_empty(s.returns.get());
    if (annotated && !body.has_return) {
        body.low.node = nullptr;
        raise(Kind::syntax, "Function has a return type but does not have a return statement");
    }
    if (!body.result.obj) return {Ref::borrow(Py_None)};
    const Ref fitting = cast_result(s, body.result.obj);
    return fitting.get() == body.result.get() ? body.result : Val{fitting};
}

std::vector<Val> local_copies(const std::vector<Arg>& args) {
    std::vector<Val> out;
    for (const Arg& a : args)
        if (a.mode == Mode::value)
            out.push_back({new_variable(a.v.get())});
        else
            out.push_back(
                a.mode == Mode::reference && is_view(a.v.get()) ? Val{live_view(a.v.get())} : a.v);
    return out;
}

// Containers that a body got and could change; one that did is expanded where it is called.
struct ChangeCheck {
    std::vector<std::pair<Ref, Ref>> trees;  // as the body sees them, as they were
    void see(const Arg& a) {
        PyObject* o = a.v.get();
        if (a.mode != Mode::value && is_plain_container(o))
            trees.emplace_back(Ref::borrow(o), copy_tree(o));
    }
    bool changed() const {
        return std::ranges::any_of(
            trees, [](const auto& t) { return !same_tree(t.first.get(), t.second.get()); });
    }
};

bool holds_items(PyObject* o) {
    return PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) ||
           is_host_matrix(o) || data::is_numpy(o);
}

// The arguments as the body sees them.
std::vector<Arg> pass_arguments(Entry& e, const std::vector<Arg>& args, Passing& passing,
                                ChangeCheck& containers) {
    std::vector<Arg> inner;
    for (size_t k = 0; k < args.size(); ++k) {
        Arg a = args[k];
        if (a.mode == Mode::constant) {
            // The kernel's own lists: the body is tried on a copy.
            if (is_plain_container(a.v.get()) &&
                (!a.v.prov || a.v.prov->kind == Prov::Kind::display))
                a.v.obj = copy_tree(a.v.get()), containers.see(a);
            if (a.v.prov) {
                Prov* p = e.unit->argument(static_cast<int>(k));
                p->flattened = a.v.prov->flattened;
                p->at_launch = a.v.prov->at_launch;
                p->runtime_members = a.v.prov->runtime_members;
                // How long it is may decide without an item being read.
                if (a.v.prov->kind != Prov::Kind::display && holds_items(a.v.get()))
                    guard_value(*e.unit, a.v.get(), p);
                a.v.prov = p;
            }
        } else {
            a.v.obj = map_leaves(
                a.v.get(), [&](PyObject* o) { return passing.leaf(o, a.mode == Mode::reference); });
            if (a.v.prov) a.v.prov = e.unit->argument(static_cast<int>(k));
            containers.see(a);
        }
        inner.push_back(std::move(a));
    }
    return inner;
}

// Results: leaves of the returned tree, then references that were written.
void return_result(Entry& e, Lowering& callee, PyObject* result,
                   const std::vector<Passing::Local>& locals) {
    std::vector<ir::Value*> out;
    e.result = map_leaves(result, [&](PyObject* o) {
        if (as_expr(o)->kind == ExprKind::array) return Ref::borrow(o);
        Ref r = to_rvalue(o);
        out.push_back(as_expr(r.get())->value());
        return r;
    });
    for (size_t k = 0; k < locals.size(); ++k)
        if (is_written(*e.function, locals[k].slot)) {
            e.written.push_back(static_cast<int>(k));
            out.push_back(callee.b.load(locals[k].slot));
        }
    for (ir::Value* v : out) e.function->result_types.push_back(v->type);
    callee.b.end(ir::Op::return_, out);
}

void lower_real_func(Entry& e, Body& body, const FuncSignature& s, const std::vector<Arg>& args,
                     const Passing& passing, const ChangeCheck& containers) {
    std::vector<ir::Value*> slots;
    for (const Passing::Local& l : passing.locals) slots.push_back(l.slot);
    declare_real_results(e, body, s, slots);
    run_real_body(e, body, s, local_copies(args));
    if (containers.changed())
        raise(Kind::syntax,
              "A list or dict that is passed to a real function cannot be changed in it");
    check_recursion(e, body.low.b.loc);
}

}  // namespace

Val expand_func(Lowering& caller, const FuncSignature& s, const std::vector<Arg>& args) {
    DepthGuard depth;
    Lowering callee;
    callee.kernel = caller.kernel;
    callee.caller = &caller;
    callee.kind = FunctionKind::func;
    callee.b = caller.b;
    callee.expanded_in_place = true;
    callee.undecided = caller.undecided;
    callee.runtime_depth = caller.runtime_depth;
    callee.parallel_depth = caller.parallel_depth;
    Body body(callee, caller.body->unit, s.definition.get());
    body.entry_depth = callee.runtime_depth;
    body.call_site = caller.b.loc;
    // An enclosing runtime `if` of the caller counts for the caller's loops only.
    callee.body = &body;
    Active active(callee);
    try {
        Val result = run_body(body, s, local_copies(args));
        // Locals die with the body: what leaves is a value.
        result.obj = map_leaves(result.get(), [](PyObject* e) {
            const bool dies = as_expr(e)->kind == ExprKind::variable || is_live_view(e);
            return dies ? to_rvalue(e) : Ref::borrow(e);
        });
        return result;
    } catch (...) {
        add_frame(callee);
        throw;
    }
}

void lower_func(Entry& e, Lowering& caller, const FuncSignature& s, const std::vector<Arg>& args,
                bool top_level) {
    DepthGuard depth;
    Ref qualified = attribute_of(s.definition.get(), names().__name___);
    e.function = std::make_unique<ir::Function>(text(qualified.get()));
    e.unit = std::make_unique<Unit>();
    e.unit->kernel = caller.kernel;
    e.unit->function = e.function.get();
    Lowering callee;
    callee.kernel = caller.kernel;
    callee.caller = &caller;
    callee.kind = s.is_real ? FunctionKind::real_func : FunctionKind::func;
    callee.b.function = e.function.get();
    callee.b.region = e.function->body;
    callee.runtime_depth = 1;  // loops are serial here
    Body body(callee, *e.unit, s.definition.get());
    body.entry_depth = callee.runtime_depth;
    body.is_real = s.is_real;
    callee.body = &body;
    callee.b.loc =
        e.function->new_loc({body.file_name, body.function_name, body.source.first_line});
    Passing passing{caller, callee, {}, false, SharedVariables(s, args)};
    ChangeCheck containers;
    try {
        const std::vector<Arg> inner = pass_arguments(e, args, passing, containers);
        callee.undecided =
            !s.is_real && (top_level || !containers.trees.empty() ||
                           (caller.undecided && caller.runtime_depth == caller.body->entry_depth));
        Active active(callee);
        if (s.is_real) return lower_real_func(e, body, s, inner, passing, containers);
        const Val result = run_body(body, s, local_copies(inner));
        if (containers.changed()) throw HoldsTask{};
        body.mark_upkeep();
        return_result(e, callee, result.get(), passing.locals);
    } catch (...) {
        add_frame(callee);
        throw;
    }
}

}  // namespace qd::frontend
