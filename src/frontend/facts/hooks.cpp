// See hooks.h.

#include "frontend/facts/hooks.h"

#include <algorithm>
#include <string_view>

#include "cpython/names.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/memo.h"
#include "frontend/source/ast.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using K = NodeKind;

bool is_one_of(PyObject* name, std::initializer_list<std::string_view> names) {
    return PyUnicode_Check(name) && std::ranges::find(names, text(name)) != names.end();
}

// Whether to run it twice is to run it once.
bool only_looks(const Node* n);
bool only_look(std::span<Node* const> all) { return std::ranges::all_of(all, only_looks); }
bool only_looks(const Node* n) {
    if (!n) return true;
    switch (n->kind) {
        case K::Call:
            if (n->a->kind != K::Name ||
                !is_one_of(n->a->name, {"len", "int", "float", "bool", "min", "max", "abs", "sum",
                                        "tuple", "list", "range", "isinstance", "hasattr"}))
                return false;
            break;
        case K::Assign:
            if (!std::ranges::all_of(n->list, [](const Node* t) { return t->kind == K::Name; }))
                return false;
            break;
        case K::Return:
        case K::If:
        case K::Expr:
        case K::Pass:
        case K::BoolOp:
        case K::BinOp:
        case K::UnaryOp:
        case K::IfExp:
        case K::Compare:
        case K::FormattedValue:
        case K::JoinedStr:
        case K::Constant:
        case K::Attribute:
        case K::Subscript:
        case K::Name:
        case K::List:
        case K::Tuple:
        case K::Slice:
        case K::keyword:
            break;
        default:
            return false;
    }
    return only_looks(n->a) && only_looks(n->b) && only_looks(n->c) && only_look(n->list) &&
           only_look(n->list2);
}

bool only_looks(PyObject* function) {
    auto& all = memo<std::pair<Ref, bool>>();
    PyObject* code = PyFunction_GET_CODE(function);
    if (const auto it = all.find(code); it != all.end()) return it->second.second;
    bool looks = false;
    try {
        looks = only_look(source_of(function).body);
    } catch (const PyError&) {
        forget_error();
    } catch (const Diag&) {
    }
    all[code] = {Ref::borrow(code), looks};
    return looks;
}

// Written in Python by the user, in a class of which `ends` is the method.
bool is_users(PyObject* method) { return PyFunction_Check(method) && !is_own_code(method); }

// Of the class of `o`, or of a class `o` itself.
PyObject* in_class(PyTypeObject* t, const char* name) {
    return _PyType_Lookup(t, interned(name).get());
}

bool descriptor_runs_hook(PyObject* descriptor) {
    if (PyFunction_Check(descriptor) || PyType_Check(descriptor)) return false;
    if (Py_IS_TYPE(descriptor, &PyProperty_Type)) {
        const Ref get = Ref::steal_or_null(PyObject_GetAttrString(descriptor, "fget"));
        if (!get) forget_error();
        return get && get.get() != Py_None &&
               !(PyFunction_Check(get.get()) && (is_own_code(get.get()) || only_looks(get.get())));
    }
    PyObject* get = in_class(Py_TYPE(descriptor), "__get__");
    return get && is_users(get);
}

// Made by Python's own libraries: enumerations, named tuples, what dataclasses generate.
bool is_generated(PyObject* function) {
    PyObject* globals = PyFunction_GET_GLOBALS(function);
    PyObject* home = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
    const std::string module = home ? text(home) : "";
    const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    return module == "enum" || module == "collections" || module == "functools" ||
           module == "abc" || module == "typing" || text(code->co_filename) == "<string>";
}

// What is not asked for as a member, nor said by an operator.
bool is_no_operator(PyObject* name) {
    return is_one_of(
        name,
        {"__init__",          "__new__",           "__repr__",     "__str__",   "__post_init__",
         "__init_subclass__", "__class_getitem__", "__set_name__", "__del__",   "__reduce__",
         "__reduce_ex__",     "__getstate__",      "__setstate__", "__copy__",  "__deepcopy__",
         "__setattr__",       "__delattr__",       "__dir__",      "__enter__", "__exit__",
         "__getattr__",       "__getattribute__"});
}

}  // namespace

bool member_runs_hook(PyObject* o, PyObject* name) {
    if (PyModule_Check(o)) {
        PyObject* names = PyModule_GetDict(o);
        PyObject* get = PyDict_GetItemString(names, "__getattr__");
        return get && is_users(get) && !PyDict_Contains(names, name);
    }
    PyTypeObject* t = Py_TYPE(o);
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || is_own_code(reinterpret_cast<PyObject*>(t)))
        return false;
    if (PyObject* get = in_class(t, "__getattribute__"); get && is_users(get)) return true;
    if (PyObject* found = _PyType_Lookup(t, name)) return descriptor_runs_hook(found);
    PyObject* get = in_class(t, "__getattr__");
    if (!get || !is_users(get)) return false;
    const Ref plain = Ref::steal_or_null(PyObject_GenericGetAttr(o, name));
    if (!plain) forget_error();
    return !plain;
}

bool item_runs_hook(PyObject* o) {
    PyTypeObject* t = Py_TYPE(o);
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
    PyObject* get = in_class(t, "__getitem__");
    return get && is_users(get);
}

bool has_hooks(PyObject* o) {
    PyTypeObject* t = Py_TYPE(o);
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || is_own_code(reinterpret_cast<PyObject*>(t)))
        return false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(t->tp_mro); ++k) {
        auto* c = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, k));
        if (!(c->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
        PyObject *name, *value;
        for (Py_ssize_t at = 0; PyDict_Next(c->tp_dict, &at, &name, &value);)
            if (PyUnicode_Check(name) && text(name).starts_with("__") && is_users(value) &&
                !is_generated(value) && !is_no_operator(name))
                return true;
    }
    return false;
}

}  // namespace qd::frontend
