// The tables of builtins: one array per file, merged by builtins.cpp.

#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "frontend/values/structs.h"

namespace qd::frontend {

std::span<const Builtin> math_builtins();
std::span<const Builtin> atomic_builtins();
std::span<const Builtin> tensor_builtins();  // Matrix.*, constructors of tensors and structs
std::span<const Builtin> misc_builtins();
std::span<const Builtin> print_builtins();
std::span<const Builtin> simt_builtins();
std::span<const Builtin> tile_builtins();

// The arguments of a call by parameter names: `names` in order, the first `required` of them
// needed.
template <size_t N>
struct Parameters {
    PyObject* value[N] = {};  // null: not given
    PyObject* operator[](size_t k) const { return value[k]; }
};
void bind_parameters(const CallArgs& args, const char* function, const char* const* names,
                     size_t count, size_t required, PyObject** out);

template <size_t N>
Parameters<N> parameters(const CallArgs& args, const char* function, const char* const (&names)[N],
                         size_t required = N) {
    Parameters<N> p;
    bind_parameters(args, function, names, N, required, p.value);
    return p;
}
// The only argument.
PyObject* single(const CallArgs& args, const char* function, const char* name = "x");

inline bool is_static_number(PyObject* o) { return !is_expr(o) && is_number(o); }
Prim prim_argument(PyObject* dtype, const char* function);
int int_argument(PyObject* o, const char* function, const char* name);

}  // namespace qd::frontend
