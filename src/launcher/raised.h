// What a signal handler raises amid a launch.
//
// The launch goes on for a while: one that is over soon has run whole, as it has if the signal
// comes a moment later, and what catches the exception (a loop with a deadline) finds no half step.
// A second exception ends it at once, as a second Ctrl-C should.

#pragma once

#include <Python.h>

#include <cstdint>

namespace qd::launcher {

// How long a launch may take to end whole. Handlers run amid it only then (one may save a
// checkpoint), and one that raises leaves it as long again.
inline constexpr int64_t kWholeNs = 1'000'000'000;

class Raised {
  public:
    Raised() = default;
    ~Raised() { Py_XDECREF(value_); }
    Raised(const Raised&) = delete;

    // Under the GIL: runs handlers that are due. Whether the launch is to end.
    bool check_signals();
    explicit operator bool() const { return value_; }
    // Sets the exception; one that is set already, of the launch itself, becomes its context.
    void restore();

  private:
    void keep();

    PyObject* value_ = nullptr;
    int64_t since_ns_ = 0;
};

}  // namespace qd::launcher
