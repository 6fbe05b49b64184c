// See program.h.

#include "support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "support/io.h"

extern char** environ;

namespace qd::support {
namespace {

constexpr int kAskMs = 20;
constexpr size_t kMostSaid = 64 << 10;

// As programs find them, whatever the calling thread blocks.
void with_usual_signals(posix_spawnattr_t& attributes) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

// False: it cannot be started.
bool start(pid_t& child, const std::vector<std::string>& arguments, std::span<const int> files,
           int output) {
    std::vector<char*> words;
    for (const std::string& a : arguments) words.push_back(const_cast<char*>(a.c_str()));
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    with_usual_signals(attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, output, 2);
    for (const int f : files) posix_spawn_file_actions_adddup2(&actions, f, f);
    const bool started =
        posix_spawn(&child, words[0], &actions, &attributes, words.data(), environ) == 0;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return started;
}

// Reads to the end, which comes with the program's. False: it is not wanted any more.
bool listen(int input, std::string& said, const int32_t* unwanted) {
    for (;;) {
        if (unwanted && __atomic_load_n(unwanted, __ATOMIC_RELAXED)) return false;
        pollfd asked{input, POLLIN, 0};
        if (poll(&asked, 1, kAskMs) <= 0) continue;
        char some[4096];
        const ssize_t n = read(input, some, sizeof some);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true;
        if (said.size() < kMostSaid) said.append(some, size_t(n));
    }
}

}  // namespace

Ended run_program(const std::vector<std::string>& arguments, std::span<const int> files,
                  const int32_t* unwanted) {
    Ended out;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return out;
    pid_t child = 0;
    const bool started = start(child, arguments, files, ends[1]);
    close(ends[1]);
    if (started) {
        const bool heard = listen(ends[0], out.said, unwanted);
        if (!heard) kill(child, SIGKILL);
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }  // whoever else waited for it has its status: what it made tells
        out.well = heard && status == 0;
    }
    close(ends[0]);
    return out;
}

MemoryFile::MemoryFile(std::span<const uint8_t> content)
    : descriptor_(memfd_create("quadrants", MFD_CLOEXEC)) {
    if (descriptor_ >= 0) (void)write_all(descriptor_, content.data(), content.size());
}
MemoryFile::~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

std::vector<uint8_t> MemoryFile::content() const {
    struct stat info;
    if (descriptor_ < 0 || fstat(descriptor_, &info) != 0) return {};
    std::vector<uint8_t> bytes(size_t(info.st_size));
    const ssize_t n = pread(descriptor_, bytes.data(), bytes.size(), 0);
    if (n != ssize_t(bytes.size())) return {};
    return bytes;
}

}  // namespace qd::support
