// Random kernels: what the interpreter computes before the passes it computes after them, bit for
// bit (NaN payloads aside), however the iteration space is cut.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "launch.h"
#include "random_program.h"

namespace qd::test {
namespace {

void fill(Machine& machine, const ir::Module& m, uint32_t seed) {
    std::mt19937 random(seed);
    machine.set_arg<int32_t>(m, 0, static_cast<int32_t>(random() % 20) - 5);
    machine.set_arg<float>(m, 1, static_cast<float>(random() % 100) / 8 - 4);
    auto* x = reinterpret_cast<float*>(machine.set_array(m, 2, {16}));
    for (int k = 0; k < 16; ++k) x[k] = static_cast<float>(random() % 1000) / 16;
    // No subnormals: where all values of a reduction are NaN, one that lies in memory stays, and a
    // maximum would flush it.
    for (size_t n = 0; n < machine.bindings.size(); ++n) {
        const bool floats = m.fields[n]->elem.prim == type::Prim::f32;
        for (int k = 0; k < 64; ++k) {
            const auto x = static_cast<int32_t>(random() % 7);
            if (floats)
                static_cast<float*>(machine.bindings[n])[k] = static_cast<float>(x) / 2;
            else
                static_cast<int32_t*>(machine.bindings[n])[k] = x;
        }
    }
}

// 32-bit words, NaNs made equal where the memory holds floats.
std::vector<uint64_t> state(const Machine& machine) {
    std::vector<uint64_t> words;
    for (const auto& buffer : machine.buffers) {
        for (const uint64_t w : buffer) {
            for (uint32_t half : {static_cast<uint32_t>(w), static_cast<uint32_t>(w >> 32)}) {
                words.push_back((half & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : half);
            }
        }
    }
    for (size_t k = 0; k + 4 <= machine.results.size(); k += 4) {
        uint32_t w;
        std::memcpy(&w, machine.results.data() + k, 4);
        words.push_back((w & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : w);
    }
    return words;
}

TEST(RandomIr, PassesKeepTheMeaning) {
    const char* count_text = std::getenv("QD_RANDOM_PROGRAMS");
    const uint32_t count = count_text ? static_cast<uint32_t>(std::atoi(count_text)) : 300;
    const char* first_text = std::getenv("QD_RANDOM_FIRST");
    const uint32_t first = first_text ? static_cast<uint32_t>(std::atoi(first_text)) : 1;
    for (uint32_t seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        RandomProgram program(seed);
        program.float_sums = seed % 2;
        program.groups = seed % 4 < 2;
        auto m = program.make();
        try {
            ir::verify(*m);
            Machine before(*m);
            fill(before, *m, seed);
            const bool finished = before.run(*m);
            const std::vector<uint8_t> bytes = ir::serialise(*m);
            auto again = ir::deserialise(bytes);
            ASSERT_EQ(ir::serialise(*again), bytes);
            if (program.float_sums) again->options.disable_pass = "reduce";
            pass::PipelineOptions together;
            together.target.runs_together = seed % 8 < 4;
            pass::Plan plan = pass::run_pipeline(std::move(again), together);
            ir::verify(*plan.module);
            for (const int64_t tile : {0, 2}) {
                Machine after(*m);
                fill(after, *m, seed);
                after.tile = tile;
                ASSERT_EQ(after.run(plan), finished);
                ASSERT_EQ(state(after), state(before)) << ir::print(*m) << ir::print(*plan.module);
                ASSERT_EQ(after.printed, before.printed);
            }
            // Whatever is switched.
            std::minstd_rand switches(seed);
            auto other = ir::deserialise(bytes);
            ir::ModuleOptions& o = other->options;
            for (bool* flag :
                 {&o.advanced_optimization, &o.cfg_optimization, &o.constant_folding, &o.flatten_if,
                  &o.move_loop_invariant_outside_if, &o.make_thread_local})
                *flag = switches() % 2;
            o.opt_level = switches() % 2;
            if (program.float_sums) o.disable_pass = "reduce";
            const pass::Plan other_plan = pass::run_pipeline(std::move(other));
            ir::verify(*other_plan.module);
            Machine switched(*m);
            fill(switched, *m, seed);
            ASSERT_EQ(switched.run(other_plan), finished);
            ASSERT_EQ(state(switched), state(before))
                << ir::print(*m) << ir::print(*other_plan.module);
            // For a target that has compare and swap alone.
            auto poor = ir::deserialise(bytes);
            if (program.float_sums) poor->options.disable_pass = "reduce";
            const pass::Plan poor_plan = pass::run_pipeline(
                std::move(poor), {.target = {.atomics = 0, .lone = seed % 2 != 0}});
            Machine swapping(*m);
            fill(swapping, *m, seed);
            ASSERT_EQ(swapping.run(poor_plan), finished);
            ASSERT_EQ(state(swapping), state(before)) << ir::print(*m);
            // For a target whose threads have an iteration each.
            auto split = ir::deserialise(bytes);
            if (program.float_sums) split->options.disable_pass = "reduce";
            const pass::Plan split_plan =
                pass::run_pipeline(std::move(split), {.target = {.threads = true, .lone = false}});
            Machine by_threads(*m);
            fill(by_threads, *m, seed);
            ASSERT_EQ(by_threads.run(split_plan), finished);
            ASSERT_EQ(state(by_threads), state(before)) << ir::print(*split_plan.module);
            // Under debug every pass is verified, and all indices pass their checks.
            auto checked = ir::deserialise(bytes);
            checked->options.debug = true;
            if (program.float_sums) checked->options.disable_pass = "reduce";
            const pass::Plan checked_plan = pass::run_pipeline(std::move(checked));
            Machine under_checks(*m);
            fill(under_checks, *m, seed);
            ASSERT_EQ(under_checks.run(checked_plan), finished);
            ASSERT_EQ(state(under_checks), state(before)) << ir::print(*checked_plan.module);
            // Under fast_math values may differ, but what comes out is well formed.
            auto fast = ir::deserialise(bytes);
            fast->options.fast_math = true;
            ir::verify(*pass::run_pipeline(std::move(fast)).module);
        } catch (const std::exception& e) {
            FAIL() << e.what() << "\n" << ir::print(*m);
        }
    }
}

}  // namespace
}  // namespace qd::test
