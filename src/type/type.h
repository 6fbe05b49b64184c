// Types of IR values.
//
// A Type is 8 bytes, compared and hashed as one word, and needs no table: a primitive, a vector or
// a matrix of one, a place (an address that holds such a value) or an array parameter. Structs do
// not exist here: the front end keeps a struct as a bundle of its members, so that every member is
// promoted, pruned and optimised on its own.

#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace qd::type {

// The order is the `id` of the Python dtype objects and is part of the cache format.
enum class Prim : uint8_t { u1, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64, none };

struct PrimInfo {
    const char* name;
    uint8_t bits;   // u1 counts one bit of value, stored in one byte
    uint8_t bytes;  // in memory
    bool is_float;
    bool is_signed;
};

inline constexpr PrimInfo kPrims[] = {
    {"u1", 1, 1, false, false},   {"i8", 8, 1, false, true},    {"i16", 16, 2, false, true},
    {"i32", 32, 4, false, true},  {"i64", 64, 8, false, true},  {"u8", 8, 1, false, false},
    {"u16", 16, 2, false, false}, {"u32", 32, 4, false, false}, {"u64", 64, 8, false, false},
    {"f16", 16, 2, true, true},   {"f32", 32, 4, true, true},   {"f64", 64, 8, true, true},
    {"none", 0, 0, false, false},
};

inline constexpr const PrimInfo& info(Prim p) { return kPrims[static_cast<int>(p)]; }
inline constexpr bool is_float(Prim p) { return info(p).is_float; }
inline constexpr bool is_int(Prim p) { return !info(p).is_float && p != Prim::none; }
inline constexpr bool is_signed(Prim p) { return info(p).is_signed; }
inline constexpr int bits(Prim p) { return info(p).bits; }
inline constexpr int bytes(Prim p) { return info(p).bytes; }

// The type that two operands of an arithmetic operator are converted to (spec 10 section 6).
Prim promote(Prim a, Prim b);

enum class Kind : uint8_t {
    value,  // scalar (rank 0), vector (1) or matrix (2)
    place,  // address of such a value in a slot, field, array or temporary
    array,  // handle of an array parameter: element type plus number of axes
    none,   // no value
};

struct Type {
    Prim prim = Prim::none;
    Kind kind = Kind::none;
    uint8_t rank = 0;  // of the value or element: 0 scalar, 1 vector, 2 matrix
    uint8_t ndim = 0;  // axes of an array handle
    uint16_t n = 1;    // rows, or length of a vector
    uint16_t m = 1;    // columns

    static constexpr Type scalar(Prim p) { return {p, Kind::value, 0, 0, 1, 1}; }
    static constexpr Type vector(Prim p, int64_t n) {
        check_extents(n, 1);
        return {p, Kind::value, 1, 0, static_cast<uint16_t>(n), 1};
    }
    static constexpr Type matrix(Prim p, int64_t n, int64_t m) {
        check_extents(n, m);
        return {p, Kind::value, 2, 0, static_cast<uint16_t>(n), static_cast<uint16_t>(m)};
    }
    static constexpr Type array(Type elem, int ndim) {
        elem.kind = Kind::array;
        elem.ndim = static_cast<uint8_t>(ndim);
        return elem;
    }

    // Code is written out per component, so more would not be compiled in useful time either.
    static constexpr int64_t kMostComponents = UINT16_MAX;
    static constexpr void check_extents(int64_t n, int64_t m) {
        if (n < 0 || m < 0 || n > kMostComponents || m > kMostComponents || n * m > kMostComponents)
            throw std::length_error("a vector or matrix has at most 65535 components");
    }

    constexpr bool is_none() const { return kind == Kind::none; }
    constexpr bool is_value() const { return kind == Kind::value; }
    constexpr bool is_place() const { return kind == Kind::place; }
    constexpr bool is_array() const { return kind == Kind::array; }
    constexpr bool is_scalar() const { return kind == Kind::value && rank == 0; }
    constexpr bool is_tensor() const { return kind == Kind::value && rank > 0; }
    constexpr int count() const { return n * m; }  // scalars in the value or element
    constexpr int size_bytes() const { return count() * bytes(prim); }
    // The value that a place or array element holds.
    constexpr Type value() const { return {prim, Kind::value, rank, 0, n, m}; }
    constexpr Type place() const { return {prim, Kind::place, rank, 0, n, m}; }
    constexpr Type element() const { return scalar(prim); }  // one component
    constexpr Type with(Prim p) const {
        Type t = *this;
        t.prim = p;
        return t;
    }
    constexpr uint64_t word() const { return std::bit_cast<uint64_t>(*this); }
    constexpr bool operator==(const Type& o) const { return word() == o.word(); }
};
static_assert(sizeof(Type) == 8);

inline constexpr Type kNone{};
inline constexpr Type kU1 = Type::scalar(Prim::u1);
inline constexpr Type kI32 = Type::scalar(Prim::i32);
inline constexpr Type kU32 = Type::scalar(Prim::u32);
inline constexpr Type kI64 = Type::scalar(Prim::i64);
inline constexpr Type kU64 = Type::scalar(Prim::u64);
inline constexpr Type kF32 = Type::scalar(Prim::f32);
inline constexpr Type kF64 = Type::scalar(Prim::f64);

// IR spelling: `f32`, `vec<f32, 3>`, `mat<f32, 2, 2>`, `place<...>`, `array<f32, 2>`, `none`.
std::string to_string(Type t);
// What the user sees in errors: `f32`, `[Tensor (3) f32]`, `[Tensor (2, 2) f32]`.
std::string to_user_string(Type t);
bool parse_prim(std::string_view name, Prim& out);

}  // namespace qd::type
