// What is emitted in parts: which functions stand together, and what is made again after an edit.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
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

}  // namespace
}  // namespace qd
