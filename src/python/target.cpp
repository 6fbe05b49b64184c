// See target.h.

#include "python/target.h"

#include <dlfcn.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace qd::python {
namespace {

std::string stamp(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return "?";
    return std::to_string(info.st_size) + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
           std::to_string(info.st_mtim.tv_nsec);
}

std::string make_identity() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&stamp), &info)) return "?";
    const std::string extension = info.dli_fname;
    std::string folder = extension;
    for (int up = 0; up < 2; ++up)
        folder.erase(folder.find_last_of('/') == std::string::npos ? 0 : folder.find_last_of('/'));
    return stamp(extension) + ";" + stamp(folder + "/libqd_compiler.so");
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

}  // namespace qd::python
