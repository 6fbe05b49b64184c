// Tells profilers which function compiled code is.
//
// With QD_PERF_MAP set in the environment, each function that is loaded becomes a line of
// /tmp/perf-<pid>.map, where `perf report` looks addresses up that belong to no file.

#pragma once

#include <cstdint>
#include <string_view>

namespace qd::runtime {

void note_code(int64_t address, uint64_t bytes, std::string_view kernel, std::string_view function);

}  // namespace qd::runtime
