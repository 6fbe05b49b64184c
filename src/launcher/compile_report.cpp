// See compile_report.h.

#include "launcher/compile_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <new>
#include <string_view>

#include "ir/ir.h"
#include "runtime/progress.h"
#include "session/session.h"
#include "support/io.h"

namespace qd::launcher {
namespace {

using namespace session;
using session::session;

constexpr size_t kDearest = 10;
constexpr size_t kMostMisses = 3;

// By Making::From.
constexpr const char* kOrigins[] = {"failed",      "from cache", "shared",
                                    "stored code", "cold",       "interpreted"};

struct Told {
    std::mutex lock;  // guards everything here
    std::vector<Making> makings;
    uint32_t optimised = 0;
    int64_t optimising_ns = 0;
};
Told& told = *new Told;  // the queue may add to it during exit

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

__attribute__((format(printf, 1, 2))) std::string format(const char* form, ...) {
    char text[1024];
    va_list values;
    va_start(values, form);
    std::vsnprintf(text, sizeof text, form, values);
    va_end(values);
    return text;
}

// Whole, so that lines of several threads stay apart.
void write_error(std::string_view text) {
    runtime::hide_progress();
    (void)support::write_all(2, text.data(), text.size());
}

std::string line_of(const Making& m) {
    using enum Making::From;
    std::string out =
        format("[compile] %.400s: %s %.2f ms (look-up %.2f", m.kernel.c_str(),
               kOrigins[static_cast<int>(m.from)], ms(m.total_ns()), ms(m.only_look_up_ns()));
    if (m.from != cache) out += format(", front end %.2f", ms(m.front_end_ns));
    if (m.from == compiler)
        out += format(", passes %.2f, code generation %.2f of tier %u", ms(m.passes_ns),
                      ms(m.emission_ns), m.tier);
    if (m.parts_made + m.parts_reused)
        out += format(" (%u of %u parts reused)", m.parts_reused, m.parts_made + m.parts_reused);
    if (m.assembling_ns) out += format(", assembling %.2f", ms(m.assembling_ns));
    if (m.load_ns) out += format(", load %.2f", ms(m.load_ns));
    if (m.loading_ns) out += format(", loading the compiler %.2f", ms(m.loading_ns));
    if (m.from != cache) out += format(", other %.2f", ms(m.other_ns()));
    out += ")";
    if (m.from == cache) out += format("; tier %u", m.tier);
    if (m.before) {
        out += format("; %u instructions", m.before);
        if (m.after) out += format(" -> %u in %u tasks", m.after, m.tasks);
        out += format(
            "; %u funcs: %u lowered, %u reused; %u calls; syntax: %llu parsed, %llu loaded",
            m.funcs, m.lowered, m.funcs - std::min(m.funcs, m.lowered), m.calls,
            static_cast<unsigned long long>(m.parsed), static_cast<unsigned long long>(m.loaded));
    }
    if (!m.shared.empty()) out += "; code of " + m.shared;
    out += "\n";
    for (size_t k = 0; k < m.misses.size() && k < kMostMisses; ++k)
        out += "    not from the cache: " + m.misses[k] + "\n";
    if (m.misses.size() > kMostMisses)
        out += format("    and %zu more\n", m.misses.size() - kMostMisses);
    if (!m.not_kept.empty()) out += "    not kept in the cache: " + m.not_kept + "\n";
    return out;
}

std::string table() {
    auto& all = told.makings;
    std::ranges::stable_sort(all, std::ranges::greater{}, &Making::total_ns);
    const size_t shown = std::min(all.size(), kDearest);
    std::string out =
        format("[compile] the %zu dearest of %zu specialisations, in ms\n", shown, all.size());
    out += "     total   look-up front end    passes code gen.      load     other  kernel\n";
    for (const Making& m : std::span(all).first(shown))
        out += format("%10.2f%10.2f%10.2f%10.2f%10.2f%10.2f%10.2f  %.400s (%s)\n", ms(m.total_ns()),
                      ms(m.only_look_up_ns()), ms(m.front_end_ns), ms(m.passes_ns),
                      ms(m.emission_ns + m.assembling_ns), ms(m.load_ns),
                      ms(m.loading_ns + m.other_ns()), m.kernel.c_str(),
                      kOrigins[static_cast<int>(m.from)]);
    out += "[compile] sums:";
    const char* comma = " ";
    using enum Making::From;
    for (const Making::From from : {compiler, cache, stored_code, memory, interpreter, nowhere}) {
        size_t count = 0;
        int64_t ns = 0;
        for (const Making& m : all)
            if (m.from == from) ++count, ns += m.total_ns();
        if (!count) continue;
        out += format("%s%zu %s %.2f ms", comma, count, kOrigins[static_cast<int>(from)], ms(ns));
        comma = ", ";
    }
    if (told.optimised)
        out += format("%s%u optimised meanwhile %.2f ms", comma, told.optimised,
                      ms(told.optimising_ns));
    return out + "\n";
}

}  // namespace

bool reports_compiling() { return session().options.compile_report > 0; }

void count_front_end(Making& m, const frontend::LoweredKernel& kernel) {
    for (const ir::Function* f : kernel.module->functions)
        ir::walk(*f->body, [&](ir::Inst&) { ++m.before; });
    m.funcs = static_cast<uint32_t>(kernel.module->functions.size()) - 1;  // and the kernel
    m.lowered = kernel.funcs_lowered;
    m.calls = kernel.func_calls;
    m.parsed = session().trees_parsed - m.parsed;
    m.loaded = session().trees_loaded - m.loaded;
}

void count_code(Making& m, const abi::Artefact& code) {
    m.after = code.instructions;
    m.tasks = code.task_count;
    m.tier = code.tier;
}

void report_making(const Making& m) noexcept {
    try {
        write_error(line_of(m));
        const std::lock_guard guard(told.lock);
        told.makings.push_back(m);
    } catch (const std::bad_alloc&) {
    }
}

void report_optimising(const std::string& kernel, const abi::Artefact& code, int64_t passes_ns,
                       int64_t emission_ns) {
    write_error(format(
        "[compile] %.400s: optimised %.2f ms (passes %.2f, code generation %.2f of tier %u)\n",
        kernel.c_str(), ms(passes_ns + emission_ns), ms(passes_ns), ms(emission_ns), code.tier));
    const std::lock_guard guard(told.lock);
    ++told.optimised;
    told.optimising_ns += passes_ns + emission_ns;
}

void report_session() {
    std::string text;
    {
        const std::lock_guard guard(told.lock);
        if (!told.makings.empty()) text = table();
    }
    forget_report();
    write_error(text);
}

void forget_report() {
    const std::lock_guard guard(told.lock);
    told.makings.clear();
    told.optimised = 0;
    told.optimising_ns = 0;
}

}  // namespace qd::launcher
