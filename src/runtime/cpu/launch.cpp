// Runs the tasks of a kernel.
//
// A range task is cut into units, units into chunks (support/abi.h). The caller runs the first
// chunk itself and looks at the clock: a loop that would be over before a worker wakes is finished
// by the caller alone. The cut of a loop with a reduction depends on its extents only, so that any
// number of threads adds up the same numbers in the same order.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/print.h"
#include "runtime/cpu/tape.h"
#include "runtime/cuda/code.h"
#include "runtime/tape_report.h"
#include "support/clock.h"
#include "support/stack.h"

namespace qd::runtime {
namespace {

using support::now_ns;

constexpr int64_t kRowsEnough = 64;  // with so many rows the innermost dimension stays whole
constexpr int64_t kReductionChunks = 64;
constexpr size_t kStackTemps = 4096;
constexpr int32_t kAll = abi::kAlone | abi::kAloneInPrivate;
constexpr int64_t kStopCheckNs = 5000000;  // how often a long launch asks whether to go on

struct Launch {  // shared by the threads of one launch
    const KernelImage* image;
    LaunchOutcome* outcome;
    std::mutex lock;  // guards *outcome
    int32_t stop = 0;
    LaunchHooks hooks;
    TapeMarks* tapes = nullptr;  // null: nobody asks

    // By any of its threads: nothing may be thrown over compiled code, nor past the other threads.
    void ends_without_memory() noexcept {
        const std::lock_guard guard(lock);
        outcome->no_memory = true;
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    }

    void expect_long(int64_t rest_ns) {
        if (!hooks.long_run || rest_ns <= hooks.long_ns) return;
        hooks.long_run(hooks.data);
        hooks.long_run = nullptr;
    }
};

struct Worker {  // what compiled code sees as Thread, and where a failed check jumps to
    abi::Thread thread;
    Launch* launch;
    void* jump[5];
    std::optional<Tape> tape;

    // A call of an entry on the thread that runs it.
    Worker(const abi::Context& context, Launch& l, int64_t tile, int64_t tiles, int32_t index,
           int32_t alone)
        : thread{&context, tile, tiles, 0, 0, index, alone, nullptr, nullptr, 0}, launch(&l) {
        if (!l.image->uses_tape) return;
        tape.emplace(l.tapes != nullptr);
        thread.tape = tape->at;
        thread.tape_bytes = tape->bytes;
    }
    ~Worker() {
        if (tape && launch->tapes) launch->tapes->note(thread.index, tape->use());
    }
    Worker(const Worker&) = delete;
};

// What a thread adds to in place of the task's private fields.
struct PrivateCopies {
    abi::Context context;
    std::unique_ptr<void*[]> bindings;
    std::vector<std::unique_ptr<uint8_t, decltype(&std::free)>> fields;
};

struct Job {  // one range task
    const abi::Context* context;
    Launch* launch;
    abi::TaskFn entry;
    int64_t units, chunk_units;
    int64_t tile = 1, tiles = 1;      // of the innermost dimension, if there are several
    int32_t alone = 0;                // abi::kAloneXxx
    int64_t first = 0;                // units before it are done
    PrivateCopies* copies = nullptr;  // by thread; null: none. Each is touched by its thread only
};

__attribute__((noinline)) void call_entry(Worker& w, abi::TaskFn entry, int64_t begin, int64_t end,
                                          int64_t chunk) {
    if (__builtin_setjmp(w.jump) == 0) entry(&w.thread, begin, end, chunk);
}

std::vector<const support::FormatEntry*> stack_of(const abi::Thread& t, const KernelImage& image,
                                                  uint32_t format) {
    std::vector<uint64_t> sites;
    for (const abi::OpenCall* c = t.calls; c; c = c->outer) sites.push_back(c->site);
    return runtime::stack_of(image.formats, format, sites);
}

void on_print(abi::Thread* t, uint32_t format, const abi::Cell* cells) {
    Launch& l = *reinterpret_cast<Worker*>(t)->launch;
    if (format >= l.image->formats.size()) return;
    try {
        std::string text = format_text(l.image->formats[format], cells);
        if (!l.image->formats[format].sites.empty())
            add_callers(text, stack_of(*t, *l.image, format));
        std::lock_guard guard(l.lock);
        l.outcome->printed += text;
    } catch (const std::bad_alloc&) {
        l.ends_without_memory();
    }
}

// The first one's text and place, as far as there is memory for them.
void note_failure(Launch& l, const abi::Thread& t, uint32_t format, const abi::Cell* cells) {
    const std::lock_guard guard(l.lock);
    if (l.outcome->failed) return;
    l.outcome->failed = true;
    if (format < l.image->formats.size())
        l.outcome->failure = format_text(l.image->formats[format], cells);
    l.outcome->stack =
        std::make_unique<std::vector<const support::FormatEntry*>>(stack_of(t, *l.image, format));
}

__attribute__((noinline)) void on_fail(abi::Thread* t, uint32_t format, const abi::Cell* cells) {
    auto* w = reinterpret_cast<Worker*>(t);
    try {
        note_failure(*w->launch, *t, format, cells);
    } catch (const std::bad_alloc&) {
    }
    t->calls = nullptr;
    __atomic_store_n(&w->launch->stop, 1, __ATOMIC_RELAXED);
    __builtin_longjmp(w->jump, 1);
}

int32_t stack_left(abi::Thread* t) {
    const auto* image = static_cast<const KernelImage*>(t->context->kernel);
    return support::has_stack_beside(image->stack_bytes, kCallReserve);
}

// What is kept back beside large frames: reports, and signal handlers.
constexpr size_t kFrameReserve = 64 << 10;

bool fits_stack(const KernelImage& image) {
    if (!image.stack_bytes) return true;
    support::see_stack_limit();  // who lowered it is not told by its pages
    return support::has_stack(image.stack_bytes + kFrameReserve);
}

bool fits_workers(const KernelImage& image) {
    return !image.stack_bytes || image.stack_bytes + kFrameReserve < Pool::worker_stack();
}

const abi::Runtime kRuntime = {on_print, on_fail, now_ns, stack_left};

void run_chunk(void* data, int64_t chunk, int thread) {
    const Job& job = *static_cast<const Job*>(data);
    if (__atomic_load_n(&job.launch->stop, __ATOMIC_RELAXED)) return;
    const abi::Context* context = job.copies && thread ? &job.copies[thread].context : job.context;
    const int64_t begin = std::max(chunk * job.chunk_units, job.first);
    const int64_t end = std::min((chunk + 1) * job.chunk_units, job.units);
    try {
        Worker w(*context, *job.launch, job.tile, job.tiles, thread, job.alone);
        call_entry(w, job.entry, begin, end, chunk);
    } catch (const std::bad_alloc&) {  // for a tape
        job.launch->ends_without_memory();
    }
}

int64_t read_bound(const abi::Bound& b, const abi::Context& c) {
    if (b.kind == abi::BoundKind::constant) return b.value;
    return abi::read_bound(b, b.kind == abi::BoundKind::arg ? c.args : c.temps);
}

// Cuts the iteration space of a range task.
void cut(Job& job, const LoadedTask& task, const int64_t* bounds, int threads) {
    int64_t rows = 1;
    for (int d = 0; d + 1 < task.dims; ++d)
        rows *= std::max<int64_t>(0, bounds[2 * d + 1] - bounds[2 * d]);
    const int64_t inner =
        std::max<int64_t>(0, bounds[2 * task.dims - 1] - bounds[2 * task.dims - 2]);
    if (rows == 0 || inner == 0) {
        job.units = 0;
        return;
    }
    if (task.dims == 1) {
        job.units = inner;
    } else {
        job.tiles = rows >= kRowsEnough ? 1 : (kRowsEnough + rows - 1) / rows;
        job.tile = std::max<int64_t>(64, (inner + job.tiles - 1) / job.tiles);
        job.tiles = (inner + job.tile - 1) / job.tile;
        job.units = rows * job.tiles;
    }
    if (task.finish) {  // must not look at the number of threads
        job.chunk_units = (job.units + kReductionChunks - 1) / kReductionChunks;
        if (task.dims == 1)
            job.chunk_units = (std::max<int64_t>(job.chunk_units, 64) + 63) / 64 * 64;
    } else {
        const int64_t chunks = threads == 1 ? 1 : threads * 8;
        job.chunk_units = (job.units + chunks - 1) / chunks;
        // Whole blocks, as long as there is one for each thread.
        const int64_t block = std::max<int64_t>(1, task.block_dim / job.tile);
        if (job.units >= block * threads)
            job.chunk_units = (job.chunk_units + block - 1) / block * block;
    }
}

// A locked addition costs about 5 ns more than a plain one; clearing and adding up a copy about a
// third of a nanosecond a byte, page faults included.
bool worth_copies(const LoadedTask& task, int64_t iterations, int threads) {
    uint64_t bytes = 0;
    for (const abi::PrivateField& f : task.private_fields) bytes += f.bytes;
    constexpr uint64_t kMost = uint64_t(64) << 20;  // of a thread
    return bytes && bytes <= kMost &&
           double(iterations) * task.private_atomics * 16 > double(bytes) * (threads - 1);
}

bool make_copies(const LoadedTask& task, const abi::Context& context, int threads,
                 std::vector<PrivateCopies>& out) {
    uint32_t bindings = 0;
    for (const abi::PrivateField& f : task.private_fields)
        bindings = std::max(bindings, f.binding + 1);
    const auto* kernel = static_cast<const KernelImage*>(context.kernel);
    bindings = std::max(bindings, kernel->header().binding_count);
    out.resize(size_t(threads));
    for (int t = 1; t < threads; ++t) {
        PrivateCopies& c = out[size_t(t)];
        c.context = context;
        c.bindings = std::make_unique_for_overwrite<void*[]>(bindings);
        std::copy_n(context.bindings, bindings, c.bindings.get());
        for (const abi::PrivateField& f : task.private_fields) {
            const size_t margin = edge_margin(f.bytes);
            c.fields.emplace_back(static_cast<uint8_t*>(std::calloc(1, f.bytes + 2 * margin)),
                                  &std::free);
            if (!c.fields.back()) return false;
            c.bindings[f.binding] = c.fields.back().get() + margin;
        }
        c.context.bindings = c.bindings.get();
    }
    return true;
}

template <class T>
void add_up(void* to, const void* from, uint64_t bytes) {
    T* a = static_cast<T*>(to);
    const T* b = static_cast<const T*>(from);
    for (uint64_t k = 0; k < bytes / sizeof(T); ++k) {
        if (b[k] != T(0)) a[k] += b[k];  // what nobody touched stays, -0 included
    }
}

void add_copies(const LoadedTask& task, const abi::Context& context,
                std::span<const PrivateCopies> copies) {
    for (const PrivateCopies& c : copies) {
        for (size_t k = 0; k < c.fields.size(); ++k) {
            const abi::PrivateField& f = task.private_fields[k];
            void* to = context.bindings[f.binding];
            const void* from = c.bindings[f.binding];
            switch (f.addend) {
                case abi::Addend::f32:
                    add_up<float>(to, from, f.bytes);
                    break;
                case abi::Addend::f64:
                    add_up<double>(to, from, f.bytes);
                    break;
                case abi::Addend::i32:
                    add_up<uint32_t>(to, from, f.bytes);
                    break;
                case abi::Addend::i64:
                    add_up<uint64_t>(to, from, f.bytes);
                    break;
            }
        }
    }
}

// Chunks from `next` on, by all threads.
void run_together(const LoadedTask& task, const abi::Context& context, Job& job, int64_t next,
                  int64_t chunks, int threads, Pool& pool) {
    std::vector<PrivateCopies> copies;
    const int64_t inner = task.dims == 1 ? 1 : job.tile;
    if (worth_copies(task, job.units * inner, threads) &&
        make_copies(task, context, threads, copies)) {
        job.copies = copies.data();
        job.alone = abi::kAloneInPrivate;
    } else {
        job.alone = 0;
    }
    pool.run(run_chunk, &job, next, chunks, threads);
    if (job.copies) add_copies(task, context, std::span<const PrivateCopies>(copies).subspan(1));
}

void run_range(const LoadedTask& task, abi::Context& context, Launch& launch, Pool& pool) {
    int64_t bounds[2 * abi::kMaxDims];
    for (int b = 0; b < 2 * task.dims; ++b) bounds[b] = read_bound(task.bounds[b], context);
    context.bounds = bounds;
    const int32_t alone = context.shared ? abi::kAloneInPrivate : kAll;  // on this thread alone
    Job job{&context, &launch, task.entry, 0, 1, 1, 1, alone};
    const int most = fits_workers(*launch.image) ? pool.threads() : 1;
    const int threads = task.max_threads > 0 ? std::min(task.max_threads, most) : most;
    cut(job, task, bounds, threads);
    const int64_t chunks = job.units ? (job.units + job.chunk_units - 1) / job.chunk_units : 0;

    std::unique_ptr<uint8_t[]> partials;
    if (task.finish) {
        partials =
            std::make_unique_for_overwrite<uint8_t[]>(size_t(chunks) * task.partial_bytes + 64);
        context.partials = reinterpret_cast<uint8_t*>(
            (reinterpret_cast<uintptr_t>(partials.get()) + 63) & ~uintptr_t(63));
    }
    if (chunks == 1 || threads == 1) {
        for (int64_t c = 0; c < chunks; ++c) run_chunk(&job, c, 0);
    } else if (task.polls && chunks > 1) {  // the first chunk may wait for the others
        run_together(task, context, job, 0, chunks, threads, pool);
    } else if (chunks > 1) {
        const int64_t start = now_ns();
        const bool was_brief = __atomic_load_n(&task.was_brief, __ATOMIC_RELAXED);
        // What is clearly long is not kept from the others for a whole chunk.
        if (const int64_t part = job.chunk_units / 8; part >= 4 && !task.finish && !was_brief) {
            Job probe = job;
            probe.units = part;
            run_chunk(&probe, 0, 0);
            job.first = part;
            if (const int64_t took = now_ns() - start; took > pool.wake_ns) {
                launch.expect_long(took * (job.units / part));
                run_together(task, context, job, 0, chunks, threads, pool);
                return;
            }
        }
        run_chunk(&job, 0, 0);
        const int64_t rest = (now_ns() - start) * (chunks - 1);
        const bool is_brief = rest < pool.wake_ns;
        if (is_brief != was_brief) __atomic_store_n(&task.was_brief, is_brief, __ATOMIC_RELAXED);
        if (is_brief && task.finish) {  // whose chunks have results of their own
            for (int64_t c = 1; c < chunks; ++c) run_chunk(&job, c, 0);
        } else if (is_brief) {
            job.first = job.chunk_units;
            job.chunk_units = job.units;
            run_chunk(&job, 0, 0);
        } else {
            launch.expect_long(rest);
            run_together(task, context, job, 1, chunks, threads, pool);
        }
    }
    if (task.finish && !__atomic_load_n(&launch.stop, __ATOMIC_RELAXED)) {
        Worker w(context, launch, 1, 1, 0, alone);
        call_entry(w, task.finish, 0, chunks, 0);
    }
}

std::string stack_failure(const KernelImage& image) {
    const auto mb = [](uint64_t bytes) {
        char text[32];
        std::snprintf(text, sizeof text, "%.3g MB", double(bytes) * 1e-6);
        return std::string(text);
    };
    return "the kernel's local vectors and matrices need " + mb(image.stack_bytes) +
           " of stack, and the calling thread has " + mb(support::stack_left()) +
           " left. Keep large ones in fields or ndarrays, or call from a thread with a larger "
           "stack (threading.stack_size, ulimit -s)";
}

// The i32 temporary that decides on a do-while loop or a checkpoint.
bool is_set(int32_t flag, const abi::Context& context) {
    int32_t value;
    std::memcpy(&value, context.temps + flag, sizeof value);
    return value != 0;
}

}  // namespace

bool launch(const KernelImage& image, abi::Context& context, Pool& pool, const LaunchHooks& hooks,
            LaunchOutcome& outcome) {
    if (image.gpu) return cuda::launch(image, context, hooks, outcome);
    if (!fits_stack(image)) {
        outcome.failed = true;
        outcome.failure = stack_failure(image);
        return true;
    }
    const StandardFloats floats;
    alignas(64) uint8_t small[kStackTemps];
    std::unique_ptr<uint8_t[]> large;
    if (image.temps_bytes > kStackTemps)
        large = std::make_unique_for_overwrite<uint8_t[]>(image.temps_bytes);
    Launch state{&image, &outcome, {}, 0, hooks};
    TapeMarks tapes;
    if (hooks.tapes_of) state.tapes = &tapes;
    const bool many = image.tasks.size() > 1 || (!image.tasks.empty() && image.tasks[0].again >= 0);
    int64_t checked = hooks.should_stop && many ? now_ns() : 0;
    const int64_t start = checked;
    context.runtime = &kRuntime;
    context.temps = large ? large.get() : small;
    context.partials = nullptr;
    context.bounds = nullptr;
    context.kernel = &image;
    context.stop = &state.stop;
    context.task = 0;
    while (context.task < image.tasks.size()) {
        const LoadedTask& task = image.tasks[context.task];
        if (task.gate >= 0 && !is_set(task.gate, context)) {
            context.task = task.behind;
            continue;
        }
        const int64_t began = hooks.times ? now_ns() : 0;
        if (task.kind == abi::TaskKind::serial) {
            Worker w(context, state, 1, 1, 0, kAll);
            call_entry(w, task.entry, 0, 1, 0);
        } else {
            run_range(task, context, state, pool);
        }
        if (hooks.times) hooks.times->push_back({context.task, began, now_ns() - began});
        if (state.tapes) tell_tape(hooks.tapes_of, image, context.task, tapes.take());
        if (state.stop) break;
        if (task.again >= 0 && is_set(task.again, context)) {
            context.task = task.from;
            // Every turn draws other random numbers.
            context.launch_key = abi::key_of_next_turn(context.launch_key);
        } else {
            ++context.task;
        }
        if (!checked || context.task == image.tasks.size()) continue;
        const int64_t now = now_ns();
        if (now - checked < kStopCheckNs) continue;
        state.expect_long(kStopCheckNs);
        checked = now;
        if (now - start >= hooks.whole_ns && hooks.should_stop(hooks.data)) {
            outcome.interrupted = true;
            break;
        }
    }
    return state.stop || outcome.interrupted || !outcome.printed.empty();
}

}  // namespace qd::runtime
