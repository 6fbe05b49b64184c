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
    Prim prim;
    bool is_array, has_gradients;
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
        const Value* root = root_of_place(const_cast<Value*>(place));
        if (!root->def) return {0, -1, Prim::none, false, false};
        const Inst& d = *place->def;
        const Value* k = d.op == Op::comp_place ? d.operand(1) : nullptr;
        const bool known = k && is_constant(k) && d.operand(0)->def->op != Op::comp_place;
        const uint64_t memory = storage.memory_class(place);
        return {memory, known ? constant_int(k) : -1, root->type.prim, memory % 4 == 2,
                storage.has(place)};
    }

    // If some array arguments share memory, those that are alike may, or if there are none, one may
    // be a field. What has gradients and what has none are two things, wherever they lie.
    static bool are_pair(const Param& a, const Param& b) {
        return a.type.is_array() && b.type.is_array() && a.type.prim == b.type.prim &&
               a.needs_grad == b.needs_grad;
    }
    bool find_pair() const {
        for (size_t k = 0; k < m.params.size(); ++k)
            for (size_t n = 0; n < k; ++n)
                if (are_pair(m.params[k], m.params[n])) return true;
        return false;
    }
    const bool has_pair = find_pair();
    bool may_be(const Part& a, const Part& b) const {
        if (!m.arrays_may_overlap || a.prim != b.prim || a.has_gradients != b.has_gradients)
            return false;
        return has_pair ? a.is_array && b.is_array : a.is_array || b.is_array;
    }
    bool meets(const Part& a, const Part& b) const {
        if (a.memory != b.memory) return may_be(a, b);
        return a.component == b.component || a.component < 0 || b.component < 0;
    }

    // Of each class of memory that tasks use, a part; none if no two of them may be one.
    std::vector<Part> find_memories() const {
        std::vector<Part> out;
        if (!m.arrays_may_overlap) return out;
        std::unordered_set<uint64_t> seen;
        walk(*f.body, [&](Inst& i) {
            const Effect e = i.effect();
            if (i.op != Op::load && e != Effect::write && e != Effect::atomic) return;
            const Part part = part_of(i.operand(0));
            if (part.memory % 4 && seen.insert(part.memory).second) out.push_back(part);
        });
        return out;
    }

    // Whether a store at the top of a task gives every element of a field or array its value, or
    // that of one component: its indices are those of the task, which runs over all of them.
    static bool covers(const Inst& task, const Value* place) {
        const Inst& of = *place->def;
        const bool of_component = of.op == Op::comp_place;
        if (of_component && !is_constant(of.operand(1))) return false;
        const Inst& d = of_component ? *of.operand(0)->def : of;
        const bool of_field = d.op == Op::field_place;
        if (!of_field && d.op != Op::array_place) return false;
        const int first = of_field ? 0 : 1, rank = d.operand_count - first;
        uint64_t axes = 0;
        for (int axis = 0; axis < rank; ++axis) {
            const int64_t low = of_field ? d.field()->offset[axis] : 0;
            const int64_t high = of_field ? low + d.field()->shape[axis] : INT32_MAX;
            const Value* index = d.operand(first + axis);
            while (index->def && index->def->op == Op::cast && holds(index->type.prim, low, high))
                index = index->def->operand(0);
            const auto& params = task.body().params;
            const auto at = std::ranges::find(params, index);
            const auto k = static_cast<uint32_t>(at - params.begin());
            if (at == params.end() || k >= dimensions(task) || axes >> k & 1) return false;
            axes |= uint64_t{1} << k;
            const Value* begin = task.operand(static_cast<int>(2 * k));
            const Value* end = task.operand(static_cast<int>(2 * k + 1));
            if (!is_constant(begin) || constant_int(begin) > low) return false;
            if (of_field) {
                if (!is_constant(end) || constant_int(end) < high) return false;
            } else if (!end->def || end->def->op != Op::array_shape ||
                       end->def->imm != uint64_t(axis) || end->def->operand(0) != d.operand(0)) {
                return false;
            }
        }
        for (uint32_t k = 0; k < dimensions(task); ++k)
            if (!(axes >> k & 1) && !runs(task, static_cast<int>(k))) return false;
        return true;
    }
    // Whether integers from low to below high stay what they are in that type.
    static bool holds(Prim p, int64_t low, int64_t high) {
        if (!type::is_int(p)) return false;
        const int bits = type::bits(p) - type::is_signed(p);
        return (type::is_signed(p) ? low >> bits >= -1 : low >= 0) &&
               (bits >= 63 || (high - 1) >> bits <= 0);
    }
    // Whether a dimension of a task is known to have some iterations.
    static bool runs(const Inst& task, int dimension) {
        const Value *begin = task.operand(2 * dimension), *end = task.operand(2 * dimension + 1);
        return is_constant(begin) && is_constant(end) && constant_int(begin) < constant_int(end);
    }

    // What a task's bounds are computed from: loads in front of it, each of which happens once and
    // at that time, whatever waits for the way back.
    using Asked = std::unordered_set<const Value*>;  // by something in the kernel
    template <class F>
    static void each_load_for_bounds(const Inst& task, const Asked& asked, F&& f) {
        const auto load = [&](Inst& i) {
            if (i.op == Op::load && asked.contains(i.result())) f(i);
        };
        for (Inst* i = task.prev; i && !is_parallel_loop(*i); i = i->prev) {
            load(*i);
            for (Region* r : i->region_list()) walk(*r, load);
        }
    }

    // How the tasks use storage without gradients.
    struct Uses {
        std::unordered_map<uint64_t, std::unordered_set<size_t>> users, writers;  // tasks by class
        // Read, without having been given all its values by the kernel before, and written behind:
        // done again, its writes would lead to something else.
        std::unordered_set<uint64_t> carried;
        Asked asked;
    };
    Uses uses_of(const std::vector<Inst*>& tasks) const {
        Uses u;
        const std::vector<Part> memories = find_memories();
        const auto each_alike = [&](const Part& of, auto&& f) {
            f(of.memory);
            for (const Part& p : memories)
                if (p.memory != of.memory && may_be(p, of)) f(p.memory);
        };
        u.asked = used_values(*f.body, {kUpkeep});
        std::unordered_map<uint64_t, size_t> last;  // task that writes it
        struct Given {
            Part part;
            const void* storage;  // a field; others may share some of its memory
        };
        std::vector<Given> anew;  // so far
        const auto is_anew = [&](const Part& part, const void* storage) {
            return std::ranges::any_of(anew, [&](const Given& g) {
                return g.part.memory == part.memory && g.storage == storage &&
                       (g.part.component < 0 || g.part.component == part.component);
            });
        };
        for (size_t k = 0; k < tasks.size(); ++k) {
            const auto note_user = [&](const Inst& i) {
                each_alike(part_of(i.operand(0)), [&](uint64_t c) { u.users[c].insert(k); });
            };
            each_load_for_bounds(*tasks[k], u.asked, note_user);
            walk(tasks[k]->body(), [&](Inst& i) {
                const Effect e = i.effect();
                const bool writes = e == Effect::write || e == Effect::atomic;
                if (i.op != Op::load && !writes) return;
                note_user(i);
                if (!writes || !is_effect(i, storage)) return;
                each_alike(part_of(i.operand(0)), [&](uint64_t c) {
                    u.writers[c].insert(k);
                    if (!(i.flags & kUpkeep)) last[c] = k;
                });
            });
        }
        for (size_t k = 0; k < tasks.size(); ++k) {
            const auto note_read = [&](const Inst& i) {
                const Part part = part_of(i.operand(0));
                const auto written = last.find(part.memory);
                const void* of = root_of_place(i.operand(0))->def->ref;
                if (written != last.end() && written->second >= k && !is_anew(part, of))
                    each_alike(part, [&](uint64_t c) { u.carried.insert(c); });
            };
            each_load_for_bounds(*tasks[k], u.asked, note_read);
            const auto asked = used_values(tasks[k]->body(), {kUpkeep});
            walk(tasks[k]->body(), [&](Inst& i) {
                const bool atomic = i.effect() == Effect::atomic && is_effect(i, storage);
                const bool reads = i.op == Op::load && asked.contains(i.result());
                const bool stores = i.op == Op::store && is_effect(i, storage);
                if (i.flags & kUpkeep || !(atomic || reads || stores)) return;
                if (stores && i.parent == &tasks[k]->body() && covers(*tasks[k], i.operand(0)))
                    anew.push_back({part_of(i.operand(0)), root_of_place(i.operand(0))->def->ref});
                if (atomic || reads) note_read(i);
            });
        }
        return u;
    }

    static constexpr const char* kOverwrites =
        "Not supported. A loop reads what it, or a loop behind it, overwrites, and the kernel has "
        "further loops. Split the kernel";

    // Of tasks that others follow: whether their effects wait for the way back, which comes after
    // those of the others. They may if nobody sees when they happen; they must if others read what
    // they would change once more, and have it as the kernel itself left it.
    enum class Wait : uint8_t { no, may, must };
    std::vector<Wait> choose_waits(const std::vector<Inst*>& tasks, const Uses& u) const {
        std::vector<Wait> waits;
        for (size_t k = 0; k < tasks.size(); ++k) {
            bool silent = true, checks = false, alone = true, must = false, may = true;
            const Inst* at = nullptr;
            walk(tasks[k]->body(), [&](Inst& i) {
                silent &= i.effect() != Effect::io;
                checks |= i.effect() == Effect::check;
                const bool writes = i.effect() == Effect::write || i.effect() == Effect::atomic;
                if (!writes || !is_effect(i, storage)) return;
                const uint64_t c = storage.memory_class(i.operand(0));
                const auto& users = u.users.at(c);
                if (users.size() == 1) return;
                alone = false;
                const bool first = std::ranges::all_of(users, [&](size_t t) { return t >= k; });
                if (!u.carried.contains(c))
                    may = false;
                else if (must = true, at = &i; !first || u.writers.at(c).size() > 1)
                    may = false;
            });
            if (must && !(may && silent) && k + 1 < tasks.size()) refuse(kOverwrites, *at);
            waits.push_back(must ? Wait::must : alone && silent && !checks ? Wait::may : Wait::no);
        }
        return waits;
    }

    // What the way back reads must not have been overwritten meanwhile, nor be known only to what
    // happened already. Effects that do not wait for it have read for themselves what they find
    // once more; that cells are active is no matter. Who must wait does not find what it read.
    void check_order(Inst& loop, std::vector<Part>& later, Wait wait, const Uses& u) const {
        const std::vector<Part> own = written_parts(loop.body());
        const auto asked = used_values(loop.body(), {kUpkeep});
        const auto needed = used_values(loop.body(), {kUpkeep, &storage});
        const auto meet = [&](const std::vector<Part>& parts, const Part& one) {
            return std::ranges::any_of(parts, [&](const Part& p) { return meets(p, one); });
        };
        // Bounds are not read once more, but must have been what they were.
        each_load_for_bounds(loop, u.asked, [&](Inst& i) {
            const Part read = part_of(i.operand(0));
            if (u.carried.contains(read.memory) && (meet(later, read) || meet(own, read)))
                refuse(kOverwrites, i);
        });
        walk(loop.body(), [&](Inst& i) {
            const bool accesses = i.op == Op::load || i.effect() == Effect::atomic;
            if (!accesses || !asked.contains(i.result())) return;
            const Part read = part_of(i.operand(0));
            const bool is_needed = needed.contains(i.result());
            const bool by_itself = wait == Wait::no || (wait == Wait::must && is_needed);
            if (!meet(later, read) && !(by_itself && meet(own, read))) return;
            if (is_needed || wait != Wait::no || u.carried.contains(read.memory))
                refuse(kOverwrites, i);
        });
        later.insert(later.end(), own.begin(), own.end());
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
        const std::vector<Function*> functions = pass::callees_first(m);
        GradientUses uses;
        for (Function* callee : functions)
            if (callee != &f) uses[callee] = gradient_use(*callee->body, storage, uses);
        if (tasks.empty()) merge_loads(*f.body, storage, uses, all);
        for (Inst* task : tasks) merge_loads(task->body(), storage, uses, all);
        hoist_loads(f, storage, uses, all);
        std::vector<Region*> roots = {f.body};
        if (!tasks.empty()) roots = order_tasks(tasks);
        const Activity activity(functions, storage);
        activity.check_smooth();
        const Ways ways = make_ways(m, storage, activity, request, uses, all);
        for (size_t k = 0; k < roots.size(); ++k)
            sweep({m, storage, request, activity, ways, uses, all, k, *roots[k]});
    }

    std::vector<Region*> order_tasks(const std::vector<Inst*>& tasks) {
        std::vector<Region*> order;
        std::vector<Part> later;
        const Uses uses = uses_of(tasks);
        const std::vector<Wait> waits = choose_waits(tasks, uses);
        order.push_back(&tasks.back()->body());
        for (const Part& p : written_parts(tasks.back()->body())) later.push_back(p);
        for (size_t k = tasks.size() - 1; k-- > 0;) {
            check_order(*tasks[k], later, waits[k], uses);
            order.push_back(&set_aside(*tasks[k], waits[k] != Wait::no)->body());
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
