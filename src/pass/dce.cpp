// Dead code elimination.
//
// Marks from the effects that somebody can see: writes, checks, output, and the control flow of
// live loops. What is not marked goes, with results of ifs and values carried by loops that only
// feed themselves. Slots that are only written count as dead, their stores too.
//
// Keeps: the order of effects. A loop without effects goes even if it would not end.
// Cost:  O(instructions).

#include <unordered_map>

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

const Inst* root_slot(const Value* v) {  // the slot that a place leads to
    while (v->def && v->def->op == Op::comp_place) v = v->def->operand(0);
    return v->def && v->def->op == Op::slot ? v->def : nullptr;
}

struct Marker {
    Session& s;
    std::vector<Value*> work;
    static constexpr uint32_t kLive = 0x80000000u;  // in Value::id of results, parameters
    // Instructions carry their mark in a side table, numbered by first result or by this map.
    std::vector<bool> live_insts;
    std::vector<bool> escapes;  // contains break, continue or return out of itself
    std::vector<bool> effects;  // contains visible effects
    std::vector<Inst*> insts;
    std::vector<std::vector<Inst*>> slot_stores;  // waits until the slot is read

    // Inst numbers live in `number`: a pointer map costs more than the pass.
    std::vector<std::pair<const Inst*, uint32_t>> table;
    uint32_t mask = 0;
    uint32_t& number(const Inst* i) {
        auto h = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(i) >> 4) * 2654435761u;
        for (h &= mask;; h = (h + 1) & mask) {
            if (table[h].first == i) return table[h].second;
            if (!table[h].first) {
                table[h].first = i;
                return table[h].second;
            }
        }
    }

    void collect(Region& r) {
        for (Value* p : r.params) p->id = 0;
        for (Inst* i = r.first; i; i = i->next) {
            number(i) = static_cast<uint32_t>(insts.size());
            insts.push_back(i);
            for (Value& v : i->result_values()) v.id = 0;
            for (Region* c : i->region_list()) collect(*c);
        }
    }

    bool own_effect(const Inst& i) const {
        switch (i.effect()) {
            case Effect::write:
            case Effect::check:
            case Effect::io:
                return true;
            case Effect::atomic:
                return true;
            case Effect::call: {
                const Summary& c = s.summaries[i.callee()->id];
                return c.writes || c.observable;
            }
            default:
                return false;
        }
    }

    // Bottom up: what leaves or acts. A store to a slot acts only if the slot is read.
    struct Facts {
        bool breaks = false, returns = false, acts = false;
    };
    Facts analyse(Inst& i) {
        Facts f;
        if (i.op == Op::break_ || i.op == Op::continue_) f.breaks = true;
        if (i.op == Op::return_) f.returns = true;
        f.acts = own_effect(i);
        for (Region* r : i.region_list()) {
            for (Inst* c = r->first; c; c = c->next) {
                const Facts inner = analyse(*c);
                f.breaks |= inner.breaks && !i.is_loop();
                f.returns |= inner.returns;
                f.acts |= inner.acts;
            }
        }
        const uint32_t n = number(&i);
        escapes[n] = f.breaks || f.returns;
        effects[n] = f.acts;
        return f;
    }

    void mark(Value* v) {
        if (v->id & kLive) return;
        v->id |= kLive;
        work.push_back(v);
    }
    void mark_operands(const Inst& i, int from = 0) {
        for (int k = from; k < i.operand_count; ++k) mark(i.operand(k));
    }

    void mark_inst(Inst& i) {
        const uint32_t n = number(&i);
        if (live_insts[n]) return;
        live_insts[n] = true;
        if (i.op == Op::if_ || i.is_group()) mark_operands(i);
        if (i.op == Op::for_) {
            for (int k = 0; k < 2 * static_cast<int>(i.imm); ++k) mark(i.operand(k));
        }
        if (i.region_count == 0) mark_operands(i);
        for (Region* r : i.region_list()) mark_roots(*r);
        // What encloses a live instruction is live.
        if (Inst* owner = i.parent->owner) mark_inst(*owner);
    }

    // Roots of a region whose owner is live.
    void mark_roots(Region& r) {
        for (Inst* i = r.first; i; i = i->next) {
            const uint32_t n = number(i);
            if (i->effect() == Effect::terminator) {
                live_insts[n] = true;
                if (i->op == Op::return_ || (r.owner && r.owner->is_group())) mark_operands(*i);
                continue;
            }
            if (i->region_count == 0) {
                if (!effects[n]) continue;
                const bool place_effect =
                    i->effect() == Effect::write || i->effect() == Effect::atomic;
                if (const Inst* slot = place_effect ? root_slot(i->operand(0)) : nullptr) {
                    const bool unused = i->result_count == 0 || !(i->results[0].id & kLive);
                    if (unused && !(slot->results[0].id & kLive)) {
                        slot_stores[number(slot)].push_back(i);
                        continue;
                    }
                }
                mark_inst(*i);
            } else if (escapes[n] || effects[n]) {
                mark_inst(*i);
            }
        }
    }

    // Whether what a loop carries and its results go together: parameter, exits of both kinds,
    // result.
    bool one_position(const Inst& loop) const { return loop.op == Op::for_ || s.straightens; }
    // Position k of what a region instruction passes around is live.
    void mark_position(Inst& i, uint32_t k) {
        if (i.op == Op::if_) {
            for (Region* r : i.region_list()) {
                if (r->last->op == Op::yield) mark(r->last->operand(static_cast<int>(k)));
            }
            return;
        }
        const uint32_t first = i.op == Op::for_ ? static_cast<uint32_t>(i.imm) : 0;
        mark(i.operand(static_cast<int>((i.op == Op::for_ ? 2 * first : 0) + k)));
        mark(i.body().params[first + k]);
        mark_exits(i, k);
    }
    // The continues and breaks of a loop, found once.
    struct Exits {
        std::vector<Inst*> continues, breaks;
    };
    std::unordered_map<const Inst*, Exits> exits_by_loop;
    static void find_exits(Region& r, Exits& out) {
        for (Inst* i = r.first; i; i = i->next) {
            if (i->is_loop()) continue;
            if (i->op == Op::continue_) out.continues.push_back(i);
            if (i->op == Op::break_) out.breaks.push_back(i);
            for (Region* c : i->region_list()) find_exits(*c, out);
        }
    }
    const Exits& exits(const Inst& loop) {
        const auto [found, fresh] = exits_by_loop.try_emplace(&loop);
        if (fresh) find_exits(loop.body(), found->second);
        return found->second;
    }
    void mark_exits(const Inst& loop, uint32_t k) {
        const Exits& e = exits(loop);
        for (const Inst* i : e.continues) mark(i->operand(static_cast<int>(k)));
        if (one_position(loop)) mark_breaks(loop, k);
    }
    void mark_breaks(const Inst& loop, uint32_t k) {
        for (const Inst* i : exits(loop).breaks) mark(i->operand(static_cast<int>(k)));
    }

    void propagate() {
        while (!work.empty()) {
            Value* v = work.back();
            work.pop_back();
            if (v->owner) {  // parameter: of a loop's region, or of the function
                Inst* loop = v->owner->owner;
                if (!loop) continue;
                const uint32_t first = loop->op == Op::for_ ? static_cast<uint32_t>(loop->imm) : 0;
                mark_inst(*loop);
                if (v->index >= first) mark_position(*loop, v->index - first);
                continue;
            }
            Inst& i = *v->def;
            mark_inst(i);
            if (i.op == Op::if_ || (i.is_loop() && one_position(i))) {
                mark_position(i, v->index);
            } else if (i.is_loop()) {
                mark_breaks(i, v->index);
            }
            if (i.op == Op::slot) {
                std::vector<Inst*> waiting = std::move(slot_stores[number(&i)]);
                for (Inst* store : waiting) mark_inst(*store);
            }
        }
    }
};

struct Sweeper {
    Marker& marker;
    bool changed = false;

    static bool live(const Value& v) { return v.id & Marker::kLive; }

    static void drop_operands(Inst& i, int from, const std::vector<bool>& dead) {
        int kept = from;
        for (int k = from; k < i.operand_count; ++k) {
            if (!dead[static_cast<size_t>(k - from)]) i.operands[kept++] = i.operands[k];
        }
        i.operand_count = static_cast<uint16_t>(kept);
    }
    static bool any(const std::vector<bool>& bits) {
        for (const bool b : bits) {
            if (b) return true;
        }
        return false;
    }
    void drop_exits(Region& r, Op op, const std::vector<bool>& dead) {
        for (Inst* i = r.first; i; i = i->next) {
            if (i->is_loop()) continue;
            if (i->op == op) drop_operands(*i, 0, dead);
            for (Region* c : i->region_list()) drop_exits(*c, op, dead);
        }
    }

    void shrink(Inst& i) {
        std::vector<bool> dead_results(i.result_count);
        for (int k = 0; k < i.result_count; ++k)
            dead_results[static_cast<size_t>(k)] = !live(i.results[k]);
        if (i.op == Op::if_) {
            if (!any(dead_results)) return;
            for (Region* r : i.region_list()) {
                if (r->last->op == Op::yield) drop_operands(*r->last, 0, dead_results);
            }
            erase_positions(i, dead_results);
            changed = true;
            return;
        }
        const uint32_t first = i.op == Op::for_ ? static_cast<uint32_t>(i.imm) : 0;
        Region::Params& params = i.body().params;
        std::vector<bool> dead_params(params.size() - first);
        for (uint32_t k = first; k < params.size(); ++k) dead_params[k - first] = !live(*params[k]);
        if (marker.one_position(i)) {
            for (size_t k = 0; k < dead_params.size(); ++k)
                dead_results[k] = dead_params[k] = dead_params[k] && dead_results[k];
        }
        if (any(dead_params)) {
            drop_operands(i, static_cast<int>(2 * first), dead_params);
            drop_exits(i.body(), Op::continue_, dead_params);
            uint32_t kept = first;
            for (uint32_t k = first; k < params.size(); ++k) {
                if (dead_params[k - first]) continue;
                params.data[kept] = params.data[k];
                params.data[kept]->index = kept;
                ++kept;
            }
            params.count = kept;
            changed = true;
        }
        if (any(dead_results)) {
            drop_exits(i.body(), Op::break_, dead_results);
            erase_positions(i, dead_results);
            changed = true;
        }
    }

    void sweep(Region& r) {
        for (Inst& i : r) {
            if (!marker.live_insts[marker.number(&i)]) {
                i.remove();
                changed = true;
                continue;
            }
            if (i.op == Op::if_ || i.is_loop()) shrink(i);
            for (Region* c : i.region_list()) sweep(*c);
        }
    }
};

}  // namespace

bool dce(Session& s, Function& f) {
    Marker m{.s = s,
             .work = {},
             .live_insts = {},
             .escapes = {},
             .effects = {},
             .insts = {},
             .slot_stores = {},
             .table = {},
             .exits_by_loop = {}};
    const uint32_t count = count_instructions(f);
    m.mask = 15;
    while (m.mask < 2 * count) m.mask = 2 * m.mask + 1;
    m.table.resize(m.mask + 1);
    m.collect(*f.body);
    m.live_insts.resize(count);
    m.escapes.resize(count);
    m.effects.resize(count);
    m.slot_stores.resize(count);
    for (Inst* i = f.body->first; i; i = i->next) m.analyse(*i);
    m.mark_roots(*f.body);
    m.propagate();
    Sweeper sweep{m};
    sweep.sweep(*f.body);
    return sweep.changed;
}

}  // namespace qd::pass
