// How much there is to emit: decides which functions are emitted together, and when optimised code
// is worth its time. Counted before the last passes write out what the target lacks, so that a
// program's size is the same on each. O(instructions).

#include <algorithm>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Count {
    Plan& plan;
    uint32_t size = 0;

    void region(const Region& r) {
        for (const Inst& i : r) {
            uint32_t components = 1;
            for (const Value& v : i.result_values())
                if (v.type.is_value()) components = std::max(components, uint32_t(v.type.count()));
            size += components;
            plan.floats_of_bits |= i.op == Op::bit_cast && type::is_float(i.results[0].type.prim) &&
                                   !type::is_float(i.operand(0)->type.prim);
            bool innermost = i.is_loop();
            for (const Region* c : i.region_list()) {
                const uint32_t loops = plan.innermost_loops;
                region(*c);
                innermost = innermost && plan.innermost_loops == loops;
            }
            plan.innermost_loops += innermost;
        }
    }
};

}  // namespace

void measure(Plan& plan) {
    for (const Function* f : plan.module->functions) {
        Count c{plan};
        c.region(*f->body);
        plan.sizes[f] = c.size;
        plan.scalar_instructions += c.size;
    }
}

}  // namespace qd::pass
