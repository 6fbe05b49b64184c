// See contain.h.
//
// The handler runs on any thread at any moment: it finds its thread in a fixed table of atomics,
// for thread-locals of a loaded object may allocate on first use.

#include "compiler/contain.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>

#include "codegen/llvm/codegen.h"

namespace qd::compiler {
namespace {

constexpr struct {
    int number;
    const char* name;
} kSignals[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},
                {SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGTRAP, "SIGTRAP"}};
constexpr size_t kCount = std::size(kSignals);
constexpr size_t kStackBytes = 64 << 10, kEnoughStack = 32 << 10;

struct Seat;
struct Frame {  // of one contained(), on its stack
    sigjmp_buf back;
    Seat* seat = nullptr;  // of its thread
    Frame* outer = nullptr;
    const void* trace = nullptr;  // LLVM's
    stack_t stack_before{};
    sigset_t mask_before{};
};

// Threads that run bodies now. What is beyond the table runs as if there were no containment.
struct Seat {
    std::atomic<uintptr_t> thread{0};
    std::atomic<Frame*> frame{nullptr};
};
Seat seats[256];

uintptr_t this_thread() { return static_cast<uintptr_t>(pthread_self()); }

Seat* seat_of(uintptr_t thread) {
    for (Seat& s : seats)
        if (s.thread.load(std::memory_order_relaxed) == thread) return &s;
    return nullptr;
}

std::mutex lock;                  // guards `users` and whose the handlers are
int users = 0;                    // threads in bodies
struct sigaction before[kCount];  // what is called for signals that are not ours
std::atomic<int> passing_on{0};   // calls of those that have not come back
constexpr int kMostPassedOn = 16;

// glibc ends the process this way, with its own locks held, when it finds the heap damaged: there
// is nothing to go back to. It leaves its text where debuggers look for it.
struct AbortText {
    unsigned size;
    char text[];
};
AbortText** abort_text = nullptr;

bool heap_is_damaged() {
    const AbortText* said = abort_text ? *abort_text : nullptr;
    if (!said) return false;
    for (const char* word :
         {"malloc", "free()", "realloc", "corrupt", "double free", "munmap_chunk"})
        if (std::strstr(said->text, word)) return true;
    return false;
}

void handle(int signal, siginfo_t* info, void* context);

bool is_ours(const struct sigaction& a) {
    return (a.sa_flags & SA_SIGINFO) && a.sa_sigaction == handle;
}

// As if we had not been there. A handler that calls us in turn ends the process by default.
void pass_on(size_t k, siginfo_t* info, void* context) {
    const int signal = kSignals[k].number;
    const struct sigaction next = before[k];
    const bool sent = info->si_code <= 0;
    if (sent && !(next.sa_flags & SA_SIGINFO) && next.sa_handler == SIG_IGN) return;
    const bool has_handler =
        (next.sa_flags & SA_SIGINFO) || (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN);
    if (has_handler && passing_on < kMostPassedOn) {
        ++passing_on;
        if (next.sa_flags & SA_SIGINFO)
            next.sa_sigaction(signal, info, context);
        else
            next.sa_handler(signal);
        --passing_on;
        return;
    }
    struct sigaction by_default{};
    by_default.sa_handler = SIG_DFL;
    sigaction(signal, &by_default, nullptr);
    if (sent) raise(signal);  // else the instruction runs again
}

void handle(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    size_t k = 0;
    while (kSignals[k].number != signal) ++k;
    const Seat* seat = seat_of(this_thread());
    Frame* frame = seat ? seat->frame.load(std::memory_order_relaxed) : nullptr;
    const bool from_outside =
        (info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL) &&
        info->si_pid != getpid();
    const bool lost = signal == SIGABRT && heap_is_damaged();
    if (frame && !from_outside && !lost) siglongjmp(frame->back, signal);
    pass_on(k, info, context);
    errno = saved;
}

void take_signals() {
    std::lock_guard guard(lock);
    if (users++) return;
    struct sigaction mine{};
    mine.sa_sigaction = handle;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t k = 0; k < kCount; ++k) {
        struct sigaction now{};
        sigaction(kSignals[k].number, nullptr, &now);
        if (!is_ours(now)) before[k] = now;
        sigaction(kSignals[k].number, &mine, nullptr);
    }
}

void give_signals_back_locked() {
    for (size_t k = 0; k < kCount; ++k) {
        struct sigaction now{};
        sigaction(kSignals[k].number, nullptr, &now);
        if (is_ours(now)) sigaction(kSignals[k].number, &before[k], nullptr);
    }
}

void give_signals_back() {
    std::lock_guard guard(lock);
    if (--users == 0) give_signals_back_locked();
}

// A child has the forking thread alone, and that runs no body. The lock is not taken for a fork:
// runtime/fork.h holds forks until compilations end, which need it.
void in_forked_child() {
    new (&lock) std::mutex;
    for (Seat& s : seats) s.thread = 0, s.frame = nullptr;
    if (users) {
        users = 0;
        give_signals_back_locked();
    }
}

void prepare_once() {
    static const bool done = [] {
        abort_text = static_cast<AbortText**>(dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
        pthread_atfork(nullptr, nullptr, in_forked_child);
        return true;
    }();
    (void)done;
}

void enter(Frame& frame) {
    prepare_once();
    const uintptr_t me = this_thread();
    Seat* seat = seat_of(me);
    for (size_t k = 0; !seat && k < std::size(seats); ++k) {
        uintptr_t nobody = 0;
        if (seats[k].thread.compare_exchange_strong(nobody, me)) seat = &seats[k];
    }
    if (!seat) return;
    frame.seat = seat;
    frame.outer = seat->frame;
    if (frame.outer) return;
    take_signals();
    static thread_local std::unique_ptr<char[]> stack;
    sigaltstack(nullptr, &frame.stack_before);
    if ((frame.stack_before.ss_flags & SS_DISABLE) || frame.stack_before.ss_size < kEnoughStack) {
        if (!stack) stack.reset(new char[kStackBytes]);
        stack_t mine{};
        mine.ss_sp = stack.get();
        mine.ss_size = kStackBytes;
        sigaltstack(&mine, nullptr);
    }
    sigset_t all;
    sigemptyset(&all);
    for (const auto& s : kSignals) sigaddset(&all, s.number);
    pthread_sigmask(SIG_UNBLOCK, &all, &frame.mask_before);
}

void leave(Frame& frame) {
    codegen::set_crash_trace(frame.trace);
    if (!frame.seat) return;
    frame.seat->frame = frame.outer;
    if (frame.outer) return;
    pthread_sigmask(SIG_SETMASK, &frame.mask_before, nullptr);
    sigaltstack(&frame.stack_before, nullptr);
    frame.seat->thread = 0;
    give_signals_back();
}

// Apart from what surrounds it: of its own variables none has to survive the jump.
[[gnu::noinline]] int run(Frame& frame, void (*body)(void*), void* data) {
    if (const int signal = sigsetjmp(frame.back, 0)) return signal;
    if (frame.seat) frame.seat->frame = &frame;
    body(data);
    return 0;
}

}  // namespace

int contained(void (*body)(void*), void* data) {
    Frame frame;
    frame.trace = codegen::crash_trace();
    enter(frame);
    struct AtEnd {
        Frame& frame;
        ~AtEnd() { leave(frame); }
    } at_end{frame};
    return run(frame, body, data);
}

const char* signal_name(int signal) {
    for (const auto& s : kSignals)
        if (s.number == signal) return s.name;
    return "a signal";
}

}  // namespace qd::compiler
