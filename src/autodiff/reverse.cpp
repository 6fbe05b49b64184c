// Reverse mode.
//
// A sweep works on one iteration of a parallel loop, or on a kernel without such loops. Its forward
// code stays where it is, without stores and additions to storage that has gradients; behind it
// follow its instructions once more, last first, each as what it does to adjoints. Every region
// (branch, body of a serial loop) has one counterpart in there. Adjoints are variables, which pass
// `promote` carries through branches and loops.
//
// What the way back needs of the way there (operands of formulas, indices, conditions, bounds):
//   - is at hand, if it was computed outside of branches and loops or is an index of a loop;
//   - or is computed again: constants, loads of what this kernel does not overwrite, cheap
//     arithmetic on such;
//   - or is kept: in a variable if it stems from a branch, on the thread's tape if from a loop.
// The record of a loop's iteration lies behind those of the loops inside it, so the way back finds
// it at the tape's end. How often a loop ran is what its bounds say.
//
// Needs: pass::straighten. Cost: O(instructions).

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "autodiff/parts.h"
#include "support/error.h"

namespace qd::autodiff {
namespace {

// Work that is worth while to compute a value again: with something that is kept for it, and from
// what is at hand. What is computed again serves all, so it is a second forward sweep at most.
constexpr int kCheap = 4, kWorthIt = 64;

int weight(const Inst& i) {
    const OpInfo& row = info(i.op);
    if (row.elementary && !row.in_place) return 8;
    if (i.op == Op::div || i.op == Op::floordiv || i.op == Op::mod || i.op == Op::powi ||
        i.op == Op::sqrt || i.op == Op::rsqrt || i.op == Op::matmul)
        return 4;
    return 1;
}

struct Sweep {
    Module& m;
    Function& f;
    const Storage& storage;
    const Activity& activity;
    const Request& request;
    Region& root;
    const std::vector<uint64_t>& written;  // classes of memory that the kernel still writes to
    const size_t task;                     // of those that go back, for messages

    // The counterpart of a region.
    struct Back {
        Inst* entry = nullptr;  // what is found again goes in front of it
        Region* region = nullptr;
    };
    struct Kept {
        Value* place;  // of a variable, or null: the value itself
        Value* value;
        uint64_t offset;  // in the record
    };
    struct Loop {  // a serial one
        Inst* inst;
        Value* base = nullptr;       // going back: where the record lies
        Inst* bytes_back = nullptr;  // constants, set when the record is complete
        std::vector<Kept> kept;
        uint64_t bytes = 0;
    };

    std::unordered_map<const Region*, Back> backs;
    std::unordered_map<const Region*, Loop> loops;      // by body
    std::unordered_map<const Value*, Value*> again;     // values of the forward code, going back
    std::unordered_map<const Value*, Value*> adjoints;  // places
    std::unordered_set<const Value*> kept;
    std::vector<Inst*> dropped;
    Value* top = nullptr;  // of the tape: place of i64

    static Region* home(const Value* v) { return v->def ? v->def->parent : v->owner; }
    // The body of the innermost serial loop around a region, or the root. Null: outside.
    const Region* frame(const Region* r) const {
        while (r && r != &root && !loops.contains(r)) r = r->owner ? r->owner->parent : nullptr;
        return r;
    }
    bool is_outside(const Value* v) const { return frame(home(v)) == nullptr; }

    // --- what the way back needs

    struct Price {
        int work = 0;
        int to_keep = 0;  // values
        std::unordered_set<const Value*> seen = {};
    };
    // Looks no further than it takes to know that it is too much.
    void price(Value* v, Price& p) {
        v = resolve(v);
        if (p.work > kWorthIt || is_outside(v) || again.contains(v) || is_constant(v)) return;
        if (home(v) == &root || !p.seen.insert(v).second) return;
        const Inst* d = v->def;
        if (kept.contains(v)) {
            ++p.work;
        } else if (!can_compute(d)) {
            ++p.work, ++p.to_keep;
        } else {
            p.work += d->op == Op::load ? 4 : weight(*d);
            for (int k = 0; k < d->operand_count; ++k) price(d->operand(k), p);
        }
    }
    bool can_compute(const Inst* d) const {
        if (!d || d->result_count != 1) return false;
        return d->effect() == Effect::pure ||
               (d->op == Op::load && memory_class(d->operand(0)) % 4 &&
                !may_be_among(written, d->operand(0)));
    }
    bool worth_computing(Value* v) {
        if (kept.contains(v) || !can_compute(v->def)) return false;
        if (v->type.is_place() || v->type.is_array()) return true;
        Price p;
        price(v, p);
        return p.to_keep ? p.to_keep == 1 && p.work <= kCheap : p.work <= kWorthIt;
    }

    Builder entry(const Region* r) {
        const Back& back = backs.at(r);
        return {&f, back.region, back.entry, back.entry->loc};
    }

    Value* get(Value* v) {
        v = resolve(v);
        if (is_outside(v) || home(v) == &root) return v;
        if (const auto at = again.find(v); at != again.end()) return at->second;
        Value* found = is_constant(v) || worth_computing(v) ? compute(v) : fetch(v);
        return again[v] = found;
    }

    Value* compute(Value* v) {
        const Inst& d = *v->def;
        std::vector<Value*> operands;
        for (int k = 0; k < d.operand_count; ++k) operands.push_back(get(d.operand(k)));
        Builder b = entry(home(v));
        b.loc = d.loc;
        const Type types[] = {v->type};
        Inst* copy = b.emit(d.op, operands, types);
        copy->imm = d.imm;
        copy->ref = d.ref;
        copy->flags = d.flags;
        return copy->result();
    }

    // Keeps it on the way there.
    Value* fetch(Value* v) {
        kept.insert(v);
        Region* at = home(v);
        const Region* body = frame(at);
        Value* place = nullptr;
        if (at != body) {  // stems from a branch
            Region* r = const_cast<Region*>(body);
            Builder begin{&f, r, r->first, r->first->loc};
            place = begin.slot(v->type);
            Inst* behind = v->def ? v->def->next : at->first;
            Builder b{&f, at, behind, behind->loc};
            b.store(place, v);
        }
        if (body == &root) return entry(at).load(place);
        Loop& loop = loops.at(body);
        const auto align = static_cast<uint64_t>(type::bytes(v->type.prim));
        loop.bytes = (loop.bytes + align - 1) & ~(align - 1);
        loop.kept.push_back({place, v, loop.bytes});
        Builder b = entry(at);
        std::vector<Value*> parts;
        for (int c = 0; c < v->type.count(); ++c)
            parts.push_back(b.load(on_tape(b, loop.base, loop.kept.back(), c)));
        loop.bytes += static_cast<uint64_t>(v->type.size_bytes());
        return v->type.is_scalar() ? parts[0] : b.typed(Op::build, v->type, parts);
    }

    // A component of what is kept, of the record that begins there. Each is an access of its own,
    // since a GPU has those of many threads side by side.
    static Value* on_tape(Builder& b, Value* record, const Kept& kept, int component) {
        const Type one = kept.value->type.element();
        const int64_t offset = int64_t(kept.offset) + int64_t{component} * one.size_bytes();
        Value* where = b.op(Op::add, {record, b.int_const(Prim::i64, offset)});
        return b.typed(Op::tape, one.place(), {{where}});
    }

    // --- adjoints

    bool active(const Value* v) const { return activity.active(v); }

    Value* adjoint_place(Value* v) {
        Value*& place = adjoints[v];
        if (place) return place;
        Builder b = entry(home(v));
        place = b.slot(v->type);
        b.store(place, zero(b, v->type));
        return place;
    }
    // Null: nobody added to it.
    Value* adjoint(Builder& b, Value* v) {
        const auto at = adjoints.find(resolve(v));
        return at == adjoints.end() ? nullptr : b.load(at->second);
    }
    void add(Builder& b, Value* v, Value* by) {
        v = resolve(v);
        if (!active(v)) return;
        if (is_outside(v))
            throw Refused{
                {"Invalid program input for autodiff: Mixed usage of for-loops and "
                 "statements without looping. Split them into two kernels",
                 v->def ? v->def->loc : nullptr}};
        Value* place = adjoint_place(v);
        b.store(place, b.op(Op::add, {b.load(place), by}));
    }

    // --- instructions, backwards

    // Whether a region holds something to do on the way back.
    bool concerns(const Inst& i) const {
        if (i.op == Op::store || info(i.op).effect == Effect::atomic)
            if (i.operand_count && storage.has(i.operand(0))) return true;
        for (const Value& v : i.result_values())
            if (active(&v)) return true;
        for (const Region* r : i.region_list())
            for (const Inst* c = r->first; c; c = c->next)
                if (concerns(*c)) return true;
        return false;
    }

    void elementwise(Builder& b, Inst& i, Value* t) {
        Formulas formulas(b);
        for (int k = 0; k < i.operand_count; ++k) {
            if (!carries(i, k) || !active(i.operand(k))) continue;
            if (i.op == Op::cast) {
                add(b, i.operand(k), b.cast(t, i.operand(k)->type.prim));
                continue;
            }
            const unsigned needed = needs(i.op, k);
            Value* of[4] = {};
            for (int n = 0; n < 3 && n < i.operand_count; ++n)
                of[n] = needed >> n & 1 ? get(i.operand(n)) : i.operand(n);
            of[3] = needed >> 3 & 1 ? get(i.result()) : i.result();
            Derivative<Formulas> d{formulas, t, of[0], of[1], of[2], of[3]};
            add(b, i.operand(k), derivative(i.op, d, k));
        }
    }

    Value* outer_product(Builder& b, Value* x, Value* y, Type matrix) {
        std::vector<Value*> parts;
        for (int r = 0; r < matrix.n; ++r)
            for (int c = 0; c < matrix.m; ++c)
                parts.push_back(b.op(Op::mul, {b.op(Op::extract, {x}, static_cast<uint64_t>(r)),
                                               b.op(Op::extract, {y}, static_cast<uint64_t>(c))}));
        return b.typed(Op::build, matrix, parts);
    }
    static Value* transposed(Builder& b, Value* v) {
        Value* of[] = {v};
        return b.typed(Op::transpose, type::Type::matrix(v->type.prim, v->type.m, v->type.n), of);
    }

    void tensor(Builder& b, Inst& i, Value* t) {
        const auto part = [&](int k) { return b.op(Op::extract, {t}, static_cast<uint64_t>(k)); };
        Value* x = i.operand(0);
        switch (i.op) {
            case Op::splat:
                return add(b, x, b.op(Op::reduce_add, {t}));
            case Op::build:
                for (int k = 0; k < i.operand_count; ++k)
                    if (active(i.operand(k))) add(b, i.operand(k), part(k));
                return;
            case Op::reduce_add:
                return add(b, x, b.splat(t, x->type));
            case Op::transpose:
                return add(b, x, transposed(b, t));
            case Op::extract: {
                if (!active(x)) return;
                if (x->type.is_scalar()) return add(b, x, t);
                Value* of[] = {adjoint_place(x), b.int_const(Prim::i32, int64_t(i.imm))};
                Value* place = b.typed(Op::comp_place, x->type.element().place(), of);
                b.store(place, b.op(Op::add, {b.load(place), t}));
                return;
            }
            case Op::insert:
                if (active(i.operand(1))) add(b, i.operand(1), part(static_cast<int>(i.imm)));
                if (active(x)) add(b, x, b.op(Op::insert, {t, zero(b, t->type.element())}, i.imm));
                return;
            case Op::extract_dyn: {
                if (!active(x)) return;
                Value *place = adjoint_place(x), *at = get(i.operand(1));
                Value* whole = b.load(place);
                Value* sum = b.op(Op::add, {b.op(Op::extract_dyn, {whole, at}), t});
                b.store(place, b.op(Op::insert_dyn, {whole, sum, at}));
                return;
            }
            case Op::insert_dyn: {
                Value* at = get(i.operand(2));
                if (active(i.operand(1))) add(b, i.operand(1), b.op(Op::extract_dyn, {t, at}));
                if (active(x)) add(b, x, b.op(Op::insert_dyn, {t, zero(b, t->type.element()), at}));
                return;
            }
            case Op::matmul: {
                Value* y = i.operand(1);
                const bool vector = y->type.rank == 1;
                Value* of[2];
                if (active(x)) {
                    Value* right = get(y);
                    if (vector) {
                        add(b, x, outer_product(b, t, right, x->type));
                    } else {
                        of[0] = t, of[1] = transposed(b, right);
                        add(b, x, b.typed(Op::matmul, x->type, of));
                    }
                }
                if (active(y)) {
                    of[0] = transposed(b, get(x)), of[1] = t;
                    add(b, y, b.typed(Op::matmul, y->type, of));
                }
                return;
            }
            default:
                refuse(std::string("Not supported: the derivative of ") + info(i.op).name, i);
        }
    }

    Value* gradient_place(Builder& b, Value* place) {
        return storage.companion(b, place, [&](Value* v) { return get(v); });
    }

    void memory(Builder& b, Inst& i) {
        if (!storage.has(i.operand(0))) return;
        switch (i.op) {
            case Op::load:
            case Op::volatile_load: {
                if (!active(i.result())) return;
                if (Value* t = adjoint(b, i.result()))
                    b.op(Op::atomic_add, {gradient_place(b, i.operand(0)), t});
                return;
            }
            case Op::store: {
                Value* place = gradient_place(b, i.operand(0));
                if (active(i.operand(1))) add(b, i.operand(1), b.load(place));
                b.store(place, zero(b, place->type.value()));
                dropped.push_back(&i);
                return;
            }
            case Op::atomic_add:
            case Op::atomic_sub: {
                if (active(i.result()))
                    refuse(
                        "Not supported: the derivative of the value that an atomic operation "
                        "returns",
                        i);
                if (active(i.operand(1))) {
                    Value* t = b.load(gradient_place(b, i.operand(0)));
                    add(b, i.operand(1), i.op == Op::atomic_add ? t : b.op(Op::neg, {t}));
                }
                dropped.push_back(&i);
                return;
            }
            default:
                refuse(std::string("Not supported: the derivative of ") + info(i.op).name +
                           ", of a place that has gradients",
                       i);
        }
    }

    // The end of the counterpart of `r` is where the builder stands.
    void region(Region& r, Builder b) {
        std::vector<Inst*> list;  // the way there is changed meanwhile
        for (Inst* i = r.first; i; i = i->next) list.push_back(i);
        for (size_t k = list.size(); k-- > 0;) instruction(*list[k], b);
    }

    void instruction(Inst& i, Builder& b) {
        if (i.effect() == Effect::terminator) return;
        b.loc = i.loc;
        const Kind kind = info(i.op).kind;
        if (i.op == Op::if_ || i.op == Op::for_) {
            if (concerns(i)) i.op == Op::if_ ? branch(i, b) : loop(i, b);
        } else if (i.op == Op::load || i.op == Op::store || i.effect() == Effect::atomic) {
            memory(b, i);
        } else if ((kind == Kind::elementwise || kind == Kind::tensor) && active(i.result())) {
            if (Value* t = adjoint(b, i.result()))
                kind == Kind::tensor ? tensor(b, i, t) : elementwise(b, i, t);
        }
    }

    Inst* mark(Region& r, const Loc* loc) {  // something to stand in front of
        Builder b{&f, &r, nullptr, loc};
        return b.constant(type::kI64, 0)->def;
    }

    void branch(Inst& i, Builder& b) {
        Value* on[] = {get(i.operand(0))};
        std::vector<Value*> handed(i.result_count);
        for (int k = 0; k < i.result_count; ++k)
            if (active(i.result(k))) handed[static_cast<size_t>(k)] = adjoint(b, i.result(k));
        Inst* back = b.emit(Op::if_, on, {}, 2);
        for (int side = 0; side < 2; ++side) {
            Region &from = *i.regions[side], &to = *back->regions[side];
            backs[&from] = {mark(to, i.loc), &to};
            Builder in{&f, &to, nullptr, i.loc};
            for (int k = 0; k < i.result_count; ++k)
                if (Value* t = handed[static_cast<size_t>(k)]) add(in, from.last->operand(k), t);
            region(from, in);
            in.end(Op::yield);
        }
    }

    // Indices of the iteration that is `left` iterations before the last.
    void set_indices(Inst& i, Builder& b, std::span<Value* const> low,
                     std::span<Value* const> extent, Value* at) {
        const auto n = static_cast<uint32_t>(i.imm);
        for (uint32_t d = n; d-- > 0;) {
            Value* x = d ? b.op(Op::raw_mod, {at, extent[d]}) : at;
            if (d) at = b.op(Op::raw_div, {at, extent[d]});
            Value* index = i.body().params[d];
            again[index] = b.cast(b.op(Op::add, {low[d], x}), index->type.prim);
        }
    }

    void loop(Inst& i, Builder& b) {
        const auto n = static_cast<uint32_t>(i.imm);
        const int first = static_cast<int>(2 * n);
        std::vector<Value*> low, extent;
        Value* count = nullptr;
        for (uint32_t d = 0; d < n; ++d) {
            const int k = static_cast<int>(2 * d);
            low.push_back(b.cast(get(i.operand(k)), Prim::i64));
            Value* e = b.op(Op::sub, {b.cast(get(i.operand(k + 1)), Prim::i64), low.back()});
            extent.push_back(b.op(Op::max, {e, b.int_const(Prim::i64, 0)}));
            count = count ? b.op(Op::mul, {count, extent.back()}) : extent.back();
        }
        // Adjoints of what goes from one iteration to the next.
        std::vector<Value*> carried(i.result_count);
        for (int k = 0; k < i.result_count; ++k) {
            Value* param = i.body().params[n + static_cast<uint32_t>(k)];
            if (!active(param) && !active(i.result(k))) continue;
            Value*& place = carried[static_cast<size_t>(k)];
            place = b.slot(param->type);
            Value* t = active(i.result(k)) ? adjoint(b, i.result(k)) : nullptr;
            b.store(place, t ? t : zero(b, param->type));
        }
        Loop& l = loops[&i.body()] = {.inst = &i, .kept = {}};
        Value* none = b.int_const(Prim::i64, 0);
        Value* bounds[] = {none, count};
        Inst* back = b.emit(Op::for_, bounds, {}, 1);
        back->imm = 1;
        Region& to = back->body();
        Value* turn = f.add_param(to, type::kI64);
        Builder head{&f, &to, nullptr, i.loc};
        if (!top) make_top();
        Value* bytes = head.int_const(Prim::i64, 0);
        l.bytes_back = bytes->def;
        l.base = head.op(Op::sub, {head.load(top), bytes});
        head.store(top, l.base);
        Value* last = head.op(Op::sub, {count, head.int_const(Prim::i64, 1)});
        Value* position = head.op(Op::sub, {last, turn});
        set_indices(i, head, low, extent, position);
        backs[&i.body()] = {mark(to, i.loc), &to};
        Builder in{&f, &to, nullptr, i.loc};
        Inst& end = *i.body().last;
        for (int k = 0; k < i.result_count; ++k) {
            Value* place = carried[static_cast<size_t>(k)];
            if (!place) continue;
            Value* t = in.load(place);
            in.store(place, zero(in, t->type));
            add(in, end.operand(k), t);
        }
        region(i.body(), in);
        for (int k = 0; k < i.result_count; ++k) {
            Value* place = carried[static_cast<size_t>(k)];
            Value* param = i.body().params[n + static_cast<uint32_t>(k)];
            Value* t = place && active(param) ? adjoint(in, param) : nullptr;
            if (t) in.store(place, in.op(Op::add, {in.load(place), t}));
        }
        in.end(Op::continue_);
        if (l.kept.empty() && any_order(i)) replace(position, turn);  // ascending loops are faster
        record(l);
        for (int k = 0; k < i.result_count; ++k)
            if (Value* place = carried[static_cast<size_t>(k)])
                if (active(i.operand(first + k))) add(b, i.operand(first + k), b.load(place));
    }

    // Whether iterations may go back in any order: what they hand on is sums, whose adjoints are
    // the same in all of them, and no gradient is taken.
    bool any_order(const Inst& loop) const {
        const auto n = static_cast<uint32_t>(loop.imm);
        const Inst& end = *loop.body().last;
        std::unordered_map<const Value*, int> uses;
        bool yes = true;
        walk(loop.body(), [&](Inst& i) {
            if (i.op == Op::store && storage.has(i.operand(0))) yes = false;
            if (i.is_loop() && loops.contains(&i.body()) && !loops.at(&i.body()).kept.empty())
                yes = false;
            for (int k = 0; k < i.operand_count; ++k) ++uses[i.operand(k)];
        });
        for (int k = 0; k < loop.result_count && yes; ++k) {
            const Value* param = loop.body().params[n + static_cast<uint32_t>(k)];
            if (!active(param) && !active(loop.result(k))) continue;
            const Value* v = end.operand(k);
            while (v != param && v->def && (v->def->op == Op::add || v->def->op == Op::sub) &&
                   uses[v] == 1)
                v = v->def->operand(0);
            yes = v == param && uses[param] == 1;
        }
        return yes;
    }

    // --- the tape

    void make_top() {
        Builder b{&f, &root, root.first, root.first->loc};
        top = b.slot(type::kI64);
        b.store(top, b.int_const(Prim::i64, 0));
    }

    // What the loop's iterations keep goes on the tape at their end.
    void record(Loop& l) {
        if (l.kept.empty()) return;
        l.bytes = (l.bytes + 7) & ~uint64_t{7};
        l.bytes_back->imm = l.bytes;
        Inst& end = *l.inst->body().last;
        Builder b{&f, end.parent, &end, l.inst->loc};
        Value* at = b.load(top);
        Value* behind = b.op(Op::add, {at, b.int_const(Prim::i64, int64_t(l.bytes))});
        require_room(b, behind);
        for (const Kept& k : l.kept) {
            Value* v = k.place ? b.load(k.place) : resolve(k.value);
            for (int c = 0; c < v->type.count(); ++c)
                b.store(on_tape(b, at, k, c),
                        v->type.is_scalar() ? v : b.op(Op::extract, {v}, static_cast<uint64_t>(c)));
        }
        b.store(top, behind);
    }

    void require_room(Builder& b, Value* behind) {
        Value* room = b.typed(Op::tape_bytes, type::kI64, {});
        m.owned_formats.push_back(std::make_unique<Format>());
        Format* text = m.owned_formats.back().get();
        text->pieces.push_back(
            {"Adstack overflow: the reverse sweep of a loop needs more than ", 0});
        text->pieces.push_back({"", 'd'});
        text->pieces.push_back(
            {" bytes for what one iteration of the loop around it keeps. Offending task: kernel `" +
                 m.name + "` offload task #" + std::to_string(task) +
                 ". Advice: fewer variables that a loop carries, a smaller range, or "
                 "splitting the kernel",
             0});
        Value* operands[] = {b.op(Op::le, {behind, room}), room};
        b.emit(Op::assert_, operands, {})->ref = text;
        if (request.most_records <= 0) return;
        // As if each loop had a stack of so many slots.
        Builder begin{&f, &root, root.first, root.first->loc};
        Value* used = begin.slot(type::kI64);
        begin.store(used, begin.int_const(Prim::i64, 0));
        Value* count = b.op(Op::add, {b.load(used), b.int_const(Prim::i64, 1)});
        b.store(used, count);
        m.owned_formats.push_back(std::make_unique<Format>());
        text = m.owned_formats.back().get();
        text->pieces.push_back(
            {"Adstack overflow: a loop keeps values of more iterations than ad_stack_size=" +
                 std::to_string(request.most_records) + " has slots for. Offending task: kernel `" +
                 m.name + "` offload task #" + std::to_string(task) +
                 ". Raise ad_stack_size, or set it to 0, which has no limit",
             0});
        Value* most = b.int_const(Prim::i64, request.most_records);
        Value* fits[] = {b.op(Op::le, {count, most})};
        b.emit(Op::assert_, fits, {})->ref = text;
    }

    void run() {
        Inst* end = root.last;
        Builder b{&f, &root, end, end->loc};
        Inst* entry = b.constant(type::kI64, 0)->def;
        backs[&root] = {entry, &root};
        std::vector<Inst*> list;
        for (Inst* i = root.first; i != entry; i = i->next) list.push_back(i);
        for (size_t k = list.size(); k-- > 0;) instruction(*list[k], b);
        for (Inst* i : dropped) drop(*i);
    }

    // Of an addition the old value may still be asked for.
    void drop(Inst& i) {
        if (i.result_count) {
            Builder b{&f, i.parent, &i, i.loc};
            replace(i.result(), b.load(i.operand(0)));
        }
        i.remove();
    }
};

bool is_effect(const Inst& i, const Storage& storage) {
    switch (i.effect()) {
        case Effect::write:
        case Effect::atomic: {
            if (i.op == Op::volatile_load) return false;
            const Inst* d = root_of_place(i.operand(0))->def;
            return d && d->op != Op::slot && !storage.has(i.operand(0));
        }
        case Effect::io:
        case Effect::check:
            return true;
        default:
            return false;
    }
}

struct Kernel {
    Module& m;
    const Request& request;
    Function& f = m.kernel();
    Storage storage{m, request};

    std::vector<uint64_t> written(Region& r) const {
        std::vector<uint64_t> out;
        walk(r, [&](Inst& i) {
            const bool writes = i.effect() == Effect::write || i.effect() == Effect::atomic;
            if (writes && is_effect(i, storage)) out.push_back(memory_class(i.operand(0)));
        });
        return out;
    }

    // Of a task that others follow: whether its effects may wait for the way back, which comes
    // after theirs. Nobody sees when they happen.
    bool can_wait(Inst& task, const std::vector<Inst*>& tasks) const {
        const std::vector<uint64_t> own = written(task.body());
        bool yes = true;
        walk(task.body(), [&](Inst& i) {
            const Effect e = i.effect();
            yes &= e != Effect::io && e != Effect::check;
        });
        for (const Inst* other : tasks) {
            if (other == &task) continue;
            walk(other->body(), [&](Inst& i) {
                const bool touches =
                    i.op == Op::load || i.effect() == Effect::write || i.effect() == Effect::atomic;
                if (touches && std::ranges::find(own, memory_class(i.operand(0))) != own.end())
                    yes = false;
            });
        }
        return yes;
    }

    // What the way back reads must not have been overwritten meanwhile, nor be known only to what
    // happened already.
    void check_order(Inst& loop, const std::vector<uint64_t>& later) const {
        std::unordered_set<const Value*> used;
        walk(loop.body(), [&](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k) used.insert(i.operand(k));
        });
        walk(loop.body(), [&](Inst& i) {
            const bool reads =
                i.op == Op::load || (i.effect() == Effect::atomic && used.contains(i.result()));
            if (!reads || !may_be_among(later, i.operand(0))) return;
            refuse(
                "Not supported: a loop reads what it, or a loop behind it, overwrites, and "
                "the kernel has further loops. Split the kernel",
                i);
        });
    }

    static void drop_effects(Region& r, const Storage& storage, bool gradients) {
        std::vector<Inst*> gone;
        walk(r, [&](Inst& i) {
            const bool writes =
                i.op == Op::store || (i.effect() == Effect::atomic && i.op != Op::volatile_load);
            const bool to_storage = writes && storage.has(i.operand(0));
            if (gradients ? to_storage : is_effect(i, storage)) gone.push_back(&i);
        });
        for (Inst* i : gone) {
            if (i->result_count) {
                Builder b{i->parent->function, i->parent, i, i->loc};
                replace(i->result(), i->operand_count && i->operand(0)->type.is_place()
                                         ? b.load(i->operand(0))
                                         : zero(b, i->result()->type));
            }
            i->remove();
        }
    }

    // Leaves what is to be done again of a task that goes back later; a copy does that, and the
    // effects too, if they wait.
    Inst* set_aside(Inst& task, bool waits) {
        std::vector<Value*> operands;
        for (int k = 0; k < task.operand_count; ++k) operands.push_back(task.operand(k));
        Builder b{&f, f.body, f.body->last, task.loc};
        Inst* copy = b.emit(task.op, operands, {}, task.region_count);
        copy->imm = task.imm;
        copy->ref = task.ref;
        copy->flags = task.flags;
        for (int k = 0; k < task.region_count; ++k) {
            copy->regions[k] = clone_into(*task.regions[k], f, {});
            copy->regions[k]->owner = copy;
        }
        if (!waits) drop_effects(copy->body(), storage, false);
        drop_effects(task.body(), storage, true);
        if (waits) task.remove();
        return copy;
    }

    void sweep(Region& root, const Activity& activity, const std::vector<uint64_t>& writes,
               size_t number) {
        Sweep s{.m = m,
                .f = f,
                .storage = storage,
                .activity = activity,
                .request = request,
                .root = root,
                .written = writes,
                .task = number,
                .backs = {},
                .loops = {},
                .again = {},
                .adjoints = {},
                .kept = {},
                .dropped = {}};
        s.run();
    }

    void run() {
        std::vector<Inst*> tasks;
        for (Inst& i : *f.body)
            if (is_parallel_loop(i)) tasks.push_back(&i);
        std::vector<uint64_t> all = written(*f.body);
        if (m.arrays_may_overlap && !all.empty()) all.push_back(kAnyMemory);
        hoist_loads(f, all);
        if (tasks.empty()) {
            const Activity activity(f, storage);
            activity.check_smooth(*f.body);
            sweep(*f.body, activity, all, 0);
        } else {
            run_tasks(tasks, all);
        }
    }

    void run_tasks(const std::vector<Inst*>& tasks, const std::vector<uint64_t>& all) {
        std::vector<Inst*> order;
        std::vector<uint64_t> later;
        std::vector<bool> waits;
        for (Inst* task : tasks) waits.push_back(can_wait(*task, tasks));
        for (size_t k = tasks.size(); k-- > 0;) {
            const bool last = k + 1 == tasks.size();
            const std::vector<uint64_t> own = written(tasks[k]->body());
            if (!waits[k]) later.insert(later.end(), own.begin(), own.end());
            if (!last) check_order(*tasks[k], later);
            if (waits[k]) later.insert(later.end(), own.begin(), own.end());
            order.push_back(last ? tasks[k] : set_aside(*tasks[k], waits[k]));
        }
        const Activity activity(f, storage);
        activity.check_smooth(*f.body);
        for (size_t k = 0; k < order.size(); ++k) sweep(order[k]->body(), activity, all, k);
    }
};

}  // namespace

void reverse(Module& m, const Request& request) { Kernel{m, request}.run(); }

}  // namespace qd::autodiff
