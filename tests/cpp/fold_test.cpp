// Folds against C++ arithmetic of the same width, on ordinary and extreme operands.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "ir/fold.h"
#include "runtime/cpu/float_mode.h"

namespace qd::test {
namespace {

using ir::Op;
using type::Prim;

template <class T>
constexpr Prim prim_of() {
    constexpr Prim kSigned[] = {Prim::i8, Prim::i16, Prim::i32, Prim::i64};
    constexpr Prim kUnsigned[] = {Prim::u8, Prim::u16, Prim::u32, Prim::u64};
    if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? Prim::f32 : Prim::f64;
    return (std::is_signed_v<T> ? kSigned : kUnsigned)[std::countr_zero(sizeof(T))];
}

template <class T>
uint64_t bits(T v) {
    if constexpr (sizeof(T) == 8)
        return std::bit_cast<uint64_t>(v);
    else if constexpr (std::is_same_v<T, float>)
        return std::bit_cast<uint32_t>(v);
    else
        return static_cast<std::make_unsigned_t<T>>(v);
}
template <class T>
T value(uint64_t b) {
    if constexpr (std::is_same_v<T, double>)
        return std::bit_cast<double>(b);
    else if constexpr (std::is_same_v<T, float>)
        return std::bit_cast<float>(static_cast<uint32_t>(b));
    else
        return static_cast<T>(b);
}
template <class T>
T run(Op op, T a, T b) {
    const ir::Scalar in[] = {{prim_of<T>(), bits(a)}, {prim_of<T>(), bits(b)}};
    return value<T>(ir::fold(op, prim_of<T>(), in, true));
}
template <class T>
bool compare(Op op, T a, T b) {
    const ir::Scalar in[] = {{prim_of<T>(), bits(a)}, {prim_of<T>(), bits(b)}};
    return ir::fold(op, Prim::u1, in, true);
}
template <class T>
T run(Op op, T a) {
    const ir::Scalar in[] = {{prim_of<T>(), bits(a)}};
    return value<T>(ir::fold(op, prim_of<T>(), in, true));
}

template <class T>
class Integers : public testing::Test {};
using IntegerTypes =
    testing::Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

TYPED_TEST(Integers, MatchWideArithmetic) {
    using T = TypeParam;
    using Wide = __int128;
    std::mt19937_64 random(1);
    std::vector<T> pool = {0,
                           1,
                           2,
                           3,
                           7,
                           T(-1),
                           T(-2),
                           T(-7),
                           std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max()};
    for (int k = 0; k < 20; ++k) pool.push_back(static_cast<T>(random()));
    constexpr int width = sizeof(T) * 8;
    for (const T a : pool) {
        for (const T b : pool) {
            const Wide x = a, y = b;
            ASSERT_EQ(run(Op::add, a, b), T(x + y));
            ASSERT_EQ(run(Op::sub, a, b), T(x - y));
            ASSERT_EQ(run(Op::mul, a, b),
                      static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)));
            ASSERT_EQ(run(Op::raw_div, a, b), b == 0 ? T(0) : T(x / y));
            ASSERT_EQ(run(Op::raw_mod, a, b), b == 0 ? T(0) : T(x % y));
            if (b != 0) {
                const Wide q = x / y, floor = q - ((x % y != 0) && ((x < 0) != (y < 0)));
                ASSERT_EQ(run(Op::floordiv, a, b), T(floor));
                ASSERT_EQ(run(Op::mod, a, b), T(x - floor * y));
            }
            ASSERT_EQ(run(Op::min, a, b), std::min(a, b));
            ASSERT_EQ(run(Op::max, a, b), std::max(a, b));
            ASSERT_EQ(run(Op::bit_xor, a, b), T(a ^ b));
            const int count = static_cast<int>(static_cast<uint64_t>(b) % width);
            ASSERT_EQ(run(Op::shl, a, b), static_cast<T>(static_cast<uint64_t>(a) << count));
            ASSERT_EQ(run(Op::shr, a, b), T(a >> count));
            ASSERT_EQ(run(Op::lshr, a, b), T(static_cast<std::make_unsigned_t<T>>(a) >> count));
            ASSERT_EQ(compare(Op::lt, a, b), a < b);
            ASSERT_EQ(compare(Op::ge, a, b), a >= b);
            ASSERT_EQ(compare(Op::le, a, b), a <= b);
            ASSERT_EQ(compare(Op::ne, a, b), a != b);
        }
        ASSERT_EQ(run(Op::neg, a), T(-Wide(a)));
        ASSERT_EQ(run(Op::bit_not, a), T(~a));
        ASSERT_EQ(run(Op::abs, a), T(a < 0 ? -Wide(a) : Wide(a)));
        const auto u = static_cast<std::make_unsigned_t<T>>(a);
        ASSERT_EQ(run(Op::popcnt, a), T(std::popcount(u)));
        ASSERT_EQ(run(Op::clz, a), T(std::countl_zero(u)));
        ASSERT_EQ(run(Op::ctz, a), T(std::countr_zero(u)));
    }
}

template <class T>
class Floats : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Floats, FloatTypes);

template <class T>
void same(T a, T b) {
    if (a != a && b != b) return;
    ASSERT_EQ(bits(a), bits(b)) << a << " and " << b;
}

TYPED_TEST(Floats, MatchTheHost) {
    using T = TypeParam;
    using L = std::numeric_limits<T>;
    std::mt19937_64 random(2);
    std::vector<T> pool = {0,
                           T(-0.0),
                           1,
                           -1,
                           T(0.5),
                           T(-2.5),
                           T(1e10),
                           L::infinity(),
                           -L::infinity(),
                           L::quiet_NaN(),
                           L::max(),
                           L::min(),
                           -L::min()};
    for (int k = 0; k < 30; ++k)
        pool.push_back(static_cast<T>(std::ldexp(static_cast<double>(random() % 100000) - 50000,
                                                 static_cast<int>(random() % 20) - 10)));
    const auto flush = [](T v) {
        return v != 0 && std::fabs(v) < L::min() ? std::copysign(T(0), v) : v;
    };
    for (const T a : pool) {
        for (const T b : pool) {
            same(run(Op::add, a, b), flush(a + b));
            same(run(Op::sub, a, b), flush(a - b));
            same(run(Op::mul, a, b), flush(a * b));
            same(run(Op::div, a, b), flush(a / b));
            ASSERT_EQ(compare(Op::lt, a, b), a < b);
            ASSERT_EQ(compare(Op::ne, a, b), a != b);
            const T least = a != a   ? b
                            : b != b ? a
                            : a == b ? (std::signbit(a) ? a : b)
                                     : std::min(a, b);
            same(run(Op::min, a, b), least);
            const T most = a != a   ? b
                           : b != b ? a
                           : a == b ? (std::signbit(a) ? b : a)
                                    : std::max(a, b);
            same(run(Op::max, a, b), most);
        }
        same(run(Op::floor, a), std::floor(a));
        same(run(Op::ceil, a), std::ceil(a));
        same(run(Op::trunc, a), std::trunc(a));
        same(run(Op::round, a), std::round(a));
        same(run(Op::sqrt, a), std::sqrt(a));
        same(run(Op::neg, a), -a);
    }
    same(run(Op::mul, L::min(), T(0.5)), T(0));
    same(run(Op::add, L::denorm_min(), T(0)), T(0));
}

// Kernels are compiled and interpreted by threads that flush, to whom a subnormal equals zero.
template <class T>
void minima_of_subnormals() {
    using L = std::numeric_limits<T>;
    const T values[] = {T(0), -T(0), L::denorm_min(), -L::denorm_min(), L::min(), L::quiet_NaN()};
    const auto zeroed = [](T v) { return std::isnormal(v) || v != v ? v : std::copysign(T(0), v); };
    std::vector<std::pair<uint64_t, uint64_t>> found, wanted;
    for (T a : values)
        for (T b : values)
            wanted.emplace_back(bits(run(Op::min, zeroed(a), zeroed(b))),
                                bits(run(Op::max, zeroed(a), zeroed(b))));
    {
        const runtime::StandardFloats floats;
        for (T a : values)
            for (T b : values)
                found.emplace_back(bits(run(Op::min, a, b)), bits(run(Op::max, a, b)));
    }
    EXPECT_EQ(found, wanted);
}

TEST(Floats, MinimaOfSubnormalsWhereTheyAreFlushed) {
    minima_of_subnormals<float>();
    minima_of_subnormals<double>();
}

TEST(Casts, TruncateAndWrap) {
    const auto cast = [](Prim from, Prim to, uint64_t b) { return ir::fold_cast(from, to, b); };
    const auto f32 = [](float v) { return bits(v); };
    for (float out : {3e9f, -3e9f, NAN, INFINITY}) {
        EXPECT_EQ(cast(Prim::f32, Prim::i32, f32(out)), 0x80000000u);
        EXPECT_EQ(cast(Prim::f32, Prim::i16, f32(out)), 0u);
    }
    EXPECT_EQ(cast(Prim::f32, Prim::i64, f32(1e30f)), uint64_t(1) << 63);
    EXPECT_EQ(cast(Prim::f32, Prim::u8, f32(-1.f)), 255u);
    EXPECT_EQ(cast(Prim::f32, Prim::u8, f32(300.f)), 44u);
    EXPECT_EQ(cast(Prim::f32, Prim::u32, f32(3e9f)), 3000000000u);
    EXPECT_EQ(cast(Prim::f32, Prim::u32, f32(-2.5f)), 0xfffffffeu);
    EXPECT_EQ(cast(Prim::f64, Prim::u64, bits(1e19)), 10000000000000000000u);
    EXPECT_EQ(cast(Prim::f64, Prim::u64, bits(-1.0)), ~uint64_t(0));
    EXPECT_EQ(cast(Prim::f32, Prim::i32, f32(-2.9f)), bits(int32_t(-2)));
    EXPECT_EQ(cast(Prim::i32, Prim::i8, bits(int32_t(0x1ff))), 0xffu);
    EXPECT_EQ(cast(Prim::i8, Prim::i64, 0xff), ~uint64_t(0));
    EXPECT_EQ(cast(Prim::u8, Prim::i64, 0xff), 255u);
    EXPECT_EQ(cast(Prim::f32, Prim::u1, f32(0.25f)), 1u);
    EXPECT_EQ(cast(Prim::i32, Prim::u1, 256), 1u);
    EXPECT_EQ(cast(Prim::u64, Prim::f32, ~uint64_t(0)), f32(0x1p64f));
    EXPECT_EQ(cast(Prim::f64, Prim::f16, bits(1.0 + 0x1p-11 + 0x1p-40)), 0x3c01u);
}

TEST(Elementary, AreClose) {
    for (const float x : {0.1f, 0.5f, 1.0f, 2.0f, 7.5f}) {
        EXPECT_NEAR(run(Op::exp, x) / std::exp(x), 1, 1e-6);
        EXPECT_NEAR(run(Op::log, x), std::log(x), 1e-6);
        EXPECT_NEAR(run(Op::sin, x), std::sin(x), 1e-6);
        EXPECT_NEAR(run(Op::pow, x, 2.5f) / std::pow(x, 2.5f), 1, 1e-6);
    }
}

}  // namespace
}  // namespace qd::test
