// PTX of modules: `qd_ptx GPU FOLDER FILE.qir...` writes FOLDER/NUMBER.ptx for each file that has
// code, in their order, and NUMBER.PART.ptx if it has several parts. See corpus.py.

#include <cstdio>
#include <fstream>
#include <string>

#include "codegen/llvm/codegen.h"
#include "contents.h"
#include "ir/ir.h"
#include "pass/pass.h"

namespace {

void write(const char* gpu, const std::string& path, const char* module) {
    qd::pass::PipelineOptions options;
    options.target = qd::codegen::target_of(gpu, "");
    const auto prepared =
        qd::codegen::prepare(qd::pass::run_pipeline(qd::ir::parse(contents(module)), options));
    qd::codegen::Options how;
    how.cpu = gpu;
    how.verify = true;
    const auto objects = qd::codegen::emit(prepared, how).objects;
    for (size_t k = 0; k < objects.size(); ++k)
        std::ofstream(path + (k ? "." + std::to_string(k) : "") + ".ptx", std::ios::binary)
            .write(reinterpret_cast<const char*>(objects[k].data()),
                   std::streamsize(objects[k].size()));
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) return 2;
    const char* gpu = arguments[1];
    qd::codegen::initialise("", gpu);
    int failed = 0;
    for (int k = 3; k < count; ++k) {
        try {
            write(gpu, arguments[2] + ("/" + std::to_string(k - 3)), arguments[k]);
        } catch (const std::exception& e) {
            std::printf("%s failed: %s\n", arguments[k], e.what());
            failed = 1;
        }
    }
    return failed;
}
