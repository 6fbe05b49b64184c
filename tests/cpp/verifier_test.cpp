// The verifier refuses an operand of another class than the op table names, whichever op it is.

#include <gtest/gtest.h>

#include <string>

#include "ir/ir.h"
#include "support/error.h"

namespace qd::test {
namespace {

using namespace ir;

struct Example {
    Module m;
    Function* f;
    Builder b;
    Field field;

    Example() {
        m.owned.push_back(std::make_unique<Function>("k"));
        f = m.owned[0].get();
        m.functions = {f};
        b = {f, f->body};
        field.elem = type::kF32;
        field.ndim = 1;
    }

    Prim prim(const OpInfo& row) const { return row.takes == Takes::ints ? Prim::i32 : Prim::f32; }

    Value* array(const OpInfo& row, int axes) {
        m.params.push_back({.type = Type::array(Type::scalar(prim(row)), axes), .name = "a"});
        return f->add_param(*f->body, m.params.back().type);
    }

    // An operand that the letter allows.
    Value* right(char letter, const OpInfo& row) {
        switch (letter) {
            case 'p':
                return b.slot(Type::scalar(prim(row)));
            case 'a':
                return array(row, 1);
            case 'l':
                return b.int_const(Prim::i64, 1);
            case 'u':
                return b.constant(type::kU1, 1);
            case 'i':
            case 'n':
                return b.int_const(Prim::i32, 0);
            default:
                return row.takes == Takes::ints ? b.int_const(Prim::i32, 1)
                                                : b.float_const(Prim::f32, 1);
        }
    }
    // One that no letter but `a` allows, or, for that, a number.
    Value* wrong(char letter, const OpInfo& row) {
        if (letter == 'a') return right('v', row);
        return array(row, 2);
    }
    const void* reference(const OpInfo& row) {
        static const Format format;
        return row.refers == Refers::field    ? static_cast<const void*>(&field)
               : row.refers == Refers::format ? &format
                                              : nullptr;
    }

    std::string refusal() {
        b.end(Op::return_);
        try {
            verify(m);
            return "";
        } catch (const support::Error& e) {
            return e.what();
        }
    }
};

const char* expected(char letter) {
    switch (letter) {
        case 'v':
            return "operand is not a value";
        case '=':
            return "operands differ in type";
        case 'e':
        case 'r':
            return "component of another type";
        case 'i':
            return "index is not an integer";
        case 'n':
            return "bad index";
        case 'u':
            return "condition is not u1";
        case 'l':
            return "operand is not i64";
        case 'p':
            return "needs a place";
        case 'w':
            return "value does not fit the place";
        default:
            return "needs an array";
    }
}

// With operand `bad`, if there is such a one, replaced by one of another class.
std::string refusal(Op op, int operands, int bad) {
    const OpInfo& row = info(op);
    Example e;
    std::vector<Value*> list;
    const std::string letters = row.args;
    for (int k = 0; k < operands; ++k) {
        const char letter = letters[std::min<size_t>(size_t(k), letters.size() - 1)];
        list.push_back(k == bad ? e.wrong(letter, row) : e.right(letter, row));
    }
    // What the rule makes of right operands.
    std::vector<Type> result;
    if (row.rule == Rule::given) {
        if (!row.gives.is_none())
            result = {row.gives};
        else if (row.root != Root::none || row.kind == Kind::place)
            result = {Type::scalar(e.prim(row)).place()};
        else if (letters == "r")
            result = {Type::vector(e.prim(row), operands)};
        else
            result = {Type::scalar(e.prim(row))};
    } else if (row.rule != Rule::none) {
        result = {rule_type(op, list)};
    }
    Inst* i = e.b.emit(op, list, result);
    i->ref = e.reference(row);
    return e.refusal();
}

TEST(Verifier, KnowsTheClassOfEveryOperand) {
    int checked = 0;
    for (int k = 0; k < static_cast<int>(Op::count_); ++k) {
        const auto op = static_cast<Op>(k);
        const OpInfo& row = info(op);
        const std::string letters = row.args;
        if (letters.empty()) continue;
        const int operands = row.operands >= 0 ? row.operands : static_cast<int>(letters.size());
        for (int bad = 0; bad < operands; ++bad) {
            const char letter = letters[std::min<size_t>(size_t(bad), letters.size() - 1)];
            const std::string why = refusal(op, operands, bad);
            // A first operand that is no value has another result type by some rules.
            const bool by_rule = bad == 0 && why.find("breaks the rule") != std::string::npos;
            EXPECT_TRUE(by_rule || why.find(expected(letter)) != std::string::npos)
                << row.name << ", operand " << bad << ": " << why;
            ++checked;
        }
    }
    EXPECT_GT(checked, 120);
}

TEST(Verifier, AcceptsOperandsOfTheirClasses) {
    for (const Op op :
         {Op::add,         Op::neg,        Op::extract,    Op::insert,      Op::extract_dyn,
          Op::insert_dyn,  Op::splat,      Op::build,      Op::load,        Op::store,
          Op::atomic_add,  Op::atomic_and, Op::comp_place, Op::field_place, Op::array_place,
          Op::array_shape, Op::assert_,    Op::print,      Op::prefetch,    Op::seed,
          Op::popcnt}) {
        const OpInfo& row = info(op);
        const int operands =
            row.operands >= 0 ? row.operands : static_cast<int>(std::string(row.args).size());
        EXPECT_EQ(refusal(op, operands, -1), "") << row.name;
    }
}

// What does not fit in groups: the kernel's body, and what is said of it.
TEST(Verifier, KnowsWhereGroupsStand) {
    const std::pair<const char*, const char*> cases[] = {
        {"do_while { }", "yields no condition to go on"},
        {"do_while { yield %i }", "yields no condition to go on"},
        {"sections { yield %c }", "yields other types than the results"},
        {"stream { continue }", "outside a loop"},
        {"loop { stream { break } }", "groups stand in the body of a kernel"},
        {"if %c { stream { } }", "groups stand in the body of a kernel"},
        {"for %k = %i to %i parallel { stream { } }", "groups stand in the body of a kernel"},
        {"section { }", "stands outside the group that it is a part of"},
        {"stream { section { } }", "stands outside the group that it is a part of"},
        {"sections { sections { } }", "stands where only sections may"},
        {"sections { store %s, %i }", "stands where only sections may"},
        {"checkpoint { }", "wrong number of operands"},
        {"checkpoint %c { do_while { checkpoint %c { } yield %c } }", "in another of its kind"},
        {"checkpoint %i { }", "condition is not u1"},
        {"stream { return }", "early return in a function without returns_early"},
        {"sections { section { %v = add %i, %i } section { store %s, %v } }",
         "operand used before its definition"},
        {"stream { loop { for %k = %i to %i parallel { } break } }",
         "parallel loops stand in the kernel's body or a group"},
        {"sections { %v = add %i, %i section { store %s, %v } section { do_while { yield %c } } }",
         ""},
        {"do_while { checkpoint %c { stream { } do_while { yield %c } } yield %c }", ""},
        {"stream { for %k = %i to %i parallel { } }", ""},
    };
    for (const auto& [body, expected] : cases) {
        std::string what;
        try {
            verify(*parse("func @k(%c: u1, %i: i32) { %s = slot : place<i32> " + std::string(body) +
                          " return }"));
        } catch (const support::Error& e) {
            what = e.what();
        }
        EXPECT_TRUE(*expected ? what.find(expected) != std::string::npos : what.empty())
            << body << ": " << what;
    }
    const std::string early = "func @k(%c: u1) returns_early { stream { } }";
    EXPECT_THROW(verify(*parse(early)), support::Error);
    const std::string callee = "func @k() { call @f } func @f() { stream { } }";
    EXPECT_THROW(verify(*parse(callee)), support::Error);
}

}  // namespace
}  // namespace qd::test
