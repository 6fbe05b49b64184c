// BufferView in kernels: a window of a one-dimensional array.
//
// It is a struct value of the array, the first element and the number of elements, so that it goes
// through calls like any struct. Indices are relative; debug mode checks them.

#include "frontend/specialise.h"
#include "frontend/structs.h"

namespace qd::frontend {
namespace {

struct View {
    PyObject* array;  // borrowed from the members
    Value *offset, *size;
};

PyObject* member(PyObject* view, const char* name) {
    PyObject* o = PyDict_GetItemString(reinterpret_cast<StructObject*>(view)->members, name);
    if (!o) raise(Kind::compilation, std::string("a BufferView without ") + name);
    return o;
}

View parts_of(PyObject* view) {
    return {member(view, "arr"), to_value(member(view, "offset")), to_value(member(view, "size"))};
}

Value* i32(Value* v) { return builder().cast(v, Prim::i32); }
Value* constant(int64_t v) { return builder().int_const(Prim::i32, v); }

// "<text> Out Of Range ...": the failing index or range beside the window.
void check(Value* ok, const char* what, const char* got, std::initializer_list<Value*> shown,
           const View& v) {
    if (!current()->kernel->options.debug) return;
    ir::Format f;
    f.pieces.push_back(
        {std::string(what) + ": kernel[" + current()->kernel->module->name + "], got " + got + " ",
         0});
    std::vector<Value*> operands{ok};
    for (Value* s : shown) {
        if (operands.size() > 1) f.pieces.push_back({", ", 0});
        f.pieces.push_back({"", '*'});
        operands.push_back(s);
    }
    f.pieces.push_back({" (offset=", 0});
    f.pieces.push_back({"", '*'});
    f.pieces.push_back({", size=", 0});
    f.pieces.push_back({"", '*'});
    f.pieces.push_back({").", 0});
    operands.push_back(v.offset);
    operands.push_back(v.size);
    builder().emit(Op::assert_, operands, {})->ref = own_format(std::move(f));
}

// begin and end of a slice with no step, relative to a window of `size` elements.
std::pair<Value*, Value*> slice_range(PyObject* slice, Value* size) {
    const auto& s = *reinterpret_cast<PySliceObject*>(slice);
    if (s.step != Py_None) raise(Kind::syntax, "a BufferView slice takes no explicit step");
    auto bound = [&](PyObject* o, Value* fallback) {
        if (o == Py_None) return fallback;
        if (const auto c = static_int(o); c && *c < 0)
            raise(Kind::syntax, "Negative indices are not supported in Quadrants kernels.");
        return i32(index_value(o, 0));
    };
    return {bound(s.start, constant(0)), bound(s.stop, size)};
}

// The window of `size` elements from `start` on inside another window.
Ref narrowed(const View& v, Value* start, Value* size) {
    ir::Builder& b = builder();
    Value* end = b.op(Op::add, {start, size});
    Value* low = b.op(Op::ge, {start, constant(0)});
    Value* high =
        b.op(Op::bit_and, {b.op(Op::ge, {size, constant(0)}), b.op(Op::le, {end, v.size})});
    check(b.op(Op::bit_and, {low, high}), "BufferView subview Out Of Range", "subview",
          {start, size}, v);
    return make_buffer_view(v.array, b.op(Op::add, {v.offset, start}), size);
}

}  // namespace

PyObject* buffer_view_mark() {
    static PyObject* const mark = PyUnicode_InternFromString("<BufferView>");
    return mark;
}

Ref make_buffer_view(PyObject* array, Value* offset, Value* size) {
    if (!is_expr(array) || as_expr(array)->kind != ExprKind::array ||
        as_expr(array)->value->type.ndim != 1)
        raise(Kind::type, "a BufferView needs a 1D ndarray");
    const Ref members = Ref::steal(PyDict_New());
    auto put = [&](const char* name, PyObject* value) {
        if (PyDict_SetItemString(members.get(), name, value) < 0) throw PyError{};
    };
    put("arr", array);
    put("offset", make_value(i32(offset)).get());
    put("size", make_value(i32(size)).get());
    return make_struct(buffer_view_mark(), members.get());
}

Ref buffer_view_slice(PyObject* array, PyObject* slice) {
    Value* extent = array_extent(array, 0);
    const auto [begin, end] = slice_range(slice, extent);
    return narrowed({array, constant(0), extent}, begin, builder().op(Op::sub, {end, begin}));
}

Ref buffer_view_subscript(PyObject* view, PyObject* index) {
    const View v = parts_of(view);
    ir::Builder& b = builder();
    if (PySlice_Check(index)) {
        const auto [begin, end] = slice_range(index, v.size);
        return narrowed(v, begin, b.op(Op::sub, {end, begin}));
    }
    const std::vector<Ref> items = index_list(index);
    if (items.size() != 1)
        raise(Kind::index,
              "Array with dim 1 accessed with indices of dim " + std::to_string(items.size()));
    if (const auto c = static_int(items[0].get()); c && *c < 0)
        raise(Kind::syntax, "Negative indices are not supported in Quadrants kernels.");
    Value* i = i32(index_value(items[0].get(), 0));
    check(b.op(Op::bit_and, {b.op(Op::ge, {i, constant(0)}), b.op(Op::lt, {i, v.size})}),
          "BufferView Out Of Range", "index", {i}, v);
    const Ref at = make_value(b.op(Op::add, {v.offset, i}));
    PyObject* raw[] = {at.get()};
    return array_element(as_expr(v.array), raw, 1);
}

Ref buffer_view_attribute(PyObject* view, PyObject* name) {
    const std::string word = text_of(name);
    if (word == "size" || word == "offset" || word == "arr")
        return Ref::borrow(member(view, word.c_str()));
    if (word == "shape") return Ref::steal(PyTuple_Pack(1, member(view, "size")));
    if (word == "subview") return make_bound(view, "BufferView.subview");
    if (word == "get_ndarray") return make_bound(view, "BufferView.get_ndarray");
    if (word.starts_with("__")) return Ref::steal(PyObject_GenericGetAttr(view, name));
    PyErr_Format(PyExc_AttributeError, "a BufferView has no attribute '%U'", name);
    throw PyError{};
}

Ref buffer_view_of(PyObject* array, PyObject* offset, PyObject* size) {
    Value* from = i32(index_value(offset, 0));
    Value* count = i32(index_value(size, 1));
    if (is_buffer_view(array)) return narrowed(parts_of(array), from, count);
    if (!is_expr(array) || as_expr(array)->kind != ExprKind::array)
        raise(Kind::type, "a BufferView needs a 1D ndarray");
    Value* extent = array_extent(array, 0);
    ir::Builder& b = builder();
    Value* positive = b.op(Op::ge, {b.op(Op::min, {from, count}), constant(0)});
    Value* inside =
        b.op(Op::bit_and, {positive, b.op(Op::le, {b.op(Op::add, {from, count}), extent})});
    check(inside, "BufferView construction out of range", "view", {from, count},
          {array, constant(0), extent});
    return make_buffer_view(array, from, count);
}

}  // namespace qd::frontend
