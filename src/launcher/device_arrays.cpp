// See device_arrays.h.

#include "launcher/device_arrays.h"

#include <algorithm>

#include "ir/ir.h"

namespace qd::launcher {

DeviceArrays::DeviceArrays(const Specialisation& s, uint8_t* block, uint64_t stream)
    : stream_(stream) {
    std::vector<Range> ranges;
    const auto add = [&](void*& host, size_t bytes, bool written) {
        if (!host || runtime::cuda::is_on_device(host)) return;
        auto* begin = static_cast<char*>(host);
        ranges.push_back({begin, begin + bytes, written, &host});
    };
    for (const PackStep& step : s.steps) {
        const bool state = step.kind == PackStep::Kind::graph_state;
        if (step.kind != PackStep::Kind::array && !state) continue;
        auto* desc = reinterpret_cast<ir::ArrayDesc*>(block + step.offset);
        size_t bytes = static_cast<size_t>(type::bytes(step.type.prim)) *
                       static_cast<size_t>(step.type.value().count());
        const auto* shape = reinterpret_cast<const int32_t*>(desc + 1);
        for (int k = 0; k < step.type.ndim; ++k) bytes *= static_cast<size_t>(shape[k]);
        add(desc->data, bytes, step.written || state);
        if (step.has_grad || step.needs_grad) add(desc->grad, bytes, true);
    }
    copy(ranges);
}

// Arrays that overlap on the host do so on the device.
void DeviceArrays::copy(std::vector<Range>& ranges) {
    std::ranges::sort(ranges, {}, &Range::begin);
    for (size_t first = 0, last; first < ranges.size(); first = last) {
        char* end = ranges[first].end;
        bool written = false;
        for (last = first; last < ranges.size() && (last == first || ranges[last].begin < end);
             ++last) {
            end = std::max(end, ranges[last].end);
            written |= ranges[last].written;
        }
        char* begin = ranges[first].begin;
        copies_.emplace_back(begin, static_cast<size_t>(end - begin));
        written_.push_back(written);
        auto* device = static_cast<char*>(copies_.back().on_device());
        for (size_t k = first; k < last; ++k) *ranges[k].where = device + (ranges[k].begin - begin);
    }
}

void DeviceArrays::write_back() const {
    if (stream_ && !copies_.empty()) runtime::cuda::wait_for_stream(stream_);
    for (size_t k = 0; k < copies_.size(); ++k)
        if (written_[k]) copies_[k].write_back();
}

}  // namespace qd::launcher
