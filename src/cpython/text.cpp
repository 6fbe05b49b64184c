// Texts of objects.

#include "cpython/cpython.h"
#include "cpython/names.h"

namespace qd::cpython {

std::string text(PyObject* o) {
    // A str is its own; to ask for it would run the signal handlers that are due.
    const Ref s =
        o && PyUnicode_CheckExact(o) ? Ref::borrow(o) : Ref::steal_or_null(PyObject_Str(o));
    const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
    if (!c) forget_error();
    return c ? c : "<?>";
}

std::string_view module_of(PyObject* frame) {
    const Ref globals = Ref::steal_or_null(PyObject_GetAttrString(frame, "f_globals"));
    PyObject* name = globals && PyDict_Check(globals.get())
                         ? PyDict_GetItemString(globals.get(), "__name__")
                         : nullptr;
    const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
    forget_error();
    return text ? text : "";
}

bool is_own_module(std::string_view name) {
    return name == "quadrants" || name.starts_with("quadrants.");
}

std::string integer_text(PyObject* o) {
    constexpr long kMostBits = 256;
    const Ref bits = Ref::steal_or_null(PyObject_CallMethod(o, "bit_length", nullptr));
    const long count = bits ? PyLong_AsLong(bits.get()) : 0;
    forget_error();
    return count <= kMostBits ? text(o) : "of " + std::to_string(count) + " bits";
}

namespace {

// By `type` itself: a metaclass may answer otherwise, or run code of the user.
std::string text_of_class(PyObject* cls, PyObject* name) {
    PyObject* member = _PyType_Lookup(&PyType_Type, name);
    const descrgetfunc get = Py_TYPE(member)->tp_descr_get;
    const Ref found =
        Ref::steal_or_null(get(member, cls, reinterpret_cast<PyObject*>(Py_TYPE(cls))));
    if (!found) forget_error();
    return found && PyUnicode_CheckExact(found.get()) ? text(found.get()) : "";
}

}  // namespace

std::string module_of_class(PyObject* cls) { return text_of_class(cls, names().__module___); }
std::string name_of_class(PyObject* cls) { return text_of_class(cls, names().__qualname___); }

std::string type_name(PyObject* o) { return text(reinterpret_cast<PyObject*>(Py_TYPE(o))); }

}  // namespace qd::cpython
