// The native module `quadrants._lib.core.quadrants_python`.

#include <initializer_list>

#include "python/areas.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "quadrants_python",
    "Runtime and front end of Quadrants. Private: use the `quadrants` package.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_quadrants_python() {
    PyObject* module = PyModule_Create(&definition);
    if (!module) return nullptr;
    using Area = bool (*)(PyObject*);
    for (Area add :
         {Area(qd::python::add_runtime), Area(qd::python::add_expr), Area(qd::python::add_field),
          Area(qd::python::add_ndarray), Area(qd::python::add_kernel),
          Area(qd::python::add_profile), Area(qd::python::add_debug)})
        if (!add(module)) {
            Py_DECREF(module);
            return nullptr;
        }
    return module;
}
