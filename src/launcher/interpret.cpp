// See interpret.h.

#include "launcher/interpret.h"

#include <utility>

#include "data/storage.h"
#include "ir/interpreter.h"
#include "launcher/raised.h"
#include "pass/pass.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/print.h"
#include "runtime/cpu/tape.h"
#include "session/session.h"
#include "support/stack.h"

namespace qd::launcher {
namespace {

using namespace session;
using data::OpenLaunch;
using session::session;

struct Run {  // what the callbacks of the running interpretation need
    const ir::Module& module;
    std::vector<const ir::Format*> formats;
    runtime::LaunchOutcome* outcome;
    Raised* raised;
};
thread_local Run* run;

// Operand types of a format, in order: found at its instruction.
void collect_operands(const ir::Module& module, const ir::Format* format,
                      support::FormatEntry& entry) {
    for (const ir::Function* f : module.functions)
        ir::walk(*f->body, [&](const ir::Inst& i) {
            if (i.ref != format || !entry.operands.empty()) return;
            for (int k = i.op == ir::Op::assert_; k < i.operand_count; ++k) {
                const ir::Type t = i.operand(k)->type;
                entry.operands.push_back({static_cast<uint8_t>(t.prim), t.rank, t.n, t.m});
            }
        });
}

std::string text_of(uint32_t number, const abi::Cell* cells) {
    const ir::Format* format = run->formats.at(number);
    support::FormatEntry entry;
    for (const ir::Format::Piece& p : format->pieces)
        entry.pieces.push_back({p.text, p.conversion});
    collect_operands(run->module, format, entry);
    return runtime::format_text(entry, cells);
}

void on_print(abi::Thread*, uint32_t format, const abi::Cell* cells) {
    run->outcome->printed += text_of(format, cells);
}
void on_fail(abi::Thread*, uint32_t format, const abi::Cell* cells) {
    run->outcome->failed = true;
    run->outcome->failure = text_of(format, cells);
}
int64_t clock_now() { return 0; }

int32_t stack_left(abi::Thread*) { return support::has_stack_beside(0, runtime::kCallReserve); }

const abi::Runtime kRuntime = {on_print, on_fail, clock_now, stack_left};

}  // namespace

std::unique_ptr<Interpreted> prepare_interpreted(const ir::Module& module) {
    auto copy = ir::deserialise(ir::serialise(module));  // functions are shared among kernels
    if (copy->options.check_indices()) pass::insert_checks(*copy);
    const bool uses_random = pass::draws(*copy);
    return std::make_unique<Interpreted>(std::move(copy), uses_random);
}

bool interpret_launch(const ir::Module& module, abi::Context& context,
                      runtime::LaunchOutcome& outcome, Raised& raised) {
    const runtime::StandardFloats floats;
    Run state{module, ir::formats_of(module), &outcome, &raised};
    Run* const outer = std::exchange(run, &state);  // which a signal handler interrupted
    const struct Restore {
        Run* outer;
        ~Restore() { run = outer; }
    } restore{outer};
    const Working working;
    OpenLaunch open;  // signal handlers run amid it
    open.begin();
    int32_t stop = 0;
    context.runtime = &kRuntime;
    context.stop = &stop;
    ir::InterpretOptions options;
    const runtime::Tape tape;
    options.tape = tape.at;
    options.tape_bytes = tape.bytes;
    options.stop = [] { return run->raised->check_signals(); };
    ir::interpret(module, context, options);
    return !outcome.printed.empty() || outcome.failed;
}

}  // namespace qd::launcher
