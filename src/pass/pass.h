// The passes: from the module that the front end built to tasks that code generation emits.
//
// run_pipeline() is the story (pipeline.cpp). Every pass is one function in one file, is close to
// linear in the number of instructions, and returns whether it changed anything. What a pass needs
// and keeps stands at the top of its file.
//
// The result is a Plan. For code generation a task is nothing special: `body` is an ordinary
// function without results whose loops are all serial. It has the kernel's parameter list
// (Plan::module->params, same order and count); the entry loads a parameter from Context::args at
// Param::offset when it is used (an array parameter is the address of its ArrayDesc). How a range
// task finds its share of the iteration space is in its instructions already:
//
//   task_value  i64, imm says which: the entry's arguments begin, end, chunk; Thread::tile,
//               Thread::tiles; Context::bounds[imm - TaskValue::bound]
//   partial     place at Context::partials + chunk * (imm >> 32) + (imm & 0xffffffff)
//   seed        Thread::random_key = random_key(context->launch_key, imm, iteration),
//               Thread::random_draw = 0                                     (ir/random.h)
//   temp        place at Context::temps + imm
//
// `finish`, if any, has the same form and is called once after the last chunk with
// (begin 0, end number of chunks, chunk 0).
//
// Groups (ir.h) are gone from bodies: Plan::groups has them as a list, and each task says which is
// around it. Task::shape and what follows it is for devices that run a task by many threads; the
// CPU looks at kind, block_dim and max_threads alone.
//
// A range task over one dimension typically looks like this:
//   %b = task_value bound0; %u = task_value begin; %v = task_value end
//   for %i = cast(%b + %u) to cast(%b + %v) { ... }
// and over several: a loop over units that carries the outer indices, around the contiguous
// innermost loop. LoopConfig::parallel is never set in a Plan.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/ir.h"
#include "ir/target.h"
#include "support/abi.h"

namespace qd::pass {

struct PipelineOptions {
    bool time_passes = false;  // per-pass time and instruction counts to stderr
    // Looks at the module at the pipeline's stages.
    using Observer =
        std::function<void(const char* stage, const ir::Module&, std::span<const struct Task>)>;
    Observer on_stage;
    // Looks at a function after each pass: "I cse", "III dce"; and, as "I start" and "III start",
    // before the first one of those that finish it, or a task.
    using PassObserver = std::function<void(const char* moment, const ir::Module&,
                                            std::span<const struct Task>, const ir::Function&)>;
    PassObserver on_pass;
    ir::Target target = {};
};

// arrays.cpp. An array parameter of the kernel, of a task (they have the same) or of a callee.
struct ArrayClasses {
    struct Root {
        int32_t parameter;  // the kernel's parameter that it is; -1: nobody calls
        bool only;          // it is never another
    };
    Root root(const ir::Value* array) const;
    uint32_t of(const ir::Value* array) const;  // arrays of different classes do not overlap

    uint32_t find(uint32_t k) const;
    std::unordered_map<const ir::Value*, Root> callees;  // their parameters
    std::vector<uint32_t> joined;                        // by kernel parameter: a forest
};

bool enabled(const ir::ModuleOptions& options, std::string_view pass);  // disable_pass says no

// Callees before callers; Function::id becomes the position. Throws support::Error on recursion.
std::vector<ir::Function*> callees_first(ir::Module& m);
ArrayClasses find_arrays(const ir::Module& m, std::span<ir::Function* const> callees_first);

// How many threads a device runs a task with.
enum class Shape : uint8_t {
    thread,
    block,  // one of Task::block_dim threads: there are no more iterations
    grid,
};

// What a task, with what it calls, reads of its launch but memory behind it.
struct Input {
    enum class Kind : uint8_t {
        argument,  // `bytes` of the argument block from `from` on: a value, an ArrayDesc or a bound
        binding,   // Context::bindings[from]
        word,      // ir::Word, number `from`
    } kind;
    uint32_t from, bytes;
    bool operator==(const Input&) const = default;
};

// What a device hands a task behind abi::DeviceLaunch: pieces of what the kernel was given.
struct Record {
    struct Piece {
        Input::Kind kind;  // no words
        uint32_t from, bytes;
        uint32_t to;  // where it lies, a multiple of 8
    };
    std::vector<Piece> pieces;                           // in order of kind and `from`
    uint32_t bytes = 0;                                  // a multiple of 8
    uint32_t at(Input::Kind kind, uint32_t from) const;  // where it lies; inputs.cpp
};

struct Task {
    abi::TaskKind kind = abi::TaskKind::serial;
    ir::Function* body = nullptr;
    ir::Function* finish = nullptr;             // null: no reduction
    uint32_t partial_bytes = 0;                 // per chunk, multiple of 8
    int dims = 0;                               // of a range task
    abi::Bound bounds[2 * abi::kMaxDims] = {};  // begin0, end0, ...
    int block_dim = 0, max_threads = 0;         // of a GPU most blocks
    bool polls = false;                         // some iteration may wait for a later one
    int counted = 1;          // as how many tasks; 0: all it does is to set its group's flag
    bool ends_serial = true;  // of several that were joined the last one
    Shape shape = Shape::thread;
    bool fixed_mapping = false;    // iteration i is thread i % block_dim of block i / block_dim
    int64_t most_iterations = -1;  // of a range task; -1: known when it runs
    uint32_t shared_bytes = 0;     // of a block, that its launch asks for; shared.cpp
    int iterations = 1;         // of a thread, that block_dim does not count; 0: t, t + threads ...
    std::vector<Input> inputs;  // in order of kind and `from`; inputs.cpp
    Record record;
    int group = -1;  // the innermost around all of it, of Plan::groups
    std::vector<abi::PrivateField> private_fields;  // private_fields.cpp
    uint32_t private_atomics = 0;
    std::string name;  // for profiles: LoopConfig::name, else kind and number
};

// A group of the kernel (ir.h). Its tasks and those of groups in it stand side by side.
struct Group {
    ir::Op op;
    int parent = -1;  // of Plan::groups, where outer ones come first; -1: the kernel
    // An i32 temporary. do_while: once its last task is over, it runs again if this is not 0.
    // checkpoint: set before its first task; it runs if this is not 0. Others: -1.
    int32_t flag = -1;
};

struct Plan {
    std::unique_ptr<ir::Module>
        module;               // owns everything below; functions = bodies, finishes, callees
    ir::Target target;        // that it was made for
    std::vector<Task> tasks;  // run in this order
    std::vector<Group> groups;
    std::vector<ir::Function*>
        callees;  // every function reachable by calls, callees before callers
    ArrayClasses arrays;
    Record common;  // what callees find by themselves: the begin of the record of who calls any
    // Shared arrays by number, in bytes behind the begin of what the launch of a task asks for.
    // Each of the others has a place that is known with the code.
    std::unordered_map<uint32_t, uint32_t> shared_places;
    uint32_t temps_bytes = 0;
    bool uses_random = false, uses_print = false, uses_tape = false;
    bool wide_tape = false;                // which has numbers of 8 bytes
    bool meets = false;                    // threads of blocks do something together
    bool assumes_distinct_arrays = false;  // right only if no two array arguments overlap
    bool assumes_own_fields = false;       // right only if no array argument is a view of a field
    bool array_atomics = false;            // in parallel tasks
    uint32_t instructions = 0;             // after all passes but those that write out
    // measure.cpp
    std::unordered_map<const ir::Function*, uint32_t> sizes;  // in scalar instructions
    uint32_t scalar_instructions = 0;                         // of all functions
    uint32_t innermost_loops = 0;
    bool floats_of_bits = false;  // some floats are made of integers
    // Whose tasks have fences of a device: these order their atomics by hand.
    std::unordered_set<const ir::Function*> fenced = {};
};

// The groups as who runs the tasks one after the other meets them.
struct Turns {
    // Before the task, where a checkpoint begins: if the temporary is 0, `behind` is next.
    int32_t gate = -1;
    uint32_t behind = 0;
    // After it, where a do-while loop ends: if the temporary is not 0, `from` is next.
    int32_t again = -1;
    uint32_t from = 0;
    // Tasks of other branches of its region may run at the same time; from 1 on, 0: of none.
    uint32_t region = 0, branch = 0;
};
[[nodiscard]] std::vector<Turns> turns_in_order(const Plan& plan);  // one a task; turns.cpp

// Whether the kernel may draw a random number, before passes find that it draws none.
[[nodiscard]] bool draws(const ir::Module& module);
[[nodiscard]] bool draws(const ir::Region& region);  // with what it calls
bool is_launch_key(const ir::Inst& i);
void number_streams(ir::Module& module);  // as the pipeline does (seed.cpp)

[[nodiscard]] uint32_t args_bytes(const ir::Module& module);  // of its argument block; inputs.cpp

// For gradients: calls are expanded and variables become values. Branches stay branches. Returns
// its reason if that can't be done.
struct Refusal {
    std::string what;  // "": none
    const ir::Loc* loc = nullptr;
    bool of_source = false;  // the kernel is to be written otherwise; else it can't be done at all
};
// Of the library's elimination of matrices. Op attach says the derivative of what it finds, so its
// loops are nobody's concern, and its large variables stay as they are.
bool is_elimination(const ir::Inst& i);
// Whether it is a loop of one iteration, which autodiff puts around a serial loop beside parallel
// ones.
bool is_only_iteration(const ir::Inst& loop);
using KeptCalls = std::unordered_set<const ir::Function*>;  // functions that are not expanded
Refusal straighten(ir::Module& m, bool unrolls, const KeptCalls& kept = {});
// Products that are used by more than sums are not fused with one either, so that all copies of
// them have the same bits whoever uses those.
void settle_products(ir::Function& f);
void tidy(ir::Module& m);  // the same variables and constants once more; what nobody uses goes

// Only the checks of indices and exponents, for who runs a module without the pipeline.
void insert_checks(ir::Module& module);

// The end of the pipeline, for who cuts a plan without it: what the target lacks is written out,
// and places become addresses.
void write_out(Plan& plan, const PipelineOptions& options = {});

[[nodiscard]] Plan run_pipeline(std::unique_ptr<ir::Module> module,
                                const PipelineOptions& options = {});

}  // namespace qd::pass
