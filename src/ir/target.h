// What differs between the machines that code is made for, as far as passes and code generation
// ask. A machine's row comes from codegen::target_of; what names the machine is part of every key
// of code, and so the row is.

#pragma once

#include <cstdint>

namespace qd::ir {

struct Target {
    // A parallel loop gives each thread one iteration (a reduction: every so many-th); else each
    // thread chunks of neighbours.
    bool threads = false;
    bool fused = true;     // multiplies and adds with one rounding (op fma)
    bool minimum = false;  // min and max are: the number wins over NaN, and -0 is less than +0
    bool rounding = true;  // floor, ceil and trunc are instructions

    // Which atomics on integers are one instruction; the others, and those on floats, are loops of
    // compare and swap. Bits by op, counted from atomic_add.
    uint16_t atomics = 0xff & ~(1 << 2);  // all from atomic_add to atomic_xor but atomic_mul
    bool float_adds = false;              // so are additions of f32 and f64
    bool vector_adds = false;             // and of 2 or 4 f32 side by side, if nobody asks what was
    bool lone = true;  // threads know when no other runs the launch, and do without atomics then
    bool waits_itself = false;   // a task starts before the one in front of it is over
    bool runs_together = false;  // tasks of sections and streams that follow each other

    // Functions of so many scalar operations are expanded where they are called; or where the only
    // call is.
    uint32_t tiny_function = 40, small_function = 500;

    int serial_sum_bytes =
        64;  // of floats added at a time by a serial sum: 16 f32, 8 f64; 0: no lanes
    int prefetch_ahead = 1024;  // elements; 0: hardware looks ahead far enough
};

}  // namespace qd::ir
