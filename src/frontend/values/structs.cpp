// Struct values in kernels: construction, members, methods; and what the Python side's type objects
// mean (dtypes, vector and matrix types, struct types).
//
// A struct never exists in the IR: it is a dict of members, each of which is a value or a place.

#include "frontend/values/structs.h"

#include <unordered_map>

#include "cpython/entry.h"
#include "frontend/source/stack.h"
#include "frontend/specialise.h"

namespace qd::frontend {
namespace {

struct Words {
    PyObject *members, *methods, *groups, *field_dict, *struct_methods, *struct_type, *n, *m, *ndim,
        *dtype, *entries;
};
const Words& words() {
    static const Words w = [] {
        auto in = [](const char* s) { return PyUnicode_InternFromString(s); };
        return Words{in("members"),
                     in("methods"),
                     in("_unpacked_groups"),
                     in("field_dict"),
                     in("struct_methods"),
                     in("struct_type"),
                     in("n"),
                     in("m"),
                     in("ndim"),
                     in("dtype"),
                     in("entries")};
    }();
    return w;
}

// The attribute or a null Ref; other errors than AttributeError pass.
Ref optional_attribute(PyObject* o, PyObject* name) {
    Ref r = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (r) return r;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PyError{};
    forget_error();
    return r;
}

StructObject* as_struct(PyObject* o) { return reinterpret_cast<StructObject*>(o); }

void put(PyObject* dict, PyObject* key, const Ref& value) {
    if (PyDict_SetItem(dict, key, value.get()) < 0) throw PyError{};
}

// Facts of type objects hold while the default types do: `float` in a type means default_fp.
struct Defaults {
    Prim ip = Prim::none, fp = Prim::none;
    bool operator==(const Defaults&) const = default;
    static Defaults now() { return {default_int(), default_float()}; }
};

// Types of a struct type's members by name.
PyObject* members_of(PyObject* struct_type) {
    struct Entry {
        Ref type, members;
        Defaults defaults;
    };
    static auto& cache = *new std::unordered_map<PyObject*, Entry>;  // outlives static destruction,
                                                                     // as the interpreter does
    Entry& e = cache[struct_type];
    if (!e.type || !(e.defaults == Defaults::now())) {
        Ref members = Ref::steal(PyObject_GetAttr(struct_type, words().members));
        if (!PyDict_Check(members.get()))
            raise(Kind::type, "a struct type's members must be a dict");
        e = {Ref::borrow(struct_type), std::move(members), Defaults::now()};
    }
    return e.members.get();
}

Ref adhoc_member(PyObject* value) {
    if (is_struct(value)) return Ref::borrow(value);
    if (is_expr(value)) return to_rvalue(value);
    if (PyList_Check(value) || PyTuple_Check(value)) return make_value(to_value(value));
    if (is_host_struct(value)) return struct_of_host(value);
    if (!PyDict_Check(value)) return Ref::borrow(value);
    CallArgs nested;
    nested.positional.push_back(Ref::borrow(value));
    return make_adhoc_struct(nested);
}

// Member values by name, from a dict, a struct value or a host struct; null if it is none of them.
Ref named_members(PyObject* value) {
    if (PyDict_Check(value)) return Ref::borrow(value);
    if (is_struct(value)) return Ref::borrow(as_struct(value)->members);
    if (is_host_struct(value)) return Ref::borrow(as_struct(struct_of_host(value).get())->members);
    return {};
}

}  // namespace

PyTypeObject* python_class(const char* module, const char* name, PyTypeObject*& cache) {
    if (!cache) {
        PyObject* m = PyDict_GetItem(PyImport_GetModuleDict(), interned(module).get());
        if (!m) return nullptr;  // not loaded: there are no instances
        cache = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(m, name));
        if (!cache) forget_error();
    }
    return cache;
}

bool is_instance(PyObject* o, const char* module, const char* name, PyTypeObject*& cache) {
    if (is_expr(o)) return false;
    PyTypeObject* t = python_class(module, name, cache);
    return t && PyObject_TypeCheck(o, t);
}

Ref attribute_of(PyObject* o, const char* name) {
    return Ref::steal(PyObject_GetAttr(o, interned(name).get()));
}

bool is_struct_field(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, "quadrants.lang.field", "StructField", cache);
}
bool is_host_struct(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, "quadrants.lang.struct", "Struct", cache);
}
bool is_struct_type_object(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, "quadrants.lang.struct", "StructType", cache);
}
bool is_tensor_type_object(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, "quadrants.lang._values.matrix_types", "MatrixType", cache);
}
bool is_dtype_object(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, "quadrants.types.primitive_types", "DataType", cache);
}

Ref dtype_object(Prim p) {
    static PyObject* all;
    if (!all) {
        const Ref module = Ref::steal(PyImport_ImportModule("quadrants.types.primitive_types"));
        all = Ref::steal(PyObject_GetAttrString(module.get(), "PRIMITIVES")).release();
    }
    return Ref::borrow(PyTuple_GET_ITEM(all, static_cast<Py_ssize_t>(p)));
}

Type tensor_type_of_object(PyObject* o) {
    struct Entry {
        Ref object;
        Type type;
        Defaults defaults;
    };
    static auto& cache = *new std::unordered_map<PyObject*, Entry>;
    Entry& e = cache[o];
    if (e.object && e.defaults == Defaults::now()) return e.type;
    const Words& w = words();
    const Ref n = Ref::steal(PyObject_GetAttr(o, w.n)), m = Ref::steal(PyObject_GetAttr(o, w.m));
    const Ref ndim = Ref::steal(PyObject_GetAttr(o, w.ndim)),
              dtype = Ref::steal(PyObject_GetAttr(o, w.dtype));
    const auto prim = dtype.get() == Py_None ? std::nullopt : prim_of_dtype(dtype.get());
    const bool vector = PyLong_AsLong(ndim.get()) == 1;
    if (!prim || n.get() == Py_None || (!vector && m.get() == Py_None))
        raise(Kind::type, "a type with open sizes or dtype has no values", "give n, m and dtype");
    const int rows = static_cast<int>(PyLong_AsLong(n.get()));
    const Type t = vector ? Type::vector(*prim, rows)
                          : Type::matrix(*prim, rows, static_cast<int>(PyLong_AsLong(m.get())));
    e = {Ref::borrow(o), t, Defaults::now()};
    return t;
}

// --- construction -------------------------------------------------------------------------------
namespace {
std::string names_of(PyObject* members) {
    std::string out;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(members, &at, &key, &value);)
        out += (out.empty() ? "" : ", ") + text_of(key);
    return out.empty() ? "none" : out;
}

// A struct or dict for a struct type: it has the type's members, in any order, and no others.
CallArgs by_name(PyObject* struct_type, PyObject* named) {
    static PyObject* const hidden = PyUnicode_InternFromString("__struct_methods");
    PyObject* types = members_of(struct_type);
    CallArgs args;
    bool known = true;
    PyObject *key, *member;
    for (Py_ssize_t at = 0; PyDict_Next(named, &at, &key, &member);) {
        if (PyUnicode_Check(key) && PyUnicode_Compare(key, hidden) == 0) continue;
        known &= PyUnicode_Check(key) && PyDict_GetItemWithError(types, key);
        args.keywords.emplace_back(Ref::borrow(key), Ref::borrow(member));
    }
    if (!known || static_cast<Py_ssize_t>(args.keywords.size()) != PyDict_Size(types))
        raise(Kind::syntax, "Incompatible arguments for custom struct members!",
              "members " + names_of(types) + " are needed, got " + names_of(named));
    return args;
}

bool has_named_members(PyObject* o) { return PyDict_Check(o) || is_struct(o) || is_host_struct(o); }

// How deep lists are nested: 2 in a matrix, and more where structs are in them.
int depth_of(PyObject* value) {
    need_stack();
    if (is_expr(value)) return type_of(value).rank;
    if (is_host_matrix(value))
        return static_cast<int>(
            PyLong_AsLong(Ref::steal(PyObject_GetAttr(value, words().ndim)).get()));
    if (!PyList_Check(value) && !PyTuple_Check(value)) return has_named_members(value) ? 2 : 0;
    int deepest = 0;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); ++k)
        deepest = std::max(deepest, depth_of(PySequence_Fast_GET_ITEM(value, k)));
    return 1 + deepest;
}

// Whether a list given for a member of this type has that struct's members. It is one value
// otherwise, for the first one, as a vector is.
bool are_members(PyObject* struct_type, PyObject* value) {
    if (!PyList_Check(value) && !PyTuple_Check(value)) return false;
    PyObject *name, *first = struct_type;
    while (first && is_struct_type_object(first)) {
        Py_ssize_t at = 0;
        if (!PyDict_Next(members_of(first), &at, &name, &first)) first = nullptr;
    }
    return !first || !is_tensor_type_object(first) || depth_of(value) > 2;
}
}  // namespace

Ref cast_to_member(PyObject* type, PyObject* value) {
    if (is_tensor_type_object(type)) {
        const Ref one[] = {Ref::borrow(value)};
        return make_value(typed_tensor(tensor_type_of_object(type), one));
    }
    if (is_struct_type_object(type)) {
        if (const Ref named = named_members(value))
            return make_typed_struct(type, by_name(type, named.get()));
        CallArgs args;
        if (are_members(type, value)) {
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); ++k)
                args.positional.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(value, k)));
        } else {
            args.positional.push_back(Ref::borrow(value));  // for the first member
        }
        return make_typed_struct(type, args);
    }
    const auto prim = prim_of_dtype(type);
    if (!prim) raise(Kind::type, "'" + text_of(type) + "' is not a member type");
    if (has_named_members(value))
        raise(Kind::type,
              "a number is expected for a member of type " + std::string(type::info(*prim).name),
              "give one of its members, or declare the member by a struct type");
    Value* v = to_value_as(value, *prim);
    if (v->type.rank)
        raise(Kind::type, "cannot assign '" + type::to_user_string(v->type) + "' to '" +
                              type::info(*prim).name + "'");
    return make_value(v);
}

Ref make_typed_struct(PyObject* struct_type, const CallArgs& args) {
    PyObject* types = members_of(struct_type);
    const Ref keep = Ref::borrow(types);
    const Ref members = Ref::steal(PyDict_New());
    static PyObject* const zero = PyLong_FromLong(0);
    PyObject *name, *type;
    Py_ssize_t at = 0;
    size_t k = 0;
    while (PyDict_Next(types, &at, &name, &type)) {
        PyObject* given = zero;
        for (const auto& [key, value] : args.keywords)
            if (key.get() == name || PyUnicode_Compare(key.get(), name) == 0) given = value.get();
        if (k < args.positional.size()) given = args.positional[k].get();
        ++k;
        put(members.get(), name, cast_to_member(type, given));
    }
    return make_struct(struct_type, members.get());
}

Ref make_adhoc_struct(const CallArgs& args) {
    const Ref members = Ref::steal(PyDict_New());
    auto add = [&](PyObject* key, PyObject* value) {
        put(members.get(), key, adhoc_member(value));
    };
    const Ref named = args.positional.size() == 1 && args.keywords.empty()
                          ? named_members(args.positional[0].get())
                          : Ref();
    if (named) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(named.get(), &at, &key, &value)) add(key, value);
    } else if (!args.positional.empty()) {
        raise(Kind::syntax,
              "Custom structs need to be initialized using either dictionary or keyword arguments");
    } else {
        for (const auto& [key, value] : args.keywords) add(key.get(), value.get());
    }
    static PyObject* const hidden = PyUnicode_InternFromString("__struct_methods");
    const Ref methods = Ref::borrow(PyDict_GetItemWithError(members.get(), hidden));
    if (!methods) return make_struct(Py_None, members.get());
    if (PyDict_DelItem(members.get(), hidden) < 0) throw PyError{};
    return make_struct(methods.get(), members.get());
}

Ref struct_of_host(PyObject* host) {
    const Ref entries = Ref::steal(PyObject_GetAttr(host, words().entries));
    const Ref members = Ref::steal(PyDict_New());
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(entries.get(), &at, &key, &value))
        put(members.get(), key, is_host_struct(value) ? struct_of_host(value) : Ref::borrow(value));
    static PyObject* const name = PyUnicode_InternFromString("_methods");
    const Ref methods = optional_attribute(reinterpret_cast<PyObject*>(Py_TYPE(host)), name);
    return make_struct(methods ? methods.get() : Py_None, members.get());
}

// --- elements of struct fields ------------------------------------------------------------------
namespace {
Ref element_of(PyObject* field, PyObject* const* indices, size_t n) {
    field = unwrap(field);
    if (is_field(field)) return field_element(reinterpret_cast<FieldObject*>(field), indices, n);
    if (!is_struct_field(field))
        raise(Kind::type,
              "'" + text_of(reinterpret_cast<PyObject*>(Py_TYPE(field))) + "' is not a field");
    const Ref fields = Ref::steal(PyObject_GetAttr(field, words().field_dict));
    const Ref members = Ref::steal(PyDict_New());
    PyObject *key, *member;
    Py_ssize_t at = 0;
    while (PyDict_Next(fields.get(), &at, &key, &member))
        put(members.get(), key, element_of(member, indices, n));
    const Ref type = optional_attribute(field, words().struct_type);
    return make_struct(type && type.get() != Py_None ? type.get() : field, members.get());
}
}  // namespace

Ref struct_element(PyObject* struct_field, PyObject* index) {
    const std::vector<Ref> items = index_list(index);
    PyObject* raw[16];
    std::vector<Ref> values;  // evaluated once for all members
    const size_t n = std::min<size_t>(items.size(), 16);
    for (size_t k = 0; k < n; ++k) {
        if (PySlice_Check(items[k].get()))
            raise(Kind::syntax, "The type " +
                                    text_of(reinterpret_cast<PyObject*>(Py_TYPE(struct_field))) +
                                    " do not support index of slice type");
        values.push_back(make_value(index_value(items[k].get(), static_cast<int>(k))));
        raw[k] = values.back().get();
    }
    return element_of(struct_field, raw, n);
}

// --- members ------------------------------------------------------------------------------------
namespace {
PyObject* dict_item(const Ref& dict, PyObject* key) {
    if (!dict || !PyDict_Check(dict.get())) return nullptr;
    PyObject* item = PyDict_GetItemWithError(dict.get(), key);
    if (!item && PyErr_Occurred()) throw PyError{};
    return item;
}

Ref methods_of(PyObject* type) {
    if (type == Py_None) return {};
    if (PyDict_Check(type)) return Ref::borrow(type);
    return optional_attribute(type,
                              is_struct_field(type) ? words().struct_methods : words().methods);
}

// s.to_dict(): members by name, nested structs as dicts, vectors and matrices as lists.
Ref dict_of(PyObject* o, bool with_methods) {
    if (is_expr(o) && type_of(o).is_tensor()) {
        CallArgs args;
        args.positional = {Ref::borrow(o)};
        return call_builtin("Matrix.to_list", args);
    }
    if (!is_struct(o)) return Ref::borrow(o);
    const StructObject& s = *as_struct(o);
    Ref out = Ref::steal(PyDict_New());
    PyObject *key, *member;
    Py_ssize_t at = 0;
    while (PyDict_Next(s.members, &at, &key, &member))
        put(out.get(), key, dict_of(member, with_methods));
    if (with_methods) {
        static PyObject* const name = PyUnicode_InternFromString("__struct_methods");
        const Ref methods = methods_of(s.type);
        put(out.get(), name, methods ? methods : Ref::steal(PyDict_New()));
    }
    return out;
}

PyObject* to_dict(PyObject* self, PyObject* args, PyObject* keywords) {
    static const char* const names[] = {"include_methods", "include_ndim", nullptr};
    int with_methods = 0, with_ranks = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|pp:to_dict", const_cast<char**>(names),
                                     &with_methods, &with_ranks))
        return nullptr;
    try {
        Ref out = dict_of(self, with_methods);
        if (with_ranks) {
            const Ref ranks = Ref::steal(PyDict_New());
            PyObject *key, *member;
            Py_ssize_t at = 0;
            while (PyDict_Next(as_struct(self)->members, &at, &key, &member))
                if (is_expr(member) && type_of(member).is_tensor())
                    put(ranks.get(), key, Ref::steal(PyLong_FromLong(type_of(member).rank)));
            if (PyDict_SetItemString(out.get(), "__matrix_ndim", ranks.get()) < 0) return nullptr;
        }
        return out.release();
    } catch (const Diag& d) {
        set_python_error(d);
    } catch (const PyError&) {
    }
    return nullptr;
}

Ref unpacked_view(PyObject* self, PyObject* name, PyObject* group) {
    const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang.struct"));
    return Ref::steal(PyObject_CallMethod(module.get(), "UnpackedView", "OOO", self, name,
                                          PyTuple_GET_ITEM(group, 0)));
}
}  // namespace

Ref struct_attribute(PyObject* self, PyObject* name) {
    StructObject& s = *as_struct(self);
    if (PyObject* member = PyDict_GetItemWithError(s.members, name)) return Ref::borrow(member);
    if (PyErr_Occurred()) throw PyError{};
    if (Ref found = mesh_attribute(self, name)) return found;
    const Ref methods = methods_of(s.type);
    if (PyObject* method = dict_item(methods, name)) {
        if (PyObject_TypeCheck(method, &PyStaticMethod_Type))
            return Ref::steal(PyObject_GetAttrString(method, "__func__"));
        return Ref::steal(PyMethod_New(method, self));
    }
    if (s.type != Py_None && !PyDict_Check(s.type)) {
        const Ref groups = optional_attribute(s.type, words().groups);
        if (PyObject* group = dict_item(groups, name)) return unpacked_view(self, name, group);
    }
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name, &size);
    if (!text) throw PyError{};
    const std::string_view word(text, static_cast<size_t>(size));
    if (word == "keys") return Ref::steal(PyDict_Keys(s.members));
    if (word == "items") return Ref::steal(PyDict_Items(s.members));
    if (word == "entries") return Ref::borrow(s.members);
    if (word == "methods" && methods) return methods;
    if (word == "to_dict") {
        static PyMethodDef definition = {"to_dict", entry<to_dict>, METH_VARARGS | METH_KEYWORDS,
                                         nullptr};
        return Ref::steal(PyCFunction_New(&definition, self));
    }
    if (word.starts_with("__")) return Ref::steal(PyObject_GenericGetAttr(self, name));
    const std::string guess = similar_name(name, s.members);
    PyErr_Format(PyExc_AttributeError, "the struct has no member '%U'%s%s", name,
                 guess.empty() ? "" : "; ", guess.c_str());
    throw PyError{};
}

// --- returned structs ---------------------------------------------------------------------------
namespace {
Type member_type(PyObject* item) {
    return is_expr(item) ? as_expr(item)->value()->type.value() : to_value(item)->type;
}

std::string struct_text(PyObject* value) {
    std::string out;
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(as_struct(value)->members, &at, &key, &item);)
        out += (out.empty() ? " " : ", ") + text_of(key) + "=" +
               (is_struct(item) ? struct_text(item) : type::to_user_string(member_type(item)));
    return "<qd.Struct" + out + ">";
}

// Whether a struct value has the members of a struct type: names, order and types.
bool is_of_struct_type(PyObject* struct_type, PyObject* value) {
    if (!is_struct(value)) return false;
    PyObject *members = members_of(struct_type), *given = as_struct(value)->members;
    if (PyDict_Size(given) != PyDict_Size(members)) return false;
    PyObject *key, *type, *name, *item;
    for (Py_ssize_t at = 0, other = 0; PyDict_Next(members, &at, &key, &type);) {
        if (!PyDict_Next(given, &other, &name, &item) || PyUnicode_Compare(key, name)) return false;
        if (is_struct_type_object(type)) {
            if (!is_of_struct_type(type, item)) return false;
        } else if (is_struct(item)) {
            return false;
        } else {
            const auto prim = prim_of_dtype(type);
            if (member_type(item) != (prim ? Type::scalar(*prim) : tensor_type_of_object(type)))
                return false;
        }
    }
    return true;
}
}  // namespace

void check_returned_struct(PyObject* struct_type, PyObject* value) {
    if (!is_of_struct_type(struct_type, value))
        raise(Kind::runtime_type,
              "Return (type=" +
                  (is_struct(value) ? struct_text(value)
                                    : text_of(reinterpret_cast<PyObject*>(Py_TYPE(value)))) +
                  ") cannot be converted into required type " + text_of(struct_type));
}

}  // namespace qd::frontend
