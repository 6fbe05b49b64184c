// See late.h.

#include "runtime/cuda/late.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/cpu/print.h"
#include "runtime/cuda/pool.h"
#include "support/error.h"

namespace qd::runtime::cuda {
namespace {

struct Late {
    std::mutex lock;
    std::vector<LateReport*> reports;
    std::optional<std::string> told;          // by a report that is gone
    std::atomic<uint32_t>* failed = nullptr;  // the host's memory, which kernels write to
    std::atomic<bool> is_possible = false;    // that there is such memory
};
Late& late() {
    static auto* const all = new Late;  // never destroyed
    return *all;
}

// Where kernels say that a late check failed.
std::atomic<uint32_t>* word() {
    Late& l = late();
    const std::lock_guard guard(l.lock);
    if (!l.failed) {
        constexpr unsigned kPortableMapped = 3;
        void* at = nullptr;
        check(use().cuMemHostAlloc(&at, sizeof *l.failed, kPortableMapped),
              "allocating memory for checks");
        l.failed = new (at) std::atomic<uint32_t>(0);
        l.is_possible.store(true, std::memory_order_release);
    }
    return l.failed;
}

}  // namespace

std::optional<Failure> read_report(Address at) {
    const Driver& d = use();
    abi::DeviceReport report;
    constexpr size_t kHead = offsetof(abi::DeviceReport, told);
    check(d.cuMemcpyDtoH_v2(&report, at, kHead), "reading a check");
    if (!report.failed) return std::nullopt;
    check(d.cuMemcpyDtoH_v2(&report, at, sizeof report), "reading a check");
    check(d.cuMemsetD8Async(at, 0, kHead, nullptr), "clearing a check");
    const auto sites = std::min<size_t>(report.site_count, std::size(report.sites));
    return Failure{report.format,
                   {std::begin(report.cells), std::end(report.cells)},
                   {report.sites, report.sites + sites}};
}

LateReport::LateReport(std::vector<support::FormatEntry> formats) : formats_(std::move(formats)) {
    const Driver& d = use();
    const auto told = reinterpret_cast<uint64_t>(word());
    at_ = must_take_memory(d, sizeof(abi::DeviceReport), "allocating a buffer");
    check(d.cuMemsetD8Async(at_, 0, sizeof(abi::DeviceReport), nullptr), "clearing a buffer");
    check(d.cuMemcpyHtoD_v2(at_ + offsetof(abi::DeviceReport, told), &told, sizeof told),
          "filling a buffer");
    const std::lock_guard guard(late().lock);
    late().reports.push_back(this);
}

LateReport::~LateReport() {
    Late& l = late();
    const std::lock_guard guard(l.lock);
    std::erase(l.reports, this);
    const Driver* d = use_if_possible();
    if (!d) return;
    try {
        if (any_late_failure() && !l.told) l.told = take();
    } catch (const support::Error&) {  // the device is lost, which everybody hears of
    }
    give_back_memory(*d, at_);
}

std::optional<std::string> LateReport::take() {
    const std::optional<Failure> found = read_report(at_);
    if (!found) return std::nullopt;
    if (found->format >= formats_.size()) return "a check failed";
    std::string text = format_text(formats_[found->format], found->cells.data());
    add_callers(text, stack_of(formats_, found->format, found->sites));
    return text;
}

bool any_late_failure() {
    const Late& l = late();
    return l.is_possible.load(std::memory_order_acquire) &&
           l.failed->load(std::memory_order_acquire);
}

std::optional<std::string> take_late_failure() {
    Late& l = late();
    const std::lock_guard guard(l.lock);
    if (!any_late_failure()) return std::nullopt;
    l.failed->store(0, std::memory_order_release);
    std::optional<std::string> first = std::exchange(l.told, std::nullopt);
    for (LateReport* r : l.reports) {
        std::optional<std::string> text = r->take();
        if (!first) first = std::move(text);
    }
    return first;
}

}  // namespace qd::runtime::cuda
