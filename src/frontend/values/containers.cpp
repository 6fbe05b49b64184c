// Lists, tuples and dicts of kernels: trees whose leaves are values and variables.

#include <unordered_map>

#include "frontend/source/stack.h"
#include "frontend/values/containers.h"
#include "frontend/values/structs.h"

namespace qd::frontend {

Ref map_leaves(PyObject* o, const std::function<Ref(PyObject*)>& f) {
    if (is_expr(o)) return f(o);
    need_stack();
    if (PyList_CheckExact(o)) {
        const Py_ssize_t n = PyList_GET_SIZE(o);
        Ref out = Ref::steal(PyList_New(n));
        for (Py_ssize_t k = 0; k < n; ++k)
            PyList_SET_ITEM(out.get(), k, map_leaves(PyList_GET_ITEM(o, k), f).release());
        return out;
    }
    if (PyTuple_CheckExact(o)) {
        const Py_ssize_t n = PyTuple_GET_SIZE(o);
        Ref out = Ref::steal(PyTuple_New(n));
        for (Py_ssize_t k = 0; k < n; ++k)
            PyTuple_SET_ITEM(out.get(), k, map_leaves(PyTuple_GET_ITEM(o, k), f).release());
        return out;
    }
    const bool structure = is_struct(o);
    if (PyDict_CheckExact(o) || structure) {
        PyObject* from = structure ? reinterpret_cast<StructObject*>(o)->members : o;
        Ref out = Ref::steal(PyDict_New());
        PyObject *key, *item;
        for (Py_ssize_t at = 0; PyDict_Next(from, &at, &key, &item);)
            if (PyDict_SetItem(out.get(), key, map_leaves(item, f).get()) < 0) throw PyError{};
        return structure ? make_struct(reinterpret_cast<StructObject*>(o)->type, out.get()) : out;
    }
    return Ref::borrow(o);
}

Ref copy_tree(PyObject* o) {
    return map_leaves(o, [](PyObject* e) { return Ref::borrow(e); });
}

bool same_tree(PyObject* a, PyObject* b) {
    if (a == b) return true;
    need_stack();
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    if (is_struct(a)) {
        return same_tree(reinterpret_cast<StructObject*>(a)->members,
                         reinterpret_cast<StructObject*>(b)->members);
    }
    if (PyDict_CheckExact(a)) {
        if (PyDict_Size(a) != PyDict_Size(b)) return false;
        PyObject *ka, *va, *kb, *vb;
        for (Py_ssize_t i = 0, j = 0; PyDict_Next(a, &i, &ka, &va) && PyDict_Next(b, &j, &kb, &vb);)
            if (ka != kb || !same_tree(va, vb)) return false;
        return true;
    }
    if (!PyList_CheckExact(a) && !PyTuple_CheckExact(a)) return false;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(a);
    if (n != PySequence_Fast_GET_SIZE(b)) return false;
    for (Py_ssize_t k = 0; k < n; ++k)
        if (!same_tree(PySequence_Fast_GET_ITEM(a, k), PySequence_Fast_GET_ITEM(b, k)))
            return false;
    return true;
}

namespace {

bool both_plain(PyObject* a, PyObject* b) {
    return Py_TYPE(a) == Py_TYPE(b) && is_plain_container(a);
}

// Makes `to` hold what `from` holds; containers that both have at a place stay the objects they
// are.
void take_over(PyObject* to, PyObject* from) {
    need_stack();
    if (PyDict_CheckExact(to)) {
        const Ref before = Ref::steal(PyDict_Copy(to));
        PyDict_Clear(to);
        PyObject *key, *item;
        for (Py_ssize_t at = 0; PyDict_Next(from, &at, &key, &item);) {
            PyObject* old = PyDict_GetItemWithError(before.get(), key);
            if (!old && PyErr_Occurred()) throw PyError{};
            if (old && both_plain(old, item)) take_over(old, item), item = old;
            if (PyDict_SetItem(to, key, item) < 0) throw PyError{};
        }
        return;
    }
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(from), had = PySequence_Fast_GET_SIZE(to);
    const Ref items = Ref::steal(PyList_New(0));
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject *item = PySequence_Fast_GET_ITEM(from, k),
                 *old = k < had ? PySequence_Fast_GET_ITEM(to, k) : nullptr;
        if (old && both_plain(old, item)) take_over(old, item), item = old;
        if (PyList_Append(items.get(), item) < 0) throw PyError{};
    }
    if (PyList_CheckExact(to) && PyList_SetSlice(to, 0, had, items.get()) < 0) throw PyError{};
}

}  // namespace

void join_shared_view(PyObject* own, PyObject* view) {
    std::unordered_map<const ir::Value*, PyObject*> places;
    map_leaves(own, [&](PyObject* e) {
        places[as_expr(e)->raw] = e;
        return Ref::borrow(e);
    });
    const Ref seen = map_leaves(view, [&](PyObject* e) {
        const auto it = places.find(as_expr(e)->raw);
        return Ref::borrow(it == places.end() ? e : it->second);
    });
    if (!same_tree(own, seen.get())) take_over(own, seen.get());
}

}  // namespace qd::frontend
