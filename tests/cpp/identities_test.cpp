// What `simplify` makes of one operation whose operands are equal or constant: every identity by
// name, and those that floats don't have (NaN, signed zeros). Each row of identities.h against the
// operation that it replaces, on numbers of each type.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "ir/fold.h"
#include "pass/identities.h"
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

// --- each row against its operation

using ir::Op;
using pass::Identity;
using type::Prim;

// r = OP(a, c), or with the operands exchanged.
std::string text_of(const Identity& row, Prim p, bool swapped) {
    constexpr const char* kNumbers[] = {"0", "-0", "0.5", "1", "2"};
    const std::string t = type::info(p).name;
    const std::string of = row.op == Op::powi ? "i32" : t;
    const std::string result = ir::info(row.op).rule == ir::Rule::boolean ? "u1" : t;
    std::string code, c = "%a";
    if (row.second != Identity::Second::first) {
        const std::string n = kNumbers[static_cast<int>(row.second)];
        const bool point = of[0] == 'f' && n.find('.') == std::string::npos;
        code = "  %c = constant " + n + (point ? ".0" : "") + " : " + of + "\n";
        c = "%c";
    }
    return "func @k(%a: " + t + ") -> " + result + " {\n" + code +
           "  %r = " + ir::info(row.op).name + (swapped ? " " + c + ", %a" : " %a, " + c) +
           "\n  return %r\n}\n";
}

uint64_t run(const ir::Function& f, uint64_t a) {
    std::map<const ir::Value*, uint64_t> known{{f.body->params[0], a}};
    for (const ir::Inst* i = f.body->first; i != f.body->last; i = i->next) {
        if (i->op == Op::constant) {
            known[i->result()] = i->imm;
            continue;
        }
        ir::Scalar in[3];
        for (int k = 0; k < i->operand_count; ++k)
            in[k] = {i->operand(k)->type.prim, known.at(i->operand(k))};
        known[i->result()] = ir::fold(i->op, i->result()->type.prim, {in, i->operand_count}, true);
    }
    return known.at(f.body->last->operand(0));
}

std::vector<uint64_t> numbers(Prim p, bool normal, std::mt19937_64& random) {
    std::vector<uint64_t> all;
    for (double v : {1.0, 2.5, 3.0, 100.0}) all.push_back(ir::bits_of_double(p, v));
    if (normal) return all;
    for (double v : {0.0, -0.0, -1.0, -2.5, HUGE_VAL, -HUGE_VAL})
        all.push_back(ir::bits_of_double(p, v));
    all.push_back(1);  // a subnormal
    const int width = type::bits(p);
    for (int k = 0; k < 50; ++k) all.push_back(random() >> (64 - width));
    return all;
}

TEST(simplify, rows_give_what_their_operations_give) {
    std::mt19937_64 random(3);
    for (const Identity& row : pass::kIdentities)
        for (Prim p : {Prim::u1, Prim::i8, Prim::i16, Prim::i32, Prim::i64, Prim::u8, Prim::u16,
                       Prim::u32, Prim::u64, Prim::f16, Prim::f32, Prim::f64})
            for (int choice = 0; choice < 4; ++choice) {
                const bool fast = choice & 1, swapped = choice & 2;
                const ir::OpInfo& op = ir::info(row.op);
                if ((swapped && !op.commutes) ||
                    op.takes == (type::is_int(p) ? ir::Takes::floats : ir::Takes::ints))
                    continue;
                const std::string text = text_of(row, p, swapped);
                if (row.second == Identity::Second::half && type::is_int(p)) continue;
                SCOPED_TRACE(text + (fast ? "fast" : ""));
                const auto before = ir::parse(text), after = ir::parse(text);
                ir::verify(*before);
                after->options.fast_math = fast;
                pass::PipelineOptions options;
                pass::Session s{.m = *after, .options = options};
                pass::simplify(s, after->kernel());
                pass::dce(s, after->kernel());
                ir::verify(*after);
                if (pass::holds(row.of, p, fast)) {
                    const ir::Inst* made = after->kernel().body->last->operand(0)->def;
                    EXPECT_TRUE(!made || made->op != row.op) << ir::print(*after);
                }
                const bool loose = fast && !type::is_int(p);
                for (uint64_t a : numbers(p, loose, random)) {
                    const uint64_t want = run(before->kernel(), a), got = run(after->kernel(), a);
                    if (type::is_int(p) || op.rule == ir::Rule::boolean) {
                        EXPECT_EQ(got, want) << a;
                        continue;
                    }
                    const bool kept = row.op == Op::powi && a == 1;  // x ** 1 of a subnormal
                    const double x = ir::double_of_bits(p, got), y = ir::double_of_bits(p, want);
                    if (kept || (std::isnan(x) && std::isnan(y))) continue;
                    if (row.op == Op::pow && x != y)  // within an ulp or two
                        EXPECT_NEAR(x / y, 1, std::ldexp(1, p == Prim::f16 ? -9 : -22)) << y;
                    else
                        EXPECT_EQ(loose ? x != y : got != want, false) << x << " and " << y;
                }
            }
}

}  // namespace
}  // namespace qd::test
