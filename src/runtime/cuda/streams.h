// Streams and events of an NVIDIA GPU: those that programs make, and those of others that they
// name.
//
// Own streams are "blocking" ones of the driver's: in order with the default stream, where memory
// is read and written, but not with each other. Those of others may be in no order with it.

#pragma once

#include <cstdint>

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace qd::runtime::cuda {

extern const Queues queues;  // device.h

// Under the lock of who puts launches onto streams: work that follows on a stream of somebody
// else's comes after what the default stream has.
void order_behind_default(Handle stream);

// What launches on a stream keep for it goes with it; launch.cpp.
void forget_stream(Handle stream);

}  // namespace qd::runtime::cuda
