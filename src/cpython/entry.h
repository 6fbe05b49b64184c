// Entry points: the functions that CPython calls, named in tables of methods, in slots of types and
// in requests for a call back.
//
// A C++ exception that leaves one ends the process: CPython's frames cannot be unwound. So all are
// named as `entry<f>` (tools/check_entries.py), which makes a Python exception of it. It costs no
// instruction where nothing is thrown.

#pragma once

#include <Python.h>

#include <type_traits>

namespace qd::cpython {

// Called inside a handler: the C++ exception that is being handled becomes a Python one. Lack of
// memory is a MemoryError. Needs no memory.
void raise_in_python() noexcept;

template <auto f>
class Entry;

template <class R, class... A, R (*f)(A...)>
class Entry<f> {
    static R call(A... arguments) {
        try {
            return f(arguments...);
        } catch (...) {
            // What frees an object has nobody to tell: something of it is lost.
            if constexpr (!std::is_void_v<R>) {
                raise_in_python();
                if constexpr (std::is_pointer_v<R>)
                    return nullptr;
                else
                    return -1;  // int, Py_ssize_t, Py_hash_t
            }
        }
    }

  public:
    constexpr operator decltype(f)() const { return call; }
    // Tables of methods hold all of them as this; flags say what they are.
    operator PyCFunction() const
        requires(!std::is_same_v<R (*)(A...), PyCFunction>)
    {
        static_assert(
            std::is_same_v<R (*)(A...), PyCFunctionWithKeywords> ||
            std::is_same_v<R (*)(A...), PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t)>);
        return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
    }
    void* untyped() const { return reinterpret_cast<void*>(call); }
};

template <auto f>
inline constexpr Entry<f> entry;

}  // namespace qd::cpython
