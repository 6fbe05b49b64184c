// Element-wise ops by name: what a row of the op table asks of an arithmetic domain.
//
// A domain has a member for each op that takes its numbers: `n.mod(x, y)` is op mod. Elementary
// functions are templates of elementary.h instead, one for all domains. Folding runs both on
// numbers, code generation on an LLVM builder. A row without its member or template does not
// compile.

#pragma once

#include "ir/elementary.h"
#include "ir/ir.h"

namespace qd::ir {

[[noreturn]] [[gnu::cold]] void has_no_meaning(Op op);  // fold.cpp

// Whether all operands have one type, and an op on numbers of the other class leaves it alone.
constexpr bool is_uniform(Op op, Takes not_of) {
    const OpInfo& row = kOps[int(op)];
    return row.kind == Kind::elementwise && row.takes != not_of && row.rule != Rule::given &&
           (row.operands == 1 || row.args[1] == '=');
}

// use(n.OP(x ...)) with as many operands as the op has; `numbers` is what the domain computes with.
template <Takes numbers, class N, class X, class Use>
auto by_member(Op op, N&& n, X x, X y, X z, Use use) {
    constexpr Takes other = numbers == Takes::floats ? Takes::ints : Takes::floats;
    switch (op) {
#define ELEMENTARY(name, ...) case Op::name:
#define OP(name, operands, ...)                                       \
    case Op::name:                                                    \
        if constexpr (is_uniform(Op::name, other)) {                  \
            if constexpr (operands == 1) return use(n.name(x));       \
            if constexpr (operands == 2) return use(n.name(x, y));    \
            if constexpr (operands == 3) return use(n.name(x, y, z)); \
        }                                                             \
        break;
#include "ir/ops.inc"
        case Op::count_:
            break;
    }
    has_no_meaning(op);
}

// An elementary function; y only where it has a second operand.
template <class N>
elementary::F<N> by_template(Op op, N& n, elementary::F<N> x, elementary::F<N> y) {
    switch (op) {
#define ELEMENTARY(name, operands, ...)    \
    case Op::name:                         \
        if constexpr (operands == 1)       \
            return elementary::name(n, x); \
        else                               \
            return elementary::name(n, x, y);
#define OP(name, ...) case Op::name:
#include "ir/ops.inc"
        case Op::count_:
            break;
    }
    has_no_meaning(op);
}

}  // namespace qd::ir
