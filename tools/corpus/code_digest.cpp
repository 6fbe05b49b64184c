// Digests of the machine code that is made of modules, a line a function: which change to the
// compiler changed which code. `qd_code_digest FILE.qir...`; see corpus.py.
//
// A line: file, CPU, tier, function (or section of constants), bytes, digest of the bytes and of
// what is filled in by the loader. What the CPUs are is the same on each machine.

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <llvm/Object/ELFObjectFile.h>

#include "codegen/llvm/codegen.h"
#include "contents.h"
#include "ir/ir.h"
#include "pass/pass.h"

namespace {

struct Cpu {
    const char *name, *triple;
};
constexpr Cpu kCpus[] = {
    {"x86-64", "x86_64-linux-gnu"},       {"x86-64-v3", "x86_64-linux-gnu"},
    {"znver4", "x86_64-linux-gnu"},       {"skylake-avx512", "x86_64-linux-gnu"},
    {"neoverse-v2", "aarch64-linux-gnu"},
};

struct Code {
    uint64_t bytes = 0, digest = 0;
};
using Codes = std::map<std::string, Code>;  // by name of a function or of a section

template <class T>
T wanted(llvm::Expected<T> e) {
    if (!e) throw std::runtime_error(llvm::toString(e.takeError()));
    return std::move(*e);
}

std::string fixups(const llvm::object::SectionRef& section, uint64_t begin, uint64_t end) {
    std::ostringstream out;
    for (const llvm::object::SectionRef& of : section.getObject()->sections()) {
        const auto target = wanted(of.getRelocatedSection());
        if (target == section.getObject()->section_end() || *target != section) continue;
        for (const llvm::object::RelocationRef& r : of.relocations()) {
            if (r.getOffset() < begin || r.getOffset() >= end) continue;
            const llvm::object::ELFRelocationRef elf(r);
            out << r.getOffset() - begin << ' ' << r.getType() << ' '
                << wanted(r.getSymbol()->getName()).str() << ' ' << wanted(elf.getAddend()) << '\n';
        }
    }
    return out.str();
}

void add(Codes& codes, const std::string& name, std::string bytes, const std::string& fixed) {
    Code& c = codes[name];
    c.bytes += bytes.size();
    bytes += fixed;
    c.digest = XXH3_64bits_withSeed(bytes.data(), bytes.size(), c.digest);
}

void add_object(Codes& codes, const std::vector<uint8_t>& file) {
    const llvm::MemoryBufferRef buffer({reinterpret_cast<const char*>(file.data()), file.size()},
                                       "code");
    const auto object = wanted(llvm::object::ObjectFile::createELFObjectFile(buffer));
    for (const llvm::object::SymbolRef& s : object->symbols()) {
        const llvm::object::ELFSymbolRef symbol(s);
        if (symbol.getELFType() != llvm::ELF::STT_FUNC || symbol.getSize() == 0) continue;
        const auto section = *wanted(symbol.getSection());
        const uint64_t begin = wanted(symbol.getValue()), bytes = symbol.getSize();
        add(codes, wanted(symbol.getName()).str(),
            wanted(section.getContents()).substr(begin, bytes).str(),
            fixups(section, begin, begin + bytes));
    }
    for (const llvm::object::SectionRef& section : object->sections()) {
        const llvm::StringRef name = wanted(section.getName());
        if (!name.starts_with(".rodata") || section.getSize() == 0) continue;
        add(codes, name.str(), wanted(section.getContents()).str(),
            fixups(section, 0, section.getSize()));
    }
}

void show(const char* path) {
    const std::string text = contents(path);
    for (const Cpu& cpu : kCpus) {
        qd::pass::PipelineOptions options;
        options.target = qd::codegen::target_of(cpu.name, cpu.triple);
        const auto prepared =
            qd::codegen::prepare(qd::pass::run_pipeline(qd::ir::parse(text), options));
        for (int tier = 0; tier < 2; ++tier) {
            qd::codegen::Options how;
            how.tier = tier;
            how.cpu = cpu.name;
            how.triple = cpu.triple;
            Codes codes;
            for (const auto& object : qd::codegen::emit(prepared, how).objects)
                add_object(codes, object);
            for (const auto& [name, c] : codes)
                std::printf("%s %s %d %s %llu %016llx\n", path, cpu.name, tier, name.c_str(),
                            static_cast<unsigned long long>(c.bytes),
                            static_cast<unsigned long long>(c.digest));
        }
    }
}

}  // namespace

int main(int count, char** files) {
    for (const Cpu& cpu : kCpus) qd::codegen::initialise(cpu.triple);
    int failed = 0;
    for (int k = 1; k < count; ++k) {
        try {
            show(files[k]);
        } catch (const std::exception& e) {
            std::printf("%s failed: %s\n", files[k], e.what());
            failed = 1;
        }
    }
    return failed;
}
