// Renders the texts of print and assert.

#pragma once

#include <string>

#include "support/abi.h"
#include "support/format_table.h"

namespace qd::runtime {

std::string format_text(const support::FormatEntry& entry, const abi::Cell* cells);

}  // namespace qd::runtime
