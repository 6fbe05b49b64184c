// NumPy arrays that kernels can't use in place.
#include "launcher/array_copies.h"

#include <vector>

#include "cpython/names.h"
#include "data/external.h"
#include "data/objects.h"
#include "frontend/facts/annotations.h"

namespace qd::launcher {
namespace {

bool needs_copy(PyObject* o, ExternalArray& a) {
    return is_numpy(o) && read_external(o, a) && a.dense && !a.c_contiguous;
}

// Whether both are views of the same elements.
bool is_same_view(PyObject* a, PyObject* b) {
    if (a == b) return true;
    const Ref x = Ref::steal_or_null(PyObject_GetAttrString(a, "__array_interface__")),
              y = Ref::steal_or_null(PyObject_GetAttrString(b, "__array_interface__"));
    const int same = x && y ? PyObject_RichCompareBool(x.get(), y.get(), Py_EQ) : -1;
    if (same < 0) cpython::forget_error();
    return same == 1;
}

// Arrays that a launch sees as C-ordered copies, each once.
struct ArrayCopy {
    Ref original, copy;
    bool is_read_only;
};
using ArrayCopies = std::vector<ArrayCopy>;

// The copy of an array that needs one; null without an error: it needs none. A copy of what is
// read-only is so, too.
Ref c_ordered(PyObject* array, ArrayCopies& copies) {
    ExternalArray a;
    if (!needs_copy(array, a)) return {};
    const bool read_only = a.read_only;
    for (const ArrayCopy& c : copies)
        if (is_same_view(c.original.get(), array)) return c.copy;
    Ref copy = Ref::steal_or_null(PyObject_CallMethod(array, "copy", "s", "C"));
    if (copy && read_only &&
        !Ref::steal_or_null(PyObject_CallMethod(copy.get(), "setflags", "O", Py_False)))
        return {};
    if (copy) copies.push_back({Ref::borrow(array), copy, read_only});
    return copy;
}

// The same for a dataclass, whose arrays may be members of members.
Ref with_c_ordered(PyObject* o, ArrayCopies& copies) {
    PyObject* fields = _PyType_Lookup(Py_TYPE(o), cpython::names().__dataclass_fields___);
    if (!fields || !PyDict_Check(fields)) return c_ordered(o, copies);
    Ref made;
    PyObject *name, *field;
    for (Py_ssize_t at = 0; PyDict_Next(fields, &at, &name, &field);) {
        const Ref type = Ref::steal_or_null(PyObject_GetAttr(field, cpython::names().type_));
        const Ref member = Ref::steal_or_null(PyObject_GetAttr(o, name));
        if (!type || !member) {  // never set: whether it is read is for the kernel to say
            cpython::forget_error();
            continue;
        }
        const bool nested =
            PyType_Check(type.get()) && cpython::has_attribute(type.get(), "__dataclass_fields__");
        const Ref changed =
            nested ? with_c_ordered(member.get(), copies) : c_ordered(member.get(), copies);
        if (PyErr_Occurred()) return {};
        if (!changed) continue;
        if (!made) {
            const Ref module = Ref::steal_or_null(PyImport_ImportModule("copy"));
            if (module)
                made = Ref::steal_or_null(PyObject_CallMethod(module.get(), "copy", "O", o));
        }
        if (!made || PyObject_GenericSetAttr(made.get(), name, changed.get()) < 0) return {};
    }
    return made;
}

}  // namespace

bool needs_copy(PyObject* o) {
    ExternalArray a;
    return needs_copy(o, a);
}

PyObject* launch_with_copies(KernelObject& k, PyObject* const* args, size_t count) {
    std::vector<PyObject*> replaced(args, args + count);
    std::vector<Ref> kept;
    ArrayCopies copies;
    for (size_t n = 0; n < count; ++n) {
        const bool is_dataclass = (*k.parameters)[n].kind == Parameter::Kind::dataclass;
        Ref changed = is_dataclass ? with_c_ordered(args[n], copies) : c_ordered(args[n], copies);
        if (PyErr_Occurred()) return nullptr;
        if (!changed) continue;
        replaced[n] = changed.get();
        kept.push_back(std::move(changed));
    }
    if (copies.empty()) return nullptr;
    PyObject* r = k.vectorcall(reinterpret_cast<PyObject*>(&k), replaced.data(), count, nullptr);
    for (const ArrayCopy& c : copies)
        if (r && !c.is_read_only &&
            PyObject_SetItem(c.original.get(), Py_Ellipsis, c.copy.get()) < 0)
            Py_CLEAR(r);
    return r;
}

}  // namespace qd::launcher
