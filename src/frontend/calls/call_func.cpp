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
#include <deque>
#include <list>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "frontend/calls/entry.h"
#include "frontend/facts/memo.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

using Loose = std::list<std::unique_ptr<Entry>>;

struct FunctionCache {
    std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
    Loose loose;  // lowered per call site, or replaced
    std::deque<ir::Format> formats;
};

// Null: nothing was lowered yet.
std::shared_ptr<FunctionCache>& shared_cache() {
    static auto* p = new std::shared_ptr<FunctionCache>;
    return *p;
}

thread_local std::shared_ptr<FunctionCache> own_cache;  // while OwnFunctions lives

std::shared_ptr<FunctionCache>& cache_pointer() {
    if (own_cache) return own_cache;
    auto& shared = shared_cache();
    if (!shared) shared = std::make_shared<FunctionCache>();
    return shared;
}

// Finds references that copying in and out cannot serve.
struct ReferenceCheck {
    std::vector<const ir::Value*> roots, viewed;  // viewed: by one view after the other
    bool bad = false;
    // One that nobody but this call sees can be copied, as long as nothing else leads to it.
    void see_view(PyObject* o) {
        const ir::Value* last = nullptr;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(as_expr(o)->origin); ++k) {
            const ExprObject* place = as_expr(PyTuple_GET_ITEM(as_expr(o)->origin, k));
            const ir::Value* root = place->in_reach() ? ir::root_of_place(place->value()) : nullptr;
            bad |= !root || !is_local_place(root) || place->shared;
            if (root == last) continue;
            bad |= std::ranges::find(viewed, root) != viewed.end();
            viewed.push_back(last = root);
        }
    }
    bool is_bad() const {
        return bad || std::ranges::any_of(viewed, [&](const ir::Value* root) {
                   return std::ranges::find(roots, root) != roots.end();
               });
    }
    void see(PyObject* o) {
        if (is_plain_container(o) || is_struct(o)) {
            map_leaves(o, [&](PyObject* e) {
                see(e);
                return Ref::borrow(e);
            });
            return;
        }
        if (!is_expr(o)) return;
        if (is_view(o)) return see_view(o);
        const ExprObject* e = as_expr(o);
        if (!e->in_reach()) {
            bad = true;
            return;
        }
        if (e->kind != ExprKind::variable && e->kind != ExprKind::element) return;
        // Which component of a quantised element it is must be known where it is used.
        bad |= is_packed(e->value());
        const ir::Value* root = ir::root_of_place(e->value());
        if (!is_local_place(root)) return;
        if (e->shared) bad = true;
        for (const ir::Value* r : roots) bad |= r == root;
        roots.push_back(root);
    }
};

bool can_be_copied(const std::vector<Arg>& args) {
    ReferenceCheck references;
    for (const Arg& a : args)
        if (a.mode == Mode::reference) references.see(a.v.get());
    return !references.is_bad();
}

// The operands of a call: evaluated in the caller, in the order the callee's parameters were made.
struct Operands {
    Lowering& caller;
    SharedVariables shared;
    std::vector<ir::Value*> values;
    std::vector<Ref> locals;
    std::vector<bool> passed = std::vector<bool>(shared.roots.size());  // of `shared`
    void place(ir::Value* p) {
        p = ir::resolve(p);
        const ir::Inst* d = p->def;
        for (int i = 0; d && i < d->operand_count; ++i) {
            ir::Value* o = d->operand(i);
            if (o->type.is_place())
                place(o);
            else
                values.push_back(o);
        }
    }
    void copy(Ref variable) {
        values.push_back(caller.b.load(as_expr(variable.get())->value()));
        locals.push_back(std::move(variable));
    }
    Ref leaf(PyObject* o, bool by_reference) {
        ExprObject* e = as_expr(o);
        if (e->kind == ExprKind::array) {
            values.push_back(e->value());
        } else if (!by_reference || e->kind == ExprKind::value) {
            values.push_back(to_value(o));
        } else {
            const ir::Value* root = ir::root_of_place(e->value());
            const int number = shared.number(root);
            if (number >= 0 && !passed[static_cast<size_t>(number)]) {
                passed[static_cast<size_t>(number)] = true;
                copy(root_place(e));
            }
            if (number >= 0 || !is_local_place(root))
                place(e->value());
            else
                copy(Ref::borrow(o));
        }
        return Ref::borrow(o);
    }
};

// Emits the call; false if the specialisation does not fit (an array changed its type).
bool emit_call(Entry& e, const FuncSignature& s, Body& caller, const std::vector<Arg>& args,
               Val& out) {
    Lowering& l = caller.low;
    Operands operands{l, SharedVariables(s, args), {}, {}};
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

// Called inside a catch block: whether a body asks to be expanded, be it through Python.
bool is_held_task(KernelState& k) {
    const bool in_python = std::exchange(k.held_in_python, false);
    try {
        throw;
    } catch (const HoldsTask&) {
    } catch (...) {
        if (!in_python) return false;
    }
    if (in_python) {
        drop_own_error(PyExc_BaseException);  // of hold_in_python
        forget_failure();
    }
    return true;
}

// One call: finds the specialisation for its key or makes it.
struct FuncCall {
    Lowering& l;
    const FuncSignature& s;
    const std::vector<Arg>& plan;
    bool top_level;
    Body& caller = *l.body;
    FunctionCache& cache = *cache_pointer();
    Key key = key_of(s, plan, l);

    Val expand() { return expand_func(l, s, plan); }

    // The body of this very specialisation makes the call.
    Val recurse(Entry& e) {
        if (!s.is_real)
            raise(Kind::compilation,
                  "Recursive call of " +
                      text(attribute_of(s.definition.get(), names().__name___).get()) +
                      ": recursion at run time is not supported in Quadrants functions");
        e.recursive = true;
        Val out;
        if (!emit_call(e, s, caller, plan, out))
            raise(Kind::compilation, "internal error: a recursive call does not fit");
        return out;
    }

    void lower(Entry& e) {
        KernelState& kernel = *l.kernel;
        const bool print_before = kernel.has_print;
        kernel.has_print = false;
        const uint64_t runs_before = kernel.user_runs;
        lower_func(e, l, s, plan, top_level);
        note_codes(e, s.fn.get());
        e.runs_code = kernel.user_runs != runs_before;
        if (e.runs_code) e.unit->see_changes(objects_of(plan));
        let_handlers_raise();  // what they interrupted is not kept
        e.has_print = kernel.has_print;
        kernel.has_print |= print_before;
        // A helper of the user may have caught what stood for HoldsTask.
        if (kernel.held_in_python) throw HoldsTask{};
    }

    // Makes the entry; false if the body must be expanded.
    bool fill(std::unique_ptr<Entry>& slot) {
        Loose place(1);  // for set_aside(), which may find no memory
        slot = std::make_unique<Entry>();
        Entry* e = slot.get();
        e->constants = std::move(key.constants);
        e->in_progress = true;
        try {
            lower(*e);
        } catch (...) {
            const bool held = is_held_task(*l.kernel);
            if (held && s.is_real) {  // one that calls it is expanded, which it cannot be
                set_aside(std::move(place));
                throw HoldsTask{};
            }
            if (held) {
                // unique_ptr may have moved: look the entry up again
                Entry& again = *cache.entries[key.bytes];
                again.in_progress = false;
                again.expand = true;
                return false;
            }
            set_aside(std::move(place));
            throw;
        }
        e->in_progress = false;
        e->checked = l.kernel->number;
        e->checked_at = l.kernel->user_runs;
        ++l.kernel->out->funcs_lowered;
        return true;
    }

    // Kept for the kernels that call it; nobody finds it any more.
    void set_aside(Loose place = Loose(1)) {
        auto it = cache.entries.find(key.bytes);
        place.front() = std::move(it->second);
        cache.loose.splice(cache.loose.end(), place);
        cache.entries.erase(it);
    }

    // Sets an entry aside that was made for what is no longer so.
    void check_facts(std::unique_ptr<Entry>& slot) {
        if (is_checked(*slot, *l.kernel)) return;
        if (still_holds(*slot, plan))
            note_checked(*slot, *l.kernel);
        else
            cache.loose.push_back(std::move(slot));
    }

    // True if it must be expanded because the loops of the body may be tasks here.
    bool could_hold_task(const Entry& e) {
        if (!e.unit->could_hold_task || s.is_real) return false;
        if (top_level) return true;
        if (!caller.unit.is_kernel && l.runtime_depth == caller.entry_depth)
            caller.unit.could_hold_task = true;
        return false;
    }

    Val run() {
        std::unique_ptr<Entry>& slot = cache.entries[key.bytes];
        if (slot && slot->in_progress) return recurse(*slot);
        if (slot && slot->expand) return expand();
        if (slot) check_facts(slot);
        for (int attempt = 0; attempt < 2; ++attempt) {
            if (!slot && !fill(slot)) return expand();
            Entry& e = *cache.entries[key.bytes];
            if (could_hold_task(e)) return expand();
            Val out;
            merge_facts(e, caller.unit, plan);
            if (emit_call(e, s, caller, plan, out)) {
                ++l.kernel->out->func_calls;
                l.kernel->has_print |= e.has_print;
                if (e.unit->foreign) set_aside();  // never shared
                return out;
            }
            cache.loose.push_back(std::move(cache.entries[key.bytes]));
            key = key_of(s, plan, l);
        }
        raise(Kind::compilation, "internal error: a specialisation does not fit its call");
    }
};

// A body that is lowered apart is not at the top level yet: it is expanded where that shows.
void check_top_level(const FuncSignature& s, const Lowering& l) {
    if (!s.top_level_only) return;
    if (!l.body->unit.is_kernel && l.runtime_depth == l.body->entry_depth) throw HoldsTask{};
    if (l.runtime_depth > 0 || l.parallel_depth > 0)
        raise(Kind::syntax,
              "Function " + text(Ref::steal(PyObject_GetAttrString(s.fn.get(), "__name__")).get()) +
                  " has requires_top_level=True and cannot be called inside a "
                  "runtime for, if or while");
}

// How each argument is passed.
std::vector<Arg> plan_arguments(const FuncSignature& s, const TracedArgs& args, Unit& unit) {
    std::vector<Val> bound = bind_arguments(s, args);
    for (size_t k = 0; k < bound.size(); ++k)
        if (bound[k].get() == s.params[k].default_value.get() && s.params[k].has_default &&
            !Unit::is_default_known(bound[k].get()))
            unit.opaque("a default value");
    std::vector<Arg> plan;
    for (size_t k = 0; k < bound.size(); ++k) {
        unit.guard_items(bound[k].get(), bound[k].prov);
        plan.push_back(classify(s.params[k], std::move(bound[k]), s.is_real));
    }
    return plan;
}

}  // namespace

Ref attribute_of(PyObject* o, PyObject* name) { return Ref::steal(PyObject_GetAttr(o, name)); }

void abandon_function_cache() { new (&shared_cache()) std::shared_ptr<FunctionCache>; }
void clear_function_cache() {
    shared_cache().reset();
    forget_memos();
}

OwnFunctions::OwnFunctions()
    : before_(std::exchange(own_cache, std::make_shared<FunctionCache>())) {}
OwnFunctions::~OwnFunctions() { own_cache = std::static_pointer_cast<FunctionCache>(before_); }

const ir::Format* own_format(ir::Format format) {
    auto& all = cache_pointer()->formats;
    all.push_back(std::move(format));
    return &all.back();
}

std::shared_ptr<void> functions_owner() { return cache_pointer(); }

void hold_in_python() {
    current()->kernel->held_in_python = true;
    PyErr_SetString(PyExc_BaseException, "this call of a Quadrants function is made again");
}

Val call_definition(PyObject* definition, const TracedArgs& args) {
    Lowering& l = current_or_raise("A Quadrants function");
    Unit& unit = l.body->unit;
    const FuncSignature& s = signature_of(definition);
    check_top_level(s, l);
    if (s.is_real && l.kernel->out->derivative && !l.kernel->options.ad_general_control)
        raise(Kind::syntax, "Real function in gradient kernels unsupported.",
              "write it as a @qd.func, which is expanded, or allow it with "
              "qd.init(ad_general_control=True)");
    if (s.is_real) check_real_signature(s);
    unit.called.insert(s.fn.get());
    const std::vector<Arg> plan = plan_arguments(s, args, unit);
    if (s.top_level_only || (!s.is_real && !can_be_copied(plan))) return expand_func(l, s, plan);
    const bool top_level = unit.is_kernel && l.runtime_depth == 0 && l.parallel_depth == 0;
    return FuncCall{.l = l, .s = s, .plan = plan, .top_level = top_level}.run();
}

// A func that native code or a method of ours calls.
Ref call_func(PyObject* func, const CallArgs& args) {
    return call_own_func(func, {args, {}, {}}).obj;
}
Val call_own_func(PyObject* func, TracedArgs args) {
    current_or_raise("A Quadrants function");
    PyObject* definition = func;
    if (PyMethod_Check(func)) {
        definition = PyMethod_GET_FUNCTION(func);
        args.positional.insert(args.positional.begin(), Ref::borrow(PyMethod_GET_SELF(func)));
        if (!args.provs.empty()) args.provs.insert(args.provs.begin(), nullptr);
    }
    // A func of this package that native code or a method of ours calls: its text is a fact too.
    if (PyObject* fn = is_own_code(definition) ? func_of(definition) : nullptr) {
        Unit& unit = current()->body->unit;
        Ref module = attribute_of(fn, names().__module___);
        PyObject* name = module.release();
        PyUnicode_InternInPlace(&name);
        module = Ref::steal(name);
        guard_value(unit, fn,
                    unit.attribute(unit.global(Prov::Kind::module, nullptr, module.get()),
                                   attribute_of(fn, names().__name___).get()));
    }
    return call_definition(definition, args);
}

}  // namespace qd::frontend
