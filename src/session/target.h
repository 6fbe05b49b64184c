// What machine code depends on besides the program: this build of Quadrants and this CPU.

#pragma once

#include <string>

namespace qd::python {

const std::string& build_identity();  // hashes of the two native objects
const std::string& host_features();   // the CPU's feature words

}  // namespace qd::python
