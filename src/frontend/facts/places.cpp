// See places.h.

#include "frontend/facts/places.h"

#include "cpython/names.h"

namespace qd::frontend {
namespace {

Ref or_nothing(Ref found) {
    if (!found) forget_error();
    return found;
}

}  // namespace

Ref global_of(PyObject* function, PyObject* name) {
    PyObject* found = PyDict_GetItemWithError(PyFunction_GetGlobals(function), name);
    if (!found) {
        forget_error();
        PyObject* builtins = PyEval_GetBuiltins();
        found = builtins ? PyDict_GetItem(builtins, name) : nullptr;
    }
    return Ref::borrow(found);
}

Ref cell_of(PyObject* function, PyObject* name) {
    const Ref free = or_nothing(
        Ref::steal_or_null(PyObject_GetAttr(PyFunction_GetCode(function), names().co_freevars_)));
    PyObject* closure = PyFunction_GetClosure(function);
    for (Py_ssize_t k = 0; free && closure && k < PyTuple_GET_SIZE(free.get()); ++k) {
        PyObject* at = PyTuple_GET_ITEM(free.get(), k);
        if (at == name || PyUnicode_Compare(at, name) == 0)
            return Ref::steal_or_null(PyCell_Get(PyTuple_GET_ITEM(closure, k)));
    }
    return {};
}

Ref module_of(PyObject* name) {
    Ref known = Ref::steal_or_null(PyImport_GetModule(name));  // a tenth of asking for the import
    if (known) return known;
    forget_error();
    return or_nothing(Ref::steal_or_null(PyImport_Import(name)));
}

Ref display_of(std::span<const Ref> items, bool is_tuple) {
    const auto count = static_cast<Py_ssize_t>(items.size());
    Ref list = Ref::steal(PyList_New(count));
    for (Py_ssize_t k = 0; k < count; ++k)
        PyList_SET_ITEM(list.get(), k, Py_NewRef(items[static_cast<size_t>(k)].get()));
    return is_tuple ? Ref::steal(PyList_AsTuple(list.get())) : list;
}

Ref part_of(PyObject* base, PyObject* key, bool attribute) {
    const Ref inner = Ref::borrow(unwrap(base));
    return or_nothing(Ref::steal_or_null(attribute ? PyObject_GetAttr(inner.get(), key)
                                                   : PyObject_GetItem(inner.get(), key)));
}

}  // namespace qd::frontend
