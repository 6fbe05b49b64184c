// Memory: loads, stores and atomics at the addresses that pass lower_places made, print and assert.
//
// What a launch fixes (base addresses, array extents, argument values) is loaded once at the
// function's entry, as invariant.

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include "codegen/llvm/lower.h"

namespace qd::codegen {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

// --- what a function computes once, at its entry -----------------------------------------------

namespace {
enum Kind : uint64_t {
    kContext = 1,
    kBinding,
    kArray,
    kArrayGrad,
    kExtent,
    kParameter,
    kThreadMember,
    kBound
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

Value* FunctionLowering::context_member(size_t offset, llvm::Type* type) {
    Value* context = at_entry(key(kContext, ~0u), [&](Builder& at) {
        return invariant_load(at, m.ptr, fn->getArg(0), offsetof(abi::Thread, context), 8);
    });
    return at_entry(key(kContext, offset), [&](Builder& at) {
        return invariant_load(at, type ? type : m.ptr, context, int64_t(offset), 8);
    });
}

Value* FunctionLowering::block(Block which) {
    if (m.gpu) return gpu_block(which);
    static constexpr size_t members[] = {
        offsetof(abi::Context, temps), offsetof(abi::Context, partials),
        offsetof(abi::Context, results), offsetof(abi::Context, bounds)};
    return context_member(members[size_t(which)]);
}

// Where a piece of the argument block, or a base address, lies.
std::pair<Value*, int64_t> FunctionLowering::given(pass::Input::Kind kind, uint32_t from) {
    if (m.gpu) {
        const uint32_t at = m.record_of(f).at(kind, from);
        return {launch_record(), int64_t(sizeof(abi::DeviceLaunch)) + at};
    }
    if (kind == pass::Input::Kind::binding)
        return {context_member(offsetof(abi::Context, bindings)), int64_t{from} * 8};
    return {context_member(offsetof(abi::Context, args)), from};
}

Value* FunctionLowering::open_calls() {
    return m.gpu ? b.CreateConstInBoundsGEP1_64(m.i64, thread_record(), 3)
                 : b.CreateConstInBoundsGEP1_64(m.i8, fn->getArg(0), offsetof(abi::Thread, calls));
}

Value* FunctionLowering::launch_key() {
    return m.gpu ? launch_word(offsetof(abi::DeviceLaunch, launch_key), m.i64)
                 : context_member(offsetof(abi::Context, launch_key), m.i64);
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
        const auto [args, offset] = given(pass::Input::Kind::argument, p.offset);
        if (v->type.is_array()) return at.CreateConstInBoundsGEP1_64(m.i8, args, uint64_t(offset));
        const Prim prim = v->type.prim;
        Value* x = invariant_load(at, m.mem(prim), args, offset + int64_t(k) * type::bytes(prim),
                                  type::bytes(prim));
        return prim == Prim::u1 ? at.CreateICmpNE(x, llvm::ConstantInt::get(m.i8, 0)) : x;
    });
}

Value* FunctionLowering::array_data(ir::Value* array, bool grad) {
    Value* descriptor = get(array);
    return at_entry(key(grad ? kArrayGrad : kArray, array->id), [&](Builder& at) {
        const size_t offset = grad ? offsetof(ir::ArrayDesc, grad) : offsetof(ir::ArrayDesc, data);
        return invariant_load(at, m.memory, descriptor, int64_t(offset), 8);
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

// --- places --------------------------------------------------------------------------------------

void FunctionLowering::lower_place(Inst& i) {
    const Type t = i.results[0].type;
    const auto further = [&](Value* p, int64_t bytes) {
        return bytes ? b.CreateConstInBoundsGEP1_64(m.i8, p, uint64_t(bytes)) : p;
    };
    const auto times = [&](Value* p, Value* n, int64_t stride) {
        if (stride != 1) n = b.CreateMul(n, b.getInt64(uint64_t(stride)), "", false, true);
        return b.CreateInBoundsGEP(m.i8, p, n);
    };
    switch (i.op) {
        case Op::slot:
            return set(i, 0, entry_alloca(m.mem(t.prim), uint64_t(t.count()), type::bytes(t.prim)));
        case Op::temp:
            return set(i, 0, b.CreateConstInBoundsGEP1_64(m.i8, block(Block::temps), i.imm));
        case Op::partial: {
            Value* base = block(Block::partials);
            Value* at = times(base, get(operand(i, 0)), int64_t(i.imm >> 32));
            return set(i, 0, b.CreateConstInBoundsGEP1_64(m.i8, at, i.imm & 0xffffffff));
        }
        case Op::thread_word: {
            const size_t words[] = {offsetof(abi::Thread, random_key),
                                    offsetof(abi::Thread, random_draw)};
            if (m.gpu)
                return set(i, 0, b.CreateConstInBoundsGEP1_64(m.i64, thread_record(), 1 + i.imm));
            return set(i, 0, b.CreateConstInBoundsGEP1_64(m.i8, fn->getArg(0), words[i.imm]));
        }
        case Op::tape: {
            if (m.gpu)
                return set(i, 0,
                           tape_on_gpu(get(operand(i, 0)), type::bytes(i.result()->type.prim)));
            Value* base =
                at_entry(key(kThreadMember, offsetof(abi::Thread, tape)), [&](Builder& at) {
                    return invariant_load(at, m.memory, fn->getArg(0), offsetof(abi::Thread, tape),
                                          8);
                });
            return set(i, 0, times(base, get(operand(i, 0)), 1));
        }
        case Op::field_base: {
            const size_t binding = m.field_binding(i.field());
            return set(i, 0, at_entry(key(kBinding, binding), [&](Builder& at) {
                           const auto [bindings, offset] =
                               given(pass::Input::Kind::binding, uint32_t(binding));
                           return invariant_load(at, m.memory, bindings, offset, 8);
                       }));
        }
        case Op::array_base:
            return set(i, 0, array_data(operand(i, 0), i.imm != 0));
        case Op::shared_place:
            if (!m.gpu) throw support::Error("a shared array on a target without blocks");
            return set(i, 0, m.shared_array(i.imm, t.value()));
        case Op::displace: {
            Value* base = get(operand(i, 0));
            if (i.operand_count == 1) return set(i, 0, further(base, int64_t(i.imm)));
            return set(i, 0, times(base, get(operand(i, 1)), int64_t(i.imm)));
        }
        default:
            throw support::Error(std::string("no address of ") + ir::info(i.op).name);
    }
}

FunctionLowering::Place FunctionLowering::place(ir::Value* v) {
    if (!v->def) throw support::Error("a place as a region parameter is not supported");
    const uint32_t c = m.prepared.memory.of(m.prepared.plan, v);
    return {get(v), v->type.prim, v->type.count(), c, c == UINT32_MAX};
}

Value* FunctionLowering::component_address(const Place& p, int k) {
    const int64_t bytes = int64_t(k) * type::bytes(p.prim);
    return bytes ? b.CreateConstInBoundsGEP1_64(m.i8, p.address, uint64_t(bytes)) : p.address;
}

// `ordered`: by who may wait for its turn; what stands behind stays there. For a GPU volatile means
// that hosts and other devices may look, which costs a microsecond where it is ordered as well.
Value* FunctionLowering::load_component(const Place& p, int k, bool is_volatile, bool ordered) {
    using llvm::AtomicOrdering;
    auto* load = b.CreateAlignedLoad(m.mem(p.prim), component_address(p, k),
                                     llvm::Align(type::bytes(p.prim)), is_volatile && !m.gpu);
    if (ordered)
        load->setAtomic(m.gpu ? AtomicOrdering::Acquire : AtomicOrdering::SequentiallyConsistent,
                        m.scope());
    else if (is_volatile && m.gpu)
        load->setAtomic(AtomicOrdering::Monotonic, m.scope());
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

void FunctionLowering::lower_memory(Inst& i) {
    switch (i.op) {
        case Op::array_extent:
            return set(i, 0, array_extent(operand(i, 0), int(i.imm)));
        case Op::address:
            set(i, 0, b.CreatePtrToInt(get(operand(i, 0)), m.i64));
            return;
        case Op::load:
        case Op::volatile_load: {
            const Place p = place(operand(i, 0));
            for (int k = 0; k < p.count; ++k)
                set(i, k, load_component(p, k, i.op == Op::volatile_load, i.flags & ir::kOrdered));
            return;
        }
        case Op::store: {
            const Place p = place(operand(i, 0));
            ir::Value* v = operand(i, 1);
            for (int k = 0; k < p.count; ++k) store_component(p, k, get(v, k));
            return;
        }
        case Op::set_result: {
            ir::Value* v = operand(i, 0);
            Value* base = block(Block::results);
            const Place p{b.CreateConstInBoundsGEP1_64(
                              m.i8, base, m.prepared.plan.module->result_offset(int(i.imm))),
                          v->type.prim, v->type.count(), kResults, false};
            for (int k = 0; k < p.count; ++k) store_component(p, k, get(v, k));
            return;
        }
        case Op::thread_index:
            if (m.gpu) return set(i, 0, thread_number(ir::ThreadNumber(i.imm)));
            if (i.imm) throw support::Error("the number in a block on a target without blocks");
            set(i, 0, at_entry(key(kThreadMember, offsetof(abi::Thread, index)), [&](Builder& at) {
                    return invariant_load(at, m.i32, fn->getArg(0), offsetof(abi::Thread, index),
                                          4);
                }));
            return;
        case Op::tape_bytes:
            if (m.gpu)
                return set(i, 0, launch_word(offsetof(abi::DeviceLaunch, tape_bytes), m.i64));
            set(i, 0,
                at_entry(key(kThreadMember, offsetof(abi::Thread, tape_bytes)), [&](Builder& at) {
                    return invariant_load(at, m.i64, fn->getArg(0),
                                          offsetof(abi::Thread, tape_bytes), 8);
                }));
            return;
        case Op::block_fold:
            set(i, 0,
                b.CreateCall(m.fold_helper(Op(i.imm), operand(i, 0)->type.prim),
                             {get(operand(i, 0))}));
            return;
        case Op::stack_left: {
            if (m.gpu) return set(i, 0, has_stack_on_gpu());
            Value* runtime = context_member(offsetof(abi::Context, runtime));
            Value* callee =
                invariant_load(b, m.ptr, runtime, offsetof(abi::Runtime, stack_left), 8);
            Value* left = b.CreateCall(llvm::FunctionType::get(m.i32, {m.ptr}, false), callee,
                                       {fn->getArg(0)});
            set(i, 0, b.CreateICmpNE(left, llvm::ConstantInt::get(m.i32, 0)));
            return;
        }
        case Op::clock: {
            if (m.gpu) {
                set(i, 0, b.CreateIntrinsic(m.i64, Intrinsic::readcyclecounter, {}));
                return;
            }
            Value* runtime = context_member(offsetof(abi::Context, runtime));
            Value* callee = invariant_load(b, m.ptr, runtime, offsetof(abi::Runtime, clock), 8);
            set(i, 0, b.CreateCall(llvm::FunctionType::get(m.i64, false), callee));
            return;
        }
        case Op::task_value: {
            const auto which = uint32_t(i.imm);
            using ir::TaskValue;
            if (m.gpu &&
                (which <= uint32_t(TaskValue::chunk) || which == uint32_t(TaskValue::in_block))) {
                set(i, 0, grid_value(TaskValue(which)));
            } else if (which <= uint32_t(TaskValue::chunk)) {
                set(i, 0, fn->getArg(1 + which));
            } else if (which < uint32_t(TaskValue::bound)) {
                const size_t offset = which == uint32_t(TaskValue::tile)
                                          ? offsetof(abi::Thread, tile)
                                          : offsetof(abi::Thread, tiles);
                set(i, 0, at_entry(key(kThreadMember, offset), [&](Builder& at) {
                        return invariant_load(at, m.i64, fn->getArg(0), int64_t(offset), 8);
                    }));
            } else if (which == uint32_t(TaskValue::alone)) {
                const size_t offset = offsetof(abi::Thread, alone);
                set(i, 0, at_entry(key(kThreadMember, offset), [&](Builder& at) {
                        return at.CreateZExt(
                            invariant_load(at, m.i32, fn->getArg(0), int64_t(offset), 4), m.i64);
                    }));
            } else if (which == uint32_t(TaskValue::launch_key)) {
                set(i, 0, launch_key());
            } else {
                const uint32_t k = which - uint32_t(TaskValue::bound);
                set(i, 0, at_entry(key(kBound, k), [&](Builder& at) {
                        Value* bounds = block(Block::bounds);
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

llvm::AtomicRMWInst::BinOp instruction_of(Op op, Prim p) {
    using A = llvm::AtomicRMWInst;
    const bool is_signed = type::is_signed(p);
    if (type::is_float(p)) return A::FAdd;  // Target::float_adds
    switch (op) {
        case Op::atomic_add:
            return A::Add;
        case Op::atomic_sub:
            return A::Sub;
        case Op::atomic_min:
            return is_signed ? A::Min : A::UMin;
        case Op::atomic_max:
            return is_signed ? A::Max : A::UMax;
        case Op::atomic_and:
            return A::And;
        case Op::atomic_or:
            return A::Or;
        case Op::atomic_xor:
            return A::Xor;
        case Op::atomic_exchange:
            return A::Xchg;
        default:
            throw support::Error(std::string("no instruction for ") + ir::info(op).name);
    }
}

}  // namespace

// What pass lower_atomics left together: nobody asks what was there. Where the first element lies
// only the launch knows; the others follow in steps of their size, so threads go the same way.
void FunctionLowering::add_together(Inst& i, const Place& p) {
    std::vector<Value*> arguments{p.address};
    std::string all = "{", apart, constraints = "l";
    for (int k = 0; k < p.count; ++k) {
        const std::string of = "$" + std::to_string(k + 1);
        arguments.push_back(get(operand(i, 1), k));
        all += (k ? ", " : "") + of;
        apart += " @!even red.relaxed.gpu.global.add.f32 [$0+" + std::to_string(4 * k) + "], " +
                 of + ";";
        constraints += ",f";
    }
    const std::string count = std::to_string(p.count), odd = std::to_string(4 * p.count - 1);
    const std::string text = "{ .reg .pred even; .reg .b64 rest; and.b64 rest, $0, " + odd +
                             "; setp.eq.u64 even, rest, 0;" + apart +
                             " @even red.relaxed.gpu.global.add.v" + count + ".f32 [$0], " + all +
                             "}; }";
    std::vector<llvm::Type*> types;
    for (const Value* v : arguments) types.push_back(v->getType());
    auto* type = llvm::FunctionType::get(m.void_, types, false);
    auto* add = b.CreateCall(llvm::InlineAsm::get(type, text, constraints + ",~{memory}",
                                                  /*hasSideEffects=*/true),
                             arguments);
    add->addFnAttr(llvm::Attribute::NoUnwind);
    m.tag(add, p.memory_class);
    for (int k = 0; k < p.count; ++k) set(i, k, llvm::PoisonValue::get(m.f32));
}

// Of integers, and additions of floats: what else there is pass lower_atomics has written out.
void FunctionLowering::lower_atomic(Inst& i) {
    const Place p = place(operand(i, 0));
    if (p.count > 1 && type::is_float(p.prim)) return add_together(i, p);
    const auto order = i.flags & ir::kOrdered ? llvm::AtomicOrdering::SequentiallyConsistent
                                              : llvm::AtomicOrdering::Monotonic;
    const llvm::Align align(type::bytes(p.prim));
    // LLVM 22 takes NVPTX's atomics but compare and swap for relaxed ones.
    const bool fenced = m.gpu && i.flags & ir::kOrdered && i.op != Op::atomic_cas;
    const auto scope = m.scope();
    if (fenced) b.CreateFence(order, scope);
    for (int k = 0; k < p.count; ++k) {
        Value *address = component_address(p, k), *v = get(operand(i, 1), k);
        if (i.op == Op::atomic_cas) {
            auto* pair = b.CreateAtomicCmpXchg(address, v, get(operand(i, 2), k), align, order,
                                               order, scope);
            m.tag(pair, p.memory_class);
            swaps_[i.result()] = pair;
            set(i, k, b.CreateExtractValue(pair, 0));
        } else {
            auto* old =
                b.CreateAtomicRMW(instruction_of(i.op, p.prim), address, v, align, order, scope);
            m.tag(old, p.memory_class);
            set(i, k, old);
        }
    }
    if (fenced) b.CreateFence(order, scope);
}

void FunctionLowering::lower_prefetch(Inst& i) {
    Value* read = b.getInt32(0);
    Value* keep = b.getInt32(3);  // in all levels of cache
    Value* data = b.getInt32(1);
    llvm::Value* address = get(operand(i, 0));
    b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()}, {address, read, keep, data});
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
    // LLVM compares each store with each to join them, unless they are volatile.
    constexpr int kFewCells = 64;
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
                                 llvm::Align(8), /*isVolatile=*/count > kFewCells);
        }
    }
    if (m.gpu) {
        speak_on_gpu(i, cells, count);
        if (is_assert) start(after);
        return;
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
