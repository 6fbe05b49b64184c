// Real functions: their results are known from the annotation before the body is. So calls may
// recurse, and every `return` leaves with the declared values, followed by the variables passed by
// reference.

#include "frontend/calls/entry.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

Ref declared_result(PyObject* annotation, Body& body, std::vector<ir::Type>& types) {
    need_stack();
    const auto leaf = [&](ir::Type t) {
        types.push_back(t);
        // A stand-in that is only counted and retyped at calls.
        return make_value(body.low.b.slot(t));
    };
    if (const auto p = prim_of(annotation)) return leaf(ir::Type::scalar(*p));
    if (const auto t = tensor_type_of(annotation)) {
        need_sizes(*t, "what a real function returns");
        return leaf(t->prim == ir::Prim::none ? t->with(body.low.kernel->options.default_fp) : *t);
    }
    if (is_struct_type(annotation)) {
        Ref members = attribute_of(annotation, names().members_), out = Ref::steal(PyDict_New());
        PyObject *key, *type;
        for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &key, &type);)
            if (PyDict_SetItem(out.get(), key, declared_result(type, body, types).get()) < 0)
                throw PyError{};
        return make_struct(annotation, out.get());
    }
    Ref items = PyTuple_Check(annotation) || PyList_Check(annotation)
                    ? Ref::borrow(annotation)
                    : Ref::steal_or_null(PyObject_GetAttr(annotation, names().__args___));
    forget_error();
    if (!items) raise(Kind::syntax, "Invalid return type annotation: " + text(annotation));
    Ref list = Ref::steal(PySequence_List(items.get()));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k) {
        Ref part = declared_result(PyList_GET_ITEM(list.get(), k), body, types);
        if (PyList_SetItem(list.get(), k, part.release()) < 0) throw PyError{};
    }
    return Ref::steal(PyList_AsTuple(list.get()));
}

// The values that `value` gives for the declared leaves, in their order.
void real_results(PyObject* declared, PyObject* value, Lowering& l, std::vector<ir::Value*>& out) {
    if (is_expr(declared)) {
        const ir::Type want = as_expr(declared)->type().value();
        ir::Value* v = to_value(value);
        if (v->type.rank != want.rank || v->type.n != want.n || v->type.m != want.m)
            raise(Kind::runtime_type, "Return (type=" + type::to_user_string(v->type) +
                                          ") cannot be converted into required type " +
                                          type::to_user_string(want));
        out.push_back(l.b.cast(v, want.prim));
        return;
    }
    if (is_struct(declared)) {
        check_returned_struct(reinterpret_cast<StructObject*>(declared)->type, value);
        PyObject *key, *part, *from = reinterpret_cast<StructObject*>(value)->members;
        for (Py_ssize_t at = 0;
             PyDict_Next(reinterpret_cast<StructObject*>(declared)->members, &at, &key, &part);) {
            real_results(part, PyDict_GetItem(from, key), l, out);
        }
        return;
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(declared);
    if (!PyTuple_Check(value) && !PyList_Check(value))
        raise(Kind::syntax, "The number of returned values is not equal to the return type's (" +
                                std::to_string(n) + ")");
    Ref items = Ref::steal(PySequence_List(value));
    if (PyList_GET_SIZE(items.get()) != n)
        raise(Kind::syntax, "The number of returned values is not equal to the return type's");
    for (Py_ssize_t k = 0; k < n; ++k)
        real_results(PyTuple_GET_ITEM(declared, k), PyList_GET_ITEM(items.get(), k), l, out);
}

void check_stack(ir::Function& f, const ir::Loc* loc) {
    ir::Builder b{&f, f.body, f.body->first, loc};
    ir::Format text;
    text.pieces.push_back(
        {"real function " + f.name + " calls itself too often for the stack of its thread", 0});
    ir::Value* left[] = {b.typed(ir::Op::stack_left, ir::Type::scalar(ir::Prim::u1), {})};
    b.emit(ir::Op::assert_, left, {})->ref = own_format(std::move(text));
}

}  // namespace

void check_real_signature(const FuncSignature& s) {
    for (size_t k = 0; k < s.params.size(); ++k)
        if (is_empty(s.params[k].annotation.get()) &&
            !(k == 0 && text(s.params[k].name.get()) == "self"))
            raise(Kind::syntax, "Quadrants real function parameters must be type annotated");
}

void declare_real_results(Entry& e, Body& body, const FuncSignature& s,
                          std::span<ir::Value* const> slots) {
    if (s.returns.get() != Py_None && !is_empty(s.returns.get()))
        e.result = declared_result(s.returns.get(), body, e.result_types_declared);
    else
        e.result = Ref::borrow(Py_None);
    body.declared = e.result;
    e.function->result_types = e.result_types_declared;
    for (size_t k = 0; k < slots.size(); ++k) {
        e.written.push_back(static_cast<int>(k));
        body.reference_slots.push_back(slots[k]);
        e.function->result_types.push_back(slots[k]->type.value());
    }
    e.function->returns_early = true;
}

// Walks the body of a real function: all its returns have been emitted, and one at the end.
void run_real_body(Entry& e, Body& body, const FuncSignature& s, const std::vector<Val>& params) {
    for (size_t k = 0; k < params.size(); ++k)
        body.declare(s.params[k].name.get(), params[k], Binding::Kind::variable);
    body.parameter_count = params.size();
    const Flow f = body.block(body.source.body);
    if (!e.result_types_declared.empty() && !body.has_return)
        raise(Kind::syntax, "Function has a return type but does not have a return statement");
    e.result = body.declared;
    if (f == Flow::ended) return;
    Lowering& l = body.low;
    std::vector<ir::Value*> out;  // falling off the end: zeros
    for (const ir::Type t : e.result_types_declared)
        out.push_back(l.b.splat(l.b.int_const(t.prim, 0), t));
    for (ir::Value* slot : body.reference_slots) out.push_back(l.b.load(slot));
    l.b.end(ir::Op::return_, out);
}

void Lowering::Body::emit_real_return() {
    std::vector<ir::Value*> out;
    if (declared.get() != Py_None) {
        if (!result.obj)
            raise(Kind::syntax, "Function has a return type but does not have a return value");
        // A tuple of one type may mean that type alone.
        PyObject* given = result.get();
        if (PyTuple_Check(declared.get()) && PyTuple_GET_SIZE(declared.get()) == 1 &&
            !PyTuple_Check(given) && !PyList_Check(given))
            declared = Ref::borrow(PyTuple_GET_ITEM(declared.get(), 0));
        real_results(declared.get(), result.get(), low, out);
    } else if (result.obj && result.get() != Py_None) {
        raise(Kind::syntax, "A function with a return value must be annotated with a return type");
    }
    for (ir::Value* slot : reference_slots) out.push_back(low.b.load(slot));
    low.b.end(ir::Op::return_, out);
}

// A function that calls itself begins with a look at the stack.
void check_recursion(Entry& e, const ir::Loc* loc) {
    if (!e.recursive) return;
    check_stack(*e.function, loc);
    if (!e.unit->lazy.empty())
        raise(Kind::compilation,
              "A recursive real function cannot read array members of objects; pass the "
              "arrays as arguments");
}

}  // namespace qd::frontend
