// Memory: addresses of places, loads and stores, atomics, random numbers, print and assert.
//
// Addresses are affine i64 arithmetic wherever the IR's index is: an i32 index is sign-extended,
// and sums are extended term by term (an index that leaves i32 is out of range anyway), so that
// neighbouring cells share a base and differ in a displacement. What a launch fixes (base
// addresses, array extents, argument values) is loaded once at the function's entry, as invariant.

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include "codegen/llvm/lower.h"
#include "ir/random.h"

namespace qd::codegen {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

// --- what a function computes once, at its entry -----------------------------------------------

template <class Make>
Value* FunctionLowering::at_entry(uint64_t key, Make make) {
    auto [at, inserted] = entry_values_.try_emplace(key, nullptr);
    if (!inserted) return at->second;
    Builder entry(entry_end_->getParent(), entry_end_->getIterator(), IntegerFolder());
    Value* v = make(entry);
    entry_values_[key] = v;  // `at` may be stale: make() may have added others
    return v;
}

namespace {
enum Kind : uint64_t {
    kContext = 1,
    kBinding,
    kArray,
    kArrayGrad,
    kExtent,
    kParameter,
    kThreadMember,
    kBound,
    kAloneBit
};
uint64_t key(Kind kind, uint64_t a, uint64_t b = 0) { return kind << 56 | a << 16 | b; }
}  // namespace

Value* FunctionLowering::invariant_load(Builder& at, llvm::Type* t, Value* p, int64_t offset,
                                        int align) {
    Value* address = offset ? at.CreateConstInBoundsGEP1_64(m.i8, p, offset) : p;
    auto* load = at.CreateAlignedLoad(t, address, llvm::Align(align));
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(m.context, {}));
    return load;
}

Value* FunctionLowering::context_member(size_t offset) {
    Value* context = at_entry(key(kContext, ~0u), [&](Builder& at) {
        return invariant_load(at, m.ptr, fn->getArg(0), offsetof(abi::Thread, context), 8);
    });
    return at_entry(key(kContext, offset), [&](Builder& at) {
        return invariant_load(at, m.ptr, context, int64_t(offset), 8);
    });
}

llvm::AllocaInst* FunctionLowering::entry_alloca(llvm::Type* t, uint64_t count, int align) {
    llvm::Type* all = count == 1 ? t : llvm::ArrayType::get(t, count);
    auto* a =
        new llvm::AllocaInst(all, 0, nullptr, llvm::Align(align), "", entry_end_->getIterator());
    return a;
}

llvm::AllocaInst* FunctionLowering::scratch(llvm::Type* t, uint64_t count, int align, int which) {
    auto*& a = scratch_[{t, count, which}];
    if (!a) a = entry_alloca(t, count, align);
    return a;
}

// Component k of parameter v: from the argument block in a task, else the LLVM arguments that
// run() has bound.
Value* FunctionLowering::parameter(const ir::Value* v, int k) {
    const ir::Param& p = m.prepared.plan.module->params[v->index];
    return at_entry(key(kParameter, v->index, k), [&](Builder& at) -> Value* {
        Value* args = context_member(offsetof(abi::Context, args));
        if (v->type.is_array()) return at.CreateConstInBoundsGEP1_64(m.i8, args, p.offset);
        const Prim prim = v->type.prim;
        Value* x = invariant_load(at, m.mem(prim), args, p.offset + int64_t(k) * type::bytes(prim),
                                  type::bytes(prim));
        return prim == Prim::u1 ? at.CreateICmpNE(x, llvm::ConstantInt::get(m.i8, 0)) : x;
    });
}

Value* FunctionLowering::array_data(ir::Value* array, bool grad) {
    Value* descriptor = get(array);
    return at_entry(key(grad ? kArrayGrad : kArray, array->id), [&](Builder& at) {
        const size_t offset = grad ? offsetof(ir::ArrayDesc, grad) : offsetof(ir::ArrayDesc, data);
        return invariant_load(at, m.ptr, descriptor, int64_t(offset), 8);
    });
}

Value* FunctionLowering::array_extent(ir::Value* array, int axis) {
    Value* descriptor = get(array);
    return at_entry(key(kExtent, array->id, axis), [&](Builder& at) -> Value* {
        Value* extent =
            invariant_load(at, m.i32, descriptor, int64_t(sizeof(ir::ArrayDesc)) + 4 * axis, 4);
        return at.CreateZExt(extent, m.i64, "", /*IsNonNeg=*/true);
    });
}

// --- indices -----------------------------------------------------------------------------------

// Whether an i64 is arithmetic on what the launch hands to a task: then it is an index of the loop,
// and its cast to i32 loses nothing. Any other cast may wrap, which its user can see.
bool FunctionLowering::counts_units(ir::Value* v, int depth) {
    if (depth > 12) return false;
    const auto [at, unknown] = counts_units_.try_emplace(v, false);
    if (!unknown) return at->second;
    bool yes = false;
    const auto all = [&](const Inst& i, int from, int to) {
        for (int k = from; k < to; ++k)
            if (!counts_units(operand(i, k), depth + 1)) return false;
        return true;
    };
    if (const Inst* d = v->def) {
        switch (d->op) {
            case Op::constant:
                yes = int64_t(d->imm) == int32_t(d->imm);
                break;
            case Op::task_value:
                yes = true;
                break;
            case Op::add:
            case Op::sub:
            case Op::mul:
            case Op::min:
            case Op::max:
            case Op::shr:
            case Op::raw_div:
                yes = all(*d, 0, 2);
                break;
            default:
                break;
        }
    } else if (const Inst* loop = v->owner ? v->owner->owner : nullptr;
               loop && loop->op == Op::for_) {
        const int dims = int(loop->imm), k = int(v->index);
        yes = k < dims ? all(*loop, 2 * k, 2 * k + 2) : all(*loop, dims + k, dims + k + 1);
    }
    counts_units_[v] = yes;
    return yes;
}

FunctionLowering::Index FunctionLowering::index(ir::Value* v, int depth) {
    const Inst* d = v->def;
    if (d && d->op == Op::constant) return {nullptr, ir::int_of_bits(v->type.prim, d->imm)};
    if (!wide_.empty() && wide_[v->id]) return {wide_[v->id], 0};
    const Prim p = v->type.prim;
    if (d && depth < 6 && (p == Prim::i32 || p == Prim::i64)) {
        if (d->op == Op::cast) {
            ir::Value* from = operand(*d, 0);
            const Prim q = from->type.prim;
            if (q == Prim::i32 || (q == Prim::i64 && (p == Prim::i64 || counts_units(from, 0)))) {
                return index(from, depth + 1);
            }
        }
        if (d->op == Op::add || d->op == Op::sub) {
            const Index x = index(operand(*d, 0), depth + 1), y = index(operand(*d, 1), depth + 1);
            const bool minus = d->op == Op::sub;
            const int64_t constant = int64_t(minus ? uint64_t(x.constant) - uint64_t(y.constant)
                                                   : uint64_t(x.constant) + uint64_t(y.constant));
            if (!y.base) return {x.base, constant};
            if (!x.base && !minus) return {y.base, constant};
            Value* zero = b.getInt64(0);
            Value*& cached = index_cache_[{b.GetInsertBlock(), v}];
            if (!cached) {
                Value* xb = x.base ? x.base : zero;
                cached = minus ? b.CreateSub(xb, y.base, "", false, true)
                               : b.CreateAdd(xb, y.base, "", false, true);
            }
            return {cached, constant};
        }
    }
    Value* x = get(v);
    if (p == Prim::i64 || p == Prim::u64) return {x, 0};
    Value*& cached = extended_[{b.GetInsertBlock(), v}];
    if (!cached) cached = type::is_signed(p) ? b.CreateSExt(x, m.i64) : b.CreateZExt(x, m.i64);
    return {cached, 0};
}

Value* FunctionLowering::index_value(Index i) {
    if (!i.base) return b.getInt64(uint64_t(i.constant));
    return i.constant ? b.CreateAdd(i.base, b.getInt64(uint64_t(i.constant)), "", false, true)
                      : i.base;
}

Value* FunctionLowering::offset(Value* pointer, Index i, int64_t stride) {
    if (i.base) {
        Value* bytes = stride == 1
                           ? i.base
                           : b.CreateMul(i.base, b.getInt64(uint64_t(stride)), "", false, true);
        pointer = b.CreateInBoundsGEP(m.i8, pointer, bytes);
    }
    return pointer;
}

// --- addresses ---------------------------------------------------------------------------------

Value* FunctionLowering::field_address(const Inst& i, int component) {
    const ir::Field& f = *i.field();
    const size_t binding = m.field_binding(&f);
    Value* pointer = at_entry(key(kBinding, binding), [&](Builder& at) {
        Value* bindings = context_member(offsetof(abi::Context, bindings));
        return invariant_load(at, m.ptr, bindings, int64_t(binding) * 8, 8);
    });
    int64_t constant = 0;
    // Outer terms first: their sum is what a loop over the innermost axis keeps.
    for (const ir::Field::Term& t : f.terms_of(component)) {
        Index x = index(operand(i, t.axis));
        x.constant -= f.offset[t.axis];
        if (t.div == 1 && t.mod == 0) {
            constant += x.constant * t.stride;
        } else {
            Value* v = index_value(x);  // not negative where it is in range
            const auto power = [](int64_t n) { return n > 0 && (n & (n - 1)) == 0; };
            if (t.div != 1)
                v = power(t.div) ? b.CreateLShr(v, uint64_t(__builtin_ctzll(uint64_t(t.div))))
                                 : b.CreateUDiv(v, b.getInt64(uint64_t(t.div)));
            if (t.mod != 0)
                v = power(t.mod) ? b.CreateAnd(v, uint64_t(t.mod - 1))
                                 : b.CreateURem(v, b.getInt64(uint64_t(t.mod)));
            x = {v, 0};
        }
        pointer = offset(pointer, x, t.stride);
    }
    return constant ? b.CreateConstInBoundsGEP1_64(m.i8, pointer, uint64_t(constant)) : pointer;
}

Value* FunctionLowering::array_address(Inst& i) {
    const ir::ArrayAccess access = ir::ArrayAccess::unpack(i.imm);
    ir::Value* array = operand(i, 0);
    const int ndim = i.operand_count - 1;
    const int64_t size = i.results[0].type.size_bytes();
    Value* pointer = array_data(array, access.grad);
    Value* outer = nullptr;
    Index last{nullptr, 0};
    for (int level = 0; level < ndim; ++level) {
        const int axis = access.layout ? int(access.layout >> (4 * level) & 15) : level;
        Index x = index(operand(i, 1 + axis));
        if (access.clamp) {
            Value* v = index_value(x);
            Value* top = b.CreateSub(array_extent(array, axis), b.getInt64(1), "", false, true);
            v = b.CreateSelect(b.CreateICmpSLT(v, top), v, top);
            x = {b.CreateSelect(b.CreateICmpSGT(v, b.getInt64(0)), v, b.getInt64(0)), 0};
        }
        if (level + 1 == ndim) {
            last = x;
            if (outer) outer = b.CreateMul(outer, array_extent(array, axis), "", false, true);
        } else if (outer) {
            outer = b.CreateMul(outer, array_extent(array, axis), "", false, true);
            outer = b.CreateAdd(outer, index_value(x), "", false, true);
        } else {
            outer = index_value(x);
        }
    }
    if (outer) pointer = offset(pointer, {outer, 0}, size);
    pointer = offset(pointer, last, size);
    const int64_t constant = last.constant * size;
    return constant ? b.CreateConstInBoundsGEP1_64(m.i8, pointer, uint64_t(constant)) : pointer;
}

void FunctionLowering::lower_place(Inst& i) {
    const Type t = i.results[0].type;
    const int bytes = type::bytes(t.prim);
    switch (i.op) {
        case Op::slot:
            set(i, 0, entry_alloca(m.mem(t.prim), uint64_t(t.count()), bytes));
            return;
        case Op::temp:
            set(i, 0,
                b.CreateConstInBoundsGEP1_64(m.i8, context_member(offsetof(abi::Context, temps)),
                                             i.imm));
            return;
        case Op::partial: {
            Value* base = context_member(offsetof(abi::Context, partials));
            Value* at = offset(base, {get(operand(i, 0)), 0}, int64_t(i.imm >> 32));
            set(i, 0, b.CreateConstInBoundsGEP1_64(m.i8, at, i.imm & 0xffffffff));
            return;
        }
        case Op::field_place:
            set(i, 0, field_address(i, 0));
            return;
        case Op::array_place:
            set(i, 0, array_address(i));
            return;
        case Op::comp_place: {
            const Place base = place(operand(i, 0));
            const Index at = index(operand(i, 1));
            if (!at.base) {
                if (at.constant < 0 ||
                    at.constant >= base.count) {  // undefined: any address of the value
                    set(i, 0, base.address);
                    return;
                }
                set(i, 0, component_address(base, int(at.constant)));
                return;
            }
            const int64_t stride = base.field ? base.field->component_stride() : bytes;
            if (!stride)
                throw support::Error(
                    "a component of '" + base.field->name +
                    "' is chosen at run time but its storage has no constant stride");
            Value* first = component_address(base, 0);
            Value* p = offset(first, at, stride);
            set(i, 0,
                at.constant ? b.CreateConstInBoundsGEP1_64(m.i8, p, uint64_t(at.constant * stride))
                            : p);
            return;
        }
        default:
            return;
    }
}

FunctionLowering::Place FunctionLowering::place(ir::Value* v) {
    const Inst* d = v->def;
    if (!d) throw support::Error("a place as a region parameter is not supported");
    if (ir::info(d->op).kind != ir::Kind::place)
        throw support::Error(std::string("op ") + ir::info(d->op).name + " is no place");
    const uint32_t c = m.prepared.memory.of(m.prepared.plan, v);
    Place p{values_[v->id], v->type.prim, v->type.count(), nullptr, nullptr, c, c == UINT32_MAX};
    if (d->op == Op::field_place) {
        p.field = d->field();
        if (!p.field->uneven_terms.empty()) p.cell = d;
    }
    return p;
}

Value* FunctionLowering::component_address(const Place& p, int k) {
    int64_t bytes = int64_t(k) * type::bytes(p.prim);
    if (p.field) bytes = p.field->component_offsets.empty() ? bytes : p.field->component_offsets[k];
    Value* base = p.cell ? field_address(*p.cell, k) : p.address;
    return bytes ? b.CreateConstInBoundsGEP1_64(m.i8, base, uint64_t(bytes)) : base;
}

Value* FunctionLowering::load_component(const Place& p, int k, bool is_volatile) {
    auto* load = b.CreateAlignedLoad(m.mem(p.prim), component_address(p, k),
                                     llvm::Align(type::bytes(p.prim)), is_volatile);
    if (!p.local) m.tag(load, p.memory_class);
    if (!p.local && !is_volatile && m.prepared.plan.module->options.detect_read_only &&
        !m.prepared.memory.is_written(f.id, p.memory_class))
        load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(m.context, {}));
    return from_memory(p.prim, load);
}

void FunctionLowering::store_component(const Place& p, int k, Value* v) {
    auto* store = b.CreateAlignedStore(to_memory(p.prim, v), component_address(p, k),
                                       llvm::Align(type::bytes(p.prim)));
    if (!p.local) m.tag(store, p.memory_class);
}

// A large tensor that becomes the same all over is filled by a loop: LLVM's time grows faster than
// the number of stores in a row.
constexpr int kLongFill = 64;

void FunctionLowering::fill(const Place& p, Value* v) {
    auto* before = b.GetInsertBlock();
    auto* body = new_block();
    auto* after = new_block();
    b.CreateBr(body);
    b.SetInsertPoint(body);
    auto* at = b.CreatePHI(m.i64, 2);
    at->addIncoming(b.getInt64(0), before);
    auto* store = b.CreateAlignedStore(to_memory(p.prim, v),
                                       b.CreateInBoundsGEP(m.mem(p.prim), p.address, at),
                                       llvm::Align(type::bytes(p.prim)));
    if (!p.local) m.tag(store, p.memory_class);
    Value* next = b.CreateAdd(at, b.getInt64(1), "", true, true);
    at->addIncoming(next, body);
    b.CreateCondBr(b.CreateICmpULT(next, b.getInt64(uint64_t(p.count))), body, after);
    b.SetInsertPoint(after);
}

void FunctionLowering::lower_memory(Inst& i) {
    switch (i.op) {
        case Op::array_shape: {
            Value* extent = array_extent(operand(i, 0), int(i.imm));
            set(i, 0, b.CreateTrunc(extent, m.i32));
            wide_[i.results[0].id] = extent;
            return;
        }
        case Op::address:
            set(i, 0, b.CreatePtrToInt(component_address(place(operand(i, 0)), 0), m.i64));
            return;
        case Op::load:
        case Op::volatile_load: {
            const Place p = place(operand(i, 0));
            for (int k = 0; k < p.count; ++k)
                set(i, k, load_component(p, k, i.op == Op::volatile_load));
            return;
        }
        case Op::store: {
            const Place p = place(operand(i, 0));
            ir::Value* v = operand(i, 1);
            bool same = !p.field && p.count >= kLongFill;
            for (int k = 1; same && k < p.count; ++k) same = get(v, k) == get(v, 0);
            if (same) {
                fill(p, get(v, 0));
                return;
            }
            for (int k = 0; k < p.count; ++k) store_component(p, k, get(v, k));
            return;
        }
        case Op::set_result: {
            ir::Value* v = operand(i, 0);
            Value* base = context_member(offsetof(abi::Context, results));
            const Place p{b.CreateConstInBoundsGEP1_64(
                              m.i8, base, m.prepared.plan.module->result_offset(int(i.imm))),
                          v->type.prim,
                          v->type.count(),
                          nullptr,
                          nullptr,
                          kResults,
                          false};
            for (int k = 0; k < p.count; ++k) store_component(p, k, get(v, k));
            return;
        }
        case Op::thread_index:
            set(i, 0, at_entry(key(kThreadMember, offsetof(abi::Thread, index)), [&](Builder& at) {
                    return invariant_load(at, m.i32, fn->getArg(0), offsetof(abi::Thread, index),
                                          4);
                }));
            return;
        case Op::stack_left: {
            Value* runtime = context_member(offsetof(abi::Context, runtime));
            Value* callee =
                invariant_load(b, m.ptr, runtime, offsetof(abi::Runtime, stack_left), 8);
            Value* left = b.CreateCall(llvm::FunctionType::get(m.i32, {m.ptr}, false), callee,
                                       {fn->getArg(0)});
            set(i, 0, b.CreateICmpNE(left, llvm::ConstantInt::get(m.i32, 0)));
            return;
        }
        case Op::clock: {
            Value* runtime = context_member(offsetof(abi::Context, runtime));
            Value* callee = invariant_load(b, m.ptr, runtime, offsetof(abi::Runtime, clock), 8);
            set(i, 0, b.CreateCall(llvm::FunctionType::get(m.i64, false), callee));
            return;
        }
        case Op::task_value: {
            const auto which = uint32_t(i.imm);
            using ir::TaskValue;
            if (which <= uint32_t(TaskValue::chunk)) {
                set(i, 0, fn->getArg(1 + which));
            } else if (which < uint32_t(TaskValue::bound)) {
                const size_t offset = which == uint32_t(TaskValue::tile)
                                          ? offsetof(abi::Thread, tile)
                                          : offsetof(abi::Thread, tiles);
                set(i, 0, at_entry(key(kThreadMember, offset), [&](Builder& at) {
                        return invariant_load(at, m.i64, fn->getArg(0), int64_t(offset), 8);
                    }));
            } else {
                const uint32_t k = which - uint32_t(TaskValue::bound);
                set(i, 0, at_entry(key(kBound, k), [&](Builder& at) {
                        Value* bounds = context_member(offsetof(abi::Context, bounds));
                        return invariant_load(at, m.i64, bounds, 8 * int64_t(k), 8);
                    }));
            }
            return;
        }
        default:
            throw support::Error(std::string("no memory lowering of ") + ir::info(i.op).name);
    }
}

// --- atomics -----------------------------------------------------------------------------------

namespace {

Value* combine(Scalar& s, Op op, Prim p, Value* old, Value* v) {
    return op == Op::atomic_exchange ? v : s.op(ir::info(op).step, p, old, v);
}

bool one_instruction(Op op, Prim p, llvm::AtomicRMWInst::BinOp& out) {
    using A = llvm::AtomicRMWInst;
    if (op == Op::atomic_exchange && !type::is_float(p)) return out = A::Xchg, true;
    if (type::is_float(p)) return false;
    const bool boolean = p == Prim::u1, s = type::is_signed(p);
    switch (op) {
        case Op::atomic_add:
            return out = A::Add, !boolean;
        case Op::atomic_sub:
            return out = A::Sub, !boolean;
        case Op::atomic_min:
            return out = s ? A::Min : A::UMin, true;
        case Op::atomic_max:
            return out = s ? A::Max : A::UMax, true;
        case Op::atomic_and:
            return out = A::And, true;
        case Op::atomic_or:
            return out = A::Or, true;
        case Op::atomic_xor:
            return out = A::Xor, true;
        default:
            return false;
    }
}

}  // namespace

// Relaxed order, for what iterations see of each other is undefined apart from the value itself;
// but where an atomic may be a lock, plain statements stay between taking and giving it back.
Value* FunctionLowering::atomic_component(Inst& i, const Place& p, int k, Value* v,
                                          Value* desired) {
    if (!locks_) locks_ = ir::may_lock(f);
    const auto order =
        *locks_ ? llvm::AtomicOrdering::SequentiallyConsistent : llvm::AtomicOrdering::Monotonic;
    Value* address = component_address(p, k);
    const llvm::Align align(type::bytes(p.prim));
    llvm::AtomicRMWInst::BinOp rmw;
    if (!desired && one_instruction(i.op, p.prim, rmw)) {
        auto* old = b.CreateAtomicRMW(rmw, address, to_memory(p.prim, v), align, order);
        m.tag(old, p.memory_class);
        return from_memory(p.prim, old);
    }
    llvm::Type* bits = b.getIntNTy(unsigned(8 * type::bytes(p.prim)));
    const auto to_bits = [&](Value* x) {
        x = to_memory(p.prim, x);
        return x->getType() == bits ? x : b.CreateBitCast(x, bits);
    };
    const auto of_bits = [&](Value* x) {
        if (m.mem(p.prim) != bits) x = b.CreateBitCast(x, m.mem(p.prim));
        return from_memory(p.prim, x);
    };
    if (desired) {
        auto* pair =
            b.CreateAtomicCmpXchg(address, to_bits(v), to_bits(desired), align, order, order);
        m.tag(pair, p.memory_class);
        return of_bits(b.CreateExtractValue(pair, 0));
    }
    if (i.op == Op::atomic_exchange) {
        auto* old = b.CreateAtomicRMW(llvm::AtomicRMWInst::Xchg, address, to_bits(v), align, order);
        m.tag(old, p.memory_class);
        return of_bits(old);
    }
    auto* first = b.CreateAlignedLoad(bits, address, align);
    first->setAtomic(order);
    m.tag(first, p.memory_class);
    auto* before = b.GetInsertBlock();
    auto* again = new_block();
    auto* done = new_block();
    b.CreateBr(again);
    start(again);
    auto* old = b.CreatePHI(bits, 2);
    old->addIncoming(first, before);
    Value* replacement = to_bits(combine(scalar, i.op, p.prim, of_bits(old), v));
    auto* pair = b.CreateAtomicCmpXchg(address, old, replacement, align, order, order);
    m.tag(pair, p.memory_class);
    old->addIncoming(b.CreateExtractValue(pair, 0), b.GetInsertBlock());
    b.CreateCondBr(b.CreateExtractValue(pair, 1), done, again);
    start(done);
    return of_bits(old);
}

// Where no other thread can come between (Thread::alone), an atomic is a read and a write.
void FunctionLowering::lower_atomic(Inst& i) {
    const Place p = place(operand(i, 0));
    if (p.local) return lower_atomic(i, p, true);
    if (i.op == Op::volatile_load) return lower_atomic(i, p, false);
    Value* alone = at_entry(key(kThreadMember, offsetof(abi::Thread, alone)), [&](Builder& at) {
        return invariant_load(at, m.i32, fn->getArg(0), offsetof(abi::Thread, alone), 4);
    });
    const int32_t bit = i.flags & ir::kPrivateField ? abi::kAloneInPrivate : abi::kAlone;
    Value* quick = at_entry(key(kAloneBit, uint64_t(bit)), [&](Builder& at) {
        return at.CreateICmpNE(at.CreateAnd(alone, uint64_t(bit)), at.getInt32(0));
    });
    auto *plain = new_block(), *locked = new_block(), *done = new_block();
    b.CreateCondBr(quick, plain, locked);
    llvm::SmallVector<std::pair<Value*, llvm::BasicBlock*>> olds;
    for (auto* side : {plain, locked}) {
        start(side);
        lower_atomic(i, p, side == plain);
        for (int k = 0; k < p.count; ++k)
            olds.push_back({values_[i.results[0].id + uint32_t(k)], b.GetInsertBlock()});
        b.CreateBr(done);
    }
    start(done);
    for (int k = 0; k < p.count; ++k) {
        const auto &x = olds[size_t(k)], &y = olds[size_t(p.count + k)];
        auto* phi = b.CreatePHI(x.first->getType(), 2);
        phi->addIncoming(x.first, x.second);
        phi->addIncoming(y.first, y.second);
        set(i, k, phi);
    }
}

void FunctionLowering::lower_atomic(Inst& i, const Place& p, bool plain) {
    ir::Value* v = operand(i, 1);
    for (int k = 0; k < p.count; ++k) {
        Value* old;
        if (i.op == Op::atomic_cas) {
            Value *expected = get(v, k), *desired = get(operand(i, 2), k);
            if (plain) {
                old = load_component(p, k);
                Value* equal = type::is_float(p.prim) ? scalar.op(Op::eq, p.prim, old, expected)
                                                      : b.CreateICmpEQ(old, expected);
                store_component(p, k, b.CreateSelect(equal, desired, old));
            } else {
                old = atomic_component(i, p, k, expected, desired);
            }
        } else if (plain) {
            old = load_component(p, k);
            store_component(p, k, combine(scalar, i.op, p.prim, old, get(v, k)));
        } else {
            old = atomic_component(i, p, k, get(v, k), nullptr);
        }
        set(i, k, old);
    }
}

// --- random numbers (ir/random.h in LLVM) ------------------------------------------------------

Value* FunctionLowering::mix(Value* x) {
    const auto step = [&](Value* v, int shift) {
        return b.CreateXor(v, b.CreateLShr(v, uint64_t(shift)));
    };
    x = b.CreateMul(step(x, 30), b.getInt64(0xbf58476d1ce4e5b9));
    x = b.CreateMul(step(x, 27), b.getInt64(0x94d049bb133111eb));
    return step(x, 31);
}

void FunctionLowering::lower_prefetch(Inst& i) {
    Value* read = b.getInt32(0);
    Value* keep = b.getInt32(3);  // in all levels of cache
    Value* data = b.getInt32(1);
    llvm::Value* address = place(operand(i, 0)).address;
    b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()}, {address, read, keep, data});
}

void FunctionLowering::lower_seed(Inst& i) {
    Value* launch = at_entry(key(kContext, offsetof(abi::Context, launch_key)), [&](Builder& at) {
        context_member(offsetof(abi::Context, runtime));  // makes the context itself known
        return invariant_load(at, m.i64, entry_values_.at(key(kContext, ~0u)),
                              offsetof(abi::Context, launch_key), 8);
    });
    Value* stream = mix(b.CreateAdd(launch, b.getInt64((i.imm + 1) * ir::kRandomStep)));
    Value* iteration = b.CreateAdd(get(operand(i, 0)), b.getInt64(1));
    Value* k = mix(b.CreateAdd(stream, b.CreateMul(iteration, b.getInt64(ir::kRandomStep))));
    const auto store = [&](Value* v, size_t offset) {
        m.tag(b.CreateAlignedStore(v, b.CreateConstInBoundsGEP1_64(m.i8, fn->getArg(0), offset),
                                   llvm::Align(8)),
              kThread);
    };
    store(k, offsetof(abi::Thread, random_key));
    store(b.getInt64(0), offsetof(abi::Thread, random_draw));
}

void FunctionLowering::lower_random(Inst& i) {
    const auto at = [&](size_t offset) {
        return b.CreateConstInBoundsGEP1_64(m.i8, fn->getArg(0), offset);
    };
    auto* k = b.CreateAlignedLoad(m.i64, at(offsetof(abi::Thread, random_key)), llvm::Align(8));
    auto* draw = b.CreateAlignedLoad(m.i64, at(offsetof(abi::Thread, random_draw)), llvm::Align(8));
    m.tag(k, kThread);
    m.tag(draw, kThread);
    Value* next = b.CreateAdd(draw, b.getInt64(1));
    m.tag(b.CreateAlignedStore(next, at(offsetof(abi::Thread, random_draw)), llvm::Align(8)),
          kThread);
    Value* r = mix(b.CreateAdd(k, b.CreateMul(next, b.getInt64(ir::kRandomStep))));
    const Prim p = i.results[0].type.prim;
    const auto scaled = [&](llvm::Type* t, int drop, double factor) {
        // The kept bits fit a signed integer, whose conversion every CPU has.
        return b.CreateFMul(b.CreateSIToFP(b.CreateLShr(r, uint64_t(drop)), t),
                            llvm::ConstantFP::get(t, factor));
    };
    switch (p) {
        case Prim::f32:
            set(i, 0, scaled(m.f32, 40, 0x1p-24));
            return;
        case Prim::f64:
            set(i, 0, scaled(m.f64, 11, 0x1p-53));
            return;
        case Prim::f16:
            set(i, 0, scalar.narrow(scaled(m.f32, 40, 0x1p-24)));
            return;
        case Prim::u1:
            set(i, 0, b.CreateTrunc(b.CreateLShr(r, uint64_t(63)), m.i1));
            return;
        case Prim::i64:
        case Prim::u64:
            set(i, 0, r);
            return;
        default:
            set(i, 0, b.CreateTrunc(b.CreateLShr(r, uint64_t(32)), m.reg(p)));
            return;
    }
}

// --- print and assert --------------------------------------------------------------------------

void FunctionLowering::lower_text(Inst& i) {
    const bool is_assert = i.op == Op::assert_;
    llvm::BasicBlock* after = nullptr;
    if (is_assert) {
        auto* failed = new_block();
        after = new_block();
        auto* weights = llvm::MDBuilder(m.context).createBranchWeights(1 << 20, 1);
        b.CreateCondBr(get(operand(i, 0)), after, failed, weights);
        start(failed);
    }
    int count = 0;
    for (int k = is_assert; k < i.operand_count; ++k) count += operand(i, k)->type.count();
    auto* cells = scratch(m.i64, uint64_t(count ? count : 1), 8, 0);
    int at = 0;
    for (int k = is_assert; k < i.operand_count; ++k) {
        ir::Value* v = operand(i, k);
        const Prim p = v->type.prim;
        for (int c = 0; c < v->type.count(); ++c, ++at) {
            Value* x = get(v, c);
            if (type::is_float(p))
                x = p == Prim::f64 ? x : b.CreateFPExt(x, m.f64);
            else
                x = type::is_signed(p) ? b.CreateSExt(x, m.i64) : b.CreateZExt(x, m.i64);
            b.CreateAlignedStore(x, b.CreateConstInBoundsGEP1_64(m.i64, cells, uint64_t(at)),
                                 llvm::Align(8));
        }
    }
    Value* runtime = context_member(offsetof(abi::Context, runtime));
    const size_t member = is_assert ? offsetof(abi::Runtime, fail) : offsetof(abi::Runtime, print);
    Value* callee = invariant_load(b, m.ptr, runtime, int64_t(member), 8);
    auto* type = llvm::FunctionType::get(m.void_, {m.ptr, m.i32, m.ptr}, false);
    auto* call =
        b.CreateCall(type, callee, {fn->getArg(0), b.getInt32(m.prepared.formats.at(&i)), cells});
    call->addFnAttr(llvm::Attribute::NoUnwind);
    if (is_assert) {
        call->setDoesNotReturn();
        call->addFnAttr(llvm::Attribute::Cold);
        b.CreateUnreachable();
        start(after);
    }
}

}  // namespace qd::codegen
