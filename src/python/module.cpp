// The native module `quadrants._lib.core.quadrants_python`.

#include <initializer_list>

#include "cpython/entry.h"
#include "data/objects.h"
#include "launcher/kernel.h"
#include "launcher/profile.h"
#include "python/areas.h"

namespace {

using qd::cpython::entry;

// Native state is the process's: there is one module, in the main interpreter.
PyObject* the_module = nullptr;

PyObject* create(PyObject* spec, PyModuleDef*) {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "Quadrants runs in the main interpreter of a process alone; use threads or "
                        "processes instead of sub-interpreters");
        return nullptr;
    }
    if (!the_module) {
        PyObject* name = PyObject_GetAttrString(spec, "name");
        if (!name) return nullptr;
        the_module = PyModule_NewObject(name);
        Py_DECREF(name);
    }
    return Py_XNewRef(the_module);
}

int execute(PyObject* module) {
    static bool done = false;  // imported again after its removal from sys.modules
    if (done) return 0;
    using Area = bool (*)(PyObject*);
    for (Area add :
         {Area(qd::python::add_runtime), Area(qd::python::add_turn), Area(qd::python::add_streams),
          Area(qd::python::add_declaring), Area(qd::python::add_options),
          Area(qd::python::add_cache_tool), Area(qd::python::add_code_lines),
          Area(qd::python::add_expr), Area(qd::data::add_field), Area(qd::data::add_ndarray),
          Area(qd::launcher::add_kernel), Area(qd::launcher::add_profile),
          Area(qd::python::add_debug)})
        if (!add(module)) return -1;
    done = true;
    return 0;
}

PyModuleDef_Slot slots[] = {
    {Py_mod_create, entry<create>.untyped()},
    {Py_mod_exec, entry<execute>.untyped()},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "quadrants_python",
    "Runtime and front end of Quadrants. Private: use the `quadrants` package.",
    0,
    nullptr,
    slots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_quadrants_python() { return PyModuleDef_Init(&definition); }
