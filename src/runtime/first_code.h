// The code that a kernel's first call makes.
//
// What takes long is made by a thread of its own, so that who waits for it can leave. What was left
// ends soon, at its next stage, and touches nothing but itself: neither the cache nor a slot.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/part_folder.h"

namespace qd::runtime {

struct EditedTask {  // code of the user's in place of ours
    uint32_t task;
    std::string file, llvm;
};

struct FirstCodeRequest {
    std::vector<uint8_t> ir;
    std::string cpu;
    std::vector<EditedTask> edited;
    int tier = -1;        // forced; -1: quick where optimising takes long
    int64_t threads = 1;  // that may emit large code, as far as there are CPUs; the caller's is one
    bool time_passes = false;
    std::string name;                          // of the kernel
    std::shared_ptr<cache::PartFolder> parts;  // may be null
};
struct FirstCode {
    std::vector<uint8_t> artefact;
    std::string complaint;  // why it is not the optimised code that it was to be, if so
    int64_t loading_ns = 0, passes_ns = 0, emission_ns = 0;  // the compiler's own loading first
    int64_t assembling_ns = 0;                               // by a program, of a GPU's code
};

// Asked a few times a second, without any lock, while another thread compiles: whether to leave.
struct Impatience {
    bool (*leave)(void*);
    void* data;
};

// Nothing if the caller leaves. Throws support::Error.
std::optional<FirstCode> make_first_code(FirstCodeRequest request, Impatience impatience);

}  // namespace qd::runtime
