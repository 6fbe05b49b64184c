// What only some lanes need, left out where none does.
//
// The vectoriser makes both sides of a branch straight code and selects by lane. A side that is
// long and rarely wanted (the reduction of huge angles is three times the rest of a sine) then
// costs every turn. Here
//
//   %a = ..., %b = ...; %r = select <16 x i1> %wanted, %b, %usual
//
// becomes, if only selects by %wanted use that side, a branch around it (Shin, Hall and Chame,
// "Superword-level parallelism in the presence of control flow", 2005)
//
//   if any lane of %wanted { %a = ..., %b = ... }
//   %r = select <16 x i1> %wanted, phi [%b, poison], %usual
//
// Cost: O(instructions) for each condition with a side as long as kWorthABranch.

#include "codegen/llvm/skip_lanes.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

namespace qd::codegen {
namespace {

constexpr size_t kWorthABranch = 32;  // instructions

using Selects = llvm::SmallVector<llvm::SelectInst*, 4>;

llvm::MapVector<llvm::Value*, Selects> by_condition(llvm::BasicBlock& block) {
    llvm::MapVector<llvm::Value*, Selects> out;
    for (llvm::Instruction& i : block)
        if (auto* select = llvm::dyn_cast<llvm::SelectInst>(&i))
            if (llvm::isa<llvm::FixedVectorType>(select->getCondition()->getType()))
                out[select->getCondition()].push_back(select);
    return out;
}

bool may_move(const llvm::Instruction& i) {
    return !llvm::isa<llvm::PHINode>(i) && !i.isTerminator() && !i.mayReadOrWriteMemory() &&
           !i.mayHaveSideEffects();
}

// What is in front of the first select and of no use but as operand `side` (1: chosen where the
// condition holds, 2: where not) of these selects; last first.
llvm::SmallVector<llvm::Instruction*> only_for(const Selects& selects, unsigned side) {
    llvm::DenseSet<const llvm::Value*> members;
    llvm::SmallVector<llvm::Instruction*> out;
    const auto wanted_elsewhere = [&](const llvm::Use& u) {
        if (members.contains(u.getUser())) return false;
        return u.getOperandNo() != side || !llvm::is_contained(selects, u.getUser());
    };
    llvm::BasicBlock& block = *selects[0]->getParent();
    for (auto at = selects[0]->getReverseIterator(); at != block.rend(); ++at) {
        if (!may_move(*at) || at->use_empty() || llvm::any_of(at->uses(), wanted_elsewhere))
            continue;
        members.insert(&*at);
        out.push_back(&*at);
    }
    return out;
}

bool skip(const Selects& selects, unsigned side) {
    const auto members = only_for(selects, side);
    if (members.size() < kWorthABranch) return false;
    llvm::Instruction* first = selects[0];
    llvm::IRBuilder<> b(first);
    llvm::Value* lanes = b.CreateFreeze(first->getOperand(0));
    llvm::Value* wanted =
        side == 1 ? b.CreateOrReduce(lanes) : b.CreateNot(b.CreateAndReduce(lanes));
    llvm::BasicBlock* before = first->getParent();
    llvm::Instruction* end = llvm::SplitBlockAndInsertIfThen(
        wanted, first->getIterator(), /*Unreachable=*/false,
        llvm::MDBuilder(first->getContext()).createUnlikelyBranchWeights());
    for (llvm::Instruction* i : llvm::reverse(members)) i->moveBefore(end->getIterator());
    llvm::BasicBlock* after = first->getParent();
    for (llvm::SelectInst* select : selects) {
        auto* value = llvm::dyn_cast<llvm::Instruction>(select->getOperand(side));
        if (!value || value->getParent() != end->getParent()) continue;
        auto* phi = llvm::PHINode::Create(value->getType(), 2, "", after->begin());
        phi->addIncoming(value, end->getParent());
        phi->addIncoming(llvm::PoisonValue::get(value->getType()), before);
        select->setOperand(side, phi);
    }
    return true;
}

// Whether the block was split.
bool skip_in(llvm::BasicBlock& block) {
    for (const auto& [condition, selects] : by_condition(block))
        for (const unsigned side : {1u, 2u})
            if (skip(selects, side)) return true;
    return false;
}

}  // namespace

void skip_unwanted_lanes(llvm::Function& f) {
    llvm::SmallVector<llvm::BasicBlock*> blocks;
    for (llvm::BasicBlock& block : f) blocks.push_back(&block);
    for (size_t k = 0; k < blocks.size(); ++k)
        while (skip_in(*blocks[k]))  // conditions behind the split are in a block of their own
            blocks.push_back(blocks[k]->getTerminator()->getSuccessor(1));
}

}  // namespace qd::codegen
