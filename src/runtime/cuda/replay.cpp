// See replay.h.

#include "runtime/cuda/replay.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "support/abi.h"
#include "support/error.h"

namespace qd::runtime::cuda {
namespace {

constexpr int kLoopsVersion = 12040;  // of the driver
constexpr int kWaits = 90;            // capability from which on tasks wait for those before them
constexpr unsigned kAssignDefault = 1, kWhile = 1;
constexpr int kConditionalNode = 13;

// The only parameter of `set_condition`.
struct Condition {
    uint64_t handle;
    Address flag;    // null: the condition is set
    Address failed;  // may be null
    Address stop;
};

// Starts early where tasks wait for those before them.
constexpr const char* kSetterBegin = ".version 8.1\n.target ";
constexpr const char* kSetterEntry = R"(
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set_condition(.param .align 8 .b8 p[32])
{
    .reg .pred %q<6>;
    .reg .b32 %r<6>;
    .reg .b64 %d<6>;
)";
constexpr const char* kSetterBody = R"(
    ld.param.u64 %d1, [p];
    ld.param.u64 %d2, [p+8];
    ld.param.u64 %d3, [p+16];
    ld.param.u64 %d4, [p+24];
    mov.u32 %r1, 1;
    setp.eq.u64 %q1, %d2, 0;
    @%q1 bra set;
    ld.volatile.global.u32 %r1, [%d2];
    ld.volatile.global.u32 %r2, [%d4];
    setp.ne.u32 %q2, %r2, 0;
    @%q2 mov.u32 %r1, 0;
    setp.eq.u64 %q3, %d3, 0;
    @%q3 bra set;
    ld.volatile.global.u32 %r3, [%d3];
    setp.ne.u32 %q4, %r3, 0;
    @%q4 mov.u32 %r1, 0;
set:
    setp.ne.u32 %q5, %r1, 0;
    selp.u32 %r4, 1, 0, %q5;
    {
        .param .b64 a0;
        .param .b32 a1;
        st.param.b64 [a0], %d1;
        st.param.b32 [a1], %r4;
        call.uni cudaGraphSetConditional, (a0, a1);
    }
    ret;
}
)";

// What loops need, made with the first one.
struct Loops {
    Handle module = nullptr, setter = nullptr;
    Address stop = 0;         // a word that ends them
    Handle stream = nullptr;  // on which it is written while they run
    std::atomic<bool> stopping = false;

    bool make() {
        constexpr unsigned kNonBlocking = 1;
        if (stream) return true;
        const Driver& d = use();
        const bool waits = d.capability >= kWaits;
        const std::string code = std::string(kSetterBegin) + (waits ? "sm_90" : "sm_75") +
                                 kSetterEntry + (waits ? "griddepcontrol.wait;" : "") + kSetterBody;
        return d.cuModuleLoadDataEx(&module, code.c_str(), 0, nullptr, nullptr) == 0 &&
               d.cuModuleGetFunction(&setter, module, "set_condition") == 0 &&
               d.cuMemAlloc_v2(&stop, sizeof(uint32_t)) == 0 &&
               d.cuMemsetD32Async(stop, 0, 1, nullptr) == 0 &&
               d.cuStreamCreate(&stream, kNonBlocking) == 0;
    }
};
Loops& loops() {
    static auto* const all = new Loops;  // never destroyed
    return *all;
}

KernelNode kernel_node(const Step& step, void** parameter) {
    KernelNode out{};
    out.function = step.function;
    out.grid[0] = step.blocks ? step.blocks : 1;
    out.block[0] = step.threads;
    out.grid[1] = out.grid[2] = out.block[1] = out.block[2] = 1;
    out.shared_bytes = step.shared_bytes;
    out.parameters = parameter;
    return out;
}

// As long as it lives, parameters of a task say that it is gated, or not.
class Gate {
  public:
    Gate(std::vector<uint8_t>& parameters, bool gated) : of_(gated ? &parameters : nullptr) {
        set(1);
    }
    ~Gate() { set(0); }
    Gate(const Gate&) = delete;

  private:
    void set(uint64_t gated) const {
        if (of_)
            std::memcpy(of_->data() + offsetof(abi::DeviceLaunch, gated), &gated, sizeof gated);
    }
    std::vector<uint8_t>* of_;
};

std::span<const uint8_t> bytes_of(const Condition& c) {
    return {reinterpret_cast<const uint8_t*>(&c), sizeof c};
}

}  // namespace

bool can_loop() {
    const Driver& d = use();
    return d.version >= kLoopsVersion && d.cuGraphAddNode && d.cuGraphConditionalHandleCreate &&
           loops().make();
}

void stop_loops() {
    Loops& l = loops();
    if (!l.stream) return;
    l.stopping = true;
    check(use().cuMemsetD32Async(l.stop, 1, 1, l.stream), "ending loops");
}

void allow_loops() {
    Loops& l = loops();
    if (!l.stopping.exchange(false)) return;
    const Driver& d = use();
    check(d.cuStreamSynchronize(nullptr), "waiting for loops to end");
    check(d.cuStreamSynchronize(l.stream), "waiting for loops to end");
    check(d.cuMemsetD32Async(l.stop, 0, 1, nullptr), "allowing loops");
}

Replay::~Replay() {
    const Driver* d = graph_ ? use_if_possible() : nullptr;
    if (!d) return;
    if (executable_) (void)d->cuGraphExecDestroy(executable_);
    (void)d->cuGraphDestroy(graph_);
}

void Replay::enable(const Node& n, bool enabled) const {
    for (Handle node : n.turns)
        check(use().cuGraphNodeSetEnabled(executable_, node, enabled), "changing a graph");
}

void Replay::tell(Node& n) {
    void* parameter = n.parameters.data();
    const KernelNode told = kernel_node(n.step, &parameter);
    for (size_t turn = 0; turn < n.turns.size(); ++turn) {
        const Gate gate(n.parameters, n.kind == Kind::task && turn > 0);
        const Result r = use().cuGraphExecKernelNodeSetParams_v2(executable_, n.turns[turn], &told);
        if (r != 0) n.step.threads = 0;  // it is not what this says
        check(r, "changing a graph");
    }
}

void Replay::put(Kind kind, const Step& step, std::span<const uint8_t> parameters) {
    if (!executable_) {
        nodes_.push_back({kind, step, {parameters.begin(), parameters.end()}});
        return;
    }
    Node& n = nodes_[at_++];
    if (n.turns.empty()) return;
    if (!step.blocks != !n.step.blocks) enable(n, step.blocks != 0);
    // Of a condition all but the handle may change.
    const size_t kept = kind == Kind::task ? 0 : sizeof(Condition::handle);
    const bool same = parameters.size() == n.parameters.size() &&
                      step.function == n.step.function &&
                      (!step.blocks || step.blocks == n.step.blocks) &&
                      step.threads == n.step.threads && step.shared_bytes == n.step.shared_bytes &&
                      std::memcmp(parameters.data() + kept, n.parameters.data() + kept,
                                  parameters.size() - kept) == 0;
    n.step.blocks = step.blocks;
    if (same || !step.blocks) return;
    n.step = step;
    n.parameters.resize(parameters.size());
    std::memcpy(n.parameters.data() + kept, parameters.data() + kept, parameters.size() - kept);
    tell(n);
}

void Replay::step(const Step& step, std::span<const uint8_t> parameters) {
    put(Kind::task, step, parameters);
}

void Replay::begin_loop() {
    put(Kind::begin, {loops().setter, 1, 1, 0, true}, bytes_of(Condition{}));
}

void Replay::end_loop(Address condition, Address failed) {
    const Condition c{0, condition, failed, loops().stop};
    put(Kind::end, {loops().setter, 1, 1, 0, true}, bytes_of(c));
}

// One more turn of n, behind what the chain has. Tasks that wait themselves are started early; one
// that may be left out would not wait for those before it.
bool Replay::add_kernel(Chain& chain, Node& n) {
    const Driver& d = use();
    const Gate gate(n.parameters, n.kind == Kind::task && !n.turns.empty());
    void* parameter = n.parameters.data();
    const KernelNode told = kernel_node(n.step, &parameter);
    Handle node = nullptr;
    if (d.cuGraphAddKernelNode_v2(&node, chain.graph, nullptr, 0, &told) != 0) return false;
    n.turns.push_back(node);
    const Handle last = std::exchange(chain.last, node);
    const Node* before = std::exchange(chain.before, &n);
    if (!last) return true;
    const bool early = d.capability >= kWaits && before && before->step.always && n.step.always;
    const Edge edge =
        early ? Edge{.from_port = 1, .to_port = 0, .type = 1, .reserved = {}} : Edge{};
    if (d.cuGraphAddDependencies_v2)
        return d.cuGraphAddDependencies_v2(chain.graph, &last, &node, &edge, 1) == 0;
    return d.cuGraphAddDependencies(chain.graph, &last, &node, 1) == 0;
}

size_t Replay::end_of(size_t begin, Kind opens, Kind closes) const {
    size_t at = begin + 1;
    for (int depth = 1; depth > 0; ++at)
        depth += nodes_[at].kind == opens ? 1 : nodes_[at].kind == closes ? -1 : 0;
    return at - 1;
}

// How often a round goes through the tasks of the loop: what the last round does in vain takes less
// than what fewer rounds save, in loops of some turns. Most loops of one task, which tasks were
// joined to, end within it.
int Replay::turns_of(size_t begin, size_t end) const {
    constexpr int kMostTurns = 4, kMostTasks = 12;  // of a round
    const auto tasks =
        int(std::count_if(nodes_.begin() + ptrdiff_t(begin) + 1, nodes_.begin() + ptrdiff_t(end),
                          [](const Node& n) { return n.kind == Kind::task; }));
    const bool innermost =
        std::none_of(nodes_.begin() + ptrdiff_t(begin) + 1, nodes_.begin() + ptrdiff_t(end),
                     [](const Node& n) { return n.kind == Kind::begin; });
    return innermost && tasks > 1 ? std::clamp(kMostTasks / tasks, 1, kMostTurns) : 1;
}

// The nodes from..to, of which loops are one.
bool Replay::add(Chain& chain, size_t from, size_t to, bool in_loop) {
    const Driver& d = use();
    const auto set_handle = [](Node& n, uint64_t handle) {
        std::memcpy(n.parameters.data() + offsetof(Condition, handle), &handle, sizeof handle);
    };
    for (size_t at = from; at < to; ++at) {
        Node& n = nodes_[at];
        if (n.kind == Kind::fork) {
            const size_t join = end_of(at, Kind::fork, Kind::join);
            if (!add_sections(chain, at + 1, join)) return false;
            at = join;
            continue;
        }
        if (n.kind != Kind::begin) {
            if (!add_kernel(chain, n)) return false;
            continue;
        }
        const size_t end = end_of(at, Kind::begin, Kind::end);
        uint64_t handle = 0;
        if (d.cuGraphConditionalHandleCreate(&handle, chain.graph, d.context, 1, kAssignDefault) !=
            0)
            return false;
        set_handle(n, handle);
        set_handle(nodes_[end], handle);
        // The default holds for the first turn of what is around: later ones set it anew.
        if (in_loop && !add_kernel(chain, n)) return false;
        GraphNode loop{};
        loop.type = kConditionalNode;
        loop.conditional = {handle, kWhile, 1, nullptr, d.context};
        Handle node = nullptr;
        if (d.cuGraphAddNode(&node, chain.graph, &chain.last, chain.last ? 1 : 0, &loop) != 0)
            return false;
        chain.last = node;
        chain.before = nullptr;
        Chain body{loop.conditional.bodies[0]};
        for (int turn = turns_of(at, end); turn > 0; --turn)
            if (!add(body, at + 1, end, true)) return false;
        if (!add_kernel(body, nodes_[end])) return false;
        at = end;
    }
    return true;
}

// Each section behind what the chain has, and a node behind all of them.
bool Replay::add_sections(Chain& chain, size_t from, size_t to) {
    std::vector<Handle> ends;
    for (size_t at = from; at < to; ++at) {
        size_t end = at;
        while (end < to && nodes_[end].kind != Kind::section) ++end;
        Chain section{chain.graph, chain.last};
        if (!add(section, at, end, false)) return false;
        if (section.last && section.last != chain.last) ends.push_back(section.last);
        at = end;
    }
    chain.before = nullptr;
    if (ends.empty()) return true;
    if (ends.size() == 1) {
        chain.last = ends[0];
        return true;
    }
    return use().cuGraphAddEmptyNode(&chain.last, chain.graph, ends.data(), ends.size()) == 0;
}

bool Replay::build() {
    const Driver& d = use();
    if (d.cuGraphCreate(&graph_, 0) != 0) return false;
    Chain all{graph_};
    if (!add(all, 0, nodes_.size(), false)) return false;
    if (d.cuGraphInstantiateWithFlags(&executable_, graph_, 0) != 0) {
        executable_ = nullptr;
        return false;
    }
    for (const Node& n : nodes_)
        if (!n.step.blocks) enable(n, false);  // of no node if n only shapes the graph
    return true;
}

bool Replay::launch(Handle stream) {
    if (!executable_ && !build()) return false;
    check(use().cuGraphLaunch(executable_, stream), "launching a kernel");
    return true;
}

}  // namespace qd::runtime::cuda
