// The tasks of a kernel in reverse mode, and what happens to their effects.
//
// Loops go back in reverse order. Effects on storage without gradients stay with the forward code
// of the last; of earlier ones they wait for their own way back if nobody else sees them, or happen
// in front.

#include <algorithm>

#include "autodiff/records.h"

namespace qd::autodiff {
namespace {

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

struct Kernel {
    Module& m;
    const Request& request;
    Function& f = m.kernel();
    Storage storage{m, request};

    std::vector<uint64_t> written(Region& r) const {
        std::vector<uint64_t> out;
        walk(r, [&](Inst& i) {
            const bool writes = i.effect() == Effect::write || i.effect() == Effect::atomic;
            if (writes && is_effect(i, storage)) out.push_back(memory_class(i.operand(0)));
        });
        return out;
    }

    // Of a task that others follow: whether its effects may wait for the way back, which comes
    // after theirs. Nobody sees when they happen.
    bool can_wait(Inst& task, const std::vector<Inst*>& tasks) const {
        const std::vector<uint64_t> own = written(task.body());
        bool yes = true;
        walk(task.body(), [&](Inst& i) {
            const Effect e = i.effect();
            yes &= e != Effect::io && e != Effect::check;
        });
        for (const Inst* other : tasks) {
            if (other == &task) continue;
            walk(other->body(), [&](Inst& i) {
                const bool touches =
                    i.op == Op::load || i.effect() == Effect::write || i.effect() == Effect::atomic;
                if (touches && std::ranges::find(own, memory_class(i.operand(0))) != own.end())
                    yes = false;
            });
        }
        return yes;
    }

    // What the way back reads must not have been overwritten meanwhile, nor be known only to what
    // happened already.
    void check_order(Inst& loop, const std::vector<uint64_t>& later) const {
        const std::unordered_set<const Value*> used = used_values(loop.body());
        walk(loop.body(), [&](Inst& i) {
            const bool accesses = i.op == Op::load || i.effect() == Effect::atomic;
            const bool reads = accesses && used.contains(i.result());
            if (!reads || !may_be_among(later, i.operand(0))) return;
            refuse(
                "Not supported: a loop reads what it, or a loop behind it, overwrites, and "
                "the kernel has further loops. Split the kernel",
                i);
        });
    }

    static void drop_effects(Region& r, const Storage& storage, bool gradients) {
        std::vector<Inst*> gone;
        walk(r, [&](Inst& i) {
            const bool writes =
                i.op == Op::store || (i.effect() == Effect::atomic && i.op != Op::volatile_load);
            const bool to_storage = writes && storage.has(i.operand(0));
            if (gradients ? to_storage : is_effect(i, storage)) gone.push_back(&i);
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

    void go_back(Region& root, const Activity& activity, const std::vector<uint64_t>& writes,
                 size_t number) {
        sweep({m, storage, request, root, writes, number}, activity);
    }

    void run() {
        std::vector<Inst*> tasks;
        for (Inst& i : *f.body)
            if (is_parallel_loop(i)) tasks.push_back(&i);
        std::vector<uint64_t> all = written(*f.body);
        if (m.arrays_may_overlap && !all.empty()) all.push_back(kAnyMemory);
        hoist_loads(f, all);
        if (tasks.empty()) {
            const Activity activity(f, storage);
            activity.check_smooth(*f.body);
            go_back(*f.body, activity, all, 0);
        } else {
            run_tasks(tasks, all);
        }
    }

    void run_tasks(const std::vector<Inst*>& tasks, const std::vector<uint64_t>& all) {
        std::vector<Inst*> order;
        std::vector<uint64_t> later;
        std::vector<bool> waits;
        for (Inst* task : tasks) waits.push_back(can_wait(*task, tasks));
        for (size_t k = tasks.size(); k-- > 0;) {
            const bool last = k + 1 == tasks.size();
            const std::vector<uint64_t> own = written(tasks[k]->body());
            if (!waits[k]) later.insert(later.end(), own.begin(), own.end());
            if (!last) check_order(*tasks[k], later);
            if (waits[k]) later.insert(later.end(), own.begin(), own.end());
            order.push_back(last ? tasks[k] : set_aside(*tasks[k], waits[k]));
        }
        const Activity activity(f, storage);
        activity.check_smooth(*f.body);
        for (size_t k = 0; k < order.size(); ++k) go_back(order[k]->body(), activity, all, k);
    }
};

}  // namespace

void reverse(Module& m, const Request& request) { Kernel{m, request}.run(); }

}  // namespace qd::autodiff
