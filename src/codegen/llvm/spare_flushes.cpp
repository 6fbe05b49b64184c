// Flushes of operands of min and max that the lowering could not know to be needless: those of
// accumulators, whose value comes round a loop or out of a local variable that only holds results
// of arithmetic, minima and maxima. Such a flush would lengthen the chain that the loop waits for.

#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include "codegen/llvm/lower.h"

namespace qd::codegen {
namespace {

constexpr size_t kMostAsked = 256;  // values for one flush: what is left is not worth a search

// Whether a value is never subnormal, by all that it can come from. What is being asked already is
// taken to hold: a loop adds no other source.
struct Question {
    const llvm::DenseSet<const llvm::Value*>& minima;
    llvm::SmallPtrSet<const llvm::Value*, 32> asked;

    bool holds(const llvm::Value* v) {
        if (!asked.insert(v).second) return true;
        if (asked.size() > kMostAsked) return false;
        if (const auto* c = llvm::dyn_cast<llvm::ConstantFP>(v))
            return !c->getValueAPF().isDenormal();
        if (llvm::isa<llvm::BinaryOperator>(v) || minima.contains(v)) return true;
        if (const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(v))
            return call->getIntrinsicID() == llvm::Intrinsic::canonicalize;
        if (const auto* phi = llvm::dyn_cast<llvm::PHINode>(v))
            return llvm::all_of(phi->incoming_values(),
                                [&](const llvm::Use& u) { return holds(u.get()); });
        const auto* load = llvm::dyn_cast<llvm::LoadInst>(v);
        if (!load) return false;
        const llvm::Value* memory = load->getPointerOperand();
        while (const auto* part = llvm::dyn_cast<llvm::GetElementPtrInst>(memory))
            memory = part->getPointerOperand();
        return llvm::isa<llvm::AllocaInst>(memory) && holds_in(memory);
    }

    // Whether all that is stored there is never subnormal, and nobody else has the address.
    bool holds_in(const llvm::Value* memory) {
        if (!asked.insert(memory).second) return true;
        return llvm::all_of(memory->users(), [&](const llvm::User* u) {
            if (llvm::isa<llvm::LoadInst>(u)) return true;
            if (llvm::isa<llvm::GetElementPtrInst>(u)) return holds_in(u);
            const auto* store = llvm::dyn_cast<llvm::StoreInst>(u);
            return store && store->getPointerOperand() == memory && holds(store->getValueOperand());
        });
    }
};

}  // namespace

void ModuleLowering::remove_spare_flushes() {
    for (llvm::CallInst* flush : flushes) {
        llvm::Value* operand = flush->getArgOperand(0);
        if (!llvm::isa<llvm::PHINode, llvm::LoadInst>(operand)) continue;
        if (!Question{minima, {}}.holds(operand)) continue;
        flush->replaceAllUsesWith(operand);
        flush->eraseFromParent();
    }
    flushes.clear();
}

}  // namespace qd::codegen
