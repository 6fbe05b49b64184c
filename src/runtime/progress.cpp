// See progress.h.

#include "runtime/progress.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/fork.h"
#include "support/own_thread.h"

namespace qd::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLong{1000}, kRewrite{200};

struct Compilation {
    uint64_t number;
    std::string kernel;
    Clock::time_point began;
    const char* stage;
};

struct Line {
    std::mutex lock;  // guards everything here
    std::condition_variable changed;
    std::vector<Compilation> open;  // in the order of their beginnings
    uint64_t last = 0;              // number
    bool has_thread = false;
    bool shown = false;
};
// Never destroyed: the thread stays until the process ends.
Line& line = *new Line;

// Nothing if the terminal is stopped, or belongs to another job: to write would block, or stop us.
void write_to_terminal(std::string_view text) {
    pollfd out{2, POLLOUT, 0};
    const pid_t job = ::tcgetpgrp(2);
    if (::poll(&out, 1, 0) != 1 || (job >= 0 && job != ::getpgrp())) return;
    const ssize_t done = ::write(2, text.data(), text.size());
    (void)done;
}

void erase() {
    if (!line.shown) return;
    line.shown = false;
    write_to_terminal("\x1b[K");  // from the cursor on
}

void draw(const Compilation& c, Clock::time_point now) {
    char text[256];
    std::snprintf(text, sizeof text, "compiling %.150s: %s, %.1f s", c.kernel.c_str(), c.stage,
                  std::chrono::duration<double>(now - c.began).count());
    for (char& letter : text)
        if (static_cast<unsigned char>(letter) < 0x20 && letter) letter = '?';
    // Keeps the cursor; what is longer than the row is cut.
    char whole[sizeof text + 32];
    std::snprintf(whole, sizeof whole,
                  "\x1b"
                  "7\x1b[?7l\x1b[K%s\x1b[?7h\x1b"
                  "8",
                  text);
    write_to_terminal(whole);
    line.shown = true;
}

[[noreturn]] void watch() {
    std::unique_lock guard(line.lock);
    for (;;) {
        if (line.open.empty()) {
            line.changed.wait(guard);
            continue;
        }
        const auto now = Clock::now();
        // The latest of the long ones: what an outer one waits for.
        const auto is_long = [&](const Compilation& c) { return now - c.began >= kLong; };
        const auto found = std::find_if(line.open.rbegin(), line.open.rend(), is_long);
        if (found == line.open.rend()) {
            line.changed.wait_until(guard, line.open.front().began + kLong);
            continue;
        }
        draw(*found, now);
        line.changed.wait_for(guard, kRewrite);
    }
}

bool start_thread() {
    if (line.has_thread) return true;
    try {
        const support::QuietThreads quiet;
        std::thread(watch).detach();
        return line.has_thread = true;
    } catch (const std::exception&) {
        return false;
    }
}

void in_forked_child() { new (&line) Line; }  // its parent shows it
const bool registered = at_fork(
    AtFork::progress, {[] { line.lock.lock(); }, [] { line.lock.unlock(); }, in_forked_child});

}  // namespace

bool can_show_progress() {
    const char* terminal = std::getenv("TERM");
    return ::isatty(2) && terminal && *terminal && std::strcmp(terminal, "dumb") != 0;
}

ProgressLine::ProgressLine(const std::string& kernel, bool shown) : outer_(watched_compilation) {
    if (!shown) return;
    const std::lock_guard guard(line.lock);
    if (!start_thread()) return;
    line.open.push_back({line.last + 1, kernel, Clock::now(), "front end"});
    watched_compilation = mine_ = ++line.last;
    if (line.open.size() == 1) line.changed.notify_all();
}

ProgressLine::~ProgressLine() {
    if (!mine_) return;
    watched_compilation = outer_;
    const std::lock_guard guard(line.lock);
    std::erase_if(line.open, [&](const Compilation& c) { return c.number == mine_; });
    erase();
}

void show_stage(const char* stage) {
    if (!watched_compilation) return;
    const std::lock_guard guard(line.lock);
    for (Compilation& c : line.open)
        if (c.number == watched_compilation) c.stage = stage;
}

void hide_progress() {
    const std::lock_guard guard(line.lock);
    erase();
}

}  // namespace qd::runtime
