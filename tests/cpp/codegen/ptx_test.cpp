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
        // One thread adds what all have to what is there.
        EXPECT_GE(count(ptx, "\\batom|\\bred[.]"), 1) << ptx;
        EXPECT_LE(count(ptx, "\\batom|\\bred[.]"), 2) << ptx;  // each on a way of its own
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
// Elements of two and four, side by side; then apart, of three, on odd places, and asked for.
TEST(ptx, adds_vectors_by_one_instruction) {
    const auto text = [](const std::string& field, const std::string& type,
                         const std::string& rest) {
        return "module \"k\"\nfield @v \"v\" : " + type +
               " shape [1000] offset [0] terms [0 / 1 % 0 * " + field +
               " group 1\nfield @s \"s\" : f32 shape [1000] offset [0] terms [0 / 1 % 0 * 4] " +
               "components [0] group 2\n" + R"(func @k() {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %n = constant 1000 : i32
  for %i = %zero to %n parallel {
    %sp = field_place @s, %i : place<f32>
    %x = load %sp
    %next = add %i, %one
    %odd = mul %next, %i
    %at = bit_and %odd, %one
    %vp = field_place @v, %at : place<)" +
               type + ">\n    %y = splat %x : " + type + "\n    %old = " + rest + "\n  }\n}\n";
    };
    const std::string two = "8] components [0, 4]", four = "16] components [0, 4, 8, 12]";
    const auto v2 = text(two, "vec<f32, 2>", "atomic_add %vp, %y");
    const auto v4 = text(four, "vec<f32, 4>", "atomic_sub %vp, %y");
    for (const char* gpu : {"sm_90", "sm_100"}) {
        const std::string a = ptx_of(v2, gpu), b = ptx_of(v4, gpu);
        EXPECT_EQ(count(a, "red.relaxed.gpu.global.add.v2.f32"), 1) << a;
        EXPECT_EQ(count(a, "(atom|red)\\."), 3) << a;  // and where the first lies elsewhere
        EXPECT_EQ(count(b, "red.relaxed.gpu.global.add.v4.f32"), 1) << b;
        expect_to_assemble(a, gpu);
        expect_to_assemble(b, gpu);
    }
    EXPECT_EQ(count(ptx_of(v2, "sm_75"), "\\.v2\\.f32"), 0);
    const std::string kept = text(two, "vec<f32, 2>",
                                  "atomic_add %vp, %y\n    %c = extract %old #1 : f32\n"
                                  "    store %sp, %c");
    for (const std::string& other :
         {kept, text("4] components [0, 4000]", "vec<f32, 2>", "atomic_add %vp, %y"),
          text("12] components [0, 4]", "vec<f32, 2>", "atomic_add %vp, %y"),
          text("12] components [0, 4, 8]", "vec<f32, 3>", "atomic_add %vp, %y"),
          text(two, "vec<f32, 2>", "atomic_max %vp, %y")})
        EXPECT_EQ(count(ptx_of(other, "sm_90"), "add\\.v[24]"), 0) << other;
}

TEST(ptx, rounds_as_the_cpu_does) {
    const std::string exact = ptx_of(std::string(kFields) + kSaxpy, "sm_90", false);
    EXPECT_EQ(count(exact, "mul[.]rn[.]ftz[.]f32"), 1) << exact;
    EXPECT_EQ(count(exact, "add[.]rn[.]ftz[.]f32"), 1) << exact;
    EXPECT_EQ(count(exact, "fma"), 0) << exact;
    const std::string fast = ptx_of(std::string(kFields) + kSaxpy, "sm_90", true);
    EXPECT_EQ(count(fast, "fma[.]rn[.]ftz[.]f32"), 1) << fast;
}

// Tasks are started before the one in front of them is over, where the device can do that.
TEST(ptx, waits_for_the_task_before) {
    const std::string text = std::string(kFields) + kSaxpy;
    EXPECT_EQ(count(ptx_of(text, "sm_75"), "griddepcontrol"), 0);
    for (const char* gpu : {"sm_90", "sm_100"}) {
        const std::string ptx = ptx_of(text, gpu);
        EXPECT_EQ(count(ptx, "griddepcontrol[.]wait;"), 1) << ptx;
        EXPECT_LT(ptx.find("griddepcontrol.wait"), ptx.find("ld.global")) << ptx;
        // Of a small task the next comes early, never before this one may begin.
        EXPECT_EQ(count(ptx, "@few griddepcontrol[.]launch_dependents;"), 1) << ptx;
        EXPECT_LT(ptx.find("griddepcontrol.wait"), ptx.find("griddepcontrol.launch")) << ptx;
        EXPECT_EQ(count(ptx.substr(0, ptx.find("griddepcontrol.wait")), "bra|st[.]"), 0) << ptx;
        expect_to_assemble(ptx, gpu);
    }
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

TEST(ptx, has_no_complements) {
    for (const char* type : {"i16", "i32", "i64"}) {
        const std::string ptx = ptx_of_ints(type, R"(
    %p = bit_not %a
    %q = bit_and %p, %c
    %s = bit_not %q
    %r = bit_or %s, %d)");
        EXPECT_EQ(count(ptx, "not[.]b"), 0) << ptx;
        EXPECT_GE(count(ptx, "sub[.]s(16|32|64)[ \t]+%r[a-z]*[0-9]+, -1, %r[a-z]*[0-9]+;"), 1)
            << ptx;
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
    const std::string short_shifts = ptx_of_ints("i32", R"(
    %many = constant 31 : i32
    %x = shr %a, %many
    %y = shl %a, %one
    %r = sub %x, %y)");
    EXPECT_EQ(count(short_shifts, "shr[.]s32[^;]*, 31;"), 0) << short_shifts;
}

// Of a function's text.
std::string function_in(const std::string& ptx, const std::string& name) {
    const size_t begin = ptx.rfind(name + "(");
    return begin == std::string::npos ? "" : ptx.substr(begin, ptx.find("\n}", begin) - begin);
}

TEST(ptx, says_values_and_where_they_are_from) {
    for (const std::string gpu : {"sm_80", "sm_90"}) {
        const std::string ptx = ptx_of(std::string(kFields) + R"(
func @k() {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  for %i = %zero to %end parallel {
    %p = field_place @x, %i : place<f32>
    %x = load %p
    %c = gt %i, %zero
    assert %c, %x ["of ", "" *]
    print %i, %x ["i=", "" *, " x=", "" *, "\n"]
  }
})",
                                       gpu);
        // Values and sites are copied in loops; a print counts the sites before.
        const std::string print = function_in(ptx, "qd_$_print");
        const std::string report = function_in(ptx, "qd_$_report");
        EXPECT_EQ(count(print, "ld[.]b64"), 4) << print;
        EXPECT_EQ(count(print, "st[.]global[.]b64"), 4) << print;
        EXPECT_EQ(count(report, "ld[.]b64"), 3) << report;
        EXPECT_EQ(count(report, "st[.]global[.]b64"), 2) << report;
        expect_to_assemble(ptx, gpu);
    }
}

// A subgroup's numbers at one place of the tape lie side by side, as wide as the widest: here the
// number of a thread in its subgroup is taken times 8.
TEST(ptx, keeps_a_tape_in_words_of_32_threads) {
    const std::string ptx = ptx_of(std::string(kFields) + R"(
func @k(%n: i64) {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  for %i = %zero to %end parallel {
    %a = tape %n : place<f64>
    %b = tape %n : place<f32>
    %x = load %a
    %y = cast %x : f32
    store %b, %y
  }
})",
                                   "sm_90");
    EXPECT_GE(count(ptx, "and[.]b64[^;]*, 248;"), 1) << ptx;
    EXPECT_EQ(count(ptx, "and[.]b64[^;]*, 7;"), 1) << ptx;
    expect_to_assemble(ptx, "sm_90");
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

// Who waits for memory without a fence of its own finds what was written before; who fences by hand
// pays for a plain load and a plain atomic.
TEST(ptx, orders_looks_and_atomics_only_where_nobody_fences) {
    const auto waiting = [](const std::string& fence, const std::string& behind = "") {
        return std::string(kFields) + R"(func @k() {
  %zero = constant 0 : i32
  %one = constant 1.0 : f32
  %end = constant 1000 : i32
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f32>
    loop {
      %seen = volatile_load %xp
      %there = ge %seen, %one
      if %there {
        break
      } else {
        yield
      }
      continue
    }
)" + fence + R"(
    %yp = field_place @y, %zero : place<f32>
    %old = atomic_add %yp, %one
  }
)" + behind + "}\n";
    };
    const std::string fences = "  for %k = %zero to %end parallel {\n    fence #2\n  }\n";
    for (const char* gpu : kGpus) {
        const std::string ordered = ptx_of(waiting("", fences), gpu),  // another task does
            by_hand = ptx_of(waiting("    fence #2"), gpu);
        EXPECT_EQ(count(ordered, "ld[.]acquire[.]gpu"), 1) << ordered;
        EXPECT_EQ(count(ordered, "ld[.][^;]*[.]sys"), 0) << ordered;
        EXPECT_EQ(count(by_hand, "ld[.]relaxed[.]gpu"), 1) << by_hand;
        EXPECT_EQ(count(by_hand, "fence[.]sc|membar[.]"), 1) << by_hand;
        expect_to_assemble(ordered, gpu);
        expect_to_assemble(by_hand, gpu);
    }
}

// A body of a loop over 1,000 threads in blocks of 64, with %i, %t (number in the block), %xp and
// %x.
std::string of_threads(const std::string& body) {
    return std::string(kFields) + R"(func @k() {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  %all = constant 4294967295 : u32
  %one = constant 1 : u32
  for %i = %zero to %end parallel block_dim=64 {
    %t = thread_index #1 : i32
    %xp = field_place @x, %i : place<f32>
    %x = load %xp
)" + body + "  }\n}\n";
}

TEST(ptx, keeps_what_threads_share_in_memory) {
    const std::string text = of_threads(R"(
    %sp = shared_place %t #64 : place<f32>
    store %sp, %x
    block_sync
    %v = load %sp
    %y = load %xp
    %z = add %v, %y
    store %xp, %z
)");
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(text, gpu);
        EXPECT_EQ(count(ptx, "[.]shared [.]align 16 [.]b8 [a-z_$0-9]+.256."), 1) << ptx;
        EXPECT_EQ(count(ptx, "bar[.]sync"), 1) << ptx;
        EXPECT_EQ(count(ptx, "[.]maxntid 64"), 1) << ptx;
        // Behind a barrier another thread may have written any of it.
        EXPECT_EQ(count(ptx, "ld[.]shared"), 1) << ptx;
        EXPECT_EQ(count(ptx, "ld[.]global"), 2) << ptx;
        EXPECT_EQ(count(ptx, "[.]nc"), 0) << ptx;
        EXPECT_EQ(count(ptx, "[.]local|cvta"), 0) << ptx;
        expect_to_assemble(ptx, gpu);
    }
}

TEST(ptx, has_an_instruction_for_what_threads_do_together) {
    const std::string text = of_threads(R"(
    %big = gt %x, %x
    %a = shuffle %x, %one, %all
    %b = shuffle %a, %one, %all #1
    %c = shuffle %b, %one, %all #2
    %d = shuffle %c, %one, %all #3
    store %xp, %d
    %v0 = vote %big, %all : u32
    %v1 = vote %big, %all #1 : u32
    %v2 = vote %big, %all #2 : u32
    %v3 = vote %big, %all #3 : u32
    %v4 = vote %x, %all #5 : u32
    %v5 = vote %x, %all #6 : u32
    %v6 = active_mask : u32
    %w0 = block_vote %big : i32
    %w1 = block_vote %big #1 : i32
    %w2 = block_vote %big #4 : i32
    subgroup_sync %all
    fence
    fence #1
    fence #2
)");
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(text, gpu, false);
        for (const char* pattern :
             {"shfl[.]sync[.]idx[.]b32 [^;]*, 1, 31, -1", "shfl[.]sync[.]up[.]b32 [^;]*, 1, 0, -1",
              "shfl[.]sync[.]down[.]b32 [^;]*, 1, 31, -1",
              "shfl[.]sync[.]bfly[.]b32 [^;]*, 1, 31, -1", "vote[.]sync[.]all", "vote[.]sync[.]any",
              "vote[.]sync[.]uni", "vote[.]sync[.]ballot", "match[.]any[.]sync[.]b32",
              "match[.]all[.]sync[.]b32", "activemask",
              "(barrier|bar)[.](cta[.])?red[.](aligned[.])?and",
              "(barrier|bar)[.](cta[.])?red[.](aligned[.])?or",
              "(barrier|bar)[.](cta[.])?red[.](aligned[.])?popc", "bar[.]warp[.]sync",
              "membar[.]gl|fence[.]sc[.]gpu"})
            EXPECT_EQ(count(ptx, pattern), 1) << pattern << ptx;
        EXPECT_EQ(count(ptx, "membar[.]cta|fence[.]sc[.]cta"), 2) << ptx;
        expect_to_assemble(ptx, gpu);
    }
}

// An inner loop's counter is the same in all threads of a subgroup, which ask in front of the loop
// whether they are together; an index from memory they compare; one that each has for itself is not
// asked about. Two neighbours share the question.
TEST(ptx, adds_up_in_a_subgroup_what_goes_to_one_element) {
    const auto loop = [](const char* index) {
        return std::string(kFields) + R"(func @k(%c : f32) {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  %many = constant 700 : i32
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f32>
    %x = load %xp
    for %j = %zero to %many {
      %both = add %i, %j
      %own = raw_mod %both, %many
      %zp = field_place @z, %j : place<i32>
      %read = load %zp
      %yp = field_place @y, )" +
               index + R"( : place<f32>
      %old = atomic_sub %yp, %x
      %square = mul %x, %x
      %least = atomic_min %yp, %square
    }
  }
}
)";
    };
    const auto with_z = [](std::string text) {
        const std::string z =
            "field @z \"z\" : i32 shape [1000] offset [0] terms [0 / 1 % 0 * 4] components [0] "
            "group 4\n";
        return text.insert(text.find("func @k"), z);
    };
    for (const char* gpu : kGpus) {
        const std::string counted = ptx_of(with_z(loop("%j")), gpu),
                          read = ptx_of(with_z(loop("%read")), gpu),
                          own = ptx_of(with_z(loop("%own")), gpu);
        for (const std::string& together : {counted, read}) {
            EXPECT_EQ(count(together, "shfl[.]sync[.]bfly"), 12) << together;  // of 8 totals
            EXPECT_EQ(count(together, "(atom|red)[.][^;]*add[^;]*f32"), 1 + 4) << together;
            EXPECT_EQ(count(together, "[.]cas[.]"), 1 + 4) << together;
            expect_to_assemble(together, gpu);
        }
        EXPECT_EQ(count(counted, "activemask"), 2) << counted;  // and for what is left
        EXPECT_EQ(count(counted, "match[.]all[.]sync"), 0) << counted;
        EXPECT_EQ(count(read, "match[.]all[.]sync"), 4 + 1) << read;  // and the turn
        EXPECT_EQ(count(own, "shfl|match|activemask"), 0) << own;
        EXPECT_EQ(count(own, "(atom|red)[.][^;]*add[^;]*f32"), 1) << own;
        EXPECT_LT(counted.find("activemask"), counted.find("shfl")) << counted;
    }
}

// Numbers of iterations have 32 bits where a launch has few enough: no branch stands between the
// division and the loads.
TEST(ptx, divides_numbers_of_32_bits) {
    const auto copy = [](const std::string& ends) {
        return R"(module "k"
param array<f32, 2> offset=0 "a"
param array<f32, 2> offset=24 "b"
func @k(%a: array<f32, 2>, %b: array<f32, 2>) {
  %zero = constant 0 : i32
)" + ends + R"(
  for %i, %j = %zero to %n, %zero to %m parallel {
    %from = array_place %a, %i, %j : place<f32>
    %x = load %from : f32
    %to = array_place %b, %i, %j : place<f32>
    store %to, %x
  }
}
)";
    };
    const std::string asked = "%n = array_shape %a : i32\n%m = array_shape %a #1 : i32";
    for (const char* gpu : kGpus) {
        const std::string ptx = ptx_of(copy(asked), gpu);
        // Of four rows one; of four blocks each; and in what is left of them.
        EXPECT_EQ(count(ptx, "div[.]u32"), 1 + 4 + 2 + 1) << ptx;
        EXPECT_EQ(count(ptx, "div[.]u64"), 1) << ptx;
        EXPECT_EQ(count(ptx, "div[.]u32([^:d]|d[^i])*(ld[.]global([^:d]|d[^i])*){4}"), 1) << ptx;
        EXPECT_EQ(count(ptx, "(div[.]u32[^:]*ld[.]global[^:]*){4}"), 1) << ptx;
        expect_to_assemble(ptx, gpu);
        const std::string known =
            ptx_of(copy("%n = constant 7000 : i32\n%m = constant 5001 : i32"), gpu);
        EXPECT_EQ(count(known, "mul[.]hi[.]u32"), 1) << known;
        EXPECT_EQ(count(known, "ld[.]global"), 4) << known;  // nothing is left
        EXPECT_EQ(count(known, "mul[.]hi[.]u64|div[.]"), 0) << known;
        const std::string many =
            ptx_of(copy("%n = constant 2000000001 : i32\n%m = constant 5001 : i32"), gpu);
        EXPECT_GT(count(many, "mul[.]hi[.]u64"), 0) << many;
    }
}

// Who goes on to the next iteration is not there: the question stands at the atomic.
TEST(ptx, asks_at_the_atomic_where_some_have_gone_on) {
    const std::string text = std::string(kFields) + R"(func @k(%c : f32) {
  %zero = constant 0 : i32
  %end = constant 1000 : i32
  %many = constant 700 : i32
  for %i = %zero to %end parallel {
    %xp = field_place @x, %i : place<f32>
    %x = load %xp
    for %j = %zero to %many {
      %less = lt %i, %j
      if %less {
        continue
      } else {
        yield
      }
      %yp = field_place @y, %j : place<f32>
      %old = atomic_add %yp, %x
    }
  }
}
)";
    const std::string ptx = ptx_of(text, "sm_90");
    const size_t loop = ptx.find("$L__BB0_2:");
    ASSERT_NE(loop, std::string::npos) << ptx;
    EXPECT_EQ(count(ptx, "activemask"), 1) << ptx;
    EXPECT_GT(ptx.find("activemask"), loop) << ptx;
}

TEST(ptx, leaves_atomics_alone_where_threads_meet) {
    const std::string text = of_threads(R"(
    %sp = field_place @s : place<f32>
    %old = atomic_add %sp, %x
    block_sync
)");
    const std::string ptx = ptx_of(text, "sm_90");
    EXPECT_EQ(count(ptx, "finish0"), 0) << ptx;
    EXPECT_EQ(count(ptx, "(atom|red)[.][^;]*add[^;]*f32"), 2) << ptx;  // a subgroup's, or each's
}

TEST(ptx, asks_for_shared_memory_where_a_block_has_too_little) {
    // Arrays 0 (40,000 bytes) and 1 (12,000) in one task; 1 is of the other, too.
    const std::string both = R"(
    %ap = shared_place %t #10000 : place<f32>
    store %ap, %x
    %bp = shared_place %t #4294970296 : place<f32>
    store %bp, %x
    block_sync
    %v = load %ap
    %w = load %bp
    %z = add %v, %w
    store %xp, %z
)";
    const std::string second = R"(
  for %k = %zero to %end parallel block_dim=64 {
    %bt = thread_index #1 : i32
    %cp = shared_place %bt #4294970296 : place<f32>
    %yp = field_place @y, %k : place<f32>
    %y = load %yp
    store %cp, %y
    block_sync
    %u = load %cp
    store %yp, %u
  }
}
)";
    std::string text = of_threads(both);
    text.resize(text.size() - 2);
    text += second;
    pass::PipelineOptions options;
    options.target = codegen::target_of("sm_90", "");
    const pass::Plan plan = pass::run_pipeline(ir::parse(text), options);
    ASSERT_EQ(plan.tasks.size(), 2u);
    EXPECT_EQ(plan.tasks[0].shared_bytes, 52000u);
    EXPECT_EQ(plan.tasks[1].shared_bytes, 52000u);  // array 1 lies behind 0 in both
    const std::string ptx = ptx_of(text, "sm_90");
    EXPECT_EQ(count(ptx, "[.]extern [.]shared [.]align 16 [.]b8 qd_shared"), 1) << ptx;
    EXPECT_EQ(count(ptx, "[.]shared [.]align"), 1) << ptx;
    expect_to_assemble(ptx, "sm_90");
}

}  // namespace
}  // namespace qd
