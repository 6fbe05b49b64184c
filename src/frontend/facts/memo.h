// What was found out about Python objects, by identity. An entry owns its object, so the address
// stays its own; all go when the runtime ends, or the program's globals would outlive the program.
#pragma once

#include <Python.h>

#include <functional>
#include <unordered_map>
#include <vector>

namespace qd::frontend {

inline std::vector<std::function<void()>>& memo_ends() {
    static auto* all = new std::vector<std::function<void()>>;
    return *all;
}

// One map per type of answer.
template <typename Answer>
std::unordered_map<PyObject*, Answer>& memo() {
    using Map = std::unordered_map<PyObject*, Answer>;
    static Map* all = [] {
        auto* m = new Map;
        memo_ends().push_back([m] { Map().swap(*m); });  // empty before the objects die
        return m;
    }();
    return *all;
}

inline void forget_memos() {
    for (const auto& end : memo_ends()) end();
}

}  // namespace qd::frontend
