// Why a kernel has no derivative, as bytes between the compiler object and its users.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/bytes.h"
#include "support/format_table.h"

namespace qd::support {

struct NoDerivative {
    std::string what;
    bool of_source = false;  // the kernel is to be written otherwise; else it can't be done
    std::vector<SourceSite> sites = {};  // where, then its callers
};

inline std::vector<uint8_t> to_bytes(const NoDerivative& n) {
    ByteWriter w;
    w.text(n.what);
    w.number(uint8_t{n.of_source});
    w.number(uint32_t(n.sites.size()));
    for (const SourceSite& s : n.sites) {
        w.text(s.file);
        w.text(s.function);
        for (const int k : {s.line, s.col, s.end_line, s.end_col}) w.number(k);
    }
    return std::move(w.out);
}

inline NoDerivative no_derivative(std::span<const uint8_t> bytes) {
    ByteReader r{bytes, "refusal"};
    NoDerivative n{r.text(), r.number<uint8_t>() != 0};
    for (uint32_t k = r.count(24); k; --k) {
        SourceSite s{.file = r.text(), .function = r.text()};
        for (int* at : {&s.line, &s.col, &s.end_line, &s.end_col}) *at = r.number<int>();
        n.sites.push_back(std::move(s));
    }
    return n;
}

}  // namespace qd::support
