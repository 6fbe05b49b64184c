// Parameters of a kernel and the slow way of binding arguments: keywords, and every mistake in a
// call. The common call (all positional, right count) never comes here.

#include <cstring>

#include "frontend/facts/annotations.h"
#include "launcher/kernel.h"

namespace qd::launcher {
namespace {

PyObject* imported(const char* module, const char* name) {
    PyObject* m = PyImport_ImportModule(module);
    if (!m) return nullptr;
    PyObject* found = PyObject_GetAttrString(m, name);
    Py_DECREF(m);
    return found;
}

// Whether an object's class, or a base of it, has this name. By name, because asking for the class
// object would import modules that a launch does not need.
bool is_a(PyTypeObject* type, const char* name) {
    for (Py_ssize_t k = 0; type->tp_mro && k < PyTuple_GET_SIZE(type->tp_mro); ++k)
        if (std::strcmp(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, k))->tp_name,
                        name) == 0)
            return true;
    return false;
}

bool dtype_prim(PyObject* annotation, Prim& out) {
    const ir::Options& options = session().options;
    if (annotation == reinterpret_cast<PyObject*>(&PyLong_Type))
        return out = options.default_ip, true;
    if (annotation == reinterpret_cast<PyObject*>(&PyFloat_Type))
        return out = options.default_fp, true;
    if (annotation == reinterpret_cast<PyObject*>(&PyBool_Type)) return out = Prim::u1, true;
    if (std::strcmp(Py_TYPE(annotation)->tp_name, "DataType") != 0) return false;
    PyObject* id = PyObject_GetAttrString(annotation, "id");
    if (!id) return cpython::forget_error(), false;
    out = static_cast<Prim>(PyLong_AsLong(id));
    Py_DECREF(id);
    return true;
}

Parameter::Kind kind_of(PyObject* annotation, Prim& prim) {
    using Kind = Parameter::Kind;
    if (dtype_prim(annotation, prim)) return type::is_float(prim) ? Kind::real : Kind::integer;
    struct Row {
        const char* cls;
        Kind of_instance, of_class;
    };
    static const Row rows[] = {
        {"NDArray", Kind::array, Kind::array},
        {"Template", Kind::template_, Kind::template_},
        {"BufferViewType", Kind::buffer_view, Kind::other},
        {"BufferView", Kind::other, Kind::buffer_view},
        {"Tensor", Kind::other, Kind::any_tensor},
        {"MatrixType", Kind::tensor, Kind::other},
        {"StructType", Kind::structure, Kind::other},
    };
    const bool is_class = PyType_Check(annotation);
    PyTypeObject* type =
        is_class ? reinterpret_cast<PyTypeObject*>(annotation) : Py_TYPE(annotation);
    if (is_class && cpython::has_attribute(annotation, "__dataclass_fields__"))
        return Kind::dataclass;
    for (const Row& row : rows)
        if (is_a(type, row.cls)) return is_class ? row.of_class : row.of_instance;
    return frontend::is_template(annotation) ? Kind::template_ : Kind::other;  // Template[...]
}

std::string list_names(const std::vector<Parameter>& parameters) {
    std::string out;
    for (const Parameter& p : parameters) {
        PyObject* annotation = PyObject_Str(p.annotation.get());
        const char* text = annotation ? PyUnicode_AsUTF8(annotation) : nullptr;
        if (!text) cpython::forget_error();
        out +=
            (out.empty() ? "" : ", ") + cpython::text(p.name.get()) + " : " + (text ? text : "?");
        Py_XDECREF(annotation);
    }
    return out;
}

}  // namespace

std::string kernel_name(const KernelObject& k) {
    const Ref name = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "__name__"));
    if (!name) cpython::forget_error();
    return name ? cpython::text(name.get()) : "kernel";
}

bool read_parameters(KernelObject& k, std::vector<Parameter>& out) {
    PyObject* params = PyObject_GetAttrString(k.definition, "params");
    if (!params) return false;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(params); ++n) {
        PyObject* row = PyTuple_GET_ITEM(params, n);  // (name, annotation, default)
        Parameter p{};
        p.name = Ref::borrow(PyTuple_GET_ITEM(row, 0));
        PyObject* annotation = PyTuple_GET_ITEM(row, 1);
        PyObject* wanted = frontend::strip_optional(annotation);  // of a union of types, too
        p.optional = wanted != annotation;
        annotation = wanted;
        p.annotation = Ref::borrow(annotation);
        p.kind = kind_of(annotation, p.prim);
        out.push_back(std::move(p));
    }
    Py_DECREF(params);
    PyObject* describe = imported("quadrants.lang._signature", "signature_text");
    PyObject* text =
        describe ? PyObject_CallFunctionObjArgs(describe, k.definition, nullptr) : nullptr;
    const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
    if (utf8) *k.signature = utf8;
    Py_XDECREF(describe);
    Py_XDECREF(text);
    return !PyErr_Occurred();
}

// Kernels of the CPU run in the order of their calls, whatever stream they name. `out` is its
// handle.
bool accepts_stream(KernelObject& k, PyObject* stream, uint64_t& out) {
    if (stream == Py_None) return true;
    if (k.derivative) {
        PyErr_SetString(PyExc_RuntimeError,
                        "qd_stream is not compatible with autodiff kernels: leave it out of a "
                        "gradient's launch.");
        return false;
    }
    const Ref handle = Ref::steal_or_null(PyObject_GetAttrString(stream, "handle"));
    if (!handle) return false;
    out = PyLong_AsUnsignedLongLong(handle.get());
    if (PyErr_Occurred()) return false;
    const Ref graph = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "graph"));
    if (!graph || graph.get() == Py_True) {
        if (graph)
            PyErr_SetString(PyExc_RuntimeError,
                            "qd_stream is not compatible with graph=True kernels: the tasks of a "
                            "graph are launched together. Leave out qd_stream or graph=True.");
        return false;
    }
    return true;
}

bool bind_arguments(KernelObject& k, PyObject* const* args, Py_ssize_t count, PyObject* names,
                    std::vector<PyObject*>& bound, uint64_t& stream) {
    const std::vector<Parameter>& parameters = *k.parameters;
    bound.assign(parameters.size(), nullptr);
    std::vector<std::string> errors;
    if (count > static_cast<Py_ssize_t>(parameters.size())) {
        std::string got;
        for (Py_ssize_t n = 0; n < count; ++n) {
            const Ref text = Ref::steal_or_null(PyObject_Repr(args[n]));
            if (!text) cpython::forget_error();
            got += (n ? ", " : "") + (text ? cpython::text(text.get()) : "?");
        }
        errors.push_back("Too many arguments. Expected (" + list_names(parameters) + "), got (" +
                         got + ").");
    }
    for (Py_ssize_t n = 0; n < count && n < static_cast<Py_ssize_t>(parameters.size()); ++n)
        bound[static_cast<size_t>(n)] = args[n];
    const Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
    for (Py_ssize_t n = 0; n < keywords; ++n) {
        PyObject* name = PyTuple_GET_ITEM(names, n);
        if (PyUnicode_CompareWithASCIIString(name, "qd_stream") == 0) {
            if (!accepts_stream(k, args[count + n], stream)) return false;
            continue;
        }
        bool found = false;
        for (size_t p = 0; p < parameters.size() && !found; ++p) {
            if (PyUnicode_Compare(name, parameters[p].name.get()) != 0) continue;
            found = true;
            if (bound[p])
                errors.push_back("Multiple values for argument '" + cpython::text(name) + "'.");
            else
                bound[p] = args[count + n];
        }
        if (!found) errors.push_back("Unexpected argument '" + cpython::text(name) + "'.");
    }
    for (size_t p = 0; p < parameters.size(); ++p)
        if (!bound[p])
            errors.push_back("Missing argument '" + cpython::text(parameters[p].name.get()) + "'.");
    if (errors.empty()) return true;
    std::string text = errors.size() == 1 ? errors[0] : "Primary exception: " + errors[0];
    for (size_t e = 1; e < errors.size(); ++e) text += "\n" + errors[e];
    text += "\n  in a call of " + kernel_name(k) + "(" + list_names(parameters) + ")";
    set_error("QuadrantsSyntaxError", text);
    return false;
}

}  // namespace qd::launcher
