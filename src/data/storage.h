// Memory of fields and ndarrays, numbers in it, and its export to NumPy and torch.
//
// A Storage is counted: the container, and every exported view or capsule, holds it. Counting is
// atomic because a consumer may drop a capsule on any thread, without the GIL.

#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "type/type.h"

namespace qd::data {

struct Storage {
    std::atomic<int> holders{1};
    bool on_host = false;  // the host may use its memory without asking the device
    const runtime::Device* device = nullptr;
    runtime::Memory memory;
    uint64_t made = 0;  // how many launches had run without the GIL before
    // Once its last holder went, while launches run that began before: how many had begun by then.
    uint64_t gone = 0;
    Storage* next = nullptr;  // that waits for their end
};
// On the session's device, zeroed. `margin` bytes on either side belong to it too. `sparse`: little
// of it will be used. Null with a Python RuntimeError set.
Storage* allocate_storage(size_t bytes, size_t margin = 0, bool sparse = false);
inline Storage* hold(Storage* s) { return s->holders.fetch_add(1, std::memory_order_relaxed), s; }
void drop(Storage* s);
// Before the host gets a pointer to keep. False with a ValueError set: it cannot have one.
bool expose(Storage& s);

// A launch that runs without the GIL: meanwhile other threads may let go of what it works on.
// Memory that was there when it began is freed after it has ended.
class OpenLaunch {
  public:
    void begin();  // with the GIL, before it is released; once
    OpenLaunch() = default;
    ~OpenLaunch() {
        if (number_) end();
    }
    OpenLaunch(const OpenLaunch&) = delete;
    static void in_forked_child();           // only this thread's launches go on
    static bool any_uses(const Storage& s);  // that nobody holds any more; under the list's lock

  private:
    void end();
    bool uses(const Storage& s) const;

    uint64_t number_ = 0;
    std::thread::id thread_;
    OpenLaunch* next_ = nullptr;
};

uint64_t storages_made();  // since the process began; changes under the GIL
uint64_t storages_freed();

// Memory of fields that others were given a view of: an array argument of a kernel may then be such
// a view. Forgotten at reset. Touched under the GIL.
void share_field(const Storage* s);
bool any_field_shared();
bool in_shared_field(uintptr_t begin, uintptr_t end);

// One number. `read_number` follows the host's rules: integers take integers and wrap, u1 becomes
// 0 or 1, floats take both; false with a TypeError set.
PyObject* load_number(type::Prim p, const char* at);
bool read_number(type::Prim p, PyObject* value, uint64_t& bits);

// Sets an exception that says why memory could not be read; null.
PyObject* raise_failure(const runtime::Device& device);
void raise_problem(const runtime::Wait& w);

// One number in a storage.
PyObject* load_far_element(const Storage& s, type::Prim p, const char* at);
inline PyObject* load_element(const Storage& s, type::Prim p, const char* at) {
    return s.on_host ? load_number(p, at) : load_far_element(s, p, at);
}
inline void store_element(const Storage& s, type::Prim p, char* at, uint64_t bits) {
    const auto bytes = static_cast<size_t>(type::bytes(p));
    s.on_host ? (void)std::memcpy(at, &bits, bytes) : s.device->write(at, &bits, bytes);
}

// A strided window into storage: shape and strides in elements' axes, strides in bytes.
struct Window {
    Storage* storage = nullptr;  // borrowed
    char* data = nullptr;
    type::Prim prim = type::Prim::none;
    std::vector<Py_ssize_t> shape, strides;

    size_t count() const;
    size_t span() const;      // bytes from its first to its last
    bool is_compact() const;  // nothing of others between its elements
};
// An object with the buffer protocol that keeps the storage alive (view.cpp).
PyObject* make_view(const Window& w);
// Elements of NumPy's arrays, `from` in this shape unless it is None. One is over this view: `to`
// if it writes. While launches wait; gives up the GIL. False with an exception set.
bool copy_elements(PyObject* to, PyObject* from, PyObject* shape, PyObject* view, bool writes);
// A DLPack capsule, `dltensor` or `dltensor_versioned`.
PyObject* make_capsule(const Window& w, bool versioned);

// An index as Python sees it: int or anything with __index__. False with a TypeError set.
bool read_index(PyObject* o, int64_t& out);
// An integer, also as an array of no dimensions; or what has no elements in order. False, too, with
// an exception of the object's own, which is no TypeError.
bool is_one_index(PyObject* key);

bool add_storage_types();           // called by add_field
bool add_view_type();               // view.cpp
bool add_tensor(PyObject* module);  // tensor.cpp; called by add_ndarray

}  // namespace qd::data
