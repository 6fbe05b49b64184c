// The tasks of a kernel as one graph of the driver's, which is launched again and again: the same
// nodes, of which those are told whose parameters changed. A do-while loop of tasks is a node that
// the device repeats by itself; since that takes longer than a short task, a round is several turns
// if there are few tasks, which do nothing once the loop is over (DeviceLaunch::gated).
//
// Use: `begin`, then the steps of the launch in order, always the same ones, then `launch`. Under
// the lock of who puts launches onto streams, and on one stream.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cuda/driver.h"

namespace qd::runtime::cuda {

struct Step {
    Handle function;
    unsigned blocks, threads, shared_bytes;  // no blocks: left out this time
    bool always;                             // never left out, once it was not
};
// The parameters of a task begin with an abi::DeviceLaunch.

class Replay {
  public:
    Replay() = default;
    Replay(const Replay&) = delete;
    ~Replay();

    void begin() {
        at_ = 0;
        if (!executable_) nodes_.clear();  // of a launch that was refused
    }
    void step(const Step& step, std::span<const uint8_t> parameters);
    // Sections between two of these may run at the same time.
    void begin_sections() { put(Kind::fork, {}, {}); }
    void next_section() { put(Kind::section, {}, {}); }
    void end_sections() { put(Kind::join, {}, {}); }
    // A loop that goes on while the i32 at `condition` is not 0, the one at `failed` is 0 (if there
    // is one), and `stop_loops` has not been called.
    void begin_loop();
    void end_loop(Address condition, Address failed);
    // False: the driver cannot make a graph of this, and nothing was launched; it need not be asked
    // again. Throws support::Error if the launch fails.
    bool launch(Handle stream);

  private:
    enum class Kind : uint8_t { task, begin, end, fork, section, join };
    struct Node {
        Kind kind;
        Step step;
        std::vector<uint8_t> parameters;
        // One a turn in a round of the loop around; none: of what only shapes the graph, as the
        // beginning of an outermost loop does.
        std::vector<Handle> turns{};
    };
    struct Chain {  // the nodes of a graph, each after the one before it
        Handle graph, last = nullptr;
        const Node* before = nullptr;  // the kernel that `last` is
    };
    void put(Kind kind, const Step& step, std::span<const uint8_t> parameters);
    void tell(Node& n);
    void enable(const Node& n, bool enabled) const;
    int turns_of(size_t begin, size_t end) const;
    bool add(Chain& chain, size_t from, size_t to, bool in_loop);
    bool add_kernel(Chain& chain, Node& n);
    bool add_sections(Chain& chain, size_t from, size_t to);
    size_t end_of(size_t begin, Kind opens, Kind closes) const;
    bool build();

    std::vector<Node> nodes_;
    size_t at_ = 0;
    Handle graph_ = nullptr, executable_ = nullptr;
};

// Whether the driver and the device know nodes that repeat.
bool can_loop();
// Loops on the device end after the turn that they are in, those launched later too, until
// `allow_loops`, which waits for them.
void stop_loops();
void allow_loops();

}  // namespace qd::runtime::cuda
