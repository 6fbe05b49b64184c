// Atomics become what the target has: one instruction on integers, or a loop of compare and swap.
//
// On a local variable, and where no other thread can come between (Target::lone), an atomic is a
// read and a write. Floats and u1 travel as the integers of their bytes.
//
// A short inner loop asks once whether it is alone, and not at each atomic: of its two forms that
// without atomics is code like any other, which may work on vectors.
//
// Relaxed order, for what iterations see of each other is undefined apart from the value itself;
// but where an atomic may be a lock, plain statements stay between taking and giving it back.
//
// Needs: places as the front end made them; private_fields, which marks atomics.
// Cost:  O(instructions).

#include "ir/edit.h"
#include "ir/locks.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "pass/memory.h"
#include "support/abi.h"

namespace qd::pass {
namespace {

using namespace ir;

bool one_instruction(const Target& target, Op op, Prim p) {
    if (op == Op::atomic_add && (p == Prim::f32 || p == Prim::f64)) return target.float_adds;
    if (type::is_float(p) || op == Op::atomic_cas || op == Op::atomic_exchange)
        return op == Op::atomic_cas || op == Op::atomic_exchange;
    // Adding to u1 is no addition of bytes.
    if (p == Prim::u1 && (op == Op::atomic_add || op == Op::atomic_sub)) return false;
    return target.atomics >> (int(op) - int(Op::atomic_add)) & 1;
}

Value* bit_cast(Builder& b, Value* v, Prim p) {
    return v->type.prim == p ? v : b.typed(Op::bit_cast, v->type.with(p), {{v}});
}

struct Lowering {
    Function& f;
    const Target& target;
    uint8_t flags;
    std::unordered_set<const Inst*> plain_ones = {};  // in a loop that nobody else sees the work of
    Value* lone[2] = {};  // whether: by abi::kAlone, by abi::kAloneInPrivate; at the body's begin

    Value* is_lone(const Inst& i) {
        const bool is_private = i.flags & kPrivateField;
        Value*& v = lone[is_private];
        if (!v) {
            Builder b{&f, f.body, f.body->first, nullptr};
            const int32_t bit = is_private ? abi::kAloneInPrivate : abi::kAlone;
            Value* word = b.typed(Op::task_value, type::kI64, {}, uint64_t(TaskValue::alone));
            Value* set = b.op(Op::bit_and, {word, b.int_const(Prim::i64, bit)});
            v = b.op(Op::ne, {set, b.int_const(Prim::i64, 0)});
        }
        return v;
    }

    // What it leaves in memory where `old` was.
    static Value* next(Builder& b, const Inst& i, Value* old, Value* v) {
        if (i.op == Op::atomic_exchange) return v;
        if (i.op == Op::atomic_cas)
            return b.op(Op::select, {b.op(Op::eq, {old, v}), i.operand(2), old});
        return b.op(info(i.op).step, {old, v});
    }

    static Value* plain(Builder b, const Inst& i) {
        Value* old = b.load(i.operand(0));
        b.store(i.operand(0), next(b, i, old, i.operand(1)));
        return old;
    }

    Value* emit(Builder& b, Op op, std::initializer_list<Value*> operands) const {
        Value* v = b.op(op, operands);
        v->def->flags = flags;
        return v;
    }

    // `place` and the result are of integers.
    Value* swap_loop(Builder& b, const Inst& i, Value* place, Value* v) const {
        Value* first = b.op(Op::volatile_load, {place});
        Inst* loop = b.emit(Op::loop, {{first}}, {{first->type}}, 1);
        Value* old = f.add_param(loop->body(), first->type);
        Builder in{&f, &loop->body(), nullptr, i.loc};
        Value* wanted = next(in, i, bit_cast(in, old, v->type.prim), v);
        Value* found = emit(in, Op::atomic_cas, {place, old, bit_cast(in, wanted, old->type.prim)});
        Value* done = in.op(Op::eq, {found, old});
        Inst* branch = in.emit(Op::if_, {{done}}, {}, 2);
        Builder{&f, branch->regions[0], nullptr, i.loc}.end(Op::break_, {{old}});
        Builder{&f, branch->regions[1], nullptr, i.loc}.end(Op::yield);
        in.end(Op::continue_, {{found}});
        return loop->result();
    }

    // One component.
    Value* atomic_scalar(Builder& b, const Inst& i, Value* place, int k) const {
        const auto of = [&](int operand) {
            Value* v = i.operand(operand);
            return v->type.is_scalar()
                       ? v
                       : b.typed(Op::extract, v->type.element(), {{v}}, uint64_t(k));
        };
        Value* v = of(1);
        const Prim p = v->type.prim;
        if (type::is_float(p) && i.op == Op::atomic_sub && target.float_adds)
            return emit(b, Op::atomic_add, {place, b.op(Op::neg, {v})});
        if (type::is_float(p) && i.op != Op::atomic_cas && i.op != Op::atomic_exchange &&
            one_instruction(target, i.op, p))
            return emit(b, i.op, {place, v});
        const Prim bits = type::is_float(p) || p == Prim::u1 ? integer_of(p) : p;
        if (bits != p) place = b.typed(Op::displace, Type::scalar(bits).place(), {{place}});
        Value* old;
        if (!one_instruction(target, i.op, p))
            old = swap_loop(b, i, place, v);
        else if (i.op == Op::atomic_cas)
            old = emit(b, i.op, {place, bit_cast(b, v, bits), bit_cast(b, of(2), bits)});
        else
            old = emit(b, i.op, {place, bit_cast(b, v, bits)});
        return bit_cast(b, old, p);
    }

    // Whether all components are added at one time, if that turns out to be possible at run time:
    // of an element, where elements lie apart by multiples of their size.
    bool adds_together(const Inst& i, bool used) const {
        const Type t = i.operand(1)->type;
        if (!target.vector_adds || used || flags || t.prim != Prim::f32) return false;
        if ((t.count() != 2 && t.count() != 4) || t.is_scalar()) return false;
        if (i.op != Op::atomic_add && i.op != Op::atomic_sub) return false;
        const Inst* place = i.operand(0)->def;
        if (place && place->op == Op::array_place) return true;
        if (!place || place->op != Op::field_place) return false;
        const Field& field = *place->field();
        const int64_t bytes = 4 * int64_t(t.count());
        return field.uneven_terms.empty() && field.component_stride() == 4 &&
               std::ranges::all_of(field.terms,
                                   [&](const Field::Term& x) { return x.stride % bytes == 0; });
    }

    Value* atomic(Builder b, const Inst& i, bool used) const {
        Value *place = i.operand(0), *v = i.operand(1);
        if (adds_together(i, used))
            return emit(b, Op::atomic_add,
                        {place, i.op == Op::atomic_sub ? b.op(Op::neg, {v}) : v});
        const Prim p = v->type.prim;
        if (v->type.is_scalar()) return atomic_scalar(b, i, place, 0);
        const bool as_it_is =
            !type::is_float(p) && p != Prim::u1 && one_instruction(target, i.op, p);
        if (as_it_is) return emit(b, i.op, {place, v});
        std::vector<Value*> olds;
        for (int k = 0; k < v->type.count(); ++k) {
            Value* at = b.typed(Op::comp_place, v->type.element().place(),
                                {{place, b.int_const(Prim::i32, k)}});
            olds.push_back(atomic_scalar(b, i, at, k));
        }
        return b.typed(Op::build, v->type, olds);
    }

    void lower(Inst& i, bool used) {
        const Inst* root = root_of(i.operand(0));
        if ((root && root->op == Op::slot) || plain_ones.contains(&i)) {
            replace(i.result(), plain(before(i), i));
        } else if (!target.lone) {
            replace(i.result(), atomic(before(i), i, used));
        } else {
            const Type results[] = {i.result()->type};
            Value* condition = is_lone(i);
            Inst* branch = before(i).emit(Op::if_, {{condition}}, {results, used ? 1u : 0u}, 2);
            for (const bool is_plain : {true, false}) {
                Builder b{&f, branch->regions[is_plain ? 0 : 1], nullptr, i.loc};
                Value* old = is_plain ? plain(b, i) : atomic(b, i, used);
                b.end(Op::yield, {&old, used ? 1u : 0u});
            }
            if (used) replace(i.result(), branch->result());
        }
        i.remove();
    }

    static constexpr uint32_t kShort = 150;

    // The atomics of an innermost loop, if two forms of it are worth while; likewise of the loop
    // around `inner`.
    std::vector<Inst*> atomics_of_short(Inst& loop, const Inst* inner = nullptr) const {
        std::vector<Inst*> out;
        if (loop.op != Op::for_ || loop.parent == f.body ||
            (loop.loop_config() && loop.loop_config()->units))
            return out;
        uint32_t count = 0;
        bool plain = true;
        walk(loop.body(), [&](Inst& i) {
            ++count;
            plain &= (&i == inner || !i.is_loop()) && i.op != Op::call && !info(i.op).fences;
            const Inst* root = i.effect() == Effect::atomic ? root_of(i.operand(0)) : nullptr;
            if (i.effect() != Effect::atomic || (root && root->op == Op::slot)) return;
            plain &= i.op == Op::atomic_add || i.op == Op::atomic_sub;
            out.push_back(&i);
        });
        if (!plain || count > kShort) out.clear();
        return out;
    }

    // Variables from outside; nothing, if the loop has places in them from there too.
    static std::vector<Value*> variables_of(Inst& loop) {
        std::vector<Value*> out;
        bool whole = true;
        walk(loop.body(), [&](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k) {
                Value* v = i.operand(k);
                if (!v->type.is_place() || is_inside(v, loop)) continue;
                const Inst* root = root_of(v);
                whole &= root != nullptr;
                if (!root || root->op != Op::slot) continue;
                whole &= root == v->def;
                if (std::ranges::find(out, v) == out.end()) out.push_back(v);
            }
        });
        if (!whole) out.clear();
        return out;
    }

    // A loop over lanes (serial_reduce) has its sums in variables that the loop of blocks around it
    // goes on with: two forms of both, each with variables of its own, which may be registers.
    void version(Inst& loop) {
        auto atomics = atomics_of_short(loop);
        if (atomics.empty()) return;
        Inst* around = loop.parent->owner;
        if (around && around->op == Op::for_ && !variables_of(loop).empty()) {
            auto of_both = atomics_of_short(*around, &loop);
            const auto variables = variables_of(*around);
            if (of_both.size() == atomics.size() && !variables.empty())
                return version(*around, of_both, variables);
        }
        version(loop, atomics, {});
    }

    void version(Inst& loop, const std::vector<Inst*>& atomics,
                 const std::vector<Value*>& variables) {
        Value* alone = nullptr;
        for (const Inst* i : atomics) {
            Value* is = is_lone(*i);
            if (is == alone) continue;
            alone = alone ? before(loop).op(Op::bit_and, {alone, is}) : is;
        }
        std::vector<Type> types;
        std::vector<Value*> results;
        for (Value& v : loop.result_values()) {
            types.push_back(v.type);
            results.push_back(&v);
        }
        Inst* branch = before(loop).emit(Op::if_, {{alone}}, types, 2);
        Region* both = f.new_region(nullptr);
        loop.remove();
        loop.append_to(*both);
        Builder in = before(loop), behind{&f, both, nullptr, loop.loc};
        for (Value* v : variables) {
            Value* own = in.slot(v->type.value());
            in.store(own, in.load(v));
            walk(loop.body(), [&](Inst& i) {
                for (int k = 0; k < i.operand_count; ++k)
                    if (i.operand(k) == v) i.operands[k] = own;
            });
            behind.store(v, behind.load(own));
        }
        behind.end(Op::yield, results);
        for (int k = 0; k < 2; ++k) {
            branch->regions[k] = clone_into(*both, f, {});
            branch->regions[k]->owner = branch;
        }
        walk(*branch->regions[0], [&](Inst& i) {
            if (i.effect() == Effect::atomic) plain_ones.insert(&i);
        });
        for (int k = 0; k < loop.result_count; ++k) replace(loop.result(k), branch->result(k));
    }
};

}  // namespace

bool lower_atomics(Session& s, Function& f) {
    Lowering l{f, s.options.target, 0};
    if (l.target.lone && s.m.options.advanced_optimization) {
        std::vector<Inst*> loops;
        walk_post(*f.body, [&](Inst& i) {
            if (i.op == Op::for_) loops.push_back(&i);
        });
        for (Inst* loop : loops) l.version(*loop);
    }
    std::vector<Inst*> atomics, looks;
    walk(*f.body, [&](Inst& i) {
        for (Value& v : i.result_values()) v.id = 0;
        for (Region* r : i.region_list())
            for (Value* v : r->params) v->id = 0;
        if (i.op == Op::volatile_load) looks.push_back(&i);
        if (info(i.op).kind != Kind::atomic) return;
        atomics.push_back(&i);
        i.result()->id = uint32_t(atomics.size());
    });
    if (atomics.empty() && looks.empty()) return false;
    const bool by_hand = s.fenced && s.fenced->contains(&f);
    l.flags = may_lock(f) && !by_hand ? kOrdered : uint8_t{0};
    for (Inst* i : looks) i->flags |= l.flags;
    for (Value* v : f.body->params) v->id = 0;
    std::vector<bool> used(atomics.size() + 1);
    walk(*f.body, [&](Inst& i) {
        for (int k = 0; k < i.operand_count; ++k) used[i.operand(k)->id] = true;
    });
    for (size_t k = 0; k < atomics.size(); ++k) {
        s.floats_of_bits |= used[k + 1] && type::is_float(atomics[k]->result()->type.prim);
        l.lower(*atomics[k], used[k + 1]);
    }
    return true;
}

}  // namespace qd::pass
