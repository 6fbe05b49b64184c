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
#include <vector>

#include "frontend/specialise.h"
#include "python/kernel.h"

namespace qd::python {

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
// Tells in `misses` what differs from the recipes of this kernel under other keys. Takes long.
void explain_miss(KernelObject& k, PyObject* const* args, size_t count,
                  std::vector<std::string>& misses);
// Keeps what a cold start made for these arguments. `params` are the module's. Why not, or "".
std::string store_recipe(KernelObject& k, PyObject* const* args, size_t count,
                         const frontend::LoweredKernel& kernel, std::span<const ir::Param> params,
                         std::span<const uint8_t> code_hash);
// Artefacts by hash, best tier known.
std::optional<std::vector<uint8_t>> find_artefact(std::span<const uint8_t> code_hash);
// Any thread: `cache_path` is the session's when the compilation began; "" keeps nothing.
void store_artefact(const std::string& cache_path, const std::vector<uint8_t>& code_hash,
                    std::span<const uint8_t> artefact);
// Notes that this session uses a kernel's code: a flush moves it. Its key in the folder.
std::string note_kernel(const std::vector<uint8_t>& code_hash);
// Notes what this session did that needs no code but counts as a kernel: content of its entry.
void note_accessor(std::vector<uint8_t> entry);
// Passes on to the log what the store has to say.
void show_cache_messages();
// The flush point of spec 51: cleans by size and writes the files that users may count.
void flush_cache();

}  // namespace qd::python
