// Warm start: finding an earlier process's work without parsing, lowering or loading the compiler.
//
// A recipe is everything about a specialisation but its code and its Python objects: where its
// parameters come from, which fields it binds, and the guards under which it is right. Recipes are
// stored under a hash of the kernel's source and the options; code under a hash of its IR.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/specialise.h"
#include "launcher/kernel.h"

namespace qd::launcher {

constexpr uint32_t kRecipeVersion = 12;

struct Recipe {
    frontend::LoweredKernel kernel;  // module is null
    std::vector<ir::Param> params;   // parallel to kernel.params
    std::vector<uint8_t> code_hash;  // of the IR and target: names the artefact
    std::vector<uint8_t> artefact;   // loaded code
};

// Tries the stored recipes whose guards hold for these arguments, their fields resolved and their
// artefacts read, until `accept` makes a specialisation of one; null if there is none. Never throws
// for bad files; Python errors inside guards mean "no".
// What is passed over is told in `misses`, unless that is null.
using AcceptRecipe = std::function<std::unique_ptr<Specialisation>(Recipe&)>;
std::unique_ptr<Specialisation> find_recipe(KernelObject& k, PyObject* const* args, size_t count,
                                            const AcceptRecipe& accept,
                                            std::vector<std::string>* misses);
// Keeps what a cold start made for these arguments. `params` are the module's. Why not, or "".
std::string store_recipe(KernelObject& k, PyObject* const* args, size_t count,
                         const frontend::LoweredKernel& kernel, std::span<const ir::Param> params,
                         std::span<const uint8_t> code_hash);

// Of a stored recipe's kernel: its source; nothing if the file is no recipe of this build.
std::optional<std::string> kernel_text(const std::string& file);
// How a stored recipe fits a call.
enum class Fit : uint8_t { none, other_source, some_guard_fails, whole };
Fit fit_of(const std::string& file, KernelObject& k, PyObject* const* args, size_t count);

}  // namespace qd::launcher
