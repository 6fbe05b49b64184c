// See replay.h.

#include "runtime/cuda/replay.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

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

constexpr const char* kSetter = R"(
.version 8.1
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set_condition(.param .align 8 .b8 p[32])
{
    .reg .pred %q<6>;
    .reg .b32 %r<6>;
    .reg .b64 %d<6>;
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
        return d.cuModuleLoadDataEx(&module, kSetter, 0, nullptr, nullptr) == 0 &&
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
    const Driver* d = driver();
    if (!graph_ || !d || d->cuCtxSetCurrent(d->context) != 0) return;
    if (executable_) (void)d->cuGraphExecDestroy(executable_);
    (void)d->cuGraphDestroy(graph_);
}

void Replay::put(Kind kind, const Step& step, std::span<const uint8_t> parameters) {
    if (!executable_) {
        nodes_.push_back({kind, step, {parameters.begin(), parameters.end()}, nullptr});
        return;
    }
    Node& n = nodes_[at_++];
    if (!n.node) return;
    const Driver& d = use();
    if (!step.blocks != !n.step.blocks)
        check(d.cuGraphNodeSetEnabled(executable_, n.node, step.blocks != 0), "changing a graph");
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
    void* parameter = n.parameters.data();
    const KernelNode told = kernel_node(step, &parameter);
    const Result r = d.cuGraphExecKernelNodeSetParams_v2(executable_, n.node, &told);
    if (r != 0) n.step.threads = 0;  // it is not what this says
    check(r, "changing a graph");
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

// An edge from `last` to n. Tasks that wait themselves are started early; one that may be left out
// would not wait for those before it.
bool Replay::follow(Handle graph, const Node* before, const Node& n, Handle last) const {
    const Driver& d = use();
    if (!last) return true;
    const bool early = d.capability >= kWaits && before && before->kind == Kind::task &&
                       n.kind == Kind::task && before->step.always && n.step.always;
    const Edge edge =
        early ? Edge{.from_port = 1, .to_port = 0, .type = 1, .reserved = {}} : Edge{};
    if (d.cuGraphAddDependencies_v2)
        return d.cuGraphAddDependencies_v2(graph, &last, &n.node, &edge, 1) == 0;
    return d.cuGraphAddDependencies(graph, &last, &n.node, 1) == 0;
}

// Nodes up to the end of this graph's loop, each after the one before it.
bool Replay::add(Handle graph, size_t& at, bool in_loop) {
    const Driver& d = use();
    Handle last = nullptr;
    const Node* before = nullptr;  // the kernel that `last` is
    const auto kernel = [&](Node& n) {
        void* parameter = n.parameters.data();
        const KernelNode told = kernel_node(n.step, &parameter);
        if (d.cuGraphAddKernelNode_v2(&n.node, graph, nullptr, 0, &told) != 0 ||
            !follow(graph, before, n, last))
            return false;
        last = n.node;
        before = &n;
        return true;
    };
    const auto set_handle = [](Node& n, uint64_t handle) {
        std::memcpy(n.parameters.data() + offsetof(Condition, handle), &handle, sizeof handle);
    };
    while (at < nodes_.size()) {
        Node& n = nodes_[at++];
        if (n.kind == Kind::end) return kernel(n);
        if (n.kind == Kind::task) {
            if (!kernel(n)) return false;
            continue;
        }
        uint64_t handle = 0;
        if (d.cuGraphConditionalHandleCreate(&handle, graph, d.context, 1, kAssignDefault) != 0)
            return false;
        set_handle(n, handle);
        // The default holds for the first turn of what is around: later ones set it anew.
        if (in_loop && !kernel(n)) return false;
        size_t end = at;
        for (int depth = 1; depth > 0; ++end)
            depth += nodes_[end].kind == Kind::begin ? 1 : nodes_[end].kind == Kind::end ? -1 : 0;
        set_handle(nodes_[end - 1], handle);
        GraphNode loop{};
        loop.type = kConditionalNode;
        loop.conditional = {handle, kWhile, 1, nullptr, d.context};
        Handle node = nullptr;
        if (d.cuGraphAddNode(&node, graph, &last, last ? 1 : 0, &loop) != 0) return false;
        last = node;
        before = nullptr;
        if (!add(loop.conditional.bodies[0], at, true)) return false;
    }
    return true;
}

bool Replay::build() {
    const Driver& d = use();
    if (d.cuGraphCreate(&graph_, 0) != 0) return false;
    size_t at = 0;
    if (!add(graph_, at, false)) return false;
    if (d.cuGraphInstantiateWithFlags(&executable_, graph_, 0) != 0) {
        executable_ = nullptr;
        return false;
    }
    for (const Node& n : nodes_)
        if (!n.step.blocks)
            check(d.cuGraphNodeSetEnabled(executable_, n.node, 0), "changing a graph");
    return true;
}

bool Replay::launch() {
    if (!executable_ && !build()) return false;
    check(use().cuGraphLaunch(executable_, nullptr), "launching a kernel");
    return true;
}

}  // namespace qd::runtime::cuda
