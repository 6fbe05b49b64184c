// One function for many numbers, on several threads at once.

#pragma once

#include <cstddef>

namespace qd::compiler {

// body(data, k) for every k below `count`, in this order as far as each thread sees: on the
// caller's thread and on up to `threads` - 1 more, which have stacks no smaller than the caller's
// and have ended when this returns. Nothing may be thrown. False from a body: no other begins.
void for_each(size_t count, int threads, bool (*body)(void* data, size_t k), void* data);

template <class Body>
void for_each(size_t count, int threads, Body body) {
    for_each(count, threads, [](void* f, size_t k) { return (*static_cast<Body*>(f))(k); }, &body);
}

}  // namespace qd::compiler
