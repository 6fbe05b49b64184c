// See plain_code.h. Names are looked up for all of the code together, whatever they stand behind: a
// member's name is asked of each object that is reached. Cost: names times objects, both limited.

#include "frontend/facts/plain_code.h"

#include <opcode.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "frontend/facts/callables.h"
#include "frontend/facts/facts.h"
#include "frontend/facts/hooks.h"
#include "frontend/source/ast.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

// Of Python's own: they look at numbers, tuples and objects without hooks.
bool is_looking_builtin(PyObject* name, PyObject* found) {
    static const std::string_view kNames[] = {"len", "abs",  "min",   "max", "int",  "float",
                                              "sum", "bool", "round", "pow", "range"};
    if (PyExceptionClass_Check(found))
        return !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(found), Py_TPFLAGS_HEAPTYPE);
    return (PyCFunction_Check(found) || PyType_Check(found)) &&
           std::ranges::find(kNames, text(name)) != std::end(kNames);
}

// Stores elsewhere than in a variable of its own, or makes a class.
bool is_store(int opcode) {
    switch (opcode) {
        case STORE_ATTR:
        case DELETE_ATTR:
        case STORE_GLOBAL:
        case DELETE_GLOBAL:
        case STORE_NAME:
        case DELETE_NAME:
        case STORE_SUBSCR:
        case DELETE_SUBSCR:
        case STORE_DEREF:
        case DELETE_DEREF:
#ifdef STORE_SLICE
        case STORE_SLICE:
#endif
        case IMPORT_NAME:
        case LOAD_BUILD_CLASS:
            return true;
        default:
            return false;
    }
}

// Whether numbers, texts, tuples or functions have a member of this name.
bool is_of_plain_values(PyObject* name) {
    PyTypeObject* const kinds[] = {&PyLong_Type,  &PyFloat_Type,    &PyUnicode_Type,
                                   &PyTuple_Type, &PyFunction_Type, &PyRange_Type,
                                   &PyList_Type,  &PyDict_Type,     &PySet_Type};
    return std::ranges::any_of(kinds, [&](PyTypeObject* t) { return _PyType_Lookup(t, name); });
}

// A class of Python source, all of whose bases are.
bool is_plain_class(PyTypeObject* t) {
    static PyTypeObject* const example = reinterpret_cast<PyTypeObject*>(
        PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "example"));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(t->tp_mro); ++k) {
        auto* c = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, k));
        if (c == &PyBaseObject_Type) continue;
        if (c->tp_dealloc != example->tp_dealloc || !Py_IS_TYPE(c, &PyType_Type)) return false;
        if (is_own_code(reinterpret_cast<PyObject*>(c))) return false;
    }
    return true;
}

// All that code can get at.
struct Reach {
    static constexpr size_t kMost = 64;
    std::vector<PyObject*> functions, objects;  // borrowed from what holds them
    struct Member {
        PyObject* name;
        bool is_found;  // as a global name, or by an object
    };
    std::vector<Member> members;

    bool add_value(PyObject* o, int depth = 0) {
        if (is_plain_constant(o)) return true;
        if (PyTuple_CheckExact(o)) {
            if (depth > 4 || PyTuple_GET_SIZE(o) > Py_ssize_t{kMost}) return false;
            for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(o); ++k)
                if (!add_value(PyTuple_GET_ITEM(o, k), depth + 1)) return false;
            return true;
        }
        if (PyFunction_Check(o)) return add_function(o);
        if (PyCFunction_Check(o)) {
            PyObject* home = PyCFunction_GET_SELF(o);
            const char* name = home && PyModule_Check(home) ? PyModule_GetName(home) : "";
            if (!name) forget_error();
            return name && std::string_view(name) == "math";
        }
        return add_object(o);
    }

    bool add_object(PyObject* o) {
        if (std::ranges::find(objects, o) != objects.end()) return true;
        if (objects.size() == kMost || is_own_code(o)) return false;
        PyTypeObject* t = Py_TYPE(o);
        if (!PyModule_CheckExact(o)) {
            if (!is_plain_class(t) || may_run("type", o)) return false;
            for (const char* name : {"__enter__", "__aenter__", "__await__", "__aiter__"})
                if (in_class(t, name)) return false;
        }
        objects.push_back(o);
        return true;
    }

    bool add_function(PyObject* f) {
        if (std::ranges::find(functions, f) != functions.end()) return true;
        if (functions.size() == kMost || is_own_code(f)) return false;
        auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(f));
        constexpr int kLater = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
        const auto* of = reinterpret_cast<PyFunctionObject*>(f);
        if (code->co_flags & kLater || of->func_builtins != PyEval_GetBuiltins()) return false;
        functions.push_back(f);
        if (of->func_defaults && !add_value(of->func_defaults)) return false;
        PyObject *name, *value;
        for (Py_ssize_t at = 0;
             of->func_kwdefaults && PyDict_Next(of->func_kwdefaults, &at, &name, &value);)
            if (!add_value(value)) return false;
        return add_code(code, PyFunction_GET_GLOBALS(f), 0);
    }

    bool add_code(PyCodeObject* code, PyObject* globals, int depth) {
        if (depth > 4) return false;
        auto* o = reinterpret_cast<PyObject*>(code);
        for (const char* shared : {"co_freevars", "co_cellvars"})
            if (PyTuple_GET_SIZE(Ref::steal(PyObject_GetAttrString(o, shared)).get())) return false;
        const Ref bytes = Ref::steal(PyObject_GetAttrString(o, "co_code"));
        for (Py_ssize_t at = 0; at < PyBytes_GET_SIZE(bytes.get()); at += 2)
            if (is_store(static_cast<uint8_t>(PyBytes_AS_STRING(bytes.get())[at]))) return false;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(code->co_consts); ++k)
            if (PyObject* c = PyTuple_GET_ITEM(code->co_consts, k); PyCode_Check(c))
                if (!add_code(reinterpret_cast<PyCodeObject*>(c), globals, depth + 1)) return false;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(code->co_names); ++k)
            if (!add_name(PyTuple_GET_ITEM(code->co_names, k), globals)) return false;
        return true;
    }

    bool add_name(PyObject* name, PyObject* globals) {
        PyObject* found = PyDict_GetItem(globals, name);
        PyObject* of_python = found ? nullptr : PyDict_GetItem(PyEval_GetBuiltins(), name);
        if (found && !add_value(found)) return false;
        if (of_python && !is_looking_builtin(name, of_python)) return false;
        return add_member(name, found || of_python);
    }

    bool add_member(PyObject* name, bool is_found) {
        for (Member& m : members)
            if (m.name == name || PyUnicode_Compare(m.name, name) == 0)
                return m.is_found |= is_found, true;
        if (members.size() == kMost || is_of_plain_values(name)) return false;
        members.push_back({name, is_found});
        return true;
    }

    bool look_up(PyObject* o, Member& m) {
        if (PyModule_CheckExact(o)) {
            PyObject* names = PyModule_GetDict(o);
            PyObject* found = PyDict_GetItem(names, m.name);
            if (!found) return !PyDict_GetItemString(names, "__getattr__");
            m.is_found = true;
            return add_value(found);
        }
        PyObject* of_class = _PyType_Lookup(Py_TYPE(o), m.name);
        const Ref dict = Ref::steal_or_null(PyObject_GenericGetDict(o, nullptr));
        if (!dict) forget_error();  // it has slots
        if (dict && !PyDict_CheckExact(dict.get())) return false;
        PyObject* own = dict ? PyDict_GetItem(dict.get(), m.name) : nullptr;
        m.is_found |= own || of_class;
        if (own && !add_value(own)) return false;
        if (!of_class) return true;
        if (PyFunction_Check(of_class)) return add_function(of_class);
        if (Py_IS_TYPE(of_class, &PyProperty_Type)) {
            const Ref get = Ref::steal(PyObject_GetAttrString(of_class, "fget"));
            return PyFunction_Check(get.get()) && add_function(get.get());
        }
        if (Py_IS_TYPE(of_class, &PyMemberDescr_Type)) {
            const Ref value = Ref::steal_or_null(PyObject_GenericGetAttr(o, m.name));
            if (!value) forget_error();
            return !value || add_value(value.get());
        }
        return !Py_TYPE(of_class)->tp_descr_get && add_value(of_class);
    }

    bool is_closed() {
        for (size_t before = 0, now = 1; before != now;) {  // until nothing is added
            before = functions.size() + objects.size() + members.size();
            for (size_t k = 0; k < objects.size(); ++k)
                for (size_t m = 0; m < members.size(); ++m) {
                    Member member = members[m];
                    if (!look_up(objects[k], member)) return false;
                    members[m].is_found |= member.is_found;
                }
            now = functions.size() + objects.size() + members.size();
        }
        for (PyObject* f : functions)
            if (PyObject* own = reinterpret_cast<PyFunctionObject*>(f)->func_dict)
                for (const Member& m : members)
                    if (PyDict_Contains(own, m.name)) return false;
        return std::ranges::all_of(members, &Member::is_found);
    }
};

}  // namespace

bool looks_plainly(PyObject* callee, std::span<const Ref> operands) {
    Reach reach;
    if (PyCFunction_Check(callee)) {  // to read a member
        static PyObject* const get = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
        return callee == get && operands.size() == 2 && PyUnicode_CheckExact(operands[1].get()) &&
               reach.add_value(operands[0].get()) && reach.add_member(operands[1].get(), false) &&
               reach.is_closed();
    }
    const bool is_method = PyMethod_Check(callee);
    PyObject* function = is_method ? PyMethod_GET_FUNCTION(callee) : callee;
    if (!PyFunction_Check(function) || !reach.add_function(function)) return false;
    if (is_method && !reach.add_value(PyMethod_GET_SELF(callee))) return false;
    for (const Ref& o : operands)
        if (!reach.add_value(o.get())) return false;
    return reach.is_closed();
}

PyObject* looks_plainly_face(PyObject*, PyObject* args) {
    PyObject *callee, *operands;
    if (!PyArg_ParseTuple(args, "OO!", &callee, &PyList_Type, &operands)) return nullptr;
    std::vector<Ref> all;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(operands); ++k)
        all.push_back(Ref::borrow(PyList_GET_ITEM(operands, k)));
    return PyBool_FromLong(looks_plainly(callee, all));
}

}  // namespace qd::frontend
