// Where stacks end, beside what the C library says.

#include "support/stack.h"

#include <gtest/gtest.h>
#include <link.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

namespace qd::support {
namespace {

uintptr_t end_by_glibc() {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t size = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
    return reinterpret_cast<uintptr_t>(begin);
}

void expect_the_same_end() {
    constexpr double kFewPages = 16 << 10;
    EXPECT_NEAR(double(stack_end()), double(end_by_glibc()), kFewPages);
    EXPECT_TRUE(has_stack(64 << 10));
    EXPECT_FALSE(has_stack(stack_size()));
}

// In a process of its own: the answer is kept by the thread.
template <class Body>
void in_a_child(Body body) {
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(testing::Test::HasFailure());
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(stack, of_the_main_thread) { in_a_child(expect_the_same_end); }

// The path of the dynamic loader, which may be told the program as an argument.
int find_loader(dl_phdr_info* program, size_t, void* found) {
    for (int k = 0; k < program->dlpi_phnum; ++k)
        if (program->dlpi_phdr[k].p_type == PT_INTERP)
            *static_cast<const char**>(found) =
                reinterpret_cast<const char*>(program->dlpi_addr + program->dlpi_phdr[k].p_vaddr);
    return 1;  // the first one is the program
}

TEST(stack, of_a_program_that_the_loader_was_told_among_much_else) {
    const char* loader = nullptr;
    dl_iterate_phdr(find_loader, &loader);
    if (!loader) GTEST_SKIP() << "linked statically";
    std::array<char, 4096> self{};
    ASSERT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
    std::string filter = "--gtest_filter=stack.of_the_main_thread", much(100 << 10, 'x');
    std::vector<char*> words{const_cast<char*>(loader), self.data(), filter.data(), nullptr};
    std::vector<char*> environment(8, much.data());
    environment.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        execve(loader, words.data(), environment.data());
        _exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(stack, of_a_lower_and_of_no_usual_limit) {
    for (const rlim_t bytes : {rlim_t(4) << 20, rlim_t(16) << 20})
        in_a_child([&] {
            rlimit limit;
            getrlimit(RLIMIT_STACK, &limit);
            if (limit.rlim_max < bytes) return;
            limit.rlim_cur = bytes;
            ASSERT_EQ(setrlimit(RLIMIT_STACK, &limit), 0);
            expect_the_same_end();
        });
}

TEST(stack, of_other_threads_and_of_children_that_they_fork) {
    std::thread([] {
        expect_the_same_end();
        in_a_child([] { std::thread(expect_the_same_end).join(); });
    }).join();
    std::thread([] { in_a_child(expect_the_same_end); }).join();
}

}  // namespace
}  // namespace qd::support
