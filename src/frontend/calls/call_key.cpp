// Keys of specialisations: words that say all that the lowered body depends on. Objects are named
// by address, and the entry keeps them alive.

#include <cstring>

#include "data/objects.h"
#include "frontend/calls/call.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"

namespace qd::frontend {
namespace {

void constant_key(Key& k, PyObject* o) {
    if (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
        PyUnicode_CheckExact(o)) {
        k.tag('c');
        k.word(reinterpret_cast<uintptr_t>(Py_TYPE(o)));
        Ref shown = constant_repr(o);
        const char* s = PyUnicode_AsUTF8(shown.get());
        if (!s) throw PyError{};
        k.word(std::strlen(s));
        k.bytes += s;
    } else if (PyTuple_CheckExact(o)) {
        need_stack();
        k.tag('t');
        k.word(static_cast<uint64_t>(PyTuple_GET_SIZE(o)));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
            constant_key(k, PyTuple_GET_ITEM(o, i));
    } else if (PyMethod_Check(o)) {  // a new object each time it is read
        k.tag('b');
        k.object(PyMethod_GET_SELF(o));
        k.object(PyMethod_GET_FUNCTION(o));
    } else {
        k.tag('o');
        k.object(o);
    }
}

void place_key(Key& k, ir::Value* place) {
    place = ir::resolve(place);
    const ir::Inst* d = place->def;
    k.word(place->type.word());
    if (!d || d->op == ir::Op::slot) {
        k.tag('v');
        return;
    }
    k.tag('p');
    k.word(static_cast<uint64_t>(d->op));
    k.word(d->imm);
    k.word(reinterpret_cast<uintptr_t>(d->ref));
    for (int i = 0; i < d->operand_count; ++i) {
        ir::Value* o = d->operand(i);
        if (o->type.is_place())
            place_key(k, o);
        else
            k.word(o->type.word());
    }
}

void leaf_key(Key& k, const ExprObject* e, bool by_reference, const SharedVariables& shared) {
    if (e->kind == ExprKind::array) {
        k.tag('a');
        k.word(e->type().word());
        k.word(e->access.pack());
        k.tag(lacks_gradient(e) ? '0' : '1');
    } else if (!by_reference || e->kind == ExprKind::value) {
        auto* o = reinterpret_cast<PyObject*>(const_cast<ExprObject*>(e));
        k.tag(by_reference && (is_view(o) || stands_for_view(o)) ? 'v' : 'x');
        k.word(type_of(reinterpret_cast<PyObject*>(const_cast<ExprObject*>(e))).word());
    } else {
        const ir::Value* root = ir::root_of_place(e->value());
        const bool local = is_local_place(root);
        k.tag(e->shared ? 's' : 'r');
        k.tag(e->read_only ? '1' : '0');
        if (const int number = local ? shared.number(root) : -1; number >= 0) {
            k.tag('=');
            k.word(static_cast<uint64_t>(number));
            place_key(k, e->value());
        } else if (local)
            k.word(e->type().word());
        else
            place_key(k, e->value());
    }
}

void tree_key(Key& k, PyObject* o, bool by_reference, const SharedVariables& shared) {
    if (is_expr(o)) return leaf_key(k, as_expr(o), by_reference, shared);
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
        need_stack();
        const bool list = PyList_CheckExact(o);
        const Py_ssize_t n = list ? PyList_GET_SIZE(o) : PyTuple_GET_SIZE(o);
        k.tag(list ? 'L' : 'T');
        k.word(static_cast<uint64_t>(n));
        for (Py_ssize_t i = 0; i < n; ++i)
            tree_key(k, list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), by_reference,
                     shared);
        return;
    }
    const bool structure = is_struct(o);
    if (structure || PyDict_CheckExact(o)) {
        PyObject* from = structure ? reinterpret_cast<StructObject*>(o)->members : o;
        k.tag(structure ? 'S' : 'D');
        if (structure) k.object(reinterpret_cast<StructObject*>(o)->type);
        k.word(static_cast<uint64_t>(PyDict_Size(from)));
        PyObject *key, *item;
        for (Py_ssize_t at = 0; PyDict_Next(from, &at, &key, &item);) {
            constant_key(k, key);
            tree_key(k, item, by_reference, shared);
        }
        return;
    }
    constant_key(k, o);
}

// Whether an object says no more than its key does: it is a number or text, or is only named.
bool is_settled(PyObject* o) {
    if (PyTuple_CheckExact(o)) {
        need_stack();
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
            if (!is_settled(PyTuple_GET_ITEM(o, i))) return false;
        return true;
    }
    return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
           PyUnicode_CheckExact(o) || PyType_Check(o) || PyFunction_Check(o) || is_expr(o) ||
           data::is_field(o);
}
bool is_settled_tree(PyObject* o) {
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
        need_stack();
        const bool list = PyList_CheckExact(o);
        const Py_ssize_t n = list ? PyList_GET_SIZE(o) : PyTuple_GET_SIZE(o);
        for (Py_ssize_t i = 0; i < n; ++i)
            if (!is_settled_tree(list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i)))
                return false;
        return true;
    }
    const bool structure = is_struct(o);
    if (!structure && !PyDict_CheckExact(o)) return is_settled(o);
    if (is_mesh_value(o)) return false;
    PyObject *key, *item;
    PyObject* from = structure ? reinterpret_cast<StructObject*>(o)->members : o;
    for (Py_ssize_t at = 0; PyDict_Next(from, &at, &key, &item);)
        if (!is_settled_tree(item)) return false;
    return true;
}

}  // namespace

SharedVariables::SharedVariables(const FuncSignature& s, const std::vector<Arg>& args) {
    if (!s.is_real) return;
    std::vector<const ir::Value*> seen;
    const auto see = [&](PyObject* o) {
        const ExprObject* e = as_expr(o);
        if (e->kind == ExprKind::variable || e->kind == ExprKind::element) {
            const ir::Value* root = ir::root_of_place(e->value());
            if (is_local_place(root) && std::ranges::find(seen, root) != seen.end() &&
                number(root) < 0)
                roots.push_back(root);
            seen.push_back(root);
        }
        return Ref::borrow(o);
    };
    for (const Arg& a : args)
        if (a.mode == Mode::reference) map_leaves(a.v.get(), see);
}

Key key_of(const FuncSignature& s, const std::vector<Arg>& args, const Lowering& l) {
    Key k;
    k.object(s.definition.get());
    k.word(l.kernel->options_id);
    const SharedVariables shared(s, args);
    for (const Arg& a : args) {
        // What is in an object without a place can't be looked up again: its body is this kernel's.
        PyObject* o = a.v.get();
        if (!a.v.prov && !(a.mode == Mode::constant ? is_settled(o) : is_settled_tree(o)))
            k.word(l.kernel->number);
        k.tag(static_cast<char>('0' + static_cast<int>(a.mode)));
        if (a.mode == Mode::constant) {
            k.tag(!a.v.prov ? 'n' : a.v.prov->runtime_members ? 'm' : a.flattened ? 'f' : 'p');
            k.tag(a.v.prov && a.v.prov->from_argument() ? 'A' : 'g');
            constant_key(k, a.v.get());
        } else {
            k.tag(a.v.prov ? 'p' : 'n');
            tree_key(k, a.v.get(), a.mode == Mode::reference, shared);
        }
    }
    return k;
}

}  // namespace qd::frontend
