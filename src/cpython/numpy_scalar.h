// NumPy's scalars, told by the names of their classes: numpy may not be imported at all.

#pragma once

#include <Python.h>

#include <string_view>

namespace qd::cpython {

enum class NumpyKind : uint8_t { none, boolean, integer, floating };

inline NumpyKind numpy_kind(PyObject* o) {
    std::string_view name = Py_TYPE(o)->tp_name;
    if (!name.starts_with("numpy.")) return NumpyKind::none;
    name.remove_prefix(6);
    if (name.starts_with("int") || name.starts_with("uint") || name == "longlong" ||
        name == "ulonglong")
        return NumpyKind::integer;
    if (name.starts_with("float") || name == "longdouble") return NumpyKind::floating;
    return name == "bool" || name == "bool_" ? NumpyKind::boolean : NumpyKind::none;
}

inline bool is_numpy_scalar(PyObject* o) { return numpy_kind(o) != NumpyKind::none; }

}  // namespace qd::cpython
