// Target machines, and objects from LLVM modules.
//
// Tier 0 is FastISel on what lowering made, which is SSA already. Tier 1 comes from optimise.cpp.
// Loop strength reduction is left out of code generation: it is the dearest pass there and our
// addresses are affine already. No switch of LLVM's command line is used.
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

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/PrettyStackTrace.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/SubtargetFeature.h>

#include "codegen/llvm/assembler_mistakes.h"
#include "codegen/llvm/lower.h"
#include "codegen/llvm/optimise.h"
#include "codegen/llvm/parts.h"
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

void initialise_nvptx() {
    static std::once_flag once;
    std::call_once(once, [] {
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
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
    ir::Target target;
    bool x86 = false;
    bool gpu() const { return target.threads; }
};

// A GPU's name says enough.
llvm::Triple triple_of(const std::string& text, const std::string& cpu = "") {
    if (cpu.starts_with("sm_")) return llvm::Triple("nvptx64-nvidia-cuda");
    return llvm::Triple(text.empty() ? llvm::sys::getDefaultTargetTriple()
                                     : llvm::Triple::normalize(text));
}

ir::Target gpu_target(const std::string& name) {  // "sm_90"
    constexpr int kWaits = 90, kVectorAdds = 90;  // from there on
    ir::Target t;
    t.threads = true;
    t.runs_together = true;
    t.waits_itself = std::stoi(name.substr(3)) >= kWaits;
    t.minimum = true;
    t.float_adds = true;
    t.vector_adds = std::stoi(name.substr(3)) >= kVectorAdds;
    t.lone = false;
    t.tiny_function = 400, t.small_function = 4000;  // a call takes its arguments through memory
    t.serial_sum_bytes = 0;                          // lanes in slots would be memory
    t.prefetch_ahead = 0;
    return t;
}

Machine make_machine(const std::string& cpu, const std::string& triple_text, int tier) {
    initialise(triple_text, cpu);
    const llvm::Triple triple = triple_of(triple_text, cpu);
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
    // Stores to places apart: one instruction takes longer than each by itself, on Intel's and
    // AMD's.
    if (triple.isX86()) features += std::string(features.empty() ? "" : ",") + "+prefer-no-scatter";
    // PTX as drivers of CUDA 12.1 read it: the first with large parameters.
    if (triple.isNVPTX() && !name.starts_with("sm_1")) features = "+ptx81";
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
    if (triple.isNVPTX()) {
        m.target = gpu_target(name);
        return m;
    }
    const llvm::MCSubtargetInfo& sub = *m.tm->getMCSubtargetInfo();
    m.target.fused = !m.x86 || sub.checkFeatures("+fma");
    m.target.rounding = !m.x86 || sub.checkFeatures("+sse4.1");
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

// CPU time: others work at the same time.
double thread_ms() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e3 + double(t.tv_nsec) / 1e6;
}

}  // namespace

void initialise(const std::string& triple, const std::string& cpu) {
    initialise_llvm();
    if (triple_of(triple, cpu).isAArch64()) initialise_aarch64();
    if (triple_of(triple, cpu).isNVPTX()) initialise_nvptx();
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

ir::Target target_of(const std::string& cpu, const std::string& triple) {
    static std::mutex lock;
    static std::map<std::pair<std::string, std::string>, ir::Target> known;
    {
        std::lock_guard hold(lock);
        const auto at = known.find({cpu, triple});
        if (at != known.end()) return at->second;
    }
    Options quick;  // the tier that comes first
    quick.tier = 0, quick.cpu = cpu, quick.triple = triple;
    Machine machine = Machines::get().take(quick);  // LLVM may fail: no lock is held
    const ir::Target target = machine.target;
    Machines::get().put_back(quick, std::move(machine));
    std::lock_guard hold(lock);
    return known[{cpu, triple}] = target;
}

namespace {

bool makes_object(const Options& o) { return o.want == Options::Want::object && o.edited.empty(); }

// One LLVM module after another on one thread.
struct Job {
    const Prepared& prepared;
    const Options& options;
    Machine machine;
    llvm::LLVMContext context;
    Diagnostics diagnostics;
    Made made;

    Job(const Prepared& p, const Options& o)
        : prepared(p), options(o), machine(Machines::get().take(o)) {
        context.setDiscardValueNames(makes_object(o));
        context.setDiagnosticHandlerCallBack(Diagnostics::handle, &diagnostics);
    }

    std::string text_of(const llvm::Module& m) const {
        std::string s;
        llvm::raw_string_ostream out(s);
        m.print(out, nullptr);
        return s;
    }

    // What decides what is made of an LLVM module, beside it.
    std::string how() const {
        std::string s = std::to_string(options.tier) + '\n' + options.cpu + '\n' + options.triple;
        if (options.cpu.empty()) s += '\n' + machine.tm->getTargetCPU().str() + host_features();
        const bool moves_loads = prepared.plan.module->options.cache_loop_invariant_global_vars;
        return s + (moves_loads ? "\nmoves loads" : "");
    }

    void optimise(llvm::Module& module) {
        const double begin = thread_ms();
        if (machine.gpu())
            optimise_for_gpu(module, *machine.tm, prepared.plan.module->options);
        else
            codegen::optimise(module, *machine.tm, prepared.plan.module->options,
                              options.time_passes);
        made.passes_ms += thread_ms() - begin;
    }

    std::vector<uint8_t> generate(llvm::Module& module) {
        const double begin = thread_ms();
        support::begin_stage("code generation");
        llvm::SmallVector<char, 0> out;
        {
            llvm::raw_svector_ostream stream(out);
            for (llvm::Function& f : module) f.addFnAttr("warn-stack-size", "0");
            CodegenPasses passes;
            passes.lean = options.tier > 0 && !machine.gpu();
            passes.prepares = options.tier == 0 || !cut_long_blocks(module);
            const auto kind = options.want == Options::Want::assembly || machine.gpu()
                                  ? llvm::CodeGenFileType::AssemblyFile
                                  : llvm::CodeGenFileType::ObjectFile;
            if (machine.tm->addPassesToEmitFile(passes, stream, nullptr, kind,
                                                /*DisableVerify=*/true))
                throw support::Error("this target emits no objects");
            passes.run(module);
        }
        if (!diagnostics.errors.empty()) throw support::Error("LLVM: " + diagnostics.errors);
        if (machine.gpu()) avoid_assembler_mistakes(out);
        made.generation_ms += thread_ms() - begin;
        return {out.begin(), out.end()};
    }

    MadePart make(llvm::Module& module) {
        if (options.tier > 0) optimise(module);
        for (const EditedTask& edited : options.edited) replace_functions(module, edited);
        if (options.tier > 0 && !machine.gpu()) expand_canonicalize(module, machine.x86);
        diagnostics.frames.clear();
        std::vector<uint8_t> object = generate(module);
        return {std::move(object), std::move(diagnostics.frames)};
    }

    std::optional<PartKey> key_of(const llvm::Module& part) {
        if (!options.store) return {};
        support::begin_stage("keys of parts");
        return codegen::key_of(part, how());
    }

    MadePart find_or_make(llvm::Module& module, const std::optional<PartKey>& key) {
        if (!key) return make(module);
        support::begin_stage("kept parts");
        if (const auto kept = options.store->find(*key)) {
            try {
                return read_part(*kept);
            } catch (const support::Error&) {  // damaged: made again
            }
        }
        MadePart part = make(module);
        support::end_if_unwanted();
        options.store->keep(*key, write_part(part));
        return part;
    }
};

}  // namespace

uint32_t jobs(const Prepared& prepared, const Options& options) {
    if (!makes_object(options) || !options.edited.empty()) return 1;
    return options.tier == 0 || prepared.plan.target.threads ? prepared.parts : 1;
}

Made do_job(const Prepared& prepared, const Options& options, uint32_t number) {
    const double begin = thread_ms();
    support::begin_stage("target", options.cpu);
    Job job(prepared, options);  // the machine is not put back if an error is thrown
    llvm::TargetMachine& tm = *job.machine.tm;
    llvm::Module module("kernel", job.context);
    module.setTargetTriple(tm.getTargetTriple());
    module.setDataLayout(tm.createDataLayout());
    module.setPICLevel(llvm::PICLevel::BigPIC);
    const double lowers = thread_ms();
    job.made.target_ms = lowers - begin;

    support::begin_stage("lowering");
    const bool one_of_many = jobs(prepared, options) > 1;
    ModuleLowering lowering(prepared, options, job.machine.target, job.context, module,
                            one_of_many ? number : ModuleLowering::kAll);
    lowering.run();
    job.made.lowering_ms = thread_ms() - lowers;
    std::string problem;
    llvm::raw_string_ostream problem_stream(problem);
    if (options.verify && llvm::verifyModule(module, &problem_stream))
        throw support::Error("invalid LLVM IR: " + problem);

    const auto text = [&] {
        const std::string t = job.text_of(module);
        job.made.objects.emplace_back(t.begin(), t.end());
        return std::move(job.made);
    };
    if (options.want == Options::Want::lowered_llvm) return text();
    std::vector<std::string> names(prepared.functions.size());  // by Function::id; "": another's
    job.made.frames.resize(names.size());
    for (const ir::Function* f : prepared.functions) {
        if (!lowering.makes(*f)) continue;
        names[f->id] = lowering.functions[f->id]->getName().str();
        job.made.frames[f->id] = kReturnAddress;
    }
    if (options.tier > 0) expand_calls(module, tm);
    if (options.want == Options::Want::llvm) {
        job.optimise(module);
        return text();
    }

    const auto add = [&](MadePart part) {
        job.made.objects.push_back(std::move(part.object));
        for (size_t f = 0; f < names.size(); ++f)
            if (const auto frame = part.frames.find(names[f]); frame != part.frames.end())
                job.made.frames[f] += frame->second;
    };
    if (one_of_many) {
        drop_unused_declarations(module);
        add(job.find_or_make(module, job.key_of(module)));
    } else if (prepared.parts == 1 || !makes_object(options) || job.machine.gpu()) {
        add(job.make(module));
    } else {
        // Code generation leaves names in the context, which bitcode lists: keys come before.
        const auto parts = cut(module, prepared, names);
        std::vector<std::optional<PartKey>> keys;
        for (const auto& part : parts) keys.push_back(job.key_of(*part));
        for (size_t k = 0; k < parts.size(); ++k) add(job.find_or_make(*parts[k], keys[k]));
    }
    Machines::get().put_back(options, std::move(job.machine));
    return std::move(job.made);
}

Emitted join(const Prepared& prepared, const Options& options, std::vector<Made> made) {
    Emitted out;
    Made all;  // their sums
    std::vector<uint64_t> frames(prepared.functions.size());
    size_t bytes = 0;
    for (Made& m : made) {
        all.target_ms += m.target_ms, all.lowering_ms += m.lowering_ms;
        all.passes_ms += m.passes_ms, all.generation_ms += m.generation_ms;
        for (size_t f = 0; f < m.frames.size(); ++f) frames[f] += m.frames[f];
        for (std::vector<uint8_t>& object : m.objects) {
            bytes += object.size();
            out.objects.push_back(std::move(object));
        }
    }
    const uint64_t deepest = deepest_stack(prepared, frames);
    out.stack_bytes = deepest > kSmallStack ? deepest : 0;
    if (prepared.plan.target.threads) out.stack_bytes = is_recursive(prepared);
    if (options.time_passes)
        std::fprintf(stderr,
                     "llvm tier %d %s: target %.2f ms, lowering %.2f, passes %.2f, code generation "
                     "%.2f; %zu bytes in %zu parts\n",
                     options.tier, prepared.plan.module->name.c_str(), all.target_ms,
                     all.lowering_ms, all.passes_ms, all.generation_ms, bytes, out.objects.size());
    return out;
}

Emitted emit(const Prepared& prepared, const Options& options) {
    std::vector<Made> made;
    for (uint32_t k = 0; k < jobs(prepared, options); ++k)
        made.push_back(do_job(prepared, options, k));
    return join(prepared, options, std::move(made));
}

}  // namespace qd::codegen
