// What outside code sees of a kernel: its specialisations, and where the code of each came from.
// Nothing here is called by launches.

#include <string>

#include "cache/store.h"
#include "launcher/kernel.h"

namespace qd::launcher {
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

// (floats, signed, unsigned, arrays, arrays with gradients) that the last launch bound. Vectors,
// structs and arrays of others are none.
Ref count_bound(const Specialisation& s) {
    int floats = 0, ints = 0, uints = 0, arrays = 0, with_grad = 0;
    for (const PackStep& step : s.steps) {
        if (step.kind == PackStep::Kind::array) {
            if (!(step.foreign & PackStep::kLastForeign)) ++(step.has_grad ? with_grad : arrays);
        } else if (step.kind == PackStep::Kind::scalar && !step.structs) {
            const Prim p = step.type.prim;
            ++(type::is_float(p) ? floats : type::is_signed(p) ? ints : uints);
        }
    }
    return Ref::steal_or_null(Py_BuildValue("(iiiii)", floats, ints, uints, arrays, with_grad));
}

// What the log says of it at level debug.
void log_origin(const Specialisation& made, Making::From from) {
    using enum Making::From;
    if (!cache::debugs()) return;
    const std::string key = " (key='" + made.code + "')";
    cache::debug(from == compiler ? "Cache kernel '" + made.name + "'" + key
                                  : "Create kernel '" + made.name + "' from " +
                                        (from == memory ? "in-memory cache" : "cache") + key);
}

}  // namespace

Ref describe(const KernelObject& k, const Specialisation& s) {
    const Ref passed = list_of(s.steps, [&](const PackStep& p) { return describe_step(k, p); });
    const Ref fixed =
        list_of(s.identities, [&](const IdentityCheck& c) { return describe_identity(k, c); });
    const Ref graph = graph_tables_of(&s), bound = count_bound(s);
    if (!passed || !fixed || !graph || !bound) return {};
    const runtime::KernelImage* image = s.slot ? &*s.slot->current() : nullptr;
    return Ref::steal_or_null(
        Py_BuildValue("{sIsisnsOsOsOsOss}", "number", s.number, "tier", image ? image->tier : 2,
                      "tasks", image ? static_cast<Py_ssize_t>(image->tasks.size()) : Py_ssize_t{1},
                      "passed", passed.get(), "fixed", fixed.get(), "bound", bound.get(), "graph",
                      graph.get(), "code", s.code.c_str()));
}

PyObject* describe_specialisations(PyObject* kernel, void*) {
    const auto& k = *reinterpret_cast<KernelObject*>(kernel);
    if (k.generation != session().generation) return PyList_New(0);  // of an earlier runtime
    const Ref out = list_of(*k.specialisations, [&](const auto& s) { return describe(k, *s); });
    return out ? Py_NewRef(out.get()) : nullptr;
}

static Ref runtime_option(const char* name) {
    static PyObject* runtime;
    if (!runtime) {
        const Ref module = Ref::steal_or_null(PyImport_ImportModule("quadrants.lang.impl"));
        runtime = module ? PyObject_GetAttrString(module.get(), "pyquadrants") : nullptr;
        if (!runtime) return {};
    }
    return Ref::steal_or_null(PyObject_GetAttrString(runtime, name));
}

bool has_entries(KernelObject& k) {
    const Ref pure = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "is_pure"));
    const Ref wanted = runtime_option("src_ll_cache");
    if (!pure || !wanted) cpython::forget_error();
    return pure.get() == Py_True && wanted.get() == Py_True;
}

bool show_non_pure(KernelObject& k) {
    const Ref wanted = runtime_option("print_non_pure");
    const Ref pure = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "is_pure"));
    if (!wanted || !pure) return false;
    if (wanted.get() != Py_True || pure.get() == Py_True) return true;
    PySys_FormatStdout("[NOT_PURE] Debug information: not pure: %s\n", kernel_name(k).c_str());
    return true;
}

bool tell(KernelObject& k, std::span<PyObject* const> args, const Specialisation& made,
          std::span<const frontend::SourceFunction> source, Making::From from, bool cacheable) {
    log_origin(made, from);
    const Ref pure = Ref::steal_or_null(PyObject_GetAttrString(k.definition, "is_pure"));
    if (!pure) return false;
    Ref what = Ref::borrow(Py_None);
    if (pure.get() == Py_True) {
        const Ref given = Ref::steal_or_null(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
        const Ref functions = Ref::steal_or_null(PyList_New(0));
        // Whoever asks about a loaded one describes it then: a warm start should not pay for that.
        const Ref described =
            from == Making::From::cache ? Ref::borrow(Py_None) : describe(k, made);
        if (!given || !functions || !described) return false;
        for (size_t n = 0; n < args.size(); ++n)
            PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(n), Py_NewRef(args[n]));
        for (const frontend::SourceFunction& f : source)
            if (f.function && PyList_Append(functions.get(), f.function.get()) < 0) return false;
        what = Ref::steal_or_null(
            Py_BuildValue("(IOOO)", made.number, given.get(), functions.get(), described.get()));
        if (!what) return false;
    }
    return bool(Ref::steal_or_null(PyObject_CallMethod(
        k.definition, "_built", "OOO", from == Making::From::compiler ? Py_True : Py_False,
        cacheable ? Py_True : Py_False, what.get())));
}

}  // namespace qd::launcher
