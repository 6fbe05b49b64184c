// Memory of the device. What is given back serves whoever asks next, in the order of the default
// stream: nobody waits, where the driver's own functions take up to milliseconds.

#pragma once

#include <cstddef>

#include "runtime/cuda/driver.h"

namespace qd::runtime::cuda {

// Once the context is there. Without pools in the driver, its plain functions serve.
void make_pool(const Driver& d);
// 256-byte aligned; 0: there is none left. The others, likewise, with a context at hand.
Address take_memory(const Driver& d, size_t bytes);
// Throws support::Error that says what for.
Address must_take_memory(const Driver& d, size_t bytes, const char* what);
void give_back_memory(const Driver& d, Address at);
// What nobody uses goes back to the driver, for other libraries.
void trim_memory(const Driver& d);

// Memory or launches are with others now (exported arrays, streams that are in no order with the
// default one): what is given back waits for all of the device from then on.
void others_take_part();

}  // namespace qd::runtime::cuda
