// Reports of native crashes, for debug mode: signal, kernel, native stack, and gdb if it is wanted.

#pragma once

namespace qd::runtime {

// From now on a crash writes a report to file descriptor 2 before the process ends as it would
// have. Main thread only.
void report_crashes(bool attach_gdb);
void forget_crashes();

// The kernel that crashes are blamed on: static storage duration is the caller's business.
void set_running_kernel(const char* name);

}  // namespace qd::runtime
