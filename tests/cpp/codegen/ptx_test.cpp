// Code for NVIDIA GPUs: what the text of PTX says, and that an assembler takes it where one is
// installed (QD_PTXAS, the PATH, /usr/local/cuda).

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "codegen/llvm/codegen.h"
#include "ir/ir.h"
#include "pass/pass.h"

namespace qd {
namespace {

constexpr const char* kGpus[] = {"sm_75", "sm_90", "sm_100"};

std::string ptx_of(const std::string& text, const std::string& gpu, bool fast_math = true) {
    pass::PipelineOptions options;
    options.target = codegen::target_of(gpu, "");
    auto module = ir::parse(text);
    ir::verify(*module);
    module->options.fast_math = fast_math;
    const auto prepared = codegen::prepare(pass::run_pipeline(std::move(module), options));
    codegen::Options how;
    how.cpu = gpu;
    how.verify = true;
    const auto bytes = codegen::emit(prepared, how).objects.at(0);
    return {bytes.begin(), bytes.end()};
}

// "" if there is none.
std::string assembler() {
    if (const char* named = std::getenv("QD_PTXAS")) return named;
    for (const char* path : {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"})
        if (std::filesystem::exists(path)) return path;
    return "";
}

void expect_to_assemble(const std::string& ptx, const std::string& gpu) {
    static const std::string ptxas = assembler();
    if (ptxas.empty()) return;
    const std::string path = testing::TempDir() + "/qd_" + gpu + ".ptx";
    std::ofstream(path) << ptx;
    EXPECT_EQ(std::system((ptxas + " -arch=" + gpu + " -o /dev/null " + path).c_str()), 0) << ptx;
}

int count(const std::string& text, const std::string& pattern) {
    const std::regex wanted(pattern);
    return int(std::distance(std::sregex_iterator(text.begin(), text.end(), wanted), {}));
}

constexpr const char* kFields = R"(module "k"
field @x "x" : f32 shape [1000] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
field @y "y" : f32 shape [1000] offset [0] terms [0 / 1 % 0 * 4] components [0] group 2
field @s "s" : f32 shape [] offset [] terms [] components [0] group 3
)";

constexpr const char* kSaxpy = R"(func @k(%a : f32) {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f32>
    %x = load %xp
    %yp = field_place @y, %i : place<f32>
    %y = load %yp
    %ax = mul %a, %x
    %sum = add %ax, %y
    store %yp, %sum
  }
}
)";

TEST(ptx, has_a_kernel_a_task_that_reads_its_parameter) {
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(std::string(kFields) + kSaxpy, gpu);
        EXPECT_EQ(count(ptx, "[.]visible [.]entry task0"), 1) << ptx;
        EXPECT_EQ(count(ptx, "[.]maxntid 128"), 1) << ptx;
        EXPECT_GE(count(ptx, "ld[.]param[.]"), 3) << ptx;
        // What no task writes, and what one does.
        EXPECT_EQ(count(ptx, "ld[.]global[.]nc[.]"), 1) << ptx;
        EXPECT_EQ(count(ptx, "ld[.]global[.](?!nc)"), 1) << ptx;
        EXPECT_EQ(count(ptx, "st[.]global[.]"), 1) << ptx;
        // Nothing through generic addresses or the stack, no loop around one iteration.
        EXPECT_EQ(count(ptx, "[.]local|cvta|ld[.][bfu]|st[.][bfu]"), 0) << ptx;
        EXPECT_LE(count(ptx, "bra"), 1) << ptx;
        EXPECT_EQ(count(ptx, "div"), 0) << ptx;
        expect_to_assemble(ptx, gpu);
    }
}

constexpr const char* kSum = R"(func @k() {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f32>
    %x = load %xp
    %sp = field_place @s : place<f32>
    %old = atomic_add %sp, %x
  }
}
)";

TEST(ptx, folds_reductions_in_blocks) {
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(std::string(kFields) + kSum, gpu);
        EXPECT_EQ(count(ptx, "[.]entry (task0|finish0)"), 2) << ptx;
        EXPECT_GE(count(ptx, "[.]shared"), 1) << ptx;
        EXPECT_GE(count(ptx, "bar[.]sync|barrier"), 2) << ptx;
        EXPECT_EQ(count(ptx, "\\batom|\\bred[.]"), 0) << ptx;
        expect_to_assemble(ptx, gpu);
    }
}

TEST(ptx, adds_floats_by_one_instruction_and_takes_minima_by_one) {
    const std::string scatter = std::string(kFields) + R"(func @k(%c : f32) {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  %few = constant 7 : i32
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f32>
    %x = load %xp
    %least = min %x, %c
    %at = raw_mod %i, %few
    %yp = field_place @y, %at : place<f32>
    %old = atomic_add %yp, %least
  }
}
)";
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(scatter, gpu);
        EXPECT_EQ(count(ptx, "\\b(atom|red)[.][a-z.]*add[.][a-z.]*f32"), 1) << ptx;
        EXPECT_EQ(count(ptx, "min[.](ftz[.])?f32"), 1) << ptx;
        EXPECT_EQ(count(ptx, "[.]cas[.]"), 0) << ptx;
        expect_to_assemble(ptx, gpu);
    }
}

// A float's sum of products has one rounding or two, as on a CPU; f32 flushes subnormals.
TEST(ptx, rounds_as_the_cpu_does) {
    const std::string exact = ptx_of(std::string(kFields) + kSaxpy, "sm_90", false);
    EXPECT_EQ(count(exact, "mul[.]rn[.]ftz[.]f32"), 1) << exact;
    EXPECT_EQ(count(exact, "add[.]rn[.]ftz[.]f32"), 1) << exact;
    EXPECT_EQ(count(exact, "fma"), 0) << exact;
    const std::string fast = ptx_of(std::string(kFields) + kSaxpy, "sm_90", true);
    EXPECT_EQ(count(fast, "fma[.]rn[.]ftz[.]f32"), 1) << fast;
}

// The forms of assembler_mistakes.cpp.
std::string ptx_of_ints(const std::string& type, const std::string& body) {
    std::string text = R"(module "k"
field @a "a" : TYPE shape [64] offset [0] terms [0 / 1 % 0 * 8] components [0] group 1
field @b "b" : i64 shape [64] offset [0] terms [0 / 1 % 0 * 8] components [0] group 2
func @k(%c : TYPE, %d : TYPE) {
  %zero = constant 0 : i32
  %end = constant 64 : i32
  %one = constant 1 : TYPE
  for %i = %zero to %end parallel {
    %ap = field_place @a, %i : place<TYPE>
    %a = load %ap
BODY
    %w = cast %r : i64
    %bp = field_place @b, %i : place<i64>
    store %bp, %w
  }
}
)";
    text = std::regex_replace(text, std::regex("TYPE"), type);
    return ptx_of(std::regex_replace(text, std::regex("BODY"), body), "sm_90");
}

TEST(ptx, has_no_choices_of_16_bits) {
    for (const char* type : {"i8", "i16", "u8", "u16"}) {
        const std::string ptx = ptx_of_ints(type, R"(
    %p = mul %a, %c
    %l = min %p, %a
    %m = max %l, %c
    %r = abs %m)");
        EXPECT_EQ(count(ptx, "(abs|min|max)[.][su]16"), 0) << ptx;
        EXPECT_GE(count(ptx, "(min|max)[.][su]32"), 2) << ptx;
        expect_to_assemble(ptx, "sm_90");
    }
}

TEST(ptx, has_no_negations_below_minima_and_no_rotations_that_are_none) {
    const std::string minimum = ptx_of_ints("i32", R"(
    %x = neg %a
    %y = neg %c
    %z = neg %d
    %xy = min %x, %y
    %r = min %xy, %z)");
    EXPECT_EQ(count(minimum, "neg[.]"), 0) << minimum;
    EXPECT_EQ(count(minimum, "ld[.]const"), 1) << minimum;
    expect_to_assemble(minimum, "sm_90");
    const std::string shifts = ptx_of_ints("i64", R"(
    %many = constant 63 : i64
    %x = shr %a, %many
    %y = shl %a, %one
    %r = sub %x, %y)");
    EXPECT_EQ(count(shifts, "shr[.]s64[^;]*, 63;"), 0) << shifts;
    expect_to_assemble(shifts, "sm_90");
}

TEST(ptx, fence_around_what_may_be_a_lock) {
    const std::string lock = R"(module "k"
field @l "l" : i32 shape [4] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
field @n "n" : i32 shape [4] offset [0] terms [0 / 1 % 0 * 4] components [0] group 2
func @k() {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %end = constant 1000 : i32
  for %i = %zero to %end parallel {
    %lp = field_place @l, %zero : place<i32>
    loop {
      %old = atomic_exchange %lp, %one
      %free = eq %old, %zero
      if %free {
        break
      } else {
        yield
      }
      continue
    }
    %np = field_place @n, %zero : place<i32>
    %n = load %np
    %m = add %n, %one
    store %np, %m
    %left = atomic_exchange %lp, %zero
  }
}
)";
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(lock, gpu);
        EXPECT_GE(count(ptx, "fence[.]|membar[.]"), 4) << ptx;
        expect_to_assemble(ptx, gpu);
    }
}

}  // namespace
}  // namespace qd
