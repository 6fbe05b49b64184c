// See parts.h.

#include "autodiff/parts.h"

#include <algorithm>

#include "support/error.h"

namespace qd::autodiff {

void refuse(std::string what, const Inst& at) {
    throw Refused{{std::move(what), at.loc}, at.parent->function};
}

bool is_float(Type t) { return t.is_value() && type::is_float(t.prim); }

// --- instructions

bool is_parallel_loop(const Inst& i) {
    return i.op == Op::for_ && i.loop_config() && i.loop_config()->parallel;
}

namespace {
// Whether it does more than to check and to print, and than what `idle` names.
bool acts(const Inst& i, const Idle& idle) {
    if (i.flags & idle.flags || (idle.effects && is_effect(i, *idle.effects))) return false;
    if (i.op == Op::if_ && !i.result_count) {
        for (const Region* r : i.region_list())
            for (const Inst* c = r->first; c; c = c->next)
                if (acts(*c, idle) && c->op != Op::yield) return true;
        return false;
    }
    const Effect e = i.effect();
    return e != Effect::pure && e != Effect::read && e != Effect::check &&
           (e != Effect::io || i.result_count);
}
void find_actions(Region& r, const Idle& idle, std::vector<Inst*>& out) {
    for (Inst& i : r) {
        if (!acts(i, idle)) continue;
        out.push_back(&i);
        for (Region* c : i.region_list()) find_actions(*c, idle, out);
    }
}
}  // namespace

std::unordered_set<const Value*> used_values(Region& r, const Idle& idle) {
    std::unordered_set<const Value*> used;
    std::vector<Inst*> work;
    find_actions(r, idle, work);
    while (!work.empty()) {
        const Inst& i = *work.back();
        work.pop_back();
        for (int k = 0; k < i.operand_count; ++k) {
            Value* v = i.operand(k);
            if (used.insert(v).second && v->def) work.push_back(v->def);
        }
    }
    return used;
}

uint32_t dimensions(const Inst& loop) {
    return loop.op == Op::for_ ? static_cast<uint32_t>(loop.imm) : 0;
}

Inst& end_of_iteration(const Inst& loop) {
    Inst* last = loop.body().last;
    Inst* test = last->prev;
    const auto leaves = [](const Region* r) { return r->last->op == Op::break_; };
    const bool tests = loop.op == Op::loop && last->op == Op::continue_ && test &&
                       std::ranges::any_of(test->region_list(), leaves);
    return tests ? *test : *last;
}

bool may_be_among(const std::vector<uint64_t>& classes, uint64_t one) {
    return std::ranges::any_of(classes, [&](uint64_t k) { return k == one || k == kAnyMemory; });
}

// --- storage

Storage::Storage(const Module& m, const Request& request) : m_(m) {
    for (size_t k = 0; k < request.companions.size() && k < m.fields.size(); ++k) {
        const int32_t n = request.companions[k];
        if (n >= 0) fields_[m.fields[k]] = m.fields.at(static_cast<size_t>(n));
    }
}

const Field* Storage::companion_of(const Field* f) const {
    const auto at = fields_.find(f);
    return at == fields_.end() ? nullptr : at->second;
}

bool Storage::has(const Value* place) const {
    const Value* root = root_of_place(const_cast<Value*>(place));
    const Inst* d = root->def;
    if (!d || !type::is_float(root->type.prim)) return false;
    if (d->op == Op::field_place) return companion_of(d->field()) != nullptr;
    if (d->op == Op::slot) return variables_.contains(d);
    if (d->op != Op::array_place) return false;
    const Value* array = d->operand(0);
    if (ArrayAccess::unpack(d->imm).grad || array->def) return false;
    const pass::ArrayClasses::Root of = arrays_.root(array);
    return of.only && of.parameter >= 0 &&
           m_.params.at(static_cast<size_t>(of.parameter)).needs_grad;
}

uint64_t Storage::memory_class(const Value* place) const {
    const Inst* d = root_of_place(const_cast<Value*>(place))->def;
    if (!d) return 0;
    if (d->op == Op::field_place) return d->field()->alias_group << 2 | 1;
    if (d->op == Op::array_place)
        return static_cast<uint64_t>(int64_t{arrays_.root(d->operand(0)).parameter}) << 2 | 2;
    return d->op == Op::slot ? 4 : 0;
}

uint64_t Storage::gradient_class(const Value* place) const {
    const uint64_t memory = memory_class(place);
    return m_.arrays_may_overlap && memory % 4 == 2 ? kAnyMemory : memory;
}

void Storage::find_arrays(std::span<Function* const> callees_first) {
    arrays_ = pass::find_arrays(m_, callees_first);
}

bool Storage::add_variables(std::span<Inst* const> slots) {
    bool any = false;
    for (Inst* slot : slots) {
        const auto [at, fresh] = variables_.try_emplace(slot);
        any |= fresh;
        if (!fresh) continue;
        Builder b{slot->parent->function, slot->parent, slot->next, slot->loc};
        at->second = b.slot(slot->results[0].type.value());
    }
    return any;
}

void Storage::alias(const Value* copy, const Value* array) {
    if (array->type.is_array()) arrays_.callees[copy] = arrays_.root(array);
}

// --- effects

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

void GradientUse::add(const GradientUse& other) {
    loads.insert(other.loads.begin(), other.loads.end());
    writes.insert(other.writes.begin(), other.writes.end());
    stores |= other.stores;
}

bool GradientUse::writes_to(uint64_t memory) const {
    if (memory == kAnyMemory) return !writes.empty();
    return writes.contains(memory) || writes.contains(kAnyMemory);
}

bool GradientUse::has_order() const {
    return stores || std::ranges::any_of(loads, [&](uint64_t c) { return writes_to(c); });
}

GradientUse gradient_use(Region& r, const Storage& storage, const GradientUses& callees) {
    GradientUse out;
    walk(r, [&](Inst& i) {
        if (i.op == Op::call) {
            if (const auto at = callees.find(i.callee()); at != callees.end()) out.add(at->second);
            return;
        }
        const Effect e = i.effect();
        const bool reads = e == Effect::read || i.op == Op::volatile_load;
        const bool writes = !reads && (e == Effect::write || e == Effect::atomic);
        if (!(reads || writes) || !i.operand_count || !i.operand(0)->type.is_place()) return;
        if (!storage.has(i.operand(0))) return;
        (reads ? out.loads : out.writes).insert(storage.gradient_class(i.operand(0)));
        out.stores |= i.op == Op::store;
    });
    return out;
}

void drop_effects(Region& r, const Storage& storage, bool gradients) {
    std::vector<Inst*> gone;
    walk(r, [&](Inst& i) {
        const bool writes =
            i.op == Op::store || (i.effect() == Effect::atomic && i.op != Op::volatile_load);
        const bool to_storage = writes && (storage.has(i.operand(0)) || i.flags & kForGradient);
        if (gradients ? to_storage : is_effect(i, storage) && !to_storage) gone.push_back(&i);
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

// --- activity

bool carries(const Inst& i, int k) {
    const OpInfo& row = info(i.op);
    if (row.slope == Slope::zero || row.slope == Slope::forbidden || i.result_count == 0)
        return false;
    if (row.kind != Kind::elementwise && row.kind != Kind::tensor) return false;
    if (i.op == Op::attach && k == 0) return false;
    return is_float(i.results[0].type) && is_float(i.operand(k)->type);
}

Activity::Activity(std::span<Function* const> callees_first, const Storage& storage)
    : functions_(callees_first), storage_(storage) {
    uint32_t count = 1;  // 0: values that are made later
    for (Function* f : functions_) {
        for (Value* p : f->body->params) p->id = count++;
        walk(*f->body, [&](Inst& i) {
            for (Value& v : i.result_values()) v.id = count++;
            for (Region* r : i.region_list())
                for (Value* p : r->params) p->id = count++;
        });
    }
    varied_.resize(count);
    useful_.resize(count);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t k = functions_.size(); k-- > 0;) changed |= flow(*functions_[k]->body);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (Function* f : functions_) changed |= back(*f->body);
    }
}

bool Activity::set(std::vector<bool>& of, const Value* v, bool yes) {
    if (!yes || v->id >= of.size() || of[v->id] || !is_float(v->type)) return false;
    of[v->id] = true;
    return true;
}

namespace {

// What a loop carries, as it enters, in an iteration, and as that hands it on: at its end alone.
Value* carried_in(const Inst& loop, int k) {
    return loop.operand(static_cast<int>(2 * dimensions(loop)) + k);
}
Value* carried(const Inst& loop, int k) {
    return loop.body().params[dimensions(loop) + static_cast<uint32_t>(k)];
}
Value* carried_on(const Inst& loop, int k) { return loop.body().last->operand(k); }

}  // namespace

bool Activity::flow(Region& r) {
    bool changed = false;
    for (Inst* i = r.first; i; i = i->next) changed |= flow(*i);
    return changed;
}

bool Activity::flow(Inst& i) {
    bool changed = false;
    for (Region* r : i.region_list()) changed |= flow(*r);
    if (i.op == Op::if_) {
        for (Region* r : i.region_list()) {
            if (r->last->op != Op::yield) continue;
            for (int k = 0; k < i.result_count; ++k)
                changed |= set(varied_, i.result(k), varied(r->last->operand(k)));
        }
        return changed;
    }
    if (i.is_loop()) {
        for (int k = 0; k < i.result_count; ++k)
            for (const Value* from : {carried_in(i, k), carried_on(i, k)}) {
                changed |= set(varied_, carried(i, k), varied(from));
                changed |= set(varied_, i.result(k), varied(from));
            }
        return changed;
    }
    if (i.op == Op::call) {
        const Region& body = *i.callee()->body;
        for (int k = 0; k < i.operand_count; ++k)
            changed |= set(varied_, body.params[static_cast<uint32_t>(k)], varied(i.operand(k)));
        for (int k = 0; k < i.result_count; ++k)
            changed |= set(varied_, i.result(k), varied(body.last->operand(k)));
        return changed;
    }
    if (!i.result_count) return changed;
    const bool reads =
        i.op == Op::load || i.op == Op::volatile_load || info(i.op).effect == Effect::atomic;
    if (reads) {
        const bool yes = storage_.has(i.operand(0)) && !(i.flags & kStopsGradient);
        return changed | set(varied_, i.result(), yes);
    }
    for (int k = 0; k < i.operand_count; ++k)
        changed |= set(varied_, i.result(), carries(i, k) && varied(i.operand(k)));
    return changed;
}

bool Activity::back(Region& r) {
    bool changed = false;
    for (Inst* i = r.last; i; i = i->prev) changed |= back(*i);
    return changed;
}

bool Activity::back(Inst& i) {
    bool changed = false;
    const auto useful = [&](const Value* v) { return v->id < useful_.size() && useful_[v->id]; };
    if (i.op == Op::if_) {
        for (Region* r : i.region_list()) {
            if (r->last->op == Op::yield)
                for (int k = 0; k < i.result_count; ++k)
                    changed |= set(useful_, r->last->operand(k), useful(i.result(k)));
            changed |= back(*r);
        }
        return changed;
    }
    if (i.is_loop()) {
        for (int k = 0; k < i.result_count; ++k) {
            const bool yes = useful(i.result(k)) || useful(carried(i, k));
            changed |= set(useful_, carried_in(i, k), yes);
            changed |= set(useful_, carried_on(i, k), yes);
        }
        return changed | back(i.body());
    }
    for (Region* r : i.region_list()) changed |= back(*r);
    if (i.op == Op::call) {
        const Region& body = *i.callee()->body;
        for (int k = 0; k < i.result_count; ++k)
            changed |= set(useful_, body.last->operand(k), useful(i.result(k)));
        for (int k = 0; k < i.operand_count; ++k)
            changed |= set(useful_, i.operand(k), useful(body.params[static_cast<uint32_t>(k)]));
        return changed;
    }
    const bool writes = i.op == Op::store || info(i.op).effect == Effect::atomic;
    if (writes && i.operand_count > 1 && storage_.has(i.operand(0)))
        for (int k = 1; k < i.operand_count; ++k) changed |= set(useful_, i.operand(k), true);
    if (!i.result_count || !useful(i.result())) return changed;
    for (int k = 0; k < i.operand_count; ++k) changed |= set(useful_, i.operand(k), carries(i, k));
    return changed;
}

void Activity::check_smooth() const {
    for (Function* f : functions_)
        walk(*f->body, [&](Inst& i) {
            if (info(i.op).slope != Slope::forbidden || i.effect() == Effect::atomic) return;
            for (int k = 0; k < i.operand_count; ++k)
                if (varied(i.operand(k)))
                    refuse(std::string("Not supported. The derivative of ") + info(i.op).name, i);
        });
}

// --- tensors

void expand_reductions(Function& f) {
    std::vector<Inst*> found;
    walk(*f.body, [&](Inst& i) {
        const bool chain =
            i.op == Op::reduce_mul || i.op == Op::reduce_min || i.op == Op::reduce_max;
        if (chain && is_float(i.results[0].type)) found.push_back(&i);
    });
    for (Inst* i : found) {
        Builder b{&f, i->parent, i, i->loc};
        Value* whole = i->operand(0);
        Value* all = b.op(Op::extract, {whole}, 0);
        for (int k = 1; k < whole->type.count(); ++k)
            all =
                b.op(info(i->op).step, {all, b.op(Op::extract, {whole}, static_cast<uint64_t>(k))});
        replace(i->result(), all);
        i->remove();
    }
}

}  // namespace qd::autodiff
