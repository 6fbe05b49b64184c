// What a thread keeps while it runs an iteration's forward sweep, for the reverse sweep: a range of
// addresses, which takes memory as it is written to.

#pragma once

#include <cstdint>

namespace qd::runtime {

struct TapeUse {
    int64_t written = 0;         // bytes: of the first MiB in words of 4, beyond that in pages
    int64_t recorded_again = 0;  // segments of loops, as they had not fitted
};

// The calling thread's, for as long as this lives. A second one meanwhile (a signal handler
// launches amid a launch) has addresses of its own.
class Tape {
  public:
    // `marked`: `use` will be asked. std::bad_alloc where no addresses are to be had.
    explicit Tape(bool marked = false);
    ~Tape();
    Tape(const Tape&) = delete;

    uint8_t* at;
    int64_t bytes;  // at most tape_limit

    TapeUse use() const;

  private:
    struct Range* range_;
};

}  // namespace qd::runtime
