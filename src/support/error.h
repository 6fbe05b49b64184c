// Errors inside the compiler that are not the user's: a broken invariant or unreadable input.
// User errors are frontend::Diag. Both become Python exceptions at the boundary; nothing aborts.

#pragma once

#include <stdexcept>
#include <string>

namespace qd::support {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& text);

}  // namespace qd::support

#define QD_CHECK(condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ::qd::support::check_failed(#condition, __FILE__, __LINE__, std::string{__VA_ARGS__}); \
    } while (0)
