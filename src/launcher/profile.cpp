// See profile.h. Records are kept in order of launch until they are cleared or the runtime is
// reset.

#include "launcher/profile.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "cpython/entry.h"
#include "frontend/frontend.h"
#include "runtime/trace_file.h"
#include "session/session.h"

namespace qd::launcher {
namespace {

using cpython::entry;
using cpython::Ref;

struct Record {
    uint32_t name;
    int64_t began_ns, ns;
};

std::vector<std::string> names;
std::unordered_map<std::string, uint32_t> numbers;  // of names
std::vector<Record> records;

void clear_records() {
    names.clear();
    numbers.clear();
    records.clear();
}

std::string task_name(const Specialisation& s, const runtime::LoadedTask& task, uint32_t number) {
    const std::string digits = std::to_string(number);
    const bool range = task.kind == abi::TaskKind::range;
    std::string out = s.name + "_kernel_" + digits + "_";
    if (task.name != (range ? "range" : "serial") + digits) out += std::string(task.name) + "_";
    return out + (range ? "range_for" : "serial");
}

// [(name of the task, milliseconds), ...]
PyObject* profile_records(PyObject*, PyObject*) {
    const Ref list = Ref::steal_or_null(PyList_New(0));
    if (!list) return nullptr;
    for (const Record& r : records) {
        const Ref row = Ref::steal_or_null(
            Py_BuildValue("(sd)", names[r.name].c_str(), static_cast<double>(r.ns) / 1e6));
        if (!row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
    }
    return Py_NewRef(list.get());
}

// The same in Chrome's trace format.
PyObject* profile_timeline(PyObject*, PyObject*) {
    std::string text = "[";
    for (const Record& r : records) {
        text += text.size() > 1 ? ",\n" : "\n";
        text += runtime::trace_event("kernel", names[r.name], "", r.began_ns, r.ns);
    }
    text += "\n]\n";
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

PyObject* profile_clear(PyObject*, PyObject*) {
    clear_records();
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"profile_records", entry<profile_records>, METH_NOARGS,
     "Times of all runs of tasks, in order."},
    {"profile_timeline", entry<profile_timeline>, METH_NOARGS,
     "The same in Chrome's trace format."},
    {"profile_clear", entry<profile_clear>, METH_NOARGS, "Forgets all times."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void record_times(const Specialisation& s, std::span<const runtime::TaskTime> times) {
    const auto image = s.slot->current();
    for (const runtime::TaskTime& t : times) {
        if (t.task >= image->tasks.size()) continue;
        const std::string name = task_name(s, image->tasks[t.task], t.task);
        auto at = numbers.find(name);
        if (at == numbers.end()) {
            names.push_back(name);
            at = numbers.emplace(name, static_cast<uint32_t>(names.size() - 1)).first;
        }
        records.push_back({at->second, t.began_ns, t.ns});
    }
}

void trace_tasks(const Specialisation& s, std::span<const runtime::TaskTime> times) {
    if (times.empty()) return;
    const auto image = s.slot->current();
    for (const runtime::TaskTime& t : times)
        if (t.task < image->tasks.size())
            runtime::trace_run("task", task_name(s, image->tasks[t.task], t.task), t.began_ns,
                               t.ns);
}

bool add_profile(PyObject* module) {
    on_reset(clear_records);
    return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace qd::launcher
