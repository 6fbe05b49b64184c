// Code generation for CPUs: a Plan in, an ELF relocatable object out.
//
// No LLVM type shows here; the .cpp files of this folder are the only ones that see LLVM:
// - lower_module.cpp: declarations, helper functions, metadata; an LLVM function per ir::Function
// - lower_control.cpp: regions, loops, calls, tasks' entry protocol
// - lower_ops.cpp: arithmetic, tensors, conversions
// - lower_memory.cpp: loads, stores, atomics, what a launch fixes, print and assert
// - elementary.cpp: elementary functions, instantiated from the pass room's templates
// - split.cpp: which functions are emitted together
// - parts.cpp: parts of an LLVM module, and what is kept of them
// - edited.cpp: functions replaced by text that a user edited
// - stack_use.cpp: how much stack a plan's tasks take
// - target.cpp: target machine, LLVM pass lists of both tiers, object emission
//
// A tensor is one LLVM scalar per component, never an LLVM vector: vectors come from the loop
// vectoriser only. No fast-math flag is ever set, so both tiers compute the same bits.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/ir.h"
#include "ir/target.h"
#include "pass/pass.h"
#include "support/error.h"
#include "support/format_table.h"

namespace qd::codegen {

// Memory by class: what is of different classes never overlaps. Where the arrays of a launch may,
// they and all fields are one class.
enum MemoryClass : uint32_t {
    kMixed,
    kTemps,
    kPartials,
    kResults,
    kThread,
    kShared,
    kTape,
    kField0
};
struct Memory {
    std::unordered_map<uint64_t, uint32_t> groups;  // of fields, by Field::alias_group
    uint32_t array0 = 0;                            // arrays follow, by ArrayClasses::of
    uint32_t count = 0;
    bool mixed = false;
    // Classes that are written while a function runs. Of a task: by itself and its callees; of a
    // callee: by any task, since it may be expanded into its callers. Bits, by Function::id.
    std::vector<std::vector<uint64_t>> written;

    bool is_written(uint32_t function, uint32_t c) const {
        return written[function][c / 64] >> (c % 64) & 1;
    }

    uint32_t field(const ir::Field& f) const { return mixed ? kMixed : groups.at(f.alias_group); }
    uint32_t array(const pass::Plan& plan, const ir::Value* a) const {
        return mixed ? kMixed : array0 + plan.arrays.of(a);
    }
    uint32_t of(const pass::Plan& plan, const ir::Value* place) const;
};

// What emission needs to know beside the plan, computed once. Value::id of every value of these
// functions becomes the index of its first component among the function's LLVM values, and
// operands are resolved: emission itself only reads the plan, so several may run at once.
struct Prepared {
    pass::Plan plan;
    Memory memory;
    std::vector<ir::Function*> functions;  // by Function::id: callees, bodies, finishes
    std::vector<uint32_t> value_counts;    // by Function::id
    std::unordered_map<const ir::Inst*, uint32_t> formats;     // of print and assert_
    std::unordered_map<const ir::Inst*, uint32_t> call_sites;  // of calls whose callee has checks
    std::vector<support::FormatEntry> format_table;

    // Many functions are emitted in parts: what did not change since they were made is not made
    // again, and several threads may make quick code. Parts depend on the plan alone: equal modules
    // give equal code wherever that is made.
    uint32_t parts = 1;
    std::vector<uint32_t> part_of;     // by Function::id; empty if there is one
    std::vector<std::string> symbols;  // of callees, by Function::id, if there are several
    std::vector<bool> shared;          // by Function::id: called by functions of other parts
    // Of a GPU's code a part has some of the tasks, and all that they call: what is loaded apart
    // cannot call each other. By part, by Function::id; empty if there is one.
    std::vector<std::vector<bool>> members;
};

// See Prepared::parts. The sizes are of its functions; the calls are of all.
struct Call {
    uint32_t caller;  // its Function::id
    const ir::Function* callee;
};
void split(Prepared& prepared, std::span<const uint32_t> sizes, std::span<const Call> calls);

[[nodiscard]] Prepared prepare(pass::Plan plan);

// Where parts stay that were made, by what they were made from. Any thread.
using PartKey = std::array<uint8_t, 16>;
struct PartStore {
    std::function<std::optional<std::vector<uint8_t>>(const PartKey&)> find;
    std::function<void(const PartKey&, std::span<const uint8_t>)> keep;
};

// An LLVM module of the user's whose functions replace ours, that of this task among them.
struct EditedTask {
    uint32_t task;
    std::string file, llvm;
};

struct Options {
    int tier = 1;
    std::string cpu, triple;  // "" = host
    bool time_passes = false;
    bool verify = false;  // LLVM's verifier on what lowering made
    std::span<const EditedTask> edited;
    const PartStore* store = nullptr;  // asked where there are several parts
    enum class Want : uint8_t { object, lowered_llvm, llvm, assembly } want = Want::object;
};

struct Made {                                   // by one job
    std::vector<std::vector<uint8_t>> objects;  // files, or text if the options want that
    std::vector<uint64_t> frames;               // bytes of stack, by Function::id; 0: another job's
    double target_ms = 0, lowering_ms = 0, passes_ms = 0, generation_ms = 0;
};
struct Emitted {
    std::vector<std::vector<uint8_t>> objects;  // they call each other's functions by name
    uint64_t stack_bytes = 0;                   // see abi::Artefact
};

// Any thread may do any job: one for each part of quick code, one for all of optimised code, where
// functions are expanded into others. These throw support::Error.
[[nodiscard]] uint32_t jobs(const Prepared& prepared, const Options& options);
[[nodiscard]] Made do_job(const Prepared& prepared, const Options& options, uint32_t number);
[[nodiscard]] Emitted join(const Prepared& prepared, const Options& options,
                           std::vector<Made> made);
[[nodiscard]] Emitted emit(const Prepared& prepared, const Options& options);  // alone

// Of the bytes that each function's frame takes, by Function::id: those of the deepest chain of
// calls.
[[nodiscard]] uint64_t deepest_stack(const Prepared& prepared, std::span<const uint64_t> frames);
[[nodiscard]] bool is_recursive(const Prepared& prepared);

// Not our mistake: the wanted CPU or triple does not exist.
struct TargetError : support::Error {
    using support::Error::Error;
};

// Before anything else here. What happens once must not be cut off by a crash, so it stands apart.
void initialise(const std::string& triple, const std::string& cpu = "");
// Throws TargetError unless code for this CPU runs on this machine.
void check_cpu(const std::string& name);

// LLVM's record of what it does on this thread, which a crash leaves pointing at lost frames.
[[nodiscard]] const void* crash_trace();
void set_crash_trace(const void* trace);

// What passes are to know of this CPU. "" = host.
[[nodiscard]] ir::Target target_of(const std::string& cpu, const std::string& triple);

}  // namespace qd::codegen
