// Renders the texts of print and assert.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "support/abi.h"
#include "support/format_table.h"

namespace qd::runtime {

std::string format_text(const support::FormatEntry& entry, const abi::Cell* cells);

// The calls that lead to a check or report, innermost first, which is itself the first; `sites` are
// numbers of formats, as abi::OpenCall has them.
std::vector<const support::FormatEntry*> stack_of(std::span<const support::FormatEntry> formats,
                                                  uint32_t format, std::span<const uint64_t> sites);

// A report has its place in the text; its callers follow, in front of the last line break. `stack`
// has the report first.
void add_callers(std::string& text, const std::vector<const support::FormatEntry*>& stack);

}  // namespace qd::runtime
