// Views: windows into storage with the buffer protocol, for NumPy. See storage.h.
//
// Where the memory is not the host's own, a view is over a copy on the host, from the window's
// first byte to its last, and copy_elements brings and takes back what it holds: also what lies
// between the window's elements and may be another field's, so nothing else may write there
// meanwhile.

#include <cstdlib>
#include <cstring>
#include <memory>

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/storage.h"
#include "session/session.h"

namespace qd::data {
namespace {

using cpython::entry;
using cpython::Ref;

struct ViewObject {
    PyObject_HEAD
    Window* window;  // holds its storage
    char* copy;      // null: the memory is the host's
};

ViewObject* as_view(PyObject* o) { return reinterpret_cast<ViewObject*>(o); }

const char* format_of(type::Prim p) {
    // NumPy has two types of 64 bits; torch knows the one that int64 and uint64 name.
    static const bool long_is_64 = sizeof(long) == 8;
    static const char* const i64 = long_is_64 ? "l" : "q";
    static const char* const u64 = long_is_64 ? "L" : "Q";
    static const char* const table[] = {"?", "b", "h", "i", i64, "B", "H", "I", u64, "e", "f", "d"};
    return table[static_cast<int>(p)];
}

int view_getbuffer(PyObject* self, Py_buffer* out, int flags) {
    const ViewObject& v = *as_view(self);
    Window& w = *v.window;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "this memory is strided");
        return -1;
    }
    out->obj = Py_NewRef(self);
    out->buf = v.copy ? v.copy : w.data;
    out->itemsize = type::bytes(w.prim);
    out->len = static_cast<Py_ssize_t>(w.count()) * out->itemsize;
    out->readonly = 0;
    out->ndim = static_cast<int>(w.shape.size());
    out->format = flags & PyBUF_FORMAT ? const_cast<char*>(format_of(w.prim)) : nullptr;
    out->shape = w.shape.data();
    out->strides = w.strides.data();
    out->suboffsets = nullptr;
    out->internal = nullptr;
    return 0;
}

void view_dealloc(PyObject* self) {
    ViewObject& v = *as_view(self);
    if (v.window) drop(v.window->storage);
    delete v.window;
    std::free(v.copy);
    Py_TYPE(self)->tp_free(self);
}

PyBufferProcs view_buffer = {entry<view_getbuffer>, nullptr};

PyTypeObject View_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.StorageView",
    .tp_basicsize = sizeof(ViewObject),
    .tp_dealloc = entry<view_dealloc>,
    .tp_as_buffer = &view_buffer,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A window into the memory of a field or ndarray.",
};

}  // namespace

size_t Window::count() const {
    size_t n = 1;
    for (const Py_ssize_t extent : shape) n *= static_cast<size_t>(extent);
    return n;
}

size_t Window::span() const {
    if (!count()) return 0;
    Py_ssize_t last = 0;
    for (size_t k = 0; k < shape.size(); ++k) last += (shape[k] - 1) * strides[k];
    return static_cast<size_t>(last + type::bytes(prim));
}

bool Window::is_compact() const {
    return span() == count() * static_cast<size_t>(type::bytes(prim));
}

PyObject* make_view(const Window& w) {
    auto window = std::make_unique<Window>(w);
    char* copy = nullptr;
    if (!w.storage->on_host && !(copy = static_cast<char*>(std::malloc(w.span() + 1))))
        return PyErr_NoMemory();
    auto* v = PyObject_New(ViewObject, &View_Type);
    if (!v) return std::free(copy), nullptr;
    v->window = window.release();
    v->copy = copy;
    hold(w.storage);
    return reinterpret_cast<PyObject*>(v);
}

namespace {

bool is_number(PyObject* array) {
    const Ref ndim = Ref::steal_or_null(PyObject_GetAttrString(array, "ndim"));
    if (!ndim) cpython::forget_error();
    return ndim && PyLong_AsLong(ndim.get()) == 0;
}

// Converted by NumPy.
bool write_first(PyObject* array, PyObject* number) {
    const Ref flat = Ref::steal_or_null(PyObject_GetAttrString(array, "flat"));
    const Ref zero = Ref::steal_or_null(PyLong_FromLong(0));
    return flat && zero && PyObject_SetItem(flat.get(), zero.get(), number) == 0;
}

bool assign(PyObject* to, PyObject* from, PyObject* shape) {
    if (shape == Py_None) return PyObject_SetItem(to, Py_Ellipsis, from) == 0;
    const Ref shaped = Ref::steal_or_null(PyObject_CallMethod(from, "reshape", "(O)", shape));
    return shaped && PyObject_SetItem(to, Py_Ellipsis, shaped.get()) == 0;
}

[[gnu::cold]] bool copy_far(PyObject* to, PyObject* from, PyObject* shape, const ViewObject& v,
                            bool writes) {
    const Window& w = *v.window;
    const runtime::Device& device = *w.storage->device;
    if (writes && w.count() && w.is_compact() && is_number(from)) {
        if (!write_first(to, from)) return false;
        const auto size = static_cast<size_t>(type::bytes(w.prim));
        uint64_t bits = 0;
        std::memcpy(&bits, v.copy, size);
        const session::Released released;
        device.fill(w.data, bits, size, w.count());
        return true;
    }
    if (!writes || !w.is_compact()) {
        bool done;
        {
            const session::Released released;
            done = device.read(v.copy, w.data, w.span());
        }
        if (!done) return raise_failure(device);
    }
    if (!assign(to, from, shape)) return false;
    if (writes) {
        const session::Released released;
        device.write(w.data, v.copy, w.span());
    }
    return true;
}

}  // namespace

bool copy_elements(PyObject* to, PyObject* from, PyObject* shape, PyObject* view, bool writes) {
    const ViewObject& v = *as_view(view);
    return v.copy ? copy_far(to, from, shape, v, writes) : assign(to, from, shape);
}

bool add_view_type() { return PyType_Ready(&View_Type) == 0; }

}  // namespace qd::data
