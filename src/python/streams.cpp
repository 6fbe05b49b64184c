// Streams and events of the device in use: numbers, 0 where a device has none.

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/storage.h"
#include "python/areas.h"
#include "runtime/device.h"
#include "session/session.h"
#include "support/error.h"

namespace qd::python {
namespace {

using namespace session;
using cpython::entry;
using cpython::set_error;
using runtime::Queues;

// Null with `failed` unset: the device has no queues, and there is nothing to do.
const Queues* queues(bool& failed) {
    failed = !require_session();
    return failed ? nullptr : session::session().device->queues;
}

// What is done with numbers of the driver's; false with an exception set.
template <typename Work>
bool done(Work work) {
    try {
        work();
        return true;
    } catch (const support::Error& e) {
        set_error("QuadrantsRuntimeError", e.what());
        return false;
    }
}

PyObject* made(uint64_t (*Queues::*make)()) {
    bool failed;
    const Queues* q = queues(failed);
    if (failed) return nullptr;
    uint64_t handle = 0;
    if (q && !done([&] { handle = (q->*make)(); })) return nullptr;
    return PyLong_FromUnsignedLongLong(handle);
}

PyObject* waited(PyObject* number, runtime::Wait (*Queues::*wait)(uint64_t, int64_t)) {
    bool failed;
    const Queues* q = queues(failed);
    if (failed) return nullptr;
    const uint64_t handle = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    if (!q) Py_RETURN_NONE;
    return wait_for_device([&](int64_t most_ns) { return (q->*wait)(handle, most_ns); });
}

PyObject* stream_new(PyObject*, PyObject*) { return made(&Queues::new_stream); }
PyObject* event_new(PyObject*, PyObject*) { return made(&Queues::new_event); }
PyObject* stream_wait(PyObject*, PyObject* n) { return waited(n, &Queues::wait_for_stream); }
PyObject* event_wait(PyObject*, PyObject* n) { return waited(n, &Queues::wait_for_event); }

// After a reset, too.
PyObject* destroyed(PyObject* number, void (*Queues::*destroy)(uint64_t)) {
    const uint64_t handle = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    {
        const Released released;  // it waits for work in flight
        (runtime::cuda_device.queues->*destroy)(handle);
    }
    Py_RETURN_NONE;
}
PyObject* stream_destroy(PyObject*, PyObject* n) { return destroyed(n, &Queues::destroy_stream); }
PyObject* event_destroy(PyObject*, PyObject* n) { return destroyed(n, &Queues::destroy_event); }

// Of two numbers.
PyObject* joined(PyObject* const* args, Py_ssize_t count,
                 void (*Queues::*work)(uint64_t, uint64_t)) {
    bool failed;
    const Queues* q = queues(failed);
    if (failed) return nullptr;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "takes two handles");
    const uint64_t a = PyLong_AsUnsignedLongLong(args[0]), b = PyLong_AsUnsignedLongLong(args[1]);
    if (PyErr_Occurred()) return nullptr;
    if (q && !done([&] { (q->*work)(a, b); })) return nullptr;
    Py_RETURN_NONE;
}
PyObject* event_record(PyObject*, PyObject* const* args, Py_ssize_t count) {
    return joined(args, count, &Queues::record);
}
PyObject* stream_let_wait(PyObject*, PyObject* const* args, Py_ssize_t count) {
    return joined(args, count, &Queues::let_wait);
}

PyMethodDef methods[] = {
    {"stream_new", entry<stream_new>, METH_NOARGS, "A stream's handle; 0 where there are none."},
    {"stream_destroy", entry<stream_destroy>, METH_O,
     "Waits for one that stream_new made, and ends it."},
    {"stream_wait", entry<stream_wait>, METH_O, "Until what was put onto it is over."},
    {"stream_let_wait", entry<stream_let_wait>, METH_FASTCALL,
     "Later work of a stream waits for an event."},
    {"event_new", entry<event_new>, METH_NOARGS, "An event's handle; 0 where there are none."},
    {"event_destroy", entry<event_destroy>, METH_O,
     "Waits for one that event_new made, and ends it."},
    {"event_wait", entry<event_wait>, METH_O, "Until it has come."},
    {"event_record", entry<event_record>, METH_FASTCALL,
     "The event is the end of the stream as it is now."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* wait_for_device(const std::function<runtime::Wait(int64_t most_ns)>& wait) {
    constexpr int64_t kSignalsNs = 5000000;  // between looks at them
    runtime::Wait now{.over = false, .problem = {}};
    while (!now.over) {
        {
            const Released released;
            now = wait(kSignalsNs);
        }
        if (now.over || PyErr_CheckSignals() == 0) continue;
        session::session().device->give_up();
        return nullptr;
    }
    if (now.problem.empty()) Py_RETURN_NONE;
    return data::raise_problem(now), nullptr;
}

bool add_streams(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace qd::python
