// Captured values in pure kernels (`fastcache=True`): a number, string or field that comes from a
// global or a closure is an error; under a name in capitals or inside qd.static it is a warning.
// Members of enums are constants wherever an attribute leads to them.
//
// Reads mark their place whether or not the kernel is pure, since a func's body is lowered once for
// all kernels; the places of a callee are reported again at its calls. Cost: two type tests a read.

#include <algorithm>
#include <cstring>

#include "cpython/names.h"
#include "frontend/diag.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/facts.h"
#include "frontend/source/ast.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

bool is_flagged(PyObject* o) {
    return PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || is_field(o);
}

bool module_is_free(const std::string& name) {
    return name == "math" || name == "numpy" || is_own_module(name);
}

// Attributes of these objects belong to no user: `math.pi`, `qd.math.pi`, members of an enum class.
bool owner_is_free(PyObject* base, PyObject* o) {
    if (PyModule_Check(base)) {
        const char* name = PyModule_GetName(base);
        if (!name) forget_error();
        return name && module_is_free(name);
    }
    if (!PyType_Check(base)) return false;
    if (reinterpret_cast<PyObject*>(Py_TYPE(o)) == base) return true;  // a member of its enum class
    return module_is_free(module_of_class(base));
}

bool is_upper(const std::string& name) {
    const auto letter = [](char c) { return c >= 'A' && c <= 'Z'; };
    const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
    return std::any_of(name.begin(), name.end(), letter) &&
           std::none_of(name.begin(), name.end(), small);
}

}  // namespace

// By where its code is: functools.wraps copies `__module__` to functions and objects of the user.
bool is_own_code(PyObject* callable) {
    while (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
    Ref module, fn;
    if (PyObject* definition = func_of(callable)) {
        fn = Ref::steal(PyObject_GetAttr(definition, names().fn_));
        callable = fn.get();
    }
    if (PyFunction_Check(callable)) {
        PyObject* globals = PyFunction_GET_GLOBALS(callable);
        PyObject* home = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
        if (home) module = Ref::borrow(home);
    } else if (PyCFunction_Check(callable)) {
        module = Ref::steal_or_null(PyObject_GetAttr(callable, names().__module___));
        forget_error();
    } else {
        const bool names_itself = PyType_Check(callable);
        return is_own_module(module_of_class(
            names_itself ? callable : reinterpret_cast<PyObject*>(Py_TYPE(callable))));
    }
    return module && is_own_module(text(module.get()));
}

bool is_our(PyTypeObject* t, const char* name) {
    const char* dot = std::strrchr(t->tp_name, '.');
    return !std::strcmp(dot ? dot + 1 : t->tp_name, name) &&
           is_own_code(reinterpret_cast<PyObject*>(t));
}

void note_capture(Lowering& l, PyObject* function, PyObject* base, PyObject* o, PyObject* name,
                  Prov* prov) {
    if (!prov || !is_flagged(o)) return;
    const std::string shown = text(name);
    if (shown.starts_with("_qd_") || (base && (owner_is_free(base, o) || is_enum_member(o))))
        return;
    const Impurity now = l.static_depth || is_upper(shown) ? Impurity::warned : Impurity::refused;
    if (prov->impurity < now) {
        if (is_own_code(function)) return;
        prov->impurity = now;
    }
    report_capture(*l.kernel, prov, now, o);
}

void report_capture(KernelState& k, Prov* prov, Impurity impurity, PyObject* value) {
    // What a func reads from its own arguments is no capture, even if a caller gave it a captured
    // object.
    if (prov->from_argument()) return;
    prov->impurity = std::max(prov->impurity, impurity);
    if (!k.pure) return;
    const std::string name = text(prov->key.get());
    std::string message = "[PURE.VIOLATION] WARNING: Accessing global ";
    if (prov->parent)
        message += "var " + name + " from outside function scope within pure kernel " +
                   text(prov->root()->key.get()) + " is in global vars, therefore violates pure";
    else
        message += "variable " + name + " " + type_name(value) + " " + name +
                   " is in global vars, therefore violates pure";
    if (impurity == Impurity::refused) raise(Kind::compilation, message);
    if (std::find(k.captures.begin(), k.captures.end(), message) != k.captures.end()) return;
    k.captures.push_back(message);
    give({Notice::Category::user, message});
}

}  // namespace qd::frontend
