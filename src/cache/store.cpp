// See store.h.

#include "cache/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "support/io.h"

namespace qd::cache {
namespace {

constexpr off_t kLargest = off_t(1) << 30;  // no artefact comes near
constexpr time_t kAbandoned = 3600;         // seconds until an unfinished file is somebody's crash

constexpr int kAttempts = 20;  // ... at a file in a folder that others may remove
constexpr int64_t kRecount = 24 * 3600;
constexpr time_t kNoted = 10;                 // seconds for which a use counts
constexpr std::string_view kTotal = "total";  // the entry that says how large the others are
std::atomic<int64_t> bytes_written{0};        // by this process, and in no total yet

constexpr char kMagic[8] = {'Q', 'D', 'C', 'A', 'C', 'H', 'E', '2'};

struct Header {
    char magic[8];
    uint64_t bytes;     // of the content behind the header
    uint64_t checksum;  // XXH3 of the content
    uint64_t name[2];   // XXH3 of the entry's name: a file under another one's is no entry
};

Header header_of(std::string_view name, std::span<const uint8_t> content) {
    Header h;
    std::memcpy(h.magic, kMagic, sizeof kMagic);
    h.bytes = content.size();
    h.checksum = XXH3_64bits(content.data(), content.size());
    const XXH128_hash_t n = XXH3_128bits(name.data(), name.size());
    h.name[0] = n.low64;
    h.name[1] = n.high64;
    return h;
}

struct File {
    int descriptor;
    ~File() {
        if (descriptor >= 0) ::close(descriptor);
    }
};

bool make_folders(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) {
        errno = ENOTDIR;
        return S_ISDIR(info.st_mode);
    }
    for (size_t at = 1; at <= path.size(); ++at)
        if (at == path.size() || path[at] == '/')
            if (::mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST &&
                at == path.size())
                return false;
    return true;
}

// --- trust
// -----------------------------------------------------------------------------------------
struct Messages {
    std::mutex lock;  // guards both
    std::vector<Message> pending;
    std::set<std::string> named;
};

Messages& messages() {
    static auto* all = new Messages;  // other threads may warn during exit
    return *all;
}

bool distrust(const std::string& path,
              const char* why = "it must belong to you and not be writable by others") {
    Messages& w = messages();
    std::lock_guard guard(w.lock);
    if (w.named.insert(path).second)
        w.pending.push_back({"warn", "The kernel cache ignores " + path + ": " + why + "."});
    return false;
}

// Once a cache: what cannot be kept is compiled again, no more. Always false.
bool tell_unwritable(const std::string& cache, int why) {
    Messages& w = messages();
    std::lock_guard guard(w.lock);
    if (w.named.insert(cache + " cannot be written").second)
        w.pending.push_back({"warn", "The kernel cache at " + cache + " cannot be written (" +
                                         std::generic_category().message(why) +
                                         "): later processes will compile again."});
    return false;
}

bool is_private(const struct stat& info) {
    return info.st_uid == ::geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH));
}

// The folder that holds the store is the user's choice: /tmp is fine, since nobody can replace what
// is inside. Inside the store everything is ours alone.
bool holds_safely(const struct stat& info) {
    if (info.st_uid != ::geteuid() && info.st_uid != 0) return false;
    return !(info.st_mode & S_IWOTH) || (info.st_mode & S_ISVTX);
}

// File systems note reads once a day, if at all; to note each would cost as much as the rest.
void note_use(const std::string& path, const struct stat& info) {
    if (info.st_atime + kNoted >= ::time(nullptr)) return;
    const timespec times[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    (void)::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

}  // namespace

std::string hex(std::span<const uint8_t> bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string out;
    for (const uint8_t b : bytes) {
        out += digits[b >> 4];
        out += digits[b & 15];
    }
    return out;
}

static std::atomic<bool> debug_wanted{false};
bool debugs() { return debug_wanted; }
void set_debugs(bool wanted) { debug_wanted = wanted; }

static void say(const char* level, const std::string& text) {
    Messages& w = messages();
    std::lock_guard guard(w.lock);
    w.pending.push_back({level, text});
}
void warn(const std::string& text) { say("warn", text); }
void debug(const std::string& text) {
    if (debugs()) say("debug", text);
}

std::vector<Message> take_messages() {
    Messages& w = messages();
    std::lock_guard guard(w.lock);
    return std::exchange(w.pending, {});
}

static std::nullopt_t not_loaded(const std::string& path) {
    debug("Load cache file " + path + " failed: it is damaged, or another program's");
    return std::nullopt;
}

bool may_hold_stores(const std::string& folder, bool make) {
    struct stat info;
    if (make && !make_folders(folder)) return tell_unwritable(folder, errno);
    if (::stat(folder.c_str(), &info) != 0) return false;
    return holds_safely(info) || distrust(folder);
}

std::string Store::cache() const {
    const size_t slash = folder_.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : folder_.substr(0, slash);
}

bool Store::usable(std::string_view name) const {
    struct stat info;
    if (!may_hold_stores(cache(), false)) return false;
    std::string path = folder_;
    for (size_t at = 0;;) {
        if (::lstat(path.c_str(), &info) != 0) return false;
        if (!S_ISDIR(info.st_mode)) return distrust(path, "it is no folder");
        if (!is_private(info)) return distrust(path);
        const size_t end = name.find('/', at);
        if (end == std::string_view::npos) return true;
        path = folder_ + "/" + std::string(name.substr(0, end));
        at = end + 1;
    }
}

std::optional<Bytes> Store::read(std::string_view name) const {
    const std::string path = folder_ + "/" + std::string(name);
    if (!usable(name)) return std::nullopt;
    const File file{::open(
        path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};  // a pipe must not block
    Header header;
    struct stat info;
    if (file.descriptor < 0 || ::fstat(file.descriptor, &info) != 0 || !S_ISREG(info.st_mode))
        return std::nullopt;
    if (!is_private(info)) return distrust(path), std::nullopt;
    if (info.st_size < static_cast<off_t>(sizeof header) || info.st_size > kLargest)
        return not_loaded(path);
    if (::read(file.descriptor, &header, sizeof header) != static_cast<ssize_t>(sizeof header))
        return not_loaded(path);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return not_loaded(path);
    if (header.bytes != static_cast<uint64_t>(info.st_size) - sizeof header)
        return not_loaded(path);
    Bytes content(header.bytes);
    size_t done = 0;
    while (done < content.size()) {
        const ssize_t n = ::read(file.descriptor, content.data() + done, content.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return not_loaded(path);
        done += static_cast<size_t>(n);
    }
    const Header expected = header_of(prefix_ + std::string(name), content);
    if (std::memcmp(&header, &expected, sizeof header) != 0) return not_loaded(path);
    note_use(path, info);
    return content;
}

bool Store::holds(std::string_view name, size_t bytes) const {
    const std::string path = folder_ + "/" + std::string(name);
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !is_private(info) ||
        static_cast<size_t>(info.st_size) != sizeof(Header) + bytes)
        return false;
    note_use(path, info);
    return true;
}

bool Store::make_folder() const {
    if (!may_hold_stores(cache(), true)) return false;
    if (!make_folders(folder_)) return tell_unwritable(cache(), errno);
    return usable("");
}

bool Store::write(std::string_view name, std::span<const uint8_t> content) const {
    const std::string path = folder_ + "/" + std::string(name);
    const std::string folder = path.substr(0, path.rfind('/'));
    if (!may_hold_stores(cache(), true)) return false;
    for (int k = 0; k < kAttempts; ++k) {
        if (!make_folders(folder)) return tell_unwritable(cache(), errno);
        if (usable(name) && put(name, content)) return true;
        struct stat info;
        if (::lstat(folder.c_str(), &info) == 0 || errno != ENOENT) return false;
    }  // another process cleans: the folder was empty
    return false;
}

std::vector<int64_t> Store::write_each(std::span<const Entry> entries) const {
    std::vector<int64_t> written;
    if (!entries.empty() && make_folder())
        for (const Entry& e : entries)
            if (put(e.name, e.content))
                written.push_back(int64_t(sizeof(Header) + e.content.size()));
    return written;
}

bool Store::put(std::string_view name, std::span<const uint8_t> content) const {
    static std::atomic<unsigned> counter{0};
    const std::string path = folder_ + "/" + std::string(name);
    const std::string temporary =
        path + "." + std::to_string(::getpid()) + "." + std::to_string(counter++) + ".tmp";
    {
        const File file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
        if (file.descriptor < 0)  // a folder that is gone: somebody clears the cache right now
            return errno != ENOENT && tell_unwritable(cache(), errno);
        const Header header = header_of(prefix_ + std::string(name), content);
        if (!support::write_all(file.descriptor, &header, sizeof header) ||
            !support::write_all(file.descriptor, content.data(), content.size())) {
            const int why = errno;
            ::unlink(temporary.c_str());
            return tell_unwritable(cache(), why);
        }
    }
    if (::rename(temporary.c_str(), path.c_str()) == 0) {
        bytes_written += int64_t(sizeof(Header) + content.size());
        return true;
    }
    const int why = errno;
    ::unlink(temporary.c_str());
    if (why == EISDIR || why == ENOTEMPTY || why == EEXIST) return distrust(path, "it is a folder");
    return why != ENOENT && tell_unwritable(cache(), why);
}

std::vector<std::string> Store::list(std::string_view subfolder) const {
    std::vector<std::string> names;
    const std::string path = folder_ + "/" + std::string(subfolder);
    if (!usable(std::string(subfolder) + "/")) return names;
    if (DIR* d = ::opendir(path.c_str())) {
        while (const dirent* entry = ::readdir(d)) {
            const std::string name = entry->d_name;
            if (name[0] != '.' && !name.ends_with(".tmp")) names.push_back(name);
        }
        ::closedir(d);
    }
    std::sort(names.begin(), names.end());
    return names;
}

void Store::trim(std::string_view subfolder, size_t most) const {
    std::vector<std::string> names = list(subfolder);
    if (names.size() <= most) return;
    std::vector<std::pair<timespec, std::string>> entries;
    for (const std::string& name : names) {
        std::string path = folder_ + "/" + std::string(subfolder) + "/" + name;
        struct stat info;
        if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
            entries.emplace_back(info.st_mtim, std::move(path));
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.first.tv_sec, a.first.tv_nsec) <
               std::pair(b.first.tv_sec, b.first.tv_nsec);
    });
    // Of all ages: programs that come past more than `most` in turn find the other half next time.
    for (size_t k = 0; k + 1 < entries.size(); k += 2) ::unlink(entries[k].second.c_str());
}

StoredFile::StoredFile(std::string p, const struct stat& info)
    : path(std::move(p)),
      bytes(info.st_size),
      used(std::max(info.st_atime, info.st_mtime)),
      made(info.st_mtime) {}

int64_t total_of(std::span<const StoredFile> files) {
    int64_t total = 0;
    for (const StoredFile& f : files) total += f.bytes;
    return total;
}

void evict(std::vector<StoredFile>& files, const Limits& limits) {
    if (!limits.evicts() || total_of(files) < limits.bytes) return;
    const auto order = limits.policy == "lru" ? &StoredFile::used : &StoredFile::made;
    std::ranges::stable_sort(files, {}, order);
    const auto end = files.begin() +
                     static_cast<std::ptrdiff_t>(limits.share * static_cast<double>(files.size()));
    for (auto f = files.begin(); f != end; ++f) ::unlink(f->path.c_str());
    files.erase(files.begin(), end);
}

namespace {

// By how it begins, whatever came behind it: what a user keeps in such a folder is not ours.
bool is_ours(const std::string& path) {
    constexpr size_t kCommon = sizeof kMagic - 1;  // of all versions
    const File file{::open(path.c_str(),           // a look is no use
                           O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOATIME)};
    char begin[kCommon];
    return file.descriptor >= 0 &&
           ::read(file.descriptor, begin, kCommon) == static_cast<ssize_t>(kCommon) &&
           std::memcmp(begin, kMagic, kCommon) == 0;
}

// "<name>.<process>.<number>.tmp"
bool is_unfinished(std::string_view name) {
    if (!name.ends_with(".tmp")) return false;
    name.remove_suffix(4);
    for (int k = 0; k < 2; ++k) {
        const size_t end = name.find_last_not_of("0123456789");
        if (end == std::string_view::npos || end + 1 == name.size() || name[end] != '.')
            return false;
        name = name.substr(0, end);
    }
    return true;
}

}  // namespace

int64_t Store::clean(const Limits& limits) const {
    std::vector<StoredFile> files;
    std::vector<std::string> folders;  // those within come first
    const time_t now = ::time(nullptr);
    auto visit = [&](auto&& self, const std::string& folder) -> void {
        DIR* d = ::opendir(folder.c_str());
        if (!d) return;
        while (const dirent* e = ::readdir(d)) {
            if (e->d_name[0] == '.') continue;
            const std::string path = folder + "/" + e->d_name;
            struct stat info;
            if (::lstat(path.c_str(), &info) != 0) continue;
            if (S_ISDIR(info.st_mode)) {
                self(self, path);
                folders.push_back(path);
            } else if (is_unfinished(e->d_name)) {
                if (info.st_mtime + kAbandoned < now) ::unlink(path.c_str());
            } else if (S_ISREG(info.st_mode) && is_ours(path)) {
                files.emplace_back(path, info);
            }
        }
        ::closedir(d);
    };
    if (!usable("")) return 0;
    visit(visit, folder_);
    const int64_t total = total_of(files);
    evict(files, limits);
    for (const std::string& folder : folders) (void)::rmdir(folder.c_str());  // the empty ones
    return total;
}

// Processes that end at the same time may forget each other's part, so it is counted anew each day.
void Store::keep_within(const Limits& limits) const {
    const int64_t written = bytes_written.exchange(0);
    if (written == 0) return;
    struct Total {
        int64_t bytes, counted;  // the second: seconds since the epoch
    } total;
    const int64_t now = ::time(nullptr);
    const auto known = read(kTotal);
    if (known && known->size() == sizeof total) {
        std::memcpy(&total, known->data(), sizeof total);
        total.bytes += written;
    }
    if (!known || known->size() != sizeof total || total.bytes >= limits.bytes ||
        total.counted > now || total.counted + kRecount < now)
        total = {clean(limits), now};
    const auto* bytes = reinterpret_cast<const uint8_t*>(&total);
    (void)write(kTotal, {bytes, sizeof total});
    bytes_written -= int64_t(sizeof(Header) + sizeof total);
}

}  // namespace qd::cache
