// Assignment, augmented assignment and new variables.
//
// Every store converts to the target's type. `+= -= &= |= ^=` convert their operand to the target's
// type first, and are atomic on targets that other threads may see (fields, arrays, kernel-level
// variables inside a parallel loop); the other augmented operators load, compute and store.

#include <array>
#include <string>

#include "frontend/source/stack.h"
#include "frontend/specialise.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

[[noreturn]] void cannot_assign(Type from, Type to) {
    raise(Kind::type, "cannot assign '" + type::to_user_string(from) + "' to '" +
                          type::to_user_string(to) + "'");
}

void check_precision(const char* verb, Prim to, Prim from) {
    if (to == from || type::promote(to, from) == to) return;
    const ir::Loc* loc = builder().loc;
    notice_here({Notice::Category::log,
                 std::string(verb) + " may lose precision: " + type::info(to).name + " <- " +
                     type::info(from).name,
                 loc ? std::string(loc->file) : "", loc ? static_cast<uint32_t>(loc->line) : 0});
}

Prim literal_prim(PyObject* o) {
    if (PyBool_Check(o)) return Prim::u1;
    if (PyLong_Check(o)) return default_int();
    return PyFloat_Check(o) ? default_float() : to_value(o)->type.prim;  // NumPy's
}

}  // namespace

Value* fit(PyObject* value, Type target, const char* verb) {
    const bool literal = is_number(value);
    Value* v = literal ? to_value_as(value, target.prim) : to_value(value);
    if (v->type.rank &&
        (v->type.rank != target.rank || v->type.n != target.n || v->type.m != target.m)) {
        // A list given for an n x 1 matrix or the other way round is still a shape error.
        cannot_assign(v->type, target);
    }
    check_precision(verb, target.prim, literal ? literal_prim(value) : v->type.prim);
    return broadcast(builder().cast(v, target.prim), target);
}

namespace {

void check_writable(const ExprObject& e, const char* what) {
    if (e.kind == ExprKind::array)
        raise(Kind::type, "an ndarray cannot be assigned as a whole",
              "assign its elements: a[i] = ...");
    if (e.kind == ExprKind::value || e.read_only) {
        const std::string name = e.origin ? text_of(e.origin) : "";
        if (e.read_only && !name.empty()) raise(Kind::syntax, name);
        raise(
            Kind::syntax,
            std::string("cannot use a non-writable target as the first operand of '") + what + "'");
    }
}

void assign_struct(StructObject& target, PyObject* value) {
    PyObject* self = reinterpret_cast<PyObject*>(&target);
    if (is_buffer_view(self))
        raise(Kind::syntax, "a slice of an array is a view of it, and nothing is assigned to it",
              "loop over the elements");
    if ((is_mesh_value(self) || is_mesh_value(value)) &&
        !(is_struct(value) && reinterpret_cast<StructObject*>(value)->type == target.type))
        raise(Kind::type,
              "a variable that holds an element of a mesh takes elements of the same "
              "order and mesh");
    PyObject* source = value;
    Ref host;
    if (is_struct(value)) {
        source = reinterpret_cast<StructObject*>(value)->members;
    } else if (!PyDict_Check(value)) {
        if (!has_attribute(value, "to_dict")) {
            raise(Kind::type, "Only dict or Struct can be assigned to a Struct",
                  "it was given '" + type_text(value) + "'");
        }
        host = Ref::steal(PyObject_CallMethod(value, "to_dict", nullptr));
        source = host.get();
    }
    PyObject *key, *member;
    Py_ssize_t at = 0;
    std::vector<std::pair<PyObject*, Ref>> stores;  // all right sides first: members may alias
    while (PyDict_Next(target.members, &at, &key, &member)) {
        PyObject* from = PyDict_GetItemWithError(source, key);
        if (!from && PyErr_Occurred()) throw PyError{};
        if (!from) break;
        stores.emplace_back(member, to_rvalue(from));
    }
    const auto count = static_cast<Py_ssize_t>(stores.size());
    if (PyDict_Size(source) != count || PyDict_Size(target.members) != count) {
        const Ref mine = Ref::steal(PyDict_Keys(target.members)),
                  given = Ref::steal(PyDict_Keys(source));
        raise(Kind::type, "Member mismatch between structs " + text_of(mine.get()) + ", " +
                              text_of(given.get()));
    }
    for (auto& [to, from] : stores) assign(to, from.get());
}

Ref new_slot(Value* v) {
    ir::Builder& b = builder();
    Value* slot = b.slot(v->type);
    b.store(slot, v);
    return make_place(slot, ExprKind::variable, false);
}

Ref copy_container(PyObject* value);

Ref copy_dict(PyObject* members) {
    const Ref out = Ref::steal(PyDict_New());
    PyObject *key, *member;
    Py_ssize_t at = 0;
    while (PyDict_Next(members, &at, &key, &member)) {
        const Ref copy = new_variable(member);
        if (PyDict_SetItem(out.get(), key, copy.get()) < 0) throw PyError{};
    }
    return out;
}

Ref copy_container(PyObject* value) {
    if (PyDict_Check(value)) return copy_dict(value);
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(value);
    const bool tuple = PyTuple_Check(value);
    const Ref out = Ref::steal(tuple ? PyTuple_New(n) : PyList_New(n));
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject* copy = new_variable(PySequence_Fast_GET_ITEM(value, k)).release();
        if (tuple)
            PyTuple_SET_ITEM(out.get(), k, copy);
        else
            PyList_SET_ITEM(out.get(), k, copy);
    }
    return out;
}

}  // namespace

void assign(PyObject* target, PyObject* value) {
    if (assign_special(target, value)) return;
    if (is_struct(target)) return assign_struct(*reinterpret_cast<StructObject*>(target), value);
    if (!is_expr(target))
        raise(Kind::syntax, "Variable '" + text_of(target) +
                                "' cannot be assigned. Maybe it is not a Quadrants object?");
    const ExprObject& e = *as_expr(target);
    check_writable(e, "=");
    if (is_struct(value))
        raise(Kind::type,
              "cannot assign a struct to '" + type::to_user_string(type_of(target)) + "'");
    Value* v = fit(value, e.type().value(), "Assign");
    if (is_packed(e.value())) return store_packed(e.value(), v);
    touch(e.value());
    builder().store(e.value(), v);
}

Op atomic_of(Op op) {
    static constexpr auto atomics = [] {
        std::array<Op, std::size(ir::kOps)> of;
        of.fill(Op::count_);
        for (size_t k = 0; k < of.size(); ++k)
            if (ir::kOps[k].assigns) of[static_cast<size_t>(ir::kOps[k].step)] = Op(k);
        return of;
    }();
    return atomics[static_cast<size_t>(op)];
}

void assign_op(Op op, PyObject* target, PyObject* value) {
    if (assign_op_special(op, target, value)) return;
    if (is_expr(target)) {
        const ExprObject& e = *as_expr(target);
        const ir::OpInfo& row = ir::info(op);
        const Op atomic = atomic_of(op);
        const std::string name = row.name;
        check_writable(
            e, (atomic == Op::count_ ? row.symbol + std::string("=") : "atomic_" + name).c_str());
        if (atomic != Op::count_) {
            const Type t = e.type().value();
            if (row.takes == ir::Takes::ints &&
                (type::is_float(t.prim) || type::is_float(to_value(value)->type.prim)))
                unsupported_operands(row.symbol, target, value);
            Value* operand = fit(value, t, ("Atomic " + name).c_str());
            if (e.shared)
                atomic_arithmetic(atomic, e.value(), operand);
            else
                assign(target, binary(op, target, make_value(operand).get()).get());
            return;
        }
    }
    if (op == Op::matmul) raise(Kind::syntax, "'@=' is not supported");
    const Ref result = binary(op, target, value);
    assign(target, result.get());
}

Ref new_variable(PyObject* value, const Prim* annotation) {
    need_stack();
    if (is_buffer_view(value)) return Ref::borrow(value);  // its members are values already
    if (is_host_struct(value)) return new_variable(struct_of_host(value).get());
    if (is_struct(value)) {
        const StructObject& s = *reinterpret_cast<StructObject*>(value);
        return make_struct(s.type, copy_dict(s.members).get());
    }
    if (PyDict_CheckExact(value) || PyTuple_CheckExact(value) || PyList_CheckExact(value))
        return copy_container(value);
    if (PyTuple_Check(value) && !is_number(value)) return copy_container(value);
    if (!is_expr(value) && prim_of_dtype(value))
        return Ref::borrow(value);  // dtypes are passed as such
    if ((value == Py_None || is_empty_matrix(value)) && !annotation) return Ref::borrow(value);
    return new_slot(annotation ? to_value_as(value, *annotation) : to_value(value));
}

}  // namespace qd::frontend
