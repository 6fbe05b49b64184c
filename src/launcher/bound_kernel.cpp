// The BoundKernel type: a kernel that is a method, bound to its object.

#include "cpython/entry.h"
#include "launcher/kernel.h"

namespace qd::launcher {
namespace {

KernelObject* as_kernel(PyObject* o) { return reinterpret_cast<KernelObject*>(o); }

struct BoundObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject* kernel;
    PyObject* instance;
    PyObject* weakrefs;
};
BoundObject* as_bound(PyObject* o) { return reinterpret_cast<BoundObject*>(o); }

// Raises unless the class of the instance is marked @qd.data_oriented; remembers the last good one.
bool check_owner(PyObject* instance) {
    static PyTypeObject* last;
    static unsigned last_version;
    PyTypeObject* type =
        PyType_Check(instance) ? reinterpret_cast<PyTypeObject*>(instance) : Py_TYPE(instance);
    if (type == last && type->tp_version_tag == last_version && last_version) return true;
    PyObject* mark = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "_data_oriented");
    if (!mark) cpython::forget_error();
    const bool good = mark && PyObject_IsTrue(mark) == 1;
    Py_XDECREF(mark);
    if (!good) {
        set_error("QuadrantsSyntaxError", std::string("Please decorate class ") + type->tp_name +
                                              " with @qd.data_oriented");
        return false;
    }
    last = type;
    last_version = type->tp_version_tag;
    return true;
}

PyObject* bound_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    BoundObject& b = *as_bound(self);
    if (!check_owner(b.instance)) return nullptr;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    const Py_ssize_t total = count + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject* small[24];
    std::vector<PyObject*> large;
    PyObject** all = small;
    if (total + 1 > 24) {
        large.resize(static_cast<size_t>(total) + 1);
        all = large.data();
    }
    all[0] = b.instance;
    for (Py_ssize_t k = 0; k < total; ++k) all[k + 1] = args[k];
    return as_kernel(b.kernel)->vectorcall(b.kernel, all, static_cast<size_t>(count) + 1, names);
}

PyObject* bound_getattro(PyObject* self, PyObject* name) {
    PyObject* found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    cpython::forget_error();
    if (PyUnicode_CompareWithASCIIString(name, "instance") == 0 ||
        PyUnicode_CompareWithASCIIString(name, "__self__") == 0)
        return Py_NewRef(as_bound(self)->instance);
    if (PyUnicode_CompareWithASCIIString(name, "grad") == 0 ||
        PyUnicode_CompareWithASCIIString(name, "resume") == 0) {
        // The definition's own bound form knows how to launch these.
        PyObject* definition = as_kernel(as_bound(self)->kernel)->definition;
        PyObject* bound = PyObject_CallMethod(definition, "__get__", "OO", as_bound(self)->instance,
                                              Py_TYPE(as_bound(self)->instance));
        if (!bound) return nullptr;
        PyObject* out = PyObject_GetAttr(bound, name);
        Py_DECREF(bound);
        return out;
    }
    return PyObject_GetAttr(as_bound(self)->kernel, name);
}

// What is set is the kernel's: this object is made anew at each access.
int bound_setattro(PyObject* self, PyObject* name, PyObject* value) {
    return PyObject_SetAttr(as_bound(self)->kernel, name, value);
}

int bound_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as_bound(self)->kernel);
    Py_VISIT(as_bound(self)->instance);
    return 0;
}

void bound_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    if (as_bound(self)->weakrefs) PyObject_ClearWeakRefs(self);
    Py_CLEAR(as_bound(self)->kernel);
    Py_CLEAR(as_bound(self)->instance);
    PyObject_GC_Del(self);
}

// Copied and pickled like a method: by object and name.
PyObject* bound_reduce(PyObject* self, PyObject*) {
    PyObject* getattr = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
    const Ref name = Ref::steal_or_null(
        PyObject_GetAttrString(as_kernel(as_bound(self)->kernel)->definition, "_attr_name"));
    if (!getattr || !name) return nullptr;
    return Py_BuildValue("O(OO)", getattr, as_bound(self)->instance, name.get());
}
PyObject* bound_doc(PyObject* self, void*) {
    return PyObject_GetAttrString(as_bound(self)->kernel, "__doc__");
}

// Made anew at each access, and the same as a method is.
PyObject* bound_compare(PyObject* self, PyObject* other, int op) {
    if (Py_TYPE(other) != Py_TYPE(self) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    const bool same = as_bound(self)->kernel == as_bound(other)->kernel &&
                      as_bound(self)->instance == as_bound(other)->instance;
    return PyBool_FromLong(same == (op == Py_EQ));
}
Py_hash_t bound_hash(PyObject* self) {
    const Py_hash_t hash =
        _Py_HashPointer(as_bound(self)->kernel) * 31 + _Py_HashPointer(as_bound(self)->instance);
    return hash == -1 ? -2 : hash;
}

PyGetSetDef bound_getset[] = {
    {"__doc__", entry<bound_doc>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef bound_methods[] = {
    {"__reduce__", entry<bound_reduce>, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject BoundKernel_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.BoundKernel",
    .tp_basicsize = sizeof(BoundObject),
    .tp_dealloc = entry<bound_dealloc>,
    .tp_vectorcall_offset = offsetof(BoundObject, vectorcall),
    .tp_hash = entry<bound_hash>,
    .tp_call = PyVectorcall_Call,
    .tp_getattro = entry<bound_getattro>,
    .tp_setattro = entry<bound_setattro>,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_traverse = entry<bound_traverse>,
    .tp_richcompare = entry<bound_compare>,
    .tp_weaklistoffset = offsetof(BoundObject, weakrefs),
    .tp_methods = bound_methods,
    .tp_getset = bound_getset,
};

}  // namespace

PyObject* bind_kernel(PyObject* self, PyObject* instance, PyObject*) {
    if (!instance || instance == Py_None) return Py_NewRef(self);
    auto* b = PyObject_GC_New(BoundObject, &BoundKernel_Type);
    if (!b) return nullptr;
    b->vectorcall = entry<bound_call>;
    b->kernel = Py_NewRef(self);
    b->instance = Py_NewRef(instance);
    b->weakrefs = nullptr;
    PyObject_GC_Track(b);
    return reinterpret_cast<PyObject*>(b);
}

bool ready_bound_kernel() { return PyType_Ready(&BoundKernel_Type) == 0; }

}  // namespace qd::launcher
