// Calls of `@qd.func`: arguments are bound, then the body is either expanded in place or lowered
// once into a function of its own and called.
//
// A specialisation is found by a key of words: the function, the types of values, the identity of
// compile-time objects, what references refer to. A body is expanded in place if it holds a task,
// if it changes a list or dict that it got, if a reference leads to a variable that other threads
// see or that is out of reach, or if two references lead to one variable. References to other
// variables are copied in and out; elements of fields and arrays are addressed again inside from
// the indices, which are passed.
// Cost: one key per call; one lowering per key.

#include <algorithm>
#include <unordered_map>

#include "frontend/calls/call.h"
#include "frontend/facts/memo.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"

namespace qd::frontend {

// --- the cache -----------------------------------------------------------------------------------

struct Entry {
    std::unique_ptr<ir::Function> function;
    std::unique_ptr<Unit> unit;
    std::vector<Ref> constants;              // keeps what the key names by address
    std::vector<std::pair<Ref, Ref>> codes;  // of the function and those it calls
    Ref result;                              // skeleton: Exprs of the callee as leaves
    std::vector<ir::Value*> result_order;    // callee values that are returned, in order
    std::vector<int> written;                // reference leaves that come back as results
    int first_lazy = 0;
    std::vector<ir::Type> result_types_declared;  // real functions
    bool expand = false, in_progress = false, recursive = false;
    bool has_print = false;
    uint64_t checked = 0;         // number of the kernel that last checked the facts
    uint64_t checked_at = 0;      // its user_runs then
    bool runs_code = false;       // of the user, while the body is walked
    Unit* merged_into = nullptr;  // facts were copied last to this unit, with these origins
    uint64_t merged_kernel = 0;
    std::vector<Prov*> merged_provs;
};

struct FunctionCache {
    std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
    std::vector<std::unique_ptr<Entry>> loose;  // lowered per call site, or replaced
    std::deque<ir::Format> formats;
};

namespace {

using Body = Lowering::Body;

constexpr int kDeepest = 400;  // nested bodies; each takes a few kilobytes of stack
thread_local int depth_now = 0;

std::shared_ptr<FunctionCache>& shared_cache() {
    static auto* p = new std::shared_ptr<FunctionCache>(std::make_shared<FunctionCache>());
    return *p;
}

thread_local std::shared_ptr<FunctionCache> own_cache;  // while OwnFunctions lives

std::shared_ptr<FunctionCache>& cache_pointer() { return own_cache ? own_cache : shared_cache(); }

Ref get(PyObject* o, PyObject* name) { return Ref::steal(PyObject_GetAttr(o, name)); }

// --- passing
// -----------------------------------------------------------------------------------------

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

    ir::Value* pass(ir::Value* v) {
        return callee.b.function->add_param(*callee.b.function->body, v->type);
    }
    ir::Value* rebuild(ir::Value* place) {
        place = ir::resolve(place);
        const ir::Inst* d = place->def;
        std::vector<ir::Value*> inner;
        for (int i = 0; i < d->operand_count; ++i) {
            ir::Value* o = d->operand(i);
            inner.push_back(o->type.is_place() ? rebuild(o) : pass(o));
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
            return r;
        }
        const ir::Value* root = ir::root_of_place(e->value());
        if (!is_local_place(root))
            return make_place(rebuild(e->value()), e->kind, e->shared, e->read_only);
        ir::Value* in = pass(caller.b.load(e->value()));
        ir::Value* slot = callee.b.slot(in->type);
        callee.b.store(slot, in);
        locals.push_back({Ref::borrow(o), slot});
        return make_place(slot, ExprKind::variable, false, e->read_only);
    }
};

// References that copying in and out cannot serve.
struct ReferenceCheck {
    std::vector<const ir::Value*> roots;
    bool bad = false;
    void see(PyObject* o) {
        if (is_plain_container(o) || is_struct(o)) {
            map_leaves(o, [&](PyObject* e) {
                see(e);
                return Ref::borrow(e);
            });
            return;
        }
        if (!is_expr(o)) return;
        const ExprObject* e = as_expr(o);
        if (!e->in_reach()) {
            bad = true;
            return;
        }
        if (e->kind != ExprKind::variable && e->kind != ExprKind::element) return;
        const ir::Value* root = ir::root_of_place(e->value());
        if (!is_local_place(root)) return;
        if (e->shared) bad = true;
        for (const ir::Value* r : roots) bad |= r == root;
        roots.push_back(root);
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

Ref cast_result(const FuncSignature& s, Ref value) {
    if (s.returns.get() == Py_None || is_empty(s.returns.get())) return value;
    if (const auto p = prim_of(s.returns.get()))
        return cast(Ref(make_value(to_value(value.get()))).get(), *p);
    return value;
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
    if (annotated && prim_of(s.returns.get())) return {cast_result(s, body.result.obj)};
    return body.result;
}

std::vector<Val> local_copies(const std::vector<Arg>& args) {
    std::vector<Val> out;
    for (const Arg& a : args)
        out.push_back(a.mode == Mode::value ? Val{new_variable(a.v.get())} : a.v);
    return out;
}

Val expand(Lowering& caller, const FuncSignature& s, const std::vector<Arg>& args) {
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
            return as_expr(e)->kind == ExprKind::variable ? to_rvalue(e) : Ref::borrow(e);
        });
        return result;
    } catch (...) {
        add_frame(callee);
        throw;
    }
}

// --- real functions
// -------------------------------------------------------------------------------- Their results
// are known from the annotation before the body is: calls may recurse, and every `return` leaves
// with the declared values followed by the variables passed by reference.

Ref declared_result(PyObject* annotation, Body& body, std::vector<ir::Type>& types) {
    const auto leaf = [&](ir::Type t) {
        types.push_back(t);
        // A stand-in that is only counted and retyped at calls.
        return make_value(body.low.b.slot(t));
    };
    if (const auto p = prim_of(annotation)) return leaf(ir::Type::scalar(*p));
    if (const auto t = tensor_type_of(annotation))
        return leaf(t->prim == ir::Prim::none ? t->with(body.low.kernel->options.default_fp) : *t);
    if (is_struct_type(annotation)) {
        Ref members = get(annotation, names().members_), out = Ref::steal(PyDict_New());
        PyObject *key, *type;
        for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &key, &type);)
            if (PyDict_SetItem(out.get(), key, declared_result(type, body, types).get()) < 0)
                throw PyError{};
        return make_struct(annotation, out.get());
    }
    Ref items = PyTuple_Check(annotation) || PyList_Check(annotation)
                    ? Ref::borrow(annotation)
                    : Ref::steal_or_null(PyObject_GetAttr(annotation, names().__args___));
    forget_error();
    if (!items) raise(Kind::syntax, "Invalid return type annotation: " + text(annotation));
    Ref list = Ref::steal(PySequence_List(items.get()));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k) {
        Ref part = declared_result(PyList_GET_ITEM(list.get(), k), body, types);
        if (PyList_SetItem(list.get(), k, part.release()) < 0) throw PyError{};
    }
    return Ref::steal(PyList_AsTuple(list.get()));
}

// The values that `value` gives for the declared leaves, in their order.
void real_results(PyObject* declared, PyObject* value, Lowering& l, std::vector<ir::Value*>& out) {
    if (is_expr(declared)) {
        const ir::Type want = as_expr(declared)->type().value();
        ir::Value* v = to_value(value);
        if (v->type.rank != want.rank || v->type.n != want.n || v->type.m != want.m)
            raise(Kind::runtime_type, "Return (type=" + type::to_user_string(v->type) +
                                          ") cannot be converted into required type " +
                                          type::to_user_string(want));
        out.push_back(l.b.cast(v, want.prim));
        return;
    }
    if (is_struct(declared)) {
        check_returned_struct(reinterpret_cast<StructObject*>(declared)->type, value);
        PyObject *key, *part, *from = reinterpret_cast<StructObject*>(value)->members;
        for (Py_ssize_t at = 0;
             PyDict_Next(reinterpret_cast<StructObject*>(declared)->members, &at, &key, &part);) {
            real_results(part, PyDict_GetItem(from, key), l, out);
        }
        return;
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(declared);
    Ref items = Ref::steal(PySequence_List(value));
    if (PyList_GET_SIZE(items.get()) != n)
        raise(Kind::syntax, "The number of returned values is not equal to the return type's");
    for (Py_ssize_t k = 0; k < n; ++k)
        real_results(PyTuple_GET_ITEM(declared, k), PyList_GET_ITEM(items.get(), k), l, out);
}

// A function that calls itself begins with a look at the stack.
void check_stack(ir::Function& f, const ir::Loc* loc) {
    ir::Builder b{&f, f.body, f.body->first, loc};
    ir::Format text;
    text.pieces.push_back(
        {"real function " + f.name + " calls itself too often for the stack of its thread", 0});
    ir::Value* left[] = {b.typed(ir::Op::stack_left, ir::Type::scalar(ir::Prim::u1), {})};
    b.emit(ir::Op::assert_, left, {})->ref = own_format(std::move(text));
}

void check_real_signature(const FuncSignature& s) {
    for (size_t k = 0; k < s.params.size(); ++k)
        if (is_empty(s.params[k].annotation.get()) &&
            !(k == 0 && text(s.params[k].name.get()) == "self"))
            raise(Kind::syntax, "Quadrants real function parameters must be type annotated");
}

// Walks the body of a real function: all its returns have been emitted, and one at the end.
void run_real_body(Body& body, Entry& e, const FuncSignature& s, const std::vector<Val>& params) {
    for (size_t k = 0; k < params.size(); ++k)
        body.declare(s.params[k].name.get(), params[k], Binding::Kind::variable);
    body.parameter_count = params.size();
    const Flow f = body.block(body.source.body);
    if (!e.result_types_declared.empty() && !body.has_return)
        raise(Kind::syntax, "Function has a return type but does not have a return statement");
    if (f == Flow::ended) return;
    Lowering& l = body.low;
    std::vector<ir::Value*> out;  // falling off the end: zeros
    for (const ir::Type t : e.result_types_declared)
        out.push_back(l.b.splat(l.b.int_const(t.prim, 0), t));
    for (ir::Value* slot : body.reference_slots) out.push_back(l.b.load(slot));
    l.b.end(ir::Op::return_, out);
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

// Lowers one specialisation. Throws HoldsTask if the body must be expanded instead.
void lower_entry(Entry& e, Lowering& caller, const FuncSignature& s, const std::vector<Arg>& args,
                 bool top_level) {
    DepthGuard depth;
    Ref qualified = get(s.definition.get(), names().__name___);
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
    Passing passing{caller, callee, {}, {}};
    ChangeCheck containers;
    try {
        std::vector<Val> params;
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
                    a.v.prov = p;
                }
            } else {
                a.v.obj = map_leaves(a.v.get(), [&](PyObject* o) {
                    return passing.leaf(o, a.mode == Mode::reference);
                });
                if (a.v.prov) a.v.prov = e.unit->argument(static_cast<int>(k));
                containers.see(a);
            }
            inner.push_back(std::move(a));
        }
        callee.undecided =
            !s.is_real && (top_level || !containers.trees.empty() ||
                           (caller.undecided && caller.runtime_depth == caller.body->entry_depth));
        e.first_lazy = static_cast<int>(e.function->body->params.size());
        Active active(callee);
        if (s.is_real) {
            if (s.returns.get() != Py_None && !is_empty(s.returns.get()))
                e.result = declared_result(s.returns.get(), body, e.result_types_declared);
            else
                e.result = Ref::borrow(Py_None);
            body.declared = e.result;
            e.function->result_types = e.result_types_declared;
            for (size_t k = 0; k < passing.locals.size(); ++k) {
                e.written.push_back(static_cast<int>(k));
                body.reference_slots.push_back(passing.locals[k].slot);
                e.function->result_types.push_back(passing.locals[k].slot->type.value());
            }
            e.function->returns_early = true;
            run_real_body(body, e, s, local_copies(inner));
            if (containers.changed())
                raise(Kind::syntax,
                      "A list or dict that is passed to a real function cannot be changed in it");
            if (e.recursive) check_stack(*e.function, callee.b.loc);
            if (e.recursive && !e.unit->lazy.empty())
                raise(Kind::compilation,
                      "A recursive real function cannot read array members of objects; pass the "
                      "arrays as arguments");
            return;
        }
        Val result = run_body(body, s, local_copies(inner));
        if (containers.changed()) throw HoldsTask{};
        // Results: leaves of the returned tree, then references that were written.
        e.result = map_leaves(result.get(), [&](PyObject* o) {
            if (as_expr(o)->kind == ExprKind::array) return Ref::borrow(o);
            Ref r = to_rvalue(o);
            e.result_order.push_back(as_expr(r.get())->value());
            return r;
        });
        std::vector<ir::Value*> out = e.result_order;
        for (size_t k = 0; k < passing.locals.size(); ++k)
            if (is_written(*e.function, passing.locals[k].slot)) {
                e.written.push_back(static_cast<int>(k));
                out.push_back(callee.b.load(passing.locals[k].slot));
            }
        for (ir::Value* v : out) e.function->result_types.push_back(v->type);
        callee.b.end(ir::Op::return_, out);
    } catch (...) {
        add_frame(callee);
        throw;
    }
}

// The operands of a call: evaluated in the caller, in the order the callee's parameters were made.
struct Operands {
    Lowering& caller;
    std::vector<ir::Value*> values;
    std::vector<Ref> locals;
    void place(ir::Value* p) {
        p = ir::resolve(p);
        const ir::Inst* d = p->def;
        for (int i = 0; i < d->operand_count; ++i) {
            ir::Value* o = d->operand(i);
            if (o->type.is_place())
                place(o);
            else
                values.push_back(o);
        }
    }
    Ref leaf(PyObject* o, bool by_reference) {
        ExprObject* e = as_expr(o);
        if (e->kind == ExprKind::array) {
            values.push_back(e->value());
        } else if (!by_reference || e->kind == ExprKind::value) {
            values.push_back(to_value(o));
        } else {
            const ir::Value* root = ir::root_of_place(e->value());
            if (!is_local_place(root)) {
                place(e->value());
            } else {
                values.push_back(caller.b.load(e->value()));
                locals.push_back(Ref::borrow(o));
            }
        }
        return Ref::borrow(o);
    }
};

Val follow(Body& caller, const std::vector<Arg>& args, const Prov* p);

Val follow_display(Body& caller, const std::vector<Arg>& args, const Prov* p) {
    Ref items = Ref::steal(PyList_New(0));
    std::vector<Prov*> places;
    for (const Prov* o : p->operands) {
        const Val v = follow(caller, args, o);
        if (!v.obj) return v;
        if (PyList_Append(items.get(), v.get()) < 0) throw PyError{};
        places.push_back(v.prov);
    }
    if (p->argument) items = Ref::steal(PyList_AsTuple(items.get()));
    return {items, caller.unit.display(std::move(places), p->argument)};
}

// A place of the callee as the caller sees it.
Val follow(Body& caller, const std::vector<Arg>& args, const Prov* p) {
    need_stack();
    if (!p->parent) {
        if (p->kind == Prov::Kind::argument) return args[static_cast<size_t>(p->argument)].v;
        if (p->kind == Prov::Kind::constant) return {p->key};
        if (p->kind == Prov::Kind::display) return follow_display(caller, args, p);
        Ref keep;
        walk(p, {}, keep);
        return {keep, caller.unit.global(p->kind, p->function.get(), p->key.get())};
    }
    Val base = follow(caller, args, p->parent);
    if (!base.obj) return base;
    if (p->kind == Prov::Kind::call) {
        std::vector<Ref> operands;
        std::vector<Prov*> provs;
        for (const Prov* o : p->operands) {
            Val v = follow(caller, args, o);
            if (!v.obj) return v;
            operands.push_back(v.obj);
            provs.push_back(v.prov);
        }
        return caller.call_again(base, operands, provs, p->key.get());
    }
    return p->kind == Prov::Kind::attribute ? caller.member(base, p->key.get())
                                            : caller.element(base, p->key.get());
}

// An operand whose object does not matter, because its place says all.
Ref stand_in(const Prov* p) {
    if (p->kind == Prov::Kind::constant) return p->key;
    if (p->kind != Prov::Kind::display) return Ref::borrow(Py_NotImplemented);
    Ref items = Ref::steal(PyList_New(0));
    for (const Prov* o : p->operands)
        if (PyList_Append(items.get(), stand_in(o).get()) < 0) throw PyError{};
    return p->argument ? Ref::steal(PyList_AsTuple(items.get())) : items;
}

Prov* translate(Unit& to, const std::vector<Arg>& args, const Prov* p) {
    need_stack();
    if (!p->parent) {
        if (p->kind == Prov::Kind::argument) return args[static_cast<size_t>(p->argument)].v.prov;
        if (p->kind == Prov::Kind::constant) return const_cast<Prov*>(p);
        if (p->kind == Prov::Kind::display) {
            std::vector<Prov*> places;
            for (const Prov* o : p->operands) {
                places.push_back(translate(to, args, o));
                if (!places.back()) return nullptr;
            }
            return to.display(std::move(places), p->argument);
        }
        return to.global(p->kind, p->function.get(), p->key.get());
    }
    Prov* base = translate(to, args, p->parent);
    if (!base) return nullptr;
    if (p->kind == Prov::Kind::call) {
        std::vector<Ref> operands;
        std::vector<Prov*> provs;
        for (const Prov* o : p->operands) {
            provs.push_back(translate(to, args, o));
            operands.push_back(stand_in(o));
            if (!provs.back()) return nullptr;
        }
        return to.call(base, operands, provs, p->key.get());
    }
    return p->kind == Prov::Kind::attribute ? to.attribute(base, p->key.get())
                                            : to.item(base, p->key.get());
}

std::vector<PyObject*> objects_of(const std::vector<Arg>& args) {
    std::vector<PyObject*> out;
    for (const Arg& a : args) out.push_back(a.v.get());
    return out;
}

PyObject* code_of(PyObject* fn) { return PyFunction_Check(fn) ? PyFunction_GetCode(fn) : Py_None; }

void note_codes(Entry& e, PyObject* fn) {
    e.codes.emplace_back(Ref::borrow(fn), Ref::borrow(code_of(fn)));
    for (PyObject* o : e.unit->called)
        e.codes.emplace_back(Ref::borrow(o), Ref::borrow(code_of(o)));
}

// Reloaders and debuggers give a function other code while it lives.
bool codes_hold(const Entry& e) {
    return std::ranges::all_of(
        e.codes, [](const auto& c) { return code_of(c.first.get()) == c.second.get(); });
}

bool facts_hold(const Entry& e, const std::vector<Arg>& args) {
    const std::vector<PyObject*> objects = objects_of(args);
    const bool hold = std::ranges::all_of(e.unit->facts, [&](const Fact& f) {
        Ref keep;
        PyObject* now = walk(f.prov, objects, keep, Asker::again);
        return now && fact_holds(f, now) && !(f.field && f.field.get() != unwrap(now));
    });
    take_answers(hold);
    return hold;
}

// Facts hold for a whole kernel unless code of the user runs, which may change what they say.
bool is_checked(const Entry& e, const KernelState& k) {
    return e.checked == k.number && e.checked_at == k.user_runs && !e.runs_code;
}

void note_checked(Entry& e, KernelState& k) {
    k.user_runs += e.runs_code;
    e.checked = k.number;
    e.checked_at = k.user_runs;
}

void merge_facts(Entry& e, Unit& to, const std::vector<Arg>& args) {
    std::vector<Prov*> provs;
    for (const Arg& a : args) provs.push_back(a.v.prov);
    if (e.merged_into == &to && e.merged_kernel == to.kernel->number && e.merged_provs == provs)
        return;
    e.merged_into = &to;
    e.merged_kernel = to.kernel->number;
    e.merged_provs = provs;
    for (const Fact& f : e.unit->facts) {
        if (Prov* p = translate(to, args, f.prov)) {
            to.fact(p, f.kind, f.value.get(), f.field.get());
            if (f.prov->impurity != Impurity::none && !f.prov->from_argument())
                report_capture(*to.kernel, p, f.prov->impurity, f.value.get());
        } else
            to.opaque("the origin of an argument is not known");
    }
    for (const Ref& f : e.unit->fields) use_field(to, f.get());
    to.notices.insert(to.notices.end(), e.unit->notices.begin(), e.unit->notices.end());
    for (const auto& [field, prov] : e.unit->field_places)
        if (Prov* p = translate(to, args, prov)) to.field_places.try_emplace(field, p);
    to.called.insert(e.unit->called.begin(), e.unit->called.end());
    if (e.unit->foreign) to.opaque(e.unit->foreign_reason);
}

// Emits the call; false if the specialisation does not fit (an array changed its type).
bool emit_call(Entry& e, Body& caller, const std::vector<Arg>& args, Val& out) {
    Lowering& l = caller.low;
    Operands operands{l, {}, {}};
    for (const Arg& a : args)
        if (a.mode != Mode::constant)
            map_leaves(a.v.get(),
                       [&](PyObject* o) { return operands.leaf(o, a.mode == Mode::reference); });
    for (const Unit::Lazy& lazy : e.unit->lazy) {
        Val v = follow(caller, args, lazy.prov);
        if (!v.obj || !is_expr(v.get()) || as_expr(v.get())->type() != lazy.value->type)
            return false;
        operands.values.push_back(as_expr(v.get())->value());
    }
    ir::Inst* call = l.b.emit(ir::Op::call, operands.values, e.function->result_types);
    call->ref = e.function.get();
    size_t next = 0;
    out = {map_leaves(e.result.get(), [&](PyObject* o) {
        if (as_expr(o)->kind != ExprKind::array)
            return make_value(call->result(static_cast<int>(next++)));
        return make_array(operands.values[as_expr(o)->raw->index], as_expr(o)->access);
    })};
    for (const int k : e.written)
        l.b.store(as_expr(operands.locals[static_cast<size_t>(k)].get())->value(),
                  call->result(static_cast<int>(next++)));
    return true;
}

}  // namespace

FunctionCache& function_cache() { return *cache_pointer(); }

void abandon_function_cache() {
    (void)new std::shared_ptr<FunctionCache>(std::move(shared_cache()));
    shared_cache() = std::make_shared<FunctionCache>();
}
void clear_function_cache() {
    shared_cache() = std::make_shared<FunctionCache>();
    forget_memos();
}

OwnFunctions::OwnFunctions() : before_(std::move(own_cache)) {
    own_cache = std::make_shared<FunctionCache>();
}
OwnFunctions::~OwnFunctions() { own_cache = std::static_pointer_cast<FunctionCache>(before_); }

void Lowering::Body::emit_real_return() {
    std::vector<ir::Value*> out;
    if (declared.get() != Py_None) {
        if (!result.obj)
            raise(Kind::syntax, "Function has a return type but does not have a return value");
        real_results(declared.get(), result.get(), low, out);
    } else if (result.obj && result.get() != Py_None) {
        raise(Kind::syntax, "A function with a return value must be annotated with a return type");
    }
    for (ir::Value* slot : reference_slots) out.push_back(low.b.load(slot));
    low.b.end(ir::Op::return_, out);
}

const ir::Format* own_format(ir::Format format) {
    auto& all = function_cache().formats;
    all.push_back(std::move(format));
    return &all.back();
}

std::shared_ptr<void> functions_owner() { return cache_pointer(); }

void hold_in_python() {
    current()->kernel->held_in_python = true;
    PyErr_SetString(PyExc_BaseException, "this call of a Quadrants function is made again");
}

// Called inside a catch block: whether a body asks to be expanded, be it through Python.
static bool is_held_task(KernelState& k) {
    const bool in_python = std::exchange(k.held_in_python, false);
    try {
        throw;
    } catch (const HoldsTask&) {
    } catch (...) {
        if (!in_python) return false;
    }
    if (in_python) forget_failure();
    return true;
}

Val call_definition(PyObject* definition, const TracedArgs& args) {
    Lowering& l = current_or_raise("A Quadrants function");
    Body& caller = *l.body;
    const FuncSignature& s = signature_of(definition);
    if (s.top_level_only && !caller.unit.is_kernel && l.runtime_depth == caller.entry_depth)
        throw HoldsTask{};
    if (s.top_level_only && (l.runtime_depth > 0 || l.parallel_depth > 0))
        raise(Kind::syntax,
              "Function " + text(Ref::steal(PyObject_GetAttrString(s.fn.get(), "__name__")).get()) +
                  " has requires_top_level=True and cannot be called inside a "
                  "runtime for, if or while");
    if (s.is_real) check_real_signature(s);
    caller.unit.called.insert(s.fn.get());
    std::vector<Val> bound = bind_arguments(s, args);
    for (size_t k = 0; k < bound.size(); ++k)
        if (bound[k].get() == s.params[k].default_value.get() && s.params[k].has_default &&
            !Unit::is_default_known(bound[k].get()))
            caller.unit.opaque("a default value");
    std::vector<Arg> plan;
    ReferenceCheck references;
    for (size_t k = 0; k < bound.size(); ++k) {
        caller.unit.guard_items(bound[k].get(), bound[k].prov);
        plan.push_back(classify(s.params[k], std::move(bound[k])));
        if (plan.back().mode == Mode::reference) references.see(plan.back().v.get());
    }
    const bool top_level = caller.unit.is_kernel && l.runtime_depth == 0 && l.parallel_depth == 0;
    if ((references.bad && !s.is_real) || s.top_level_only) return expand(l, s, plan);

    Key key = key_of(s, plan, l);
    FunctionCache& cache = function_cache();
    std::unique_ptr<Entry>& slot = cache.entries[key.bytes];
    if (slot && slot->in_progress) {
        if (s.is_real) {
            slot->recursive = true;
            Val out;
            if (!emit_call(*slot, caller, plan, out))
                raise(Kind::compilation, "internal error: a recursive call does not fit");
            return out;
        }
        raise(Kind::compilation,
              "Recursive call of " + text(get(definition, names().__name___).get()) +
                  ": recursion at run time is not supported in Quadrants functions");
    }
    if (slot && slot->expand) return expand(l, s, plan);
    if (slot && !is_checked(*slot, *l.kernel)) {
        if (slot->unit->foreign || !codes_hold(*slot) || !facts_hold(*slot, plan))
            cache.loose.push_back(std::move(slot));
        else
            note_checked(*slot, *l.kernel);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
        if (!slot) {
            slot = std::make_unique<Entry>();
            Entry* e = slot.get();
            e->constants = std::move(key.constants);
            e->in_progress = true;
            try {
                const bool print_before = l.kernel->has_print;
                l.kernel->has_print = false;
                const uint64_t runs_before = l.kernel->user_runs;
                lower_entry(*e, l, s, plan, top_level);
                note_codes(*e, s.fn.get());
                e->runs_code = l.kernel->user_runs != runs_before;
                if (e->runs_code) e->unit->see_changes(objects_of(plan));
                let_handlers_raise();  // what they interrupted is not kept
                e->has_print = l.kernel->has_print;
                l.kernel->has_print |= print_before;
                // A helper of the user may have caught what stood for HoldsTask.
                if (l.kernel->held_in_python) throw HoldsTask{};
            } catch (...) {
                if (is_held_task(*l.kernel)) {
                    // unique_ptr may have moved: look the entry up again
                    Entry& again = *cache.entries[key.bytes];
                    again.in_progress = false;
                    again.expand = true;
                    return expand(l, s, plan);
                }
                auto it = cache.entries.find(key.bytes);
                cache.loose.push_back(std::move(it->second));
                cache.entries.erase(it);
                throw;
            }
            e->in_progress = false;
            e->checked = l.kernel->number;
            e->checked_at = l.kernel->user_runs;
            ++l.kernel->out->funcs_lowered;
        }
        Entry& e = *cache.entries[key.bytes];
        if (e.unit->could_hold_task && !s.is_real) {
            if (top_level) return expand(l, s, plan);
            if (!caller.unit.is_kernel && l.runtime_depth == caller.entry_depth)
                caller.unit.could_hold_task = true;
        }
        Val out;
        merge_facts(e, caller.unit, plan);
        if (emit_call(e, caller, plan, out)) {
            ++l.kernel->out->func_calls;
            l.kernel->has_print |= e.has_print;
            if (e.unit->foreign) {  // never shared
                auto it = cache.entries.find(key.bytes);
                cache.loose.push_back(std::move(it->second));
                cache.entries.erase(it);
            }
            return out;
        }
        cache.loose.push_back(std::move(cache.entries[key.bytes]));
        key = key_of(s, plan, l);
    }
    raise(Kind::compilation, "internal error: a specialisation does not fit its call");
}

Ref call_func(PyObject* func, const CallArgs& args) {
    current_or_raise("A Quadrants function");
    PyObject* definition = func;
    TracedArgs with_self{args, {}, {}};
    if (PyMethod_Check(func)) {
        definition = PyMethod_GET_FUNCTION(func);
        with_self.positional.insert(with_self.positional.begin(),
                                    Ref::borrow(PyMethod_GET_SELF(func)));
    }
    // A func of this package that native code or a method of ours calls: its text is a fact too.
    if (PyObject* fn = is_own_code(definition) ? func_of(definition) : nullptr) {
        Unit& unit = current()->body->unit;
        Ref module = get(fn, names().__module___);
        PyObject* name = module.release();
        PyUnicode_InternInPlace(&name);
        module = Ref::steal(name);
        guard_value(unit, fn,
                    unit.attribute(unit.global(Prov::Kind::module, nullptr, module.get()),
                                   get(fn, names().__name___).get()));
    }
    return call_definition(definition, with_self).obj;
}

}  // namespace qd::frontend
