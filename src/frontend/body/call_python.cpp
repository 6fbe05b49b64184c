// Calls that Python makes while a body is walked: of its own functions, of ours that are no funcs,
// of the user's, and of the methods by which the user's objects answer operators.
//
// Python's own functions do what they say: facts about their operands stand for their results.
// Ours look at all that they are given. What the user's see and do only they know: they run in the
// order of the program, once, and their answers are asked for again by later processes.

#include <algorithm>
#include <cstring>
#include <optional>

#include "frontend/body/body.h"
#include "frontend/calls/calls.h"
#include "frontend/facts/contents.h"
#include "frontend/facts/written_memory.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

// Whether a method was looked up in its object; else something keeps it, under a name of its own.
bool finds_owner(const Prov* method) {
    return method->kind == Prov::Kind::attribute && !method->is_kept_method;
}

Ref get(PyObject* o, PyObject* name) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (!v) forget_error();
    return v;
}

bool is_numpy_array(PyObject* o) {
    if (!has_type_named(o, "numpy.ndarray")) return false;
    const Ref axes = Ref::steal(PyObject_GetAttrString(o, "ndim"));
    return PyLong_AsLong(axes.get()) > 0;
}

}  // namespace

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
    if (is_expr(self) || is_struct(self) || PyType_Check(self) || !method) return;
    if (is_ndarray(unwrap(self))) return unit.opaque("a method of an array");
    if (finds_owner(method)) {
        if (!is_field(self) && method->parent) unit.consume(self, method->parent);
        return;
    }
    unit.consume(adopt(Ref::borrow(self), unit.attribute(method, names().__self___)));
}

// A call that Python makes, with values of the kernel among its operands or without.
struct Body::PythonCall {
    const Node* n;
    const Val& f;
    std::vector<Val> operands;  // the last of them by `keywords`
    std::vector<Ref> objects;   // theirs
    Ref keywords;               // names, null if none
    std::string name;
    bool symbolic = false;  // an operand is known when the kernel runs
    bool harmless = false, ours = false;

    PyObject* callable() const { return f.get(); }
};

Body::PythonCall Body::gather_call(const Node* n, const Val& f, const TracedArgs& args) {
    PythonCall c{.n = n, .f = f};
    for (size_t k = 0; k < args.positional.size(); ++k)
        c.operands.push_back({args.positional[k], args.provs[k]});
    if (!args.keywords.empty()) {
        c.keywords = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
        for (size_t k = 0; k < args.keywords.size(); ++k) {
            PyTuple_SET_ITEM(c.keywords.get(), static_cast<Py_ssize_t>(k),
                             Ref(args.keywords[k].first).release());
            c.operands.push_back({args.keywords[k].second, args.keyword_provs[k]});
        }
    }
    for (const Val& v : c.operands) {
        c.symbolic |= is_symbolic(v.get());
        c.objects.push_back(v.obj);
    }
    return c;
}

Ref Body::run_call(const PythonCall& c) {
    const bool of_numbers = is_function_of_numbers(c.callable());
    const bool is_users = !c.harmless && !c.ours;
    const auto is_plain = [](const Val& v) { return is_plain_constant(v.get()); };
    if (is_users && !c.symbolic && !(of_numbers && std::ranges::all_of(c.operands, is_plain)))
        note_changes(c.name, c.callable(), c.operands, c.keywords.get());
    if (is_users && !of_numbers) user_code_runs();
    const auto call = [&] { return call_with(c.callable(), c.objects, c.keywords.get()); };
    std::optional<WrittenMemory> written;  // the user's are asked again, and write again
    if (c.harmless || of_numbers) written.emplace(c.callable(), c.objects);
    // What ours give changes nothing that a guard could ask for.
    Ref result = c.symbolic || c.ours ? call()
                 : c.harmless ? asked(c.name, c.callable(), c.operands, c.keywords.get(), call)
                              : ask(c.callable(), c.objects, c.keywords.get(), Asker::body);
    if (!result) refused(c.n, c.symbolic);
    if (written && written->changed()) {
        ++low.kernel->user_runs;
        unit.opaque("what " + c.name + " writes to an array");
    }
    if (result.get() == Py_NotImplemented)
        raise(Kind::type, "`" + c.name + "` does not take a Quadrants Expression",
              "its value is known when the kernel runs; write the operator or the `qd` function");
    return result;
}

// Of ours, what finds the runtime and its options: what a kernel reads of those is known by this.
static bool finds_options(std::string_view name) {
    return name == "get_runtime" || name == "current_cfg" || name == "config";
}

Val Body::call_ours(const PythonCall& c) {
    PyObject* self = owner_of(c.callable());
    // What a field says of itself beyond its layout, such as has_grad(), later processes ask again.
    if (((self && (is_field(self) || is_struct_field(self))) || finds_options(c.name)) &&
        c.operands.empty())
        if (Val answer = call_again(c.f, {}, {}, nullptr); answer.obj) return answer;
    if (self) consume_owner(self, c.f.prov);
    for (const Val& v : c.operands) consume_number(v);
    Ref result = run_call(c);
    if (is_external_array(result.get())) unit.opaque("the contents of a field");
    return result_of(std::move(result), nullptr);
}

// A method that changes its object, which code outside the kernel may have as well.
Val Body::call_changing(const PythonCall& c, Prov* owner, bool direct) {
    const bool made_here = direct && owner && owner->kind == Prov::Kind::display;
    if (made_here)
        ++low.kernel->user_runs;
    else
        user_code_runs();
    if (!direct)
        unit.opaque("method " + c.name + ", kept under a name of its own, changes its object");
    else if (made_here)
        owner->operands.clear();
    else if (owner)
        unit.opaque("method " + c.name + " changes a captured object");
    for (const Val& v : c.operands) unit.consume(v);
    PyObject* self = owner_of(c.callable());
    if (self && PyAnySet_Check(self) && c.name == "pop") unit.consume(self, nullptr);  // its order
    return result_of(run_call(c), nullptr);
}

Val Body::call_harmless(const PythonCall& c) {
    PyObject* callable = c.callable();
    Prov* callee = c.f.prov;
    bool is_pure = true;
    if (c.symbolic && (c.name == "hash" || c.name == "id"))  // of our object, not of its value
        raise(Kind::type, "`" + c.name + "` does not take a Quadrants Expression",
              "its value is known when the kernel runs; mix its bits yourself");
    if (sees_more(c.name)) is_pure = false, callee = nullptr;
    if (c.name == "setattr" || c.name == "delattr") {
        user_code_runs();
        unit.opaque("what " + c.name + " changes");
    }
    PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
    if (self && !PyModule_Check(self) && !PyType_Check(self)) {
        // A method that is kept under a name of its own can be of any object.
        const bool direct = c.f.prov && finds_owner(c.f.prov);
        Prov* owner = direct ? c.f.prov->parent : nullptr;
        is_pure = (direct || !c.f.prov) && unit.settle(self, owner);
        if (PyIter_Check(self) || !c.f.prov) callee = nullptr;
        if (changes_object(c.name)) return call_changing(c, owner, direct || !c.f.prov);
    }
    Ref result;
    const PyTypeObject* t = reinterpret_cast<PyTypeObject*>(callable);
    if (t == &PyZip_Type || t == &PyEnum_Type || t == &PyReversed_Type) {
        result = run_call(c);
        Val v = iterated(c.f, c.operands, result);
        if (v.obj) return v;
    }
    return recorded(c.name.c_str(), callee, c.operands, c.keywords.get(), is_pure,
                    [&] { return result ? result : run_call(c); });
}

Val Body::call_users(const PythonCall& c) {
    if (!low.static_depth) {
        const std::string message =
            "Calling non-quadrants function \"" + source_text(source, c.n->a) +
            "\". Scope inside the function is not processed by the Quadrants AST transformer. "
            "The function may not work as expected. Proceed with caution! Maybe you can "
            "consider "
            "turning it into a @qd.func?";
        locate(source, const_cast<Node&>(*c.n));
        unit.notice({Notice::Category::syntax, message, source.file->name,
                     static_cast<uint32_t>(c.n->line)});
    }
    return recorded(c.name.c_str(), is_of_chance(c.callable()) ? nullptr : c.f.prov, c.operands,
                    c.keywords.get(), is_function_of_numbers(c.callable()),
                    [&] { return run_call(c); });
}

// A function of Python's that looks at the variables of whoever calls it: not at a kernel's.
static void refuse_frame_readers(const std::string& name, PyObject* callable, size_t operands) {
    const bool eval = name == "eval" || name == "exec";
    const bool reads =
        eval ? operands < 2 : (name == "locals" || name == "vars" || name == "dir") && !operands;
    if (!reads || !PyCFunction_Check(callable)) return;
    PyObject* own = PyDict_GetItemString(PyEval_GetBuiltins(), name.c_str());
    if (own == callable)
        raise(Kind::compilation,
              "`" + name +
                  "` looks at the variables of the Python function that calls it, and a "
                  "kernel's are none",
              eval ? "give it a dict of names" : "name what is wanted");
}

Val Body::call_python(const Node* n, const Val& f, const TracedArgs& args) {
    PyObject* callable = f.get();
    PythonCall c = gather_call(n, f, args);
    if (c.keywords && PySequence_Contains(c.keywords.get(), interned("out").get()) == 1) {
        user_code_runs();
        unit.opaque("what " + c.name + " writes to out=");
    }
    // As in an f-string: what a value is, only the launch knows.
    if (callable == reinterpret_cast<PyObject*>(&PyUnicode_Type) && c.symbolic && !c.keywords &&
        c.objects.size() == 1)
        return {format_call(Ref::steal(PyUnicode_FromString("{}")).get(), args)};
    c.harmless = is_harmless(callable);
    c.name = callee_name(callable);
    refuse_frame_readers(c.name, callable, c.operands.size());
    // A method of Python's, and an object that is called, see what they belong to.
    const Prov* owner = f.prov && PyMethod_Check(callable) ? f.prov->parent : nullptr;
    if (owner && owner->at_launch.get() == PyMethod_GET_SELF(callable)) refuse_at_launch(owner);
    refuse_at_launch(f.prov);
    if (c.harmless && !c.keywords && (c.objects.size() == 2 || c.objects.size() == 3) &&
        c.name == "getattr" && PyUnicode_CheckExact(c.objects[1].get()))
        return read_member(c.operands[0], c.objects[1].get(),
                           c.objects.size() == 3 ? &c.operands[2] : nullptr);
    c.ours = is_expr(callable) ||
             is_own_code(PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable) ||
             is_own_code(reinterpret_cast<PyObject*>(Py_TYPE(callable)));
    if (c.ours) return call_ours(c);
    return c.harmless ? call_harmless(c) : call_users(c);
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
        if (is_numpy_array(o)) {  // which asks its elements one by one
            unit.consume(left);
            Ref result = Ref::steal_or_null(PyObject_CallMethodOneArg(o, name.get(), right.get()));
            if (!result) refused(n, true);
            return result.get() == Py_NotImplemented ? Val{}
                                                     : result_of(std::move(result), nullptr);
        }
        // A number is used as such: that its class adds nothing is a fact.
        if (is_number(o) && (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) && left.prov)
            member({Ref::borrow(cls), unit.attribute(left.prov, interned("__class__").get())},
                   name.get());
        return {};
    }
    const Val f = member(left, name.get());
    if (definition) {
        TracedArgs args;
        args.positional = {left.obj, right.obj};
        args.provs = {left.prov, right.prov};
        return call_definition(definition, args);
    }
    Val v = recorded(method.c_str(), f.prov, {&right, 1}, nullptr, false, [&] {
        user_code_runs();
        Ref result = call_with(f.get(), {&right.obj, 1}, nullptr);
        if (!result) refused(n, true);
        return result;
    });
    return v.get() == Py_NotImplemented ? Val{} : v;
}

// Python refused a call: the exception that is set leaves, in the kernel's words if that says more.
// With whole tracebacks what the callee itself raised is left as it is.
void Body::refused(const Node* n, bool symbolic) {
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    const bool at_once = !tb && n->kind == NodeKind::Call && shows_full_tracebacks();
    if (type != PyExc_TypeError || !(symbolic || at_once)) {
        PyErr_Restore(type, value, tb);
        throw PyError{};
    }
    PyErr_NormalizeException(&type, &value, &tb);
    const std::string what = text(value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(tb);
    raise(Kind::type, "TypeError when calling `" + source_text(source, n->a) + "`: " + what +
                          (symbolic ? ". Maybe a Quadrants Expression was passed to a function "
                                      "that takes Python values only."
                                    : "."));
}

}  // namespace qd::frontend
