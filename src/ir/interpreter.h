// Runs IR directly: the meaning of a module, and the oracle for passes and backends.
//
// Two forms are understood. A kernel as the front end builds it: interpret(module, context) runs
// functions[0], parallel loops in ascending order. A task of a Plan: interpret_task runs one
// function as the compiled entry would be called. Slow and simple; one module at a time per thread,
// because Value::id serves as the place of each value.
//
// Format numbers handed to Runtime::print and Runtime::fail index formats_of(module). If `fail`
// returns, the run stops there and the functions return false.

#pragma once

#include <cstdint>
#include <vector>

#include "ir/ir.h"
#include "support/abi.h"

namespace qd::ir {

struct InterpretOptions {
    uint8_t* tape = nullptr;  // for kernels that use one
    int64_t tape_bytes = 0;
    bool fused = true;         // as in fold()
    uint64_t max_steps = 0;    // 0: no limit; else support::Error beyond it
    bool (*stop)() = nullptr;  // asked now and then: whether to end as if `fail` had returned
    int64_t block_dim = 1;     // of targets whose threads work in blocks
    // Returns once all threads of the block have called it: for how many the condition holds.
    int (*meet)(void*, bool condition) = nullptr;
    void* meet_data = nullptr;
};

bool interpret(const Module& m, const abi::Context& context, const InterpretOptions& options = {});

bool interpret_task(const Module& m, const Function& task, abi::Thread& thread, int64_t begin,
                    int64_t end, int64_t chunk, const InterpretOptions& options = {});

// The formats of print and assert in the order of a walk over Module::functions, each once.
std::vector<const Format*> formats_of(const Module& m);

}  // namespace qd::ir
