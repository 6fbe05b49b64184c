#include "pass/passes.h"
namespace qd::pass {
#define S(n) bool n(Session&, ir::Function&){return false;}
S(inline_calls) S(store_forward) S(licm) S(contract) S(debug_checks)
#undef S
}
