// How much stack a plan's tasks take.

#include <algorithm>

#include "codegen/llvm/codegen.h"

namespace qd::codegen {

bool is_recursive(const Prepared& prepared) {
    bool found = false;
    for (ir::Function* f : prepared.functions)  // callees come first
        ir::walk(*f->body,
                 [&](ir::Inst& i) { found |= i.op == ir::Op::call && i.callee()->id >= f->id; });
    return found;
}

uint64_t deepest_stack(const Prepared& prepared, std::span<const uint64_t> frames) {
    std::vector<uint64_t> needs(frames.size());  // of a function and what it calls
    uint64_t all = 0, deepest = 0;
    for (ir::Function* f : prepared.functions) {  // callees come first
        uint64_t below = 0;
        ir::walk(*f->body, [&](ir::Inst& i) {
            if (i.op != ir::Op::call) return;
            below = std::max(below, needs[i.callee()->id]);
        });
        needs[f->id] = frames[f->id] + below;
        deepest = std::max(deepest, needs[f->id]);
        all += frames[f->id];
    }
    return is_recursive(prepared) ? all : deepest;
}

}  // namespace qd::codegen
