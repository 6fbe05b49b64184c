// Python's own functions on symbolic values, compile-time statements, hints, clocks and thread
// numbers; and the names that this build knows but cannot do.

#include <algorithm>

#include "frontend/specialise.h"
#include "frontend/values/builtins.h"
#include "frontend/values/structs.h"

namespace qd::frontend {
namespace {

Ref none() { return Ref::borrow(Py_None); }

// --- Python's own -------------------------------------------------------------------------------
// Calls the function of module `builtins` itself.
Ref python_call(const char* name, const CallArgs& a) {
    const Ref function = Ref::borrow(PyDict_GetItemString(PyEval_GetBuiltins(), name));
    const Ref args = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(a.positional.size())));
    for (size_t k = 0; k < a.positional.size(); ++k)
        PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(k), Py_NewRef(a.positional[k].get()));
    const Ref kwargs = Ref::steal(PyDict_New());
    for (const auto& [key, value] : a.keywords)
        if (PyDict_SetItem(kwargs.get(), key.get(), value.get()) < 0) throw PyError{};
    return Ref::steal(PyObject_Call(function.get(), args.get(), kwargs.get()));
}

Ref length(Lowering&, const CallArgs& a) {
    PyObject* x = single(a, "len");
    if (is_mesh_relation(x)) return attribute(x, interned("size").get());
    const Py_ssize_t n = PyObject_Size(x);
    if (n < 0) throw PyError{};
    return Ref::steal(PyLong_FromSsize_t(n));
}

bool is_symbolic_sequence(PyObject* o) {
    return (PyList_Check(o) || PyTuple_Check(o)) && is_symbolic(o);
}

// any(x), all(x): of a vector, or of the items of a list.
template <bool want_all>
Ref quantifier(Lowering& low, const CallArgs& a) {
    const char* name = want_all ? "all" : "any";
    PyObject* x = single(a, name);
    if (is_expr(x)) return call_builtin(want_all ? "Matrix.all" : "Matrix.any", a);
    if (!is_symbolic_sequence(x)) return python_call(name, a);
    ir::Builder& b = low.b;
    Value* result = b.int_const(Prim::u1, want_all);
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); ++k)
        result = b.op(want_all ? Op::bit_and : Op::bit_or,
                      {result, to_condition(PySequence_Fast_GET_ITEM(x, k), name)});
    return make_value(result);
}

Ref sum(Lowering&, const CallArgs& a) {
    if (a.positional.size() == 1 && a.keywords.empty()) {
        PyObject* x = a.positional[0].get();
        if (is_expr(x)) return call_builtin("Matrix.sum", a);
        if (is_symbolic_sequence(x)) {
            Ref total = Ref::steal(PyLong_FromLong(0));  // of type int: narrow items are widened
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); ++k)
                total = binary(Op::add, total.get(), PySequence_Fast_GET_ITEM(x, k));
            return total;
        }
    }
    return python_call("sum", a);
}

Ref python_round(Lowering&, const CallArgs& a) {
    if (!a.positional.empty() && is_expr(a.positional[0].get())) return call_builtin("round", a);
    return python_call("round", a);
}

Ref python_pow(Lowering&, const CallArgs& a) {
    if (a.positional.size() == 2 && a.keywords.empty())
        return binary(Op::pow, a.positional[0].get(), a.positional[1].get());
    return python_call("pow", a);
}

// --- compile-time statements --------------------------------------------------------------------
Ref static_print(Lowering&, const CallArgs& a) { return python_call("print", a); }

Ref static_assert_(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"cond", "msg"};
    const auto p = parameters(a, "static_assert", names, 1);
    if (is_symbolic(p[0])) raise(Kind::type, "Static assert with non-static condition");
    const int truth = PyObject_IsTrue(p[0]);
    if (truth < 0) throw PyError{};
    if (truth) return none();
    PyErr_SetObject(PyExc_AssertionError, p[1] && p[1] != Py_None ? p[1] : nullptr);
    throw PyError{};
}

// --- hints: promises that this build does not use
// ---------------------------------------------------
bool is_node(PyObject* o) {
    static PyTypeObject* node_class = nullptr;
    PyTypeObject* node = python_class("quadrants.lang.snode", "SNode", node_class);
    return node && PyObject_TypeCheck(o, node);
}

void check_hint(const CallArgs& a, const char* hint, bool takes_nodes) {
    for (const Ref& r : a.positional) {
        PyObject* o = r.get();
        const bool array = is_expr(o) && as_expr(o)->kind == ExprKind::array;
        if (is_field(o) || is_struct_field(o) || array) continue;
        if (takes_nodes && is_node(o)) continue;
        raise(Kind::type, std::string("qd.") + hint + " takes " +
                              (takes_nodes ? "nodes and fields" : "fields") + ", got " +
                              text_of(reinterpret_cast<PyObject*>(Py_TYPE(o))));
    }
}

Ref cache_read_only(Lowering&, const CallArgs& a) {
    check_hint(a, "cache_read_only", false);
    return none();
}

Ref no_activate(Lowering&, const CallArgs& a) {
    check_hint(a, "no_activate", true);
    return none();
}

Ref block_local(Lowering&, const CallArgs& a) {
    check_hint(a, "block_local", false);
    const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang.misc"));
    return Ref::steal(PyObject_CallMethod(module.get(), "_enforce_opt_level", nullptr));
}

Ref assume_in_range(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"val", "base", "low", "high"};
    return Ref::borrow(parameters(a, "assume_in_range", names)[0]);
}
Ref loop_unique(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"val", "covers"};
    return Ref::borrow(parameters(a, "loop_unique", names, 1)[0]);
}

// --- machine
// --------------------------------------------------------------------------------------
void check_no_arguments(const CallArgs& a, const char* name) {
    if (!a.positional.empty() || !a.keywords.empty())
        raise(Kind::type, std::string("qd.") + name + " takes no arguments");
}

Ref thread_index(Lowering& low, const CallArgs& a) {
    check_no_arguments(a, "global_thread_idx");
    return make_value(low.b.typed(Op::thread_index, type::kI32, {}));
}
Ref clock_counter(Lowering& low, const CallArgs& a) {
    check_no_arguments(a, "clock_counter");
    return make_value(low.b.typed(Op::clock, type::kI64, {}));
}
Ref clock_freq_hz(Lowering&, const CallArgs& a) {
    check_no_arguments(a, "clock_freq_hz");
    raise(Kind::compilation,
          "NotImplementedError: clock_freq_hz is not implemented in kernels. Call it outside of "
          "them and pass the number");
}

// Address of a field element, by its canonical indices.
Ref address(Lowering& low, const CallArgs& args) {
    static const char* const names[] = {"f", "indices"};
    const auto p = parameters(args, "get_addr", names);
    const Ref place = subscript(p[0], p[1]);
    if (!is_expr(place.get()) || as_expr(place.get())->kind != ExprKind::element)
        raise(Kind::type, "qd.get_addr takes a field and the indices of one element");
    Value* operands[] = {as_expr(place.get())->value()};
    return make_value(low.b.typed(Op::address, Type::scalar(Prim::u64), operands));
}

// --- indices
// -------------------------------------------------------------------------------------- Extents of
// a field or a node.
std::vector<long long> extents_of(PyObject* o, const char* which) {
    if (!is_field(o) && !is_struct_field(o) && !is_node(o))
        raise(Kind::type, std::string("The ") + which +
                              " argument must be a field or an SNode, got " +
                              text_of(reinterpret_cast<PyObject*>(Py_TYPE(o))));
    const Ref shape = Ref::steal(PyObject_GetAttrString(o, "shape"));
    const Ref list = Ref::steal(PySequence_List(shape.get()));
    std::vector<long long> extents;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k)
        extents.push_back(static_int(PyList_GET_ITEM(list.get(), k)).value());
    return extents;
}

// I scaled by the integer ratio of the extents of `b` to those of `a`, along axes that both have.
Ref rescale_index(Lowering&, const CallArgs& args) {
    static const char* const names[] = {"a", "b", "I"};
    const auto p = parameters(args, "rescale_index", names);
    const std::vector<long long> from = extents_of(p[0], "first"), to = extents_of(p[1], "second");
    std::vector<Ref> items = index_list(p[2]);
    const size_t common = std::min({items.size(), from.size(), to.size()});
    for (size_t k = 0; k < common; ++k) {
        if (from[k] == to[k]) continue;
        const bool grows = to[k] > from[k];
        const Ref ratio =
            Ref::steal(PyLong_FromLongLong(grows ? to[k] / from[k] : from[k] / to[k]));
        items[k] = binary(grows ? Op::mul : Op::floordiv, items[k].get(), ratio.get());
    }
    return make_value(tensor_of_items(items));
}

Ref trace_subscript(Lowering&, const CallArgs& a) {
    if (a.positional.empty()) raise(Kind::type, "subscript() needs a value");
    if (a.positional.size() == 2) return subscript(a.positional[0].get(), a.positional[1].get());
    const Ref index = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(a.positional.size()) - 1));
    for (size_t k = 1; k < a.positional.size(); ++k)
        PyTuple_SET_ITEM(index.get(), static_cast<Py_ssize_t>(k) - 1,
                         Py_NewRef(a.positional[k].get()));
    return subscript(a.positional[0].get(), index.get());
}

// --- buffer views
// ---------------------------------------------------------------------------------
Ref buffer_view(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"arr", "offset", "size"};
    const auto p = parameters(a, "BufferView", names);
    return buffer_view_of(p[0], p[1], p[2]);
}
Ref buffer_view_array(Lowering&, const CallArgs& a) {
    return attribute(single(a, "get_ndarray"), interned("arr").get());
}

Ref mesh_local(Lowering&, const CallArgs& a) {
    check_hint(a, "mesh_local", false);
    return none();
}

Ref mesh_patch_idx(Lowering&, const CallArgs& a) {
    check_no_arguments(a, "mesh_patch_idx");
    return mesh_patch();
}

// --- sparse trees
// ---------------------------------------------------------------------------------
// Indices of any form as a vector of i32; none as ().
Ref index_vector(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"indices", "count", "name"};
    const auto p = parameters(a, "index_vector", names);
    std::vector<Value*> parts;
    for (const Ref& i : index_list(p[0]))
        parts.push_back(index_value(i.get(), static_cast<int>(parts.size())));
    if (const auto count = static_int(p[1]); count != static_cast<long long>(parts.size()))
        raise(Kind::runtime, text_of(p[2]) + " has " + std::to_string(count.value_or(0)) +
                                 " indices. Indexed with " + std::to_string(parts.size()) + ".");
    if (parts.empty()) return Ref::steal(PyTuple_New(0));
    return index_tensor(std::move(parts));
}

void list_leaves(PyObject* o, std::vector<Ref>& out) {
    if (!is_struct(o)) return out.push_back(Ref::borrow(o));
    PyObject *key, *member;
    for (Py_ssize_t at = 0;
         PyDict_Next(reinterpret_cast<StructObject*>(o)->members, &at, &key, &member);)
        list_leaves(member, out);
}

// The k-th member of a struct, those of structs in it counted singly.
Ref struct_leaf(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"val", "k"};
    const auto p = parameters(a, "struct_leaf", names);
    const Ref given = is_host_struct(p[0]) ? struct_of_host(p[0]) : Ref::borrow(p[0]);
    std::vector<Ref> leaves;
    list_leaves(given.get(), leaves);
    const auto k = static_cast<size_t>(static_int(p[1]).value_or(0));
    if (!is_struct(given.get()) || k >= leaves.size())
        raise(Kind::type, "qd.append: the value has not as many members as the node has fields",
              "append a struct with one member for each field");
    return leaves[k];
}

// Gradients alone ask for it; the kernel itself knows nothing of it.
Ref stop_gradients(Lowering& l, const CallArgs& a) {
    PyObject* o = data::unwrap(single(a, "stop_grad"));
    if (!is_field(o))
        raise(Kind::compilation, "qd.stop_grad takes a field, got " + type_name(o),
              "gradients of ndarrays flow unless the kernel's annotation says needs_grad=False");
    const ir::Field* field = bind_field(reinterpret_cast<FieldObject*>(o));
    if (l.kernel->out->derivative) l.b.op(ir::Op::stop_grad, {}, 0, field);
    return Ref::borrow(Py_None);
}

const Builtin kRows[] = {
    {"len", length},
    {"any", quantifier<false>},
    {"all", quantifier<true>},
    {"sum", sum},
    {"python.round", python_round},
    {"python.pow", python_pow},
    {"static_print", static_print},
    {"static_assert", static_assert_},
    {"block_local", block_local},
    {"cache_read_only", cache_read_only},
    {"no_activate", no_activate},
    {"stop_grad", stop_gradients},
    {"assume_in_range", assume_in_range},
    {"loop_unique", loop_unique},
    {"global_thread_idx", thread_index},
    {"clock_counter", clock_counter},
    {"clock_freq_hz", clock_freq_hz},
    {"rescale_index", rescale_index},
    {"BufferView", buffer_view},
    {"BufferView.subview", buffer_view},
    {"BufferView.get_ndarray", buffer_view_array},
    {"subscript", trace_subscript},
    {"get_addr", address},
    {"index_vector", index_vector},
    {"struct_leaf", struct_leaf},
    {"mesh_local", mesh_local},
    {"mesh_patch_idx", mesh_patch_idx},
};

}  // namespace

std::span<const Builtin> misc_builtins() { return kRows; }

}  // namespace qd::frontend
