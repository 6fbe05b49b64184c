// Code of a specialisation, and the thread that improves it.
//
// The first version of slow-to-optimise code comes from the quick tier; the optimised one is built
// here, on another thread, and becomes current at the next launch. Old images stay loaded: a launch
// may still be running them.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cpu/kernel.h"
#include "support/abi.h"

namespace qd::runtime {

class ImageSlot {
  public:
    const KernelImage* current() const { return current_.load(std::memory_order_acquire); }
    void publish(std::unique_ptr<KernelImage> image);

  private:
    std::atomic<const KernelImage*> current_{nullptr};
    std::mutex lock_;  // guards images_
    std::vector<std::unique_ptr<KernelImage>> images_;
};

struct TierJob {
    abi::Compilation* compilation;  // owned: ended when the job is over
    std::shared_ptr<ImageSlot> slot;
    std::string name, cpu;
    std::function<void(std::span<const uint8_t>)> store;  // keeps the artefact; may be empty
};

// Optimises the slot's code later. Any thread.
void enqueue_optimisation(TierJob job);
// Waits until nothing is pending (tests, benchmarks) / forgets what has not begun (exit, reset).
void finish_optimisations();
void drop_optimisations();
size_t pending_optimisations();
// Finishes what is being compiled and drops the rest. Called before the process's exit handlers,
// which take away what the compiler uses.
void stop_optimisations();

}  // namespace qd::runtime
