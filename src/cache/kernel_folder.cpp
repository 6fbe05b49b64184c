// See kernel_folder.h.

#include "cache/kernel_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>
#include <vector>

namespace qd::cache {
namespace {

constexpr int kAttempts = 5;
constexpr std::chrono::milliseconds kBetween{50};

// The lock of a folder: a file that only one process can create. Ours say so and are held open
// under `flock`: one that nobody holds was left by a process that was killed, and is taken over.
// Others, made by hand or by another package, stand until they are deleted.
class Lock {
    static constexpr std::string_view kMark = "held open by a process\n";
    const std::string path_;
    int file_ = -1;
    bool ours_ = false;

    // Whether it was created; errno says why not.
    bool create(const std::string& folder) {
        file_ = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        if (file_ >= 0 && mark()) {  // all at once: being killed here leaves nothing
            const std::string anonymous = "/proc/self/fd/" + std::to_string(file_);
            if (!::linkat(AT_FDCWD, anonymous.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW))
                return true;
            if (errno == EEXIST) return close(), errno = EEXIST, false;
        }
        close();
        file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file_ < 0) return false;
        mark();
        return true;
    }
    bool mark() {
        return ::flock(file_, LOCK_EX | LOCK_NB) == 0 &&
               ::write(file_, kMark.data(), kMark.size()) == ssize_t(kMark.size());
    }
    bool take_over() {
        file_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (file_ < 0) return false;
        struct stat held, there;
        const bool left = ::flock(file_, LOCK_EX | LOCK_NB) == 0 && has_mark(file_) &&
                          ::fstat(file_, &held) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
                          held.st_ino == there.st_ino && held.st_dev == there.st_dev;
        if (!left) close();
        return left;
    }
    static bool has_mark(int file) {
        char text[kMark.size() + 1];
        return ::pread(file, text, sizeof text, 0) == ssize_t(kMark.size()) &&
               std::string_view(text, kMark.size()) == kMark;
    }
    // Whether there is one that is none of ours.
    static bool is_foreign(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (file < 0) return errno == ELOOP || errno == EACCES;
        const bool foreign = !has_mark(file);
        ::close(file);
        return foreign;
    }
    static std::string path_in(const std::string& folder) { return folder + "/qdcache.lock"; }
    static void tell(const std::string& folder) {
        warn("Lock " + path_in(folder) + " failed. Please run 'qd cache clean -p " + folder +
             "' and try again. (Or delete that file, if no process is running.)");
    }
    void close() {
        if (file_ >= 0) ::close(file_);
        file_ = -1;
    }

  public:
    explicit Lock(const std::string& folder) : path_(path_in(folder)) {
        for (int k = 0; k < kAttempts && !ours_; ++k) {
            if (k) std::this_thread::sleep_for(kBetween);
            ours_ = create(folder);
            if (!ours_ && errno != EEXIST) return;  // full or read-only: no matter of waiting
            ours_ = ours_ || take_over();
        }
        if (!ours_) tell(folder);
    }
    // To read takes no lock of ours, since files are replaced whole; another's is waited for.
    static bool stands_in_the_way(const std::string& folder) {
        for (int k = 0; k < kAttempts; ++k) {
            if (k) std::this_thread::sleep_for(kBetween);
            if (!is_foreign(path_in(folder))) return false;
        }
        tell(folder);
        return true;
    }
    ~Lock() {
        if (ours_ && ::unlink(path_.c_str()) != 0) warn("Unlock " + path_ + " failed.");
        close();
    }
    Lock(const Lock&) = delete;
    bool ours() const { return ours_; }
};

bool exists(const Store& store, const std::string& name) {
    struct stat info;
    return ::lstat((store.folder() + "/" + name).c_str(), &info) == 0;
}

std::vector<StoredFile> files_of(const Store& store) {
    std::vector<StoredFile> out;
    for (const std::string& name : store.list(".")) {
        const std::string path = store.folder() + "/" + name;
        struct stat info;
        if (KernelFolder::is_name(name) && ::lstat(path.c_str(), &info) == 0)
            out.emplace_back(path, info);
    }
    return out;
}

}  // namespace

KernelFolder::KernelFolder(const std::string& path, std::string release)
    : release_(std::move(release)), pending_(pending_of(path)), kept_(kept_of(path)) {}

bool KernelFolder::is_name(std::string_view name) {
    return name.size() == 69 && name.starts_with('T') && name.ends_with(".qdc") &&
           name.find_first_not_of("0123456789abcdef", 1) == 65;
}

bool KernelFolder::write(const std::string& path, std::string_view name,
                         std::span<const uint8_t> content) {
    const std::string entry(name), pending = "code/" + entry;
    const Store native = pending_of(path), kept = kept_of(path);
    // Better code of what was flushed comes in its place, also behind the last flush.
    if (exists(kept, entry) && !exists(native, pending)) return kept.write(entry, content);
    return native.write(pending, content);
}

std::optional<KernelFolder::Index> KernelFolder::read_index() const {
    const auto content = kept_.read(kIndex);
    if (!content) return std::nullopt;
    const std::string_view text(reinterpret_cast<const char*>(content->data()), content->size());
    if (!text.starts_with(release_ + "\n")) return std::nullopt;
    Index index;
    const char* at = text.data() + release_.size() + 1;
    const char* end = text.data() + text.size();
    for (int64_t* number : {&index.entries, &index.bytes}) {
        const auto [next, error] = std::from_chars(at, end, *number);
        if (error != std::errc() || next == end || *next != '\n') return std::nullopt;
        at = next + 1;
    }
    return index;
}

KernelFolder::State KernelFolder::state() {
    if (state_ == State::unknown)
        state_ =
            read_index() && !Lock::stands_in_the_way(kept_.folder()) ? State::ours : State::foreign;
    return state_;
}

std::optional<Bytes> KernelFolder::read(std::string_view name) {
    if (state() == State::ours)
        if (auto content = kept_.read(name)) return content;
    return pending_.read("code/" + std::string(name));
}

KernelFolder::Index KernelFolder::clean(const std::set<std::string>& used, const Limits& limits,
                                        bool ours) {
    debug("Start cleaning cache");
    std::vector<StoredFile> present = files_of(kept_);
    if (!ours && limits.drops_others()) {  // another release's, or damaged
        std::erase_if(present, [&](const StoredFile& f) {
            const std::string name = f.path.substr(kept_.folder().size() + 1);
            if (used.contains(name) && kept_.read(name)) return false;  // made just now
            ::unlink(f.path.c_str());
            return true;
        });
    }
    evict(present, limits);
    debug("Stop cleaning cache");
    return {static_cast<int64_t>(present.size()), total_of(present)};
}

bool KernelFolder::flush(const std::set<std::string>& used, std::span<const Store::Entry> small,
                         const Limits& limits) {
    state_ = State::unknown;
    std::vector<std::string> fresh;
    bool some_kept = false;
    for (const std::string& name : used) {
        if (exists(pending_, "code/" + name)) fresh.push_back(name);
        some_kept |= exists(kept_, name);
    }
    auto index = read_index();
    std::vector<Store::Entry> absent;
    for (const Store::Entry& e : small)
        if (!index || !kept_.holds(e.name, e.content.size())) absent.push_back(e);
    const bool full = index && limits.evicts() && index->bytes >= limits.bytes;
    // Also of who compiled nothing: what another release left, or what nobody can read.
    const bool begins =
        !index && (some_kept || (limits.drops_others() && !files_of(kept_).empty()));
    if (fresh.empty() && absent.empty() && !begins && (!full || index->entries == 0)) return true;
    if (!kept_.make_folder()) return true;  // code stays where it is
    const Lock lock(kept_.folder());
    if (!lock.ours()) return false;
    index = read_index();  // who had the lock may have begun the folder

    // What users deleted since is counted on, until the folder seems full: to look at each file
    // would take ten thousand entries' time at the end of each process that compiled something.
    Index now = index.value_or(Index{0, 0});
    if (!index || (limits.evicts() && now.bytes >= limits.bytes))
        now = clean(used, limits, index.has_value());
    if (const size_t count = fresh.size() + absent.size())
        debug("Dumping " + std::to_string(count) + " cached kernels to disk");
    for (const int64_t bytes : kept_.write_each(absent)) ++now.entries, now.bytes += bytes;
    for (const std::string& name : fresh) {
        const std::string from = pending_.folder() + "/code/" + name;
        const std::string to = kept_.folder() + "/" + name;
        struct stat before, after;
        const bool replaces = ::lstat(to.c_str(), &before) == 0;
        if (::lstat(from.c_str(), &after) != 0 || ::rename(from.c_str(), to.c_str()) != 0) continue;
        now.entries += !replaces;
        now.bytes += after.st_size - (replaces ? before.st_size : 0);
    }
    if (now.entries == 0) {
        ::unlink((kept_.folder() + "/" + kIndex).c_str());
        return true;
    }
    const std::string text =
        release_ + "\n" + std::to_string(now.entries) + "\n" + std::to_string(now.bytes) + "\n";
    (void)kept_.write(kIndex, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return true;
}

}  // namespace qd::cache
