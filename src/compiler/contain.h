// Runs a part of the compiler so that its crash is an answer, not the end of the process.
//
// While a body runs, this thread's SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT and SIGTRAP lead back
// here, on a stack of their own, so that a stack overflow does too. What the body held is lost: its
// memory leaks, and the locks it held stay locked, so nothing that it used may be used again.
// Signals of other threads, and those that another process sent, go to the handlers that were
// there before; these are back in place when no thread runs a body.
//
// Cost: some twenty system calls, a few microseconds.

#pragma once

namespace qd::compiler {

// 0 if the body returned, else the signal. Exceptions pass. Any thread; bodies may nest.
[[nodiscard]] int contained(void (*body)(void*), void* data);

template <class Body>
[[nodiscard]] int contained(Body body) {
    return contained([](void* f) { (*static_cast<Body*>(f))(); }, &body);
}

const char* signal_name(int signal);

}  // namespace qd::compiler
