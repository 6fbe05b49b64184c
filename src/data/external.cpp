// See external.h. NumPy's array struct has had one layout since 1.7 (numpy C API, "Array
// structures"), so its fields are read directly once the exact type is known; dtype numbers are
// those of numpy/ndarraytypes.h. Torch is asked through Python.

#include "data/external.h"

#include <algorithm>
#include <cstdint>

#include "cpython/cpython.h"
#include "cpython/names.h"

namespace qd::data {
namespace {

using type::Prim;

// What NumPy and torch print for their dtypes: "float32", "torch.float32".
bool prim_of_long_name(std::string_view s, Prim& out) {
    if (s.starts_with("torch.")) s.remove_prefix(6);
    if (s == "bool") {
        out = Prim::u1;
        return true;
    }
    if (s == "uint1") return false;  // torch packs those
    std::string name;
    if (s.starts_with("uint"))
        name = "u" + std::string(s.substr(4));
    else if (s.starts_with("int"))
        name = "i" + std::string(s.substr(3));
    else if (s.starts_with("float"))
        name = "f" + std::string(s.substr(5));
    return !name.empty() && type::parse_prim(name, out);
}

struct NumpyDescr {  // PyArray_Descr's stable head
    PyObject_HEAD
    PyTypeObject* typeobj;
    char kind, type, byteorder, former_flags;
    int type_num;
};
struct NumpyArray {  // PyArrayObject_fields
    PyObject_HEAD
    char* data;
    int nd;
    Py_ssize_t* dimensions;
    Py_ssize_t* strides;
    PyObject* base;
    NumpyDescr* descr;
    int flags;
};
constexpr int kCContiguous = 1, kFContiguous = 2, kOwnData = 4, kAligned = 0x100,
              kWriteable = 0x400;

// NPY_BOOL, BYTE, UBYTE, SHORT, USHORT, INT, UINT, LONG, ULONG, LONGLONG, ULONGLONG, FLOAT, DOUBLE;
// HALF is 23.
Prim prim_of_numpy(const NumpyDescr& d) {
    if (d.byteorder == '>') return Prim::none;
    static const Prim table[] = {Prim::u1,  Prim::i8,  Prim::u8,  Prim::i16, Prim::u16,
                                 Prim::i32, Prim::u32, Prim::i64, Prim::u64, Prim::i64,
                                 Prim::u64, Prim::f32, Prim::f64};
    if (d.type_num >= 0 && d.type_num < 13) return table[d.type_num];
    return d.type_num == 23 ? Prim::f16 : Prim::none;
}

PyTypeObject* imported_type(const char* module, const char* name, PyTypeObject*& kept) {
    if (kept) return kept;
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* m = modules ? PyDict_GetItemString(modules, module) : nullptr;
    if (!m) return nullptr;
    PyObject* t = PyObject_GetAttrString(m, name);
    if (!t || !PyType_Check(t)) {
        cpython::forget_error();
        Py_XDECREF(t);
        return nullptr;
    }
    return kept = reinterpret_cast<PyTypeObject*>(t);  // kept for the life of the process
}

PyTypeObject* numpy_type() {
    static PyTypeObject* kept;
    return imported_type("numpy", "ndarray", kept);
}
PyTypeObject* torch_type() {
    static PyTypeObject* kept;
    return imported_type("torch", "Tensor", kept);
}

bool read_numpy(PyObject* o, ExternalArray& out) {
    const auto& a = *reinterpret_cast<NumpyArray*>(o);
    out.data = a.data;
    out.ndim = a.nd;
    out.prim = a.nd <= kMostAxes ? prim_of_numpy(*a.descr) : Prim::none;
    if (out.prim != Prim::none) std::copy_n(a.dimensions, a.nd, out.shape);
    out.c_contiguous = (a.flags & (kCContiguous | kAligned)) == (kCContiguous | kAligned);
    out.dense = a.flags & (kCContiguous | kFContiguous);
    out.read_only = !(a.flags & kWriteable);
    return true;
}

bool address_of(PyObject* tensor, char*& out) {
    PyObject* v = PyObject_CallMethodNoArgs(tensor, cpython::names().data_ptr_);
    if (!v) return false;
    out = static_cast<char*>(PyLong_AsVoidPtr(v));
    Py_DECREF(v);
    return out || !PyErr_Occurred();
}

// What a method without arguments, or an attribute, says; false with an exception set.
bool answer(PyObject* v, bool& out) {
    out = v == Py_True;
    Py_XDECREF(v);
    return v != nullptr;
}

Prim prim_of_torch(PyObject* o) {
    const cpython::Ref dtype =
        cpython::Ref::steal_or_null(PyObject_GetAttr(o, cpython::names().dtype_));
    if (!dtype) return cpython::forget_error(), Prim::none;
    return prim_of_array_dtype(dtype.get());
}

bool read_tensor(PyObject* o, ExternalArray& out) {
    const cpython::Names& names = cpython::names();
    out.is_torch = true;
    bool negated = false, on_cpu = false;  // a negative view: its memory has the other sign
    if (!address_of(o, out.data)) return false;
    if (!answer(PyObject_CallMethodNoArgs(o, names.is_contiguous_), out.c_contiguous) ||
        !answer(PyObject_CallMethodNoArgs(o, names.is_neg_), negated) ||
        !answer(PyObject_GetAttr(o, names.is_cpu_), on_cpu))
        return false;
    out.on_device = !on_cpu;
    PyObject* shape = PyObject_GetAttr(o, names.shape_);
    if (!shape) return false;
    const Py_ssize_t n = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
    out.ndim = static_cast<int>(n);
    bool empty = false;
    for (Py_ssize_t k = 0; k < n && k < kMostAxes; ++k) {
        out.shape[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, k));
        empty |= out.shape[k] == 0;
    }
    Py_DECREF(shape);
    const bool usable = !negated && (out.data || empty) && n <= kMostAxes;
    out.prim = usable ? prim_of_torch(o) : Prim::none;
    return !PyErr_Occurred();
}

// A tensor that requires a gradient has one while a kernel runs. Python code makes a missing one
// and words the errors.
bool read_gradient(PyObject* o, ExternalArray& out) {
    PyObject* wanted = PyObject_GetAttr(o, cpython::names().requires_grad_);
    Py_XDECREF(wanted);
    if (wanted != Py_True) return wanted != nullptr;
    static PyObject* find;
    if (!find) {
        PyObject* module = PyImport_ImportModule("quadrants.lang._data.arguments");
        find = module ? PyObject_GetAttrString(module, "torch_gradient") : nullptr;
        Py_XDECREF(module);
        if (!find) return false;
    }
    PyObject* grad = PyObject_CallOneArg(find, o);
    if (!grad) return false;
    out.has_grad = true;
    const bool ok = address_of(grad, out.grad);
    Py_DECREF(grad);  // the tensor holds it
    return ok;
}

// What torch refuses to tell about tensors without memory of their own: they fit nothing, and
// check_array says why.
bool is_unusual() {
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return false;
    cpython::forget_error();
    return true;
}

bool read_torch(PyObject* o, ExternalArray& out) {
    if (!read_tensor(o, out)) {
        out.prim = Prim::none;
        return is_unusual();
    }
    return read_gradient(o, out);
}

// "<f4": order of bytes, kind, bytes of a number.
Prim prim_of_typestr(std::string_view s) {
    if (s.size() != 3 || s[0] == '>' || s[2] < '1' || s[2] > '8') return Prim::none;
    if (s[1] == 'b') return s[2] == '1' ? Prim::u1 : Prim::none;
    Prim p;
    const std::string name = s[1] + std::to_string(8 * (s[2] - '0'));
    const bool number = s[1] == 'f' || s[1] == 'i' || s[1] == 'u';
    return number && type::parse_prim(name, p) ? p : Prim::none;
}

// A tuple's integers; how many there are.
int integers_of(PyObject* tuple, int64_t* out) {
    const Py_ssize_t n = tuple && PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 0;
    for (Py_ssize_t k = 0; k < n && k < kMostAxes; ++k)
        out[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, k));
    return static_cast<int>(n);
}

// Version 3 of the interface (numba.readthedocs.io, "CUDA Array Interface").
bool read_interface(PyObject* o, ExternalArray& out) {
    const cpython::Ref said = cpython::Ref::steal_or_null(
        PyObject_GetAttr(o, cpython::names().__cuda_array_interface___));
    if (!said) {  // of JAX on a CPU, say: it fits nothing, and check_array says why
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
        cpython::forget_error();
        return true;
    }
    const auto member = [&](const char* name) {
        PyObject* v = PyDict_Check(said.get()) ? PyDict_GetItemString(said.get(), name) : nullptr;
        return v == Py_None ? nullptr : v;
    };
    PyObject* data = member("data");
    PyObject* typestr = member("typestr");
    if (!data || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2 || !typestr ||
        !PyUnicode_Check(typestr))
        return true;  // of no dtype
    out.on_device = true;
    out.data = static_cast<char*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0)));
    out.read_only = PyTuple_GET_ITEM(data, 1) == Py_True;
    out.ndim = integers_of(member("shape"), out.shape);
    const bool usable = out.ndim <= kMostAxes && !member("mask");
    out.prim = usable ? prim_of_typestr(cpython::text(typestr)) : Prim::none;
    int64_t strides[kMostAxes];
    int64_t dense = out.prim == Prim::none ? 0 : type::bytes(out.prim);
    out.c_contiguous = true;
    if (PyObject* given = member("strides"); given && integers_of(given, strides) == out.ndim)
        for (int k = std::min(out.ndim, kMostAxes) - 1; k >= 0; dense *= out.shape[k--])
            out.c_contiguous &= out.shape[k] < 2 || strides[k] == dense;
    constexpr uint64_t kDefault = 1;
    if (PyObject* stream = member("stream"); stream && PyLong_Check(stream))
        if (const uint64_t s = PyLong_AsUnsignedLongLong(stream); s != kDefault) out.stream = s;
    return !PyErr_Occurred();
}

}  // namespace

// Dtypes are immutable: those met are kept, for NumPy makes the name of one in Python.
Prim prim_of_array_dtype(PyObject* dtype) {
    struct Known {
        PyObject* dtype;  // owned
        Prim prim;
    };
    static Known known[16];
    static size_t count = 0;
    for (size_t n = 0; n < count; ++n)
        if (known[n].dtype == dtype) return known[n].prim;
    Prim p;
    if (!prim_of_long_name(cpython::text(dtype), p)) return Prim::none;
    if (count < std::size(known)) known[count++] = {Py_NewRef(dtype), p};
    return p;
}

bool is_numpy(PyObject* o) {
    PyTypeObject* t = numpy_type();
    return t && (Py_IS_TYPE(o, t) || PyObject_TypeCheck(o, t));
}

bool is_torch(PyObject* o) {
    PyTypeObject* t = torch_type();
    return t && PyObject_TypeCheck(o, t);
}

bool has_interface(PyObject* o) {
    return _PyType_Lookup(Py_TYPE(o), cpython::names().__cuda_array_interface___) && !is_torch(o);
}

bool is_external(PyObject* o) { return is_numpy(o) || is_torch(o) || has_interface(o); }

// Memory that NumPy allocated, or Python for bytes, is this process's own; any other owner, a
// tensor too, may have mapped it with others.
bool may_be_shared(PyObject* o) {
    while (o && is_numpy(o)) {
        const auto& a = *reinterpret_cast<NumpyArray*>(o);
        if (a.flags & kOwnData) return false;
        o = a.base;
    }
    return !o || !(PyBytes_Check(o) || PyByteArray_Check(o));
}

bool read_external(PyObject* o, ExternalArray& out) {
    if (is_numpy(o)) return read_numpy(o, out);
    return has_interface(o) ? read_interface(o, out) : read_torch(o, out);
}

}  // namespace qd::data
