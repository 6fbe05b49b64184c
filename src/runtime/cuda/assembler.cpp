// See assembler.h.

#include "runtime/cuda/assembler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

#include "runtime/cuda/driver.h"
#include "support/abi.h"
#include "support/program.h"

namespace qd::runtime::cuda {
namespace {

// Less is assembled before a program has started; and quick code of less saves nothing.
constexpr size_t kFewBytes = 16 << 10;
// Its full effort takes so long, on CPUs of 2025; more than in proportion where functions are
// large.
constexpr uint32_t kUsPerByte = 5;
constexpr const char* kInPackages[] = {"nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas",
                                       "triton/backends/nvidia/bin/ptxas", "torch/bin/ptxas"};
constexpr int kOldest = 12010;  // 1000 major + 10 minor, whose PTX ours is

// 1000 major + 10 minor; 0: it says nothing of the kind.
int version_of(const std::string& program) {
    const std::string said = support::run_program({program, "--version"}, {}, nullptr).said;
    const size_t at = said.find("release ");
    int major = 0, minor = 0;
    if (at == std::string::npos ||
        std::sscanf(said.c_str() + at, "release %d.%d", &major, &minor) != 2)
        return 0;
    return 1000 * major + 10 * minor;
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

struct Assembler {
    std::mutex lock;  // guards everything here
    std::vector<std::string> folders;
    bool searched = false;
    std::string program;           // "": there is none
    bool has_fast_compile = true;  // as far as is known

    // Code of another major version than the driver's may be refused, or worse.
    bool fits(const std::string& candidate) const {
        if (access(candidate.c_str(), X_OK) != 0) return false;
        const int version = version_of(candidate);
        return version >= kOldest && driver() && version / 1000 <= driver()->version / 1000;
    }

    void search() {
        searched = true;
        if (const char* wanted = std::getenv("QD_PTXAS")) {  // "" or 0: none
            if (fits(wanted)) program = wanted;
            return;
        }
        std::vector<std::string> candidates;
        if (const std::string home = variable("CUDA_HOME"); !home.empty())
            candidates.push_back(home + "/bin/ptxas");
        const std::string path = variable("PATH");
        for (size_t at = 0; at < path.size();) {
            const size_t end = std::min(path.find(':', at), path.size());
            if (end > at) candidates.push_back(path.substr(at, end - at) + "/ptxas");
            at = end + 1;
        }
        for (const std::string& folder : folders)
            for (const char* place : kInPackages) candidates.push_back(folder + "/" + place);
        const auto found = std::ranges::find_if(candidates, [&](const auto& c) { return fits(c); });
        if (found != candidates.end()) program = *found;
    }
};
Assembler& assembler() {
    static auto* const all = new Assembler;  // never destroyed: the queue may use it during exit
    return *all;
}

struct Found {
    std::string program;
    bool has_fast_compile;
};
Found found() {
    Assembler& a = assembler();
    const std::lock_guard guard(a.lock);
    if (!a.searched) a.search();
    return {a.program, a.has_fast_compile};
}

// Nothing: the program cannot do it.
std::optional<std::vector<uint8_t>> run(const std::string& program,
                                        const std::vector<std::string>& options,
                                        std::span<const uint8_t> ptx, const int32_t* unwanted) {
    const support::MemoryFile source(ptx), code({});
    std::vector<std::string> words{program, "-arch=sm_" + std::to_string(driver()->capability)};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {source.path(), "-o", code.path()});
    const int files[] = {source.descriptor(), code.descriptor()};
    if (files[0] < 0 || files[1] < 0 || !support::run_program(words, files, unwanted).well)
        return {};
    std::vector<uint8_t> made = code.content();
    if (made.size() < 4 || std::memcmp(made.data(), "\177ELF", 4) != 0) return {};
    return made;
}

std::optional<std::vector<uint8_t>> assemble(std::span<const uint8_t> ptx, bool quick,
                                             bool recursive, const int32_t* unwanted) {
    const Found a = found();
    if (a.program.empty()) return {};
    // On other levels (13.0) code of functions that call themselves in branches hangs or gives
    // other numbers.
    if (recursive) return run(a.program, {"-O0"}, ptx, unwanted);
    if (!quick) return run(a.program, {"-O3"}, ptx, unwanted);
    if (a.has_fast_compile) {
        if (auto made = run(a.program, {"-O1", "--Ofast-compile=min"}, ptx, unwanted)) return made;
        if (unwanted && __atomic_load_n(unwanted, __ATOMIC_RELAXED)) return {};
    }
    auto made = run(a.program, {"-O1"}, ptx, unwanted);
    if (made && a.has_fast_compile) {  // it is older than this option
        Assembler& all = assembler();
        const std::lock_guard guard(all.lock);
        all.has_fast_compile = false;
    }
    return made;
}

// An artefact of this object; of quick code if there is PTX from which to make it better.
std::vector<uint8_t> with_object(std::span<const uint8_t> head, std::span<const uint8_t> object,
                                 std::span<const uint8_t> better) {
    std::vector<uint8_t> out(head.begin(), head.end());
    abi::Artefact header;
    std::memcpy(&header, out.data(), sizeof header);
    const abi::ObjectRange range{header.first_object, uint32_t(object.size())};
    std::memcpy(out.data() + header.objects, &range, sizeof range);
    out.insert(out.end(), object.begin(), object.end());
    header.ir = header.ir_bytes = header.optimise_us = 0;
    if (!better.empty()) {
        header.ir = uint32_t(out.size());
        header.ir_bytes = uint32_t(better.size());
        header.optimise_us = kUsPerByte * uint32_t(better.size());
        out.insert(out.end(), better.begin(), better.end());
    }
    header.tier = better.empty() ? 1 : 0;
    header.bytes = out.size();
    std::memcpy(out.data(), &header, sizeof header);
    return out;
}

}  // namespace

void find_assembler_in(const std::vector<std::string>& folders) {
    Assembler& a = assembler();
    const std::lock_guard guard(a.lock);
    a.folders = folders;
}

std::vector<uint8_t> assembled(std::span<const uint8_t> artefact, int tier,
                               const int32_t* unwanted) {
    abi::Artefact header;
    std::memcpy(&header, artefact.data(), sizeof header);
    abi::ObjectRange range;
    std::memcpy(&range, artefact.data() + header.objects, sizeof range);
    const auto ptx = artefact.subspan(range.offset, range.bytes);
    const bool recursive = header.stack_bytes > 0, few = ptx.size() <= kFewBytes;
    const bool quick = tier == 0 || (tier < 0 && !few && !recursive);
    if (!few || tier == 0)
        if (const auto code = assemble(ptx, quick, recursive, unwanted))
            return with_object(artefact.first(header.first_object), *code,
                               quick ? ptx : std::span<const uint8_t>());
    return {artefact.begin(), artefact.end()};
}

std::vector<uint8_t> assembled_better(std::span<const uint8_t> head, std::span<const uint8_t> ptx,
                                      const int32_t* unwanted) {
    abi::Artefact header;
    std::memcpy(&header, head.data(), sizeof header);
    const auto code = assemble(ptx, false, header.stack_bytes > 0, unwanted);
    return with_object(head, code ? std::span<const uint8_t>(*code) : ptx, {});
}

}  // namespace qd::runtime::cuda
