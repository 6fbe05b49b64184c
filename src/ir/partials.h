// Derivatives of element-wise ops, by the op's name: what rows of slope linear and nonlinear mean.
//
// A member of Derivative gives t times the partial derivative for operand `of`. Reverse mode hands
// it the result's adjoint and adds what it gets to the operand's; forward mode hands it the
// operand's tangent and adds the operands up. Both ask only for operands that matter: the formula
// for an exponent has a logarithm that the one for a base lacks. Formulas are evaluated as written,
// also where they give NaN. Where operands are equal, min and max follow the second; abs is flat at
// zero.
//
// A domain N has V, what it computes with, and
//   a member for each op (derive from ByName);
//   number(like, double): a constant of the type of `like`; as(v, like): v converted to that type.
// needs() runs the formulas on a domain that notes what they read: what of an op must be kept, or
// computed again, is never written down. `cast` has no member: between floats it converts t,
// through integers nothing passes.
//
// Keeps: a linear op's formula reads t alone (tests/cpp/partials_test.cpp, which also compares each
//        with differences of fold()).

#pragma once

#include <initializer_list>

#include "ir/ir.h"

namespace qd::ir {

// Ops as members that hand their operands to Self::emit(op, {...}).
template <class Self, class Value>
struct ByName {
    using V = Value;
#define OP(op, ...)                                                            \
    template <class... X>                                                      \
    constexpr V op(X... x) {                                                   \
        return static_cast<Self*>(this)->emit(Op::op, {static_cast<V>(x)...}); \
    }
#include "ir/ops.inc"
};

template <class N>
struct Derivative {
    using V = typename N::V;
    N& n;
    V t;        // what is differentiated is multiplied with it
    V x, y, r;  // first operands, result

    constexpr V zero() { return n.number(t, 0); }

    constexpr V add(int) { return t; }
    constexpr V sub(int of) { return of == 0 ? t : n.neg(t); }
    constexpr V neg(int) { return n.neg(t); }
    constexpr V attach(int of) { return of == 1 ? t : zero(); }
    constexpr V mul(int of) { return n.mul(t, of == 0 ? y : x); }
    constexpr V div(int of) {
        const V by = n.div(t, y);
        return of == 0 ? by : n.neg(n.mul(by, r));
    }
    constexpr V mod(int of) { return of == 0 ? t : n.neg(n.mul(t, n.floordiv(x, y))); }
    constexpr V fma(int of) { return of == 2 ? t : mul(of); }
    constexpr V select(int of) {
        return of == 1 ? n.select(x, t, zero()) : of == 2 ? n.select(x, zero(), t) : zero();
    }
    constexpr V min(int of) { return chosen(of, n.lt(x, y)); }
    constexpr V max(int of) { return chosen(of, n.gt(x, y)); }
    constexpr V abs(int) {
        return n.select(n.gt(x, zero()), t, n.select(n.lt(x, zero()), n.neg(t), zero()));
    }

    constexpr V pow(int of) {
        if (of == 1) return n.mul(n.mul(t, n.log(x)), r);
        return n.mul(t, n.mul(y, n.pow(x, n.sub(y, n.number(y, 1)))));
    }
    constexpr V powi(int of) {  // the exponent is an integer
        if (of == 1) return zero();
        return n.mul(t, n.mul(n.as(y, x), n.powi(x, n.sub(y, n.number(y, 1)))));
    }
    constexpr V sqrt(int) { return n.div(n.mul(t, n.number(t, 0.5)), r); }
    constexpr V rsqrt(int) { return n.mul(n.mul(t, n.number(t, -0.5)), n.mul(r, n.mul(r, r))); }
    constexpr V sin(int) { return n.mul(t, n.cos(x)); }
    constexpr V cos(int) { return n.neg(n.mul(t, n.sin(x))); }
    constexpr V tan(int) { return n.mul(t, n.add(n.number(t, 1), n.mul(r, r))); }
    constexpr V asin(int) { return n.div(t, n.sqrt(n.sub(n.number(t, 1), n.mul(x, x)))); }
    constexpr V acos(int of) { return n.neg(asin(of)); }
    constexpr V tanh(int) { return n.mul(t, n.sub(n.number(t, 1), n.mul(r, r))); }
    constexpr V exp(int) { return n.mul(t, r); }
    constexpr V log(int) { return n.div(t, x); }
    constexpr V atan2(int of) {
        const V square = n.add(n.mul(x, x), n.mul(y, y));
        return of == 0 ? n.div(n.mul(t, y), square) : n.neg(n.div(n.mul(t, x), square));
    }

  private:
    constexpr V chosen(int of, V first) {
        return of == 0 ? n.select(first, t, zero()) : n.select(first, zero(), t);
    }
};

constexpr bool has_derivative(Op op) {
    const OpInfo& row = kOps[int(op)];
    return row.kind == Kind::elementwise && row.rule != Rule::given &&
           (row.slope == Slope::linear || row.slope == Slope::nonlinear);
}

[[noreturn]] void has_no_meaning(Op op);  // fold.cpp

template <class N>
constexpr typename N::V derivative(Op op, Derivative<N> d, int of) {
    switch (op) {
#define OP(name, ...)                                              \
    case Op::name:                                                 \
        if constexpr (has_derivative(Op::name)) return d.name(of); \
        break;
#include "ir/ops.inc"
        case Op::count_:
            break;
    }
    has_no_meaning(op);
}

// What a derivative reads: bit k is operand k, bit 2 the result.
struct Reads : ByName<Reads, unsigned> {
    constexpr V emit(Op, std::initializer_list<V> of) {
        V all = 0;
        for (const V v : of) all |= v;
        return all;
    }
    constexpr V number(V, double) { return 0; }
    constexpr V as(V v, V) { return v; }
};
constexpr unsigned needs(Op op, int of) {
    Reads n;
    return derivative(op, Derivative<Reads>{n, 0, 1, 2, 4}, of);
}

}  // namespace qd::ir
