// See assembler.h.

#include "runtime/cuda/assembler.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/cuda/driver.h"
#include "support/abi.h"
#include "support/own_thread.h"
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

using Bytes = std::vector<uint8_t>;
using Words = std::vector<std::string>;

bool is_unwanted(const int32_t* unwanted) {
    return unwanted && __atomic_load_n(unwanted, __ATOMIC_RELAXED);
}

// Nothing: the program cannot do it.
std::optional<Bytes> run(const std::string& program, const Words& options,
                         std::span<const uint8_t> ptx, const int32_t* unwanted) {
    const support::MemoryFile source(ptx), code({});
    Words words{program, "-arch=sm_" + std::to_string(driver()->capability)};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {source.path(), "-o", code.path()});
    const int files[] = {source.descriptor(), code.descriptor()};
    if (files[0] < 0 || files[1] < 0 || !support::run_program(words, files, unwanted).well)
        return {};
    Bytes made = code.content();
    if (made.size() < 4 || std::memcmp(made.data(), "\177ELF", 4) != 0) return {};
    return made;
}

using Texts = std::vector<std::span<const uint8_t>>;

// Each in a process of its own. Nothing: the program cannot do one.
std::optional<std::vector<Bytes>> run_all(const std::string& program, const Words& options,
                                          const Texts& ptx, const int32_t* unwanted) {
    std::vector<std::optional<Bytes>> made(ptx.size());
    std::atomic<size_t> next = 0;
    const auto work = [&]() noexcept {
        for (size_t k; (k = next++) < ptx.size();) try {
                made[k] = run(program, options, ptx[k], unwanted);
            } catch (const std::exception&) {  // it is not made
            }
    };
    const size_t cpus = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> others;
    {
        const support::QuietThreads quiet;
        try {
            while (others.size() + 1 < std::min(cpus, ptx.size())) others.emplace_back(work);
        } catch (const std::exception&) {  // no more threads
        }
    }
    work();
    for (std::thread& t : others) t.join();
    std::vector<Bytes> out;
    for (std::optional<Bytes>& m : made) {
        if (!m) return {};
        out.push_back(std::move(*m));
    }
    return out;
}

std::optional<std::vector<Bytes>> assemble(const Texts& ptx, bool quick, bool recursive,
                                           const int32_t* unwanted) {
    const Found a = found();
    if (a.program.empty()) return {};
    // On other levels (13.0) code of functions that call themselves in branches hangs or gives
    // other numbers.
    if (recursive) return run_all(a.program, {"-O0"}, ptx, unwanted);
    if (!quick) return run_all(a.program, {"-O3"}, ptx, unwanted);
    if (a.has_fast_compile) {
        auto made = run_all(a.program, {"-O1", "--Ofast-compile=min"}, ptx, unwanted);
        if (made || is_unwanted(unwanted)) return made;
    }
    auto made = run_all(a.program, {"-O1"}, ptx, unwanted);
    if (made && a.has_fast_compile) {  // it is older than this option
        Assembler& all = assembler();
        const std::lock_guard guard(all.lock);
        all.has_fast_compile = false;
    }
    return made;
}

void append(Bytes& to, std::span<const uint8_t> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
}

// Several as one, each with a zero behind it, which none has inside.
Bytes joined(const Texts& texts) {
    Bytes out;
    for (const auto text : texts) {
        append(out, text);
        if (out.empty() || out.back() != 0) out.push_back(0);
    }
    return out;
}
Texts parted(std::span<const uint8_t> all) {
    Texts out;
    while (!all.empty()) {
        const auto end = size_t(std::ranges::find(all, 0) - all.begin());
        out.push_back(all.first(end));
        all = all.subspan(std::min(end + 1, all.size()));
    }
    return out;
}

// An artefact of these objects; of quick code if there is PTX from which to make it better.
Bytes with_objects(std::span<const uint8_t> head, const Texts& objects, const Bytes& better) {
    Bytes out(head.begin(), head.end());
    abi::Artefact header;
    std::memcpy(&header, out.data(), sizeof header);
    std::vector<abi::ObjectRange> ranges;
    for (const auto o : objects) {
        ranges.push_back({uint32_t(out.size()), uint32_t(o.size())});
        append(out, o);
    }
    constexpr size_t kAligned = alignof(abi::ObjectRange);
    out.resize((out.size() + kAligned - 1) / kAligned * kAligned);
    header.objects = uint32_t(out.size());
    header.object_count = uint32_t(ranges.size());
    append(out,
           {reinterpret_cast<const uint8_t*>(ranges.data()), ranges.size() * sizeof ranges[0]});
    header.ir = better.empty() ? 0 : uint32_t(out.size());
    header.ir_bytes = uint32_t(better.size());
    header.optimise_us = kUsPerByte * uint32_t(better.size());
    append(out, better);
    header.tier = better.empty() ? 1 : 0;
    header.bytes = out.size();
    std::memcpy(out.data(), &header, sizeof header);
    return out;
}

Texts texts_of(const std::vector<Bytes>& objects) { return {objects.begin(), objects.end()}; }

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
    Texts ptx;
    size_t bytes = 0;
    for (uint32_t k = 0; k < header.object_count; ++k) {
        abi::ObjectRange range;
        std::memcpy(&range, artefact.data() + header.objects + k * sizeof range, sizeof range);
        ptx.push_back(artefact.subspan(range.offset, range.bytes));
        bytes += range.bytes;
    }
    const bool recursive = header.stack_bytes > 0, few = bytes <= kFewBytes;
    const bool quick = tier == 0 || (tier < 0 && !few && !recursive);
    if (!few || tier == 0)
        if (const auto code = assemble(ptx, quick, recursive, unwanted))
            return with_objects(artefact.first(header.first_object), texts_of(*code),
                                quick ? joined(ptx) : Bytes());
    return {artefact.begin(), artefact.end()};
}

std::vector<uint8_t> assembled_better(std::span<const uint8_t> head, std::span<const uint8_t> ptx,
                                      const int32_t* unwanted) {
    abi::Artefact header;
    std::memcpy(&header, head.data(), sizeof header);
    const Texts texts = parted(ptx);
    const auto code = assemble(texts, false, header.stack_bytes > 0, unwanted);
    return with_objects(head, code ? texts_of(*code) : texts, {});
}

}  // namespace qd::runtime::cuda
