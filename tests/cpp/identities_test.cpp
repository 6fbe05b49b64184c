// What `simplify` makes of one operation whose operands are equal or constant: every identity by
// name, and those that floats don't have (NaN, signed zeros).

#include <gtest/gtest.h>

#include "pass/passes.h"

namespace qd::test {
namespace {

struct Row {
    const char* type;    // of %a, %b and the constants; "fast": f32 under fast_math
    const char* code;    // what %r is
    const char* result;  // of %r
    const char* want;    // what is returned: "a", "b", a constant, or the operation that stays
};

// %zero %one %two %three %half: constants of the type; %i0 %i1 %i2 %ineg: i32; %yes %no: u1; %v:
// vec<f32, 2>.
const Row kRows[] = {
    {"i32", "add %a, %zero", "i32", "a"},
    {"i32", "add %zero, %a", "i32", "a"},
    {"i32", "add %a, %one", "i32", "add"},
    {"f32", "add %a, %zero", "f32", "add"},  // -0 + 0 is 0
    {"i32", "sub %a, %zero", "i32", "a"},
    {"i32", "sub %zero, %a", "i32", "sub"},
    {"i32", "sub %a, %a", "i32", "0"},
    {"i32", "sub %a, %b", "i32", "sub"},
    {"f32", "sub %a, %a", "f32", "sub"},
    {"i32", "mul %a, %one", "i32", "a"},
    {"i32", "mul %one, %a", "i32", "a"},
    {"i32", "mul %a, %zero", "i32", "0"},
    {"i32", "mul %zero, %a", "i32", "0"},
    {"i32", "mul %a, %two", "i32", "mul"},
    {"f32", "mul %a, %one", "f32", "mul"},  // a subnormal becomes zero
    {"f32", "mul %a, %zero", "f32", "mul"},
    {"fast", "add %a, %zero", "f32", "a"},
    {"fast", "add %zero, %a", "f32", "a"},
    {"fast", "add %a, %one", "f32", "add"},
    {"fast", "sub %a, %zero", "f32", "a"},
    {"fast", "sub %a, %a", "f32", "sub"},
    {"fast", "mul %a, %one", "f32", "a"},
    {"fast", "mul %one, %a", "f32", "a"},
    {"fast", "mul %a, %two", "f32", "mul"},
    {"fast", "div %a, %one", "f32", "a"},
    {"fast", "div %a, %two", "f32", "mul"},
    {"fast", "div %a, %three", "f32", "div"},
    {"fast", "pow %a, %one", "f32", "a"},
    {"fast", "pow %a, %half", "f32", "sqrt"},
    {"fast", "powi %a, %ineg", "f32", "div"},
    {"f32", "powi %a, %ineg", "f32", "powi"},
    {"f32", "pow %a, %half", "f32", "pow"},
    {"f32", "div %a, %two", "f32", "mul"},    // 0.5 is exact
    {"f32", "div %a, %three", "f32", "div"},  // 1/3 is not
    {"f32", "div %a, %zero", "f32", "div"},
    {"i32", "floordiv %a, %one", "i32", "a"},
    {"i32", "floordiv %a, %two", "i32", "floordiv"},
    {"i32", "raw_div %a, %one", "i32", "a"},
    {"i32", "mod %a, %one", "i32", "0"},
    {"i32", "mod %a, %two", "i32", "mod"},
    {"i32", "raw_mod %a, %one", "i32", "0"},
    {"f32", "powi %a, %i0", "f32", "1"},
    {"i32", "powi %a, %i0", "i32", "1"},
    {"f32", "powi %a, %i1", "f32", "a"},
    {"f32", "powi %a, %i2", "f32", "mul"},
    {"i32", "powi %a, %i2", "i32", "mul"},
    {"i32", "powi %a, %ineg", "i32", "powi"},
    {"f32", "pow %a, %one", "f32", "pow"},
    {"f32", "pow %a, %two", "f32", "mul"},
    {"f32", "pow %a, %three", "f32", "pow"},
    {"i32", "bit_and %a, %a", "i32", "a"},
    {"i32", "bit_and %a, %zero", "i32", "0"},
    {"i32", "bit_and %zero, %a", "i32", "0"},
    {"i32", "bit_and %a, %one", "i32", "bit_and"},
    {"i32", "bit_or %a, %a", "i32", "a"},
    {"i32", "bit_or %a, %zero", "i32", "a"},
    {"i32", "bit_or %zero, %a", "i32", "a"},
    {"i32", "bit_or %a, %one", "i32", "bit_or"},
    {"u1", "bit_and %a, %yes", "u1", "a"},
    {"u1", "bit_and %yes, %a", "u1", "a"},
    {"u1", "bit_and %a, %no", "u1", "0"},
    {"u1", "bit_or %a, %yes", "u1", "1"},
    {"u1", "bit_or %yes, %a", "u1", "1"},
    {"u1", "bit_or %a, %no", "u1", "a"},
    {"i32", "bit_xor %a, %zero", "i32", "a"},
    {"i32", "bit_xor %a, %a", "i32", "0"},
    {"i32", "bit_xor %a, %one", "i32", "bit_xor"},
    {"i32", "shl %a, %zero", "i32", "a"},
    {"i32", "shl %a, %one", "i32", "shl"},
    {"i32", "shr %a, %zero", "i32", "a"},
    {"i32", "lshr %a, %zero", "i32", "a"},
    {"i32", "min %a, %a", "i32", "a"},
    {"i32", "min %a, %b", "i32", "min"},
    {"f32", "max %a, %a", "f32", "max"},  // a subnormal becomes zero
    {"fast", "max %a, %a", "f32", "a"},
    {"i32", "lt %a, %a", "u1", "0"},
    {"i32", "gt %a, %a", "u1", "0"},
    {"i32", "ne %a, %a", "u1", "0"},
    {"i32", "le %a, %a", "u1", "1"},
    {"i32", "ge %a, %a", "u1", "1"},
    {"i32", "eq %a, %a", "u1", "1"},
    {"i32", "eq %a, %b", "u1", "eq"},
    {"f32", "ne %a, %a", "u1", "ne"},  // true of NaN
    {"f32", "eq %a, %a", "u1", "eq"},
    {"i32", "select %yes, %a, %b", "i32", "a"},
    {"i32", "select %no, %a, %b", "i32", "b"},
    {"i32", "select %c, %a, %a", "i32", "a"},
    {"i32", "select %c, %a, %b", "i32", "select"},
    {"f32", "cast %a : f32", "f32", "a"},
    {"f32", "cast %a : i32", "i32", "cast"},
    {"f32", "bit_cast %a : f32", "f32", "a"},
    {"f32", "extract_dyn %v, %i1", "f32", "extract"},
};

std::string text_of(const Row& row) {
    const std::string t = row.type == std::string("fast") ? "f32" : row.type;
    const auto constant = [&](const char* name, const char* value) {
        const bool real = t[0] == 'f';
        return std::string("  %") + name + " = constant " + value + (real ? ".0" : "") + " : " + t +
               "\n";
    };
    std::string out = "func @k(%a: " + t + ", %b: " + t + ", %c: u1) -> " + row.result + " {\n";
    if (t != "u1") out += constant("zero", "0") + constant("one", "1") + constant("two", "2");
    if (t != "u1") out += constant("three", "3");
    if (t == "f32") out += "  %v = build %a, %b : vec<f32, 2>\n  %half = constant 0.5 : f32\n";
    for (const char* c : {"i0 = constant 0", "i1 = constant 1", "i2 = constant 2"})
        out += std::string("  %") + c + " : i32\n";
    out += "  %ineg = constant -1 : i32\n  %yes = constant 1 : u1\n  %no = constant 0 : u1\n";
    return out + "  %r = " + row.code + "\n  return %r\n}\n";
}

TEST(simplify, identities) {
    for (const Row& row : kRows) {
        SCOPED_TRACE(std::string(row.type) + ": " + row.code);
        const auto m = ir::parse(text_of(row));
        ir::verify(*m);
        m->options.fast_math = row.type == std::string("fast");
        pass::PipelineOptions options;
        pass::Session s{.m = *m, .options = options};
        pass::simplify(s, m->kernel());
        pass::dce(s, m->kernel());
        ir::verify(*m);
        const ir::Inst* end = m->kernel().body->last;
        const ir::Value* v = end->operand(0);
        const std::string want = row.want;
        if (want == "a" || want == "b") {
            EXPECT_EQ(v, m->kernel().body->params[want == "b"]) << ir::print(*m);
        } else if (std::isdigit(static_cast<unsigned char>(want[0]))) {
            EXPECT_NE(ir::print(*m).find("constant " + want), std::string::npos) << ir::print(*m);
            EXPECT_TRUE(v->def && v->def->op == ir::Op::constant) << ir::print(*m);
        } else {
            ASSERT_TRUE(v->def) << ir::print(*m);
            EXPECT_EQ(ir::info(v->def->op).name, want) << ir::print(*m);
        }
    }
}

}  // namespace
}  // namespace qd::test
