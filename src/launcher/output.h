// Where the text of kernel prints goes, and what launches ask of the field area.

#pragma once

#include <string>

namespace qd::python {

// To file descriptor 1, or through sys.stdout while that is captured (spec 10 section 11). False
// with an exception set.
bool write_output(const std::string& text);

// Whether fields were declared since the last materialisation (field.cpp).
bool has_pending_fields();

}  // namespace qd::python
