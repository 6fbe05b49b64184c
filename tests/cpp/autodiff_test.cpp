// Derivatives of kernels in IR text, run by the interpreter, against differences of the kernel.

#include <gtest/gtest.h>

#include <functional>

#include "autodiff/autodiff.h"
#include "launch.h"

namespace qd::test {
namespace {

constexpr int kSize = 6;

// %x has gradients, %y too; %n says how often loops run.
std::string kernel(const std::string& body) {
    return R"(
module "k"
param array<f64> offset=0 grad "x"
param array<f64> offset=24 grad "y"
param array<i32> offset=48 "n"
func @k(%x: array<f64>, %y: array<f64>, %n: array<i32>) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %size = array_shape %x : i32
  for %i = %zero to %size parallel {
    %px = array_place %x, %i : place<f64>
    %py = array_place %y, %i : place<f64>
    %v = load %px
)" + body + "  }\n}";
}

struct Trial {
    Machine machine;
    double *x, *y, *dx, *dy;
    int32_t* n;

    explicit Trial(const ir::Module& m, size_t tape_bytes = 1 << 16) : machine(m) {
        machine.set_tape(tape_bytes);
        const auto array = [&](size_t k, double*& gradient) {
            auto* data = machine.set_array(m, k, {kSize});
            ir::ArrayDesc d;
            std::memcpy(&d, machine.args.data() + m.params[k].offset, sizeof d);
            gradient = static_cast<double*>(d.grad);
            return reinterpret_cast<double*>(data);
        };
        x = array(0, dx);
        y = array(1, dy);
        n = reinterpret_cast<int32_t*>(machine.set_array(m, 2, {kSize}));
        for (int k = 0; k < kSize; ++k) x[k] = 0.3 + 0.25 * k, y[k] = 0, dx[k] = 0, n[k] = k % 4;
    }
};

std::unique_ptr<ir::Module> reversed(const std::string& text, bool general_control = false,
                                     pass::Refusal* why = nullptr) {
    auto m = ir::parse(text);
    const auto refusal = autodiff::differentiate(*m, {.mode = autodiff::Mode::reverse,
                                                      .companions = {},
                                                      .inner_loops = true,
                                                      .general_control = general_control});
    if (why) *why = refusal;
    if (!refusal.what.empty()) return nullptr;
    ir::verify(*m);
    return m;
}

// Every element of y depends on that of x alone.
void expect_slopes(const std::string& body, bool general_control = false) {
    const std::string text = kernel(body);
    const auto primal = ir::parse(text);
    const auto value = [&](int k, double by) {
        Trial run(*primal);
        run.x[k] += by;
        EXPECT_TRUE(run.machine.run(*primal));
        return run.y[k];
    };
    for (const bool plan : {false, true}) {
        auto m = reversed(text, general_control);
        ASSERT_TRUE(m);
        Trial run(*m);
        for (int k = 0; k < kSize; ++k) run.dy[k] = 1 + k;
        ASSERT_TRUE(plan ? run.machine.run(pass::run_pipeline(std::move(m))) : run.machine.run(*m));
        for (int k = 0; k < kSize; ++k) {
            constexpr double h = 1e-6;
            const double slope = (value(k, h) - value(k, -h)) / (2 * h);
            EXPECT_NEAR(run.dx[k], (1 + k) * slope, 1e-6) << "element " << k << " plan " << plan;
            EXPECT_EQ(run.y[k], 0) << "stores to what has gradients are left out";
        }
    }
}

TEST(Autodiff, StraightCode) {
    expect_slopes(R"(
    %s = sin %v
    %m = mul %s, %v
    %d = div %m, %v
    %e = exp %d
    %w = add %e, %m
    store %py, %w
)");
}

TEST(Autodiff, Branches) {
    expect_slopes(R"(
    %half = constant 0x3ff0000000000000 : f64
    %c = lt %v, %half
    %r = if %c : f64 {
      %a = mul %v, %v
      yield %a
    } else {
      %b = sin %v
      %b2 = mul %b, %b
      yield %b2
    }
    %w = mul %r, %v
    store %py, %w
)");
}

constexpr const char* kLoop = R"(
    %pn = array_place %n, %i : place<i32>
    %trips = load %pn
    %end = for %j = %zero to %trips carry %s = %v : f64 {
      %t = sin %s
      %inner = for %k = %zero to %j carry %u = %t : f64 {
        %q = mul %u, %v
        %q2 = exp %q
        continue %q2
      }
      %next = mul %inner, %s
      continue %next
    }
    store %py, %end
)";

TEST(Autodiff, LoopsInLoops) { expect_slopes(kLoop); }

// Which tells what stood in a loop inside from the rest, until recurrences have been looked for.
TEST(Autodiff, LeavesNoMarksOfDepth) {
    const auto m = reversed(kernel(R"(
    %pn = array_place %n, %i : place<i32>
    %c = load %pn
    for %j = %zero to %c {
      %pj = array_place %n, %j : place<i32>
      %m = load %pj
      %f = cast %m : f64
      %w = mul %v, %f
      %old = atomic_add %py, %w
    }
)"));
    ASSERT_TRUE(m);
    for (ir::Function* f : m->functions)
        ir::walk(*f->body, [](ir::Inst& i) {
            EXPECT_FALSE(!i.region_count && i.flags & ir::kDeeper) << ir::info(i.op).name;
        });
}

TEST(Autodiff, ATapeThatIsTooShortFails) {
    const auto m = reversed(kernel(kLoop));
    ASSERT_TRUE(m);
    Trial run(*m, 8);
    for (int k = 0; k < kSize; ++k) run.dy[k] = 1;
    EXPECT_FALSE(run.machine.run(*m));
    EXPECT_EQ(run.machine.printed, "fail\n");
}

// Variables, a loop with three ways out of an iteration, and one that two conditions end.
constexpr const char* kJumps = R"(
    %big = constant 0x4010000000000000 : f64
    %s = slot : place<f64>
    store %s, %v
    %k = slot : place<i32>
    store %k, %zero
    loop {
      %kk = load %k
      %pn = array_place %n, %i : place<i32>
      %trips = load %pn
      %over = gt %kk, %trips
      if %over {
        break
      } else {
        yield
      }
      %k1 = add %kk, %one
      store %k, %k1
      %odd = bit_and %k1, %one
      %is_odd = eq %odd, %one
      if %is_odd {
        %a = load %s
        %b = mul %a, %v
        store %s, %b
        for %j = %zero to %k1 {
          %c = load %s
          %d = sin %c
          store %s, %d
          %far = eq %j, %one
          if %far {
            break
          } else {
            yield
          }
          %e = mul %d, %v
          store %s, %e
          continue
        }
        continue
      } else {
        yield
      }
      %g = load %s
      %h = exp %g
      store %s, %h
      %large = gt %h, %big
      if %large {
        break
      } else {
        yield
      }
      continue
    }
    %end = load %s
    store %py, %end
)";

TEST(Autodiff, Jumps) { expect_slopes(kJumps, true); }

// What does not fit is recorded again, to the same bits, down to room for one iteration.
TEST(Autodiff, ShortTapes) {
    for (const char* body : {kLoop, kJumps}) {
        const auto m = reversed(kernel(body), true);
        ASSERT_TRUE(m);
        std::vector<double> slopes;
        int failed = 0, right = 0;
        uint32_t again = 0;
        for (size_t bytes = 1 << 14; bytes >= 16; bytes = bytes * 31 / 32 & ~size_t{7}) {
            Trial run(*m, bytes);
            for (int k = 0; k < kSize; ++k) run.x[k] /= 16, run.dy[k] = 1, run.n[k] = 20 + k;
            if (!run.machine.run(*m)) {
                ++failed;
                EXPECT_EQ(run.machine.printed, "fail\n") << bytes;
                continue;
            }
            const std::vector<double> got(run.dx, run.dx + kSize);
            if (slopes.empty()) {
                slopes = got;
                EXPECT_EQ(run.machine.recorded_again(), 0u);
            }
            again = run.machine.recorded_again();
            EXPECT_EQ(got, slopes) << bytes;
            ++right;
        }
        EXPECT_GT(right, 80);
        EXPECT_GT(again, 4u * kSize);
        EXPECT_GT(failed, 0);
    }
}

size_t count(const std::string& text, const std::string& what) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
    return n;
}

// Threads add to components of a variable that lies outside of their loop, and to its tangents.
TEST(Autodiff, ComponentsOfSharedVariablesStayAtomic) {
    auto m = ir::parse(R"(
module "k"
field @x "x" : f64 shape [6] offset [0] terms [0 / 1 % 0 * 8] components [0] group 1
field @dx "dx" : f64 shape [6] offset [0] terms [0 / 1 % 0 * 8] components [0] group 2
func @k() {
  %zero = constant 0 : i32
  %end = constant 6 : i32
  %three = constant 3 : i32
  %first = constant 1.0 : f64
  %v = slot : place<vec<f64, 3>>
  %whole = splat %first : vec<f64, 3>
  store %v, %whole
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f64>
    %x = load %xp
    %at = mod %i, %three
    %p = comp_place %v, %at : place<f64>
    %old = atomic_add %p, %x
  }
  for %i = %zero to %end parallel {
    %at = mod %i, %three
    %p = comp_place %v, %at : place<f64>
    %y = load %p
    %xp = field_place @x, %i : place<f64>
    store %xp, %y
  }
}
)");
    const auto refusal =
        autodiff::differentiate(*m, {.mode = autodiff::Mode::forward, .companions = {1, -1}});
    ASSERT_EQ(refusal.what, "");
    ir::verify(*m);
    const std::string text = ir::print(*m);
    EXPECT_EQ(count(text, "insert_dyn"), 0u) << text;
    EXPECT_EQ(count(text, "atomic_add"), 2u) << text;
    EXPECT_EQ(count(text, "= slot"), 2u) << text;
}

// Loads of what nothing overwrites: what they are given is added up, and goes to the gradient once.
TEST(Autodiff, EqualLoadsAddToTheGradientOnce) {
    const std::string body = R"(
    %again = load %px
    %a = sin %again
    %c = gt %v, %a
    %r = if %c : f64 {
      %inner = load %px
      %b = mul %inner, %a
      yield %b
    } else {
      yield %a
    }
    store %py, %r
)";
    expect_slopes(body);
    EXPECT_EQ(count(ir::print(*reversed(kernel(body))), "atomic_add"), 1u);
    // Of what is stored to meanwhile, each adds at its time.
    const std::string stored = R"(
    store %py, %v
    %a = load %py
    %b = mul %a, %v
    store %py, %b
    %d = load %py
    %e = sin %d
    store %py, %e
)";
    EXPECT_EQ(count(ir::print(*reversed(kernel(stored))), "atomic_add"), 3u);
}

// What several terms are multiplied with (or divided by) at last multiplies their sum, if sums may
// be ordered otherwise.
TEST(Autodiff, SumsAreMultipliedOnce) {
    for (const std::string op : {"mul", "div"}) {
        const std::string body = R"(
    %c = constant 0.7 : f64
    %one_ = constant 1.0 : f64
    %two = constant 2.0 : f64
    %a1 = sub %one_, %v
    %a2 = sub %two, %v
    %m1 = )" + op + R"( %a1, %c
    %m2 = )" + op + R"( %a2, %c
    %s1 = sin %m1
    %s2 = exp %m2
    %y = add %s1, %s2
    store %py, %y
)";
        expect_slopes(body);
        const auto ops = [&](bool fast, const std::string& what) {
            auto m = ir::parse(kernel(body));
            m->options.fast_math = fast;
            const autodiff::Request request{
                .mode = autodiff::Mode::reverse, .companions = {}, .inner_loops = true};
            EXPECT_EQ(autodiff::differentiate(*m, request).what, "");
            return count(ir::print(*m), "= " + what + " ");
        };
        EXPECT_EQ(ops(false, "neg"), 2u);
        EXPECT_EQ(ops(true, "neg"), 1u);
        // By c, and by what y was given.
        EXPECT_EQ(ops(false, "mul") + ops(false, "div") - ops(true, "mul") - ops(true, "div"), 2u);
    }
}

TEST(Autodiff, SumsOfVectorsAreMultipliedOnce) {
    expect_slopes(R"(
    %half = constant 0.5 : f64
    %unit = constant 1.0 : f64
    %m = build %half, %unit, %unit, %half : mat<f64, 2, 2>
    %two = splat %v : vec<f64, 2>
    %three = splat %v : vec<f64, 2>
    %a = matmul %m, %two : vec<f64, 2>
    %b = sin %two
    %c = matmul %m, %b : vec<f64, 2>
    %d = transpose %m : mat<f64, 2, 2>
    %e = matmul %d, %three : vec<f64, 2>
    %f = matmul %m, %e : vec<f64, 2>
    %g = mul %a, %c
    %h = mul %g, %f
    %k = reduce_add %h
    store %py, %k
)");
}

// Functions that a derivative has beside its kernel; @f is called twice, and reads and writes %y.
size_t functions_left(const std::string& body, const char* disabled) {
    auto m = ir::parse(R"(
module "k"
param array<f64> offset=0 grad "x"
param array<f64> offset=24 grad "y"
func @k(%x: array<f64>, %y: array<f64>) {
  %zero = constant 0 : i32
  %size = array_shape %x : i32
  for %i = %zero to %size parallel {
    %px = array_place %x, %i : place<f64>
    %v = load %px
    %a = call @f, %y, %i, %v : f64
    %b = call @f, %y, %i, %a : f64
    %py = array_place %y, %i : place<f64>
    %old = atomic_add %py, %b
  }
}
func @f(%y: array<f64>, %i: i32, %v: f64) -> f64 {
  %p = array_place %y, %i : place<f64>
)" + body + R"(
  return %w
}
)");
    m->options.disable_pass = disabled;
    const auto refusal = autodiff::differentiate(
        *m, {.mode = autodiff::Mode::reverse, .companions = {}, .inner_loops = true});
    EXPECT_EQ(refusal.what, "");
    ir::verify(*m);
    return pass::callees_first(*m).size() - 1;
}

TEST(Autodiff, WhatCallersMustSeeIsExpanded) {
    constexpr const char* kAll = "inline_calls";
    EXPECT_EQ(functions_left("%w = mul %v, %v", kAll), 2u);
    EXPECT_EQ(functions_left("%w = mul %v, %v\n%o = atomic_add %p, %w", kAll), 2u);
    EXPECT_EQ(functions_left("%w = mul %v, %v\n%o = atomic_sub %p, %w", kAll), 2u);
    EXPECT_EQ(functions_left("%w = mul %v, %v\nstore %p, %w", kAll), 2u);
    EXPECT_EQ(functions_left("%o = volatile_load %p : f64\n%w = mul %v, %o", kAll), 0u);
}

// Those whose expansion is neither large nor many times the source.
TEST(Autodiff, SmallFunctionsAreExpanded) {
    std::string body = "%w0 = mul %v, %v\n";
    const auto longer = [&](int from, int to) {
        for (int k = from; k < to; ++k)
            body += "%w" + std::to_string(k) + " = mul %w" + std::to_string(k - 1) + ", %v\n";
        return body + "%w = sin %w" + std::to_string(to - 1);
    };
    EXPECT_EQ(functions_left(longer(1, 60), ""), 0u);
    EXPECT_EQ(functions_left(longer(60, 2500), ""), 0u);
}

TEST(Autodiff, Refuses) {
    pass::Refusal why;
    EXPECT_FALSE(reversed(kernel(R"(
    loop {
      break
    }
)"),
                          false, &why));
    EXPECT_NE(why.what.find("Not supported. A kernel that is differentiated has no while loop"),
              std::string::npos)
        << why.what;
    EXPECT_FALSE(reversed(kernel(R"(
    %old = atomic_min %py, %v
)"),
                          false, &why));
    EXPECT_NE(why.what.find("atomic_min"), std::string::npos) << why.what;
    EXPECT_FALSE(reversed(kernel(R"(
    %before = sub %i, %one
    %pb = array_place %y, %before : place<f64>
    %b = load %pb
    %w = mul %b, %v
    store %py, %w
)"),
                          false, &why));
    EXPECT_NE(why.what.find("Cross-iteration read-after-write"), std::string::npos) << why.what;
}

}  // namespace
}  // namespace qd::test
