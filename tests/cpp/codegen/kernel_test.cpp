// Whole kernels through the compiler's C ABI, the loader and the launcher: tier 0 and tier 1, one
// thread and several, give the same bits; integers and order-free floats equal the interpreter too.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ir/interpreter.h"
#include "ir/ir.h"
#include "large.h"
#include "machine.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/pool.h"
#include "support/abi.h"

namespace qd {

extern "C" {
int qd_compiler_begin(const uint8_t*, size_t, const abi::CompileOptions*, abi::Compilation**,
                      abi::Blob*);
int qd_compiler_emit(abi::Compilation*, const abi::CompileOptions*, abi::Blob*, abi::Blob*);
int qd_compiler_interpret(const uint8_t*, size_t, const abi::Context*, abi::Blob*);
int qd_compiler_text(const uint8_t*, size_t, int, const char*, abi::Blob*, abi::Blob*);
void qd_compiler_end(abi::Compilation*);
void qd_compiler_free(abi::Blob*);
}

namespace {

std::string take(abi::Blob& b) {
    std::string s(reinterpret_cast<char*>(b.data), b.bytes);
    qd_compiler_free(&b);
    return s;
}

std::vector<uint8_t> compile(const std::string& text, int tier, const char* cpu = "",
                             int threads = 1) {
    const auto ir = ir::serialise(*ir::parse(text));
    const abi::CompileOptions options{
        abi::kAbiVersion, tier,    cpu,    cpu[0] ? "x86_64-linux-gnu" : "", 0,
        nullptr,          nullptr, threads};
    abi::Compilation* c = nullptr;
    abi::Blob artefact{}, error{};
    if (qd_compiler_begin(ir.data(), ir.size(), &options, &c, &error))
        throw support::Error(take(error));
    const int failed = qd_compiler_emit(c, &options, &artefact, &error);
    qd_compiler_end(c);
    if (failed) throw support::Error(take(error));
    const std::string bytes = take(artefact);
    return {bytes.begin(), bytes.end()};
}

struct Memory {  // fields' storage, then the argument and result blocks
    std::vector<std::vector<uint64_t>> fields;
    std::vector<uint8_t> args;
    std::vector<uint64_t> results = std::vector<uint64_t>(16);
    std::string printed, failure;
    bool operator==(const Memory&) const = default;
};

Memory fresh(const std::vector<size_t>& field_bytes, const std::vector<uint8_t>& args) {
    Memory m;
    std::mt19937 random(11);
    for (size_t bytes : field_bytes) {
        std::vector<uint64_t> f(bytes / 8 + 1);
        for (size_t k = 0; k < bytes / 4; ++k)
            reinterpret_cast<float*>(f.data())[k] = float(int(random() % 2000) - 1000) / 64;
        m.fields.push_back(std::move(f));
    }
    m.args = args;
    m.args.resize(m.args.size() + 64);
    return m;
}

abi::Context context_of(Memory& m, std::vector<void*>& bindings) {
    for (auto& f : m.fields) bindings.push_back(f.data());
    abi::Context c{};
    c.bindings = bindings.data();
    c.args = m.args.data();
    c.results = reinterpret_cast<uint8_t*>(m.results.data());
    c.launch_key = 99;
    return c;
}

Memory run(const std::string& text, Memory m, int tier, int threads, const char* cpu = "") {
    auto image = runtime::load_artefact(compile(text, tier, cpu), "test");
    runtime::Pool pool(threads);
    std::vector<void*> bindings;
    abi::Context c = context_of(m, bindings);
    runtime::LaunchOutcome outcome;
    runtime::launch(*image, c, pool, {}, outcome);
    m.printed = outcome.printed;
    m.failure = outcome.failure;
    return m;
}

Memory interpreted(const std::string& text, Memory m) {
    const auto ir = ir::serialise(*ir::parse(text));
    std::vector<void*> bindings;
    abi::Context c = context_of(m, bindings);
    abi::Runtime runtime{[](abi::Thread*, uint32_t, const abi::Cell*) {},
                         [](abi::Thread*, uint32_t, const abi::Cell*) {}, [] { return int64_t(0); },
                         [](abi::Thread*) { return int32_t(1); }};
    int32_t stop = 0;
    std::vector<uint8_t> temps(4096);
    c.runtime = &runtime;
    c.stop = &stop;
    c.temps = temps.data();
    abi::Blob error{};
    if (qd_compiler_interpret(ir.data(), ir.size(), &c, &error)) throw support::Error(take(error));
    return m;
}

void check(const std::string& text, const std::vector<size_t>& fields,
           const std::vector<uint8_t>& args = {}, bool oracle = true) {
    SCOPED_TRACE(text);
    const Memory start = fresh(fields, args);
    const Memory first = run(text, start, 0, 1);
    EXPECT_EQ(first, run(text, start, 1, 1)) << "tier 1";
    EXPECT_EQ(first, run(text, start, 0, 3)) << "tier 0, 3 threads";
    EXPECT_EQ(first, run(text, start, 1, 3)) << "tier 1, 3 threads";
    if (oracle) {
        Memory expect = interpreted(text, start);
        expect.printed = first.printed;
        EXPECT_EQ(first.fields, expect.fields) << "interpreter";
        EXPECT_EQ(first.results, expect.results) << "interpreter";
    }
    for (const char* cpu : {"x86-64", "x86-64-v4"}) {
        if (!test::machine_runs(cpu)) continue;
        EXPECT_EQ(run(text, start, 0, 1, cpu), run(text, start, 1, 2, cpu)) << cpu;
    }
}

TEST(kernels, large_code_is_made_in_parts) {
    const std::string text = test::large_module(12);
    check(text, {64});
    const auto alone = compile(text, 0);
    abi::Artefact header;
    std::memcpy(&header, alone.data(), sizeof header);
    EXPECT_GT(header.object_count, 3u);
    for (const int threads : {0, 2, 8, 1000}) EXPECT_EQ(compile(text, 0, "", threads), alone);
}

const std::string kFields = R"(module "test"
field @f "f" : f32 shape [100, 130] offset [0, 0] terms [0 / 1 % 0 * 520, 1 / 1 % 0 * 4] components [0] group 1
field @g "g" : f32 shape [100, 130] offset [0, 0] terms [0 / 1 % 0 * 520, 1 / 1 % 0 * 4] components [0] group 2
field @h "h" : i32 shape [16] offset [0] terms [0 / 1 % 0 * 4] components [0] group 3
)";
const std::vector<size_t> kBytes = {52000, 52000, 64};

TEST(kernels, stencil_in_two_dimensions_with_calls) {
    check(kFields + R"(
func @step(%a: f32) {
  %one = constant 1 : i32
  %n = constant 99 : i32
  %m = constant 129 : i32
  for %i, %j = %one to %n, %one to %m parallel {
    %l = sub %j, %one
    %d = add %i, %one
    %pl = field_place @f, %i, %l : place<f32>
    %pd = field_place @f, %d, %j : place<f32>
    %x = load %pl
    %y = load %pd
    %s = mul %x, %a
    %t = add %s, %y
    %w = call @wave, %t : f32
    %o = field_place @g, %i, %j : place<f32>
    store %o, %w
  }
}
func @wave(%x: f32) -> f32 never_inline {
  %s = sin %x
  %z = constant 0.0 : f32
  %neg = lt %s, %z
  %r = if %neg : f32 {
    %e = exp %x
    yield %e
  } else {
    %q = sqrt %s
    yield %q
  }
  return %r
})",
          kBytes, {0, 0, 128, 63});
}

TEST(kernels, reductions_do_not_depend_on_tier_or_threads) {
    const std::string text = kFields + R"(
results f32, i32, f64
func @sums() {
  %s = slot : place<f32>
  %c = slot : place<i32>
  %w = slot : place<f64>
  %z = constant 0.0 : f32
  %zi = constant 0 : i32
  %zw = constant 0.0 : f64
  store %s, %z
  store %c, %zi
  store %w, %zw
  %n = constant 100 : i32
  %m = constant 130 : i32
  for %i, %j = %zi to %n, %zi to %m parallel {
    %p = field_place @f, %i, %j : place<f32>
    %x = load %p
    %o = atomic_add %s, %x
    %xi = cast %x : i32
    %oi = atomic_max %c, %xi
    %xd = cast %x : f64
    %q = mul %xd, %xd
    %od = atomic_add %w, %q
  }
  %r = load %s
  set_result %r #0
  %ri = load %c
  set_result %ri #1
  %rd = load %w
  set_result %rd #2
})";
    check(text, kBytes, {}, false);
    const Memory got = run(text, fresh(kBytes, {}), 1, 3),
                 expect = interpreted(text, fresh(kBytes, {}));
    float a, b;
    double c, d;
    std::memcpy(&a, &got.results[0], 4);
    std::memcpy(&b, &expect.results[0], 4);
    std::memcpy(&c, &got.results[2], 8);
    std::memcpy(&d, &expect.results[2], 8);
    EXPECT_NEAR(a, b, 1e-4 * std::abs(b) + 0.1);
    EXPECT_NEAR(c, d, 1e-9 * d);
    EXPECT_EQ(got.results[1], expect.results[1]);
}

TEST(kernels, random_numbers_and_integer_atomics) {
    check(kFields + R"(
func @throw() {
  %zero = constant 0 : i32
  %n = constant 4000 : i32
  %sixteen = constant 16 : i32
  for %i = %zero to %n parallel {
    %r = random : u32
    %s = cast %r : i32
    %four = constant 4 : i32
    %k = lshr %s, %four
    %b = mod %k, %sixteen
    %p = field_place @h, %b : place<i32>
    %o = atomic_add %p, %s
    %hundred = constant 100 : i32
    %row = mod %i, %hundred
    %q = field_place @f, %row, %b : place<f32>
    %x = random : f32
    %small = lt %i, %hundred
    if %small {
      store %q, %x
    }
  }
})",
          kBytes);
}

TEST(kernels, chains_of_equality_may_become_jump_tables) {
    std::string chain, ends;
    int k = 0;
    for (const char* op : {"add", "sub", "mul", "div", "min", "max", "atan2", "pow", "mod"}) {
        const std::string n = std::to_string(k++);
        chain += "%k" + n + " = constant " + n + " : i32\n    %q" + n + " = eq %m, %k" + n +
                 "\n    %r" + n + " = if %q" + n + " : f32 {\n    %d" + n + " = " + op +
                 " %x, %y\n    yield %d" + n + "\n    } else {\n    ";
        ends = "}\n    " + (k > 1 ? "yield %r" + n + "\n    " + ends : ends);
    }
    check(kFields + R"(
func @choose() {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %n = constant 100 : i32
  for %i = %zero to %n parallel {
    %p = field_place @f, %i, %zero : place<f32>
    %g = field_place @f, %i, %one : place<f32>
    %x = load %p
    %y = load %g
    %twelve = constant 12 : i32
    %m = mod %i, %twelve
    )" + chain +
              "%last = neg %x\n    yield %last\n    " + ends +
              R"(store %p, %r0
  }
})",
          kBytes);
}

TEST(kernels, print_and_assert) {
    const std::string text = kFields + R"(
func @tell(%a: i32) {
  %x = constant 1.5 : f32
  print %a, %x ["a=", "" *, " x=", "" *, "\n"]
  %zero = constant 0 : i32
  %fine = gt %a, %zero
  assert %fine, %a ["a is ", "" *]
  %p = field_place @h, %zero : place<i32>
  store %p, %a
})";
    const Memory good = run(text, fresh(kBytes, {7, 0, 0, 0}), 1, 1),
                 bad = run(text, fresh(kBytes, {0, 0, 0, 0}), 0, 1);
    EXPECT_EQ(good.printed, "a=7 x=1.500000\n");
    EXPECT_EQ(good.failure, "");
    EXPECT_EQ(uint32_t(good.fields[2][0]), 7u);
    EXPECT_NE(bad.failure.find("a is 0"), std::string::npos);
    EXPECT_EQ(bad.fields, fresh(kBytes, {}).fields);
}

TEST(kernels, how_loops_are_cut_reaches_the_launch) {
    const auto task = [](const std::string& options, const char* loop) {
        const auto image = runtime::load_artefact(
            compile("module \"test\" " + options + kFields.substr(kFields.find('\n')) +
                        "func @k() {\n %z = constant 0 : i32\n %n = constant 9 : i32\n for %i = %z "
                        "to %n parallel" +
                        loop +
                        " {\n %p = field_place @h, %z : place<i32>\n %o = atomic_add %p, %i : i32\n"
                        " continue\n }\n return\n}\n",
                    0, ""),
            "test");
        return std::pair(image->tasks.at(0).block_dim, image->tasks.at(0).max_threads);
    };
    EXPECT_EQ(task("", ""), std::pair(0, 0));
    EXPECT_EQ(task("default_cpu_block_dim=64", ""), std::pair(64, 0));
    EXPECT_EQ(task("default_cpu_block_dim=64", " block_dim=16 max_threads=3"), std::pair(16, 3));
    EXPECT_EQ(task("make_cpu_multithreading_loop=0", " max_threads=3"), std::pair(0, 1));
}

TEST(kernels, every_stage_has_a_text) {
    const auto ir = ir::serialise(
        *ir::parse(kFields +
                   "func @k() {\n %z = constant 0 : i32\n %unused = add %z, %z\n %p = field_place "
                   "@h, %z : place<i32>\n store %p, %z\n}\n"));
    const char* expected[] = {"field_place",
                              "task0",
                              "define",
                              "movl",
                              "define",
                              "\fafter_offload\n",
                              "\fI simplify k\nfunc ",
                              "global ptr [",
                              "global ptr [",
                              "\fafter_offload\nkernel {\n  $0 = offloaded",
                              "\fafter_offload\nkernel {\n  $0 = offloaded",
                              "\fIII dce task0\nkernel {\n  $0 = offloaded"};
    for (int stage = 0; stage < 12; ++stage) {
        abi::Blob text{}, error{};
        ASSERT_EQ(qd_compiler_text(ir.data(), ir.size(), stage, "", &text, &error), 0)
            << take(error);
        EXPECT_NE(take(text).find(expected[stage]), std::string::npos) << stage;
    }
    abi::Blob text{}, error{};
    EXPECT_NE(qd_compiler_text(ir.data(), ir.size() / 2, 0, "", &text, &error), 0);
    EXPECT_FALSE(take(error).empty());
}

}  // namespace
}  // namespace qd
