// What machine code depends on besides the program: this build of Quadrants, this CPU, the options.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qd::session {

const std::string& build_identity();  // hashes of the two native objects
const std::string& host_features();   // the CPU's feature words

std::vector<uint8_t> hash_of(const std::vector<uint8_t>& data);
// Everything that must be equal for code to be reused at all, as a hash.
const std::vector<uint8_t>& environment();
// Of the file of this code, made by this build for this CPU.
std::string code_name(std::span<const uint8_t> code_hash);

}  // namespace qd::session
