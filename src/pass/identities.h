// Algebraic identities of simplify, as rows: an op whose second operand is this gives that.
//
// Of ops that commute the first operand serves, too. tests/cpp/identities_test.cpp compares both
// sides of each row on numbers of each type.

#pragma once

#include <array>

#include "ir/ir.h"

namespace qd::pass {

struct Identity {
    enum class Second : uint8_t { zero, minus_zero, half, one, two, first };  // or the first itself
    enum class Gives : uint8_t { first, zero, one, square, sqrt };
    // `normal`: of floats under fast_math alone, for it drops NaN, the sign of zero or the flushing
    // of a subnormal operand.
    enum class Of : uint8_t { all, ints, truths, floats, normal, ints_and_normal };

    ir::Op op;
    Second second;
    Gives gives;
    Of of;
};

inline constexpr auto kIdentities = [] {
    using enum Identity::Second;
    using enum Identity::Of;
    using ir::Op;
    constexpr auto itself = Identity::Gives::first, none = Identity::Gives::zero,
                   unit = Identity::Gives::one;
    return std::to_array<Identity>({
        {Op::add, zero, itself, ints_and_normal},
        {Op::add, minus_zero, itself, normal},
        {Op::sub, zero, itself, ints_and_normal},
        {Op::sub, first, none, ints},
        {Op::mul, one, itself, ints_and_normal},
        {Op::mul, zero, none, ints_and_normal},
        {Op::div, one, itself, normal},
        {Op::floordiv, one, itself, ints},
        {Op::raw_div, one, itself, ints},
        {Op::mod, one, none, ints},
        {Op::raw_mod, one, none, ints},
        {Op::powi, zero, unit, all},
        {Op::powi, one, itself, all},
        {Op::pow, one, itself, normal},
        {Op::pow, two, Identity::Gives::square, floats},
        {Op::pow, half, Identity::Gives::sqrt, normal},
        {Op::bit_and, first, itself, ints},
        {Op::bit_and, zero, none, ints},
        {Op::bit_and, one, itself, truths},
        {Op::bit_or, first, itself, ints},
        {Op::bit_or, zero, itself, ints},
        {Op::bit_or, one, unit, truths},
        {Op::bit_xor, zero, itself, ints},
        {Op::bit_xor, first, none, ints},
        {Op::shl, zero, itself, ints},
        {Op::shr, zero, itself, ints},
        {Op::lshr, zero, itself, ints},
        {Op::min, first, itself, ints_and_normal},
        {Op::max, first, itself, ints_and_normal},
        {Op::lt, first, none, ints},
        {Op::gt, first, none, ints},
        {Op::ne, first, none, ints},
        {Op::le, first, unit, ints},
        {Op::ge, first, unit, ints},
        {Op::eq, first, unit, ints},
    });
}();

constexpr bool holds(Identity::Of of, ir::Prim p, bool fast_math) {
    const bool integer = type::is_int(p);
    switch (of) {
        case Identity::Of::all:
            return true;
        case Identity::Of::ints:
            return integer;
        case Identity::Of::truths:
            return p == ir::Prim::u1;
        case Identity::Of::floats:
            return !integer;
        case Identity::Of::normal:
            return !integer && fast_math;
        case Identity::Of::ints_and_normal:
            return integer || fast_math;
    }
    return false;
}

}  // namespace qd::pass
