// See compile_queue.h.

#include "runtime/compile_queue.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "runtime/compiler.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/cuda/assembler.h"
#include "runtime/cuda/code.h"
#include "runtime/fork.h"
#include "runtime/stage.h"
#include "support/error.h"
#include "support/own_thread.h"

namespace qd::runtime {

// Above the process's own: about a tenth of a core where launches use all of them.
constexpr int kNiceness = 10;
// Quick code may run for this part of the time that optimising it is estimated to take: what is
// lost by waiting stays small beside the compilation, and what runs once or twice is not compiled.
constexpr int64_t kPatienceShare = 16;
// A warm process would also load the compiler for it.
constexpr int64_t kLoadingUs = 100'000;
constexpr int64_t kLeastPatienceNs = 1'000'000;
// The process's end waits this long for what is being compiled, which later processes then find.
constexpr std::chrono::milliseconds kLastPatience{1000};

namespace {

// Never destroyed: threads may ask while the process ends.
QueueProtocol<SlotMachine>& queue = *new QueueProtocol<SlotMachine>;
// A forked child forgets its parent's threads: nobody ends them there.
struct ItsThreads {
    std::mutex lock;  // guards everything here
    std::condition_variable changed;
    std::thread threads[SlotMachine::kMostThreads];
    bool working[SlotMachine::kMostThreads]{};
    int finishing = 0;     // how many do more than compile: those are waited for
    bool left = false;     // the process ends without the others
    int32_t unwanted = 0;  // atomic: what they compile

    // By one of the threads, between compiling and what others see of it.
    void begin_to_finish(std::optional<Compiling>& alone_with_fork) {
        {
            const std::lock_guard guard(lock);
            finishing += !left;
            if (!left) return;
        }
        alone_with_fork.reset();
        for (;;) pause();  // there is nothing to return to
    }
    void finished() {
        const std::lock_guard guard(lock);
        --finishing;
        changed.notify_all();
    }
    void ends(int thread) {
        const std::lock_guard guard(lock);
        working[thread] = false;
        changed.notify_all();
    }
    // A thread that still compiles then does so while the process ends: the compiler has nothing
    // that this takes away.
    void join_or_leave(int thread) {
        std::unique_lock guard(lock);
        const auto patience = left ? kLastPatience.zero() : kLastPatience;
        if (changed.wait_for(guard, patience, [&] { return !working[thread]; })) {
            guard.unlock();
            threads[thread].join();
            return;
        }
        left = true;
        __atomic_store_n(&unwanted, 1, __ATOMIC_RELAXED);
        changed.wait(guard, [&] { return finishing == 0; });
        threads[thread].detach();
    }
};
ItsThreads& threads = *new ItsThreads;

void in_forked_child() {
    queue.in_child();
    new (&threads) ItsThreads;
}
const bool registered =
    at_fork(AtFork::compile_queue,
            {[] { queue.before_fork(); }, [] { queue.in_parent(); }, in_forked_child});

}  // namespace

std::atomic<int> optimisers{1};

int SlotMachine::most_threads() { return 1 + optimisers; }

void set_optimisers(int64_t threads) {
    const int64_t cpus =
        std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, SlotMachine::kMostThreads - 1);
    optimisers = int(std::clamp<int64_t>(threads, 1, cpus));
}

bool SlotMachine::start(Queue& q, int thread) {
    static const bool ends = std::atexit(stop_optimisations) == 0;  // for hosts that forget
    (void)ends;
    try {
        ItsThreads& all = threads;
        const std::lock_guard guard(all.lock);
        const support::QuietThreads quiet;
        all.threads[thread] = std::thread([&q, &all, thread] {
            const StandardFloats floats;
            name_traced_thread("optimiser");
            // Threads that somebody waits for go first: on few cores a launch would lose a time
            // slice.
            const auto self = static_cast<id_t>(syscall(SYS_gettid));
            if (Queue::line_of(thread) == Queue::patient)
                setpriority(PRIO_PROCESS, self,
                            getpriority(PRIO_PROCESS, static_cast<id_t>(getpid())) + kNiceness);
            q.work(thread);
            all.ends(thread);
        });
        all.working[thread] = true;
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

void SlotMachine::join(Queue&, int thread) { threads.join_or_leave(thread); }

namespace {

struct Improved {
    std::vector<uint8_t> artefact;
    int64_t passes_ns = 0, emission_ns = 0;
};

// By the compiler, from the module.
void improve(Improved& out, const Target& target, std::span<const uint8_t> ir,
             const int32_t* unwanted) {
    abi::CompileOptions options{};
    options.tier = 1;
    options.cpu = target.cpu.c_str();
    options.unwanted = unwanted;
    options.on_stage = stage_observer();
    options.parts = target.parts ? target.parts->face() : nullptr;
    const Compiler& compiler = Compiler::get();
    Compiler::Compilation compilation;
    {
        const Stage stage("passes", target.name, out.passes_ns);
        compilation = compiler.begin(ir, options);
    }
    const Stage stage("optimised code generation", target.name, out.emission_ns);
    out.artefact = compiler.emit(compilation.get(), options);
}

// By the GPU's assembler, from what the compiler made of it. Loading waits for kernels that run,
// and launches wait for the loading: an idle moment is better.
void reassemble(Improved& out, const Target& target, const KernelImage& image,
                std::span<const uint8_t> ptx, const int32_t* unwanted) {
    constexpr int64_t kMostNs = 2'000'000'000;
    const Stage stage("optimised assembling", target.name, out.emission_ns);
    out.artefact = cuda::assembled_better(image.artefact, ptx, unwanted);
    cuda::wait_for_idle(kMostNs);
}

}  // namespace

void SlotMachine::compile(const Slot& slot) {
    const Target& target = slot->target_;
    const KernelImage& quick = *slot->current();
    ItsThreads& all = threads;
    Improved made;
    int64_t loading_ns = 0;
    std::exception_ptr failure;  // the quick tier's code stays: slower, and as right as before
    std::optional<Compiling> alone_with_fork;
    try {
        if (quick.gpu) {
            reassemble(made, target, quick, slot->ir_, &all.unwanted);
        } else {
            alone_with_fork.emplace();
            alone_with_fork->need();
            improve(made, target, slot->ir_, &all.unwanted);
        }
    } catch (...) {
        failure = std::current_exception();
    }
    all.begin_to_finish(alone_with_fork);
    try {
        if (failure) std::rethrow_exception(failure);
        {
            const Stage stage("load", target.name, loading_ns);
            slot->publish(load_artefact(made.artefact, target.name));
        }
        if (target.tell) target.tell(slot->current()->header(), made.passes_ns, made.emission_ns);
        if (target.store) target.store(made.artefact);
    } catch (const std::exception& e) {
        if (target.complain) target.complain(e.what());
    }
    all.finished();
}

void SlotMachine::drop_module(const Slot& slot) { slot->ir_ = {}; }

ImageSlot::ImageSlot(std::unique_ptr<KernelImage> first, Target target)
    : ir_(std::move(first->ir)), target_(std::move(target)) {
    progress_.optimise_us = first->optimise_us;
    const int64_t cost_us = int64_t(progress_.optimise_us) + (Compiler::loaded() ? 0 : kLoadingUs);
    progress_.patience_ns = std::max(cost_us * 1000 / kPatienceShare, kLeastPatienceNs);
    progress_.state = ir_.empty() ? Improving::settled : Improving::waiting;
    publish(std::move(first));
}

void ImageSlot::publish(std::unique_ptr<KernelImage> image) {
    std::lock_guard guard(lock_);
    images_.push_back(std::move(image));
    current_.store(images_.back().get(), std::memory_order_release);
}

bool quick_run_begins(const std::shared_ptr<ImageSlot>& slot, int64_t now_ns) {
    return queue.run_begins(slot, now_ns);
}
void quick_run_ends(const std::shared_ptr<ImageSlot>& slot, int64_t took_ns) {
    queue.run_ends(slot, took_ns);
}
void optimise(const std::shared_ptr<ImageSlot>& slot) { queue.optimise(slot); }
void finish_optimisations() { queue.finish(); }
void drop_optimisations() { queue.drop(); }
void stop_optimisations() { queue.stop(); }
size_t pending_optimisations() { return queue.pending(); }

}  // namespace qd::runtime
