// Calls of funcs, shared by call_bind (arguments to parameters), call_key (specialisation keys),
// lower_func (bodies) and call_func (calls). Private to them.

#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "frontend/body/body.h"
#include "frontend/calls/calls.h"
#include "frontend/facts/signature.h"

namespace qd::frontend {

std::vector<Val> bind_arguments(const FuncSignature& s, const TracedArgs& args);

Ref attribute_of(PyObject* o, PyObject* name);  // raises if there is none

// How a parameter reaches the body.
enum class Mode : uint8_t { constant, value, reference };
struct Arg {
    Mode mode = Mode::constant;
    Val v;
    bool flattened = false;
};

// Decides by the annotation how an argument is passed; converts it where the annotation says so.
Arg classify(const Param& p, Val v, bool is_real);

struct Key {
    std::string bytes;
    std::vector<Ref> constants;
    void word(uint64_t w) { bytes.append(reinterpret_cast<const char*>(&w), sizeof w); }
    void tag(char c) { bytes += c; }
    void object(PyObject* o) {
        word(reinterpret_cast<uintptr_t>(o));
        constants.push_back(Ref::borrow(o));
    }
};

inline bool is_local_place(const ir::Value* root) {
    return !root->def || root->def->op == ir::Op::slot;
}
// The whole variable of which it is a part.
inline Ref root_place(const ExprObject* e) {
    auto* root = const_cast<ir::Value*>(ir::root_of_place(e->value()));
    return make_place(root, ExprKind::variable, false, false);
}

// What a specialisation depends on.
Key key_of(const FuncSignature& s, const std::vector<Arg>& args, const Lowering& l);
// Variables of the caller that several references lead to. A real function has one copy of each for
// all of them; other funcs are expanded in place instead.
struct SharedVariables {
    std::vector<const ir::Value*> roots;

    SharedVariables(const FuncSignature& s, const std::vector<Arg>& args);
    int number(const ir::Value* root) const {  // -1: of one reference alone
        const auto at = std::ranges::find(roots, root);
        return at == roots.end() ? -1 : static_cast<int>(at - roots.begin());
    }
};

}  // namespace qd::frontend
