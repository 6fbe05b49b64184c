// What the compiler does on this thread at the moment: for the report if it fails there.
//
// Each stage says so when it begins. The text is copied, because a failure frees what it names.

#pragma once

#include <string_view>

namespace qd::support {

struct Doing {
    char stage[48] = "", of[80] = "";
};
inline thread_local Doing doing;
inline void (*on_stage)(std::string_view stage) = nullptr;  // for tests: it may fail there

inline void begin_stage(std::string_view stage, std::string_view of = {}) {
    const auto copy = [](auto& to, std::string_view from) { to[from.copy(to, sizeof to - 1)] = 0; };
    copy(doing.stage, stage);
    copy(doing.of, of);
    if (on_stage) on_stage(stage);
}

}  // namespace qd::support
