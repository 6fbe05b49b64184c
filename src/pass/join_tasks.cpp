// Short tasks that follow each other become one of a single block, for targets where starting a
// task costs more than what such do (Target::threads): the threads wait for each other in between,
// and what was serial is done by the first. If that is the whole body of a loop of tasks, the block
// goes through it several times before the next launch, but not for ever: who waits may end the
// loop.
//
// Short is a range that one block holds. Of more threads than blocks usually have only what does
// little, since several multiprocessors would share it otherwise.
//
// Needs: ranges that are the work of one thread already (threads.cpp).
// Keeps: what is computed, and in which order. Tasks that check, print or draw random numbers,
// whose
//        threads meet or look at their numbers, or that have a reduction, stay as they are.
// Cost:  O(instructions).

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "pass/memory.h"
#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

constexpr int kWarp = 32, kUsualBlock = 128, kLargestBlock = 1024;
constexpr uint32_t kLittle = 60;  // instructions of an iteration, without loops
constexpr uint32_t kMost = 3000;  // of what is joined: assemblers are slow on large functions
constexpr int64_t kRounds = 256;  // of a loop of tasks in one launch

bool minds_others(const Region& r, std::unordered_set<const Function*>& seen) {
    bool found = false;
    walk(const_cast<Region&>(r), [&](const Inst& i) {
        found |= i.op == Op::thread_index || i.op == Op::tape;
        if (i.op == Op::call && seen.insert(i.callee()).second)
            found |= minds_others(*i.callee()->body, seen);
    });
    return found;
}

// What a task does to memory that others see, by class (memory.h).
struct Touched {
    bool parallel = false;
    std::unordered_map<uint64_t, bool> written{};  // false: read alone

    // Whether the threads have to wait for each other between the two.
    bool minds(const Touched& before) const {
        if (!parallel && !before.parallel) return false;  // both are the first thread's
        const auto meets = [&](const auto& a) {
            return std::ranges::any_of(before.written, [&](const auto& b) {
                const bool same =
                    a.first == b.first || a.first == kUnknownMemory || b.first == kUnknownMemory;
                return same && (a.second || b.second);
            });
        };
        return std::ranges::any_of(written, meets);
    }
};

Touched touched_by(const Session& s, const Task& t) {
    Touched out{.parallel = t.kind != abi::TaskKind::serial};
    const auto add = [&](uint64_t memory, bool writes) {
        if (!is_local_class(memory)) out.written[memory] |= writes;
    };
    walk(*t.body->body, [&](Inst& i) {
        switch (i.effect()) {
            case Effect::read:
            case Effect::write:
            case Effect::atomic:
                if (i.operand_count) add(memory_class(i.operand(0), s), i.effect() != Effect::read);
                break;
            case Effect::call:
                add(kUnknownMemory, s.summaries[i.callee()->id].writes);
                break;
            default:
                break;
        }
    });
    return out;
}

struct Joiner {
    Session& s;
    Plan& plan;
    std::span<const Shortness> shortness;
    std::vector<size_t> in_group{};  // how many tasks each group has, with those of groups in it

    void count_groups() {
        in_group.resize(plan.groups.size());
        for (const Task& t : plan.tasks)
            for (int g = t.group; g >= 0; g = plan.groups[size_t(g)].parent) ++in_group[size_t(g)];
    }

    // Where the condition of the loop lies whose whole body these tasks are; -1: of none.
    int32_t flag_of(std::span<const Task> run) const {
        if (run[0].group < 0) return -1;
        const auto group = size_t(run[0].group);
        const bool whole = info(plan.groups[group].op).repeats && in_group[group] == run.size();
        return whole ? plan.groups[group].flag : -1;
    }

    // What is joined to f, in front of `at`. Between two barriers the first thread does what is
    // serial before its share of the rest, which has nothing to do with that: it waits for both at
    // once.
    struct Body {
        Function& f;
        Inst* at;
        Value* is_first;              // of the threads
        Inst* begin = nullptr;        // of what stands since the last barrier; null: nothing
        Inst* serial = nullptr;       // the end of what the first does alone since then
        std::vector<Touched> seen{};  // likewise, what was touched

        Builder front() const { return {&f, at->parent, begin ? begin : at}; }
    };

    void add_part(Body& body, const Task& t) {
        Function& f = body.f;
        Touched touched = touched_by(s, t);
        const auto waits = [&](const Touched& before) { return touched.minds(before); };
        if (std::ranges::any_of(body.seen, waits)) {
            Builder{&f, body.at->parent, body.at}.op(Op::block_sync, {});
            body.seen.clear();
            body.begin = body.serial = nullptr;
        }
        body.seen.push_back(std::move(touched));
        std::vector<std::pair<const Value*, Value*>> same;
        for (uint32_t k = 0; k < f.body->params.size(); ++k)
            same.emplace_back(t.body->body->params[k], f.body->params[k]);
        Region* copy = clone_into(*t.body->body, f, std::move(same));
        if (t.kind != abi::TaskKind::serial) {
            if (!body.begin && copy->first != copy->last) body.begin = copy->first;
            splice_before(*copy, *body.at);
            return;
        }
        if (!body.serial) {
            body.begin = alone(body);
            Region& first = *body.begin->regions[0];
            Builder{&f, &first}.end(Op::yield);
            body.serial = first.last;
        }
        splice_before(*copy, *body.serial);
    }

    // What the first thread does, in front of the terminator; others have v instead, if there is
    // one.
    static Inst* alone(const Body& body, Value* v = nullptr) {
        Builder b = body.front();
        Value* on[] = {body.is_first};
        const Type types[] = {v ? v->type : Type()};
        const std::span<const Type> results(types, v ? 1 : 0);
        Inst* i = b.emit(Op::if_, on, results, 2);
        const std::span<Value* const> others(&v, v ? 1 : 0);
        Builder{&body.f, i->regions[1]}.end(Op::yield, others);
        return i;
    }

    // Ends the loop around if the first thread finds that its condition is 0, which it has set
    // since the last barrier.
    static void ask(Body& body, int32_t flag) {
        Inst* sees = alone(body, body.front().constant(type::kU1, 0));
        Builder first{&body.f, sees->regions[0]};
        Value* condition =
            first.load(first.typed(Op::temp, type::kI32.place(), {}, uint64_t(flag)));
        Value* goes_on[] = {first.cast(condition, Prim::u1)};
        first.end(Op::yield, goes_on);
        Inst* before = body.serial->parent->owner;
        body.serial->remove();
        splice_before(*before->regions[0], *sees->regions[0]->first);
        before->remove();
        Builder b{&body.f, body.at->parent, body.at};
        Value* asked[] = {sees->result()};
        Value* any = b.typed(Op::block_vote, type::kI32, asked, uint64_t(Vote::any));
        Value* over[] = {b.op(Op::eq, {any, b.int_const(Prim::i32, 0)})};
        Inst* test = b.emit(Op::if_, over, {}, 2);
        Builder{&body.f, test->regions[0]}.end(Op::break_);
        Builder{&body.f, test->regions[1]}.end(Op::yield);
    }

    Function* body_of(std::span<const Task> run) {
        s.m.owned.push_back(std::make_unique<Function>(run[0].body->name));
        Function& f = *s.m.owned.back();
        for (const Value* v : run[0].body->body->params) f.add_param(*f.body, v->type);
        Builder b{&f, f.body};
        b.end(Op::return_);
        b.before = f.body->last;
        Value* thread = b.typed(Op::task_value, type::kI64, {}, uint64_t(TaskValue::begin));
        Value* is_first = b.op(Op::lt, {thread, b.int_const(Prim::i64, 1)});
        const int32_t flag = flag_of(run);
        if (flag >= 0) {
            Inst* rounds = new_for(b, b.int_const(Prim::i64, 0), b.int_const(Prim::i64, kRounds));
            (void)f.add_param(rounds->body(), type::kI64);
            b = {&f, &rounds->body()};
            b.end(Op::continue_);
            b.before = b.region->last;
        }
        Body body{f, b.before, is_first};
        for (const Task& t : run) add_part(body, t);
        if (flag >= 0) ask(body, flag);
        return &f;
    }

    Task join(std::span<const Task> run, int threads) {
        Task t;
        t.kind = abi::TaskKind::range;
        t.body = body_of(run);
        t.dims = 1;
        t.bounds[0] = {.kind = abi::BoundKind::constant, .bytes = 4};
        t.bounds[1] = {.kind = abi::BoundKind::constant, .bytes = 4, .value = threads};
        t.block_dim = threads;
        t.most_iterations = threads;
        t.shape = Shape::block;
        t.fixed_mapping = true;
        t.group = run[0].group;
        t.name = run.front().name + ".." + run.back().name;
        t.counted = 0;
        for (const Task& part : run) t.counted += part.counted;
        t.ends_serial = run.back().ends_serial;
        return t;
    }

    // How many tasks from `at` on become one, and of how many threads.
    size_t length_of_run(size_t at, int& threads) const {
        int most = 1;
        uint32_t cost = 0;
        bool little = true;
        size_t end = at;
        for (; end < shortness.size() && plan.tasks[end].group == plan.tasks[at].group; ++end) {
            const Shortness& t = shortness[end];
            const int wanted = std::max(most, t.threads);
            cost += t.cost;
            if (t.threads < 0 || cost > kMost) break;
            if (wanted > kUsualBlock && !(little && t.does_little)) break;
            most = wanted;
            little &= t.does_little;
        }
        threads = (most + kWarp - 1) / kWarp * kWarp;
        return end - at;
    }

    void run() {
        count_groups();
        std::vector<Task> out;
        for (size_t at = 0; at < plan.tasks.size();) {
            int threads = 0;
            const size_t count = std::max<size_t>(length_of_run(at, threads), 1);
            if (count > 1)
                out.push_back(join(std::span(plan.tasks).subspan(at, count), threads));
            else
                out.push_back(std::move(plan.tasks[at]));
            at += count;
        }
        plan.tasks = std::move(out);
    }
};

}  // namespace

Shortness shortness_of(const Session& s, const Task& task, const Inst* loop) {
    const Summary body = loop ? summary_of(s, loop->body()) : summary_of(s, *task.body->body);
    std::unordered_set<const Function*> seen;
    if (body.observable || body.meets || minds_others(*task.body->body, seen)) return {};
    if (loop && (task.most_iterations < 0 || task.most_iterations > kLargestBlock)) return {};
    // The first thread does what is serial, however many others wait.
    const bool does_little = !loop || (!body.loops && body.cost <= kLittle);
    return {loop ? int(task.most_iterations) : 0, body.cost, does_little};
}

void join_tasks(Session& s, Plan& plan, std::span<const Shortness> shortness) {
    Joiner{s, plan, shortness}.run();
}

}  // namespace qd::pass
