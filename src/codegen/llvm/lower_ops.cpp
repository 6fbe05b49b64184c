// Arithmetic of single components, and tensors as their components one by one.
//
// f16 is computed in f32 and rounded after every operation. Integer division never traps: the
// divisor is replaced where it would. Rounding functions that the CPU lacks are written out.

#include <llvm/IR/Intrinsics.h>

#include "codegen/llvm/lower.h"
#include "ir/elementwise.h"

namespace qd::codegen {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

namespace {

uint64_t ones(int bits) { return bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1; }

Value* int_constant(Value* like, uint64_t v) {
    return llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(like->getType()),
                                  v & ones(like->getType()->getIntegerBitWidth()));
}

const llvm::ConstantInt* known(Value* v) { return llvm::dyn_cast<llvm::ConstantInt>(v); }

}  // namespace

Value* Scalar::intrinsic(Intrinsic::ID id, llvm::ArrayRef<Value*> args) {
    return b.CreateCall(Intrinsic::getOrInsertDeclaration(&m.module, id, {args[0]->getType()}),
                        args);
}

// --- floats ----------------------------------------------------------------------------------

Value* Scalar::float_trunc(Value* x) {
    if (m.target.rounding) return intrinsic(Intrinsic::trunc, {x});
    // Below 2^mantissa a conversion there and back is exact; above, the number is whole already.
    const bool single = x->getType()->isFloatTy();
    llvm::Type* bits = single ? m.i32 : m.i64;
    Value* small = b.CreateFCmpOLT(intrinsic(Intrinsic::fabs, {x}),
                                   llvm::ConstantFP::get(x->getType(), single ? 0x1p23 : 0x1p52));
    Value* safe = b.CreateSelect(small, x, llvm::ConstantFP::get(x->getType(), 0));
    Value* whole = b.CreateSIToFP(b.CreateFPToSI(safe, bits), x->getType());
    return b.CreateSelect(small, intrinsic(Intrinsic::copysign, {whole, x}), x);
}

Value* Scalar::float_floor(Value* x) {
    if (m.target.rounding) return intrinsic(Intrinsic::floor, {x});
    Value* t = float_trunc(x);
    return b.CreateSelect(b.CreateFCmpOGT(t, x),
                          b.CreateFSub(t, llvm::ConstantFP::get(x->getType(), 1)), t);
}

// A subnormal equals zero. LLVM 22 turns `bitcast(i) == 0` into a test of the integer that does not
// know this (of the relations, == and != alone), so where integers become floats the test of the
// exponent is written here.
Value* Scalar::float_equal(Value* x, Value* y, bool negated) {
    const auto is_zero = [](Value* v) {
        const auto* c = llvm::dyn_cast<llvm::ConstantFP>(v);
        return c && c->isZero();
    };
    if (is_zero(x)) std::swap(x, y);
    if (!m.prepared.plan.floats_of_bits || x->getType()->isHalfTy() || !is_zero(y))
        return negated ? b.CreateFCmpUNE(x, y) : b.CreateFCmpOEQ(x, y);
    const bool single = x->getType()->isFloatTy();
    Value* bits = b.CreateBitCast(x, single ? m.i32 : m.i64);
    Value* exponent = int_constant(bits, single ? 0x7f800000 : 0x7ff0000000000000);
    return b.CreateICmp(negated ? llvm::CmpInst::ICMP_NE : llvm::CmpInst::ICMP_EQ,
                        b.CreateAnd(bits, exponent), int_constant(bits, 0));
}

// The number wins over NaN, and -0 is less than +0. Operands are flushed first: LLVM makes minss of
// some of these choices, which flushes, and not of others.
Value* Scalar::float_min_max(bool max, Value* x, Value* y) {
    if (m.target.minimum)
        return b.CreateBinaryIntrinsic(max ? Intrinsic::maximumnum : Intrinsic::minimumnum, x, y);
    const auto flush = [&](Value*& v) {
        if (const auto* c = llvm::dyn_cast<llvm::ConstantFP>(v)) {
            if (c->getValueAPF().isDenormal())
                v = llvm::ConstantFP::getZero(v->getType(), c->isNegative());
        } else if (!llvm::isa<llvm::BinaryOperator>(v) && !m.minima.contains(v)) {
            // Arithmetic has flushed already.
            v = intrinsic(Intrinsic::canonicalize, {v});
            if (auto* call = llvm::dyn_cast<llvm::CallInst>(v)) m.flushes.push_back(call);
        }
    };
    if (llvm::isa<llvm::ConstantFP>(x)) std::swap(x, y);
    flush(y);
    Value* chosen = nullptr;
    const auto* c = llvm::dyn_cast<llvm::ConstantFP>(y);
    const bool beyond_zero = c && c->isNegative() != max;  // then no x is chosen that is near zero
    if (c && !c->isNaN() && (beyond_zero || !c->isZero())) {
        if (!beyond_zero) flush(x);
        chosen = b.CreateSelect(max ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), x, y);
    } else {
        // The first stays if it passes the second, and then has both signs: where x >= y, x is
        // negative and y is not, both are zero. Every number passes a NaN. An accumulator x waits
        // for one comparison and one choice.
        flush(x);
        llvm::Type* bits = x->getType()->isFloatTy() ? m.i32 : m.i64;
        llvm::Value* least = llvm::ConstantFP::getInfinity(y->getType(), max);
        Value* bound = b.CreateSelect(b.CreateFCmpUNO(y, y), least, y);
        Value* passes = max ? b.CreateFCmpOGE(x, bound) : b.CreateFCmpOLE(x, bound);
        Value *xb = b.CreateBitCast(x, bits), *yb = b.CreateBitCast(bound, bits);
        Value* sign = int_constant(xb, uint64_t{1} << (bits->getIntegerBitWidth() - 1));
        xb = max ? b.CreateAnd(xb, b.CreateOr(yb, b.CreateNot(sign)))
                 : b.CreateOr(xb, b.CreateAnd(yb, sign));
        chosen = b.CreateSelect(passes, b.CreateBitCast(xb, x->getType()), y);
    }
    m.minima.insert(chosen);
    return chosen;
}

// Whether `v` is this number or is chosen among values of which one is it.
bool may_be(const Value* v, double number) {
    const auto is = [number](const Value* x) {
        const auto* c = llvm::dyn_cast<llvm::ConstantFP>(x);
        return c && c->isExactlyValue(number);
    };
    if (const auto* s = llvm::dyn_cast<llvm::SelectInst>(v))
        return is(s->getTrueValue()) || is(s->getFalseValue());
    if (const auto* phi = llvm::dyn_cast<llvm::PHINode>(v))
        return llvm::any_of(phi->incoming_values(), is);
    return is(v);
}

// LLVM takes x * 1, x / -1, x - 0 and the like for no arithmetic at all and drops them, though they
// flush a subnormal operand; so it does in the branches of a choice. The operand that it would
// hand on is flushed by itself.
void Scalar::flush_before_identity(Op op, Value*& x, Value*& y) {
    if (m.options.tier == 0) return;
    const auto may_be_unit = [](const Value* v) { return may_be(v, 1) || may_be(v, -1); };
    const auto flush = [&](Value*& v) {
        if (llvm::isa<llvm::Constant>(v) || (m.gpu && !v->getType()->isFloatTy())) return;
        if (!m.gpu) {
            v = intrinsic(Intrinsic::canonicalize, {v});
            return;
        }
        Value* bits = b.CreateBitCast(v, m.i32);
        Value* normal = b.CreateICmpNE(b.CreateAnd(bits, 0x7f800000), b.getInt32(0));
        v = b.CreateBitCast(b.CreateSelect(normal, bits, b.CreateAnd(bits, 0x80000000)), m.f32);
    };
    const bool after_x = op == Op::mul || op == Op::div ? may_be_unit(y)
                         : op == Op::add                ? may_be(y, -0.0)
                                                        : op == Op::sub && may_be(y, 0.0);
    const bool after_y =
        op == Op::mul ? may_be_unit(x) : (op == Op::add || op == Op::sub) && may_be(x, -0.0);
    if (after_x) flush(x);
    if (after_y) flush(y);
}

// --- integers --------------------------------------------------------------------------------

namespace {

// Members by the names of ops, as ir/elementwise.h asks for them.
struct Integers {
    Scalar& s;
    Builder& b;
    Prim p;
    bool is_signed = type::is_signed(p);

    Value* add(Value* x, Value* y) { return b.CreateAdd(x, y); }
    Value* sub(Value* x, Value* y) { return b.CreateSub(x, y); }
    Value* mul(Value* x, Value* y) { return b.CreateMul(x, y); }
    Value* floordiv(Value* x, Value* y) { return divide(Op::floordiv, x, y); }
    Value* mod(Value* x, Value* y) { return divide(Op::mod, x, y); }
    Value* raw_div(Value* x, Value* y) { return divide(Op::raw_div, x, y); }
    Value* raw_mod(Value* x, Value* y) { return divide(Op::raw_mod, x, y); }
    Value* min(Value* x, Value* y) { return b.CreateSelect(lt(y, x), y, x); }
    Value* max(Value* x, Value* y) { return b.CreateSelect(gt(y, x), y, x); }
    Value* neg(Value* x) { return b.CreateSub(int_constant(x, 0), x); }
    Value* abs(Value* x) {
        return is_signed ? b.CreateSelect(lt(x, int_constant(x, 0)), neg(x), x) : x;
    }

    Value* bit_and(Value* x, Value* y) { return b.CreateAnd(x, y); }
    Value* bit_or(Value* x, Value* y) { return b.CreateOr(x, y); }
    Value* bit_xor(Value* x, Value* y) { return b.CreateXor(x, y); }
    Value* bit_not(Value* x) { return b.CreateNot(x); }
    Value* count(Value* y) {  // of a shift
        return b.CreateAnd(y, int_constant(y, y->getType()->getIntegerBitWidth() - 1));
    }
    Value* shl(Value* x, Value* y) { return b.CreateShl(x, count(y)); }
    Value* shr(Value* x, Value* y) { return is_signed ? b.CreateAShr(x, count(y)) : lshr(x, y); }
    Value* lshr(Value* x, Value* y) { return b.CreateLShr(x, count(y)); }
    Value* as_i32(Value* x) { return b.CreateZExtOrTrunc(x, s.m.i32); }
    Value* popcnt(Value* x) { return as_i32(s.intrinsic(Intrinsic::ctpop, {x})); }
    Value* clz(Value* x) { return as_i32(s.intrinsic(Intrinsic::ctlz, {x, b.getFalse()})); }
    Value* ctz(Value* x) { return as_i32(s.intrinsic(Intrinsic::cttz, {x, b.getFalse()})); }

    Value* lt(Value* x, Value* y) {
        return is_signed ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
    }
    Value* le(Value* x, Value* y) {
        return is_signed ? b.CreateICmpSLE(x, y) : b.CreateICmpULE(x, y);
    }
    Value* gt(Value* x, Value* y) {
        return is_signed ? b.CreateICmpSGT(x, y) : b.CreateICmpUGT(x, y);
    }
    Value* ge(Value* x, Value* y) {
        return is_signed ? b.CreateICmpSGE(x, y) : b.CreateICmpUGE(x, y);
    }
    Value* eq(Value* x, Value* y) { return b.CreateICmpEQ(x, y); }
    Value* ne(Value* x, Value* y) { return b.CreateICmpNE(x, y); }

    Value* divide(Op op, Value* x, Value* y);
};

Value* Integers::divide(Op op, Value* x, Value* y) {
    const bool remainder = op == Op::mod || op == Op::raw_mod;
    if (p == Prim::u1)  // dividing by 1 changes nothing, by 0 gives 0
        return remainder ? static_cast<Value*>(b.getFalse()) : b.CreateAnd(x, y);
    const bool floors = is_signed && (op == Op::floordiv || op == Op::mod);
    Value* zero = int_constant(x, 0);
    Value* one = int_constant(x, 1);
    const auto* c = known(y);
    if (c && c->isZero()) return zero;
    if (c && c->getValue().isPowerOf2() && !(is_signed && c->isNegative()) &&
        (floors || !is_signed)) {
        if (remainder) return b.CreateAnd(x, b.CreateSub(y, one));
        Value* shift = int_constant(x, c->getValue().logBase2());
        return is_signed ? b.CreateAShr(x, shift) : b.CreateLShr(x, shift);
    }
    Value* by_zero = c ? nullptr : b.CreateICmpEQ(y, zero);
    if (!is_signed) {
        Value* safe = c ? y : b.CreateSelect(by_zero, one, y);
        Value* r = remainder ? b.CreateURem(x, safe) : b.CreateUDiv(x, safe);
        return c ? r : b.CreateSelect(by_zero, zero, r);
    }
    // By -1 the quotient is -x (wrapping) and the remainder zero; the instruction is kept from it.
    const bool never_minus_one = c && !c->isMinusOne();
    Value* minus_one = never_minus_one ? nullptr : b.CreateICmpEQ(y, int_constant(x, ~uint64_t(0)));
    Value* unsafe = c ? minus_one : b.CreateOr(by_zero, minus_one);
    Value* safe = unsafe ? b.CreateSelect(unsafe, one, y) : y;
    Value* r = remainder ? b.CreateSRem(x, safe) : b.CreateSDiv(x, safe);
    if (floors) {
        Value* rest = remainder ? r : b.CreateSub(x, b.CreateMul(r, safe));
        Value* adjust =
            b.CreateAnd(b.CreateICmpNE(rest, zero), b.CreateICmpSLT(b.CreateXor(rest, safe), zero));
        if (remainder)
            r = b.CreateAdd(r, b.CreateSelect(adjust, safe, zero));
        else
            r = b.CreateSub(r, b.CreateZExt(adjust, r->getType()));
    }
    if (minus_one) {
        Value* special = remainder ? zero : b.CreateSub(zero, x);
        r = b.CreateSelect(minus_one, special, r);
    }
    return c ? r : b.CreateSelect(by_zero, zero, r);
}

}  // namespace

Value* Scalar::op(Op op, Prim p, Value* x, Value* y, Value* z) {
    if (!type::is_float(p))
        return ir::by_member<ir::Takes::ints>(op, Integers{*this, b, p}, x, y, z,
                                              [](Value* v) { return v; });
    if (p != Prim::f16) return float_op(op, p, x, y, z);
    if (op == Op::neg || op == Op::abs) {  // the sign bit alone
        Value* bits = b.CreateBitCast(x, llvm::Type::getInt16Ty(m.context));
        bits = op == Op::neg ? b.CreateXor(bits, 0x8000) : b.CreateAnd(bits, 0x7fff);
        return b.CreateBitCast(bits, m.f16);
    }
    if (ir::info(op).rule == ir::Rule::boolean) {
        x = widen(x), y = widen(y);
        return float_op(op, Prim::f32, x, y, z);
    }
    for (Value** v : {&z, &y, &x})
        if (*v) *v = widen(*v);
    return narrow(float_op(op, Prim::f32, x, y, z));
}

// --- conversions -----------------------------------------------------------------------------

// Whatever rounds to infinity is cut to the least such integer first, for LLVM 22 forgets overflow:
// it takes an integer of few significant bits, say i << 27, for one that f16 holds exactly. 65520
// has 12 bits, one too many for that.
Value* Scalar::int_to_half(Value* x, Prim from) {
    const bool is_signed = type::is_signed(from);
    if (type::bits(from) > 16) {
        constexpr int64_t kRoundsToInfinity = 65520;
        Value* limit = int_constant(x, kRoundsToInfinity);
        if (is_signed)
            x = intrinsic(Intrinsic::smax, {x, int_constant(x, uint64_t(-kRoundsToInfinity))});
        x = intrinsic(is_signed ? Intrinsic::smin : Intrinsic::umin, {x, limit});
        x = b.CreateTrunc(x, m.i32);
    }
    return narrow(is_signed ? b.CreateSIToFP(x, m.f32) : b.CreateUIToFP(x, m.f32));
}

// As bits_of_double: what a signed integer of 32 or 64 bits cannot hold becomes its smallest value,
// which is what the instruction gives; the test keeps that out of LLVM's reach, which takes it for
// poison.
Value* Scalar::float_to_int(Value* x, Prim to) {
    const bool wide = type::bits(to) == 64;
    llvm::Type* bits = wide ? m.i64 : m.i32;
    Value* half = llvm::ConstantFP::get(x->getType(), wide ? 0x1p63 : 0x1p31);
    Value* least = b.getIntN(wide ? 64 : 32, uint64_t(1) << (wide ? 63 : 31));
    const bool is_upper = !type::is_signed(to) && type::bits(to) >= 32;
    Value* lower = is_upper ? b.CreateFCmpOLT(x, half) : nullptr;
    if (lower) x = b.CreateSelect(lower, x, b.CreateFSub(x, half));
    Value* fits = b.CreateFCmpOLT(intrinsic(Intrinsic::fabs, {x}), half);
    Value* r = b.CreateSelect(fits, b.CreateFPToSI(x, bits), least);
    if (lower) r = b.CreateSelect(lower, r, b.CreateXor(r, least));
    return type::bits(to) < 32 ? b.CreateTrunc(r, m.reg(to)) : r;
}

Value* Scalar::cast(Value* x, Prim from, Prim to) {
    if (from == to) return x;
    const bool from_float = type::is_float(from), to_float = type::is_float(to);
    if (to == Prim::u1) {
        if (!from_float) return b.CreateICmpNE(x, int_constant(x, 0));
        if (from == Prim::f16) x = widen(x);
        return float_equal(x, llvm::ConstantFP::get(x->getType(), 0), true);
    }
    if (from_float && to_float) {
        return type::bits(to) > type::bits(from) ? b.CreateFPExt(x, m.reg(to))
                                                 : b.CreateFPTrunc(x, m.reg(to));
    }
    if (from_float) {
        if (from == Prim::f16) x = widen(x);
        return float_to_int(x, to);
    }
    if (to == Prim::f16) return int_to_half(x, from);
    if (to_float)
        return type::is_signed(from) ? b.CreateSIToFP(x, m.reg(to)) : b.CreateUIToFP(x, m.reg(to));
    if (type::bits(to) <= type::bits(from)) return b.CreateTrunc(x, m.reg(to));
    return type::is_signed(from) ? b.CreateSExt(x, m.reg(to)) : b.CreateZExt(x, m.reg(to));
}

Value* Scalar::bit_cast(Value* x, Prim from, Prim to) {
    if (m.reg(from) == m.reg(to)) return x;
    if (type::bytes(from) != type::bytes(to))
        throw support::Error("bit_cast between different sizes");
    if (from == Prim::u1) x = b.CreateZExt(x, m.i8);
    if (to == Prim::u1) return b.CreateICmpNE(x, int_constant(x, 0));
    return b.CreateBitCast(x, m.reg(to));
}

// --- whole instructions ----------------------------------------------------------------------

// Index arithmetic, which does not leave its type.
Value* FunctionLowering::no_wrap(const Inst& i) {
    Value* x = get(operand(i, 0));
    if (i.op == Op::cast) return b.CreateTrunc(x, m.reg(i.results[0].type.prim), "", false, true);
    Value* y = get(operand(i, 1));
    return i.op == Op::add   ? b.CreateAdd(x, y, "", false, true)
           : i.op == Op::sub ? b.CreateSub(x, y, "", false, true)
                             : b.CreateMul(x, y, "", false, true);
}

void FunctionLowering::lower_elementwise(Inst& i) {
    if (i.flags & ir::kNoWrap) return set(i, 0, no_wrap(i));
    if (i.op == Op::eq) {  // whether an atomic_cas found what it expected
        const Inst* d = operand(i, 0)->def;
        if (d && d->op == Op::atomic_cas && operand(*d, 1) == operand(i, 1))
            return set(i, 0, b.CreateExtractValue(swaps_.at(d->result()), 1));
    }
    const Type result = i.results[0].type;
    const Prim p = operand(i, 0)->type.prim;
    const auto x = [&](int which, int k) -> Value* {
        if (which >= i.operand_count) return nullptr;
        ir::Value* v = operand(i, which);
        return get(v, v->type.is_scalar() ? 0 : k);
    };
    const auto component = [&](int k) {
        if (i.op == Op::cast) return scalar.cast(x(0, k), p, result.prim);
        if (i.op == Op::bit_cast) return scalar.bit_cast(x(0, k), p, result.prim);
        if (i.op == Op::select) return choose(x(0, k), x(1, k), x(2, k));
        if (i.op == Op::powi) return m.call_powi(b, p, operand(i, 1)->type.prim, x(0, k), x(1, k));
        return scalar.op(i.op, p, x(0, k), x(1, k), x(2, k));
    };
    for (int k = 0; k < result.count(); ++k) set(i, k, component(k));
}

llvm::AllocaInst* FunctionLowering::spill(ir::Value* v, int which) {
    const Prim p = v->type.prim;
    const int count = v->type.count();
    auto* memory = scratch(m.mem(p), uint64_t(count), type::bytes(p), which);
    for (int k = 0; k < count; ++k)
        b.CreateAlignedStore(to_memory(p, get(v, k)),
                             b.CreateConstInBoundsGEP1_64(m.mem(p), memory, k),
                             llvm::Align(type::bytes(p)));
    return memory;
}

Value* FunctionLowering::reload(Value* memory, Prim p, int k) {
    return from_memory(
        p, b.CreateAlignedLoad(m.mem(p), b.CreateConstInBoundsGEP1_64(m.mem(p), memory, k),
                               llvm::Align(type::bytes(p))));
}

// The quick tier makes branches of selections of floats and cuts the block at each, in time that
// grows with its square. Of integers there is an instruction.
Value* FunctionLowering::choose(Value* c, Value* x, Value* y) {
    llvm::Type* t = x->getType();
    if (m.options.tier > 0 || m.gpu || !(t->isFloatTy() || t->isDoubleTy()))
        return b.CreateSelect(c, x, y);
    llvm::Type* bits = b.getIntNTy(t->getScalarSizeInBits());
    return b.CreateBitCast(b.CreateSelect(c, b.CreateBitCast(x, bits), b.CreateBitCast(y, bits)),
                           t);
}

void FunctionLowering::lower_tensor(Inst& i) {
    const Type result = i.results[0].type;
    const int count = result.count();
    ir::Value* x = i.operand_count ? operand(i, 0) : nullptr;
    switch (i.op) {
        case Op::splat:
            for (int k = 0; k < count; ++k) set(i, k, get(x));
            return;
        case Op::build:
            for (int k = 0; k < count; ++k) set(i, k, get(operand(i, k)));
            return;
        case Op::extract:
            set(i, 0, get(x, int(i.imm)));
            return;
        case Op::insert:
            for (int k = 0; k < count; ++k)
                set(i, k, k == int(i.imm) ? get(operand(i, 1)) : get(x, k));
            return;
        case Op::extract_dyn: {
            Value* at = get(operand(i, 1));
            const int n = x->type.count();
            if (n <= 8) {  // a chain of selects beats memory
                Value* v = get(x, n - 1);
                for (int k = n - 1; k-- > 0;)
                    v = choose(b.CreateICmpEQ(at, b.getInt64(k)), get(x, k), v);
                set(i, 0, v);
                return;
            }
            auto* memory = spill(x);
            const Prim p = x->type.prim;
            set(i, 0,
                from_memory(p,
                            b.CreateAlignedLoad(m.mem(p), b.CreateInBoundsGEP(m.mem(p), memory, at),
                                                llvm::Align(type::bytes(p)))));
            return;
        }
        case Op::insert_dyn: {
            Value* at = get(operand(i, 2));
            Value* v = get(operand(i, 1));
            for (int k = 0; k < count; ++k)
                set(i, k, choose(b.CreateICmpEQ(at, b.getInt64(k)), v, get(x, k)));
            return;
        }
        case Op::transpose: {  // x is n x m, the result m x n
            const int rows = result.n, columns = result.m;
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < columns; ++c) set(i, r * columns + c, get(x, c * rows + r));
            return;
        }
        case Op::reduce_add:
        case Op::reduce_mul:
        case Op::reduce_min:
        case Op::reduce_max:
        case Op::reduce_and:
        case Op::reduce_or: {
            const Op step = ir::info(i.op).step;
            const int n = x->type.count();
            Value* v = get(x, 0);
            for (int k = 1; k < n; ++k) v = scalar.op(step, x->type.prim, v, get(x, k));
            set(i, 0, v);
            return;
        }
        case Op::matmul:
            lower_matmul(i);
            return;
        default:
            throw support::Error(std::string("no tensor lowering of ") + ir::info(i.op).name);
    }
}

// Columns are summed in ascending order. Above 64 multiplications' worth of results the product is
// a loop in one shared function, called through memory.
void FunctionLowering::lower_matmul(Inst& i) {
    ir::Value *x = operand(i, 0), *y = operand(i, 1);
    const Prim p = x->type.prim;
    const int n = x->type.n, inner = x->type.m, columns = y->type.rank == 2 ? y->type.m : 1;
    if (n * columns > 64) {
        auto* left = spill(x);
        auto* right = spill(y, 1);
        auto* out = scratch(m.mem(p), uint64_t(n * columns), type::bytes(p), 2);
        b.CreateCall(m.matmul_helper(p, n, inner, columns, i.imm == ir::kFusedProducts),
                     {left, right, out});
        for (int k = 0; k < n * columns; ++k) set(i, k, reload(out, p, k));
        return;
    }
    for (int r = 0; r < n; ++r)
        for (int c = 0; c < columns; ++c) {
            Value* sum = nullptr;
            for (int k = 0; k < inner; ++k) {
                Value *left = get(x, r * inner + k), *right = get(y, k * columns + c);
                sum = scalar.add_product(p, sum, left, right, i.imm == ir::kFusedProducts);
            }
            set(i, r * columns + c, sum);
        }
}

Value* Scalar::add_product(Prim p, Value* sum, Value* x, Value* y, bool fused) {
    if (sum && fused) return op(Op::fma, p, x, y, sum);
    Value* product = op(Op::mul, p, x, y);
    return sum ? op(Op::add, p, sum, product) : product;
}

llvm::Function* ModuleLowering::matmul_helper(Prim p, int n, int k, int columns, bool fused) {
    const std::string name = std::string("qd.matmul.") + type::info(p).name + "." +
                             std::to_string(n) + "x" + std::to_string(k) + "x" +
                             std::to_string(columns) + (fused ? ".fused" : "");
    auto& helper = helpers[name];
    ++helper.calls;
    if (helper.function) return helper.function;
    auto* f = new_function(llvm::FunctionType::get(void_, {ptr, ptr, ptr}, false), name);
    helper.function = f;
    f->addFnAttr(llvm::Attribute::NoInline);
    for (unsigned a = 0; a < 3; ++a) f->addParamAttr(a, llvm::Attribute::NoAlias);
    Builder b(context, IntegerFolder());
    begin_helper_body(f, b);
    Scalar scalar{*this, b};
    const llvm::Align align(type::bytes(p));
    auto* row_loop = llvm::BasicBlock::Create(context, "", f);
    auto* before = b.GetInsertBlock();
    b.CreateBr(row_loop);
    b.SetInsertPoint(row_loop);
    auto* r = b.CreatePHI(i64, 2);
    r->addIncoming(b.getInt64(0), before);
    std::vector<Value*> row(k);
    Value* row_at = b.CreateNSWMul(r, b.getInt64(k));
    for (int j = 0; j < k; ++j)
        row[j] = b.CreateAlignedLoad(
            mem(p),
            b.CreateInBoundsGEP(mem(p), f->getArg(0), b.CreateNSWAdd(row_at, b.getInt64(j))),
            align);
    auto* column_loop = llvm::BasicBlock::Create(context, "", f);
    b.CreateBr(column_loop);
    b.SetInsertPoint(column_loop);
    auto* c = b.CreatePHI(i64, 2);
    c->addIncoming(b.getInt64(0), row_loop);
    Value* sum = nullptr;
    for (int j = 0; j < k; ++j) {
        Value* at = b.CreateNSWAdd(c, b.getInt64(int64_t(j) * columns));
        Value* v =
            b.CreateAlignedLoad(mem(p), b.CreateInBoundsGEP(mem(p), f->getArg(1), at), align);
        sum = scalar.add_product(p, sum, row[j], v, fused);
    }
    Value* to = b.CreateNSWAdd(b.CreateNSWMul(r, b.getInt64(columns)), c);
    b.CreateAlignedStore(sum, b.CreateInBoundsGEP(mem(p), f->getArg(2), to), align);
    Value* next_c = b.CreateNSWAdd(c, b.getInt64(1));
    c->addIncoming(next_c, b.GetInsertBlock());
    auto* row_end = llvm::BasicBlock::Create(context, "", f);
    b.CreateCondBr(b.CreateICmpSLT(next_c, b.getInt64(columns)), column_loop, row_end);
    b.SetInsertPoint(row_end);
    Value* next_r = b.CreateNSWAdd(r, b.getInt64(1));
    r->addIncoming(next_r, row_end);
    auto* done = llvm::BasicBlock::Create(context, "", f);
    b.CreateCondBr(b.CreateICmpSLT(next_r, b.getInt64(n)), row_loop, done);
    b.SetInsertPoint(done);
    b.CreateRetVoid();
    return f;
}

}  // namespace qd::codegen
