// The LLVM module of a plan: declarations, alias metadata, helper functions, then every function.

#include <array>
#include <unordered_map>

#include <llvm/IR/MDBuilder.h>

#include "codegen/llvm/lower.h"
#include "codegen/llvm/parts.h"

namespace qd::codegen {

using llvm::Value;

ModuleLowering::ModuleLowering(const Prepared& p, const Options& o, const ir::Target& t,
                               llvm::LLVMContext& c, llvm::Module& to, uint32_t number)
    : prepared(p),
      options(o),
      target(t),
      context(c),
      module(to),
      part(number),
      void_(llvm::Type::getVoidTy(c)),
      i1(llvm::Type::getInt1Ty(c)),
      i8(llvm::Type::getInt8Ty(c)),
      i32(llvm::Type::getInt32Ty(c)),
      i64(llvm::Type::getInt64Ty(c)),
      f16(llvm::Type::getHalfTy(c)),
      f32(llvm::Type::getFloatTy(c)),
      f64(llvm::Type::getDoubleTy(c)),
      ptr(llvm::PointerType::get(c, 0)),
      memory(llvm::PointerType::get(c, t.threads ? 1 : 0)),
      gpu(t.threads) {}

llvm::Type* ModuleLowering::reg(Prim p) const {
    switch (p) {
        case Prim::u1:
            return i1;
        case Prim::f16:
            return f16;
        case Prim::f32:
            return f32;
        case Prim::f64:
            return f64;
        default:
            return llvm::Type::getIntNTy(context, unsigned(type::bits(p)));
    }
}

llvm::Type* ModuleLowering::mem(Prim p) const { return p == Prim::u1 ? i8 : reg(p); }

llvm::Constant* ModuleLowering::constant(Prim p, uint64_t bits) const {
    const unsigned width = unsigned(type::bits(p));
    const llvm::APInt n(width, width == 64 ? bits : bits & ((uint64_t(1) << width) - 1));
    if (!type::is_float(p)) return llvm::ConstantInt::get(context, n);
    return llvm::ConstantFP::get(context, llvm::APFloat(reg(p)->getFltSemantics(), n));
}

llvm::Function* ModuleLowering::new_function(llvm::FunctionType* type, const std::string& name) {
    auto* f = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, module);
    f->addFnAttr(llvm::Attribute::NoUnwind);
    if (gpu) {  // flushes f32 alone
        if (prepared.plan.meets) f->addFnAttr(llvm::Attribute::Convergent);
        f->addFnAttr("denormal-fp-math", "ieee,ieee");
        f->addFnAttr("denormal-fp-math-f32", "preserve-sign,preserve-sign");
        return f;
    }
    // Launches flush subnormals; folds must agree.
    f->addFnAttr("denormal-fp-math", "preserve-sign,preserve-sign");
    f->addFnAttr("no-builtins");
    f->addFnAttr("min-legal-vector-width", "0");
    return f;
}

// A callee of another part is a declaration, and what other parts call can be seen by them.
llvm::Function* ModuleLowering::new_callee(llvm::FunctionType* type, const ir::Function& f) {
    auto* to = new_function(type, prepared.parts > 1 ? prepared.symbols[f.id] : f.name);
    if (part != kAll && (!makes(f) || prepared.shared[f.id])) let_other_parts_call(*to);
    return to;
}

void ModuleLowering::begin_helper_body(llvm::Function* f, Builder& b) {
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "", f));
}

// --- alias metadata ----------------------------------------------------------------------------

size_t ModuleLowering::field_binding(const ir::Field* f) const {
    const auto at = bindings_.find(f);
    if (at == bindings_.end())
        throw support::Error("field '" + f->name + "' is not among the module's fields");
    return at->second;
}

// Each bit of a class's number is a domain of two scopes: numbers that differ in a bit do not alias
// there. So lists have as many entries as numbers have bits, however many classes there are.
void ModuleLowering::make_alias_metadata() {
    const auto& fields = prepared.plan.module->fields;
    for (size_t k = 0; k < fields.size(); ++k) bindings_[fields[k]] = k;
    llvm::MDBuilder md(context);
    const uint32_t classes = prepared.memory.count;
    std::vector<std::array<llvm::Metadata*, 2>> bits;
    for (uint32_t rest = classes - 1; rest; rest >>= 1) {
        auto* domain = md.createAnonymousAliasScopeDomain();
        auto* zero = md.createAnonymousAliasScope(domain);
        bits.push_back({zero, md.createAnonymousAliasScope(domain)});
    }
    std::vector<llvm::Metadata*> own(bits.size()), other(bits.size());
    for (uint32_t k = 0; k < classes; ++k) {
        for (size_t b = 0; b < bits.size(); ++b) {
            own[b] = bits[b][k >> b & 1];
            other[b] = bits[b][~k >> b & 1];
        }
        scope_.push_back(llvm::MDNode::get(context, own));
        noalias_.push_back(llvm::MDNode::get(context, other));
    }
}

void ModuleLowering::tag(llvm::Instruction* i, uint32_t memory_class) {
    i->setMetadata(llvm::LLVMContext::MD_alias_scope, scope_[memory_class]);
    i->setMetadata(llvm::LLVMContext::MD_noalias, noalias_[memory_class]);
}

const ir::Value* ModuleLowering::kernel_array(const ir::Value* v) const {
    if (!v->type.is_array()) return nullptr;
    const auto root = prepared.plan.arrays.root(v);
    return root.only && root.parameter >= 0
               ? prepared.plan.tasks[0].body->body->params[uint32_t(root.parameter)]
               : nullptr;
}

// Instructions that all copies of one helper, or of one func, may add to a module, and a func's own
// limit: beyond it a call costs little beside the work.
constexpr int kExpandLimit = 1500;
constexpr unsigned kLargestExpanded = 800, kFuncLimit = 12000;
// Bytes of locals: those of each copy would take stack of their own.
constexpr uint64_t kLocalsExpanded = 4096;

// Small helpers disappear into their callers where loops may then vectorise; one that is called
// often stays a call (the code would grow with every use). The optimised tier expands small funcs
// too: their callers keep in registers what a call would move through memory. The IR has its calls
// still, so tier 0 stays small.
void ModuleLowering::choose_expanded() {
    std::unordered_map<const llvm::Function*, unsigned> added;  // instructions, by each copy
    for (auto& [name, helper] : helpers) {
        if (helper.function->hasFnAttribute(llvm::Attribute::NoInline)) continue;
        const unsigned size = helper.function->getInstructionCount();
        const bool expand = options.tier > 0 && helper.calls * int(size) <= kExpandLimit;
        if (expand) added[helper.function] = size;
        helper.function->addFnAttr(expand ? llvm::Attribute::AlwaysInline
                                          : llvm::Attribute::NoInline);
    }
    if (options.tier == 0) return;
    // Callees come first: a func counts with what it expands itself, else nesting would multiply.
    for (ir::Function* f : prepared.plan.callees) {
        llvm::Function* to = functions[f->id];
        unsigned size = 0;
        uint64_t locals = 0;
        for (const llvm::BasicBlock& block : *to) {
            for (const llvm::Instruction& i : block) {
                ++size;
                if (const auto* local = llvm::dyn_cast<llvm::AllocaInst>(&i))
                    locals += module.getDataLayout().getTypeAllocSize(local->getAllocatedType());
                const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
                const auto found = call ? added.find(call->getCalledFunction()) : added.end();
                if (found != added.end()) size += found->second;
            }
        }
        if (f->never_inline || size > kLargestExpanded || size * to->getNumUses() > kFuncLimit ||
            locals > kLocalsExpanded)
            continue;
        added[to] = size;
        to->addFnAttr(llvm::Attribute::AlwaysInline);
    }
}

// --- functions ---------------------------------------------------------------------------------

bool returns_in_memory(const ir::Function& f) {
    int count = 0, floats = 0;
    for (const Type t : f.result_types) {
        count += t.count();
        if (type::is_float(t.prim)) floats += t.count();
    }
    return count > kMaxReturned || floats > kMaxReturnedFloats;
}

void ModuleLowering::run() {
    make_alias_metadata();
    const auto& plan = prepared.plan;
    functions.assign(prepared.functions.size(), nullptr);
    for (ir::Function* f : plan.callees) {
        std::vector<llvm::Type*> params{ptr};
        for (ir::Value* v : f->body->params) {
            if (kernel_array(v)) continue;
            if (v->type.is_array() || v->type.count() > kMaxFlatTensor)
                params.push_back(ptr);
            else
                params.insert(params.end(), size_t(v->type.count()), reg(v->type.prim));
        }
        std::vector<llvm::Type*> results;
        for (Type t : f->result_types)
            results.insert(results.end(), size_t(t.count()), reg(t.prim));
        llvm::Type* result = void_;
        const bool in_memory = returns_in_memory(*f);
        if (in_memory)
            params.push_back(ptr);
        else if (results.size() == 1)
            result = results[0];
        else if (!results.empty())
            result = llvm::StructType::get(context, results);
        auto* to = new_callee(llvm::FunctionType::get(result, params, false), *f);
        if (in_memory) to->addParamAttr(unsigned(params.size() - 1), llvm::Attribute::NoAlias);
        functions[f->id] = to;
    }
    auto* entry_type = llvm::FunctionType::get(void_, {ptr, i64, i64, i64}, false);
    records_.assign(prepared.functions.size(), nullptr);
    const auto entry = [&](ir::Function* f, const std::string& name, const pass::Task& task) {
        if (!makes(*f)) return;
        if (gpu) {
            const int threads = task.kind == abi::TaskKind::serial ? 1 : task.block_dim;
            functions[f->id] = new_kernel(name, threads, task.record);
            records_[f->id] = &task.record;
            return;
        }
        auto* to = new_function(entry_type, name);
        to->setLinkage(llvm::GlobalValue::ExternalLinkage);
        functions[f->id] = to;
    };
    for (size_t k = 0; k < plan.tasks.size(); ++k) {
        const pass::Task& task = plan.tasks[k];
        entry(task.body, "task" + std::to_string(k), task);
        if (task.finish) entry(task.finish, "finish" + std::to_string(k), task);
    }
    for (ir::Function* f : prepared.functions)
        if (makes(*f))
            FunctionLowering(*this, *f, functions[f->id], f->id >= plan.callees.size()).run();
    remove_spare_flushes();
    choose_expanded();
}

}  // namespace qd::codegen
