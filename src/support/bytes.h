// Numbers and texts as bytes, little-endian, lists and texts with their length first. Reading
// checks every length, because the bytes may come from a damaged file.

#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"

namespace qd::support {

struct ByteWriter {
    std::vector<uint8_t> out;

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
};

struct ByteReader {
    std::span<const uint8_t> in;
    const char* what;  // opens the message: "recipe"

    std::span<const uint8_t> raw(size_t n) {
        need(n <= in.size());
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
        need(n <= in.size() / least);
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
    void need(bool fine) const {
        if (!fine) throw Error(std::string(what) + ": damaged");
    }
};

}  // namespace qd::support
