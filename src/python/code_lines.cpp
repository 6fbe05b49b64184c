// last_line(code): the last line on which an instruction of a code object ends, in CPython 3.11 and
// later. co_positions() says the same of each instruction in turn, which for the funcs of a large
// kernel takes as long as writing its code to the cache.
//
// The table of places (co_linetable, CPython's Objects/locations.md) has an entry for one to eight
// code units: a byte 1ccccnnn with the kind of what follows, then that.

#include <Python.h>

#include <algorithm>
#include <cstdint>

#include "cpython/entry.h"
#include "frontend/frontend.h"
#include "python/areas.h"

namespace qd::python {
namespace {

using cpython::entry;
using cpython::Ref;

struct Table {
    const uint8_t *at, *end;

    uint8_t byte() { return at == end ? 0 : *at++; }
    int64_t number() {  // six bits a byte, the lowest first; 64: more follows
        int64_t v = 0;
        for (int shift = 0; shift < 60; shift += 6) {
            const uint8_t b = byte();
            v |= static_cast<int64_t>(b & 63) << shift;
            if (!(b & 64)) break;
        }
        return v;
    }
    int64_t signed_number() {
        const int64_t v = number();
        return v & 1 ? -(v >> 1) : v >> 1;
    }
};

int64_t last_line_of(Table t, int64_t line) {
    enum Kind { kOneLine = 10, kNoColumns = 13, kLong = 14, kNothing = 15 };
    int64_t last = 0;
    while (t.at != t.end) {
        const int kind = t.byte() >> 3 & 15;
        int64_t end = 0;  // behind `line`
        if (kind == kNothing) continue;
        if (kind == kLong) {
            line += t.signed_number();
            end = t.number();
            t.number(), t.number();  // columns
        } else if (kind == kNoColumns) {
            line += t.signed_number();
        } else if (kind >= kOneLine) {
            line += kind - kOneLine;
            t.byte(), t.byte();
        } else {
            t.byte();
        }
        last = std::max(last, line + end);
    }
    return last;
}

PyObject* last_line(PyObject*, PyObject* code) {
    if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "not a code object: %R", code);
    const Ref table = Ref::steal_or_null(PyObject_GetAttrString(code, "co_linetable"));
    if (!table || !PyBytes_Check(table.get())) return nullptr;
    const auto* begin = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(table.get()));
    return PyLong_FromLongLong(last_line_of({begin, begin + PyBytes_GET_SIZE(table.get())},
                                            reinterpret_cast<PyCodeObject*>(code)->co_firstlineno));
}

PyMethodDef methods[] = {
    {"last_line", entry<last_line>, METH_O,
     "The last line of a code object, those in it left aside."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_code_lines(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace qd::python
