// Where the shared arrays of a kernel lie.
//
// Arrays of a task that fit into what a launch has anyway are objects of the code, which overlap
// those of other tasks. If those of a task are too large together, they lie one behind the other in
// memory that its launch asks for; an array of a function that several tasks call lies at the same
// place in each of them.
//
// Cost: O(instructions + tasks x arrays).

#include <algorithm>
#include <map>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr uint32_t kGiven = 48 << 10;  // bytes that the launch of a block need not ask for
constexpr uint32_t kAlign = 16;

using Arrays = std::map<uint32_t, uint64_t>;  // bytes by number

Arrays arrays_of(const Function& f, std::unordered_map<const Function*, Arrays>& known) {
    if (const auto found = known.find(&f); found != known.end()) return found->second;
    known[&f] = {};  // one that calls itself
    Arrays all;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::call) all.merge(arrays_of(*i.callee(), known));
        if (i.op != Op::shared_place) return;
        const auto [number, count] = SharedArray::unpack(i.imm);
        const uint64_t bytes = uint64_t(count) * uint64_t(i.result()->type.value().size_bytes());
        all[number] = (bytes + kAlign - 1) / kAlign * kAlign;
    });
    return known[&f] = all;
}

}  // namespace

void lay_out_shared(Plan& plan) {
    std::unordered_map<const Function*, Arrays> known;
    std::vector<Arrays> arrays;
    for (const Task& t : plan.tasks) arrays.push_back(arrays_of(*t.body, known));
    const auto bytes_of = [](const Arrays& all) {
        uint64_t bytes = 0;
        for (const auto& [number, size] : all) bytes += size;
        return bytes;
    };
    for (const Arrays& all : arrays)
        if (bytes_of(all) > kGiven)
            for (const auto& [number, bytes] : all) plan.shared_places[number] = 0;
    if (plan.shared_places.empty()) return;
    std::unordered_map<uint32_t, uint64_t> ends;  // of placed arrays, by number
    for (size_t k = 0; k < arrays.size(); ++k) {
        uint64_t end = 0;
        for (const auto& [number, bytes] : arrays[k])
            if (ends.contains(number)) end = std::max(end, ends[number]);
        for (const auto& [number, bytes] : arrays[k]) {
            if (!plan.shared_places.contains(number) || ends.contains(number)) continue;
            plan.shared_places[number] = uint32_t(end);
            ends[number] = end += bytes;
        }
        if (end > INT32_MAX)
            throw support::Error("the shared arrays of a task have " + std::to_string(end) +
                                 " bytes; no device has that much");
        plan.tasks[k].shared_bytes = uint32_t(end);
    }
}

}  // namespace qd::pass
