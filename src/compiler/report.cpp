// See report.h.

#include "compiler/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <exception>

#include "compiler/contain.h"
#include "ir/ir.h"
#include "support/doing.h"

namespace qd::compiler {
namespace {

// The module as text, which the parser reads back; empty if that fails too.
std::string text_of(std::span<const uint8_t> ir) {
    std::string text;
    try {
        if (contained([&] { text = ir::print(*ir::deserialise(ir)); })) return {};
    } catch (const std::exception&) {
        return {};
    }
    return text;
}

// One file a module, however often it fails. Its name, or nothing if it could not be written.
std::string file_of(const std::string& content, const std::string& ending,
                    std::span<const uint8_t> ir) {
    char number[17];
    std::snprintf(number, sizeof number, "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(ir.data(), ir.size())));
    const std::string name =
        report_folder() + "/quadrants-" + std::to_string(geteuid()) + "-" + number + ending;
    const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        struct stat known;
        const bool mine = errno == EEXIST && lstat(name.c_str(), &known) == 0 &&
                          S_ISREG(known.st_mode) && known.st_uid == geteuid();
        return mine ? name : std::string();
    }
    size_t done = 0;
    while (done < content.size()) {
        const ssize_t n = write(file, content.data() + done, content.size() - done);
        if (n <= 0) break;
        done += static_cast<size_t>(n);
    }
    close(file);
    return done == content.size() ? name : std::string();
}

}  // namespace

const std::string& report_folder() {
    static const std::string folder = [] {
        const char* wanted = getenv("TMPDIR");
        return std::string(wanted && *wanted ? wanted : "/tmp");
    }();
    return folder;
}

std::string report(std::span<const uint8_t> ir, const std::string& failure) {
    std::string where;
    if (*support::doing.stage) where = std::string("; in ") + support::doing.stage;
    if (*support::doing.of) where += std::string(" of ") + support::doing.of;
    const std::string text = text_of(ir);
    const std::string file = text.empty()
                                 ? file_of(std::string(ir.begin(), ir.end()), ".bin", ir)
                                 : file_of("// " + failure + where + "\n" + text, ".qir", ir);
    if (!file.empty()) where += "; what was compiled is in " + file;
    return where;
}

}  // namespace qd::compiler
