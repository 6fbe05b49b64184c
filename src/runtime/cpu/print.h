// Renders the texts of print and assert.

#pragma once

#include <string>
#include <vector>

#include "support/abi.h"
#include "support/format_table.h"

namespace qd::runtime {

std::string format_text(const support::FormatEntry& entry, const abi::Cell* cells);

// A report has its place in the text; its callers follow, in front of the last line break. `stack`
// has the report first.
void add_callers(std::string& text, const std::vector<const support::FormatEntry*>& stack);

}  // namespace qd::runtime
