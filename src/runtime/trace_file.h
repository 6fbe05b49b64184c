// The trace file: what this process does, over time, for Perfetto or chrome://tracing.
//
// JSON, an array with an event a line. What is compiled is written when it begins and when it ends,
// so that a process that dies leaves a file that says where; those programs take an array without
// its end. Launches are many: they wait in a buffer until it is full or a second old, and there is
// a most of them. A forked child, and a process that finds another one writing the file, write one
// of their own, with their number in its name. A second session of a process goes on with the
// first's.
//
// Any thread; one lock, which is the last that anybody takes. While there is no file nothing is
// done but to ask is_traced().

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace qd::runtime {

inline std::atomic<bool> trace_is_open{false};
inline bool is_traced() { return trace_is_open.load(std::memory_order_relaxed); }

// Why there is none, or "".
[[nodiscard]] std::string open_trace(const std::string& path);
// What went wrong while it was written, or "".
[[nodiscard]] std::string close_trace();

// How the file calls this thread; the text lives for ever.
void name_traced_thread(const char* name);

// What takes long: `kind` of the work, on what. Ends are of the thread's last begin. 0: not told.
[[nodiscard]] uint32_t trace_begins(std::string_view kind, std::string_view of);
void trace_ends(uint32_t begun);

// What is over: a launch or a task, by the steady clock.
void trace_run(const char* category, std::string_view name, int64_t began_ns, int64_t took_ns);
// A stage of the compiler, unless it was too short to be seen.
void trace_stage(const char* stage, const char* of, int64_t began_ns, int64_t took_ns);

// What the compiler is to call; null while there is no file.
inline auto stage_observer() { return is_traced() ? &trace_stage : nullptr; }

// A line of the array, without the comma before it.
[[nodiscard]] std::string trace_event(std::string_view category, std::string_view name,
                                      std::string_view of, int64_t began_ns, int64_t took_ns);

}  // namespace qd::runtime
