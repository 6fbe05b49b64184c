// See perf_map.h.

#include "runtime/cpu/perf_map.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace qd::runtime {

void note_code(int64_t address, uint64_t bytes, std::string_view kernel,
               std::string_view function) {
    static const bool wanted = std::getenv("QD_PERF_MAP") != nullptr;
    if (!wanted) return;
    static std::mutex lock;
    const std::lock_guard hold(lock);
    const std::string path =
        "/tmp/perf-" + std::to_string(getpid()) + ".map";  // a fork's is another
    if (std::FILE* map = std::fopen(path.c_str(), "a")) {
        std::fprintf(map, "%" PRIx64 " %" PRIx64 " %.*s:%.*s\n", static_cast<uint64_t>(address),
                     bytes, static_cast<int>(kernel.size()), kernel.data(),
                     static_cast<int>(function.size()), function.data());
        std::fclose(map);
    }
}

}  // namespace qd::runtime
