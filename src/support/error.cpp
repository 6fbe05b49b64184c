// The failure path of QD_CHECK: an exception, never an abort.

#include "support/error.h"

#include <cstring>

namespace qd::support {

void check_failed(const char* condition, const char* file, int line, const std::string& text) {
    const char* slash = std::strrchr(file, '/');
    std::string what = "internal error at " + std::string(slash ? slash + 1 : file) + ":" +
                       std::to_string(line) + ": " + condition;
    if (!text.empty()) what += ": " + text;
    throw Error(what);
}

}  // namespace qd::support
