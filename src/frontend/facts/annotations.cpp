// What annotations and array objects mean, read from their Python attributes.

#include <cstring>

#include "cpython/names.h"
#include "data/external.h"
#include "frontend/facts/annotations.h"
#include "frontend/facts/callables.h"
#include "frontend/specialise.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

bool named(PyTypeObject* t, const char* name) {
    const char* dot = std::strrchr(t->tp_name, '.');
    return !std::strcmp(dot ? dot + 1 : t->tp_name, name);
}
Ref get(PyObject* o, PyObject* name) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (!v) forget_error();
    return v;
}
bool derives(PyTypeObject* t, const char* name) {
    for (; t; t = t->tp_base)
        if (is_our(t, name)) return true;
    return false;
}
bool matches_prim(ir::Prim want, ir::Prim got) { return want == ir::Prim::none || want == got; }
int integer(PyObject* o, PyObject* name, int otherwise) {
    Ref v = get(o, name);
    return v && PyLong_Check(v.get()) ? static_cast<int>(PyLong_AsLong(v.get())) : otherwise;
}

}  // namespace

bool is_external_array(PyObject* o) {
    for (PyTypeObject* t = Py_TYPE(o); t; t = t->tp_base) {  // subclasses of both are arrays too
        if (!std::strcmp(t->tp_name, "numpy.ndarray")) return true;
        if (!named(t, "Tensor") && !named(t, "TensorBase")) continue;
        if (module_of_class(reinterpret_cast<PyObject*>(t)).starts_with("torch")) return true;
    }
    return data::has_interface(o);
}

bool array_info(PyObject* o, ArrayInfo& out) {
    o = unwrap(o);
    if (is_ndarray(o)) {
        auto* a = reinterpret_cast<NdarrayObject*>(o);
        out.elem = a->elem;
        out.ndim = a->ndim;
        out.access.layout = a->layout;
        out.has_grad = a->grad != nullptr && a->grad != Py_None;
        return true;
    }
    if (!is_external_array(o)) return false;
    Ref dtype = Ref::steal(PyObject_GetAttr(o, names().dtype_));
    const ir::Prim p = prim_of_array_dtype(dtype.get());
    if (p == ir::Prim::none)
        raise(Kind::type, "array of dtype " + text(dtype.get()) + " is not supported");
    Ref shape = Ref::steal(PyObject_GetAttr(o, names().shape_));
    out.elem = ir::Type::scalar(p);
    out.ndim = static_cast<int>(PyObject_Size(shape.get()));
    if (out.ndim > kMostAxes)
        raise(Kind::value, "an array with " + std::to_string(out.ndim) +
                               " dimensions is provided; at most 12 are supported");
    out.access = {};
    if (Ref grad = get(o, names().requires_grad_)) out.has_grad = grad.get() == Py_True;  // torch
    return true;
}

std::optional<ir::Prim> prim_of(PyObject* a) {
    if (a == reinterpret_cast<PyObject*>(&PyLong_Type))
        return current() ? current()->kernel->options.default_ip : ir::Prim::i32;
    if (a == reinterpret_cast<PyObject*>(&PyFloat_Type))
        return current() ? current()->kernel->options.default_fp : ir::Prim::f32;
    if (a == reinterpret_cast<PyObject*>(&PyBool_Type)) return ir::Prim::u1;
    if (!is_our(Py_TYPE(a), "DataType")) return std::nullopt;
    const int id = integer(a, names().id_, -1);
    if (id < 0 || id >= static_cast<int>(ir::Prim::none)) return std::nullopt;
    return static_cast<ir::Prim>(id);
}

std::optional<ir::Type> tensor_type_of(PyObject* a) {
    if (!derives(Py_TYPE(a), "MatrixType")) return std::nullopt;
    Ref dtype = get(a, names().dtype_);
    std::optional<ir::Prim> p = dtype ? prim_of(dtype.get()) : std::nullopt;
    const int rank = integer(a, names().ndim_, 1), n = integer(a, names().n_, 0),
              m = integer(a, names().m_, rank == 1);
    if (!p) p = ir::Prim::none;
    return rank == 1 ? ir::Type::vector(*p, n) : ir::Type::matrix(*p, n, m);
}

void need_sizes(const ir::Type& t, const std::string& what) {
    if (t.n > 0 && t.m > 0) return;
    raise(Kind::compilation, what + " has open sizes",
          t.rank == 1 ? "give n: qd.types.vector(n, dtype)"
                      : "give n and m: qd.types.matrix(n, m, dtype)");
}

bool is_template(PyObject* a) {
    if (PyType_Check(a)) return is_our(reinterpret_cast<PyTypeObject*>(a), "Template");
    if (derives(Py_TYPE(a), "Template")) return true;
    Ref origin = get(a, names().__origin___);
    return origin && PyType_Check(origin.get()) &&
           is_our(reinterpret_cast<PyTypeObject*>(origin.get()), "Template");
}

bool is_ndarray_annotation(PyObject* a) {
    return PyType_Check(a) ? is_our(reinterpret_cast<PyTypeObject*>(a), "NDArray")
                           : derives(Py_TYPE(a), "NDArray");
}

bool is_tensor_annotation(PyObject* a) {
    if (!PyType_Check(a)) return false;
    auto* t = reinterpret_cast<PyTypeObject*>(a);
    return is_our(t, "Tensor") || is_our(t, "VectorTensor") || is_our(t, "MatrixTensor");
}

bool is_dataclass(PyObject* a) { return PyType_Check(a) && get(a, names().__dataclass_fields___); }

// Whether it is a member of the instances, no ClassVar or InitVar.
bool is_instance_field(PyObject* field) {
    const Ref kind = get(field, interned("_field_type").get());
    return kind && text(kind.get()) == "_FIELD";
}

bool is_buffer_view_annotation(PyObject* a) {
    return PyType_Check(a) ? is_our(reinterpret_cast<PyTypeObject*>(a), "BufferView")
                           : is_our(Py_TYPE(a), "BufferViewType");
}
bool is_struct_type(PyObject* a) { return derives(Py_TYPE(a), "StructType"); }

bool is_empty(PyObject* a) {
    return PyType_Check(a) && (named(reinterpret_cast<PyTypeObject*>(a), "empty") ||
                               named(reinterpret_cast<PyTypeObject*>(a), "_empty"));
}

PyObject* strip_optional(PyObject* a) {
    if (named(Py_TYPE(a), "OptionalAnnotation")) {
        Ref inner = get(a, names().inner_);
        return inner.get();  // the annotation keeps it
    }
    if (named(Py_TYPE(a), "UnionType") || named(Py_TYPE(a), "_UnionGenericAlias")) {
        Ref args = get(a, names().__args___);
        for (Py_ssize_t k = 0;
             args && PyTuple_Check(args.get()) && k < PyTuple_GET_SIZE(args.get()); ++k)
            if (PyTuple_GET_ITEM(args.get(), k) != reinterpret_cast<PyObject*>(Py_TYPE(Py_None)))
                return PyTuple_GET_ITEM(args.get(), k);
    }
    return a;
}

// Applies an annotation to an array's own type: checks, and gathers trailing axes into the element.
void bind_array_type(PyObject* annotation, PyObject* array, const std::string& name, ArrayInfo& a) {
    if (!is_ndarray_annotation(annotation) || PyType_Check(annotation)) return;
    const bool external = is_external_array(unwrap(array));
    Ref dtype = get(annotation, names().dtype_), ndim = get(annotation, names().ndim_),
        boundary = get(annotation, names().boundary_);
    Ref mode = Ref::steal_or_null(PyObject_GetAttr(boundary.get(), names().name_));
    forget_error();
    a.access.clamp = mode && text(mode.get()) == "CLAMP";
    const int want_ndim =
        PyLong_Check(ndim.get()) ? static_cast<int>(PyLong_AsLong(ndim.get())) : -1;
    const std::string head = "Invalid value for argument " + name + " - required ";
    const auto tensor = tensor_type_of(dtype.get());
    a.splits = tensor.has_value();
    if (!external) return;  // checked by NDArray.check_matched at binding
    const Ref wants_grad = get(annotation, names().needs_grad_);
    a.only_foreign = wants_grad && wants_grad.get() == Py_True && !a.has_grad;
    const auto prim = prim_of(dtype.get());
    Ref shape = get(array, names().shape_);
    if (tensor) {
        const int rank = tensor->rank;
        if (a.ndim < rank || (want_ndim >= 0 && a.ndim != want_ndim + rank))
            raise(Kind::value, head + "array has ndim=" + std::to_string(std::max(want_ndim, 0)) +
                                   " element_dim=" + std::to_string(rank) + ", array with " +
                                   std::to_string(a.ndim) + " dimensions is provided");
        int extents[2] = {1, 1};
        for (int k = 0; k < rank; ++k) {
            Ref e = Ref::steal(PySequence_GetItem(shape.get(), a.ndim - rank + k));
            extents[k] = static_cast<int>(PyLong_AsLong(e.get()));
        }
        ir::Type t = *tensor;
        const auto shown = [&](int n, int m) {
            return rank == 1 ? "(" + std::to_string(n) + ",)"
                             : "(" + std::to_string(n) + ", " + std::to_string(m) + ")";
        };
        const bool any = t.n == 0;  // element_dim alone leaves the shape open
        if (!any && (t.n != extents[0] || (rank == 2 && t.m != extents[1])))
            raise(Kind::value, head + "element_shape=" + shown(t.n, t.m) +
                                   ", array with element shape of " +
                                   shown(extents[0], extents[1]) + " is provided");
        a.ndim -= rank;
        const ir::Prim p = a.elem.prim;
        a.only_foreign |= t.prim != ir::Prim::none && !matches_prim(t.prim, p);
        a.elem = rank == 1 ? ir::Type::vector(p, extents[0])
                           : ir::Type::matrix(p, extents[0], extents[1]);
        return;
    }
    if (want_ndim >= 0 && a.ndim != want_ndim)
        raise(Kind::value, head + "array has ndim=" + std::to_string(want_ndim) + ", array with " +
                               std::to_string(a.ndim) + " dimensions is provided");
    if (prim && !matches_prim(*prim, a.elem.prim))
        raise(Kind::value, head + "array has dtype=" + type::info(*prim).name +
                               ", array with dtype=" + type::info(a.elem.prim).name +
                               " is provided");
}

void check_array_expr(PyObject* annotation, const ExprObject* e, const std::string& name) {
    if (PyType_Check(annotation)) return;
    const ir::Type got = e->type();
    Ref dtype = get(annotation, names().dtype_), ndim = get(annotation, names().ndim_);
    const std::string head = "Invalid value for argument " + name + " - required ";
    if (PyLong_Check(ndim.get()) && PyLong_AsLong(ndim.get()) != got.ndim)
        raise(Kind::type, head + "ndim=" + text(ndim.get()) + ", but " + std::to_string(got.ndim) +
                              "d ndarray is provided");
    const auto tensor = tensor_type_of(dtype.get());
    const auto prim = prim_of(dtype.get());
    ir::Type elem = got.value();
    const bool fits = tensor ? tensor->rank == elem.rank && (!tensor->n || tensor->n == elem.n) &&
                                   (tensor->rank == 1 || !tensor->m || tensor->m == elem.m) &&
                                   matches_prim(tensor->prim, elem.prim)
                             : !prim || elem == ir::Type::scalar(*prim);
    if (!fits)
        raise(Kind::type, head + "element type: " + text(dtype.get()) + ", but " +
                              type::to_user_string(elem) + " is provided");
}

static bool is_tuple_annotation(PyObject* a) {
    if (PyTuple_Check(a) || PyList_Check(a)) return true;
    Ref origin = Ref::steal_or_null(PyObject_GetAttr(a, names().__origin___));
    if (!origin) forget_error();
    return origin && origin.get() == reinterpret_cast<PyObject*>(&PyTuple_Type);
}

std::vector<Ref> result_annotations(PyObject* a, bool& is_tuple) {
    std::vector<Ref> out;
    if (a == Py_None || is_empty(a)) return out;
    is_tuple = is_tuple_annotation(a);
    if (!is_tuple) {
        out.push_back(Ref::borrow(a));
        return out;
    }
    Ref items = PyTuple_Check(a) || PyList_Check(a)
                    ? Ref::borrow(a)
                    : Ref::steal(PyObject_GetAttr(a, names().__args___));
    Ref list = Ref::steal(PySequence_List(items.get()));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k) {
        PyObject* item = PyList_GET_ITEM(list.get(), k);
        if (item == Py_Ellipsis)
            raise(Kind::syntax, "Ellipsis is not supported in return type annotations");
        out.push_back(Ref::borrow(item));
    }
    return out;
}

}  // namespace qd::frontend
