// The IR's own services: text and bytes there and back, damaged bytes, hashes, clones, types.

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "ir/ir.h"
#include "random_program.h"
#include "support/error.h"
#include "support/half.h"

namespace qd::test {
namespace {

TEST(Text, RoundTripsRandomPrograms) {
    for (uint32_t seed = 1; seed <= 50; ++seed) {
        const auto m = RandomProgram(seed).make();
        const std::string text = ir::print(*m);
        const auto again = ir::parse(text);
        ir::verify(*again);
        ASSERT_EQ(ir::print(*again), text) << "seed " << seed;
        ASSERT_EQ(ir::serialise(*again), ir::serialise(*m)) << "seed " << seed;
    }
}

TEST(Text, KeepsEveryConstant) {
    std::mt19937_64 random(7);
    for (int p = 0; p < static_cast<int>(type::Prim::none); ++p) {
        for (int k = 0; k < 100; ++k) {
            const auto prim = static_cast<type::Prim>(p);
            const int width = type::bits(prim);
            ir::Module m;
            m.owned.push_back(std::make_unique<ir::Function>("k"));
            m.functions = {m.owned[0].get()};
            ir::Builder b{m.functions[0], m.functions[0]->body};
            const uint64_t bits =
                random() & (width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1);
            b.constant(type::Type::scalar(prim), bits);
            b.end(ir::Op::return_);
            const auto again = ir::parse(ir::print(m));
            ASSERT_EQ(again->kernel().body->first->imm, bits) << type::info(prim).name;
        }
    }
}

TEST(Bytes, DoNotDependOnAddresses) {
    const auto a = RandomProgram(3).make(), b = RandomProgram(3).make();
    ASSERT_EQ(ir::serialise(*a), ir::serialise(*b));
    ASSERT_EQ(ir::content_hash(*a), ir::content_hash(*b));
}

TEST(Bytes, KeepLocationsFormatsAndLoops) {
    auto m = ir::parse(R"(
func @k(%a: i32, %c: u1) {
  for %i = %a to %a parallel block_dim=64 name="rows" {
    assert %c, %i ["i = ", "-4" d, "\n"] in "step"
  }
})");
    ir::Function& f = m->kernel();
    const ir::Loc* outer =
        f.new_loc({f.new_string("a.py"), f.new_string("step"), 3, 4, 3, 9, nullptr});
    f.body->first->loc =
        f.new_loc({f.new_string("b.py"), f.new_string("inner"), 7, 0, 8, 2, outer});
    const auto again = ir::deserialise(ir::serialise(*m));
    const ir::Inst& loop = *again->kernel().body->first;
    ASSERT_TRUE(loop.loop_config()->parallel);
    EXPECT_EQ(loop.loop_config()->block_dim, 64);
    EXPECT_EQ(loop.loop_config()->name, "rows");
    EXPECT_EQ(loop.loc->file, "b.py");
    EXPECT_EQ(loop.loc->end_line, 8);
    EXPECT_EQ(loop.loc->caller->function, "step");
    const ir::Format& format = *loop.body().first->format();
    ASSERT_EQ(format.pieces.size(), 3u);
    EXPECT_EQ(format.pieces[1].text, "-4");
    EXPECT_EQ(format.pieces[1].conversion, 'd');
    EXPECT_EQ(format.function, "step");
}

TEST(Bytes, KeepTermsOfUnevenComponents) {
    const auto m = ir::parse(R"(
field @u "u" : vec<f32, 2> shape [8] offset [0] terms [0 / 1 % 0 * 8] terms [0 / 1 % 0 * 8] terms [0 / 1 % 0 * 4] components [0, 64] group 1
func @k(%i: i32) {
  %p = field_place @u, %i : place<vec<f32, 2>>
  %v = load %p
})");
    for (const auto& again : {ir::parse(ir::print(*m)), ir::deserialise(ir::serialise(*m))}) {
        const ir::Field& f = *again->fields.at(0);
        EXPECT_EQ(f.layout_hash(), m->fields[0]->layout_hash());
        EXPECT_EQ(f.terms_of(1).at(0).stride, 4);
        EXPECT_EQ(f.component_stride(), 0);
    }
}

TEST(Bytes, HashIgnoresNamesAndLocations) {
    auto a = ir::parse("func @a(%x: f32) { %y = add %x, %x }");
    auto b = ir::parse("func @b(%z: f32) { %y = add %z, %z }");
    b->kernel().body->first->loc = b->kernel().new_loc({"f.py", "g", 1, 2, 3, 4, nullptr});
    EXPECT_EQ(ir::content_hash(*a), ir::content_hash(*b));
    a->options.debug = b->options.debug = true;
    EXPECT_NE(ir::content_hash(*a), ir::content_hash(*b));
    auto c = ir::parse("func @a(%x: f32) { %y = mul %x, %x }");
    a->options.debug = false;
    EXPECT_NE(ir::content_hash(*a), ir::content_hash(*c));
}

TEST(Bytes, FunctionsAreFoundThroughCalls) {
    auto m = ir::parse(
        "func @k(%x: f32) { %y = call @f, %x : f32 }\nfunc @f(%x: f32) -> f32 { return %x }");
    m->functions.resize(1);
    EXPECT_EQ(ir::deserialise(ir::serialise(*m))->functions.size(), 2u);
}

TEST(Bytes, DamageIsAnErrorNeverACrash) {
    std::mt19937 random(5);
    for (uint32_t seed = 1; seed <= 10; ++seed) {
        const std::vector<uint8_t> good = ir::serialise(*RandomProgram(seed).make());
        const auto read = [](const std::vector<uint8_t>& bytes) {
            try {
                const auto m = ir::deserialise(bytes);
                ir::verify(*m);
                ir::print(*m);
            } catch (const support::Error&) {
            }
        };
        for (size_t n = 0; n < good.size(); n += 7)
            read({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
        for (int k = 0; k < 1000; ++k) {
            std::vector<uint8_t> bytes = good;
            for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
                bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
            }
            read(bytes);
        }
    }
}

TEST(Bytes, AreLinearInSize) {  // counts bytes, not time
    const auto size = [](int n) {
        ir::Module m;
        m.owned.push_back(std::make_unique<ir::Function>("k"));
        m.functions = {m.owned[0].get()};
        ir::Builder b{m.functions[0], m.functions[0]->body};
        ir::Value* v = b.int_const(type::Prim::i32, 1);
        for (int k = 0; k < n; ++k) v = b.op(ir::Op::add, {v, v});
        b.end(ir::Op::return_);
        return ir::serialise(m).size();
    };
    EXPECT_LE(size(20000) - size(10000), 10000u * 6);
}

TEST(Clone, CopiesRegionsWithTheirLoops) {
    auto m = ir::parse(R"(
func @k(%n: i32, %a: f32) -> f32 {
  %z = constant 0 : i32
  %s = for %i = %z to %n carry %t = %a : f32 {
    %u = mul %t, %a
    continue %u
  }
  return %s
})");
    ir::Function& f = m->kernel();
    m->owned.push_back(std::make_unique<ir::Function>("copy"));
    ir::Function& g = *m->owned.back();
    g.body = ir::clone_into(*f.body, g, {});
    g.result_types = f.result_types;
    m->functions.push_back(&g);
    ir::verify(*m);
    const auto body = [](const std::string& text) { return text.substr(text.find('(')); };
    EXPECT_EQ(body(ir::print(g)), body(ir::print(f)));
}

TEST(Types, PromoteAsTheLanguageSays) {
    using type::Prim;
    const auto both = [](Prim a, Prim b, Prim expected) {
        EXPECT_EQ(type::promote(a, b), expected);
        EXPECT_EQ(type::promote(b, a), expected);
    };
    both(Prim::i32, Prim::f16, Prim::f16);
    both(Prim::i64, Prim::f16, Prim::f16);
    both(Prim::f32, Prim::f64, Prim::f64);
    both(Prim::i32, Prim::u32, Prim::u32);
    both(Prim::i64, Prim::u32, Prim::i64);
    both(Prim::i8, Prim::u1, Prim::u1);
    both(Prim::u8, Prim::u1, Prim::u8);
    both(Prim::i16, Prim::u1, Prim::i16);
    EXPECT_EQ(type::to_string(type::Type::array(type::Type::vector(Prim::f32, 3), 2)),
              "array<vec<f32, 3>, 2>");
    EXPECT_EQ(type::to_user_string(type::Type::matrix(Prim::i32, 2, 3)), "[Tensor (2, 3) i32]");
}

TEST(Half, RoundsToNearestEven) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const double v = support::half_to_double(static_cast<uint16_t>(h));
        if (v != v) continue;
        ASSERT_EQ(support::double_to_half(v), h);
    }
    EXPECT_EQ(support::double_to_half(2049.0), support::double_to_half(2048.0));
    EXPECT_EQ(support::double_to_half(2051.0), support::double_to_half(2052.0));
    EXPECT_EQ(support::double_to_half(65520.0), 0x7c00);
    EXPECT_EQ(support::double_to_half(0x1p-25), 0);
    EXPECT_EQ(support::double_to_half(0x1.8p-25), 1);
}

}  // namespace
}  // namespace qd::test
