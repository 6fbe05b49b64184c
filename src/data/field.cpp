// Field trees and host access to field elements.
//
// A TreeRecord owns the layout and storage of one materialised tree. The registry holds the trees
// of the live runtime; each field object holds its record too, so that a stale object can always be
// asked and refused. Storage goes at destroy or reset, except while exported views need it.
//
// Everything here is touched under the GIL only.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/accessors.h"
#include "data/objects.h"
#include "data/storage.h"
#include "layout/tree.h"
#include "runtime/cpu/kernel.h"
#include "session/session.h"
#include "support/error.h"

namespace qd::data {
namespace {

using namespace cpython;
using namespace session;
using session::session;
using type::Prim;
using type::Type;

struct FieldFull;

struct TreeRecord {
    int holders = 1;
    uint32_t id = 0;
    Storage* storage = nullptr;
    std::vector<layout::Node> nodes;
    std::vector<std::unique_ptr<ir::Field>> layouts;  // of its fields; kernels point at them
    std::vector<FieldFull*> objects;                  // fields that still exist
};

// A FieldObject and what only this file needs.
struct FieldFull : FieldObject {
    TreeRecord* record;
    std::vector<bool>* noted;  // reads and writes of its components: see accessors.h
};

std::vector<TreeRecord*> trees;  // of the live runtime, by id; destroyed ones stay without storage
std::vector<uint32_t> free_ids;  // of destroyed trees, for the next ones
bool pending = false;            // fields or builders wait for materialisation
uint64_t next_uid = 1;

FieldFull* as_field(PyObject* o) { return reinterpret_cast<FieldFull*>(o); }

void release(TreeRecord* r) {
    if (--r->holders) return;
    drop(r->storage);
    delete r;
}

void free_storage(TreeRecord& r) {
    drop(r.storage);
    r.storage = nullptr;
    for (FieldFull* f : r.objects) f->base = nullptr;
}

void forget_trees() {
    for (TreeRecord* r : trees) {
        free_storage(*r);
        release(r);
    }
    trees.clear();
    free_ids.clear();
    pending = false;
}

// What attach() needs memory for.
using Noted = std::unique_ptr<std::vector<bool>>;
Noted nothing_noted(const ir::Field& layout) {
    return std::make_unique<std::vector<bool>>(2 * layout.component_offsets.size());
}
template <class T>
void make_room(std::vector<T>& items, size_t more) {
    if (items.capacity() - items.size() < more)
        items.reserve(items.size() + std::max(more, items.size()));
}
void make_room(TreeRecord& r, size_t fields) {
    make_room(r.layouts, fields);
    make_room(r.objects, fields);
}

void attach(FieldFull& f, TreeRecord& r, std::unique_ptr<ir::Field> layout, Noted noted,
            char* base) noexcept {
    f.field = layout.get();
    f.base = base;
    f.tree = r.id;
    f.has_storage = true;
    f.record = &r;
    delete std::exchange(f.noted, noted.release());
    ++r.holders;
    r.layouts.push_back(std::move(layout));
    r.objects.push_back(&f);
}

// --- may this field be used?
// ----------------------------------------------------------------------
bool materialise() {
    PyObject* module = PyImport_ImportModule("quadrants.lang.impl");
    if (!module) return false;
    PyObject* runtime = PyObject_GetAttrString(module, "pyquadrants");
    Py_DECREF(module);
    if (!runtime) return false;
    PyObject* done = PyObject_CallMethod(runtime, "materialize", nullptr);
    Py_DECREF(runtime);
    Py_XDECREF(done);
    return done != nullptr;
}

bool is_of_this_runtime(const FieldFull& f) {
    if (!require_session()) return false;
    if (f.generation == session().generation) return true;
    set_error("QuadrantsRuntimeError", "This field belongs to a runtime that has been reset");
    return false;
}

__attribute__((noinline, cold)) bool prepare(FieldFull& f) {
    if (!is_of_this_runtime(f)) return false;
    // Another thread may reset the runtime amid that.
    if (pending && !(materialise() && is_of_this_runtime(f))) return false;
    if (f.destroyed) {
        set_error("QuadrantsRuntimeError", "SNode tree has been destroyed");
        return false;
    }
    if (f.base) return true;
    const cpython::Ref whole = cpython::Ref::steal_or_null(
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(&f), "_companion_of"));
    if (!whole) cpython::forget_error();
    if (whole && whole.get() == Py_None) {
        set_error("QuadrantsRuntimeError",
                  "Field has no allocation: it was not placed, or there was no memory for the "
                  "fields declared with it, or another thread has not placed all of its own. "
                  "Declare them again with smaller shapes, or place those first.");
        return false;
    }
    set_error("QuadrantsRuntimeError",
              "Field has no allocation. Allocate it with `qd.field(..., needs_grad=True)` or "
              "`needs_dual=True`, `qd.root.lazy_grad()` or "
              "`lazy_dual()`, or place it in a node before it is filled, read or written.");
    return false;
}

bool is_never_traced() { return false; }

bool usable(FieldFull& f) {
    return (f.base && f.generation == session().generation && !pending) || prepare(f);
}

// --- keys
// -------------------------------------------------------------------------------------------
bool illegal_element(PyObject* o) {
    PyErr_Format(PyExc_TypeError,
                 "Detected illegal element of type: %R. Please be aware that slicing a qd.field is "
                 "not supported so far.",
                 Py_TYPE(o));
    return false;
}

bool one_index(PyObject* o, int64_t& out) {
    if (read_index(o, out)) return true;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    cpython::forget_error();
    return illegal_element(o);
}

bool wrong_rank() {
    PyErr_SetString(PyExc_AssertionError, "Slicing is not supported on qd.field");
    return false;
}

bool read_key(const FieldFull& f, PyObject* key, int64_t* indices) {
    const int ndim = f.field->ndim;
    if (key == Py_None) return ndim == 0 || wrong_rank();
    if (PyLong_Check(key) || is_one_index(key)) {
        if (ndim != 1) return wrong_rank();
        return one_index(key, indices[0]);
    }
    PyObject* items =
        PyErr_Occurred() ? nullptr : PySequence_Fast(key, "a field is indexed by integers");
    if (!items && PyErr_ExceptionMatches(PyExc_TypeError))
        return cpython::forget_error(), illegal_element(key);
    if (!items) return false;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    const bool zero = ndim == 0 && n == 1 && PySequence_Fast_GET_ITEM(items, 0) == Py_None;
    bool ok = zero || n == ndim || wrong_rank();
    for (Py_ssize_t k = 0; ok && !zero && k < n; ++k)
        ok = one_index(PySequence_Fast_GET_ITEM(items, k), indices[k]);
    Py_DECREF(items);
    return ok;
}

std::string list_of(const int64_t* values, int n) {
    std::string out = "(";
    for (int k = 0; k < n; ++k) out += (k ? ", " : "") + std::to_string(values[k]);
    return out + ")";
}

__attribute__((noinline, cold)) void out_of_bounds(const ir::Field& f, const int64_t* indices,
                                                   bool writes) {
    const bool offset = std::any_of(f.offset, f.offset + f.ndim, [](int64_t n) { return n; });
    set_error("QuadrantsAssertionError",
              "(kernel=snode_" + std::string(writes ? "writer" : "reader") + "_" +
                  std::to_string(f.alias_group) + ") Accessing field (" + f.name + "<" +
                  type::info(f.elem.prim).name + ">) of size " + list_of(f.shape, f.ndim) +
                  (offset ? " offset " + list_of(f.offset, f.ndim) : "") + " with indices " +
                  list_of(indices, f.ndim));
}

FieldPlace place_of(const FieldFull& f, const ir::Field& layout, int64_t offset) {
    return {layout, f.tree, f.base - f.record->storage->memory.data + offset};
}

__attribute__((noinline, cold)) void note(FieldFull& f, int component, bool writes) {
    const ir::Field& whole = *f.field;
    if (whole.elem.rank == 0) {
        note_access(place_of(f, whole, 0), writes);
    } else {
        const ir::Field part = layout::component_field(whole, component);
        const int64_t offset = whole.component_offsets[static_cast<size_t>(component)];
        note_access(place_of(f, part, offset), writes);
    }
    (*f.noted)[static_cast<size_t>(2 * component + writes)] = true;
}

// Address of a component of the element at `key`. Outside debug mode indices may leave the shape as
// long as they stay in the tree's memory.
char* find(FieldFull& f, PyObject* key, int component, bool writes) {
    int64_t indices[12];
    // An index may be an object of the user's, whose code can end the runtime.
    if (!usable(f) || !read_key(f, key, indices) || !wait_for_launches() || !usable(f))
        return nullptr;
    const ir::Field& layout = *f.field;
    if (session().options.debug || session().options.check_out_of_bound || layout.packed)
        for (int k = 0; k < layout.ndim; ++k) {
            const int64_t i = indices[k] - layout.offset[k];
            if (i < 0 || i >= layout.shape[k])
                return out_of_bounds(layout, indices, writes), nullptr;
        }
    if (component < 0 || static_cast<size_t>(component) >= layout.component_offsets.size()) {
        PyErr_Format(PyExc_IndexError, "component %d is out of range", component);
        return nullptr;
    }
    if (layout.packed) return f.base;  // to be asked through _read_packed
    char* at = f.base + layout::address(layout, indices, component);
    const runtime::Memory& m = f.record->storage->memory;
    if (at < m.data || at + type::bytes(layout.elem.prim) > m.data + m.bytes)
        return out_of_bounds(layout, indices, writes), nullptr;
    return at;
}

char* locate(FieldFull& f, PyObject* key, int component, bool writes) {
    char* at = find(f, key, component, writes);
    if (f.field->packed) return at;
    if (at && !(*f.noted)[static_cast<size_t>(2 * component + writes)]) note(f, component, writes);
    return at;
}

PyObject* load(FieldFull& f, PyObject* key, int component) {
    const char* at = locate(f, key, component, false);
    if (!at) return nullptr;
    if (f.field->packed)
        return PyObject_CallMethod(reinterpret_cast<PyObject*>(&f), "_read_packed", "(Oi)", key,
                                   component);
    return load_element(*f.record->storage, f.field->elem.prim, at);
}

bool store_packed(FieldFull& f, PyObject* key, int component, PyObject* value) {
    uint64_t bits;  // what an ordinary field would not take is refused in the same words
    return read_number(f.field->elem.prim, value, bits) && find(f, key, component, true) &&
           Ref::steal_or_null(PyObject_CallMethod(reinterpret_cast<PyObject*>(&f), "_write_packed",
                                                  "(OiO)", key, component, value));
}

// The value first: to read it may run code of the user's, which can free the memory.
bool store(FieldFull& f, PyObject* key, int component, PyObject* value) {
    if (f.field->packed) return store_packed(f, key, component, value);
    const Prim p = f.field->elem.prim;
    uint64_t bits;
    if (!read_number(p, value, bits)) return false;
    char* at = locate(f, key, component, true);
    if (at && f.field->sparse) {
        const Ref done = Ref::steal_or_null(
            PyObject_CallMethod(reinterpret_cast<PyObject*>(&f), "_activate", "(O)", key));
        if (!done) return false;
        at = locate(f, key, component, true);
    }
    if (at) store_element(*f.record->storage, p, at, bits);
    return at != nullptr;
}

// --- methods
// ------------------------------------------------------------------------------------------
PyObject* field_getitem(PyObject* self, PyObject* key) {
    FieldFull& f = *as_field(self);
    if (refuse_while_traced("__getitem__") || !usable(f)) return nullptr;
    if (f.field->elem.rank) {
        int64_t indices[12];
        if (!read_key(f, key, indices)) return nullptr;  // errors come now, not at the first use
        if (session().options.debug && !find(f, key, 0, false)) return nullptr;
        return PyObject_CallMethod(self, "_element", "(O)", key);
    }
    return load(f, key, 0);
}

int field_setitem(PyObject* self, PyObject* key, PyObject* value) {
    FieldFull& f = *as_field(self);
    if (!value)
        return PyErr_SetString(PyExc_TypeError, "elements of a field cannot be deleted"), -1;
    if (refuse_while_traced("__setitem__") || !usable(f)) return -1;
    if (f.field->elem.rank) {
        PyObject* done = PyObject_CallMethod(self, "_assign_element", "OO", key, value);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    return store(f, key, 0, value) ? 0 : -1;
}

PyObject* field_load(PyObject* self, PyObject* args) {
    PyObject* key;
    int component;
    if (!PyArg_ParseTuple(args, "Oi", &key, &component)) return nullptr;
    return load(*as_field(self), key, component);
}

PyObject* field_store(PyObject* self, PyObject* args) {
    PyObject *key, *value;
    int component;
    if (!PyArg_ParseTuple(args, "OiO", &key, &component, &value)) return nullptr;
    if (!usable(*as_field(self)) || !store(*as_field(self), key, component, value)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* field_check_key(PyObject* self, PyObject* key) {
    if (!find(*as_field(self), key, 0, false)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* field_note(PyObject* self, PyObject* operation) {
    const FieldFull& f = *as_field(self);
    const char* text = PyUnicode_AsUTF8(operation);
    if (!text) return nullptr;
    if (f.base) note_conversion(place_of(f, *f.field, 0), text);
    Py_RETURN_NONE;
}

PyObject* field_prepare(PyObject* self, PyObject*) {
    if (!usable(*as_field(self))) return nullptr;
    Py_RETURN_NONE;
}

Window window_of(const FieldFull& f) {
    Window w;
    w.storage = f.record->storage;
    w.data = f.base;
    w.prim = f.field->elem.prim;
    return w;
}

// Canonical axes, then element axes; false if some axis is not one arithmetic progression.
bool strided_window(const FieldFull& f, Window& w) {
    const ir::Field& layout = *f.field;
    w = window_of(f);
    for (int k = 0; k < layout.ndim; ++k) {
        int64_t stride;
        if (!layout::axis_stride(layout, k, stride)) return false;
        w.shape.push_back(layout.shape[k]);
        w.strides.push_back(stride);
    }
    const Type t = layout.elem;
    const int64_t step = t.count() > 1 ? layout.component_stride() : type::bytes(t.prim);
    if (step == 0) return false;
    if (t.rank) w.shape.push_back(t.n), w.strides.push_back(t.rank == 2 ? t.m * step : step);
    if (t.rank == 2) w.shape.push_back(t.m), w.strides.push_back(step);
    return true;
}

PyObject* field_view(PyObject* self, PyObject*) {
    Window w;
    if (!wait_for_launches() || !usable(*as_field(self))) return nullptr;
    if (!strided_window(*as_field(self), w)) Py_RETURN_NONE;
    return make_view(w);
}

// One component with an axis per address term: canonical axes in order, outer parts first, so that
// reshaping to the canonical shape is all that is left to do.
PyObject* field_parts(PyObject* self, PyObject* arg) {
    FieldFull& f = *as_field(self);
    const long component = PyLong_AsLong(arg);
    if (PyErr_Occurred() || !wait_for_launches() || !usable(f)) return nullptr;
    const ir::Field& layout = *f.field;
    if (component < 0 || size_t(component) >= layout.component_offsets.size()) {
        PyErr_SetString(PyExc_IndexError, "no such component");
        return nullptr;
    }
    Window w = window_of(f);
    w.data += layout.component_offsets.at(static_cast<size_t>(component));
    for (int axis = 0; axis < layout.ndim; ++axis)
        for (const ir::Field::Term& t : layout.terms_of(static_cast<int>(component))) {
            if (t.axis != axis) continue;
            w.shape.push_back(t.mod ? t.mod : layout.shape[axis] / t.div);
            w.strides.push_back(t.stride);
        }
    return make_view(w);
}

// Whether the elements lie side by side, with nothing of another field between them.
bool is_compact(const FieldFull& f) {
    Window w;
    if (!strided_window(f, w)) return false;
    const Type t = f.field->elem;
    return w.is_compact() && (t.count() == 1 || f.field->component_stride() == type::bytes(w.prim));
}

PyObject* field_compact(PyObject* self, PyObject*) {
    if (!usable(*as_field(self))) return nullptr;
    return PyBool_FromLong(is_compact(*as_field(self)));
}

PyObject* field_capsule(PyObject* self, PyObject* versioned) {
    Window w;
    if (!wait_for_launches() || !usable(*as_field(self))) return nullptr;
    if (!strided_window(*as_field(self), w)) Py_RETURN_NONE;
    share_field(w.storage);
    const int kind = PyObject_IsTrue(versioned);
    return kind < 0 ? nullptr : make_capsule(w, kind == 1);
}

PyObject* field_share(PyObject* self, PyObject*) {
    if (!wait_for_launches() || !usable(*as_field(self))) return nullptr;
    Storage& s = *as_field(self)->record->storage;
    if (!expose(s)) return nullptr;
    share_field(&s);
    Py_RETURN_NONE;
}

PyObject* field_component_stride(PyObject* self, PyObject*) {
    if (!usable(*as_field(self))) return nullptr;
    const int64_t stride = as_field(self)->field->component_stride();
    return stride ? PyLong_FromLongLong(stride) : Py_NewRef(Py_None);
}

PyMethodDef field_methods[] = {
    {"_load", entry<field_load>, METH_VARARGS, "A component of an element: key, component."},
    {"_store", entry<field_store>, METH_VARARGS,
     "Sets a component of an element: key, component, value."},
    {"_check_key", entry<field_check_key>, METH_O, "Raises what a read of the element would."},
    {"_note_conversion", entry<field_note>, METH_O,
     "The first conversion of this name is counted."},
    {"_prepare", entry<field_prepare>, METH_NOARGS, "Makes sure that there is storage, or raises."},
    {"_view", entry<field_view>, METH_NOARGS,
     "The whole field as a buffer; None if strides cannot say it."},
    {"_parts", entry<field_parts>, METH_O,
     "One component as a buffer with an axis per subdivision."},
    {"_compact", entry<field_compact>, METH_NOARGS, "Whether the elements lie side by side."},
    {"_share", entry<field_share>, METH_NOARGS, "A view is about to be handed out."},
    {"_capsule", entry<field_capsule>, METH_O, "A DLPack capsule; None if strides cannot say it."},
    {"_component_stride", entry<field_component_stride>, METH_NOARGS,
     "Bytes between components; None if uneven."},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* get_flag(PyObject* self, void* which) {
    const FieldFull& f = *as_field(self);
    const char flag = which ? *static_cast<const char*>(which) : 'b';
    return PyBool_FromLong(flag == 'b'   ? f.base != nullptr
                           : flag == 's' ? f.field && f.field->sparse
                           : flag == 'p' ? f.field && f.field->packed
                                         : f.destroyed);
}
PyObject* get_uid(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(as_field(self)->uid);
}
PyObject* get_address(PyObject* self, void*) { return PyLong_FromVoidPtr(as_field(self)->base); }

PyGetSetDef field_getset[] = {
    {"_has_storage", entry<get_flag>, nullptr, "Whether it has storage now.", nullptr},
    {"_is_sparse", entry<get_flag>, nullptr, "Whether it has storage below a sparse node.",
     const_cast<char*>("s")},
    {"_is_packed", entry<get_flag>, nullptr, "Whether its numbers lie packed in words.",
     const_cast<char*>("p")},
    {"_destroyed", entry<get_flag>, nullptr, "Whether its tree was destroyed.",
     const_cast<char*>("d")},
    {"_uid", entry<get_uid>, nullptr, "Number of this object in the process.", nullptr},
    {"_address", entry<get_address>, nullptr, "Address of the first element; 0 without storage.",
     nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* field_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* o = type->tp_alloc(type, 0);
    if (!o) return nullptr;
    as_field(o)->generation = session().generation;
    as_field(o)->uid = next_uid++;
    return o;
}

int field_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as_field(self)->dict);
    return 0;
}
int field_clear(PyObject* self) {
    Py_CLEAR(as_field(self)->dict);
    return 0;
}
void field_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    FieldFull& f = *as_field(self);
    if (f.weakrefs) PyObject_ClearWeakRefs(self);
    field_clear(self);
    if (f.record) {
        std::erase(f.record->objects, &f);
        release(f.record);
    }
    delete f.noted;
    Py_TYPE(self)->tp_free(self);
}

PyMappingMethods field_mapping = {nullptr, entry<field_getitem>, entry<field_setitem>};

// --- trees
// ------------------------------------------------------------------------------------------
[[noreturn]] void bad_description() { throw support::Error("a field tree is described wrongly"); }

std::vector<int64_t> read_list(PyObject* tuple) {
    std::vector<int64_t> out;
    if (tuple == Py_None) return out;
    if (!PyTuple_Check(tuple)) bad_description();
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k)
        out.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, k)));
    if (PyErr_Occurred()) bad_description();
    return out;
}

std::vector<int> read_ints(PyObject* tuple) {
    const auto wide = read_list(tuple);
    return {wide.begin(), wide.end()};
}

void read_nodes(PyObject* list, std::vector<layout::Node>& nodes) {
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); ++k) {
        int parent, prim;
        PyObject *axes, *extents;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, k), "iiOO", &parent, &prim, &axes, &extents))
            bad_description();
        layout::Node n;
        n.parent = parent;
        n.packed = prim < -1;
        if (prim != -1) n.prim = static_cast<Prim>(n.packed ? -2 - prim : prim);
        n.axes = read_ints(axes);
        n.extents = read_list(extents);
        if (parent >= k || n.axes.size() != n.extents.size()) bad_description();
        nodes.push_back(std::move(n));
    }
}

Type element_type(int prim, int rank, int n, int m) {
    const auto p = static_cast<Prim>(prim);
    return rank == 0 ? Type::scalar(p) : rank == 1 ? Type::vector(p, n) : Type::matrix(p, n, m);
}

struct Planned {
    FieldFull* object;
    std::unique_ptr<ir::Field> layout;
    Noted noted;
    int64_t base;
};

Planned plan_field(PyObject* row, std::span<const layout::Node> nodes) {
    PyObject *object, *places, *order, *offset;
    int prim, rank, n, m;
    const char* name;
    unsigned long long sparse;
    int packed;
    if (!PyArg_ParseTuple(row, "O!OiiiiOOsKp", &FieldBase_Type, &object, &places, &prim, &rank, &n,
                          &m, &order, &offset, &name, &sparse, &packed))
        bad_description();
    FieldFull& f = *as_field(object);
    layout::FieldSpec spec{name,
                           element_type(prim, rank, n, m),
                           read_ints(places),
                           read_ints(order),
                           read_list(offset),
                           f.uid,
                           sparse,
                           packed != 0};
    Planned p{&f, nullptr, nullptr, 0};
    p.layout = std::make_unique<ir::Field>(layout::make_field(nodes, spec, p.base));
    p.noted = nothing_noted(*p.layout);
    return p;
}

PyObject* node_sizes(const std::vector<layout::Node>& nodes) {
    Ref out = Ref::steal(PyList_New(static_cast<Py_ssize_t>(nodes.size())));
    for (size_t k = 0; k < nodes.size(); ++k)
        PyList_SET_ITEM(
            out.get(), static_cast<Py_ssize_t>(k),
            Ref::steal(Py_BuildValue("(LLL)", static_cast<long long>(nodes[k].cell_bytes),
                                     static_cast<long long>(nodes[k].offset),
                                     static_cast<long long>(nodes[k].cells)))
                .release());
    return out.release();
}

// make_tree((nodes, sparse), fields) -> (id, [(cell bytes, offset in parent cell, cells), ...])
//   node:  (parent, prim, axes, extents), parents first, the root at 0; prim is -1 of containers,
//          -2 - prim of packed places
//   field: (object, place nodes, prim, rank, n, m, order or None, offset or None, name, structure,
//           packed)
PyObject* make_tree(PyObject*, PyObject* args) {
    PyObject *node_list, *field_list;
    int sparse;
    if (!PyArg_ParseTuple(args, "(O!p)O!", &PyList_Type, &node_list, &sparse, &PyList_Type,
                          &field_list) ||
        !require_session())
        return nullptr;
    const auto give_up = [](TreeRecord* r) { release(r); };
    std::unique_ptr<TreeRecord, decltype(give_up)> record(new TreeRecord);
    Ref out;
    try {
        read_nodes(node_list, record->nodes);
        layout::lay_out(record->nodes);
        std::vector<Planned> planned;
        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(field_list); ++k)
            planned.push_back(plan_field(PyList_GET_ITEM(field_list, k), record->nodes));
        // Programs that step over an edge by a cell or a row (undefined, but common beside a grid)
        // must not hit the heap's own records.
        const auto bytes = static_cast<size_t>(record->nodes.at(0).bytes());
        record->storage = allocate_storage(bytes, runtime::edge_margin(bytes), sparse != 0);
        if (!record->storage) return nullptr;
        record->id = static_cast<uint32_t>(free_ids.empty() ? trees.size() : free_ids.back());
        out = Ref::steal(Py_BuildValue("(IN)", record->id, node_sizes(record->nodes)));
        make_room(trees, 1);
        make_room(*record, planned.size());
        // From here on nothing fails.
        for (Planned& p : planned)
            attach(*p.object, *record, std::move(p.layout), std::move(p.noted),
                   record->storage->memory.data + p.base);
    } catch (const support::Error& e) {
        if (!PyErr_Occurred()) set_error("RuntimeError", e.what());
        return nullptr;
    }
    TreeRecord* made = record.release();
    if (free_ids.empty()) {
        trees.push_back(made);
    } else {
        free_ids.pop_back();
        release(std::exchange(trees[made->id], made));
    }
    return out.release();
}

PyObject* destroy_tree(PyObject*, PyObject* arg) {
    const size_t id = PyLong_AsSize_t(arg);
    if (PyErr_Occurred() || !require_session()) return nullptr;
    if (id >= trees.size()) return PyErr_Format(PyExc_IndexError, "there is no SNode tree %zu", id);
    make_room(free_ids, 1);
    for (FieldFull* f : trees[id]->objects) f->destroyed = true;
    free_storage(*trees[id]);
    free_ids.push_back(static_cast<uint32_t>(id));
    Py_RETURN_NONE;
}

// discard(tree, offset, bytes): a part in which nothing is active gives its pages back.
PyObject* discard(PyObject*, PyObject* args) {
    Py_ssize_t id, offset, bytes;
    if (!PyArg_ParseTuple(args, "nnn", &id, &offset, &bytes) || !require_session() ||
        !wait_for_launches())
        return nullptr;
    const Storage* s =
        static_cast<size_t>(id) < trees.size() ? trees[static_cast<size_t>(id)]->storage : nullptr;
    const bool inside = s && s->device->discard && s->memory.mapped && offset >= 0 && bytes >= 0 &&
                        static_cast<size_t>(offset + bytes) <= s->memory.bytes;
    if (inside)
        s->device->discard(s->memory, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    Py_RETURN_NONE;
}

// bind_component(scalar field, matrix field, k, sparse): the scalar field becomes that component.
PyObject* bind_component(PyObject*, PyObject* args) {
    PyObject *scalar, *whole;
    int k;
    unsigned long long sparse;  // of the containers above it
    if (!PyArg_ParseTuple(args, "O!O!iK", &FieldBase_Type, &scalar, &FieldBase_Type, &whole, &k,
                          &sparse))
        return nullptr;
    FieldFull &f = *as_field(scalar), &m = *as_field(whole);
    if (f.field || !m.base) Py_RETURN_NONE;
    ir::Field part = layout::component_field(*m.field, k);
    part.sparse = sparse;
    auto layout = std::make_unique<ir::Field>(std::move(part));
    Noted noted = nothing_noted(*layout);
    make_room(*m.record, 1);
    attach(f, *m.record, std::move(layout), std::move(noted),
           m.base + m.field->component_offsets.at(static_cast<size_t>(k)));
    Py_RETURN_NONE;
}

PyObject* set_fields_pending(PyObject*, PyObject* arg) {
    pending = PyObject_IsTrue(arg) == 1;
    Py_RETURN_NONE;
}

PyObject* tree_count(PyObject*, PyObject*) { return PyLong_FromSize_t(trees.size()); }

PyMethodDef methods[] = {
    {"make_tree", entry<make_tree>, METH_VARARGS,
     "Lays out a field tree and allocates its zeroed storage."},
    {"destroy_tree", entry<destroy_tree>, METH_O,
     "Frees the storage of a tree; its fields can no longer be used."},
    {"discard", entry<discard>, METH_VARARGS, "Gives pages of a sparse tree's storage back."},
    {"bind_component", entry<bind_component>, METH_VARARGS,
     "Makes a scalar field a component of a matrix field."},
    {"set_fields_pending", entry<set_fields_pending>, METH_O,
     "Whether declared fields wait for storage."},
    {"prog_get_snode_tree_size", entry<tree_count>, METH_NOARGS,
     "Trees materialised in this runtime."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool (*is_traced)() = is_never_traced;

bool refuse_while_traced(const char* method) {
    if (!is_traced()) return false;
    PyErr_Format(
        PyExc_AssertionError,
        "%s cannot be called in Quadrants-scope: it would run while the kernel is compiled, "
        "not when it runs. Access the element in a kernel or a qd.func",
        method);
    return true;
}

uint32_t current_generation() { return session().generation; }
bool has_pending_fields() { return pending; }

bool add_field(PyObject* module) {
    on_reset(forget_trees);
    return add_storage_types() && PyModule_AddType(module, &FieldBase_Type) == 0 &&
           PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace qd::data

PyTypeObject qd::data::FieldBase_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.FieldBase",
    .tp_basicsize = sizeof(qd::data::FieldFull),
    .tp_dealloc = entry<qd::data::field_dealloc>,
    .tp_as_mapping = &qd::data::field_mapping,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Native part of scalar and matrix fields.",
    .tp_traverse = entry<qd::data::field_traverse>,
    .tp_clear = entry<qd::data::field_clear>,
    .tp_weaklistoffset = offsetof(qd::data::FieldObject, weakrefs),
    .tp_methods = qd::data::field_methods,
    .tp_getset = qd::data::field_getset,
    .tp_dictoffset = offsetof(qd::data::FieldObject, dict),
    .tp_new = entry<qd::data::field_new>,
};
