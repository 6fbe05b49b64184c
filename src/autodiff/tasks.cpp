// The tasks of a kernel in reverse mode, and what happens to their effects.
//
// Loops go back in reverse order. Effects on storage without gradients stay with the forward code
// of the last; of earlier ones they wait for their own way back if nobody else sees them, or happen
// in front.

#include <algorithm>

#include "autodiff/records.h"

namespace qd::autodiff {
namespace {

// Storage, and which component of its elements; -1: any.
struct Part {
    uint64_t memory;
    int64_t component;

    bool meets(const Part& other) const {
        return memory == other.memory &&
               (component == other.component || component < 0 || other.component < 0);
    }
};

struct Kernel {
    Module& m;
    const Request& request;
    Function& f = m.kernel();
    Storage storage{m, request};  // whose arrays are found

    template <class F>
    void each_write(Region& r, F&& f) const {
        walk(r, [&](Inst& i) {
            const bool writes = i.effect() == Effect::write || i.effect() == Effect::atomic;
            if (writes && is_effect(i, storage)) f(i.operand(0));
        });
    }
    std::vector<uint64_t> written(Region& r) const {
        std::vector<uint64_t> out;
        each_write(r, [&](Value* place) { out.push_back(storage.memory_class(place)); });
        return out;
    }
    std::vector<Part> written_parts(Region& r) const {
        std::vector<Part> out;
        each_write(r, [&](Value* place) { out.push_back(part_of(place)); });
        return out;
    }
    Part part_of(const Value* place) const {
        const Inst& d = *place->def;
        const Value* k = d.op == Op::comp_place ? d.operand(1) : nullptr;
        const bool known = k && is_constant(k) && d.operand(0)->def->op != Op::comp_place;
        return {storage.memory_class(place),
                known ? int_of_bits(k->type.prim, constant_bits(k)) : -1};
    }

    // What the kernel stores to, under no condition, before it looks at it: to do that again leads
    // to the same.
    std::unordered_set<uint64_t> begun() const {
        std::unordered_set<uint64_t> seen, out;
        const auto visit = [&](auto&& self, Region& r, bool always) -> void {
            for (Inst& i : r) {
                const Effect e = i.effect();
                if (e == Effect::read || e == Effect::write || e == Effect::atomic) {
                    const uint64_t memory = storage.memory_class(i.operand(0));
                    const bool first = seen.insert(memory).second;
                    if (first && always && i.op == Op::store) out.insert(memory);
                }
                for (Region* c : i.region_list()) self(self, *c, always && i.op != Op::if_);
            }
        };
        visit(visit, *f.body, true);
        return out;
    }

    // Of tasks that others follow: whether their effects may wait for the way back, which comes
    // after those of the others. Nobody sees when they happen.
    std::vector<bool> can_wait(const std::vector<Inst*>& tasks) const {
        std::unordered_map<uint64_t, int> users;  // tasks that touch it, by memory class
        std::vector<bool> waits;
        for (const Inst* task : tasks) {
            std::unordered_set<uint64_t> touched;
            bool quiet = true;
            walk(task->body(), [&](Inst& i) {
                const Effect e = i.effect();
                quiet &= e != Effect::io && e != Effect::check;
                if (i.op == Op::load || e == Effect::write || e == Effect::atomic)
                    touched.insert(storage.memory_class(i.operand(0)));
            });
            waits.push_back(quiet);
            for (const uint64_t c : touched) ++users[c];
        }
        for (size_t k = 0; k < tasks.size(); ++k)
            for (const uint64_t c : written(tasks[k]->body())) waits[k] = waits[k] && users[c] == 1;
        return waits;
    }

    // What the way back reads must not have been overwritten meanwhile, nor be known only to what
    // happened already. Effects that do not wait for it have read for themselves, and read the same
    // as without the way back if what they read was begun anew; that cells are active is no matter.
    void check_order(Inst& loop, const std::vector<Part>& later, bool waits) const {
        const auto asked = used_values(loop.body(), {kUpkeep});
        const auto needed = used_values(loop.body(), {kUpkeep, waits ? nullptr : &storage});
        const std::unordered_set<uint64_t> anew = begun();
        walk(loop.body(), [&](Inst& i) {
            const bool accesses = i.op == Op::load || i.effect() == Effect::atomic;
            if (!accesses || !asked.contains(i.result())) return;
            const Part read = part_of(i.operand(0));
            if (std::ranges::none_of(later, [&](const Part& p) { return p.meets(read); })) return;
            if (!needed.contains(i.result()) && i.op == Op::load && anew.contains(read.memory))
                return;
            refuse(
                "Not supported. A loop reads what it, or a loop behind it, overwrites, and "
                "the kernel has further loops. Split the kernel",
                i);
        });
    }

    // Leaves what is to be done again of a task that goes back later; a copy does that, and the
    // effects too, if they wait.
    Inst* set_aside(Inst& task, bool waits) {
        std::vector<Value*> operands;
        for (int k = 0; k < task.operand_count; ++k) operands.push_back(task.operand(k));
        Builder b{&f, f.body, f.body->last, task.loc};
        Inst* copy = b.emit(task.op, operands, {}, task.region_count);
        copy->imm = task.imm;
        copy->ref = task.ref;
        copy->flags = task.flags;
        for (int k = 0; k < task.region_count; ++k) {
            copy->regions[k] = clone_into(*task.regions[k], f, {});
            copy->regions[k]->owner = copy;
        }
        if (!waits) drop_effects(copy->body(), storage, false);
        drop_effects(task.body(), storage, true);
        if (waits) task.remove();
        return copy;
    }

    void run() {
        std::vector<Inst*> tasks;
        for (Inst& i : *f.body)
            if (is_parallel_loop(i)) tasks.push_back(&i);
        std::vector<uint64_t> all = written(*f.body);
        if (m.arrays_may_overlap && !all.empty()) all.push_back(kAnyMemory);
        hoist_loads(f, storage, all);
        std::vector<Region*> roots = {f.body};
        if (!tasks.empty()) roots = order_tasks(tasks);
        const std::vector<Function*> functions = pass::callees_first(m);
        const Activity activity(functions, storage);
        activity.check_smooth();
        const Ways ways = make_ways(m, storage, activity, request, all);
        for (size_t k = 0; k < roots.size(); ++k)
            sweep({m, storage, request, activity, ways, all, k, *roots[k]});
    }

    std::vector<Region*> order_tasks(const std::vector<Inst*>& tasks) {
        std::vector<Region*> order;
        std::vector<Part> later;
        const std::vector<bool> waits = can_wait(tasks);
        for (size_t k = tasks.size(); k-- > 0;) {
            const bool last = k + 1 == tasks.size();
            const std::vector<Part> own = written_parts(tasks[k]->body());
            if (!waits[k]) later.insert(later.end(), own.begin(), own.end());
            if (!last) check_order(*tasks[k], later, waits[k]);
            if (waits[k]) later.insert(later.end(), own.begin(), own.end());
            order.push_back(&(last ? tasks[k] : set_aside(*tasks[k], waits[k]))->body());
        }
        return order;
    }
};

}  // namespace

void reverse(Module& m, const Request& request) {
    const std::vector<Function*> functions = pass::callees_first(m);
    Kernel kernel{m, request};
    kernel.storage.find_arrays(functions);
    kernel.run();
}

}  // namespace qd::autodiff
