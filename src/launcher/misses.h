// Why nothing in the cache is of use for a call: told only while somebody wants to know.

#pragma once

#include <Python.h>

#include <algorithm>
#include <string>
#include <vector>

#include "frontend/specialise.h"
#include "launcher/kernel.h"

namespace qd::launcher {

// Where reasons go, while somebody wants to know; under the GIL.
extern std::vector<std::string>* asked_misses;

struct AskMisses {
    explicit AskMisses(std::vector<std::string>* misses) { asked_misses = misses; }
    ~AskMisses() { asked_misses = nullptr; }
};

// False. `why()` is asked only while somebody wants to know: it may show values, which calls the
// user's code.
template <class Why>
bool refuse(Why why) {
    if (!asked_misses) return false;
    std::string text = why();
    if (std::ranges::find(*asked_misses, text) == asked_misses->end())
        asked_misses->push_back(std::move(text));
    return false;
}
inline bool refuse(const char* why) {
    return refuse([=] { return std::string(why); });
}
// Of a guard that does not hold; `now`: what its path leads to, or null.
bool refuse_guard(const frontend::Guard& g, PyObject* now, const KernelObject& k);

std::string describe(const Path& p, const KernelObject& k);
// Tells in `misses` what differs from the recipes of this kernel under other keys. Takes long.
void explain_miss(KernelObject& k, PyObject* const* args, size_t count,
                  std::vector<std::string>& misses);
// That this session wrote a recipe.
void note_recipe(const std::string& file);

}  // namespace qd::launcher
