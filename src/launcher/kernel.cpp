// The Kernel and BoundKernel types and the launch itself. See kernel.h.

#include "launcher/kernel.h"

#include <alloca.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "autodiff/autodiff.h"
#include "cpython/entry.h"
#include "cpython/names.h"
#include "data/external.h"
#include "data/storage.h"
#include "frontend/source/ast.h"
#include "ir/random.h"
#include "launcher/array_copies.h"
#include "launcher/device_arrays.h"
#include "launcher/native_graphs.h"
#include "launcher/output.h"
#include "launcher/profile.h"
#include "launcher/raised.h"
#include "runtime/crash.h"
#include "runtime/trace_file.h"
#include "support/clock.h"

namespace qd::launcher {
namespace {

using support::now_ns;

constexpr size_t kStackBlock = 16384;
constexpr int64_t kReleaseGilNs = 20000;

extern PyTypeObject Kernel_Type;
KernelObject* as_kernel(PyObject* o) { return reinterpret_cast<KernelObject*>(o); }

// --- materialisation ----------------------------------------------------------------------------
// PyQuadrants.materialize runs before the first launch and whenever fields were declared since.
// While a client has replaced it on the class, it also runs whenever arrays were made since, and
// before a kernel is built.
struct MaterialiseHook {
    PyObject* runtime = nullptr;   // quadrants.lang.impl.pyquadrants
    PyTypeObject* type = nullptr;  // its class
    PyObject* original = nullptr;  // the unreplaced method
    unsigned version = 0;          // of the class, when it was last seen unreplaced
    uint64_t storages = 0;         // how many there were when it last ran
};
MaterialiseHook hook;
thread_local bool hook_runs = false;  // in this thread
uint32_t materialised_generation = 0;

bool find_hook() {
    PyObject* module = PyImport_ImportModule("quadrants.lang.impl");
    if (!module) return false;
    hook.runtime = PyObject_GetAttrString(module, "pyquadrants");
    PyObject* original = PyObject_GetAttrString(module, "_original_materialize");
    Py_DECREF(module);
    if (!hook.runtime || !original) return false;
    hook.type = Py_TYPE(hook.runtime);
    hook.original = original;
    return true;
}

bool hook_replaced() {
    if (hook.type->tp_version_tag == hook.version && hook.version != 0) return false;
    PyObject* method =
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(hook.type), "materialize");
    const bool replaced = method != hook.original;
    Py_XDECREF(method);
    hook.version = replaced ? 0 : hook.type->tp_version_tag;
    return replaced;
}

bool run_hook() {
    hook_runs = true;  // a wrapper launches kernels: those must not come here again
    PyObject* r = PyObject_CallMethod(hook.runtime, "materialize", nullptr);
    hook_runs = false;
    materialised_generation = session().generation;
    hook.storages = storages_made();
    Py_XDECREF(r);
    return r != nullptr;
}

bool materialise_if_due(bool building) {
    if (!hook.runtime && !find_hook()) return false;
    const bool due = materialised_generation != session().generation || has_pending_fields() ||
                     ((building || hook.storages != storages_made()) && hook_replaced());
    return !due || hook_runs || run_hook();
}

// --- launching
// ------------------------------------------------------------------------------------ The GIL
// during a launch: held for short ones, given up at the start or as soon as it shows that other
// threads would wait. What a signal handler raises is kept for the end of the launch.
struct Patience {
    Working working;
    Turn<PythonThreads>& turn = session().turn;
    bool has_turn = false;
    PyThreadState* state = nullptr;
    Raised raised;
    OpenLaunch open;

    // For the launches of other threads. False if a signal handler raises.
    bool wait() {
        if (!turn.is_asked_for()) return true;
        open.begin();
        return turn.wait();
    }
    void release() {
        open.begin();
        if (state) return;
        has_turn |= turn.take();
        state = Released::give_gil();
    }
    void take() {
        if (state) Released::take_gil(state);
        state = nullptr;
    }
    void end() {
        take();
        if (has_turn) turn.leave();
        has_turn = false;
    }
    ~Patience() { end(); }
    static void long_run(void* self) { static_cast<Patience*>(self)->release(); }
    static bool check_signals(void* self) {
        auto& p = *static_cast<Patience*>(self);
        p.take();
        if (p.has_turn) p.turn.set_aside();
        const bool stop = p.raised.check_signals();
        if (p.has_turn) p.turn.resume();
        p.release();
        return stop;
    }
};

// Blocks of text from the kernel to the failed check.
std::string stack_text(const std::vector<const support::FormatEntry*>& stack) {
    constexpr size_t kShown = 8;  // at either end
    std::vector<const support::SourceSite*> sites;
    for (const support::FormatEntry* e : stack)
        for (const support::SourceSite& s : e->sites) sites.push_back(&s);
    std::string out;
    for (size_t k = sites.size(); k-- > 0;) {
        if (sites.size() > 2 * kShown && k == sites.size() - kShown - 1) {
            out += "... " + std::to_string(sites.size() - 2 * kShown) + " more calls ...\n";
            k = kShown - 1;
        }
        out += frontend::site_text(*sites[k]);
    }
    return out;
}

// Not the user's own words, and a location belongs to them.
bool is_our_text(const std::string& text) {
    return text.starts_with("(kernel=") || text.starts_with("[kernel=") ||
           text.starts_with("Negative exponent in ");
}

// What an assertion says is the user's alone: the rest is a note, which tracebacks show below it.
void add_note(const std::string& note) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const Ref done = Ref::steal_or_null(
        cpython::has_attribute(value, "add_note")
            ? PyObject_CallMethod(value, "add_note", "s#", note.data(), Py_ssize_t(note.size()))
            : Py_NewRef(Py_None));
    if (!done) cpython::forget_error();
    PyErr_Restore(type, value, trace);
}

void raise_failure(const runtime::LaunchOutcome& outcome, const std::string& kernel) {
    std::string text = outcome.failure.empty() ? "assertion failed" : outcome.failure;
    const std::string stack = outcome.stack ? stack_text(*outcome.stack) : "";
    const bool whole = is_our_text(text);
    if (whole && !stack.empty()) text += "\n" + stack;
    set_error("QuadrantsAssertionError", text);
    if (!whole && !stack.empty()) add_note("in kernel " + kernel + ":\n" + stack);
}

__attribute__((noinline)) PyObject* after_launch(runtime::LaunchOutcome& outcome,
                                                 const Specialisation& spec, Raised& raised) {
    const bool told = outcome.printed.empty() || write_output(outcome.printed);
    if (told && outcome.no_memory) PyErr_NoMemory();
    if (told && outcome.failed) raise_failure(outcome, spec.name);
    if (raised) raised.restore();
    return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
}

// Around a launch that crash reports, the trace file or the device are told of.
class Watched {
  public:
    Watched(bool wanted, const Specialisation& s, int64_t start,
            const std::vector<runtime::TaskTime>& times)
        : wanted_(wanted), s_(s), start_(start), times_(times) {
        if (wanted_) begin();
    }
    ~Watched() {
        if (wanted_) end();
    }
    Watched(const Watched&) = delete;

  private:
    __attribute__((noinline)) void begin() {
        const runtime::Device& device = *session().device;
        if (device.launch_begins) device.launch_begins();
        runtime::set_running_kernel(s_.name.c_str());
    }
    __attribute__((noinline)) void end() {
        const runtime::Device& device = *session().device;
        if (device.launch_ends) device.launch_ends();
        runtime::set_running_kernel(nullptr);
        if (!runtime::is_traced()) return;
        runtime::trace_run("launch", s_.name, start_, now_ns() - start_);
        try {
            trace_tasks(s_, times_);
        } catch (const std::bad_alloc&) {  // then they are left out
        }
    }

    const bool wanted_;
    const Specialisation& s_;
    const int64_t start_;
    const std::vector<runtime::TaskTime>& times_;
};

// Around a launch of quick code whose time counts.
class Counted {
  public:
    Counted(bool wanted, const Specialisation& s, int64_t start)
        : wanted_(wanted), s_(s), start_(start) {}
    ~Counted() { end(); }
    Counted(const Counted&) = delete;
    void end() {
        if (std::exchange(wanted_, false)) runtime::quick_run_ends(s_.slot, now_ns() - start_);
    }

  private:
    bool wanted_;
    const Specialisation& s_;
    const int64_t start_;
};

size_t tasks_of_last_call = 0;

// The sequence of random numbers (Session::drawing_launches) that this thread's last launch drew
// from, 0: none; and the one that its launches draw from once more, 0: each from the next one.
thread_local uint64_t drawn = 0, draws_again = 0;

// QD_DEBUG_ADSTACK, which may be set at any time. Under the GIL.
bool wants_tapes() {
    const char* value = std::getenv("QD_DEBUG_ADSTACK");
    return value && *value && std::strcmp(value, "0") != 0;
}

// Whether other processes may see an array that was packed last.
bool shares_arrays(const Specialisation& s) {
    return std::ranges::any_of(
        s.steps, [](const PackStep& step) { return step.foreign & PackStep::kLastShared; });
}

// `shared`: see abi::Context.
PyObject* launch(const KernelObject& k, Specialisation& s, uint8_t* block, bool shared,
                 uint64_t stream) {
    yield_of_last_call = -1;
    if (s.graph && !begin_graph(k, s, block)) return nullptr;
    Session& session_ = session();
    if (s.generation != session_.generation || !session_.pool) {
        set_error("QuadrantsRuntimeError", "the runtime was reset during this call");
        return nullptr;
    }
    alignas(64) uint8_t results[512];
    std::vector<uint8_t> large;
    uint8_t* out = results;
    if (s.result_bytes > sizeof results) {
        large.resize(s.result_bytes);
        out = large.data();
    }
    abi::Context context{};
    context.bindings = s.bindings.data();
    context.args = block;
    context.results = out;
    context.shared = shared;
    ++session_.launches;
    // Kernels that draw nothing, say of a viewer, leave the sequence as it is.
    drawn = 0;
    const auto number_draws = [&] {
        if (!draws_again && k.derivative == uint8_t(autodiff::Mode::reverse)) {
            PyErr_Format(PyExc_RuntimeError,
                         "the way back of kernel '%s' needs the random numbers of the way there: "
                         "call the kernel in a qd.ad.Tape",
                         kernel_name(k).c_str());
            return false;
        }
        drawn = draws_again ? draws_again : ++session_.drawing_launches;
        context.launch_key =
            ir::mix(static_cast<uint64_t>(session_.options.random_seed) * 1048391 + drawn);
        return true;
    };
    Patience patience;
    if (!patience.wait()) return nullptr;
    runtime::LaunchOutcome outcome;
    std::vector<runtime::TaskTime> times;
    const int64_t start = now_ns();
    const Watched watched(session_.watches_launches, s, start, times);
    bool special;
    if (s.interpreted) {
        if (s.interpreted->uses_random && !number_draws()) return nullptr;
        special = interpret_launch(*s.interpreted->module, context, outcome, patience.raised);
        tasks_of_last_call = 1;  // it does not cut the kernel
    } else {
        const runtime::KernelImage& image = *s.slot->current();
        tasks_of_last_call = image.counted_tasks;
        if (image.gpu && !note_native_launch(k, s, image, block)) return nullptr;
        if (image.uses_random && !number_draws()) return nullptr;
        Counted counted(image.tier == 0 && runtime::quick_run_begins(s.slot, start), s, start);
        runtime::LaunchHooks hooks{Patience::check_signals, Patience::long_run, &patience};
        hooks.whole_ns = kWholeNs;
        hooks.stream = stream;
        hooks.may_be_late = !session_.options.check_indices();
        if (session_.options.kernel_profiler) hooks.times = &times;
        if (image.uses_tape && wants_tapes()) hooks.tapes_of = s.name.c_str();
        int64_t brief = kReleaseGilNs;
        if (s.last_ns >= brief && patience.turn.in_slice()) brief = hooks.long_ns = kSliceNs;
        if (s.last_ns >= brief) patience.release();
        std::optional<DeviceArrays> arrays;
        if (image.gpu && !has_native_arrays(k, s)) arrays.emplace(s, block, stream);
        special = runtime::launch(image, context, *session_.pool, hooks, outcome);
        if (arrays) arrays->write_back();
        counted.end();
        patience.end();
        if (!times.empty()) record_times(s, times);
    }
    s.last_ns = now_ns() - start;
    if (special || patience.raised) {
        PyObject* ok = after_launch(outcome, s, patience.raised);
        if (!ok) return nullptr;
        Py_DECREF(ok);
    }
    if (s.last_ns > 50000000 && PyErr_CheckSignals() != 0) return nullptr;
    if (s.graph && s.graph->named) return graph_status(*s.graph, block);
    if (s.results.empty()) Py_RETURN_NONE;
    return build_results(s, out);
}

// A specialisation with a field whose tree was destroyed fits nothing any more: what it reached may
// have been replaced.
bool has_destroyed_field(const Specialisation& s) {
    return std::ranges::any_of(s.fields, [](const Ref& f) {
        return reinterpret_cast<const data::FieldObject*>(f.get())->destroyed;
    });
}

// A derivative that knows nothing of gradients which have storage by now fits no more.
bool has_gained(const Specialisation& s) {
    return std::ranges::any_of(s.lacking, [](const Ref& f) {
        return reinterpret_cast<const data::FieldObject*>(f.get())->field != nullptr;
    });
}

// Packs into a block on the stack and launches; `matched` says whether the arguments fit.
PyObject* try_specialisation(const KernelObject& k, Specialisation& s, PyObject* const* args,
                             uint64_t stream, Match& matched) {
    std::vector<uint8_t> large;
    uint8_t* block;
    if (s.args_bytes <= kStackBlock) {
        block = static_cast<uint8_t*>(alloca(s.args_bytes + 64));
        block =
            reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(block) + 15) & ~uintptr_t(15));
    } else {
        large.resize(s.args_bytes);
        block = large.data();
    }
    Kept kept;
    matched = match_and_pack(s, *k.parameters, args, block, kept);
    if (matched != Match::yes) return nullptr;
    if (has_destroyed_field(s) || has_gained(s)) {
        matched = Match::no;
        return nullptr;
    }
    const bool shared = s.asks_shared && shares_arrays(s);  // before other launches pack
    try {
        return launch(k, s, block, shared, stream);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::exception& e) {  // of the interpreter
        set_error("QuadrantsRuntimeError", e.what());
        return nullptr;
    }
}

// Whether an object that it was made for is gone, so that it can never fit again.
bool is_dead(const Specialisation& s) {
    return has_destroyed_field(s) || has_gained(s) ||
           std::ranges::any_of(s.identities, [](const IdentityCheck& check) {
               return check.weak && !refers_to(check.weak.get(), check.object);
           });
}

// `nested`: amid the tracing of another kernel, which is not to be left for a new one.
__attribute__((noinline)) PyObject* call_cold(KernelObject& k, PyObject* const* args,
                                              uint64_t stream, bool nested) {
    for (size_t n = 0; n < k.parameters->size(); ++n)
        if (needs_copy(args[n])) return launch_with_copies(k, args, k.parameters->size());
    auto& specialisations = *k.specialisations;
    Match matched;
    for (size_t n = 1; n < specialisations.size(); ++n) {
        PyObject* r = try_specialisation(k, *specialisations[n], args, stream, matched);
        if (matched == Match::no) continue;
        // To the front, unless a nested launch moved them already; the order is only a hint.
        if (matched == Match::yes && n < specialisations.size())
            std::swap(specialisations[0], specialisations[n]);
        return r;
    }
    if (PyObject* r = launch_with_copies(k, args, k.parameters->size())) return r;
    if (PyErr_Occurred()) return nullptr;
    // What answers a guard sees what it saw while the kernel was traced.
    if (nested || frontend::traces_for_caller()) {
        set_error("QuadrantsSyntaxError",
                  "Kernels cannot call other kernels. I.e., nested kernels are not allowed. Please "
                  "check if you have direct/indirect invocation of kernels within kernels. (A "
                  "signal handler or finaliser that runs while another kernel is compiled can "
                  "launch what was compiled before: call " +
                      kernel_name(k) + " once earlier.)");
        return nullptr;
    }
    if (k.active == 1) std::erase_if(specialisations, [](const auto& s) { return is_dead(*s); });
    bool others = false;
    const uint64_t launch = k.launches;
    std::unique_ptr<Specialisation> built =
        build_specialisation(k, args, k.parameters->size(), &others);
    if (others) {
        PyObject* r = try_specialisation(k, *k.specialisations->front(), args, stream, matched);
        return matched == Match::no ? call_cold(k, args, stream, nested) : r;
    }
    if (!built) {
        k.refused = launch;
        return nullptr;
    }
    Specialisation& made = *built;
    specialisations.insert(specialisations.begin(), std::move(built));
    PyObject* r = try_specialisation(k, made, args, stream, matched);
    if (matched == Match::no && !PyErr_Occurred())
        set_error("QuadrantsRuntimeError",
                  "the new specialisation of a kernel does not fit its own arguments; please "
                  "report this");
    return r;
}

// --- the Python backend: without a native session the definition runs its own function -----------
bool is_python_backend() {
    PyObject* module = PyImport_ImportModule("quadrants.lang.impl");
    PyObject* answer = module ? PyObject_CallMethod(module, "is_python_backend", nullptr) : nullptr;
    const bool is = answer == Py_True;
    Py_XDECREF(module);
    Py_XDECREF(answer);
    if (!answer) cpython::forget_error();
    return is;
}

PyObject* call_python(const KernelObject& k, PyObject* const* args, size_t flags, PyObject* names) {
    PyObject* run = PyObject_GetAttrString(k.definition, "run_as_python");
    if (!run) return nullptr;
    PyObject* result =
        PyObject_Vectorcall(run, args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names);
    Py_DECREF(run);
    return result;
}

// Items die after their vector has let go of them: that may run Python, and the collector.
template <typename Items>
void drop(Items& items) {
    Items().swap(items);
}

struct Active {  // a call in progress; Python code that it runs may reset the runtime or call again
    KernelObject& k;
    uint32_t forks = session().forks;
    explicit Active(KernelObject& kernel) : k(kernel) {
        forget_parents(k);
        ++k.active;
    }
    ~Active() {
        if (k.active_forks == forks && --k.active == 0 && !k.retired->empty()) [[unlikely]]
            drop_retired();
    }
    void drop_retired() {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        drop(*k.retired);
        PyErr_Restore(type, value, trace);
    }
    static void forget_parents(KernelObject& k) {
        if (k.active_forks == session().forks) return;
        k.active_forks = session().forks;
        k.active = 0;
    }
};

// Calls that began before a reset, of other threads or around this one, keep what they use.
bool begin_generation(KernelObject& k) {
    uint32_t generation;
    std::vector<Parameter> parameters;
    do {  // Python runs in between, and with it other threads
        if (!require_session()) return false;
        generation = session().generation;
        drop(parameters);
        if (!read_parameters(k, parameters)) return false;
    } while (session().generation != generation);
    if (k.generation == generation) return true;  // by another thread
    Retired now{std::make_unique<std::vector<Parameter>>(std::move(parameters)),
                std::make_unique<std::vector<std::unique_ptr<Specialisation>>>()};
    k.retired->reserve(k.retired->size() + 1);
    Active::forget_parents(k);
    k.generation = generation;
    Retired old{std::unique_ptr<std::vector<Parameter>>(k.parameters),
                std::unique_ptr<std::vector<std::unique_ptr<Specialisation>>>(k.specialisations)};
    k.parameters = now.parameters.release();
    k.specialisations = now.specialisations.release();
    if (k.active)
        k.retired->push_back(std::move(old));
    else
        drop(*k.retired);
    return true;
}

// Test doubles: methods of the definition's class that somebody replaced. quadrants._compat
// .kernel_face says when; calls then go through `definition._call_doubles`, which comes back here
// under `in_double`.
bool doubled = false;
thread_local bool in_double = false;

// Where kernels go that name no stream, as far as they may name one; 0: the default stream.
uint64_t current_stream = 0;

PyObject* call_doubles(KernelObject& k, PyObject* const* args, size_t flags, PyObject* names) {
    const Ref call = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "_call_doubles"));
    return call ? PyObject_Vectorcall(call.get(), args,
                                      static_cast<size_t>(PyVectorcall_NARGS(flags)), names)
                : nullptr;
}

PyObject* run_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    KernelObject& k = *as_kernel(self);
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    const KernelCall call;
    if (k.generation != session().generation || k.generation == 0) {
        if (session().generation == 0 && is_python_backend())
            return call_python(k, args, flags, names);
        if (!begin_generation(k)) return nullptr;
    }
    if (doubled && !in_double) return call_doubles(k, args, flags, names);
    ++k.launches;
    const Active active(k);
    std::vector<PyObject*> bound;
    uint64_t stream = k.derivative || k.is_graph ? 0 : current_stream;
    if (names || count != static_cast<Py_ssize_t>(k.parameters->size())) {
        if (!bind_arguments(k, args, count, names, bound, stream)) return nullptr;
        args = bound.data();
    }
    // Python code that runs while this thread traces, say a finaliser or a signal handler, may
    // launch what is compiled already.
    std::optional<frontend::NotTracing> aside;
    if (frontend::tracing && frontend::current()) aside.emplace();
    const bool nested = frontend::tracing && frontend::NotTracing::active();
    if (!materialise_if_due(k.specialisations->empty() && !nested)) return nullptr;
    auto& specialisations = *k.specialisations;
    if (!specialisations.empty()) {
        Match matched;
        PyObject* r = try_specialisation(k, *specialisations[0], args, stream, matched);
        if (matched != Match::no) return r;
    }
    return call_cold(k, args, stream, nested);
}

// Who is told of calls of kernels in their place: quadrants.ad, while it records. Derivatives are
// launched as they are.
PyObject* recorder = nullptr;
thread_local bool telling = false;  // this thread runs the recorder: what that calls is launched

__attribute__((noinline)) PyObject* call_recorder(PyObject* self, PyObject* const* args,
                                                  size_t flags, PyObject* names) {
    const Ref callback = Ref::borrow(recorder);
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    const Ref given = Ref::steal_or_null(PyTuple_New(count));
    const Ref keywords = given ? Ref::steal_or_null(PyDict_New()) : Ref();
    if (!keywords) return nullptr;
    for (Py_ssize_t k = 0; k < count; ++k) PyTuple_SET_ITEM(given.get(), k, Py_NewRef(args[k]));
    for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); ++k)
        if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, k), args[count + k]) < 0)
            return nullptr;
    const bool before = std::exchange(telling, true);
    PyObject* result =
        PyObject_CallFunctionObjArgs(callback.get(), self, given.get(), keywords.get(), nullptr);
    telling = before;
    return result;
}

PyObject* last_drawn(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(drawn); }

PyObject* draw_again(PyObject*, PyObject* number) {
    const uint64_t n = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    draws_again = n;
    Py_RETURN_NONE;
}

PyObject* set_call_recorder(PyObject*, PyObject* callback) {
    Py_XSETREF(recorder, callback == Py_None ? nullptr : Py_NewRef(callback));
    Py_RETURN_NONE;
}

PyObject* kernel_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (recorder && !telling && !as_kernel(self)->derivative) [[unlikely]]
        return call_recorder(self, args, flags, names);
    PyObject* result = run_call(self, args, flags, names);
    if (cpython::errors_kept && cpython::raise_kept_error()) [[unlikely]]
        Py_CLEAR(result);
    return result;
}

// prepare_kernel(kernel, args): makes the specialisation for these arguments if there is none; does
// not launch. Gives the number of specialisations that were made.
PyObject* prepare_kernel(PyObject*, PyObject* arguments) {
    PyObject *object, *tuple;
    if (!PyArg_ParseTuple(arguments, "O!O!", &Kernel_Type, &object, &PyTuple_Type, &tuple))
        return nullptr;
    KernelObject& k = *as_kernel(object);
    const KernelCall call;
    if ((k.generation != session().generation || k.generation == 0) && !begin_generation(k))
        return nullptr;
    const Active active(k);
    std::vector<PyObject*> bound;
    PyObject* const* given = reinterpret_cast<PyTupleObject*>(tuple)->ob_item;
    uint64_t stream = 0;
    if (!bind_arguments(k, given, PyTuple_GET_SIZE(tuple), nullptr, bound, stream)) return nullptr;
    if (!materialise_if_due(true)) return nullptr;
    auto& all = *k.specialisations;
    for (size_t n = 0; n < all.size(); ++n) {
        std::vector<uint8_t> block(all[n]->args_bytes + 64);
        Kept kept;
        const Match matched =
            match_and_pack(*all[n], *k.parameters, bound.data(), block.data(), kept);
        if (matched == Match::error) return nullptr;
        if (matched == Match::no || has_destroyed_field(*all[n])) continue;
        std::swap(all[0], all[n]);
        return PyLong_FromLong(0);
    }
    std::unique_ptr<Specialisation> built = build_specialisation(k, bound.data(), bound.size());
    if (!built) return nullptr;
    all.insert(all.begin(), std::move(built));
    return PyLong_FromLong(1);
}

PyObject* set_kernel_doubles(PyObject*, PyObject* on) {
    doubled = PyObject_IsTrue(on) == 1;
    Py_RETURN_NONE;
}

// launch_undoubled(kernel, args, kwargs): the launch behind the test doubles.
PyObject* launch_undoubled(PyObject*, PyObject* arguments) {
    PyObject *object, *tuple, *keywords;
    if (!PyArg_ParseTuple(arguments, "OO!O!", &object, &PyTuple_Type, &tuple, &PyDict_Type,
                          &keywords))
        return nullptr;
    const bool before = std::exchange(in_double, true);
    PyObject* r = PyObject_Call(object, tuple, keywords);
    in_double = before;
    return r;
}

// set_current_stream(handle): devices without streams have none to set.
PyObject* set_current_stream(PyObject*, PyObject* number) {
    const uint64_t handle = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    current_stream = session().device->queues ? handle : 0;
    Py_RETURN_NONE;
}

PyObject* forget_kernel(PyObject*, PyObject* kernel) {
    if (!PyObject_TypeCheck(kernel, &Kernel_Type))
        return PyErr_Format(PyExc_TypeError, "forget_kernel takes a kernel");
    KernelObject& k = *as_kernel(kernel);
    if (!k.active) drop(*k.specialisations);
    Py_RETURN_NONE;
}

PyObject* offloaded_tasks(PyObject*, PyObject*) { return PyLong_FromSize_t(tasks_of_last_call); }

PyMethodDef kernel_functions[] = {
    {"prog_get_num_offloaded_tasks_on_last_call", entry<offloaded_tasks>, METH_NOARGS,
     "How many tasks the last launched kernel has, as the launching chapter counts: with a serial "
     "task for bounds that are computed, which here need none."},
    {"prepare_kernel", entry<prepare_kernel>, METH_VARARGS,
     "Makes a kernel's specialisation without launching it."},
    {"forget_kernel", entry<forget_kernel>, METH_O, "Drops a kernel's specialisations."},
    {"last_drawn", entry<last_drawn>, METH_NOARGS,
     "The number of the sequence that this thread's last launch drew random numbers from; 0: "
     "none."},
    {"draw_again", entry<draw_again>, METH_O,
     "From now on launches of this thread draw from the sequence with this number; 0: each from "
     "the next one."},
    {"set_call_recorder", entry<set_call_recorder>, METH_O,
     "Hands calls of kernels to callback(kernel, args, kwargs) in place of launching them; None: "
     "no "
     "more."},
    {"set_kernel_doubles", entry<set_kernel_doubles>, METH_O,
     "Whether calls of kernels go through methods of their class."},
    {"launch_undoubled", entry<launch_undoubled>, METH_VARARGS,
     "Launches a kernel, past the methods of its class."},
    {"set_current_stream", entry<set_current_stream>, METH_O,
     "The stream of kernels that name none; 0: the default one."},
    {nullptr, nullptr, 0, nullptr},
};

// --- the types
// ------------------------------------------------------------------------------------
PyObject* kernel_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* definition;
    if (!PyArg_ParseTuple(args, "O", &definition)) return nullptr;
    const Ref derivative =
        Ref::steal_or_null(PyObject_GetAttr(definition, cpython::names().derivative_));
    const long mode = derivative ? PyLong_AsLong(derivative.get()) : 0;
    if (PyErr_Occurred()) return nullptr;
    const Ref graph = Ref::steal_or_null(PyObject_GetAttr(definition, cpython::names().graph_));
    if (!graph) cpython::forget_error();
    auto signature = std::make_unique<std::string>();
    auto parameters = std::make_unique<std::vector<Parameter>>();
    auto specialisations = std::make_unique<std::vector<std::unique_ptr<Specialisation>>>();
    auto retired = std::make_unique<std::vector<Retired>>();
    auto* k = as_kernel(type->tp_alloc(type, 0));  // the collector sees it from here on
    if (!k) return nullptr;
    k->derivative = static_cast<uint8_t>(mode);
    k->is_graph = graph && graph.get() == Py_True && !mode;
    k->vectorcall = entry<kernel_call>;
    k->definition = Py_NewRef(definition);
    k->signature = signature.release();
    k->parameters = parameters.release();
    k->specialisations = specialisations.release();
    k->retired = retired.release();
    return reinterpret_cast<PyObject*>(k);
}

int visit_results(const std::vector<ResultShape>& results, visitproc visit, void* arg) {
    for (const ResultShape& r : results) {
        Py_VISIT(r.struct_type.get());
        if (const int stop = visit_results(r.members, visit, arg)) return stop;
    }
    return 0;
}

int visit_specialisation(const Specialisation& s, visitproc visit, void* arg) {
    for (const IdentityCheck& i : s.identities) Py_VISIT(i.strong.get());
    for (const ClassCheck& c : s.classes) Py_VISIT(c.type.get());
    for (const PackStep& p : s.steps)
        for (const Ref& type : p.classes) Py_VISIT(type.get());
    for (const Ref& f : s.fields) Py_VISIT(f.get());
    for (const Ref& f : s.lacking) Py_VISIT(f.get());
    if (s.graph)
        for (const Ref& label : s.graph->labels) Py_VISIT(label.get());
    return visit_results(s.results, visit, arg);
}

// What specialisations hold leads back to the kernel through the globals of the program: classes,
// funcs, objects.
int kernel_traverse(PyObject* self, visitproc visit, void* arg) {
    const KernelObject& k = *as_kernel(self);
    Py_VISIT(k.dict);
    Py_VISIT(k.definition);
    Py_VISIT(k.reverse);
    for (const Parameter& p : *k.parameters) Py_VISIT(p.annotation.get());
    for (const auto& s : *k.specialisations)
        if (const int stop = visit_specialisation(*s, visit, arg)) return stop;
    return 0;
}

int kernel_clear(PyObject* self) {
    Py_CLEAR(as_kernel(self)->dict);
    Py_CLEAR(as_kernel(self)->definition);
    Py_CLEAR(as_kernel(self)->reverse);
    drop(*as_kernel(self)->specialisations);
    drop(*as_kernel(self)->parameters);
    drop(*as_kernel(self)->retired);
    return 0;
}

void kernel_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    if (as_kernel(self)->weakrefs) PyObject_ClearWeakRefs(self);
    kernel_clear(self);
    delete as_kernel(self)->specialisations;
    delete as_kernel(self)->parameters;
    delete as_kernel(self)->retired;
    delete as_kernel(self)->signature;
    Py_TYPE(self)->tp_free(self);
}

// Own attributes first, then those of the definition (fn, grad, __name__, ...).
PyObject* kernel_getattro(PyObject* self, PyObject* name) {
    KernelObject& k = *as_kernel(self);
    if (name == cpython::names().grad_ && !k.dict && !k.derivative) {  // asked for at each launch
        if (!k.reverse) k.reverse = PyObject_GetAttr(k.definition, name);
        return Py_XNewRef(k.reverse);
    }
    PyObject* found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    cpython::forget_error();
    return PyObject_GetAttr(k.definition, name);
}

PyObject* kernel_repr(PyObject* self) { return PyObject_Repr(as_kernel(self)->definition); }

PyObject* kernel_name(PyObject* self, void* name) {
    return PyObject_GetAttrString(as_kernel(self)->definition, static_cast<const char*>(name));
}

int kernel_set_definition(PyObject* self, PyObject* value, void* name) {
    return PyObject_SetAttrString(as_kernel(self)->definition, static_cast<const char*>(name),
                                  value);
}

// What functools.wraps and the like gave the kernel, else the definition's.
PyObject* kernel_own_name(PyObject* self, void* name) {
    PyObject* dict = as_kernel(self)->dict;
    PyObject* own = dict ? PyDict_GetItemString(dict, static_cast<const char*>(name)) : nullptr;
    return own ? Py_NewRef(own) : kernel_name(self, name);
}

int kernel_set_own_name(PyObject* self, PyObject* value, void* name) {
    const Ref dict = Ref::steal_or_null(PyObject_GenericGetDict(self, nullptr));
    if (!dict) return -1;
    const auto* key = static_cast<const char*>(name);
    return value ? PyDict_SetItemString(dict.get(), key, value)
                 : PyDict_DelItemString(dict.get(), key);
}

PyObject* launch_count(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(as_kernel(self)->launches);
}

PyObject* refused_launch(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(as_kernel(self)->refused);
}

// As for functions: a copy is the kernel itself, and a pickle names it.
PyObject* kernel_reduce(PyObject* self, PyObject*) {
    return PyObject_GetAttrString(as_kernel(self)->definition, "__qualname__");
}
PyMethodDef kernel_methods[] = {
    {"__reduce__", entry<kernel_reduce>, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

char kDoc[] = "__doc__", kModule[] = "__module__", kPure[] = "is_pure";
PyGetSetDef kernel_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"__doc__", entry<kernel_own_name>, entry<kernel_set_own_name>, nullptr, kDoc},
    {"__module__", entry<kernel_own_name>, entry<kernel_set_own_name>, nullptr, kModule},
    {"is_pure", entry<kernel_name>, entry<kernel_set_definition>, nullptr, kPure},
    {"_launches", entry<launch_count>, nullptr, "How many calls there were.", nullptr},
    {"_refused", entry<refused_launch>, nullptr,
     "The number of the last call that could not be compiled.", nullptr},
    {"_specialisations", entry<describe_specialisations>, nullptr, "What each specialisation is.",
     nullptr},
    {"_graph_tables", entry<graph_tables>, nullptr,
     "Loops and checkpoints of the last launched graph.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject Kernel_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.Kernel",
    .tp_basicsize = sizeof(KernelObject),
    .tp_dealloc = entry<kernel_dealloc>,
    .tp_vectorcall_offset = offsetof(KernelObject, vectorcall),
    .tp_repr = entry<kernel_repr>,
    .tp_call = PyVectorcall_Call,
    .tp_getattro = entry<kernel_getattro>,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_traverse = entry<kernel_traverse>,
    .tp_clear = entry<kernel_clear>,
    .tp_weaklistoffset = offsetof(KernelObject, weakrefs),
    .tp_methods = kernel_methods,
    .tp_getset = kernel_getset,
    .tp_descr_get = entry<bind_kernel>,
    .tp_dictoffset = offsetof(KernelObject, dict),
    .tp_new = entry<kernel_new>,
};

}  // namespace

bool add_kernel(PyObject* module) {
    on_reset(forget_code);
    return ready_bound_kernel() && PyModule_AddType(module, &Kernel_Type) == 0 &&
           PyModule_AddFunctions(module, kernel_functions) == 0 &&
           PyModule_AddFunctions(module, graph_functions) == 0 &&
           PyModule_AddFunctions(module, native_graph_functions) == 0;
}

}  // namespace qd::launcher
