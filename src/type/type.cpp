// Promotion and spelling of types.

#include "type/type.h"

#include <algorithm>

namespace qd::type {

Prim promote(Prim a, Prim b) {
    if (a == b) return a;
    if (is_float(a) || is_float(b)) {
        if (!is_float(a)) return b;
        if (!is_float(b)) return a;
        return bits(a) > bits(b) ? a : b;
    }
    // u1 counts as an unsigned integer of one byte that gives way to u8.
    if (bytes(a) != bytes(b)) return bytes(a) > bytes(b) ? a : b;
    if (a == Prim::u1 || b == Prim::u1) {
        const Prim other = a == Prim::u1 ? b : a;
        return other == Prim::u8 ? Prim::u8 : Prim::u1;
    }
    return is_signed(a) ? b : a;
}

std::string to_string(Type t) {
    std::string value = info(t.prim).name;
    if (t.rank == 1) value = "vec<" + value + ", " + std::to_string(t.n) + ">";
    if (t.rank == 2) {
        value = "mat<" + value + ", " + std::to_string(t.n) + ", " + std::to_string(t.m) + ">";
    }
    switch (t.kind) {
        case Kind::value:
            return value;
        case Kind::place:
            return "place<" + value + ">";
        case Kind::array:
            return "array<" + value + ", " + std::to_string(t.ndim) + ">";
        case Kind::none:
            break;
    }
    return "none";
}

std::string to_user_string(Type t) {
    const std::string prim = info(t.prim).name;
    if (t.rank == 0) return prim;
    std::string shape = std::to_string(t.n);
    if (t.rank == 2) shape += ", " + std::to_string(t.m);
    return "[Tensor (" + shape + ") " + prim + "]";
}

bool parse_prim(std::string_view name, Prim& out) {
    const auto* found =
        std::ranges::find_if(kPrims, [&](const PrimInfo& p) { return name == p.name; });
    if (found == std::end(kPrims)) return false;
    out = static_cast<Prim>(found - kPrims);
    return true;
}

}  // namespace qd::type
