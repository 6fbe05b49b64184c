// BufferView in kernels: a window of a one-dimensional array.
//
// It is a struct value of the array, the first element and the number of elements, so that it goes
// through calls like any struct. Indices are relative; debug mode checks them.

#include "frontend/specialise.h"
#include "frontend/values/structs.h"

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

// "step (swim.py:12)", then the funcs that were entered, each further to the right.
std::string call_stack(const ir::Loc* at) {
    std::vector<const ir::Loc*> frames;
    for (; at; at = at->caller) frames.push_back(at);
    std::string out;
    for (size_t k = frames.size(); k-- > 0;) {
        const ir::Loc& f = *frames[k];
        out += "\n" + std::string(2 * (frames.size() - 1 - k), ' ') + std::string(f.function) +
               " (" + std::string(f.file) + ":" + std::to_string(f.line) + ")";
    }
    return out;
}

void warn_of_long_stack(size_t bytes) {
    constexpr size_t limit = 1024;
    if (bytes <= limit) return;
    const std::string message = "BufferView debug callstack is " + std::to_string(bytes) +
                                " bytes (limit " + std::to_string(limit) +
                                "). Large callstack strings increase compiled binary size.";
    log_or_throw("warn", message);
}

// Debug mode names the calls that led to a failing access. A func is therefore expanded into its
// callers, up to the kernel, or to a real function, which cannot be.
void know_callers() {
    if (!callers_are_known()) throw HoldsTask{};
}

// An assertion whose text has "{}" for each operand shown and "{kernel}" for where it is.
void check(Value* ok, const char* text, std::initializer_list<Value*> shown) {
    Lowering& l = *current();
    ir::Format f;
    std::vector<Value*> operands{ok};
    const auto value = [&](Value* v) {
        f.pieces.push_back({"", '*'});
        operands.push_back(v);
    };
    const auto literal = [&](std::string_view s) {
        if (!s.empty()) f.pieces.push_back({std::string(s), 0});
    };
    auto next = shown.begin();
    bool located = false;
    for (std::string_view rest = text; !rest.empty();) {
        const size_t open = std::min(rest.find('{'), rest.size());
        literal(rest.substr(0, open));
        if (open == rest.size()) break;
        const size_t close = rest.find('}', open);
        if (close == open + 1) {
            value(*next++);
        } else {
            literal("kernel[" + kernel_function_name() + "] tid=");
            value(l.b.typed(Op::thread_index, type::kI32, {}));
            located = true;
        }
        rest.remove_prefix(close + 1);
    }
    if (located) {
        const std::string stack = call_stack(l.b.loc);
        warn_of_long_stack(stack.size());
        literal("\nCallstack:" + stack);
    }
    builder().emit(Op::assert_, operands, {})->ref = own_format(std::move(f));
}

bool checked() {
    if (!current()->kernel->options.debug) return false;
    know_callers();
    return true;
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

Value* inside(Value* start, Value* size, Value* extent) {
    ir::Builder& b = builder();
    Value* positive = b.op(Op::ge, {b.op(Op::min, {start, size}), constant(0)});
    // Not start + size <= extent: the sum of two large numbers wraps.
    Value* room = b.op(Op::le, {size, b.op(Op::sub, {extent, start})});
    return b.op(Op::bit_and, {positive, room});
}

// The window of `size` elements from `start` on inside another window.
Ref narrowed(const View& v, Value* start, Value* size) {
    ir::Builder& b = builder();
    if (checked())
        check(
            inside(start, size, v.size),
            "BufferView subview Out Of Range: {kernel}, subview offset={}, subview size={}, parent "
            "size={}.",
            {start, size, v.size});
    return make_buffer_view(v.array, b.op(Op::add, {v.offset, start}), size);
}

}  // namespace

PyObject* buffer_view_mark() {
    static PyObject* const mark = PyUnicode_InternFromString("<BufferView>");
    return mark;
}

Ref make_buffer_view(PyObject* array, Value* offset, Value* size) {
    if (!is_expr(array) || as_expr(array)->kind != ExprKind::array ||
        as_expr(array)->type().ndim != 1)
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
    if (checked())
        check(b.op(Op::bit_and, {b.op(Op::ge, {i, constant(0)}), b.op(Op::lt, {i, v.size})}),
              "BufferView Out Of Range: {kernel}, got index {} (offset={}, size={}).",
              {i, v.offset, v.size});
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
    if (current()->kernel->options.debug) {
        Value* extent = array_extent(array, 0);
        check(inside(from, count, extent),
              "BufferView construction out of range: offset={}, size={}, ndarray length={}.",
              {from, count, extent});
    }
    return make_buffer_view(array, from, count);
}

}  // namespace qd::frontend
