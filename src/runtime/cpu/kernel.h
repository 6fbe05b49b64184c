// A loaded kernel and how to run it: the tasks in order, on the pool.
//
// A KernelImage is immutable after loading, so launches of it may nest and race. Everything a
// launch needs lives on the caller's stack.

#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cpu/loader.h"
#include "runtime/cpu/pool.h"
#include "support/abi.h"
#include "support/format_table.h"

namespace qd::runtime {

namespace cuda {
struct Code;
}

struct LoadedTask {
    abi::TaskKind kind;
    int dims;
    abi::TaskFn entry;
    abi::TaskFn finish;  // null: no reduction
    uint32_t partial_bytes;
    int max_threads, block_dim;
    std::span<const abi::Bound> bounds;  // begin/end pairs
    std::span<const abi::PrivateField> private_fields;
    uint32_t private_atomics = 0;
    bool polls = false;                    // iterations may wait for later ones
    bool ends_serial = true;               // as abi::Task says
    uint32_t counted = 1;                  // likewise
    uint32_t from = 0;                     // where a do-while loop that ends here begins
    int32_t again = -1;                    // its condition in temps; -1: none
    uint32_t behind = 0;                   // what follows a checkpoint that begins here
    int32_t gate = -1;                     // its condition in temps; -1: none
    uint32_t region = 0, branch = 0;       // as abi::Task says
    uint32_t shared_bytes = 0;             // that the launch of a block asks for
    uint32_t iterations = 1;               // of a GPU's thread; 0: shared by threads that fill it
    std::span<const abi::Piece> pieces{};  // of a GPU: what it is handed
    uint32_t record_bytes = 0;             // all of them
    std::string_view name;                 // of its loop, else made up
    // Whether its last loop was too short for several threads. A hint, from any thread.
    mutable uint8_t was_brief = 0;
};

struct KernelImage {
    std::vector<uint8_t> artefact;       // header, tables and strings; the object itself is dropped
    std::unique_ptr<LoadedObject> code;  // of a CPU
    std::shared_ptr<const cuda::Code> gpu;  // instead
    std::vector<LoadedTask> tasks;
    std::vector<support::FormatEntry> formats;
    uint32_t temps_bytes = 0, result_bytes = 0, args_bytes = 0, tier = 0;
    uint64_t stack_bytes = 0;  // see abi::Artefact
    bool uses_random = false, uses_print = false, uses_tape = false;
    uint32_t array_use = 0;    // abi::ArrayUse
    std::vector<uint8_t> ir;   // quick code: what tier 1 is made from; moves into its slot
    uint32_t optimise_us = 0;  // quick code: estimate
    // As spec 41 section 1 counts tasks: none for the condition of a loop of tasks alone; loop
    // bounds that are arguments are computed in a serial task, if none stands in front of the loop.
    size_t counted_tasks = 0;
    std::string name;

    const abi::Artefact& header() const {
        return *reinterpret_cast<const abi::Artefact*>(artefact.data());
    }
};

// Checks every offset and loads the object. Throws support::Error on damaged or foreign bytes.
std::unique_ptr<KernelImage> load_artefact(std::span<const uint8_t> bytes, std::string name);

// Spare bytes on either side of a field's memory: an index that is off by a row of a square grid
// stays inside.
inline size_t edge_margin(size_t bytes) {
    return (std::clamp<size_t>(bytes / 8, 256, size_t(1) << 20) + 63) & ~size_t(63);
}

// Of a thread's stack, what is kept back for what a function that calls itself may call besides.
inline constexpr size_t kCallReserve = 256 << 10;

// What a launch leaves behind besides its results.
struct LaunchOutcome {
    std::string printed;  // text of print statements, in order of arrival
    bool failed = false;  // an assertion did not hold
    std::string failure;  // text of the first one; may be empty
    // Where it stands, and the calls around it, innermost first; they live as long as the image.
    std::unique_ptr<std::vector<const support::FormatEntry*>> stack;
    bool interrupted = false;
    bool no_memory = false;  // for what it prints, or for what a thread works with: it ended there
};

// How the caller waits. Both are called on the launching thread only, and not for short launches.
struct TaskTime {  // one run of a task
    uint32_t task;
    int64_t began_ns, ns;  // by the steady clock
};

struct LaunchHooks {
    bool (*should_stop)(void*) = nullptr;  // between tasks, every kStopCheckNs at most
    void (*long_run)(void*) = nullptr;     // once, when the launch turns out to take long
    void* data = nullptr;
    std::vector<TaskTime>* times = nullptr;  // gets every run of a task; null: nobody asks
    uint64_t stream = 0;                     // of the device, by its own handle; 0: the default
    int64_t long_ns = 50000;                 // what is long: more than this still to do
    int64_t whole_ns = 0;                    // `should_stop` is not asked before
    // A device that runs by itself may say later what checks of reverse sweeps found.
    bool may_be_late = false;
    // Whose tapes are told (see tape_report.h); null: nobody asks.
    const char* tapes_of = nullptr;
};

// Runs all tasks. `context` brings bindings, args, results and launch_key; the rest is filled in.
// Never throws for the user's failures: they are in the outcome. Returns the fast path's answer:
// true if `outcome` holds something to look at.
bool launch(const KernelImage& image, abi::Context& context, Pool& pool, const LaunchHooks& hooks,
            LaunchOutcome& outcome);

}  // namespace qd::runtime
