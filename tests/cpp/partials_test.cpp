// Derivatives of ops against central differences of fold(), and slopes against derivatives.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ir/fold.h"
#include "ir/partials.h"

namespace qd::test {
namespace {

using ir::Op;
using ir::Scalar;
using ir::Slope;
using type::Prim;

// f64, and what follows from it.
struct Numbers : ir::ByName<Numbers, Scalar> {
    V emit(Op op, std::initializer_list<V> in) {
        const V* x = in.begin();
        const ir::Rule rule = ir::info(op).rule;
        const Prim p = rule == ir::Rule::boolean ? Prim::u1
                       : rule == ir::Rule::same1 ? x[1].prim
                                                 : x[0].prim;
        return {p, ir::fold(op, p, {x, in.size()}, true)};
    }
    V number(V like, double v) { return {like.prim, ir::bits_of_double(like.prim, v)}; }
    V as(V v, V like) { return {like.prim, ir::fold_cast(v.prim, like.prim, v.bits)}; }
};

Scalar real(double v) { return {Prim::f64, ir::bits_of_double(Prim::f64, v)}; }
double value(Scalar v) { return ir::double_of_bits(v.prim, v.bits); }

std::vector<Op> element_wise() {
    std::vector<Op> all;
    for (int k = 0; k < static_cast<int>(Op::count_); ++k)
        if (ir::kOps[k].kind == ir::Kind::elementwise && ir::kOps[k].rule != ir::Rule::given)
            all.push_back(Op(k));
    return all;
}

struct Draw {
    std::mt19937_64 random{5};
    double operator()(ir::Span in) {
        return std::uniform_real_distribution<double>(in.low, in.high)(random);
    }
    // Operands of an op from where its row says that tests draw.
    std::vector<Scalar> operands(Op op) {
        const ir::OpInfo& row = ir::info(op);
        std::vector<Scalar> x = {real((*this)(row.tested)), real((*this)(row.against)),
                                 real((*this)(row.tested))};
        x.resize(static_cast<size_t>(row.operands));
        if (op == Op::select) x[0] = {Prim::u1, random() & 1};
        if (op == Op::powi) x[1] = {Prim::i32, random() % 6};
        return x;
    }
};

constexpr double kStep = 1e-6;

// How the op changes beside x[of]: below, above.
std::pair<double, double> slopes(Op op, std::vector<Scalar> x, int of) {
    const auto at = [&](double v) {
        x[static_cast<size_t>(of)] = real(v);
        const Prim p = ir::info(op).rule == ir::Rule::boolean ? Prim::u1 : Prim::f64;
        return value({p, ir::fold(op, p, x, true)});
    };
    const double middle = value(x[static_cast<size_t>(of)]), here = at(middle);
    return {(here - at(middle - kStep)) / kStep, (at(middle + kStep) - here) / kStep};
}

TEST(Partials, AreDifferences) {
    for (const Op op : element_wise()) {
        if (!ir::has_derivative(op) || op == Op::attach) continue;  // which is told its derivative
        Draw draw;
        int compared = 0;
        constexpr int kDraws = 200;
        for (int turn = 0; turn < kDraws; ++turn) {
            const std::vector<Scalar> x = draw.operands(op);
            const Scalar t = real(draw({-2, 2}));
            for (int of = 0; of < ir::info(op).operands; ++of) {
                if (x[static_cast<size_t>(of)].prim != Prim::f64) continue;
                const auto [below, above] = slopes(op, x, of);
                const double size = std::max({1.0, std::fabs(below), std::fabs(above)});
                if (std::fabs(below - above) > 1e-3 * size) continue;  // at a jump or a corner
                Numbers n;
                const size_t count = x.size();
                const Scalar result = {Prim::f64, ir::fold(op, Prim::f64, x, true)};
                const Scalar d = ir::derivative(
                    op, ir::Derivative<Numbers>{n, t, x[0], x[count > 1 ? 1 : 0], result}, of);
                ASSERT_NEAR(value(d), value(t) * (below + above) / 2, 1e-5 * size)
                    << ir::info(op).name << " operand " << of << " at " << value(x[0]) << ", "
                    << value(x[count > 1 ? 1 : 0]);
                ++compared;
            }
        }
        EXPECT_GE(compared, kDraws * 9 / 10) << ir::info(op).name;
    }
}

TEST(Partials, SlopesAreWhatTheyRead) {
    for (const Op op : element_wise()) {
        const ir::OpInfo& row = ir::info(op);
        if (!ir::has_derivative(op)) continue;
        unsigned reads = 0;
        for (int of = 0; of < row.operands; ++of) reads |= ir::needs(op, of);
        EXPECT_EQ(row.slope == Slope::nonlinear, reads != 0) << row.name;
    }
    EXPECT_EQ(ir::needs(Op::tanh, 0), 4u);    // the result
    EXPECT_EQ(ir::needs(Op::pow, 0), 3u);     // both operands, not the result
    EXPECT_EQ(ir::needs(Op::select, 1), 1u);  // the condition
    EXPECT_EQ(ir::needs(Op::fma, 2), 0u);
}

TEST(Partials, WhatIsZeroIsFlat) {
    for (const Op op : element_wise()) {
        const ir::OpInfo& row = ir::info(op);
        if (row.slope != Slope::zero || row.takes == ir::Takes::ints) continue;
        Draw draw;
        for (int of = 0; of < row.operands; ++of) {
            int jumps = 0;
            for (int turn = 0; turn < 200; ++turn) {
                const auto [below, above] = slopes(op, draw.operands(op), of);
                jumps += below != 0 || above != 0;
            }
            EXPECT_LE(jumps, 1) << row.name;
        }
    }
}

// Ops on integers alone have no derivative; what has one is never forbidden by the row.
TEST(Partials, IntegersHaveNone) {
    for (const ir::OpInfo& row : ir::kOps) {
        if (row.takes != ir::Takes::ints || row.kind == ir::Kind::control) continue;
        EXPECT_TRUE(row.slope == Slope::zero || row.slope == Slope::forbidden) << row.name;
    }
}

// The same formulas as IR.
struct Instructions : ir::ByName<Instructions, ir::Value*> {
    ir::Builder& b;
    explicit Instructions(ir::Builder& b) : b(b) {}
    V emit(Op op, std::initializer_list<V> x) { return b.op(op, x); }
    V number(V like, double v) { return b.splat(b.float_const(like->type.prim, v), like->type); }
    V as(V v, V like) { return b.cast(v, like->type.prim); }
};

TEST(Partials, BuildValidCode) {
    for (const type::Type t :
         {type::Type::scalar(Prim::f32), type::Type::matrix(Prim::f64, 2, 3)}) {
        for (const Op op : element_wise()) {
            if (!ir::has_derivative(op)) continue;
            ir::Module m;
            m.owned.push_back(std::make_unique<ir::Function>("f"));
            ir::Function& f = *m.owned.back();
            m.functions = {&f};
            ir::Builder b{&f, f.body};
            ir::Value* x[4];
            for (ir::Value*& v : x) v = b.splat(b.float_const(t.prim, 0.5), t);
            if (op == Op::select) x[0] = b.op(Op::lt, {x[1], x[2]});
            if (op == Op::powi) x[1] = b.splat(b.int_const(Prim::i32, 3), t.with(Prim::i32));
            Instructions n(b);
            const int count = ir::info(op).operands;
            ir::Value* r = count == 1   ? b.op(op, {x[0]})
                           : count == 2 ? b.op(op, {x[0], x[1]})
                                        : b.op(op, {x[0], x[1], x[2]});
            for (int of = 0; of < count; ++of) {
                const ir::Value* d =
                    ir::derivative(op, ir::Derivative<Instructions>{n, x[3], x[0], x[1], r}, of);
                EXPECT_EQ(d->type, t) << ir::info(op).name;
            }
            b.end(Op::return_);
            EXPECT_NO_THROW(ir::verify(m)) << ir::info(op).name;
        }
    }
}

}  // namespace
}  // namespace qd::test
