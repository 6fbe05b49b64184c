// LLVM's pass list of tier 1.
//
// A short list chosen by measurement: value numbering, control-flow and instruction simplification,
// and, only for functions with loops, rotation, invariant motion, induction simplification and the
// loop vectoriser; functions with many branches also get jump threading and what goes with it.

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/BasicAliasAnalysis.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScopedNoAliasAA.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/PassTimingInfo.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/CorrelatedValuePropagation.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/JumpThreading.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopDeletion.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopRotation.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <llvm/Transforms/Scalar/Reassociate.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/LoopUtils.h>
#include <llvm/Transforms/Vectorize/LoopVectorize.h>

#include "codegen/llvm/assembler_mistakes.h"
#include "codegen/llvm/optimise.h"
#include "codegen/llvm/sink_loads.h"
#include "codegen/llvm/skip_lanes.h"
#include "codegen/llvm/whole_groups.h"
#include "support/doing.h"

namespace qd::codegen {
namespace {

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
// A vector takes all branches: where there are many, going past what is not wanted is faster.
constexpr unsigned kMostVectorBlocks = 24;

bool may_become_vector(const llvm::Loop& loop) {
    if (loop.getNumBlocks() > kMostVectorBlocks) return false;
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
// the loop and cannot leave it, say tan(f[0]) where a store may change f, or sin(sin(f[0])), whose
// branches stay. Such loops are not
// interleaved.
constexpr unsigned kLargestUniformPart = 16;

bool computes_much_that_is_uniform(const llvm::Loop& loop) {
    llvm::DenseSet<const llvm::Value*> uniform;
    for (const auto* block : loop.blocks())
        for (const auto& i : *block) {
            if (llvm::isa<llvm::StoreInst>(i) || i.isTerminator()) continue;
            if (llvm::isa<llvm::PHINode>(i) && block == loop.getHeader()) continue;
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

void write_out(llvm::Loop* loop) {
    llvm::addStringMetadataToLoop(loop, "llvm.loop.unroll.full", 1);
}

// Short loops, inner ones first: a branch in a turn of its own is foreseen better, and places are
// constants. (Those that do not branch are straight code already, if they are small: pass/unroll.
// The loop around larger ones, say over environments, may become vectors.) Gives what the loop will
// be.
constexpr unsigned kMostShortTurns = 9, kLargestWrittenOut = 400, kLargestStraight = 1000;

// Whether anything branches but the ends of the loop and of those inside it.
bool branches(const llvm::Loop& loop) {
    const auto choices = llvm::count_if(loop.blocks(), [](const llvm::BasicBlock* block) {
        return block->getTerminator()->getNumSuccessors() > 1;
    });
    return size_t(choices) > loop.getLoopsInPreorder().size();
}

unsigned mark_short_loops(llvm::Loop* loop, llvm::ScalarEvolution& evolution, bool& any) {
    unsigned size = 0;
    for (llvm::Loop* inner : *loop) size += mark_short_loops(inner, evolution, any);
    for (const auto* block : loop->blocks())
        if (!llvm::any_of(*loop, [&](const llvm::Loop* inner) { return inner->contains(block); }))
            size += unsigned(block->size());
    const unsigned turns = evolution.getSmallConstantTripCount(loop);
    const unsigned most = branches(*loop) ? kLargestWrittenOut : kLargestStraight;
    if (turns < 2 || turns > kMostShortTurns || turns * size > most) return size;
    write_out(loop);
    any = true;
    return turns * size;
}

bool mark_short_loops(llvm::LoopInfo& loops, llvm::ScalarEvolution& evolution) {
    bool any = false;
    for (llvm::Loop* loop : loops) mark_short_loops(loop, evolution, any);
    return any;
}

// A loop over lanes comes out of the vectoriser with a few turns, and its partial results in
// memory: written out, they are in registers across the loop around it.
constexpr unsigned kMostTurnsOfLanes = 8, kLargestLanesBody = 400;

bool mark_loops_of_lanes(llvm::LoopInfo& loops, llvm::ScalarEvolution& evolution) {
    bool any = false;
    for (llvm::Loop* loop : loops.getLoopsInPreorder()) {
        if (!loop->isInnermost() || !loop->getParentLoop() || loop->getNumBlocks() != 1) continue;
        if (!llvm::getBooleanLoopAttribute(loop, "llvm.loop.isvectorized")) continue;
        const unsigned turns = evolution.getSmallConstantTripCount(loop);
        if (turns < 2 || turns > kMostTurnsOfLanes) continue;
        if (turns * loop->getHeader()->size() > kLargestLanesBody) continue;
        write_out(loop);
        any = true;
    }
    return any;
}

llvm::LoopFullUnrollPass unroll_marked() {
    return llvm::LoopFullUnrollPass(/*OptLevel=*/2, /*OnlyWhenForced=*/true);
}

struct Analyses {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager sccs;
    llvm::ModuleAnalysisManager modules;

    Analyses(llvm::TargetMachine& tm, llvm::PassInstrumentationCallbacks* callbacks) {
        llvm::PassBuilder builder(&tm, llvm::PipelineTuningOptions(), std::nullopt, callbacks);
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
    }
};

llvm::InstCombinePass combine() {
    return llvm::InstCombinePass(
        llvm::InstCombineOptions().setVerifyFixpoint(false).setMaxIterations(1));
}

}  // namespace

void expand_calls(llvm::Module& module, llvm::TargetMachine& tm) {
    support::begin_stage("optimisation", "AlwaysInlinerPass");
    if (llvm::none_of(module, [](const llvm::Function& f) {
            return f.hasFnAttribute(llvm::Attribute::AlwaysInline);
        }))
        return;
    Analyses analyses(tm, nullptr);
    llvm::ModulePassManager inlining;
    inlining.addPass(llvm::AlwaysInlinerPass(/*InsertLifetime=*/false));
    inlining.run(module, analyses.modules);
}

void optimise(llvm::Module& module, llvm::TargetMachine& tm, const ir::ModuleOptions& asked,
              bool time_passes) {
    support::begin_stage("optimisation");
    llvm::PassInstrumentationCallbacks callbacks;
    callbacks.registerBeforeNonSkippedPassCallback(
        [](llvm::StringRef pass, llvm::Any) { support::begin_stage("optimisation", pass, true); });
    llvm::TimePassesHandler timing(time_passes);
    if (time_passes) {
        timing.setOutStream(llvm::errs());
        timing.registerCallbacks(callbacks);
    }
    Analyses analyses(tm, &callbacks);
    llvm::FunctionAnalysisManager& functions = analyses.functions;

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
    llvm::FunctionPassManager shortened, vectorised, unrolled, rest, branching;
    llvm::LoopPassManager brief;
    brief.addPass(unroll_marked());
    shortened.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(brief)));
    shortened.addPass(llvm::EarlyCSEPass(true));
    shortened.addPass(combine());
    shortened.addPass(llvm::SimplifyCFGPass());
    vectorised.addPass(llvm::LoopVectorizePass());
    vectorised.addPass(llvm::EarlyCSEPass(true));
    vectorised.addPass(combine());
    llvm::LoopPassManager third;  // what the vectoriser's checks and preheaders left inside
    third.addPass(llvm::LICMPass(llvm::LICMOptions()));
    if (moves_loads)
        vectorised.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(third), true));
    llvm::LoopPassManager lanes, around;
    lanes.addPass(unroll_marked());
    unrolled.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(lanes)));
    unrolled.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
    unrolled.addPass(llvm::EarlyCSEPass(true));
    around.addPass(llvm::LICMPass(llvm::LICMOptions()));
    if (moves_loads)
        unrolled.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(around), true));
    rest.addPass(llvm::SimplifyCFGPass());
    branching.addPass(llvm::JumpThreadingPass());
    branching.addPass(llvm::CorrelatedValuePropagationPass());
    branching.addPass(llvm::ReassociatePass());
    branching.addPass(llvm::GVNPass());
    branching.addPass(combine());
    branching.addPass(llvm::SimplifyCFGPass());

    // Other targets have stores that interleave.
    const unsigned most_interleaved = tm.getTargetTriple().isX86() ? 1 : 0;
    for (auto& f : module) {
        if (f.isDeclaration()) continue;
        if (has_loop(f)) {
            looped.run(f, functions);
            if (mark_short_loops(functions.getResult<llvm::LoopAnalysis>(f),
                                 functions.getResult<llvm::ScalarEvolutionAnalysis>(f)))
                shortened.run(f, functions);
            const bool vectors = has_loop_to_vectorise(functions.getResult<llvm::LoopAnalysis>(f));
            if (vectors) {
                vectorised.run(f, functions);
                if (mark_loops_of_lanes(functions.getResult<llvm::LoopAnalysis>(f),
                                        functions.getResult<llvm::ScalarEvolutionAnalysis>(f)))
                    unrolled.run(f, functions);
            }
            rest.run(f, functions);
            if (vectors) {
                work_on_whole_groups(f, most_interleaved);
                skip_unwanted_lanes(f);
            }
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

// No vectors, and nothing that jumps past a barrier: the assembler unrolls and schedules. Indices
// stay 32 bits wide, which are cheaper there.
void optimise_for_gpu(llvm::Module& module, llvm::TargetMachine& tm,
                      const ir::ModuleOptions& asked) {
    support::begin_stage("optimisation");
    Analyses analyses(tm, nullptr);
    llvm::FunctionPassManager passes;
    passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
    passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
    passes.addPass(llvm::SimplifyCFGPass());
    passes.addPass(combine());
    llvm::LoopPassManager first, second;
    first.addPass(llvm::LoopRotatePass(/*EnableHeaderDuplication=*/true, /*PrepareForLTO=*/false));
    if (asked.cache_loop_invariant_global_vars) first.addPass(llvm::LICMPass(llvm::LICMOptions()));
    passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(first), /*UseMemorySSA=*/true));
    second.addPass(llvm::IndVarSimplifyPass(/*WidenIndVars=*/false));
    second.addPass(llvm::LoopDeletionPass());
    passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(second)));
    passes.addPass(llvm::GVNPass());
    passes.addPass(llvm::SimplifyCFGPass());
    passes.addPass(combine());
    for (auto& f : module)
        if (!f.isDeclaration()) passes.run(f, analyses.functions);
    avoid_assembler_mistakes(module);
}

}  // namespace qd::codegen
