// Files that outlive a process: content-addressed, checksummed, safe for any number of writers.
//
// An entry is one file, written whole under a temporary name and renamed, so a reader sees all of
// it or nothing. An entry carries its name: a file that was renamed is foreign. A damaged, foreign
// or missing file is a miss; an I/O failure (full disk, read-only
// folder) is a miss too and deletes nothing. Folder and files must belong to the user and not be
// writable by others: a checksum does not authenticate native code. What cannot be trusted is
// ignored, with one warning a path. Any thread.

#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qd::cache {

using Bytes = std::vector<uint8_t>;

std::string hex(std::span<const uint8_t> bytes);

struct Limits {
    std::string policy;  // lru, fifo: evict when it is full; version: what others left; never
    int64_t bytes;
    double share;  // of the entries, evicted at once

    bool evicts() const { return policy == "lru" || policy == "fifo"; }
    bool drops_others() const { return evicts() || policy == "version"; }
};

struct StoredFile {
    std::string path;
    int64_t bytes;
    time_t used, made;

    StoredFile(std::string path, const struct stat& info);
};
int64_t total_of(std::span<const StoredFile> files);
// If they reach the limit: deletes a share of them, for "lru" the least recently used, for "fifo"
// the oldest. What it deletes leaves the list.
void evict(std::vector<StoredFile>& files, const Limits& limits);

class Store {
  public:
    // The folder is made on the first write. Entries' names as they carry them begin with `prefix`.
    explicit Store(std::string folder, std::string prefix = "")
        : folder_(std::move(folder)), prefix_(std::move(prefix)) {}

    const std::string& folder() const { return folder_; }
    std::optional<Bytes> read(std::string_view name) const;
    // As read, for an entry of which only the length of its content is compared.
    bool holds(std::string_view name, size_t bytes) const;
    bool write(std::string_view name, std::span<const uint8_t> content) const;
    // Many small ones directly in the folder, which is looked at once. Bytes that each then has.
    struct Entry {
        std::string name;
        Bytes content;
    };
    std::vector<int64_t> write_each(std::span<const Entry> entries) const;
    bool make_folder() const;
    std::vector<std::string> list(std::string_view subfolder) const;  // names below it, sorted
    // Removes every second entry below `subfolder`, and not the newest, if there are more than
    // `most`.
    void trim(std::string_view subfolder, size_t most) const;
    // Evicts, and removes what interrupted writers left behind an hour ago, and empty folders.
    // Looks at every entry; returns their total before.
    int64_t clean(const Limits& limits) const;
    // The same when it is time: the total is kept in an entry, to which processes add what they
    // wrote. Costs nothing if this one wrote nothing.
    void keep_within(const Limits& limits) const;

  private:
    bool put(std::string_view name, std::span<const uint8_t> content) const;
    bool usable(std::string_view name) const;  // every folder from folder_'s parent to the file
    std::string cache() const;                 // the folder that holds it

    std::string folder_, prefix_;
};

// Whether stores may lie in a folder: nobody else can replace what is in it. Not if it is not
// there; `make` makes it.
bool may_hold_stores(const std::string& folder, bool make);

// What all stores have to say since the last call, for the log; each untrusted path is named once.
struct Message {
    const char* level;  // warn, debug
    std::string text;
};
std::vector<Message> take_messages();
void warn(const std::string& text);
// Kept only while somebody wants to read such lines.
bool debugs();
void set_debugs(bool wanted);
void debug(const std::string& text);

}  // namespace qd::cache
