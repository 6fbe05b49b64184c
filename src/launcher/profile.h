// Times of tasks, for qd.profiler.

#pragma once

#include <span>

#include "launcher/kernel.h"
#include "runtime/cpu/kernel.h"

namespace qd::launcher {

bool add_profile(PyObject* module);  // what qd.profiler asks
// Notes what a launch took, task by task. Under the GIL.
void record_times(const Specialisation& s, std::span<const runtime::TaskTime> times);
// Tells the trace file of them.
void trace_tasks(const Specialisation& s, std::span<const runtime::TaskTime> times);

}  // namespace qd::launcher
