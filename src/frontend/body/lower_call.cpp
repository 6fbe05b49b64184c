// Walking calls: what is called decides how. Operations with kernel meaning go to the tables of
// builtins, funcs to call_func.cpp, everything else runs as Python at once.

#include <algorithm>

#include "frontend/body/body.h"
#include "frontend/calls/call.h"
#include "frontend/calls/calls.h"
#include "frontend/facts/memo.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

Ref get(PyObject* o, PyObject* name) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (!v) forget_error();
    return v;
}

}  // namespace

void Body::arguments(const Node* n, CallArgs& out, std::vector<Prov*>* provs,
                     std::vector<Prov*>* keyword_provs) {
    for (const Node* a : n->list) {
        if (a->kind == K::Starred) {
            Val many = expr(a->a);
            low.node = n;
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
            continue;
        }
        Val v = expr(a);
        if (!provs) unit.consume(v);
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
        if (!keyword_provs) unit.consume(v);
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
        CallArgs args;
        {
            Deeper deeper(low.static_depth);
            arguments(n, args, nullptr, nullptr);
        }
        Ref print = Ref::borrow(PyDict_GetItemString(PyEval_GetBuiltins(), "print"));
        Val f{print, nullptr};
        Deeper deeper(low.static_depth);
        return call_python(n, f, args, std::vector<Prov*>(args.positional.size()),
                           std::vector<Prov*>(args.keywords.size()));
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
    return adopt(Ref::borrow(self),
                 method.prov ? unit.attribute(method.prov, names().__self___) : nullptr);
}

Val Body::call(const Node* n) {
    Val base;  // of base.name(...)
    if (n->a->kind == K::Attribute) {
        base = expr(n->a->a);
        low.node = n->a;
    }
    if (base.obj && PyUnicode_Check(base.get()) && n->a->name == names().format_) {
        unit.consume(base);
        CallArgs args;
        std::vector<Prov*> provs, keyword_provs;
        arguments(n, args, &provs, &keyword_provs);
        for (size_t k = 0; k < provs.size(); ++k) unit.consume(args.positional[k].get(), provs[k]);
        for (size_t k = 0; k < keyword_provs.size(); ++k)
            unit.consume(args.keywords[k].second.get(), keyword_provs[k]);
        low.node = n;
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
        low.node = n;
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
                low.node = n;
                if (given->kind == K::Name || given->kind == K::Attribute)
                    refuse_array_of_real_func(k.definition, args.positional.size(),
                                              word ? word->name : nullptr, a.array.get());
            }
            throw;
        }
        low.node = n;
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
                    for (size_t i = 0; i < provs.size(); ++i)
                        unit.consume(args.positional[i].get(), provs[i]);
                    for (size_t i = 0; i < keyword_provs.size(); ++i)
                        unit.consume(args.keywords[i].second.get(), keyword_provs[i]);
                    return {call_builtin(*k.builtin, callable, args)};
                }
                break;
            case Callee::python:
            case Callee::kernel:
                break;
        }
        return call_python(n, f, args, provs, keyword_provs);
    }
    if (is_kernel_callable(callable))
        raise_at(n, Kind::syntax,
                 "Kernels cannot call other kernels. I.e., nested kernels are not allowed. Please "
                 "check if you have direct/indirect invocation of kernels within kernels.");
    CallArgs args;
    std::vector<Prov*> provs, keyword_provs;
    arguments(n, args, &provs, &keyword_provs);
    low.node = n;
    if (const Builtin* b = find_builtin(callable)) {  // methods of tensors, struct types
        for (size_t i = 0; i < provs.size(); ++i) unit.consume(args.positional[i].get(), provs[i]);
        for (size_t i = 0; i < keyword_provs.size(); ++i)
            unit.consume(args.keywords[i].second.get(), keyword_provs[i]);
        return {call_builtin(*b, callable, args)};
    }
    return call_python(n, f, args, provs, keyword_provs);
}

static bool is_object(PyObject* o);

// Python's own min, len, int ... on objects of Python only: Python does them.
bool Body::all_host(const auto& k, const CallArgs& args) {
    if (k.callee != Callee::builtin) return false;
    if (std::string_view(k.builtin->name) == "print") return false;
    if (!low.static_depth && !is_harmless(k.object.get()))
        return false;  // qd.Vector and kin make values of the kernel
    const bool pythons = is_harmless(k.object.get());
    for (const Ref& a : args.positional)
        if (is_symbolic(a.get()) || !(needs_no_kernel(a.get()) || (pythons && is_object(a.get()))))
            return false;
    for (const auto& [name, v] : args.keywords)
        if (is_symbolic(v.get())) return false;
    return true;
}

bool Body::needs_no_kernel(PyObject* o) {
    return PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyList_Check(o) ||
           PyTuple_Check(o) || PyDict_Check(o) || o == Py_None || PyRange_Check(o);
}

// What is neither a number nor anything of ours: Python's own functions ask it what it is.
static bool is_object(PyObject* o) {
    return !is_number(o) && !is_host_matrix(o) && !is_empty_matrix(o) && !is_field(o) &&
           !is_struct_field(o) && !is_external_array(o) &&
           !is_own_code(reinterpret_cast<PyObject*>(Py_TYPE(o)));
}

Val Body::call_again(const Val& f, std::span<const Ref> arguments, std::span<Prov* const> provs,
                     PyObject* keywords) {
    Prov* prov = f.prov ? unit.call(f.prov, arguments, provs, keywords) : nullptr;
    if (!prov) return {};
    Ref result = ask(unwrap(f.get()), arguments, keywords, Asker::guard);
    if (!result) throw PyError{};
    return adopt(std::move(result), prov);
}

// A method of an object of ours reads what is in it now.
void Body::consume_owner(PyObject* self, Prov* method) {
    if (is_expr(self) || is_struct(self) || PyType_Check(self) || is_field(self)) return;
    if (method && method->parent) unit.consume(self, method->parent);
}

Val Body::call_python(const Node* n, const Val& f, const CallArgs& args,
                      const std::vector<Prov*>& provs, const std::vector<Prov*>& keyword_provs) {
    PyObject* callable = f.get();
    bool symbolic = false;
    std::vector<Val> operands;
    Ref keywords;
    for (size_t k = 0; k < args.positional.size(); ++k)
        operands.push_back({args.positional[k], provs[k]});
    if (!args.keywords.empty()) {
        keywords = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
        for (size_t k = 0; k < args.keywords.size(); ++k) {
            PyTuple_SET_ITEM(keywords.get(), static_cast<Py_ssize_t>(k),
                             Ref(args.keywords[k].first).release());
            operands.push_back({args.keywords[k].second, keyword_provs[k]});
        }
    }
    std::vector<Ref> objects;
    for (const Val& v : operands) {
        symbolic |= is_symbolic(v.get());
        objects.push_back(v.obj);
    }
    // As in an f-string: what a value is, only the launch knows.
    if (callable == reinterpret_cast<PyObject*>(&PyUnicode_Type) && symbolic && !keywords &&
        objects.size() == 1)
        return {format_call(Ref::steal(PyUnicode_FromString("{}")).get(), args)};
    const bool harmless = is_harmless(callable);
    const std::string name = callee_name(callable);
    // A method of Python's, and an object that is called, see what they belong to.
    const Prov* owner = f.prov && PyMethod_Check(callable) ? f.prov->parent : nullptr;
    if (owner && owner->at_launch.get() == PyMethod_GET_SELF(callable)) refuse_at_launch(owner);
    refuse_at_launch(f.prov);
    if (harmless && !keywords && (objects.size() == 2 || objects.size() == 3) &&
        name == "getattr" && PyUnicode_CheckExact(objects[1].get()))
        return read_member(operands[0], objects[1].get(),
                           objects.size() == 3 ? &operands[2] : nullptr);
    const bool ours =
        is_expr(callable) ||
        is_own_code(PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable) ||
        is_own_code(reinterpret_cast<PyObject*>(Py_TYPE(callable)));
    const auto run = [&] {
        if (!harmless && !ours && !is_function_of_numbers(callable)) {
            if (low.undecided) throw HoldsTask{};  // what it does is done once
            ++low.kernel->user_runs;
        }
        Ref result = harmless || symbolic ? call_with(callable, objects, keywords.get())
                                          : ask(callable, objects, keywords.get(), Asker::body);
        if (!result) refused(n, symbolic);
        if (result.get() == Py_NotImplemented)
            raise(Kind::type, "`" + name + "` does not take a Quadrants Expression");
        return result;
    };
    if (ours) {
        if (PyMethod_Check(callable)) consume_owner(PyMethod_GET_SELF(callable), f.prov);
        for (const Val& v : operands) unit.consume(v);
        Ref result = run();
        if (is_external_array(result.get())) unit.opaque("the contents of a field");
        return result_of(std::move(result), nullptr);
    }
    if (harmless) {
        Prov* callee = f.prov;
        bool is_pure = true;
        if (symbolic && (name == "hash" || name == "id"))  // of our object, not of its value
            raise(Kind::type, "`" + name + "` does not take a Quadrants Expression",
                  "its value is known when the kernel runs; mix its bits yourself");
        if (sees_more(name)) is_pure = false, callee = nullptr;
        PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
        if (self && !PyModule_Check(self) && !PyType_Check(self)) {
            // A method that is kept under a name of its own can be of any object.
            const bool direct = f.prov && f.prov->kind == Prov::Kind::attribute;
            Prov* owner = direct ? f.prov->parent : nullptr;
            is_pure = (direct || !f.prov) && unit.settle(self, owner);
            if (PyIter_Check(self) || !f.prov) callee = nullptr;
            if (changes_object(name)) {
                ++low.kernel->user_runs;
                if (owner && owner->kind == Prov::Kind::display)
                    owner->operands.clear();
                else if (owner)
                    unit.opaque("method " + name + " changes a captured object");
                for (const Val& v : operands) unit.consume(v);
                return result_of(run(), nullptr);
            }
        }
        Ref known;
        const PyTypeObject* t = reinterpret_cast<PyTypeObject*>(callable);
        if (t == &PyZip_Type || t == &PyEnum_Type || t == &PyReversed_Type) {
            known = run();
            Val v = iterated(f, operands, known);
            if (v.obj) return v;
        }
        return recorded(name.c_str(), callee, operands, keywords.get(), is_pure,
                        [&] { return known ? known : run(); });
    }
    if (!low.static_depth) {
        const std::string message =
            "Calling non-quadrants function \"" + source_text(source, n->a) +
            "\". Scope inside the function is not processed by the Quadrants AST transformer. "
            "The function may not work as expected. Proceed with caution! Maybe you can "
            "consider "
            "turning it into a @qd.func?";
        locate(source, const_cast<Node&>(*n));
        unit.notice(
            {Notice::Category::syntax, message, source.file->name, static_cast<uint32_t>(n->line)});
    }
    return recorded(name.c_str(), is_of_chance(callable) ? nullptr : f.prov, operands,
                    keywords.get(), is_function_of_numbers(callable), run);
}

// An object of a class of the user as left operand of a run-time value: its class's method
// answers, as in Python. Nothing if there is none or it declines.
Val Body::object_operator(const Node* n, const Val& left, const Val& right, ir::Op op) {
    PyObject* o = left.get();
    auto* cls = reinterpret_cast<PyObject*>(Py_TYPE(o));
    if (!is_symbolic(right.get()) || is_symbolic(o) || PyLong_CheckExact(o) ||
        PyFloat_CheckExact(o) || is_host_matrix(o) || is_own_code(cls))
        return {};
    if (is_number(o) && is_enum_member(o)) return {};  // theirs are what the numbers do
    const std::string method = std::string("__") + ir::info(op).method + "__";
    const Ref name = interned(method.c_str());
    // As Python looks operators up: a class's own class has one called `__or__`, which is not
    // meant.
    PyObject* in_class = _PyType_Lookup(Py_TYPE(o), name.get());
    const Ref found = in_class ? get(cls, name.get()) : Ref{};
    PyObject* definition = found ? func_of(found.get()) : nullptr;
    const auto is_native = [](PyObject* m) {  // those decline, or are the numbers' own
        return Py_IS_TYPE(m, &PyWrapperDescr_Type) || Py_IS_TYPE(m, &PyMethodDescr_Type) ||
               PyCFunction_Check(m);
    };
    if (!found || found.get() == Py_None) return {};
    if (is_native(found.get())) {
        // A number is used as such: that its class adds nothing is a fact.
        if (is_number(o) && (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) && left.prov)
            member({Ref::borrow(cls), unit.attribute(left.prov, interned("__class__").get())},
                   name.get());
        return {};
    }
    const Val f = member(left, name.get());
    if (definition) {
        CallArgs args;
        args.positional = {left.obj, right.obj};
        return call_definition(definition, args, {left.prov, right.prov}, {});
    }
    Val v = recorded(method.c_str(), f.prov, {&right, 1}, nullptr, false, [&] {
        if (low.undecided) throw HoldsTask{};  // what it does is done once
        ++low.kernel->user_runs;
        Ref result = call_with(f.get(), {&right.obj, 1}, nullptr);
        if (!result) refused(n, true);
        return result;
    });
    return v.get() == Py_NotImplemented ? Val{} : v;
}

// Python refused a call: the exception that is set leaves, in the kernel's words if that says more.
void Body::refused(const Node* n, bool symbolic) {
    if (symbolic && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyObject *type, *value, *tb;
        PyErr_Fetch(&type, &value, &tb);
        PyErr_NormalizeException(&type, &value, &tb);
        const std::string what = text(value);
        if (type == PyExc_TypeError) {
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(tb);
            raise(Kind::type, "TypeError when calling `" + source_text(source, n->a) +
                                  "`: " + what +
                                  ". Maybe a Quadrants Expression was passed to a function "
                                  "that takes Python values only.");
        }
        PyErr_Restore(type, value, tb);
    }
    throw PyError{};
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
