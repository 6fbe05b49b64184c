// Functions that stay functions in a derivative: those whose expansion would multiply the kernel.
//
// In forward mode one takes tangents beside its parameters, and returns some beside its results.
// In reverse mode each has a way back, which takes parameters, adjoints of results and the end of
// the tape, and returns adjoints of parameters. It does the way there once more, if that calls none
// of these functions; else the way there is a function too, which leaves a record. So depth
// multiplies neither code nor work. Private to autodiff.

#pragma once

#include <unordered_map>
#include <vector>

#include "autodiff/parts.h"

namespace qd::autodiff {

struct Way {
    Function* there =
        nullptr;               // with results, and the tape's end; null: the way back does it again
    Function* back = nullptr;  // results: adjoints, and with `there` the tape's end
    std::vector<bool> takes;   // by parameter: whether the way back asks for it
    std::vector<bool> gives;   // by parameter: whether it has an adjoint
    std::vector<bool> from;    // by result: the same
};
using Ways = std::unordered_map<const Function*, Way>;

// On the module as the front end made it.
pass::KeptCalls choose_calls(Module& m, const Request& request);
// On the straightened one; functions that have ways lose their stores to what has gradients.
Ways make_ways(Module& m, Storage& storage, const Activity& activity, const Request& request,
               const GradientUses& uses, const std::vector<uint64_t>& written);

// A copy whose values have the numbers of the original's; and another end for a function.
Function& copy_function(Module& m, Storage& storage, Function& f, const char* what);
void return_at_end(Function& f, std::span<Value* const> values);

}  // namespace qd::autodiff
