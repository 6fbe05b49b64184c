// The compiler object: found beside the extension, loaded on the first cache miss, never unloaded.
// Any thread.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/abi.h"

namespace qd::runtime {

class Compiler {
  public:
    struct End {
        void operator()(abi::Compilation* c) const { get().end_(c); }
    };
    using Compilation = std::unique_ptr<abi::Compilation, End>;

    // Loads it if that has not happened yet. Throws support::Error if it is missing or of another
    // version.
    static const Compiler& get();
    static bool loaded();
    static void set_path(
        std::string path);  // before the first get(); default: beside the extension

    // Each throws support::Error with the compiler's message.
    Compilation begin(std::span<const uint8_t> ir, const abi::CompileOptions& options) const;
    std::vector<uint8_t> emit(abi::Compilation* compilation,
                              const abi::CompileOptions& options) const;
    // As it is for a CPU (or GPU), by LLVM's name; "": this machine's.
    std::string text(std::span<const uint8_t> ir, abi::Text what, const std::string& cpu) const;
    std::string times() const;  // see abi::TimesFn
    // Throws unless code for this CPU, an LLVM name, runs on this machine.
    void check_cpu(const std::string& name) const;
    void interpret(std::span<const uint8_t> ir, const abi::Context& context) const;
    uint32_t cost(const abi::Compilation* c) const { return cost_(c); }
    // The module with the derivative; or nothing, and `refusal` says why (support/no_derivative.h).
    std::vector<uint8_t> differentiate(std::span<const uint8_t> ir, const abi::Derivative& wanted,
                                       std::vector<uint8_t>& refusal) const;
    // LLVM IR whose functions take the place of those that would be emitted.
    void replace(abi::Compilation* c, uint32_t task, const std::string& file,
                 std::string_view llvm) const {
        replace_(c, task, file.c_str(), llvm.data(), llvm.size());
    }

  private:
    std::vector<uint8_t> take(abi::Blob& blob) const;
    void raise(abi::Blob& error) const;

    abi::BeginFn begin_ = nullptr;
    abi::CheckCpuFn check_cpu_ = nullptr;
    abi::CostFn cost_ = nullptr;
    abi::DifferentiateFn differentiate_ = nullptr;
    abi::EmitFn emit_ = nullptr;
    abi::EndFn end_ = nullptr;
    abi::FreeFn free_ = nullptr;
    abi::InterpretFn interpret_ = nullptr;
    abi::ReplaceFn replace_ = nullptr;
    abi::TextFn text_ = nullptr;
    abi::TimesFn times_ = nullptr;
};

}  // namespace qd::runtime
