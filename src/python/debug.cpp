// Dumps of the intermediate representation: `core._lower_to_text(kernel, *args)` lowers a kernel
// for these arguments and prints the module; nothing is compiled or launched.

#include <algorithm>
#include <string_view>

#include "cpython/entry.h"
#include "frontend/specialise.h"
#include "python/areas.h"
#include "runtime/compiler.h"
#include "session/session.h"
#include "support/error.h"

namespace qd::python {
namespace {

using namespace session;
using cpython::entry;
using session::session;

// Fields get their storage before a kernel can refer to them, as at a launch.
bool materialise() {
    if (!data::has_pending_fields()) return true;
    PyObject* module = PyImport_ImportModule("quadrants.lang.impl");
    PyObject* runtime = module ? PyObject_GetAttrString(module, "pyquadrants") : nullptr;
    PyObject* done = runtime ? PyObject_CallMethod(runtime, "materialize", nullptr) : nullptr;
    Py_XDECREF(module);
    Py_XDECREF(runtime);
    Py_XDECREF(done);
    return done != nullptr;
}

PyObject* lower_to_text(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count < 1)
        return PyErr_Format(PyExc_TypeError, "_lower_to_text takes a kernel and its arguments");
    if (!materialise()) return nullptr;
    PyObject* definition = PyObject_GetAttrString(args[0], "_qd_kernel");
    if (!definition) return nullptr;
    try {
        auto lowered = frontend::lower_kernel(
            definition, {args + 1, static_cast<size_t>(count - 1)}, session().options, "kernel");
        Py_DECREF(definition);
        if (!lowered) return nullptr;
        std::string text = ir::print(*lowered->module);
        if (!lowered->cacheable) text += "\n; not cacheable: " + lowered->uncacheable_reason + "\n";
        ir::verify(*lowered->module);
        return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    } catch (const std::exception& e) {
        return PyErr_Format(PyExc_RuntimeError, "%s", e.what());
    }
}

// compiler_text(module bytes, what): see abi::Text.
PyObject* compiler_text(PyObject*, PyObject* args) {
    const char *bytes, *what;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "y#s", &bytes, &count, &what)) return nullptr;
    static const char* const names[] = {"input",         "plan",           "llvm",
                                        "assembly",      "lowered_llvm",   "stages",
                                        "passes",        "listed_input",   "located_input",
                                        "listed_stages", "located_stages", "listed_passes"};
    const auto* found = std::ranges::find(names, std::string_view(what));
    if (found == std::end(names))
        return PyErr_Format(PyExc_ValueError, "the compiler has no text '%s'", what);
    try {
        const std::string text = runtime::Compiler::get().text(
            {reinterpret_cast<const uint8_t*>(bytes), static_cast<size_t>(count)},
            static_cast<abi::Text>(found - names), session().cpu);
        return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
    } catch (const std::exception& e) {
        return PyErr_Format(PyExc_RuntimeError, "%s", e.what());
    }
}

// site_text(file, function, line, column, last line, column): see frontend::site_text.
PyObject* site_text(PyObject*, PyObject* args) {
    const char *file, *function;
    support::SourceSite s;
    if (!PyArg_ParseTuple(args, "ssiiii", &file, &function, &s.line, &s.col, &s.end_line,
                          &s.end_col))
        return nullptr;
    s.file = file;
    s.function = function;
    const std::string text = frontend::site_text(s);
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

PyMethodDef methods[] = {
    {"_compiler_text", entry<compiler_text>, METH_VARARGS,
     "A serialised module as the compiler sees it at some moment, as text."},
    {"_lower_to_text", entry<lower_to_text>, METH_FASTCALL,
     "The intermediate representation of a kernel for these arguments."},
    {"_site_text", entry<site_text>, METH_VARARGS,
     "A place in the source, with its code and carets."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_debug(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace qd::python
