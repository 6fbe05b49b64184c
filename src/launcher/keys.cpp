// See keys.h.

#include "launcher/keys.h"

#include <bit>

#include "cache/store.h"
#include "cpython/names.h"
#include "data/external.h"
#include "frontend/diag.h"
#include "frontend/facts/annotations.h"
#include "launcher/encode.h"
#include "session/target.h"

namespace qd::launcher {
namespace {

using cache::Bytes;

bool is_constant(PyObject* o) {
    return PyLong_CheckExact(o) || PyBool_Check(o) || PyFloat_CheckExact(o) ||
           PyUnicode_CheckExact(o);
}

void write_name(Writer& w, PyObject* text) {
    Py_ssize_t size = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    if (!utf8) cpython::forget_error();
    w.text({utf8 ? utf8 : "", static_cast<size_t>(size)});
}

void write_constant(Writer& w, PyObject* o) {
    w.text(Py_TYPE(o)->tp_name);
    int overflow = 1;
    const long long value = PyLong_Check(o) ? PyLong_AsLongLongAndOverflow(o, &overflow) : 0;
    if (PyUnicode_CheckExact(o))
        write_name(w, o);
    else if (!overflow)
        w.number(int64_t(value));
    else if (PyFloat_CheckExact(o))
        w.number(std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(o)));
    else
        write_name(w, frontend::constant_repr(o).get());
}

Ref part_of(PyObject* code, PyObject* name) { return Ref::steal(PyObject_GetAttr(code, name)); }

// A code object without where it lies: instructions, constants, names, and the columns of all.
void write_code(Writer& w, PyObject* code) {
    const cpython::Names& part = cpython::names();
    for (PyObject* name : {part.co_code_, part.co_linetable_}) {
        const Ref bytes = part_of(code, name);
        w.text(
            {PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))});
    }
    write_name(w, reinterpret_cast<PyCodeObject*>(code)->co_name);
    const Ref names = part_of(code, part.co_names_);
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(names.get()); ++n)
        write_name(w, PyTuple_GET_ITEM(names.get(), n));
    const Ref constants = part_of(code, part.co_consts_);
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(constants.get()); ++n) {
        PyObject* o = PyTuple_GET_ITEM(constants.get(), n);
        if (PyCode_Check(o))
            write_code(w, o);
        else if (!PyFrozenSet_Check(o))  // whose order differs between processes
            write_constant(w, o);
    }
}

// Constants among a function's globals, cells and the members of objects that it may name: what it
// captures is a guard of its recipe, so recipes for other values need not be read.
void write_captured(Writer& w, PyObject* fn, std::span<PyObject* const> args) {
    PyObject* code = PyFunction_GetCode(fn);
    const Ref names = part_of(code, cpython::names().co_names_);
    PyObject *globals = PyFunction_GetGlobals(fn), *closure = PyFunction_GetClosure(fn);
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(names.get()); ++n) {
        PyObject* name = PyTuple_GET_ITEM(names.get(), n);
        PyObject* found = PyDict_GetItem(globals, name);
        if (found && is_constant(found)) write_constant(w, found);
        w.number(uint8_t(0));
    }
    for (Py_ssize_t n = 0; closure && n < PyTuple_GET_SIZE(closure); ++n) {
        const Ref found = Ref::steal_or_null(PyCell_Get(PyTuple_GET_ITEM(closure, n)));
        if (found && is_constant(found.get())) write_constant(w, found.get());
        w.number(uint8_t(0));
    }
    for (PyObject* o : args) {
        PyTypeObject* type = Py_TYPE(o);
        if (!_PyType_Lookup(type, cpython::names()._data_oriented_) ||
            _PyType_Lookup(type, cpython::names()._qd_template_primitives_) == Py_False)
            continue;
        const Ref dict = Ref::steal_or_null(PyObject_GetAttr(o, cpython::names().__dict___));
        cpython::forget_error();
        const bool has = dict && PyDict_Check(dict.get());
        for (Py_ssize_t n = 0; has && n < PyTuple_GET_SIZE(names.get()); ++n) {
            PyObject* found = PyDict_GetItem(dict.get(), PyTuple_GET_ITEM(names.get(), n));
            if (found && is_constant(found)) write_constant(w, found);
            w.number(uint8_t(1));
        }
    }
}

// What decides types: of arrays, fields and constants among the arguments.
void write_argument(Writer& w, const Parameter& p, PyObject* o) {
    using enum Parameter::Kind;
    if (p.kind == integer || p.kind == real || p.kind == tensor || p.kind == structure)
        return;  // launches convert it
    o = data::unwrap(o);
    frontend::ArrayInfo a;
    if (data::is_field(o)) {
        const auto* f = reinterpret_cast<data::FieldObject*>(o);
        w.number(f->field ? f->field->layout_hash() : 0);
    } else if ((data::is_ndarray(o) || (p.kind != template_ && frontend::is_external_array(o))) &&
               frontend::array_info(o, a)) {
        w.number(a.elem.word());
        w.number(int32_t(a.ndim));
        w.number(a.access.pack());
    } else if (p.kind == template_) {
        w.text(Py_TYPE(o)->tp_name);
        if (is_constant(o)) write_constant(w, o);
    }
    cpython::forget_error();
}

}  // namespace

Ref plain_function(PyObject* o) {
    if (PyFunction_Check(o)) return Ref::borrow(o);
    if (PyMethod_Check(o)) return plain_function(PyMethod_GET_FUNCTION(o));
    Ref fn = Ref::steal_or_null(PyObject_GetAttr(o, cpython::names().fn_));
    if (!fn) cpython::forget_error();
    return fn && PyFunction_Check(fn.get()) ? fn : Ref();
}

std::string kernel_key(KernelObject& k, std::span<PyObject* const> args) {
    Writer w;
    w.bytes(environment());
    const Ref fn = plain_function(k.definition);
    if (!fn) return {};
    write_code(w, PyFunction_GetCode(fn.get()));
    w.text(*k.signature);
    for (const char* option : {"is_pure", "graph", "checkpoints"}) {  // what it may do is checked
        const Ref given = Ref::steal_or_null(PyObject_GetAttrString(k.definition, option));
        if (!given) cpython::forget_error();
        w.number(uint8_t(given && PyObject_IsTrue(given.get()) == 1));
    }
    if (k.derivative) w.number(k.derivative);
    write_captured(w, fn.get(), args);
    for (size_t n = 0; n < args.size(); ++n) {
        w.number(uint32_t(n));
        write_argument(w, (*k.parameters)[n], args[n]);
    }
    return cache::hex(hash_of(w.out));
}

}  // namespace qd::launcher
