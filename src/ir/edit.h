// What passes and gradients build again and again.

#pragma once

#include <span>
#include <vector>

#include "ir/ir.h"

namespace qd::ir {

Value* zero(Builder& b, Type t);
bool is_inside(const Value* v, const Inst& owner);  // defined in its regions, however deep
// The instruction once more, without regions, on other operands.
Inst* emit_like(Builder& b, const Inst& i, std::span<Value* const> operands);

// A range over several dimensions as one that counts from 0: begins and lengths, as i64.
struct Extents {
    std::vector<Value*> low, length;
    Value* count;
};
Extents extents_of(Builder& b, const Inst& loop, std::span<Value* const> bounds);
// Its indices at a position, as i64.
std::vector<Value*> indices_at(Builder& b, Value* position, const Extents& e);

}  // namespace qd::ir
