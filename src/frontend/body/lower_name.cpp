// What names and members stand for: variables of the body, what is outside of it, members of
// objects.

#include "frontend/body/body.h"
#include "frontend/facts/hooks.h"
#include "frontend/facts/memo.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

// The same variable as iterations of a parallel loop see it: augmented assignment is atomic.
Ref shared_view(PyObject* o) {
    if (is_expr(o)) {
        ExprObject* e = as_expr(o);
        if (e->kind != ExprKind::variable && e->kind != ExprKind::element) return Ref::borrow(o);
        if (!e->in_reach()) return Ref::borrow(o);  // a list holds it; to use it raises
        return make_place(e->value(), e->kind, true, e->read_only);
    }
    return map_leaves(o, [](PyObject* e) { return shared_view(e); });
}

}  // namespace

// --- names ---------------------------------------------------------------------------------------

Body::Scope::~Scope() {
    while (body.bindings.size() > mark) {
        Binding& b = body.bindings.back();
        if (b.hidden >= 0)
            body.visible[b.name] = b.hidden;
        else
            body.visible.erase(b.name);
        body.bindings.pop_back();
    }
}

Binding* Body::find(PyObject* name) {
    const auto it = visible.find(name);
    return it == visible.end() ? nullptr : &bindings[it->second];
}

void Body::declare(PyObject* name, Val value, Binding::Kind kind) {
    const auto [it, made] = visible.try_emplace(name, static_cast<int>(bindings.size()));
    const int hidden = made ? -1 : it->second;
    it->second = static_cast<int>(bindings.size());
    bindings.push_back({name, std::move(value), kind, low.parallel_depth, {}, hidden});
}

// Threads see copies of containers. What was added or taken away while the loop was traced holds
// behind it, and the next loop sees what happens between.
void Body::leave_shared_views() {
    for (Binding& b : bindings) {
        if (!b.shared || !is_container(b.shared.get())) continue;
        join_shared_view(b.value.get(), b.shared.get());
        b.shared = {};
    }
}

namespace {
// What a name outside the body is bound to; null: nothing.
struct Outer {
    Ref object;
    Prov::Kind kind = Prov::Kind::global;
    bool is_builtin = false;
};
Outer outer_of(const Lowering::Body& body, PyObject* name) {
    PyObject* cell = body.cells ? PyDict_GetItem(body.cells.get(), name) : nullptr;
    if (Ref content = cell ? Ref::steal_or_null(PyCell_Get(cell)) : Ref{})
        return {std::move(content), Prov::Kind::cell};
    if (PyObject* o = PyDict_GetItem(PyFunction_GetGlobals(body.function.get()), name))
        return {Ref::borrow(o)};
    PyObject* builtins = PyEval_GetBuiltins();
    return {Ref::borrow(builtins ? PyDict_GetItem(builtins, name) : nullptr), Prov::Kind::global,
            true};
}
}  // namespace

// Code of the user may have bound the name anew while the body was walked.
bool Body::is_as_it_was(PyObject* name, OuterName& seen) {
    if (seen.user_runs == low.kernel->user_runs) return true;
    seen.user_runs = low.kernel->user_runs;
    if (outer_of(*this, name).object.get() == seen.object.get()) return true;
    unit.opaque("'" + text(name) + "' was bound anew while the kernel was compiled");
    return false;
}

Val Body::lookup(PyObject* name) {
    if (Binding* b = find(name)) {
        const bool varies =  // structs that are arguments are the call's own
            b->kind == Binding::Kind::variable ||
            (b->kind == Binding::Kind::kernel_argument && is_struct(b->value.get()));
        if (!varies || low.parallel_depth <= b->parallel_depth) return b->value;
        if (b->parallel_depth > 0) return b->value;
        if (!b->shared) b->shared = shared_view(b->value.get());
        return {b->shared, b->value.prov};
    }
    if (const auto it = outer_names.find(name);
        it != outer_names.end() && is_as_it_was(name, it->second)) {
        const Val& known = it->second.value;
        note_capture(low, function.get(), nullptr, known.get(), name, known.prov);
        return known;
    }
    const Outer found = outer_of(*this, name);
    if (!found.object) {
        const Ref locals = Ref::steal(PyList_New(0));
        for (const Binding& known : bindings) PyList_Append(locals.get(), known.name);
        raise_undefined(name, function.get(), locals.get(), cells.get());
    }
    Prov* prov = unit.global(found.kind, function.get(), name);
    Val v{found.object, prov};
    if (found.is_builtin)
        guard_value(unit, v.get(), prov);  // not shadowed since
    else
        v = adopt(found.object, prov);
    if (low.kernel->options.raise_on_templated_floats && PyFloat_Check(v.get()) &&
        !is_own_code(function.get()))
        raise(Kind::value, "Not permitted to access floats as global values: " + text(name) +
                               " (raise_on_templated_floats=True)");
    outer_names.insert_or_assign(name, OuterName{v, found.object, low.kernel->user_runs});
    note_capture(low, function.get(), nullptr, v.get(), name, v.prov);
    return v;
}

static void refuse_dead(PyObject* array) {
    if (is_ndarray(array) &&
        reinterpret_cast<NdarrayObject*>(array)->generation != current_generation())
        raise(Kind::runtime, "This ndarray belongs to a runtime that has been reset");
}

// Whether what it leads to is below something that a function of Python gave: launches do not ask
// it again.
static bool is_below_call(const Prov* prov) {
    for (; prov; prov = prov->parent)
        if (prov->kind == Prov::Kind::call) return true;
    return false;
}

// A Python object enters the kernel: arrays become parameters, everything else is guarded.
Val Body::adopt(Ref value, Prov* prov) {
    PyObject* o = value.get();
    if (is_expr(o) || is_struct(o)) return {std::move(value), nullptr};
    if (is_tensor(o)) {
        value = Ref::borrow(unwrap(o));
        o = value.get();
    }
    if (is_ndarray(o)) {
        if (is_below_call(prov)) {  // which of the arguments' arrays it is, no fact says
            unit.opaque("an array was reached in a way that is not recorded");
            prov = find_place(o);
        }
        if (!prov || !prov->from_argument())
            throw ForeignArray{
                {Kind::compilation,
                 "Ndarray " + text(o) +
                     " used in kernel scope but not registered as a kernel parameter",
                 "pass it through a qd.types.ndarray() or qd.Tensor annotation, or as a member "
                 "of a template argument"},
                value};
        if (!prov->leaf) {
            refuse_dead(o);
            ArrayInfo a;
            array_info(o, a);
            guard_value(unit, o, prov);
            std::string name =
                prov->key ? text(prov->key.get()) : "arg" + std::to_string(prov->argument);
            const ir::Type type = ir::Type::array(a.elem, a.ndim);
            ir::Value* v = unit.parameter(prov, ParamSource::Kind::array, type, name, a.has_grad,
                                          {.only_own = true});
            prov->leaf = make_array(v, a.access);
        }
        return {prov->leaf, nullptr};
    }
    if (prov) guard_value(unit, o, prov);
    return {std::move(value), prov};
}

// Facts that leave out what is in an object: Python may see all of it.
constexpr uint16_t kNotWhole =
    1u << static_cast<int>(FactKind::type) | 1u << static_cast<int>(FactKind::length);

// A member of a dataclass argument that is no field of it, and no fact describes.
static void pin_extra(Unit& unit, const Val& base, PyObject* name, const Val& v) {
    PyObject* o = base.get();
    if (_PyType_Lookup(Py_TYPE(o), name) == v.get()) return;
    const Ref dict = Ref::steal_or_null(PyObject_GetAttr(o, names().__dict___));
    if (!dict) forget_error();
    if (base.prov->flattened && dict && PyDict_Check(dict.get()) &&
        PyDict_GetItem(dict.get(), name) == v.get())
        unit.fact(v.prov, FactKind::object, Py_None);
    else
        v.prov->at_launch = v.obj;  // a property makes it, or made `base`
}

// The same name may be the object's own in a later process, or for another object.
static void guard_origin(Unit& unit, const Val& base, PyObject* name, Origin origin) {
    static constexpr const char *kModule = "quadrants._lib.core.quadrants_python",
                                *kFunction = "member_origin";
    const Ref operands[] = {base.obj, Ref::borrow(name)};
    Prov* const places[] = {base.prov, nullptr};
    Prov* answer = unit.call(unit.function_of(kModule, kFunction), operands, places);
    if (!answer) return unit.opaque("where a member was found is not recorded");
    const Ref value = Ref::steal(PyLong_FromLong(static_cast<long>(origin)));
    unit.fact(answer, FactKind::constant, value.get());
}

// What a method sees of its object is found through this one, or, if it belongs to another, through
// the method: which of the two a later process must find again.
static void guard_owner(Unit& unit, const Val& base, PyObject* name, PyObject* method) {
    PyObject *o = base.get(), *owner = PyMethod_GET_SELF(method);
    if (PyType_Check(owner) || PyType_Check(o) || PyModule_Check(o)) return;
    const Origin origin = origin_of(o, name);
    guard_origin(unit, base, name, origin);
    if (owner == o && origin != Origin::method)
        unit.opaque("a method of its own, under another name");
}

// A method that an object merely keeps says nothing of the object that it belongs to.
static Val note_owner(Val v, PyObject* o) {
    PyObject* owner = owner_of(v.get());
    if (v.prov && owner) v.prov->is_kept_method = owner != o;
    return v;
}

// base.name
Val Body::member(const Val& base, PyObject* name) {
    PyObject* o = base.get();
    if (is_expr(o) || is_struct(o)) return {attribute(o, name)};
    if (!base.prov) unit.untracked(o);
    Prov* prov = base.prov ? unit.attribute(base.prov, name) : nullptr;
    if (prov && prov->leaf) return {prov->leaf, nullptr};
    if (base.prov && base.prov->flattened) {
        Ref fields = Ref::steal_or_null(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(o)),
                                                         names().__dataclass_fields___));
        if (!fields) forget_error();
        PyObject* field = fields ? PyDict_GetItem(fields.get(), name) : nullptr;
        if (field) {
            Ref annotation = Ref::steal(PyObject_GetAttr(field, names().type_));
            Ref item = Ref::steal(PyObject_GetAttr(o, name));
            // Numbers of a template are constants.
            if (base.prov->at_launch || !(PyLong_Check(item.get()) || PyFloat_Check(item.get()) ||
                                          is_numpy_scalar(item.get())))
                return note_owner(bind_member(annotation.get(), std::move(item), prov), o);
        }
    }
    if (name == names().__dict___) refuse_at_launch(base.prov);
    const bool asks = member_may_change(o, name);
    if (asks) changing_code_runs("reading " + text(name));
    if (prov) prov->may_change |= asks;
    Ref item = asks ? ask_member(o, name, Asker::body) : attribute(o, name);
    if (!item) throw PyError{};
    if (is_expr(item.get()) || is_struct(item.get()) || bound_method(item.get()))
        return {item, nullptr};
    const bool is_number =
        PyLong_CheckExact(item.get()) || PyBool_Check(item.get()) || PyFloat_CheckExact(item.get());
    const bool at_launch =
        base.prov && base.prov->runtime_members && prov->from_argument() && !is_below_call(prov);
    const Origin origin = at_launch && is_number ? origin_of(o, name) : Origin::elsewhere;
    if (at_launch && is_number) guard_origin(unit, base, name, origin);
    if (origin == Origin::own || origin == Origin::slot) {
        if (low.static_depth)
            raise(Kind::syntax,
                  "Attribute " + text(name) + " of " + type_name(o) +
                      " is a runtime kernel argument (template_primitives=False): it has no value "
                      "inside qd.static");
        guard_class(unit, item.get(),
                    prov);  // an int fits code for a float, but is another program
        const bool real = PyFloat_Check(item.get());
        const ir::Prim p = real ? low.kernel->options.default_fp : low.kernel->options.default_ip;
        ir::Value* v =
            unit.parameter(prov, ParamSource::Kind::scalar, ir::Type::scalar(p), text(name));
        prov->leaf = make_value(v);
        return {prov->leaf, nullptr};
    }
    Val v = adopt(std::move(item), prov);
    if (v.prov && PyMethod_Check(v.get())) guard_owner(unit, base, name, v.get());
    v = note_owner(std::move(v), o);
    if (v.prov && base.prov->at_launch && !(v.prov->facts & ~kNotWhole))
        pin_extra(unit, base, name, v);
    const auto is_size = [&] {
        const std::string word = text(name);
        return word == "n" || word == "m" || word == "ndim";
    };
    if (is_host_matrix(o) && !is_size()) return {captured_number(v.obj)};
    note_capture(low, function.get(), o, v.get(), name, v.prov);
    // The mark of the outermost object decides for what it holds.
    if (v.prov && base.prov->runtime_members && !PyLong_Check(v.get()) && !PyFloat_Check(v.get())) {
        PyTypeObject* type = Py_TYPE(v.get());
        v.prov->runtime_members = _PyType_Lookup(type, names()._data_oriented_) ||
                                  _PyType_Lookup(type, names().__dataclass_fields___);
    }
    return v;
}

// base[index], index compile-time or not
Val Body::element(const Val& base, PyObject* index) {
    refuse_items(base.get());
    if (is_symbolic(index) && !is_field(base.get())) unit.consume(base);
    const bool asks = !is_symbolic(index) && item_may_change(base.get(), index);
    if (asks) changing_code_runs("reading an item");
    Ref item = asks ? ask_item(base.get(), index, Asker::body) : subscript(base.get(), index);
    if (!item) throw PyError{};
    if (is_expr(item.get()) || is_struct(item.get()) || is_field(base.get()))
        return {item, nullptr};
    Prov* prov = base.prov && !is_symbolic(index) && !PySlice_Check(index)
                     ? unit.item(base.prov, index)
                     : nullptr;
    if (!prov) unit.consume(base);
    if (prov) prov->may_change |= asks;
    if (!is_symbolic(index) && has_hooks(index)) unit.opaque("what an index of its class says");
    Val v = adopt(std::move(item), prov);
    if (v.prov && base.prov->at_launch && !(v.prov->facts & ~kNotWhole)) v.prov->at_launch = v.obj;
    return is_host_matrix(base.get()) ? Val{captured_number(v.obj)} : v;
}

// --- members by their annotations ---------------------------------------------------------------

static bool forbids_gradient(PyObject* annotation) {
    const Ref wanted = Ref::steal_or_null(PyObject_GetAttr(annotation, names().needs_grad_));
    if (!wanted) forget_error();
    return wanted.get() == Py_False;
}

// A member of a dataclass parameter, or a whole parameter, by its annotation.
// A window of an array: three parameters that make one struct value.
static Ref bind_buffer_view(Body& body, PyObject* annotation, PyObject* item, Prov* prov) {
    const Ref array = Ref::steal_or_null(PyObject_GetAttrString(item, "arr"));
    ArrayInfo a;
    if (!array || !array_info(array.get(), a)) {
        forget_error();
        raise(Kind::runtime_type,
              "Argument " + type_name(item) + " cannot be converted into required type BufferView");
    }
    if (const Ref boundary = Ref::steal_or_null(PyObject_GetAttrString(annotation, "boundary")))
        a.access.clamp = text(boundary.get()).ends_with("CLAMP");
    else
        forget_error();
    Unit& unit = body.unit;
    const auto scalar = [&](const char* name) {
        return unit.parameter(unit.attribute(prov, interned(name).get()), ParamSource::Kind::scalar,
                              type::kI32, name);
    };
    ir::Value* handle =
        unit.parameter(unit.attribute(prov, interned("arr").get()), ParamSource::Kind::array,
                       ir::Type::array(a.elem, a.ndim), "arr", a.has_grad);
    const Ref arr = make_array(handle, a.access);
    ir::Value* offset = scalar("offset");
    ir::Value* size = scalar("size");
    prov->leaf = make_buffer_view(arr.get(), offset, size);
    return prov->leaf;
}

static Ref shown_name(const std::string& name) {
    return Ref::steal(
        PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
}

// Calls a function of quadrants.lang._data.arguments.
template <class... Objects>
static void arguments_rule(const char* name, Objects... given) {
    const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang._data.arguments"));
    const Ref rule = Ref::steal(PyObject_GetAttrString(module.get(), name));
    Ref::steal(PyObject_CallFunctionObjArgs(rule.get(), given..., nullptr));
}

static bool is_valid_annotation(PyObject* annotation) {
    static PyObject* valid = [] {
        const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang._signature"));
        return PyObject_GetAttrString(module.get(), "valid_annotation");
    }();
    static PyObject* kind = PyUnicode_InternFromString("func");
    return Ref::steal(PyObject_CallFunctionObjArgs(valid, annotation, kind, nullptr)).get() ==
           Py_True;
}

static bool is_final(PyObject* annotation) {
    static PyObject* const final_ = [] {
        const Ref typing = Ref::steal(PyImport_ImportModule("typing"));
        return PyObject_GetAttrString(typing.get(), "Final");
    }();
    const Ref origin = Ref::steal_or_null(PyObject_GetAttrString(annotation, "__origin__"));
    if (!origin) forget_error();
    return annotation == final_ || origin.get() == final_;
}

// Raises if the annotations of a dataclass are no types of arguments, at any depth. Once a class.
// Whether some are constants.
static bool check_dataclass(PyObject* cls, int depth) {
    constexpr int kDeepestDataclass = 32;
    struct Checked {
        Ref cls;
        bool has_constants;
    };
    const auto known = memo<Checked>().find(cls);
    if (known != memo<Checked>().end()) return known->second.has_constants;
    Ref fields = Ref::steal_or_null(PyObject_GetAttr(cls, names().__dataclass_fields___));
    forget_error();
    if (!fields || !PyDict_Check(fields.get()) || depth > kDeepestDataclass) return false;
    bool has_constants = false;
    PyObject *key, *field;
    for (Py_ssize_t at = 0; PyDict_Next(fields.get(), &at, &key, &field);) {
        const Ref type = Ref::steal(PyObject_GetAttr(field, names().type_));
        if (PyUnicode_Check(type.get()) && is_instance_field(field))
            raise(Kind::syntax,
                  "Invalid data type " + text(type.get()) + ": member " + text(key) +
                      " of dataclass " + text(cls) +
                      " is annotated by a text, and must be by the type itself; if the module says "
                      "`from __future__ import annotations`, remove that line");
        if (is_instance_field(field) && is_final(type.get())) {
            arguments_rule("check_final", cls, key, type.get());
            has_constants = true;
            continue;
        }
        if (PyType_Check(type.get()) && has_attribute(type.get(), "_data_oriented"))
            raise(Kind::syntax, "Member " + text(key) + " of dataclass " + text(cls) +
                                    " is a data_oriented class; pass it through qd.template()");
        if (is_instance_field(field) && !is_valid_annotation(type.get()))
            raise(Kind::compilation,
                  "Invalid data type " + text(Ref::steal(PyObject_Repr(type.get())).get()) +
                      ": member " + text(key) + " of dataclass " + text(cls),
                  "annotate it by a number's type, qd.types.ndarray(), qd.template(), a vector, "
                  "matrix or struct type, or another dataclass");
        if (PyType_Check(type.get()) && is_dataclass(type.get()))
            has_constants |= check_dataclass(type.get(), depth + 1);
    }
    if (has_constants) arguments_rule("check_frozen", cls);
    memo<Checked>().emplace(cls, Checked{Ref::borrow(cls), has_constants});
    return has_constants;
}

static bool holds_ndarray(PyObject* value) {
    if (is_ndarray(unwrap(value))) return true;
    if (!PyTuple_CheckExact(value)) return false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(value); ++k)
        if (holds_ndarray(PyTuple_GET_ITEM(value, k))) return true;
    return false;
}

void check_template_hash(PyObject* value) {
    const bool hashes = Py_TYPE(value)->tp_hash != PyObject_HashNotImplemented;
    const bool by_identity = _PyType_Lookup(Py_TYPE(value), names()._data_oriented_);
    if (((!hashes && !by_identity) || PyTuple_Check(value)) && PyObject_Hash(value) == -1) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PyError{};
        PyObject *type, *problem, *trace;
        PyErr_Fetch(&type, &problem, &trace);
        const Ref owned[] = {Ref::steal_or_null(type), Ref::steal_or_null(problem),
                             Ref::steal_or_null(trace)};
        PyErr_Format(type,
                     "%S\n  qd.template() takes what can be hashed: annotate arrays with "
                     "qd.types.ndarray(), pass a tuple in the place of a list",
                     problem);
        throw PyError{};
    }
}

// What a kernel's template parameter refuses, and such a member of a dataclass.
static void check_template(PyObject* value, bool is_member) {
    if (is_member) check_template_hash(value);  // of arguments the launcher asks
    if (holds_ndarray(value))
        raise(Kind::runtime_type,
              "Ndarray shouldn't be passed in via `qd.template()`, please annotate your kernel "
              "using `qd.types.ndarray(...)` instead");
}

// A member of a dataclass that the body asks for. One that does not fit is told as an argument is.
Val Body::bind_member(PyObject* annotation, Ref item, Prov* prov) {
    const ArgumentErrors as_such;
    try {
        return bind_parameter_member(annotation, std::move(item), prov);
    } catch (const Diag& d) {
        if (d.kind != Kind::runtime_type) throw;
        set_python_error(d);
        throw PyError{};
    }
}

Val Body::bind_parameter_member(PyObject* annotation, Ref item, Prov* prov) {
    const bool optional = strip_optional(annotation) != annotation;
    annotation = strip_optional(annotation);
    const bool at_launch = !prov->parent || prov->parent->at_launch;
    const std::string name =
        prov->key ? text(prov->key.get()) : "arg" + std::to_string(prov->argument);
    if (const auto p = prim_of(annotation)) {
        ir::Value* v = unit.parameter(prov, ParamSource::Kind::scalar, ir::Type::scalar(*p), name);
        prov->leaf = make_value(v);
        as_expr(prov->leaf.get())->read_only = true;
        return {prov->leaf, nullptr};
    }
    if (const auto t = tensor_type_of(annotation)) {
        need_sizes(*t, "parameter " + name);
        ir::Type type = *t;
        if (type.prim == ir::Prim::none) type.prim = low.kernel->options.default_fp;
        ir::Value* v = unit.parameter(prov, ParamSource::Kind::tensor, type, name);
        prov->leaf = make_value(v);
        as_expr(prov->leaf.get())->read_only = true;
        return {prov->leaf, nullptr};
    }
    if (is_struct_type(annotation)) {
        if (item && PyObject_IsInstance(item.get(), annotation) != 1) {
            forget_error();
            raise(Kind::runtime_type, "Argument " + type_name(item.get()) +
                                          " cannot be converted into required type " +
                                          text(annotation));
        }
        Ref members = Ref::steal(PyObject_GetAttr(annotation, names().members_));
        Ref values = Ref::steal(PyDict_New());
        PyObject *key, *type;
        for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &key, &type);) {
            Prov* p = unit.attribute(prov, key);
            Val v = bind_parameter_member(
                type, item ? Ref::steal(PyObject_GetAttr(item.get(), key)) : Ref(), p);
            if (PyDict_SetItem(values.get(), key, v.get()) < 0) throw PyError{};
        }
        prov->leaf = make_struct(annotation, values.get());
        return {prov->leaf, nullptr};
    }
    if (is_ndarray_annotation(annotation) || is_tensor_annotation(annotation)) {
        PyObject* o = unwrap(item.get());
        ArrayInfo a;
        const bool is_object = is_field(o) || is_struct_field(o);
        const bool takes_none = optional || is_tensor_annotation(annotation) || !at_launch;
        if ((o == Py_None && takes_none) || (is_object && is_tensor_annotation(annotation)))
            return adopt(Ref::borrow(o), prov);
        if (prov->parent && is_ndarray_annotation(annotation))
            arguments_rule("check_array", annotation, o, shown_name(name).get());
        if (!array_info(o, a))
            raise(Kind::runtime_type, "Invalid type for argument " + name + ", got " + text(o));
        refuse_dead(o);
        bind_array_type(annotation, o, name, a);
        const bool forbidden = forbids_gradient(annotation);
        ir::Value* v = unit.parameter(
            prov, ParamSource::Kind::array, ir::Type::array(a.elem, a.ndim), name,
            a.has_grad && !forbidden,
            {.no_gradient = forbidden, .splits = a.splits, .only_foreign = a.only_foreign});
        prov->leaf = make_array(v, a.access);
        return {prov->leaf, nullptr};
    }
    if (is_buffer_view_annotation(annotation))
        return {bind_buffer_view(*this, annotation, item.get(), prov), nullptr};
    if (is_dataclass(annotation) && at_launch) {
        if (!prov->parent) (void)check_dataclass(annotation, 0);
        if (!PyObject_IsInstance(item.get(), annotation))
            raise(Kind::runtime_type, "Argument " + type_name(item.get()) +
                                          " cannot be converted into required type " +
                                          text(annotation));
        prov->flattened = true;
        prov->at_launch = item;
        guard_value(unit, item.get(), prov);
        return {std::move(item), prov};
    }
    if (is_final(annotation))
        arguments_rule("check_final_value", shown_name(name).get(), item.get());
    if (low.kernel->options.raise_on_templated_floats && prov->parent)
        arguments_rule("check_template_member", shown_name(name).get(), item.get());
    // Templates, and members whose annotation says nothing.
    if (at_launch && is_template(annotation)) check_template(item.get(), prov->parent);
    Val v = adopt(std::move(item), prov);
    if (v.prov) {
        if (prov->parent && prov->parent->at_launch && !(prov->facts & ~kNotWhole))
            unit.fact(prov, FactKind::object, Py_None);
        PyObject* flag = _PyType_Lookup(Py_TYPE(v.get()), names()._qd_template_primitives_);
        v.prov->runtime_members = flag == Py_False;
        if (Py_TYPE(v.get())->tp_dict &&
            !_PyType_Lookup(Py_TYPE(v.get()), names()._data_oriented_) &&
            _PyType_Lookup(Py_TYPE(v.get()), names().__dataclass_fields___))
            v.prov->flattened = true;
    }
    return v;
}

}  // namespace qd::frontend
