// Arithmetic on groups of components, as they lie in memory.
//
// A loop over vectors of three, x[i] += v, reads and writes interleaved components. The vectoriser
// takes them apart, adds, and puts them together again:
//
//   %whole = load <24 x float>; %x0 = shuffle %whole <0, 3, 6, ...>; %x1 = ...; %x2 = ...
//   %y0 = fadd %x0, %v0; %y1 = fadd %x1, %v1; %y2 = fadd %x2, %v2
//   store (interleave %y0, %y1, %y2)
//
// The same lanes are added if only what is added is put together:
//
//   store (fadd %whole, (interleave %v0, %v1, %v2))
//
// and nothing need be where all operands were taken apart alike, or are the same in all lanes. What
// is stored is looked at as a list of lanes, and each operation of all its lanes as one. It is
// rewritten if no more has to be interleaved than before, and something is used as it was loaded.
//
// Needs: the vectoriser's shuffles. Keeps: every bit. Cost: O(lanes of what is stored x kDeepest).

#include "codegen/llvm/whole_groups.h"

#include <optional>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Transforms/Utils/Local.h>

namespace qd::codegen {
namespace {

constexpr unsigned kDeepest = 6, kMostLanes = 64, kMostParts = 8;

struct Lane {
    llvm::Value* of = nullptr;
    unsigned number = 0;

    bool operator==(const Lane&) const = default;
};
using Lanes = llvm::SmallVector<Lane, 32>;
using Parts = llvm::SmallVector<llvm::Value*, 4>;

unsigned count_of(const llvm::Value* v) {
    return llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements();
}

// Where a lane comes from; null: it is poison.
Lane origin(Lane at) {
    while (auto* shuffle = llvm::dyn_cast<llvm::ShuffleVectorInst>(at.of)) {
        const int from = shuffle->getMaskValue(at.number);
        if (from < 0) return {};
        const unsigned first = count_of(shuffle->getOperand(0));
        const bool second = unsigned(from) >= first;
        at = {shuffle->getOperand(second), unsigned(from) - (second ? first : 0)};
    }
    return at;
}

// LLVM also moves an operation in front of each shuffle of its operands.
bool same(const llvm::Value* x, const llvm::Value* y) {
    if (x == y) return true;
    const auto *a = llvm::dyn_cast<llvm::Instruction>(x), *b = llvm::dyn_cast<llvm::Instruction>(y);
    return a && b && !a->mayReadOrWriteMemory() && a->isIdenticalTo(b);
}

// How a vector of certain lanes can be had.
struct Plan {
    enum class Kind { whole, splat, constant, operation, interleaved } kind;
    Parts parts = {};  // what it is, or is made of
    std::vector<Plan> operands = {};
    unsigned interleaves = 0, wholes = 0;
};

llvm::Intrinsic::ID intrinsic(const llvm::Instruction& i) {
    const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
    return call ? call->getIntrinsicID() : llvm::Intrinsic::not_intrinsic;
}

bool works_by_lane(const llvm::Instruction& i) {
    if (llvm::isa<llvm::BinaryOperator>(i) || llvm::isa<llvm::UnaryOperator>(i)) return true;
    return intrinsic(i) == llvm::Intrinsic::fma || intrinsic(i) == llvm::Intrinsic::sqrt;
}

unsigned operand_count(const llvm::Instruction& i) {
    const auto* call = llvm::dyn_cast<llvm::CallBase>(&i);
    return call ? call->arg_size() : i.getNumOperands();
}

// Values whose lanes follow each other in turns, or nothing.
Parts interleaved(const Lanes& lanes) {
    Parts parts;
    while (parts.size() < lanes.size() && lanes[parts.size()].number == 0)
        parts.push_back(lanes[parts.size()].of);
    const auto n = unsigned(parts.size());
    if (n < 2 || n > kMostParts || lanes.size() % n) return {};
    for (unsigned k = 0; k < lanes.size(); ++k)
        if (lanes[k] != Lane{parts[k % n], k / n} || count_of(parts[k % n]) != lanes.size() / n)
            return {};
    return parts;
}

// `operands`: the same lanes, if they are operands of one operation; they may come from wherever.
// Nothing: it cannot be had.
std::optional<Plan> plan(const Lanes& lanes, const Parts& operands, unsigned depth) {
    if (llvm::any_of(lanes, [](const Lane& l) { return !l.of; })) return {};
    if (llvm::all_of(lanes, [](const Lane& l) { return llvm::isa<llvm::Constant>(l.of); })) {
        Plan all{Plan::Kind::constant};
        for (const Lane& l : lanes) {
            auto* element = llvm::cast<llvm::Constant>(l.of)->getAggregateElement(l.number);
            if (!element) return {};
            all.parts.push_back(element);
        }
        return all;
    }
    if (llvm::all_equal(lanes)) {
        auto* insert = llvm::dyn_cast<llvm::InsertElementInst>(lanes[0].of);
        auto* at = insert ? llvm::dyn_cast<llvm::ConstantInt>(insert->getOperand(2)) : nullptr;
        if (at && at->equalsInt(lanes[0].number)) return Plan{Plan::Kind::splat, {insert}};
    }
    if (count_of(lanes[0].of) == lanes.size()) {
        bool in_order = true;
        for (unsigned k = 0; k < lanes.size(); ++k)
            in_order &= lanes[k].number == k && same(lanes[0].of, lanes[k].of);
        if (in_order) return Plan{Plan::Kind::whole, {lanes[0].of}, {}, 0, 1};
    }
    const auto parts = interleaved(lanes);
    if (parts.empty()) {
        if (operands.empty()) return {};
        return Plan{Plan::Kind::interleaved, operands, {}, 1, 0};
    }
    const auto* first = llvm::dyn_cast<llvm::Instruction>(parts[0]);
    const bool alike = first && works_by_lane(*first) && depth < kDeepest &&
                       llvm::all_of(
                           parts,
                           [&](llvm::Value* v) {
                               const auto* i = llvm::dyn_cast<llvm::Instruction>(v);
                               return i && i->hasOneUse() && i->isSameOperationAs(first) &&
                                      intrinsic(*i) == intrinsic(*first) &&
                                      i->getParent() == first->getParent();
                           });
    if (alike) {
        Plan by_lane{Plan::Kind::operation, parts};
        for (unsigned o = 0; o < operand_count(*first); ++o) {
            Parts direct;
            for (llvm::Value* part : parts)
                direct.push_back(llvm::cast<llvm::User>(part)->getOperand(o));
            Lanes of;
            for (unsigned k = 0; k < lanes.size(); ++k)
                of.push_back(origin({direct[k % parts.size()], lanes[k].number}));
            auto operand = plan(of, direct, depth + 1);
            if (!operand) break;
            by_lane.interleaves += operand->interleaves;
            by_lane.wholes += operand->wholes;
            by_lane.operands.push_back(std::move(*operand));
        }
        if (by_lane.operands.size() == operand_count(*first) &&
            (by_lane.interleaves == 0 || (by_lane.interleaves == 1 && by_lane.wholes)))
            return by_lane;
    }
    return Plan{Plan::Kind::interleaved, parts, {}, 1, 0};
}

llvm::Value* build(const Plan& p, unsigned count, llvm::IRBuilder<>& b) {
    switch (p.kind) {
        case Plan::Kind::whole:
            return p.parts[0];
        case Plan::Kind::constant: {
            llvm::SmallVector<llvm::Constant*, 32> elements;
            for (llvm::Value* v : p.parts) elements.push_back(llvm::cast<llvm::Constant>(v));
            return llvm::ConstantVector::get(elements);
        }
        case Plan::Kind::splat: {  // outside of the loop if that one is
            auto* insert = llvm::cast<llvm::InsertElementInst>(p.parts[0]);
            llvm::IRBuilder<> there(insert->getNextNode());
            return there.CreateVectorSplat(count, insert->getOperand(1));
        }
        case Plan::Kind::interleaved: {
            const auto n = unsigned(p.parts.size());
            return b.CreateShuffleVector(llvm::concatenateVectors(b, p.parts),
                                         llvm::createInterleaveMask(count / n, n));
        }
        case Plan::Kind::operation:
            break;
    }
    llvm::SmallVector<llvm::Value*, 3> operands;
    for (const Plan& o : p.operands) operands.push_back(build(o, count, b));
    auto* first = llvm::cast<llvm::Instruction>(p.parts[0]);
    llvm::Value* made;
    if (const auto id = intrinsic(*first))
        made = b.CreateIntrinsic(operands[0]->getType(), id, operands);
    else
        made = b.CreateNAryOp(first->getOpcode(), operands);
    if (auto* i = llvm::dyn_cast<llvm::Instruction>(made)) {
        i->copyIRFlags(first);
        for (llvm::Value* part : p.parts) i->andIRFlags(part);
    }
    return made;
}

}  // namespace

void work_on_whole_groups(llvm::Function& f, unsigned most_interleaved) {
    llvm::SmallVector<llvm::StoreInst*> stores;
    for (llvm::BasicBlock& block : f)
        for (llvm::Instruction& i : block)
            if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i))
                if (llvm::isa<llvm::ShuffleVectorInst>(store->getValueOperand()))
                    stores.push_back(store);
    for (llvm::StoreInst* store : stores) {
        llvm::Value* old = store->getValueOperand();
        if (!llvm::isa<llvm::FixedVectorType>(old->getType())) continue;
        const unsigned count = count_of(old);
        if (count > kMostLanes || !old->hasOneUse()) continue;
        Lanes lanes;
        for (unsigned k = 0; k < count; ++k) lanes.push_back(origin({old, k}));
        const auto p = plan(lanes, {}, 0);
        if (!p || p->kind == Plan::Kind::interleaved || p->interleaves > most_interleaved) continue;
        llvm::IRBuilder<> b(store);
        store->setOperand(0, build(*p, count, b));
        llvm::RecursivelyDeleteTriviallyDeadInstructions(old);
    }
}

}  // namespace qd::codegen
