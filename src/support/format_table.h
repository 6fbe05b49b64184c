// The texts of print and assert inside an artefact (Artefact::formats): written by the compiler,
// read by the runtime.
//
// Format number k of the table is the `format` argument of Runtime::print and Runtime::fail. The
// cells passed along hold every scalar of the operands in order, tensors row-major; the operand
// list says how to group them. An assert's condition is not an operand here. Calls in code with
// checks have an entry too, which only says where they stand.

#pragma once

#include "support/bytes.h"

namespace qd::support {

struct FormatPiece {
    std::string text;     // literal, or the spec without '%' and conversion, e.g. "-8.3"
    char conversion = 0;  // 0: literal; '*': the type's natural one; else printf's letter
};

struct FormatOperand {
    uint8_t prim = 0;  // type::Prim
    uint8_t rank = 0;  // 0 scalar, 1 vector, 2 matrix
    uint16_t n = 1, m = 1;
    uint32_t count() const { return uint32_t(n) * m; }
};

struct SourceSite {  // as ir::Loc
    std::string file, function;
    int32_t line = 0, col = 0, end_line = 0, end_col = 0;
    bool operator==(const SourceSite&) const = default;
};

struct FormatEntry {
    std::vector<FormatPiece> pieces;  // the k-th piece with a conversion prints operand k
    std::vector<FormatOperand> operands;
    std::string function;           // ir::Format::function
    std::vector<SourceSite> sites;  // of a check or a call, then of the calls expanded around it
};

inline std::vector<uint8_t> write_format_table(std::span<const FormatEntry> entries) {
    ByteWriter w;
    w.number(uint32_t(entries.size()));
    for (const FormatEntry& e : entries) {
        w.number(uint32_t(e.pieces.size()));
        for (const FormatPiece& p : e.pieces) {
            w.number(uint8_t(p.conversion));
            w.text(p.text);
        }
        w.number(uint32_t(e.operands.size()));
        for (const FormatOperand& o : e.operands) {
            w.number(o.prim);
            w.number(o.rank);
            w.number(o.n);
            w.number(o.m);
        }
        w.text(e.function);
        w.number(uint32_t(e.sites.size()));
        for (const SourceSite& s : e.sites) {
            w.text(s.file);
            w.text(s.function);
            for (int32_t n : {s.line, s.col, s.end_line, s.end_col}) w.number(n);
        }
    }
    return w.out;
}

inline std::vector<FormatEntry> read_format_table(std::span<const uint8_t> bytes) {
    ByteReader r{bytes, "format table"};
    std::vector<FormatEntry> entries(bytes.empty() ? 0 : r.count(16));
    for (FormatEntry& e : entries) {
        e.pieces.resize(r.count(5));
        for (FormatPiece& p : e.pieces) {
            p.conversion = char(r.number<uint8_t>());
            p.text = r.text();
        }
        e.operands.resize(r.count(6));
        for (FormatOperand& o : e.operands) {
            o.prim = r.number<uint8_t>();
            o.rank = r.number<uint8_t>();
            o.n = r.number<uint16_t>();
            o.m = r.number<uint16_t>();
        }
        e.function = r.text();
        e.sites.resize(r.count(24));
        for (SourceSite& s : e.sites) {
            s.file = r.text();
            s.function = r.text();
            for (int32_t* n : {&s.line, &s.col, &s.end_line, &s.end_col}) *n = r.number<int32_t>();
        }
    }
    return entries;
}

}  // namespace qd::support
