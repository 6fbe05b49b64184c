// Which values differ between the threads of a subgroup in one iteration each, as far as arithmetic
// shows. What else threads of different ways have seen is another question.

#pragma once

#include <unordered_set>

#include "ir/ir.h"

namespace qd::pass {

class Divergence {
  public:
    // Whether loads from one place give one value: no promise, since others may write.
    Divergence(ir::Function& task, bool loads_agree);
    bool differs(const ir::Value* v) const { return differs_.contains(v); }

  private:
    bool flow(ir::Region& r);
    bool flow(ir::Inst& i);
    bool loop(ir::Inst& i);
    bool note(const ir::Value* v, bool yes);
    bool is_source(const ir::Inst& i) const;

    const bool loads_agree_;
    std::unordered_set<const ir::Value*> differs_;
};

}  // namespace qd::pass
