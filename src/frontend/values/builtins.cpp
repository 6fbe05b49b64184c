// From a Python callable to its handler.
//
// A Quadrants function carries its operation's name in `_qd_op`; Python's own functions and classes
// and the constructors are known by identity. What was found once is found by address later.

#include "frontend/values/builtins.h"
#include "cpython/entry.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qd::frontend {
namespace {

using Table = std::unordered_map<std::string_view, const Builtin*>;

const Table& table() {
    static const Table& t = *[] {
        auto* all = new Table;
        for (auto rows : {math_builtins(), atomic_builtins(), tensor_builtins(), misc_builtins(),
                          print_builtins(), simt_builtins(), tile_builtins()})
            for (const Builtin& b : rows) all->emplace(b.name, &b);
        return all;
    }();
    return t;
}

const Builtin* row(std::string_view name) {
    const auto found = table().find(name);
    return found == table().end() ? nullptr : found->second;
}

// Python's own print, min, int, ...: by what they are, not by what module `builtins` holds under
// their names, which programs replace. Only a print of their own still prints from the kernel.
const Builtin* python_builtin(PyObject* o) {
    static const std::string_view kNames[] = {"print", "min", "max", "abs", "len",
                                              "pow",   "any", "all", "sum", "round"};
    if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return row("int");
    if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return row("float");
    if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return row("bool");
    if (PyFunction_Check(o)) {
        PyObject* all = PyEval_GetBuiltins();
        return all && PyDict_GetItemString(all, "print") == o ? row("print") : nullptr;
    }
    PyObject* module = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : nullptr;
    if (!module || !PyModule_Check(module)) return nullptr;
    const char* home = PyModule_GetName(module);
    if (!home) return forget_error(), nullptr;
    const std::string name = reinterpret_cast<PyCFunctionObject*>(o)->m_ml->ml_name;
    if (home != std::string_view("builtins") || std::ranges::find(kNames, name) == std::end(kNames))
        return nullptr;
    const Builtin* own = row("python." + name);
    return own ? own : row(name);
}

// Callables of Quadrants that carry no mark. Those of a module are entered once the
// program has imported it: nothing can name them before, and a warm start imports nothing for them.
struct Unmarked {
    const char* module;
    std::vector<const char*> names;
    bool entered = false;
};

std::unordered_map<PyObject*, const Builtin*>& known() {
    static auto& map = *new std::unordered_map<PyObject*, const Builtin*>;
    static auto& modules = *new std::vector<Unmarked>{
        {"quadrants.lang.matrix", {"Matrix", "Vector"}},
        {"quadrants.lang.struct", {"Struct"}},
        {"quadrants.lang.buffer_view", {"BufferView"}},
    };
    static size_t missing = modules.size();
    if (missing == 0) return map;
    PyObject* imported = PyImport_GetModuleDict();
    for (Unmarked& m : modules) {
        PyObject* module = m.entered ? nullptr : PyDict_GetItemString(imported, m.module);
        if (!module) continue;
        bool complete = true;  // a module may be looked at while it is still being imported
        for (const char* name : m.names) {
            PyObject* o = PyObject_GetAttrString(module, name);  // kept for good
            if (o)
                map[o] = row(name);
            else
                complete = false;
        }
        forget_error();
        m.entered = complete;
        missing -= complete;
    }
    return map;
}

// --- bound methods
// --------------------------------------------------------------------------------
struct BoundObject {
    PyObject_HEAD
    PyObject* self;
    const Builtin* method;
};
extern PyTypeObject Bound_Type;
bool is_bound(PyObject* o) { return Py_IS_TYPE(o, &Bound_Type); }
BoundObject* as_bound(PyObject* o) { return reinterpret_cast<BoundObject*>(o); }

void bound_dealloc(PyObject* o) {
    Py_XDECREF(as_bound(o)->self);
    PyObject_Free(o);
}

PyObject* bound_call(PyObject* o, PyObject* args, PyObject* kwargs) {
    return guarded([&] {
        CallArgs a;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); ++k)
            a.positional.push_back(Ref::borrow(PyTuple_GET_ITEM(args, k)));
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (kwargs && PyDict_Next(kwargs, &at, &key, &value))
            a.keywords.emplace_back(Ref::borrow(key), Ref::borrow(value));
        return call_builtin(*as_bound(o)->method, o, a);
    });
}

PyTypeObject Bound_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants.lang.expr.BoundMethod",
    .tp_basicsize = sizeof(BoundObject),
    .tp_dealloc = entry<bound_dealloc>,
    .tp_call = entry<bound_call>,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A method of a vector or matrix in a kernel.",
};

// Rows that want the callable, made from the ordinary ones.
const Builtin* taking_callable(const char* name) {
    static auto& made = *new std::unordered_map<std::string_view, const Builtin*>;
    const Builtin* plain = row(name);
    if (!plain) return nullptr;
    const Builtin*& b = made[plain->name];
    if (!b) b = new Builtin{plain->name, plain->fn, true};
    return b;
}

const char* constructor_of(PyObject* callable) {
    if (is_dtype_object(callable)) return "dtype_call";
    if (is_tensor_type_object(callable)) return "typed_tensor";
    if (is_tile_type(callable)) return nullptr;  // it knows whether the target has any
    if (is_struct_type_object(callable)) return "typed_struct";
    return nullptr;
}

}  // namespace

Ref make_bound(PyObject* self, const char* method) {
    static const bool ready = PyType_Ready(&Bound_Type) == 0;
    if (!ready) throw PyError{};
    const Builtin* b = taking_callable(method);
    if (!b) raise(Kind::compilation, std::string("no method ") + method);
    auto* o = PyObject_New(BoundObject, &Bound_Type);
    if (!o) throw PyError{};
    o->self = Py_NewRef(self);
    o->method = b;
    return Ref::steal(reinterpret_cast<PyObject*>(o));
}

const Builtin* bound_method(PyObject* callable) {
    return is_bound(callable) ? as_bound(callable)->method : nullptr;
}

const char* operation_mark(PyObject* callable) {
    if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
    if (!PyFunction_Check(callable)) return nullptr;
    static PyObject* const mark = PyUnicode_InternFromString("_qd_op");
    const auto* f = reinterpret_cast<PyFunctionObject*>(callable);
    PyObject* op = f->func_dict ? PyDict_GetItem(f->func_dict, mark) : nullptr;
    if (!op || !PyUnicode_Check(op)) return nullptr;
    // functools.wraps copies the mark to a user's own function, which does something else
    PyObject* home = PyDict_GetItemString(f->func_globals, "__name__");
    const char* module = home && PyUnicode_Check(home) ? PyUnicode_AsUTF8(home) : nullptr;
    return module && std::string_view(module).starts_with("quadrants.") ? PyUnicode_AsUTF8(op)
                                                                        : nullptr;
}

const Builtin* find_builtin(PyObject* callable) {
    if (is_bound(callable)) return as_bound(callable)->method;
    if (const auto found = known().find(callable); found != known().end()) return found->second;
    if (PyFunction_Check(callable)) {
        const char* op = operation_mark(callable);
        const Builtin* b = op ? row(op) : nullptr;
        if (b) known()[Py_NewRef(callable)] = b;
        return b ? b : python_builtin(callable);
    }
    if (const Builtin* b = python_builtin(callable)) return b;
    const char* constructor = constructor_of(callable);
    return constructor ? taking_callable(constructor) : nullptr;
}

Ref call_builtin(const Builtin& builtin, PyObject* callable, const CallArgs& args) {
    Lowering& low = current_or_raise(builtin.name);
    if (!builtin.takes_callable) return builtin.fn(low, args);
    CallArgs with;
    with.positional.reserve(args.positional.size() + 1);
    with.positional.push_back(
        Ref::borrow(is_bound(callable) ? as_bound(callable)->self : callable));
    with.positional.insert(with.positional.end(), args.positional.begin(), args.positional.end());
    with.keywords = args.keywords;
    return builtin.fn(low, with);
}

Ref call_builtin(const char* name, const CallArgs& args) {
    const Builtin* b = row(name);
    if (!b) raise(Kind::compilation, std::string("`") + name + "` cannot be called here");
    return b->fn(current_or_raise(name), args);
}

// --- arguments ----------------------------------------------------------------------------------
namespace {
// Calls of methods and of functions of bits are wrong as those of a func are; the others' are as
// those of the functions of Python and NumPy that they stand for.
struct WrongCall {
    std::string_view function;
    bool as_func;

    WrongCall(std::string_view function, std::string_view first)
        : function(function),
          as_func(first == "self" || function == "popcnt" || function == "clz" ||
                  function == "ffs") {}

    [[noreturn]] void fail(const std::string& of_func, const std::string& of_python) const {
        if (as_func) raise(Kind::syntax, of_func);
        raise(Kind::type, std::string(function) + "() " + of_python);
    }
};

std::string listed(std::span<const Ref> given) {
    std::string out;
    for (const Ref& a : given)
        out += (out.empty() ? "" : ", ") + text_of(Ref::steal(PyObject_Repr(a.get())).get());
    return out;
}
}  // namespace

void bind_parameters(const CallArgs& args, const char* function, const char* const* names,
                     size_t count, size_t required, PyObject** out) {
    const WrongCall wrong(function, names[0]);
    const size_t given = args.positional.size();
    if (given > count) {
        std::string expected;
        for (size_t k = 0; k < count; ++k) expected += (k ? ", " : "") + std::string(names[k]);
        wrong.fail("Too many arguments. Expected (" + expected + "), got (" +
                       listed(args.positional) + ").",
                   "takes " + std::to_string(count) + " argument" + (count == 1 ? "" : "s") +
                       " but " + std::to_string(given) + " were given");
    }
    for (size_t k = 0; k < given; ++k) out[k] = args.positional[k].get();
    for (const auto& [key, value] : args.keywords) {
        size_t k = 0;
        while (k < count && PyUnicode_CompareWithASCIIString(key.get(), names[k]) != 0) ++k;
        const std::string name = text_of(key.get());
        if (k == count)
            wrong.fail("Unexpected argument '" + name + "'.",
                       "got an unexpected keyword argument '" + name + "'");
        if (out[k])
            wrong.fail("Multiple values for argument '" + name + "'.",
                       "got multiple values for argument '" + name + "'");
        out[k] = value.get();
    }
    for (size_t k = 0; k < required; ++k)
        if (!out[k])
            wrong.fail(std::string("Missing argument '") + names[k] + "'.",
                       std::string("missing a required argument: '") + names[k] + "'");
}

PyObject* single(const CallArgs& args, const char* function, const char* name) {
    PyObject* found = nullptr;
    bind_parameters(args, function, &name, 1, 1, &found);
    return found;
}

Prim prim_argument(PyObject* dtype, const char* function) {
    if (const auto p = prim_of_dtype(dtype)) return *p;
    raise(Kind::value, "Invalid data type " + text_of(dtype),
          std::string(function) + "() takes a dtype, such as qd.f32");
}

int int_argument(PyObject* o, const char* function, const char* name) {
    const auto v = is_expr(o) ? std::nullopt : static_int(o);
    if (!v)
        raise(Kind::type,
              std::string(function) + "(): '" + name + "' must be a compile-time integer");
    return static_cast<int>(*v);
}

}  // namespace qd::frontend
