// See fault.h.

#include "compiler/fault.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "support/doing.h"
#include "support/error.h"

namespace qd::compiler {
namespace {

struct Fault {
    std::string stage, kind;
    bool once = false;
};
std::mutex lock;  // guards fault
Fault fault;
std::atomic<int> faults_set{0};

int overflow_stack(volatile int* outer) {
    volatile int here[256];
    here[0] = *outer + 1;
    return here[0] < 1 << 30 ? overflow_stack(here) + here[0] : 0;
}

[[gnu::no_sanitize_undefined]] void store_to_null() {
    volatile int* null = nullptr;
    *null = 1;
}

void trap() {
#if defined(__x86_64__)
    asm volatile("int3");
#else
    raise(SIGTRAP);
#endif
}

// A stage that lasts until another fault is set, or none.
void wait_for_next() {
    const int mine = faults_set;
    while (faults_set == mine) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

constexpr struct {
    std::string_view name;
    void (*happen)();
} kKinds[] = {
    {"segv", store_to_null},
    {"bus", [] { raise(SIGBUS); }},
    {"ill", [] { __builtin_trap(); }},
    {"fpe", [] { raise(SIGFPE); }},
    {"abort", [] { std::abort(); }},
    {"trap", trap},
    {"stack",
     [] {
         volatile int depth = 0;
         depth = overflow_stack(&depth);
     }},
    {"throw", [] { throw support::Error("a deliberate error"); }},
    {"memory", [] { throw std::bad_alloc(); }},
    {"wait", wait_for_next},
};

void at_stage(std::string_view stage) {
    std::string kind;
    {
        std::lock_guard guard(lock);
        if (stage != fault.stage) return;
        kind = fault.kind;
        if (fault.once) fault.kind.clear();
    }
    for (const auto& k : kKinds)
        if (k.name == kind) k.happen();
}

}  // namespace

void set_fault(std::string_view text) {
    std::lock_guard guard(lock);
    const size_t colon = text.rfind(':');
    fault.stage = text.substr(0, colon);
    fault.kind = colon == text.npos ? "segv" : text.substr(colon + 1);
    constexpr std::string_view kOnce = " once";
    fault.once = fault.kind.ends_with(kOnce);
    if (fault.once) fault.kind.resize(fault.kind.size() - kOnce.size());
    support::on_stage = text.empty() ? nullptr : at_stage;
    ++faults_set;
}

void read_fault() {
    static const bool done = [] {
        if (const char* text = std::getenv("QD_TEST_FAULT")) set_fault(text);
        return true;
    }();
    (void)done;
}

}  // namespace qd::compiler
