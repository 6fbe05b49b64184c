// The module's functions on symbolic values: what traced Python code calls to emit operations.

#include "cpython/entry.h"
#include "frontend/facts/facts.h"
#include "frontend/values/structs.h"
#include "python/areas.h"

namespace qd::python {
namespace {

using namespace frontend;

PyObject* is_expr_object(PyObject*, PyObject* o) {
    return PyBool_FromLong(is_expr(o) || is_struct(o) || is_format(o));
}

void collect(PyObject* positional, PyObject* keywords, CallArgs& out) {
    const Ref list = Ref::steal(PySequence_Tuple(positional));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list.get()); ++k)
        out.positional.push_back(Ref::borrow(PyTuple_GET_ITEM(list.get(), k)));
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (keywords && PyDict_Next(keywords, &at, &key, &value))
        out.keywords.emplace_back(Ref::borrow(key), Ref::borrow(value));
}

// trace_op(name, args, **kwargs)
PyObject* trace_op(PyObject*, PyObject* args, PyObject* kwargs) {
    const char* name;
    PyObject* positional;
    if (!PyArg_ParseTuple(args, "sO", &name, &positional)) return nullptr;
    return guarded([&] {
        CallArgs a;
        collect(positional, kwargs, a);
        return call_builtin(name, a);
    });
}

// trace_call(definition, args, kwargs): a call of a func from plain Python that a kernel runs
PyObject* trace_call(PyObject*, PyObject* args) {
    PyObject *definition, *positional, *keywords = nullptr;
    if (!PyArg_ParseTuple(args, "OO|O", &definition, &positional, &keywords)) return nullptr;
    return guarded([&] {
        CallArgs a;
        collect(positional, keywords == Py_None ? nullptr : keywords, a);
        return call_func(definition, a);
    });
}

// Whether the code that asks, past the names in quadrants.lang.impl, is none of this package.
bool asked_by_others() {
    Ref at = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    while (at && at.get() != Py_None) {
        const std::string_view module = cpython::module_of(at.get());
        if (module != "quadrants.lang.impl") return !cpython::is_own_module(module);
        at = Ref::steal_or_null(PyObject_GetAttrString(at.get(), "f_back"));
    }
    return false;
}

// A helper that asks answers otherwise where later processes would ask it. A signal handler is not
// of the kernel that it interrupts.
PyObject* inside_kernel(PyObject*, PyObject*) {
    if (!traces_for_caller()) Py_RETURN_FALSE;
    if (asked_by_others()) note_opaque("a helper asks whether it runs inside a kernel");
    cpython::forget_error();
    Py_RETURN_TRUE;
}

// Whether what is traced is a derivative, which asks more of arithmetic than its values.
PyObject* differentiates(PyObject*, PyObject*) {
    const Lowering* l = current();
    return PyBool_FromLong(l && l->kernel->out->derivative);
}

// An object with ast_builder(): some clients ask for it and pass it back to `subscript`.
PyObject* compiling_callable(PyObject*, PyObject*) {
    if (!current()) {
        PyErr_SetString(PyExc_RuntimeError, "no kernel is being compiled");
        return nullptr;
    }
    static PyObject* object;
    if (!object) {
        const char* source = "type('CompilingCallable', (), {'ast_builder': lambda self: self})()";
        PyObject* space = PyDict_New();
        if (!space) return nullptr;
        PyDict_SetItemString(space, "__builtins__", PyEval_GetBuiltins());
        object = PyRun_String(source, Py_eval_input, space, space);
        Py_DECREF(space);
    }
    return Py_XNewRef(object);
}

PyMethodDef functions[] = {
    {"is_expr", entry<is_expr_object>, METH_O,
     "Whether a value is known only when the kernel runs."},
    {"trace_op", entry<trace_op>, METH_VARARGS | METH_KEYWORDS,
     "Emits the operation of that name."},
    {"trace_call", entry<trace_call>, METH_VARARGS, "Calls a func while a kernel is traced."},
    {"inside_kernel", entry<inside_kernel>, METH_NOARGS, "Whether this thread traces a kernel."},
    {"differentiates", entry<differentiates>, METH_NOARGS, "Whether a derivative is being traced."},
    {"function_text", entry<frontend::function_text>, METH_O,
     "The text of a function in its file, decorators included. OSError if there is none."},
    {"operators_run_code", entry<frontend::operators_run_code>, METH_O,
     "Whether operators, conversions or iteration of an object may run code of the user."},
    {"looks_plainly", entry<frontend::looks_plainly_face>, METH_VARARGS,
     "Whether a call is seen at a glance to change nothing: looks_plainly(callee, operands)."},
    {"member_origin", entry<frontend::member_origin>, METH_VARARGS,
     "Where Python finds a member of an object, as a number: member_origin(o, name)."},
    {"compiling_callable", entry<compiling_callable>, METH_NOARGS, "The function being traced."},
    {},
};

}  // namespace

bool add_expr(PyObject* module) {
    data::is_traced = traces_for_caller;
    for (PyTypeObject* t : {&Expr_Type, &StructValue_Type, &FormatValue_Type})
        if (PyType_Ready(t) < 0) return false;
    return PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "Expr", reinterpret_cast<PyObject*>(&Expr_Type)) == 0;
}

}  // namespace qd::python
