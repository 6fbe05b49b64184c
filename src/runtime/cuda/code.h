// Code of a kernel on an NVIDIA GPU, and how to run it.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cpu/kernel.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/late.h"
#include "runtime/cuda/replay.h"
#include "support/abi.h"

namespace qd::runtime::cuda {

struct Code {
    std::vector<Handle> modules;
    struct Entry {
        Handle task, finish;  // finish may be null
        int held;             // blocks of the task that a multiprocessor runs at one time
    };
    std::vector<Entry> entries;  // by task

    // Kept between launches, under the lock of who puts them onto streams. By stream: one graph
    // runs after itself.
    mutable std::map<Handle, std::unique_ptr<Replay>> replays;
    mutable bool was_launched = false, cannot_replay = false;
    mutable std::unique_ptr<LateReport> late;  // of launches whose checks nobody waits for

    Code() = default;
    Code(const Code&) = delete;
    ~Code();
};

// Whether the driver may find in its own cache on disk what it assembles.
void allow_driver_cache(bool allowed);
// Of machine code, some tasks in each object, or PTX that the driver assembles. Throws
// support::Error.
std::shared_ptr<const Code> load_code(std::span<const std::span<const uint8_t>> objects,
                                      std::span<const LoadedTask> tasks, bool recursive);

// Waits until the default stream has nothing to do, or for `most_ns`.
void wait_for_idle(int64_t most_ns);

// As runtime::launch. Waits for the end only if somebody looks at results, checks, prints or times.
// Throws support::Error if the device fails.
bool launch(const KernelImage& image, abi::Context& context, const LaunchHooks& hooks,
            LaunchOutcome& outcome);

// A copy of the host's memory on the device as long as it lives; `write_back` copies it back, after
// what was launched before.
class HostCopy {
  public:
    HostCopy(void* host, size_t bytes);  // waits
    ~HostCopy();
    HostCopy(HostCopy&& other) noexcept;
    HostCopy(const HostCopy&) = delete;
    void* on_device() const { return reinterpret_cast<void*>(device_); }
    void write_back() const;

  private:
    void* host_;
    size_t bytes_;
    Address device_ = 0;
};
// Throws support::Error if it is on another device.
bool is_on_device(const void* address);
// By the driver's handle: what was put onto it so far is over then.
void wait_for_stream(uint64_t stream);

}  // namespace qd::runtime::cuda
