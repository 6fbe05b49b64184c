// Vectors and matrices become their components.
//
// Only under force_scalarize_matrix: a tensor as one value makes IR small, and code generation
// writes components out anyway. Variables become one slot a component where no index into them
// varies, elements in memory are loaded and stored component by component. What takes a whole
// tensor (calls, what branches and loops carry, prints, indices that vary, products that are long
// loops) gets one built in front of it.
//
// Runs before `promote`, so that variables become scalars too.
//
// Keeps: the order of everything, and of the additions in a product or a sum.
// Cost:  O(components).

#include <unordered_map>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int64_t kLongestProduct = 4096;  // multiplications

bool splits(Type t) { return t.is_tensor() && t.count() > 0; }

int constant_component(const Inst& i, Type whole) {  // of comp_place; -1: varies, or is outside
    const Value* at = i.operand(1);
    if (!is_constant(at)) return -1;
    const int64_t k = int_of_bits(at->type.prim, constant_bits(at));
    return k >= 0 && k < whole.count() ? static_cast<int>(k) : -1;
}

struct Scalarizer {
    Function& f;
    // Of tensors their components, of split slots the slots of these.
    std::unordered_map<const Value*, std::vector<Value*>> parts;
    std::unordered_map<const Value*, bool> slots;  // of tensors: whether it can be split
    bool changed = false;

    static bool is_access(const Inst& i) {
        return i.op == Op::load || i.op == Op::store || i.op == Op::volatile_load ||
               i.effect() == Effect::atomic;
    }

    void find_slots() {
        walk(*f.body, [&](Inst& i) {
            if (i.op == Op::slot) slots[i.result()] = splits(i.results[0].type.value());
            for (int k = 0; k < i.operand_count; ++k) {
                const auto slot = slots.find(i.operand(k));
                if (slot == slots.end()) continue;
                const bool component =
                    i.op == Op::comp_place && constant_component(i, slot->first->type.value()) >= 0;
                if (k != 0 || !(component || is_access(i))) slot->second = false;
            }
        });
    }

    Value* part(Value* v, int k) {
        const auto found = parts.find(v);
        return found == parts.end() ? v : found->second[static_cast<size_t>(k)];
    }

    // In front of an instruction, a tensor that takes part as a whole.
    Value* whole(Builder& b, Value* v) {
        const auto found = parts.find(v);
        if (found == parts.end() || !v->def || v->def->parent) return v;  // still there
        return b.typed(Op::build, v->type, found->second);
    }

    void take_apart(Builder b, Value* v) {
        std::vector<Value*> list;
        for (int k = 0; k < v->type.count(); ++k)
            list.push_back(b.op(Op::extract, {v}, static_cast<uint64_t>(k)));
        parts[v] = std::move(list);
        changed = true;
    }

    void set(Inst& i, std::vector<Value*> list) {
        parts[i.result()] = std::move(list);
        i.remove();
        changed = true;
    }

    Value* copy(Builder& b, const Inst& i, Type type, std::span<Value* const> operands) {
        Inst* c = b.emit(i.op, operands, {&type, type.is_none() ? size_t(0) : size_t(1)});
        c->flags = i.flags;
        c->imm = i.imm;
        c->ref = i.ref;
        return c->result_count ? c->result() : nullptr;
    }

    void elementwise(Inst& i) {
        Builder b = before(i);
        std::vector<Value*> list;
        std::vector<Value*> operands(i.operand_count);
        for (int k = 0; k < i.results[0].type.count(); ++k) {
            for (int n = 0; n < i.operand_count; ++n)
                operands[static_cast<size_t>(n)] = part(i.operand(n), k);
            list.push_back(copy(b, i, i.results[0].type.element(), operands));
        }
        set(i, std::move(list));
    }

    Value* with_flags(Value* v, const Inst& i) {
        v->def->flags = i.flags;
        return v;
    }

    void product(Inst& i) {
        Builder b = before(i);
        Value *x = i.operand(0), *y = i.operand(1);
        const int inner = x->type.m, columns = y->type.rank == 2 ? y->type.m : 1;
        std::vector<Value*> list;
        for (int r = 0; r < x->type.n; ++r)
            for (int c = 0; c < columns; ++c) {
                Value* sum = nullptr;
                for (int k = 0; k < inner; ++k) {
                    Value* term = with_flags(
                        b.op(Op::mul, {part(x, r * inner + k), part(y, k * columns + c)}), i);
                    sum = sum ? with_flags(b.op(Op::add, {sum, term}), i) : term;
                }
                list.push_back(sum);
            }
        set(i, std::move(list));
    }

    // Whether it was one of those that components are enough for.
    bool rearrange(Inst& i) {
        const Type t = i.results[0].type;
        Builder b = before(i);
        std::vector<Value*> list;
        const auto k = static_cast<size_t>(i.imm);
        switch (i.op) {
            case Op::splat:
                list.assign(static_cast<size_t>(t.count()), i.operand(0));
                break;
            case Op::build:
                for (int n = 0; n < i.operand_count; ++n) list.push_back(i.operand(n));
                break;
            case Op::insert:
                list = parts.at(i.operand(0));
                list.at(k) = i.operand(1);
                break;
            case Op::transpose:
                for (int r = 0; r < t.n; ++r)
                    for (int c = 0; c < t.m; ++c) list.push_back(part(i.operand(0), c * t.n + r));
                break;
            case Op::extract:
                replace(i.result(), part(i.operand(0), static_cast<int>(k)));
                i.remove();
                return changed = true;
            default: {
                if (step_of(i.op) == Op::count_) return false;
                Value* sum = part(i.operand(0), 0);
                for (int n = 1; n < i.operand(0)->type.count(); ++n)
                    sum = with_flags(b.op(step_of(i.op), {sum, part(i.operand(0), n)}), i);
                replace(i.result(), sum);
                i.remove();
                return changed = true;
            }
        }
        set(i, std::move(list));
        return true;
    }

    void slot(Inst& i) {
        Builder b = before(i);
        std::vector<Value*> list;
        for (int k = 0; k < i.results[0].type.count(); ++k)
            list.push_back(b.slot(i.results[0].type.element()));
        set(i, std::move(list));
    }

    Value* place_of(Builder& b, Value* place, int k) {
        const auto found = parts.find(place);
        if (found != parts.end()) return found->second[static_cast<size_t>(k)];
        Value* operands[] = {place, b.int_const(Prim::i32, k)};
        return b.typed(Op::comp_place, place->type.element().place(), operands);
    }

    void access(Inst& i) {
        Builder b = before(i);
        std::vector<Value*> list;
        for (int k = 0; k < i.operand(0)->type.count(); ++k) {
            std::vector<Value*> operands{place_of(b, i.operand(0), k)};
            for (int n = 1; n < i.operand_count; ++n) operands.push_back(part(i.operand(n), k));
            list.push_back(
                copy(b, i, i.result_count ? i.results[0].type.element() : type::kNone, operands));
        }
        if (i.result_count) {
            set(i, std::move(list));
        } else {
            i.remove();
            changed = true;
        }
    }

    // Whether it is gone.
    bool visit(Inst& i) {
        const Kind kind = info(i.op).kind;
        const bool makes = i.result_count == 1 && splits(i.results[0].type);
        if (i.op == Op::slot) {
            const auto found = slots.find(i.result());
            return found != slots.end() && found->second && (slot(i), true);
        }
        if (i.op == Op::comp_place && parts.contains(i.operand(0))) {
            replace(i.result(), place_of_component(i));
            i.remove();
            return true;
        }
        if (is_access(i) && splits(i.operand(0)->type.value())) return access(i), true;
        if (kind == Kind::elementwise && makes) return elementwise(i), true;
        if (kind == Kind::tensor) {
            const Type x = i.operand_count ? i.operand(0)->type : type::kNone;
            const bool whole_known = makes || splits(x);
            if (i.op == Op::matmul && makes && splits(x) && splits(i.operand(1)->type) &&
                int64_t(i.results[0].type.count()) * x.m <= kLongestProduct)
                return product(i), true;
            if (whole_known && (i.op == Op::splat || i.op == Op::build || splits(x)) &&
                rearrange(i))
                return true;
        }
        return false;
    }

    Value* place_of_component(Inst& i) {
        const auto& list = parts.at(i.operand(0));
        return list[static_cast<size_t>(constant_component(i, i.operand(0)->type.value()))];
    }

    void region(Region& r) {
        Inst* i = r.first;
        for (Value* p : r.params)
            if (i && splits(p->type)) take_apart(before(*i), p);
        while (i) {
            Inst* next = i->next;
            if (!visit(*i)) {
                Builder b = before(*i);
                for (int k = 0; k < i->operand_count; ++k) i->operands[k] = whole(b, i->operand(k));
                for (Region* c : i->region_list()) region(*c);
                if (next)
                    for (Value& v : i->result_values())
                        if (splits(v.type)) take_apart(before(*next), &v);
            }
            i = next;
        }
    }
};

}  // namespace

bool scalarize(Session&, Function& f) {
    Scalarizer s{f, {}, {}};
    s.find_slots();
    s.region(*f.body);
    return s.changed;
}

}  // namespace qd::pass
