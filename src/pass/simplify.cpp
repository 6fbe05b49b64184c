// Constant folding, identities, and control flow that constants decide.
//
// One walk in order of execution: operands are simple before their users. Every rewrite is exact;
// those that drop NaN, infinity, the sign of zero or the flushing of a subnormal operand run under
// fast_math only, and folding uses the same definition as the interpreter (ir/fold.h).
//
//   arithmetic   folding; x+0, x*1, x*0, x-x (integers), x/c for powers of two, powi by small
//                constants, select and min/max of equal operands, double negation
//   tensors      extract of build, insert, splat and element-wise chains of those; casts of casts
//   control      if on a constant or with equal results; loops that run never
//
// Cost: O(instructions).

#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "ir/fold.h"
#include "pass/identities.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

// Where the identities of an op begin and end: they stand together.
struct Range {
    uint8_t begin = 0, end = 0;
};
constexpr auto kIdentitiesOf = [] {
    std::array<Range, size_t(Op::count_)> all{};
    for (uint8_t k = 0; k < kIdentities.size(); ++k) {
        Range& r = all[size_t(kIdentities[k].op)];
        if (r.end == 0) r.begin = k;
        if (r.end != 0 && r.end != k) throw "rows of an op stand apart";
        r.end = k + 1;
    }
    return all;
}();

constexpr int kFlattened = 64;  // operations of a branch that flatten_if runs in any case

struct Simplifier {
    Session& s;
    Function& f;
    bool changed = false;
    const bool fast = s.m.options.fast_math;

    static const Inst* def(const Value* v, Op op) {
        return v->def && v->def->op == op ? v->def : nullptr;
    }

    // The constant that every component of v equals.
    static std::optional<uint64_t> uniform(const Value* v) {
        if (is_constant(v)) return constant_bits(v);
        if (const Inst* splat = def(v, Op::splat)) {
            if (is_constant(splat->operand(0))) return constant_bits(splat->operand(0));
        }
        return std::nullopt;
    }

    Value* uniform_of(Builder& b, Type t, uint64_t bits) {
        return b.splat(b.constant(t.element(), bits), t);
    }

    Value* fold_all(Builder& b, const Inst& i) {
        if (ir::info(i.op).kind != ir::Kind::elementwise) return nullptr;
        Scalar in[3];
        for (int k = 0; k < i.operand_count; ++k) {
            const auto bits = uniform(i.operand(k));
            if (!bits) return nullptr;
            in[k] = {i.operand(k)->type.prim, *bits};
        }
        const Type t = i.results[0].type;
        return uniform_of(b, t, fold(i.op, t.prim, {in, i.operand_count}, s.options.target.fused));
    }

    // 1/c if dividing by c and multiplying by 1/c agree for all x.
    static std::optional<double> exact_inverse(const Value* v) {
        const auto bits = uniform(v);
        if (!bits || v->type.prim == Prim::f16 || !type::is_float(v->type.prim))
            return std::nullopt;
        const double c = double_of_bits(v->type.prim, *bits);
        int exponent;
        if (!std::isfinite(c) || std::fabs(std::frexp(c, &exponent)) != 0.5 ||
            std::abs(exponent) > 60)
            return std::nullopt;
        return 1 / c;
    }

    Value* powi_by_multiplying(Builder& b, Value* x, int64_t e) {
        const bool down = e < 0;
        uint64_t left = down ? 0 - static_cast<uint64_t>(e) : static_cast<uint64_t>(e);
        Value *square = x, *out = nullptr;
        for (;;) {
            if (left & 1) out = out ? b.op(Op::mul, {out, square}) : square;
            if (!(left >>= 1)) break;
            square = b.op(Op::mul, {square, square});
        }
        if (!down) return out;
        return b.op(Op::div, {uniform_of(b, x->type, bits_of_double(x->type.prim, 1)), out});
    }

    // Component k of a value that is built from components, else null.
    Value* component(Value* v, uint64_t k, int depth = 0) {
        const Inst* d = v->def;
        if (!d) return nullptr;
        if (d->op == Op::build) return d->operand(static_cast<int>(k));
        if (d->op == Op::splat) return d->operand(0);
        if (d->op == Op::insert && depth < 32) {
            if (d->imm == k) return d->operand(1);
            Value* below = component(d->operand(0), k, depth + 1);
            return below;
        }
        return nullptr;
    }

    static bool matches(Identity::Second pattern, const Value* x, const Value* y) {
        if (pattern == Identity::Second::first) return x == y;
        const auto bits = uniform(y);
        if (!bits) return false;
        constexpr double kNumbers[] = {0, -0.0, 0.5, 1, 2};
        const double n = kNumbers[static_cast<int>(pattern)];
        return (type::is_float(y->type.prim) || n == std::trunc(n)) &&
               *bits == bits_of_double(y->type.prim, n);
    }
    Value* given(Builder& b, Identity::Gives what, Value* x, Type t) {
        switch (what) {
            case Identity::Gives::first:
                return x;
            case Identity::Gives::zero:
                return uniform_of(b, t, 0);
            case Identity::Gives::one:
                return uniform_of(b, t, bits_of_double(t.prim, 1));
            case Identity::Gives::square:
                return b.op(Op::mul, {x, x});
            case Identity::Gives::sqrt:
                return b.op(Op::sqrt, {x});
        }
        return nullptr;
    }
    Value* by_identity(Builder& b, const Inst& i) {
        const auto rows = kIdentitiesOf[static_cast<int>(i.op)];
        for (int k = rows.begin; k < rows.end; ++k) {
            const Identity& row = kIdentities[static_cast<size_t>(k)];
            Value *x = i.operand(0), *y = i.operand(1);
            if (!holds(row.of, x->type.prim, fast)) continue;
            const Type t = i.results[0].type;
            if (matches(row.second, x, y)) return given(b, row.gives, x, t);
            if (info(i.op).commutes && matches(row.second, y, x)) return given(b, row.gives, y, t);
        }
        return nullptr;
    }

    // What takes more than a row.
    Value* identities(Builder& b, Inst& i) {
        const auto x = [&] { return i.operand(0); };
        const auto y = [&] { return i.operand(1); };
        const Type t = i.results[0].type;
        const bool real = type::is_float(t.prim);
        switch (i.op) {
            case Op::div:
                if (const auto inverse = exact_inverse(y())) {
                    return b.op(Op::mul, {x(), uniform_of(b, t, bits_of_double(t.prim, *inverse))});
                }
                // What it is by definition; its derivative takes no division.
                if (const Inst* root = def(y(), Op::sqrt); root && real) {
                    const auto above = uniform(x());
                    if (above && *above == bits_of_double(t.prim, 1))
                        return b.op(Op::rsqrt, {root->operand(0)});
                }
                break;
            case Op::powi: {
                const auto e = uniform(y());
                if (!e) break;
                const int64_t n = int_of_bits(y()->type.prim, *e);
                if (real ? n == 2 || (fast && n >= -16 && n <= 16) : n > 0 && n <= 64)
                    return powi_by_multiplying(b, x(), n);
                break;
            }
            case Op::select:
                if (const auto c = uniform(x())) return *c ? i.operand(1) : i.operand(2);
                if (i.operand(1) == i.operand(2)) return i.operand(1);
                break;
            case Op::attach:
                if (!s.straightens) return x();
                break;
            case Op::neg:
            case Op::bit_not:
                if (const Inst* d = def(x(), i.op)) return d->operand(0);
                break;
            case Op::cast: {
                if (x()->type.prim == t.prim) return x();
                // An integer widened and brought back.
                const Inst* d = def(x(), Op::cast);
                if (d && d->operand(0)->type.prim == t.prim && type::is_int(t.prim) &&
                    t.prim != Prim::u1 && type::is_int(x()->type.prim) &&
                    type::bits(x()->type.prim) > type::bits(t.prim)) {
                    return d->operand(0);
                }
                break;
            }
            case Op::bit_cast:
                if (x()->type.prim == t.prim) return x();
                break;
            case Op::splat:
                if (t.is_scalar()) return x();
                break;
            case Op::extract:
                if (x()->type.is_scalar()) return x();
                if (Value* c = component(x(), i.imm)) return c;
                for (const Inst* d = def(x(), Op::insert); d && d->imm != i.imm;
                     d = def(i.operand(0), Op::insert)) {
                    i.operands[0] = d->operand(0);  // another component was inserted
                    changed = true;
                }
                break;
            case Op::insert:
                if (x()->type.is_scalar()) return y();
                break;
            case Op::extract_dyn:
                if (is_constant(y())) {
                    const int64_t k = constant_int(y());
                    if (k >= 0 && k < x()->type.count())
                        return b.op(Op::extract, {x()}, static_cast<uint64_t>(k));
                }
                break;
            case Op::insert_dyn:
                if (is_constant(i.operand(2))) {
                    const int64_t k = constant_int(i.operand(2));
                    if (k >= 0 && k < t.count())
                        return b.op(Op::insert, {x(), y()}, static_cast<uint64_t>(k));
                }
                break;
            case Op::build: {  // of all components of one value, in order
                const Inst* first = i.operand_count ? def(i.operand(0), Op::extract) : nullptr;
                if (!first || !(first->operand(0)->type == t)) break;
                for (int k = 0; k < i.operand_count; ++k) {
                    const Inst* d = def(i.operand(k), Op::extract);
                    if (!d || d->imm != static_cast<uint64_t>(k) ||
                        d->operand(0) != first->operand(0))
                        return nullptr;
                }
                return first->operand(0);
            }
            default:
                break;
        }
        return nullptr;
    }

    // A result that already stands for another value keeps doing so.
    static void forward(Value* result, Value* v) {
        if (!result->replaced) replace(result, v);
    }

    // Runs the branch that is taken in place of the if. A branch that leaves makes what follows
    // unreachable: it is dropped.
    void take(Inst& i, Region& branch) {
        Inst* last = splice_before(branch, i);
        changed = true;
        if (last->op == Op::yield) {
            for (int k = 0; k < i.result_count; ++k) forward(i.result(k), last->operand(k));
            i.remove();
            return;
        }
        Region* r = i.parent;
        while (r->last != &i) r->last->remove();
        last->move_before(i);
        i.remove();
    }

    void equal_results(Inst& i) {
        Inst *a = i.regions[0]->last, *b = i.regions[1]->last;
        for (int k = 0; k < i.result_count; ++k) {
            if (i.results[k].replaced) continue;
            Value* v = nullptr;
            if (a->op == Op::yield && b->op == Op::yield) {
                if (a->operand(k) == b->operand(k)) v = a->operand(k);
            } else if (a->op == Op::yield || b->op == Op::yield) {
                v = (a->op == Op::yield ? a : b)->operand(k);
            }
            if (!v) continue;
            const Region* home = v->def ? v->def->parent : v->owner;
            if (home == i.regions[0] || home == i.regions[1]) continue;
            replace(i.result(k), v);
            changed = true;
        }
    }

    // An if without effects that only chooses between values known outside is a select.
    bool as_select(Inst& i) {
        Region &a = *i.regions[0], &b = *i.regions[1];
        if (i.result_count == 0 || i.result_count > 4) return false;
        int cost = 0;
        for (Region* r : i.region_list()) {
            for (Inst* c = r->first; c; c = c->next) {
                if (c == r->last) continue;
                if (c->effect() != Effect::pure || !c->result_count ||
                    !c->results[0].type.is_scalar())
                    return false;
                if (c->op == Op::constant) continue;
                if (!info(c->op).cheap) return false;
                ++cost;
            }
        }
        if (cost > (s.m.options.flatten_if ? kFlattened : 4) || a.last->op != Op::yield ||
            b.last->op != Op::yield)
            return false;
        for (int k = 0; k < i.result_count; ++k) {
            if (i.results[k].type.count() > (s.m.options.flatten_if ? kFlattened : 4)) return false;
        }
        splice_before(a, i);
        splice_before(b, i);
        Builder at = before(i);
        for (int k = 0; k < i.result_count; ++k) {
            if (i.results[k].replaced) continue;
            forward(i.result(k),
                    at.op(Op::select, {i.operand(0), a.last->operand(k), b.last->operand(k)}));
        }
        i.remove();
        return changed = true;
    }

    void control(Inst& i) {
        if (i.op == Op::if_) {
            if (is_constant(i.operand(0))) {
                Region& branch = *i.regions[constant_bits(i.operand(0)) ? 0 : 1];
                region(branch);
                take(i, branch);
                return;
            }
            region(*i.regions[0]);
            region(*i.regions[1]);
            equal_results(i);
            if (!s.straightens) as_select(i);
            return;
        }
        if (i.op == Op::for_) {
            bool never = false;
            for (int k = 0; k < static_cast<int>(i.imm); ++k) {
                const Value *low = i.operand(2 * k), *high = i.operand(2 * k + 1);
                if (low == high) never = true;
                if (!is_constant(low) || !is_constant(high)) continue;
                never |= constant_int(low) >= constant_int(high);
            }
            if (never) {
                for (int k = 0; k < i.result_count; ++k)
                    forward(i.result(k), i.operand(static_cast<int>(2 * i.imm) + k));
                i.remove();
                changed = true;
                return;
            }
        }
        region(i.body());
        drop_unchanged(i);
    }

    // What a loop hands on as it got it is known outside, and carried no more.
    void drop_unchanged(Inst& loop) {
        Inst& end = *loop.body().last;
        if (loop.op != Op::for_ || end.op != Op::continue_) return;
        const auto n = static_cast<uint32_t>(loop.imm);
        Region::Params& params = loop.body().params;
        std::vector<bool> dead(loop.result_count);
        bool any = false, leaves = false;
        for (uint32_t k = 0; k < loop.result_count; ++k)
            any |= dead[k] = end.operand(static_cast<int>(k)) == params[n + k];
        if (!any) return;
        walk(loop.body(), [&](Inst& c) {
            if (c.op != Op::break_ && c.op != Op::continue_) return;
            const Region* r = c.parent;
            while (!r->owner->is_loop()) r = r->owner->parent;
            leaves |= r->owner == &loop && &c != &end;
        });
        if (leaves) return;
        uint32_t kept = 0;
        for (uint32_t k = 0; k < dead.size(); ++k) {
            Value* initial = loop.operand(static_cast<int>(2 * n + k));
            if (dead[k]) {
                replace(params[n + k], initial);
                forward(loop.result(static_cast<int>(k)), initial);
                continue;
            }
            loop.operands[2 * n + kept] = initial;
            end.operands[kept] = end.operand(static_cast<int>(k));
            params.data[n + kept] = params.data[n + k];
            params.data[n + kept]->index = n + kept;
            ++kept;
        }
        loop.operand_count = static_cast<uint16_t>(2 * n + kept);
        end.operand_count = static_cast<uint16_t>(kept);
        params.count = n + kept;
        erase_positions(loop, dead);
        changed = true;
    }

    void region(Region& r) {
        for (Inst* i = r.first; i;) {
            if (i->region_count) {
                // What follows may move or go, so the next one is found from the one before.
                Inst* previous = i->prev;
                Inst* const after = i->next;
                control(*i);
                if (i->parent == &r) {
                    i = i->next;
                } else if (after && after->parent == &r) {
                    i = after;
                } else {
                    (void)previous;
                    return;  // the rest was unreachable
                }
                continue;
            }
            Inst* const next = i->next;
            if (i->effect() == Effect::pure && i->op != Op::constant) {
                Builder b = before(*i);
                Value* v = s.m.options.constant_folding ? fold_all(b, *i) : nullptr;
                if (!v) v = by_identity(b, *i);
                if (!v) v = identities(b, *i);
                if (v && v != i->result()) {
                    replace(i->result(), v);
                    i->remove();
                    changed = true;
                }
            } else if (i->op == Op::assert_ && is_constant(i->operand(0)) &&
                       constant_bits(i->operand(0))) {
                i->remove();
                changed = true;
            }
            i = next;
        }
    }
};

}  // namespace

bool simplify(Session& s, Function& f) {
    Simplifier run{s, f};
    run.region(*f.body);
    return run.changed;
}

}  // namespace qd::pass
