// The one place where Python evaluates something for a kernel while its body is walked.
//
// An operation on operands is either settled (facts say all that Python can see of each operand, so
// the result follows from them), or it gets a place of its own, "this function, called with these
// operands": a later process evaluates that again and compares what it gets with the facts about
// the result. What fits neither makes the unit foreign. Operators are functions of Python's module
// `operator`. Cost: one look-up per operand; one record per operation on objects.

#include <algorithm>

#include "frontend/body/body.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/contents.h"
#include "frontend/facts/hooks.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {

using Body = Lowering::Body;

// What came of an operation; `place`, if any, says how to find it again.
Val Body::result_of(Ref result, Prov* place) {
    if (is_expr(result.get()) || is_struct(result.get())) {
        if (place) unit.opaque("Python made values of the kernel");
        return {std::move(result)};
    }
    if (is_ndarray(unwrap(result.get()))) {  // which of the arguments' arrays it is, no fact says
        if (place) unit.opaque("an array was reached in a way that is not recorded");
        Prov* found = find_place(unwrap(result.get()));
        return adopt(std::move(result), found);
    }
    if (place && PyIter_Check(result.get())) unit.opaque("an iterator that Python made");
    return adopt(std::move(result), place);
}

// As NumPy's print options have it, which no fact says.
static bool prints_arrays(std::string_view name, std::span<const Val> operands) {
    static const std::string_view kNames[] = {"str", "repr", "format", "ascii", "mod"};
    return std::ranges::find(kNames, name) != std::end(kNames) &&
           (name != "mod" || PyUnicode_Check(operands[0].get())) &&
           std::ranges::any_of(operands, [](const Val& v) { return shows_array(v.get()); });
}

// Runs `run`, which is `callee` called with `operands`, the last of them by `keywords`. `is_pure`:
// its result follows from its operands alone.
Val Body::recorded(const char* name, Prov* callee, std::span<const Val> operands,
                   PyObject* keywords, bool is_pure, const std::function<Ref()>& run) {
    if (!asks_for_class(name))
        for (const Val& v : operands) refuse_at_launch(v.prov);
    bool settled = is_pure && !prints_arrays(name, operands), again = callee != nullptr;
    for (const Val& v : operands) {
        settled = unit.settle(v.get(), v.prov) && settled;
        again = again && !PyIter_Check(v.get());  // it would be used up
    }
    Prov* place = nullptr;
    if (!settled) {
        std::vector<Ref> objects;
        std::vector<Prov*> places;
        for (const Val& v : operands) {
            objects.push_back(v.obj);
            places.push_back(v.prov);
        }
        if (again) place = unit.call(callee, objects, places, keywords);
        if (!place) unit.opaque(std::string("what '") + name + "' sees of its operands");
    }
    Ref result = run();
    if (!result) throw PyError{};  // a guard asked before, and it raised
    if (place && !unit.answers_alike(place, result.get()))
        unit.opaque(std::string("'") + name + "', which gave two answers");
    return result_of(std::move(result), place);
}

// Before code of the user runs.
void Body::user_code_runs() {
    if (low.may_be_walked_again()) throw HoldsTask{};  // what it does is done once
    ++low.kernel->user_runs;
}

void Body::changing_code_runs(const std::string& what) {
    user_code_runs();
    unit.opaque("what " + what + " may change");
}

// No guard may ask what may change something: each question is asked as the source says.
void Body::note_changes(const std::string& name, PyObject* callee, std::span<const Val> operands,
                        PyObject* keywords) {
    if (unit.foreign) return;
    std::vector<Ref> objects;
    for (const Val& v : operands) {
        const bool made_here = !v.prov || v.prov->kind == Prov::Kind::display;
        objects.push_back(made_here && PyIter_Check(v.get()) ? Ref::borrow(Py_None) : v.obj);
    }
    if (may_change(callee, objects, keywords)) unit.opaque("what '" + name + "' may change");
}

Ref Body::next_item(const Val& over, PyObject* iterator) {
    if (PyIter_Check(over.get()) || has_hooks(over.get())) user_code_runs();
    return Ref::steal_or_null(PyIter_Next(iterator));
}

Ref Body::asked(const std::string& name, PyObject* callee, std::span<const Val> operands,
                PyObject* keywords, const std::function<Ref()>& run) {
    PyObject* owner = callee ? owner_of(callee) : nullptr;
    const bool reads_hook = name == "hasattr" && operands.size() == 2 &&
                            PyUnicode_Check(operands[1].get()) &&
                            member_runs_hook(operands[0].get(), operands[1].get());
    if (!reads_hook && !sees_more(name) && !(owner && may_run(name, owner)) &&
        std::ranges::none_of(operands, [&](const Val& v) { return may_run(name, v.get()); }))
        return run();
    note_changes(name, callee, operands, keywords);
    user_code_runs();
    std::vector<Ref> objects;
    for (const Val& v : operands) objects.push_back(v.obj);
    return ask(callee, objects, keywords, Asker::body, run);
}

Val Body::evaluated(const char* module, const char* name, std::span<const Val> operands,
                    const std::function<Ref()>& run) {
    Prov* callee = unit.function_of(module, name);
    return recorded(name, callee, operands, nullptr, true, [&] {
        Ref keep;
        return asked(name, walk(callee, {}, keep), operands, nullptr, run);
    });
}

Val Body::operation(const char* name, std::span<const Val> operands,
                    const std::function<Ref()>& run) {
    return evaluated("operator", name, operands, run);
}

Val Body::builtin(const char* name, std::span<const Val> operands,
                  const std::function<Ref()>& run) {
    return evaluated("builtins", name, operands, run);
}

// getattr(base, name) or getattr(base, name, otherwise): the member itself, if there is one.
Val Body::read_member(const Val& base, PyObject* name, const Val* otherwise) {
    PyObject* key = Py_NewRef(name);
    PyUnicode_InternInPlace(&key);
    const Ref held = Ref::steal(key);
    if (!otherwise) return member(base, key);
    const Val operands[] = {base, {held}};
    const auto look = [&] {
        Ref found = Ref::steal_or_null(PyObject_GetAttr(base.get(), key));
        if (!found && !PyErr_ExceptionMatches(PyExc_AttributeError)) throw PyError{};
        forget_error();
        return found;
    };
    if (member_may_change(base.get(), key)) {  // asked once
        changing_code_runs("reading " + text(key));
        Ref found = look();
        return found ? Val{std::move(found)} : *otherwise;
    }
    const Val has = recorded("hasattr", unit.function_of("builtins", "hasattr"), operands, nullptr,
                             true, [&] { return Ref::borrow(look() ? Py_True : Py_False); });
    return has.get() == Py_True ? member(base, key) : *otherwise;
}

// zip, enumerate and reversed of lists and tuples that facts do not settle: the places of what they
// give are known.
Val Body::iterated(const Val& callee, std::span<const Val> operands, Ref result) {
    PyObject* t = callee.get();  // not the result's type: lists reverse by an iterator of their own
    const auto is = [&](PyTypeObject& type) { return t == reinterpret_cast<PyObject*>(&type); };
    const bool zips = is(PyZip_Type), counts = is(PyEnum_Type), turns = is(PyReversed_Type);
    const bool from_zero = operands.size() == 1;
    bool known = (zips || ((counts || turns) && from_zero)) && !operands.empty();
    for (const Val& v : operands)
        known = known && (PyList_CheckExact(v.get()) || PyTuple_CheckExact(v.get()));
    if (!known) return {};
    bool settled = true;
    for (const Val& v : operands) settled = unit.settle(v.get(), v.prov) && settled;
    if (settled) return {};
    size_t count = SIZE_MAX;
    for (const Val& v : operands)
        count = std::min(count, static_cast<size_t>(PySequence_Fast_GET_SIZE(v.get())));
    const auto item = [&](const Val& v, size_t k) {
        const auto at = static_cast<Py_ssize_t>(k);
        PyObject* o = PySequence_Fast_GET_ITEM(v.get(), at);
        if (!v.prov) {
            unit.consume(o, nullptr);
            return static_cast<Prov*>(nullptr);
        }
        Prov* place = unit.item(v.prov, Ref::steal(PyLong_FromSsize_t(at)).get());
        if (!place) unit.consume(o, nullptr);
        return place;
    };
    std::vector<Prov*> places;
    for (size_t k = 0; k < count; ++k) {
        if (turns) {
            places.push_back(item(operands[0], count - 1 - k));
            continue;
        }
        std::vector<Prov*> row;
        if (counts) row.push_back(nullptr);
        for (const Val& v : operands) row.push_back(item(v, k));
        places.push_back(unit.display(std::move(row), true));
    }
    return {std::move(result), unit.display(std::move(places), false)};
}

}  // namespace qd::frontend
