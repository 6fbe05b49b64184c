// Errors: where they are in the source, and what becomes of C++ and Python exceptions that leave a
// body.

#pragma once

#include <string>

#include "frontend/frontend.h"
#include "frontend/source/ast.h"

namespace qd::frontend {

[[noreturn]] void raise_at(const Node* n, Kind kind, std::string message, std::string hint = {});
Ref constant_repr(PyObject* o);  // repr, with ints of any length and the bits of NaNs in it
// Remembers where an exception passed: called once per Body while it unwinds.
void add_frame(Lowering& l);
std::string source_text(const FunctionSource& s, const Node* n);  // the code of one node
void begin_errors(const ir::Options& options);
bool shows_full_tracebacks();  // print_full_traceback, of those
// A Python exception that leaves this scope is about an argument: it reaches the caller as it is.
struct ArgumentErrors {
    ArgumentErrors() = default;
    ArgumentErrors(const ArgumentErrors&) = delete;
    ~ArgumentErrors();
};
[[noreturn]] void raise_undefined(PyObject* name, PyObject* function, PyObject* locals,
                                  PyObject* cells);  // of an unknown name
void forget_failure();  // the Python exception and the frames that were noted for it
void raise_python();    // turns the C++ exception in flight into a Python exception

}  // namespace qd::frontend
