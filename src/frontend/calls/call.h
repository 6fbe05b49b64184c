// Calls of funcs, shared by call_bind (arguments to parameters), call_key (specialisation keys),
// lower_func (bodies) and call_func (calls). Private to them.

#pragma once

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

// What a specialisation depends on.
Key key_of(const FuncSignature& s, const std::vector<Arg>& args, const Lowering& l);
inline bool is_local_place(const ir::Value* root) {
    return !root->def || root->def->op == ir::Op::slot;
}

}  // namespace qd::frontend
