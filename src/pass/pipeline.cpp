// The compiler's story: what happens to a kernel between the front end and code generation.
// passes.inc lists the passes in their order.
//
// Functions are worked on callees first, so that the inliner copies finished bodies. The kernel is
// cut into tasks once it is small; tasks get a last cleaning, because cutting and unit loops leave
// arithmetic behind.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <unordered_set>

#include "pass/memory.h"
#include "pass/passes.h"
#include "support/doing.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;
using Clock = std::chrono::steady_clock;

enum class Where { kernel, given, function, task, code };

struct Step {
    Where where;
    const char* name;
    bool (*run)(Session&, Function&);
    bool (*wanted)(const ModuleOptions&);
};

bool always(const ModuleOptions&) { return true; }
bool advanced(const ModuleOptions& o) { return o.advanced_optimization; }
bool checks_indices(const ModuleOptions& o) { return o.check_indices(); }
bool wants_cse(const ModuleOptions& o) { return advanced(o) && o.opt_level > 0; }
bool wants_memory(const ModuleOptions& o) { return wants_cse(o) && o.cfg_optimization; }

constexpr Step kSteps[] = {
#define STEP(where, name, wanted) {Where::where, #name, name, wanted},
#include "pass/passes.inc"
};

struct Runner {
    Session& s;
    const Plan& plan;
    std::string phase = "I";  // of chapter 50's names of dumps
    struct Row {
        const char* name;
        double seconds = 0;
        uint32_t before = 0, after = 0;
    };
    std::vector<Row> rows;

    void check(const char* pass, const Function& f) {
        try {
            verify(s.m);
        } catch (const support::Error& e) {
            throw support::Error(std::string("after pass ") + pass + " on @" + f.name + ": " +
                                 e.what());
        }
    }

    void stage(const char* name) {
        if (s.options.on_stage) s.options.on_stage(name, s.m, plan.tasks);
    }

    void tell(const char* moment, const Function& f) {
        if (!s.options.on_pass) return;
        s.options.on_pass((phase + " " + moment).c_str(), s.m, plan.tasks, f);
    }

    void run(Where where, Function& f) {
        if (where == Where::function || where == Where::task) tell("start", f);
        for (const Step& step : kSteps) {
            if (step.where == where) run(step, f);
        }
    }

    void run(const Step& pass, Function& f) {
        if (!pass.wanted(s.m.options)) return;
        if (!enabled(s, pass.name)) return;
        support::begin_stage(pass.name, f.name);
        const uint32_t count = s.options.time_passes ? count_instructions(f) : 0;
        const auto start = Clock::now();
        const bool changed = pass.run(s, f);
        if (s.options.time_passes) {
            auto row =
                std::ranges::find_if(rows, [&](const Row& r) { return r.name == pass.name; });
            if (row == rows.end()) row = rows.insert(rows.end(), Row{pass.name});
            row->seconds += std::chrono::duration<double>(Clock::now() - start).count();
            row->before += count;
            row->after += count_instructions(f);
        }
        tell(pass.name, f);
        if (changed && s.m.options.debug) check(pass.name, f);
    }

    void report() const {
        if (!s.options.time_passes) return;
        std::fprintf(stderr, "%-14s %9s %8s -> %8s  (%s)\n", "pass", "ms", "before", "after",
                     s.m.name.c_str());
        for (const Row& r : rows) {
            std::fprintf(stderr, "%-14s %9.3f %8u -> %8u\n", r.name, 1e3 * r.seconds, r.before,
                         r.after);
        }
    }
};

void add_callees(Function& f, std::vector<Function*>& list, std::unordered_set<Function*>& seen) {
    walk(*f.body, [&](Inst& i) {
        if (i.op != Op::call || !seen.insert(i.callee()).second) return;
        add_callees(*i.callee(), list, seen);
        list.push_back(i.callee());
    });
}

void find_fenced(const std::vector<Function*>& roots, Plan& plan) {
    std::unordered_set<const Function*> with_fence;
    for (Function* f : plan.module->functions)
        walk(*f->body, [&](const Inst& i) {
            if (i.op == Op::fence && Fence(i.imm) == Fence::device) with_fence.insert(f);
        });
    if (with_fence.empty()) return;
    std::vector<const Function*> others;
    for (Function* root : roots) {
        std::vector<Function*> all;
        std::unordered_set<Function*> seen;
        add_callees(*root, all, seen);
        all.push_back(root);
        if (std::ranges::any_of(all, [&](Function* f) { return with_fence.contains(f); }))
            plan.fenced.insert(all.begin(), all.end());
        else
            others.insert(others.end(), all.begin(), all.end());
    }
    for (const Function* f : others) plan.fenced.erase(f);
}

void finish_plan(Session& s, Plan& plan) {
    Module& m = s.m;
    Function* kernel = &m.kernel();
    std::vector<Function*> roots;
    std::unordered_set<Function*> seen;
    for (const Task& t : plan.tasks) roots.push_back(t.body);
    for (const Task& t : plan.tasks) {
        if (t.finish) roots.push_back(t.finish);
    }
    for (Function* f : roots) add_callees(*f, plan.callees, seen);
    m.functions = roots;
    const auto arrays =
        std::ranges::count_if(m.params, [](const Param& p) { return p.type.is_array(); });
    plan.assumes_own_fields = !m.arrays_may_overlap && !m.fields.empty() && arrays > 0;
    if (m.functions.empty()) m.functions.push_back(kernel);
    m.functions.insert(m.functions.end(), plan.callees.begin(), plan.callees.end());
    std::vector<Function*> order = plan.callees;
    order.insert(order.end(), roots.begin(), roots.end());
    plan.arrays = find_arrays(m, order);
    find_inputs(plan);
    lay_out_shared(plan);
    for (Function* f : m.functions) {
        walk(*f->body, [&](Inst& i) {
            ++plan.instructions;
            const bool writes = i.effect() == Effect::write || i.effect() == Effect::atomic;
            const Inst* place = writes && i.operand_count ? root_of(i.operand(0)) : nullptr;
            plan.assumes_distinct_arrays |=
                place && place->op == Op::array_place && arrays > 1 && !m.arrays_may_overlap;
            if (i.op == Op::print) plan.uses_print = true;
            if (i.op == Op::tape) {
                plan.uses_tape = true;
                plan.wide_tape |= type::bytes(i.result()->type.prim) == 8;
            }
            if (info(i.op).kind == Kind::threads) plan.meets = true;
        });
    }
    find_waits(plan);
    find_fenced(roots, plan);
}

void write_out(Runner& runner, Plan& plan) {
    measure(plan);
    runner.s.arrays = plan.arrays;
    runner.s.fenced = &plan.fenced;
    runner.phase = "IV";
    for (Function* f : runner.s.m.functions) runner.run(Where::code, *f);
    plan.floats_of_bits |= runner.s.floats_of_bits;
    if (runner.s.m.options.debug) verify(runner.s.m);
}

}  // namespace

void write_out(Plan& plan, const PipelineOptions& options) {
    Session s{.m = *plan.module, .options = options};
    Runner runner{.s = s, .plan = plan, .rows = {}};
    write_out(runner, plan);
}

Plan run_pipeline(std::unique_ptr<Module> module, const PipelineOptions& options) {
    Plan plan;
    plan.module = std::move(module);
    plan.target = options.target;
    Session s{.m = *plan.module, .options = options};
    Runner runner{.s = s, .plan = plan, .rows = {}};
    if (s.m.options.debug) verify(s.m);
    runner.stage("from_ast");

    support::begin_stage("summarise");
    const std::vector<Function*> order = callees_first(s.m);
    plan.uses_random = draws(s.m);
    s.arrays = find_arrays(s.m, order);
    summarise(s, order);
    Function& kernel = s.m.kernel();
    runner.run(Where::kernel, kernel);
    runner.stage("quadrants1");
    for (Function* f : order) runner.run(Where::given, *f);
    runner.stage("before_simplify_I");
    for (Function* f : order) {
        runner.run(Where::function, *f);
        s.summaries[f->id] = summary_of(s, *f->body);
    }
    runner.stage("after_simplify_I");

    const auto start = Clock::now();
    support::begin_stage("offload", kernel.name);
    offload(s, plan);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const Task& t : plan.tasks) {
        s.m.functions.push_back(t.body);
        if (t.finish) s.m.functions.push_back(t.finish);
    }
    if (s.m.options.debug) runner.check("offload", kernel);
    runner.stage("after_offload");
    runner.phase = "III";
    for (const Task& t : plan.tasks) {
        for (Function* f : {t.body, t.finish}) {
            if (f) runner.run(Where::task, *f);
        }
    }
    if (s.m.options.make_thread_local && !options.target.threads && enabled(s, "private_fields")) {
        for (Task& t : plan.tasks) {
            support::begin_stage("private_fields", t.body->name);
            private_fields(s, t);
        }
    }
    support::begin_stage("finish_plan");
    finish_plan(s, plan);
    if (s.m.options.debug) verify(s.m);
    runner.stage("after_simplify_III");
    write_out(runner, plan);
    runner.report();
    if (options.time_passes) {
        std::fprintf(stderr, "%-14s %9.3f %8s    %8u  (%zu tasks)\n", "offload", 1e3 * seconds, "",
                     plan.instructions, plan.tasks.size());
    }
    return plan;
}

}  // namespace qd::pass
