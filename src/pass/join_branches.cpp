// Branches on equal conditions that follow each other become one.
//
// The way back of a branch is a branch too: what it needs of the way there would be results, dozens
// of zeros where neither happens. Between the two stands arithmetic alone, and loads if the first
// writes nothing; what depends on the first's results goes behind both, and is computed inside for
// the second.
//
// Keeps: the order of effects.
// Cost:  O(instructions), once more for each branch that is joined with a former one.

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

bool writes(const Region& r) {
    for (const Inst* i = r.first; i; i = i->next) {
        const Effect e = i->effect();
        if (e != Effect::pure && e != Effect::read && e != Effect::region &&
            e != Effect::terminator && e != Effect::alloc)
            return true;
        for (const Region* c : i->region_list())
            if (writes(*c)) return true;
    }
    return false;
}

bool yields(const Inst& branch) {
    return branch.regions[0]->last->op == Op::yield && branch.regions[1]->last->op == Op::yield;
}

// Of pure instructions, a few deep: the way back computes its conditions again.
bool equal(const Value* a, const Value* b, int depth = 3) {
    if (a == b) return true;
    const Inst *x = a->def, *y = b->def;
    if (!x || !y || depth == 0 || x->effect() != Effect::pure || x->op != y->op ||
        x->imm != y->imm || x->ref != y->ref || x->flags != y->flags || x->result_count != 1 ||
        x->operand_count != y->operand_count || !(a->type == b->type))
        return false;
    for (int k = 0; k < x->operand_count; ++k)
        if (!equal(x->operand(k), y->operand(k), depth - 1)) return false;
    return true;
}

struct Pair {
    Inst *first, *second;
    std::vector<Inst*> dependent;  // between them, on the first's results
};

bool find(Inst& first, Pair& out) {
    std::unordered_set<const Value*> results;
    for (Value& v : first.result_values()) results.insert(&v);
    std::optional<bool> pure;  // asked for where it matters: it looks at all that is inside
    const auto writes_nothing = [&] {
        if (!pure) pure = !writes(*first.regions[0]) && !writes(*first.regions[1]);
        return *pure;
    };
    out = {&first, nullptr, {}};
    for (Inst* i = first.next; i; i = i->next) {
        if (i->op == Op::if_ && yields(*i) && equal(i->operand(0), first.operand(0))) {
            out.second = i;
            return true;
        }
        const Effect e = i->effect();
        if (i->region_count || (e != Effect::pure && !(e == Effect::read && writes_nothing())))
            return false;
        bool depends = false;
        for (int k = 0; k < i->operand_count; ++k) depends |= results.contains(i->operand(k));
        if (!depends) continue;
        if (e != Effect::pure || i->result_count != 1) return false;
        results.insert(i->result());
        out.dependent.push_back(i);
    }
    return false;
}

void move_contents(Region& from, Region& to) {
    while (from.first && from.first->effect() != Effect::terminator) {
        Inst* i = from.first;
        i->remove();
        i->append_to(to);
    }
}

Inst* join(const Pair& p) {
    Function& f = *p.first->parent->function;
    Builder b = before(*p.second);
    std::vector<Type> types;
    for (const Inst* i : {p.first, p.second})
        for (const Value& v : i->result_values()) types.push_back(v.type);
    Value* on[] = {p.first->operand(0)};
    Inst* both = b.emit(Op::if_, on, types, 2);
    both->loc = p.first->loc;
    for (int side = 0; side < 2; ++side) {
        Region &one = *p.first->regions[side], &other = *p.second->regions[side];
        Region& to = *both->regions[side];
        std::vector<Value*> handed;
        std::unordered_map<const Value*, Value*> inside;
        for (int k = 0; k < p.first->result_count; ++k) {
            handed.push_back(one.last->operand(k));
            inside[p.first->result(k)] = handed.back();
        }
        move_contents(one, to);
        Builder in{&f, &to, nullptr, p.second->loc};
        for (const Inst* i : p.dependent) {
            std::vector<Value*> operands;
            for (int k = 0; k < i->operand_count; ++k) {
                const auto at = inside.find(i->operand(k));
                operands.push_back(at == inside.end() ? i->operand(k) : at->second);
            }
            inside[i->result()] = emit_like(in, *i, operands)->result();
        }
        const auto rename = [&](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k)
                if (const auto at = inside.find(i.operand(k)); at != inside.end())
                    i.operands[k] = at->second;
        };
        walk(other, rename);
        for (int k = 0; k < p.second->result_count; ++k) handed.push_back(other.last->operand(k));
        move_contents(other, to);
        Builder{&f, &to, nullptr, p.second->loc}.end(Op::yield, handed);
    }
    int n = 0;
    for (Inst* i : {p.first, p.second})
        for (Value& v : i->result_values()) {
            if (!v.replaced) replace(&v, both->result(n));
            ++n;
        }
    Inst* behind = both->next;  // the second
    for (Inst* i : p.dependent) i->move_before(*behind);
    p.first->remove();
    p.second->remove();
    return both;
}

bool region(Region& r) {
    bool changed = false;
    for (Inst* i = r.first; i; i = i->next) {
        Pair p;
        while (i->op == Op::if_ && !is_constant(i->operand(0)) && yields(*i) && find(*i, p)) {
            i = join(p);
            changed = true;
        }
        for (Region* c : i->region_list()) changed |= region(*c);
    }
    return changed;
}

}  // namespace

bool join_branches(Function& f) { return region(*f.body); }

}  // namespace qd::pass
