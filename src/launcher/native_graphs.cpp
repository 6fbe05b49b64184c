// See native_graphs.h. Chapter 41, sections 8.1 and 9.5.

#include "launcher/native_graphs.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "cpython/entry.h"
#include "ir/ir.h"
#include "runtime/cuda/code.h"
#include "support/error.h"

namespace qd::launcher {
namespace {

struct Seen {
    size_t held = 0, builds = 0;  // of the runtime
    bool used = false;            // by the last call
    size_t nodes = 0, checkpoints = 0;
};
Seen seen;

bool are_wanted() {
    static const bool wanted = [] {
        const char* text = std::getenv("QD_GRAPH");
        return !text || std::string_view(text) == "1";
    }();
    return wanted;
}

const std::string* host_array(const Specialisation& s, const uint8_t* block) {
    for (const PackStep& step : s.steps) {
        if (step.kind != PackStep::Kind::array) continue;
        const void* data = reinterpret_cast<const ir::ArrayDesc*>(block + step.offset)->data;
        if (data && !runtime::cuda::is_on_device(data)) return &step.name;
    }
    return nullptr;
}

// Nodes of a graph without loops and conditions; 0: it has some.
size_t flat_nodes(const runtime::KernelImage& image) {
    size_t joins = 0;
    uint32_t last = 0;
    for (const runtime::LoadedTask& t : image.tasks) {
        if (t.again >= 0 || t.gate >= 0) return 0;
        if (t.branch == 2 && t.region != last) {
            last = t.region;
            ++joins;
        }
    }
    return image.counted_tasks + joins;
}

PyObject* held(PyObject*, PyObject*) { return PyLong_FromSize_t(seen.held); }
PyObject* builds(PyObject*, PyObject*) { return PyLong_FromSize_t(seen.builds); }
PyObject* used(PyObject*, PyObject*) { return PyBool_FromLong(seen.used); }
PyObject* nodes(PyObject*, PyObject*) { return PyLong_FromSize_t(seen.nodes); }
PyObject* checkpoints(PyObject*, PyObject*) { return PyLong_FromSize_t(seen.checkpoints); }

}  // namespace

PyMethodDef native_graph_functions[] = {
    {"prog_get_graph_cache_size", entry<held>, METH_NOARGS, "Native graphs of this runtime."},
    {"prog_get_graph_total_builds", entry<builds>, METH_NOARGS, "How many were made."},
    {"prog_get_graph_cache_used_on_last_call", entry<used>, METH_NOARGS, "Whether it was one."},
    {"prog_get_graph_num_nodes_on_last_call", entry<nodes>, METH_NOARGS,
     "Tasks and joins of sections; 0 if there are loops."},
    {"prog_get_graph_num_checkpoints_on_last_call", entry<checkpoints>, METH_NOARGS,
     "Conditions of its checkpoints."},
    {nullptr, nullptr, 0, nullptr},
};

bool note_native_launch(const KernelObject& k, Specialisation& s, const runtime::KernelImage& image,
                        const uint8_t* block) {
    seen.used = false;
    seen.nodes = seen.checkpoints = 0;
    if (!k.is_graph || !are_wanted()) return true;
    if (!s.results.empty()) {
        cpython::set_error("RuntimeError",
                           "graph=True kernels cannot return a value on arch=cuda: kernel " +
                               s.name + " does. Leave out graph=True, or write to an array");
        return false;
    }
    const std::string* host = nullptr;
    try {
        host = host_array(s, block);
    } catch (const support::Error& e) {
        cpython::set_error("QuadrantsRuntimeError", e.what());
        return false;
    }
    if (host) {
        cpython::set_error("RuntimeError",
                           "graph=True kernels take arrays of the device on arch=cuda: argument " +
                               *host + " of kernel " + s.name +
                               " lies on the host. Pass a qd.ndarray or a CUDA tensor");
        return false;
    }
    seen.nodes = flat_nodes(image);
    if (seen.nodes == 1) return seen.nodes = 0, true;  // an ordinary launch
    seen.used = true;
    seen.checkpoints = size_t(std::ranges::count_if(
        image.tasks, [](const runtime::LoadedTask& t) { return t.gate >= 0; }));
    if (s.has_native_graph) return true;
    s.has_native_graph = true;
    ++seen.held;
    ++seen.builds;
    return true;
}

bool has_native_arrays(const KernelObject& k, const Specialisation& s) {
    const bool has_state = s.graph && s.graph->state_offset;  // words of the host
    return k.is_graph && are_wanted() && !has_state;
}

void forget_native_graphs() { seen = {}; }

}  // namespace qd::launcher
