// Devices: what the host reads, writes and fills is there; guarded memory is shut but in the
// device's own calls and while kernels run.

#include "runtime/device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <numeric>
#include <vector>

namespace qd::runtime {
namespace {

constexpr size_t kMargin = 256, kCount = 3000;

// Whether a process that does this dies by touching what is shut.
bool dies(const std::function<void()>& act) {
    const pid_t child = fork();
    if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL);
        act();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

class device : public testing::TestWithParam<const Device*> {
  protected:
    const Device& d = *GetParam();
    Memory m = d.allocate(kCount * sizeof(int32_t), kMargin);
    ~device() override { d.release(m); }

    std::vector<int32_t> all() const {
        std::vector<int32_t> out(kCount, -1);
        d.read(out.data(), m.data, m.bytes);
        return out;
    }
};

TEST_P(device, memory_is_zero_and_aligned) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data) % 64, 0u);
    EXPECT_EQ(all(), std::vector<int32_t>(kCount, 0));
    int64_t margin[2] = {-1, -1};
    d.read(&margin[0], m.data - kMargin, sizeof margin[0]);
    d.read(&margin[1], m.data + m.bytes + kMargin - sizeof margin[1], sizeof margin[1]);
    EXPECT_EQ(margin[0] | margin[1], 0);
}

TEST_P(device, what_is_written_is_read) {
    std::vector<int32_t> numbers(kCount);
    std::iota(numbers.begin(), numbers.end(), 1);
    d.write(m.data, numbers.data(), m.bytes);
    EXPECT_EQ(all(), numbers);
    const int32_t other = 7;
    d.write(m.data + 2000 * sizeof other, &other, sizeof other);
    numbers[2000] = other;
    EXPECT_EQ(all(), numbers);
}

TEST_P(device, fills_count_numbers_of_their_size) {
    d.fill(m.data + 4, 0x01020304, 4, kCount - 2);
    std::vector<int32_t> expected(kCount, 0x01020304);
    expected.front() = expected.back() = 0;
    EXPECT_EQ(all(), expected);
    d.fill(m.data, 0x0506, 2, 2);
    EXPECT_EQ(all()[0], 0x05060506);
}

TEST_P(device, exposed_memory_is_the_hosts) {
    d.fill(m.data, 5, 4, kCount);
    d.expose(m);
    auto* numbers = reinterpret_cast<volatile int32_t*>(m.data);
    EXPECT_EQ(numbers[kCount - 1], 5);
    numbers[0] = 6;
    EXPECT_EQ(all()[0], 6);
    EXPECT_EQ(numbers[0], 6);  // still
}

TEST_P(device, kernels_touch_it) {
    if (!d.launch_begins) return;
    d.launch_begins();
    d.launch_begins();  // a nested one
    const Memory young = d.allocate(64, 0);
    d.launch_ends();
    *reinterpret_cast<volatile int32_t*>(m.data) = 9;
    *reinterpret_cast<volatile int32_t*>(young.data) = 9;
    d.launch_ends();
    EXPECT_EQ(all()[0], 9);
    d.release(young);
}

std::string name_of(const testing::TestParamInfo<const Device*>& info) { return info.param->name; }

INSTANTIATE_TEST_SUITE_P(each, device, testing::Values(&cpu_device, &guarded_device), name_of);

TEST(guarded_memory, is_shut_to_the_host) {
    const Device& d = guarded_device;
    const Memory m = d.allocate(4096 * 3, 0);
    auto* at = reinterpret_cast<volatile int32_t*>(m.data);
    EXPECT_TRUE(dies([&] { (void)*at; }));
    EXPECT_TRUE(dies([&] { *at = 1; }));
    int32_t out;
    d.read(&out, m.data, sizeof out);
    EXPECT_TRUE(dies([&] { (void)*at; }));
    d.launch_begins();
    EXPECT_FALSE(dies([&] { *at = 1; }));
    d.launch_ends();
    EXPECT_TRUE(dies([&] { *at = 1; }));
    d.expose(m);
    EXPECT_FALSE(dies([&] { *at = 1; }));
    d.release(m);
}

bool is_mapped(const char* at) { return msync(const_cast<char*>(at), 1, MS_ASYNC) == 0; }

TEST(guarded_memory, is_given_back_whole) {
    const Device& d = guarded_device;
    const Memory m = d.allocate(4096 * 3, 0);  // and a page behind it
    const char* const last = m.data + 4096 * 3;
    EXPECT_TRUE(is_mapped(last));
    d.release(m);
    EXPECT_FALSE(is_mapped(last));
}

}  // namespace
}  // namespace qd::runtime
