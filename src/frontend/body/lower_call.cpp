// Walking calls: what is called decides how. Operations with kernel meaning go to the tables of
// builtins, funcs to call_func.cpp, everything else runs as Python at once (call_python.cpp).

#include <algorithm>

#include "frontend/body/body.h"
#include "frontend/calls/calls.h"
#include "frontend/facts/hooks.h"
#include "frontend/values/builtins.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

[[noreturn]] void refuse_kernel(const Node* n) {
    raise_at(n, Kind::syntax,
             "Kernels cannot call other kernels. I.e., nested kernels are not allowed. Please "
             "check if you have direct/indirect invocation of kernels within kernels.");
}

bool needs_no_kernel(PyObject* o) {
    return PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyList_Check(o) ||
           PyTuple_Check(o) || PyDict_Check(o) || o == Py_None || PyRange_Check(o);
}

// What is neither a number nor anything of ours: Python's own functions ask it what it is.
bool is_object(PyObject* o) {
    return !is_number(o) && !is_host_matrix(o) && !is_empty_matrix(o) && !is_field(o) &&
           !is_struct_field(o) && !is_external_array(o) &&
           !is_own_code(reinterpret_cast<PyObject*>(Py_TYPE(o)));
}

}  // namespace

// The items of `*many` in a call.
void Body::spread(const Node* call, const Node* starred, CallArgs& out, std::vector<Prov*>* provs) {
    Val many = expr(starred->a);
    low.node = call;
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
        many = iterable(many);
        items = all_items(many.get());
    }
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items.get()); ++k) {
        Val v = unit_item(many, Ref::borrow(PyList_GET_ITEM(items.get(), k)), k);
        if (!provs) unit.consume(v);
        out.positional.push_back(v.obj);
        if (provs) provs->push_back(v.prov);
    }
}

void Body::arguments(const Node* n, CallArgs& out, std::vector<Prov*>* provs,
                     std::vector<Prov*>* keyword_provs) {
    for (const Node* a : n->list) {
        if (a->kind == K::Starred) {
            spread(n, a, out, provs);
            continue;
        }
        Val v = expr(a);
        if (!provs) unit.consume(v);
        out.positional.push_back(uncaptured(std::move(v.obj)));
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
        if (!keyword_provs) unit.consume(v);
        out.keywords.emplace_back(Ref::borrow(k->name), uncaptured(std::move(v.obj)));
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
        low.node = n;
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
        TracedArgs args;
        {
            Deeper deeper(low.static_depth);
            arguments(n, args, nullptr, nullptr);
        }
        args.provs.resize(args.positional.size());
        args.keyword_provs.resize(args.keywords.size());
        Ref print = Ref::borrow(PyDict_GetItemString(PyEval_GetBuiltins(), "print"));
        Val f{print, nullptr};
        Deeper deeper(low.static_depth);
        return call_python(n, f, args);
    }
    if (op == "graph_do_while")
        raise_at(n, Kind::syntax,
                 "qd.graph.do_while() can only be the whole condition of a while-loop: `while "
                 "qd.graph.do_while(flag):`");
    handled = false;
    return {};
}

// The object of a bound method: the one it was just read from, or, if the method itself was passed
// or kept somewhere, what it says.
Val Body::method_self(const Val& method, const Val& base) {
    PyObject* self = PyMethod_GET_SELF(method.get());
    if (self == base.get()) return base;
    // Of super(Class, object) it is the object, which has a place of its own.
    if (const auto at = super_objects.find(base.get()); at != super_objects.end())
        return {Ref::borrow(self), at->second.object.prov};
    return adopt(Ref::borrow(self),
                 method.prov ? unit.attribute(method.prov, names().__self___) : nullptr);
}

// The callee looks at all of its arguments.
void Body::consume(const TracedArgs& args) {
    for (size_t k = 0; k < args.provs.size(); ++k)
        consume_number({args.positional[k], args.provs[k]});
    for (size_t k = 0; k < args.keyword_provs.size(); ++k)
        consume_number({args.keywords[k].second, args.keyword_provs[k]});
}

// What ours calculates with: Python does, as operators of the user's classes say.
void Body::consume_number(const Val& v) {
    unit.consume(v);
    if (!is_expr(v.get()) && !PyCallable_Check(v.get()) && may_run("type", v.get()))
        unit.opaque("what operators of a " + type_name(v.get()) + " say");
}

// A set's contents are known, in no order; a text shows one.
static void text_of_sets(Unit& unit, PyObject* o, int depth = 0) {
    if (PyAnySet_Check(o)) unit.opaque("the order of a set");
    if (depth > 16) return;
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o))
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            text_of_sets(unit, PySequence_Fast_GET_ITEM(o, k), depth + 1);
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_CheckExact(o) && PyDict_Next(o, &at, &key, &value);)
        for (PyObject* part : {key, value}) text_of_sets(unit, part, depth + 1);
}

Val Body::call(const Node* n) {
    Val base;  // of base.name(...)
    if (n->a->kind == K::Attribute) {
        if (auto done = list_call(n)) return *done;
        base = expr(n->a->a);
        low.node = n->a;
    }
    TracedArgs args;
    if (base.obj && PyUnicode_Check(base.get()) && n->a->name == names().format_) {
        unit.consume(base);
        traced_arguments(n, args);
        consume(args);
        for (const Ref& v : args.positional) text_of_sets(unit, v.get());
        for (const auto& [name, v] : args.keywords) text_of_sets(unit, v.get());
        low.node = n;
        return {format_call(base.get(), args)};
    }
    const Val f = base.obj ? member(base, n->a->name) : expr(n->a);
    PyObject* callable = f.get();
    if (PyMethod_Check(callable)) {
        PyObject* inner = PyMethod_GET_FUNCTION(callable);
        if (func_of(inner)) {
            Val self = method_self(f, base);
            args.positional.push_back(std::move(self.obj));
            args.provs.push_back(self.prov);
            callable = inner;
        }
    }
    if (const Builtin* method = bound_method(callable)) {
        CallArgs given;
        arguments(n, given, nullptr, nullptr);
        low.node = n;
        return {call_builtin(*method, callable, given)};
    }
    if (callable == reinterpret_cast<PyObject*>(&PySuper_Type)) return call_super(n, f);
    const bool remember = is_long_lived(callable) || func_of(callable);
    if (is_expr(callable)) raise_at(n, Kind::type, "'" + text(callable) + "' is not callable");
    if (remember) return call_known(n, f, callable, std::move(args));
    if (is_kernel_callable(callable)) refuse_kernel(n);
    traced_arguments(n, args);
    low.node = n;
    if (const Builtin* b = find_builtin(callable)) {  // methods of tensors, struct types
        consume(args);
        return {call_builtin(*b, callable, args)};
    }
    return call_python(n, f, args);
}

// What `super()` finds in its frame: the class that the method stands in, and its first argument.
void Body::own_super(TracedArgs& args) {
    const Ref cls = interned("__class__");
    const Ref code = Ref::borrow(PyFunction_GetCode(function.get()));
    const Ref parameters = Ref::steal(PyObject_GetAttrString(code.get(), "co_varnames"));
    if (!cells || !PyDict_GetItem(cells.get(), cls.get()) ||
        !reinterpret_cast<PyCodeObject*>(code.get())->co_argcount)
        raise(Kind::compilation, "super() without arguments stands in methods of classes",
              "give it the class and the object: super(Class, self)");
    for (PyObject* name : {cls.get(), PyTuple_GET_ITEM(parameters.get(), 0)}) {
        Val v = lookup(name);
        args.positional.push_back(std::move(v.obj));
        args.provs.push_back(v.prov);
    }
}

Val Body::call_super(const Node* n, const Val& f) {
    TracedArgs args;
    if (n->list.empty())
        own_super(args);
    else
        traced_arguments(n, args);
    low.node = n;
    if (args.positional.size() != 2) return call_python(n, f, args);
    const Val object{args.positional[1], args.provs[1]};
    Val made;
    if (object.prov && object.prov->at_launch) {  // of a dataclass argument, whose class is checked
        unit.opaque("super() of a dataclass argument");
        made.obj = Ref::steal_or_null(
            PyObject_CallFunctionObjArgs(f.get(), args.positional[0].get(), object.get(), nullptr));
        if (!made.obj) refused(n, false);
    } else {
        made = call_python(n, f, args);
    }
    super_objects[made.get()] = {made.obj, object};
    return made;
}

// Of a function or type that outlives the kernel: what it means is looked up once. `args` are those
// in front of the call's own.
Val Body::call_known(const Node* n, const Val& f, PyObject* callable, TracedArgs args) {
    const Known& k = known(callable);
    if (k.callee == Callee::operation) {
        bool handled = false;
        Val v = call_special(n, k.op, handled);
        if (handled) return v;
    }
    if (k.callee == Callee::kernel) refuse_kernel(n);
    if (k.callee == Callee::func) return call_known_func(n, k.definition, std::move(args));
    traced_arguments(n, args);
    low.node = n;
    if (k.builtin && !all_host(k, args)) {
        consume(args);
        return {call_builtin(*k.builtin, callable, args)};
    }
    return call_python(n, f, args);
}

Val Body::call_known_func(const Node* n, PyObject* definition, TracedArgs args) {
    for (size_t i = 0; i < n->list.size(); ++i)
        if (n->list[i]->kind == K::Starred && (i + 1 < n->list.size() || !n->list2.empty()))
            raise_at(n, Kind::syntax,
                     "* args can only be present as the last argument of a function (error "
                     "code: STARNOTLAST)");
    const size_t in_front = args.positional.size();
    try {
        traced_arguments(n, args);
    } catch (const ForeignArray& a) {
        const size_t at = args.positional.size() - in_front;
        const bool by_name = at >= n->list.size();
        const Node* word = by_name ? n->list2[args.keywords.size()] : nullptr;
        const Node* given = word ? word->a : n->list[at];
        low.node = n;
        if (given->kind == K::Name || given->kind == K::Attribute)
            refuse_array_of_real_func(definition, args.positional.size(),
                                      word ? word->name : nullptr, a.array.get());
        throw;
    }
    low.node = n;
    const ir::Loc* saved = low.b.loc;
    set_location(n);
    Val v = call_definition(definition, args);
    low.b.loc = saved;
    return v;
}

// One number is its own extreme, where Python would iterate over it, and what comes out of several
// kinds has the type that they have in common (spec 30, section 9).
static bool has_own_extreme(const std::vector<Ref>& numbers, bool in_static) {
    if (numbers.size() == 1) return is_static_number(numbers[0].get());
    const auto plain = [](const Ref& n) {  // of no class of the user's
        return PyLong_CheckExact(n.get()) || PyFloat_CheckExact(n.get()) || PyBool_Check(n.get()) ||
               cpython::is_numpy_scalar(n.get());
    };
    const auto other = [&](const Ref& n) { return Py_TYPE(n.get()) != Py_TYPE(numbers[0].get()); };
    return !in_static && std::ranges::all_of(numbers, plain) && std::ranges::any_of(numbers, other);
}

// Python's own min, len, int ... on objects of Python only: Python does them.
bool Body::all_host(const Known& k, const CallArgs& args) {
    if (k.callee != Callee::builtin) return false;
    const std::string_view name = k.builtin->name;
    if (name == "print") return false;
    if ((name == "min" || name == "max") && has_own_extreme(args.positional, low.static_depth > 0))
        return false;
    if (!low.static_depth && !is_harmless(k.object.get()))
        return false;  // qd.Vector and kin make values of the kernel
    const bool pythons = is_harmless(k.object.get());
    for (const Ref& a : args.positional)
        if (is_symbolic(a.get()) || !(needs_no_kernel(a.get()) || (pythons && is_object(a.get()))))
            return false;
    for (const auto& [keyword, v] : args.keywords)
        if (is_symbolic(v.get())) return false;
    return true;
}

}  // namespace qd::frontend
