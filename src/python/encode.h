// Bytes of recipes: numbers, texts and the few Python values that guards hold. Reading checks every
// length, because a file may be damaged.

#pragma once

#include <Python.h>
#include <marshal.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/frontend.h"
#include "support/error.h"

namespace qd::python {

struct Writer {
    std::vector<uint8_t> out;
    bool failed = false;  // a value that has no bytes

    template <class T>
    void number(T v) {
        const auto* at = reinterpret_cast<const uint8_t*>(&v);
        out.insert(out.end(), at, at + sizeof v);
    }
    void bytes(std::span<const uint8_t> b) {
        number(uint32_t(b.size()));
        out.insert(out.end(), b.begin(), b.end());
    }
    void text(std::string_view s) { bytes({reinterpret_cast<const uint8_t*>(s.data()), s.size()}); }
    void object(PyObject* o);  // null, or anything encode.cpp knows
};

struct Reader {
    std::span<const uint8_t> in;

    std::span<const uint8_t> raw(size_t n) {
        if (n > in.size()) throw support::Error("recipe: truncated");
        const auto r = in.first(n);
        in = in.subspan(n);
        return r;
    }
    template <class T>
    T number() {
        T v;
        std::memcpy(&v, raw(sizeof v).data(), sizeof v);
        return v;
    }
    uint32_t count(size_t least) {  // of elements that take at least so many bytes
        const auto n = number<uint32_t>();
        if (n > in.size() / least) throw support::Error("recipe: truncated");
        return n;
    }
    std::vector<uint8_t> bytes() {
        const auto r = raw(number<uint32_t>());
        return {r.begin(), r.end()};
    }
    std::string text() {
        const auto r = raw(number<uint32_t>());
        return {reinterpret_cast<const char*>(r.data()), r.size()};
    }
    frontend::Ref object();
};

}  // namespace qd::python
