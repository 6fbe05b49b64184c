// What our C++ relies on and a compiler got wrong: g++ 12.2 leaves out the first value of a small
// struct that is assigned once more by a call which throws (CMakeLists.txt switches that off).

#include <gtest/gtest.h>

#include <cstdint>

namespace qd::test {
namespace {

enum class Kind : uint8_t { value, place, array, none };
struct Small {
    uint8_t prim = 0;
    Kind kind = Kind::none;
    uint8_t rank = 0, axes = 0;
    uint16_t n = 1, m = 1;
    bool is_tensor() const { return kind == Kind::value && rank > 0; }
};
constexpr Small kNone{};

[[gnu::noinline]] Small throwing(const void* o) {
    if (o) throw 1;
    return {};
}
[[gnu::noinline]] void see() {}

template <class F>
bool guarded(F&& f) noexcept {
    try {
        return f();
    } catch (const int&) {
        see();
    }
    return false;
}

[[gnu::noinline]] Small tensor_or_none(const void* o) {
    Small t = kNone;
    (void)guarded([&] {
        t = throwing(o);
        if (!t.is_tensor()) see();
        return t.is_tensor();
    });
    return t.is_tensor() ? t : kNone;
}

TEST(HostCompiler, KeepsTheFirstValueOfWhatAThrowingCallAssigns) {
    for (unsigned mask = 0; mask < 16; ++mask) {
        Small t;
        const void* o = &t;
#ifdef __x86_64__  // registers that a call keeps, where the parts of `t` were expected
        const uint64_t held[] = {mask & 1, mask >> 1 & 1, mask >> 2 & 1, mask >> 3};
        const uint64_t* at = held;
        asm volatile(
            "mov (%2), %%r12\n mov 8(%2), %%r13\n mov 16(%2), %%r14\n mov 24(%2), %%r15\n"
            "mov %%rsp, %%rbx\n and $-16, %%rsp\n call *%3\n mov %%rbx, %%rsp\n"
            : "=a"(t), "+D"(o), "+S"(at)
            : "d"(&tensor_or_none)
            : "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
#else
        t = tensor_or_none(o);
#endif
        EXPECT_FALSE(t.is_tensor()) << mask;
        EXPECT_EQ(t.kind, Kind::none);
    }
}

}  // namespace
}  // namespace qd::test
