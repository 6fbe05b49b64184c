// Reports of integer overflow in debug mode, and the arithmetic of built-ins that makes them.

#include <cmath>
#include <string>
#include <vector>

#include "frontend/specialise.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

const char* word_of(Op op) {
    return op == Op::add   ? "Addition"
           : op == Op::sub ? "Subtraction"
           : op == Op::shl ? "Shift left"
                           : "Multiplication";
}

bool reports(Prim p) {
    return current()->kernel->options.debug && type::is_int(p) && p != Prim::u1;
}

// A power leaves the range if the real one does. Of 64 bits, no square or higher power of an
// integer but 2 ** n lies so close to the limits that a double could miss it.
Value* power_overflows(Value* base, Value* exponent) {
    ir::Builder& out = builder();
    const Prim p = base->type.prim;
    const int bits = type::bits(p) - type::is_signed(p);
    const double above = std::ldexp(1.0, bits) - (bits < 63 ? 0.5 : std::ldexp(1.0, bits - 40));
    auto limit = [&](double v) { return broadcast(const_of(Prim::f64, v), base->type); };
    Value* real = out.op(Op::pow, {out.cast(base, Prim::f64), out.cast(exponent, Prim::f64)});
    Value* lost = out.op(Op::gt, {real, limit(above)});
    if (type::is_signed(p)) {
        const double below = -std::ldexp(1.0, bits) * (1 + std::ldexp(1.0, -40)) - 0.5;
        lost = out.op(Op::bit_or, {lost, out.op(Op::lt, {real, limit(below)})});
    }
    Value* one = broadcast(out.int_const(exponent->type.prim, 1), exponent->type);
    return out.op(Op::bit_and, {lost, out.op(Op::gt, {exponent, one})});
}

// u1, per component: whether r = a op b left the range of its type; null if it cannot.
Value* overflows(Op op, Value* a, Value* b, Value* r) {
    ir::Builder& out = builder();
    const Type t = r->type;
    const bool is_signed = type::is_signed(t.prim);
    auto zero = [&] { return broadcast(out.int_const(t.prim, 0), t); };
    // Whether x and the result have other signs, and u and v too.
    auto signs_differ = [&](Value* x, Value* u, Value* v) {
        Value* both =
            out.op(Op::bit_and, {out.op(Op::bit_xor, {x, r}), out.op(Op::bit_xor, {u, v})});
        return out.op(Op::lt, {both, zero()});
    };
    switch (op) {
        case Op::add:
            return is_signed ? signs_differ(a, b, r) : out.op(Op::lt, {r, a});
        case Op::sub:
            return is_signed ? signs_differ(a, a, b) : out.op(Op::lt, {a, b});
        case Op::mul: {
            if (type::bits(t.prim) < 64) {
                const Prim wide = is_signed ? Prim::i64 : Prim::u64;
                return out.op(Op::ne, {out.op(Op::mul, {out.cast(a, wide), out.cast(b, wide)}),
                                       out.cast(r, wide)});
            }
            Value* lost = out.op(Op::bit_and, {out.op(Op::ne, {a, zero()}),
                                               out.op(Op::ne, {out.op(Op::raw_div, {r, a}), b})});
            if (!is_signed) return lost;
            Value* minus_one = broadcast(out.int_const(t.prim, -1), t);
            Value* lowest = broadcast(out.int_const(t.prim, INT64_MIN), t);
            return out.op(Op::bit_or, {lost, out.op(Op::bit_and, {out.op(Op::eq, {a, minus_one}),
                                                                  out.op(Op::eq, {b, lowest})})});
        }
        case Op::shl:
            return out.op(Op::ne, {out.op(Op::shr, {r, b}), a});
        case Op::pow:
            return power_overflows(a, b);
        default:
            return nullptr;
    }
}

}  // namespace

void report_overflow(Op op, Value* a, Value* b, Value* r) {
    if (!reports(r->type.prim)) return;
    Value* lost = overflows(op, a, b, r);
    if (!lost) return;
    ir::Builder& out = builder();
    if (lost->type.rank) lost = out.op(Op::reduce_or, {lost});
    Value* operands[] = {lost};
    ir::Inst* branch = out.emit(Op::if_, operands, {}, 2);
    ir::Region* home = out.region;
    ir::Format format;
    format.function = "overflow";
    format.pieces.push_back(
        {std::string(word_of(op)) + " overflow detected in " + location_text(*current()) + "\n",
         0});
    out.region = branch->regions[0];
    out.emit(Op::print, {}, {})->ref = own_format(std::move(format));
    out.end(Op::yield);
    out.region = branch->regions[1];
    out.end(Op::yield);
    out.region = home;
    current()->kernel->has_print = true;
}

Value* atomic_arithmetic(Op atomic, Value* place, Value* operand) {
    if (is_packed(place)) return update_packed(place, ir::info(atomic).python, operand);
    touch(place);
    ir::Builder& out = builder();
    Value* old = out.op(atomic, {place, operand});
    if (!reports(old->type.prim)) return old;
    // What it leaves in the place is computed once more, for the report.
    if (atomic == Op::atomic_add) (void)add(old, operand);
    if (atomic == Op::atomic_sub) (void)subtract(old, operand);
    if (atomic == Op::atomic_mul) (void)multiply(old, operand);
    return old;
}

static Value* reported(Op op, Value* a, Value* b) {
    Value* r = builder().op(op, {a, b});
    report_overflow(op, a, b, r);
    return r;
}
Value* add(Value* a, Value* b) { return reported(Op::add, a, b); }
Value* subtract(Value* a, Value* b) { return reported(Op::sub, a, b); }
Value* multiply(Value* a, Value* b) { return reported(Op::mul, a, b); }

Value* sum_of(Value* v) {
    if (!reports(v->type.prim)) return builder().op(Op::reduce_add, {v});
    const std::vector<Value*> parts = components(v);
    Value* sum = parts[0];
    for (size_t k = 1; k < parts.size(); ++k) sum = add(sum, parts[k]);
    return sum;
}

Value* inner_product(Value* a, Value* b) { return sum_of(multiply(a, b)); }

Value* matrix_times(Value* x, Value* y, Type result) {
    if (!reports(result.prim)) {
        Value* operands[] = {x, y};
        return builder().typed(Op::matmul, result, operands);
    }
    const std::vector<Value*> left = components(x), right = components(y);
    const int rows = x->type.n, inner = x->type.m, columns = result.rank == 1 ? 1 : result.m;
    Value* sum = nullptr;
    for (int k = 0; k < inner; ++k) {  // whole outer products: one report for each
        std::vector<Value*> a, b;
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) {
                a.push_back(left[static_cast<size_t>(i * inner + k)]);
                b.push_back(right[static_cast<size_t>(k * columns + j)]);
            }
        Value* product = multiply(build(result, a), build(result, b));
        sum = sum ? add(sum, product) : product;
    }
    return sum;
}

}  // namespace qd::frontend
