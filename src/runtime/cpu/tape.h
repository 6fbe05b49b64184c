// What a thread keeps while it runs an iteration's forward sweep, for the reverse sweep: a range of
// addresses of its own, which takes memory as it is written to.

#pragma once

#include <cstdint>

namespace qd::runtime {

struct Tape {
    uint8_t* at;
    int64_t bytes;
};

Tape thread_tape();       // of the calling thread; bytes is 0 where no addresses are to be had
void trim_thread_tape();  // gives memory back beyond what is kept for the next use

}  // namespace qd::runtime
