// Code of a specialisation, and the threads that improve it.
//
// The first version of slow-to-optimise code comes from the quick tier. Once its launches have
// taken a fair share of what optimising costs, it is optimised here, on other threads, and the
// better code is current from the next launch on: what runs once is never optimised, and what runs
// most goes first. Old images stay loaded: a launch may still be running them.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cache/part_folder.h"
#include "runtime/cpu/kernel.h"
#include "runtime/queue_protocol.h"
#include "runtime/threads.h"
#include "support/abi.h"

namespace qd::runtime {

// What the queue needs besides the module.
struct Target {
    std::string name, cpu;
    std::function<void(std::span<const uint8_t>)> store;  // keeps the artefact; may be empty
    std::function<void(const char*)> complain;  // tells of a failure; may be empty; throws nothing
    // Tells what it took; may be empty.
    std::function<void(const abi::Artefact&, int64_t passes_ns, int64_t emission_ns)> tell;
    std::shared_ptr<cache::PartFolder> parts;  // may be null
};

class ImageSlot;
struct SlotMachine : Threads {
    using Slot = std::shared_ptr<ImageSlot>;
    using Queue = QueueProtocol<SlotMachine>;
    static Progress<SlotMachine>& progress(const Slot&);
    static constexpr int kMostThreads = 65;
    static int most_threads();
    static bool start(Queue&, int thread);
    static void join(Queue&, int thread);
    static void compile(const Slot&);
    static void drop_module(const Slot&);
    static void at_rest(int) {}
};

class ImageSlot {
  public:
    ImageSlot() = default;
    // An image that brings its module may be improved.
    ImageSlot(std::unique_ptr<KernelImage> first, Target target);

    const KernelImage* current() const { return current_.load(std::memory_order_acquire); }
    void publish(std::unique_ptr<KernelImage> image);
    // The code stays as it is.
    bool settled() const { return progress_.state == Improving::settled; }

  private:
    friend struct SlotMachine;

    std::atomic<const KernelImage*> current_{nullptr};
    std::mutex lock_;  // guards images_
    std::vector<std::unique_ptr<KernelImage>> images_;

    // Of quick code. The module is whole while the slot waits or is asked for (queue_protocol.h).
    Progress<SlotMachine> progress_;
    std::vector<uint8_t> ir_;
    Target target_;
};

inline Progress<SlotMachine>& SlotMachine::progress(const Slot& slot) { return slot->progress_; }

// Around each launch of quick code; `now_ns` by the steady clock. False: its end is not to be told.
// Any thread.
bool quick_run_begins(const std::shared_ptr<ImageSlot>& slot, int64_t now_ns);
void quick_run_ends(const std::shared_ptr<ImageSlot>& slot, int64_t took_ns);

// How many threads may optimise what can wait, as far as there are CPUs; what runs hot has another.
void set_optimisers(int64_t threads);

// Optimises a slot's quick code without waiting for its launches. Any thread.
void optimise(const std::shared_ptr<ImageSlot>& slot);
// Waits until nothing is pending / forgets what has not begun, until it runs again.
void finish_optimisations();
void drop_optimisations();
size_t pending_optimisations();
// Drops what has not begun, for good, and waits a second at most for what is being compiled. Called
// when the interpreter has ended.
void stop_optimisations();

}  // namespace qd::runtime
