// Vectors and matrices: construction from parts, attributes, swizzles.

#include "frontend/source/stack.h"
#include "frontend/values/structs.h"

#include <cstring>

namespace qd::frontend {
namespace {

// --- construction -------------------------------------------------------------------------------
bool is_row(PyObject* o) { return PyList_Check(o) || (PyTuple_Check(o) && !is_number(o)); }

[[noreturn]] void bad_element() {
    raise(Kind::type, "Element type of the matrix is invalid.",
          "elements are numbers; use qd.Matrix.rows or qd.Matrix.cols for vectors");
}

// The primitive an element would have; literals count as the default types.
Prim element_prim(PyObject* o) {
    if (is_expr(o)) {
        if (as_expr(o)->kind == ExprKind::array || type_of(o).rank) bad_element();
        return type_of(o).prim;
    }
    if (PyFloat_Check(o)) return default_float();
    if (PyLong_Check(o)) return default_int();
    if (!is_number(o)) bad_element();
    return to_value(o)->type.prim == Prim::u1 ? default_int() : to_value(o)->type.prim;
}

struct Literal {
    std::vector<PyObject*> elements;  // borrowed, row-major
    int rank = 1, n = 0, m = 1;
};

Literal elements_of(std::span<const Ref> items) {
    Literal l;
    l.n = static_cast<int>(items.size());
    if (items.empty()) raise(Kind::type, "a vector needs at least one element");
    const bool matrix = is_row(items[0].get());
    if (matrix) l.rank = 2, l.m = static_cast<int>(PySequence_Fast_GET_SIZE(items[0].get()));
    for (const Ref& item : items) {
        PyObject* o = item.get();
        if (is_row(o) != matrix) bad_element();
        if (!matrix) {
            l.elements.push_back(o);
            continue;
        }
        if (PySequence_Fast_GET_SIZE(o) != l.m || l.m == 0)
            raise(Kind::type, "all rows of a matrix must have the same number of elements");
        for (Py_ssize_t k = 0; k < l.m; ++k) l.elements.push_back(PySequence_Fast_GET_ITEM(o, k));
    }
    return l;
}

void append_components(PyObject* o, Prim p, std::vector<Value*>& out) {
    need_stack();
    if (is_row(o)) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            append_components(PySequence_Fast_GET_ITEM(o, k), p, out);
        return;
    }
    if (PyRange_Check(o)) return append_components(Ref::steal(PySequence_List(o)).get(), p, out);
    if (!is_expr(o) && !is_number(o) && !is_host_matrix(o) &&
        has_attribute(o, "tolist")) {  // NumPy array
        const Ref list = Ref::steal(PyObject_CallMethod(o, "tolist", nullptr));
        return append_components(list.get(), p, out);
    }
    Value* v = to_value_as(o, p);
    for (Value* part : components(v)) out.push_back(part);
}

// --- swizzles -----------------------------------------------------------------------------------
constexpr std::string_view kAlphabets[] = {"xyzw", "rgba", "stpq"};

const std::string_view* alphabet_of(std::string_view word) {
    if (word.empty() || word.size() > 4) return nullptr;
    for (const std::string_view& alphabet : kAlphabets)
        if (word.find_first_not_of(alphabet) == word.npos) return &alphabet;
    return nullptr;
}

std::string quoted(std::string_view letters) {
    std::string text = "(";
    for (size_t k = 0; k < letters.size(); ++k)
        text += std::string(k ? ", " : "") + "'" + letters[k] + "'";
    return text + (letters.size() == 1 ? ",)" : ")");
}

Ref swizzle(PyObject* self, Type t, std::string_view word, std::string_view alphabet) {
    if (t.rank == 2) raise(Kind::index, "Expected 2 indices, got 1");
    const std::string_view letters = alphabet.substr(0, t.n);
    if (word.find_first_not_of(letters) != word.npos)
        raise(Kind::syntax, "vec" + std::to_string(t.n) + " only has attributes=" +
                                quoted(letters) + ", got=" + quoted(word));
    static PyObject* const numbers[] = {PyLong_FromLong(0), PyLong_FromLong(1), PyLong_FromLong(2),
                                        PyLong_FromLong(3)};
    if (word.size() == 1) return subscript(self, numbers[letters.find(word[0])]);
    std::vector<Ref> parts;
    for (char c : word) parts.push_back(subscript(self, numbers[letters.find(c)]));
    return make_view(Type::vector(t.prim, static_cast<int>(word.size())), parts);
}

// --- attributes ---------------------------------------------------------------------------------
const char* const kMethods[] = {
    "Matrix.dot",      "Matrix.cross",      "Matrix.norm",          "Matrix.norm_sqr",
    "Matrix.norm_inv", "Matrix.normalized", "Matrix.outer_product", "Matrix.frobenius_inner",
    "Matrix.trace",    "Matrix.transpose",  "Matrix.determinant",   "Matrix.inverse",
    "Matrix.sum",      "Matrix.min",        "Matrix.max",           "Matrix.any",
    "Matrix.all",      "Matrix.cast",       "Matrix.fill",          "Matrix.get_shape",
    "Matrix.to_list",
};

const char* method_of(std::string_view name) {
    for (const char* method : kMethods)
        if (name == method + sizeof("Matrix.") - 1) return method;
    return nullptr;
}

Ref shape_tuple(Type t) {
    return Ref::steal(t.rank == 1 ? Py_BuildValue("(i)", int(t.n))
                                  : Py_BuildValue("(ii)", int(t.n), int(t.m)));
}

}  // namespace

Value* tensor_of_items(std::span<const Ref> items) {
    const Literal l = elements_of(items);
    Prim p = element_prim(l.elements[0]);
    for (PyObject* e : l.elements) p = type::promote(p, element_prim(e));
    if (l.elements.size() == 1) p = element_prim(l.elements[0]);
    std::vector<Value*> parts;
    for (PyObject* e : l.elements) parts.push_back(to_value_as(e, p));
    return build(l.rank == 1 ? Type::vector(p, l.n) : Type::matrix(p, l.n, l.m), parts);
}

Value* tensor_of_items_as(std::span<const Ref> items, Prim p) {
    const Literal l = elements_of(items);
    std::vector<Value*> parts;
    for (PyObject* e : l.elements) {
        if (is_expr(e) ? type_of(e).rank > 0 : !is_number(e)) bad_element();
        parts.push_back(to_value_as(e, p));
    }
    return build(l.rank == 1 ? Type::vector(p, l.n) : Type::matrix(p, l.n, l.m), parts);
}

Value* typed_tensor(Type t, std::span<const Ref> args) {
    std::vector<Value*> parts;
    for (const Ref& a : args) append_components(a.get(), t.prim, parts);
    if (parts.size() == 1 && args.size() == 1 && t.count() > 1) {
        PyObject* only = args[0].get();
        if (is_expr(only) ? type_of(only).rank == 0 : is_number(only))
            return broadcast(parts[0], t);
    }
    if (static_cast<int>(parts.size()) != t.count())
        raise(Kind::type, "Incompatible arguments for a " + type::to_user_string(t) +
                              ": it needs " + std::to_string(t.count()) + " components, got " +
                              std::to_string(parts.size()));
    return build(t, parts);
}

Ref tensor_attribute(PyObject* self, std::string_view name) {
    const Type t = type_of(self);
    if (name == "dtype") return dtype_object(t.prim);
    if (!t.rank) return {};
    if (const std::string_view* alphabet = alphabet_of(name))
        return swizzle(self, t, name, *alphabet);
    if (name == "n") return Ref::steal(PyLong_FromLong(t.n));
    if (name == "m") {
        if (t.rank == 1) raise(Kind::compilation, "a vector has no attribute 'm'");
        return Ref::steal(PyLong_FromLong(t.m));
    }
    if (name == "ndim") return Ref::steal(PyLong_FromLong(t.rank));
    if (name == "shape") return shape_tuple(t);
    const char* method = method_of(name);
    return method ? make_bound(self, method) : Ref();
}

Ref tensor_attribute_names(Type t) {
    const Ref list = Ref::steal(PyList_New(0));
    const auto add = [&](const char* name) {
        PyList_Append(list.get(), Ref::steal(PyUnicode_FromString(name)).get());
    };
    add("dtype");
    if (!t.rank) return list;
    for (const char* method : kMethods) add(method + sizeof("Matrix.") - 1);
    for (const char* name : {"n", "m", "ndim", "shape"}) add(name);
    return list;
}

bool is_tensor_method(std::string_view name) { return method_of(name) != nullptr; }

}  // namespace qd::frontend
