// See session.h.

#include "session/session.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "cpython/cpython.h"
#include "support/clock.h"

namespace qd::session {

TheSession the_session;

namespace {

thread_local int work_of_this_thread = 0;
std::vector<ResetHook> hooks;

}  // namespace

uint64_t PythonThreads::this_thread() { return static_cast<uint64_t>(PyThread_get_thread_ident()); }
int PythonThreads::my_work() { return work_of_this_thread; }
void PythonThreads::add_to_my_work(int n) { work_of_this_thread += n; }
int64_t PythonThreads::now_ns() { return support::now_ns(); }
bool PythonThreads::slice_is_over(int64_t began_ns) { return now_ns() - began_ns >= kSliceNs; }
void PythonThreads::doze(int64_t) {
    const Waiting waiting;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
bool PythonThreads::interrupted() { return PyErr_CheckSignals() != 0; }
void PythonThreads::give_gil_away() { PyEval_SaveThread(); }
void PythonThreads::sleep_for_ever() {
    for (;;) pause();
}
bool PythonThreads::interpreter_ends() { return session().door.interpreter_ends(); }

bool interpreter_ends() { return PythonThreads::interpreter_ends(); }

Waiting::Waiting() : state_(PyEval_SaveThread()) {}
Waiting::~Waiting() {
    session().door.before_gil();
    PyEval_RestoreThread(state_);
}

PyThreadState* Released::give_gil() {
    if (work_of_this_thread) session().door.native_begins();
    return PyEval_SaveThread();
}

void Released::take_gil(PyThreadState* state) {
    session().door.before_gil();
    PyEval_RestoreThread(state);
    if (work_of_this_thread) session().door.native_ends();
}

bool Released::handler_raises() {
    take_gil(state_);
    const bool raises = PyErr_CheckSignals() != 0;
    state_ = give_gil();
    return raises;
}

void on_reset(ResetHook hook) { hooks.push_back(hook); }

void run_reset_hooks() {
    for (ResetHook hook : hooks) hook();
}

bool require_session() {
    if (session().generation) return true;
    cpython::set_error(
        "QuadrantsRuntimeError",
        "_prog attribute not initialized. Maybe you forgot to call `qd.init()` first?");
    return false;
}

}  // namespace qd::session
