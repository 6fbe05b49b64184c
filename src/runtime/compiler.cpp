// See compiler.h.

#include "runtime/compiler.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <new>

#include "support/error.h"

namespace qd::runtime {
namespace {

using support::Error;

std::mutex lock;  // guards the first load and `path`
std::string path;
std::atomic<const Compiler*> instance{nullptr};

std::string default_path() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&default_path), &info))
        throw Error("cannot find the folder of the extension");
    std::string here = info.dli_fname;  // .../quadrants/_lib/core/quadrants_python...so
    for (int up = 0; up < 2; ++up)
        here.erase(here.find_last_of('/') == std::string::npos ? 0 : here.find_last_of('/'));
    return here + "/libqd_compiler.so";
}

template <class F>
void bind(void* library, const char* name, F& fn) {
    fn = reinterpret_cast<F>(dlsym(library, name));
    if (!fn) throw Error(std::string("the compiler object lacks ") + name);
}

}  // namespace

bool Compiler::loaded() { return instance.load(std::memory_order_acquire) != nullptr; }

void Compiler::set_path(std::string p) {
    std::lock_guard guard(lock);
    path = std::move(p);
}

const Compiler& Compiler::get() {
    if (const Compiler* c = instance.load(std::memory_order_acquire)) return *c;
    std::lock_guard guard(lock);
    if (const Compiler* c = instance.load(std::memory_order_acquire)) return *c;
    const std::string file = path.empty() ? default_path() : path;
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw Error(std::string("cannot load the compiler: ") + dlerror());
    auto c = std::make_unique<Compiler>();
    uint32_t (*version)() = nullptr;
    bind(library, "qd_compiler_abi_version", version);
    if (version() != abi::kAbiVersion)
        throw Error("the compiler object is of another version: " + file);
    bind(library, "qd_compiler_begin", c->begin_);
    bind(library, "qd_compiler_check_cpu", c->check_cpu_);
    bind(library, "qd_compiler_cost", c->cost_);
    bind(library, "qd_compiler_differentiate", c->differentiate_);
    bind(library, "qd_compiler_emit", c->emit_);
    bind(library, "qd_compiler_end", c->end_);
    bind(library, "qd_compiler_free", c->free_);
    bind(library, "qd_compiler_interpret", c->interpret_);
    bind(library, "qd_compiler_replace", c->replace_);
    bind(library, "qd_compiler_text", c->text_);
    bind(library, "qd_compiler_times", c->times_);
    instance.store(c.release(), std::memory_order_release);
    return *instance.load(std::memory_order_acquire);
}

std::vector<uint8_t> Compiler::take(abi::Blob& blob) const {
    const auto give_back = [this](abi::Blob* b) { free_(b); };
    const std::unique_ptr<abi::Blob, decltype(give_back)> owner(&blob, give_back);
    return {blob.data, blob.data + blob.bytes};
}

void Compiler::raise(abi::Blob& error) const {
    if (!error.data) throw std::bad_alloc();  // for its text
    const auto text = take(error);
    throw Error(std::string(text.begin(), text.end()));
}

Compiler::Compilation Compiler::begin(std::span<const uint8_t> ir,
                                      const abi::CompileOptions& options) const {
    abi::Compilation* compilation = nullptr;
    abi::Blob error{};
    if (begin_(ir.data(), ir.size(), &options, &compilation, &error)) raise(error);
    return Compilation(compilation);
}

std::vector<uint8_t> Compiler::emit(abi::Compilation* compilation,
                                    const abi::CompileOptions& options) const {
    abi::Blob artefact{}, error{};
    if (emit_(compilation, &options, &artefact, &error)) raise(error);
    return take(artefact);
}

std::vector<uint8_t> Compiler::differentiate(std::span<const uint8_t> ir,
                                             const abi::Derivative& wanted,
                                             std::vector<uint8_t>& refusal) const {
    abi::Blob module{}, why{}, error{};
    if (differentiate_(ir.data(), ir.size(), &wanted, &module, &why, &error)) raise(error);
    refusal = take(why);
    return take(module);
}

std::string Compiler::text(std::span<const uint8_t> ir, abi::Text what,
                           const std::string& cpu) const {
    abi::Blob text{}, error{};
    if (text_(ir.data(), ir.size(), static_cast<int>(what), cpu.c_str(), &text, &error))
        raise(error);
    const auto bytes = take(text);
    return {bytes.begin(), bytes.end()};
}

std::string Compiler::times() const {
    abi::Blob text{};
    times_(&text);
    const auto bytes = take(text);
    return {bytes.begin(), bytes.end()};
}

void Compiler::check_cpu(const std::string& name) const {
    abi::Blob error{};
    if (check_cpu_(name.c_str(), &error)) raise(error);
}

void Compiler::interpret(std::span<const uint8_t> ir, const abi::Context& context) const {
    abi::Blob error{};
    if (interpret_(ir.data(), ir.size(), &context, &error)) raise(error);
}

}  // namespace qd::runtime
