// See callables.h.

#include "frontend/facts/callables.h"
#include "frontend/facts/facts.h"

#include <algorithm>
#include <cstring>

#include "cpython/entry.h"
#include "cpython/names.h"
#include "frontend/facts/memo.h"

namespace qd::frontend {
namespace {

Ref get(PyObject* o, PyObject* name) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (!v) forget_error();
    return v;
}

PyObject* function_of(PyObject* o) { return PyMethod_Check(o) ? PyMethod_GET_FUNCTION(o) : o; }

// A class of Python itself or NumPy, and none that knows the time or a state of chance.
bool is_python_class(const PyTypeObject* t) {
    const std::string_view name = t->tp_name;
    return !(t->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
           (name.find('.') == name.npos ||
            (name.starts_with("numpy.") && name.find(".random") == name.npos));
}

}  // namespace

// Marks are believed on the object they were made for: functools.wraps copies them to functions
// around it. Remembered by identity: functions, types and definitions live long.
const Known& known(PyObject* o) {
    auto& all = memo<Known>();
    if (const auto it = all.find(o); it != all.end()) return it->second;
    Known k;
    k.object = Ref::borrow(o);
    if (is_expr(o) || is_struct(o)) return all[o] = std::move(k);
    if (const char* op = operation_mark(o)) {
        k.callee = Callee::operation;
        k.op = op;
        k.builtin = find_builtin(o);
    } else if (Ref d = get(o, names()._qd_func_); d && d.get() == function_of(o)) {
        k.callee = Callee::func;
        k.definition = d.get();
        k.owner = d;
    } else if (is_kernel_callable(o)) {
        k.callee = Callee::kernel;
    } else if (const Builtin* b = find_builtin(o)) {
        k.callee = Callee::builtin;
        k.builtin = b;
    }
    return all[o] = std::move(k);
}

bool is_long_lived(PyObject* o) {
    return PyFunction_Check(o) || PyType_Check(o) ||
           (PyCFunction_Check(o) && !PyCFunction_GET_SELF(o)) ||
           (PyCFunction_Check(o) && PyModule_Check(PyCFunction_GET_SELF(o)));
}

PyObject* owner_of(PyObject* callable) {
    PyObject* self = PyMethod_Check(callable)      ? PyMethod_GET_SELF(callable)
                     : PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable)
                                                   : nullptr;
    return self && !PyModule_Check(self) ? self : nullptr;
}

std::string callee_name(PyObject* f) {
    Ref name = get(f, names().__name___);
    return name ? text(name.get()) : text(f);
}

// Python's own functions, types, and the methods of its containers and strings do what they say.
bool is_harmless(PyObject* f) {
    if (PyCFunction_Check(f)) {
        if (PyCFunction_GET_FUNCTION(f) == entry<member_origin>) return true;
        PyObject* self = PyCFunction_GET_SELF(f);
        if (!self) return false;
        if (PyType_Check(self)) return is_python_class(reinterpret_cast<PyTypeObject*>(self));
        if (!PyModule_Check(self)) return is_python_class(Py_TYPE(self));
        const char* module = PyModule_GetName(self);
        return module && !std::strcmp(module, "builtins");
    }
    return PyType_Check(f) && is_python_class(reinterpret_cast<PyTypeObject*>(f));
}

// Of those, the ones that see more than their operands.
bool sees_more(const std::string& name) {
    static const std::string_view kNames[] = {"eval",   "exec", "open", "input", "globals",
                                              "locals", "vars", "id",   "hash",  "__import__"};
    return std::ranges::find(kNames, name) != std::end(kNames);
}

// Methods of generators of random numbers: two equal answers of theirs say nothing about a third.
bool is_of_chance(PyObject* f) {
    PyObject* self = owner_of(f);
    if (!self || PyType_Check(self)) return false;
    PyObject* bases = Py_TYPE(self)->tp_mro;
    for (Py_ssize_t k = 0; bases && k < PyTuple_GET_SIZE(bases); ++k) {
        const std::string name = module_of_class(PyTuple_GET_ITEM(bases, k));
        if (name == "random" || name == "_random" || name.starts_with("numpy.random")) return true;
    }
    return false;
}

// Methods of Python's containers and of arrays that change them, or write to a file. What is
// written to memory is seen (written_memory.h).
bool changes_object(const std::string& name) {
    static const std::string_view kNames[] = {"append",
                                              "extend",
                                              "insert",
                                              "remove",
                                              "pop",
                                              "clear",
                                              "sort",
                                              "reverse",
                                              "update",
                                              "setdefault",
                                              "popitem",
                                              "add",
                                              "discard",
                                              "partition",
                                              "resize",
                                              "byteswap",
                                              "setflags",
                                              "setfield",
                                              "itemset",
                                              "put",
                                              "tofile",
                                              "dump",
                                              "__setitem__",
                                              "__iadd__",
                                              "__delitem__",
                                              "__init__",
                                              "difference_update",
                                              "intersection_update",
                                              "symmetric_difference_update"};
    return std::ranges::find(kNames, name) != std::end(kNames);
}

// Functions of `math` and NumPy's element-wise ones: equal arguments give equal results.
bool is_function_of_numbers(PyObject* f) {
    if (!std::strcmp(Py_TYPE(f)->tp_name, "numpy.ufunc")) return true;
    PyObject* self = PyCFunction_Check(f) ? PyCFunction_GET_SELF(f) : nullptr;
    const char* module = self && PyModule_Check(self) ? PyModule_GetName(self) : nullptr;
    return module && !std::strcmp(module, "math");
}

std::string_view operation_of(PyObject* callable) {
    if (!PyCallable_Check(callable) || !is_long_lived(callable)) return {};
    return known(callable).op;
}

PyObject* func_of(PyObject* o) {
    if (PyMethod_Check(o)) return nullptr;
    if (PyFunction_Check(o) || PyType_Check(o) || PyModule_Check(o) || PyLong_Check(o) ||
        is_expr(o))
        return nullptr;
    if (!PyCallable_Check(o)) return nullptr;
    // A stand-in that has every attribute has it by asking its class.
    const Ref d = Ref::steal_or_null(PyObject_GenericGetAttr(o, names()._qd_func_));
    if (!d) forget_error();
    return d && d.get() == o ? o : nullptr;
}

bool is_kernel_callable(PyObject* o) {
    if (!PyCallable_Check(o) || is_expr(o)) return false;
    Ref d = get(o, names()._qd_kernel_);
    // A definition is its own mark; a stand-in that has every attribute is not.
    const Ref own =
        d ? Ref::steal_or_null(PyObject_GenericGetAttr(d.get(), names()._qd_kernel_)) : Ref{};
    if (d && !own) forget_error();
    return d && own.get() == d.get();
}

}  // namespace qd::frontend
