// Where compile-time objects come from: a Prov node is made when lowering reads a global, a closure
// cell, a member or an item, or calls a helper of the user; a path says the same to other
// processes.

#include <algorithm>

#include "frontend/lower.h"
#include "frontend/values.h"

namespace qd::frontend {
namespace {
bool is_repeatable(PyObject* o) {
    if (!PyTuple_CheckExact(o)) return is_plain_constant(o);
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

Prov* Unit::display(std::vector<Prov*> items) {
    Prov* p = &provs.emplace_back();
    p->kind = Prov::Kind::display;
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
        const Py_ssize_t at = PyLong_Check(key) ? PyLong_AsSsize_t(key) : -1;
        PyErr_Clear();
        const auto count = static_cast<Py_ssize_t>(base->operands.size());
        const Py_ssize_t place = at < 0 ? at + count : at;
        return PyLong_Check(key) && place >= 0 && place < count
                   ? base->operands[static_cast<size_t>(place)]
                   : nullptr;
    }
    if (!base->places) base->places = Ref::steal(PyDict_New());
    if (PyObject* at = PyDict_GetItem(base->places.get(), key))
        return base->items[PyLong_AsSize_t(at)];
    const Ref place = Ref::steal(PyLong_FromSize_t(base->items.size()));
    if (PyDict_SetItem(base->places.get(), key, place.get()) < 0) PyErr_Clear();  // unhashable
    Prov* p = &provs.emplace_back();
    p->kind = Prov::Kind::item;
    p->parent = base;
    p->key = Ref::borrow(key);
    base->items.push_back(p);
    return p;
}

Prov* Unit::call(Prov* callee, std::span<const Ref> arguments, std::span<Prov* const> provs) {
    // Equal constants of different types are different arguments: 1, 1.0, True.
    const Ref key = Ref::steal(PyList_New(0));
    for (size_t k = 0; k < arguments.size(); ++k) {
        PyObject* o = arguments[k].get();
        Ref part;
        if (is_repeatable(o))
            part = Ref::steal(PyUnicode_FromFormat("%R", o));
        else if (provs[k] && provs[k]->kind != Prov::Kind::display)
            part = Ref::steal(PyLong_FromVoidPtr(provs[k]));
        else
            return nullptr;
        if (PyList_Append(key.get(), part.get()) < 0) throw PyError{};
    }
    const Ref frozen = Ref::steal(PyList_AsTuple(key.get()));
    if (!callee->calls) callee->calls = Ref::steal(PyDict_New());
    if (PyObject* at = PyDict_GetItem(callee->calls.get(), frozen.get()))
        return callee->items[PyLong_AsSize_t(at)];
    const Ref place = Ref::steal(PyLong_FromSize_t(callee->items.size()));
    if (PyDict_SetItem(callee->calls.get(), frozen.get(), place.get()) < 0) throw PyError{};
    Prov* p = &this->provs.emplace_back();
    p->kind = Prov::Kind::call;
    p->parent = callee;
    callee->items.push_back(p);
    for (size_t k = 0; k < arguments.size(); ++k) {
        Prov* operand = provs[k];
        if (is_repeatable(arguments[k].get())) {
            operand = &this->provs.emplace_back();
            operand->kind = Prov::Kind::constant;
            operand->key = arguments[k];
        }
        p->operands.push_back(operand);
    }
    return p;
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
        PyErr_Clear();
        u.kernel->out->cacheable = false;
        u.kernel->out->uncacheable_reason = "no source text of " + text(fn);
    }
    u.kernel->out->functions.push_back(std::move(s));
    return it->second;
}

// Evaluates a place again. `keep` owns what is returned.
PyObject* walk(const Prov* prov, std::span<PyObject* const> args, Ref& keep) {
    if (!prov->parent) {
        if (prov->kind == Prov::Kind::argument)
            keep = static_cast<size_t>(prov->argument) < args.size()
                       ? Ref::borrow(args[prov->argument])
                       : Ref();
        else if (prov->kind == Prov::Kind::constant || prov->kind == Prov::Kind::annotation)
            keep = prov->key;
        else if (prov->kind == Prov::Kind::module)
            keep = Ref::steal_or_null(PyImport_Import(prov->key.get()));
        else if (prov->kind == Prov::Kind::global) {
            PyObject* found =
                PyDict_GetItem(PyFunction_GetGlobals(prov->function.get()), prov->key.get());
            PyObject* builtins = found ? nullptr : PyEval_GetBuiltins();
            if (builtins) found = PyDict_GetItem(builtins, prov->key.get());
            keep = Ref::steal_or_null(Py_XNewRef(found));
        } else {
            PyObject* free =
                reinterpret_cast<PyCodeObject*>(PyFunction_GetCode(prov->function.get()))
                    ? PyObject_GetAttr(PyFunction_GetCode(prov->function.get()),
                                       names().co_freevars_)
                    : nullptr;
            Ref names_ref = Ref::steal_or_null(free);
            PyObject* closure = PyFunction_GetClosure(prov->function.get());
            keep = {};
            for (Py_ssize_t k = 0; free && closure && k < PyTuple_GET_SIZE(free); ++k)
                if (PyTuple_GET_ITEM(free, k) == prov->key.get())
                    keep = Ref::steal_or_null(PyCell_Get(PyTuple_GET_ITEM(closure, k)));
        }
        return keep.get();
    }
    PyObject* base = walk(prov->parent, args, keep);
    if (!base) return nullptr;
    Ref inner = Ref::borrow(unwrap(base));
    if (prov->kind == Prov::Kind::call) {
        const Ref operands =
            Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(prov->operands.size())));
        for (size_t k = 0; k < prov->operands.size(); ++k) {
            Ref held;
            if (!walk(prov->operands[k], args, held)) return nullptr;
            PyTuple_SET_ITEM(operands.get(), static_cast<Py_ssize_t>(k), held.release());
        }
        keep = Ref::steal_or_null(PyObject_CallObject(inner.get(), operands.get()));
        PyErr_Clear();
        return keep.get();
    }
    keep = Ref::steal_or_null(prov->kind == Prov::Kind::attribute
                                  ? PyObject_GetAttr(inner.get(), prov->key.get())
                                  : PyObject_GetItem(inner.get(), prov->key.get()));
    PyErr_Clear();
    return keep.get();
}

}  // namespace qd::frontend
