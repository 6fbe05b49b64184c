// Cuts the kernel's body into tasks.
//
// Every parallel loop becomes a range task, every stretch between two a serial task. Instructions
// move, nothing is copied but what a later task needs again: constants, shapes, places and cheap
// arithmetic on them are computed anew at its entry; any other value is stored to a kernel
// temporary where it is defined and loaded where it is used. A slot that several tasks use, or that
// a parallel loop uses, becomes a temporary itself.
//
// The body of a group is cut like the kernel's, and no serial task goes over where a loop or a
// checkpoint begins or ends, nor, if the target runs them together, a section or a stream.
//
// A kernel that returns early stays one serial task: what follows would depend on a hidden flag.
//
// Needs: promoted slots, else every variable becomes memory.
// Cost:  O(instructions).

#include <algorithm>
#include <string>
#include <unordered_map>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int64_t kUsualBlock = 32;  // default_cpu_block_dim as it is: the runtime decides

struct Cutter {
    Session& s;
    Plan& plan;
    Function& kernel;
    struct Part {
        Function* f = nullptr;
        Inst* loop = nullptr;    // of a range task
        Inst* anchor = nullptr;  // entry computations go in front of it
        Task task;
        std::unordered_map<const Value*, Value*> here;  // values of other parts, and parameters
    };
    std::vector<Part> parts;
    std::vector<Inst*> cut;  // instructions of the kernel's body and of groups, in order
    std::unordered_map<const Inst*, uint32_t> part_of;  // of those
    std::unordered_map<const Value*, uint32_t> temps;   // byte offset
    std::unordered_map<const Value*, bool> shared_slots;
    std::unordered_map<const Value*, Value*> conditions;  // of checkpoints, as i32
    std::vector<std::pair<size_t, Value*>> flags;         // of Plan::groups, i32; inner ones first
    bool open = false;                                    // the last part is serial, and may go on

    uint32_t new_temp(Type t) {
        const uint32_t at = (plan.temps_bytes + 7) & ~7u;
        plan.temps_bytes = at + static_cast<uint32_t>(t.size_bytes());
        return at;
    }

    Part& new_part(abi::TaskKind kind, int group) {
        s.m.owned.push_back(std::make_unique<Function>(""));
        Part p;
        p.f = s.m.owned.back().get();
        for (const Value* v : kernel.body->params) p.f->add_param(*p.f->body, v->type);
        p.task.kind = kind;
        p.task.group = group;
        p.task.body = p.f;
        p.anchor = p.f->new_inst(Op::return_, 0, 0, 0);
        p.anchor->append_to(*p.f->body);
        parts.push_back(std::move(p));
        return parts.back();
    }

    void place(Inst& i, int group) {
        const bool range = !kernel.returns_early && is_parallel(i);
        if (i.op == Op::for_ && !range) i.ref = nullptr;
        if (range || !open) new_part(range ? abi::TaskKind::range : abi::TaskKind::serial, group);
        int& all = parts.back().task.group;
        all = common(all, group);
        open = !range;
        part_of[&i] = static_cast<uint32_t>(parts.size() - 1);
        cut.push_back(&i);
        if (range) parts.back().loop = &i;
    }

    // The innermost group around both.
    int common(int a, int b) const {
        while (a != b) {
            int& inner = a > b ? a : b;
            inner = plan.groups[static_cast<size_t>(inner)].parent;
        }
        return a;
    }

    void split(Region& r, int group) {
        for (Inst& i : r) {
            if (&i == r.last) break;
            if (i.is_group())
                split_group(i, group);
            else
                place(i, group);
        }
    }

    // Where they are computed, once for all checkpoints that one decides on: these need no task in
    // front of them.
    void find_conditions(Region& r) {
        for (Inst& i : r) {
            if (!i.is_group()) continue;
            for (int k = 0; k < i.operand_count; ++k) {
                Value* v = i.operand(k);
                Value*& flag = conditions[v];
                Region* home = v->def ? v->def->parent : kernel.body;
                if (!flag)
                    flag = Builder{&kernel, home, v->def ? v->def->next : home->first, i.loc}.cast(
                        v, Prim::i32);
            }
            find_conditions(i.body());
        }
    }

    void split_group(Inst& i, int parent) {
        const size_t number = plan.groups.size();
        plan.groups.push_back({.op = i.op, .parent = parent});
        Value* flag = i.operand_count ? conditions.at(i.operand(0)) : nullptr;
        if (Inst* end = i.body().last; end->operand_count)
            flag = before(*end).cast(end->operand(0), Prim::i32);
        const bool closed = flag || s.options.target.runs_together;
        open &= !closed;
        split(i.body(), static_cast<int>(number));
        open &= !closed;
        if (flag) flags.emplace_back(number, flag);
    }

    void find_shared_slots() {
        const auto use = [&](const Inst& i, uint32_t part, bool parallel) {
            for (int k = 0; k < i.operand_count; ++k) {
                const Value* v = i.operand(k);
                while (v->def && v->def->op == Op::comp_place) v = v->def->operand(0);
                if (!v->def || v->def->op != Op::slot) continue;
                const auto home = part_of.find(v->def);
                if (home != part_of.end() && (parallel || home->second != part))
                    shared_slots[v] = true;
            }
        };
        for (Inst* top : cut) {
            const uint32_t part = part_of[top];
            const bool parallel = parts[part].loop != nullptr;
            use(*top, part, parallel);
            for (Region* r : top->region_list()) {
                walk(*r, [&](Inst& i) { use(i, part, parallel); });
            }
        }
    }

    // Whether to compute v again in another part: always for places, which cannot be stored.
    bool again(const Value* v, int depth = 0) const {
        if (v->owner) return true;  // a parameter
        const Inst& d = *v->def;
        if (v->type.is_place() || v->type.is_array()) return true;
        const OpInfo& row = info(d.op);
        if (row.recompute && row.kind != Kind::elementwise && row.kind != Kind::tensor) return true;
        if (!row.recompute || depth > 3) return false;
        if (v->type.count() > 4 && d.op != Op::splat) return false;
        for (int k = 0; k < d.operand_count; ++k) {
            if (!again(d.operand(k), depth + 1)) return false;
        }
        return true;
    }

    uint32_t temp_of(const Value* v) {  // stores v where it is defined
        const auto [found, fresh] = temps.try_emplace(v, 0);
        if (!fresh) return found->second;
        const uint32_t at = found->second = new_temp(v->type);
        Inst& d = *v->def;
        Builder b{d.parent->function, d.parent, d.next, d.loc};
        Value* place = b.typed(Op::temp, v->type.place(), {}, at);
        b.store(place, const_cast<Value*>(v));
        return at;
    }

    Value* get(uint32_t part, Value* v) {
        Part& p = parts[part];
        if (v->owner) return p.f->body->params[v->index];
        const auto known = p.here.find(v);
        if (known != p.here.end()) return known->second;
        Builder b{p.f, p.f->body, p.anchor, v->def->loc};
        Value* copy = nullptr;
        if (v->def->op == Op::slot) {  // only shared ones come here
            const auto [found, fresh] = temps.try_emplace(v, 0);
            if (fresh) found->second = new_temp(v->type.value());
            copy = b.typed(Op::temp, v->type, {}, found->second);
        } else if (again(v)) {
            Inst* c = copy_inst(*v->def, *p.f);
            for (int k = 0; k < c->operand_count; ++k)
                c->operands[k] = in_part(part, c->operands[k]);
            c->insert_before(*p.anchor);
            copy = c->result(static_cast<int>(v->index));
        } else {
            const uint32_t at = temp_of(v);
            copy = b.load(b.typed(Op::temp, v->type.place(), {}, at));
        }
        part_of[copy->def] = part;  // a third part may need a copy of the copy
        return parts[part].here[v] = copy;
    }

    // The value that part `part` uses for v of the kernel.
    Value* in_part(uint32_t part, Value* v) {
        if (v->owner) return v->owner->owner ? v : get(part, v);
        const auto home = part_of.find(v->def);
        if (home == part_of.end()) return v;  // defined in a nested region: moves along
        if (v->def->op == Op::slot && shared_slots.count(v)) return get(part, v);
        return home->second == part ? v : get(part, v);
    }

    void rewrite(uint32_t part, Inst& i) {
        for (int k = 0; k < i.operand_count; ++k) i.operands[k] = in_part(part, i.operand(k));
        for (Region* r : i.region_list()) {
            for (Inst& c : *r) rewrite(part, c);
        }
    }

    void move() {
        for (Inst* i : cut) {
            Part& p = parts[part_of[i]];
            i->remove();
            if (i->op == Op::slot && shared_slots.count(i->result())) continue;
            i->append_to(*p.f->body);
            for (Region* r : i->region_list()) adopt(*r, *p.f);
        }
        while (kernel.body->first != kernel.body->last) kernel.body->first->remove();  // groups
        for (uint32_t k = 0; k < parts.size(); ++k) {
            Part& p = parts[k];
            // Entry computations stand in front of the anchor, the part's own instructions behind.
            std::vector<Inst*> own;
            for (Inst* i = p.anchor->next; i; i = i->next) own.push_back(i);
            if (p.loop) bounds(k);
            for (Inst* i : own) rewrite(k, *i);
        }
        for (Part& p : parts) {
            p.anchor->remove();
            p.anchor->append_to(*p.f->body);
        }
    }

    static Value* through_widening(Value* v) {
        while (v->def && v->def->op == Op::cast && v->type.prim == Prim::i64 &&
               v->def->operand(0)->type.prim == Prim::i32) {
            v = v->def->operand(0);
        }
        return v;
    }

    // If they are known.
    static int64_t iterations(const Task& task) {
        int64_t all = 1;
        for (int d = 0; d < task.dims; ++d) {
            const abi::Bound &begin = task.bounds[2 * d], &end = task.bounds[2 * d + 1];
            const bool known =
                begin.kind == abi::BoundKind::constant && end.kind == abi::BoundKind::constant;
            int64_t extent;
            if (!known || __builtin_sub_overflow(end.value, begin.value, &extent) ||
                __builtin_mul_overflow(all, std::max<int64_t>(0, extent), &all))
                return -1;
        }
        return all;
    }

    static uint8_t bytes_of(const Value* v) {
        return static_cast<uint8_t>(type::bytes(v->type.prim));
    }

    // An argument or the length of one, or its sum with a constant: no task has to compute it.
    bool from_arguments(Value* v, abi::Bound& bound) const {
        bound = {.kind = abi::BoundKind::arg};
        const bool is_signed = v->type.prim == Prim::i32 || v->type.prim == Prim::i64;
        if (v->def && is_signed && (v->def->op == Op::add || v->def->op == Op::sub) &&
            is_constant(v->def->operand(1))) {
            const Value* c = v->def->operand(1);
            const int64_t by = constant_int(c);
            if (by <= -INT32_MAX || by >= INT32_MAX) return false;
            bound.sum_bytes = bytes_of(v);
            bound.addend = static_cast<int32_t>(v->def->op == Op::add ? by : -by);
            v = through_widening(v->def->operand(0));
        }
        bound.bytes = bytes_of(v);
        if (v->owner) {
            bound.value = s.m.params[v->index].offset;
            return true;
        }
        if (v->def->op != Op::array_shape || !v->def->operand(0)->owner) return false;
        const Param& param = s.m.params[v->def->operand(0)->index];
        bound.value = param.offset + static_cast<int64_t>(sizeof(ArrayDesc) + 4 * v->def->imm);
        return true;
    }

    void bounds(uint32_t part) {
        Part& p = parts[part];
        Inst& loop = *p.loop;
        p.task.dims = static_cast<int>(loop.imm);
        for (int k = 0; k < 2 * p.task.dims; ++k) {
            Value* v = through_widening(loop.operand(k));
            abi::Bound& bound = p.task.bounds[k];
            if (is_constant(v)) {
                bound = {.kind = abi::BoundKind::constant,
                         .bytes = bytes_of(v),
                         .value = constant_int(v)};
            } else if (!from_arguments(v, bound)) {
                bound = {.kind = abi::BoundKind::temp, .bytes = bytes_of(v), .value = temp_of(v)};
            }
        }
        const LoopConfig& c = *loop.loop_config();
        const ModuleOptions& o = s.m.options;
        const bool asked = !s.options.target.threads && o.default_cpu_block_dim != kUsualBlock;
        p.task.block_dim = c.block_dim ? c.block_dim : asked ? int(o.default_cpu_block_dim) : 0;
        p.task.max_threads = o.make_cpu_multithreading_loop ? c.max_threads : 1;
        p.task.fixed_mapping = c.block_dim > 0;
        p.task.most_iterations = iterations(p.task);
        const bool in_a_block = p.task.fixed_mapping && p.task.most_iterations >= 0 &&
                                p.task.most_iterations <= c.block_dim;
        p.task.shape = in_a_block ? Shape::block : Shape::grid;
        p.task.name = c.name;
    }
};

bool does_something(const Session& s, const Function& f) {
    for (const Inst* i = f.body->first; i; i = i->next) {
        const Summary x = summary_of(s, *i);
        if (x.writes || (x.observable && i->op != Op::seed)) return true;
    }
    return false;
}

bool is_temp(const Value* place, int32_t offset) {
    return place->def && place->def->op == Op::temp && int64_t(place->def->imm) == offset;
}

// Whether all that the function does is to store to the temporary.
bool only_sets(const Session& s, const Function& f, int32_t temp) {
    int writes = 0;
    for (const Inst* i = f.body->first; i; i = i->next) {
        if (i->op == Op::volatile_load) continue;
        const Summary x = summary_of(s, *i);
        if (x.observable && i->op != Op::seed) return false;
        if (!x.writes) continue;
        if (i->op != Op::store || !is_temp(i->operand(0), temp)) return false;
        ++writes;
    }
    return writes == 1;
}

// Whoever starts a task sees what was in memory by then: the condition at its end need not be read
// as if others changed it, which puts other accesses in order.
void read_plainly(Function& task, int32_t flag) {
    Inst* condition = nullptr;
    walk(*task.body, [&](Inst& i) {
        if (i.op != Op::store || !is_temp(i.operand(0), flag)) return;
        const Value* v = i.operand(1);
        while (v->def && v->def->op == Op::cast) v = v->def->operand(0);
        if (v->def && v->def->op == Op::volatile_load) condition = v->def;
    });
    if (!condition) return;
    replace(condition->result(), before(*condition).load(condition->operand(0)));
    condition->remove();
}

}  // namespace

void offload(Session& s, Plan& plan) {
    Function& kernel = s.m.kernel();
    Cutter c{.s = s,
             .plan = plan,
             .kernel = kernel,
             .parts = {},
             .cut = {},
             .part_of = {},
             .temps = {},
             .shared_slots = {},
             .conditions = {},
             .flags = {}};
    c.find_conditions(*kernel.body);
    c.split(*kernel.body, -1);
    c.find_shared_slots();
    c.move();
    for (const auto& [group, flag] : c.flags)
        plan.groups[group].flag = static_cast<int32_t>(c.temp_of(flag));
    std::vector<Shortness> shortness;
    const bool joins =
        s.options.target.threads && s.m.options.advanced_optimization && enabled(s, "join_tasks");
    for (Cutter::Part& p : c.parts) {
        dce(s, *p.f);
        if (!does_something(s, *p.f)) continue;
        Task task = std::move(p.task);
        const int32_t flag = task.group >= 0 ? plan.groups[size_t(task.group)].flag : -1;
        if (flag >= 0 && s.options.target.threads) read_plainly(*p.f, flag);
        task.counted = p.loop || flag < 0 || !only_sets(s, *p.f, flag);
        const std::string number = std::to_string(plan.tasks.size());
        p.f->name = "task" + number;
        if (task.name.empty()) task.name = (p.loop ? "range" : "serial") + number;
        if (joins) shortness.push_back(shortness_of(s, task, p.loop));
        if (p.loop) {
            std::vector<Accumulator> accumulators;
            if (s.m.options.make_thread_local && enabled(s, "reduce"))
                reduce(s, task, *p.loop, accumulators);
            (s.options.target.threads ? lower_threads : lower_units)(s, task, *p.loop,
                                                                     accumulators);
            if (task.finish) task.finish->name = "finish" + number;
            if (joins && (task.finish || task.iterations != 1)) shortness.back() = {};
        }
        task.ends_serial = !p.loop || task.max_threads == 1;
        plan.tasks.push_back(std::move(task));
    }
    if (joins) join_tasks(s, plan, shortness);
    plan.temps_bytes = (plan.temps_bytes + 7) & ~7u;
}

}  // namespace qd::pass
