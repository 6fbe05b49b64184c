// The dump that people and scripts read, line by line.

#include "pass/listing.h"

#include <gtest/gtest.h>

#include "ir/ir.h"

namespace qd::test {
namespace {

TEST(listing, a_kernel_and_its_functions) {
    const std::unique_ptr<ir::Module> m = ir::parse(R"(
func @k(%x: array<i32>, %c: u1) {
  %zero = constant 0 : i32
  %n = array_shape %x : i32
  %s = slot : place<f32>
  %f = constant 1.5 : f32
  store %s, %f
  for %i = %zero to %n carry %a = %zero : i32 {
    %p = array_place %x, %i : place<i32>
    store %p, %a
    if %c {
      continue %i
    } else {
      yield
    }
    %d = call @half, %a : i32
    continue %d
  }
  for %j = %zero to %n {
    if %c {
      yield
    } else {
      %q = array_place %x, %zero : place<i32>
      store %q, %zero
    }
  }
}
func @half(%a: i32) -> i32 returns_early {
  return %a
}
)");
    EXPECT_EQ(pass::listing(*m, {}), R"(kernel {
  <*array> $0 = argaddr[0]
  <u1> $1 = argload[1]
  <i32> $2 = const 0
  <i32> $3 = external_tensor_shape_along_axis 0 $0
  <*f32> $4 = alloca
  <f32> $5 = const 1.5
  <f32> $6 : local store [$4 <- $5]
  $7 : for in range($2, $3) {
    <i32> $8 = loop $7 index 0
    <i32> $9 = carried, at first $2
    <*i32> $10 = external_ptr $0, [$8] layout=AOS is_grad=false
    $11 : global store [$10 <- $9]
    $12 : if $1 {
      $13 : continue $8
    }
    <i32> $14 = call "half", args = {$9}
    $15 : continue $14
  }
  <i32> $16 = result 0 of $7
  $17 : for in range($2, $3) {
    <i32> $18 = loop $17 index 0
    $19 : if $1 {
    } else {
      <*i32> $20 = external_ptr $0, [$2] layout=AOS is_grad=false
      $21 : global store [$20 <- $2]
    }
  }
}
function half {
  <i32> $22 = parameter 0
  $23 : return $22
}
)");
}

TEST(listing, tasks) {
    const std::unique_ptr<ir::Module> m = ir::parse(R"(
func @k(%n: i32) {
}
func @add(%n: i32) {
  %s = add %n, %n
}
func @total(%n: i32) {
}
func @called(%n: i32) {
}
)");
    pass::Task whole, serial;
    whole.name = "sum";
    whole.kind = abi::TaskKind::range;
    whole.dims = 2;
    whole.bounds[1] = {abi::BoundKind::constant, 4, 4, 0, 9};
    whole.bounds[2] = {abi::BoundKind::arg, 4, 4, -1, 8};
    whole.bounds[3] = {abi::BoundKind::temp, 4, 4, 2, 16};
    whole.block_dim = 64;
    whole.body = m->functions[1];
    whole.finish = m->functions[2];
    serial.kind = abi::TaskKind::serial;
    serial.body = m->functions[1];
    const pass::Task tasks[] = {whole, serial};
    EXPECT_EQ(pass::listing(*m, tasks),
              "kernel {\n"
              "  $0 = offloaded range_for(0, 9, arg(offset=8B) - 1, tmp(offset=16B) + 2)"
              " grid_dim=0 block_dim=64 loop_name=sum \n"
              "  body {\n"
              "    <i32> $1 = argload[0]\n"
              "    <i32> $2 = add $1 $1\n"
              "  }\n"
              "  finish {\n"
              "  }\n"
              "  $3 = offloaded  \n"
              "  body {\n"
              "    <i32> $4 = argload[0]\n"
              "    <i32> $5 = add $4 $4\n"
              "  }\n"
              "}\n"
              "function called {\n"
              "}\n");
}

}  // namespace
}  // namespace qd::test
