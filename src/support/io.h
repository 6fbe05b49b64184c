// Writing to file descriptors.

#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace qd::support {

// Goes on where a signal came between. False: errno says why.
inline bool write_all(int descriptor, const void* data, size_t bytes) {
    auto* at = static_cast<const char*>(data);
    while (bytes) {
        const ssize_t n = ::write(descriptor, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= static_cast<size_t>(n);
    }
    return true;
}

}  // namespace qd::support
