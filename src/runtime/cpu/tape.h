// What a thread keeps while it runs an iteration's forward sweep, for the reverse sweep: a range of
// addresses, which takes memory as it is written to.

#pragma once

#include <cstdint>

namespace qd::runtime {

// The calling thread's, for as long as this lives. A second one meanwhile (a signal handler
// launches amid a launch) has addresses of its own.
class Tape {
  public:
    // `marked`: `written` will be asked. std::bad_alloc where no addresses are to be had.
    explicit Tape(bool marked = false);
    ~Tape();
    Tape(const Tape&) = delete;

    uint8_t* at;
    int64_t bytes;  // at most tape_limit

    // How far the thread wrote: of the first MiB in words of 4 bytes, beyond that in pages.
    int64_t written() const;

  private:
    struct Range* range_;
};

}  // namespace qd::runtime
