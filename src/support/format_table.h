// The texts of print and assert inside an artefact (Artefact::formats): written by the compiler,
// read by the runtime.
//
// Format number k of the table is the `format` argument of Runtime::print and Runtime::fail. The
// cells passed along hold every scalar of the operands in order, tensors row-major; the operand
// list says how to group them. An assert's condition is not an operand here.

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

struct FormatEntry {
    std::vector<FormatPiece> pieces;  // the k-th piece with a conversion prints operand k
    std::vector<FormatOperand> operands;
    std::string function;     // ir::Format::function
    std::string file, where;  // source file and function of the statement, "" if unknown
    int32_t line = 0;
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
        w.text(e.file);
        w.text(e.where);
        w.number(e.line);
    }
    return w.out;
}

inline std::vector<FormatEntry> read_format_table(std::span<const uint8_t> bytes) {
    ByteReader r{bytes, "format table"};
    std::vector<FormatEntry> entries(bytes.empty() ? 0 : r.count(24));
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
        e.file = r.text();
        e.where = r.text();
        e.line = r.number<int32_t>();
    }
    return entries;
}

}  // namespace qd::support
