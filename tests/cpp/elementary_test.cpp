// Elementary expansions: error against long double libm, special values against C, equal bits
// with and without the processor's flush-to-zero mode, operation counts.
//
// Build with -ffp-contract=off, as the library.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "ir/elementary.h"
#include "ir/elementary_fold.h"

namespace {

namespace e = qd::ir::elementary;

// |got - want| in units of the last digit; special values must agree, subnormals may be zero.
template <class T>
double ulps(T got, long double want) {
    using Limits = std::numeric_limits<T>;
    const T near = T(want);
    const double wrong = std::numeric_limits<double>::infinity();
    if (std::isnan(want)) return std::isnan(got) ? 0 : wrong;
    if (std::isnan(got)) return wrong;
    if (got == near && std::isinf(got)) return 0;
    if (std::fabs(want) < Limits::min()) return std::fabs(got) <= Limits::min() ? 0 : wrong;
    if (std::isinf(got)) return wrong;
    int exponent;
    std::frexp(want, &exponent);
    return double(std::fabs(got - want) / std::ldexp(1.0L, exponent - Limits::digits));
}

class Draw {
  public:
    explicit Draw(uint64_t seed) : random_(seed) {}
    double flat(double a, double b) {
        return std::uniform_real_distribution<double>(a, b)(random_);
    }
    double scaled(double a, double b) { return std::exp2(flat(a, b)) * (random_() & 1 ? 1 : -1); }

  private:
    std::mt19937_64 random_;
};

constexpr int kSamples = 30000;
constexpr uint64_t kSeed = 1;

template <class Domain>
struct Elementary : testing::Test {};
using Domains = testing::Types<e::Fold32, e::Fold64>;
TYPED_TEST_SUITE(Elementary, Domains);

// One function of one argument: our form, the reference, where to sample.
template <class D>
struct Case {
    using T = typename D::F;
    const char* name;
    T (*ours)(D&, T);
    long double (*reference)(long double);
    std::vector<std::function<double(Draw&)>> inputs;
};

template <class D>
std::vector<Case<D>> unary_cases() {
    using T = typename D::F;
    constexpr bool single = sizeof(T) == 4;
    const double top = single ? 127.9 : 1023.9, bottom = single ? -125 : -1021,
                 huge = single ? 13 : 29;
    const auto flat = [](double a, double b) { return [=](Draw& d) { return d.flat(a, b); }; };
    const auto scaled = [](double a, double b) { return [=](Draw& d) { return d.scaled(a, b); }; };
    const auto positive = [](double a, double b) {
        return [=](Draw& d) { return std::fabs(d.scaled(a, b)); };
    };
#define CASE(fn, ...)                                                                           \
    {                                                                                           \
        #fn, [](D& n, T x) { return e::fn(n, x); }, [](long double x) { return std::fn(x); }, { \
            __VA_ARGS__                                                                         \
        }                                                                                       \
    }
    return {
        CASE(sin, flat(-4, 4), flat(-100, 100), scaled(bottom, huge), scaled(huge, top)),
        CASE(cos, flat(-4, 4), flat(-100, 100), scaled(bottom, huge), scaled(huge, top)),
        CASE(tan, flat(-4, 4), flat(-100, 100), scaled(bottom, huge), scaled(huge, top)),
        CASE(asin, flat(-1.01, 1.01), scaled(bottom, 1)),
        CASE(acos, flat(-1.01, 1.01), scaled(bottom, 1)),
        CASE(atan, flat(-3, 3), scaled(bottom, top)),
        CASE(exp, flat(-1, 1), flat(single ? -105 : -750, single ? 90 : 712), scaled(bottom, 0)),
        CASE(exp2, flat(-1, 1), flat(single ? -152 : -1080, single ? 130 : 1026)),
        CASE(tanh, flat(-1, 1), flat(-30, 30), scaled(bottom, top)),
        CASE(log, flat(0.4, 2.5), flat(0.99, 1.01), positive(bottom, top)),
        CASE(log2, flat(0.4, 2.5), flat(0.99, 1.01), positive(bottom, top)),
        {"rsqrt",
         [](D& n, T x) { return e::rsqrt(n, x); },
         [](long double x) { return 1 / std::sqrt(x); },
         {positive(bottom, top)}},
    };
#undef CASE
}

template <class D>
void report(const std::string& name, const D& n, double worst) {
    std::printf("  %-6s f%d %-8s %.3f ulp\n", name.c_str(), D::bits,
                n.fused() ? "fused" : "separate", worst);
}

TYPED_TEST(Elementary, UnaryWithinTwoUlp) {
    using T = typename TypeParam::F;
    for (const bool fused : {false, true}) {
        TypeParam n(fused);
        for (const auto& c : unary_cases<TypeParam>()) {
            Draw draw(kSeed);
            double worst = 0;
            T where = 0;
            for (const auto& input : c.inputs) {
                for (int k = 0; k < kSamples; ++k) {
                    const T x = T(input(draw));
                    const double error = ulps<T>(c.ours(n, x), c.reference(x));
                    if (error > worst) worst = error, where = x;
                }
            }
            report(c.name, n, worst);
            EXPECT_LE(worst, 2) << c.name << "(" << where << "), seed " << kSeed;
        }
    }
}

TYPED_TEST(Elementary, PowAndAtan2WithinTwoUlp) {
    using T = typename TypeParam::F;
    constexpr bool single = sizeof(T) == 4;
    const double top = single ? 127.9 : 1023.9, bottom = single ? -125 : -1021;
    for (const bool fused : {false, true}) {
        TypeParam n(fused);
        Draw d(kSeed);
        double pow = 0, atan2 = 0, integer = 0;
        const auto try_pow = [&](double x0, double y0) {
            const T x = T(x0), y = T(y0);
            const double error = ulps<T>(e::pow(n, x, y), std::pow((long double)x, (long double)y));
            EXPECT_LE(error, 2) << "pow(" << x << ", " << y << ")";
            pow = std::max(pow, error);
        };
        const auto try_atan2 = [&](double y0, double x0) {
            const T x = T(x0), y = T(y0);
            const double error =
                ulps<T>(e::atan2(n, y, x), std::atan2((long double)y, (long double)x));
            EXPECT_LE(error, 2) << "atan2(" << y << ", " << x << ")";
            atan2 = std::max(atan2, error);
        };
        for (int k = 0; k < kSamples; ++k) {
            try_pow(d.flat(0, 4), d.flat(-5, 5));
            try_pow(std::fabs(d.scaled(-10, 10)), d.flat(-100, 100));
            try_pow(1 + d.flat(-1e-3, 1e-3), d.flat(-5e5, 5e5));
            try_pow(d.flat(-4, 4), std::floor(d.flat(-40, 40)));
            try_pow(std::fabs(d.scaled(bottom, top)), d.scaled(-20, 20));
            try_atan2(d.flat(-4, 4), d.flat(-4, 4));
            try_atan2(d.scaled(-60, 60), d.scaled(-60, 60));
            const T x = T(1 + d.scaled(-24, -1));
            const auto y = typename TypeParam::I(d.flat(-2e9, 2e9) * std::exp2(d.flat(-30, 0)));
            const double error =
                ulps<T>(e::pow_integer(n, x, y), std::pow((long double)x, (long double)y));
            EXPECT_LE(error, 2) << "pow_integer(" << x << ", " << y << ")";
            integer = std::max(integer, error);
        }
        report("pow", n, pow);
        report("powint", n, integer);
        report("atan2", n, atan2);
    }
}

TYPED_TEST(Elementary, sine_and_cosine_together_are_those_alone) {
    using T = typename TypeParam::F;
    constexpr bool single = sizeof(T) == 4;
    Draw d(11);
    std::vector<T> angles = {T(0), T(-0.0), std::numeric_limits<T>::infinity(),
                             std::numeric_limits<T>::quiet_NaN()};
    for (int k = 0; k < 20000; ++k) {
        angles.push_back(T(d.flat(-10, 10)));
        angles.push_back(T(d.scaled(single ? -149 : -1074, single ? 127.9 : 1023.9)));
    }
    for (const bool fused : {false, true}) {
        TypeParam n{fused};
        for (const T x : angles) {
            const auto both = e::sin_cos(n, x);
            ASSERT_EQ(n.bits_of(both.sin), n.bits_of(e::sin(n, x))) << x;
            ASSERT_EQ(n.bits_of(both.cos), n.bits_of(e::cos(n, x))) << x;
        }
    }
}

// Equal as C says: same number, same sign of zero, NaN for NaN.
template <class T>
bool same(T a, T b) {
    return std::isnan(a) ? std::isnan(b) : a == b && (a != 0 || std::signbit(a) == std::signbit(b));
}

template <class T>
std::vector<T> specials() {
    using Limits = std::numeric_limits<T>;
    std::vector<T> out;
    for (const T v : {T(0), T(0.25), T(0.5), T(1), T(1.5), T(2), T(3), T(4), T(1e5),
                      T(1) / Limits::epsilon(), 2 / Limits::epsilon() - 1, Limits::max(),
                      Limits::min(), Limits::infinity(), 1 - Limits::epsilon()}) {
        out.push_back(v);
        out.push_back(-v);
    }
    out.push_back(Limits::quiet_NaN());
    return out;
}

TYPED_TEST(Elementary, SpecialValuesAsInC) {
    using T = typename TypeParam::F;
    for (const bool fused : {false, true}) {
        TypeParam n(fused);
        for (const auto& c : unary_cases<TypeParam>()) {
            for (const T x : specials<T>()) {
                const long double want = c.reference(x);
                const T got = c.ours(n, x);
                EXPECT_LE(ulps<T>(got, want), 2) << c.name << "(" << x << ") = " << got;
                if (want == 0) {
                    EXPECT_TRUE(same(got, T(want))) << c.name << "(" << x << ") = " << got;
                }
            }
        }
        for (const T x : specials<T>()) {
            EXPECT_TRUE(same(e::round(n, x), std::round(x))) << x;
            EXPECT_TRUE(same(e::plain_floor(n, x), std::floor(x))) << x;
            EXPECT_TRUE(same(e::plain_ceil(n, x), std::ceil(x))) << x;
            for (const T y : specials<T>()) {
                const long double power = std::pow((long double)x, (long double)y);
                const T got = e::pow(n, x, y);
                EXPECT_LE(ulps<T>(got, power), 2) << "pow(" << x << ", " << y << ") = " << got;
                if (power == 0 || std::isinf(power)) {
                    EXPECT_TRUE(same(got, T(power))) << "pow(" << x << ", " << y << ") = " << got;
                }
                const T angle = e::atan2(n, x, y), expect = std::atan2(x, y);
                EXPECT_LE(ulps<T>(angle, std::atan2((long double)x, (long double)y)), 2)
                    << "atan2(" << x << ", " << y << ") = " << angle;
                if (expect == 0) {
                    EXPECT_TRUE(same(angle, expect))
                        << "atan2(" << x << ", " << y << ") = " << angle;
                }
            }
        }
        EXPECT_EQ(e::round(n, std::nextafter(T(0.5), T(0))), 0);
        EXPECT_EQ(e::round(n, T(-2.5)), -3);
    }
}

TYPED_TEST(Elementary, IntegerPowers) {
    using T = typename TypeParam::F;
    using I = typename TypeParam::I;
    TypeParam n(true);
    for (const int power : {0, 1, 2, 3, 5, 8, 15, -1, -2, -7}) {
        for (const T x : {T(1.5), T(-0.75), T(2), T(0), T(-3)}) {
            EXPECT_LE(ulps<T>(e::powi(n, x, power), std::pow((long double)x, power)),
                      std::abs(power))
                << x << " " << power;
            EXPECT_LE(ulps<T>(e::pow_integer(n, x, I(power)), std::pow((long double)x, power)), 2)
                << x << " " << power;
        }
    }
    EXPECT_EQ(e::pow_integer(n, std::numeric_limits<T>::quiet_NaN(), I(0)), 1);
    EXPECT_EQ(e::pow_integer(n, T(-1), std::numeric_limits<I>::max()), -1);
    EXPECT_EQ(e::powi_integer(n, I(-3), 7), -2187);
    EXPECT_EQ(e::powi_integer(n, I(2), TypeParam::bits), 0);
    EXPECT_EQ(e::powi_integer(n, I(9), 0), 1);
}

#if defined(__SSE2__)

struct FlushToZero {  // FTZ and DAZ on this thread
    unsigned saved = _mm_getcsr();
    FlushToZero() { _mm_setcsr(saved | 0x8040); }
    ~FlushToZero() { _mm_setcsr(saved); }
};

template <class D>
[[gnu::noinline]] void run_all(D n, const std::vector<typename D::F>& x,
                               std::vector<typename D::F>& out) {
    for (const auto& c : unary_cases<D>())
        for (const auto v : x) out.push_back(c.ours(n, v));
    for (size_t k = 1; k < x.size(); ++k) {
        out.push_back(e::pow(n, std::fabs(x[k]), x[k - 1]));
        out.push_back(e::atan2(n, x[k], x[k - 1]));
        out.push_back(e::round(n, x[k]));
    }
}

// Folding by software flushing equals the processor's mode, bit for bit.
TYPED_TEST(Elementary, FlushModeMakesNoDifference) {
    using T = typename TypeParam::F;
    constexpr bool single = sizeof(T) == 4;
    Draw d(kSeed);
    std::vector<T> x = specials<T>();
    for (int k = 0; k < 20000; ++k) {
        x.push_back(T(d.scaled(single ? -149 : -1074, single ? 127.9 : 1023.9)));
        x.push_back(T(d.flat(-5, 5)));
        x.push_back(T(d.flat(single ? -105 : -750, single ? 90 : 712)));
    }
    for (const bool fused : {false, true}) {
        std::vector<T> folded, folded_in_mode, processor;
        run_all(TypeParam(fused, true), x, folded);
        {
            FlushToZero mode;
            run_all(TypeParam(fused, true), x, folded_in_mode);
            run_all(TypeParam(fused, false), x, processor);
        }
        ASSERT_EQ(folded.size(), processor.size());
        int different = 0;
        for (size_t k = 0; k < folded.size(); ++k)
            different += !same(folded[k], processor[k]) + !same(folded[k], folded_in_mode[k]);
        EXPECT_EQ(different, 0) << "of " << folded.size();
    }
}

#endif

// Counts the operations that a call emits; constants and bit casts are free.
template <class D>
struct Counting {
    using F = typename D::F;
    using I = typename D::I;
    using B = bool;
    static constexpr int bits = D::bits;
    D n;
    int cheap = 0, slow = 0, rare = 0;  // slow: div, sqrt; rare: behind rarely()
    bool fused() const { return n.fused(); }
    F f(double c) { return n.f(c); }
    I i(int64_t c) { return n.i(c); }
    F from_bits(I a) { return n.from_bits(a); }
    I bits_of(F a) { return n.bits_of(a); }
    F div(F a, F b) { return ++slow, n.div(a, b); }
    F sqrt(F a) { return ++slow, n.sqrt(a); }
    F muladd(F a, F b, F c) { return cheap += n.fused() ? 1 : 2, n.muladd(a, b, c); }
#define COUNTED(op)                 \
    template <class... A>           \
    auto op(A... a) {               \
        return ++cheap, n.op(a...); \
    }
    // clang-format off: macros without semicolons confuse it
    COUNTED(add)
    COUNTED(sub)
    COUNTED(mul)
    COUNTED(neg)
    COUNTED(abs)
    COUNTED(floor)
    COUNTED(lt)
    COUNTED(le)
    COUNTED(gt)
    COUNTED(ge)
    COUNTED(eq)
    COUNTED(ne)
    COUNTED(isnan)
    COUNTED(select)
    COUNTED(selecti)
    COUNTED(band)
    COUNTED(bor)
    COUNTED(bnot)
    COUNTED(iadd)
    COUNTED(isub)
    COUNTED(iand)
    COUNTED(ior)
    COUNTED(ixor)
    COUNTED(shl)
    COUNTED(shr)
    COUNTED(ieq)
    COUNTED(ilt)
    COUNTED(to_float)
#undef COUNTED
    // clang-format on
    template <class Make>
    e::Reduced<Counting> rarely(bool, e::Reduced<Counting> usual, Make make) {
        const int before = cheap;
        make();
        rare += cheap - before;
        cheap = before;
        return usual;
    }
};

TYPED_TEST(Elementary, Counts) {
    using T = typename TypeParam::F;
    using Count = Counting<TypeParam>;
    const auto print = [](const char* name, auto call) {
        for (const bool fused : {true, false}) {
            Count n{TypeParam(fused)};
            call(n);
            std::printf("  %-6s f%d %-8s %3d cheap %d slow%s\n", name, Count::bits,
                        fused ? "fused" : "separate", n.cheap, n.slow,
                        n.rare ? (" + " + std::to_string(n.rare) + " rare").c_str() : "");
            EXPECT_LT(n.cheap, 260) << name;
            EXPECT_LE(n.slow, 2) << name;
        }
    };
    for (const auto& c : unary_cases<Count>())
        print(c.name, [&](Count& n) { (void)c.ours(n, T(0.7)); });
    print("pow", [](Count& n) { (void)e::pow(n, T(0.7), T(3.1)); });
    print("powint", [](Count& n) { (void)e::pow_integer(n, T(0.7), 3); });
    print("atan2", [](Count& n) { (void)e::atan2(n, T(0.7), T(3.1)); });
    print("round", [](Count& n) { (void)e::round(n, T(0.7)); });
}

}  // namespace
