// The contract between compiled CPU code and the runtime, and between the extension and the
// compiler object. Plain C layout; part of the cache format version (kAbiVersion).
//
// Compiled code has one entry per task:
//     void task(Thread*, int64_t begin, int64_t end, int64_t chunk)
// Serial task: called once with (0, 1, 0).
// Range task of n dimensions: the iteration space is cut into units. n == 1: unit u is the index
// begin0 + u. n >= 2: the innermost dimension is cut into tiles of Thread::tile iterations
// (tile == whole extent unless the outer extents are few); unit u is row u / tiles, tile
// u % tiles, where rows enumerate the outer dimensions in ascending order. Context::bounds holds
// the evaluated begin/end pairs. The entry runs units [begin, end) of chunk number `chunk`.
// Reductions: a range task with partial_bytes > 0 writes its chunk's partial result to
// Context::partials + chunk * partial_bytes; afterwards `finish` is called once as
// finish(Thread*, 0, number of chunks, 0) and folds the partials in a fixed tree. The cut into
// tiles and chunks depends on the extents only, never on the number of threads.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace qd::abi {

inline constexpr uint32_t kAbiVersion = 33;
inline constexpr int kMaxDims = 12;

struct Context;

// Bits of Thread::alone. Nobody else sees memory that a parallel task reaches by atomics: no other
// thread runs the launch, nor another process; or none sees this thread's copies of the task's
// private fields.
inline constexpr int32_t kAlone = 1, kAloneInPrivate = 2;

// A call that has not returned, in code with checks: lies on the stack of its caller.
struct OpenCall {
    const OpenCall* outer;  // of the calling function, null in the task's own body
    uint64_t site;          // number of the artefact's format that tells where it stands
};

struct Thread {  // hidden first argument of every compiled function
    const Context* context;
    int64_t tile;           // see above
    int64_t tiles;          // tiles per row
    uint64_t random_key;    // set by the task entry per iteration: mix(launch, task, iteration)
    uint64_t random_draw;   // number of draws so far in this iteration
    int32_t index;          // number of the thread, 0 = caller
    int32_t alone;          // kAloneXxx: where atomics may be plain reads and writes
    const OpenCall* calls;  // innermost first; null where checks are off
    uint8_t* tape;          // what a reverse sweep will need, of kernels that ask for it; in front
                            // of it lie kTapeHeader bytes, of which the last 8 are TapeCounts
    int64_t tape_bytes;
};

// What a reverse sweep counts, in front of its tape.
struct TapeCounts {
    uint32_t recorded_again;  // segments of loops, as they had not fitted
    uint32_t unused;
};
inline constexpr int64_t kTapeHeader = 64;

// One operand of print/assert, as stored by compiled code: 8 bytes each, scalars widened
// (ints sign- or zero-extended to 64 bits, f16/f32 converted to double).
union Cell {
    int64_t i;
    uint64_t u;
    double f;
};

struct Runtime {  // callbacks; compiled code reaches them through Context::runtime
    // Prints by format number `format` of the artefact; cells hold every scalar of the operands.
    void (*print)(Thread*, uint32_t format, const Cell* cells);
    // A failed assert_: records the message once and does not return (jumps to the ticket loop).
    void (*fail)(Thread*, uint32_t format, const Cell* cells);
    int64_t (*clock)();
    // Whether the thread's stack has room for one more call of a function that calls itself.
    int32_t (*stack_left)(Thread*);
};

struct Context {  // one launch; lives on the launcher's stack
    const Runtime* runtime;
    void* const* bindings;  // base address of Module::fields[k]
    uint8_t* args;          // Param::offset
    uint8_t* results;       // Module::result_offset
    uint8_t* temps;     // kernel temporaries (op temp), zero-initialised only where the IR stores
    uint8_t* partials;  // of the running task
    const int64_t* bounds;   // begin/end pairs of the running range task
    uint64_t launch_key;     // seed and launch number, mixed
    uint32_t task;           // number of the running task
    uint32_t shared;         // 1: other processes may see array arguments, too
    const void* kernel;      // the runtime's own record (formats, name)
    volatile int32_t* stop;  // non-zero: a check failed or the user interrupted
};

// A launch of a task by many threads, each with one iteration: the parameter of the kernel
// "task<k>" or "finish<k>" of code for a GPU. Behind it stand the Pieces of the task; together they
// are kMostDeviceLaunch bytes, or the parameter is the address of all that.
struct DeviceLaunch {
    uint64_t temps, partials, results;  // addresses, as in Context
    uint64_t report;                    // of a DeviceReport
    uint64_t prints;                    // of DevicePrints
    uint64_t launch_key;
    // If the last task is serial and the kernel has results: where it stores `launch` once they are
    // there; or 0.
    uint64_t done, launch;
    // Not 0: a turn of a loop of tasks whose condition nobody looked at since the one before it;
    // the task does nothing if that is 0.
    uint64_t gated;
    // Of kernels that keep something for a reverse sweep: the first thread's, and bytes of each. In
    // a group of 32 threads the elements of one number lie side by side. In front of each lie
    // kTapeHeader bytes more.
    uint64_t tape, tape_bytes;
    uint64_t stack_bytes;          // of a thread, if the kernel has functions that call themselves
    int64_t bounds[2 * kMaxDims];  // of a range task; of `finish` the first is the number of chunks
};
inline constexpr uint32_t kMostDeviceLaunch = 32764;

struct DeviceReport {  // of the first failed check
    uint32_t failed, format, cell_count, site_count;
    uint64_t told;  // the address of a word of the host's that becomes 1 too, if it is not 0
    Cell cells[1020];
    uint64_t sites[256];  // as OpenCall::site, innermost first
};

// Records of 8-byte words: format | cells << 32 | kPrinted, the number of calls around, the cells,
// the calls as OpenCall::site, innermost first. What finds no room is counted.
inline constexpr uint64_t kPrinted = uint64_t{1} << 63;
struct DevicePrints {
    uint32_t used, lost;  // words
    uint64_t words[(1 << 17) - 1];
};

// Every turn of a do-while loop of tasks draws other random numbers.
inline constexpr uint64_t key_of_next_turn(uint64_t launch_key) {
    return launch_key * 6364136223846793005u + 1442695040888963407u;
}

using TaskFn = void (*)(Thread*, int64_t begin, int64_t end, int64_t chunk);

enum class BoundKind : uint8_t { constant, arg, temp };
struct Bound {  // a loop bound the launcher can read before the task runs
    BoundKind kind;
    uint8_t bytes;       // width of the integer in memory: 4 or 8 (arg, temp); signed
    uint16_t sum_bytes;  // of an arg: width of its sum with `addend`, which wraps
    int32_t addend;
    int64_t value;  // constant, or byte offset into args / temps
};

inline int64_t read_bound(const Bound& b, const uint8_t* block) {  // an arg or a temp
    int64_t wide = 0;
    int32_t narrow = 0;
    memcpy(b.bytes == 4 ? static_cast<void*>(&narrow) : &wide, block + b.value, b.bytes);
    if (b.bytes == 4) wide = narrow;
    if (!b.addend) return wide;
    const uint64_t sum = uint64_t(wide) + uint64_t(int64_t{b.addend});
    return b.sum_bytes == 4 ? int32_t(uint32_t(sum)) : int64_t(sum);
}

// A field that a task touches by atomic additions alone, results unused: with several threads each
// may add to a copy of its own, which starts as zeros and is added to the field at the end.
enum class Addend : uint32_t { f32, f64, i32, i64 };  // integers of either sign
struct PrivateField {
    uint32_t binding;  // its number in Context::bindings
    Addend addend;     // all its bytes are such
    uint64_t bytes;
};
inline constexpr int kMaxPrivateFields = 4;

enum class Machine : uint32_t { cpu, cuda };  // objects are ELF relocatables, or PTX

struct Piece {                 // of what a GPU's task is handed
    uint32_t of_bindings;      // else of Context::args
    uint32_t from, bytes, to;  // bytes of it, and behind DeviceLaunch
};

enum class TaskKind : uint8_t { serial, range };
struct Task {
    TaskKind kind;
    uint8_t dims;              // of a range task
    uint8_t polls;             // iterations may wait for later ones
    uint8_t ends_serial;       // of several that were joined the last one
    uint32_t entry;            // offset of the entry in the code image
    uint32_t finish;           // offset, or UINT32_MAX
    uint32_t partial_bytes;    // 0: no reduction
    int32_t block_dim;         // 0: runtime decides; of a GPU: threads of a block
    int32_t max_threads;       // 0: all; of a GPU: blocks
    uint32_t name;             // offset into the artefact's strings
    uint32_t privates;         // how many of private_fields count
    uint32_t private_atomics;  // scalar atomics on them in the body
    uint32_t from;             // the first task of the do-while loop that this one ends
    int32_t again;             // offset of its condition, an i32, into temps; -1: it ends none
    uint32_t behind;           // the first task behind the checkpoint that this one begins
    int32_t gate;              // offset of its condition, an i32, into temps; -1: it begins none
    // Tasks of other branches of a region may run at the same time; 0: of none.
    uint32_t region, branch;
    uint32_t counted;       // as how many tasks; 0: it only says whether a loop of tasks goes on
    uint32_t shared_bytes;  // that the launch of a block asks for
    uint32_t iterations;    // of a GPU's thread; 0: threads that fill it share them
    uint32_t piece_count, first_piece, record_bytes;  // of a GPU; all pieces together
    PrivateField private_fields[kMaxPrivateFields];
    Bound bounds[2 * kMaxDims];
};

// What code relies on about its array arguments; the launcher compares their ranges.
enum ArrayUse : uint32_t {
    kDistinctArrays = 1,     // right only if no two of them overlap
    kOwnFields = 2,          // right only if none is a view of a field
    kOverlappingArrays = 4,  // made for arguments that are so, by Module::arrays_may_overlap
    kAtomicArrays = 8,       // parallel tasks use atomics on them
};

struct ObjectRange {
    uint32_t offset, bytes;
};

// An artefact: header, tasks, formats, strings, object files; all offsets from the header's start.
// Position independent: objects for CPUs are ELF relocatable, loaded by runtime/cpu/loader.
struct Artefact {
    char magic[8];  // "QDART\0\0\0"
    uint32_t abi_version;
    uint32_t tier;         // 0 quick, 1 optimised
    uint64_t bytes;        // whole artefact
    uint64_t stack_bytes;  // that a task and what it calls take; 0: a few kilobytes. Of functions
                           // that call themselves: until they ask stack_left again; on a GPU 1
    uint32_t temps_bytes, result_bytes, args_bytes;
    uint32_t task_count, tasks;      // count, offset
    uint32_t format_bytes, formats;  // serialised ir::Format table (see runtime/format.h)
    uint32_t strings_bytes, strings;
    // They call each other's functions by name. Entry symbols are named "task<k>" and "finish<k>";
    // Task::entry is filled in by the loader.
    uint32_t object_count, objects;  // count, offset of the table of ObjectRange
    uint32_t piece_count, pieces;    // count, offset of the Pieces of all tasks
    uint32_t first_object;           // what stands before it is kept when the code is loaded
    uint32_t uses_random, uses_print, uses_tape;
    uint32_t binding_count;  // how many entries Context::bindings has
    uint32_t instructions;   // IR instructions after passes, for the tier decision and counters
    uint32_t arrays;         // of ArrayUse, joined by or
    Machine machine;
    uint32_t optimise_us;   // quick code: estimated time that tier 1 takes
    uint32_t ir_bytes, ir;  // quick code: the module that it was made from, so that any process
                            // can make tier 1 of it
};

// --- the compiler object's C entry points (dlsym) --------------------------------------------
struct Blob;
// Where parts of large modules stay, by keys of 16 bytes that say all that they were made from but
// the build. Any thread.
struct PartStore {
    void* data;
    // Fills the blob with memory from malloc; or returns 0.
    int (*find)(void* data, const uint8_t* key, Blob* part);
    void (*keep)(void* data, const uint8_t* key, const uint8_t* part, size_t bytes);
};
struct CompileOptions {
    uint32_t abi_version = kAbiVersion;
    int32_t tier = 1;  // 0, 1
    // "" = host; else an LLVM CPU name, e.g. "x86-64", "haswell", "skylake-avx512"
    const char* cpu = "";
    const char* triple = "";  // "" = host
    int32_t time_passes = 0;  // print per-pass time and instruction counts to stderr
    // May be null. Another thread sets it; once it is not 0 the work ends soon, with an error that
    // nobody has to read.
    const int32_t* unwanted = nullptr;
    // May be null. Told of each stage when it is over, on the thread that worked; steady clock.
    void (*on_stage)(const char* stage, const char* of, int64_t began_ns,
                     int64_t took_ns) = nullptr;
    int32_t threads = 1;               // that emission may use, the caller's included
    const PartStore* parts = nullptr;  // may be null
};
struct Blob {  // what the compiler object gives is to be freed with qd_compiler_free
    uint8_t* data;
    size_t bytes;
};
struct Compilation;  // a module after passes, ready for code generation by either tier

// All return 0 or non-zero with a message in *error (a Blob of text). Callable from any thread,
// several at once.
using BeginFn = int (*)(const uint8_t* ir, size_t bytes, const CompileOptions*, Compilation**,
                        Blob* error);
using CostFn = uint32_t (*)(const Compilation*);  // estimated microseconds of tier 1
using EmitFn = int (*)(Compilation*, const CompileOptions*, Blob* artefact, Blob* error);
// Code of task number `task`, from this file, instead of ours.
using ReplaceFn = void (*)(Compilation*, uint32_t task, const char* file, const char* llvm,
                           size_t bytes);
struct Derivative {  // as autodiff::Request
    int32_t mode;
    const int32_t* companions;
    uint32_t companion_count;
    int32_t inner_loops, general_control;
    int64_t most_records;
};
// *module: the serialised derivative; or none, and *refusal says why (support/no_derivative.h).
using DifferentiateFn = int (*)(const uint8_t* ir, size_t bytes, const Derivative*, Blob* module,
                                Blob* refusal, Blob* error);
using EndFn = void (*)(Compilation*);
using FreeFn = void (*)(Blob*);
using InterpretFn = int (*)(const uint8_t* ir, size_t bytes, const Context*, Blob* error);
using CheckCpuFn = int (*)(const char* cpu,
                           Blob* error);  // whether code for it runs on this machine
// What qd_compiler_text shows. `stages` and `passes` are lists: a form feed, a title, a line break
// and the module at that moment, or the function that a pass ran on; titles of passes are phase,
// pass and function. The last item of `stages`, "tasks", has a line a task: kind, name.
enum class Text : int {
    input,
    plan,
    llvm,
    assembly,
    lowered_llvm,
    stages,
    passes,
    listed_input,   // in the form that chapter 50 promises (pass/listing.h)
    located_input,  // with places in the source, too
    listed_stages,
    located_stages,
    listed_passes
};
// cpu: an LLVM name, as in CompileOptions.
using TextFn = int (*)(const uint8_t* ir, size_t bytes, int what, const char* cpu, Blob* text,
                       Blob* error);
// Lines "work<tab>stage<tab>part<tab>nanoseconds<tab>count" of all modules of the process.
using TimesFn = void (*)(Blob* text);
// exported: qd_compiler_begin, qd_compiler_check_cpu, qd_compiler_cost, qd_compiler_differentiate,
// qd_compiler_emit, qd_compiler_end, qd_compiler_free, qd_compiler_interpret, qd_compiler_replace,
// qd_compiler_text, qd_compiler_times, qd_compiler_abi_version (uint32_t())

}  // namespace qd::abi
