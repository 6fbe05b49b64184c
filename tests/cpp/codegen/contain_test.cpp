// A crash inside the compiler ends one compilation: in every stage, of every kind, on several
// threads at once; what the process does about signals is as before.

#include <gtest/gtest.h>

#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "compiler/contain.h"
#include "ir/ir.h"
#include "large.h"
#include "support/abi.h"

namespace qd {

extern "C" {
int qd_compiler_begin(const uint8_t*, size_t, const abi::CompileOptions*, abi::Compilation**,
                      abi::Blob*);
int qd_compiler_emit(abi::Compilation*, const abi::CompileOptions*, abi::Blob*, abi::Blob*);
void qd_compiler_end(abi::Compilation*);
void qd_compiler_free(abi::Blob*);
void qd_compiler_fault(const char*);
}

namespace {

const char* const kStages[] = {"deserialise",  "summarise",
#define PASS(name, ...) #name,
#include "pass/passes.inc"
                               "offload",      "private_fields",  "finish_plan",
                               "prepare",      "target",          "lowering",
                               "optimisation", "code generation", "artefact"};
const std::pair<const char*, const char*> kKinds[] = {
    {"segv", "died of SIGSEGV"},  {"bus", "died of SIGBUS"},       {"ill", "died of SIGILL"},
    {"fpe", "died of SIGFPE"},    {"abort", "died of SIGABRT"},    {"trap", "died of SIGTRAP"},
    {"stack", "died of SIGSEGV"}, {"throw", "a deliberate error"}, {"memory", "out of memory"}};

std::vector<uint8_t> module_bytes() {
    auto m = ir::parse(R"(module "sum"
field @f "f" : f32 shape [100] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
func @sum() {
  %zero = constant 0 : i32
  %n = constant 100 : i32
  for %i = %zero to %n parallel {
    %p = field_place @f, %i : place<f32>
    %x = load %p
    %y = add %x, %x
    store %p, %y
  }
})");
    m->options.debug = true;  // for debug_checks
    return ir::serialise(*m);
}

// The error's text; empty if it compiled.
std::string compile(const std::vector<uint8_t>& ir, int tier, int threads = 1,
                    const int32_t* unwanted = nullptr) {
    const abi::CompileOptions options{abi::kAbiVersion, tier,    "",     "", 0,
                                      unwanted,         nullptr, threads};
    abi::Compilation* c = nullptr;
    abi::Blob artefact{}, error{};
    if (!qd_compiler_begin(ir.data(), ir.size(), &options, &c, &error)) {
        (void)qd_compiler_emit(c, &options, &artefact, &error);
        qd_compiler_end(c);
    }
    const std::string text(reinterpret_cast<char*>(error.data), error.bytes);
    qd_compiler_free(&artefact);
    qd_compiler_free(&error);
    return text;
}

struct Fault {
    explicit Fault(const std::string& text) { qd_compiler_fault(text.c_str()); }
    ~Fault() { qd_compiler_fault(""); }
};

std::string file_in(const std::string& text) {
    const size_t at = text.find("is in /");
    return at == std::string::npos ? "" : text.substr(at + 6);
}

[[gnu::no_sanitize_undefined]] void store_to_null(int k) {
    volatile int* nowhere = nullptr;
    *nowhere = k;
}

TEST(contain, every_stage_may_crash) {
    const auto ir = module_bytes();
    for (const char* stage : kStages) {
        std::string text;
        {
            const Fault fault(stage);
            text = compile(ir, 1);
        }
        EXPECT_NE(text.find(std::string("the compiler died of SIGSEGV; in ") + stage),
                  std::string::npos)
            << stage << ": " << text;
        EXPECT_EQ(compile(ir, 1), "") << "after " << stage;
        EXPECT_EQ(compile(ir, 0), "") << "after " << stage;
    }
}

TEST(contain, every_kind_of_failure_has_a_text_and_a_file) {
    const auto ir = module_bytes();
    for (const auto& [kind, what] : kKinds) {
        std::string text;
        {
            const Fault fault(std::string("licm:") + kind);
            text = compile(ir, 0);
        }
        EXPECT_NE(text.find(what), std::string::npos) << kind << ": " << text;
        EXPECT_NE(text.find("; in licm of sum"), std::string::npos) << text;
        std::ifstream file(file_in(text));
        const std::string content{std::istreambuf_iterator<char>(file), {}};
        EXPECT_EQ(ir::serialise(*ir::parse(content)), ir) << kind << ": " << file_in(text);
        std::remove(file_in(text).c_str());
    }
}

TEST(contain, threads_crash_and_compile_at_once) {
    const auto ir = module_bytes();
    std::vector<std::thread> threads;
    std::atomic<int> caught{0}, wrong{0};
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            for (int k = 0; k < 30; ++k) {
                if (t % 2) {  // half of them crash by themselves
                    caught += compiler::contained([&] { store_to_null(k); }) == SIGSEGV;
                } else {
                    wrong += !compile(ir, k % 2).empty();
                }
            }
        });
    }
    for (auto& t : threads) t.join();
    EXPECT_EQ(caught, 90);
    EXPECT_EQ(wrong, 0);
}

TEST(contain, one_of_the_threads_of_an_emission_crashes) {
    const auto ir = ir::serialise(*ir::parse(test::large_module(12)));
    for (const int threads : {1, 2, 8})
        for (const char* stage : {"target", "lowering", "code generation"})
            for (const char* kind : {"segv", "stack", "throw"}) {
                std::string text;
                {
                    const Fault fault(std::string(stage) + ":" + kind + " once");
                    text = compile(ir, 0, threads);
                }
                EXPECT_NE(text.find(std::string("; in ") + stage), std::string::npos)
                    << threads << ' ' << kind << ": " << text;
                std::remove(file_in(text).c_str());
                EXPECT_EQ(compile(ir, 0, threads), "") << threads << ' ' << stage << ' ' << kind;
            }
}

TEST(contain, an_emission_that_nobody_wants_ends_on_all_threads) {
    const auto ir = ir::serialise(*ir::parse(test::large_module(12)));
    int32_t unwanted = 0;
    std::string text;
    {
        const Fault fault("code generation:wait once");  // the others go on
        std::thread caller([&] { text = compile(ir, 0, 3, &unwanted); });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        __atomic_store_n(&unwanted, 1, __ATOMIC_RELAXED);
        qd_compiler_fault("");
        caller.join();
    }
    EXPECT_EQ(text, "nobody wants it any more");
}

TEST(contain, bodies_nest) {
    int inner = 0;
    const int outer = compiler::contained([&] {
        inner = compiler::contained([] { __builtin_trap(); });
        std::raise(SIGFPE);
    });
    EXPECT_EQ(inner, SIGILL);
    EXPECT_EQ(outer, SIGFPE);
    EXPECT_EQ(compiler::contained([] {}), 0);
    EXPECT_THROW((void)compiler::contained([] { throw 1; }), int);
}

sigjmp_buf host_back;
void host_handler(int) { siglongjmp(host_back, 1); }

struct sigaction action_of(int signal) {
    struct sigaction now{};
    sigaction(signal, nullptr, &now);
    return now;
}

TEST(contain, signals_belong_to_the_host_again) {
    const auto ir = module_bytes();
    struct sigaction mine{}, original{};
    mine.sa_handler = host_handler;
    mine.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &mine, &original);
    stack_t stack_before{}, stack_after{};
    sigset_t mask_before, mask_after;
    sigaltstack(nullptr, &stack_before);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
    {
        const Fault fault("licm");
        EXPECT_NE(compile(ir, 0), "");
    }
    EXPECT_EQ(action_of(SIGSEGV).sa_handler, host_handler);
    EXPECT_EQ(action_of(SIGABRT).sa_handler, SIG_DFL);
    sigaltstack(nullptr, &stack_after);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
    EXPECT_EQ(stack_before.ss_sp, stack_after.ss_sp);
    for (int s = 1; s < 32; ++s)
        EXPECT_EQ(sigismember(&mask_before, s), sigismember(&mask_after, s));

    // A crash elsewhere while somebody compiles is the host's.
    std::atomic<int> stage{0};
    std::thread compiling([&] {
        (void)compiler::contained([&] {
            stage = 1;
            while (stage != 2) std::this_thread::yield();
        });
    });
    while (stage != 1) std::this_thread::yield();
    volatile bool came_back = false;
    if (sigsetjmp(host_back, 0) == 0)
        store_to_null(1);
    else
        came_back = true;
    EXPECT_TRUE(came_back);

    // Who takes a signal over meanwhile keeps it.
    struct sigaction other{};
    other.sa_handler = SIG_IGN;
    sigaction(SIGFPE, &other, nullptr);
    stage = 2;
    compiling.join();
    EXPECT_EQ(action_of(SIGFPE).sa_handler, SIG_IGN);
    EXPECT_EQ(action_of(SIGSEGV).sa_handler, host_handler);
    signal(SIGFPE, SIG_DFL);
    sigaction(SIGSEGV, &original, nullptr);
}

TEST(contain, a_crash_outside_ends_the_process_as_before) {
    EXPECT_EXIT(
        {
            std::thread([] {
                (void)compiler::contained([] { std::thread([] { store_to_null(1); }).join(); });
            }).join();
        },
        testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(
        {
            (void)compiler::contained([] {});
            std::abort();
        },
        testing::KilledBySignal(SIGABRT), "");
#ifndef __SANITIZE_ADDRESS__                    // which finds the damage itself
    EXPECT_EXIT((void)compiler::contained([] {  // a damaged heap is not survived
                    char* p = static_cast<char*>(std::malloc(64));
                    char* volatile middle = p + 16;
                    std::free(middle);
                }),
                testing::KilledBySignal(SIGABRT), "free\\(\\): invalid pointer");
#endif
}

}  // namespace
}  // namespace qd
