// Whether a call of Python's or NumPy's wrote to memory that its operands have.
//
// Names do not tell: `np.add(a, 1, a)`, `a.T.fill(0)`, `a.clip(0, 1, a)`. So the bytes of what lets
// them be written (arrays, views, bytearrays) are hashed before and behind the call.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpython/cpython.h"

namespace qd::frontend {

class WrittenMemory {
  public:
    // `callable` has memory if it is a method of an array. Holds nothing that locks the memory.
    WrittenMemory(PyObject* callable, std::span<const cpython::Ref> operands);
    bool changed() const;

  private:
    struct Part {
        cpython::Ref object;
        uint64_t hash;
    };
    void add(PyObject* o);

    std::vector<Part> parts_;
};

}  // namespace qd::frontend
