// See trace_file.h.

#include "runtime/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "runtime/fork.h"
#include "support/clock.h"
#include "support/io.h"

namespace qd::runtime {
namespace {

using support::now_ns;

constexpr size_t kBuffer = 64 << 10;
constexpr int64_t kOldNs = 1'000'000'000;
constexpr uint64_t kMostRuns = 1'000'000;  // some 150 MB
constexpr int64_t kShortStageNs = 100'000;
constexpr std::string_view kEnd = "\n]\n";

struct Trace {
    std::mutex lock;         // guards everything here
    int fd = -1;             // -1: no file, or none yet in a forked child
    std::string path;        // as it was asked for, absolute
    std::string file;        // that is written
    int64_t end = 0;         // of this process's events in a file that is closed
    std::string buffer;      // lines, each with its comma
    int64_t written_ns = 0;  // when the buffer was last emptied
    std::vector<int> open;   // threads of what has begun, in that order
    uint64_t runs = 0;
    uint32_t session = 0;   // counts openings: what began in one does not end in another
    int error = 0;          // of the first write that failed; nothing is written after it
    bool in_child = false;  // whose parent writes `path`
};
// Never destroyed: threads may write while the process ends.
Trace& trace = *new Trace;

thread_local const char* thread_name = nullptr;
thread_local uint32_t named_in = 0;  // the session that knows this thread's name

int thread_number() { return static_cast<int>(syscall(SYS_gettid)); }

void add_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) >= 0x20) {
            out += c;
            continue;
        }
        char code[8];
        std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
        out += code;
    }
}

void add_us(std::string& out, const char* key, int64_t ns) {
    char text[48];
    std::snprintf(text, sizeof text, ",\"%s\":%lld.%03lld", key, static_cast<long long>(ns / 1000),
                  static_cast<long long>(ns % 1000));
    out += text;
}

void add_head(std::string& out, const char* phase, int thread = thread_number()) {
    char text[80];
    std::snprintf(text, sizeof text, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, getpid(),
                  thread);
    out += text;
}

void add_text(std::string& out, const char* key, std::string_view text) {
    if (text.empty()) return;
    (((out += ",\"") += key) += "\":\"");
    add_escaped(out, text);
    out += '"';
}

std::string metadata(const char* what, std::string_view name) {
    std::string out;
    add_head(out, "M");
    add_text(out, "name", what);
    out += ",\"args\":{\"name\":\"";
    add_escaped(out, name);
    return out + "\"}}";
}

std::string with_number(const std::string& path) {
    const std::filesystem::path p(path);
    const std::string name = p.stem().string() + "." + std::to_string(getpid());
    return (p.parent_path() / (name + p.extension().string())).string();
}

// --- under the lock -----------------------------------------------------------------------------
void write_all(std::string_view text) {
    if (!trace.error && !support::write_all(trace.fd, text.data(), text.size()))
        trace.error = errno;
}

void empty_buffer() {
    write_all(trace.buffer);
    trace.buffer.clear();
    trace.written_ns = now_ns();
}

// The file, if nobody else writes it.
bool take_file(const std::string& file, bool go_on) {
    // A pipe without a reader is an error instead of a long wait.
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0) return false;
    if (::flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        ::close(fd);
        errno = EWOULDBLOCK;
        return false;
    }
    struct stat info{};
    go_on = go_on && ::fstat(fd, &info) == 0 &&
            info.st_size == trace.end + static_cast<int64_t>(kEnd.size());
    const int64_t begin = go_on ? trace.end : 0;
    if (::ftruncate(fd, begin) == 0) ::lseek(fd, begin, SEEK_SET);  // else no regular file
    trace.fd = fd;
    trace.file = file;
    trace.buffer = go_on ? "" : "[\n" + metadata("process_name", "quadrants");
    return true;
}

bool open_own() {
    trace.error = 0;
    if (!trace.file.empty()) return take_file(trace.file, true);
    if (!trace.in_child) {
        if (take_file(trace.path, false)) return true;
        if (errno != EWOULDBLOCK) return false;
    }
    return take_file(with_number(trace.path), false);
}

// An event that there is no memory for is left out, whole.
template <class Add>
void try_to_add(Add add) noexcept {
    const size_t before = trace.buffer.size();
    try {
        add();
    } catch (const std::bad_alloc&) {
        trace.buffer.resize(std::min(before, trace.buffer.size()));
    }
}

std::string end_event(int thread) {
    std::string line;
    add_head(line, "E", thread);
    add_us(line, "ts", now_ns());
    return line + "}";
}

void close_file() {
    if (trace.fd < 0) return;
    for (; !trace.open.empty(); trace.open.pop_back())  // what goes on in the background
        try_to_add([] { (trace.buffer += ",\n") += end_event(trace.open.back()); });
    empty_buffer();
    trace.end = ::lseek(trace.fd, 0, SEEK_CUR);
    write_all(kEnd);
    ::close(trace.fd);
    trace.fd = -1;
}

void add(const std::string& line, bool at_once) {
    if (!is_traced() || trace.error) return;
    if (trace.fd < 0 && !open_own()) {
        trace.error = errno;
        return;
    }
    if (named_in != trace.session) {
        named_in = trace.session;
        const bool is_main = thread_number() == getpid();
        (trace.buffer += ",\n") += metadata("thread_name", thread_name ? thread_name
                                                           : is_main   ? "main"
                                                                       : "thread");
    }
    (trace.buffer += ",\n") += line;
    if (at_once || trace.buffer.size() > kBuffer || now_ns() - trace.written_ns > kOldNs)
        empty_buffer();
}

// --- fork
// ----------------------------------------------------------------------------------------
void in_forked_child() {
    std::string path = std::move(trace.path);
    const int fd = trace.fd;
    const uint32_t session = trace.session;
    new (&trace) Trace;  // the parent's buffer is the parent's to write; its memory stays
    if (fd >= 0) ::close(fd);
    trace.path = std::move(path);
    trace.session = session + 1;
    trace.in_child = true;
}
const bool registered = at_fork(
    AtFork::trace_file, {[] { trace.lock.lock(); }, [] { trace.lock.unlock(); }, in_forked_child});

}  // namespace

std::string open_trace(const std::string& path) {
    const std::lock_guard guard(trace.lock);
    std::error_code ignored;
    const std::string whole = std::filesystem::absolute(path, ignored).string();
    if (whole != trace.path) {
        trace.path = whole;
        trace.file.clear();
        trace.in_child = false;
    }
    ++trace.session;
    trace.runs = 0;
    if (!open_own()) return std::strerror(errno);
    empty_buffer();
    if (trace.error) {
        ::close(trace.fd);
        trace.fd = -1;
        return std::strerror(trace.error);
    }
    trace_is_open = true;
    return "";
}

std::string close_trace() {
    const std::lock_guard guard(trace.lock);
    if (!is_traced()) return "";
    trace_is_open = false;
    close_file();
    return trace.error ? std::strerror(trace.error) : "";
}

void name_traced_thread(const char* name) { thread_name = name; }

std::string trace_event(std::string_view category, std::string_view name, std::string_view of,
                        int64_t began_ns, int64_t took_ns) {
    std::string out;
    add_head(out, "X");
    add_text(out, "cat", category);
    add_text(out, "name", name);
    add_us(out, "ts", began_ns);
    add_us(out, "dur", took_ns);
    if (!of.empty()) {
        out += ",\"args\":{\"of\":\"";
        add_escaped(out, of);
        out += "\"}";
    }
    return out + "}";
}

uint32_t trace_begins(std::string_view kind, std::string_view of) {
    const std::lock_guard guard(trace.lock);
    if (!is_traced()) return 0;
    uint32_t begun = 0;
    try_to_add([&] {
        std::string line;
        add_head(line, "B");
        add_text(line, "cat", "compile");
        add_text(line, "name", kind);
        add_us(line, "ts", now_ns());
        line += ",\"args\":{\"kernel\":\"";
        add_escaped(line, of);
        trace.open.reserve(trace.open.size() + 1);
        add(line + "\"}}", true);
        trace.open.push_back(thread_number());
        begun = trace.session;
    });
    return begun;
}

void trace_ends(uint32_t begun) {
    if (!begun) return;
    const std::lock_guard guard(trace.lock);
    if (begun != trace.session || !is_traced()) return;
    const int me = thread_number();
    const auto mine = std::find(trace.open.rbegin(), trace.open.rend(), me);
    if (mine != trace.open.rend()) trace.open.erase(std::prev(mine.base()));
    try_to_add([&] { add(end_event(me), true); });
}

void trace_run(const char* category, std::string_view name, int64_t began_ns, int64_t took_ns) {
    const std::lock_guard guard(trace.lock);
    if (trace.runs > kMostRuns) return;
    if (trace.runs++ == kMostRuns) name = "(and more, which are not shown)";
    try_to_add([&] { add(trace_event(category, name, "", began_ns, took_ns), false); });
}

void trace_stage(const char* stage, const char* of, int64_t began_ns, int64_t took_ns) {
    if (!*stage || took_ns < kShortStageNs || !is_traced()) return;
    const std::lock_guard guard(trace.lock);
    if (!thread_name) thread_name = "compiler";  // a thread of its own, if it is not known yet
    try_to_add([&] { add(trace_event("stage", stage, of, began_ns, took_ns), false); });
}

}  // namespace qd::runtime
