// Native graphs as programs see them: kernels with graph=True on a device that has such. (Which
// launches are replayed as a graph of the driver's is the runtime's own business.)

#pragma once

#include "launcher/kernel.h"
#include "runtime/cpu/kernel.h"

namespace qd::launcher {

extern PyMethodDef native_graph_functions[];

// Before a launch on such a device. False with an exception set: a graph kernel has arrays of the
// host or returns something.
bool note_native_launch(const KernelObject& k, Specialisation& s, const runtime::KernelImage& image,
                        const uint8_t* block);
// Whether such a launch has let all its arrays pass: none is to be copied.
bool has_native_arrays(const KernelObject& k, const Specialisation& s);

}  // namespace qd::launcher
