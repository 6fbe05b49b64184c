// Walking calls: what is called decides how. Operations with kernel meaning go to the tables of
// builtins, funcs to call_func.cpp, everything else runs as Python at once.

#include <algorithm>
#include <unordered_map>

#include "frontend/call.h"
#include "frontend/lower.h"
#include "frontend/stack.h"
#include "frontend/structs.h"
#include "frontend/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

enum class Callee : uint8_t { python, operation, builtin, func, kernel };

struct Known {
    Ref object, owner;  // keep the key and the definition alive
    Callee callee = Callee::python;
    std::string op;
    const Builtin* builtin = nullptr;
    PyObject* definition = nullptr;
};

Ref get(PyObject* o, PyObject* name) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (!v) PyErr_Clear();
    return v;
}

// Remembered by identity: functions, types and definitions live long.
const Known& known(PyObject* o) {
    static auto* all = new std::unordered_map<PyObject*, Known>;
    if (const auto it = all->find(o); it != all->end()) return it->second;
    Known k;
    k.object = Ref::borrow(o);
    if (is_expr(o) || is_struct(o)) return (*all)[o] = std::move(k);
    if (Ref op = get(o, names()._qd_op_); op && PyUnicode_Check(op.get())) {
        k.callee = Callee::operation;
        k.op = PyUnicode_AsUTF8(op.get());
        k.builtin = find_builtin(o);
    } else if (Ref d = get(o, names()._qd_func_); d && d.get() != Py_None) {
        k.callee = Callee::func;
        k.definition = d.get();
        k.owner = d;
    } else if (Ref kernel = get(o, names()._qd_kernel_); kernel && kernel.get() != Py_None) {
        k.callee = Callee::kernel;
    } else if (const Builtin* b = find_builtin(o)) {
        k.callee = Callee::builtin;
        k.builtin = b;
    }
    return (*all)[o] = std::move(k);
}

bool is_long_lived(PyObject* o) {
    return PyFunction_Check(o) || PyType_Check(o) ||
           (PyCFunction_Check(o) && !PyCFunction_GET_SELF(o)) ||
           (PyCFunction_Check(o) && PyModule_Check(PyCFunction_GET_SELF(o)));
}

std::string callee_name(PyObject* f) {
    Ref name = get(f, names().__name___);
    return name ? text(name.get()) : text(f);
}

// A class of Python itself or NumPy, and none that knows the time or a state of chance.
bool is_python_class(const PyTypeObject* t) {
    const std::string_view name = t->tp_name;
    return !(t->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
           (name.find('.') == name.npos ||
            (name.starts_with("numpy.") && name.find(".random") == name.npos));
}

// Python's own functions, types, and the methods of its containers and strings do what they say.
bool is_harmless(PyObject* f) {
    if (PyCFunction_Check(f)) {
        PyObject* self = PyCFunction_GET_SELF(f);
        if (!self) return false;
        if (PyType_Check(self)) return is_python_class(reinterpret_cast<PyTypeObject*>(self));
        if (!PyModule_Check(self)) return is_python_class(Py_TYPE(self));
        const char* module = PyModule_GetName(self);
        return module && !std::strcmp(module, "builtins");
    }
    return PyType_Check(f) && is_python_class(reinterpret_cast<PyTypeObject*>(f));
}

// Of those, the ones that see more than their operands.
bool sees_more(const std::string& name) {
    static const std::string_view kNames[] = {"eval",   "exec", "open", "input", "globals",
                                              "locals", "vars", "id",   "hash",  "__import__"};
    return std::ranges::find(kNames, name) != std::end(kNames);
}

// Functions of `math` and NumPy's element-wise ones: equal arguments give equal results.
bool is_function_of_numbers(PyObject* f) {
    if (!std::strcmp(Py_TYPE(f)->tp_name, "numpy.ufunc")) return true;
    PyObject* self = PyCFunction_Check(f) ? PyCFunction_GET_SELF(f) : nullptr;
    const char* module = self && PyModule_Check(self) ? PyModule_GetName(self) : nullptr;
    return module && !std::strcmp(module, "math");
}

}  // namespace

std::string_view operation_of(PyObject* callable) {
    if (!PyCallable_Check(callable) || !is_long_lived(callable)) return {};
    return known(callable).op;
}

PyObject* func_of(PyObject* o) {
    if (PyMethod_Check(o)) return nullptr;
    if (PyFunction_Check(o) || PyType_Check(o) || PyModule_Check(o) || PyLong_Check(o) ||
        is_expr(o))
        return nullptr;
    if (!PyCallable_Check(o)) return nullptr;
    Ref d = get(o, names()._qd_func_);
    return d && d.get() == o ? o : nullptr;
}

bool is_kernel_callable(PyObject* o) {
    if (!PyCallable_Check(o) || is_expr(o)) return false;
    Ref d = get(o, names()._qd_kernel_);
    return d && d.get() != Py_None;
}

Ref map_leaves(PyObject* o, const std::function<Ref(PyObject*)>& f) {
    if (is_expr(o)) return f(o);
    need_stack();
    if (PyList_CheckExact(o)) {
        const Py_ssize_t n = PyList_GET_SIZE(o);
        Ref out = Ref::steal(PyList_New(n));
        for (Py_ssize_t k = 0; k < n; ++k)
            PyList_SET_ITEM(out.get(), k, map_leaves(PyList_GET_ITEM(o, k), f).release());
        return out;
    }
    if (PyTuple_CheckExact(o)) {
        const Py_ssize_t n = PyTuple_GET_SIZE(o);
        Ref out = Ref::steal(PyTuple_New(n));
        for (Py_ssize_t k = 0; k < n; ++k)
            PyTuple_SET_ITEM(out.get(), k, map_leaves(PyTuple_GET_ITEM(o, k), f).release());
        return out;
    }
    const bool structure = is_struct(o);
    if (PyDict_CheckExact(o) || structure) {
        PyObject* from = structure ? reinterpret_cast<StructObject*>(o)->members : o;
        Ref out = Ref::steal(PyDict_New());
        PyObject *key, *item;
        for (Py_ssize_t at = 0; PyDict_Next(from, &at, &key, &item);)
            if (PyDict_SetItem(out.get(), key, map_leaves(item, f).get()) < 0) throw PyError{};
        return structure ? make_struct(reinterpret_cast<StructObject*>(o)->type, out.get()) : out;
    }
    return Ref::borrow(o);
}

void Body::arguments(const Node* n, CallArgs& out, std::vector<Prov*>* provs,
                     std::vector<Prov*>* keyword_provs) {
    for (const Node* a : n->list) {
        if (a->kind == K::Starred) {
            Val many = expr(a->a);
            low.node = n->ast;
            Ref items;
            if (is_expr(many.get())) {
                items = Ref::steal(PyList_New(0));
                const ir::Type t = type_of(many.get());
                for (int k = 0; k < t.n; ++k) {
                    Ref i = Ref::steal(PyLong_FromLong(k));
                    if (PyList_Append(items.get(), subscript(many.get(), i.get()).get()) < 0)
                        throw PyError{};
                }
            } else {
                unit.consume(many);
                items = Ref::steal(PySequence_List(many.get()));
            }
            for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items.get()); ++k) {
                Val v = unit_item(many, Ref::borrow(PyList_GET_ITEM(items.get(), k)), k);
                out.positional.push_back(v.obj);
                if (provs) provs->push_back(v.prov);
            }
            continue;
        }
        Val v = expr(a);
        out.positional.push_back(std::move(v.obj));
        if (provs) provs->push_back(v.prov);
    }
    for (const Node* k : n->list2) {
        Val v = expr(k->a);
        if (!k->name || k->name == Py_None) {  // **mapping
            unit.consume(v);
            PyObject *key, *item;
            for (Py_ssize_t at = 0;
                 PyDict_Check(v.get()) && PyDict_Next(v.get(), &at, &key, &item);) {
                out.keywords.emplace_back(Ref::borrow(key), Ref::borrow(item));
                if (keyword_provs) keyword_provs->push_back(nullptr);
            }
            continue;
        }
        out.keywords.emplace_back(Ref::borrow(k->name), std::move(v.obj));
        if (keyword_provs) keyword_provs->push_back(v.prov);
    }
}

// Operations that need the syntax or the body; the others have handlers in the tables.
Val Body::call_special(const Node* n, std::string_view op, bool& handled) {
    handled = true;
    if (op == "static") return static_value(n);
    if (op == "loop_config") {
        set_loop_config(n);
        return {Ref::borrow(Py_None)};
    }
    if (op == "static_assert") {
        CallArgs args;
        {
            Deeper deeper(low.static_depth);
            arguments(n, args, nullptr, nullptr);
        }
        low.node = n->ast;
        for (auto& [key, v] : args.keywords) args.positional.push_back(v);
        if (args.positional.empty() || is_symbolic(args.positional[0].get()))
            raise(Kind::type, "Static assert with non-static condition");
        const int ok = PyObject_IsTrue(args.positional[0].get());
        if (ok < 0) throw PyError{};
        if (!ok) {
            if (args.positional.size() > 1)
                PyErr_SetObject(PyExc_AssertionError, args.positional[1].get());
            else
                PyErr_SetNone(PyExc_AssertionError);
            throw PyError{};
        }
        return {Ref::borrow(Py_None)};
    }
    if (op == "static_print") {
        unit.opaque("static_print");
        CallArgs args;
        {
            Deeper deeper(low.static_depth);
            arguments(n, args, nullptr, nullptr);
        }
        Ref print = Ref::borrow(PyDict_GetItemString(PyEval_GetBuiltins(), "print"));
        Val f{print, nullptr};
        Deeper deeper(low.static_depth);
        return call_python(n, f, args, {});
    }
    handled = false;
    return {};
}

// The object of a bound method: the one it was just read from, or, if the method itself was passed
// or kept somewhere, what it says.
Val Body::method_self(const Val& method, const Val& base) {
    PyObject* self = PyMethod_GET_SELF(method.get());
    if (self == base.get()) return base;
    return adopt(Ref::borrow(self),
                 method.prov ? unit.attribute(method.prov, names().__self___) : nullptr);
}

Val Body::call(const Node* n) {
    Val base;  // of base.name(...)
    if (n->a->kind == K::Attribute) {
        base = expr(n->a->a);
        low.node = n->a->ast;
    }
    if (base.obj && PyUnicode_Check(base.get()) && n->a->name == names().format_) {
        unit.consume(base);
        CallArgs args;
        std::vector<Prov*> provs, keyword_provs;
        arguments(n, args, &provs, &keyword_provs);
        for (size_t k = 0; k < provs.size(); ++k) unit.consume(args.positional[k].get(), provs[k]);
        for (size_t k = 0; k < keyword_provs.size(); ++k)
            unit.consume(args.keywords[k].second.get(), keyword_provs[k]);
        low.node = n->ast;
        return {format_call(base.get(), args)};
    }
    Val f = base.obj ? member(base, n->a->name) : expr(n->a);
    PyObject* callable = f.get();
    Val self;
    if (PyMethod_Check(callable)) {
        PyObject* inner = PyMethod_GET_FUNCTION(callable);
        if (func_of(inner)) {
            self = method_self(f, base);
            callable = inner;
        }
    }
    if (const Builtin* method = bound_method(callable)) {
        CallArgs args;
        arguments(n, args, nullptr, nullptr);
        low.node = n->ast;
        return {call_builtin(*method, callable, args)};
    }
    const bool remember = is_long_lived(callable) || func_of(callable);
    if (is_expr(callable)) raise_at(n, Kind::type, "'" + text(callable) + "' is not callable");
    if (remember) {
        const Known& k = known(callable);
        if (k.callee == Callee::operation) {
            bool handled = false;
            Val v = call_special(n, k.op, handled);
            if (handled) return v;
        }
        if (k.callee == Callee::kernel)
            raise_at(
                n, Kind::syntax,
                "Kernels cannot call other kernels. I.e., nested kernels are not allowed. Please "
                "check if you have direct/indirect invocation of kernels within kernels.");
        CallArgs args;
        std::vector<Prov*> provs, keyword_provs;
        if (self.obj) {
            args.positional.push_back(self.obj);
            provs.push_back(self.prov);
        }
        if (k.callee == Callee::func)
            for (size_t i = 0; i < n->list.size(); ++i)
                if (n->list[i]->kind == K::Starred && (i + 1 < n->list.size() || !n->list2.empty()))
                    raise_at(n, Kind::syntax,
                             "* args can only be present as the last argument of a function (error "
                             "code: STARNOTLAST)");
        try {
            arguments(n, args, &provs, &keyword_provs);
        } catch (const ForeignArray& a) {
            if (k.callee == Callee::func) {
                const size_t at = args.positional.size() - (self.obj ? 1 : 0);
                const bool by_name = at >= n->list.size();
                const Node* word = by_name ? n->list2[args.keywords.size()] : nullptr;
                const Node* given = word ? word->a : n->list[at];
                low.node = n->ast;
                if (given->kind == K::Name || given->kind == K::Attribute)
                    refuse_array_of_real_func(k.definition, args.positional.size(),
                                              word ? word->name : nullptr, a.array.get());
            }
            throw;
        }
        low.node = n->ast;
        switch (k.callee) {
            case Callee::func: {
                const ir::Loc* saved = low.b.loc;
                set_location(n);
                Val v = call_definition(k.definition, args, provs, keyword_provs);
                low.b.loc = saved;
                return v;
            }
            case Callee::operation:
            case Callee::builtin:
                if (k.builtin && !all_host(k, args)) {
                    for (size_t i = 0; i < provs.size() && i < args.positional.size(); ++i)
                        if (needs_no_kernel(args.positional[i].get()))
                            unit.consume(args.positional[i].get(), provs[i]);
                    return {call_builtin(*k.builtin, callable, args)};
                }
                break;
            case Callee::python:
            case Callee::kernel:
                break;
        }
        return call_python(n, f, args, provs);
    }
    if (is_kernel_callable(callable))
        raise_at(n, Kind::syntax,
                 "Kernels cannot call other kernels. I.e., nested kernels are not allowed. Please "
                 "check if you have direct/indirect invocation of kernels within kernels.");
    CallArgs args;
    std::vector<Prov*> provs;
    arguments(n, args, &provs, nullptr);
    low.node = n->ast;
    if (const Builtin* b = find_builtin(callable))
        return {call_builtin(*b, callable, args)};  // methods of tensors, struct types
    return call_python(n, f, args, provs);
}

// Python's own min, len, int ... on objects of Python only: Python does them.
bool Body::all_host(const auto& k, const CallArgs& args) {
    if (k.callee != Callee::builtin) return false;
    if (std::string_view(k.builtin->name) == "print") return false;
    if (!low.static_depth && !is_harmless(k.object.get()))
        return false;  // qd.Vector and kin make values of the kernel
    for (const Ref& a : args.positional)
        if (is_symbolic(a.get()) || !needs_no_kernel(a.get())) return false;
    for (const auto& [name, v] : args.keywords)
        if (is_symbolic(v.get())) return false;
    return true;
}

bool Body::needs_no_kernel(PyObject* o) {
    return PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyList_Check(o) ||
           PyTuple_Check(o) || PyDict_Check(o) || o == Py_None || PyRange_Check(o);
}

Val Body::call_again(const Val& f, std::span<const Ref> arguments, std::span<Prov* const> provs) {
    Prov* prov = f.prov ? unit.call(f.prov, arguments, provs) : nullptr;
    if (!prov) return {};
    Ref keep;
    const Ref operands = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
    for (size_t k = 0; k < arguments.size(); ++k)
        PyTuple_SET_ITEM(operands.get(), static_cast<Py_ssize_t>(k), Ref(arguments[k]).release());
    Ref result = Ref::steal_or_null(PyObject_CallObject(unwrap(f.get()), operands.get()));
    if (!result) throw PyError{};
    return adopt(std::move(result), prov);
}

// A method of an object of ours reads what is in it now.
void Body::consume_owner(PyObject* self, Prov* method) {
    if (is_expr(self) || is_struct(self) || PyType_Check(self) || is_field(self)) return;
    if (method && method->parent) unit.consume(self, method->parent);
}

// A function of Python sees all of its operands, and a method all of its object.
void Body::consume_operands(const Val& f, const CallArgs& args, const std::vector<Prov*>& provs) {
    // These see less than all: the type, or the length, both of which are facts already.
    static const std::string_view kTypeOnly[] = {"isinstance", "issubclass", "type", "callable"};
    const std::string name = callee_name(f.get());
    if (std::ranges::find(kTypeOnly, name) != std::end(kTypeOnly)) return;
    if (name == "len" && args.positional.size() == 1 &&
        is_plain_container(args.positional[0].get()))
        return;
    if (sees_more(name)) unit.opaque("Python function " + name + " runs");
    for (size_t k = 0; k < provs.size() && k < args.positional.size(); ++k)
        unit.consume(args.positional[k].get(), provs[k]);
    PyObject* self = PyCFunction_Check(f.get()) ? PyCFunction_GET_SELF(f.get()) : nullptr;
    if (!self || PyModule_Check(self) || PyType_Check(self) || !f.prov) return;
    // A method that is kept under a name of its own can be of any object.
    Prov* owner = f.prov->kind == Prov::Kind::attribute ? f.prov->parent : nullptr;
    if (!owner) return unit.opaque("method " + name + " of an object");
    unit.consume(self, owner);
}

Val Body::call_python(const Node* n, const Val& f, const CallArgs& args,
                      const std::vector<Prov*>& provs) {
    PyObject* callable = f.get();
    bool symbolic = false;
    Ref positional = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.positional.size())));
    for (size_t k = 0; k < args.positional.size(); ++k) {
        symbolic |= is_symbolic(args.positional[k].get());
        PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(k),
                         Ref(args.positional[k]).release());
    }
    Ref keywords;
    if (!args.keywords.empty()) {
        keywords = Ref::steal(PyDict_New());
        for (const auto& [name, v] : args.keywords) {
            symbolic |= is_symbolic(v.get());
            if (PyDict_SetItem(keywords.get(), name.get(), v.get()) < 0) throw PyError{};
        }
    }
    const bool ours =
        is_expr(callable) ||
        is_own_code(PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable) ||
        is_own_code(reinterpret_cast<PyObject*>(Py_TYPE(callable)));
    if (ours && PyMethod_Check(callable)) consume_owner(PyMethod_GET_SELF(callable), f.prov);
    Prov* place = nullptr;  // of the result
    if (is_harmless(callable)) consume_operands(f, args, provs);
    if (!ours && !is_harmless(callable)) {
        if (f.prov && !symbolic && args.keywords.empty() && provs.size() == args.positional.size())
            place = unit.call(f.prov, args.positional, provs);
        if (!place && !is_function_of_numbers(callable))
            unit.opaque("Python function " + callee_name(callable) + " runs");
        if (!low.static_depth) {
            const std::string message =
                "Calling non-quadrants function \"" + source_text(source, n->a->ast) +
                "\". Scope inside the function is not processed by the Quadrants AST transformer. "
                "The function may not work as expected. Proceed with caution! Maybe you can "
                "consider "
                "turning it into a @qd.func?";
            locate(source, const_cast<Node&>(*n));
            unit.notice({Notice::Category::syntax, message, source.file->name,
                         static_cast<uint32_t>(n->line)});
        }
    }
    Ref result = Ref::steal_or_null(PyObject_Call(callable, positional.get(), keywords.get()));
    if (!result) {
        if (symbolic && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyObject *type, *value, *tb;
            PyErr_Fetch(&type, &value, &tb);
            PyErr_NormalizeException(&type, &value, &tb);
            const std::string name = Py_TYPE(value)->tp_name, what = text(value);
            if (type == PyExc_TypeError) {
                Py_XDECREF(type);
                Py_XDECREF(value);
                Py_XDECREF(tb);
                raise(Kind::type, "TypeError when calling `" + source_text(source, n->a->ast) +
                                      "`: " + what +
                                      ". Maybe a Quadrants Expression was passed to a function "
                                      "that takes Python values only.");
            }
            PyErr_Restore(type, value, tb);
        }
        throw PyError{};
    }
    if (result.get() == Py_NotImplemented)
        raise(Kind::type, "`" + callee_name(callable) + "` does not take a Quadrants Expression");
    if (ours && is_external_array(result.get())) unit.opaque("the contents of a field");
    if (is_ndarray(unwrap(result.get()))) {
        Prov* found = find_place(unwrap(result.get()));
        return adopt(std::move(result), found);
    }
    if (place && (is_expr(result.get()) || is_struct(result.get())))
        unit.opaque("Python function " + callee_name(callable) + " made values of the kernel");
    return adopt(std::move(result), place);
}

Ref call_func(PyObject* func, const CallArgs& args) {
    current_or_raise("A Quadrants function");
    PyObject* definition = func;
    CallArgs with_self = args;
    if (PyMethod_Check(func)) {
        definition = PyMethod_GET_FUNCTION(func);
        with_self.positional.insert(with_self.positional.begin(),
                                    Ref::borrow(PyMethod_GET_SELF(func)));
    }
    // A func of this package that native code or a method of ours calls: its text is a fact too.
    if (PyObject* fn = is_own_code(definition) ? func_of(definition) : nullptr) {
        Unit& unit = current()->body->unit;
        Ref module = get(fn, names().__module___);
        PyObject* name = module.release();
        PyUnicode_InternInPlace(&name);
        module = Ref::steal(name);
        guard_value(unit, fn,
                    unit.attribute(unit.global(Prov::Kind::module, nullptr, module.get()),
                                   get(fn, names().__name___).get()));
    }
    std::vector<Prov*> provs(with_self.positional.size()), keyword_provs(with_self.keywords.size());
    return call_definition(definition, with_self, provs, keyword_provs).obj;
}

}  // namespace qd::frontend
