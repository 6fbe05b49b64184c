// The module functions runtime_init, runtime_reset, runtime_sync, set_config_option,
// set_runtime_option and the counters.

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>
#include <vector>

#include "cache/part_folder.h"
#include "cache/store.h"
#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/storage.h"
#include "frontend/specialise.h"
#include "launcher/compile_report.h"
#include "launcher/kept_trees.h"
#include "launcher/kernel.h"
#include "python/areas.h"
#include "python/options.h"
#include "runtime/compile_queue.h"
#include "runtime/compiler.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/crash.h"
#include "runtime/cuda/code.h"
#include "runtime/cuda/driver.h"
#include "runtime/fork.h"
#include "runtime/progress.h"
#include "runtime/tape_limit.h"
#include "runtime/trace_file.h"
#include "session/stored_code.h"
#include "support/clock.h"
#include "support/error.h"

namespace qd::python {
namespace {

using namespace cpython;
using namespace launcher;
using namespace session;
using session::session;

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

// The session, closed by this thread; opened again at the end.
class Closed {
    bool ours_ = false;

  public:
    // False, with an exception, inside work of this thread's own, and when a signal handler raises.
    bool wait() {
        using enum Door<PythonThreads>::Closing;
        const auto closing = session().door.close(ours_);
        if (closing == inside_own_work)
            set_error("QuadrantsRuntimeError",
                      "the runtime cannot be reset while a kernel is running or being compiled in "
                      "this thread");
        if (closing == never)
            set_error("QuadrantsRuntimeError",
                      "the runtime cannot be reset any more: the process ends while a kernel of "
                      "another thread is running");
        if (closing == stands_still)
            set_error(
                "QuadrantsRuntimeError",
                "the runtime cannot be reset: a kernel is being called in another thread, and "
                "Python code that it runs (a helper, a signal handler, a write to sys.stdout) "
                "has not returned for five seconds; it may be waiting for this thread");
        return closing == done;
    }
    ~Closed() {
        if (ours_) session().door.open();
    }
};

// A trace that cannot be written is no reason to stop.
void begin_trace() {
    const std::string& path = session().options.trace_file;
    if (path.empty()) return;
    const std::string problem = runtime::open_trace(path);
    if (!problem.empty())
        cpython::try_to_log("warn", "cannot write the trace file " + path + ": " + problem);
}

void end_trace() {
    const std::string problem = runtime::close_trace();
    if (!problem.empty())
        cpython::try_to_log(
            "warn", "the trace file " + session().options.trace_file + " is not whole: " + problem);
}

void note_watchers() {
    Session& s = session();
    s.watches_launches = s.options.debug || runtime::is_traced() || s.device->launch_begins;
}

void use_limits() {
    const ir::Options& o = session().options;
    runtime::set_optimisers(o.print_ir ? 1 : o.num_compile_threads);
    runtime::tape_limit = o.ad_tape_bytes < 0 ? INT64_MAX : o.ad_tape_bytes;  // of 64 bits
}

// What the environment says of code, which is for people who look for mistakes of ours.
struct Wishes {
    int tier = -1;
    std::string cpu;
    bool guarded = false;
};

// The usual ones, which need no compiler to be told: a warm process has none.
bool is_level_of_this_machine(const std::string& cpu) {
#if defined(__x86_64__)
    return cpu == "x86-64" || (cpu == "x86-64-v2" && __builtin_cpu_supports("x86-64-v2")) ||
           (cpu == "x86-64-v3" && __builtin_cpu_supports("x86-64-v3")) ||
           (cpu == "x86-64-v4" && __builtin_cpu_supports("x86-64-v4"));
#else
    return false;
#endif
}

// False, with an exception, if it makes no sense.
bool read_wishes(Wishes& w) {
    static const char* const tiers[] = {"0", "1", "interpret"};
    const std::string tier = environment("QD_CPU_TIER");
    const auto* const found = std::ranges::find(tiers, tier);
    if (found == std::end(tiers) && !tier.empty()) {
        PyErr_Format(PyExc_ValueError,
                     "Environment variable QD_CPU_TIER takes 0, 1 or interpret, got '%s'",
                     tier.c_str());
        return false;
    }
    if (!tier.empty()) w.tier = static_cast<int>(found - tiers);
    w.guarded = environment("QD_GUARDED_MEMORY") == "1";
    w.cpu = environment("QD_CPU_TARGET");
    if (w.cpu.empty() || is_level_of_this_machine(w.cpu)) return true;
    try {
        runtime::Compiler::get().check_cpu(w.cpu);
    } catch (const support::Error& e) {
        PyErr_Format(PyExc_ValueError, "Environment variable QD_CPU_TARGET: %s", e.what());
        return false;
    }
    return true;
}

// What Python calls the live runtime: there from the last step of runtime_init to the first of
// runtime_reset, as the session's generation is. No signal handler finds one without the other.
PyObject* program = nullptr;

PyObject* live_program(PyObject*, PyObject*) {
    PyObject* live = program ? program : Py_None;
    Py_INCREF(live);
    return live;
}

PyObject* decided_options(bool on_gpu) {
    if (!on_gpu) return Py_BuildValue("{s:i}", "max_block_dim", 1024);
    const runtime::cuda::Driver& d = *runtime::cuda::driver();
    const auto wished = int(session().options.saturating_grid_dim);
    return Py_BuildValue("{s:i,s:i}", "max_block_dim", d.block_threads, "saturating_grid_dim",
                         wished ? wished : 2 * d.multiprocessors * d.blocks_held);
}

// runtime_init(options, program) -> the options that the device decides
PyObject* runtime_init(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 2 || !PyDict_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "runtime_init takes a dictionary and a program");
    PyObject* options = args[0];
    Wishes wishes;
    if (!read_wishes(wishes)) return nullptr;
    PyObject* device = PyDict_GetItemString(options, "device");
    const bool on_gpu = device && !PyUnicode_CompareWithASCIIString(device, "cuda");
    Closed closed;
    if (!closed.wait()) return nullptr;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(options, &at, &key, &value))
        if (!set_option(session().options, key, value)) return nullptr;
    Session& s = session();
    try {
        if (on_gpu) {
            (void)runtime::cuda::start(static_cast<size_t>(s.options.cuda_stack_limit));
            runtime::cuda::allow_driver_cache(s.options.offline_cache);
        }
    } catch (const support::Error& e) {
        set_error("QuadrantsRuntimeError", e.what());
        return nullptr;
    }
    PyObject* release = PyDict_GetItemString(options, "release");
    const char* text = release ? PyUnicode_AsUTF8(release) : "";
    if (!text) return nullptr;
    s.release = text;
    s.launches = s.drawing_launches = 0;
    s.compiled = 0;
    s.pool = std::make_unique<runtime::Pool>(s.options.cpu_max_num_threads);
    s.tier = on_gpu && wishes.tier == 2 ? 1 : wishes.tier;
    s.cpu = on_gpu ? "sm_" + std::to_string(runtime::cuda::driver()->capability)
                   : std::move(wishes.cpu);
    s.device = on_gpu           ? &runtime::cuda_device
               : wishes.guarded ? &runtime::guarded_device
                                : &runtime::cpu_device;
    use_limits();
    ++s.options_version;
    runtime::set_float_mode(runtime::float_mode() | runtime::kFlushResults);
    if (s.options.debug || s.options.gdb_trigger) runtime::report_crashes(s.options.gdb_trigger);
    begin_trace();
    note_watchers();
    PyObject* decided = decided_options(on_gpu);
    if (!decided) return nullptr;
    s.generation = s.next_generation++;
    Py_INCREF(args[1]);
    Py_XSETREF(program, args[1]);
    return decided;
}

void flush() {
    flush_kept_trees();
    flush_cache();
}

// What there is no memory for is not told, nor kept for later processes.
void try_to(void (*work)()) {
    try {
        work();
    } catch (const std::bad_alloc&) {
    } catch (const cpython::PyError&) {
        cpython::forget_error();
    }
}

// Caches are written, reports told, and no user's function is held here any more.
void finish() {
    runtime::drop_optimisations();
    for (void (*work)() : {flush, report_session, end_trace}) try_to(work);
    frontend::clear_function_cache();
}

PyObject* runtime_reset(PyObject*, PyObject*) {
    Closed closed;
    if (!closed.wait()) return nullptr;
    if (session().generation) {
        session().generation = 0;  // a call that has not begun its work will not
        const Ref ended = Ref::steal_or_null(std::exchange(program, nullptr));
        finish();
        run_reset_hooks();
        if (const auto trim = session().device->trim) trim();
        session().pool.reset();
        runtime::forget_crashes();
        launcher::forget_native_graphs();
    }
    Py_RETURN_NONE;
}

PyObject* runtime_sync(PyObject*, PyObject*) {  // CPU launches are complete when they return
    if (!require_session() || !wait_for_launches()) return nullptr;
    if (const auto synchronise = session().device->synchronise) return wait_for_device(synchronise);
    Py_RETURN_NONE;
}

PyObject* runtime_flush_cache(PyObject*, PyObject*) {
    if (!require_session()) return nullptr;
    flush();
    Py_RETURN_NONE;
}

PyObject* set_config_option(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 2 || !PyUnicode_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "set_config_option takes a name and a value");
    // Code that is traced may set what later compilations read (`qd.block_local` does), but not
    // what the pool is made from.
    const bool makes_pool = !PyUnicode_CompareWithASCIIString(args[0], "cpu_max_num_threads");
    Closed closed;
    if ((!PythonThreads::my_work() || makes_pool) && !closed.wait()) return nullptr;
    ++session().options_version;
    if (!set_option(session().options, args[0], args[1])) return nullptr;
    Session& s = session();
    note_watchers();
    use_limits();
    if (s.generation && makes_pool)
        s.pool = std::make_unique<runtime::Pool>(s.options.cpu_max_num_threads);
    Py_RETURN_NONE;
}

// end_session(seconds): no other thread's kernel call goes on from here. The session is finished if
// those that had begun are over within this time. This thread may use it still: finalisers of a
// program's globals come after it.
PyObject* end_session(PyObject*, PyObject* seconds) {
    const double patience = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) return nullptr;
    if (session().door.end(static_cast<int64_t>(patience * 1e9)) && session().generation) finish();
    Py_RETURN_NONE;
}

PyObject* wait_for_optimisations(PyObject*, PyObject*) {
    {
        const Released released;
        runtime::finish_optimisations();
    }
    Py_RETURN_NONE;
}

PyObject* finish_optimisations(PyObject*, PyObject*) {
    optimise_all();
    return wait_for_optimisations(nullptr, nullptr);
}

PyObject* num_compiled_functions(PyObject*, PyObject*) {
    return PyLong_FromUnsignedLong(session().compiled);
}

PyObject* counters(PyObject*, PyObject*) {
    const Session& s = session();
    return Py_BuildValue("{s:k,s:K,s:K,s:K,s:O,s:K,s:K,s:K,s:K,s:K}", "compiled",
                         static_cast<unsigned long>(s.compiled), "lowered",
                         static_cast<unsigned long long>(s.lowered), "cache_hits",
                         static_cast<unsigned long long>(s.cache_hits), "cache_misses",
                         static_cast<unsigned long long>(s.cache_misses), "compiler_loaded",
                         runtime::Compiler::loaded() ? Py_True : Py_False, "launches",
                         static_cast<unsigned long long>(s.launches), "trees_parsed",
                         static_cast<unsigned long long>(s.trees_parsed), "trees_loaded",
                         static_cast<unsigned long long>(s.trees_loaded), "parts_made",
                         static_cast<unsigned long long>(cache::PartFolder::all_made),
                         "parts_reused",
                         static_cast<unsigned long long>(cache::PartFolder::all_reused));
}

PyObject* host_times(PyObject*, PyObject*) {
    const Session& s = session();
    return Py_BuildValue("{s:d,s:d,s:d}", "cache", static_cast<double>(s.cache_ns) * 1e-9, "trace",
                         static_cast<double>(s.trace_ns) * 1e-9, "compile",
                         static_cast<double>(s.compile_ns) * 1e-9);
}

PyObject* compiler_times(PyObject*, PyObject*) {
    const std::string text = runtime::Compiler::loaded() ? runtime::Compiler::get().times() : "";
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

PyObject* set_log_level(PyObject*, PyObject* rank) {
    constexpr long kDebug = 1;  // of quadrants._logging
    const long level = PyLong_AsLong(rank);
    if (PyErr_Occurred()) return nullptr;
    cache::set_debugs(level <= kDebug);
    Py_RETURN_NONE;
}

PyObject* hide_progress(PyObject*, PyObject*) {
    runtime::hide_progress();
    Py_RETURN_NONE;
}

// has_device(name) -> whether kernels can run there; device_problem(name) -> why not
PyObject* has_device(PyObject*, PyObject* name) {
    const bool is_cuda = PyUnicode_Check(name) && !PyUnicode_CompareWithASCIIString(name, "cuda");
    return PyBool_FromLong(is_cuda && runtime::cuda::driver());
}

PyObject* device_problem(PyObject*, PyObject* name) {
    const bool is_cuda = PyUnicode_Check(name) && !PyUnicode_CompareWithASCIIString(name, "cuda");
    return PyUnicode_FromString(is_cuda ? runtime::cuda::why_not().c_str()
                                        : "this build has no such backend");
}

PyObject* cuda_compute_capability(PyObject*, PyObject*) {
    const auto* d = runtime::cuda::driver();
    return PyLong_FromLong(d ? d->capability : 0);
}

PyObject* cuda_max_shared_memory_bytes(PyObject*, PyObject*) {
    const auto* d = runtime::cuda::driver();
    return PyLong_FromLong(d ? d->shared_bytes : 0);
}

PyObject* cuda_clock_khz(PyObject*, PyObject*) {
    const auto* d = runtime::cuda::driver();
    return PyLong_FromLong(d ? d->clock_khz : 0);
}

PyMethodDef methods[] = {
    {"cuda_clock_khz", entry<cuda_clock_khz>, METH_NOARGS, "Nominal clock of the multiprocessors."},
    {"cuda_compute_capability", entry<cuda_compute_capability>, METH_NOARGS, "10 major + minor."},
    {"cuda_max_shared_memory_bytes", entry<cuda_max_shared_memory_bytes>, METH_NOARGS,
     "What a block of the GPU's threads may share at most."},
    {"has_device", entry<has_device>, METH_O, "Whether kernels can run on this kind of device."},
    {"device_problem", entry<device_problem>, METH_O, "Why they cannot."},
    {"hide_progress", entry<hide_progress>, METH_NOARGS,
     "Before a line is written to the terminal."},
    {"set_log_level", entry<set_log_level>, METH_O, "Which lines anybody wants to read."},
    {"live_program", entry<live_program>, METH_NOARGS,
     "What runtime_init was given; None without one."},
    {"runtime_init", entry<runtime_init>, METH_FASTCALL,
     "Starts the runtime under a dictionary of options, as a program."},
    {"runtime_reset", entry<runtime_reset>, METH_NOARGS, "Ends the runtime and frees its storage."},
    {"end_session", entry<end_session>, METH_O,
     "Before the interpreter ends: keeps other threads out of kernels."},
    {"runtime_flush_cache", entry<runtime_flush_cache>, METH_NOARGS,
     "Cleans the cache and moves what was compiled to where users count it."},
    {"runtime_sync", entry<runtime_sync>, METH_NOARGS, "Waits for the default stream."},
    {"set_config_option", entry<set_config_option>, METH_FASTCALL,
     "Changes one option of the live runtime."},
    {"set_runtime_option", entry<set_config_option>, METH_FASTCALL,
     "Changes one option kept by the Python side."},
    {"finish_optimisations", entry<finish_optimisations>, METH_NOARGS,
     "Optimises all code at hand, also what has not run for long, and waits for it."},
    {"wait_for_optimisations", entry<wait_for_optimisations>, METH_NOARGS,
     "Waits until no optimisation is pending."},
    {"num_compiled_functions", entry<num_compiled_functions>, METH_NOARGS,
     "Specialisations compiled or loaded so far."},
    {"host_times", entry<host_times>, METH_NOARGS, "Seconds spent before launches, by phase."},
    {"compiler_times", entry<compiler_times>, METH_NOARGS,
     "What the compiler spent on each stage, on all threads: lines of support/abi.h's TimesFn."},
    {"counters", entry<counters>, METH_NOARGS, "Numbers that tests count."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

// In a child only what this thread does goes on.
void in_forked_child() {
    Session& s = session();
    ++s.forks;
    s.compiling = 0;
    forget_report();
    data::OpenLaunch::in_forked_child();
    turn_in_forked_child();
    declaring_in_forked_child();
    if (s.door.in_forked_child()) frontend::abandon_function_cache();  // half made, perhaps
}

bool add_runtime(PyObject* module) {
    runtime::at_fork(runtime::AtFork::session, {nullptr, nullptr, in_forked_child});
    (void)Py_AtExit(runtime::stop_optimisations);
    use_kept_trees();
    return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace qd::python
