// What the compiler does on this thread at the moment: for the report if it fails there.
//
// Each stage says so when it begins. The text is copied, because a failure frees what it names.

#pragma once

#include <cstdint>
#include <string_view>

namespace qd::support {

struct Doing {
    char stage[48] = "", of[80] = "";
};
inline thread_local Doing doing;
inline void (*on_stage)(std::string_view stage) = nullptr;  // for tests: it may fail there

// Who asked for the work on this thread sets it to non-zero when nobody wants that any more; null:
// nobody will. What is thrown then passes through LLVM's frames, which leak.
inline thread_local const int32_t* unwanted = nullptr;
struct Unwanted {};
inline void end_if_unwanted() {
    if (unwanted && __atomic_load_n(unwanted, __ATOMIC_RELAXED)) throw Unwanted();
}

inline void begin_stage(std::string_view stage, std::string_view of = {}) {
    const auto copy = [](auto& to, std::string_view from) { to[from.copy(to, sizeof to - 1)] = 0; };
    copy(doing.stage, stage);
    copy(doing.of, of);
    if (on_stage) on_stage(stage);
    end_if_unwanted();
}

}  // namespace qd::support
