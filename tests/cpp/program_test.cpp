// Programs that are run and waited for: what they say, read, write, and that they can be ended.

#include "support/program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace qd::support {
namespace {

Ended shell(const std::string& text, std::span<const int> files = {},
            const int32_t* unwanted = nullptr) {
    return run_program({"/bin/sh", "-c", text}, files, unwanted);
}

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

TEST(Program, TellsWhatItSaysAndHowItEnds) {
    const Ended well = shell("echo out; echo error >&2");
    EXPECT_TRUE(well.well);
    EXPECT_EQ(well.said, "out\nerror\n");
    EXPECT_FALSE(shell("exit 3").well);
    EXPECT_FALSE(shell("kill -9 $$").well);
    EXPECT_FALSE(run_program({"/none/at/all"}, {}, nullptr).well);
}

TEST(Program, ReadsAndWritesFilesWithoutNames) {
    const MemoryFile from(bytes("some\0bytes")), to({});
    const int files[] = {from.descriptor(), to.descriptor()};
    EXPECT_TRUE(shell("cat " + from.path() + " " + from.path() + " > " + to.path(), files).well);
    EXPECT_EQ(to.content(), bytes("somesome"));
    EXPECT_FALSE(shell("cat " + from.path()).well) << "it was not given";
}

TEST(Program, SaysMuchWithoutEnd) {
    const Ended much = shell(
        "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); "
        "done");
    EXPECT_TRUE(much.well);
    EXPECT_GE(much.said.size(), size_t(64) << 10);
    EXPECT_LT(much.said.size(), size_t(72) << 10);
}

TEST(Program, EndsOnceItIsNotWanted) {
    int32_t unwanted = 0;
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        __atomic_store_n(&unwanted, 1, __ATOMIC_RELAXED);
    });
    EXPECT_FALSE(shell("sleep 100", {}, &unwanted).well);
    other.join();
}

TEST(Program, HasTheUsualSignals) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    void (*const before)(int) = std::signal(SIGPIPE, SIG_IGN);
    EXPECT_FALSE(shell("kill -TERM $$; sleep 100").well);  // it dies of it
    EXPECT_FALSE(shell("kill -PIPE $$; sleep 100").well);
    std::signal(SIGPIPE, before);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace
}  // namespace qd::support
