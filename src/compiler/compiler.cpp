// The compiler object's C entry points (support/abi.h): serialised IR in, artefact out.
//
// Every entry catches everything: a bug inside becomes a message, never an abort, and work on a
// module survives its crash (contain.h). A Compilation is
// immutable after qd_compiler_begin, so emissions of both tiers may overlap; LLVM state belongs to
// one emission.

#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "autodiff/autodiff.h"
#include "codegen/llvm/codegen.h"
#include "compiler/artefact.h"
#include "compiler/contain.h"
#include "compiler/fault.h"
#include "compiler/parallel.h"
#include "compiler/report.h"
#include "ir/interpreter.h"
#include "ir/ir.h"
#include "pass/listing.h"
#include "pass/pass.h"
#include "support/abi.h"
#include "support/doing.h"
#include "support/error.h"
#include "support/no_derivative.h"

namespace qd::abi {

struct Compilation {
    codegen::Prepared prepared;
    std::vector<uint8_t> ir;  // that it was made from
    std::vector<codegen::EditedTask> edited;
    bool lacks_edit = false;  // there was no memory for one
};

}  // namespace qd::abi

namespace qd::compiler {
namespace {

// False: there is no memory for it.
bool try_to_fill(abi::Blob* blob, const void* data, size_t bytes) {
    if (!blob) return true;
    blob->data = static_cast<uint8_t*>(std::malloc(bytes ? bytes : 1));
    blob->bytes = blob->data ? bytes : 0;
    if (blob->data && bytes) std::memcpy(blob->data, data, bytes);
    return blob->data;
}

void fill(abi::Blob* blob, const void* data, size_t bytes) {
    if (!try_to_fill(blob, data, bytes)) throw std::bad_alloc();
}

void check_abi(const abi::CompileOptions& o) {
    if (o.abi_version != abi::kAbiVersion)
        throw support::Error("the compiler speaks ABI version " + std::to_string(abi::kAbiVersion) +
                             ", the caller " + std::to_string(o.abi_version));
}

std::string text_or_empty(const char* s) { return s ? s : ""; }

// Without memory for the text there is none.
int fail(abi::Blob* error, std::string_view text) {
    (void)try_to_fill(error, text.data(), text.size());
    return 1;
}

// Of an entry point: nothing may be thrown into the caller, which has a C++ runtime of its own.
template <class Body>
int guarded(abi::Blob* error, Body body) noexcept {
    try {
        return body();
    } catch (const std::exception& e) {
        return fail(error, e.what());
    } catch (...) {
        return fail(error, "unknown exception in the compiler");
    }
}

// Time spent on modules since the process began, by kind of work, stage and part.
struct Spent {
    int64_t ns = 0;
    uint64_t count = 0;
};
std::mutex spent_lock;  // guards `spent`
std::map<std::string, Spent>& spent() {
    static auto* const all = new std::map<std::string, Spent>;  // never destroyed
    return *all;
}

void add_times(const char* work, const support::StageTimes& times) {
    std::lock_guard guard(spent_lock);
    for (int k = 0; k < times.used; ++k) {
        const support::StageTimes::Row& r = times.rows[k];
        if (r.stage.empty()) continue;
        Spent& s =
            spent()[std::string(work) + "\t" + std::string(r.stage) + "\t" + std::string(r.part)];
        s.ns += r.ns;
        s.count += r.count;
    }
}

// Of work on a module, on one thread.
struct Failure {
    bool happened = false;
    bool ours = false;  // our mistake: the report says where, and has the module
    std::string text;
    support::Doing doing{};
};

// `body` gives a signal that ended it, or 0. Throws nothing.
template <class Body>
Failure attempt(const abi::CompileOptions& o, Body body) {
    Failure f{true};
    const struct Wanted {
        explicit Wanted(const int32_t* unwanted) { support::unwanted = unwanted; }
        ~Wanted() { support::unwanted = nullptr; }
    } wanted(o.unwanted);
    try {
        try {
            support::begin_stage("");
            const int signal = body();
            if (!signal) return {};
            f.text = std::string("the compiler died of ") + signal_name(signal);
            f.ours = true;
        } catch (const codegen::TargetError& e) {
            f.text = e.what();
        } catch (const support::Unwanted&) {
            f.text = "nobody wants it any more";
        } catch (const std::bad_alloc&) {
            f.ours = true;
            f.text = "out of memory";
        } catch (const std::exception& e) {
            f.ours = true;
            f.text = e.what();
        } catch (...) {
            f.ours = true;
            f.text = "unknown exception in the compiler";
        }
    } catch (...) {  // out of memory
    }
    f.doing = support::doing;
    return f;
}

// A crash ends the work alone. `work` is what its time counts as.
template <class Body>
Failure attempt_contained(const abi::CompileOptions& o, const char* work, Body body) {
    support::StageTimes times;
    times.observer = o.on_stage;
    const struct Timed {
        explicit Timed(support::StageTimes* t) { support::stage_times = t; }
        ~Timed() { support::stage_times = nullptr; }
    } timed(&times);
    return attempt(o, [&] {
        const int signal = contained(body);
        times.end();
        if (!signal) add_times(work, times);
        return signal;
    });
}

// What an entry point returns.
int outcome(abi::Blob* error, std::span<const uint8_t> ir, const Failure& f) {
    if (!f.happened) return 0;
    try {
        support::doing = f.doing;
        return fail(error, f.ours ? f.text + report(ir, f.text) : f.text);
    } catch (...) {  // out of memory
        return fail(error, f.text.empty() ? "out of memory" : std::string_view(f.text));
    }
}

Failure prepare_to_compile(const abi::CompileOptions& o) {
    return attempt(o, [&] {
        read_fault();
        (void)report_folder();
        check_abi(o);
        codegen::initialise(text_or_empty(o.triple), text_or_empty(o.cpu));
        return 0;
    });
}

// Work on a module by the calling thread alone.
template <class Body>
int compiling(abi::Blob* error, std::span<const uint8_t> ir, const abi::CompileOptions& o,
              const char* work, Body body) {
    Failure f = prepare_to_compile(o);
    if (!f.happened) f = attempt_contained(o, work, body);
    return outcome(error, ir, f);
}

codegen::Options codegen_options(const abi::CompileOptions& o) {
    codegen::Options out;
    out.tier = o.tier;
    out.cpu = text_or_empty(o.cpu);
    out.triple = text_or_empty(o.triple);
    out.time_passes = o.time_passes != 0;
    return out;
}

using Observer = pass::PipelineOptions::Observer;

std::unique_ptr<abi::Compilation> begin(std::span<const uint8_t> ir, const abi::CompileOptions& o,
                                        Observer on_stage = {},
                                        pass::PipelineOptions::PassObserver on_pass = {}) {
    support::begin_stage("deserialise");
    auto module = ir::deserialise(ir);
    ir::verify(*module);
    support::begin_stage("target", text_or_empty(o.cpu));
    pass::PipelineOptions options;
    options.time_passes = o.time_passes != 0;
    options.on_stage = std::move(on_stage);
    options.on_pass = std::move(on_pass);
    options.target = codegen::target_of(text_or_empty(o.cpu), text_or_empty(o.triple));
    auto c = std::make_unique<abi::Compilation>();
    pass::Plan plan = pass::run_pipeline(std::move(module), options);
    support::begin_stage("prepare");
    c->prepared = codegen::prepare(std::move(plan));
    c->ir.assign(ir.begin(), ir.end());
    return c;
}

void differentiate(std::span<const uint8_t> ir, const abi::Derivative& d, abi::Blob* module,
                   abi::Blob* refusal) {
    support::begin_stage("deserialise");
    const auto m = ir::deserialise(ir);
    const autodiff::Request request{.mode = static_cast<autodiff::Mode>(d.mode),
                                    .companions = {d.companions, d.companions + d.companion_count},
                                    .inner_loops = d.inner_loops != 0,
                                    .general_control = d.general_control != 0,
                                    .most_records = d.most_records};
    support::begin_stage("derivative");
    const pass::Refusal why = autodiff::differentiate(*m, request);
    if (why.what.empty()) {
        support::begin_stage("serialise");
        const auto bytes = ir::serialise(*m);
        return fill(module, bytes.data(), bytes.size());
    }
    support::NoDerivative none{why.what, why.of_source};
    for (const ir::Loc* l = why.loc; l; l = l->caller)
        none.sites.push_back({std::string(l->file), std::string(l->function), l->line, l->col,
                              l->end_line, l->end_col});
    const auto bytes = support::to_bytes(none);
    fill(refusal, bytes.data(), bytes.size());
}

// Measured on the reference machine: about 15 us a scalar instruction for the whole of tier 1, and
// two milliseconds a loop that is worth vectorising.
uint32_t cost(const abi::Compilation& c) {
    const pass::Plan& plan = c.prepared.plan;
    const uint64_t us = 1500 + 15ull * plan.scalar_instructions + 1500ull * plan.innermost_loops;
    return us > UINT32_MAX ? UINT32_MAX : uint32_t(us);
}

codegen::PartStore part_store(const abi::PartStore& from) {
    const auto find = [&from](const codegen::PartKey& key) -> std::optional<std::vector<uint8_t>> {
        abi::Blob blob{};
        if (!from.find(from.data, key.data(), &blob)) return {};
        const std::unique_ptr<uint8_t, decltype(&std::free)> owner(blob.data, &std::free);
        return std::vector<uint8_t>(blob.data, blob.data + blob.bytes);
    };
    const auto keep = [&from](const codegen::PartKey& key, std::span<const uint8_t> part) {
        from.keep(from.data, key.data(), part.data(), part.size());
    };
    return {find, keep};
}

// On several threads if the options allow. Of failures that of the first job: what comes before it
// has been tried, whoever was faster.
int emit(const abi::Compilation& c, const abi::CompileOptions& o, abi::Blob* artefact,
         abi::Blob* error) {
    const char* work = o.tier ? "optimised code" : "quick code";
    codegen::Options wanted;
    codegen::PartStore store;
    std::vector<codegen::Made> made;
    std::vector<Failure> failures;
    const auto join = [&] {
        const auto emitted = codegen::join(c.prepared, wanted, std::move(made));
        const Upgrade upgrade{cost(c), c.ir};
        support::begin_stage("artefact");
        const auto bytes = write_artefact(c.prepared, emitted, o.tier ? nullptr : &upgrade);
        fill(artefact, bytes.data(), bytes.size());
    };
    Failure f = prepare_to_compile(o);
    if (!f.happened)
        f = attempt(o, [&] {
            if (c.lacks_edit) throw std::bad_alloc();
            wanted = codegen_options(o);
            wanted.edited = c.edited;
            if (o.parts) {
                store = part_store(*o.parts);
                wanted.store = &store;
            }
            made.resize(codegen::jobs(c.prepared, wanted));
            failures.resize(made.size());
            return 0;
        });
    if (f.happened) return outcome(error, c.ir, f);
    const bool several = made.size() > 1;
    for_each(made.size(), o.threads, [&](size_t k) {
        failures[k] = attempt_contained(o, work, [&] {
            made[k] = codegen::do_job(c.prepared, wanted, uint32_t(k));
            if (!several) join();
        });
        return !failures[k].happened;
    });
    for (const Failure& of_job : failures)
        if (of_job.happened && !f.happened) f = of_job;
    if (several && !f.happened) f = attempt_contained(o, work, join);
    return outcome(error, c.ir, f);
}

std::string text(std::span<const uint8_t> bytes, abi::Text what, const abi::CompileOptions& o) {
    using abi::Text;
    const bool located = what == Text::located_input || what == Text::located_stages;
    if (what == Text::input) return ir::print(*ir::deserialise(bytes));
    if (what == Text::listed_input || what == Text::located_input)
        return pass::listing(*ir::deserialise(bytes), {}, located);
    std::string out;
    const bool listed = what == Text::listed_stages || what == Text::listed_passes || located;
    const Observer note = [&](const char* title, const ir::Module& m,
                              std::span<const pass::Task> tasks) {
        out += std::string("\f") + title + "\n";
        out += listed ? pass::listing(m, tasks, located) : ir::print(m);
    };
    const auto note_pass = [&](const char* moment, const ir::Module& m,
                               std::span<const pass::Task> tasks, const ir::Function& f) {
        out += std::string("\f") + moment + " " + f.name + "\n";
        out += listed ? pass::listing(m, tasks, f) : ir::print(f);
    };
    const bool passes = what == Text::passes || what == Text::listed_passes;
    const bool stages =
        what == Text::stages || what == Text::located_stages || what == Text::listed_stages;
    pass::PipelineOptions::PassObserver on_pass;
    if (passes) on_pass = note_pass;
    const auto c = begin(bytes, o, stages ? note : Observer(), std::move(on_pass));
    codegen::Options options = codegen_options(o);
    using Want = codegen::Options::Want;
    switch (what) {
        case Text::plan:
            for (const ir::Function* f : c->prepared.functions) out += ir::print(*f);
            return out;
        case Text::stages:
        case Text::located_stages:
            out += "\ftasks\n";
            for (const pass::Task& t : c->prepared.plan.tasks)
                out += (t.kind == abi::TaskKind::range ? "range_for " : "serial ") + t.name + "\n";
            return out;
        case Text::llvm:
            options.want = Want::llvm;
            break;
        case Text::lowered_llvm:
            options.want = Want::lowered_llvm;
            break;
        case Text::assembly:
            options.want = Want::assembly;
            break;
        default:
            return out;
    }
    const auto emitted = codegen::emit(c->prepared, options).objects.at(0);
    return {emitted.begin(), emitted.end()};
}

}  // namespace
}  // namespace qd::compiler

#define QD_EXPORT extern "C" __attribute__((visibility("default")))

using namespace qd;

QD_EXPORT uint32_t qd_compiler_abi_version() { return abi::kAbiVersion; }

QD_EXPORT int qd_compiler_begin(const uint8_t* ir, size_t bytes, const abi::CompileOptions* options,
                                abi::Compilation** out, abi::Blob* error) {
    return compiler::guarded(error, [&] {
        return compiler::compiling(error, {ir, bytes}, *options, "passes", [&] {
            *out = compiler::begin({ir, bytes}, *options).release();
        });
    });
}

QD_EXPORT uint32_t qd_compiler_cost(const abi::Compilation* c) { return compiler::cost(*c); }

QD_EXPORT int qd_compiler_emit(abi::Compilation* c, const abi::CompileOptions* options,
                               abi::Blob* artefact, abi::Blob* error) {
    return compiler::guarded(error, [&] { return compiler::emit(*c, *options, artefact, error); });
}

QD_EXPORT int qd_compiler_differentiate(const uint8_t* ir, size_t bytes, const abi::Derivative* d,
                                        abi::Blob* module, abi::Blob* refusal, abi::Blob* error) {
    return compiler::guarded(error, [&] {
        return compiler::compiling(error, {ir, bytes}, abi::CompileOptions{}, "derivatives", [&] {
            compiler::differentiate({ir, bytes}, *d, module, refusal);
        });
    });
}

QD_EXPORT void qd_compiler_replace(abi::Compilation* c, uint32_t task, const char* file,
                                   const char* llvm, size_t bytes) {
    try {
        c->edited.push_back({task, file, {llvm, bytes}});
    } catch (const std::bad_alloc&) {
        c->lacks_edit = true;
    }
}

QD_EXPORT void qd_compiler_times(abi::Blob* out) {
    (void)compiler::guarded(nullptr, [&] {
        std::string text;
        std::lock_guard guard(compiler::spent_lock);
        for (const auto& [path, s] : compiler::spent())
            text += path + "\t" + std::to_string(s.ns) + "\t" + std::to_string(s.count) + "\n";
        compiler::fill(out, text.data(), text.size());
        return 0;
    });
}

QD_EXPORT void qd_compiler_end(abi::Compilation* c) { delete c; }

QD_EXPORT void qd_compiler_fault(const char* text) { compiler::set_fault(text); }

QD_EXPORT void qd_compiler_free(abi::Blob* blob) {
    std::free(blob->data);
    *blob = {};
}

QD_EXPORT int qd_compiler_interpret(const uint8_t* ir, size_t bytes, const abi::Context* context,
                                    abi::Blob* error) {
    return compiler::guarded(error, [&] {
        const auto module = ir::deserialise({ir, bytes});
        ir::verify(*module);
        ir::InterpretOptions options;
        options.fused = codegen::target_of("", "").fused;
        ir::interpret(*module, *context, options);
        return 0;
    });
}

QD_EXPORT int qd_compiler_check_cpu(const char* cpu, abi::Blob* error) {
    return compiler::guarded(error, [&] { return codegen::check_cpu(cpu), 0; });
}

QD_EXPORT int qd_compiler_text(const uint8_t* ir, size_t bytes, int what, const char* cpu,
                               abi::Blob* out, abi::Blob* error) {
    abi::CompileOptions options;
    options.cpu = cpu;
    return compiler::guarded(error, [&] {
        return compiler::compiling(error, {ir, bytes}, options, "texts", [&] {
            const std::string s =
                compiler::text({ir, bytes}, static_cast<abi::Text>(what), options);
            compiler::fill(out, s.data(), s.size());
        });
    });
}
