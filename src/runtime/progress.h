// One line in the terminal about a compilation that takes long, rewritten in place, gone at its
// end.
//
// It stands to the right of the cursor, which stays where it is: what others write meanwhile comes
// where it would have come, over the line, and is never erased. A thread of its own writes it,
// which is made with the first compilation that somebody watches. Any thread; no lock is taken
// under its.

#pragma once

#include <cstdint>
#include <string>

namespace qd::runtime {

// Whether file descriptor 2 is a terminal that can do this.
[[nodiscard]] bool can_show_progress();

// The compilation that this thread works for; 0: nobody watches.
inline thread_local uint64_t watched_compilation = 0;

// From its beginning to its end, on the thread that asked for it.
class ProgressLine {
  public:
    ProgressLine(const std::string& kernel, bool shown);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;

  private:
    uint64_t mine_ = 0, outer_ = 0;
};

// Of this thread's compilation; the text lives for ever.
void show_stage(const char* stage);
// Before something else is written to the terminal.
void hide_progress();

}  // namespace qd::runtime
