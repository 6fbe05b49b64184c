// The parameters of a func, as its definition has them.

#pragma once

#include <vector>

#include "frontend/frontend.h"

namespace qd::frontend {

struct Param {
    Ref name, annotation, default_value;
    bool has_default = false;
};
struct FuncSignature {
    Ref definition, fn, returns;
    std::vector<Param> params;
    bool is_real = false, top_level_only = false;
};

// Read once per definition.
const FuncSignature& signature_of(PyObject* definition);

}  // namespace qd::frontend
