// Which array arguments a kernel writes to: those must not be read-only.
//
// Array handles are parameters of functions: a store's handle is one, and so is what a call passes.
// Gradients are arrays of their own, which the launcher makes or checks.
//
// Cost: one walk over the module, then O(array arguments of calls).

#include <unordered_map>
#include <unordered_set>

#include "frontend/facts/facts.h"

namespace qd::frontend {
namespace {

bool stores(const ir::Inst& i) {
    return i.effect() == ir::Effect::write ||
           (i.effect() == ir::Effect::atomic && i.op != ir::Op::volatile_load);
}

}  // namespace

void note_written_arrays(LoweredKernel& kernel) {
    std::unordered_set<const ir::Value*> written;
    std::unordered_multimap<const ir::Value*, const ir::Value*> passed;  // callee's: caller's
    for (const ir::Function* f : kernel.module->functions)
        ir::walk(*f->body, [&](ir::Inst& i) {
            if (stores(i)) {
                const ir::Inst* d = ir::root_of_place(i.operand(0))->def;
                if (d && d->op == ir::Op::array_place && !ir::ArrayAccess::unpack(d->imm).grad)
                    written.insert(d->operand(0));
            }
            if (i.op != ir::Op::call) return;
            for (int k = 0; k < i.operand_count; ++k)
                if (i.operand(k)->type.is_array())
                    passed.emplace(i.callee()->body->params[static_cast<uint32_t>(k)],
                                   i.operand(k));
        });
    std::vector<const ir::Value*> todo(written.begin(), written.end());
    while (!todo.empty()) {
        const auto [begin, end] = passed.equal_range(todo.back());
        todo.pop_back();
        for (auto at = begin; at != end; ++at)
            if (written.insert(at->second).second) todo.push_back(at->second);
    }
    const ir::Region::Params& params = kernel.module->kernel().body->params;
    for (uint32_t k = 0; k < params.size(); ++k)
        kernel.params[k].written = written.contains(params[k]);
}

}  // namespace qd::frontend
