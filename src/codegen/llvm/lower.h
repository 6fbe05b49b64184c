// Shared state of lowering: one ModuleLowering an emission, one FunctionLowering an ir::Function.
// Everything here belongs to one thread; the Prepared plan is only read.

#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/IR/ConstantFolder.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include "codegen/llvm/codegen.h"
#include "support/abi.h"
#include "support/error.h"

namespace qd::codegen {

// Puts functions of the user's module in the place of those of the same name. Throws TargetError.
void replace_functions(llvm::Module& module, const EditedTask& edited);

using ir::Inst;
using ir::Op;
using ir::Prim;
using ir::Region;
using type::Type;

// LLVM's constant folder, except that it computes no float: its folds know nothing of
// flush-to-zero, and the passes have folded already.
class IntegerFolder final : public llvm::IRBuilderFolder {
    using V = llvm::Value;
    llvm::ConstantFolder f_;
    static bool fp(const V* v) { return v->getType()->isFPOrFPVectorTy(); }

  public:
    V* FoldBinOp(llvm::Instruction::BinaryOps o, V* a, V* b) const override {
        return fp(a) ? nullptr : f_.FoldBinOp(o, a, b);
    }
    V* FoldExactBinOp(llvm::Instruction::BinaryOps o, V* a, V* b, bool e) const override {
        return f_.FoldExactBinOp(o, a, b, e);
    }
    V* FoldNoWrapBinOp(llvm::Instruction::BinaryOps o, V* a, V* b, bool u, bool s) const override {
        return f_.FoldNoWrapBinOp(o, a, b, u, s);
    }
    V* FoldBinOpFMF(llvm::Instruction::BinaryOps, V*, V*, llvm::FastMathFlags) const override {
        return nullptr;
    }
    V* FoldUnOpFMF(llvm::Instruction::UnaryOps, V*, llvm::FastMathFlags) const override {
        return nullptr;
    }
    V* FoldCmp(llvm::CmpInst::Predicate p, V* a, V* b) const override {
        return fp(a) ? nullptr : f_.FoldCmp(p, a, b);
    }
    V* FoldGEP(llvm::Type* t, V* p, llvm::ArrayRef<V*> i, llvm::GEPNoWrapFlags nw) const override {
        return f_.FoldGEP(t, p, i, nw);
    }
    V* FoldSelect(V* c, V* a, V* b) const override { return f_.FoldSelect(c, a, b); }
    V* FoldExtractValue(V* a, llvm::ArrayRef<unsigned> i) const override {
        return f_.FoldExtractValue(a, i);
    }
    V* FoldInsertValue(V* a, V* v, llvm::ArrayRef<unsigned> i) const override {
        return f_.FoldInsertValue(a, v, i);
    }
    V* FoldExtractElement(V* v, V* i) const override { return f_.FoldExtractElement(v, i); }
    V* FoldInsertElement(V* v, V* e, V* i) const override { return f_.FoldInsertElement(v, e, i); }
    V* FoldShuffleVector(V* a, V* b, llvm::ArrayRef<int> m) const override {
        return f_.FoldShuffleVector(a, b, m);
    }
    V* FoldCast(llvm::Instruction::CastOps o, V* v, llvm::Type* t) const override {
        const bool rounds = o != llvm::Instruction::BitCast && (fp(v) || t->isFPOrFPVectorTy());
        return rounds ? nullptr : f_.FoldCast(o, v, t);
    }
    V* FoldBinaryIntrinsic(llvm::Intrinsic::ID, V*, V*, llvm::Type*,
                           llvm::Instruction*) const override {
        return nullptr;
    }
    V* CreatePointerCast(llvm::Constant* c, llvm::Type* t) const override {
        return f_.CreatePointerCast(c, t);
    }
    V* CreatePointerBitCastOrAddrSpaceCast(llvm::Constant* c, llvm::Type* t) const override {
        return f_.CreatePointerBitCastOrAddrSpaceCast(c, t);
    }
};

using Builder = llvm::IRBuilder<IntegerFolder>;

struct ModuleLowering {
    const Prepared& prepared;
    const Options& options;
    const ir::Target target;
    llvm::LLVMContext& context;
    llvm::Module& module;
    const uint32_t part;  // that it makes, or kAll
    static constexpr uint32_t kAll = UINT32_MAX;

    llvm::Type *void_, *i1, *i8, *i32, *i64, *f16, *f32, *f64;
    llvm::PointerType* ptr;
    llvm::PointerType* memory;  // what addresses of fields, arrays and blocks of a launch are
    const bool gpu;
    llvm::SyncScope::ID scope() const {  // of atomics
        if (gpu) return context.getOrInsertSyncScopeID("device");
        return llvm::SyncScope::System;
    }
    std::vector<llvm::Function*> functions;  // by Function::id

    ModuleLowering(const Prepared&, const Options&, const ir::Target&, llvm::LLVMContext&,
                   llvm::Module&, uint32_t part);
    void run();
    bool makes(const ir::Function& f) const {
        if (part == kAll) return true;
        return gpu ? prepared.members[part][f.id] : prepared.part_of[f.id] == part;
    }

    llvm::Type* reg(Prim p) const;  // in a register: u1 is i1
    llvm::Type* mem(Prim p) const;  // in memory: u1 is i8
    llvm::Constant* constant(Prim p, uint64_t bits) const;

    // An internal function without a body yet.
    llvm::Function* new_function(llvm::FunctionType* type, const std::string& name);
    llvm::Function* new_callee(llvm::FunctionType* type, const ir::Function& f);
    void begin_helper_body(llvm::Function* f, Builder& b);

    // Its launches are kernel parameters, or lie in memory if they are too large.
    llvm::Function* new_kernel(const std::string& name, int threads, const pass::Record& record);
    const pass::Record& record_of(const ir::Function& f) const {
        return records_[f.id] ? *records_[f.id] : prepared.plan.common;
    }
    llvm::Function* report_helper();
    llvm::Function* print_helper();
    llvm::Function* fold_helper(Op op, Prim p);
    llvm::Value* shared_array(uint64_t imm, Type element);  // imm: ir::SharedArray

    // powi: a power with an integer exponent.
    llvm::Value* call_powi(Builder& b, Prim base, Prim exponent, llvm::Value* x, llvm::Value* e);
    llvm::Function* matmul_helper(Prim p, int n, int k, int m, bool fused);

    // The kernel's parameter that an array parameter always is (ArrayClasses), or null. Calls do
    // not hand it over: the callee finds it where the task does.
    const ir::Value* kernel_array(const ir::Value* parameter) const;
    size_t field_binding(const ir::Field* f) const;         // its number in Module::fields
    void tag(llvm::Instruction* i, uint32_t memory_class);  // alias metadata

    struct Helper {
        llvm::Function* function;
        int calls;
    };
    std::map<std::string, Helper> helpers;
    // What sine and cosine of a value came from, by the block that has it.
    llvm::DenseMap<std::pair<const llvm::Value*, const llvm::BasicBlock*>, llvm::CallInst*> angles;
    llvm::DenseSet<const llvm::Value*> minima;  // and maxima: no subnormals
    std::vector<llvm::CallInst*> flushes;       // of their operands
    void remove_spare_flushes();

  private:
    void make_alias_metadata();
    void choose_expanded();
    std::unordered_map<const ir::Field*, size_t> bindings_;
    std::vector<const pass::Record*> records_;  // of tasks, by Function::id; null: a callee
    std::unordered_map<uint32_t, llvm::GlobalVariable*> shared_arrays_;  // by number
    llvm::GlobalVariable* shared_block_ = nullptr;  // what the launch of a task asks for
    std::vector<llvm::MDNode*> scope_, noalias_;
};

// Arithmetic on single components, shared by functions and helpers (lower_ops.cpp).
struct Scalar {
    ModuleLowering& m;
    Builder& b;

    // Of an op whose operands have one type.
    llvm::Value* op(Op op, Prim p, llvm::Value* x, llvm::Value* y = nullptr,
                    llvm::Value* z = nullptr);
    // `sum`: null for none.
    llvm::Value* add_product(Prim p, llvm::Value* sum, llvm::Value* x, llvm::Value* y, bool fused);
    llvm::Value* cast(llvm::Value* x, Prim from, Prim to);
    llvm::Value* bit_cast(llvm::Value* x, Prim from, Prim to);
    llvm::Value* widen(llvm::Value* x) { return b.CreateFPExt(x, m.f32); }  // f16 -> f32
    llvm::Value* narrow(llvm::Value* x) { return b.CreateFPTrunc(x, m.f16); }
    llvm::Value* intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> args);
    llvm::Value* float_floor(llvm::Value* x);  // f32, f64
    llvm::Value* float_trunc(llvm::Value* x);
    llvm::Value* float_equal(llvm::Value* x, llvm::Value* y, bool negated = false);
    llvm::Value* float_min_max(bool max, llvm::Value* x, llvm::Value* y);

  private:
    llvm::Value* int_to_half(llvm::Value* x, Prim from);
    void flush_before_identity(Op op, llvm::Value*& x, llvm::Value*& y);
    llvm::Value* float_to_int(llvm::Value* x, Prim to);
    llvm::Value* float_op(Op op, Prim p, llvm::Value* x, llvm::Value* y, llvm::Value* z);
    llvm::Value* approximation(Op op, llvm::Value* x, llvm::Value* y);
};

struct FunctionLowering {
    ModuleLowering& m;
    ir::Function& f;
    llvm::Function* fn;
    Builder b;
    Scalar scalar;

    FunctionLowering(ModuleLowering&, ir::Function&, llvm::Function*, bool is_task);
    void run();

  private:
    // --- control (lower_control.cpp)
    struct Frame {  // of the innermost for_ or loop being lowered
        llvm::BasicBlock *continue_to, *break_to;
        std::vector<llvm::PHINode*> continue_phis, break_phis;
    };
    void lower_region(Region& r);
    void lower(Inst& i);
    void lower_control(Inst& i);
    void lower_if(Inst& i);
    void lower_for(Inst& i);
    struct Level {  // a dimension of a for_; `_carried` are the phis of what it carries
        llvm::Value *begin, *end;
        llvm::BasicBlock *header, *latch, *after;
        llvm::PHINode* index;
        std::vector<llvm::PHINode*> carried, latch_carried, after_carried;
    };
    void open_level(Level& l, std::span<ir::Value> results, std::vector<llvm::Value*>& carried);
    void close_level(Level& l);
    void lower_body(Inst& i, const std::vector<Level>& levels,
                    const std::vector<llvm::Value*>& carried, const Frame& frame);
    void lower_loop(Inst& i);
    void lower_call(Inst& i);
    void lower_return(Inst& i);
    void hand_over(Inst& i, const std::vector<llvm::PHINode*>& phis);
    void jump(Inst& i, llvm::BasicBlock* to, const std::vector<llvm::PHINode*>& phis);
    llvm::BasicBlock* new_block();
    void start(llvm::BasicBlock* block);  // continue there
    std::vector<llvm::PHINode*> make_phis(std::span<ir::Value> like);
    std::vector<llvm::PHINode*> make_phis_at(llvm::BasicBlock* block, std::span<ir::Value> like);

    // --- ops (lower_ops.cpp)
    void lower_elementwise(Inst& i);
    llvm::Value* no_wrap(const Inst& i);
    void lower_tensor(Inst& i);
    void lower_matmul(Inst& i);
    llvm::Value* choose(llvm::Value* c, llvm::Value* x, llvm::Value* y);
    llvm::AllocaInst* spill(ir::Value* v,
                            int which = 0);  // components in memory, in register types' memory form
    llvm::Value* reload(llvm::Value* memory, Prim p, int k);

    // --- memory (lower_memory.cpp)
    struct Place {
        llvm::Value* address;
        Prim prim;
        int count;  // components, one behind the other
        uint32_t memory_class;
        bool local;
    };
    void lower_place(Inst& i);
    Place place(ir::Value* v);
    llvm::Value* component_address(const Place& p, int k);
    llvm::Value* load_component(const Place& p, int k, bool is_volatile = false,
                                bool ordered = false);
    void store_component(const Place& p, int k, llvm::Value* v);
    void lower_memory(Inst& i);
    void lower_atomic(Inst& i);
    void add_together(Inst& i, const Place& p);
    llvm::DenseMap<const ir::Value*, llvm::Value*> swaps_;  // by an atomic_cas's result: the pair
    void lower_prefetch(Inst& i);
    void lower_text(Inst& i);
    llvm::Value* to_memory(Prim p, llvm::Value* v) {
        return p == Prim::u1 ? b.CreateZExt(v, m.i8) : v;
    }
    llvm::Value* from_memory(Prim p, llvm::Value* v) {
        return p == Prim::u1 ? b.CreateICmpNE(v, llvm::ConstantInt::get(m.i8, 0)) : v;
    }

    // --- values
    static ir::Value* operand(const Inst& i, int k) { return ir::resolve(i.operands[k]); }
    llvm::Value* get(ir::Value* v, int k = 0);
    void set(Inst& i, int k, llvm::Value* v) { values_[i.results[0].id + k] = v; }

    // Values computed at the function's entry, on first use.
    template <class Make>
    llvm::Value* at_entry(uint64_t key, Make make) {
        auto [at, inserted] = entry_values_.try_emplace(key, nullptr);
        if (!inserted) return at->second;
        Builder entry(entry_end_->getParent(), entry_end_->getIterator(), IntegerFolder());
        llvm::Value* v = make(entry);
        entry_values_[key] = v;  // `at` may be stale: make() may have added others
        return v;
    }
    llvm::Value* invariant_load(Builder& at, llvm::Type* t, llvm::Value* p, int64_t offset,
                                int align);
    llvm::Value* context_member(size_t offset, llvm::Type* type = nullptr);  // null: a pointer
    enum class Block : uint64_t { temps, partials, results, bounds };
    llvm::Value* block(Block which);
    std::pair<llvm::Value*, int64_t> given(pass::Input::Kind kind, uint32_t from);  // base, offset
    llvm::Value* launch_key();
    llvm::Value* open_calls();  // where the innermost abi::OpenCall of the thread stands
    // --- of a GPU (lower_gpu.cpp)
    llvm::Value* launch_record();                             // abi::DeviceLaunch
    llvm::Value* tape_on_gpu(llvm::Value* offset, int size);  // of the number that lies there
    llvm::Value* launch_word(size_t offset, llvm::Type* type);
    llvm::Value* gpu_block(Block which);
    llvm::Value*
    thread_record();  // launch record, random key, random draws, open calls: what a callee gets
    llvm::Value* grid_value(ir::TaskValue which);
    llvm::Value* thread_number(ir::ThreadNumber which);  // i32
    // --- of its blocks (lower_threads.cpp)
    void lower_threads(Inst& i);
    llvm::Value* shuffled(ir::Shuffle how, Prim p, llvm::Value* x, llvm::Value* lane,
                          llvm::Value* mask);
    llvm::Value* comparable(Prim p, llvm::Value* x);
    llvm::Value* voted(ir::Vote what, ir::Value* value, llvm::Value* mask);
    void leave_if_failed();
    void leave_behind_loop(const ir::Function& f);
    void leave_if(llvm::Value* condition);
    void wait_for_task_before();
    llvm::Value* has_stack_on_gpu();
    void say_done();
    void speak_on_gpu(Inst& i, llvm::Value* cells, int count);
    llvm::Value* array_data(ir::Value* array, bool grad);
    llvm::Value* array_extent(ir::Value* array, int axis);  // i64
    llvm::AllocaInst* entry_alloca(llvm::Type* t, uint64_t count, int align);
    // Memory that one instruction uses and nobody after it: shared by all that ask for the same.
    // `which` tells apart what one instruction uses at a time.
    llvm::AllocaInst* scratch(llvm::Type* t, uint64_t count, int align, int which);
    llvm::Value* parameter(const ir::Value* v, int k);

    bool is_task_;
    llvm::BasicBlock* entry_ = nullptr;
    llvm::Instruction* entry_end_ = nullptr;
    std::vector<llvm::Value*> values_;
    std::unordered_map<uint64_t, llvm::Value*> entry_values_;
    std::map<std::tuple<llvm::Type*, uint64_t, int>, llvm::AllocaInst*> scratch_;
    std::vector<Frame> frames_;
    llvm::Value* result_out_ = nullptr;
    std::vector<Prim> result_prims_;

    friend struct ModuleLowering;
};

// How values travel in calls. Tensors above this many components, and results above
// kMaxReturned components, go through memory of the caller. So do results of more than two floats:
// x86-64 returns the third on the x87 stack, which is slow and changes signalling NaNs, and
// FastISel reads it with an instruction that has no encoding for the registers that AVX-512 added
// (SIGILL).
inline constexpr int kMaxFlatTensor = 16;
inline constexpr int kMaxReturned = 4, kMaxReturnedFloats = 2;
bool returns_in_memory(const ir::Function& f);

}  // namespace qd::codegen
