// See names.h.

#include "cpython/names.h"

namespace qd::cpython {

const Names& names() {
    static const Names* all = [] {
        auto* n = new Names;
#define X(name) n->name##_ = PyUnicode_InternFromString(#name);
        QD_NAMES(X)
#undef X
        return n;
    }();
    return *all;
}

}  // namespace qd::cpython
