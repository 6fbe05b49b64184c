// See names.h.

#include "cpython/names.h"

#include <memory>

#include "cpython/cpython.h"

namespace qd::cpython {

const Names& names() {
    static const Names* all = [] {
        auto n = std::make_unique<Names>();
#define X(name) n->name##_ = Ref::steal(PyUnicode_InternFromString(#name)).release();
        QD_NAMES(X)
#undef X
        return n.release();
    }();
    return *all;
}

}  // namespace qd::cpython
