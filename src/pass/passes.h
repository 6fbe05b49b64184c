// The single passes and what they share. pass.h is what other rooms see.
//
// A function pass takes one function and returns whether it changed anything. None keeps state
// between functions; Value::id and Function::id are scratch inside each.

#pragma once

#include <span>
#include <vector>

#include "ir/edit.h"
#include "ir/ir.h"
#include "pass/pass.h"

namespace qd::pass {

// What a function may do to the world outside it, through its callees too.
struct Summary {
    bool reads = false, writes = false;  // memory
    bool observable = false;             // prints, checks, random numbers, clock: kept and ordered
    bool random = false;
    bool loops = false;  // contains a loop
    bool meets = false;  // threads of a block do something together
    uint32_t cost = 0;   // instructions, components counted

    void add(const Summary& o) {
        reads |= o.reads, writes |= o.writes, observable |= o.observable, random |= o.random;
        loops |= o.loops, meets |= o.meets, cost += o.cost;
    }
};

struct Session {
    ir::Module& m;
    PipelineOptions options;
    std::vector<Summary> summaries = {};    // by Function::id, see callees_first
    std::vector<uint32_t> call_sites = {};  // in the module as given, by Function::id
    ArrayClasses arrays = {};               // as long as there are callees
    bool floats_of_bits = false;            // lower_atomics made some
    const std::unordered_set<const ir::Function*>* fenced = nullptr;  // see Plan
    bool straightens = false;  // no branch becomes a select, and all calls are expanded but these:
    const KeptCalls* kept = nullptr;
};

// Whether computing it where it was not asked for could change gradients: its derivative may be
// infinite, and 0 times that is none.
inline bool may_be_steep(const Session& s, const ir::Inst& i) {
    return s.straightens && ir::info(i.op).slope == ir::Slope::nonlinear && i.result_count &&
           type::is_float(i.results[0].type.prim);
}
inline bool enabled(const Session& s, std::string_view pass) { return enabled(s.m.options, pass); }
// What folds the partials of an atomic, Op::count_ if it cannot become a reduction. A subtraction's
// are added: what was subtracted from zero is in them.
inline ir::Op fold_of(ir::Op atomic) {
    const ir::Op step = ir::info(atomic).step;
    return step != ir::Op::count_ ? ir::info(step).joins : step;
}
bool is_parallel(const ir::Inst& i);  // a loop whose iterations may run at one time

void summarise(Session& s, const std::vector<ir::Function*>& order);
Summary summary_of(const Session& s, const ir::Inst& i);  // of one instruction with its regions
Summary summary_of(const Session& s, const ir::Region& r);

// --- editing (edit.cpp)
void add_operands(ir::Inst& i, std::span<ir::Value* const> values);
void add_results(ir::Inst& i, std::span<const ir::Type> types);  // old results forward to the new
void erase_positions(ir::Inst& i, const std::vector<bool>& dead_results);
ir::Builder before(ir::Inst& i);                           // builds in front of i
ir::Inst* copy_inst(const ir::Inst& i, ir::Function& to);  // without regions; not linked
ir::Prim integer_of(ir::Prim p);                           // unsigned, of as many bytes
// Moves the instructions of `from` but its terminator in front of `at`; returns the terminator.
ir::Inst* splice_before(ir::Region& from, ir::Inst& at);
void adopt(ir::Region& r, ir::Function& f);  // sets Region::function in the tree
uint32_t count_instructions(const ir::Function& f);
ir::Value* narrowed(ir::Builder& b, ir::Value* v, ir::Prim p);  // a cast that loses nothing
// A serial loop over [low, high) without a body yet, carrying these along.
ir::Inst* new_for(ir::Builder& b, ir::Value* low, ir::Value* high,
                  std::span<ir::Value* const> carried = {});
// Whether a loop's body is arithmetic, loads and branches of at most so many scalar operations (and
// what `kind` says), and goes on to the next iteration at its end alone.
enum class Plain : uint8_t { loads, stores, adds };
bool is_plain(const ir::Region& body, uint32_t most, Plain kind);

// --- passes on one function, by name
#define PASS(name, ...) bool name(Session& s, ir::Function& f);
#include "pass/passes.inc"

void single_exit(ir::Function& f);  // straighten
// The same as lower_random by variables; nothing below `kernel` draws. (straighten)
void draw_from_variables(ir::Function& kernel);
bool join_branches(ir::Function& f);  // tidy

// --- the kernel becomes tasks
void offload(Session& s, Plan& plan);

// --- parts of offload
// Replaces the parallel loop of a range task's body by loops over its units (units.cpp).
struct Accumulator {  // a reduction found in the loop (reduce.cpp)
    ir::Op op;        // add, min, max, bit_and, bit_or, bit_xor
    ir::Type type;    // scalar
    int lanes = 1;
    uint32_t offset = 0;         // in the chunk's partial result
    ir::Value* slot = nullptr;   // place of vec<type, lanes> (scalar if 1), in the task's preamble
    ir::Inst* atomic = nullptr;  // the instruction it replaces
};
void reduce(Session& s, Task& task, ir::Inst& loop, std::vector<Accumulator>& out);
// What join_tasks asks of a task, before its loop (null: it is serial) becomes the work of a
// thread.
struct Shortness {
    int threads = -1;  // that it needs; -1: it cannot be joined
    uint32_t cost = 0;
    bool does_little = false;
};
Shortness shortness_of(const Session& s, const Task& task, const ir::Inst* loop);
void join_tasks(Session& s, Plan& plan, std::span<const Shortness> shortness);
void private_fields(const Session& s, Task& task);  // on a finished task (private_fields.cpp)
void measure(Plan& plan);
bool waits_for_others(ir::Inst& loop);  // its iterations, without what they call
void find_waits(Plan& plan);            // of parallel tasks (waits.cpp)
void find_inputs(Plan& plan);           // of all tasks (inputs.cpp)
void lay_out_shared(Plan& plan);        // arrays of blocks (shared.cpp)
void lower_units(Session& s, Task& task, ir::Inst& loop, std::vector<Accumulator>& accumulators);
// The same for targets whose threads have an iteration each (threads.cpp).
void lower_threads(Session& s, Task& task, ir::Inst& loop, std::vector<Accumulator>& accumulators);
// place[lane] = place[lane] op value, in place of each accumulator's atomic; null: one lane.
void accumulate(std::vector<Accumulator>& accumulators, ir::Value* lane);
// The innermost `loop`'s body becomes that of `to`: the indices of outer dimensions are these.
void take_body(ir::Inst& to, ir::Region& body, std::span<ir::Value* const> outer);

}  // namespace qd::pass
