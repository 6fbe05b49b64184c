// Numbers the values of a plan and the classes of memory, collects the format table and splits the
// plan into parts.
// O(instructions).

#include <algorithm>
#include <unordered_set>

#include "codegen/llvm/codegen.h"

namespace qd::codegen {
namespace {

struct Numbering {
    Prepared& out;
    std::unordered_map<const ir::Format*, std::vector<uint32_t>> known;
    std::unordered_map<const ir::Loc*, uint32_t> sites;
    std::unordered_set<const ir::Function*> harmless;  // no check of theirs or a callee's speaks
    bool speaks = false;                               // the present function
    std::vector<Call> calls;
    uint32_t function = 0, next = 0;

    void number(ir::Value& v) {
        v.id = next;
        next += v.type.is_value() ? uint32_t(v.type.count()) : 1;
    }

    void region(ir::Region& r) {
        for (ir::Value* v : r.params) number(*v);
        for (ir::Inst* i = r.first; i; i = i->next) {
            for (ir::Value*& v : i->operand_slots()) v = ir::resolve(v);
            for (ir::Value& v : i->result_values()) number(v);
            if (ir::info(i->op).refers == ir::Refers::format) format(*i);
            speaks |= i->op == ir::Op::assert_ || reports(*i);
            if (i->op == ir::Op::call) calls.push_back({function, i->callee()});
            if (i->op == ir::Op::call && out.plan.module->options.check_indices() &&
                !harmless.contains(i->callee())) {
                speaks = true;
                if (i->loc) out.call_sites[i] = site(i->loc);
            }
            for (ir::Region* c : i->region_list()) region(*c);
        }
    }

    static bool reports(const ir::Inst& i) {
        return i.op == ir::Op::print && !i.format()->function.empty();
    }

    static std::vector<support::SourceSite> sites_of(const ir::Loc* l) {
        std::vector<support::SourceSite> out;
        for (; l; l = l->caller)
            out.push_back({std::string(l->file), std::string(l->function), l->line, l->col,
                           l->end_line, l->end_col});
        return out;
    }

    uint32_t site(const ir::Loc* l) {
        const auto [found, fresh] = sites.try_emplace(l, uint32_t(out.format_table.size()));
        if (fresh) {
            out.format_table.emplace_back();
            out.format_table.back().sites = sites_of(l);
        }
        return found->second;
    }

    void format(ir::Inst& i) {
        const ir::Format& f = *i.format();
        support::FormatEntry e;
        for (const auto& p : f.pieces) e.pieces.push_back({p.text, p.conversion});
        for (int k = i.op == ir::Op::assert_; k < i.operand_count; ++k) {
            const type::Type t = i.operands[k]->type;
            e.operands.push_back({uint8_t(t.prim), t.rank, t.n, t.m});
        }
        e.function = f.function;
        if (i.op == ir::Op::assert_ || reports(i)) e.sites = sites_of(i.loc);
        const auto same_operand = [](const support::FormatOperand& x,
                                     const support::FormatOperand& y) {
            return x.prim == y.prim && x.rank == y.rank && x.n == y.n && x.m == y.m;
        };
        for (uint32_t number : known[&f]) {
            const auto& other = out.format_table[number];
            if (e.sites == other.sites &&
                std::ranges::equal(e.operands, other.operands, same_operand)) {
                out.formats[&i] = number;
                return;
            }
        }
        const auto number = uint32_t(out.format_table.size());
        known[&f].push_back(number);
        out.format_table.push_back(std::move(e));
        out.formats[&i] = number;
    }
};

void number_memory(Prepared& out) {
    Memory& memory = out.memory;
    const ir::Module& m = *out.plan.module;
    memory.mixed = m.arrays_may_overlap;
    memory.array0 = kField0;
    for (const ir::Field* f : m.fields)
        memory.array0 += memory.groups.try_emplace(f->alias_group, memory.array0).second;
    memory.count = memory.array0 + uint32_t(m.params.size());
    const size_t words = memory.count / 64 + 1;
    memory.written.assign(out.functions.size(), std::vector<uint64_t>(words));
    const auto join = [&](std::vector<uint64_t>& to, const std::vector<uint64_t>& from) {
        bool changed = false;
        for (size_t w = 0; w < words; ++w) {
            changed |= (from[w] & ~to[w]) != 0;
            to[w] |= from[w];
        }
        return changed;
    };
    for (bool changed = true; changed;) {  // callees come first: the second round is the last
        changed = false;
        for (ir::Function* f : out.functions) {
            std::vector<uint64_t>& mine = memory.written[f->id];
            ir::walk(*f->body, [&](ir::Inst& i) {
                if (i.effect() == ir::Effect::write || i.effect() == ir::Effect::atomic) {
                    const uint32_t c = memory.of(out.plan, i.operands[0]);
                    if (c == UINT32_MAX || memory.is_written(f->id, c)) return;
                    mine[c / 64] |= uint64_t{1} << (c % 64);
                    changed = true;
                } else if (i.op == ir::Op::call) {
                    changed |= join(mine, memory.written[i.callee()->id]);
                } else if (ir::info(i.op).fences && !memory.is_written(f->id, kMixed)) {
                    std::ranges::fill(mine, ~uint64_t{0});  // by threads that it waits for
                    changed = true;
                }
            });
        }
    }
    std::vector<uint64_t> anywhere(words);
    for (const std::vector<uint64_t>& w : memory.written) join(anywhere, w);
    for (const ir::Function* f : out.plan.callees) memory.written[f->id] = anywhere;
}

}  // namespace

// UINT32_MAX: a local variable.
uint32_t Memory::of(const pass::Plan& plan, const ir::Value* place) const {
    const ir::Inst* d = ir::root_of_place(const_cast<ir::Value*>(place))->def;
    if (!d) return kMixed;
    switch (ir::info(d->op).root) {
        case ir::Root::slot:
            return UINT32_MAX;
        case ir::Root::temp:
            return kTemps;
        case ir::Root::partial:
            return kPartials;
        case ir::Root::thread:
            return kThread;
        case ir::Root::shared:
            return kShared;
        case ir::Root::tape:
            return kTape;
        case ir::Root::field:
            return field(*d->field());
        case ir::Root::array:
            return array(plan, ir::resolve(d->operands[0]));
        case ir::Root::none:
            break;
    }
    return kMixed;
}

Prepared prepare(pass::Plan plan) {
    Prepared out;
    out.plan = std::move(plan);
    Numbering numbering{out, {}};
    std::vector<uint32_t> sizes;
    const auto add = [&](ir::Function* f) {
        f->id = uint32_t(out.functions.size());
        out.functions.push_back(f);
        numbering.function = f->id;
        numbering.next = 0;
        numbering.speaks = false;
        numbering.region(*f->body);
        sizes.push_back(out.plan.sizes.at(f));
        if (!numbering.speaks) numbering.harmless.insert(f);
        out.value_counts.push_back(numbering.next);
    };
    for (ir::Function* f : out.plan.callees) add(f);
    for (pass::Task& t : out.plan.tasks) {
        add(t.body);
        if (t.finish) add(t.finish);
    }
    number_memory(out);
    split(out, sizes, numbering.calls);
    return out;
}

}  // namespace qd::codegen
