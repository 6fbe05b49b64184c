// A func's body, lowered once for a key, and what the files around call_func do with it. Private to
// them.

#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "frontend/calls/call.h"

namespace qd::frontend {

struct Entry {
    std::unique_ptr<ir::Function> function;
    std::unique_ptr<Unit> unit;
    std::vector<Ref> constants;                   // keeps what the key names by address
    std::vector<std::pair<Ref, Ref>> codes;       // of the function and those it calls
    Ref result;                                   // skeleton: Exprs of the callee as leaves
    std::vector<int> written;                     // reference leaves that come back as results
    std::vector<ir::Type> result_types_declared;  // real functions
    bool expand = false, in_progress = false, recursive = false;
    bool has_print = false;
    uint64_t checked = 0;         // number of the kernel that last checked the facts
    uint64_t checked_at = 0;      // its user_runs then
    bool runs_code = false;       // of the user, while the body is walked
    Unit* merged_into = nullptr;  // facts were copied last to this unit, with these origins
    uint64_t merged_kernel = 0;
    std::vector<Prov*> merged_provs;
};

// Bodies (lower_func.cpp): as a function, or in place. lower_func throws HoldsTask if only the
// latter will do.
void lower_func(Entry& e, Lowering& caller, const FuncSignature& s, const std::vector<Arg>& args,
                bool top_level);
Val expand_func(Lowering& caller, const FuncSignature& s, const std::vector<Arg>& args);

// Real functions (real_func.cpp). `slots`: the variables that are passed by reference.
void check_real_signature(const FuncSignature& s);
void declare_real_results(Entry& e, Lowering::Body& body, const FuncSignature& s,
                          std::span<ir::Value* const> slots);
void run_real_body(Entry& e, Lowering::Body& body, const FuncSignature& s,
                   const std::vector<Val>& params);
void check_recursion(Entry& e, const ir::Loc* loc);

// Facts of a body where it is called (call_facts.cpp).
Val follow(Lowering::Body& caller, const std::vector<Arg>& args, const Prov* p);
void merge_facts(Entry& e, Unit& to, const std::vector<Arg>& args);
std::vector<PyObject*> objects_of(const std::vector<Arg>& args);
void note_codes(Entry& e, PyObject* fn);
void note_checked(Entry& e, KernelState& k);
bool is_checked(const Entry& e, const KernelState& k);
bool still_holds(const Entry& e, const std::vector<Arg>& args);

}  // namespace qd::frontend
