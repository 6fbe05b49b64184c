// What a failed compilation leaves for who will repair the compiler.

#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace qd::compiler {

// Writes the module to a file of its own in the folder for temporary files. "; in <stage> of
// <function>; what was compiled is in <file>": what follows the failure's text.
[[nodiscard]] std::string report(std::span<const uint8_t> ir, const std::string& failure);

// Of the environment when it is first asked for: later another thread may be changing that.
const std::string& report_folder();

}  // namespace qd::compiler
