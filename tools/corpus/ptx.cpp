// PTX of modules: `qd_ptx GPU FOLDER FILE.qir...` writes FOLDER/NUMBER.ptx for each file that has
// code, in their order. See corpus.py.

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
    const auto ptx = qd::codegen::emit(prepared, how).objects.at(0);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(ptx.data()), std::streamsize(ptx.size()));
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) return 2;
    const char* gpu = arguments[1];
    qd::codegen::initialise("", gpu);
    int failed = 0;
    for (int k = 3; k < count; ++k) {
        try {
            write(gpu, arguments[2] + ("/" + std::to_string(k - 3)) + ".ptx", arguments[k]);
        } catch (const std::exception& e) {
            std::printf("%s failed: %s\n", arguments[k], e.what());
            failed = 1;
        }
    }
    return failed;
}
