// What is emitted in parts: which functions stand together, and what is made again after an edit.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "codegen/llvm/codegen.h"
#include "ir/ir.h"
#include "pass/pass.h"

namespace qd {
namespace {

constexpr int kFunctions = 12;  // each too large to be expanded

// A task that calls functions of 900 multiply-adds twice each; one adds another number.
std::string many(int edited, int functions = kFunctions) {
    std::string text;
    for (int f = 0; f < functions; ++f) {
        text += "func @f" + std::to_string(f) + "(%v0: f64) -> f64 {\n  %c = constant " +
                std::to_string(f == edited ? 100.5 : f + 0.25) + " : f64\n";
        int k = 0;
        for (int step = 0; step < 900; ++step, k += 2) {
            const std::string v = "%v" + std::to_string(k), w = "%v" + std::to_string(k + 1),
                              x = "%v" + std::to_string(k + 2);
            text += "  " + w + " = mul " + v + ", " + v + " : f64\n  " + x + " = add " + w +
                    ", %c : f64\n";
        }
        text += "  return %v" + std::to_string(k) + "\n}\n";
    }
    std::string task =
        "module \"many\"\nparam f64 offset=0 \"x\"\nresults f64\n"
        "func @task(%x: f64) {\n  %s0 = constant 0 : f64\n";
    for (int f = 0; f < functions; ++f) {
        const std::string n = std::to_string(f);
        task += "  %y" + n + " = call @f" + n + ", %x : f64\n  %z" + n + " = call @f" + n + ", %y" +
                n + " : f64\n  %s" + std::to_string(f + 1) + " = add %s" + n + ", %z" + n +
                " : f64\n";
    }
    return task + "  set_result %s" + std::to_string(functions) + "\n  return\n}\n" + text;
}

codegen::Prepared prepared(const std::string& text) {
    return codegen::prepare(pass::run_pipeline(ir::parse(text)));
}

// In memory, with counts.
struct Shelf {
    std::map<codegen::PartKey, std::vector<uint8_t>> parts;
    int found = 0, kept = 0;
    codegen::PartStore store{
        [this](const codegen::PartKey& key) -> std::optional<std::vector<uint8_t>> {
            const auto at = parts.find(key);
            if (at == parts.end()) return {};
            ++found;
            return at->second;
        },
        [this](const codegen::PartKey& key, std::span<const uint8_t> part) {
            ++kept;
            parts[key] = {part.begin(), part.end()};
        }};
};

codegen::Emitted emit(const std::string& text, int tier, Shelf& shelf) {
    shelf.found = shelf.kept = 0;
    codegen::Options options;
    options.tier = tier;
    options.store = &shelf.store;
    return codegen::emit(prepared(text), options);
}

TEST(parts, hold_neighbours_and_each_function_once) {
    const auto p = prepared(many(-1));
    ASSERT_GT(p.parts, 2u);
    EXPECT_LT(p.parts, p.functions.size());
    std::vector<uint32_t> of = p.part_of;
    ASSERT_EQ(of.size(), p.functions.size());
    EXPECT_TRUE(std::is_sorted(of.begin(), of.end()));
    EXPECT_EQ(std::set<uint32_t>(of.begin(), of.end()).size(), p.parts);
    std::set<std::string> symbols(p.symbols.begin(), p.symbols.end());
    EXPECT_EQ(symbols.size(), p.functions.size());
    EXPECT_EQ(prepared(many(-1, 4)).parts, 1u);
}

TEST(parts, are_made_once) {
    for (const int tier : {0, 1}) {
        Shelf shelf;
        const auto first = emit(many(-1), tier, shelf);
        const int parts = shelf.kept;
        EXPECT_EQ(size_t(parts), first.objects.size());
        EXPECT_GT(parts, 2);
        EXPECT_EQ(shelf.found, 0);
        const auto second = emit(many(-1), tier, shelf);
        EXPECT_EQ(shelf.found, parts);
        EXPECT_EQ(shelf.kept, 0);
        EXPECT_EQ(second.objects, first.objects);
        EXPECT_EQ(second.stack_bytes, first.stack_bytes);
        codegen::Options alone;
        alone.tier = tier;
        const auto without = codegen::emit(prepared(many(-1)), alone);
        EXPECT_EQ(without.objects, first.objects);
        EXPECT_EQ(without.stack_bytes, first.stack_bytes);
    }
}

TEST(parts, beside_an_edited_function_stay) {
    for (const int tier : {0, 1}) {
        for (const int edited : {0, 7, kFunctions - 1}) {
            Shelf shelf;
            const auto before = emit(many(-1), tier, shelf);
            const int parts = shelf.kept;
            const auto after = emit(many(edited), tier, shelf);
            EXPECT_EQ(shelf.kept, 1) << edited;
            EXPECT_EQ(shelf.found, parts - 1);
            EXPECT_NE(after.objects, before.objects);
            // A function more moves no part but its own and that of its caller.
            (void)emit(many(-1, kFunctions + 1), tier, shelf);
            EXPECT_LE(shelf.kept, 2);
            EXPECT_GE(shelf.found, parts - 2);
        }
    }
}

TEST(parts, are_of_one_tier_target_and_set_of_options) {
    Shelf shelf;
    const auto parts = emit(many(-1), 1, shelf).objects.size();
    (void)emit(many(-1), 0, shelf);
    EXPECT_EQ(shelf.found, 0);
    codegen::Options options;
    options.store = &shelf.store;
    for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) {
        options.cpu = cpu;
        shelf.found = 0;
        (void)codegen::emit(prepared(many(-1)), options);
        EXPECT_EQ(shelf.found, 0) << cpu;
    }
    shelf.found = shelf.kept = 0;
    auto module = ir::parse(many(-1));
    module->options.cache_loop_invariant_global_vars = false;
    options.cpu = "";
    (void)codegen::emit(codegen::prepare(pass::run_pipeline(std::move(module))), options);
    EXPECT_EQ(shelf.found, 0);
    EXPECT_EQ(size_t(shelf.kept), parts);
}

TEST(parts, that_are_cut_short_are_made_again) {
    Shelf shelf;
    const auto whole = emit(many(-1), 0, shelf);
    for (auto& [key, part] : shelf.parts) part.resize(part.size() / 2);
    EXPECT_EQ(emit(many(-1), 0, shelf).objects, whole.objects);
    EXPECT_EQ(size_t(shelf.kept), whole.objects.size());
}

// Loops over a large field, each of which calls two functions that are too large to be expanded; a
// function is called by three.
std::string tasks_of_gpu(int tasks) {
    std::string text = R"(module "tasks"
field @h "h" : f64 shape [9000] offset [0] terms [0 / 1 % 0 * 8] components [0] group 1
func @all() {
  %zero = constant 0 : i32
  %n = constant 9000 : i32
)";
    for (int t = 0; t < tasks; ++t) {
        const std::string n = std::to_string(t);
        text += "  for %i" + n + " = %zero to %n parallel {\n    %p" + n + " = field_place @h, %i" +
                n + " : place<f64>\n    %x" + n + " = load %p" + n + "\n    %y" + n + " = call @f" +
                std::to_string(t / 3) + ", %x" + n + " : f64\n    %z" + n + " = call @f" +
                std::to_string(tasks / 3 + t) + ", %y" + n + " : f64\n    store %p" + n + ", %z" +
                n + "\n  }\n";
    }
    const std::string functions = many(-1, tasks + tasks / 3);
    return text + "}\n" + functions.substr(functions.find("func @f0"));
}

TEST(parts, of_a_gpu_have_tasks_with_all_that_they_call) {
    constexpr int kTasks = 9;
    pass::PipelineOptions options;
    options.target = codegen::target_of("sm_90", "");
    const auto p = codegen::prepare(pass::run_pipeline(ir::parse(tasks_of_gpu(kTasks)), options));
    ASSERT_EQ(p.plan.tasks.size(), size_t(kTasks));
    ASSERT_EQ(p.parts, 8u);
    codegen::Options how;
    how.cpu = "sm_90";
    how.verify = true;
    const auto emitted = codegen::emit(p, how);
    ASSERT_EQ(emitted.objects.size(), 8u);
    std::vector<int> found(kTasks);
    for (const auto& object : emitted.objects) {
        const std::string text(object.begin(), object.end());
        EXPECT_EQ(text.find(".extern .func f"), std::string::npos) << "of another part";
        for (int t = 0; t < kTasks; ++t)
            found[size_t(t)] += text.find(".entry task" + std::to_string(t) + "(") != text.npos;
        EXPECT_LT(text.size(), size_t(400'000)) << "what nobody calls";
    }
    EXPECT_EQ(found, std::vector<int>(kTasks, 1));
    const auto again = codegen::emit(p, how);
    const auto without_numbers = [](const std::vector<uint8_t>& object) {  // of calls, in comments
        return std::regex_replace(std::string(object.begin(), object.end()),
                                  std::regex("callseq [0-9]+"), "");
    };
    for (size_t k = 0; k < emitted.objects.size(); ++k)
        EXPECT_TRUE(without_numbers(again.objects[k]) == without_numbers(emitted.objects[k])) << k;
    how.want = codegen::Options::Want::assembly;  // to be read: whole
    EXPECT_EQ(codegen::emit(p, how).objects.size(), 1u);
}

TEST(parts, of_a_gpu_are_one_where_there_is_little) {
    pass::PipelineOptions options;
    options.target = codegen::target_of("sm_90", "");
    const auto one = codegen::prepare(pass::run_pipeline(ir::parse(many(-1)), options));
    EXPECT_EQ(one.parts, 1u);  // a task cannot be divided
}

}  // namespace
}  // namespace qd
