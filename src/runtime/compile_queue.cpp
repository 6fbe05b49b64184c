// See compile_queue.h.

#include "runtime/compile_queue.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <thread>

#include "runtime/compiler.h"
#include "support/error.h"

namespace qd::runtime {
namespace {

// Above the process's own: about a tenth of a core where launches use all of them.
constexpr int kNiceness = 10;

struct Queue {
    std::mutex lock;  // guards everything here
    std::condition_variable changed;
    std::deque<TierJob> jobs;
    bool running = false;  // a job is being compiled
    bool stop = false;
    std::thread thread;

    void loop() {
        // Threads that somebody waits for go first: on few cores a launch would lose a time slice.
        const auto self = static_cast<id_t>(syscall(SYS_gettid));
        setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNiceness);
        std::unique_lock guard(lock);
        for (;;) {
            changed.wait(guard, [&] { return stop || !jobs.empty(); });
            if (stop) return;
            TierJob job = std::move(jobs.front());
            jobs.pop_front();
            running = true;
            guard.unlock();
            optimise(job);
            guard.lock();
            running = false;
            changed.notify_all();
        }
    }

    static void optimise(TierJob& job) {
        const Compiler& compiler = Compiler::get();
        abi::CompileOptions options{};
        options.abi_version = abi::kAbiVersion;
        options.tier = 1;
        options.cpu = job.cpu.c_str();
        options.triple = "";
        try {
            const std::vector<uint8_t> artefact = compiler.emit(job.compilation, options);
            job.slot->publish(load_artefact(artefact, job.name));
            if (job.store) job.store(artefact);
        } catch (...) {
            // The quick tier's code stays: slower, and as right as before.
        }
        compiler.end(job.compilation);
    }

    ~Queue() {
        {
            std::lock_guard guard(lock);
            stop = true;
            jobs.clear();
            changed.notify_all();
        }
        if (thread.joinable()) thread.join();
    }
};

Queue* the_queue;     // a forked child leaks its parent's: nobody works on it there
std::mutex creation;  // guards the_queue; held during fork

// Under `creation`.
Queue& queue() {
    if (!the_queue) {
        static bool registered = [] {
            std::atexit(stop_optimisations);  // for hosts that forget
            pthread_atfork([] { creation.lock(); }, [] { creation.unlock(); },
                           [] {
                               the_queue = nullptr;
                               creation.unlock();
                           });
            return true;
        }();
        (void)registered;
        auto made = std::make_unique<Queue>();
        made->thread = std::thread([q = made.get()] { q->loop(); });
        the_queue = made.release();
    }
    return *the_queue;
}

Queue* existing() {
    std::lock_guard guard(creation);
    return the_queue;
}

}  // namespace

void ImageSlot::publish(std::unique_ptr<KernelImage> image) {
    std::lock_guard guard(lock_);
    current_.store(image.get(), std::memory_order_release);
    images_.push_back(std::move(image));
}

void enqueue_optimisation(TierJob job) {
    std::lock_guard creating(creation);
    Queue& q = queue();
    std::lock_guard guard(q.lock);
    q.jobs.push_back(std::move(job));
    q.changed.notify_all();
}

void finish_optimisations() {
    if (Queue* q = existing()) {
        std::unique_lock guard(q->lock);
        q->changed.wait(guard, [&] { return q->jobs.empty() && !q->running; });
    }
}

void drop_optimisations() {
    if (Queue* q = existing()) {
        std::unique_lock guard(q->lock);
        for (TierJob& job : q->jobs) Compiler::get().end(job.compilation);
        q->jobs.clear();
        q->changed.notify_all();
    }
}

void stop_optimisations() {
    Queue* last;
    {
        std::lock_guard guard(creation);
        last = the_queue;
        the_queue = nullptr;
    }
    delete last;
}

size_t pending_optimisations() {
    Queue* q = existing();
    if (!q) return 0;
    std::lock_guard guard(q->lock);
    return q->jobs.size() + q->running;
}

}  // namespace qd::runtime
