// Forms that NVIDIA's assembler (ptxas and the driver's, 13.0, for sm_90) makes wrong code of,
// found by random programs and written another way here. Each was seen by itself on an H100:
//
// - abs.s16 of -32768, extended to 64 bits, is 32768. Choices of 16 bits and less are made in 32.
// - min.s32 and max.s32 of three values of which some are negated. The zero that these are
//   subtracted from is read from memory, where the assembler cannot see it.
// - (x >> k) - (x << 64 - k), and sums with an arithmetic shift, are taken for a rotation. Such a
//   right shift gets its count from memory, too.
// - not.b32 %b, %a where a branch says that %a is a constant: if %b is an operand of a logical
//   operation, the constant is put in its place and the complement forgotten (12.4 to 13.0, all
//   levels but 0). Instruction selection makes such, so in the text sub.s32 %b, -1, %a stands.

#include "codegen/llvm/assembler_mistakes.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>

namespace qd::codegen {
namespace {

namespace I = llvm::Intrinsic;

bool is_choice(I::ID id) {
    return id == I::smin || id == I::smax || id == I::umin || id == I::umax;
}

void widen_choices(llvm::Module& module) {
    for (llvm::Function& f : module) {
        const I::ID id = f.getIntrinsicID();
        if ((id != I::abs && !is_choice(id)) || !f.getReturnType()->isIntegerTy() ||
            f.getReturnType()->getIntegerBitWidth() > 16)
            continue;
        const bool is_signed = id != I::umin && id != I::umax;
        for (llvm::User* user : llvm::make_early_inc_range(f.users())) {
            auto* call = llvm::cast<llvm::CallInst>(user);
            llvm::IRBuilder<> b(call);
            const auto wide = [&](unsigned k) {
                llvm::Value* v = call->getArgOperand(k);
                return is_signed ? b.CreateSExt(v, b.getInt32Ty())
                                 : b.CreateZExt(v, b.getInt32Ty());
            };
            llvm::Value* made = b.CreateBinaryIntrinsic(
                id, wide(0), id == I::abs ? static_cast<llvm::Value*>(b.getFalse()) : wide(1));
            call->replaceAllUsesWith(b.CreateTrunc(made, call->getType()));
            call->eraseFromParent();
        }
    }
}

bool is_negation(const llvm::Instruction& i) {
    const auto* zero = i.getOpcode() == llvm::Instruction::Sub
                           ? llvm::dyn_cast<llvm::ConstantInt>(i.getOperand(0))
                           : nullptr;
    return zero && zero->isZero() && llvm::any_of(i.users(), [](const llvm::User* u) {
               const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(u);
               return (call && is_choice(call->getIntrinsicID())) || llvm::isa<llvm::CastInst>(u);
           });
}

// The count of a shift by a constant; 0: none.
uint64_t shift_count(const llvm::Instruction& i, bool left) {
    const bool fits =
        left ? i.getOpcode() == llvm::Instruction::Shl
             : i.getOpcode() == llvm::Instruction::LShr || i.getOpcode() == llvm::Instruction::AShr;
    const auto* count = fits ? llvm::dyn_cast<llvm::ConstantInt>(i.getOperand(1)) : nullptr;
    return count ? count->getZExtValue() : 0;
}

// Whether it stands beside a left shift of the same value by the bits that it leaves.
bool looks_like_rotation(const llvm::Instruction& right) {
    const uint64_t count = shift_count(right, false);
    const uint64_t bits =
        right.getType()->isIntegerTy() ? right.getType()->getIntegerBitWidth() : 0;
    if (count == 0 || bits < 32) return false;
    return llvm::any_of(right.getOperand(0)->users(), [&](const llvm::User* u) {
        const auto* left = llvm::dyn_cast<llvm::Instruction>(u);
        return left && shift_count(*left, true) == bits - count;
    });
}

}  // namespace

void avoid_assembler_mistakes(llvm::Module& module) {
    widen_choices(module);
    std::vector<std::pair<llvm::Instruction*, unsigned>> hidden;  // constants, by operand
    for (llvm::Function& f : module)
        for (llvm::BasicBlock& block : f)
            for (llvm::Instruction& i : block) {
                if (is_negation(i)) hidden.emplace_back(&i, 0);
                if (looks_like_rotation(i)) hidden.emplace_back(&i, 1);
            }
    if (hidden.empty()) return;
    // Memory that the host may change.
    auto* type = llvm::Type::getInt64Ty(module.getContext());
    auto* zero = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::ExternalLinkage,
                                          llvm::ConstantInt::get(type, 0), "qd_zero", nullptr,
                                          llvm::GlobalValue::NotThreadLocal, /*AddressSpace=*/4,
                                          /*isExternallyInitialized=*/true);
    for (const auto& [i, operand] : hidden) {
        llvm::IRBuilder<> b(i);
        llvm::Value* unknown = b.CreateTrunc(b.CreateLoad(type, zero), i->getType());
        i->setOperand(operand, b.CreateAdd(unknown, i->getOperand(operand)));
    }
}

void avoid_assembler_mistakes(llvm::SmallVectorImpl<char>& ptx) {
    constexpr llvm::StringLiteral kComplement = "\tnot.b";
    llvm::SmallVector<char, 0> out;
    llvm::StringRef rest(ptx.data(), ptx.size());
    for (size_t at; (at = rest.find(kComplement)) != llvm::StringRef::npos;) {
        const llvm::StringRef line = rest.substr(at).take_until([](char c) { return c == ';'; });
        const auto [to, from] = line.drop_front(kComplement.size()).split(',');
        out.append(rest.begin(), rest.begin() + at);
        for (const llvm::StringRef s :
             {llvm::StringRef("\tsub.s"), to, llvm::StringRef(", -1,"), from})
            out.append(s.begin(), s.end());
        rest = rest.substr(at + line.size());
    }
    if (out.empty()) return;
    out.append(rest.begin(), rest.end());
    ptx.swap(out);
}

}  // namespace qd::codegen
