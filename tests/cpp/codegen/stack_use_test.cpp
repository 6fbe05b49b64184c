// How much stack code says it takes, and that large tensors do not make large code.

#include <gtest/gtest.h>

#include "codegen/llvm/codegen.h"
#include "ir/ir.h"
#include "pass/pass.h"
#include "support/error.h"

namespace qd {
namespace {

// Four functions of one task: the last two call each other where `recursive`.
std::string calls(bool recursive) {
    return std::string(R"(module "calls"
results i32
func @task() {
  %n = constant 3 : i32
  %a = call @left, %n : i32
  %b = call @right, %a : i32
  set_result %b
  return
}
func @left(%n: i32) -> i32 {
  return %n
}
func @right(%n: i32) -> i32 {
  %m = call @low, %n : i32
  return %m
}
func @low(%n: i32) -> i32 {
)") + (recursive ? "  %m = call @right, %n : i32\n  return %m\n}\n" : "  return %n\n}\n");
}

codegen::Prepared prepared(const std::string& text) {
    auto module = ir::parse(text);
    ir::verify(*module);
    for (ir::Function* f : module->functions) f->never_inline = true;
    return codegen::prepare(pass::run_pipeline(std::move(module), {}));
}

std::vector<uint64_t> frames(const codegen::Prepared& p) {
    std::vector<uint64_t> out(p.functions.size());
    for (const ir::Function* f : p.functions)
        out[f->id] = f->name == "left"    ? 1000
                     : f->name == "right" ? 600
                     : f->name == "low"   ? 50
                                          : 7;
    return out;
}

TEST(stack_use, of_the_deepest_chain_of_calls) {
    const auto p = prepared(calls(false));
    ASSERT_EQ(p.functions.size(), 4u);
    EXPECT_EQ(codegen::deepest_stack(p, frames(p)), 1007u);
    auto deep = frames(p);
    for (const ir::Function* f : p.functions)
        if (f->name == "low") deep[f->id] = 500;
    EXPECT_EQ(codegen::deepest_stack(p, deep), 1107u);
}

TEST(stack_use, of_functions_that_call_each_other) {
    const auto p = prepared(calls(true));
    ASSERT_EQ(p.functions.size(), 4u);
    EXPECT_EQ(codegen::deepest_stack(p, frames(p)), 1657u);
}

// A local vector of n elements is cleared, changed at run time and read.
std::string local(int n) {
    const std::string type = "vec<i64, " + std::to_string(n) + ">";
    return "module \"local\"\nparam i32 offset=0 \"at\"\nresults i64\nfunc @task(%at: i32) {\n"
           "  %zero = constant 0 : i64\n  %all = splat %zero : " +
           type +
           "\n"
           "  %v = slot : place<" +
           type +
           ">\n  store %v, %all\n"
           "  %p = comp_place %v, %at : place<i64>\n  %x = cast %at : i64\n  store %p, %x\n"
           "  %first = constant 5 : i32\n  %q = comp_place %v, %first : place<i64>\n"
           "  %y = load %q : i64\n  set_result %y\n  return\n}\n";
}

TEST(stack_use, grows_with_a_local_and_code_does_not) {
    for (const int tier : {0, 1}) {
        codegen::Options options;
        options.tier = tier;
        const auto small = codegen::emit(prepared(local(100)), options);
        const auto large = codegen::emit(prepared(local(50'000)), options);
        EXPECT_EQ(small.stack_bytes, 0u);
        EXPECT_GE(large.stack_bytes, 399'000u);
        EXPECT_LT(large.stack_bytes, 410'000u);
        EXPECT_LT(large.objects.at(0).size(), small.objects.at(0).size() + 200);
    }
}

// `depth` functions, each with a local vector of 3,200 bytes, call one another in a chain.
std::string chain(int depth) {
    std::string text = "module \"chain\"\nparam i32 offset=0 \"at\"\nresults i64\n";
    for (int d = 0; d < depth; ++d) {
        const std::string at = std::to_string(d), next = std::to_string(d + 1);
        text += (d ? "func @f" + at + "(%at: i32) -> i64 {\n" : "func @task(%at: i32) {\n") +
                "  %zero = constant 0 : i64\n  %all = splat %zero : vec<i64, 400>\n"
                "  %v = slot : place<vec<i64, 400>>\n  store %v, %all\n"
                "  %p = comp_place %v, %at : place<i64>\n  %x = cast %at : i64\n  store %p, %x\n";
        if (d + 1 < depth)
            text += "  %below = call @f" + next + ", %at : i64\n";
        else
            text += "  %below = constant 1 : i64\n";
        text +=
            "  %five = constant 5 : i32\n  %q = comp_place %v, %five : place<i64>\n"
            "  %y = load %q : i64\n  %z = add %y, %below : i64\n";
        text += d ? "  return %z\n}\n" : "  set_result %z\n  return\n}\n";
    }
    return text;
}

TEST(stack_use, of_many_small_frames) {
    for (const int tier : {0, 1}) {
        codegen::Options options;
        options.tier = tier;
        EXPECT_EQ(codegen::emit(prepared(chain(1)), options).stack_bytes, 0u);
        const auto deep = codegen::emit(prepared(chain(40)), options);
        EXPECT_GE(deep.stack_bytes, 40 * 3200u);
        EXPECT_LT(deep.stack_bytes, 40 * 3800u);
    }
}

TEST(stack_use, what_is_the_same_all_over_needs_no_temporary) {
    const std::string text = R"(module "several"
param array<vec<i32, 50>, 1> offset=0 "a"
func @task(%a: array<vec<i32, 50>, 1>) {
  %two = constant 2 : i32
  %v = splat %two : vec<i32, 50>
  %zero = constant 0 : i32
  %ten = constant 10 : i32
  for %i = %zero to %ten parallel {
    %p = array_place %a, %i : place<vec<i32, 50>>
    store %p, %v
    continue
  }
  for %i = %zero to %ten parallel {
    %p = array_place %a, %i : place<vec<i32, 50>>
    %w = load %p : vec<i32, 50>
    %x = add %w, %v : vec<i32, 50>
    store %p, %x
    continue
  }
  return
}
)";
    const auto p = prepared(text);
    EXPECT_EQ(p.plan.tasks.size(), 2u);
    EXPECT_EQ(p.plan.temps_bytes, 0u);
}

}  // namespace
}  // namespace qd
