// LLVM IR that the user edited (QD_LOAD_IR) in place of what lowering made.
//
// A text is a whole module that defines the function of a task. Its functions replace those of the
// same name; the rest stays. The text is checked, so that a slip of the pen is a message.

#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/llvm/lower.h"
#include "support/doing.h"

namespace qd::codegen {
namespace {

std::string text_of(const llvm::Type& t) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    t.print(stream);
    return text;
}

// What is wrong with it; "" if nothing.
std::string problem_of(const llvm::Module& ours, const llvm::Module& edited, uint32_t task) {
    const std::string name = "task" + std::to_string(task);
    const llvm::Function* own = edited.getFunction(name);
    if (!own || own->isDeclaration()) return "does not define the function @" + name;
    const llvm::Triple &triple = edited.getTargetTriple(), &wanted = ours.getTargetTriple();
    if (!triple.empty() && triple.getArch() != wanted.getArch())
        return "is for " + triple.str() + ", and this machine is " + wanted.str();
    for (const llvm::Function& f : edited) {
        const llvm::Function* replaced = ours.getFunction(f.getName());
        if (replaced && replaced->getFunctionType() != f.getFunctionType())
            return "has another @" + f.getName().str() +
                   " than the kernel: " + text_of(*f.getFunctionType()) + " instead of " +
                   text_of(*replaced->getFunctionType());
    }
    std::string broken;
    llvm::raw_string_ostream stream(broken);
    return llvm::verifyModule(edited, &stream) ? "is invalid: " + broken : "";
}

}  // namespace

void replace_functions(llvm::Module& module, const EditedTask& edited) {
    support::begin_stage("edited LLVM IR");
    const auto refuse = [&](const std::string& why) {
        throw TargetError("QD_LOAD_IR: " + edited.file + " " + why);
    };
    llvm::SMDiagnostic mistake;
    std::unique_ptr<llvm::Module> theirs =
        llvm::parseAssemblyString(edited.llvm, mistake, module.getContext());
    if (!theirs)
        refuse("is invalid, line " + std::to_string(mistake.getLineNo()) + ", column " +
               std::to_string(mistake.getColumnNo() + 1) + ": " + mistake.getMessage().str());
    if (const std::string why = problem_of(module, *theirs, edited.task); !why.empty()) refuse(why);
    theirs->setDataLayout(module.getDataLayout());
    theirs->setTargetTriple(module.getTargetTriple());
    if (llvm::Linker::linkModules(module, std::move(theirs), llvm::Linker::OverrideFromSrc))
        refuse("does not fit the kernel");
}

}  // namespace qd::codegen
