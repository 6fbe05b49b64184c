// Walking expressions. Operations on symbolic values go to ops; on other objects Python does them.

#include <algorithm>

#include "frontend/body/body.h"
#include "frontend/facts/hooks.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;

Ref none() { return Ref::borrow(Py_None); }

bool is_text(PyObject* o) { return PyUnicode_Check(o) || is_format(o); }

}  // namespace

static bool is_starred(const Node* n) { return n->kind == K::Starred; }

Ref Body::index(const Node* n) {
    if (n->kind == K::Slice) {
        const auto part = [&](const Node* p) { return p ? value(p) : none(); };
        Ref a = part(n->a), b = part(n->b), c = part(n->c);
        return Ref::steal(PySlice_New(a.get(), b.get(), c.get()));
    }
    if (n->kind == K::Tuple && std::ranges::none_of(n->list, is_starred)) {
        Ref t = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(n->list.size())));
        for (size_t k = 0; k < n->list.size(); ++k)
            PyTuple_SET_ITEM(t.get(), static_cast<Py_ssize_t>(k), index(n->list[k]).release());
        return t;
    }
    return value(n);
}

// What Python makes of `a op b`, or the runtime value if one of them is one.
Val Body::binary_op(const Node* n, ir::Op op, const Val& a, const Val& b) {
    const auto run = [&] {
        if (op != ir::Op::pow) return binary(op, a.get(), b.get());
        const CheckedHere here(*this, n);  // the exponent
        return binary(op, a.get(), b.get());
    };
    if (is_left_to_python(a.get()) && is_left_to_python(b.get())) {
        const bool is_keyword = op == ir::Op::bit_and || op == ir::Op::bit_or;
        const std::string name = std::string(ir::info(op).method) + (is_keyword ? "_" : "");
        const Val operands[] = {a, b};
        return operation(name.c_str(), operands, run);
    }
    if (Val v = object_operator(n, a, b, op); v.obj) return v;
    unit.consume(a), unit.consume(b);
    return {run()};
}

Val Body::expr(const Node* n) {
    need_stack();
    low.node = n;
    switch (n->kind) {
        case K::Constant:
            return {Ref::borrow(n->name)};
        case K::Name:
            return lookup(n->name);
        case K::BinOp: {
            Val a = expr(n->a), b = expr(n->b);
            low.node = n;
            if (static_cast<ir::Op>(n->op) == ir::Op::add && is_text(a.get()) && is_text(b.get()) &&
                (is_format(a.get()) || is_format(b.get()))) {
                CallArgs parts;
                parts.positional = {a.obj, b.obj};
                unit.consume(a), unit.consume(b);
                return {format_call(Ref::steal(PyUnicode_FromString("{}{}")).get(), parts)};
            }
            return binary_op(n, static_cast<ir::Op>(n->op), a, b);
        }
        case K::UnaryOp: {
            Val a = expr(n->a);
            low.node = n;
            const auto op = static_cast<UnOp>(n->op);
            if (op == UnOp::logical_not && !is_symbolic(a.get()) && !is_host_matrix(a.get()))
                return {Ref::borrow(truth(a) ? Py_False : Py_True)};
            const auto run = [&] { return unary(op, a.get()); };
            static const char* const names[] = {"neg", "pos", "invert", "not_"};
            if (is_left_to_python(a.get())) return operation(names[n->op], {&a, 1}, run);
            unit.consume(a);
            return {run()};
        }
        case K::Attribute: {
            Val base = expr(n->a);
            low.node = n;
            return member(base, n->name);
        }
        case K::Subscript: {
            Val base = expr(n->a);
            Ref i = known_index(base.get(), index(n->b));
            low.node = n;
            const CheckedHere here(*this, n);
            return element(base, i.get());
        }
        case K::Call:
            return call(n);
        case K::Compare:
            return compare_chain(n);
        case K::BoolOp:
            return bool_op(n);
        case K::IfExp:
            return if_exp(n);
        case K::Tuple:
        case K::List: {
            Ref list = Ref::steal(PyList_New(0));
            std::vector<Prov*> places;
            for (const Node* e : n->list) {
                if (e->kind == K::Starred) {
                    Val many = expr(e->a);
                    if (!is_expr(many.get())) many = iterable(many);
                    const Ref items = all_items(many.get());
                    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(items.get()); ++at) {
                        const Val v =
                            unit_item(many, Ref::borrow(PyList_GET_ITEM(items.get(), at)), at);
                        if (PyList_Append(list.get(), v.get()) < 0) throw PyError{};
                        places.push_back(v.prov);
                    }
                    continue;
                }
                const Val item = expr(e);
                if (PyList_Append(list.get(), item.get()) < 0) throw PyError{};
                places.push_back(item.prov);
            }
            Prov* display = std::ranges::any_of(places, [](Prov* p) { return p != nullptr; })
                                ? unit.display(std::move(places), n->kind == K::Tuple)
                                : nullptr;
            if (n->kind == K::List) return {list, display};
            return {Ref::steal(PyList_AsTuple(list.get())), display};
        }
        case K::Dict:
            return {dict_display(n)};
        case K::ListComp:
        case K::DictComp:
            return comprehension(n);
        case K::JoinedStr:
            return {joined_string(n)};
        case K::NamedExpr: {
            Val v = expr(n->b);
            low.node = n;
            assign_name(n->a, v, false);
            return lookup(n->a->name);
        }
        case K::Slice:
            return {index(n)};
        default:
            break;
    }
    const std::string_view full = Py_TYPE(ast_of(source, *n))->tp_name;
    const size_t dot = full.rfind('.');
    raise(Kind::syntax, "Unsupported node \"" +
                            std::string(dot == full.npos ? full : full.substr(dot + 1)) + "\"");
}

Ref Body::dict_display(const Node* n) {
    Ref d = Ref::steal(PyDict_New());
    for (size_t k = 0; k < n->list.size(); ++k) {
        if (!n->list[k]) {  // **other
            Ref other = value(n->list2[k]);
            if (PyDict_Update(d.get(), other.get()) < 0) throw PyError{};
            continue;
        }
        Ref key = value(n->list[k]), item = value(n->list2[k]);
        if (PyDict_SetItem(d.get(), key.get(), item.get()) < 0) throw PyError{};
    }
    return d;
}

// --- comprehensions
// --------------------------------------------------------------------------------

Val Body::comprehension(const Node* n) {
    Ref out = n->kind == K::DictComp ? Ref::steal(PyDict_New()) : Ref::steal(PyList_New(0));
    std::vector<Prov*> places;
    generators(n, 0, out.get(), places);
    return {out, n->kind == K::ListComp ? unit.display(std::move(places), false) : nullptr};
}

void Body::generators(const Node* n, size_t k, PyObject* out, std::vector<Prov*>& places) {
    if (k == n->list.size()) {
        let_handlers_raise();
        if (n->kind == K::DictComp) {
            Ref key = value(n->a), item = value(n->b);
            if (PyDict_SetItem(out, key.get(), item.get()) < 0) throw PyError{};
            return;
        }
        const Val item = expr(n->a);
        if (PyList_Append(out, item.get()) < 0) throw PyError{};
        places.push_back(item.prov);
        return;
    }
    const Node* g = n->list[k];
    Val over;
    {
        Deeper in_static(low.static_depth);
        over = expr(g->b);
    }
    low.node = n;
    over = iterable(over);
    Ref it = Ref::steal(PyObject_GetIter(over.get()));
    Py_ssize_t at = 0;
    while (Ref item = next_item(over, it.get())) {
        check_end(over.get(), at);
        Scope scope(*this);
        Val v = unit_item(over, std::move(item), at++);
        bind_static_target(g->a, v);
        bool keep = true;
        for (const Node* test : g->list) {
            Deeper in_static(low.static_depth);
            keep = keep && truth(expr(test));
        }
        if (keep) generators(n, k + 1, out, places);
    }
    if (PyErr_Occurred()) throw PyError{};
}

// What a loop goes over; items of lists and tuples are tracked singly.
Val Body::iterable(const Val& over) {
    PyObject* o = over.get();
    refuse_at_launch(over.prov);
    if (PyIter_Check(o) || has_hooks(o)) user_code_runs();
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o) || unit.settle(o, over.prov)) return over;
    if (over.prov && over.prov->kind == Prov::Kind::display) return over;  // zip and kin
    // Iterating runs no code but Python's own, or that of an enumeration: in the order that it has.
    const bool is_finite =
        !PyIter_Check(o) && (PyType_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) ||
                             PyDictViewSet_Check(o) || PyDictValues_Check(o));
    if (!is_finite || !over.prov) return unit.consume(over), over;
    return recorded("tuple", unit.function_of("builtins", "tuple"), {&over, 1}, nullptr, true,
                    [&] { return Ref::steal(PySequence_Tuple(o)); });
}

// Raises if a loop over compile-time items seems to have no end: what has no length may go on.
void check_end(PyObject* over, Py_ssize_t turn) {
    constexpr Py_ssize_t kMostTurns = 100'000;
    if (turn != kMostTurns || PyObject_LengthHint(over, -1) >= 0) return;
    raise(Kind::value,
          type_name(over) + " gave " + std::to_string(kMostTurns) + " items and has no length",
          "loop over a list, a tuple or a range while the kernel is compiled");
}

// All items, as a list.
Ref all_items(PyObject* over) {
    Ref it = Ref::steal(PyObject_GetIter(over)), list = Ref::steal(PyList_New(0));
    while (Ref item = Ref::steal_or_null(PyIter_Next(it.get()))) {
        check_end(over, PyList_GET_SIZE(list.get()));
        if (PyList_Append(list.get(), item.get()) < 0) throw PyError{};
    }
    if (PyErr_Occurred()) throw PyError{};
    return list;
}

// An item that iteration over `over` gave: its place is known for lists and tuples.
Val Body::unit_item(const Val& over, Ref item, Py_ssize_t at) {
    Prov* prov = nullptr;
    if (over.prov && (over.prov->kind == Prov::Kind::display ||
                      (is_container(over.get()) && !PyDict_Check(over.get()))))
        prov = unit.item(over.prov, Ref::steal(PyLong_FromSsize_t(at)).get());
    if (!prov && !is_expr(item.get()) && is_ndarray(unwrap(item.get())))
        prov = find_place(unwrap(item.get()));
    return adopt(std::move(item), prov);
}

// Names of a loop over compile-time items, bound for one turn.
void Body::bind_static_target(const Node* target, const Val& v) {
    if (target->kind == K::Name) return declare(target->name, v, Binding::Kind::fixed);
    if (target->kind != K::Tuple)
        raise_at(target, Kind::compilation, "A loop target must be a name or a tuple of names");
    const Val over = is_expr(v.get()) ? v : iterable(v);
    Ref items = all_items(over.get());
    if (static_cast<size_t>(PyList_GET_SIZE(items.get())) != target->list.size())
        raise_at(target, Kind::syntax, "The number of targets is not equal to value length");
    for (size_t k = 0; k < target->list.size(); ++k)
        bind_static_target(
            target->list[k],
            unit_item(over, Ref::borrow(PyList_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k))),
                      static_cast<Py_ssize_t>(k)));
}

// --- qd.static
// -------------------------------------------------------------------------------------

bool Body::is_static_call(const Node* n, PyObject**) {
    if (n->kind != K::Call || (n->a->kind != K::Name && n->a->kind != K::Attribute)) return false;
    // A cheap test first: most calls are not spelled `static`.
    const Node* f = n->a;
    if (f->kind == K::Name && find(f->name)) return false;
    Val callable;
    try {
        if (f->kind == K::Attribute && f->a->kind != K::Name && f->a->kind != K::Attribute)
            return false;
        if (f->kind == K::Attribute && PyUnicode_CompareWithASCIIString(f->name, "static"))
            return false;
        callable = expr(f);
    } catch (const Diag&) {
        return false;
    }
    return operation_of(callable.get()) == "static";
}

bool Body::static_truth(const Node* call) {
    const Val v = static_value(call);
    if (is_host_matrix(v.get()))
        raise(Kind::syntax,
              "A matrix or vector is neither true nor false. Please use .any() or .all().");
    return truth(v);
}

Val Body::static_value(const Node* call) {
    if (call->list.empty()) raise_at(call, Kind::type, "qd.static needs an argument");
    Deeper deeper(low.static_depth);
    if (call->list.size() == 1 && call->list[0]->kind != K::Starred) {
        Val v = expr(call->list[0]);
        low.node = call;
        check_static(v.get());
        return v;
    }
    Ref list = Ref::steal(PyList_New(0));
    std::vector<Prov*> places;
    CallArgs given;
    for (const Node* a : call->list) {
        if (is_starred(a)) {
            spread(call, a, given, &places);
            continue;
        }
        Val v = expr(a);
        given.positional.push_back(std::move(v.obj));
        places.push_back(v.prov);
    }
    low.node = call;
    for (const Ref& v : given.positional) {
        check_static(v.get());
        if (PyList_Append(list.get(), v.get()) < 0) throw PyError{};
    }
    if (given.positional.size() == 1) return {given.positional[0], places[0]};
    return {list, unit.display(std::move(places), false)};
}

// Objects of the user and what can be gone through are taken beside what chapter 10 lists.
void Body::check_static(PyObject* o) {
    const auto is_no_constant = [&] {
        if (is_expr(o)) return as_expr(o)->kind != ExprKind::array;
        return is_struct(o) || PyUnicode_Check(o) || PyBytes_Check(o) || PySet_Check(o) ||
               PyDict_Check(o) || PyComplex_CheckExact(o) || PySlice_Check(o) || o == Py_Ellipsis ||
               PyModule_Check(o) || PyType_Check(o) || Py_TYPE(o) == &PyBaseObject_Type;
    };
    if (is_no_constant())
        raise(Kind::value,
              "Input to qd.static must be compile-time constants or global pointers, instead of " +
                  type_name(o));
}

}  // namespace qd::frontend
