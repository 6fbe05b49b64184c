// Where the text of kernel prints goes.

#pragma once

#include <string>

namespace qd::launcher {

// To file descriptor 1, or through sys.stdout while that is captured (spec 10 section 11). False
// with an exception set.
bool write_output(const std::string& text);

}  // namespace qd::launcher
