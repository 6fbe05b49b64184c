// See stored_code.h, and cache/kernel_folder.h for the files.

#include "session/stored_code.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "cache/kernel_folder.h"
#include "cache/store.h"
#include "cpython/cpython.h"
#include "session/session.h"
#include "session/target.h"

namespace qd::session {
namespace {

using cache::Bytes;

cache::KernelFolder& kernel_folder() {
    static std::map<std::string, std::unique_ptr<cache::KernelFolder>> folders;  // under the GIL
    const std::string& path = session().options.offline_cache_file_path;
    auto& folder = folders[path];
    if (!folder)
        folder = std::make_unique<cache::KernelFolder>(path, "quadrants " + session().release);
    return *folder;
}

// Of this session, under the GIL: names of its code, contents of its accessors' entries.
std::set<std::string> used;
std::set<Bytes> accessors;

// Entries of the same size under their names are taken for the same.
std::vector<cache::Store::Entry> entries_of(const std::set<Bytes>& contents) {
    std::vector<cache::Store::Entry> entries;
    for (const Bytes& content : contents) {
        Bytes key = environment();
        key.insert(key.end(), content.begin(), content.end());
        entries.push_back({code_name(hash_of(key)), content});
    }
    return entries;
}

}  // namespace

bool keeps_cache() {
    const ir::Options& o = session().options;
    return o.offline_cache && !o.offline_cache_file_path.empty();
}

cache::Store& store() {
    static std::map<std::string, std::unique_ptr<cache::Store>> stores;  // under the GIL
    auto& s = stores[session().options.offline_cache_file_path];
    if (!s)
        s = std::make_unique<cache::Store>(session().options.offline_cache_file_path + "/native");
    return *s;
}

std::optional<Bytes> find_artefact(std::span<const uint8_t> code_hash) {
    return keeps_cache() ? kernel_folder().read(code_name(code_hash)) : std::nullopt;
}

void store_artefact(const std::string& cache_path, const Bytes& code_hash,
                    std::span<const uint8_t> artefact) {
    if (!cache_path.empty())
        (void)cache::KernelFolder::write(cache_path, code_name(code_hash), artefact);
}

std::string note_kernel(const Bytes& code_hash) {
    const std::string& name = *used.insert(code_name(code_hash)).first;
    return name.substr(0, name.size() - 4);
}

void note_accessor(Bytes entry) { accessors.insert(std::move(entry)); }

void flush_cache() {
    const ir::Options& o = session().options;
    const auto code = std::exchange(used, {});
    const auto contents = std::exchange(accessors, {});
    if (keeps_cache()) {
        const cache::Limits limits{o.offline_cache_cleaning_policy,
                                   o.offline_cache_max_size_of_files,
                                   o.offline_cache_cleaning_factor};
        (void)kernel_folder().flush(code, entries_of(contents), limits);
        store().keep_within(limits);
    }
    show_cache_messages();
}

void show_cache_messages() {
    for (const cache::Message& m : cache::take_messages()) cpython::try_to_log(m.level, m.text);
}

}  // namespace qd::session
