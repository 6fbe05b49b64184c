// Where compile-time objects come from: a Prov node is made when lowering reads a global, a closure
// cell, a member or an item, or calls a helper of the user; a path says the same to other
// processes.

#include <algorithm>
#include <cstring>
#include <ranges>
#include <utility>

#include "cpython/names.h"
#include "frontend/diag.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/contents.h"
#include "frontend/facts/facts.h"
#include "frontend/facts/hooks.h"
#include "frontend/facts/places.h"
#include "frontend/facts/plain_code.h"
#include "frontend/source/ast.h"
#include "frontend/source/stack.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {
bool is_repeatable(PyObject* o) {
    if (!PyTuple_CheckExact(o)) return is_plain_constant(o);
    need_stack();
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(o); ++k)
        if (!is_repeatable(PyTuple_GET_ITEM(o, k))) return false;
    return true;
}
}  // namespace

Prov* Unit::argument(int index) {
    Prov*& p = arguments[index];
    if (!p) {
        p = &provs.emplace_back();
        p->kind = Prov::Kind::argument;
        p->argument = index;
    }
    return p;
}

Prov* Unit::annotation(int index, PyObject* annotation) {
    Prov* p = &provs.emplace_back();
    p->kind = Prov::Kind::annotation;
    p->argument = index;
    p->key = Ref::borrow(annotation);
    return p;
}

Prov* Unit::display(std::vector<Prov*> items, bool is_tuple) {
    Prov* p = &provs.emplace_back();
    p->kind = Prov::Kind::display;
    p->argument = is_tuple;
    p->operands = std::move(items);
    return p;
}

Prov* Unit::global(Prov::Kind kind, PyObject* fn, PyObject* name) {
    Prov*& p = globals[{fn, name}];
    if (!p) {
        p = &provs.emplace_back();
        p->kind = kind;
        p->key = Ref::borrow(name);
        p->function = Ref::borrow(fn);
    }
    return p;
}

Prov* Unit::attribute(Prov* base, PyObject* name) {
    if (base->kind == Prov::Kind::display) return nullptr;
    Prov*& p = base->attributes[name];
    if (!p) {
        p = &provs.emplace_back();
        p->kind = Prov::Kind::attribute;
        p->parent = base;
        p->key = Ref::borrow(name);
    }
    return p;
}

Prov* Unit::item(Prov* base, PyObject* key) {
    if (base->kind == Prov::Kind::display) {
        if (!PyLong_Check(key)) return nullptr;
        const auto count = static_cast<Py_ssize_t>(base->operands.size());
        const Py_ssize_t at = PyLong_AsSsize_t(key), place = at < 0 ? at + count : at;
        if (PyErr_Occurred()) return forget_error(), nullptr;
        return place >= 0 && place < count ? base->operands[static_cast<size_t>(place)] : nullptr;
    }
    if (!base->places) base->places = Ref::steal(PyDict_New());
    // Equal keys of different types are different ones to `__getitem__`.
    const Ref known = PyLong_CheckExact(key) || PyUnicode_CheckExact(key) ? Ref::borrow(key)
                      : is_repeatable(key)
                          ? Ref::steal(PyTuple_Pack(2, constant_repr(key).get(), Py_None))
                          : Ref::steal(PyTuple_Pack(2, Py_TYPE(key), key));
    if (PyObject* at = PyDict_GetItemWithError(base->places.get(), known.get()))
        return base->items[PyLong_AsSize_t(at)];
    forget_error();
    const Ref place = Ref::steal(PyLong_FromSize_t(base->items.size()));
    if (PyDict_SetItem(base->places.get(), known.get(), place.get()) < 0)
        forget_error();  // unhashable
    Prov* p = &provs.emplace_back();
    p->kind = Prov::Kind::item;
    p->parent = base;
    p->key = Ref::borrow(key);
    base->items.push_back(p);
    return p;
}

namespace {
// What tells operands apart: equal constants of different types are different (1, 1.0, True).
// Null if a later process could not make the operand again.
Ref operand_key(PyObject* o, const Prov* prov, int depth = 0) {
    constexpr int kDeepest = 16;
    if (is_repeatable(o)) return constant_repr(o);
    if (prov && prov->kind != Prov::Kind::display)
        return Ref::steal(PyLong_FromVoidPtr(const_cast<Prov*>(prov)));
    if ((!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) || depth > kDeepest) return {};
    const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(o));
    if (prov && prov->operands.size() != count) return {};
    const Ref parts = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(count) + 1));
    PyTuple_SET_ITEM(parts.get(), 0, Py_NewRef(PyTuple_CheckExact(o) ? Py_True : Py_False));
    for (size_t k = 0; k < count; ++k) {
        const auto at = static_cast<Py_ssize_t>(k);
        Ref part = operand_key(PySequence_Fast_GET_ITEM(o, at), prov ? prov->operands[k] : nullptr,
                               depth + 1);
        if (!part) return {};
        PyTuple_SET_ITEM(parts.get(), at + 1, part.release());
    }
    return parts;
}

Prov* make_operand(Unit& u, PyObject* o, Prov* prov) {
    if (prov && prov->kind != Prov::Kind::display && !is_repeatable(o)) return prov;
    Prov* made = &u.provs.emplace_back();
    if (is_repeatable(o)) {
        made->kind = Prov::Kind::constant;
        made->key = Ref::borrow(o);
        return made;
    }
    made->kind = Prov::Kind::display;
    made->argument = PyTuple_CheckExact(o);
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
        made->operands.push_back(
            make_operand(u, PySequence_Fast_GET_ITEM(o, k),
                         prov ? prov->operands[static_cast<size_t>(k)] : nullptr));
    return made;
}
}  // namespace

Prov* Unit::call(Prov* callee, std::span<const Ref> arguments, std::span<Prov* const> provs,
                 PyObject* keywords) {
    const Ref key = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(arguments.size()) + 1));
    PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(keywords ? keywords : Py_None));
    for (size_t k = 0; k < arguments.size(); ++k) {
        Ref part = operand_key(arguments[k].get(), provs[k]);
        if (!part) return nullptr;
        PyTuple_SET_ITEM(key.get(), static_cast<Py_ssize_t>(k) + 1, part.release());
    }
    if (callee->kind == Prov::Kind::display) return nullptr;
    if (!callee->calls) callee->calls = Ref::steal(PyDict_New());
    if (PyObject* at = PyDict_GetItemWithError(callee->calls.get(), key.get()))
        return callee->items[PyLong_AsSize_t(at)];
    forget_error();
    const Ref place = Ref::steal(PyLong_FromSize_t(callee->items.size()));
    if (PyDict_SetItem(callee->calls.get(), key.get(), place.get()) < 0) throw PyError{};
    Prov* p = &this->provs.emplace_back();
    p->kind = Prov::Kind::call;
    p->parent = callee;
    if (keywords) p->key = Ref::borrow(keywords);
    callee->items.push_back(p);
    for (size_t k = 0; k < arguments.size(); ++k)
        p->operands.push_back(make_operand(*this, arguments[k].get(), provs[k]));
    return p;
}

Prov* Unit::function_of(const char* module, const char* name) {
    return attribute(global(Prov::Kind::module, nullptr, interned(module).get()),
                     interned(name).get());
}

Path path_of(const Prov* prov, Unit& kernel_unit) {
    Path path;
    for (; prov->parent; prov = prov->parent) {
        Step step{prov->kind == Prov::Kind::attribute ? Step::Kind::attribute
                  : prov->kind == Prov::Kind::item    ? Step::Kind::item
                                                      : Step::Kind::call,
                  prov->key};
        for (const Prov* o : prov->operands) step.operands.push_back(path_of(o, kernel_unit));
        path.steps.push_back(std::move(step));
    }
    std::reverse(path.steps.begin(), path.steps.end());
    static const std::pair<Prov::Kind, Path::Root> roots[] = {
        {Prov::Kind::argument, Path::Root::argument},
        {Prov::Kind::global, Path::Root::global},
        {Prov::Kind::cell, Path::Root::cell},
        {Prov::Kind::constant, Path::Root::constant},
        {Prov::Kind::module, Path::Root::module},
        {Prov::Kind::annotation, Path::Root::annotation},
    };
    for (const auto& [kind, root] : roots)
        if (prov->kind == kind) path.root = root;
    path.argument = prov->argument;
    if (prov->kind == Prov::Kind::display) {
        path.root = Path::Root::display;
        for (const Prov* item : prov->operands) path.items.push_back(path_of(item, kernel_unit));
        return path;
    }
    if (path.root != Path::Root::annotation) path.name = prov->key;
    if (path.root == Path::Root::global || path.root == Path::Root::cell)
        path.function = function_index(kernel_unit, prov->function.get());
    return path;
}

int function_index(Unit& u, PyObject* fn) {
    auto [it, made] =
        u.functions.try_emplace(fn, static_cast<int>(u.kernel->out->functions.size()));
    if (!made) return it->second;
    SourceFunction s;
    s.function = Ref::borrow(fn);
    try {
        const FunctionSource& source = source_of(fn);
        s.file = source.file->name;
        s.first_line = source.first_line;
        s.text = source.text;
    } catch (const PyError&) {
        forget_error();
        u.kernel->out->cacheable = false;
        u.kernel->out->uncacheable_reason = "no source text of " + text(fn);
    }
    u.kernel->out->functions.push_back(std::move(s));
    return it->second;
}

Ref call_with(PyObject* callee, std::span<const Ref> operands, PyObject* keywords) {
    std::vector<PyObject*> raw;
    for (const Ref& o : operands) raw.push_back(o.get());
    const size_t named = keywords ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0;
    if (named > raw.size()) return {};
    return Ref::steal_or_null(
        PyObject_Vectorcall(callee, raw.data(), raw.size() - named, keywords));
}

namespace {
thread_local Answers* answers = nullptr;
thread_local PyObject* asking_from = nullptr;  // a frame: what it calls answers a guard
thread_local bool asked_for_kernel = false;    // by what answers

// Code of the user is asked what it answered while a kernel was traced: it is to see the same.
struct AskingGuard {
    PyObject* const before = asking_from;
    const bool asked_before = std::exchange(asked_for_kernel, false);
    const Ref frame;
    explicit AskingGuard(bool asks)
        : frame(asks ? Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame())) : Ref()) {
        if (asks) asking_from = frame ? frame.get() : Py_None;
    }
    ~AskingGuard() {
        asking_from = before;
        asked_for_kernel |= asked_before;
    }
    AskingGuard(const AskingGuard&) = delete;
};

bool is_same_callee(PyObject* a, PyObject* b) {
    if (a == b) return true;
    if (PyMethod_Check(a) && PyMethod_Check(b))
        return PyMethod_GET_SELF(a) == PyMethod_GET_SELF(b) &&
               PyMethod_GET_FUNCTION(a) == PyMethod_GET_FUNCTION(b);
    const auto is_wrapper = [](PyObject* o) {  // whose type newer Pythons do not name
        return !std::strcmp(Py_TYPE(o)->tp_name, "method-wrapper");
    };
    if (is_wrapper(a) && is_wrapper(b))
        return PyObject_RichCompareBool(a, b, Py_EQ) == 1;  // compares what it is of by identity
    return PyCFunction_Check(a) && PyCFunction_Check(b) &&
           PyCFunction_GET_SELF(a) == PyCFunction_GET_SELF(b) &&
           PyCFunction_GET_FUNCTION(a) == PyCFunction_GET_FUNCTION(b);
}

bool is_same_operand(PyObject* a, PyObject* b) {
    if (a == b) return true;
    if (Py_TYPE(a) != Py_TYPE(b) || !is_repeatable(a) || !is_repeatable(b)) return false;
    return PyUnicode_Compare(constant_repr(a).get(), constant_repr(b).get()) == 0;
}

// Of lists and the like: another one that holds the same constants, as a display makes it anew.
bool is_like_operand(PyObject* a, PyObject* b) {
    if (is_same_operand(a, b)) return true;
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    const Ref x = contents_of(a, kMostContents), y = x ? contents_of(b, kMostContents) : Ref{};
    return x && y && PyUnicode_Compare(x.get(), y.get()) == 0;
}

using SameOperand = bool(PyObject*, PyObject*);
bool is_same_question(const Answers::Answer& a, PyObject* callee, std::span<const Ref> operands,
                      PyObject* keywords, SameOperand* same) {
    if (!is_same_callee(a.callee.get(), callee) || a.operands.size() != operands.size())
        return false;
    if ((keywords != nullptr) != static_cast<bool>(a.keywords)) return false;
    if (keywords && PyObject_RichCompareBool(keywords, a.keywords.get(), Py_EQ) != 1)
        return forget_error(), false;
    for (size_t k = 0; k < operands.size(); ++k)
        if (!same(a.operands[k].get(), operands[k].get())) return false;
    return true;
}

// The exception that is set, and stays so; null for what is no answer: an interrupt, what a signal
// handler raised.
Ref raised_exception() {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return {};
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    Ref kept = raised_by_handler(trace) ? Ref{} : Ref::borrow(value);
    PyErr_Restore(type, value, trace);
    return kept;
}
}  // namespace

bool answers_guard() {
    if (!asking_from || amid_handler(asking_from == Py_None ? nullptr : asking_from)) return false;
    return asked_for_kernel = true;
}

Answers::Answers() : previous(std::exchange(answers, this)) {}
Answers::~Answers() { answers = previous; }

bool may_change(PyObject* callee, std::span<const Ref> operands, PyObject* keywords) {
    if (looks_plainly(callee, operands)) return false;
    static PyObject* const asked = [] {
        const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang._inspect.effects"));
        return Ref::steal(PyObject_GetAttrString(module.get(), "may_change")).release();
    }();
    const Ref given = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(operands.size())));
    for (size_t k = 0; k < operands.size(); ++k)
        PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(k), Py_NewRef(operands[k].get()));
    const Ref answer = Ref::steal(PyObject_CallFunctionObjArgs(
        asked, callee, given.get(), keywords ? keywords : Py_None, nullptr));
    return answer.get() == Py_True;
}

static PyObject* getattr_function() {
    static PyObject* const get = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
    return get;
}
// Whether a call runs code of the user: it is theirs, or Python's own that an operand of theirs has
// hooks for.
static bool runs_users(PyObject* callee, std::span<const Ref> operands) {
    PyObject* function = PyMethod_Check(callee) ? PyMethod_GET_FUNCTION(callee) : callee;
    if (is_own_code(function) || is_own_code(reinterpret_cast<PyObject*>(Py_TYPE(callee))))
        return false;
    const bool native = PyCFunction_Check(callee) || (PyType_Check(callee) && is_harmless(callee));
    if (!native) return true;
    PyObject* owner = owner_of(callee);
    const std::string name = callee_name(callee);
    if (name == "getattr" || name == "hasattr")
        return operands.size() >= 2 && PyUnicode_Check(operands[1].get()) &&
               member_runs_hook(operands[0].get(), operands[1].get());
    return (owner && may_run(name, owner)) ||
           std::ranges::any_of(operands, [&](const Ref& o) { return may_run(name, o.get()); });
}

Ref ask(PyObject* callee, std::span<const Ref> operands, PyObject* keywords, Asker asker,
        const std::function<Ref()>& run) {
    // What runs no code of the user is asked as often as anybody likes: no answer grows old.
    if (!answers || (asker != Asker::body && !runs_users(callee, operands)))
        return run ? run() : call_with(callee, operands, keywords);
    for (SameOperand* same : {is_same_operand, is_like_operand})
        for (Answers::Answer& a : answers->all | std::views::reverse) {
            // Nor is what only looks, which is all that guards ask, kept for the body.
            if ((asker != Asker::guard && (a.taken || a.of_guard)) ||
                !is_same_question(a, callee, operands, keywords, same))
                continue;
            a.taken |= asker == Asker::body;
            a.again |= asker == Asker::again;
            if (!a.raised) return a.result;
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(a.raised.get())), a.raised.get());
            return {};
        }
    // It only looked when the kernel was traced, and may do more now.
    if (asker == Asker::guard && may_change(callee, operands, keywords)) return {};
    const AskingGuard asking(asker == Asker::guard);
    Ref result = run ? run() : call_with(callee, operands, keywords);
    // What is raised may be about there being no kernel yet: the body asks for itself.
    if (asker == Asker::guard && !result && asked_for_kernel) return {};
    if (Ref raised; answers && (result || (raised = raised_exception())))
        answers->all.push_back(
            {Ref::borrow(callee), Ref::borrow(keywords), result, std::move(raised),
             std::vector<Ref>(operands.begin(), operands.end()), asker == Asker::body,
             asker == Asker::again, asker == Asker::guard});
    return result;
}

Ref ask_part(PyObject* base, PyObject* key, bool attribute, Asker asker) {
    const Ref owner = Ref::borrow(unwrap(base));
    const bool runs_hook =
        attribute ? member_runs_hook(owner.get(), key) : item_runs_hook(owner.get());
    if (!runs_hook) return part_of(owner.get(), key, attribute);
    return attribute ? ask_member(owner.get(), key, asker) : ask_item(owner.get(), key, asker);
}

static PyObject* getitem_function() {
    static PyObject* const get = [] {
        const Ref module = Ref::steal(PyImport_ImportModule("operator"));
        return PyObject_GetAttrString(module.get(), "getitem");
    }();
    return get;
}

bool member_may_change(PyObject* o, PyObject* name) {
    const Ref operands[] = {Ref::borrow(o), Ref::borrow(name)};
    return member_runs_hook(o, name) && may_change(getattr_function(), operands, nullptr);
}

bool item_may_change(PyObject* o, PyObject* index) {
    const Ref operands[] = {Ref::borrow(o), Ref::borrow(index)};
    return item_runs_hook(o) && may_change(getitem_function(), operands, nullptr);
}

Ref ask_member(PyObject* o, PyObject* name, Asker asker) {
    const Ref operands[] = {Ref::borrow(o), Ref::borrow(name)};
    return ask(getattr_function(), operands, nullptr, asker);
}

Ref ask_item(PyObject* o, PyObject* index, Asker asker) {
    const Ref operands[] = {Ref::borrow(o), Ref::borrow(index)};
    return ask(getitem_function(), operands, nullptr, asker);
}

void take_answers(bool serve) {
    if (!answers) return;
    for (Answers::Answer& a : answers->all) a.taken |= std::exchange(a.again, false) && serve;
}

// False: one of them is gone.
static bool walk_all(std::span<Prov* const> places, std::span<PyObject* const> args,
                     std::vector<Ref>& out, Asker asker) {
    out.resize(places.size());
    for (size_t k = 0; k < places.size(); ++k)
        if (!walk(places[k], args, out[k], asker)) return false;
    return true;
}

static Ref root_of(const Prov& prov, std::span<PyObject* const> args, Asker asker) {
    using enum Prov::Kind;
    std::vector<Ref> items;
    switch (prov.kind) {
        case argument:
            return static_cast<size_t>(prov.argument) < args.size()
                       ? Ref::borrow(args[static_cast<size_t>(prov.argument)])
                       : Ref();
        case constant:
        case annotation:
            return prov.key;
        case display:
            return walk_all(prov.operands, args, items, asker) ? display_of(items, prov.argument)
                                                               : Ref();
        case module:
            return module_of(prov.key.get());
        case global:
            return global_of(prov.function.get(), prov.key.get());
        default:
            return cell_of(prov.function.get(), prov.key.get());
    }
}

// Evaluates a place again. `keep` owns what is returned.
PyObject* walk(const Prov* prov, std::span<PyObject* const> args, Ref& keep, Asker asker) {
    if (is_stack_short()) return nullptr;
    if (!prov->parent) {
        keep = root_of(*prov, args, asker);
        return keep.get();
    }
    PyObject* base = walk(prov->parent, args, keep, asker);
    if (!base) return nullptr;
    if (prov->kind != Prov::Kind::call) {
        const bool attribute = prov->kind == Prov::Kind::attribute;
        // What only looks says what it would now: no answer is kept for it.
        const bool looks = asker == Asker::again && !prov->may_change;
        keep = looks ? part_of(base, prov->key.get(), attribute)
                     : ask_part(base, prov->key.get(), attribute, asker);
        forget_error();
        return keep.get();
    }
    const Ref inner = Ref::borrow(unwrap(base));
    std::vector<Ref> operands;
    if (!walk_all(prov->operands, args, operands, asker)) return nullptr;
    keep = ask(inner.get(), operands, prov->key.get(), asker);
    forget_error();
    return keep.get();
}

// Python cannot see what only launches know.
void refuse_at_launch(const Prov* prov) {
    if (!prov) return;
    if (prov->kind == Prov::Kind::display)
        for (const Prov* part : prov->operands) refuse_at_launch(part);
    if (!prov->at_launch) return;
    raise(Kind::type,
          "Python cannot look into a dataclass argument while the kernel is compiled: its members "
          "have their values at launches",
          "pass the members that are needed, or make the function a @qd.func");
}

}  // namespace qd::frontend
