// Subscripts and attributes: elements of fields and arrays, components and slices of tensors,
// members of structs.
//
// What can be written stays a place: a component of a variable or of a field element is a
// comp_place. Several components at once (slices, and swizzles in tensor.cpp) are a view: a value
// built from loaded components that remembers their places, so that assigning to it stores them.

#include <algorithm>

#include "frontend/source/stack.h"
#include "frontend/specialise.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

[[noreturn]] void negative_index() {
    raise(Kind::syntax, "Negative indices are not supported in Quadrants kernels.");
}

[[noreturn]] void bad_index(const std::string& type, int position) {
    raise(Kind::type, "indices must be integers, however '" + type + "' is provided as index " +
                          std::to_string(position));
}

void flatten(PyObject* o, std::vector<Ref>& out) {
    need_stack();  // a list may hold itself
    if (is_expr(o)) {
        const ExprObject& e = *as_expr(o);
        if (e.kind == ExprKind::array || !e.type().rank) return out.push_back(Ref::borrow(o));
        Value* v = to_value(o);
        for (int k = 0; k < v->type.count(); ++k) out.push_back(make_value(component(v, k)));
        return;
    }
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            flatten(PySequence_Fast_GET_ITEM(o, k), out);
        return;
    }
    if (is_host_matrix(o)) {
        const Ref list = Ref::steal(PyObject_CallMethod(o, "to_list", nullptr));
        return flatten(list.get(), out);
    }
    if (!is_empty_matrix(o)) out.push_back(Ref::borrow(o));  // which is the index of a 0-D field
}

bool holds_slice(std::span<const Ref> items) {
    return std::ranges::any_of(items, [](const Ref& r) { return PySlice_Check(r.get()); });
}

std::string class_text(PyObject* o) { return text_of(reinterpret_cast<PyObject*>(Py_TYPE(o))); }

bool checks_bounds() { return current()->kernel->options.check_indices(); }

// --- components ---------------------------------------------------------------------------------
struct Index {  // known now, or an i32 value
    long long number = 0;
    Value* runtime = nullptr;
};

// A component of a tensor.
struct Component {
    Index axes[2];
    Index flat;  // its number, row-major
    std::span<const Index> written(Type t) const { return {axes, size_t(t.rank)}; }
};

// Checks are of an i32: what is outside stays outside.
Value* as_i32(Value* v) {
    ir::Builder& b = builder();
    if (checks_bounds() && v->type.prim == Prim::i64) {
        v = b.op(Op::max, {v, b.int_const(Prim::i64, INT32_MIN)});
        v = b.op(Op::min, {v, b.int_const(Prim::i64, INT32_MAX)});
    }
    return b.cast(v, Prim::i32);
}

Value* clamped(Value* v, int extent) {
    ir::Builder& b = builder();
    v = b.op(Op::max, {v, b.int_const(v->type.prim, 0)});
    v = b.op(Op::min, {v, b.int_const(v->type.prim, extent - 1)});
    return b.cast(v, Prim::i32);
}

std::string shape_text(Type t) {
    return t.rank == 2 ? std::to_string(t.n) + ", " + std::to_string(t.m) : std::to_string(t.n);
}

int extent_of(Type t, int axis) { return axis ? t.m : t.n; }

// What is refused now: indices that are not known are a "?".
[[noreturn]] void out_of_bounds(Type t, const Component& at) {
    std::string text;
    for (const Index& i : at.written(t))
        text += (text.empty() ? "" : ", ") + (i.runtime ? "?" : std::to_string(i.number));
    raise(Kind::index,
          "Out of bound access to a [" + shape_text(t) + "] matrix with index [" + text + "]");
}

// What is refused when it is reached.
void require_within(Type t, Value* ok, std::span<const Index> shown) {
    ir::Format format;
    format.pieces.push_back({"[kernel=" + current()->kernel->module->name +
                                 "] Out of bound access to a [" + shape_text(t) +
                                 "] matrix with index [",
                             0});
    std::vector<Value*> operands = {ok};
    for (const Index& i : shown) {
        if (&i != shown.data()) format.pieces.push_back({", ", 0});
        if (i.runtime) {
            format.pieces.push_back({"", '*'});
            operands.push_back(i.runtime);
        } else {
            format.pieces.push_back({std::to_string(i.number), 0});
        }
    }
    format.pieces.push_back({"]", 0});
    builder().emit(Op::assert_, operands, {})->ref = own_format(std::move(format));
}

// In debug mode a constant index outside is like any other one: reaching it is a failure. It shows
// the number of the component, as for indices that are chosen at run time, unless that one exists.
void fail_out_of_bounds(Type t, const Component& at) {
    Value* never = builder().int_const(Prim::u1, 0);
    if (at.flat.number >= t.count()) return require_within(t, never, std::span(&at.flat, 1));
    require_within(t, never, at.written(t));
}

Index axis_index(PyObject* o, int axis, int extent, bool clamp) {
    if (const auto c = static_int(o)) {
        if (*c < 0) negative_index();
        return {clamp ? std::min<long long>(*c, extent - 1) : *c, nullptr};
    }
    Value* v = index_value(o, axis);
    return {0, clamp ? clamped(v, extent) : as_i32(v)};
}

Index row_major(Type t, const Index& row, const Index& column) {
    const auto number = [](const Index& i) { return std::min<long long>(i.number, INT32_MAX); };
    if (!row.runtime && !column.runtime) return {number(row) * t.m + number(column), nullptr};
    ir::Builder& b = builder();
    const auto value = [&](const Index& i) {
        return i.runtime ? i.runtime : b.int_const(Prim::i32, number(i));
    };
    Value* skipped = b.op(Op::mul, {value(row), b.int_const(Prim::i32, t.m)});
    return {0, b.op(Op::add, {skipped, value(column)})};
}

// `clamp`: indices outside mean the first or the last of their axis.
Component component_at(Type t, std::span<const Ref> indices, bool clamp) {
    if (static_cast<int>(indices.size()) != t.rank)
        raise(Kind::index, "Expected " + std::to_string(t.rank) + " indices, got " +
                               std::to_string(indices.size()));
    Component at;
    bool outside = false;
    for (int k = 0; k < t.rank; ++k) {
        const int extent = extent_of(t, k);
        at.axes[k] = axis_index(indices[static_cast<size_t>(k)].get(), k, extent, clamp);
        outside |= !at.axes[k].runtime && at.axes[k].number >= extent;
    }
    if (outside && !checks_bounds() && !current()->dead_depth) out_of_bounds(t, at);
    at.flat = t.rank == 1 ? at.axes[0] : row_major(t, at.axes[0], at.axes[1]);
    if (outside && !at.flat.runtime) {
        fail_out_of_bounds(t, at);
        at.flat.number = t.count() - 1;
    }
    return at;
}

// The number of a component is checked by debug_checks, in front of the access. One that exists can
// still be of another row than the one asked for.
void check_axes(Type t, const Component& at) {
    if (t.rank != 2 || !at.flat.runtime || !checks_bounds()) return;
    ir::Builder& b = builder();
    Value* ok = b.int_const(Prim::u1, 1);
    for (int k = 0; k < t.rank; ++k) {
        const Index& i = at.axes[k];
        const int extent = extent_of(t, k);
        if (!i.runtime) {
            if (i.number >= extent) ok = b.int_const(Prim::u1, 0);
            continue;
        }
        ok = b.op(Op::bit_and, {ok, b.op(Op::ge, {i.runtime, b.int_const(Prim::i32, 0)})});
        ok = b.op(Op::bit_and, {ok, b.op(Op::lt, {i.runtime, b.int_const(Prim::i32, extent)})});
    }
    require_within(t, ok, at.written(t));
}

// Marks of values that are no places. Writing an element of a vector parameter is legal and has no
// effect.
constexpr uint8_t kDropsWrites = 1, kStandsForView = 2, kLive = 3, kCaptured = 4;
bool is_marked(PyObject* o, uint8_t mark) {
    return is_expr(o) && as_expr(o)->kind == ExprKind::value && as_expr(o)->reserved == mark;
}
bool drops_writes(PyObject* o) { return is_marked(o, kDropsWrites); }

bool is_place(const ExprObject& e) {
    return e.kind == ExprKind::variable || e.kind == ExprKind::element;
}

// Boundary "clamp" holds for the components of an array's elements too.
bool is_clamped(const ExprObject& e) {
    if (!is_place(e)) return false;
    const ir::Inst* def = e.value()->def;
    return def && def->op == Op::array_place && ir::ArrayAccess::unpack(def->imm).clamp;
}

Ref place_component(const ExprObject& e, const Index& at) {
    ir::Builder& b = builder();
    if (at.runtime) {
        const ir::Inst* def = e.value()->def;
        if (def && def->op == Op::field_place && def->field()->component_stride() == 0 &&
            e.type().count() > 1)
            raise(Kind::runtime, "Element of the MatrixField is not dynamic indexable.",
                  "place its components a constant number of bytes apart, or use constant indices");
    }
    Value* operands[] = {e.value(), at.runtime ? at.runtime : b.int_const(Prim::i32, at.number)};
    Value* place = b.typed(Op::comp_place, e.type().element().place(), operands);
    Ref r = make_place(place, ExprKind::element, e.shared, e.read_only);
    if (e.read_only && e.origin) as_expr(r.get())->origin = Py_NewRef(e.origin);
    return r;
}

Ref tensor_component(PyObject* base, std::span<const Ref> indices) {
    const ExprObject& e = *as_expr(base);
    const Type t = e.type().value();
    const bool clamp = is_clamped(e);
    const Component at = component_at(t, indices, clamp);
    const Index& flat = at.flat;
    Ref r;
    if (is_place(e)) {
        r = place_component(e, flat);
    } else if (is_view(base) && !flat.runtime) {
        return Ref::borrow(PyTuple_GET_ITEM(e.origin, static_cast<Py_ssize_t>(flat.number)));
    } else {
        r = make_value(flat.runtime ? builder().op(Op::extract_dyn, {to_value(base), flat.runtime})
                                    : component(e.value(), static_cast<int>(flat.number)));
        if (e.read_only) as_expr(r.get())->reserved = kDropsWrites;
        if (stands_for_view(base)) stand_for_view(r.get());
    }
    if (!clamp) check_axes(t, at);
    return r;
}

// --- slices -------------------------------------------------------------------------------------
std::optional<long long> slice_bound(PyObject* o) {
    if (o == Py_None) return std::nullopt;
    if (is_expr(o))
        raise(Kind::compilation, "Quadrants does not support variables in slice now",
              "use constant bounds, or a loop");
    const auto v = static_int(o);
    if (!v)
        raise(Kind::compilation, "Quadrants does not support variables in slice now, and '" +
                                     class_text(o) + "' is not an integer");
    return v;
}

std::vector<int> slice_positions(PyObject* o, int extent) {
    const auto& s = *reinterpret_cast<PySliceObject*>(o);
    const auto start = slice_bound(s.start), stop = slice_bound(s.stop),
               step_given = slice_bound(s.step);
    const long long step = step_given.value_or(1);
    if (step == 0) raise(Kind::value, "slice step cannot be zero");
    if ((start && *start < 0) || (stop && *stop < 0)) negative_index();
    std::vector<int> out;
    if (step > 0) {
        for (long long k = start.value_or(0),
                       end = std::min<long long>(stop.value_or(extent), extent);
             k < end; k += step)
            out.push_back(static_cast<int>(k));
    } else {
        for (long long k = std::min<long long>(start.value_or(extent - 1), extent - 1),
                       end = stop.value_or(-1);
             k > end; k += step)
            out.push_back(static_cast<int>(k));
    }
    return out;
}

Ref tensor_slice(PyObject* base, std::span<const Ref> indices) {
    const Type t = type_of(base);
    if (!t.rank) raise(Kind::syntax, "a scalar cannot be sliced");
    if (static_cast<int>(indices.size()) != t.rank)
        raise(Kind::index, "Expected " + std::to_string(t.rank) + " indices, got " +
                               std::to_string(indices.size()));
    const int extents[] = {t.n, t.m};
    std::vector<std::vector<Ref>> along(static_cast<size_t>(t.rank));
    int slices = 0;
    Type result = Type::scalar(t.prim);
    for (size_t k = 0; k < along.size(); ++k) {
        PyObject* index = indices[k].get();
        if (!PySlice_Check(index)) {
            along[k].push_back(indices[k]);
            continue;
        }
        for (int p : slice_positions(index, extents[k]))
            along[k].push_back(Ref::steal(PyLong_FromLong(p)));
        if (along[k].empty()) return Ref::steal(PyList_New(0));
        const int n = static_cast<int>(along[k].size());
        result = ++slices == 1 ? Type::vector(t.prim, n) : Type::matrix(t.prim, result.n, n);
    }
    std::vector<Ref> parts;
    for (const Ref& i : along[0]) {
        if (t.rank == 1) {
            parts.push_back(tensor_component(base, std::span(&i, 1)));
            continue;
        }
        for (const Ref& j : along[1]) {
            const Ref pair[] = {i, j};
            parts.push_back(tensor_component(base, pair));
        }
    }
    return make_view(result, parts);
}

Ref tensor_subscript(PyObject* base, PyObject* index) {
    if (!as_expr(base)->type().rank) {
        if (PySlice_Check(index)) raise(Kind::syntax, "a scalar cannot be sliced");
        if (index == Py_None || (PyTuple_Check(index) && PyTuple_GET_SIZE(index) == 0))
            return Ref::borrow(base);
        raise(Kind::type,
              "'" + type::to_user_string(type_of(base)) + "' is a scalar and cannot be indexed");
    }
    const std::vector<Ref> items = index_list(index);
    return holds_slice(items) ? tensor_slice(base, items) : tensor_component(base, items);
}

// --- arrays and fields ------------------------------------------------------------------------
Ref array_subscript(PyObject* base, PyObject* index) {
    const std::vector<Ref> items = index_list(index);
    if (holds_slice(items)) {
        if (items.size() == 1 && as_expr(base)->type().ndim == 1)
            return buffer_view_slice(base, items[0].get());
        if (Ref part = array_part(base, items)) return part;
        raise(Kind::syntax,
              "The type <class 'quadrants.lang._ndarray.Ndarray'> do not support index of slice "
              "type");
    }
    PyObject* raw[16];
    const size_t n = std::min<size_t>(items.size(), 16);
    for (size_t k = 0; k < n; ++k) raw[k] = items[k].get();
    return array_element(as_expr(base), raw, n);
}

Ref field_subscript(FieldObject* f, PyObject* index) {
    if (is_expr(index) && !as_expr(index)->type().rank)
        return field_element(f, &index, 1);  // the frequent case
    const std::vector<Ref> items = index_list(index);
    if (holds_slice(items)) {
        if (Ref part = array_part(reinterpret_cast<PyObject*>(f), items)) return part;
        raise(Kind::syntax, "The type " + class_text(reinterpret_cast<PyObject*>(f)) +
                                " do not support index of slice type");
    }
    PyObject* raw[16];
    const size_t n = std::min<size_t>(items.size(), 16);
    for (size_t k = 0; k < n; ++k) raw[k] = items[k].get();
    return field_element(f, raw, n);
}

Ref shared_subscript(PyObject* array, PyObject* index) {
    const std::vector<Ref> items = index_list(index);
    if (holds_slice(items)) {
        if (Ref part = array_part(array, items)) return part;
        raise(Kind::syntax, "a SharedArray cannot be sliced");
    }
    return shared_element(array, items);
}

[[noreturn]] void wrong_count(const char* what, int dim, size_t given) {
    raise(Kind::index, std::string(what) + " with dim " + std::to_string(dim) +
                           " accessed with indices of dim " + std::to_string(given));
}

// --- attributes ---------------------------------------------------------------------------------
enum class ArrayMember : uint8_t { shape, grad, dtype, ndim, n, m, element_shape };
const std::pair<std::string_view, ArrayMember> kArrayMembers[] = {
    {"shape", ArrayMember::shape},
    {"grad", ArrayMember::grad},
    {"dtype", ArrayMember::dtype},
    {"ndim", ArrayMember::ndim},
    {"n", ArrayMember::n},
    {"m", ArrayMember::m},
    {"element_shape", ArrayMember::element_shape},
};

Ref array_shape(PyObject* base) {
    const int ndim = as_expr(base)->type().ndim;
    const Ref shape = Ref::steal(PyTuple_New(ndim));
    for (int k = 0; k < ndim; ++k)
        PyTuple_SET_ITEM(shape.get(), k, make_value(array_extent(base, k)).release());
    return shape;
}

}  // namespace

// Known for parameters of the kernel itself, and passed on to the funcs that it calls.
bool lacks_gradient(const ExprObject* array) {
    if (array->reserved) return true;
    const Value* handle = array->value();
    const ir::Module& m = *current()->kernel->module;
    if (m.functions.empty() || !handle->owner || handle->owner != m.kernel().body ||
        handle->index >= m.params.size())
        return false;
    return !m.params[handle->index].needs_grad;
}

namespace {

Ref array_attribute(PyObject* base, std::string_view name) {
    const ExprObject& e = *as_expr(base);
    const Type t = e.type();
    for (const auto& [known, member] : kArrayMembers) {
        if (known != name) continue;
        switch (member) {
            case ArrayMember::shape:
                return array_shape(base);
            case ArrayMember::dtype:
                return dtype_object(t.prim);
            case ArrayMember::ndim:
                return Ref::steal(PyLong_FromLong(t.ndim));
            case ArrayMember::n:
                return Ref::steal(PyLong_FromLong(t.n));
            case ArrayMember::m:
                return Ref::steal(PyLong_FromLong(t.m));
            case ArrayMember::element_shape:
                return Ref::steal(t.rank == 0   ? PyTuple_New(0)
                                  : t.rank == 1 ? Py_BuildValue("(i)", t.n)
                                                : Py_BuildValue("(ii)", t.n, t.m));
            case ArrayMember::grad: {
                if (e.access.grad)
                    raise(Kind::compilation, "the gradient of a gradient does not exist");
                if (lacks_gradient(&e))
                    raise(Kind::compilation, "the array has no gradient",
                          "create it with needs_grad=True");
                ir::ArrayAccess access = e.access;
                access.grad = true;
                return make_array(e.value(), access);
            }
        }
    }
    raise(Kind::type, "an ndarray has no attribute '" + std::string(name) + "' in a kernel");
}

}  // namespace

// --- views --------------------------------------------------------------------------------------
bool is_view(PyObject* o) {
    return is_expr(o) && as_expr(o)->kind == ExprKind::value && as_expr(o)->origin &&
           PyTuple_CheckExact(as_expr(o)->origin);
}

Ref make_view(Type t, std::span<const Ref> parts) {
    std::vector<Value*> values;
    bool writable = true, of_caller = false, drops = !parts.empty();
    for (const Ref& p : parts) {
        writable &= is_place(*as_expr(p.get()));
        drops &= drops_writes(p.get());
        of_caller |= stands_for_view(p.get());
        values.push_back(to_value(p.get()));
    }
    Ref view = make_value(build(t, values));
    if (of_caller) stand_for_view(view.get());
    if (drops) as_expr(view.get())->reserved = kDropsWrites;
    if (writable) {
        PyObject* places = PyTuple_New(static_cast<Py_ssize_t>(parts.size()));
        if (!places) throw PyError{};
        for (size_t k = 0; k < parts.size(); ++k)
            PyTuple_SET_ITEM(places, static_cast<Py_ssize_t>(k), Py_NewRef(parts[k].get()));
        as_expr(view.get())->origin = places;
    }
    return view;
}

void stand_for_view(PyObject* value) { as_expr(value)->reserved = kStandsForView; }
bool stands_for_view(PyObject* o) { return is_marked(o, kStandsForView); }

Ref live_view(PyObject* view) {
    const ExprObject& of = *as_expr(view);
    Ref live = make_value(of.value());
    as_expr(live.get())->origin = Py_NewRef(of.origin);
    as_expr(live.get())->reserved = kLive;
    return live;
}
bool is_live_view(PyObject* o) { return is_marked(o, kLive); }

Value* value_of_live(const ExprObject& view) {
    std::vector<Value*> parts;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(view.origin); ++k)
        parts.push_back(to_value(PyTuple_GET_ITEM(view.origin, k)));
    return build(view.type(), parts);
}

void check_view(PyObject* target) {
    if (stands_for_view(target)) throw HoldsTask{};
}

bool assign_special(PyObject* target, PyObject* value) {
    check_view(target);
    if (drops_writes(target)) return true;
    if (!is_view(target)) return false;
    PyObject* places = as_expr(target)->origin;
    Value* v = fit(value, type_of(target), "Assign");
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(places); ++k)
        assign(PyTuple_GET_ITEM(places, k), make_value(component(v, static_cast<int>(k))).get());
    return true;
}

bool assign_op_special(Op op, PyObject* target, PyObject* value) {
    check_view(target);
    if (drops_writes(target)) return true;
    if (!is_view(target)) return false;
    PyObject* places = as_expr(target)->origin;
    if (atomic_of(op) == Op::count_) return assign_special(target, binary(op, target, value).get());
    Value* v = to_value(value);
    if (v->type.rank && v->type.with(type_of(target).prim) != type_of(target))
        unsupported_operands("+=", target, value);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(places); ++k)
        assign_op(op, PyTuple_GET_ITEM(places, k),
                  make_value(v->type.rank ? component(v, static_cast<int>(k)) : v).get());
    return true;
}

// --- indices ------------------------------------------------------------------------------------
Value* index_value(PyObject* o, int position) {
    if (is_expr(o)) {
        Value* v = to_value(o);
        if (v->type.rank || type::is_float(v->type.prim))
            bad_index(type::to_user_string(v->type), position);
        if (v->type.prim == Prim::i32 || v->type.prim == Prim::i64) return v;
        return builder().cast(v, type::bits(v->type.prim) == 64 ? Prim::i64 : Prim::i32);
    }
    if (const auto c = PyLong_Check(o) ? default_literal(o) : static_int(o))
        return builder().int_const(*c == static_cast<int32_t>(*c) ? Prim::i32 : Prim::i64, *c);
    if (is_number(o)) bad_index(type::info(default_float()).name, position);
    bad_index(class_text(o), position);
}

std::vector<Ref> index_list(PyObject* index) {
    std::vector<Ref> out;
    if (index == Py_None) return out;
    if (PyTuple_CheckExact(index) && PyTuple_GET_SIZE(index) == 1 &&
        PyTuple_GET_ITEM(index, 0) == Py_None)
        return out;
    flatten(index, out);
    return out;
}

Ref field_element(FieldObject* f, PyObject* const* indices, size_t n) {
    const ir::Field* field = bind_field(f);
    if (static_cast<size_t>(field->ndim) != n) wrong_count("Field", field->ndim, n);
    Value* operands[16];
    for (size_t k = 0; k < n; ++k) operands[k] = index_value(indices[k], static_cast<int>(k));
    if (current()->kernel->out->derivative) touch_gradient(f, {operands, n});
    if (field->sparse || field->packed)
        current()->kernel->special_fields.try_emplace(field, reinterpret_cast<PyObject*>(f));
    return make_place(
        builder().typed(Op::field_place, field->elem.place(), {operands, n}, 0, field),
        ExprKind::element, true);
}

Ref array_element(ExprObject* array, PyObject* const* indices, size_t n) {
    const Type t = array->type();
    if (static_cast<size_t>(t.ndim) != n) wrong_count("Array", t.ndim, n);
    Value* operands[16] = {array->value()};
    for (size_t k = 0; k < n; ++k) {
        if (const auto c = static_int(indices[k]); c && *c < 0) negative_index();
        operands[k + 1] = index_value(indices[k], static_cast<int>(k));
    }
    return make_place(
        builder().typed(Op::array_place, t.place(), {operands, n + 1}, array->access.pack()),
        ExprKind::element, true);
}

Value* array_extent(PyObject* array, int axis) {
    Value* operands[] = {as_expr(array)->value()};
    return builder().typed(Op::array_shape, type::kI32, operands, static_cast<uint64_t>(axis));
}

// An element of a host matrix counts as the number it holds, not by its width.
Ref python_number(Ref element) {
    if (!is_numpy_scalar(element.get())) return element;
    return numpy_item(element.get());
}

Ref captured_number(const Ref& number) {
    PyObject* o = number.get();
    if (!current() || current()->static_depth) return number;
    if (PyLong_Check(o)) {
        int overflow = 0;
        const long long n = PyLong_AsLongLongAndOverflow(o, &overflow);
        const int bits = type::bits(default_int());
        if (overflow || (bits < 64 && (n >= 1LL << (bits - 1) || n < -(1LL << (bits - 1)))))
            return number;
    } else if (!PyFloat_Check(o)) {
        return number;
    }
    Ref r = make_value(to_value_as(o, PyLong_Check(o) ? default_int() : default_float()));
    as_expr(r.get())->reserved = kCaptured;
    as_expr(r.get())->origin = Py_NewRef(o);
    return r;
}

Ref uncaptured(Ref o) {
    return is_marked(o.get(), kCaptured) ? Ref::borrow(as_expr(o.get())->origin) : std::move(o);
}

// --- entry points -------------------------------------------------------------------------------
Ref subscript(PyObject* base, PyObject* index) {
    if (is_expr(base))
        return as_expr(base)->kind == ExprKind::array ? array_subscript(base, index)
                                                      : tensor_subscript(base, index);
    base = unwrap(base);
    if (is_field(base)) return field_subscript(reinterpret_cast<FieldObject*>(base), index);
    if (is_buffer_view(base)) return buffer_view_subscript(base, index);
    if (is_mesh_relation(base)) return mesh_neighbour(base, index);
    if (is_struct_field(base)) return struct_element(base, index);
    if (is_shared_array(base)) return shared_subscript(base, index);
    if (is_symbolic(index) && (PyList_CheckExact(base) || PyTuple_CheckExact(base)))
        raise(Kind::type,
              std::string("TypeError: ") + Py_TYPE(base)->tp_name +
                  " indices must be known while the kernel is compiled",
              "make it a vector, qd.Vector([...])[i], or loop over it in qd.static");
    if (is_symbolic(index) && is_host_matrix(base)) {
        const Ref tensor = make_value(to_value(base));  // a runtime index makes it a tensor
        return tensor_subscript(tensor.get(), index);
    }
    if (is_host_matrix(base)) {
        const std::vector<Ref> items = index_list(index);
        const Ref shape = Ref::steal(PyObject_CallMethod(base, "get_shape", nullptr));
        bool exists = static_cast<Py_ssize_t>(items.size()) == PyTuple_GET_SIZE(shape.get());
        for (size_t k = 0; k < items.size(); ++k) {
            const auto c = static_int(items[k].get());
            if (c && *c < 0) negative_index();
            exists = exists && c && *c < static_int(PyTuple_GET_ITEM(shape.get(), k)).value_or(0);
        }
        // What is wrong with others, and what slices give, tensors say.
        if (!exists) return tensor_subscript(make_value(to_value(base)).get(), index);
        return python_number(Ref::steal(PyObject_GetItem(base, index)));
    }
    if (PySlice_Check(index)) {
        const auto& s = *reinterpret_cast<PySliceObject*>(index);
        for (PyObject* bound : {s.start, s.stop, s.step})
            if (is_expr(bound)) slice_bound(bound);  // raises
    }
    return Ref::steal(PyObject_GetItem(base, index));
}

Ref attribute(PyObject* base, PyObject* name) {
    if (is_expr(base)) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(name, &size);
        if (!text) throw PyError{};
        const std::string_view word(text, static_cast<size_t>(size));
        if (word.starts_with("__")) return Ref::steal(PyObject_GenericGetAttr(base, name));
        if (as_expr(base)->kind == ExprKind::array) return array_attribute(base, word);
        if (Ref r = tensor_attribute(base, word)) return r;
        const Ref known = tensor_attribute_names(type_of(base));
        const std::string guess = similar_name(name, known.get());
        PyErr_Format(PyExc_AttributeError, "'%s' has no attribute '%U'%s%s",
                     type::to_user_string(type_of(base)).c_str(), name, guess.empty() ? "" : "; ",
                     guess.c_str());
        throw PyError{};
    }
    if (is_buffer_view(base)) return buffer_view_attribute(base, name);
    if (is_struct(base)) return struct_attribute(base, name);
    // A captured vector's methods may get run-time arguments: it becomes a value first.
    if (is_host_matrix(base) && current() && !current()->static_depth) {
        const std::string word = text_of(name);
        if ((is_tensor_method(word) && word != "get_shape" && word != "to_list") || word == "m")
            return tensor_attribute(make_value(to_value(base)).get(), word);
        return python_number(Ref::steal(PyObject_GetAttr(base, name)));  // a component
    }
    return Ref::steal(PyObject_GetAttr(base, name));
}

}  // namespace qd::frontend
