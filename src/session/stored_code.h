// Code in the cache: artefacts by hash, and what a flush makes of them.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qd::cache {
class Store;
}

namespace qd::session {

// Whether this session has a cache: it may have been told not to, or that there is no folder.
bool keeps_cache();
// Of this session's folder: recipes, and code until a flush.
cache::Store& store();
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

}  // namespace qd::session
