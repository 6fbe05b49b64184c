// Memory of fields and ndarrays, numbers in it, and its export to NumPy and torch.
//
// A Storage is counted: the container, and every exported view or capsule, holds it. Counting is
// atomic because a consumer may drop a capsule on any thread, without the GIL.

#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "type/type.h"

namespace qd::data {

struct Storage {
    std::atomic<int> holders{1};
    char* data = nullptr;  // 64-byte aligned, zeroed
    size_t bytes = 0;
    void* raw = nullptr;
    uint64_t made = 0;  // how many launches had run without the GIL before
};
// `margin` bytes on either side belong to it too. Null with a Python RuntimeError set.
Storage* allocate_storage(size_t bytes, size_t margin = 0);
inline Storage* hold(Storage* s) { return s->holders.fetch_add(1, std::memory_order_relaxed), s; }
void drop(Storage* s);

// A launch that runs without the GIL: meanwhile other threads may let go of what it works on.
// Memory that was there when it began is freed after it has ended.
class OpenLaunch {
  public:
    void begin();  // with the GIL, before it is released; once
    ~OpenLaunch() {
        if (number_) end();
    }
    static void in_forked_child();  // only this thread's launches go on

  private:
    void end();
    uint64_t number_ = 0;
};

uint64_t storages_made();  // since the process began; changes under the GIL

// Memory of fields that others were given a view of: an array argument of a kernel may then be such
// a view. Forgotten at reset. Touched under the GIL.
void share_field(const Storage* s);
bool any_field_shared();
bool in_shared_field(uintptr_t begin, uintptr_t end);

// One number. `read_number` follows the host's rules: integers take integers and wrap, u1 becomes
// 0 or 1, floats take both; false with a TypeError set.
PyObject* load_number(type::Prim p, const char* at);
bool read_number(type::Prim p, PyObject* value, uint64_t& bits);

// A strided window into storage: shape and strides in elements' axes, strides in bytes.
struct Window {
    Storage* storage = nullptr;  // borrowed
    char* data = nullptr;
    type::Prim prim = type::Prim::none;
    std::vector<Py_ssize_t> shape, strides;
};
// An object with the buffer protocol that keeps the storage alive.
PyObject* make_view(const Window& w);
// A DLPack capsule, `dltensor` or `dltensor_versioned`.
PyObject* make_capsule(const Window& w, bool versioned);

// An index as Python sees it: int or anything with __index__. False with a TypeError set.
bool read_index(PyObject* o, int64_t& out);

bool add_storage_types();           // called by add_field
bool add_tensor(PyObject* module);  // tensor.cpp; called by add_ndarray

}  // namespace qd::data
