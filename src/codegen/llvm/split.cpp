// Which functions of a plan are emitted together: parts of about the same size.
//
// Each part costs an LLVM module, about a millisecond with its declarations and its own copies of
// helper functions, so parts are large. A function is in one part: beside a function that is half
// of the plan there is one other part.

#include <algorithm>
#include <numeric>

#include "codegen/llvm/codegen.h"

namespace qd::codegen {

// In scalar instructions: six milliseconds or so.
constexpr uint32_t kPartSize = 2000, kMostParts = 8;

void split(Prepared& prepared, std::span<const uint32_t> sizes, std::span<const Call> calls) {
    const uint32_t all = prepared.scalar_instructions;
    const uint32_t largest = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
    if (all < 2 * kPartSize || largest == 0) return;
    const uint32_t parts =
        std::min({kMostParts, all / kPartSize, all / largest + (all % largest != 0)});
    if (parts < 2) return;

    // The largest function first, each to the part that has least.
    std::vector<uint32_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
    std::vector<uint64_t> load(parts);
    prepared.parts = parts;
    prepared.part_of.resize(sizes.size());
    for (const uint32_t f : order) {
        const auto least = std::ranges::min_element(load);
        *least += sizes[f];
        prepared.part_of[f] = uint32_t(least - load.begin());
    }
    prepared.shared.resize(sizes.size());
    for (const Call& c : calls)
        if (prepared.part_of[c.caller] != prepared.part_of[c.callee->id])
            prepared.shared[c.callee->id] = true;
}

}  // namespace qd::codegen
