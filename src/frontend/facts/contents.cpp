// See contents.h.

#include "frontend/facts/contents.h"

#include <algorithm>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cpython/names.h"
#include "frontend/diag.h"
#include "frontend/facts/annotations.h"
#include "frontend/facts/callables.h"
#include "frontend/source/stack.h"
#include "frontend/values/values.h"

namespace qd::frontend {

bool has_type_named(PyObject* o, const char* name) {
    const std::string_view full = Py_TYPE(o)->tp_name;
    return full == name;
}

bool is_dtype(PyObject* o) { return is_our(Py_TYPE(o), "DataType"); }

// Of a number of NumPy: repr, with the bits of NaNs in it.
static Ref scalar_repr(PyObject* o) {
    Ref shown = Ref::steal(PyObject_Repr(o));
    if (text(shown.get()).find("nan") == std::string::npos) return shown;
    const Ref bytes = Ref::steal(PyObject_CallMethod(o, "tobytes", nullptr));
    return Ref::steal(PyUnicode_FromFormat("%U %R", shown.get(), bytes.get()));
}

// The number or text that an object of a class derived from those stands for; null if it is none.
static Ref number_of(PyObject* o) {
    if (PyLong_Check(o)) return Ref::steal(PyNumber_ToBase(o, 16));
    for (PyTypeObject* base : {&PyFloat_Type, &PyUnicode_Type})
        if (PyObject_TypeCheck(o, base)) return Ref::steal(base->tp_repr(o));
    return {};
}

// A member of an enumeration: its class, its name, the number that it is, and its value, which
// need not be that number. Not as repr shows it, which the user may have written.
static Ref enum_text(PyObject* o) {
    const Ref name = Ref::steal(PyObject_GenericGetAttr(o, names()._name__)),
              value = Ref::steal(PyObject_GenericGetAttr(o, names()._value__)),
              number = number_of(o), all = contents_of(value.get());
    return Ref::steal(PyUnicode_FromFormat("%U.%S is %s of %s", type_id(o).get(), name.get(),
                                           number ? text(number.get()).c_str() : "-",
                                           all ? text(all.get()).c_str() : "an object"));
}

Ref normalised(PyObject* o) {
    if (is_dtype(o)) {  // not by its str, which is Python: what came amid it would be the fact
        const Ref name = Ref::steal(PyObject_GetAttr(o, names().name_));
        return Ref::steal(PyUnicode_FromFormat("dtype %U", name.get()));
    }
    if (is_enum_member(o)) return enum_text(o);
    if (is_numpy_scalar(o))
        return Ref::steal(PyUnicode_FromFormat("%s %U", Py_TYPE(o)->tp_name, scalar_repr(o).get()));
    return Ref::borrow(o);
}

std::string class_id(PyObject* cls) { return module_of_class(cls) + '.' + name_of_class(cls); }

Ref type_id(PyObject* o) {
    PyObject* t = reinterpret_cast<PyObject*>(Py_TYPE(o));
    const PyTypeObject* of = Py_TYPE(o);
    while (of->tp_flags & Py_TPFLAGS_HEAPTYPE && of->tp_base) of = of->tp_base;
    const bool plain = of == Py_TYPE(o) || of == &PyBaseObject_Type;
    return Ref::steal(PyUnicode_FromFormat("%s%s%s", class_id(t).c_str(), plain ? "" : " of ",
                                           plain ? "" : of->tp_name));
}

bool shows_array(PyObject* o) {
    if (is_stack_short()) return true;
    if (has_type_named(o, "numpy.ndarray")) return true;
    if (PyDict_CheckExact(o)) {
        PyObject *key, *value;
        for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);)
            if (shows_array(value)) return true;
        return false;
    }
    if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) return false;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
        if (shows_array(PySequence_Fast_GET_ITEM(o, k))) return true;
    return false;
}

namespace {

bool describe_contents(PyObject* o, std::string& out, size_t most, int depth = 0);

// A NumPy array: its dtype, its shape, its elements, and the order that they have in memory.
bool describe_array(PyObject* o, std::string& out, size_t most, int depth) {
    const Ref size = Ref::steal(PyObject_GetAttrString(o, "size"));
    if (PyLong_AsLong(size.get()) > static_cast<long>(kMostContents / 2)) return false;
    const Ref dtype = Ref::steal(PyObject_GetAttrString(o, "dtype"));
    if (Ref::steal(PyObject_GetAttrString(dtype.get(), "hasobject")).get() == Py_True)
        return false;  // of classes that mean what they like
    for (const char* name : {"dtype", "shape", "strides"})
        out += text(Ref::steal(PyObject_GetAttrString(o, name)).get()) + ' ';
    return describe_contents(Ref::steal(PyObject_CallMethod(o, "tolist", nullptr)).get(), out, most,
                             depth + 1);
}

// Appends constants and containers of them; false for anything else, and for more than `most`.
bool describe_contents(PyObject* o, std::string& out, size_t most, int depth) {
    if (out.size() > most || depth > 16) return false;
    if (is_plain_constant(o) || PyBytes_CheckExact(o) || PyComplex_CheckExact(o)) {
        out += Py_TYPE(o)->tp_name;
        out += ' ' + text(constant_repr(o).get()) + ',';
        return true;
    }
    if (PyRange_Check(o)) {
        out += "range ";
        for (const char* part : {"start", "stop", "step"})
            if (!describe_contents(Ref::steal(PyObject_GetAttrString(o, part)).get(), out, most,
                                   depth + 1))
                return false;
        return true;
    }
    if (o == Py_Ellipsis) return out += "...,", true;
    if (PySlice_Check(o)) {
        const auto& s = *reinterpret_cast<PySliceObject*>(o);
        out += "slice ";
        for (PyObject* part : {s.start, s.stop, s.step})
            if (!describe_contents(part, out, most, depth + 1)) return false;
        return true;
    }
    if (is_numpy_scalar(o)) {
        out += text(type_id(o).get()) + ' ' + text(scalar_repr(o).get()) + ',';
        return true;
    }
    if (is_enum_member(o)) return out += text(enum_text(o).get()) + ',', true;
    if (is_dtype(o)) {
        out += text(type_id(o).get()) + ' ' + text(Ref::steal(PyObject_Repr(o)).get()) + ',';
        return true;
    }
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
        out += PyTuple_CheckExact(o) ? '(' : '[';
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            if (!describe_contents(PySequence_Fast_GET_ITEM(o, k), out, most, depth + 1))
                return false;
        out += ']';
        return true;
    }
    if (PyDict_CheckExact(o)) {
        out += '{';
        PyObject *key, *value;
        for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);)
            if (!describe_contents(key, out, most, depth + 1) ||
                !describe_contents(value, out, most, depth + 1))
                return false;
        out += '}';
        return true;
    }
    if (const Ref number = number_of(o)) {  // of a class of the user
        out += text(type_id(o).get()) + ' ' + text(number.get()) + ',';
        return true;
    }
    if (PyAnySet_CheckExact(o)) {  // in an order of its own in each process
        const Ref list = Ref::steal(PySequence_List(o));
        std::vector<std::string> parts(static_cast<size_t>(PyList_GET_SIZE(list.get())));
        for (size_t k = 0; k < parts.size(); ++k)
            if (!describe_contents(PyList_GET_ITEM(list.get(), static_cast<Py_ssize_t>(k)),
                                   parts[k], most, depth + 1))
                return false;
        std::sort(parts.begin(), parts.end());
        out += '<';
        for (const std::string& p : parts) out += p;
        out += '>';
        return out.size() <= most;
    }
    return has_type_named(o, "numpy.ndarray") && describe_array(o, out, most, depth);
}

}  // namespace

Ref contents_of(PyObject* o, size_t most) {
    std::string out;
    if (!describe_contents(o, out, most)) return {};
    if (out.size() > kMostContents) {
        const XXH128_hash_t h = XXH3_128bits(out.data(), out.size());
        return Ref::steal(PyUnicode_FromFormat("%llu %llu",
                                               static_cast<unsigned long long>(h.low64),
                                               static_cast<unsigned long long>(h.high64)));
    }
    return Ref::steal(PyUnicode_FromStringAndSize(out.data(), static_cast<Py_ssize_t>(out.size())));
}

Ref abridged(std::string_view s) {
    constexpr size_t kMost = 256, kShown = 64;
    std::string out(s.substr(0, s.size() > kMost ? kShown : kMost));
    if (s.size() > kMost) {
        const XXH128_hash_t h = XXH3_128bits(s.data(), s.size());
        for (const uint64_t part : {h.low64, h.high64}) out += "... " + std::to_string(part);
    }
    return Ref::steal(
        PyUnicode_DecodeUTF8(out.data(), static_cast<Py_ssize_t>(out.size()), "replace"));
}

bool have_same_contents(PyObject* a, PyObject* b) {
    try {
        const Ref x = contents_of(a), y = contents_of(b);
        return !x || !y || PyUnicode_Compare(x.get(), y.get()) == 0;
    } catch (const PyError&) {
        forget_error();
        return true;
    }
}

}  // namespace qd::frontend
