// What quadrants._compat.kernel_face shows of a kernel's specialisations. Nothing here is called by
// launches.

#include "python/kernel.h"

namespace qd::python {
namespace {

Ref tuple_of(const std::vector<Ref>& items) {
    Ref out = Ref::steal_or_null(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
    for (size_t n = 0; out && n < items.size(); ++n)
        PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(n), Py_NewRef(items[n].get()));
    return out;
}

// Fills a list with `describe(item)` of each item it wants; null with an exception set.
template <class Items, class Describe>
Ref list_of(const Items& items, Describe describe) {
    Ref out = Ref::steal_or_null(PyList_New(0));
    for (const auto& item : items) {
        if (!out) return {};
        const Ref row = describe(item);
        if (!row && PyErr_Occurred()) return {};
        if (row && PyList_Append(out.get(), row.get()) < 0) return {};
    }
    return out;
}

// (kind, element type, element shape, axes, layout, has gradient, parameter, path)
Ref describe_step(const KernelObject& k, const PackStep& step) {
    static const char* const kinds[] = {"scalar", "tensor", "array"};
    if (step.kind == PackStep::Kind::graph_state) return {};  // no argument
    const Ref path = tuple_of(step.attributes);
    const Type& t = step.type;
    const Ref shape = Ref::steal_or_null(t.rank == 2   ? Py_BuildValue("(ii)", t.n, t.m)
                                         : t.rank == 1 ? Py_BuildValue("(i)", t.n)
                                                       : PyTuple_New(0));
    if (!path || !shape) return {};
    return Ref::steal_or_null(Py_BuildValue(
        "(ssOiKOOO)", kinds[static_cast<int>(step.kind)], type::info(t.prim).name, shape.get(),
        t.ndim, static_cast<unsigned long long>(step.layout), step.needs_grad ? Py_True : Py_False,
        (*k.parameters)[step.argument].name.get(), path.get()));
}

// (parameter, path, what it must be or equal, or a weak reference to that)
Ref describe_identity(const KernelObject& k, const IdentityCheck& check) {
    if (!check.object) return {};
    const Ref path = tuple_of(check.attributes);
    if (!path) return {};
    return Ref::steal_or_null(Py_BuildValue("(OOO)", (*k.parameters)[check.argument].name.get(),
                                            path.get(),
                                            check.weak ? check.weak.get() : check.object));
}

}  // namespace

Ref describe(const KernelObject& k, const Specialisation& s) {
    const Ref passed = list_of(s.steps, [&](const PackStep& p) { return describe_step(k, p); });
    const Ref fixed =
        list_of(s.identities, [&](const IdentityCheck& c) { return describe_identity(k, c); });
    const Ref graph = graph_tables_of(&s);
    if (!passed || !fixed || !graph) return {};
    const runtime::KernelImage* image = s.slot ? &*s.slot->current() : nullptr;
    return Ref::steal_or_null(Py_BuildValue(
        "{sIsisnsOsOsOss}", "number", s.number, "tier", image ? image->tier : 2, "tasks",
        image ? static_cast<Py_ssize_t>(image->tasks.size()) : Py_ssize_t{1}, "passed",
        passed.get(), "fixed", fixed.get(), "graph", graph.get(), "code", s.code.c_str()));
}

PyObject* describe_specialisations(PyObject* kernel, void*) {
    const auto& k = *reinterpret_cast<KernelObject*>(kernel);
    if (k.generation != session().generation) return PyList_New(0);  // of an earlier runtime
    const Ref out = list_of(*k.specialisations, [&](const auto& s) { return describe(k, *s); });
    return out ? Py_NewRef(out.get()) : nullptr;
}

}  // namespace qd::python
