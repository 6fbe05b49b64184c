// See target.h.

#include "session/target.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <span>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/store.h"
#include "session/session.h"
#include "support/abi.h"
#include "support/bytes.h"

namespace qd::session {
namespace {

using cache::Bytes;

// The linker's hash of an object's content, from the notes of its image; "" if there is none.
std::string build_id(std::span<const char> notes) {
    while (notes.size() >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        std::memcpy(&note, notes.data(), sizeof note);
        const size_t name = (size_t(note.n_namesz) + 3) & ~size_t(3);
        const size_t value = (size_t(note.n_descsz) + 3) & ~size_t(3);
        if (name + value > notes.size() - sizeof note) return "";
        if (note.n_type == NT_GNU_BUILD_ID)
            return std::string(notes.data() + sizeof note + name, note.n_descsz);
        notes = notes.subspan(sizeof note + name + value);
    }
    return "";
}

// Of a file whose first page has its notes, as linkers put them; else size and time.
std::string identity_of(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return "?";
    alignas(ElfW(Ehdr)) char page[4096];
    const ssize_t bytes = ::pread(file, page, sizeof page, 0);
    struct stat info;
    const bool known = ::fstat(file, &info) == 0;
    ::close(file);
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(page);
    for (int k = 0; bytes == ssize_t(sizeof page) && k < header.e_phnum; ++k) {
        const size_t at = header.e_phoff + size_t(k) * sizeof(ElfW(Phdr));
        if (at + sizeof(ElfW(Phdr)) > sizeof page) break;
        const auto& part = *reinterpret_cast<const ElfW(Phdr)*>(page + at);
        if (part.p_type != PT_NOTE || part.p_offset + part.p_filesz > sizeof page) continue;
        if (const std::string id = build_id({page + part.p_offset, part.p_filesz}); !id.empty())
            return id;
    }
    return known ? std::to_string(info.st_size) + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
                       std::to_string(info.st_mtim.tv_nsec)
                 : "?";
}

std::string make_identity() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&make_identity), &info)) return "?";
    const std::string extension = info.dli_fname;
    std::string folder = extension;
    for (int up = 0; up < 2; ++up)
        folder.erase(folder.find_last_of('/') == std::string::npos ? 0 : folder.find_last_of('/'));
    return identity_of(extension) + ";" + identity_of(folder + "/libqd_compiler.so");
}

std::string read_features() {
    std::string out;
#if defined(__x86_64__)
    auto add = [&](unsigned leaf, unsigned sub) {
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!__get_cpuid_count(leaf, sub, &a, &b, &c, &d)) return;
        if (leaf == 1) b = 0;             // holds the core's number
        if (leaf == 1) c &= ~(1u << 27);  // OSXSAVE follows from XCR0 below
        for (const unsigned word : {a, b, c, d}) out += std::to_string(word) + ",";
    };
    add(1, 0);
    add(7, 0);
    add(7, 1);
    add(0x80000001, 0);
    unsigned low = 0, high = 0;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 27)))
        asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    out += std::to_string(low);
#else
    out = "aarch64";
#endif
    return out;
}

}  // namespace

const std::string& build_identity() {
    static const std::string identity = make_identity();
    return identity;
}

const std::string& host_features() {
    static const std::string features = read_features();
    return features;
}

Bytes hash_of(const Bytes& data) {
    const XXH128_hash_t h = XXH3_128bits(data.data(), data.size());
    Bytes out(16);
    std::memcpy(out.data(), &h, 16);
    return out;
}

const Bytes& environment() {
    static Bytes known;  // under the GIL
    static uint64_t version = 0;
    const Session& s = session();
    if (version == s.options_version) return known;
    support::ByteWriter w;
    w.number(abi::kAbiVersion);
    w.text(build_identity());
    w.text(s.cpu.empty() ? host_features() : s.cpu);
    w.text(ir::key_of(s.options));
    w.text(ir::kernel_key_of(s.options));
    w.number(int32_t(s.tier));
    version = s.options_version;
    return known = hash_of(w.out);
}

std::string code_name(std::span<const uint8_t> code_hash) {
    static const Bytes machine = [] {
        support::ByteWriter w;
        w.text(build_identity());
        w.text(host_features());
        return hash_of(w.out);
    }();
    Bytes hash = machine;
    hash.insert(hash.end(), code_hash.begin(), code_hash.end());
    hash = hash_of(hash);
    const Bytes more = hash_of(hash);
    hash.insert(hash.end(), more.begin(), more.end());
    return "T" + cache::hex(hash) + ".qdc";
}

}  // namespace qd::session
