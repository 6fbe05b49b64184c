// Reverse mode.
//
// A sweep works on one iteration of a parallel loop, or on a kernel without such loops. Its forward
// code stays where it is, without stores and additions to storage that has gradients; behind it
// follow its instructions once more, last first, each as what it does to adjoints. Every region
// (branch, body of a serial loop) has one counterpart in there. Adjoints are variables, which pass
// `promote` carries through branches and loops. What it needs of the way there: records.h.
//
// Needs: pass::straighten. Cost: O(instructions).

#include <algorithm>
#include <unordered_map>

#include "autodiff/records.h"
#include "autodiff/sums.h"

namespace qd::autodiff {
namespace {

struct Sweep {
    const Iteration& of;
    const Activity& activity = of.activity;
    Region& way_back = of.back ? *of.back : of.root;
    Function& f = *way_back.function;
    const Storage& storage = of.storage;
    Records records{of};
    // What was added in a value's own region, and places with the rest.
    std::unordered_map<const Value*, std::vector<Value*>> added = {};
    std::unordered_map<const Value*, Value*> adjoints = {};
    std::vector<Inst*> dropped = {};

    // --- adjoints

    bool active(const Value* v) const { return activity.active(v); }

    Value* adjoint_place(Value* v) {
        Value*& place = adjoints[v];
        if (place) return place;
        Builder b = records.entry(Records::home(v));
        place = b.slot(v->type);
        b.store(place, zero(b, v->type));
        return place;
    }
    // Null: nobody added to it.
    Value* adjoint(Builder& b, Value* v) {
        v = resolve(v);
        std::vector<Value*> parts;
        if (const auto at = adjoints.find(v); at != adjoints.end())
            parts.push_back(b.load(at->second));
        if (const auto at = added.find(v); at != added.end())
            parts.insert(parts.end(), at->second.begin(), at->second.end());
        return parts.empty() ? nullptr : sum_of(b, parts, of.m.options.fast_math);
    }
    void add(Builder& b, Value* v, Value* by) {
        v = resolve(v);
        if (!active(v)) return;
        if (records.is_outside(v))
            throw Refused{
                {"Invalid program input for autodiff: Mixed usage of for-loops and "
                 "statements without looping. Split them into two kernels",
                 v->def ? v->def->loc : nullptr}};
        if (b.region == records.entry(Records::home(v)).region) {
            added[v].push_back(by);
            return;
        }
        Value* place = adjoint_place(v);
        b.store(place, b.op(Op::add, {b.load(place), by}));
    }

    // --- instructions, backwards

    // Whether a region holds something to do on the way back.
    bool concerns(const Inst& i) const {
        if (i.op == Op::call) {
            const auto at = of.ways.find(i.callee());
            if (at == of.ways.end()) return false;
            if (!of.uses.at(i.callee()).writes.empty()) return true;
        }
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
            Value* of[2] = {};
            for (int n = 0; n < 2 && n < i.operand_count; ++n)
                of[n] = needed >> n & 1 ? records.get(i.operand(n)) : i.operand(n);
            Value* r = needed >> 2 & 1 ? records.get(i.result()) : i.result();
            Derivative<Formulas> d{formulas, t, of[0], of[1], r};
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
                Value *place = adjoint_place(x), *at = records.get(i.operand(1));
                Value* whole = b.load(place);
                Value* sum = b.op(Op::add, {b.op(Op::extract_dyn, {whole, at}), t});
                b.store(place, b.op(Op::insert_dyn, {whole, sum, at}));
                return;
            }
            case Op::insert_dyn: {
                Value* at = records.get(i.operand(2));
                if (active(i.operand(1))) add(b, i.operand(1), b.op(Op::extract_dyn, {t, at}));
                if (active(x)) add(b, x, b.op(Op::insert_dyn, {t, zero(b, t->type.element()), at}));
                return;
            }
            case Op::matmul: {
                Value* y = i.operand(1);
                const bool vector = y->type.rank == 1;
                Value* of[2];
                if (active(x)) {
                    Value* right = records.get(y);
                    if (vector) {
                        add(b, x, outer_product(b, t, right, x->type));
                    } else {
                        of[0] = t, of[1] = transposed(b, right);
                        add(b, x, b.typed(Op::matmul, x->type, of));
                    }
                }
                if (active(y)) {
                    of[0] = transposed(b, records.get(x)), of[1] = t;
                    add(b, y, b.typed(Op::matmul, y->type, of));
                }
                return;
            }
            default:
                refuse(std::string("Not supported. The derivative of ") + info(i.op).name, i);
        }
    }

    Value* gradient_place(Builder& b, Value* place) {
        return storage.companion(b, place, [&](Value* v) { return records.get(v); });
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
                        "Not supported. The derivative of the value that an atomic operation "
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
                refuse(std::string("Not supported. The derivative of ") + info(i.op).name +
                           ", of a place that has gradients",
                       i);
        }
    }

    // The end of the counterpart of `r` is where the builder stands.
    void region(Region& r, Builder b) { go_back(instructions(r), b); }
    static std::vector<Inst*> instructions(Region& r) {  // the way there is changed meanwhile
        std::vector<Inst*> list;
        for (Inst* i = r.first; i; i = i->next) list.push_back(i);
        return list;
    }
    void go_back(const std::vector<Inst*>& list, Builder& b) {
        for (size_t k = list.size(); k-- > 0;) instruction(*list[k], b);
    }

    void instruction(Inst& i, Builder& b) {
        if (i.effect() == Effect::terminator) return;
        b.loc = i.loc;
        const Kind kind = info(i.op).kind;
        if (i.op == Op::if_ || i.is_loop() || i.op == Op::call) {
            if (!concerns(i)) return;
            i.op == Op::if_ ? branch(i, b) : i.op == Op::call ? call(i, b) : loop(i, b);
        } else if (i.op == Op::load || i.op == Op::store || i.effect() == Effect::atomic) {
            memory(b, i);
        } else if ((kind == Kind::elementwise || kind == Kind::tensor) && active(i.result())) {
            if (Value* t = adjoint(b, i.result()))
                kind == Kind::tensor ? tensor(b, i, t) : elementwise(b, i, t);
        }
    }

    void call(Inst& i, Builder& b) {
        const Way& way = of.ways.at(i.callee());
        std::vector<Value*> operands;
        for (int k = 0; k < i.operand_count; ++k)
            if (way.takes[static_cast<size_t>(k)]) operands.push_back(records.get(i.operand(k)));
        for (int k = 0; k < i.result_count; ++k) {
            if (!way.from[static_cast<size_t>(k)]) continue;
            Value* t = adjoint(b, i.result(k));
            operands.push_back(t ? t : zero(b, i.result(k)->type));
        }
        Value* top = records.top_back();
        operands.push_back(b.load(top));
        std::vector<Type> types;
        for (int k = 0; k < i.operand_count; ++k)
            if (way.gives[static_cast<size_t>(k)]) types.push_back(i.operand(k)->type);
        if (way.there) types.push_back(type::kI64);
        Inst* back = b.emit(Op::call, operands, types);
        back->ref = way.back;
        int n = 0;
        for (int k = 0; k < i.operand_count; ++k)
            if (way.gives[static_cast<size_t>(k)]) add(b, i.operand(k), back->result(n++));
        if (!way.there) return;
        b.store(top, back->result(n));
        records.note_push(i.parent);
        go_there(i, *way.there);
    }

    // The call, with a record.
    void go_there(Inst& i, Function& there) {
        Builder b{i.parent->function, i.parent, &i, i.loc};
        Value* top = records.top();
        std::vector<Value*> operands;
        std::vector<Type> types;
        for (int k = 0; k < i.operand_count; ++k) operands.push_back(i.operand(k));
        for (const Value& v : i.result_values()) types.push_back(v.type);
        operands.push_back(b.load(top));
        types.push_back(type::kI64);
        Inst* now = b.emit(Op::call, operands, types);
        now->ref = &there;
        for (int k = 0; k < i.result_count; ++k) {
            now->result(k)->id = i.result(k)->id;
            replace(i.result(k), now->result(k));
        }
        b.store(top, now->result(i.result_count));
        i.remove();
    }

    Inst* mark(Region& r, const Loc* loc) {  // something to stand in front of
        Builder b{&f, &r, nullptr, loc};
        return b.constant(type::kI64, 0)->def;
    }

    void branch(Inst& i, Builder& b) {
        Value* on[] = {records.get(i.operand(0))};
        std::vector<Value*> handed(i.result_count);
        for (int k = 0; k < i.result_count; ++k)
            if (active(i.result(k))) handed[static_cast<size_t>(k)] = adjoint(b, i.result(k));
        Inst* back = b.emit(Op::if_, on, {}, 2);
        for (int side = 0; side < 2; ++side) {
            Region &from = *i.regions[side], &to = *back->regions[side];
            Builder in{&f, &to, nullptr, i.loc};
            records.begin_branch(from, in);
            records.counterpart(from, to, *mark(to, i.loc));
            for (int k = 0; k < i.result_count; ++k)
                if (Value* t = handed[static_cast<size_t>(k)]) add(in, from.last->operand(k), t);
            region(from, in);
            in.end(Op::yield);
            records.end_branch(from);
        }
    }

    void loop(Inst& i, Builder& b) {
        const uint32_t n = dimensions(i);
        const int first = static_cast<int>(2 * n);
        // Before its calls become others.
        const bool has_order = gradient_use(i.body(), storage, of.uses).has_order();
        Extents extents{{}, {}, nullptr};
        if (n) {
            std::vector<Value*> bounds;
            for (int k = 0; k < first; ++k) bounds.push_back(records.get(i.operand(k)));
            extents = extents_of(b, i, bounds);
        } else {
            extents.count = records.count(i);
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
        Value* bounds[] = {b.int_const(Prim::i64, 0), extents.count};
        Inst* back = b.emit(Op::for_, bounds, {}, 1);
        back->imm = 1;
        Region& to = back->body();
        Value* turn = f.add_param(to, type::kI64);
        Builder head{&f, &to, nullptr, i.loc};
        records.begin_loop(i, head);
        Value* last = head.op(Op::sub, {extents.count, head.int_const(Prim::i64, 1)});
        Value* position = head.op(Op::sub, {last, turn});
        const std::vector<Value*> indices = indices_at(head, position, extents);
        for (uint32_t d = 0; d < n; ++d) {
            const Value* index = i.body().params[d];
            records.set(index, head.cast(indices[d], index->type.prim));
        }
        records.counterpart(i.body(), to, *mark(to, i.loc));
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
        if (!has_order && records.keeps_nothing(i) && any_order(i))
            replace(position, turn);  // ascending loops are faster
        records.end_loop(i, {back, last->def, &extents});
        for (int k = 0; k < i.result_count; ++k)
            if (Value* place = carried[static_cast<size_t>(k)])
                if (active(i.operand(first + k))) add(b, i.operand(first + k), b.load(place));
    }

    // Whether iterations may go back in any order: what they hand on is sums, whose adjoints are
    // the same in all of them. (And they see no gradients of each other's.)
    bool any_order(const Inst& loop) const {
        const auto n = dimensions(loop);
        const Inst& end = *loop.body().last;
        std::unordered_map<const Value*, int> uses;
        bool yes = true;
        walk(loop.body(), [&](Inst& i) {
            if (i.is_loop() && !records.keeps_nothing(i)) yes = false;
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

    // Where it is to end. `seeds`: adjoints of what the root's end hands on, or null.
    Builder run(std::span<Value* const> seeds) {
        Inst& end = *of.root.last;
        const std::vector<Inst*> list = instructions(of.root);
        Builder b{&f, &way_back, of.back ? nullptr : &end, end.loc};
        records.counterpart(of.root, way_back, *b.constant(type::kI64, 0)->def);
        for (size_t k = 0; k < seeds.size(); ++k)
            if (seeds[k]) add(b, end.operand(static_cast<int>(k)), seeds[k]);
        go_back(list, b);
        for (Inst* i : dropped) drop(*i);
        return b;
    }
    FunctionEnds run_function(std::span<Value* const> seeds, const std::vector<bool>& gives) {
        const Region& root = of.root;
        if (of.back)
            for (uint32_t k = 0; k < gives.size(); ++k)
                records.set(root.params[k], way_back.params[k]);
        Builder b = run(seeds);
        FunctionEnds out;
        for (int k = 0; k < root.last->operand_count; ++k)
            out.results.push_back(root.last->operand(k));
        for (uint32_t k = 0; k < gives.size(); ++k) {
            if (!gives[k]) continue;
            Value* t = adjoint(b, root.params[k]);
            out.adjoints.push_back(t ? t : zero(b, root.params[k]->type));
        }
        if (!of.back) return out;
        out.results.push_back(records.end_function());
        out.adjoints.push_back(b.load(records.top_back()));
        return out;
    }

    // Of an addition the old value may still be asked for.
    void drop(Inst& i) {
        if (i.result_count) {
            Builder b{i.parent->function, i.parent, &i, i.loc};
            replace(i.result(), b.load(i.operand(0)));
        }
        i.remove();
    }
};

}  // namespace

void sweep(const Iteration& of) { Sweep{of}.run({}); }

FunctionEnds sweep_function(const Iteration& of, std::span<Value* const> seeds,
                            const std::vector<bool>& gives) {
    return Sweep{of}.run_function(seeds, gives);
}

}  // namespace qd::autodiff
