// What is different on a GPU: entries of kernels, what a launch hands them, checks and prints, and
// what the threads of a block do together.
//
// A task is a kernel whose parameter is an abi::DeviceLaunch. Memory outside a function has address
// space 1. Callees get the address of a record of their thread: where the launch is described, and
// the random stream.

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "codegen/llvm/lower.h"

namespace qd::codegen {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

namespace {
enum Key : uint64_t {  // of what a function computes at its entry, beside those of a CPU
    kRecord = uint64_t{100} << 56,
    kThreadRecord = uint64_t{101} << 56,
    kWord = uint64_t{102} << 56,
    kBounds = uint64_t{103} << 56,
    kGrid = uint64_t{104} << 56
};

// Where the condition lies of the innermost loop of tasks around; -1: there is none.
int32_t flag_around(const pass::Plan& plan, const ir::Function& f) {
    for (const pass::Task& t : plan.tasks) {
        if (t.body != &f && t.finish != &f) continue;
        for (int g = t.group; g >= 0; g = plan.groups[size_t(g)].parent)
            if (ir::info(plan.groups[size_t(g)].op).repeats) return plan.groups[size_t(g)].flag;
    }
    return -1;
}

Value* special(Builder& b, Intrinsic::ID id) { return b.CreateIntrinsic(b.getInt32Ty(), id, {}); }
}  // namespace

llvm::Function* ModuleLowering::new_kernel(const std::string& name, int threads,
                                           const pass::Record& record) {
    const size_t bytes = sizeof(abi::DeviceLaunch) + record.bytes;
    const bool in_memory = bytes > abi::kMostDeviceLaunch;
    auto* f = new_function(llvm::FunctionType::get(void_, {in_memory ? memory : ptr}, false), name);
    f->setLinkage(llvm::GlobalValue::ExternalLinkage);
    f->setCallingConv(llvm::CallingConv::PTX_Kernel);
    f->addFnAttr("nvvm.maxntid", std::to_string(threads));
    if (in_memory) return f;
    auto* type = llvm::ArrayType::get(i8, bytes);
    f->addParamAttr(0, llvm::Attribute::getWithByValType(context, type));
    f->addParamAttr(0, llvm::Attribute::getWithAlignment(context, llvm::Align(8)));
    f->addParamAttr(0, llvm::Attribute::get(context, "nvvm.grid_constant"));
    return f;
}

Value* FunctionLowering::launch_record() {
    if (is_task_) return fn->getArg(0);
    return at_entry(kRecord,
                    [&](Builder& at) { return invariant_load(at, m.ptr, fn->getArg(0), 0, 8); });
}

Value* FunctionLowering::launch_word(size_t offset, llvm::Type* type) {
    Value* record = launch_record();
    return at_entry(kWord + offset, [&](Builder& at) {
        return invariant_load(at, type, record, int64_t(offset), 8);
    });
}

Value* FunctionLowering::gpu_block(Block which) {
    switch (which) {
        case Block::temps:
            return launch_word(offsetof(abi::DeviceLaunch, temps), m.memory);
        case Block::partials:
            return launch_word(offsetof(abi::DeviceLaunch, partials), m.memory);
        case Block::results:
            return launch_word(offsetof(abi::DeviceLaunch, results), m.memory);
        case Block::bounds: {
            Value* record = launch_record();
            return at_entry(kBounds, [&](Builder& at) {
                return at.CreateConstInBoundsGEP1_64(m.i8, record,
                                                     offsetof(abi::DeviceLaunch, bounds));
            });
        }
    }
    return nullptr;
}

// Words lie side by side, of 32 threads: what those keep at one offset need not be of one size, so
// all words are as large as the largest number.
Value* FunctionLowering::tape_on_gpu(Value* offset, int size) {
    Value* tape = launch_word(offsetof(abi::DeviceLaunch, tape), m.memory);
    Value* each = launch_word(offsetof(abi::DeviceLaunch, tape_bytes), m.i64);
    Value* thread = grid_value(ir::TaskValue::begin);
    Value* lane = b.CreateAnd(thread, b.getInt64(31));
    Value* group =
        b.CreateMul(b.CreateSub(thread, lane), b.CreateAdd(each, b.getInt64(abi::kTapeHeader)));
    const uint64_t bytes = m.prepared.plan.wide_tape ? 8 : 4;
    const auto aside = [&](Value* v) { return b.CreateMul(v, b.getInt64(32)); };
    Value* mine =
        b.CreateInBoundsGEP(m.i8, tape, b.CreateAdd(group, b.CreateMul(lane, b.getInt64(bytes))));
    if (uint64_t(size) >= bytes) return b.CreateInBoundsGEP(m.i8, mine, aside(offset));  // aligned
    Value* in_word = b.CreateAnd(offset, b.getInt64(bytes - 1));
    Value* word = aside(b.CreateSub(offset, in_word));
    return b.CreateInBoundsGEP(m.i8, mine, b.CreateAdd(word, in_word));
}

Value* FunctionLowering::thread_record() {
    if (!is_task_) return fn->getArg(0);
    Value* record = launch_record();
    return at_entry(kThreadRecord, [&](Builder& at) {
        Value* out = entry_alloca(m.i64, 4, 8);
        at.CreateAlignedStore(at.CreateAddrSpaceCast(record, m.ptr), out, llvm::Align(8));
        at.CreateAlignedStore(llvm::ConstantPointerNull::get(m.ptr),
                              at.CreateConstInBoundsGEP1_64(m.i64, out, 3), llvm::Align(8));
        return out;
    });
}

Value* FunctionLowering::grid_value(ir::TaskValue which) {
    return at_entry(kGrid + uint64_t(which), [&](Builder& at) -> Value* {
        const auto number = [&](Intrinsic::ID id) {
            return at.CreateZExt(special(at, id), m.i64, "", /*IsNonNeg=*/true);
        };
        const auto times_block = [&](Intrinsic::ID id) {
            return at.CreateMul(number(id), number(Intrinsic::nvvm_read_ptx_sreg_ntid_x), "", true,
                                true);
        };
        switch (which) {
            case ir::TaskValue::begin:
                return at.CreateAdd(times_block(Intrinsic::nvvm_read_ptx_sreg_ctaid_x),
                                    number(Intrinsic::nvvm_read_ptx_sreg_tid_x), "", true, true);
            case ir::TaskValue::end:
                return times_block(Intrinsic::nvvm_read_ptx_sreg_nctaid_x);
            case ir::TaskValue::chunk:
                return number(Intrinsic::nvvm_read_ptx_sreg_ctaid_x);
            default:
                return number(Intrinsic::nvvm_read_ptx_sreg_tid_x);
        }
    });
}

Value* FunctionLowering::thread_number(ir::ThreadNumber which) {
    switch (which) {
        case ir::ThreadNumber::thread:
            return b.CreateTrunc(grid_value(ir::TaskValue::begin), m.i32);
        case ir::ThreadNumber::in_block:
            return special(b, Intrinsic::nvvm_read_ptx_sreg_tid_x);
        case ir::ThreadNumber::lane:
            return special(b, Intrinsic::nvvm_read_ptx_sreg_laneid);
    }
    return nullptr;
}

// A check that failed in an earlier task of the launch ends it.
void FunctionLowering::leave_if_failed() {
    if (m.prepared.formats.empty()) return;
    Value* report = launch_word(offsetof(abi::DeviceLaunch, report), m.memory);
    Value* failed = b.CreateAlignedLoad(m.i32, report, llvm::Align(4), /*isVolatile=*/true);
    leave_if(b.CreateICmpNE(failed, b.getInt32(0)));
}

void FunctionLowering::leave_if(Value* condition) {
    auto* leave = new_block();
    auto* stay = new_block();
    b.CreateCondBr(condition, leave, stay);
    start(leave);
    b.CreateRetVoid();
    start(stay);
}

// See DeviceLaunch::gated.
void FunctionLowering::leave_behind_loop(const ir::Function& f) {
    const int32_t flag = flag_around(m.prepared.plan, f);
    if (flag < 0) return;
    auto* ask = new_block();
    auto* stay = new_block();
    Value* gated = launch_word(offsetof(abi::DeviceLaunch, gated), m.i64);
    b.CreateCondBr(b.CreateICmpEQ(gated, b.getInt64(0)), stay, ask);
    start(ask);
    Value* at = b.CreateConstInBoundsGEP1_64(m.i8, gpu_block(Block::temps), uint64_t(flag));
    Value* again = b.CreateAlignedLoad(m.i32, at, llvm::Align(4), /*isVolatile=*/true);
    leave_if(b.CreateICmpEQ(again, b.getInt32(0)));
    b.CreateBr(stay);
    start(stay);
}

// The task may have been started while the one in front of it ran. Assembly, since nothing that
// touches memory may move to the other side of it. The next may come once all blocks of this one
// are there, if these leave it room: it waits in turn. Beyond that it would take theirs.
void FunctionLowering::wait_for_task_before() {
    if (!m.target.waits_itself) return;
    constexpr uint32_t kFewThreads = 1024 * 128;
    llvm::BasicBlock& entry = fn->getEntryBlock();
    Builder at(&entry, entry.getFirstNonPHIOrDbgOrAlloca());
    auto* type = llvm::FunctionType::get(m.void_, {m.i32, m.i32}, false);
    constexpr const char* kText =
        "griddepcontrol.wait;\n\t"
        ".reg .pred few; setp.le.u32 few, $0, $1; @few griddepcontrol.launch_dependents;";
    at.CreateCall(llvm::InlineAsm::get(type, kText, "r,n,~{memory}", /*hasSideEffects=*/true),
                  {at.CreateMul(special(at, Intrinsic::nvvm_read_ptx_sreg_nctaid_x),
                                special(at, Intrinsic::nvvm_read_ptx_sreg_ntid_x)),
                   at.getInt32(kFewThreads)});
}

// A thread's stack grows down from the frame of its task, which has the thread's record.
Value* FunctionLowering::has_stack_on_gpu() {
    if (is_task_) return b.getTrue();
    constexpr uint64_t kReserve = 1536;  // for frames of what asks no more
    const auto local = [&](Value* p) {
        constexpr unsigned kLocalSpace = 5;
        auto* type = llvm::PointerType::get(m.context, kLocalSpace);
        return b.CreatePtrToInt(b.CreateAddrSpaceCast(p, type), m.i64);
    };
    Value* used = b.CreateSub(local(fn->getArg(0)), local(entry_alloca(m.i32, 1, 4)));
    Value* there = launch_word(offsetof(abi::DeviceLaunch, stack_bytes), m.i64);
    return b.CreateICmpULT(b.CreateAdd(used, b.getInt64(kReserve)), there);
}

// The host looks at the word instead of asking the driver.
void FunctionLowering::say_done() {
    const pass::Plan& plan = m.prepared.plan;
    if (!m.gpu || !is_task_ || !plan.module->result_bytes()) return;
    const pass::Task& last = plan.tasks.back();
    if (last.kind != abi::TaskKind::serial || fn != m.functions[last.body->id]) return;
    Value* done = launch_word(offsetof(abi::DeviceLaunch, done), m.memory);
    auto* say = new_block();
    auto* leave = new_block();
    b.CreateCondBr(b.CreateIsNull(done), leave, say);
    start(say);
    auto* store = b.CreateAlignedStore(launch_word(offsetof(abi::DeviceLaunch, launch), m.i64),
                                       done, llvm::Align(8));
    store->setAtomic(llvm::AtomicOrdering::Release, llvm::SyncScope::System);
    b.CreateBr(leave);
    start(leave);
}

void FunctionLowering::speak_on_gpu(Inst& i, Value* cells, int count) {
    const bool fails = i.op == Op::assert_;
    const size_t to =
        fails ? offsetof(abi::DeviceLaunch, report) : offsetof(abi::DeviceLaunch, prints);
    Value* buffer = launch_word(to, m.memory);
    b.CreateCall(fails ? m.report_helper() : m.print_helper(),
                 {buffer, b.getInt32(m.prepared.formats.at(&i)), b.getInt32(uint32_t(count)), cells,
                  b.CreateAlignedLoad(m.ptr, open_calls(), llvm::Align(8))});
    if (!fails) return;
    b.CreateIntrinsic(m.void_, Intrinsic::nvvm_exit, {});
    b.CreateUnreachable();
}

namespace {

// for (k = 0; more(k); ++k) turn(k); gives k behind it. `more` may begin with phis of its own,
// whose values before and after a turn stem from the blocks that it and `turn` are told.
template <class More, class Turn>
Value* count_while(ModuleLowering& m, Builder& b, llvm::Function* f, More more, Turn turn) {
    auto* before = b.GetInsertBlock();
    auto* loop = llvm::BasicBlock::Create(m.context, "", f);
    auto* body = llvm::BasicBlock::Create(m.context, "", f);
    auto* after = llvm::BasicBlock::Create(m.context, "", f);
    b.CreateBr(loop);
    b.SetInsertPoint(loop);
    auto* k = b.CreatePHI(m.i32, 2);
    k->addIncoming(b.getInt32(0), before);
    b.CreateCondBr(more(k, before), body, after);
    b.SetInsertPoint(body);
    turn(k, body);
    k->addIncoming(b.CreateAdd(k, b.getInt32(1)), body);
    b.CreateBr(loop);
    b.SetInsertPoint(after);
    return k;
}

// to[0..count) = from[0..count), of i64.
void copy_words(ModuleLowering& m, Builder& b, llvm::Function* f, Value* to, Value* from,
                Value* count) {
    const auto at = [&](Value* base, Value* k) { return b.CreateInBoundsGEP(m.i64, base, k); };
    count_while(
        m, b, f, [&](Value* k, llvm::BasicBlock*) { return b.CreateICmpULT(k, count); },
        [&](Value* k, llvm::BasicBlock*) {
            Value* word = b.CreateAlignedLoad(m.i64, at(from, k), llvm::Align(8));
            b.CreateAlignedStore(word, at(to, k), llvm::Align(8));
        });
}

// Counts open calls, the innermost at hand, up to `most`; stores their sites to `to` unless that is
// null.
Value* walk_calls(ModuleLowering& m, Builder& b, llvm::Function* f, Value* innermost, uint32_t most,
                  Value* to) {
    llvm::PHINode* call = nullptr;
    const auto more = [&](Value* k, llvm::BasicBlock* before) {
        call = b.CreatePHI(m.ptr, 2);
        call->addIncoming(innermost, before);
        return b.CreateAnd(b.CreateICmpNE(call, llvm::ConstantPointerNull::get(m.ptr)),
                           b.CreateICmpULT(k, b.getInt32(most)));
    };
    const auto turn = [&](Value* k, llvm::BasicBlock* body) {
        if (to) {
            Value* site = b.CreateAlignedLoad(m.i64, b.CreateConstInBoundsGEP1_64(m.i64, call, 1),
                                              llvm::Align(8));
            b.CreateAlignedStore(site, b.CreateInBoundsGEP(m.i64, to, k), llvm::Align(8));
        }
        call->addIncoming(b.CreateAlignedLoad(m.ptr, call, llvm::Align(8)), body);
    };
    return count_while(m, b, f, more, turn);
}

llvm::Function* new_helper(ModuleLowering& m, Builder& b, const char* name) {
    auto* f = m.new_function(
        llvm::FunctionType::get(m.void_, {m.memory, m.i32, m.i32, m.ptr, m.ptr}, false), name);
    f->addFnAttr(llvm::Attribute::NoInline);
    m.begin_helper_body(f, b);
    return f;
}

}  // namespace

// (report, format, count, cells, innermost OpenCall): fills the report unless another thread did.
llvm::Function* ModuleLowering::report_helper() {
    auto& helper = helpers["qd.report"];
    if (helper.function) return helper.function;
    Builder b(context, IntegerFolder());
    auto* f = helper.function = new_helper(*this, b, "qd.report");
    const auto order = llvm::AtomicOrdering::Monotonic;
    Value* report = f->getArg(0);
    auto* pair = b.CreateAtomicCmpXchg(report, b.getInt32(0), b.getInt32(1), llvm::Align(4), order,
                                       order, scope());
    auto* mine = llvm::BasicBlock::Create(context, "", f);
    auto* done = llvm::BasicBlock::Create(context, "", f);
    b.CreateCondBr(b.CreateExtractValue(pair, 1), mine, done);
    b.SetInsertPoint(mine);
    const auto at = [&](size_t offset) { return b.CreateConstInBoundsGEP1_64(i8, report, offset); };
    b.CreateAlignedStore(f->getArg(1), at(offsetof(abi::DeviceReport, format)), llvm::Align(4));
    constexpr uint32_t kMost = sizeof(abi::DeviceReport::cells) / sizeof(abi::Cell);
    Value* count = b.CreateBinaryIntrinsic(Intrinsic::umin, f->getArg(2), b.getInt32(kMost));
    b.CreateAlignedStore(count, at(offsetof(abi::DeviceReport, cell_count)), llvm::Align(4));
    copy_words(*this, b, f, at(offsetof(abi::DeviceReport, cells)), f->getArg(3), count);
    constexpr uint32_t kMostSites = sizeof(abi::DeviceReport::sites) / 8;
    Value* k =
        walk_calls(*this, b, f, f->getArg(4), kMostSites, at(offsetof(abi::DeviceReport, sites)));
    b.CreateAlignedStore(k, at(offsetof(abi::DeviceReport, site_count)), llvm::Align(4));
    auto* tell = llvm::BasicBlock::Create(context, "", f);
    Value* told =
        b.CreateAlignedLoad(memory, at(offsetof(abi::DeviceReport, told)), llvm::Align(8));
    b.CreateCondBr(b.CreateIsNull(told), done, tell);
    b.SetInsertPoint(tell);
    auto* store = b.CreateAlignedStore(b.getInt32(1), told, llvm::Align(4));
    store->setAtomic(llvm::AtomicOrdering::Release, llvm::SyncScope::System);
    b.CreateBr(done);
    b.SetInsertPoint(done);
    b.CreateRetVoid();
    return f;
}

// (prints, format, count, cells, innermost OpenCall): appends a record if there is room.
llvm::Function* ModuleLowering::print_helper() {
    auto& helper = helpers["qd.print"];
    if (helper.function) return helper.function;
    Builder b(context, IntegerFolder());
    auto* f = helper.function = new_helper(*this, b, "qd.print");
    const auto order = llvm::AtomicOrdering::Monotonic;
    Value *prints = f->getArg(0), *count = f->getArg(2);
    const auto member = [&](size_t offset) {
        return b.CreateConstInBoundsGEP1_64(i8, prints, offset);
    };
    constexpr uint32_t kMostSites = 64;
    Value* sites = walk_calls(*this, b, f, f->getArg(4), kMostSites, nullptr);
    Value* need = b.CreateAdd(b.CreateAdd(count, sites), b.getInt32(2));
    Value* at =
        b.CreateAtomicRMW(llvm::AtomicRMWInst::Add, member(offsetof(abi::DevicePrints, used)), need,
                          llvm::Align(4), order, scope());
    constexpr uint32_t kRoom = sizeof(abi::DevicePrints::words) / 8;
    auto* fits = llvm::BasicBlock::Create(context, "", f);
    auto* lost = llvm::BasicBlock::Create(context, "", f);
    Value* end = b.CreateAdd(b.CreateZExt(at, i64), b.CreateZExt(need, i64));
    b.CreateCondBr(b.CreateICmpULE(end, b.getInt64(kRoom)), fits, lost);
    b.SetInsertPoint(lost);
    b.CreateAtomicRMW(llvm::AtomicRMWInst::Add, member(offsetof(abi::DevicePrints, lost)),
                      b.getInt32(1), llvm::Align(4), order, scope());
    b.CreateRetVoid();
    b.SetInsertPoint(fits);
    Value* words = member(offsetof(abi::DevicePrints, words));
    Value* record = b.CreateInBoundsGEP(i64, words, b.CreateZExt(at, i64));
    Value* head = b.CreateOr(b.CreateShl(b.CreateZExt(count, i64), b.getInt64(32)),
                             b.CreateZExt(f->getArg(1), i64));
    head = b.CreateOr(head, b.getInt64(abi::kPrinted));
    b.CreateAlignedStore(head, record, llvm::Align(8));
    b.CreateAlignedStore(b.CreateZExt(sites, i64), b.CreateConstInBoundsGEP1_64(i64, record, 1),
                         llvm::Align(8));
    Value* values = b.CreateConstInBoundsGEP1_64(i64, record, 2);
    copy_words(*this, b, f, values, f->getArg(3), count);
    walk_calls(*this, b, f, f->getArg(4), kMostSites, b.CreateInBoundsGEP(i64, values, count));
    b.CreateRetVoid();
    return f;
}

// The values of a block's threads, joined as a tree whose shape depends on their number alone.
llvm::Function* ModuleLowering::fold_helper(Op op, Prim p) {
    constexpr uint32_t kMostThreads = 1024;
    const std::string name = std::string("qd.fold.") + ir::info(op).name + "." + type::info(p).name;
    auto& helper = helpers[name];
    ++helper.calls;
    if (helper.function) return helper.function;
    auto* f = helper.function =
        new_function(llvm::FunctionType::get(reg(p), {reg(p)}, false), name);
    f->addFnAttr(llvm::Attribute::Convergent);
    f->addFnAttr(llvm::Attribute::NoInline);
    auto* all = llvm::ArrayType::get(reg(p), kMostThreads);
    auto* shared = new llvm::GlobalVariable(module, all, false, llvm::GlobalValue::InternalLinkage,
                                            llvm::PoisonValue::get(all), name + ".values", nullptr,
                                            llvm::GlobalValue::NotThreadLocal, /*AddressSpace=*/3);
    shared->setAlignment(llvm::Align(16));
    Builder b(context, IntegerFolder());
    begin_helper_body(f, b);
    Scalar scalar{*this, b};
    const llvm::Align align(type::bytes(p));
    const auto barrier = [&] {
        b.CreateIntrinsic(void_, Intrinsic::nvvm_barrier_cta_sync_aligned_all, {b.getInt32(0)});
    };
    Value* thread = special(b, Intrinsic::nvvm_read_ptx_sreg_tid_x);
    Value* threads = special(b, Intrinsic::nvvm_read_ptx_sreg_ntid_x);
    const auto at = [&](Value* k) { return b.CreateInBoundsGEP(reg(p), shared, k); };
    b.CreateAlignedStore(f->getArg(0), at(thread), align);
    barrier();
    for (uint32_t half = kMostThreads / 2; half; half /= 2) {
        auto* join = llvm::BasicBlock::Create(context, "", f);
        auto* next = llvm::BasicBlock::Create(context, "", f);
        Value* other = b.CreateAdd(thread, b.getInt32(half));
        b.CreateCondBr(
            b.CreateAnd(b.CreateICmpULT(thread, b.getInt32(half)), b.CreateICmpULT(other, threads)),
            join, next);
        b.SetInsertPoint(join);
        Value* x = b.CreateAlignedLoad(reg(p), at(thread), align);
        Value* y = b.CreateAlignedLoad(reg(p), at(other), align);
        b.CreateAlignedStore(scalar.op(op, p, x, y), at(thread), align);
        b.CreateBr(next);
        b.SetInsertPoint(next);
        barrier();
    }
    Value* out = b.CreateAlignedLoad(reg(p), at(b.getInt32(0)), align);
    barrier();  // the next fold writes there
    b.CreateRet(out);
    return f;
}

}  // namespace qd::codegen
