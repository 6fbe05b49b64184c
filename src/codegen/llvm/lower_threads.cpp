// What the threads of a block of a GPU share and do together: shared arrays, barriers, fences,
// votes and shuffles. Kernels call these as they are; that neither LLVM nor a pass moves them into
// or out of branches follows from `convergent`.

#include <llvm/IR/IntrinsicsNVPTX.h>

#include "codegen/llvm/lower.h"

namespace qd::codegen {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

namespace {
constexpr int kSharedSpace = 3;
constexpr int kSharedAlign = 16;
}  // namespace

// Where a shared array begins: an object of its own, or a part of what the launch asks for.
Value* ModuleLowering::shared_array(uint64_t imm, Type element) {
    const auto [number, count] = ir::SharedArray::unpack(imm);
    const auto linkage = llvm::GlobalValue::InternalLinkage;
    const auto make = [&](llvm::Type* type, llvm::GlobalValue::LinkageTypes kind,
                          llvm::Constant* value, const std::string& name) {
        auto* g = new llvm::GlobalVariable(module, type, false, kind, value, name, nullptr,
                                           llvm::GlobalValue::NotThreadLocal, kSharedSpace);
        g->setAlignment(llvm::Align(kSharedAlign));
        return g;
    };
    const auto& places = prepared.plan.shared_places;
    if (const auto at = places.find(number); at != places.end()) {
        if (!shared_block_)
            shared_block_ = make(llvm::ArrayType::get(i8, 0), llvm::GlobalValue::ExternalLinkage,
                                 nullptr, "qd_shared");
        return llvm::ConstantExpr::getInBoundsGetElementPtr(
            i8, shared_block_, llvm::ConstantInt::get(i64, at->second));
    }
    llvm::GlobalVariable*& array = shared_arrays_[number];
    if (!array) {
        // Atomics on small numbers are those of the word around.
        const uint64_t bytes = uint64_t(count) * uint64_t(element.value().size_bytes());
        auto* type = llvm::ArrayType::get(i8, (bytes + 3) & ~uint64_t{3});
        array = make(type, linkage, llvm::PoisonValue::get(type),
                     "qd.shared." + std::to_string(number));
    }
    return array;
}

Value* FunctionLowering::shuffled(ir::Shuffle how, Prim p, Value* x, Value* lane, Value* mask) {
    static constexpr Intrinsic::ID ids[] = {
        Intrinsic::nvvm_shfl_sync_idx_i32, Intrinsic::nvvm_shfl_sync_up_i32,
        Intrinsic::nvvm_shfl_sync_down_i32, Intrinsic::nvvm_shfl_sync_bfly_i32};
    // Lanes beyond the subgroup's ends keep their own values.
    Value* bounds = b.getInt32(how == ir::Shuffle::up ? 0 : 31);
    const auto word = [&](Value* v) -> Value* {
        return b.CreateIntrinsic(ids[size_t(how)], {mask, v, lane, bounds});
    };
    const int bits = p == Prim::u1 ? 1 : 8 * type::bytes(p);
    auto* as_int = llvm::IntegerType::get(m.context, unsigned(bits));
    Value* v = type::is_float(p) ? b.CreateBitCast(x, as_int) : x;
    if (bits == 64) {
        Value* low = word(b.CreateTrunc(v, m.i32));
        Value* high = word(b.CreateTrunc(b.CreateLShr(v, b.getInt64(32)), m.i32));
        v = b.CreateOr(b.CreateShl(b.CreateZExt(high, m.i64), b.getInt64(32)),
                       b.CreateZExt(low, m.i64));
    } else {
        v = b.CreateTrunc(word(b.CreateZExt(v, m.i32)), as_int);
    }
    return type::is_float(p) ? b.CreateBitCast(v, m.reg(p)) : v;
}

// An i32 or i64 whose bits say what x is.
Value* FunctionLowering::comparable(Prim p, Value* x) {
    if (type::is_float(p))
        x = b.CreateBitCast(x, llvm::IntegerType::get(m.context, unsigned(8 * type::bytes(p))));
    return type::bytes(p) == 8 ? x : b.CreateZExt(x, m.i32);
}

Value* FunctionLowering::voted(ir::Vote what, ir::Value* value, Value* mask) {
    Value* x = get(value);
    const Prim p = value->type.prim;
    const auto predicate = [&](Intrinsic::ID id) {
        return b.CreateZExt(b.CreateIntrinsic(id, {mask, x}), m.i32);
    };
    const bool wide = type::bytes(p) == 8;
    switch (what) {
        case ir::Vote::all:
            return predicate(Intrinsic::nvvm_vote_all_sync);
        case ir::Vote::any:
            return predicate(Intrinsic::nvvm_vote_any_sync);
        case ir::Vote::same:
            return predicate(Intrinsic::nvvm_vote_uni_sync);
        case ir::Vote::bits:
            return b.CreateIntrinsic(Intrinsic::nvvm_vote_ballot_sync, {mask, x});
        case ir::Vote::equal:
            return b.CreateIntrinsic(
                wide ? Intrinsic::nvvm_match_any_sync_i64 : Intrinsic::nvvm_match_any_sync_i32,
                {mask, comparable(p, x)});
        case ir::Vote::all_equal: {
            Value* both = b.CreateIntrinsic(
                wide ? Intrinsic::nvvm_match_all_sync_i64p : Intrinsic::nvvm_match_all_sync_i32p,
                {mask, comparable(p, x)});
            return b.CreateExtractValue(both, 0);
        }
        case ir::Vote::number:
            break;
    }
    throw support::Error("lanes are not counted by a vote");
}

void FunctionLowering::lower_threads(Inst& i) {
    if (!m.gpu)
        throw support::Error(std::string(ir::info(i.op).name) + " on a target without blocks");
    Value* barrier = b.getInt32(0);
    const auto call = [&](Intrinsic::ID id, llvm::ArrayRef<Value*> args) {
        return b.CreateIntrinsic(id, args);
    };
    switch (i.op) {
        case Op::block_sync:
            call(Intrinsic::nvvm_barrier_cta_sync_aligned_all, {barrier});
            return;
        case Op::block_vote: {
            Value* x = get(operand(i, 0));
            if (ir::Vote(i.imm) == ir::Vote::number)
                return set(i, 0,
                           call(Intrinsic::nvvm_barrier_cta_red_popc_aligned_all, {barrier, x}));
            const auto id = ir::Vote(i.imm) == ir::Vote::all
                                ? Intrinsic::nvvm_barrier_cta_red_and_aligned_all
                                : Intrinsic::nvvm_barrier_cta_red_or_aligned_all;
            return set(i, 0, b.CreateZExt(call(id, {barrier, x}), m.i32));
        }
        case Op::fence:
            call(ir::Fence(i.imm) == ir::Fence::device ? Intrinsic::nvvm_membar_gl
                                                       : Intrinsic::nvvm_membar_cta,
                 {});
            return;
        case Op::subgroup_sync:
            call(Intrinsic::nvvm_bar_warp_sync, {get(operand(i, 0))});
            return;
        case Op::shuffle: {
            ir::Value* v = operand(i, 0);
            Value *lane = get(operand(i, 1)), *mask = get(operand(i, 2));
            for (int k = 0; k < v->type.count(); ++k)
                set(i, k, shuffled(ir::Shuffle(i.imm), v->type.prim, get(v, k), lane, mask));
            return;
        }
        case Op::vote:
            return set(i, 0, voted(ir::Vote(i.imm), operand(i, 0), get(operand(i, 1))));
        case Op::active_mask:
            return set(i, 0, call(Intrinsic::nvvm_activemask, {}));
        default:
            throw support::Error(std::string("no lowering of ") + ir::info(i.op).name);
    }
}

}  // namespace qd::codegen
