// See compile_queue.h.

#include "runtime/compile_queue.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <thread>

#include "runtime/compiler.h"
#include "runtime/fork.h"
#include "support/error.h"

namespace qd::runtime {

// Above the process's own: about a tenth of a core where launches use all of them.
constexpr int kNiceness = 10;
// What runs for half of the time since its first launch is what the program is about: optimising it
// is worth a share of the cores like any other thread's.
constexpr int64_t kUrgentShare = 2;
// Quick code may run for this part of the time that optimising it is estimated to take: what is
// lost by waiting stays small beside the compilation, and what runs once or twice is not compiled.
constexpr int64_t kPatienceShare = 16;
// A warm process would also load the compiler for it.
constexpr int64_t kLoadingUs = 100'000;
constexpr int64_t kLeastPatienceNs = 1'000'000;

struct CompileQueue {
    using Slot = std::shared_ptr<ImageSlot>;
    using State = ImageSlot::State;
    using Clock = std::chrono::steady_clock;
    struct Watch {
        Clock::time_point due;
        Slot slot;
    };

    std::mutex lock;  // guards everything here
    std::condition_variable changed;
    enum Line { urgent, patient, kLines };  // each with a thread
    std::vector<Slot> asked[kLines];
    std::vector<Watch> watches;  // of launches that may turn out long
    Slot compiling[kLines];
    bool stop = false;
    std::thread threads[kLines];

    size_t pending() const {
        size_t n = 0;
        for (int line = 0; line < kLines; ++line)
            n += asked[line].size() + (compiling[line] ? 1 : 0);
        return n;
    }
    static int64_t ns(Clock::time_point t) {
        return std::chrono::nanoseconds(t.time_since_epoch()).count();
    }
    // Under the lock.
    void line_up(const Slot& slot) {
        const int64_t now_ns = ns(Clock::now()), first_ns = slot->first_ns_;
        const bool often = first_ns && spent(*slot, now_ns) * kUrgentShare > now_ns - first_ns;
        asked[often ? urgent : patient].push_back(slot);
        changed.notify_all();
    }

    static bool waits(const ImageSlot& s) { return s.state_ == State::waiting; }

    // --- the launching threads ------------------------------------------------------------------
    void ask(const Slot& slot) {
        State waiting = State::waiting;
        if (!slot->state_.compare_exchange_strong(waiting, State::asked)) return;
        std::lock_guard guard(lock);
        line_up(slot);
    }

    void watch(const Slot& slot, int64_t due_ns) {
        std::lock_guard guard(lock);
        watches.push_back({Clock::time_point(std::chrono::nanoseconds(due_ns)), slot});
        changed.notify_all();
    }

    static bool enters(ImageSlot& s, int64_t now_ns, int64_t& due_ns) {
        if (!waits(s)) return false;
        s.entered_ns_ = now_ns;
        if (!s.first_ns_) s.first_ns_ = now_ns;
        due_ns = now_ns + std::max<int64_t>(s.patience_ns_ - s.spent_ns_, 0);
        return !s.watched_.exchange(true);
    }

    static bool leaves(ImageSlot& s, int64_t took_ns) {  // whether it has run for long enough
        s.entered_ns_ = 0;
        return s.spent_ns_.fetch_add(took_ns) + took_ns >= s.patience_ns_ && waits(s);
    }

    // --- the queue's threads, under the lock -----------------------------------------------------
    static int64_t spent(const ImageSlot& s, int64_t now_ns) {
        const int64_t entered = s.entered_ns_;
        return s.spent_ns_ + (entered ? now_ns - entered : 0);
    }

    // Asks for what has run long enough; what runs still is looked at again.
    void look_at_watches() {
        const auto now = Clock::now();
        const int64_t now_ns = ns(now);
        std::erase_if(watches, [&](Watch& w) {
            if (w.due > now) return false;
            ImageSlot& s = *w.slot;
            const int64_t left = s.patience_ns_ - spent(s, now_ns);
            if (waits(s) && left > 0 && s.entered_ns_) {
                w.due = now + std::chrono::nanoseconds(left);
                return false;
            }
            s.watched_ = false;
            State waiting = State::waiting;
            if (left <= 0 && s.state_.compare_exchange_strong(waiting, State::asked))
                line_up(w.slot);
            return true;
        });
    }

    // What has run longest for what it costs.
    static Slot take_best(std::vector<Slot>& asked) {
        const auto gain = [](const Slot& s) {
            return double(s->spent_ns_) / std::max(1u, s->optimise_us_);
        };
        const auto best = std::ranges::max_element(asked, {}, gain);
        Slot taken = std::move(*best);
        asked.erase(best);
        return taken;
    }

    void loop(Line line) {
        // Threads that somebody waits for go first: on few cores a launch would lose a time slice.
        const auto self = static_cast<id_t>(syscall(SYS_gettid));
        if (line == patient)
            setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNiceness);
        std::unique_lock guard(lock);
        while (!stop) {
            look_at_watches();
            if (!asked[line].empty()) {
                compiling[line] = take_best(asked[line]);
                guard.unlock();
                compile(*compiling[line]);
                guard.lock();
                compiling[line] = nullptr;
                changed.notify_all();
            } else if (!watches.empty()) {
                changed.wait_until(guard, std::ranges::min(watches, {}, &Watch::due).due);
            } else {
                changed.wait(guard);
            }
        }
    }

    static void compile(ImageSlot& slot) {
        const Target& target = slot.target_;
        abi::CompileOptions options{};
        options.abi_version = abi::kAbiVersion;
        options.tier = 1;
        options.cpu = target.cpu.c_str();
        options.triple = "";
        try {
            const Compiling alone_with_fork;
            const Compiler& compiler = Compiler::get();
            const Compiler::Compilation compilation = compiler.begin(slot.ir_, options);
            const std::vector<uint8_t> artefact = compiler.emit(compilation.get(), options);
            slot.publish(load_artefact(artefact, target.name));
            if (target.store) target.store(artefact);
        } catch (const std::exception& e) {
            // The quick tier's code stays: slower, and as right as before.
            if (target.complain) target.complain(e.what());
        }
        slot.ir_ = {};
        slot.state_ = State::settled;
    }

    // --- endings --------------------------------------------------------------------------------
    // Who calls it tells the waiting threads, if there are any: in a forked child there are none,
    // and to notify a condition variable that the parent's threads wait for never returns.
    void forget() {
        for (std::vector<Slot>& line : asked) {
            for (const Slot& s : line) s->state_ = State::waiting;
            line.clear();
        }
        for (const Watch& w : watches) w.slot->watched_ = false;
        watches.clear();
    }

    ~CompileQueue() {
        {
            std::lock_guard guard(lock);
            stop = true;
            forget();
            changed.notify_all();
        }
        for (std::thread& t : threads)
            if (t.joinable()) t.join();
    }
};

namespace {

CompileQueue* the_queue;  // a forked child leaks its parent's: nobody works on it there
std::mutex creation;      // guards the_queue; held during fork, as is the queue's lock

void before_fork() {
    creation.lock();
    if (the_queue) the_queue->lock.lock();
}
void after_fork() {
    if (the_queue) the_queue->lock.unlock();
    creation.unlock();
}
void in_forked_child() {
    if (CompileQueue* q = the_queue) {
        for (const auto& slot : q->compiling)
            if (slot) q->asked[CompileQueue::patient].push_back(slot);
        q->forget();
        q->lock.unlock();
    }
    the_queue = nullptr;
    creation.unlock();
}

// Under `creation`.
CompileQueue& queue() {
    if (!the_queue) {
        static bool registered = [] {
            std::atexit(stop_optimisations);  // for hosts that forget
            at_fork(AtFork::compile_queue, {before_fork, after_fork, in_forked_child});
            return true;
        }();
        (void)registered;
        auto made = std::make_unique<CompileQueue>();
        the_queue = made.release();
        for (const auto line : {CompileQueue::urgent, CompileQueue::patient})
            the_queue->threads[line] = std::thread([q = the_queue, line] { q->loop(line); });
    }
    return *the_queue;
}

CompileQueue* existing() {
    std::lock_guard guard(creation);
    return the_queue;
}

}  // namespace

ImageSlot::ImageSlot(std::unique_ptr<KernelImage> first, Target target)
    : optimise_us_(first->optimise_us), ir_(std::move(first->ir)), target_(std::move(target)) {
    const int64_t cost_us = int64_t(optimise_us_) + (Compiler::loaded() ? 0 : kLoadingUs);
    patience_ns_ = std::max(cost_us * 1000 / kPatienceShare, kLeastPatienceNs);
    state_ = ir_.empty() ? State::settled : State::waiting;
    publish(std::move(first));
}

void ImageSlot::publish(std::unique_ptr<KernelImage> image) {
    std::lock_guard guard(lock_);
    current_.store(image.get(), std::memory_order_release);
    images_.push_back(std::move(image));
}

void quick_run_begins(const std::shared_ptr<ImageSlot>& slot, int64_t now_ns) {
    int64_t due_ns;
    if (!CompileQueue::enters(*slot, now_ns, due_ns)) return;
    std::lock_guard creating(creation);
    queue().watch(slot, due_ns);
}

void quick_run_ends(const std::shared_ptr<ImageSlot>& slot, int64_t took_ns) {
    if (CompileQueue::leaves(*slot, took_ns)) optimise(slot);
}

void optimise(const std::shared_ptr<ImageSlot>& slot) {
    if (!CompileQueue::waits(*slot)) return;
    std::lock_guard creating(creation);
    queue().ask(slot);
}

void finish_optimisations() {
    if (CompileQueue* q = existing()) {
        std::unique_lock guard(q->lock);
        q->changed.wait(guard, [&] { return q->pending() == 0; });
    }
}

void drop_optimisations() {
    if (CompileQueue* q = existing()) {
        std::lock_guard guard(q->lock);
        q->forget();
        q->changed.notify_all();
    }
}

void stop_optimisations() {
    CompileQueue* last;
    {
        std::lock_guard guard(creation);
        last = the_queue;
        the_queue = nullptr;
    }
    delete last;
}

size_t pending_optimisations() {
    CompileQueue* q = existing();
    if (!q) return 0;
    std::lock_guard guard(q->lock);
    return q->pending();
}

}  // namespace qd::runtime
