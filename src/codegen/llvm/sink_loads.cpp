// Loads of what a launch fixes, moved from a function's entry towards their uses.
//
// Lowering puts these loads (base addresses, extents, arguments) at the entry, where the loop
// passes want them. A function that reads more of them than there are registers would store each to
// its stack at once and reload it at every use: loading it there in the first place saves the
// stores, and all of the work on paths that use none. Nothing is loaded inside a loop that was not
// before.

#include "codegen/llvm/sink_loads.h"

#include <llvm/ADT/MapVector.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Instructions.h>

namespace qd::codegen {
namespace {

constexpr size_t kFew = 10;  // stay in registers

// A load and, for an extent, its extension to 64 bits.
struct Candidate {
    llvm::LoadInst* load;
    llvm::Instruction* value;
};

std::vector<Candidate> candidates_of(llvm::BasicBlock& entry) {
    std::vector<Candidate> out;
    for (llvm::Instruction& i : entry) {
        auto* load = llvm::dyn_cast<llvm::LoadInst>(&i);
        if (!load || !load->hasMetadata(llvm::LLVMContext::MD_invariant_load)) continue;
        llvm::Instruction* value = load;
        if (load->hasOneUse())
            if (auto* cast = llvm::dyn_cast<llvm::ZExtInst>(*load->user_begin())) value = cast;
        const bool feeds_entry = llvm::any_of(value->users(), [&](const llvm::User* u) {
            return llvm::cast<llvm::Instruction>(u)->getParent() == &entry;
        });
        if (!feeds_entry) out.push_back({load, value});
    }
    return out;
}

// Where a use's value may be made: its block, or in front of the outermost loop around it.
llvm::BasicBlock* place_for(const llvm::Use& use, const llvm::LoopInfo& loops) {
    auto* user = llvm::cast<llvm::Instruction>(use.getUser());
    auto* phi = llvm::dyn_cast<llvm::PHINode>(user);
    llvm::BasicBlock* block = phi ? phi->getIncomingBlock(use) : user->getParent();
    if (const llvm::Loop* loop = loops.getLoopFor(block))
        return loop->getOutermostLoop()->getLoopPreheader();
    return block;
}

void sink(const Candidate& c, llvm::BasicBlock& entry, const llvm::LoopInfo& loops) {
    llvm::MapVector<llvm::BasicBlock*, std::vector<llvm::Use*>> places;
    for (llvm::Use& use : c.value->uses()) {
        llvm::BasicBlock* place = place_for(use, loops);
        if (!place || place == &entry) return;
        places[place].push_back(&use);
    }
    for (auto& [place, uses] : places) {
        llvm::Instruction* at = place->getTerminator();  // or the first user in the block
        for (const llvm::Use* use : uses) {
            auto* user = llvm::cast<llvm::Instruction>(use->getUser());
            if (user->getParent() == place && !llvm::isa<llvm::PHINode>(user) &&
                user->comesBefore(at))
                at = user;
        }
        llvm::Instruction* made = c.load->clone();
        made->insertBefore(at->getIterator());
        if (c.value != c.load) {
            llvm::Instruction* cast = c.value->clone();
            cast->setOperand(0, made);
            cast->insertBefore(at->getIterator());
            made = cast;
        }
        for (llvm::Use* use : uses) use->set(made);
    }
    c.value->eraseFromParent();
    if (c.value != c.load) c.load->eraseFromParent();
}

}  // namespace

void sink_entry_loads(llvm::Function& f) {
    llvm::BasicBlock& entry = f.getEntryBlock();
    const std::vector<Candidate> candidates = candidates_of(entry);
    if (candidates.size() <= kFew) return;
    const llvm::DominatorTree dominators(f);
    const llvm::LoopInfo loops(dominators);
    for (const Candidate& c : candidates) sink(c, entry, loops);
}

}  // namespace qd::codegen
