// Counter-based random numbers: a number is a pure function of seed, launch, stream, iteration and
// draw, so results depend neither on threads nor on the order of iterations.
//
// The interpreter runs these functions; code generation emits the same arithmetic. A stream is a
// place in the kernel's body: parallel loop number p (0, 1, ... in order) is stream 2p + 1 and its
// iterations are numbered row-major from 0; the serial stretch before it is stream 2p, iteration 0.
// Where a group begins and where it ends another stretch begins, iteration 1, 2, ... of that
// stream. Each turn of a do-while loop has a launch key of its own.
//
// mix() is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): bijective, full avalanche. Two
// keyed rounds a draw keep neighbouring keys and neighbouring draws unrelated.

#pragma once

#include <cstdint>

namespace qd::ir {

inline constexpr uint64_t kRandomStep = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd

inline constexpr uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

inline constexpr uint64_t random_key(uint64_t launch_key, uint64_t stream, uint64_t iteration) {
    return mix(mix(launch_key + (stream + 1) * kRandomStep) + (iteration + 1) * kRandomStep);
}

// Draw number `draw` (0, 1, ...) of an iteration: 64 random bits.
inline constexpr uint64_t random_bits(uint64_t key, uint64_t draw) {
    return mix(key + (draw + 1) * kRandomStep);
}

// What op `random` returns for 64 bits r, by type:
//   integers    the low bits of r >> 32 for 32 bits and narrower, r for 64 bits; u1: r >> 63
//   f32         float(r >> 40) * 2^-24
//   f64         double(r >> 11) * 2^-53
//   f16         the f32 number rounded to f16 (can be 1.0)

}  // namespace qd::ir
