// Field trees: sizes, offsets, address terms, components.

#include "layout/tree.h"

#include <gtest/gtest.h>

#include "support/error.h"

namespace {

using qd::layout::address;
using qd::layout::axis_stride;
using qd::layout::FieldSpec;
using qd::layout::make_field;
using qd::layout::Node;
using qd::type::Prim;
using qd::type::Type;

Node root() { return {}; }
Node dense(int parent, std::vector<int> axes, std::vector<int64_t> extents) {
    return {parent, Prim::none, std::move(axes), std::move(extents)};
}
Node place(int parent, Prim p) { return {parent, p, {}, {}}; }

qd::ir::Field field_at(std::vector<Node>& nodes, std::vector<int> places,
                       Type elem = qd::type::kF32, std::vector<int> order = {},
                       std::vector<int64_t> offset = {}) {
    qd::layout::lay_out(nodes);
    int64_t base;
    return make_field(nodes, {"x", elem, std::move(places), std::move(order), std::move(offset), 1},
                      base);
}

TEST(Layout, CellsPackInOrderWithNaturalAlignment) {
    std::vector<Node> n{root(),
                        dense(0, {0}, {3}),
                        place(1, Prim::u8),
                        place(1, Prim::f64),
                        place(1, Prim::i16),
                        dense(0, {0}, {5}),
                        place(5, Prim::u8)};
    qd::layout::lay_out(n);
    EXPECT_EQ(n[2].offset, 0);
    EXPECT_EQ(n[3].offset, 8);
    EXPECT_EQ(n[4].offset, 16);
    EXPECT_EQ(n[1].cell_bytes, 24);
    EXPECT_EQ(n[5].offset, 72);
    EXPECT_EQ(n[0].cell_bytes, 80);
}

// Numbers that lie in a word beside them.
TEST(Layout, PackedPlacesHaveNoBytes) {
    std::vector<Node> n{root(),
                        dense(0, {0}, {3}),
                        dense(1, {}, {}),
                        place(2, Prim::i32),
                        dense(1, {1}, {8}),
                        place(4, Prim::f64),
                        place(1, Prim::u32)};
    n[3].packed = n[5].packed = true;
    qd::layout::lay_out(n);
    EXPECT_EQ(n[1].cell_bytes, 4);
    EXPECT_EQ(n[0].bytes(), 12);
    const auto f = field_at(n, {5}, qd::type::kF32);
    EXPECT_EQ(f.ndim, 2);
    EXPECT_EQ(f.shape[1], 8);
}

TEST(Layout, ExtentsAreExact) {
    std::vector<Node> n{root(), dense(0, {0, 1, 2}, {129, 129, 129}), place(1, Prim::i32)};
    qd::layout::lay_out(n);
    EXPECT_EQ(n[0].bytes(), 4 * 129 * 129 * 129);
}

TEST(Layout, RowMajor) {
    std::vector<Node> n{root(), dense(0, {0, 1}, {3, 4}), place(1, Prim::f32)};
    const auto f = field_at(n, {2});
    const int64_t at[] = {2, 1};
    EXPECT_EQ(address(f, at), 4 * (2 * 4 + 1));
    EXPECT_EQ(f.shape[0], 3);
    EXPECT_EQ(f.shape[1], 4);
    for (const auto& t : f.terms) EXPECT_EQ(t.mod, 0);
}

TEST(Layout, ListedAxesGiveMemoryOrderAndSortedAxesIndices) {
    std::vector<Node> n{root(), dense(0, {2}, {3}), dense(1, {0}, {2}), place(2, Prim::f32)};
    const auto f = field_at(n, {3});
    EXPECT_EQ(f.ndim, 2);
    EXPECT_EQ(f.shape[0], 2);
    EXPECT_EQ(f.shape[1], 3);
    const int64_t at[] = {1, 2};
    EXPECT_EQ(address(f, at), 4 * (2 * 2 + 1));
}

TEST(Layout, BlocksOfBlocks) {
    std::vector<Node> n{root(), dense(0, {0, 1}, {2, 3}), dense(1, {0, 1}, {4, 5}),
                        place(2, Prim::i32)};
    const auto f = field_at(n, {3});
    EXPECT_EQ(f.shape[0], 8);
    EXPECT_EQ(f.shape[1], 15);
    for (int64_t i = 0; i < 8; ++i)
        for (int64_t j = 0; j < 15; ++j) {
            const int64_t at[] = {i, j};
            const int64_t block = (i / 4) * 3 + j / 5, inside = (i % 4) * 5 + j % 5;
            ASSERT_EQ(address(f, at), 4 * (block * 20 + inside));
        }
    int64_t stride;
    EXPECT_FALSE(axis_stride(f, 0, stride));
    EXPECT_FALSE(axis_stride(f, 1, stride));
}

TEST(Layout, SubdivisionsOfOneAxisMayStillBeStrided) {
    std::vector<Node> n{root(), dense(0, {0}, {4}), dense(1, {0}, {8}), place(2, Prim::f32)};
    const auto f = field_at(n, {3});
    int64_t stride;
    EXPECT_TRUE(axis_stride(f, 0, stride));
    EXPECT_EQ(stride, 4);
}

TEST(Layout, OrderPermutesPhysicalAxes) {
    std::vector<Node> n{root(), dense(0, {0, 1}, {3, 2}),
                        place(1, Prim::f32)};  // canonical shape (2, 3)
    const auto f = field_at(n, {2}, qd::type::kF32, {1, 0});
    EXPECT_EQ(f.shape[0], 2);
    EXPECT_EQ(f.shape[1], 3);
    const int64_t at[] = {1, 2};
    EXPECT_EQ(address(f, at), 4 * (2 * 2 + 1));
}

TEST(Layout, OffsetShiftsIndices) {
    std::vector<Node> n{root(), dense(0, {0}, {4}), place(1, Prim::f64)};
    const auto f = field_at(n, {2}, qd::type::kF64, {}, {-2});
    const int64_t first[] = {-2}, last[] = {1};
    EXPECT_EQ(address(f, first), 0);
    EXPECT_EQ(address(f, last), 24);
}

TEST(Layout, Components) {
    std::vector<Node> aos{root(), dense(0, {0}, {4}), place(1, Prim::f32), place(1, Prim::f32),
                          place(1, Prim::f32)};
    EXPECT_EQ(field_at(aos, {2, 3, 4}, Type::vector(Prim::f32, 3)).component_stride(), 4);
    std::vector<Node> soa{root(), dense(0, {0}, {4}), place(1, Prim::f32), dense(0, {0}, {4}),
                          place(3, Prim::f32)};
    EXPECT_EQ(field_at(soa, {2, 4}, Type::vector(Prim::f32, 2)).component_stride(), 16);
    std::vector<Node> uneven{root(),
                             dense(0, {0}, {4}),
                             place(1, Prim::f32),
                             dense(0, {0}, {4}),
                             place(3, Prim::f32),
                             place(3, Prim::f64)};
    const auto f = field_at(uneven, {2, 4}, Type::vector(Prim::f32, 2));
    EXPECT_EQ(f.component_stride(), 0);
    const int64_t third[] = {3};
    EXPECT_EQ(address(f, third, 0), 12);
    EXPECT_EQ(address(f, third, 1), 16 + 3 * 16);
    std::vector<Node> shapes{root(), dense(0, {0}, {4}), place(1, Prim::f32), dense(0, {0}, {5}),
                             place(3, Prim::f32)};
    EXPECT_THROW(field_at(shapes, {2, 4}, Type::vector(Prim::f32, 2)), qd::support::Error);
}

TEST(Layout, LargeTreesAndOverflow) {
    std::vector<Node> n{root(), dense(0, {0}, {int64_t(1) << 31}), place(1, Prim::u8),
                        dense(0, {0}, {8}), place(3, Prim::i32)};
    qd::layout::lay_out(n);
    EXPECT_EQ(n[3].offset, int64_t(1) << 31);
    std::vector<Node> huge{
        root(), dense(0, {0, 1, 2}, {int64_t(1) << 30, int64_t(1) << 30, int64_t(1) << 30}),
        place(1, Prim::u8)};
    EXPECT_THROW(qd::layout::lay_out(huge), qd::support::Error);
}

}  // namespace
