// The compiled kernels of a cache: the files that users count, delete and clean (chapter 51).
//
//   kernel_compilation_manager/T<64 hex>.qdc   a kernel's code, since a flush
//   kernel_compilation_manager/qdcache.qdb     which release wrote them, how many, how large
//   kernel_compilation_manager/qdcache.lock    while a process opens, cleans or fills the folder
//   native/code/T<64 hex>.qdc                  code since it was made, until a flush moves it
//
// So a killed process loses nothing, and what a user deletes or damages is compiled again. Without
// a qdcache.qdb of this release the folder counts as empty, until a flush begins it anew; and while
// a lock that is none of ours lies there.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "cache/store.h"

namespace qd::cache {

class KernelFolder {
  public:
    // Of the option offline_cache_file_path. `release` is what entries must be of.
    KernelFolder(const std::string& path, std::string release);

    static constexpr const char* kIndex = "qdcache.qdb";

    // `name` as above. Not while another thread calls something of the same object.
    std::optional<Bytes> read(std::string_view name);
    // Cleans, then moves what this process used and writes the small entries that are not there.
    // False if another process keeps the lock.
    bool flush(const std::set<std::string>& used, std::span<const Store::Entry> small,
               const Limits& limits);

    // Any thread.
    static bool write(const std::string& path, std::string_view name,
                      std::span<const uint8_t> content);
    static bool is_name(std::string_view name);
    // Where code is before a flush, as "code/<name>", and since then, as "<name>".
    static Store pending_of(const std::string& path) { return Store(path + "/native"); }
    static Store kept_of(const std::string& path) {
        return Store(path + "/kernel_compilation_manager", "code/");
    }

  private:
    struct Index {
        int64_t entries, bytes;
    };
    enum class State : uint8_t { unknown, ours, foreign };
    std::optional<Index> read_index() const;
    // Under the lock. Looks at every file; what stays.
    Index clean(const std::set<std::string>& used, const Limits& limits, bool ours);
    State state();

    std::string release_;
    Store pending_, kept_;
    State state_ = State::unknown;  // of the folder, until the next flush
};

}  // namespace qd::cache
