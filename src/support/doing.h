// What the compiler does on this thread at the moment: for the report if it fails there.
//
// Each stage says so when it begins. The text is copied, because a failure frees what it names.

#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "support/clock.h"

namespace qd::support {

struct Doing {
    char stage[48] = "", of[80] = "";
};
inline thread_local Doing doing;
// For tests, which set it beside threads that compile: it may fail there.
inline std::atomic<void (*)(std::string_view stage)> on_stage = nullptr;

// Who asked for the work on this thread sets it to non-zero when nobody wants that any more; null:
// nobody will. What is thrown then passes through LLVM's frames, which leak.
inline thread_local const int32_t* unwanted = nullptr;
struct Unwanted {};
inline void end_if_unwanted() {
    if (unwanted && __atomic_load_n(unwanted, __ATOMIC_RELAXED)) throw Unwanted();
}

// How long the stages of one piece of work took. A plain table, since the work may end in a jump
// out of it; names must be literals, or outlive it as those of LLVM's passes do.
struct StageTimes {
    struct Row {
        std::string_view stage, part;  // part: a pass of LLVM's
        int64_t ns;
        uint64_t count;
    };
    Row rows[128];
    // Told of each stage when it is over, on the thread that worked; may be null.
    void (*observer)(const char* stage, const char* of, int64_t began_ns,
                     int64_t took_ns) = nullptr;
    int used = 0, now = -1;
    int64_t since = 0;

    void begin(std::string_view stage, std::string_view part) {
        const int64_t time = now_ns();
        account(time);
        since = time;
        now = 0;
        while (now < used &&
               (rows[now].stage.data() != stage.data() || rows[now].part.data() != part.data()))
            ++now;
        if (now == used && used < int(sizeof rows / sizeof *rows))
            rows[used++] = {stage, part, 0, 0};
        if (now == used) now = used - 1;
        ++rows[now].count;
    }
    void end() {
        account(now_ns());
        now = -1;
    }
    void account(int64_t time) {
        if (now < 0) return;
        rows[now].ns += time - since;
        if (observer) observer(doing.stage, doing.of, since, time - since);
    }
};
inline thread_local StageTimes* stage_times = nullptr;  // null: nobody measures

inline void begin_stage(std::string_view stage, std::string_view of = {}, bool is_part = false) {
    if (stage_times) stage_times->begin(stage, is_part ? of : std::string_view());
    const auto copy = [](auto& to, std::string_view from) { to[from.copy(to, sizeof to - 1)] = 0; };
    copy(doing.stage, stage);
    copy(doing.of, of);
    if (const auto call = on_stage.load(std::memory_order_relaxed)) call(stage);
    end_if_unwanted();
}

}  // namespace qd::support
