// What a func's body learnt, where it is called.
//
// Facts about an argument are facts about what the caller passed; facts about anything else are the
// caller's as they are. They are copied to the caller's unit at each call, and compared with what
// Python says now before a body is used in another kernel.
// Cost: one step for each step of a place; nothing for a second call with arguments of one origin.

#include <algorithm>

#include "frontend/calls/entry.h"
#include "frontend/source/stack.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

Val follow_display(Body& caller, const std::vector<Arg>& args, const Prov* p) {
    Ref items = Ref::steal(PyList_New(0));
    std::vector<Prov*> places;
    for (const Prov* o : p->operands) {
        const Val v = follow(caller, args, o);
        if (!v.obj) return v;
        if (PyList_Append(items.get(), v.get()) < 0) throw PyError{};
        places.push_back(v.prov);
    }
    if (p->argument) items = Ref::steal(PyList_AsTuple(items.get()));
    return {items, caller.unit.display(std::move(places), p->argument)};
}

// An operand whose object does not matter, because its place says all.
Ref stand_in(const Prov* p) {
    if (p->kind == Prov::Kind::constant) return p->key;
    if (p->kind != Prov::Kind::display) return Ref::borrow(Py_NotImplemented);
    Ref items = Ref::steal(PyList_New(0));
    for (const Prov* o : p->operands)
        if (PyList_Append(items.get(), stand_in(o).get()) < 0) throw PyError{};
    return p->argument ? Ref::steal(PyList_AsTuple(items.get())) : items;
}

Prov* translate(Unit& to, const std::vector<Arg>& args, const Prov* p) {
    need_stack();
    if (!p->parent) {
        if (p->kind == Prov::Kind::argument) return args[static_cast<size_t>(p->argument)].v.prov;
        if (p->kind == Prov::Kind::constant) return const_cast<Prov*>(p);
        if (p->kind == Prov::Kind::display) {
            std::vector<Prov*> places;
            for (const Prov* o : p->operands) {
                places.push_back(translate(to, args, o));
                if (!places.back()) return nullptr;
            }
            return to.display(std::move(places), p->argument);
        }
        return to.global(p->kind, p->function.get(), p->key.get());
    }
    Prov* base = translate(to, args, p->parent);
    if (!base) return nullptr;
    if (p->kind == Prov::Kind::call) {
        std::vector<Ref> operands;
        std::vector<Prov*> provs;
        for (const Prov* o : p->operands) {
            provs.push_back(translate(to, args, o));
            operands.push_back(stand_in(o));
            if (!provs.back()) return nullptr;
        }
        return to.call(base, operands, provs, p->key.get());
    }
    return p->kind == Prov::Kind::attribute ? to.attribute(base, p->key.get())
                                            : to.item(base, p->key.get());
}

PyObject* code_of(PyObject* fn) { return PyFunction_Check(fn) ? PyFunction_GetCode(fn) : Py_None; }

// Reloaders and debuggers give a function other code while it lives.
bool codes_hold(const Entry& e) {
    return std::ranges::all_of(
        e.codes, [](const auto& c) { return code_of(c.first.get()) == c.second.get(); });
}

bool facts_hold(const Entry& e, const std::vector<Arg>& args) {
    const std::vector<PyObject*> objects = objects_of(args);
    const bool hold = std::ranges::all_of(e.unit->facts, [&](const Fact& f) {
        Ref keep;
        PyObject* now = walk(f.prov, objects, keep, Asker::again);
        return now && fact_holds(f, now) && !(f.field && f.field.get() != unwrap(now));
    });
    take_answers(hold);
    return hold;
}

}  // namespace

// A place of the callee as the caller sees it.
Val follow(Body& caller, const std::vector<Arg>& args, const Prov* p) {
    need_stack();
    if (!p->parent) {
        if (p->kind == Prov::Kind::argument) return args[static_cast<size_t>(p->argument)].v;
        if (p->kind == Prov::Kind::constant) return {p->key};
        if (p->kind == Prov::Kind::display) return follow_display(caller, args, p);
        Ref keep;
        walk(p, {}, keep);
        return {keep, caller.unit.global(p->kind, p->function.get(), p->key.get())};
    }
    Val base = follow(caller, args, p->parent);
    if (!base.obj) return base;
    if (p->kind == Prov::Kind::call) {
        std::vector<Ref> operands;
        std::vector<Prov*> provs;
        for (const Prov* o : p->operands) {
            Val v = follow(caller, args, o);
            if (!v.obj) return v;
            operands.push_back(v.obj);
            provs.push_back(v.prov);
        }
        return caller.call_again(base, operands, provs, p->key.get());
    }
    return p->kind == Prov::Kind::attribute ? caller.member(base, p->key.get())
                                            : caller.element(base, p->key.get());
}

std::vector<PyObject*> objects_of(const std::vector<Arg>& args) {
    std::vector<PyObject*> out;
    for (const Arg& a : args) out.push_back(a.v.get());
    return out;
}

void note_codes(Entry& e, PyObject* fn) {
    e.codes.emplace_back(Ref::borrow(fn), Ref::borrow(code_of(fn)));
    for (PyObject* o : e.unit->called)
        e.codes.emplace_back(Ref::borrow(o), Ref::borrow(code_of(o)));
}

bool still_holds(const Entry& e, const std::vector<Arg>& args) {
    return !e.unit->foreign && codes_hold(e) && facts_hold(e, args);
}

// Facts hold for a whole kernel unless code of the user runs, which may change what they say.
bool is_checked(const Entry& e, const KernelState& k) {
    return e.checked == k.number && e.checked_at == k.user_runs && !e.runs_code;
}

void note_checked(Entry& e, KernelState& k) {
    k.user_runs += e.runs_code;
    e.checked = k.number;
    e.checked_at = k.user_runs;
}

void merge_facts(Entry& e, Unit& to, const std::vector<Arg>& args) {
    std::vector<Prov*> provs;
    for (const Arg& a : args) provs.push_back(a.v.prov);
    if (e.merged_into == &to && e.merged_kernel == to.kernel->number && e.merged_provs == provs)
        return;
    e.merged_into = &to;
    e.merged_kernel = to.kernel->number;
    e.merged_provs = provs;
    for (const Fact& f : e.unit->facts) {
        if (Prov* p = translate(to, args, f.prov)) {
            to.fact(p, f.kind, f.value.get(), f.field.get());
            if (f.prov->impurity != Impurity::none && !f.prov->from_argument())
                report_capture(*to.kernel, p, f.prov->impurity, f.value.get());
        } else
            to.opaque("the origin of an argument is not known");
    }
    for (const Ref& f : e.unit->fields) use_field(to, f.get());
    to.notices.insert(to.notices.end(), e.unit->notices.begin(), e.unit->notices.end());
    for (const auto& [field, prov] : e.unit->field_places)
        if (Prov* p = translate(to, args, prov)) to.field_places.try_emplace(field, p);
    to.called.insert(e.unit->called.begin(), e.unit->called.end());
    if (e.unit->foreign) to.opaque(e.unit->foreign_reason);
}

}  // namespace qd::frontend
