// The live runtime of the process: what qd.init made. One at a time; touched under the GIL, except
// the pool.

#pragma once

#include <Python.h>

#include <atomic>
#include <memory>
#include <string>

#include "ir/options.h"
#include "runtime/cpu/pool.h"
#include "runtime/device.h"
#include "session/door.h"
#include "session/turn.h"

namespace qd::session {

struct PythonThreads {
    template <class T>
    using Atomic = std::atomic<T>;
    template <class T>
    using Plain = T;
    static uint64_t this_thread();
    static int my_work();
    static void add_to_my_work(int n);
    static int64_t now_ns();
    static void doze(int64_t until_ns = 0);  // shorter than anybody's patience
    static void doze_to_look() { doze(); }
    static constexpr int kMostLooks = 5000;  // as many milliseconds at least
    static bool interrupted();
    static void give_gil_away();
    [[noreturn]] static void sleep_for_ever();
    static bool slice_is_over(int64_t began_ns);
    static void doze_for_turn();  // a while, or until somebody wakes those who wait
    static void wake();
    static bool interpreter_ends();
};

struct Session {
    uint64_t forker = 0;      // the thread that has the turn for a fork
    uint32_t generation = 0;  // 0: no runtime; counts qd.init
    ir::Options options;
    uint64_t options_version = 0;  // counts changes of what makes code
    std::string release;           // of the package
    std::unique_ptr<runtime::Pool> pool;
    const runtime::Device* device = &runtime::cpu_device;  // where new containers lie
    uint64_t launches = 0, drawing_launches = 0;           // the latter number random sequences
    int tier = -1;    // -1: quick first, then optimised; 0, 1: forced, 2: interpreted (QD_CPU_TIER)
    std::string cpu;  // QD_CPU_TARGET; "" = host
    bool watches_launches = false;                           // whether somebody is told of each
    uint32_t compiled = 0;                                   // specialisations compiled or loaded
    uint64_t lowered = 0, cache_hits = 0, cache_misses = 0;  // counters for tests
    uint64_t trees_parsed = 0, trees_loaded = 0;             // of functions
    // Time on the host: in the cache, tracing, compiling.
    int64_t cache_ns = 0, trace_ns = 0, compile_ns = 0;
    uint32_t next_generation = 1;
    int compiling = 0;   // threads that compile without the GIL
    uint32_t forks = 0;  // of this process's ancestors: what was counted before is not here
    Door<PythonThreads> door;
    Turn<PythonThreads> turn;
};

// Never destroyed: threads may use it while the process ends.
union TheSession {
    Session live;
    TheSession() : live() {}
    ~TheSession() {}
};
extern TheSession the_session;
inline Session& session() { return the_session.live; }
// Around tracing, compiling and launching: the runtime is not reset meanwhile. Made and ended under
// the GIL.
struct Working {
    Working() { session().door.work_begins(); }
    ~Working() { session().door.work_ends(); }
    Working(const Working&) = delete;
};
// Around a kernel call, Python code that it runs included. While the session is closed it waits
// first, with the GIL released, unless this thread is one that is waited for; at the end of the
// process for ever.
struct KernelCall {
    KernelCall() { session().door.call_begins(); }
    ~KernelCall() { session().door.call_ends(); }
    KernelCall(const KernelCall&) = delete;
};
// Without the GIL as long as it lives: to wait for other threads, and to work, which is counted.
class Waiting {
  public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;

  private:
    PyThreadState* state_;
};
class Released {
  public:
    Released() : state_(give_gil()) {}
    ~Released() { take_gil(state_); }
    Released(const Released&) = delete;
    // Runs signal handlers that are due, if this is the main thread. Whether one raises: its
    // exception is then set.
    bool handler_raises();
    // As PyEval_SaveThread and PyEval_RestoreThread, for code of ours that works in between. Once
    // the interpreter ends, its other threads never get the GIL.
    static PyThreadState* give_gil();
    static void take_gil(PyThreadState* state);

  private:
    PyThreadState* state_;
};
// Whether the innermost Python frame of a thread is none of this package: a signal handler, a
// finaliser or a hook runs there. Under the GIL.
bool runs_code_of_others(uint64_t thread);
constexpr int64_t kPatienceNs = 200'000'000;  // with who holds something and does so
// Before this thread touches what kernels of others may be working on, under the GIL from then on.
// False if a signal handler raises meanwhile.
bool wait_for_turn();
inline bool wait_for_launches() { return !session().turn.is_asked_for() || wait_for_turn(); }
void turn_in_forked_child();
// Any thread: whether nobody is to be told anything any more.
bool interpreter_ends();
// Raises QuadrantsRuntimeError and returns false if there is no runtime.
bool require_session();
// Called by qd.reset after the Python side has let go: registered by areas that hold storage.
using ResetHook = void (*)();
void on_reset(ResetHook hook);
void run_reset_hooks();

}  // namespace qd::session
