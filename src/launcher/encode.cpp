// See encode.h. Plain constants go through marshal; dtypes and enum members by name.

#include "launcher/encode.h"

namespace qd::launcher {
namespace {

using cpython::Ref;

enum Tag : uint8_t { kNull, kMarshal, kNamed };

// An object that its module and qualified name find again: dtypes (by their own name in
// quadrants.types.primitive_types) and enum members (Class.member).
bool name_of(PyObject* o, std::string& module, std::string& name) {
    if (std::strcmp(Py_TYPE(o)->tp_name, "DataType") == 0) {
        const Ref own = Ref::steal_or_null(PyObject_GetAttrString(o, "name"));
        if (!own) return cpython::forget_error(), false;
        module = "quadrants.types.primitive_types";
        name = PyUnicode_AsUTF8(own.get());
        return true;
    }
    PyObject* cls = reinterpret_cast<PyObject*>(Py_TYPE(o));
    const Ref member = Ref::steal_or_null(PyObject_GetAttrString(o, "_name_"));
    if (!member || !PyUnicode_Check(member.get())) return cpython::forget_error(), false;
    module = cpython::module_of_class(cls);
    name = cpython::name_of_class(cls) + "." + PyUnicode_AsUTF8(member.get());
    return name.find('<') == std::string::npos;  // not defined inside a function
}

}  // namespace

void Writer::object(PyObject* o) {
    if (!o) return number(uint8_t(kNull));
    std::string module, name;
    if (name_of(o, module, name)) {
        number(uint8_t(kNamed));
        text(module);
        text(name);
        // An enum's value is part of the fact: renumbering the enumeration is a change.
        const Ref value = Ref::steal_or_null(PyObject_GetAttrString(o, "_value_"));
        if (!value) cpython::forget_error();
        return object(value.get());
    }
    const Ref data = Ref::steal_or_null(PyMarshal_WriteObjectToString(o, Py_MARSHAL_VERSION));
    if (!data) {
        cpython::forget_error();
        failed = true;
        return;
    }
    number(uint8_t(kMarshal));
    text({PyBytes_AS_STRING(data.get()), static_cast<size_t>(PyBytes_GET_SIZE(data.get()))});
}

Ref Reader::object() {
    const auto tag = number<uint8_t>();
    if (tag == kNull) return {};
    if (tag == kMarshal) {
        const std::vector<uint8_t> data = bytes();
        return Ref::steal(PyMarshal_ReadObjectFromString(reinterpret_cast<const char*>(data.data()),
                                                         static_cast<Py_ssize_t>(data.size())));
    }
    const std::string module = text(), name = text();
    const Ref value = object();
    // Only modules that the program has imported itself: reading a cache file runs no code.
    PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module.c_str());
    if (!found) throw support::Error("recipe: names an object of a module that is not imported");
    Ref at = Ref::borrow(found);
    for (size_t begin = 0; begin < name.size();) {
        const size_t dot = std::min(name.find('.', begin), name.size());
        at = Ref::steal(PyObject_GetAttrString(at.get(), name.substr(begin, dot - begin).c_str()));
        begin = dot + 1;
    }
    if (value) {
        const Ref now = Ref::steal(PyObject_GetAttrString(at.get(), "_value_"));
        if (PyObject_RichCompareBool(now.get(), value.get(), Py_EQ) != 1)
            throw support::Error("recipe: an enumeration has changed");
    }
    return at;
}

}  // namespace qd::launcher
