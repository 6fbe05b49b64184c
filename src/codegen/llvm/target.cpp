// Target machines, LLVM's pass lists of both tiers, and object emission.
//
// Tier 0 is FastISel on what lowering made, which is SSA already. Tier 1 is a short list chosen by
// measurement: value numbering, control-flow and instruction simplification, and, only for
// functions with loops, rotation, invariant motion, induction simplification and the loop
// vectoriser; functions with many branches also get jump threading and what goes with it. Loop
// strength reduction is left out of code generation: it is the dearest pass there and our addresses
// are affine already. No switch of LLVM's command line is used.
//
// Objects are position independent, without thread-locals and unwinding tables; constants lie in
// .rodata. LLVM's aborts and error diagnostics become support::Error.

#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/BasicAliasAnalysis.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScopedNoAliasAA.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/PassTimingInfo.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/PrettyStackTrace.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/SubtargetFeature.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/CorrelatedValuePropagation.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/JumpThreading.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopRotation.h>
#include <llvm/Transforms/Scalar/Reassociate.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/LoopUtils.h>
#include <llvm/Transforms/Vectorize/LoopVectorize.h>

#include "codegen/llvm/lower.h"
#include "codegen/llvm/sink_loads.h"
#include "support/doing.h"

namespace qd::codegen {
namespace {

[[noreturn]] void on_fatal_error(void*, const char* reason, bool) {
    throw support::Error(std::string("LLVM: ") + reason);
}

[[noreturn]] void on_bad_alloc(void*, const char*, bool) { throw std::bad_alloc(); }

void initialise_llvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::install_fatal_error_handler(on_fatal_error);
        llvm::install_bad_alloc_error_handler(on_bad_alloc);
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
    });
}

void initialise_aarch64() {
    static std::once_flag once;
    std::call_once(once, [] {
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
    });
}

const std::string& host_features() {
    static const std::string features = [] {
        llvm::SubtargetFeatures all;
        for (const auto& f : llvm::sys::getHostCPUFeatures()) all.AddFeature(f.first(), f.second);
        return all.getString();
    }();
    return features;
}

struct Machine {
    std::unique_ptr<llvm::TargetMachine> tm;
    TargetFacts facts;
    bool x86 = false;
};

llvm::Triple triple_of(const std::string& text) {
    return llvm::Triple(text.empty() ? llvm::sys::getDefaultTargetTriple()
                                     : llvm::Triple::normalize(text));
}

Machine make_machine(const std::string& cpu, const std::string& triple_text, int tier) {
    initialise(triple_text);
    const llvm::Triple triple = triple_of(triple_text);
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
    if (!target) throw TargetError("no code generator for " + triple.str() + ": " + error);

    const bool host = cpu.empty() && triple_text.empty();
    std::string name = cpu, features;
    if (host) {
        name = llvm::sys::getHostCPUName().str();
        features = host_features();
    } else if (name.empty()) {
        name = triple.isX86() ? "x86-64" : "generic";
    }
    // Asked first, because a target machine prints its complaint to stderr.
    const std::unique_ptr<llvm::MCSubtargetInfo> known(
        target->createMCSubtargetInfo(triple, "", ""));
    if (!known || !known->isCPUStringValid(name))
        throw TargetError("unknown CPU '" + name + "' for " + triple.str());
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    options.EnableFastISel = tier == 0;
    Machine m;
    m.tm.reset(target->createTargetMachine(
        triple, name, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
        tier == 0 ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default));
    if (!m.tm) throw support::Error("no target machine for " + triple.str());
    if (tier == 0) m.tm->setFastISel(true);
    m.x86 = triple.isX86();
    const llvm::MCSubtargetInfo& sub = *m.tm->getMCSubtargetInfo();
    m.facts.fma = !m.x86 || sub.checkFeatures("+fma");
    m.facts.rounding = !m.x86 || sub.checkFeatures("+sse4.1");
    return m;
}

// Target machines that wait for their next module. Describing a processor to LLVM costs more than
// compiling a small kernel, and a machine serves one module at a time.
struct Machines {
    using Key = std::tuple<std::string, std::string, int>;
    std::mutex lock;
    std::map<Key, std::vector<Machine>> idle;

    static Machines& get() {
        static auto* all = new Machines;  // never destroyed: threads may compile during exit
        return *all;
    }
    Machine take(const Options& o) {
        {
            std::lock_guard guard(lock);
            auto& machines = idle[Key(o.cpu, o.triple, o.tier)];
            if (!machines.empty()) {
                Machine m = std::move(machines.back());
                machines.pop_back();
                return m;
            }
        }
        return make_machine(o.cpu, o.triple, o.tier);
    }
    void put_back(const Options& o, Machine machine) {
        std::lock_guard guard(lock);
        idle[Key(o.cpu, o.triple, o.tier)].push_back(std::move(machine));
    }
};

// Less than this counts as nothing. A limit for the whole chain of calls: many small frames fill a
// small thread too.
constexpr uint64_t kSmallStack = 4096;
constexpr uint64_t kReturnAddress = 16;  // with what aligns it

// What LLVM says meanwhile: errors, and how large the frames of its functions are.
struct Diagnostics {
    std::string errors;
    std::unordered_map<std::string, uint64_t> frames;

    static void handle(const llvm::DiagnosticInfo* info, void* self) {
        auto& to = *static_cast<Diagnostics*>(self);
        if (const auto* frame = llvm::dyn_cast<llvm::DiagnosticInfoStackSize>(info))
            to.frames[frame->getFunction().getName().str()] = frame->getStackSize();
        if (info->getSeverity() != llvm::DS_Error) return;
        llvm::raw_string_ostream out(to.errors);
        llvm::DiagnosticPrinterRawOStream printer(out);
        info->print(printer);
        out << '\n';
    }
};

// Between passes of code generation: the work ends here if nobody wants it.
struct StillWanted : llvm::FunctionPass {
    static char ID;
    StillWanted() : llvm::FunctionPass(ID) {}
    bool runOnFunction(llvm::Function&) override {
        support::end_if_unwanted();
        return false;
    }
    void getAnalysisUsage(llvm::AnalysisUsage& u) const override { u.setPreservesAll(); }
};
char StillWanted::ID;

// Code generation without the passes that cost more than they give here.
struct CodegenPasses : llvm::legacy::PassManager {
    static constexpr int kAsk = 8;  // passes over a function between two StillWanted
    bool lean = false, prepares = true;
    int passes = 0;
    void add(llvm::Pass* p) override {
        const auto name = p->getPassName();
        if ((lean && name == "Loop Strength Reduction") ||
            (!prepares && name == "CodeGen Prepare")) {
            delete p;
            return;
        }
        const bool ask = p->getPassKind() == llvm::PT_Function && ++passes % kAsk == 0;
        llvm::legacy::PassManager::add(p);
        if (ask) llvm::legacy::PassManager::add(new StillWanted);
    }
};

// Instruction selection and scheduling take time that grows faster than a block, so very long ones
// are cut for code generation; CodeGenPrepare, which would join them again, is left out then.
constexpr size_t kLongBlock = 2500, kBlockPiece = 800;

bool cut_long_blocks(llvm::Module& module) {
    std::vector<llvm::BasicBlock*> long_blocks;
    for (auto& f : module)
        for (auto& block : f)
            if (block.size() > kLongBlock) long_blocks.push_back(&block);
    for (auto* block : long_blocks) {  // from the end, so that each cut moves one piece only
        auto at = block->end();
        size_t piece = 0;
        while (at != block->getFirstNonPHIIt()) {
            --at;
            if (++piece < kBlockPiece || llvm::isa<llvm::PHINode>(*at)) continue;
            auto keep = at->getPrevNode();
            if (!keep) break;
            block->splitBasicBlock(at);
            at = block->end();
            --at;  // the branch that splitting made
            piece = 0;
        }
    }
    return !long_blocks.empty();
}

bool has_loop(const llvm::Function& f) {  // lowering puts a loop's header before its latch
    llvm::DenseMap<const llvm::BasicBlock*, unsigned> order;
    for (const auto& block : f) order[&block] = unsigned(order.size());
    for (const auto& block : f)
        for (const auto* next : llvm::successors(&block))
            if (order[next] <= order[&block]) return true;
    return false;
}

// The vectoriser's time grows with the square of a loop's body, and large bodies gain little: loops
// above the limit, and those that cannot become vectors anyway, are marked as not for it.
constexpr unsigned kLargestVectorBody = 500;

bool may_become_vector(const llvm::Loop& loop) {
    unsigned count = 0;
    for (const auto* block : loop.blocks())
        for (const auto& i : *block) {
            if (++count > kLargestVectorBody) return false;
            if (i.isAtomic() || llvm::isa<llvm::AllocaInst>(i)) return false;
            const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
            if (call && !llvm::isa<llvm::IntrinsicInst>(call)) return false;
        }
    return true;
}

// While it interleaves, LLVM 22 asks of each value whether it is the same in all lanes, and walks
// all paths through its operands each time: exponential in a long computation that does not vary in
// the loop and cannot leave it, say tan(f[0]) where a store may change f. Such loops are not
// interleaved.
constexpr unsigned kLargestUniformPart = 16;

bool computes_much_that_is_uniform(const llvm::Loop& loop) {
    llvm::DenseSet<const llvm::Value*> uniform;
    for (const auto* block : loop.blocks())
        for (const auto& i : *block) {
            if (llvm::isa<llvm::PHINode, llvm::StoreInst>(i) || i.isTerminator()) continue;
            const bool same = llvm::all_of(i.operands(), [&](const llvm::Use& u) {
                const auto* d = llvm::dyn_cast<llvm::Instruction>(u.get());
                return !d || !loop.contains(d) || uniform.contains(d);
            });
            if (same) uniform.insert(&i);
        }
    return uniform.size() > kLargestUniformPart;
}

bool has_loop_to_vectorise(llvm::LoopInfo& loops) {
    bool any = false;
    for (llvm::Loop* loop : loops.getLoopsInPreorder()) {
        if (!loop->isInnermost()) continue;
        if (!may_become_vector(*loop)) {
            llvm::addStringMetadataToLoop(loop, "llvm.loop.vectorize.enable", 0);
            continue;
        }
        any = true;
        if (computes_much_that_is_uniform(*loop))
            llvm::addStringMetadataToLoop(loop, "llvm.loop.interleave.count", 1);
    }
    return any;
}

// Functions with many branches gain a twentieth from passes that simple loops do not need. Jump
// threading takes time that grows faster than a function, so the largest go without.
constexpr size_t kManyBlocks = 32, kTooManyBlocks = 2000;

void optimise(llvm::Module& module, llvm::TargetMachine& tm, const ir::ModuleOptions& asked,
              bool time_passes) {
    support::begin_stage("optimisation");
    llvm::PassInstrumentationCallbacks callbacks;
    callbacks.registerBeforeNonSkippedPassCallback(
        [](llvm::StringRef pass, llvm::Any) { support::begin_stage("optimisation", pass, true); });
    llvm::TimePassesHandler timing(time_passes);
    std::string report;
    llvm::raw_string_ostream report_stream(report);
    if (time_passes) {
        timing.setOutStream(llvm::errs());
        timing.registerCallbacks(callbacks);
    }
    llvm::PipelineTuningOptions tuning;
    llvm::PassBuilder builder(&tm, tuning, std::nullopt, &callbacks);
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager sccs;
    llvm::ModuleAnalysisManager modules;
    functions.registerPass([&] {
        llvm::AAManager aa;
        aa.registerFunctionAnalysis<llvm::BasicAA>();
        aa.registerFunctionAnalysis<llvm::ScopedNoAliasAA>();
        return aa;
    });
    functions.registerPass([&] {
        llvm::TargetLibraryInfoImpl library(tm.getTargetTriple());
        library.disableAllFunctions();
        return llvm::TargetLibraryAnalysis(library);
    });
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(sccs);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, sccs, modules);

    bool expands = false;
    for (const auto& f : module) expands |= f.hasFnAttribute(llvm::Attribute::AlwaysInline);
    if (expands) {
        llvm::ModulePassManager inlining;
        inlining.addPass(llvm::AlwaysInlinerPass(/*InsertLifetime=*/false));
        inlining.run(module, modules);
    }

    const auto combine = [] {
        return llvm::InstCombinePass(
            llvm::InstCombineOptions().setVerifyFixpoint(false).setMaxIterations(1));
    };
    llvm::FunctionPassManager straight, looped;
    for (auto* list : {&straight, &looped}) {
        list->addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
        list->addPass(llvm::SimplifyCFGPass());
        list->addPass(combine());
    }
    llvm::LoopPassManager first;
    first.addPass(llvm::LoopRotatePass(/*EnableHeaderDuplication=*/true, /*PrepareForLTO=*/false));
    // In our IR loads stay where they are, so to leave them there is to leave these passes out.
    const bool moves_loads = asked.cache_loop_invariant_global_vars;
    if (moves_loads) first.addPass(llvm::LICMPass(llvm::LICMOptions()));
    looped.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(first), /*UseMemorySSA=*/true));
    llvm::LoopPassManager second;
    second.addPass(llvm::IndVarSimplifyPass());
    looped.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(second)));
    llvm::FunctionPassManager vectorised, rest, branching;
    vectorised.addPass(llvm::LoopVectorizePass());
    vectorised.addPass(llvm::EarlyCSEPass(true));
    vectorised.addPass(combine());
    llvm::LoopPassManager third;  // what the vectoriser's checks and preheaders left inside
    third.addPass(llvm::LICMPass(llvm::LICMOptions()));
    if (moves_loads)
        vectorised.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(third), true));
    rest.addPass(llvm::SimplifyCFGPass());
    branching.addPass(llvm::JumpThreadingPass());
    branching.addPass(llvm::CorrelatedValuePropagationPass());
    branching.addPass(llvm::ReassociatePass());
    branching.addPass(llvm::GVNPass());
    branching.addPass(combine());
    branching.addPass(llvm::SimplifyCFGPass());

    for (auto& f : module) {
        if (f.isDeclaration()) continue;
        if (has_loop(f)) {
            looped.run(f, functions);
            if (has_loop_to_vectorise(functions.getResult<llvm::LoopAnalysis>(f)))
                vectorised.run(f, functions);
            rest.run(f, functions);
        } else {
            straight.run(f, functions);
        }
        functions.clear(f, f.getName());
        if (f.size() > kManyBlocks && f.size() < kTooManyBlocks) {
            branching.run(f, functions);
            functions.clear(f, f.getName());
        }
        sink_entry_loads(f);
    }
    if (time_passes) timing.print();
}

// LLVM 22 has no code for some vectors' canonicalize, and dies of a trap or gives up: of two floats
// on x86, which the vectoriser makes where doubles set the width, and of SVE's. They are written
// out: a number without exponent keeps its sign alone.
bool lacks_canonicalize(const llvm::Type* t, bool x86) {
    const auto* v = llvm::dyn_cast<llvm::VectorType>(t);
    if (!v || v->getElementType()->isHalfTy()) return false;
    const llvm::ElementCount n = v->getElementCount();
    return n.isScalable() || (x86 && v->getElementType()->isFloatTy() && n.getFixedValue() == 2);
}

void expand_canonicalize(llvm::Module& module, bool x86) {
    for (llvm::Function& f : module) {
        if (f.getIntrinsicID() != llvm::Intrinsic::canonicalize ||
            !lacks_canonicalize(f.getReturnType(), x86))
            continue;
        for (llvm::User* user : llvm::make_early_inc_range(f.users())) {
            auto* call = llvm::cast<llvm::CallInst>(user);
            auto* bits_type =
                llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(f.getReturnType()));
            const bool single = bits_type->getScalarSizeInBits() == 32;
            const auto constant = [&](uint64_t of32, uint64_t of64) {
                return llvm::ConstantInt::get(bits_type, single ? of32 : of64);
            };
            llvm::IRBuilder<> b(call);
            llvm::Value* bits = b.CreateBitCast(call->getArgOperand(0), bits_type);
            llvm::Value* exponent = b.CreateAnd(bits, constant(0x7f800000, 0x7ff0000000000000));
            llvm::Value* sign = b.CreateAnd(bits, constant(0x80000000, 0x8000000000000000));
            llvm::Value* flushed =
                b.CreateSelect(b.CreateICmpEQ(exponent, constant(0, 0)), sign, bits);
            call->replaceAllUsesWith(b.CreateBitCast(flushed, f.getReturnType()));
            call->eraseFromParent();
        }
    }
}

std::string text_of(const llvm::Module& m) {
    std::string s;
    llvm::raw_string_ostream out(s);
    m.print(out, nullptr);
    return s;
}

// CPU time: others work at the same time.
double thread_ms() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e3 + double(t.tv_nsec) / 1e6;
}

}  // namespace

void initialise(const std::string& triple) {
    initialise_llvm();
    if (triple_of(triple).isAArch64()) initialise_aarch64();
}

const void* crash_trace() { return llvm::SavePrettyStackState(); }
void set_crash_trace(const void* trace) { llvm::RestorePrettyStackState(trace); }

void check_cpu(const std::string& name) {
    initialise("");
    const llvm::Triple triple = triple_of("");
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
    if (!target) throw TargetError("no code generator for " + triple.str() + ": " + error);
    using Info = std::unique_ptr<llvm::MCSubtargetInfo>;
    const auto wide = [&](const std::string& cpu) {  // of 64 bits, as all code is
        return !triple.isX86() ||
               Info(target->createMCSubtargetInfo(triple, cpu, ""))->checkFeatures("+64bit");
    };
    const Info all(target->createMCSubtargetInfo(triple, "", ""));
    if (!all->isCPUStringValid(name) || !wide(name)) {
        std::string names;
        for (const auto& row : all->getAllProcessorDescriptions())
            if (wide(row.Key)) names += std::string(names.empty() ? "" : ", ") + row.Key;
        throw TargetError("unknown CPU '" + name + "'; known are " + names);
    }
    // What compiled arithmetic uses; the rest is for systems.
    static const char* const used[] = {"sse",  "ssse", "avx",   "fma",    "bmi",
                                       "f16c", "adx",  "lzcnt", "popcnt", "movbe"};
    const Info wanted(target->createMCSubtargetInfo(triple, name, ""));
    std::string lacking;
    for (const auto& f : llvm::sys::getHostCPUFeatures()) {
        const auto starts = [&](const char* begin) { return f.first().starts_with(begin); };
        if (!f.second && std::ranges::any_of(used, starts) &&
            wanted->checkFeatures("+" + f.first().str()))
            lacking += (lacking.empty() ? "" : ", ") + f.first().str();
    }
    if (!lacking.empty())
        throw TargetError("this machine cannot run code for '" + name + "': it lacks " + lacking);
}

bool has_fma(const std::string& cpu, const std::string& triple) {
    static std::mutex lock;
    static std::map<std::pair<std::string, std::string>, bool> known;
    {
        std::lock_guard hold(lock);
        const auto at = known.find({cpu, triple});
        if (at != known.end()) return at->second;
    }
    Options quick;  // the tier that comes first
    quick.tier = 0, quick.cpu = cpu, quick.triple = triple;
    Machine machine = Machines::get().take(quick);  // LLVM may fail: no lock is held
    const bool fma = machine.facts.fma;
    Machines::get().put_back(quick, std::move(machine));
    std::lock_guard hold(lock);
    return known[{cpu, triple}] = fma;
}

uint32_t parts(const Prepared& prepared, const Options& options) {
    const bool quick_object =
        options.tier == 0 && options.want == Options::Want::object && options.edited.empty();
    return quick_object ? prepared.parts : 1;
}

Part emit_part(const Prepared& prepared, const Options& options, uint32_t number) {
    const double t0 = thread_ms();
    support::begin_stage("target", options.cpu);
    Machine machine = Machines::get().take(options);  // not put back if an error is thrown
    llvm::LLVMContext context;
    context.setDiscardValueNames(options.want == Options::Want::object && options.edited.empty());
    Diagnostics diagnostics;
    context.setDiagnosticHandlerCallBack(Diagnostics::handle, &diagnostics);
    llvm::Module module("kernel", context);
    module.setTargetTriple(machine.tm->getTargetTriple());
    module.setDataLayout(machine.tm->createDataLayout());
    module.setPICLevel(llvm::PICLevel::BigPIC);

    const double t1 = thread_ms();
    support::begin_stage("lowering");
    ModuleLowering lowering(prepared, options, machine.facts, context, module,
                            parts(prepared, options) > 1 ? number : ModuleLowering::kAll);
    lowering.run();
    std::vector<std::pair<uint32_t, std::string>> names;  // by Function::id
    for (const ir::Function* f : prepared.functions)
        if (lowering.makes(*f))
            names.emplace_back(f->id, lowering.functions[f->id]->getName().str());
    const double t2 = thread_ms();
    std::string problem;
    llvm::raw_string_ostream problem_stream(problem);
    if (options.verify && llvm::verifyModule(module, &problem_stream))
        throw support::Error("invalid LLVM IR: " + problem);

    const auto text = [&] {
        const std::string t = text_of(module);
        return Part{{t.begin(), t.end()}, {}};
    };
    if (options.want == Options::Want::lowered_llvm) return text();
    if (options.tier > 0)
        optimise(module, *machine.tm, prepared.plan.module->options, options.time_passes);
    const double t3 = thread_ms();
    if (options.want == Options::Want::llvm) return text();
    for (const std::string& edited : options.edited) replace_functions(module, edited);
    if (options.tier > 0) expand_canonicalize(module, machine.x86);

    support::begin_stage("code generation");
    llvm::SmallVector<char, 0> out;
    {
        llvm::raw_svector_ostream stream(out);
        for (llvm::Function& f : module) f.addFnAttr("warn-stack-size", "0");
        CodegenPasses passes;
        passes.lean = options.tier > 0;
        passes.prepares = options.tier == 0 || !cut_long_blocks(module);
        const auto kind = options.want == Options::Want::assembly
                              ? llvm::CodeGenFileType::AssemblyFile
                              : llvm::CodeGenFileType::ObjectFile;
        if (machine.tm->addPassesToEmitFile(passes, stream, nullptr, kind, /*DisableVerify=*/true))
            throw support::Error("this target emits no objects");
        passes.run(module);
    }
    if (!diagnostics.errors.empty()) throw support::Error("LLVM: " + diagnostics.errors);
    const double t4 = thread_ms();
    Machines::get().put_back(options, std::move(machine));
    Part made{{out.begin(), out.end()},
              std::vector<uint64_t>(prepared.functions.size()),
              t1 - t0,
              t2 - t1,
              t3 - t2,
              t4 - t3};
    for (const auto& [id, name] : names)
        made.frames[id] = diagnostics.frames[name] + kReturnAddress;
    return made;
}

Emitted join(const Prepared& prepared, const Options& options, std::vector<Part> made) {
    Emitted out;
    Part all;  // their sums
    size_t bytes = 0;
    all.frames.resize(prepared.functions.size());
    for (Part& p : made) {
        all.target_ms += p.target_ms, all.lowering_ms += p.lowering_ms;
        all.passes_ms += p.passes_ms, all.generation_ms += p.generation_ms;
        for (size_t f = 0; f < p.frames.size(); ++f) all.frames[f] += p.frames[f];
        bytes += p.bytes.size();
        out.objects.push_back(std::move(p.bytes));
    }
    const uint64_t deepest = deepest_stack(prepared, all.frames);
    out.stack_bytes = deepest > kSmallStack ? deepest : 0;
    if (options.time_passes)
        std::fprintf(stderr,
                     "llvm tier %d %s: target %.2f ms, lowering %.2f, passes %.2f, code generation "
                     "%.2f; %zu bytes in %zu parts\n",
                     options.tier, prepared.plan.module->name.c_str(), all.target_ms,
                     all.lowering_ms, all.passes_ms, all.generation_ms, bytes, made.size());
    return out;
}

Emitted emit(const Prepared& prepared, const Options& options) {
    std::vector<Part> made;
    for (uint32_t k = 0; k < parts(prepared, options); ++k)
        made.push_back(emit_part(prepared, options, k));
    return join(prepared, options, std::move(made));
}

}  // namespace qd::codegen
