// Arithmetic of floats: the domain that makes LLVM instructions, and elementary functions.
//
// Each elementary function used is emitted once a module as `qd.<name>.<type>`. Folding runs the
// same templates on numbers, so a folded call and a compiled one give the same bits.

#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "codegen/llvm/lower.h"
#include "ir/elementwise.h"

namespace qd::codegen {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;
namespace elementary = ir::elementary;

template <int width>
struct Domain {
    struct FloatValue {
        Value* v;
    };
    struct IntValue {
        Value* v;
    };
    struct Truth {
        Value* v;
    };
    using F = FloatValue;
    using I = IntValue;
    using B = Truth;
    static constexpr int bits = width;

    ModuleLowering& m;
    Builder& b;
    Scalar s{m, b};

    llvm::Type* ft() const { return width == 32 ? m.f32 : m.f64; }
    llvm::Type* it() const { return width == 32 ? m.i32 : m.i64; }
    bool fused() const { return m.target.fused; }

    F f(double c) const {
        if constexpr (width == 32)  // rounded here: APFloat would assert on a lossy constant
            return {llvm::ConstantFP::get(m.context, llvm::APFloat(float(c)))};
        else
            return {llvm::ConstantFP::get(m.context, llvm::APFloat(c))};
    }
    I i(int64_t c) const {
        const llvm::APInt all(64, uint64_t(c));
        return {llvm::ConstantInt::get(m.context, all.trunc(width))};
    }
    F add(F a, F c) { return {b.CreateFAdd(a.v, c.v)}; }
    F sub(F a, F c) { return {b.CreateFSub(a.v, c.v)}; }
    F mul(F a, F c) { return {b.CreateFMul(a.v, c.v)}; }
    F div(F a, F c) { return {b.CreateFDiv(a.v, c.v)}; }
    F attach(F a, F) { return a; }
    F neg(F a) { return {b.CreateFNeg(a.v)}; }
    F abs(F a) { return {s.intrinsic(Intrinsic::fabs, {a.v})}; }
    F sqrt(F a) { return {s.intrinsic(Intrinsic::sqrt, {a.v})}; }
    F floor(F a) { return {s.float_floor(a.v)}; }
    F trunc(F a) { return {s.float_trunc(a.v)}; }
    F ceil(F a) {
        if (m.target.rounding) return {s.intrinsic(Intrinsic::ceil, {a.v})};
        return neg(floor(neg(a)));
    }
    F floordiv(F a, F c) { return floor(div(a, c)); }
    F mod(F a, F c) { return sub(a, mul(floordiv(a, c), c)); }
    F min(F a, F c) { return {s.float_min_max(false, a.v, c.v)}; }
    F max(F a, F c) { return {s.float_min_max(true, a.v, c.v)}; }
    F fma(F a, F c, F d) {
        if (!fused()) throw support::Error("op fma reached a CPU that has no fused multiply-add");
        return {s.intrinsic(Intrinsic::fma, {a.v, c.v, d.v})};
    }
    F muladd(F a, F c, F d) { return fused() ? fma(a, c, d) : add(mul(a, c), d); }
    B lt(F a, F c) { return {b.CreateFCmpOLT(a.v, c.v)}; }
    B le(F a, F c) { return {b.CreateFCmpOLE(a.v, c.v)}; }
    B gt(F a, F c) { return {b.CreateFCmpOGT(a.v, c.v)}; }
    B ge(F a, F c) { return {b.CreateFCmpOGE(a.v, c.v)}; }
    B eq(F a, F c) { return {s.float_equal(a.v, c.v)}; }
    B ne(F a, F c) { return {s.float_equal(a.v, c.v, true)}; }
    B isnan(F a) { return {b.CreateFCmpUNO(a.v, a.v)}; }
    F select(B c, F x, F y) { return {b.CreateSelect(c.v, x.v, y.v)}; }
    I selecti(B c, I x, I y) { return {b.CreateSelect(c.v, x.v, y.v)}; }
    B band(B x, B y) { return {b.CreateAnd(x.v, y.v)}; }
    B bor(B x, B y) { return {b.CreateOr(x.v, y.v)}; }
    B bnot(B x) { return {b.CreateNot(x.v)}; }
    I iadd(I x, I y) { return {b.CreateAdd(x.v, y.v)}; }
    I isub(I x, I y) { return {b.CreateSub(x.v, y.v)}; }
    I imul(I x, I y) { return {b.CreateMul(x.v, y.v)}; }
    I iand(I x, I y) { return {b.CreateAnd(x.v, y.v)}; }
    I ixor(I x, I y) { return {b.CreateXor(x.v, y.v)}; }
    I ior(I x, I y) { return {b.CreateOr(x.v, y.v)}; }
    I shl(I x, int by) { return {b.CreateShl(x.v, uint64_t(by))}; }
    I shr(I x, int by) { return {b.CreateLShr(x.v, uint64_t(by))}; }
    I sar(I x, int by) { return {b.CreateAShr(x.v, uint64_t(by))}; }
    B ieq(I x, I y) { return {b.CreateICmpEQ(x.v, y.v)}; }
    B ilt(I x, I y) { return {b.CreateICmpSLT(x.v, y.v)}; }
    I bits_of(F a) { return {b.CreateBitCast(a.v, it())}; }
    F from_bits(I a) { return {b.CreateBitCast(a.v, ft())}; }
    F to_float(I a) { return {b.CreateSIToFP(a.v, ft())}; }

    template <class Make>
    elementary::Reduced<Domain> rarely(B condition, elementary::Reduced<Domain> usual, Make make) {
        auto* before = b.GetInsertBlock();
        auto* f = before->getParent();
        auto* rare = llvm::BasicBlock::Create(m.context, "", f);
        auto* join = llvm::BasicBlock::Create(m.context, "", f);
        b.CreateCondBr(condition.v, rare, join);
        b.SetInsertPoint(rare);
        const elementary::Reduced<Domain> other = make();
        auto* rare_end = b.GetInsertBlock();
        b.CreateBr(join);
        b.SetInsertPoint(join);
        const auto merge = [&](Value* often, Value* seldom) {
            auto* phi = b.CreatePHI(often->getType(), 2);
            phi->addIncoming(often, before);
            phi->addIncoming(seldom, rare_end);
            return phi;
        };
        elementary::Reduced<Domain> out = usual;
        out.r.v = merge(usual.r.v, other.r.v);
        out.low.v = merge(usual.low.v, other.low.v);
        out.q.v = merge(usual.q.v, other.q.v);
        return out;
    }
};

// Body of a function of its own.
template <int width>
Value* expand(Op op, ModuleLowering& m, Builder& b, llvm::Function* f) {
    Domain<width> n{m, b};
    using F = typename Domain<width>::F;
    const F x{f->getArg(0)};
    if (op == Op::powi)
        return elementary::pow_integer(n, x, typename Domain<width>::I{f->getArg(1)}).v;
    return ir::by_template(op, n, x, F{f->arg_size() > 1 ? f->getArg(1) : nullptr}).v;
}

template <int width>
Value* expand_sin_cos(Op, ModuleLowering& m, Builder& b, llvm::Function* f) {
    Domain<width> n{m, b};
    const auto both = elementary::sin_cos(n, {f->getArg(0)});
    Value* pair = llvm::PoisonValue::get(f->getReturnType());
    return b.CreateInsertValue(b.CreateInsertValue(pair, both.sin.v, 0), both.cos.v, 1);
}

// Integers by repeated squaring; a negative exponent is undefined (gives 1).
Value* expand_integer_power(Op, ModuleLowering& m, Builder& b, llvm::Function* f) {
    Value *x = f->getArg(0), *e = f->getArg(1);
    auto* t = x->getType();
    auto* before = b.GetInsertBlock();
    auto* loop = llvm::BasicBlock::Create(m.context, "", f);
    auto* done = llvm::BasicBlock::Create(m.context, "", f);
    auto* one = llvm::ConstantInt::get(t, 1);
    b.CreateCondBr(b.CreateICmpSGT(e, b.getInt64(0)), loop, done);
    b.SetInsertPoint(loop);
    auto* square = b.CreatePHI(t, 2);
    auto* result = b.CreatePHI(t, 2);
    auto* left = b.CreatePHI(m.i64, 2);
    square->addIncoming(x, before);
    result->addIncoming(one, before);
    left->addIncoming(e, before);
    Value* odd = b.CreateTrunc(left, m.i1);
    Value* next = b.CreateSelect(odd, b.CreateMul(result, square), result);
    Value* halved = b.CreateLShr(left, uint64_t(1));
    square->addIncoming(b.CreateMul(square, square), loop);
    result->addIncoming(next, loop);
    left->addIncoming(halved, loop);
    b.CreateCondBr(b.CreateICmpNE(halved, b.getInt64(0)), loop, done);
    b.SetInsertPoint(done);
    auto* out = b.CreatePHI(t, 2);
    out->addIncoming(one, before);
    out->addIncoming(next, loop);
    return out;
}

llvm::Function* helper(ModuleLowering& m, const std::string& name, llvm::ArrayRef<Value*> args,
                       llvm::Type* result,
                       Value* (*body)(Op, ModuleLowering&, Builder&, llvm::Function*), Op op) {
    auto& h = m.helpers[name];
    ++h.calls;
    if (h.function) return h.function;
    std::vector<llvm::Type*> types;
    for (Value* a : args) types.push_back(a->getType());
    auto* f = m.new_function(llvm::FunctionType::get(result, types, false), name);
    h.function = f;
    f->setDoesNotAccessMemory();
    f->setWillReturn();
    Builder b(m.context, IntegerFolder());
    m.begin_helper_body(f, b);
    b.CreateRet(body(op, m, b, f));
    return f;
}

template <int width>
Value* in_place(Op op, ModuleLowering& m, Builder& b, Value* x, Value* y, Value* z) {
    Domain<width> n{m, b};
    using F = typename Domain<width>::F;
    if (ir::info(op).elementary) return ir::by_template(op, n, F{x}, F{y}).v;
    return ir::by_member<ir::Takes::floats>(op, n, F{x}, F{y}, F{z}, [](auto r) { return r.v; });
}

// Of one angle a block computes both together: the half that nobody wants is dropped where the
// helper is expanded.
Value* sin_or_cos(Op op, ModuleLowering& m, Builder& b, Prim p, Value* x) {
    llvm::CallInst*& both = m.angles[{x, b.GetInsertBlock()}];
    if (!both || both->getArgOperand(0) != x) {
        llvm::Type* t = m.reg(p);
        const std::string name = std::string("qd.sin_cos.") + type::info(p).name;
        both = b.CreateCall(helper(m, name, {x}, llvm::StructType::get(t, t),
                                   p == Prim::f32 ? expand_sin_cos<32> : expand_sin_cos<64>, op),
                            {x});
    }
    return b.CreateExtractValue(both, op == Op::sin ? 0 : 1);
}

}  // namespace

// Of f32 on a GPU under fast_math, up to 2 ulp off; null: there is none. An exact reciprocal root
// is 88 instructions; exact quotients, a tenth of a simulator's code, take a third of the time that
// NVIDIA's assembler needs. Powers of two are exact as factors.
Value* Scalar::approximation(Op op, Value* x, Value* y) {
    const auto call = [&](Intrinsic::ID id, std::initializer_list<Value*> operands) {
        return b.CreateCall(Intrinsic::getOrInsertDeclaration(&m.module, id), operands);
    };
    if (op == Op::rsqrt) return call(Intrinsic::nvvm_rsqrt_approx_ftz_f, {x});
    if (op != Op::div) return nullptr;
    const auto* divisor = llvm::dyn_cast<llvm::ConstantFP>(y);
    if (divisor && divisor->getValueAPF().getExactInverse(nullptr)) return nullptr;
    return call(Intrinsic::nvvm_div_full_ftz, {x, y});
}

Value* Scalar::float_op(Op op, Prim p, Value* x, Value* y, Value* z) {
    if (p == Prim::f32 && m.gpu && m.prepared.plan.module->options.fast_math)
        if (Value* near = approximation(op, x, y)) return near;
    flush_before_identity(op, x, y);
    const ir::OpInfo& row = ir::info(op);
    const bool single = p == Prim::f32;
    if ((op == Op::sin || op == Op::cos) && m.options.tier > 0) return sin_or_cos(op, m, b, p, x);
    if (row.elementary && !row.in_place) {
        Value* const args[] = {x, y};
        const llvm::ArrayRef<Value*> given(args, row.operands);
        const std::string name = std::string("qd.") + row.name + "." + type::info(p).name;
        return b.CreateCall(helper(m, name, given, m.reg(p), single ? expand<32> : expand<64>, op),
                            given);
    }
    return single ? in_place<32>(op, m, b, x, y, z) : in_place<64>(op, m, b, x, y, z);
}

namespace {

// As elementary::exponent32.
Value* exponent32(Builder& b, Value* e) {
    Value* narrow = b.CreateTrunc(e, b.getInt32Ty());
    Value* fits = b.CreateICmpEQ(b.CreateSExt(narrow, b.getInt64Ty()), e);
    Value* negative = b.CreateICmpSLT(e, b.getInt64(0));
    Value* far = b.CreateSelect(negative, b.getInt32(uint32_t(-elementary::kFarExponent)),
                                b.getInt32(uint32_t(elementary::kFarExponent)));
    return b.CreateSelect(fits, narrow, b.CreateOr(far, b.CreateAnd(narrow, b.getInt32(1))));
}

}  // namespace

Value* ModuleLowering::call_powi(Builder& b, Prim base, Prim exponent, Value* x, Value* e) {
    Scalar s{*this, b};
    if (base == Prim::f16) {
        Value* wide = call_powi(b, Prim::f32, exponent, s.widen(x), e);
        return s.narrow(wide);
    }
    const std::string name = std::string("qd.powi.") + type::info(base).name;
    if (type::is_float(base)) {
        const bool single = base == Prim::f32;
        e = single && exponent == Prim::i64 ? exponent32(b, e)
                                            : s.cast(e, exponent, single ? Prim::i32 : Prim::i64);
        return b.CreateCall(
            helper(*this, name, {x, e}, reg(base), single ? expand<32> : expand<64>, Op::powi),
            {x, e});
    }
    e = s.cast(e, exponent, Prim::i64);
    return b.CreateCall(helper(*this, name, {x, e}, reg(base), expand_integer_power, Op::powi),
                        {x, e});
}

}  // namespace qd::codegen
