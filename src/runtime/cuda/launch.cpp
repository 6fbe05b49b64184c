// Runs the tasks of a kernel on an NVIDIA GPU.
//
// A task is a kernel of the driver's; its parameter is an abi::DeviceLaunch with the bindings and
// the whole argument block. Launches on one stream are in order, so temporaries of one may lie
// where those of the one before did; each stream has its own. From the second launch of a kernel on
// they are a graph (replay.h), which costs less; the host goes from task to task if it has to look
// at something in between: checkpoints, times, or what lies in too large parameters.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cpu/print.h"
#include "runtime/cuda/code.h"
#include "runtime/cuda/pool.h"
#include "runtime/cuda/replay.h"
#include "runtime/cuda/streams.h"
#include "runtime/tape_limit.h"
#include "runtime/tape_report.h"
#include "support/clock.h"
#include "support/error.h"

namespace qd::runtime::cuda {
namespace {

using support::now_ns;

constexpr int64_t kMostFoldingBlocks = 512;  // whose partial results one block folds
constexpr int64_t kMostBlocks = INT32_MAX;
// A nap takes twice as long as it is told.
constexpr int64_t kLongNs = 50000, kSpinNs = 1000000, kNapNs = 50000, kStopCheckNs = 5000000;
constexpr int64_t kSeeNs = 20000;
constexpr int kLooks = 64;
constexpr int64_t kEndOfLoopsNs = 2000000000;  // for which a turn of a loop is waited for
constexpr size_t kMostReplayed = 4096;         // bytes of parameters: more cost more than a launch

// Device memory that grows.
struct Room {
    Address at = 0;
    size_t bytes = 0;

    Address of(size_t wanted) {
        if (wanted <= bytes) return at;
        const Driver& d = use();
        if (at) give_back_memory(d, at);
        at = 0, bytes = 0;
        at = must_take_memory(d, wanted + wanted / 2, "allocating temporaries");
        bytes = wanted + wanted / 2;
        return at;
    }
};

// Memory of the host that kernels write to: results are there once the launch is over.
struct HostRoom {
    void* at = nullptr;
    size_t bytes = 0;

    void* of(size_t wanted) {
        constexpr unsigned kPortableMapped = 3;
        if (wanted <= bytes) return at;
        const Driver& d = use();
        if (at) check(d.cuMemFreeHost(at), "freeing memory for results");
        at = nullptr, bytes = 0;
        check(d.cuMemHostAlloc(&at, 2 * wanted, kPortableMapped), "allocating memory for results");
        bytes = 2 * wanted;
        return at;
    }
};

// What the device takes between two moments of the stream.
struct Stopwatch {
    Handle begin = nullptr, end = nullptr;  // events

    void start(Handle stream) {
        const Driver& d = use();
        if (!begin) check(d.cuEventCreate(&begin, 0), "making an event");
        if (!end) check(d.cuEventCreate(&end, 0), "making an event");
        check(d.cuEventRecord(begin, stream), "timing a kernel");
    }
    void stop(Handle stream) { check(use().cuEventRecord(end, stream), "timing a kernel"); }
    int64_t ns() const {  // once all that was asked is over
        float ms = 0;
        check(use().cuEventElapsedTime(&ms, begin, end), "timing a kernel");
        return int64_t(double(ms) * 1e6);
    }
};

struct Rooms {  // of a stream
    Room temps, partials, record, tape;
    Stopwatch stopwatch;
    HostRoom results, done;
    uint64_t launches = 0;  // that asked for a word
    Address report = 0, prints = 0;

    void give_back(const Driver& d) const {
        for (const Address at : {temps.at, partials.at, record.at, tape.at, report, prints})
            if (at) give_back_memory(d, at);
        for (void* at : {results.at, done.at})
            if (at) (void)d.cuMemFreeHost(at);
        for (const Handle event : {stopwatch.begin, stopwatch.end})
            if (event) (void)d.cuEventDestroy_v2(event);
    }
};
struct AllRooms {
    std::mutex lock;                      // of who puts a launch onto a stream
    std::atomic<std::thread::id> holder;  // that thread
    Rooms of_default;
    std::map<Handle, Rooms> of_streams;

    Rooms& of(Handle stream) { return stream ? of_streams[stream] : of_default; }
};
AllRooms& rooms() {
    static auto* const all = new AllRooms;  // never destroyed
    return *all;
}

Address zeroed(Address& at, size_t bytes) {
    if (at) return at;
    const Driver& d = use();
    at = must_take_memory(d, bytes, "allocating a buffer");
    check(d.cuMemsetD8Async(at, 0, bytes, nullptr), "clearing a buffer");
    return at;
}

bool has_loops(const KernelImage& image) {
    return std::ranges::any_of(image.tasks, [](const LoadedTask& t) { return t.again >= 0; });
}

struct Launch {
    const KernelImage& image;
    abi::Context& context;
    const LaunchHooks& hooks;
    LaunchOutcome& outcome;
    Rooms& r;
    const Handle stream;
    const bool amid = false;  // another of this thread
    const Driver& d = use();
    std::vector<uint8_t> record{};
    const bool checks = !image.formats.empty();
    const bool late = checks && hooks.may_be_late && image.uses_tape && !has_loops(image);
    const bool told_now = checks && !late;  // what they find
    Address first_partials = 0;  // those of each branch of a region lie behind each other
    size_t branch_partials = 0;
    Replay* replay = nullptr;  // null: each step is launched by itself
    bool loops = false;
    bool always = true;                           // the task at hand does something at every launch
    const std::atomic<uint64_t>* done = nullptr;  // becomes `number` at the end of the last task
    uint64_t number = 0;

    abi::DeviceLaunch& head() { return *reinterpret_cast<abi::DeviceLaunch*>(record.data()); }

    void prepare() {
        record.resize(sizeof(abi::DeviceLaunch));
        abi::DeviceLaunch& h = head();
        std::memset(&h, 0, sizeof h);
        uint32_t partials = 0, branches = 1;
        for (const LoadedTask& t : image.tasks) {
            partials = std::max(partials, t.partial_bytes);
            branches = std::max(branches, t.branch);
        }
        branch_partials = size_t(kMostFoldingBlocks) * partials;
        if (partials) first_partials = r.partials.of(branch_partials * branches);
        if (image.uses_random) h.launch_key = context.launch_key;
        if (image.temps_bytes) h.temps = r.temps.of(image.temps_bytes);
        if (image.result_bytes)
            h.results = reinterpret_cast<Address>(r.results.of(image.result_bytes));
        if (image.result_bytes && !told_now && !image.uses_print && !image.tasks.empty() &&
            image.tasks.back().kind == abi::TaskKind::serial && image.tasks.back().again < 0) {
            if (!r.done.at) new (r.done.of(sizeof *done)) std::atomic<uint64_t>(0);
            done = static_cast<std::atomic<uint64_t>*>(r.done.at);
            number = ++r.launches;
        }
        if (image.stack_bytes) h.stack_bytes = stack_limit();
        if (checks) h.report = late ? late_report() : zeroed(r.report, sizeof(abi::DeviceReport));
        if (image.uses_print) h.prints = zeroed(r.prints, sizeof(abi::DevicePrints));
    }

    Address late_report() {
        std::unique_ptr<LateReport>& kept = image.gpu->late;
        if (!kept) kept = std::make_unique<LateReport>(image.formats);
        return kept->at();
    }

    // What is not the task's own stays as it is: nodes whose records are the same are not told.
    void hand_over(const LoadedTask& task) {
        record.resize(sizeof(abi::DeviceLaunch) + task.record_bytes);
        std::ranges::fill(head().bounds, 0);
        if (first_partials)
            head().partials = first_partials + branch_partials * (std::max(task.branch, 1u) - 1);
        uint8_t* to = record.data() + sizeof(abi::DeviceLaunch);
        const auto* bindings = reinterpret_cast<const uint8_t*>(context.bindings);
        std::memset(to, 0, task.record_bytes);  // gaps too, so that equal records have equal bytes
        for (const abi::Piece& p : task.pieces)
            std::memcpy(to + p.to, (p.of_bindings ? bindings : context.args) + p.from, p.bytes);
    }

    int32_t temp(int32_t offset) {
        int32_t value = 0;
        check(d.cuMemcpyDtoH_v2(&value, head().temps + uint64_t(offset), sizeof value),
              "reading a condition");
        return value;
    }

    int64_t bound(const abi::Bound& b) {  // a constant or an argument
        return b.kind == abi::BoundKind::constant ? b.value : abi::read_bound(b, context.args);
    }

    void start(Handle kernel, int64_t blocks, int threads, uint32_t shared_bytes = 0) {
        if (replay)
            return replay->step({kernel, unsigned(blocks), unsigned(threads), shared_bytes, always},
                                record);
        if (!blocks) return;
        void* parameter = record.data();
        Address moved = 0;
        if (record.size() > abi::kMostDeviceLaunch) {
            moved = r.record.of(record.size());
            check(d.cuMemcpyHtoD_v2(moved, record.data(), record.size()), "copying arguments");
            parameter = &moved;
        }
        check(d.cuLaunchKernel(kernel, unsigned(blocks), 1, 1, unsigned(threads), 1, 1,
                               shared_bytes, stream, &parameter, nullptr),
              "launching a kernel");
    }

    // Bounds that an earlier task computed: who waited for them would hold up the host.
    static bool is_known_to_device_alone(const LoadedTask& task) {
        return std::ranges::any_of(
            task.bounds, [](const abi::Bound& b) { return b.kind == abi::BoundKind::temp; });
    }

    // As many blocks as find room on the device, twice.
    void run_strided(const LoadedTask& task, const Code::Entry& entry) {
        constexpr int kThreads = 2048, kBlocks = 32;  // of a multiprocessor, at most
        const int held = std::clamp(kThreads / task.block_dim, 1, kBlocks);
        const int64_t blocks = int64_t(2) * d.multiprocessors * held;
        for (size_t k = 0; k < task.bounds.size(); ++k)
            if (task.bounds[k].kind == abi::BoundKind::arg)
                head().bounds[k] = bound(task.bounds[k]);
        start_blocks(task, entry, blocks);
    }

    // More than this lies farther apart: 2^24 short loops are a fifth slower with 2 GiB.
    void make_tape(const LoadedTask& task, int64_t threads) {
        constexpr int64_t kWanted = int64_t(1) << 30;
        threads = (threads + 31) & ~int64_t(31);
        const int64_t limit = tape_limit.load(std::memory_order_relaxed);
        int64_t bytes = kWanted;
        if (limit && (__builtin_add_overflow(limit, abi::kTapeHeader, &bytes) ||
                      __builtin_mul_overflow(threads, bytes, &bytes)))
            bytes = INT64_MAX;
        if (uint64_t(bytes) > r.tape.bytes) {
            size_t free = 0, total = 0;
            check(d.cuMemGetInfo_v2(&free, &total), "asking for free memory");
            bytes = std::min(bytes, int64_t((free + r.tape.bytes) / 3));
        }
        constexpr uint64_t kHeader = abi::kTapeHeader;
        head().tape = r.tape.of(size_t(bytes)) + 32 * kHeader;
        const uint64_t all = uint64_t(r.tape.bytes) / uint64_t(threads);
        uint64_t each = all - std::min(all, kHeader);
        if (limit) each = std::min(each, uint64_t(limit));
        head().tape_bytes = each & ~uint64_t(15);
        if (hooks.tapes_of)
            tell_tape(hooks.tapes_of, image, size_t(&task - image.tasks.data()),
                      {"reserved", threads, int64_t(head().tape_bytes)});
    }

    void start_blocks(const LoadedTask& task, const Code::Entry& entry, int64_t blocks) {
        if (task.partial_bytes) blocks = std::min(blocks, kMostFoldingBlocks);
        if (task.max_threads && (task.partial_bytes || !task.iterations))
            blocks = std::min(blocks, int64_t{task.max_threads});
        if (image.uses_tape && blocks) make_tape(task, blocks * task.block_dim);
        start(entry.task, blocks, task.block_dim, task.shared_bytes);
        if (!task.partial_bytes) return;
        head().bounds[0] = blocks;
        start(entry.finish, blocks ? 1 : 0, task.block_dim);
    }

    void run(const LoadedTask& task, const Code::Entry& entry) {
        hand_over(task);
        if (done && &task == &image.tasks.back()) {  // the others need not be told anew each time
            head().done = reinterpret_cast<Address>(done);
            head().launch = number;
        }
        always = std::ranges::none_of(
            task.bounds, [](const abi::Bound& b) { return b.kind == abi::BoundKind::arg; });
        if (task.kind == abi::TaskKind::serial) {
            if (image.uses_tape) make_tape(task, 1);
            return start(entry.task, 1, 1, task.shared_bytes);
        }
        if (is_known_to_device_alone(task)) return run_strided(task, entry);
        int64_t count = 1;
        for (int k = 0; k < task.dims; ++k) {
            const int64_t begin = bound(task.bounds[2 * size_t(k)]),
                          end = bound(task.bounds[2 * size_t(k) + 1]);
            head().bounds[2 * k] = begin;
            head().bounds[2 * k + 1] = end;
            if (end <= begin) return start_blocks(task, entry, 0);
            if (__builtin_mul_overflow(count, end - begin, &count)) count = INT64_MAX;
        }
        const int64_t each = int64_t(task.block_dim) * std::max(task.iterations, 1u);
        int64_t blocks = count / each + (count % each != 0);
        if (!task.iterations && !task.max_threads)
            blocks = std::min(blocks, int64_t{d.multiprocessors} * std::max(entry.held, 1));
        if (blocks > kMostBlocks && !task.partial_bytes)
            throw support::Error("a parallel loop has " + std::to_string(count) +
                                 " iterations; this device takes fewer");
        start_blocks(task, entry, blocks);
    }

    // Whether the results come soon, without asking the driver: that costs more.
    bool see_results() {
        if (!done) return false;
        const int64_t began = now_ns();
        do {
            for (int k = 0; k < kLooks; ++k)
                if (done->load(std::memory_order_acquire) == number) return true;
        } while (now_ns() - began < kSeeNs);
        return false;
    }

    // False if the user interrupts.
    bool wait() {
        const int64_t began = now_ns();
        int64_t asked = began, until = 0;
        bool stopping = false;
        for (;;) {
            const Result state = d.cuStreamQuery(stream);
            if (state != kNotReady) {
                check(state, "running a kernel");
                return !stopping;
            }
            const int64_t now = now_ns();
            if (now - began < kLongNs) continue;
            if (hooks.long_run) hooks.long_run(hooks.data);
            if (now - began < kSpinNs) continue;
            const timespec nap{0, kNapNs};
            nanosleep(&nap, nullptr);
            if (now - asked < kStopCheckNs) continue;
            asked = now;
            const bool patient = !stopping || now < until;
            if (patient && (stopping || !hooks.should_stop || !hooks.should_stop(hooks.data)))
                continue;
            if (stopping || !loops) return abandon(), false;
            stop_loops();
            stopping = true;
            until = now + kEndOfLoopsNs;
        }
    }

    void tell() {
        const std::optional<Failure> found = read_report(r.report);
        if (!found) return;
        outcome.failed = true;
        if (found->format >= image.formats.size()) return;
        outcome.failure = format_text(image.formats[found->format], found->cells.data());
        outcome.stack = std::make_unique<std::vector<const support::FormatEntry*>>(
            stack_of(image.formats, found->format, found->sites));
    }

    void read_prints() {
        uint32_t head[2];  // used, lost
        check(d.cuMemcpyDtoH_v2(head, r.prints, sizeof head), "reading prints");
        if (!head[0]) return;
        constexpr size_t kRoom = sizeof(abi::DevicePrints::words) / 8;
        std::vector<uint64_t> words(std::min<size_t>(head[0], kRoom));
        check(d.cuMemcpyDtoH_v2(words.data(), r.prints + offsetof(abi::DevicePrints, words),
                                8 * words.size()),
              "reading prints");
        check(d.cuMemsetD8Async(r.prints, 0, 8 * (words.size() + 1), nullptr), "clearing prints");
        for (size_t at = 0; at < words.size();) {
            if (!(words[at] & abi::kPrinted)) break;  // here one found no room
            const auto format = uint32_t(words[at]);
            const auto cells = size_t((words[at] & ~abi::kPrinted) >> 32), sites = words[at + 1];
            const uint64_t* values = &words[at + 2];
            if (format < image.formats.size()) {
                const support::FormatEntry& entry = image.formats[format];
                std::string text = format_text(entry, reinterpret_cast<const abi::Cell*>(values));
                if (!entry.sites.empty())
                    add_callers(text, stack_of(image.formats, format, {values + cells, sites}));
                outcome.printed += text;
            }
            at += 2 + cells + sites;
        }
        if (head[1])
            outcome.printed +=
                "[" + std::to_string(head[1]) + " prints of this launch found no room]\n";
    }

    bool can_replay() {
        const Code& code = *image.gpu;
        if (amid || !std::exchange(code.was_launched, true) || code.cannot_replay) return false;
        if (hooks.times || context.task) return false;
        if (std::ranges::any_of(image.tasks, [](const LoadedTask& t) {
                return t.gate >= 0 || t.record_bytes > kMostReplayed;
            }))
            return false;
        loops = has_loops(image);
        return !loops || (!image.uses_random && can_loop());
    }

    // Where loops begin: of those that begin at a task, the one that ends last is the outermost.
    uint32_t beginning_at(uint32_t task) const {
        const auto begins = [&](const LoadedTask& t) { return t.again >= 0 && t.from == task; };
        return uint32_t(std::ranges::count_if(image.tasks, begins));
    }

    // Between two tasks: what ends, and what begins. Loops stand around sections, never in them.
    // Tapes are one after the other's.
    void leave_sections(const LoadedTask& last, const LoadedTask& next) const {
        if (!image.uses_tape && last.region && last.region != next.region) replay->end_sections();
    }
    void enter_section(const LoadedTask& last, const LoadedTask& next) const {
        if (image.uses_tape || !next.region) return;
        if (last.region != next.region)
            replay->begin_sections();
        else if (last.branch != next.branch)
            replay->next_section();
    }

    // False: the driver cannot.
    bool run_graph() {
        const Code& code = *image.gpu;
        std::unique_ptr<Replay>& kept = code.replays[stream];
        if (!kept) kept = std::make_unique<Replay>();
        replay = kept.get();
        replay->begin();
        if (loops) allow_loops();
        const LoadedTask none{};
        for (uint32_t k = 0; k <= image.tasks.size(); ++k) {
            const LoadedTask& task = k < image.tasks.size() ? image.tasks[k] : none;
            const LoadedTask& last = k ? image.tasks[k - 1] : none;
            leave_sections(last, task);
            if (k == image.tasks.size()) break;
            for (uint32_t n = loops ? beginning_at(k) : 0; n > 0; --n) replay->begin_loop();
            enter_section(last, task);
            run(task, code.entries[k]);
            if (task.again >= 0)
                replay->end_loop(head().temps + uint64_t(task.again), head().report);
        }
        if (replay->launch(stream)) return true;
        code.cannot_replay = true;
        code.replays.clear();
        replay = nullptr;
        loops = false;
        return false;
    }

    bool run_tasks() {  // false if the user interrupts
        while (context.task < image.tasks.size()) {
            const LoadedTask& task = image.tasks[context.task];
            if (task.gate >= 0 && !temp(task.gate)) {
                context.task = task.behind;
                continue;
            }
            const int64_t began = hooks.times ? now_ns() : 0;
            if (hooks.times) r.stopwatch.start(stream);
            run(task, image.gpu->entries[context.task]);
            if (hooks.times) {
                r.stopwatch.stop(stream);
                if (!wait()) return false;
                hooks.times->push_back({context.task, began, r.stopwatch.ns()});
            }
            if (task.again >= 0) {
                if (!wait()) return false;
                if (told_now) tell();
                if (outcome.failed) return true;
            }
            if (task.again >= 0 && temp(task.again)) {
                context.task = task.from;
                context.launch_key = abi::key_of_next_turn(context.launch_key);
                if (image.uses_random) head().launch_key = context.launch_key;
            } else {
                ++context.task;
            }
        }
        return true;
    }

    bool run_all() {
        if (std::optional<std::string> text =
                any_late_failure() ? take_late_failure() : std::nullopt) {
            outcome.failed = true;
            outcome.failure = std::move(*text);
            return true;
        }
        prepare();
        bool waited = (can_replay() && run_graph()) || run_tasks();
        const bool looked_at = told_now || image.uses_print || image.result_bytes;
        if (looked_at && waited) waited = see_results() || wait();
        outcome.interrupted = !waited;
        if (!waited || !looked_at) return !waited;
        if (told_now) tell();
        if (image.uses_print) read_prints();
        if (image.result_bytes) std::memcpy(context.results, r.results.at, image.result_bytes);
        return outcome.failed || !outcome.printed.empty();
    }
};

struct Holding {
    AllRooms& all;
    std::unique_lock<std::mutex> guard{all.lock, std::try_to_lock};

    Holding(AllRooms& rooms, const LaunchHooks& hooks) : all(rooms) {
        if (!guard.owns_lock()) {  // who has it may need the GIL
            if (hooks.long_run) hooks.long_run(hooks.data);
            guard.lock();
        }
        all.holder = std::this_thread::get_id();
    }
    ~Holding() { all.holder = std::thread::id{}; }
};

struct OwnRooms {
    Rooms rooms;
    ~OwnRooms() {
        if (const Driver* d = use_if_possible()) rooms.give_back(*d);  // once nobody uses it
    }
};

}  // namespace

bool launch(const KernelImage& image, abi::Context& context, const LaunchHooks& hooks,
            LaunchOutcome& outcome) {
    AllRooms& all = rooms();
    const auto stream = reinterpret_cast<Handle>(hooks.stream);
    if (all.holder == std::this_thread::get_id()) {
        // By Python code that a waiting launch let run, say a signal handler.
        OwnRooms own;
        if (stream) order_behind_default(stream);
        return Launch{image, context, hooks, outcome, own.rooms, stream, true}.run_all();
    }
    const Holding holding(all, hooks);
    if (stream) order_behind_default(stream);
    return Launch{image, context, hooks, outcome, all.of(stream), stream}.run_all();
}

void forget_stream(Handle stream) {
    const Driver& d = use();
    AllRooms& all = rooms();
    // Of a waiting launch, maybe this thread's, which let a finaliser run. What is kept then serves
    // the next stream of that handle.
    if (all.holder == std::this_thread::get_id()) return;
    const std::unique_lock guard(all.lock, std::try_to_lock);
    if (!guard.owns_lock()) return;
    const auto at = all.of_streams.find(stream);
    if (at == all.of_streams.end()) return;
    at->second.give_back(d);
    all.of_streams.erase(at);
}

}  // namespace qd::runtime::cuda
