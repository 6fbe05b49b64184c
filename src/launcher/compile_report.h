// What is told of compiling under the option compile_report: a line a specialisation, and a table
// at the end of the session.

#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "frontend/specialise.h"
#include "support/abi.h"

namespace qd::launcher {

// How one specialisation was made. Times are always taken; the rest is filled in while somebody
// wants to read it.
struct Making {
    enum class From : uint8_t { nowhere, cache, memory, stored_code, compiler, interpreter };

    std::string kernel;
    From from = From::nowhere;  // where its code is from
    int64_t look_up_ns = 0, front_end_ns = 0, passes_ns = 0, emission_ns = 0, load_ns = 0;
    int64_t assembling_ns = 0;  // by a program, of a GPU's code
    int64_t code_ns = 0;        // all that follows the front end
    int64_t loading_ns = 0;     // of the compiler itself
    uint32_t before = 0, after = 0, tasks = 0, tier = 0;
    uint32_t parts_made = 0, parts_reused = 0;   // of large code, before it is optimised
    uint32_t funcs = 0, lowered = 0, calls = 0;  // in the module; made for it; calls walked
    uint64_t parsed = 0, loaded = 0;             // syntax trees of functions
    std::string shared;                          // memory: the kernel that it was compiled for
    std::vector<std::string> misses;             // why what is in the cache is of no use
    std::string not_kept;                        // why it will not be in the cache

    int64_t total_ns() const { return look_up_ns + front_end_ns + code_ns; }
    // What a look-up finds it loads.
    int64_t only_look_up_ns() const { return look_up_ns - (from == From::cache ? load_ns : 0); }
    // Writing to the cache, for instance. Clocks are read one after the other: not below zero.
    int64_t other_ns() const {
        const int64_t known = only_look_up_ns() + front_end_ns + loading_ns + passes_ns +
                              emission_ns + assembling_ns + load_ns;
        return std::max<int64_t>(total_ns() - known, 0);
    }
};

bool reports_compiling();
void count_front_end(Making& m, const frontend::LoweredKernel& kernel);
void count_code(Making& m, const abi::Artefact& code);
void report_making(const Making& m) noexcept;  // what there is no memory for is left out
// Any thread.
void report_optimising(const std::string& kernel, const abi::Artefact& code, int64_t passes_ns,
                       int64_t emission_ns);
// The table, if there is anything to tell; forgets what it told.
void report_session();
void forget_report();

}  // namespace qd::launcher
