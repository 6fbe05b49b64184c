// Threads that are not the program's.
#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace qd::support {

// While this lives, threads that are made get no signals but those of their own mistakes and the
// profiler's. The others are for the program's threads: one that blocks a signal and waits for it
// (sigwait, signalfd) must not see it end the process in a thread that it does not know of.
class QuietThreads {
  public:
    QuietThreads() {
        sigset_t quiet;
        sigfillset(&quiet);
        for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF})
            sigdelset(&quiet, s);
        pthread_sigmask(SIG_BLOCK, &quiet, &old_);
    }
    ~QuietThreads() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
    QuietThreads(const QuietThreads&) = delete;
    QuietThreads& operator=(const QuietThreads&) = delete;

  private:
    sigset_t old_;
};

// Such a thread, with a stack no smaller than the caller's: for work that recurses as deeply. It is
// in no process-wide book. False if there can be none.
bool start_thread(pthread_t& thread, bool detached, void* (*body)(void*), void* data);

}  // namespace qd::support
