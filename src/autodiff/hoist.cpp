// Loads that a loop does not change, in front of it; equal loads, once.

#include <algorithm>
#include <map>

#include "autodiff/parts.h"

namespace qd::autodiff {
namespace {

bool is_serial_loop(const Inst& i) { return i.op == Op::for_ && !is_parallel_loop(i); }

// A place inside the loop whose operands are outside of it.
bool only_indexes(const Inst& place, const Inst& loop) {
    for (int k = 0; k < place.operand_count; ++k) {
        const Value* v = place.operand(k);
        const bool fixed = !is_inside(v, loop) || is_constant(v) ||
                           (v->type.is_place() && only_indexes(*v->def, loop));
        if (!fixed) return false;
    }
    return true;
}

bool knows_bounds(const std::vector<Inst*>& inner, const Inst& loop) {
    for (const Inst* i : inner)
        for (int k = 0; k < static_cast<int>(2 * i->imm); ++k)
            if (is_inside(i->operand(k), loop) && !is_constant(i->operand(k))) return false;
    return true;
}

// Whether a load finds the same at any time, and it is no matter when its gradient is added.
bool is_fixed(const Inst& load, const Storage& storage, const GradientUse& use,
              const std::vector<uint64_t>& writes) {
    const Value* place = load.operand(0);
    const uint64_t from = storage.memory_class(place);
    if (from % 4 == 0 || may_be_among(writes, from)) return false;
    return !storage.has(place) || !use.writes_to(storage.gradient_class(place));
}

bool can_hoist(const Inst& load, const Inst& loop, const Storage& storage, const GradientUse& use,
               const std::vector<uint64_t>& writes) {
    if (!is_fixed(load, storage, use, writes)) return false;
    return !is_inside(load.operand(0), loop) || only_indexes(*load.operand(0)->def, loop);
}

Value* outside(Value* v, const Inst& loop, Builder& b) {
    if (!is_inside(v, loop)) return v;
    std::vector<Value*> operands;
    for (int k = 0; k < v->def->operand_count; ++k)
        operands.push_back(outside(v->def->operand(k), loop, b));
    return emit_like(b, *v->def, operands)->result();
}

void hoist(Function& f, Inst& load, const std::vector<Inst*>& around) {
    Inst& loop = *around.back();
    Builder b{&f, loop.parent, &loop, load.loc};
    Value* runs = nullptr;
    for (const Inst* i : around)
        for (int k = 0; k < static_cast<int>(i->imm); ++k) {
            Value* some = b.op(Op::lt, {outside(i->operand(2 * k), loop, b),
                                        outside(i->operand(2 * k + 1), loop, b)});
            runs = runs ? b.op(Op::bit_and, {runs, some}) : some;
        }
    Value* place = outside(load.operand(0), loop, b);
    Value* on[] = {runs};
    const Type types[] = {load.result()->type};
    Inst* test = b.emit(Op::if_, on, types, 2);
    Builder yes{&f, test->regions[0], nullptr, load.loc},
        no{&f, test->regions[1], nullptr, load.loc};
    Value *there[] = {yes.load(place)}, *none[] = {zero(no, types[0])};
    there[0]->def->flags = load.flags;
    yes.end(Op::yield, there);
    no.end(Op::yield, none);
    replace(load.result(), test->result());
    load.remove();
}

// Takes out loads of what was loaded before, in the region or around it.
template <class Fixed>
void merge(Region& r, const Fixed& fixed, std::map<std::pair<Value*, uint8_t>, Value*>& known) {
    std::vector<std::pair<Value*, uint8_t>> own;
    for (Inst* i = r.first; i;) {
        Inst& now = *i;
        i = i->next;
        for (Region* inner : now.region_list()) merge(*inner, fixed, known);
        if (now.op != Op::load || !fixed(now)) continue;
        const std::pair key(resolve(now.operand(0)), now.flags);
        const auto [at, fresh] = known.try_emplace(key, now.result());
        if (fresh) {
            own.push_back(key);
        } else {
            replace(now.result(), at->second);
            now.remove();
        }
    }
    for (const auto& key : own) known.erase(key);
}

}  // namespace

// Going back, what several loads of an element are given is added up, and goes to its gradient
// once.
void merge_loads(Region& root, const Storage& storage, const GradientUses& uses,
                 const std::vector<uint64_t>& writes) {
    const GradientUse use = gradient_use(root, storage, uses);
    std::map<std::pair<Value*, uint8_t>, Value*> known;
    merge(root, [&](const Inst& load) { return is_fixed(load, storage, use, writes); }, known);
}

// Loads of what does not change go in front of their loop, if that runs at all: going back,
// what the loop adds to them is added up first and goes to the gradient once. That is too late for
// a loop that takes or reads the gradient.
void hoist_loads(Function& f, const Storage& storage, const GradientUses& uses,
                 const std::vector<uint64_t>& writes) {
    std::unordered_map<const Inst*, GradientUse> of_loops;
    const auto use_of = [&](Inst& loop) -> const GradientUse& {
        const auto [at, fresh] = of_loops.try_emplace(&loop);
        if (fresh) at->second = gradient_use(loop.body(), storage, uses);
        return at->second;
    };
    std::vector<Inst*> loads;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::load && i.parent->owner && is_serial_loop(*i.parent->owner))
            loads.push_back(&i);
    });
    for (Inst* i : loads) {
        std::vector<Inst*> around;  // loops that it leaves, inner ones first
        for (Inst* loop = i->parent->owner; is_serial_loop(*loop) && loop->parent != f.body;
             loop = loop->parent->owner) {
            if (!can_hoist(*i, *loop, storage, use_of(*loop), writes) ||
                !knows_bounds(around, *loop))
                break;
            around.push_back(loop);
            if (!loop->parent->owner) break;
        }
        if (!around.empty()) hoist(f, *i, around);
    }
}

}  // namespace qd::autodiff
