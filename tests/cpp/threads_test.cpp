// Loops for targets whose threads have an iteration each (pass/threads.cpp), run by the
// interpreter.

#include <gtest/gtest.h>

#include <regex>

#include "ir/ir.h"
#include "launch.h"
#include "pass/pass.h"

namespace qd {
namespace {

pass::Plan plan_of(const std::string& text) {
    auto module = ir::parse(text);
    ir::verify(*module);
    pass::PipelineOptions options;
    options.target.threads = true;
    options.target.lone = false;
    pass::Plan plan = pass::run_pipeline(std::move(module), options);
    ir::verify(*plan.module);
    return plan;
}

constexpr const char* kFold = R"(module "k"
param i32 offset=0 "n"
param i32 offset=4 "m"
field @s "s" : i32 shape [2] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
func @k(%n : i32, %m : i32) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %ten = constant 10 : i32
  for %i, %j = %zero to %n, %one to %m parallel {
    %sp = field_place @s, %zero : place<i32>
    %tens = mul %i, %ten
    %v = add %tens, %j
    %old = atomic_add %sp, %v
    %mp = field_place @s, %one : place<i32>
    %most = atomic_max %mp, %v
  }
}
)";

TEST(threads, share_the_iterations_of_a_reduction) {
    const pass::Plan plan = plan_of(kFold);
    ASSERT_EQ(plan.tasks.size(), 1u);
    EXPECT_NE(plan.tasks[0].finish, nullptr);
    for (const int n : {0, 1, 2, 5})
        for (const int m : {1, 2, 4, 7})
            for (const int64_t threads : {1, 2, 3, 7, 64}) {
                test::Machine machine(*plan.module);
                machine.folding_threads = threads;
                machine.set_arg(*plan.module, 0, n);
                machine.set_arg(*plan.module, 1, m);
                int32_t sum = 0, most = 0;
                for (int i = 0; i < n; ++i)
                    for (int j = 1; j < m; ++j) {
                        sum += 10 * i + j;
                        most = std::max(most, 10 * i + j);
                    }
                ASSERT_TRUE(machine.run(plan));
                const auto* s = static_cast<const int32_t*>(machine.bindings[0]);
                EXPECT_EQ(s[0], sum) << n << " " << m << " " << threads;
                EXPECT_EQ(s[1], most) << n << " " << m << " " << threads;
            }
}

constexpr const char* kFill = R"(module "k"
param i32 offset=0 "n"
field @f "f" : i32 shape [8, 8, 8] offset [0, 0, 0] terms [0 / 1 % 0 * 256, 1 / 1 % 0 * 32, 2 / 1 % 0 * 4] components [0] group 1
func @k(%n : i32) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %three = constant 3 : i32
  for %i, %j, %k = %zero to %n, %one to %three, %one to %n parallel {
    %p = field_place @f, %i, %j, %k : place<i32>
    %v = load %p
    %w = add %v, %one
    store %p, %w
  }
}
)";

TEST(threads, have_each_iteration_once) {
    const pass::Plan plan = plan_of(kFill);
    EXPECT_EQ(plan.tasks.at(0).block_dim, 128);
    EXPECT_EQ(plan.tasks.at(0).iterations, 2);
    EXPECT_EQ(plan_of(std::regex_replace(kFill, std::regex("parallel"), "parallel block_dim=5000"))
                  .tasks.at(0)
                  .block_dim,
              1024);
    for (const int n : {-1, 0, 1, 2, 3, 8}) {
        test::Machine machine(*plan.module, 8 * 8 * 8 * 4);
        machine.set_arg(*plan.module, 0, n);
        ASSERT_TRUE(machine.run(plan));
        const auto* f = static_cast<const int32_t*>(machine.bindings[0]);
        for (int i = 0; i < 8; ++i)
            for (int j = 0; j < 8; ++j)
                for (int k = 0; k < 8; ++k) {
                    const bool inside = i < n && j >= 1 && j < 3 && k >= 1 && k < n;
                    EXPECT_EQ(f[64 * i + 8 * j + k], inside) << n << i << j << k;
                }
    }
}

// Blocks of which all numbers are iterations, and others.
TEST(threads, have_several_iterations_of_a_light_body) {
    constexpr const char* kRow = R"(module "k"
param i32 offset=0 "n"
field @f "f" : i32 shape [64] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
func @k(%n : i32) {
  %zero = constant 0 : i32
  for %i = %zero to %n parallel block_dim=4 {
    %p = field_place @f, %i : place<i32>
    %v = load %p
    %w = add %v, %i
    %y = add %w, %w
    store %p, %y
  }
}
)";
    const pass::Plan plan = plan_of(kRow);
    ASSERT_EQ(plan.tasks.at(0).iterations, 2);
    for (const int n : {0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 40, 63, 64}) {
        test::Machine machine(*plan.module, 64 * 4);
        machine.set_arg(*plan.module, 0, n);
        ASSERT_TRUE(machine.run(plan));
        const auto* f = static_cast<const int32_t*>(machine.bindings[0]);
        for (int i = 0; i < 64; ++i) EXPECT_EQ(f[i], i < n ? 2 * i : 0) << n << " " << i;
    }
    // Bodies that do much, or ask who runs them, have one.
    const auto iterations = [&](const char* more) {
        return plan_of(std::regex_replace(kRow, std::regex("store"), std::string(more) + "store"))
            .tasks.at(0)
            .iterations;
    };
    EXPECT_EQ(iterations(""), 2);
    EXPECT_EQ(iterations("%t = thread_index : i32\n  %q = field_place @f, %t : place<i32>\n  "
                         "store %q, %t\n  "),
              1);
    EXPECT_EQ(iterations("for %k = %zero to %i { store %p, %k }\n  "), 1);
}

// A thread has elements of several rows, if they are long.
TEST(threads, have_elements_of_several_long_rows) {
    constexpr const char* kPlane = R"(module "k"
param i32 offset=0 "n"
param i32 offset=4 "m"
field @f "f" : i32 shape [16, 100] offset [0, 0] terms [0 / 1 % 0 * 400, 1 / 1 % 0 * 4] components [0] group 1
func @k(%n : i32, %m : i32) {
  %one = constant 1 : i32
  %ten = constant 10 : i32
  for %i, %j = %one to %n, %one to %m parallel {
    %p = field_place @f, %i, %j : place<i32>
    %v = load %p
    %w = add %v, %i
    %y = mul %w, %ten
    %z = add %y, %j
    store %p, %z
  }
}
)";
    const auto check = [](const pass::Plan& plan, int n, int m, int rows = 16) {
        ASSERT_EQ(plan.tasks.at(0).iterations, 4);
        test::Machine machine(*plan.module, rows * 100 * 4);
        machine.set_arg(*plan.module, 0, n);
        machine.set_arg(*plan.module, 1, m);
        ASSERT_TRUE(machine.run(plan));
        const auto* f = static_cast<const int32_t*>(machine.bindings[0]);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < 100; ++j) {
                const bool inside = i >= 1 && i < n && j >= 1 && j < m;
                ASSERT_EQ(f[100 * i + j], inside ? 10 * i + j : 0)
                    << n << " " << m << " " << i << " " << j;
            }
    };
    const pass::Plan open = plan_of(kPlane);
    for (const int n : {-3, 1, 2, 3, 5, 6, 9, 15, 16})
        for (const int m : {-7, 1, 2, 30, 64, 65, 66, 99, 100}) check(open, n, m);
    for (const int n : {1990, 1991, 1992, 1993}) {
        const auto bound = [](const char* name, int v) {
            return std::string("  %") + name + " = constant " + std::to_string(v) + " : i32\n";
        };
        std::string known = std::regex_replace(kPlane, std::regex("to %n, %one to %m"),
                                               "to %height, %one to %width");
        known.insert(known.find("  %one ="), bound("height", n) + bound("width", 90));
        known = std::regex_replace(known, std::regex("shape .16"), "shape [2000");
        check(plan_of(known), n, 90, 2000);
    }
}

// Bounds that an earlier task computes.
TEST(threads, stride_to_a_bound_that_they_read) {
    constexpr const char* kComputed = R"(module "k"
field @n "n" : i32 shape [] offset [] terms [] components [0] group 2
field @f "f" : i32 shape [64] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
func @k() {
  %zero = constant 0 : i32
  %np = field_place @n : place<i32>
  %n = load %np
  for %i = %zero to %n parallel {
    %p = field_place @f, %i : place<i32>
    %v = load %p
    %one = constant 1 : i32
    %w = add %v, %one
    store %p, %w
  }
}
)";
    const pass::Plan plan = plan_of(kComputed);
    ASSERT_EQ(plan.tasks.size(), 2u);
    EXPECT_EQ(plan.tasks[1].iterations, 0);  // as many as there are
    for (const int n : {0, 1, 5, 64}) {
        test::Machine machine(*plan.module, 64 * 4);
        static_cast<int32_t*>(machine.bindings[0])[0] = n;
        ASSERT_TRUE(machine.run(plan));
        const auto* f = static_cast<const int32_t*>(machine.bindings[1]);
        for (int i = 0; i < 64; ++i) EXPECT_EQ(f[i], i < n) << n << " " << i;
    }
}

}  // namespace
}  // namespace qd
