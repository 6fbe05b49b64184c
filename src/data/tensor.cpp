// The slot of `qd.Tensor`: a wrapper around a bare field or ndarray that native code sees through.

#include "cpython/entry.h"
#include "data/objects.h"
#include "data/storage.h"

namespace qd::data {
namespace {

using cpython::entry;

TensorObject* as_tensor(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

PyObject* get_impl(PyObject* self, void*) {
    PyObject* impl = as_tensor(self)->impl;
    return Py_NewRef(impl ? impl : Py_None);
}

int set_impl(PyObject* self, PyObject* value, void*) {
    Py_XSETREF(as_tensor(self)->impl, Py_XNewRef(value));
    return 0;
}

PyObject* unwrap_method(PyObject* self, PyObject*) { return get_impl(self, nullptr); }

PyMethodDef methods[] = {
    {"_unwrap", entry<unwrap_method>, METH_NOARGS, "The bare field or ndarray."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getset[] = {
    {"_impl", entry<get_impl>, entry<set_impl>, "The bare field or ndarray.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as_tensor(self)->dict);
    Py_VISIT(as_tensor(self)->impl);
    return 0;
}
int clear(PyObject* self) {
    Py_CLEAR(as_tensor(self)->dict);
    Py_CLEAR(as_tensor(self)->impl);
    return 0;
}
void dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    if (as_tensor(self)->weakrefs) PyObject_ClearWeakRefs(self);
    clear(self);
    Py_TYPE(self)->tp_free(self);
}
PyObject* tensor_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* o = type->tp_alloc(type, 0);
    if (o) as_tensor(o)->impl = Py_NewRef(Py_None);  // never null: the launcher looks through it
    return o;
}

}  // namespace

bool add_tensor(PyObject* module) { return PyModule_AddType(module, &TensorBase_Type) == 0; }

}  // namespace qd::data

PyTypeObject qd::data::TensorBase_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.TensorBase",
    .tp_basicsize = sizeof(qd::data::TensorObject),
    .tp_dealloc = entry<qd::data::dealloc>,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Native part of tensors.",
    .tp_traverse = entry<qd::data::traverse>,
    .tp_clear = entry<qd::data::clear>,
    .tp_weaklistoffset = offsetof(qd::data::TensorObject, weakrefs),
    .tp_methods = qd::data::methods,
    .tp_getset = qd::data::getset,
    .tp_dictoffset = offsetof(qd::data::TensorObject, dict),
    .tp_new = entry<qd::data::tensor_new>,
};
