// Which places may overlap: what store_forward and reduce know about memory.

#pragma once

#include <cstdint>

#include "pass/passes.h"

namespace qd::pass {

inline const ir::Inst* root_of(const ir::Value* place) {
    return ir::root_of_place(const_cast<ir::Value*>(place))->def;
}

// Places of different classes never overlap. A slot is a class of its own, as are each temporary
// (by its offset), each group of fields and each array parameter (arrays.cpp). Where arrays
// overlap, they may be views of fields too, and all are one class.
constexpr uint64_t kUnknownMemory = 15;  // may be of any class but slots
inline uint64_t memory_class(const ir::Value* place, const Session& s) {
    enum : uint64_t { kArrays = 1, kTemps, kPartials, kThread, kShared, kTape = 7 };
    const ir::Inst* d = root_of(place);
    if (!d) return kUnknownMemory;
    switch (ir::info(d->op).root) {
        case ir::Root::field:
            return s.m.arrays_may_overlap ? kArrays : d->field()->alias_group << 3 | 5;
        case ir::Root::slot:
            return reinterpret_cast<uintptr_t>(d);  // aligned: low bits 0
        case ir::Root::temp:
            return d->imm << 3 | kTemps;
        case ir::Root::partial:
            return kPartials;
        case ir::Root::thread:
            return kThread;
        case ir::Root::tape:
            return kTape;
        case ir::Root::shared:
            return kShared;
        case ir::Root::array:
            return s.m.arrays_may_overlap ? kArrays : uint64_t{s.arrays.of(d->operand(0))} << 3 | 6;
        case ir::Root::none:
            break;
    }
    return kUnknownMemory;
}
inline bool is_local_class(uint64_t c) { return (c & 7) == 0; }

}  // namespace qd::pass
