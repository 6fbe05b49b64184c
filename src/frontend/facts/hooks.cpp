// See hooks.h.

#include "frontend/facts/hooks.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "cpython/names.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/facts.h"
#include "frontend/source/ast.h"
#include "frontend/values/values.h"

namespace qd::frontend {

PyObject* in_class(PyTypeObject* t, const char* name) {
    return _PyType_Lookup(t, interned(name).get());
}

namespace {

bool is_one_of(PyObject* name, std::initializer_list<std::string_view> names) {
    return PyUnicode_Check(name) && std::ranges::find(names, text(name)) != names.end();
}

// A method that the user wrote in Python.
bool is_users(PyObject* method) { return PyFunction_Check(method) && !is_own_code(method); }

bool runs_getter(PyObject* descriptor) {
    const Ref get = Ref::steal_or_null(PyObject_GetAttrString(descriptor, "fget"));
    if (!get) forget_error();
    return get && get.get() != Py_None && !is_own_code(get.get());
}

// To read what a class has under a name, through an object of it or through the class.
bool descriptor_runs_hook(PyObject* descriptor, bool through_class) {
    if (PyFunction_Check(descriptor) || PyType_Check(descriptor)) return false;
    if (Py_IS_TYPE(descriptor, &PyClassMethod_Type)) {  // some Pythons ask what is in it
        const Ref inner = Ref::steal_or_null(PyObject_GetAttrString(descriptor, "__func__"));
        if (!inner) forget_error();
        return inner && descriptor_runs_hook(inner.get(), false);
    }
    PyObject* get = in_class(Py_TYPE(descriptor), "__get__");
    if (get && is_users(get)) return true;
    return PyObject_TypeCheck(descriptor, &PyProperty_Type) && !through_class &&
           runs_getter(descriptor);
}

std::string home_of(PyObject* function) {
    PyObject* globals = PyFunction_GET_GLOBALS(function);
    PyObject* home = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
    return home && PyUnicode_Check(home) ? text(home) : "";
}

// Whether code made of a text names nothing but the fields of its class, as dataclasses write it.
bool names_fields_alone(PyObject* function, PyObject* members) {
    const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    if (text(code->co_filename) != "<string>") return false;
    PyObject* fields = PyDict_GetItemString(members, "__dataclass_fields__");
    if (!fields) fields = PyDict_GetItemString(members, "_fields");
    if (!fields) return false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(code->co_names); ++k) {
        PyObject* name = PyTuple_GET_ITEM(code->co_names, k);
        if (!is_one_of(name, {"__class__", "__qualname__", "NotImplemented", "hash", "type",
                              "super", "__setattr__", "__delattr__", "_tuple_new"}) &&
            PySequence_Contains(fields, name) != 1)
            return false;
    }
    return true;
}

// What dataclasses, named tuples and Python's own containers have: it goes on with their members.
bool is_generated(PyObject* function, PyObject* members) {
    const std::string home = home_of(function);
    if (home == "dataclasses" || home == "reprlib") {
        const Ref inner = Ref::steal_or_null(PyObject_GetAttr(function, names().__wrapped___));
        if (!inner) forget_error();
        return !inner ||
               (PyFunction_Check(inner.get()) && names_fields_alone(inner.get(), members));
    }
    return home == "collections" || home == "collections.abc" ||
           names_fields_alone(function, members);
}

// Made by Python's own libraries.
bool is_pythons(PyObject* function) {
    static const std::string_view kModules[] = {"enum",     "functools", "abc",     "fractions",
                                                "datetime", "numbers",   "pathlib", "os"};
    return std::ranges::find(kModules, home_of(function)) != std::end(kModules);
}

// What is not asked for as a member, nor said by an operator. NumPy's ask for members, which
// __getattr__ may find.
bool is_no_operator(PyObject* name) {
    return is_one_of(
        name, {"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__",
               "__del__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__",
               "__deepcopy__", "__setattr__", "__delattr__", "__enter__", "__exit__"});
}

}  // namespace

namespace {
// What super() finds behind its class; borrowed, null if nothing.
PyObject* found_behind(PyObject* super, PyObject* name) {
    const Ref here = Ref::steal_or_null(PyObject_GetAttrString(super, "__thisclass__")),
              of = Ref::steal_or_null(PyObject_GetAttrString(super, "__self_class__"));
    forget_error();
    if (!here || !of || !PyType_Check(of.get())) return nullptr;
    const PyObject* mro = reinterpret_cast<PyTypeObject*>(of.get())->tp_mro;
    bool behind = false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(mro); ++k) {
        PyObject* c = PyTuple_GET_ITEM(mro, k);
        PyObject* found =
            behind ? PyDict_GetItem(reinterpret_cast<PyTypeObject*>(c)->tp_dict, name) : nullptr;
        if (found) return found;
        behind |= c == here.get();
    }
    return nullptr;
}

bool is_mapping_proxy(PyObject* o) { return Py_IS_TYPE(o, &PyDictProxy_Type); }

// The mapping that a read-only view shows; borrowed.
PyObject* shown_by(PyObject* proxy) {
    PyObject* mapping = nullptr;
    const auto see = [](PyObject* o, void* out) {
        *static_cast<PyObject**>(out) = o;
        return 0;
    };
    Py_TYPE(proxy)->tp_traverse(proxy, see, &mapping);
    return mapping;
}

PyObject* found_by(PyTypeObject* t, bool always) {
    static PyObject* const names[] = {interned("__getattr__").release(),
                                      interned("__getattribute__").release()};
    PyObject* get = _PyType_Lookup(t, names[always]);
    return get && is_users(get) ? get : nullptr;
}
}  // namespace

bool member_runs_hook(PyObject* o, PyObject* name) {
    if (PyWeakref_CheckProxy(o)) return true;  // asks another object
    PyTypeObject* t = Py_TYPE(o);
    if (t == &PySuper_Type)
        if (PyObject* found = found_behind(o, name)) return descriptor_runs_hook(found, false);
    const bool is_class = PyType_Check(o), heap = t->tp_flags & Py_TPFLAGS_HEAPTYPE;
    if (heap && found_by(t, true)) return true;
    PyObject* of_class = heap ? _PyType_Lookup(t, name) : nullptr;
    if (of_class && (!is_class || descriptor_runs_hook(of_class, false)))
        return descriptor_runs_hook(of_class, false);
    if (is_class && !is_own_code(o))
        if (PyObject* found = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(o), name))
            return descriptor_runs_hook(found, true);
    PyObject* get = heap ? found_by(t, false) : nullptr;
    if (PyModule_Check(o)) {
        PyObject* names = PyModule_GetDict(o);
        PyObject* own = PyDict_GetItemString(names, "__getattr__");
        return ((own && is_users(own)) || get) && !PyDict_Contains(names, name);
    }
    if (!get) return false;
    const Ref plain = Ref::steal_or_null(is_class ? PyType_Type.tp_getattro(o, name)
                                                  : PyObject_GenericGetAttr(o, name));
    if (!plain) forget_error();
    return !plain;
}

Origin origin_of(PyObject* o, PyObject* name) {
    PyTypeObject* t = Py_TYPE(o);
    PyObject* of_class = _PyType_Lookup(t, name);
    const bool describes = of_class && Py_TYPE(of_class)->tp_descr_get;
    if (describes && Py_IS_TYPE(of_class, &PyMemberDescr_Type)) return Origin::slot;
    Ref dict = Ref::steal_or_null(PyObject_GenericGetAttr(o, names().__dict___));
    if (!dict) forget_error();
    const bool own = dict && PyDict_Check(dict.get()) && PyDict_Contains(dict.get(), name) == 1;
    // What is kept there by the class's own way of computing it, is that way's.
    if (own && (!describes || Py_TYPE(of_class)->tp_descr_set || PyFunction_Check(of_class) ||
                func_of(of_class)))
        return Origin::own;
    if (!of_class) return Origin::elsewhere;
    if (!describes) return Origin::class_value;
    return PyFunction_Check(of_class) || func_of(of_class) ? Origin::method : Origin::computed;
}

PyObject* member_origin(PyObject*, PyObject* args) {
    PyObject *o, *name;
    if (!PyArg_ParseTuple(args, "OU", &o, &name)) return nullptr;
    return PyLong_FromLong(static_cast<long>(origin_of(o, name)));
}

bool item_runs_hook(PyObject* o) {
    if (is_mapping_proxy(o)) return item_runs_hook(shown_by(o));
    if (PyWeakref_CheckProxy(o)) return true;
    PyTypeObject* t = Py_TYPE(o);
    // What makes items that are missing, as a defaultdict does.
    if (PyDict_Check(o) && !PyDict_CheckExact(o) && in_class(t, "__missing__")) return true;
    PyObject* get = t->tp_flags & Py_TPFLAGS_HEAPTYPE ? in_class(t, "__getitem__") : nullptr;
    if (get) return is_users(get) && !is_pythons(get);
    if (!PyType_Check(o)) return false;
    auto* c = reinterpret_cast<PyTypeObject*>(o);
    return (c->tp_flags & Py_TPFLAGS_HEAPTYPE) && !is_own_code(o) &&
           in_class(c, "__class_getitem__");
}

namespace {
// Whether what a class has under the name of an operator may run code of the user.
bool is_users_operator(PyObject* value) {
    if (PyFunction_Check(value)) return is_users(value) && !is_pythons(value);
    if (Py_IS_TYPE(value, &PyProperty_Type)) {
        const Ref get = Ref::steal_or_null(PyObject_GetAttrString(value, "fget"));
        if (!get) forget_error();
        return !get || is_users_operator(get.get());
    }
    PyTypeObject* const natives[] = {
        &PyWrapperDescr_Type, &PyMethodDescr_Type,      &PyGetSetDescr_Type,  &PyMemberDescr_Type,
        &PyClassMethod_Type,  &PyClassMethodDescr_Type, &PyStaticMethod_Type, &PyCFunction_Type};
    if (std::ranges::find(natives, Py_TYPE(value)) != std::end(natives)) return false;
    return !PyType_Check(value) && (PyCallable_Check(value) || Py_TYPE(value)->tp_descr_get);
}

bool makes_objects(PyObject* name) { return is_one_of(name, {"__init__", "__new__", "__del__"}); }

bool is_users_maker(PyObject* value, PyObject* members) {
    Ref function = Ref::borrow(value);
    if (Py_IS_TYPE(value, &PyStaticMethod_Type)) {
        function = Ref::steal_or_null(PyObject_GetAttrString(value, "__func__"));
        if (!function) forget_error();
    }
    return function && is_users(function.get()) && !is_pythons(function.get()) &&
           !is_generated(function.get(), members);
}

// Whether a class is of Python's own module of enumerations, whose `_missing_` only raises.
bool is_own_enum(PyTypeObject* c) {
    return module_of_class(reinterpret_cast<PyObject*>(c)) == "enum";
}

enum class Hooks : uint8_t { none, generated, users };
Hooks hooks_of(PyObject* o) {
    PyTypeObject* t = Py_TYPE(o);
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || is_own_code(reinterpret_cast<PyObject*>(t)))
        return Hooks::none;
    Hooks found = Hooks::none;
    bool copies = false;  // Python's own containers: operators make objects of the same class
    bool made_by_user = false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(t->tp_mro); ++k) {
        auto* c = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, k));
        for (const char* home : {"collections.", "datetime."})
            copies |= std::string_view(c->tp_name).starts_with(home);
        if (!(c->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
        PyObject *name, *value;
        for (Py_ssize_t at = 0; PyDict_Next(c->tp_dict, &at, &name, &value);) {
            if (is_one_of(name, {"_missing_"}) && !is_own_enum(c)) return Hooks::users;
            if (!PyUnicode_Check(name) || !text(name).starts_with("__")) continue;
            made_by_user |= makes_objects(name) && is_users_maker(value, c->tp_dict);
            if (is_no_operator(name) || !is_users_operator(value)) continue;
            if (!PyFunction_Check(value) || !is_generated(value, c->tp_dict)) return Hooks::users;
            copies |= home_of(value).starts_with("collections");
            found = Hooks::generated;
        }
    }
    return copies && made_by_user ? Hooks::users : found;
}

// What operators and the like of containers go on with.
struct Reached {
    std::string_view callee;
    int left = 1 << 16;  // items

    bool runs(PyObject* o, int depth) {
        constexpr int kDeepest = 16;
        if (is_plain_constant(o)) return false;
        if (--left < 0 || depth > kDeepest || PyIter_Check(o) || goes_elsewhere(o)) return true;
        const Hooks hooks = hooks_of(o);
        if (hooks == Hooks::users) return true;
        if (PySlice_Check(o)) {
            const auto* s = reinterpret_cast<PySliceObject*>(o);
            return runs(s->start, depth + 1) || runs(s->stop, depth + 1) ||
                   runs(s->step, depth + 1);
        }
        if (is_mapping_proxy(o)) return runs(shown_by(o), depth + 1);
        if (PyDict_Check(o)) {
            PyObject *key, *value;
            for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);)
                if (runs(key, depth + 1) || runs(value, depth + 1)) return true;
        } else if (PyList_Check(o) || PyTuple_Check(o)) {
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
                if (runs(PySequence_Fast_GET_ITEM(o, k), depth + 1)) return true;
        } else if (is_of(o, "numpy.ndarray")) {
            if (holds_objects(o)) return true;
        } else if (PyAnySet_Check(o) || PyDictViewSet_Check(o) || PyDictValues_Check(o) ||
                   is_deque(o)) {
            const Ref items = Ref::steal_or_null(PySequence_Tuple(o));
            if (!items) forget_error();
            return !items || runs(items.get(), depth + 1);
        }
        if (hooks == Hooks::generated && has_computed_fields(Py_TYPE(o))) return true;
        if (hooks == Hooks::generated || is_namespace(o)) {
            const Ref dict = Ref::steal_or_null(PyObject_GenericGetAttr(o, names().__dict___));
            if (!dict) forget_error();  // it has slots
            if (dict ? runs(dict.get(), depth + 1) : !PyTuple_Check(o)) return true;
        }
        return PyCallable_Check(o) && !asks_for_class(callee) && callee != "issubclass" &&
               !is_harmless(o) && !is_own_code(o);
    }

    // Generated methods read fields, of which a class may have made properties.
    static bool has_computed_fields(PyTypeObject* t) {
        PyObject* fields = in_class(t, "__dataclass_fields__");
        if (!fields || !PyDict_Check(fields)) return false;
        PyObject *name, *field;
        for (Py_ssize_t at = 0; PyDict_Next(fields, &at, &name, &field);)
            if (PyObject* found = _PyType_Lookup(t, name);
                found && descriptor_runs_hook(found, false))
                return true;
        return false;
    }

    static bool holds_objects(PyObject* array) {
        const Ref dtype = Ref::steal_or_null(PyObject_GetAttrString(array, "dtype"));
        const Ref answer =
            dtype ? Ref::steal_or_null(PyObject_GetAttrString(dtype.get(), "hasobject")) : Ref{};
        if (!answer) forget_error();
        return answer.get() != Py_False;
    }
    // To what no member shows: what a reference leads to, a time's zone, an exception's arguments.
    static bool goes_elsewhere(PyObject* o) {
        return PyWeakref_Check(o) || PyCell_Check(o) || PyExceptionInstance_Check(o) ||
               PyWeakref_CheckProxy(o) || is_of(o, "datetime.datetime") ||
               is_of(o, "datetime.time");
    }
    static bool is_of(PyObject* o, const char* name) {
        const PyObject* bases = Py_TYPE(o)->tp_mro;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(bases); ++k)
            if (!std::strcmp(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, k))->tp_name,
                             name))
                return true;
        return false;
    }
    static bool is_deque(PyObject* o) { return is_of(o, "collections.deque"); }
    static bool is_namespace(PyObject* o) { return is_of(o, "types.SimpleNamespace"); }
};
}  // namespace

PyObject* operators_run_code(PyObject*, PyObject* o) { return PyBool_FromLong(may_run("type", o)); }

bool has_hooks(PyObject* o) { return hooks_of(o) == Hooks::users; }

bool asks_for_class(std::string_view name) {
    static const std::string_view kNames[] = {"isinstance", "type", "hasattr", "callable"};
    return std::ranges::find(kNames, name) != std::end(kNames);
}

bool may_run(std::string_view callee, PyObject* operand) {
    return Reached{callee}.runs(operand, 0);
}

PyObject* function_text(PyObject*, PyObject* function) {
    if (!PyFunction_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "function_text takes a function");
        return nullptr;
    }
    try {
        const std::string& text = source_of(function).text;
        return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    } catch (const Diag&) {
        PyErr_SetString(PyExc_OSError, "the text of the function is no function");
        return nullptr;
    }
}

}  // namespace qd::frontend
