// See written_memory.h.

#include "frontend/facts/written_memory.h"

#include <optional>

#include <xxhash.h>

#include "frontend/facts/callables.h"

namespace qd::frontend {
namespace {

// Of all its bytes; nothing for what has none, or does not let them be written.
std::optional<uint64_t> hash_of_memory(PyObject* o) {
    Py_buffer view;
    if (!PyObject_CheckBuffer(o)) return {};
    if (PyObject_GetBuffer(o, &view, PyBUF_STRIDES) < 0)
        return cpython::forget_error(), std::nullopt;
    std::optional<uint64_t> hash;
    if (!view.readonly && PyBuffer_IsContiguous(&view, 'A')) {
        hash = XXH3_64bits(view.buf, static_cast<size_t>(view.len));
    } else if (!view.readonly) {
        std::vector<uint8_t> bytes(static_cast<size_t>(view.len));
        if (PyBuffer_ToContiguous(bytes.data(), &view, view.len, 'C') == 0)
            hash = XXH3_64bits(bytes.data(), bytes.size());
        else
            cpython::forget_error();
    }
    PyBuffer_Release(&view);
    return hash;
}

}  // namespace

WrittenMemory::WrittenMemory(PyObject* callable, std::span<const cpython::Ref> operands) {
    if (PyObject* self = owner_of(callable)) add(self);
    for (const cpython::Ref& o : operands) {
        add(o.get());
        for (Py_ssize_t k = 0; PyTuple_CheckExact(o.get()) && k < PyTuple_GET_SIZE(o.get()); ++k)
            add(PyTuple_GET_ITEM(o.get(), k));
    }
}

void WrittenMemory::add(PyObject* o) {
    if (const auto hash = hash_of_memory(o)) parts_.push_back({cpython::Ref::borrow(o), *hash});
}

bool WrittenMemory::changed() const {
    for (const Part& p : parts_)
        if (hash_of_memory(p.object.get()) != p.hash) return true;
    return false;
}

}  // namespace qd::frontend
