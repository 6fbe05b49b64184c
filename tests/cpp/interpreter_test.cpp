// The interpreter on small kernels with known results, and plans of the same kernels.

#include <gtest/gtest.h>

#include "ir/random.h"
#include "launch.h"

namespace qd::test {
namespace {

TEST(Interpreter, SumsAnArrayEitherWay) {
    const char* text = R"(
func @k(%x: array<f32>, %s: array<f32>, %c: array<i32>) {
  %z = constant 0 : i32
  %one = constant 1 : i32
  %n = array_shape %x : i32
  for %i = %z to %n parallel {
    %p = array_place %x, %i : place<f32>
    %v = load %p
    %q = array_place %s, %z : place<f32>
    %o = atomic_add %q, %v
    %cp = array_place %c, %z : place<i32>
    %o2 = atomic_add %cp, %one
  }
})";
    for (const int n : {0, 1, 15, 16, 17, 100, 1000}) {
        for (const bool plan : {false, true}) {
            auto m = ir::parse(text);
            Machine machine(*m);
            machine.units_per_chunk = 64;
            auto* x = reinterpret_cast<float*>(machine.set_array(*m, 0, {n}));
            auto* s = reinterpret_cast<float*>(machine.set_array(*m, 1, {1}));
            auto* c = reinterpret_cast<int32_t*>(machine.set_array(*m, 2, {1}));
            *s = 0.5f, *c = 3;
            double expected = 0.5;
            for (int k = 0; k < n; ++k) expected += x[k] = static_cast<float>(k % 17) / 4;
            if (plan) {
                ASSERT_TRUE(machine.run(pass::run_pipeline(std::move(m))));
            } else {
                ASSERT_TRUE(machine.run(*m));
            }
            EXPECT_EQ(*s, expected);  // exact: quarters
            EXPECT_EQ(*c, n + 3);
        }
    }
}

TEST(Interpreter, VisitsEveryCellOnce) {
    const char* text = R"(
func @k(%x: array<i32, 3>) {
  %z = constant 0 : i32
  %one = constant 1 : i32
  %a = array_shape %x : i32
  %b = array_shape %x #1 : i32
  %c = array_shape %x #2 : i32
  for %i, %j, %k = %z to %a, %one to %b, %z to %c parallel {
    %p = array_place %x, %i, %j, %k : place<i32>
    %v = load %p
    %t = mul %i, %b
    %u = add %t, %j
    %w = mul %u, %c
    %y = add %w, %k
    %r = add %v, %y
    store %p, %r
  }
})";
    for (const int tile : {0, 1, 3, 5}) {
        for (const int units : {1, 4, 1000}) {
            auto m = ir::parse(text);
            Machine machine(*m);
            machine.tile = tile;
            machine.units_per_chunk = units;
            auto* x = reinterpret_cast<int32_t*>(machine.set_array(*m, 0, {4, 5, 7}));
            ASSERT_TRUE(machine.run(pass::run_pipeline(std::move(m))));
            for (int k = 0; k < 4 * 5 * 7; ++k) ASSERT_EQ(x[k], k / 7 % 5 == 0 ? 0 : k) << k;
        }
    }
}

TEST(Interpreter, FailedChecksStop) {
    const char* text = R"(
module "k" check_out_of_bound=1
func @k(%x: array<i32>, %n: i32) {
  %z = constant 0 : i32
  for %i = %z to %n parallel {
    %p = array_place %x, %i : place<i32>
    store %p, %n
  }
})";
    for (const int n : {4, 5}) {
        auto m = ir::parse(text);
        Machine machine(*m);
        auto* x = reinterpret_cast<int32_t*>(machine.set_array(*m, 0, {4}));
        machine.set_arg<int32_t>(*m, 1, n);
        EXPECT_EQ(machine.run(pass::run_pipeline(std::move(m))), n == 4);
        EXPECT_EQ(machine.printed, n == 4 ? "" : "fail\n");
        EXPECT_EQ(x[3], n);
    }
}

TEST(Interpreter, VariablesOfTheKernelLiveAcrossTasks) {
    const char* text = R"(
func @k(%x: array<i32>, %n: i32) {
  %z = constant 0 : i32
  %s = slot : place<i32>
  %t = slot : place<i32>
  store %s, %n
  store %t, %n
  for %i = %z to %n parallel {
    %o = atomic_add %s, %i
  }
  %v = load %s
  %w = load %t
  %twice = mul %v, %w
  for %i = %z to %n parallel {
    %p = array_place %x, %i : place<i32>
    store %p, %twice
  }
})";
    auto m = ir::parse(text);
    Machine machine(*m);
    auto* x = reinterpret_cast<int32_t*>(machine.set_array(*m, 0, {10}));
    machine.set_arg<int32_t>(*m, 1, 10);
    const pass::Plan plan = pass::run_pipeline(std::move(m));
    ASSERT_TRUE(machine.run(plan));
    EXPECT_EQ(plan.tasks.size(), 4u);
    for (int k = 0; k < 10; ++k) EXPECT_EQ(x[k], 550);
}

TEST(Interpreter, EarlyReturnsKeepTheirMeaning) {
    const char* text = R"(
func @k(%x: array<i32>, %n: i32) returns_early {
  %z = constant 0 : i32
  %three = constant 3 : i32
  %few = lt %n, %three
  if %few {
    return
  }
  for %i = %z to %n parallel {
    %p = array_place %x, %i : place<i32>
    store %p, %n
  }
})";
    for (const int n : {2, 5}) {
        auto m = ir::parse(text);
        Machine machine(*m);
        auto* x = reinterpret_cast<int32_t*>(machine.set_array(*m, 0, {5}));
        machine.set_arg<int32_t>(*m, 1, n);
        ASSERT_TRUE(machine.run(pass::run_pipeline(std::move(m))));
        EXPECT_EQ(x[0], n == 5 ? 5 : 0);
    }
}

TEST(Random, IsUniform) {
    double mean = 0, square = 0, product = 0, last = 0;
    const int n = 1 << 20;
    for (int k = 0; k < n; ++k) {
        const uint64_t key = ir::random_key(1, 1, static_cast<uint64_t>(k / 4));
        const double v =
            static_cast<double>(ir::random_bits(key, static_cast<uint64_t>(k % 4)) >> 11) * 0x1p-53;
        mean += v, square += v * v, product += v * last;
        last = v;
    }
    EXPECT_NEAR(mean / n, 0.5, 0.002);
    EXPECT_NEAR(square / n, 1.0 / 3, 0.002);
    EXPECT_NEAR(product / n, 0.25, 0.002);
}

}  // namespace
}  // namespace qd::test
