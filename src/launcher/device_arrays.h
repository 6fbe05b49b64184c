// Arrays of the host among the arguments of a launch on another device.

#pragma once

#include <vector>

#include "launcher/kernel.h"
#include "runtime/cuda/code.h"

namespace qd::launcher {

// Copies them to the device for as long as it lives: the block's descriptors say where.
class DeviceArrays {
  public:
    // What is launched on the stream next finds them.
    DeviceArrays(const Specialisation& s, uint8_t* block, uint64_t stream);
    // Copies back what the kernel may have written; waits for it.
    void write_back() const;
    bool empty() const { return copies_.empty(); }

  private:
    struct Range {
        char *begin, *end;
        bool written;
        void** where;  // the descriptor's address of it
    };
    void copy(std::vector<Range>& ranges);

    std::vector<runtime::cuda::HostCopy> copies_;
    std::vector<bool> written_;
    uint64_t stream_;
};

}  // namespace qd::launcher
