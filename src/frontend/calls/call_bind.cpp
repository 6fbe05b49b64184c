// Arguments of a func call: matched with the parameters, then classified by annotation into
// compile-time constants, values that are copied, and references.

#include "frontend/calls/call.h"
#include "frontend/facts/memo.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

std::string expected_text(const FuncSignature& s) {
    std::string out;
    for (const Param& p : s.params) {
        if (!out.empty()) out += ", ";
        out += text(p.name.get());
        const std::string kind = text(p.annotation.get());
        if (!kind.starts_with('<')) out += " : " + kind;  // what our own objects show tells nothing
    }
    return out;
}

bool has_expr(PyObject* o) {
    return is_expr(o) || is_struct(o) || (is_plain_container(o) && is_symbolic(o));
}

// Python numbers and matrices that go by value become IR values; containers keep their form.
Ref as_values(PyObject* o) {
    need_stack();
    if (is_expr(o) && as_expr(o)->kind == ExprKind::array) return Ref::borrow(o);
    if (is_expr(o) || is_number(o) || is_host_matrix(o)) return make_value(to_value(o));
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
        Ref out = Ref::steal(PyList_New(0));
        Ref items = Ref::steal(PySequence_List(o));
        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items.get()); ++k)
            if (PyList_Append(out.get(), as_values(PyList_GET_ITEM(items.get(), k)).get()) < 0)
                throw PyError{};
        return PyTuple_CheckExact(o) ? Ref::steal(PyList_AsTuple(out.get())) : out;
    }
    if (PyDict_CheckExact(o)) {
        Ref out = Ref::steal(PyDict_New());
        PyObject *key, *item;
        for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &item);)
            if (PyDict_SetItem(out.get(), key, as_values(item).get()) < 0) throw PyError{};
        return out;
    }
    if (is_struct(o)) return map_leaves(o, [](PyObject* e) { return as_values(e); });
    return Ref::borrow(o);
}

void check_tensor(PyObject* value, ir::Type want, const std::string& name) {
    const ir::Type t = is_expr(value) ? type_of(value) : to_value(value)->type;
    const std::string shown = "Argument " + name + " is expected to be a Matrix with ";
    if (!t.is_tensor()) raise(Kind::syntax, "Argument " + name + " is expected to be a Matrix");
    if (want.rank != t.rank)
        raise(Kind::syntax,
              shown + "ndim " + std::to_string(want.rank) + ", but got " + std::to_string(t.rank));
    if (want.n && want.n != t.n)
        raise(Kind::syntax,
              shown + "n " + std::to_string(want.n) + ", but got " + std::to_string(t.n));
    if (want.rank == 2 && want.m && want.m != t.m)
        raise(Kind::syntax,
              shown + "m " + std::to_string(want.m) + ", but got " + std::to_string(t.m));
}

}  // namespace

std::vector<Val> bind_arguments(const FuncSignature& s, const TracedArgs& args) {
    std::vector<Val> bound(s.params.size());
    std::vector<std::string> problems;
    if (args.positional.size() > s.params.size()) {
        std::string got;
        for (const Ref& a : args.positional)
            got += (got.empty() ? "" : ", ") + text(Ref::steal(PyObject_Repr(a.get())).get());
        problems.push_back("Too many arguments. Expected (" + expected_text(s) + "), got (" + got +
                           ").");
    }
    for (size_t k = 0; k < args.positional.size() && k < bound.size(); ++k)
        bound[k] = {args.positional[k], k < args.provs.size() ? args.provs[k] : nullptr};
    for (size_t k = 0; k < args.keywords.size(); ++k) {
        const auto& [name, value] = args.keywords[k];
        size_t at = 0;
        while (at < s.params.size() && PyUnicode_Compare(s.params[at].name.get(), name.get())) ++at;
        if (at == s.params.size()) {
            problems.push_back("Unexpected argument '" + text(name.get()) + "'.");
        } else if (bound[at].obj) {
            problems.push_back("Multiple values for argument '" + text(name.get()) + "'.");
        } else {
            bound[at] = {value, k < args.keyword_provs.size() ? args.keyword_provs[k] : nullptr};
        }
    }
    for (size_t k = 0; k < bound.size(); ++k) {
        if (bound[k].obj) continue;
        if (s.params[k].has_default)
            bound[k].obj = s.params[k].default_value;
        else
            problems.push_back("Missing argument '" + text(s.params[k].name.get()) + "'.");
    }
    if (problems.empty()) return bound;
    std::string all = problems.size() > 1 ? "Primary exception: " : "";
    for (const std::string& p : problems) all += (&p == &problems[0] ? "" : "\n") + p;
    raise(Kind::syntax, all);
}

void refuse_array_of_real_func(PyObject* definition, size_t position, PyObject* name,
                               PyObject* array) {
    const FuncSignature& s = signature_of(definition);
    if (!s.is_real) return;
    for (size_t k = 0; k < s.params.size(); ++k) {
        const Param& p = s.params[k];
        if (name ? PyUnicode_Compare(name, p.name.get()) != 0 : k != position) continue;
        const std::string head =
            "TypeError when calling `" +
            text(Ref::steal(PyObject_GetAttrString(s.fn.get(), "__name__")).get()) + "`: ";
        PyObject* annotation = strip_optional(p.annotation.get());
        if (is_ndarray_annotation(annotation))
            raise(Kind::type, head + "Expected ndarray in the kernel argument for argument " +
                                  text(p.name.get()) + ", got " + text(array) + ".");
        if (is_template(annotation))
            raise(Kind::type, head +
                                  "Ndarray shouldn't be passed in via `qd.template()`, please "
                                  "annotate your kernel using `qd.types.ndarray(...)` instead.");
    }
}

Arg classify(const Param& p, Val v, bool is_real) {
    PyObject* annotation = strip_optional(p.annotation.get());
    PyObject* o = v.get();
    const std::string name = text(p.name.get());
    const auto cannot = [&]() {
        raise(Kind::type,
              "Argument " + name + " of type " + type_name(o) +
                  " is not supported. Invalid constant scalar data type: " + type_name(o));
    };
    Arg a;
    a.v = v;
    a.flattened = v.prov && v.prov->flattened;
    if (is_empty(annotation) || (PyType_Check(annotation) && is_template(annotation))) {
        if (is_expr(o) && as_expr(o)->kind == ExprKind::array && is_empty(annotation)) {
            raise(Kind::type, "Ndarray argument " + name +
                                  " needs a qd.types.ndarray() or qd.template() annotation");
        }
        if (has_expr(o) || is_number(o) || is_host_matrix(o) ||
            (is_plain_container(o) && PyObject_Size(o) > 0)) {
            a.mode = Mode::value;
            a.v = {as_values(o), is_plain_container(o) ? v.prov : nullptr};
        } else if (is_empty(annotation) &&
                   (PyUnicode_Check(o) || PyFunction_Check(o) || PyCFunction_Check(o) ||
                    func_of(o) || is_kernel_callable(o))) {
            cannot();
        }
        return a;
    }
    if (is_template(annotation)) {
        if (has_expr(o)) a.mode = Mode::reference;
        return a;
    }
    if (const auto prim = prim_of(annotation)) {
        a.mode = Mode::value;
        const Ref given = make_value(to_value(o));
        if (is_real && type_of(given.get()).rank)
            raise(Kind::type, "Argument " + name + " is expected to be a number, but got " +
                                  type::to_user_string(type_of(given.get())));
        a.v = {cast(given.get(), *prim)};
        return a;
    }
    if (const auto t = tensor_type_of(annotation)) {
        a.mode = Mode::value;
        if (!is_expr(o) && !is_host_matrix(o) && !is_plain_container(o))
            raise(Kind::syntax,
                  "Argument " + name + " is expected to be a Matrix, but got " + type_name(o));
        Ref value = make_value(to_value(o));
        check_tensor(value.get(), *t, name);
        a.v = {value};
        return a;
    }
    if (is_struct_type(annotation)) {
        a.mode = Mode::value;
        a.v = {as_values(o)};
        return a;
    }
    if (is_ndarray_annotation(annotation) || is_tensor_annotation(annotation)) {
        if (is_expr(o) && as_expr(o)->kind == ExprKind::array) {
            a.mode = Mode::reference;
            if (is_ndarray_annotation(annotation)) check_array_expr(annotation, as_expr(o), name);
        } else if (o != Py_None && !(is_field(o) && is_tensor_annotation(annotation))) {
            raise(Kind::type, "Invalid value for argument " + name +
                                  " - Expected ndarray in the kernel argument for argument " +
                                  name + ", got " + text(o) + ".");
        }
        return a;
    }
    if (is_buffer_view_annotation(annotation) && !is_buffer_view(o))
        raise(is_real ? Kind::type : Kind::syntax,
              "Argument " + name + " expects a BufferView, got " + Py_TYPE(o)->tp_name);
    if (is_dataclass(annotation)) {
        if (is_expr(o) || PyObject_IsInstance(o, annotation) != 1)
            raise(Kind::type, "Argument " + name + " of type " + type_name(o) +
                                  " is not an instance of " + text(annotation));
        return a;
    }
    if (has_expr(o)) {
        a.mode = Mode::reference;          // qd.ref and the rest
    } else if (is_number(o) && is_real) {  // nothing that could be written to, as `n + 1`
        const Ref number = make_value(to_value(o));
        as_expr(number.get())->read_only = true;
        a.mode = Mode::reference;
        a.v = {number};
    } else if (is_number(o)) {
        a.mode = Mode::value;
        a.v = {as_values(o)};
    }
    return a;
}

}  // namespace qd::frontend
