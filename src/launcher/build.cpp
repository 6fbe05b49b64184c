// From arguments to a specialisation: a stored recipe, or the front end and the compiler.

#include <algorithm>
#include <new>
#include <optional>

#include "data/external.h"
#include "data/objects.h"
#include "frontend/facts/annotations.h"
#include "frontend/source/ast.h"
#include "ir/ir.h"
#include "launcher/assemble.h"
#include "launcher/code.h"
#include "launcher/compile_report.h"
#include "launcher/derivative.h"
#include "launcher/kernel.h"
#include "launcher/misses.h"
#include "launcher/warm.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/stage.h"
#include "session/stored_code.h"
#include "support/error.h"
#include "support/stack.h"

namespace qd::launcher {
namespace {

// The common case of those rules, without Python: a live array of the annotated primitive and rank.
bool fits_quickly(PyObject* annotation, PyObject* arg) {
    arg = data::unwrap(arg);
    Type elem;
    int ndim;
    if (data::is_ndarray(arg)) {
        const auto& a = *reinterpret_cast<data::NdarrayObject*>(arg);
        if (!a.data || a.generation != session().generation) return false;
        elem = a.elem;
        ndim = a.ndim;
    } else if (is_numpy(arg)) {
        ExternalArray a;
        if (!read_external(arg, a) || a.prim == Prim::none || !a.c_contiguous) return false;
        for (int k = 0; k < a.ndim; ++k)
            if (a.shape[k] > INT32_MAX) return false;
        elem = Type::scalar(a.prim);
        ndim = a.ndim;
        if (ndim > kMostAxes - 2) return false;
    } else {
        return false;
    }
    if (PyType_Check(annotation)) return true;  // the bare class: no conditions
    const Ref dtype = Ref::steal_or_null(PyObject_GetAttrString(annotation, "dtype"));
    const Ref rank = Ref::steal_or_null(PyObject_GetAttrString(annotation, "ndim"));
    const Ref grad = Ref::steal_or_null(PyObject_GetAttrString(annotation, "needs_grad"));
    cpython::forget_error();
    if (!dtype || !rank || !grad || grad.get() == Py_True) return false;
    int overflow = 0;
    if (rank.get() != Py_None &&
        (!PyLong_Check(rank.get()) || PyLong_AsLongAndOverflow(rank.get(), &overflow) != ndim))
        return false;
    if (dtype.get() == Py_None) return true;
    const Ref id = Ref::steal_or_null(PyObject_GetAttrString(dtype.get(), "id"));
    cpython::forget_error();
    return id && PyLong_Check(id.get()) && elem.rank == 0 &&
           PyLong_AsLongAndOverflow(id.get(), &overflow) == static_cast<long>(elem.prim);
}

// The array rules of spec 20 section 13 that do not depend on the body: raised by Python code,
// which knows the annotation's texts.
bool check_arrays(KernelObject& kernel, PyObject* const* args) {
    const std::vector<Parameter>& parameters = *kernel.parameters;
    static PyObject* check;
    for (size_t k = 0; k < parameters.size(); ++k) {
        using Kind = Parameter::Kind;
        const Kind kind = parameters[k].kind;
        if (kind != Kind::array && kind != Kind::buffer_view &&
            !(kind == Kind::any_tensor && frontend::is_external_array(args[k])))
            continue;
        if (parameters[k].optional && args[k] == Py_None) continue;
        if (parameters[k].kind == Parameter::Kind::array &&
            fits_quickly(parameters[k].annotation.get(), args[k]))
            continue;
        if (!check) {
            PyObject* module = PyImport_ImportModule("quadrants.lang._data.arguments");
            if (!module) return false;
            check = PyObject_GetAttrString(module, "check_array");
            Py_DECREF(module);
            if (!check) return false;
        }
        PyObject* ok = PyObject_CallFunctionObjArgs(check, parameters[k].annotation.get(), args[k],
                                                    parameters[k].name.get(), nullptr);
        if (!ok) {
            frontend::prefix_binding_error(kernel.definition);
            return false;
        }
        Py_DECREF(ok);
    }
    return true;
}

// What no weak reference can watch, the established package does not keep: it says so, and code may
// wait for that.
bool warn_of_unwatched(const Parameter& p, PyObject* arg) {
    if (p.kind != Parameter::Kind::template_ && p.kind != Parameter::Kind::dataclass) return true;
    if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(arg)) || arg == Py_None || PyLong_Check(arg) ||
        PyFloat_CheckExact(arg))
        return true;
    const Ref module = Ref::steal_or_null(PyImport_ImportModule("quadrants.lang._data.arguments"));
    return module &&
           Ref::steal_or_null(PyObject_CallMethod(module.get(), "warn_of_unwatched", "(O)", arg));
}

// Template values with rules of their own (floats under raise_on_templated_floats, dataclasses).
bool check_templates(KernelObject& k, PyObject* const* args) {
    static PyObject* check;
    for (size_t n = 0; n < k.parameters->size(); ++n) {
        const Parameter& p = (*k.parameters)[n];
        if (!warn_of_unwatched(p, args[n])) return false;
        if (p.kind != Parameter::Kind::template_ || args[n] == Py_None ||
            PyLong_CheckExact(args[n]) || PyFunction_Check(args[n]) || data::is_field(args[n]))
            continue;
        try {
            frontend::check_template_hash(args[n]);
        } catch (const cpython::PyError&) {
            frontend::prefix_binding_error(k.definition);
            return false;
        }
        if (!check) {
            const Ref module =
                Ref::steal_or_null(PyImport_ImportModule("quadrants.lang._data.arguments"));
            check = module ? PyObject_GetAttrString(module.get(), "check_template") : nullptr;
            if (!check) return false;
        }
        if (!Ref::steal_or_null(PyObject_CallFunctionObjArgs(check, k.definition, args[n],
                                                             p.name.get(), nullptr))) {
            frontend::prefix_binding_error(k.definition);
            return false;
        }
    }
    return true;
}

// Whether two of these arguments share memory, which the code at hand does not expect.
bool overlap(Specialisation& s, const std::vector<Parameter>& parameters, PyObject* const* args) {
    std::vector<uint8_t> block(s.args_bytes + 64);
    Kept kept;
    const Match matched = match_and_pack(s, parameters, args, block.data(), kept);
    if (matched == Match::error) cpython::forget_error();  // raised again at the launch
    return matched == Match::no && arrays_overlap(s, block.data(), s.array_use());
}

// Whether code for this module will rely on its arrays being distinct.
bool writes_arrays(const ir::Module& m) {
    if (std::ranges::count_if(m.params, [](const ir::Param& p) { return p.type.is_array(); }) < 2)
        return false;
    bool writes = false;
    for (const ir::Function* f : m.functions)
        ir::walk(*f->body, [&](ir::Inst& i) {
            if (i.effect() != ir::Effect::write && i.effect() != ir::Effect::atomic) return;
            const ir::Inst* d = ir::root_of_place(i.operand(0))->def;
            writes |= !d || d->op == ir::Op::array_place;
        });
    return writes;
}

// What code for this module will rely on: abi::ArrayUse.
uint32_t relies_on(const ir::Module& m) {
    const bool arrays =
        std::ranges::any_of(m.params, [](const ir::Param& p) { return p.type.is_array(); });
    return (writes_arrays(m) ? abi::kDistinctArrays : 0u) |
           (arrays && !m.fields.empty() ? abi::kOwnFields : 0u);
}

// Whether arguments do what code that relies on `use` does not take: then it need not be made.
bool share_memory(KernelObject& k, PyObject* const* args, const frontend::LoweredKernel& kernel,
                  uint32_t use) {
    const auto s = assemble(k, args, kernel, kernel.module->params, nullptr, {});
    if (!s) return cpython::forget_error(), false;
    std::vector<uint8_t> block(s->args_bytes + 64);
    Kept kept;
    const Match matched = match_and_pack(*s, *k.parameters, args, block.data(), kept);
    if (matched == Match::error) cpython::forget_error();
    return matched == Match::yes && arrays_overlap(*s, block.data(), use);
}

// Whether it depends on fields; the one of coverage's probes is none of the user's.
bool uses_fields(const frontend::LoweredKernel& kernel) {
    return std::ranges::any_of(kernel.field_paths, [](const frontend::Path& p) {
        return p.root != frontend::Path::Root::global ||
               PyUnicode_CompareWithASCIIString(p.name.get(), "_qd_cov") != 0;
    });
}

// Adds to the session's sums what it took, and tells of it.
struct Told {
    Making making;

    ~Told() {
        Session& s = session();
        s.cache_ns += making.look_up_ns;
        s.trace_ns += making.front_end_ns;
        s.compile_ns += making.code_ns;
        if (reports_compiling()) report_making(making);
    }
};

// The terminal's line is for people who see no other.
bool shows_progress() {
    return session().options.compile_progress && runtime::can_show_progress() &&
           PySys_GetObject("stderr") == PySys_GetObject("__stderr__");
}

// One specialisation in the making.
struct Build {
    KernelObject& k;
    PyObject* const* args;
    size_t count;
    std::string name;
    Making& making;

    std::span<PyObject* const> arguments() const { return {args, count}; }
    // A stored recipe, if it fits these arguments; what it was made from goes to `source`.
    std::unique_ptr<Specialisation> accept(Recipe& recipe,
                                           std::vector<frontend::SourceFunction>& source);
    // Null: nothing in the cache fits. `told`: false if telling of it raised.
    std::unique_ptr<Specialisation> find(bool& told);
    // The others: null with an exception set.
    std::unique_ptr<frontend::LoweredKernel> lower();
    std::unique_ptr<Specialisation> interpret(const frontend::LoweredKernel& kernel);
    std::unique_ptr<Specialisation> bind(const frontend::LoweredKernel& kernel);
    std::unique_ptr<Specialisation> compile(const frontend::LoweredKernel& kernel);
};

std::unique_ptr<Specialisation> Build::accept(Recipe& recipe,
                                              std::vector<frontend::SourceFunction>& source) {
    if (!classes_fit(*k.parameters, args, recipe.kernel)) return nullptr;
    auto slot = slot_of_artefact(recipe.code_hash, recipe.artefact, kernel_name(k), making.load_ns);
    auto made = assemble(k, args, recipe.kernel, recipe.params, std::move(slot), recipe.code_hash);
    if (!made) return nullptr;
    std::vector<uint8_t> block(made->args_bytes + 64);
    Kept kept;
    const Match matched = match_and_pack(*made, *k.parameters, args, block.data(), kept);
    if (matched == Match::error) cpython::forget_error();  // lowering, or the launch, says
    if (matched != Match::yes) return nullptr;
    for (const frontend::Notice& n : recipe.kernel.notices)  // an entry's user needs none
        if (n.category != frontend::Notice::Category::user || !has_entries(k)) frontend::give(n);
    made->name = name;
    source = std::move(recipe.kernel.functions);
    return made;
}

std::unique_ptr<Specialisation> Build::find(bool& told) {
    std::vector<frontend::SourceFunction> source;
    std::unique_ptr<Specialisation> made;
    {
        const runtime::Stage stage("look-up", name, making.look_up_ns);
        made = find_recipe(
            k, args, count, [&](Recipe& recipe) { return accept(recipe, source); },
            reports_compiling() ? &making.misses : nullptr);
    }
    if (!made) {
        if (reports_compiling()) explain_miss(k, args, count, making.misses);
        return nullptr;
    }
    ++session().cache_hits;
    ++session().compiled;
    making.from = Making::From::cache;
    making.misses.clear();
    if (reports_compiling()) count_code(making, made->slot->current()->header());
    told = tell(k, arguments(), *made, source, making.from, made->fields.empty());
    return made;
}

std::unique_ptr<frontend::LoweredKernel> Build::lower() {
    const Session& s = session();
    ++session().lowered;
    const runtime::Stage stage("front end", name, making.front_end_ns);
    making.parsed = s.trees_parsed;  // until then
    making.loaded = s.trees_loaded;
    auto kernel = frontend::lower_kernel(k.definition, arguments(), s.options, name);
    if (kernel && reports_compiling()) count_front_end(making, *kernel);
    return kernel;
}

std::unique_ptr<Specialisation> Build::interpret(const frontend::LoweredKernel& kernel) {
    const runtime::Stage stage("front end", name, making.front_end_ns);
    ir::Module& module = *kernel.module;
    const uint32_t relies = kernel.derivative ? relies_on(module) : 0;
    module.arrays_may_overlap = relies && share_memory(k, args, kernel, relies);
    const auto derived = kernel.derivative ? derive(kernel) : nullptr;
    if (kernel.derivative && !derived) return nullptr;
    auto made = assemble(k, args, kernel, module.params, nullptr, {});
    if (made) {
        made->interpreted = prepare_interpreted(derived ? *derived : module);
        if (relies)
            made->interpreted_array_use =
                module.arrays_may_overlap ? uint32_t{abi::kOverlappingArrays} : relies;
    }
    ++session().compiled;
    making.from = Making::From::interpreter;
    return made;
}

std::unique_ptr<Specialisation> Build::bind(const frontend::LoweredKernel& kernel) {
    const auto derived = kernel.derivative ? derive(kernel) : nullptr;
    if (kernel.derivative && !derived) return nullptr;
    const ir::Module& module = derived ? *derived : *kernel.module;
    const std::vector<uint8_t> hash = code_hash_of(module);
    auto slot = code_of(k.definition, module, hash, making);
    if (!frontend::measures_coverage())
        making.not_kept = store_recipe(k, args, count, kernel, module.params, hash);
    return assemble(k, args, kernel, module.params, std::move(slot), hash);
}

std::unique_ptr<Specialisation> Build::compile(const frontend::LoweredKernel& kernel) {
    const runtime::Stage stage("code", name, making.code_ns);
    ir::Module& module = *kernel.module;
    module.arrays_may_overlap =
        writes_arrays(module) && share_memory(k, args, kernel, abi::kDistinctArrays);
    auto made = bind(kernel);
    if (!made) return nullptr;
    if (!module.arrays_may_overlap && made && made->array_use() &&
        overlap(*made, *k.parameters, args)) {
        module.arrays_may_overlap = true;
        made = bind(kernel);
    }
    ++session().compiled;
    if (!made) return nullptr;
    made->name = name;
    const bool cacheable = kernel.cacheable && !uses_fields(kernel);
    if (!tell(k, arguments(), *made, kernel.functions, making.from, cacheable)) return nullptr;
    return made;
}

std::unique_ptr<Specialisation> build_locked(KernelObject& k, PyObject* const* args, size_t count) {
    const Session& s = session();
    static const char* const modes[] = {"", "_reverse_grad", "_forward_grad", "_validate_grad"};
    const std::string name = kernel_name(k) + "_c" + std::to_string(s.compiled) + "_" +
                             std::to_string(k.specialisations->size()) + modes[k.derivative];
    if (k.derivative && s.options.opt_level == 0 &&
        !Ref::steal_or_null(PyObject_CallMethod(k.definition, "_raise_opt_level", nullptr)))
        return nullptr;
    if (!show_non_pure(k)) return nullptr;
    if (!check_arrays(k, args) || !check_templates(k, args)) return nullptr;
    Told told{{.kernel = name}};
    Build build{k, args, count, name, told.making};
    int64_t total_ns = 0;
    const runtime::Stage first_call("first call", name, total_ns);
    try {
        const bool interpreted = s.tier == 2;
        // Probes have numbers of this process, which only lowering gives.
        const bool cold = interpreted || frontend::measures_coverage();
        const frontend::Answers answers;
        bool found_told = true;
        if (auto found = cold ? nullptr : build.find(found_told))
            return found_told ? std::move(found) : nullptr;
        const runtime::ProgressLine line(name, shows_progress());
        const auto kernel = build.lower();
        if (!kernel) return nullptr;
        return interpreted ? build.interpret(*kernel) : build.compile(*kernel);
    } catch (const cpython::PyError&) {
    } catch (const frontend::Diag& d) {  // of what the facts about an argument are asked for
        frontend::set_python_error(d);
        frontend::prefix_binding_error(k.definition);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& e) {
        const std::string why = e.what();
        const bool memory = why.starts_with("out of memory");
        const bool ours = !memory && !why.starts_with("QD_LOAD_IR");
        if (!PyErr_Occurred())
            set_error(memory ? "MemoryError" : "QuadrantsRuntimeError",
                      (ours ? "internal error while compiling " : "compiling ") + kernel_name(k) +
                          ": " + why);
    }
    return nullptr;
}

// Takes the compilation lock. Who traces under it may run Python code that waits for this very
// thread: if it stands still for long, without the compiler being at work, this thread goes on
// without the lock (false). Nothing if a signal handler raises.
std::optional<bool> wait_for_turn(PyObject* lock) {
    constexpr double kPatience = 0.2;
    for (;;) {
        const Ref held =
            Ref::steal_or_null(PyObject_CallMethod(lock, "acquire", "id", 1, kPatience));
        if (!held) return {};
        if (held.get() == Py_True) return true;
        if (session().compiling <= 0) return false;
    }
}

// Gives it back, whatever happens, and keeps the exception that is set.
struct Turn {
    PyObject* lock;  // null: it was not taken

    ~Turn() {
        if (!lock) return;
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        const Ref done = Ref::steal_or_null(PyObject_CallMethod(lock, "release", nullptr));
        if (!done) cpython::forget_error();
        PyErr_Restore(type, value, trace);
    }
};

}  // namespace

std::unique_ptr<Specialisation> build_specialisation(KernelObject& k, PyObject* const* args,
                                                     size_t count, bool* others) {
    static PyObject*
        lock;  // PyQuadrants.compilation_lock: re-entrant, for threads that first-call at once
    if (!lock) {
        PyObject* module = PyImport_ImportModule("quadrants.lang.impl");
        PyObject* runtime = module ? PyObject_GetAttrString(module, "pyquadrants") : nullptr;
        lock = runtime ? PyObject_GetAttrString(runtime, "compilation_lock") : nullptr;
        Py_XDECREF(module);
        Py_XDECREF(runtime);
        if (!lock) return nullptr;
        // A forked child must not wait for a thread that only its parent has.
        const Ref os = Ref::steal_or_null(PyImport_ImportModule("os"));
        const Ref renew = Ref::steal_or_null(PyObject_GetAttrString(lock, "_at_fork_reinit"));
        const Ref at_fork =
            os && renew ? Ref::steal_or_null(PyObject_GetAttrString(os.get(), "register_at_fork"))
                        : Ref();
        const Ref none = at_fork ? Ref::steal_or_null(PyTuple_New(0)) : Ref();
        const Ref keywords =
            none ? Ref::steal_or_null(Py_BuildValue("{s:O}", "after_in_child", renew.get()))
                 : Ref();
        const Ref done =
            keywords ? Ref::steal_or_null(PyObject_Call(at_fork.get(), none.get(), keywords.get()))
                     : Ref();
        if (!done) cpython::forget_error();
    }
    const uint32_t generation = session().generation;
    const size_t known = k.specialisations->size();
    support::see_stack_limit();
    const auto mine = wait_for_turn(lock);
    if (!mine) return nullptr;
    std::unique_ptr<Specialisation> s;
    const Turn turn{*mine ? lock : nullptr};
    if (session().generation != generation) {
        set_error("QuadrantsRuntimeError",
                  "the runtime was reset while " + kernel_name(k) + " was being compiled");
    } else if (others && k.specialisations->size() > known) {
        *others = true;
    } else {
        const Working working;
        const runtime::StandardFloats floats;
        std::optional<frontend::OwnFunctions> apart;
        if (!*mine) apart.emplace();
        s = build_locked(k, args, count);
        show_cache_messages();
    }
    if (cpython::raise_kept_error()) s.reset();
    return s;
}

}  // namespace qd::launcher
