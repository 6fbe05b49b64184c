// Deliberate failures, for tests of what happens then: QD_TEST_FAULT=<stage>[:<kind>], read once,
// or qd_compiler_fault() with the same text. The kinds are those of fault.cpp's table; with " once"
// behind it the first thread that comes there alone fails.

#pragma once

#include <string_view>

namespace qd::compiler {

void set_fault(std::string_view text);  // "": none
void read_fault();                      // the environment's, once

}  // namespace qd::compiler
