// Which functions of a plan are emitted together: runs of neighbours of about the same size.
//
// Each part costs an LLVM module, a third of a millisecond with its declarations and its own copies
// of helper functions, so parts are not single functions. Where a part ends is decided by the names
// around, so that after an edit of one function the other parts are what they were. A function is
// in one part.

#include <algorithm>
#include <map>

#include "codegen/llvm/codegen.h"

namespace qd::codegen {
namespace {

// In scalar instructions: a part takes some three milliseconds of quick code. One ends beyond the
// least size at a name that is chosen for it, or else before the largest.
constexpr uint32_t kWorthSplitting = 4000, kLeastPart = 300, kLargestPart = 1000;
constexpr uint32_t kEndsAtOneOf = 4;
// Of a GPU's tasks: a part costs a process of the assembler's.
constexpr uint32_t kLeastTaskPart = 600, kMostTaskParts = 8;

uint32_t hash_of(const std::string& name) {  // FNV-1a: the same in each process
    uint32_t h = 2166136261u;
    for (const char c : name) h = (h ^ uint8_t(c)) * 16777619u;
    return h;
}

// Tasks of a GPU: some that are about as much work in each part, the largest first.
void split_tasks(Prepared& prepared, std::span<const uint32_t> sizes, std::span<const Call> calls) {
    std::vector<std::vector<uint32_t>> callees(sizes.size());
    for (const Call& c : calls) callees[c.caller].push_back(c.callee->id);
    struct Share {
        std::vector<bool> members;
        uint32_t load = 0;
    };
    const auto reach = [&](const auto& self, uint32_t f, Share& share) -> void {
        if (share.members[f]) return;
        share.members[f] = true;
        share.load += sizes[f];
        for (const uint32_t callee : callees[f]) self(self, callee, share);
    };
    std::vector<Share> tasks;
    uint64_t all = 0;
    for (const pass::Task& t : prepared.plan.tasks) {
        Share share{std::vector<bool>(sizes.size())};
        reach(reach, t.body->id, share);
        if (t.finish) reach(reach, t.finish->id, share);
        all += share.load;
        tasks.push_back(std::move(share));
    }
    const size_t wanted = std::min<uint64_t>({kMostTaskParts, all / kLeastTaskPart, tasks.size()});
    if (wanted < 2) return;
    std::ranges::stable_sort(tasks, std::ranges::greater{}, &Share::load);
    std::vector<Share> parts(wanted, {std::vector<bool>(sizes.size())});
    for (const Share& t : tasks) {
        Share& to = *std::ranges::min_element(parts, {}, &Share::load);
        to.load += t.load;
        for (size_t f = 0; f < sizes.size(); ++f)
            if (t.members[f]) to.members[f] = true;
    }
    prepared.parts = uint32_t(wanted);
    for (Share& p : parts) prepared.members.push_back(std::move(p.members));
}

void name_symbols(Prepared& prepared) {
    std::map<std::string, uint32_t> namesakes;
    for (const ir::Function* f : prepared.functions)
        prepared.symbols.push_back(f->name + "." + std::to_string(namesakes[f->name]++));
    prepared.shared.resize(prepared.functions.size());
}

}  // namespace

void split(Prepared& prepared, std::span<const uint32_t> sizes, std::span<const Call> calls) {
    if (prepared.plan.target.threads) {
        split_tasks(prepared, sizes, calls);
        if (prepared.parts > 1) name_symbols(prepared);
        return;
    }
    if (prepared.plan.scalar_instructions < kWorthSplitting) return;
    std::vector<uint32_t> part_of(sizes.size());
    uint32_t part = 0, load = 0;
    for (size_t f = 0; f < sizes.size(); ++f) {
        if (load > 0 && load + sizes[f] > kLargestPart) ++part, load = 0;
        part_of[f] = part;
        load += sizes[f];
        const bool may_end = hash_of(prepared.functions[f]->name) % kEndsAtOneOf == 0;
        if (load >= kLeastPart && may_end && f + 1 < sizes.size()) ++part, load = 0;
    }
    if (part == 0) return;
    prepared.parts = part + 1;
    prepared.part_of = std::move(part_of);
    name_symbols(prepared);
    for (const Call& c : calls)
        if (prepared.part_of[c.caller] != prepared.part_of[c.callee->id])
            prepared.shared[c.callee->id] = true;
}

}  // namespace qd::codegen
