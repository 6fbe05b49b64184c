// Places become addresses: bases of fields and arrays, and distances in bytes.
//
// Indices are i64 sums: an i32 index is widened, and sums are widened term by term where no sum
// that wraps is in range (kNoneWraps), so that neighbouring cells share a base and differ in a
// displacement. Loops count in i64, whose indices need no widening; what else uses them gets a
// narrowed copy. A field whose components lie apart is accessed component by component.
//
// A field says in Field::terms how its cells are reached; each kind of term is one more case of
// cell().
//
// Needs: lower_atomics, and that no pass comes behind: what it makes says less than what was there.
// Keeps: the order of effects.
// Cost:  O(instructions).

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "pass/memory.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

// A large tensor that becomes the same all over is filled by a loop: LLVM's time grows faster than
// the number of stores in a row.
constexpr int kLongFill = 64;

constexpr int kDeepest = 6;  // sums that are looked into

// Both inclusive; cut to kAll.
struct Range {
    int64_t low, high;

    static Range only(int64_t n) { return Range{n, n}.in({-kMost, kMost}); }
    bool within(const Range& r) const { return low >= r.low && high <= r.high; }
    Range in(const Range& r) const {
        return {std::clamp(low, r.low, r.high), std::clamp(high, r.low, r.high)};
    }
    Range plus(const Range& r, bool minus) const {
        const Range sum =
            minus ? Range{low - r.high, high - r.low} : Range{low + r.low, high + r.high};
        return sum.in({-kMost, kMost});
    }
    static constexpr int64_t kMost = int64_t{1} << 61;
};
constexpr Range kAll{-Range::kMost, Range::kMost};
constexpr Range kFits{1 - Range::kMost, Range::kMost - 1};  // what was not cut

// An i32 sum that wraps is another index than the sum in i64. No harm is done where the wrapped one
// is out of range too: as far as 2^32 - 2^29 from zero it is, along axes that end within 2^29 of
// zero. One value of which nothing is known, 2^31 from zero, and the indices of loops that do not
// run to 2^29, stay within.
constexpr int64_t kLongLoop = int64_t{1} << 29;
constexpr Range kShortLoops{-kLongLoop, kLongLoop};
constexpr Range kNearZero{-kLongLoop / 2, kLongLoop / 2};  // where other axes begin
constexpr Range kNoneWraps{kLongLoop - (int64_t{1} << 32), (int64_t{1} << 32) - kLongLoop};

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// Whether component k lies k scalars behind the first, which lies where the cell does.
bool is_packed(const Field& f) {
    if (!f.uneven_terms.empty()) return false;
    const int64_t bytes = type::bytes(f.elem.prim);
    for (size_t k = 0; k < f.component_offsets.size(); ++k)
        if (f.component_offsets[k] != int64_t(k) * bytes) return false;
    return true;
}

Value* no_wrap(Builder& b, Op op, Value* x, Value* y) {
    Value* v = b.op(op, {x, y});
    v->def->flags = kNoWrap;
    return v;
}

Value* displaced(Builder& b, Value* place, int64_t bytes, Type type) {
    if (!bytes && place->type == type) return place;
    return b.typed(Op::displace, type, {{place}}, uint64_t(bytes));
}

Value* displaced(Builder& b, Value* place, Value* index, int64_t stride) {
    if (!index) return place;
    return b.typed(Op::displace, place->type, {{place, index}}, uint64_t(stride));
}

struct Lowering {
    Function& f;
    std::unordered_map<const Value*, const Inst*> apart;  // cells whose components lie apart

    // --- indices
    // Of a value as an index says it: an i64 that equals it, or of an i32 sum one that differs by a
    // multiple of 2^32 where the sum wraps. `exact` holds the i64; so does `likely`, of loops that
    // do not run to kLongLoop.
    struct Index {  // base + constant, in i64; base may be null
        Value* base;
        int64_t constant;
        Range exact, likely;
    };
    // An i32 sum as another one, which may wrap, and a constant; no value: that is zero.
    struct Rest {
        Value* value;
        uint32_t constant;
    };

    // What was computed for an index stays known until the next branch or loop.
    template <class T>
    struct Known {
        uint32_t stretch = 0;
        T is{};
    };
    template <class T>
    using KnownOf = std::unordered_map<const Value*, Known<T>>;
    KnownOf<Value*> widened;
    KnownOf<Index> sums;
    KnownOf<Rest> rests;
    uint32_t stretch = 1;

    template <class T, class Make>
    T known(KnownOf<T>& of, const Value* v, Make make) {
        Known<T>& k = of[v];
        if (k.stretch != stretch) k = {stretch, make()};
        return k.is;
    }

    static Range range_of(Prim p) {
        if (!type::is_int(p) || type::bits(p) == 64) return kAll;
        const int bits = type::bits(p);
        if (!type::is_signed(p)) return {0, (int64_t{1} << bits) - 1};
        return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
    }

    Index leaf(Builder& b, Value* v) {
        const Prim p = v->type.prim;
        Range exact = range_of(p), likely = exact;
        const Inst* loop = v->owner ? v->owner->owner : nullptr;
        if (loop && loop->op == Op::for_ && v->index < loop->imm) {
            const Value *begin = loop->operand(static_cast<int>(2 * v->index)),
                        *end = loop->operand(static_cast<int>(2 * v->index + 1));
            likely = exact.in(kShortLoops);
            if (is_constant(begin)) exact.low = likely.low = Range::only(constant_int(begin)).low;
            likely.high = std::max(likely.low, likely.high);
            if (is_constant(end))
                exact.high = likely.high = Range::only(constant_int(end)).high - 1;
        }
        Value* wide = type::bits(p) == 64 ? b.cast(v, Prim::i64)
                                          : known(widened, v, [&] { return b.cast(v, Prim::i64); });
        return {wide, 0, exact, likely};
    }

    // `fits`: part of an i64 that is known to be that of an i32.
    Index index(Builder& b, Value* v, int depth = 0, bool fits = false) {
        v = resolve(v);
        const Inst* d = v->def;
        const Prim p = v->type.prim;
        if (d && d->op == Op::constant) {
            const int64_t n = int_of_bits(p, d->imm);
            return {nullptr, n, Range::only(n), Range::only(n)};
        }
        if (!d || depth > kDeepest || (p != Prim::i32 && p != Prim::i64)) return leaf(b, v);
        if (d->op == Op::cast) {
            Value* from = d->operand(0);
            const Prim q = from->type.prim;
            if (q == p) return index(b, from, depth + 1, fits);
            if (p == Prim::i64 && q == Prim::i32) return equal(b, from, depth + 1);
            if (q != Prim::i64 || !(d->flags & kNoWrap)) return leaf(b, v);
            Index x = index(b, from, depth + 1, true);
            x.exact = x.exact.in(range_of(p));
            if (!x.likely.within(range_of(p))) x.likely = x.exact.in(kShortLoops);
            return x;
        }
        if (d->op != Op::add && d->op != Op::sub) return leaf(b, v);
        return known(sums, v, [&] { return sum(b, v, depth, fits); });
    }

    Index sum(Builder& b, Value* v, int depth, bool fits) {
        const Inst& d = *v->def;
        const bool minus = d.op == Op::sub, may_wrap = v->type.prim == Prim::i32;
        const Index x = index(b, d.operand(0), depth + 1, fits),
                    y = index(b, d.operand(1), depth + 1, fits);
        Index sum{x.base, 0, x.exact.plus(y.exact, minus), x.likely.plus(y.likely, minus)};
        if (may_wrap && !sum.likely.within(kNoneWraps)) return wrapped(b, v);
        sum.constant = int64_t(minus ? uint64_t(x.constant) - uint64_t(y.constant)
                                     : uint64_t(x.constant) + uint64_t(y.constant));
        if (!y.base) return sum;
        if (!x.base && !minus) return sum.base = y.base, sum;
        Value* base = x.base ? x.base : b.int_const(Prim::i64, 0);
        sum.base = may_wrap || fits ? no_wrap(b, d.op, base, y.base) : b.op(d.op, {base, y.base});
        return sum;
    }

    Rest without_constants(Builder& b, Value* v, int depth = 0) {
        v = resolve(v);
        const Inst* d = v->def;
        if (d && d->op == Op::constant) return {nullptr, uint32_t(d->imm)};
        if (!d || depth > kDeepest || (d->op != Op::add && d->op != Op::sub)) return {v, 0};
        return known(rests, v, [&]() -> Rest {
            const Rest x = without_constants(b, d->operand(0), depth + 1),
                       y = without_constants(b, d->operand(1), depth + 1);
            const bool minus = d->op == Op::sub;
            const uint32_t constant = minus ? x.constant - y.constant : x.constant + y.constant;
            if (x.value == d->operand(0) && y.value == d->operand(1)) return {v, 0};
            if (!y.value) return {x.value, constant};
            if (!x.value && !minus) return {y.value, constant};
            Value* from = x.value ? x.value : b.int_const(Prim::i32, 0);
            return {b.op(d->op, {from, y.value}), constant};
        });
    }

    // An i32 sum of which nobody knows whether it wraps; neighbours differ in a constant all the
    // same.
    Index wrapped(Builder& b, Value* v) {
        const auto [value, bits] = without_constants(b, v);
        const Range constant = Range::only(int32_t(bits));
        if (!value || !constant.within(kShortLoops)) return leaf(b, v);
        Index sum = leaf(b, value);
        sum.constant = constant.low;
        sum.exact = sum.exact.plus(constant, false);
        sum.likely = sum.likely.plus(constant, false);
        return sum;
    }

    // The value itself, of any that wrap too.
    Index equal(Builder& b, Value* v, int depth = 0) {
        Index x = index(b, v, depth);
        return x.exact.within(range_of(v->type.prim)) ? x : leaf(b, resolve(v));
    }

    static Value* value(Builder& b, const Index& i) {
        if (!i.base) return b.int_const(Prim::i64, i.constant);
        if (!i.constant) return i.base;
        Value* constant = b.int_const(Prim::i64, i.constant);
        return i.exact.within(kFits) ? no_wrap(b, Op::add, i.base, constant)
                                     : b.op(Op::add, {i.base, constant});
    }

    // An operand that is an index becomes an i64.
    void widen(Builder& b, Inst& i, int k) { i.operands[k] = value(b, index(b, i.operand(k))); }

    void widen_loop(Inst& i) {
        const auto dims = uint32_t(i.imm);
        Builder b = before(i);
        for (int k = 0; k < int(2 * dims); ++k)
            i.operands[k] = value(b, equal(b, i.operand(k)));  // no bound is out of range
        Region& body = i.body();
        if (body.params[0]->type == type::kI64) return;
        Builder inside{&f, &body, body.first, i.loc};
        for (uint32_t k = 0; k < dims; ++k) {
            Value* index = body.params[k];
            Value* wide = f.add_param(body, type::kI64);
            body.params.data[k] = wide;
            wide->index = k;
            --body.params.count;
            index->replaced = narrowed(inside, wide, index->type.prim);
        }
    }

    // --- addresses
    Value* cell(Builder& b, const Inst& place, int component, Type type) {
        const Field& field = *place.field();
        Value* at = b.typed(Op::field_base, type, {}, 0, &field);
        int64_t constant = 0;
        // Outer terms first: their sum is what a loop over the innermost axis keeps.
        for (const Field::Term& t : field.terms_of(component)) {
            const int64_t offset = field.offset[t.axis];
            Value* given = place.operand(t.axis);
            Index x = Range::only(offset).within(kNearZero) ? index(b, given) : equal(b, given);
            x.constant -= offset;
            x.exact = x.exact.plus(Range::only(offset), true);
            if (t.div == 1 && t.mod == 0) {
                constant += x.constant * t.stride;
            } else {
                x = {part(b, value(b, x), t), 0, kAll, kAll};
            }
            at = displaced(b, at, x.base, t.stride);
        }
        return displaced(b, at, constant, type);
    }

    // (v / div) % mod; v is not negative where it is in range.
    static Value* part(Builder& b, Value* v, const Field::Term& t) {
        v = b.cast(v, Prim::u64);
        const auto with = [&](Op op, int64_t n) {
            return b.op(op, {v, b.int_const(Prim::u64, n)});
        };
        if (t.div != 1)
            v = is_power_of_two(t.div) ? with(Op::lshr, __builtin_ctzll(uint64_t(t.div)))
                                       : with(Op::raw_div, t.div);
        if (t.mod != 0)
            v = is_power_of_two(t.mod) ? with(Op::bit_and, t.mod - 1) : with(Op::raw_mod, t.mod);
        return b.cast(v, Prim::i64);
    }

    static Value* extent(Builder& b, Value* array, int axis) {
        return b.typed(Op::array_extent, type::kI64, {{array}}, uint64_t(axis));
    }

    Value* element(Builder& b, const Inst& i) {
        const ArrayAccess access = ArrayAccess::unpack(i.imm);
        Value* array = i.operand(0);
        const int ndim = i.operand_count - 1;
        const Type type = i.results[0].type;
        const int64_t size = type.size_bytes();
        Value* at = b.typed(Op::array_base, type, {{array}}, access.grad);
        Value* outer = nullptr;
        Index last{};
        for (int level = 0; level < ndim; ++level) {
            const int axis = access.layout ? int(access.layout >> (4 * level) & 15) : level;
            Value* given = i.operand(1 + axis);
            Index x = access.clamp ? equal(b, given) : index(b, given);
            if (access.clamp) {
                Value* one = b.int_const(Prim::i64, 1);
                Value* top = no_wrap(b, Op::sub, extent(b, array, axis), one);
                Value* low = b.op(Op::min, {value(b, x), top});
                x = {b.op(Op::max, {low, b.int_const(Prim::i64, 0)}), 0, kAll, kAll};
            }
            if (outer) outer = no_wrap(b, Op::mul, outer, extent(b, array, axis));
            if (level + 1 == ndim)
                last = x;
            else
                outer = outer ? no_wrap(b, Op::add, outer, value(b, x)) : value(b, x);
        }
        at = displaced(b, at, outer, size);
        at = displaced(b, at, last.base, size);
        return displaced(b, at, last.constant * size, type);
    }

    Value* shared_element(Builder& b, const Inst& i) {
        const Type type = i.results[0].type;
        const Index x = index(b, i.operand(0));
        Value* at = b.typed(Op::shared_place, type, {}, i.imm);
        at = displaced(b, at, x.base, type.size_bytes());
        return displaced(b, at, x.constant * type.size_bytes(), type);
    }

    // The place of component k, a scalar.
    Value* component(Builder& b, Value* place, int k) {
        const Type type = place->type.element().place();
        const auto found = apart.find(place);
        if (found == apart.end())
            return displaced(b, place, int64_t(k) * type::bytes(type.prim), type);
        const Field& field = *found->second->field();
        Value* at = field.uneven_terms.empty() ? place : cell(b, *found->second, k, type);
        return displaced(b, at, field.component_offsets[size_t(k)], type);
    }

    Value* chosen_component(Builder& b, const Inst& i) {
        Value* place = i.operand(0);
        const int count = place->type.count();
        const Index k = index(b, i.operand(1));
        if (!k.base) {  // undefined if outside: any address of the value
            const bool inside = k.constant >= 0 && k.constant < count;
            return component(b, place, inside ? int(k.constant) : 0);
        }
        const auto found = apart.find(place);
        int64_t stride = type::bytes(place->type.prim);
        if (found != apart.end()) {
            stride = found->second->field()->component_stride();
            if (!stride)
                throw support::Error("a component of '" + found->second->field()->name +
                                     "' is chosen at run time but its storage has no constant "
                                     "stride");
        }
        Value* first = component(b, place, 0);
        Value* at = displaced(b, first, k.base, stride);
        return displaced(b, at, k.constant * stride, first->type);
    }

    // --- accesses
    // One access to a cell whose components lie apart becomes one to each.
    void split_access(Inst& i) {
        Builder b = before(i);
        Value* place = i.operand(0);
        const int count = place->type.count();
        std::vector<Value*> results;
        for (int k = 0; k < count; ++k) {
            Inst* one = copy_inst(i, f);
            one->operands[0] = component(b, place, k);
            for (int n = 1; n < i.operand_count; ++n) {
                Value* v = i.operand(n);
                if (!v->type.is_scalar())
                    one->operands[n] = b.typed(Op::extract, v->type.element(), {{v}}, uint64_t(k));
            }
            for (Value& v : one->result_values()) v.type = v.type.element();
            one->insert_before(i);
            if (one->result_count) results.push_back(one->result());
        }
        if (i.result_count) replace(i.result(), b.typed(Op::build, i.result()->type, results));
        i.remove();
    }

    void access(Inst& i) {
        Value* place = i.operand(0);
        if (!apart.contains(place) || i.op == Op::prefetch) return;
        if (place->type.count() > 1 && i.op != Op::address) return split_access(i);
        Builder b = before(i);
        i.operands[0] = component(b, place, 0);
    }

    static Value* same_everywhere(const Value* v) {
        const Inst* d = v->def;
        if (!d || (d->op != Op::splat && d->op != Op::build)) return nullptr;
        for (int k = 1; k < d->operand_count; ++k)
            if (d->operand(k) != d->operand(0)) return nullptr;
        return d->operand(0);
    }

    bool fill(Inst& i) {
        Value *place = i.operand(0), *v = i.operand(1);
        const int count = v->type.count();
        Value* same = count >= kLongFill && !apart.contains(place) ? same_everywhere(v) : nullptr;
        if (!same) return false;
        Builder b = before(i);
        Inst* loop = new_for(b, b.int_const(Prim::i64, 0), b.int_const(Prim::i64, count));
        Value* k = f.add_param(loop->body(), type::kI64);
        Builder in{&f, &loop->body(), nullptr, i.loc};
        Value* first = displaced(in, place, 0, v->type.element().place());
        in.store(displaced(in, first, k, type::bytes(v->type.prim)), same);
        in.end(Op::continue_);
        i.remove();
        ++stretch;
        return true;
    }

    // --- the walk
    void become(Inst& i, Value* v) {
        replace(i.result(), v);
        i.remove();
    }

    void visit(Inst& i) {
        Builder b = before(i);
        switch (i.op) {
            case Op::for_:
                return widen_loop(i);
            case Op::field_place: {
                Value* at = cell(b, i, 0, i.result()->type);
                if (!is_packed(*i.field())) apart[at] = &i;
                return become(i, at);
            }
            case Op::array_place:
                return become(i, element(b, i));
            case Op::shared_place:
                return become(i, shared_element(b, i));
            case Op::comp_place:
                return become(i, chosen_component(b, i));
            case Op::array_shape: {
                return become(i, narrowed(b, extent(b, i.operand(0), int(i.imm)), Prim::i32));
            }
            case Op::store:
                if (fill(i)) return;
                [[fallthrough]];
            default:
                if (info(i.op).component > 0) widen(b, i, info(i.op).component);
                if (*info(i.op).args == 'p') access(i);
        }
    }

    void region(Region& r) {
        for (Inst& i : r) {
            if (i.op == Op::assert_) ++stretch;
            visit(i);
            if (!i.region_count) continue;
            for (Region* c : i.region_list()) {
                ++stretch;
                region(*c);
            }
            ++stretch;
        }
    }
};

}  // namespace

bool lower_places(Session&, Function& f) {
    // LLVM need not know it of what tasks count: it joins tests of two of their indices, which made
    // a stencil's branches dearer.
    std::vector<Inst*> counted;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::cast && i.flags & kNoWrap && i.result()->type.prim == Prim::i32)
            counted.push_back(&i);
    });
    Lowering l{.f = f, .apart = {}, .widened = {}, .sums = {}, .rests = {}};
    l.region(*f.body);
    for (Inst* i : counted) i->flags &= uint8_t(~kNoWrap);
    return true;
}

}  // namespace qd::pass
