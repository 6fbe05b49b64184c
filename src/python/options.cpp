// See options.h. Also the module functions option_rows() and pass_names().

#include "python/options.h"

#include <cstdlib>

#include "cpython/entry.h"
#include "frontend/frontend.h"
#include "pass/names.h"
#include "python/areas.h"

namespace qd::python {
namespace {

using cpython::entry;
using cpython::Ref;
using ir::OptionKind;
using ir::OptionRow;

// By OptionKind: how a value gets in and out. `set` returns false for another type of value.
struct KindRow {
    const char* name;  // for Python
    bool (*set)(void* to, PyObject* value);
    PyObject* (*get)(const void* from, const OptionRow& row);
};

bool is_wide(const OptionRow& row) { return row.high > OPTION_INT_MAX; }

PyObject* integer(uint64_t bits, bool wide) {
    return wide ? PyLong_FromUnsignedLongLong(bits)
                : PyLong_FromLongLong(static_cast<long long>(bits));
}

const KindRow kKinds[] = {
    {"bool",
     [](void* to, PyObject* v) {
         const int truth = PyObject_IsTrue(v);
         *static_cast<bool*>(to) = truth == 1;
         return truth >= 0;
     },
     [](const void* from, const OptionRow&) {
         return PyBool_FromLong(*static_cast<const bool*>(from));
     }},
    {"int",
     [](void* to, PyObject* v) {
         *static_cast<int64_t*>(to) = static_cast<int64_t>(PyLong_AsUnsignedLongLongMask(v));
         return !PyErr_Occurred();
     },
     [](const void* from, const OptionRow& row) {
         return integer(static_cast<uint64_t>(*static_cast<const int64_t*>(from)), is_wide(row));
     }},
    {"float",
     [](void* to, PyObject* v) {
         *static_cast<double*>(to) = PyFloat_AsDouble(v);
         return !PyErr_Occurred();
     },
     [](const void* from, const OptionRow&) {
         return PyFloat_FromDouble(*static_cast<const double*>(from));
     }},
    {"str",
     [](void* to, PyObject* v) {
         if (!PyUnicode_Check(v)) return false;
         const Ref bytes = Ref::steal_or_null(PyUnicode_EncodeFSDefault(v));  // paths have any
         if (bytes) *static_cast<std::string*>(to) = PyBytes_AS_STRING(bytes.get());
         return bool(bytes);
     },
     [](const void* from, const OptionRow&) {
         return PyUnicode_FromString(static_cast<const std::string*>(from)->c_str());
     }},
    {"dtype",
     [](void* to, PyObject* v) {
         const char* text = PyUnicode_Check(v) ? PyUnicode_AsUTF8(v) : nullptr;
         return text && type::parse_prim(text, *static_cast<type::Prim*>(to));
     },
     [](const void* from, const OptionRow&) {
         return PyUnicode_FromString(type::info(*static_cast<const type::Prim*>(from)).name);
     }},
};

const KindRow& kind_of(const OptionRow& row) { return kKinds[static_cast<int>(row.kind)]; }

constexpr const char* kRooms[] = {"module", "frontend", "compile",  "launch", "cache", "log",
                                  "dump",   "gpu",      "gradient", "quant",  "mesh",  "inert"};

// option_rows() -> [(name, type, default, low, high, room, aside, documentation), ...]
PyObject* option_rows(PyObject*, PyObject*) try {
    ir::Options defaults;
    Ref list = Ref::steal(PyList_New(0));
    for (const OptionRow& row : ir::option_rows()) {
        const Ref value = Ref::steal(kind_of(row).get(row.in(defaults), row));
        const Ref low = Ref::steal(integer(row.low, false));
        const Ref high = Ref::steal(integer(row.high, is_wide(row)));
        const Ref item = Ref::steal(Py_BuildValue(
            "s#sOOOsOs", row.name.data(), static_cast<Py_ssize_t>(row.name.size()),
            kind_of(row).name, value.get(), low.get(), high.get(),
            kRooms[static_cast<int>(row.room)], row.aside ? Py_True : Py_False, row.documentation));
        if (PyList_Append(list.get(), item.get()) < 0) return nullptr;
    }
    return list.release();
} catch (const cpython::PyError&) {
    return nullptr;
}

// pass_rows() -> [(name, options that switch it, documentation), ...]
PyObject* pass_rows(PyObject*, PyObject*) try {
    Ref rows = Ref::steal(PyList_New(0));
    for (const pass::PassRow& p : pass::kPasses) {
        if (!p.optional) continue;
        const Ref row = Ref::steal(Py_BuildValue("(sss)", p.name, p.switches, p.documentation));
        if (PyList_Append(rows.get(), row.get()) < 0) return nullptr;
    }
    return rows.release();
} catch (const cpython::PyError&) {
    return nullptr;
}

// c_variable(name) -> its value in C's environment, which os.putenv() changes and os.environ copies
PyObject* c_variable(PyObject*, PyObject* name) {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) return nullptr;
    const char* value = std::getenv(text);
    return PyUnicode_DecodeFSDefault(value ? value : "");
}

PyMethodDef methods[] = {
    {"option_rows", entry<option_rows>, METH_NOARGS,
     "The option table: name, type, default, low, high, room, aside, documentation of each."},
    {"pass_rows", entry<pass_rows>, METH_NOARGS,
     "What disable_pass may name: name, options that switch it, documentation of each."},
    {"c_variable", entry<c_variable>, METH_O,
     "A variable of C's environment, empty if there is none."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool set_option(ir::Options& options, PyObject* name, PyObject* value) {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) return false;
    const OptionRow* row = ir::find_option(text);
    if (!row || kind_of(*row).set(row->in(options), value)) return true;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "option '%s' cannot be %R", text, value);
    return false;
}

bool add_options(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace qd::python
