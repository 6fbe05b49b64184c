// Bytes of recipes: numbers, texts and the few Python values that guards hold.

#pragma once

#include <Python.h>
#include <marshal.h>

#include "frontend/frontend.h"
#include "support/bytes.h"

namespace qd::launcher {

struct Writer : support::ByteWriter {
    bool failed = false;       // a value that has no bytes
    void object(PyObject* o);  // null, or anything encode.cpp knows
};

struct Reader : support::ByteReader {
    explicit Reader(std::span<const uint8_t> bytes) : ByteReader{bytes, "recipe"} {}
    cpython::Ref object();
};

}  // namespace qd::launcher
