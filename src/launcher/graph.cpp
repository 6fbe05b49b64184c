// Graph kernels on the Python side: labels of checkpoints, resuming at one, and the tables that
// programs look at.

#include <cstring>
#include <utility>

#include "cpython/entry.h"
#include "launcher/kernel.h"

namespace qd::launcher {
namespace {

using frontend::GraphTable;

// The launch that this thread resumes; other threads may launch the same kernel meanwhile.
struct Resume {
    const KernelObject* kernel;
    PyObject* label;
};
thread_local Resume resuming{};

int32_t* words_of(const GraphFace& graph, uint8_t* block) {
    return reinterpret_cast<int32_t*>(block + graph.state_offset);
}

// A name of quadrants.lang.graph.
Ref from_module(const char* name) {
    const Ref module = Ref::steal_or_null(PyImport_ImportModule("quadrants.lang.graph"));
    return Ref::steal_or_null(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
}

bool is_label(PyObject* o) { return PyLong_Check(o) && !PyBool_Check(o); }

// Position of a checkpoint in the source; -1 with an exception set.
long find_label(const KernelObject& k, const GraphFace& graph, PyObject* label) {
    for (size_t n = 0; n < graph.labels.size(); ++n) {
        PyObject* known = graph.labels[n].get();
        if (known == Py_None) continue;
        const int equal = PyObject_RichCompareBool(known, label, Py_EQ);
        if (equal < 0) return -1;
        if (equal) return static_cast<long>(n);
    }
    const Ref known = Ref::steal_or_null(PyList_New(0));
    for (const Ref& l : graph.labels)
        if (known && l.get() != Py_None && PyList_Append(known.get(), l.get()) < 0) return -1;
    const Ref name = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "__name__"));
    if (known && name)
        PyErr_Format(PyExc_RuntimeError,
                     "from_checkpoint=%R does not match any qd.checkpoint(cp_id=...) in kernel %R; "
                     "its labels: %R",
                     label, name.get(), known.get());
    return -1;
}

// launch_resume(kernel, args, kwargs, label)
PyObject* launch_resume(PyObject*, PyObject* arguments) {
    PyObject *object, *args, *kwargs, *label;
    if (!PyArg_ParseTuple(arguments, "OO!O!O", &object, &PyTuple_Type, &args, &PyDict_Type, &kwargs,
                          &label))
        return nullptr;
    auto* k = reinterpret_cast<KernelObject*>(object);
    if (!is_label(label))
        return PyErr_Format(PyExc_RuntimeError,
                            "from_checkpoint= must be an int or IntEnum value, a label of a "
                            "qd.checkpoint(cp_id=...) in the kernel (status.checkpoint of the "
                            "launch before); got %R",
                            label);
    const Ref can = Ref::steal_or_null(PyObject_GetAttrString(k->definition, "checkpoints"));
    if (!can) return nullptr;
    if (can.get() != Py_True) {
        set_error("QuadrantsSyntaxError",
                  "Unexpected argument 'from_checkpoint': it is only valid for kernels with "
                  "qd.checkpoint(...) blocks: @qd.kernel(graph=True, checkpoints=True)");
        return nullptr;
    }
    const Resume before = std::exchange(resuming, {k, label});
    PyObject* r = PyObject_Call(object, args, kwargs);
    resuming = before;
    return r;
}

PyObject* last_yielded(PyObject*, PyObject*) { return PyLong_FromLong(yield_of_last_call); }

}  // namespace

long yield_of_last_call = -1;

PyMethodDef graph_functions[] = {
    {"launch_resume", entry<launch_resume>, METH_VARARGS,
     "Launches a kernel from a checkpoint on."},
    {"prog_get_graph_last_yield_cp_id_on_last_call", entry<last_yielded>, METH_NOARGS,
     "The checkpoint that ended the last launch, counted in the source; -1: none."},
    {nullptr, nullptr, 0, nullptr},
};

bool make_graph_face(Specialisation& s, PyObject* definition, const GraphTable& table) {
    const PackStep* state = nullptr;
    for (const PackStep& step : s.steps)
        if (step.kind == PackStep::Kind::graph_state) state = &step;
    if (!state && table.levels.empty()) return true;
    s.graph = std::make_unique<GraphFace>();
    s.graph->table = table;
    for (const GraphTable::Checkpoint& c : table.checkpoints) {
        Ref label = Ref::borrow(Py_None);
        if (!c.label.empty()) {
            const Ref resolve = from_module("_resolve_label");
            if (!resolve) return false;
            label = Ref::steal_or_null(
                PyObject_CallFunction(resolve.get(), "Os", definition, c.label.c_str()));
            if (!label) return false;
            s.graph->named = true;
        }
        s.graph->labels.push_back(std::move(label));
    }
    if (state) {
        s.args_bytes = (s.args_bytes + 7) & ~7u;
        s.graph->state_offset = s.args_bytes;
        s.args_bytes += sizeof(int32_t) * static_cast<uint32_t>(s.graph->state_words());
    }
    return true;
}

bool begin_graph(const KernelObject& k, const Specialisation& s, uint8_t* block) {
    if (!s.graph->state_offset) return true;
    long first = 0;
    if (resuming.kernel == &k && (first = find_label(k, *s.graph, resuming.label)) < 0)
        return false;
    int32_t* words = words_of(*s.graph, block);
    words[frontend::kFirstCheckpoint] = static_cast<int32_t>(first);
    words[frontend::kYieldedCheckpoint] = -1;
    return true;
}

PyObject* graph_status(const GraphFace& graph, const uint8_t* block) {
    int32_t words[frontend::kGraphStateWords];
    std::memcpy(words, block + graph.state_offset, sizeof words);
    const long yielded = yield_of_last_call = words[frontend::kYieldedCheckpoint];
    const Ref make = from_module("GraphStatus");
    if (!make) return nullptr;
    PyObject* label = yielded < 0 ? Py_None : graph.labels[static_cast<size_t>(yielded)].get();
    return PyObject_CallFunctionObjArgs(make.get(), yielded < 0 ? Py_False : Py_True, label,
                                        nullptr);
}

// (loops, checkpoints) of the specialisation launched last: lists of (flag, parent) and of
// (label, flag).
Ref graph_tables_of(const Specialisation* s) {
    const Ref levels = Ref::steal_or_null(PyList_New(0));
    const Ref checkpoints = Ref::steal_or_null(PyList_New(0));
    if (!levels || !checkpoints) return {};
    if (s && s->graph) {
        const GraphFace& graph = *s->graph;
        for (const GraphTable::Level& l : graph.table.levels) {
            const Ref row = Ref::steal_or_null(Py_BuildValue("(si)", l.flag.c_str(), l.parent));
            if (!row || PyList_Append(levels.get(), row.get()) < 0) return {};
        }
        for (size_t n = 0; n < graph.labels.size(); ++n) {
            const std::string& flag = graph.table.checkpoints[n].flag;
            const Ref row = Ref::steal_or_null(Py_BuildValue(
                "(Oz)", graph.labels[n].get(), flag.empty() ? nullptr : flag.c_str()));
            if (!row || PyList_Append(checkpoints.get(), row.get()) < 0) return {};
        }
    }
    return Ref::steal_or_null(Py_BuildValue("(OO)", levels.get(), checkpoints.get()));
}

PyObject* graph_tables(PyObject* kernel, void*) {
    const auto& all = *reinterpret_cast<KernelObject*>(kernel)->specialisations;
    const Ref out = graph_tables_of(all.empty() ? nullptr : all[0].get());
    return out ? Py_NewRef(out.get()) : nullptr;
}

}  // namespace qd::launcher
