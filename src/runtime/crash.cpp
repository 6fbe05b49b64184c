// See crash.h.
//
// The handler calls nothing that takes locks: the heap may be what is broken. Handlers that were
// there before, such as faulthandler's, run afterwards.

#include "runtime/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iterator>

namespace qd::runtime {
namespace {

constexpr struct {
    int number;
    const char* meaning;
} kSignals[] = {{SIGSEGV, "Segmentation fault"},
                {SIGBUS, "Bus error"},
                {SIGILL, "Illegal instruction"},
                {SIGFPE, "Floating point exception"},
                {SIGABRT, "Aborted"}};
constexpr size_t kCount = std::size(kSignals);
constexpr int kFrames = 64;

struct sigaction before[kCount];
bool installed = false, with_gdb = false;
int64_t local_offset = 0;  // seconds east of Greenwich
std::atomic<const char*> running{nullptr};
std::atomic<int> reports{0};
alignas(16) char stack[64 << 10];  // a crash may be the end of the main thread's own

struct Line {
    char text[512];
    size_t used = 0;

    void add(const char* s) {
        while (*s && used + 1 < sizeof text) text[used++] = *s++;
    }
    void add(int64_t n, int digits = 1) {
        char reversed[24];
        int count = 0;
        do reversed[count++] = char('0' + n % 10);
        while ((n /= 10) || count < digits);
        while (count && used + 1 < sizeof text) text[used++] = reversed[--count];
    }
    void write_out() {
        const ssize_t ignored = ::write(2, text, used);
        (void)ignored;
        used = 0;
    }
};

// mm/dd/yy HH:MM:SS.mmm; the C library's own functions lock.
void add_time(Line& line) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t seconds = now.tv_sec + local_offset, days = seconds / 86400;
    const int64_t z = days + 719468, era = z / 146097, of_era = z - era * 146097;
    const int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    const int64_t m = (5 * of_year + 2) / 153, day = of_year - (153 * m + 2) / 5 + 1;
    const int64_t month = m < 10 ? m + 3 : m - 9;
    line.add(month, 2), line.add("/"), line.add(day, 2), line.add("/");
    line.add((year + era * 400 + (month <= 2)) % 100, 2), line.add(" ");
    line.add(seconds / 3600 % 24, 2), line.add(":"), line.add(seconds / 60 % 60, 2), line.add(":");
    line.add(seconds % 60, 2), line.add("."), line.add(now.tv_nsec / 1000000, 3);
}

void attach_gdb() {
    Line pid;
    pid.add(getpid());
    pid.text[pid.used] = 0;
    const pid_t child = fork();
    if (child == 0) {
        execlp("gdb", "gdb", "-q", "-p", pid.text, static_cast<char*>(nullptr));
        _exit(127);
    }
    if (child < 0) return;
    prctl(PR_SET_PTRACER, child, 0, 0, 0);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        Line line;
        line.add("gdb_trigger: gdb could not be started\n");
        line.write_out();
    }
}

void report(size_t k) {
    Line line;
    line.add("[E "), add_time(line), line.add(" "), line.add(getpid());
    line.add("] [crash.cpp:report@"), line.add(__LINE__), line.add("] Received signal ");
    line.add(kSignals[k].number), line.add(" ("), line.add(kSignals[k].meaning), line.add(")");
    if (const char* kernel = running) line.add(" in kernel "), line.add(kernel);
    line.add("\nNative stack, innermost first:\n");
    line.write_out();
    void* frames[kFrames];
    backtrace_symbols_fd(frames, backtrace(frames, kFrames), 2);
    if (with_gdb) attach_gdb();
}

void handle(int signal, siginfo_t* info, void*) {
    size_t k = 0;
    while (k + 1 < kCount && kSignals[k].number != signal) ++k;
    if (reports++ == 0) report(k);
    sigaction(signal, &before[k], nullptr);
    if (info->si_code <= 0) raise(signal);  // else the instruction runs again
}

bool is_ours(const struct sigaction& a) {
    return (a.sa_flags & SA_SIGINFO) && a.sa_sigaction == handle;
}

}  // namespace

void report_crashes(bool attach) {
    with_gdb = attach;
    if (installed) return;
    installed = true;
    void* first[1];
    backtrace(first, 1);  // loads what it needs
    const time_t now = time(nullptr);
    tm local{};
    if (localtime_r(&now, &local)) local_offset = local.tm_gmtoff;
    stack_t present{};
    if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE)) {
        stack_t mine{};
        mine.ss_sp = stack;
        mine.ss_size = sizeof stack;
        sigaltstack(&mine, nullptr);
    }
    struct sigaction mine{};
    mine.sa_sigaction = handle;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t k = 0; k < kCount; ++k) sigaction(kSignals[k].number, &mine, &before[k]);
}

void forget_crashes() {
    if (!installed) return;
    installed = false;
    for (size_t k = 0; k < kCount; ++k) {
        struct sigaction now{};
        sigaction(kSignals[k].number, nullptr, &now);
        if (is_ours(now)) sigaction(kSignals[k].number, &before[k], nullptr);
    }
}

void set_running_kernel(const char* name) { running.store(name, std::memory_order_relaxed); }

}  // namespace qd::runtime
