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

#include "runtime/cpu/kernel.h"
#include "support/abi.h"

namespace qd::runtime {

// What the queue needs besides the module.
struct Target {
    std::string name, cpu;
    std::function<void(std::span<const uint8_t>)> store;  // keeps the artefact; may be empty
    std::function<void(const char*)> complain;            // tells of a failure; may be empty
};

class ImageSlot {
  public:
    ImageSlot() = default;
    // An image that brings its module may be improved.
    ImageSlot(std::unique_ptr<KernelImage> first, Target target);

    const KernelImage* current() const { return current_.load(std::memory_order_acquire); }
    void publish(std::unique_ptr<KernelImage> image);
    bool settled() const { return state_ == State::settled; }  // the code stays as it is

  private:
    friend struct CompileQueue;
    enum class State { settled, waiting, asked };

    std::atomic<const KernelImage*> current_{nullptr};
    std::mutex lock_;  // guards images_
    std::vector<std::unique_ptr<KernelImage>> images_;

    // Of quick code. `ir_` and `target_` belong to the queue's thread while it compiles.
    std::atomic<State> state_{State::settled};
    std::atomic<int64_t> spent_ns_{0};    // by launches that ended
    std::atomic<int64_t> entered_ns_{0};  // when the last launch began; 0: it ended
    std::atomic<int64_t> first_ns_{0};    // when the first launch began
    std::atomic<bool> watched_{false};    // the queue looks at it when its patience ends
    int64_t patience_ns_ = 0;
    uint32_t optimise_us_ = 0;
    std::vector<uint8_t> ir_;
    Target target_;
};

// Around each launch of quick code; `now_ns` by the steady clock. Any thread.
void quick_run_begins(const std::shared_ptr<ImageSlot>& slot, int64_t now_ns);
void quick_run_ends(const std::shared_ptr<ImageSlot>& slot, int64_t took_ns);

// Optimises a slot's quick code without waiting for its launches. Any thread.
void optimise(const std::shared_ptr<ImageSlot>& slot);
// Waits until nothing is pending / forgets what has not begun, until it runs again.
void finish_optimisations();
void drop_optimisations();
size_t pending_optimisations();
// Finishes what is being compiled and drops the rest. Called before the process's exit handlers,
// which take away what the compiler uses.
void stop_optimisations();

}  // namespace qd::runtime
