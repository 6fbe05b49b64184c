// LLVM IR that the user edited (QD_LOAD_IR) in place of what lowering made.
//
// A text is a whole module that defines some of the kernel's functions. They replace those of the
// same name; the rest stays. The text is checked, so that a slip of the pen is a message.

#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/llvm/lower.h"

namespace qd::codegen {

void replace_functions(llvm::Module& module, const std::string& text) {
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    llvm::SMDiagnostic mistake;
    std::unique_ptr<llvm::Module> edited =
        llvm::parseAssemblyString(text, mistake, module.getContext());
    if (!edited)
        mistake.print("edited LLVM IR", stream, /*ShowColors=*/false);
    else if (llvm::verifyModule(*edited, &stream))
        edited.reset();
    if (!edited) throw support::Error("edited LLVM IR is invalid: " + problem);
    edited->setDataLayout(module.getDataLayout());
    edited->setTargetTriple(module.getTargetTriple());
    if (llvm::Linker::linkModules(module, std::move(edited), llvm::Linker::OverrideFromSrc))
        throw support::Error("edited LLVM IR does not fit the kernel");
}

}  // namespace qd::codegen
