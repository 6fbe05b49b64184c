// Texts of print and assert: defaults, printf specs, tensors, and specs that no compiler writes.

#include "runtime/cpu/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "type/type.h"

namespace qd::runtime {
namespace {

using support::FormatEntry;
using type::Prim;

std::string one(Prim prim, abi::Cell cell, std::string spec = "", char conversion = '*') {
    FormatEntry e;
    e.pieces = {{"<", 0}, {std::move(spec), conversion}, {">", 0}};
    e.operands = {{static_cast<uint8_t>(prim), 0, 1, 1}};
    return format_text(e, &cell);
}
std::string real(Prim p, double v, std::string spec = "", char conversion = '*') {
    return one(p, {.f = v}, std::move(spec), conversion);
}
std::string whole(Prim p, int64_t v, std::string spec = "", char conversion = '*') {
    return one(p, {.i = v}, std::move(spec), conversion);
}

TEST(print, defaults) {
    EXPECT_EQ(real(Prim::f32, 1.5), "<1.500000>");
    EXPECT_EQ(real(Prim::f16, -0.0), "<-0.000000>");
    EXPECT_EQ(real(Prim::f64, 1.5), "<1.500000000000>");
    EXPECT_EQ(real(Prim::f32, std::numeric_limits<double>::infinity()), "<inf>");
    EXPECT_EQ(whole(Prim::i32, -3), "<-3>");
    EXPECT_EQ(whole(Prim::u1, 1), "<1>");
    EXPECT_EQ(whole(Prim::u64, -1), "<18446744073709551615>");
    EXPECT_EQ(whole(Prim::u32, 4294967295), "<4294967295>");
    EXPECT_EQ(whole(Prim::i64, std::numeric_limits<int64_t>::min()), "<-9223372036854775808>");
}

TEST(print, specs) {
    EXPECT_EQ(real(Prim::f32, 2.0 / 3, ".2", 'f'), "<0.67>");
    EXPECT_EQ(real(Prim::f32, 12345.678, "-12.1", 'e'), "<1.2e+04     >");
    EXPECT_EQ(real(Prim::f64, 1.5, ".3"), "<1.500>");
    EXPECT_EQ(whole(Prim::i32, 255, "#", 'x'), "<0xff>");
    EXPECT_EQ(whole(Prim::i8, -1, "", 'x'), "<ff>");
    EXPECT_EQ(whole(Prim::u16, 9, "05", 'u'), "<00009>");
    EXPECT_EQ(whole(Prim::i64, 7, "+ll", 'd'), "<+7>");
}

TEST(print, wide_numbers) {
    EXPECT_EQ(whole(Prim::i32, 5, "2000", 'd').size(), 2002u);
    EXPECT_EQ(real(Prim::f64, 1e300, ".600", 'f').size(), 2u + 301 + 1 + 600);
    EXPECT_EQ(whole(Prim::i32, 5, "2000000000", 'd'), "<>");
}

TEST(print, foreign_specs_never_reach_printf) {
    EXPECT_EQ(whole(Prim::i32, 5, "", 'n'), "<%n>");
    EXPECT_EQ(whole(Prim::i32, 5, "", 's'), "<%s>");
    EXPECT_EQ(whole(Prim::i32, 5, "*", 'd'), "<%*d>");
    EXPECT_EQ(whole(Prim::i32, 5, "%n", 'd'), "<%%nd>");
    EXPECT_EQ(real(Prim::f32, 5, "", 'd'), "<%d>");
}

TEST(print, tensors_and_missing_operands) {
    FormatEntry e;
    e.pieces = {{"", '*'}, {" | ", 0}, {".1", 'f'}, {"; ", 0}, {"", '*'}, {"!", 0}};
    e.operands = {{static_cast<uint8_t>(Prim::i32), 1, 3, 1},
                  {static_cast<uint8_t>(Prim::f32), 2, 2, 2}};
    abi::Cell cells[7] = {{.i = 1}, {.i = -2}, {.i = 3}, {.f = 1}, {.f = 2}, {.f = 3}, {.f = 4}};
    EXPECT_EQ(format_text(e, cells), "[1, -2, 3] | [[1.0, 2.0], [3.0, 4.0]]; !");
}

}  // namespace
}  // namespace qd::runtime
