// See hooks.h.

#include "frontend/facts/hooks.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "cpython/names.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/facts.h"
#include "frontend/facts/memo.h"
#include "frontend/source/ast.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using K = NodeKind;

bool is_one_of(PyObject* name, std::initializer_list<std::string_view> names) {
    return PyUnicode_Check(name) && std::ranges::find(names, text(name)) != names.end();
}

// Whether to run it twice is to run it once. What it asks others for is taken to be plain.
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

void collect_members(const Node* n, std::vector<Ref>& names) {
    if (!n) return;
    if (n->kind == K::Attribute) names.push_back(Ref::borrow(n->name));
    for (const Node* child : {n->a, n->b, n->c}) collect_members(child, names);
    for (const auto& list : {n->list, n->list2})
        for (const Node* child : list) collect_members(child, names);
}

struct Getter {
    Ref code;
    bool only_looks = false;
    std::vector<Ref> members;  // that it asks for
};

const Getter& getter_of(PyObject* function) {
    auto& all = memo<Getter>();
    PyObject* code = PyFunction_GET_CODE(function);
    if (const auto it = all.find(code); it != all.end()) return it->second;
    Getter g{Ref::borrow(code)};
    try {
        const FunctionSource& source = source_of(function);
        g.only_looks = only_look(source.body);
        for (const Node* n : source.body) collect_members(n, g.members);
    } catch (const PyError&) {
        forget_error();
    } catch (const Diag&) {
    }
    return all[code] = std::move(g);
}

// A method that the user wrote in Python.
bool is_users(PyObject* method) { return PyFunction_Check(method) && !is_own_code(method); }

// What the class or its bases have under this name; borrowed.
PyObject* in_class(PyTypeObject* t, const char* name) {
    return _PyType_Lookup(t, interned(name).get());
}

constexpr int kDeepest = 8;  // properties that ask for properties

bool descriptor_runs_hook(PyTypeObject* t, PyObject* descriptor, int depth = 0) {
    if (PyFunction_Check(descriptor) || PyType_Check(descriptor)) return false;
    if (!Py_IS_TYPE(descriptor, &PyProperty_Type)) {
        PyObject* get = in_class(Py_TYPE(descriptor), "__get__");
        return get && is_users(get);
    }
    const Ref get = Ref::steal_or_null(PyObject_GetAttrString(descriptor, "fget"));
    if (!get) forget_error();
    if (!get || get.get() == Py_None) return false;
    if (!PyFunction_Check(get.get())) return true;
    if (is_own_code(get.get())) return false;
    const Getter& getter = getter_of(get.get());
    return !getter.only_looks || depth == kDeepest ||
           std::ranges::any_of(getter.members, [&](const Ref& name) {
               PyObject* found = _PyType_Lookup(t, name.get());
               return found && Py_IS_TYPE(found, &PyProperty_Type) &&
                      descriptor_runs_hook(t, found, depth + 1);
           });
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
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
    static PyObject *const always = interned("__getattribute__").release(),
                           *const else_asked = interned("__getattr__").release();
    if (PyObject* get = _PyType_Lookup(t, always); get && is_users(get)) return true;
    if (PyObject* found = _PyType_Lookup(t, name)) return descriptor_runs_hook(t, found);
    PyObject* get = _PyType_Lookup(t, else_asked);
    if (!get || !is_users(get)) return false;
    const Ref plain = Ref::steal_or_null(PyObject_GenericGetAttr(o, name));
    if (!plain) forget_error();
    return !plain;
}

Origin origin_of(PyObject* o, PyObject* name) {
    PyTypeObject* t = Py_TYPE(o);
    PyObject* of_class = _PyType_Lookup(t, name);
    const bool describes = of_class && Py_TYPE(of_class)->tp_descr_get;
    if (describes && Py_IS_TYPE(of_class, &PyMemberDescr_Type)) return Origin::slot;
    Ref dict = Ref::steal_or_null(PyObject_GenericGetAttr(o, names().__dict___));
    if (!dict) forget_error();
    const bool own = dict && PyDict_Check(dict.get()) && PyDict_Contains(dict.get(), name) == 1;
    // What is kept there by the class's own way of computing it, is that way's.
    if (own && (!describes || Py_TYPE(of_class)->tp_descr_set || PyFunction_Check(of_class) ||
                func_of(of_class)))
        return Origin::own;
    if (!of_class) return Origin::elsewhere;
    if (!describes) return Origin::class_value;
    return PyFunction_Check(of_class) || func_of(of_class) ? Origin::method : Origin::computed;
}

PyObject* member_origin(PyObject*, PyObject* args) {
    PyObject *o, *name;
    if (!PyArg_ParseTuple(args, "OU", &o, &name)) return nullptr;
    return PyLong_FromLong(static_cast<long>(origin_of(o, name)));
}

bool item_runs_hook(PyObject* o) {
    PyTypeObject* t = Py_TYPE(o);
    // What makes items that are missing, as a defaultdict does.
    if (PyDict_Check(o) && !PyDict_CheckExact(o) && in_class(t, "__missing__")) return true;
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

bool asks_for_class(std::string_view name) {
    static const std::string_view kNames[] = {"isinstance", "type", "hasattr", "callable"};
    return std::ranges::find(kNames, name) != std::end(kNames);
}

bool may_run(std::string_view callee, PyObject* operand, int depth) {
    if (has_hooks(operand) || PyIter_Check(operand)) return true;
    constexpr Py_ssize_t kMostItems = 256;
    constexpr int kDeepestItems = 3;
    if ((PyList_CheckExact(operand) || PyTuple_CheckExact(operand)) && depth < kDeepestItems) {
        const Py_ssize_t count = std::min(PySequence_Fast_GET_SIZE(operand), kMostItems);
        for (Py_ssize_t k = 0; k < count; ++k)
            if (may_run("type", PySequence_Fast_GET_ITEM(operand, k), depth + 1)) return true;
    }
    return PyCallable_Check(operand) && !asks_for_class(callee) && callee != "issubclass" &&
           !is_harmless(operand) && !is_own_code(operand);
}

}  // namespace qd::frontend
