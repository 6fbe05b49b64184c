// Checks of launches that nobody waits for: what failed is said by whoever waits next.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"
#include "support/abi.h"
#include "support/format_table.h"

namespace qd::runtime::cuda {

// The report that late launches of a kernel write to, all of them: who fails keeps the next ones
// from doing anything until somebody was told.
class LateReport {
  public:
    explicit LateReport(std::vector<support::FormatEntry> formats);
    ~LateReport();  // once its launches are over: what failed is still told
    LateReport(const LateReport&) = delete;

    Address at() const { return at_; }
    std::optional<std::string> take();  // what failed, once

  private:
    Address at_ = 0;
    std::vector<support::FormatEntry> formats_;
};

// Whether a late check failed: a load from the host's memory.
bool any_late_failure();
// What the first of them says, none if another thread was told; all are forgotten.
std::optional<std::string> take_late_failure();

// Of a report on the device that failed: read and cleared.
struct Failure {
    uint32_t format;
    std::vector<abi::Cell> cells;  // all that there is room for
    std::vector<uint64_t> sites;   // innermost first
};
std::optional<Failure> read_report(Address report);

}  // namespace qd::runtime::cuda
