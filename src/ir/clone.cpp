// Copies regions, inside a function or into another one. O(instructions copied).

#include <algorithm>
#include <unordered_map>

#include "ir/ir.h"

namespace qd::ir {
namespace {

struct Cloner {
    Function& to;
    const Loc* caller;
    std::vector<std::pair<const Value*, Value*>> map;  // Value::id is the index of its pair
    std::unordered_map<const Loc*, const Loc*> locs;

    void bind(const Value* from, Value* copy) {
        const_cast<Value*>(from)->id = static_cast<uint32_t>(map.size());
        map.emplace_back(from, copy);
    }
    Value* mapped(Value* v) const {  // a stale id points at another value's pair
        return v->id < map.size() && map[v->id].first == v ? map[v->id].second : v;
    }

    const Loc* loc_of(const Loc* loc) {
        if (!caller || !loc) return caller ? caller : loc;
        const Loc*& copy = locs[loc];
        if (!copy) {
            Loc l = *loc;
            l.caller = loc->caller ? loc_of(loc->caller) : caller;
            copy = to.new_loc(l);
        }
        return locs[loc];
    }

    void copy_body(const Region& from, Region& into) {
        for (Inst& i : from) {
            Inst* c = to.new_inst(i.op, i.operand_count, i.result_count, i.region_count);
            for (int k = 0; k < i.operand_count; ++k) c->operands[k] = mapped(i.operand(k));
            for (int k = 0; k < i.result_count; ++k) {
                c->results[k].type = i.results[k].type;
                bind(i.result(k), c->result(k));
            }
            c->flags = i.flags;
            c->imm = i.imm;
            c->ref = i.ref;
            c->loc = loc_of(i.loc);
            c->append_to(into);
            for (int k = 0; k < i.region_count; ++k) {
                for (Value* p : i.regions[k]->params)
                    bind(p, to.add_param(*c->regions[k], p->type));
                copy_body(*i.regions[k], *c->regions[k]);
            }
        }
    }
};

}  // namespace

Region* clone_into(const Region& from, Function& to,
                   std::vector<std::pair<const Value*, Value*>> params, const Loc* caller) {
    Cloner c{to, caller, {}, {}};
    Region* copy = to.new_region(nullptr);
    for (const auto& [value, replacement] : params) {
        c.bind(resolve(const_cast<Value*>(value)), resolve(replacement));
    }
    // Parameters that the caller maps get no copy.
    for (Value* p : from.params) {
        const bool given =
            std::ranges::any_of(params, [&](const auto& pair) { return pair.first == p; });
        if (!given) c.bind(p, to.add_param(*copy, p->type));
    }
    c.copy_body(from, *copy);
    return copy;
}

}  // namespace qd::ir
