// Ndarrays: dense row-major memory with a shape, host element access and exports.
//
// With a layout the memory has the permuted shape: layout[p] is the canonical axis at memory level
// p, outermost first. `shape` is canonical; the host indexes a bare array physically. At reset
// every live array becomes an empty shell; its memory goes unless exported views hold it.
//
// Everything here is touched under the GIL only; memory may be dropped on any thread.

#include <string>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/accessors.h"
#include "data/objects.h"
#include "data/storage.h"
#include "session/session.h"

namespace qd::data {
namespace {

using namespace cpython;
using namespace session;
using session::session;
using type::Prim;
using type::Type;

// An NdarrayObject and what only this file needs. Live arrays form a list.
struct NdarrayFull : NdarrayObject {
    Storage* storage;
    NdarrayFull *previous, *next;
};

NdarrayFull* live = nullptr;
size_t live_count = 0;

NdarrayFull* as_array(PyObject* o) { return reinterpret_cast<NdarrayFull*>(o); }

int axis_at(uint64_t layout, int level) {
    return layout ? static_cast<int>(layout >> (4 * level) & 15) : level;
}

void enlist(NdarrayFull& a) {
    a.previous = nullptr;
    a.next = live;
    if (live) live->previous = &a;
    live = &a;
    ++live_count;
}

void delist(NdarrayFull& a) {
    if (live != &a && !a.previous) return;
    (a.previous ? a.previous->next : live) = a.next;
    if (a.next) a.next->previous = a.previous;
    a.previous = a.next = nullptr;
    --live_count;
}

void free_memory(NdarrayFull& a) {
    delist(a);
    drop(a.storage);
    a.storage = nullptr;
    a.data = nullptr;
}

// Each leaves the list first: what lets go of the others may run anything. Needs no memory.
void empty_shells() {
    while (live) {
        NdarrayFull& a = *live;
        free_memory(a);
        auto* o = reinterpret_cast<PyObject*>(&a);
        // Else it dies: callbacks of its weak references run, and this in them or in another
        // thread.
        if (!Py_REFCNT(o)) continue;
        const Ref kept = Ref::borrow(o);
        a.ndim = 0;
        Py_CLEAR(a.grad);
        for (const char* name : {"dtype", "element_type", "grad", "arr"})
            if (a.dict && PyDict_SetItemString(a.dict, name, Py_None) < 0) cpython::forget_error();
    }
}

bool usable(const NdarrayFull& a) {
    if (a.data && a.generation == session().generation) return true;
    if (require_session())
        set_error("QuadrantsRuntimeError", "This ndarray belongs to a runtime that has been reset");
    return false;
}

std::string text_of(PyObject* o) {
    PyObject* repr = PyObject_Repr(o);
    const char* text = repr ? PyUnicode_AsUTF8(repr) : nullptr;
    if (!text) cpython::forget_error();
    std::string out = text ? text : "?";
    Py_XDECREF(repr);
    return out;
}

char* wrong_count(const NdarrayFull& a, Py_ssize_t given, PyObject* key) {
    set_error("QuadrantsIndexError",
              std::to_string(a.ndim) + "d ndarray indexed with " + std::to_string(given) +
                  "d indices: " + (PyLong_Check(key) ? "(" + text_of(key) + ",)" : text_of(key)));
    return nullptr;
}

// Address of an element by its physical indices; anything inside the memory goes.
char* address_of(const NdarrayFull& a, const int64_t* indices) {
    if (!wait_for_launches() || !usable(a))
        return nullptr;  // any more: an index may be an object of the user's
    int64_t flat = 0, at = 0;
    bool far = false;
    for (int level = 0; level < a.ndim; ++level) {
        far |= __builtin_mul_overflow(flat, a.shape[axis_at(a.layout, level)], &flat);
        far |= __builtin_add_overflow(flat, indices[level], &flat);
    }
    const int64_t bytes = a.elem.size_bytes(),
                  whole = static_cast<int64_t>(a.storage->memory.bytes);
    far |= __builtin_mul_overflow(flat, bytes, &at);
    if (!far && at >= 0 && at <= whole - bytes) return a.data + at;
    std::string where, shape;
    for (int level = 0; level < a.ndim; ++level) {
        where += (level ? ", " : "") + std::to_string(indices[level]);
        shape += (level ? ", " : "") + std::to_string(a.shape[axis_at(a.layout, level)]);
    }
    PyErr_Format(PyExc_IndexError,
                 "ndarray index (%s) lies outside its memory, which is of shape (%s)",
                 where.c_str(), shape.c_str());
    return nullptr;
}

char* locate(const NdarrayFull& a, PyObject* key) {
    int64_t indices[12] = {};
    if (!usable(a)) return nullptr;
    if (PyLong_Check(key) && a.ndim == 1)
        return read_index(key, indices[0]) ? address_of(a, indices) : nullptr;
    if (key == Py_None) return a.ndim == 0 ? address_of(a, indices) : wrong_count(a, 0, key);
    if (PyLong_Check(key) || is_one_index(key)) {
        if (a.ndim != 1) return wrong_count(a, 1, key);
        return read_index(key, indices[0]) ? address_of(a, indices) : nullptr;
    }
    PyObject* items =
        PyErr_Occurred() ? nullptr : PySequence_Fast(key, "an ndarray is indexed by integers");
    if (!items) return nullptr;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    const bool zero = a.ndim == 0 && n == 1 && PySequence_Fast_GET_ITEM(items, 0) == Py_None;
    bool ok = n == a.ndim || zero;
    if (!ok) wrong_count(a, n, key);
    for (Py_ssize_t k = 0; ok && !zero && k < n; ++k)
        ok = read_index(PySequence_Fast_GET_ITEM(items, k), indices[k]);
    Py_DECREF(items);
    return ok ? address_of(a, indices) : nullptr;
}

bool holds_slice(PyObject* key) {
    if (PySlice_Check(key)) return true;
    if (PyTuple_Check(key))
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); ++k)
            if (PySlice_Check(PyTuple_GET_ITEM(key, k))) return true;
    return false;
}

PyObject* array_getitem(PyObject* self, PyObject* key) {
    const NdarrayFull& a = *as_array(self);
    if (refuse_while_traced("__getitem__")) return nullptr;
    if (!PyLong_Check(key) && holds_slice(key))
        return usable(a) ? PyObject_CallMethod(self, "_slice", "(O)", key) : nullptr;
    const char* at = locate(a, key);
    if (!at) return nullptr;
    return a.elem.rank ? PyObject_CallMethod(self, "_element", "(O)", key)
                       : load_element(*a.storage, a.elem.prim, at);
}

// Values are read before their place is looked for: that may run code of the user's, which can free
// the memory.
int array_setitem(PyObject* self, PyObject* key, PyObject* value) {
    const NdarrayFull& a = *as_array(self);
    if (!value)
        return PyErr_SetString(PyExc_TypeError, "elements of an ndarray cannot be deleted"), -1;
    if (holds_slice(key))
        return PyErr_SetString(PyExc_TypeError,
                               "a slice of an ndarray is a BufferView and cannot be assigned"),
               -1;
    if (refuse_while_traced("__setitem__") || !usable(a)) return -1;
    if (!a.elem.rank) {
        uint64_t bits;
        char* at = read_number(a.elem.prim, value, bits) ? locate(a, key) : nullptr;
        if (at) store_element(*a.storage, a.elem.prim, at, bits);
        return at ? 0 : -1;
    }
    if (!locate(a, key)) return -1;
    PyObject* done = PyObject_CallMethod(self, "_assign_element", "OO", key, value);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

char* component_at(const NdarrayFull& a, PyObject* key, int component) {
    char* at = locate(a, key);
    if (!at) return nullptr;
    if (component >= 0 && component < a.elem.count())
        return at + component * type::bytes(a.elem.prim);
    PyErr_Format(PyExc_IndexError, "component %d is out of range", component);
    return nullptr;
}

PyObject* array_load(PyObject* self, PyObject* args) {
    PyObject* key;
    int component;
    if (!PyArg_ParseTuple(args, "Oi", &key, &component)) return nullptr;
    const NdarrayFull& a = *as_array(self);
    const char* at = component_at(a, key, component);
    return at ? load_element(*a.storage, a.elem.prim, at) : nullptr;
}

PyObject* array_store(PyObject* self, PyObject* args) {
    PyObject *key, *value;
    int component;
    if (!PyArg_ParseTuple(args, "OiO", &key, &component, &value)) return nullptr;
    const NdarrayFull& a = *as_array(self);
    uint64_t bits;
    if (!usable(a) || !read_number(a.elem.prim, value, bits)) return nullptr;
    char* at = component_at(a, key, component);
    if (!at) return nullptr;
    store_element(*a.storage, a.elem.prim, at, bits);
    Py_RETURN_NONE;
}

// Canonical axes, then element axes.
Window window_of(const NdarrayFull& a) {
    Window w;
    w.storage = a.storage;
    w.data = a.data;
    w.prim = a.elem.prim;
    w.shape.resize(a.ndim);
    w.strides.resize(a.ndim);
    Py_ssize_t stride = a.elem.size_bytes();
    for (int level = a.ndim; level-- > 0;) {
        const auto axis = static_cast<size_t>(axis_at(a.layout, level));
        w.shape[axis] = a.shape[axis];
        w.strides[axis] = stride;
        stride *= a.shape[axis];
    }
    const int size = type::bytes(a.elem.prim);
    if (a.elem.rank)
        w.shape.push_back(a.elem.n), w.strides.push_back(a.elem.rank == 2 ? a.elem.m * size : size);
    if (a.elem.rank == 2) w.shape.push_back(a.elem.m), w.strides.push_back(size);
    return w;
}

PyObject* array_view(PyObject* self, PyObject*) {
    return wait_for_launches() && usable(*as_array(self)) ? make_view(window_of(*as_array(self)))
                                                          : nullptr;
}

PyObject* array_capsule(PyObject* self, PyObject* versioned) {
    const int kind = PyObject_IsTrue(versioned);
    return kind >= 0 && wait_for_launches() && usable(*as_array(self))
               ? make_capsule(window_of(*as_array(self)), kind == 1)
               : nullptr;
}

// The launcher compares arrays anyway.
PyObject* array_share(PyObject* self, PyObject*) {
    return usable(*as_array(self)) && expose(*as_array(self)->storage) ? Py_NewRef(Py_None)
                                                                       : nullptr;
}

PyObject* array_prepare(PyObject* self, PyObject*) {
    return usable(*as_array(self)) ? Py_NewRef(Py_None) : nullptr;
}

// _allocate(prim, rank, n, m, shape)
PyObject* array_allocate(PyObject* self, PyObject* args) {
    NdarrayFull& a = *as_array(self);
    int prim, rank, n, m;
    PyObject* shape;
    if (!PyArg_ParseTuple(args, "iiiiO!", &prim, &rank, &n, &m, &PyTuple_Type, &shape) ||
        !require_session())
        return nullptr;
    if (a.data) return PyErr_Format(PyExc_RuntimeError, "this ndarray has its memory already");
    const auto p = static_cast<Prim>(prim);
    a.elem = rank == 0 ? Type::scalar(p) : rank == 1 ? Type::vector(p, n) : Type::matrix(p, n, m);
    if (PyTuple_GET_SIZE(shape) > 12)
        return PyErr_Format(PyExc_RuntimeError,
                            "Too many dimensions. The maximum dimensionality is 12");
    size_t bytes = static_cast<size_t>(a.elem.size_bytes());
    a.ndim = static_cast<uint8_t>(PyTuple_GET_SIZE(shape));
    for (int k = 0; k < a.ndim; ++k) {
        const long extent = PyLong_AsLong(PyTuple_GET_ITEM(shape, k));
        if (PyErr_Occurred()) return nullptr;
        a.shape[k] = static_cast<int32_t>(extent);
        if (__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes)) bytes = ~size_t(0);
    }
    a.storage = allocate_storage(bytes);
    if (!a.storage) return nullptr;
    a.data = a.storage->memory.data;
    a.generation = session().generation;
    enlist(a);
    Py_RETURN_NONE;
}

PyObject* array_set_gradient(PyObject* self, PyObject* gradient) {
    if (gradient != Py_None && !is_ndarray(gradient))
        return PyErr_Format(PyExc_TypeError, "a gradient is an ndarray");
    Py_XSETREF(as_array(self)->grad, gradient == Py_None ? nullptr : Py_NewRef(gradient));
    Py_RETURN_NONE;
}

PyObject* array_note(PyObject* self, PyObject* operation) {
    const NdarrayObject& a = *as_array(self);
    const char* text = PyUnicode_AsUTF8(operation);
    if (!text) return nullptr;
    note_conversion("array " + std::to_string(a.elem.word()) + " " + std::to_string(a.ndim), text);
    Py_RETURN_NONE;
}

PyMethodDef array_methods[] = {
    {"_allocate", entry<array_allocate>, METH_VARARGS,
     "Gets zeroed memory: prim, rank, n, m, shape."},
    {"_set_gradient", entry<array_set_gradient>, METH_O, "Sets the array that holds the gradient."},
    {"_load", entry<array_load>, METH_VARARGS, "A component of an element: key, component."},
    {"_store", entry<array_store>, METH_VARARGS,
     "Sets a component of an element: key, component, value."},
    {"_note_conversion", entry<array_note>, METH_O,
     "The first conversion of this name is counted."},
    {"_prepare", entry<array_prepare>, METH_NOARGS, "Raises unless there is memory."},
    {"_view", entry<array_view>, METH_NOARGS, "The whole array as a buffer of canonical shape."},
    {"_share", entry<array_share>, METH_NOARGS, "A view is about to be handed out."},
    {"_capsule", entry<array_capsule>, METH_O, "A DLPack capsule."},
    {nullptr, nullptr, 0, nullptr},
};

// --- attributes
// -------------------------------------------------------------------------------------
PyObject* shape_tuple(const NdarrayFull& a, bool physical) {
    if (!a.data) Py_RETURN_NONE;
    PyObject* out = PyTuple_New(a.ndim);
    for (int k = 0; out && k < a.ndim; ++k)
        PyTuple_SET_ITEM(out, k, PyLong_FromLong(a.shape[physical ? axis_at(a.layout, k) : k]));
    return out;
}

PyObject* get_shape(PyObject* self, void* physical) {
    return shape_tuple(*as_array(self), physical != nullptr);
}

PyObject* get_layout(PyObject* self, void*) {
    const NdarrayFull& a = *as_array(self);
    if (!a.layout && !a.layout_tagged) Py_RETURN_NONE;
    PyObject* out = PyTuple_New(a.ndim);
    for (int k = 0; out && k < a.ndim; ++k)
        PyTuple_SET_ITEM(out, k, PyLong_FromLong(axis_at(a.layout, k)));
    return out;
}

// The allocated shape becomes the physical one; the canonical shape follows.
int set_layout(PyObject* self, PyObject* value, void*) {
    NdarrayFull& a = *as_array(self);
    int32_t physical[12];
    for (int k = 0; k < a.ndim; ++k) physical[k] = a.shape[axis_at(a.layout, k)];
    int axes[12];
    for (int k = 0; k < a.ndim; ++k) axes[k] = k;
    const bool tagged = value && value != Py_None;
    if (tagged) {
        PyObject* items = PySequence_Fast(value, "a layout is a tuple of axes");
        if (!items) return -1;
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
        if (n != a.ndim) {
            Py_DECREF(items);
            return PyErr_Format(PyExc_ValueError,
                                "layout has %zd entries but the array has %d axes", n, int(a.ndim)),
                   -1;
        }
        unsigned seen = 0;
        for (int k = 0; k < a.ndim; ++k) {
            axes[k] = static_cast<int>(PyLong_AsLong(PySequence_Fast_GET_ITEM(items, k)));
            if (!PyErr_Occurred() && axes[k] >= 0 && axes[k] < a.ndim) seen |= 1u << axes[k];
        }
        Py_DECREF(items);
        if (PyErr_Occurred()) return -1;
        if (seen != (1u << a.ndim) - 1)
            return PyErr_Format(PyExc_ValueError, "layout %R is not a permutation of range(%d)",
                                value, int(a.ndim)),
                   -1;
    }
    uint64_t packed = 0;
    bool identity = true;
    for (int k = 0; k < a.ndim; ++k) {
        packed |= static_cast<uint64_t>(axes[k]) << (4 * k);
        identity &= axes[k] == k;
        a.shape[axes[k]] = physical[k];
    }
    a.layout = identity ? 0 : packed;
    a.layout_tagged = tagged;
    return 0;
}

PyObject* get_address(PyObject* self, void*) { return PyLong_FromVoidPtr(as_array(self)->data); }

char kPhysical[] = "physical";
PyGetSetDef array_getset[] = {
    {"shape", entry<get_shape>, nullptr, "Extents by canonical axis; None after a reset.", nullptr},
    {"_physical_shape", entry<get_shape>, nullptr, "Extents by memory level.", kPhysical},
    {"_qd_layout", entry<get_layout>, entry<set_layout>, "The permutation tag, None without.",
     nullptr},
    {"_address", entry<get_address>, nullptr, "Address of the first element; 0 without memory.",
     nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* array_new(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }

int array_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as_array(self)->dict);
    Py_VISIT(as_array(self)->grad);
    Py_VISIT(as_array(self)->owner);
    return 0;
}
int array_clear(PyObject* self) {
    Py_CLEAR(as_array(self)->dict);
    Py_CLEAR(as_array(self)->grad);
    Py_CLEAR(as_array(self)->owner);
    return 0;
}
void array_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    if (as_array(self)->weakrefs) PyObject_ClearWeakRefs(self);
    free_memory(*as_array(self));
    array_clear(self);
    Py_TYPE(self)->tp_free(self);
}

PyObject* array_iter(PyObject* self) {
    return PyErr_Format(PyExc_TypeError, "'%s' object is not iterable on the host",
                        Py_TYPE(self)->tp_name);
}

PyMappingMethods array_mapping = {nullptr, entry<array_getitem>, entry<array_setitem>};

PyObject* count_live(PyObject*, PyObject*) { return PyLong_FromSize_t(live_count); }

PyMethodDef methods[] = {
    {"prog_get_num_ndarrays", entry<count_live>, METH_NOARGS, "Ndarrays that have memory."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_ndarray(PyObject* module) {
    on_reset(empty_shells);
    return PyModule_AddType(module, &NdarrayBase_Type) == 0 && add_tensor(module) &&
           PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace qd::data

PyTypeObject qd::data::NdarrayBase_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.NdarrayBase",
    .tp_basicsize = sizeof(qd::data::NdarrayFull),
    .tp_dealloc = entry<qd::data::array_dealloc>,
    .tp_as_mapping = &qd::data::array_mapping,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Native part of ndarrays.",
    .tp_traverse = entry<qd::data::array_traverse>,
    .tp_clear = entry<qd::data::array_clear>,
    .tp_weaklistoffset = offsetof(qd::data::NdarrayObject, weakrefs),
    .tp_iter = entry<qd::data::array_iter>,
    .tp_methods = qd::data::array_methods,
    .tp_getset = qd::data::array_getset,
    .tp_dictoffset = offsetof(qd::data::NdarrayObject, dict),
    .tp_new = entry<qd::data::array_new>,
};
