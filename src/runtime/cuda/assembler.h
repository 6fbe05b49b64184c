// From PTX to machine code by NVIDIA's assembler as a program, ptxas.
//
// The driver assembles, too, but one kernel at a time in the whole process, and knows no quick way.
// What the program makes stays in our cache. Where there is none that fits the driver, or it fails,
// artefacts keep their PTX and the driver assembles it when they are loaded.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qd::runtime::cuda {

// Where ptxas may be, after QD_PTXAS, CUDA_HOME and PATH: folders that Python imports from. Once,
// before the first artefact.
void find_assembler_in(const std::vector<std::string>& folders);

// The artefact with machine code, as far as there can be. `tier`: 0 quick, so that it brings its
// PTX along to be assembled better; 1; or -1: quick where that saves time worth speaking of. May be
// called without a driver. Any thread.
std::vector<uint8_t> assembled(std::span<const uint8_t> artefact, int tier,
                               const int32_t* unwanted);
// Of quick code: `head` is the artefact up to its first object.
std::vector<uint8_t> assembled_better(std::span<const uint8_t> head, std::span<const uint8_t> ptx,
                                      const int32_t* unwanted);

}  // namespace qd::runtime::cuda
