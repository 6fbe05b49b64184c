// Changes to instructions that several passes make, and facts about functions.

#include <algorithm>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {

using namespace ir;

bool enabled(const ModuleOptions& options, std::string_view pass) {
    std::string_view left = options.disable_pass;
    while (!left.empty()) {
        const size_t comma = std::min(left.find(','), left.size());
        if (left.substr(0, comma) == pass) return false;
        left.remove_prefix(std::min(comma + 1, left.size()));
    }
    return true;
}

Value* narrowed(Builder& b, Value* v, Prim p) {
    Value* n = b.cast(v, p);
    if (n != v && n->def->op == Op::cast) n->def->flags |= kNoWrap;
    return n;
}

bool is_parallel(const Inst& i) {
    const LoopConfig* c = i.op == Op::for_ ? i.loop_config() : nullptr;
    return c && c->parallel && !c->strictly_serial;
}

void add_operands(Inst& i, std::span<Value* const> values) {
    Function& f = *i.parent->function;
    const size_t old = i.operand_count;
    QD_CHECK(old + values.size() <= UINT16_MAX, "too many operands");
    Value** grown = f.arena.array<Value*>(old + values.size());
    std::copy_n(i.operands, old, grown);
    std::copy(values.begin(), values.end(), grown + old);
    i.operands = grown;
    i.operand_count = static_cast<uint16_t>(old + values.size());
}

namespace {
void set_results(Inst& i, const std::vector<std::pair<Type, Value*>>& wanted) {
    Value* fresh = i.parent->function->arena.array<Value>(wanted.size());
    for (size_t k = 0; k < wanted.size(); ++k) {
        fresh[k].type = wanted[k].first;
        fresh[k].def = &i;
        fresh[k].index = static_cast<uint32_t>(k);
        if (wanted[k].second) wanted[k].second->replaced = &fresh[k];
    }
    i.results = fresh;
    i.result_count = static_cast<uint16_t>(wanted.size());
}
}  // namespace

void add_results(Inst& i, std::span<const Type> types) {
    std::vector<std::pair<Type, Value*>> wanted;
    for (Value& v : i.result_values()) {
        // A result that was replaced by something else keeps that; nothing reads the new one.
        wanted.emplace_back(v.type, v.replaced ? nullptr : &v);
    }
    for (const Type t : types) wanted.emplace_back(t, nullptr);
    set_results(i, wanted);
}

void erase_positions(Inst& i, const std::vector<bool>& dead_results) {
    std::vector<std::pair<Type, Value*>> wanted;
    for (int k = 0; k < i.result_count; ++k) {
        if (!dead_results[static_cast<size_t>(k)]) {
            wanted.emplace_back(i.results[k].type, i.results[k].replaced ? nullptr : &i.results[k]);
        }
    }
    set_results(i, wanted);
}

Builder before(Inst& i) { return {i.parent->function, i.parent, &i, i.loc}; }

Inst* copy_inst(const Inst& i, Function& to) {
    Inst* c = to.new_inst(i.op, i.operand_count, i.result_count, 0);
    for (int k = 0; k < i.operand_count; ++k) c->operands[k] = i.operand(k);
    for (int k = 0; k < i.result_count; ++k) c->results[k].type = i.results[k].type;
    c->flags = i.flags;
    c->imm = i.imm;
    c->ref = i.ref;
    c->loc = i.loc;
    return c;
}

Prim integer_of(Prim p) {
    switch (type::bytes(p)) {
        case 1:
            return Prim::u8;
        case 2:
            return Prim::u16;
        case 4:
            return Prim::u32;
        default:
            return Prim::u64;
    }
}

Inst* splice_before(Region& from, Inst& at) {
    while (from.first && from.first->effect() != Effect::terminator) {
        Inst* i = from.first;
        i->move_before(at);
    }
    return from.first;
}

void adopt(Region& r, Function& f) {
    r.function = &f;
    for (Inst* i = r.first; i; i = i->next) {
        for (Region* c : i->region_list()) adopt(*c, f);
    }
}

uint32_t count_instructions(const Function& f) {
    uint32_t n = 0;
    walk(*f.body, [&](Inst&) { ++n; });
    return n;
}

Inst* new_for(Builder& b, Value* low, Value* high, std::span<Value* const> carried) {
    std::vector<Value*> operands = {low, high};
    std::vector<Type> types;
    for (Value* v : carried) {
        operands.push_back(v);
        types.push_back(v->type);
    }
    Inst* i = b.emit(Op::for_, operands, types, 1);
    i->imm = 1;
    return i;
}

namespace {
// `left`: scalar operations that it may still have.
bool is_plain_region(const Region& r, bool top, Plain kind, uint32_t& left) {
    for (const Inst* i = r.first; i; i = i->next) {
        const Type t = i->result_count ? i->results[0].type : type::kNone;
        const uint32_t cost = i->op == Op::constant ? 0
                              : t.is_value()        ? static_cast<uint32_t>(t.count())
                                                    : 1;
        if (cost > left) return false;
        left -= cost;
        switch (i->effect()) {
            case Effect::pure:
            case Effect::read:
                break;
            case Effect::write:
                if (kind != Plain::stores) return false;
                break;
            case Effect::atomic:
                if (kind != Plain::adds || (i->op != Op::atomic_add && i->op != Op::atomic_sub))
                    return false;
                break;
            case Effect::region:
                if (i->op != Op::if_) return false;
                for (const Region* c : i->region_list())
                    if (!is_plain_region(*c, false, kind, left)) return false;
                break;
            case Effect::terminator:
                if (i->op != (top ? Op::continue_ : Op::yield)) return false;
                break;
            default:
                return false;
        }
    }
    return true;
}
}  // namespace

bool is_plain(const Region& body, uint32_t most, Plain kind) {
    return is_plain_region(body, true, kind, most);
}

// --- the call graph

namespace {
void visit(Function& f, std::vector<Function*>& order, int depth) {
    constexpr uint32_t kOpen = UINT32_MAX - 1, kUnseen = UINT32_MAX;
    if (depth > 1000) throw support::Error("calls nest too deeply at " + f.name);
    if (f.id == kOpen) f.never_inline = true;  // a recursive function stays one
    if (f.id != kUnseen) return;
    f.id = kOpen;
    walk(*f.body, [&](Inst& i) {
        if (i.op == Op::call) visit(*i.callee(), order, depth + 1);
    });
    f.id = static_cast<uint32_t>(order.size());
    order.push_back(&f);
}
}  // namespace

std::vector<Function*> callees_first(Module& m) {
    complete(m);
    for (Function* f : m.functions) f->id = UINT32_MAX;
    std::vector<Function*> order;
    for (Function* f : m.functions) visit(*f, order, 0);
    return order;
}

Summary summary_of(const Session& s, const Inst& i) {
    Summary out;
    const Type t = i.result_count ? i.results[0].type : type::kNone;
    out.cost = t.is_value() ? static_cast<uint32_t>(t.count()) : 1;
    switch (i.effect()) {
        case Effect::pure:
        case Effect::alloc:
            break;
        case Effect::terminator:
            out.cost = 0;
            break;
        case Effect::read:
            out.reads = true;
            break;
        case Effect::write:
            out.writes = true;
            break;
        case Effect::atomic:
            out.reads = out.writes = true;
            break;
        case Effect::check:
            out.observable = true;
            break;
        case Effect::io:
            out.observable = true;
            out.random = i.op == Op::random;
            out.meets = info(i.op).kind == Kind::threads;
            out.reads = out.writes = info(i.op).fences;
            break;
        case Effect::region:
            break;
        case Effect::call: {
            const Summary c = s.summaries[i.callee()->id];
            out = c;
            out.cost = 3 + i.operand_count;
            break;
        }
    }
    if (i.op == Op::constant) out.cost = 0;
    out.meets |= info(i.op).root == Root::shared;
    out.loops |= i.is_loop();
    for (const Region* r : i.region_list()) out.add(summary_of(s, *r));
    return out;
}

Summary summary_of(const Session& s, const Region& r) {
    Summary all;
    for (const Inst* i = r.first; i; i = i->next) all.add(summary_of(s, *i));
    return all;
}

void summarise(Session& s, const std::vector<Function*>& order) {
    // A function that is not summarised yet, because it is recursive, may do anything.
    Summary anything;
    anything.reads = anything.writes = anything.observable = true;
    anything.random = anything.loops = anything.meets = true;
    s.summaries.assign(order.size(), anything);
    s.call_sites.assign(order.size(), 0);
    for (Function* f : order) {
        s.summaries[f->id] = summary_of(s, *f->body);
        walk(*f->body, [&](Inst& i) {
            if (i.op == Op::call) ++s.call_sites[i.callee()->id];
        });
    }
}

}  // namespace qd::pass
