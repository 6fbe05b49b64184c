// The facts about compile-time objects that the code depends on; provenance.cpp says where the
// objects come from.
//
// Facts are recorded at most once per place and kind. What cannot be said as a fact (a property, a
// `__getattr__`, a helper that runs) marks the unit as foreign: its kernel's front end runs again
// in every process. Cost: one hash look-up per read, one record per distinct fact.

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cpython/names.h"
#include "frontend/diag.h"
#include "frontend/facts/annotations.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/contents.h"
#include "frontend/facts/facts.h"
#include "frontend/facts/hooks.h"
#include "frontend/facts/memo.h"
#include "frontend/facts/signature.h"
#include "frontend/source/ast.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

Ref array_signature(const ArrayInfo& a) {
    return Ref::steal(Py_BuildValue("(KiK)", static_cast<unsigned long long>(a.elem.word()), a.ndim,
                                    static_cast<unsigned long long>(a.access.pack())));
}

Ref field_signature(PyObject* o) {
    auto* f = reinterpret_cast<FieldObject*>(o);
    const uint64_t hash = f->field ? f->field->layout_hash() : 0;
    return Ref::steal(Py_BuildValue("(KO)", static_cast<unsigned long long>(hash),
                                    f->has_storage ? Py_True : Py_False));
}

// Whether a module of this package has the function under its name, as functions that others make
// do not.
bool is_named_function(PyObject* o) {
    if (!PyFunction_Check(o) || !is_own_code(o)) return false;
    PyObject* module = PyDict_GetItem(
        PyImport_GetModuleDict(), PyFunction_GET_MODULE(o) ? PyFunction_GET_MODULE(o) : Py_None);
    const Ref named = module ? Ref::steal_or_null(PyObject_GetAttr(
                                   module, reinterpret_cast<PyFunctionObject*>(o)->func_qualname))
                             : Ref{};
    forget_error();
    return named.get() == o;
}

bool is_ufunc(PyObject* o) { return has_type_named(o, "numpy.ufunc"); }

// A NumPy function by the name under which NumPy has it.
Ref ufunc_id(PyObject* o) {
    const Ref name = Ref::steal_or_null(PyObject_GetAttr(o, names().__name___));
    const Ref numpy = name ? Ref::steal_or_null(PyImport_ImportModule("numpy")) : Ref{};
    const Ref named = numpy ? Ref::steal_or_null(PyObject_GetAttr(numpy.get(), name.get())) : Ref{};
    forget_error();
    if (named.get() != o) return {};
    return Ref::steal(PyUnicode_FromFormat("numpy.ufunc %U", name.get()));
}

// What names a callable whose source is not the user's: an operation, a function of this package, a
// built-in function, a type.
Ref callable_id(PyObject* o) {
    if (const std::string_view op = operation_of(o); !op.empty())
        return Ref::steal(PyUnicode_FromFormat("operation %s", std::string(op).c_str()));
    if (is_ufunc(o)) return ufunc_id(o);
    if (PyType_Check(o)) return Ref::steal(PyUnicode_FromString(class_id(o).c_str()));
    if (!PyCFunction_Check(o) && !is_named_function(o)) return {};
    const Ref name = Ref::steal_or_null(PyObject_GetAttr(o, names().__qualname___)),
              module = Ref::steal_or_null(PyObject_GetAttr(o, names().__module___));
    forget_error();
    if (!name) return {};
    return Ref::steal(PyUnicode_FromFormat("%s.%s", module ? text(module.get()).c_str() : "",
                                           text(name.get()).c_str()));
}

// What a class was declared to be decides what its objects' members are to a kernel: its name does
// not say.
const char* marks_of(PyTypeObject* t) {
    if (!PyType_HasFeature(t, Py_TPFLAGS_HEAPTYPE)) return "";
    if (_PyType_Lookup(t, names()._data_oriented_))
        return _PyType_Lookup(t, names()._qd_template_primitives_) == Py_False
                   ? " of runtime primitives"
                   : " data-oriented";
    return _PyType_Lookup(t, names().__dataclass_fields___) ? " dataclass" : "";
}

// A type; of a function also what it was made to be, and whether it is bound to an object: its text
// says neither.
Ref kind_id(PyObject* o) {
    if (PyMethod_Check(o))
        return Ref::steal(
            PyUnicode_FromFormat("bound %U", kind_id(PyMethod_GET_FUNCTION(o)).get()));
    if (!func_of(o)) {
        const char* marks = marks_of(Py_TYPE(o));
        if (!*marks) return type_id(o);
        return Ref::steal(PyUnicode_FromFormat("%U%s", type_id(o).get(), marks));
    }
    const Ref real = Ref::steal_or_null(PyObject_GetAttrString(o, "_is_real")),
              top = Ref::steal_or_null(PyObject_GetAttrString(o, "_qd_requires_top_level"));
    forget_error();
    return Ref::steal(PyUnicode_FromFormat("%U%s%s", type_id(o).get(),
                                           real.get() == Py_True ? " real" : "",
                                           top && top.get() != Py_False ? " top-level" : ""));
}

// A host vector or matrix is baked in: its shape and each component are facts.
void guard_components(Unit& u, PyObject* o, Prov* prov) {
    Ref n = Ref::steal(PyObject_GetAttr(o, names().n_)),
        m = Ref::steal(PyObject_GetAttr(o, names().m_)),
        rank = Ref::steal(PyObject_GetAttr(o, names().ndim_));
    const long rows = PyLong_AsLong(n.get()), columns = PyLong_AsLong(m.get());
    const bool vector = PyLong_AsLong(rank.get()) == 1;
    u.fact(u.attribute(prov, names().ndim_), FactKind::constant, rank.get());
    u.fact(u.attribute(prov, names().n_), FactKind::constant, n.get());
    if (!vector) u.fact(u.attribute(prov, names().m_), FactKind::constant, m.get());
    for (long i = 0; i < rows; ++i)
        for (long k = 0; k < (vector ? 1 : columns); ++k) {
            Ref key = Ref::steal(vector ? PyLong_FromLong(i) : Py_BuildValue("(ll)", i, k));
            Ref item = Ref::steal(PyObject_GetItem(o, key.get()));
            Prov* place = u.item(prov, key.get());
            place->component = true;
            u.fact(place, FactKind::constant, normalised(item.get()).get());
        }
}

PyObject* plain_function_of(PyObject* o) {
    if (PyFunction_Check(o)) return o;
    if (PyMethod_Check(o)) return plain_function_of(PyMethod_GET_FUNCTION(o));
    if (PyObject* d = func_of(o)) {
        Ref fn = Ref::steal(PyObject_GetAttr(d, names().fn_));
        return fn.get();  // the definition keeps it
    }
    return nullptr;
}

}  // namespace

bool is_plain_constant(PyObject* o) {
    return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
           PyUnicode_CheckExact(o);
}

bool is_enum_member(PyObject* o) {
    static PyObject* cls = [] {
        PyObject* m = PyImport_ImportModule("enum");
        PyObject* c = m ? PyObject_GetAttrString(m, "Enum") : nullptr;
        Py_XDECREF(m);
        forget_error();
        return c;
    }();
    return cls && PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(cls));
}

// Whether a fact that is recorded says this already.
static bool is_said(const Fact& f, PyObject* value, PyObject* field) {
    if (f.kind == FactKind::object) return true;
    if (f.field.get() != field) return false;
    if (f.value.get() == value) return true;
    if (f.prov->component && Py_TYPE(f.value.get()) != Py_TYPE(value)) return true;
    if (f.kind == FactKind::constant) return fact_holds(f, value);
    const int same = PyObject_RichCompareBool(f.value.get(), value, Py_EQ);
    if (same < 0) forget_error();
    return same == 1;
}

void Unit::fact(Prov* prov, FactKind kind, PyObject* value, PyObject* field) {
    if (prov->kind == Prov::Kind::display) return;  // the source says it
    const uint16_t bit = static_cast<uint16_t>(1u << static_cast<int>(kind));
    if (prov->facts & bit) {
        for (int k = prov->last_fact; k >= 0; k = facts[static_cast<size_t>(k)].before)
            if (const Fact& f = facts[static_cast<size_t>(k)];
                f.kind == kind && !is_said(f, value, field))
                opaque("what changed while the kernel was compiled");
        return;
    }
    prov->facts |= bit;
    facts.push_back(
        {prov, kind, Ref::borrow(value), Ref::borrow(field), std::exchange(prov->last_fact, -1)});
    prov->last_fact = static_cast<int>(facts.size()) - 1;
}

// Whether to evaluate this place again runs code of the user.
static bool asks_user(const Prov* p, std::span<PyObject* const> args) {
    if (std::ranges::any_of(p->operands, [&](const Prov* o) { return asks_user(o, args); }))
        return true;
    if (!p->parent) return false;
    if (asks_user(p->parent, args)) return true;
    Ref keep;
    PyObject* base = walk(p->parent, args, keep);
    if (!base) return false;
    if (p->kind == Prov::Kind::item) return item_runs_hook(unwrap(base));
    if (p->kind == Prov::Kind::attribute) return member_runs_hook(unwrap(base), p->key.get());
    PyObject* callee = unwrap(base);
    if (!is_harmless(callee)) return true;
    const std::string name = callee_name(callee);
    if (PyObject* owner = owner_of(callee); owner && may_run(name, owner)) return true;
    return std::ranges::any_of(p->operands, [&](const Prov* o) {
        Ref operand;
        PyObject* now = walk(o, args, operand);
        return now && may_run(name, now);
    });
}

// A guard that asks code of the user runs before the body. If that code changes what the body read
// before, a recipe that is refused after all would leave the body with what it will be.
void Unit::see_changes(std::span<PyObject* const> args) {
    for (const Fact& f : facts) {
        if (foreign) return;
        if (asks_user(f.prov, args)) continue;
        Ref keep;
        PyObject* now = walk(f.prov, args, keep);
        if (!now || !fact_holds(f, now)) opaque("what changed while the kernel was compiled");
    }
}

void Unit::opaque(const std::string& reason) {
    if (!foreign) foreign_reason = reason;
    foreign = true;
}

// Once per place in the source and process.
static void give_to_log(const Notice& n) {
    static auto* seen = new std::unordered_set<std::string>;
    if (seen->insert(n.text + n.file + ":" + std::to_string(n.line)).second)
        try_to_log("warn", n.text);
}

void give(const Notice& n) {
    if (n.category == Notice::Category::log) return give_to_log(n);
    PyObject* const categories[] = {PyExc_SyntaxWarning, PyExc_Warning, PyExc_DeprecationWarning,
                                    PyExc_UserWarning};
    PyObject* category = categories[static_cast<int>(n.category)];
    const int failed = n.file.empty()
                           ? PyErr_WarnEx(category, n.text.c_str(), 1)
                           : PyErr_WarnExplicit(category, n.text.c_str(), n.file.c_str(),
                                                static_cast<int>(n.line), nullptr, nullptr);
    if (failed < 0) throw PyError{};
}

void Unit::notice(Notice n) {
    if (const Lowering* l = current(); l && l->undecided) throw HoldsTask{};  // it is given once
    give(n);
    notices.push_back(std::move(n));
}

ir::Value* Unit::parameter(Prov* prov, ParamSource::Kind kind, ir::Type type,
                           const std::string& name, bool needs_grad, ParamSource source) {
    for (const Lazy& l : lazy)
        if (l.prov == prov && l.value->type == type) return l.value;
    ir::Value* v = function->add_param(*function->body, type);
    lazy.push_back({prov, v});
    if (is_kernel) {
        ir::Param p;
        p.type = type;
        p.name = name;
        p.needs_grad = needs_grad;
        kernel->module->params.push_back(std::move(p));
        source.path = path_of(prov, *this);
        const auto is_call = [](const Step& s) { return s.kind == Step::Kind::call; };
        if (std::ranges::any_of(source.path.steps, is_call))
            raise(Kind::compilation, name + " is part of what a function of Python gave",
                  "pass it as an argument, or reach it by attributes of one");
        source.kind = kind;
        kernel->out->params.push_back(std::move(source));
    }
    return v;
}

namespace {
// What an annotation or a type object means, as text. Such objects do not change.
Ref meaning_of(PyObject* o) {
    struct Known {
        Ref object, text;
    };
    auto& known = memo<Known>();
    if (const auto it = known.find(o); it != known.end()) return it->second.text;
    static PyObject* const describe = [] {
        const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang._signature"));
        return Ref::steal(PyObject_GetAttrString(module.get(), "annotation_text")).release();
    }();
    const Ref whole = Ref::steal(PyObject_CallOneArg(describe, o));
    const Ref text = abridged(frontend::text(whole.get()));
    known.emplace(o, Known{Ref::borrow(o), text});
    return text;
}

// The annotations and default values of a Quadrants function; null if it has none.
Ref signature_text(PyObject* o) {
    if (PyMethod_Check(o)) return signature_text(PyMethod_GET_FUNCTION(o));
    PyObject* definition = func_of(o);
    if (!definition) return {};
    std::string out;
    bool bare = true;
    const auto add = [&](PyObject* annotation) {
        out += is_empty(annotation) ? "" : text(meaning_of(annotation).get());
        bare = bare && (is_empty(annotation) || annotation == Py_None);
    };
    const FuncSignature& s = signature_of(definition);
    for (const Param& p : s.params) {
        add(p.annotation.get());
        if (p.has_default) {
            PyObject* value = p.default_value.get();
            const Ref all = contents_of(value);
            out += "=" + text(all ? all.get() : type_id(value).get());
            bare = false;
        }
        out += ',';
    }
    add(s.returns.get());
    if (bare) return {};
    return abridged(out);
}

// Methods of structs, by name in a dict at `prov`.
void guard_methods(Unit& u, PyObject* methods, Prov* prov) {
    PyObject *name, *method;
    for (Py_ssize_t at = 0; PyDict_Check(methods) && PyDict_Next(methods, &at, &name, &method);) {
        Prov* place = u.item(prov, name);
        if (!PyObject_TypeCheck(method, &PyStaticMethod_Type)) {
            guard_value(u, method, place);
            continue;
        }
        const Ref function = Ref::steal(PyObject_GetAttr(method, names().__func___));
        guard_value(u, function.get(), u.attribute(place, names().__func___));
    }
}

void guard_type(Unit& u, PyObject* type, Prov* prov) {
    u.fact(prov, FactKind::meaning, meaning_of(type).get());
    if (!is_struct_type(type)) return;
    const auto part = [&](const char* name) {
        return Ref::steal(PyObject_GetAttr(type, interned(name).get()));
    };
    guard_methods(u, part("methods").get(), u.attribute(prov, interned("methods").get()));
    const Ref members = part("members");
    PyObject *name, *member;
    for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &name, &member);)
        if (is_struct_type(member))
            guard_type(u, member, u.item(u.attribute(prov, interned("members").get()), name));
}
}  // namespace

bool Unit::has_contents(PyObject* o, Prov* prov) {
    if (!(prov->facts & (1u << static_cast<int>(FactKind::contents)))) return false;
    if (std::exchange(prov->settled_at, kernel->user_runs) == kernel->user_runs) return true;
    if (const Ref all = contents_of(o))
        fact(prov, FactKind::contents, all.get());
    else
        opaque("what changed while the kernel was compiled");
    return true;
}

bool Unit::is_default_known(PyObject* value) { return static_cast<bool>(contents_of(value)); }

namespace {
constexpr int kDeepest = 16;

// Guards the items of a list or tuple, then calls `then` for each.
template <class Then>
void each_item(Unit& u, PyObject* o, Prov* prov, Then then) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) {
        Prov* place = u.item(prov, Ref::steal(PyLong_FromSsize_t(k)).get());
        PyObject* part = unwrap(PySequence_Fast_GET_ITEM(o, k));
        if (!place || is_expr(part) || is_struct(part)) continue;
        guard_value(u, part, place);
        then(part, place);
    }
}
}  // namespace

void Unit::guard_items(PyObject* o, Prov* prov, int depth) {
    if (!prov || depth >= kDeepest || !(PyList_CheckExact(o) || PyTuple_CheckExact(o))) return;
    if (has_contents(o, prov)) return;
    if (const Ref all = contents_of(o)) return fact(prov, FactKind::contents, all.get());
    each_item(*this, o, prov,
              [&](PyObject* part, Prov* place) { guard_items(part, place, depth + 1); });
}

// Sets have another order in each process.
static bool has_own_order(PyObject* o) { return PyAnySet_Check(o) && PySet_GET_SIZE(o) > 1; }
static constexpr char kOrderOfSet[] = "the order of a set";

void Unit::untracked(PyObject* o) {
    if (is_expr(o) || is_struct(o) || is_plain_constant(o) || foreign) return;
    if (is_stack_short()) return opaque("what is nested without end");  // a list that holds itself
    if (has_own_order(o)) return opaque(kOrderOfSet);
    PyTypeObject* t = Py_TYPE(o);
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
        if (!contents_of(o))
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
                consume(PySequence_Fast_GET_ITEM(o, k), nullptr);
        return;
    }
    const bool of_user =
        t->tp_flags & Py_TPFLAGS_HEAPTYPE || PyModule_Check(o) ||
        (PyType_Check(o) && reinterpret_cast<PyTypeObject*>(o)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    const bool changes =
        is_our(t, "CompileConfig") || is_our(t, "Program") || is_our(t, "PyQuadrants");
    if (changes ||
        (of_user && !is_numpy_scalar(o) && !is_own_code(reinterpret_cast<PyObject*>(t)) &&
         !(PyType_Check(o) && is_own_code(o))))
        opaque("a " + std::string(t->tp_name) + " was reached in a way that is not recorded");
}

bool Unit::settle(PyObject* o, Prov* prov) {
    // Of these, equal contents are all that Python can see.
    const auto is_transparent = [](auto&& self, PyObject* x, int depth) -> bool {
        if (is_plain_constant(x) || x == Py_Ellipsis || PyRange_Check(x) || PyBytes_CheckExact(x) ||
            PyComplex_CheckExact(x) || is_numpy_scalar(x) || is_dtype(x) ||
            has_type_named(x, "numpy.ndarray"))
            return true;
        if (PySlice_Check(x)) return true;  // whose parts contents_of looks at
        if (PyType_Check(x))
            return !(reinterpret_cast<PyTypeObject*>(x)->tp_flags & Py_TPFLAGS_HEAPTYPE);
        if (PyCFunction_Check(x)) {
            PyObject* self = PyCFunction_GET_SELF(x);
            return self && PyModule_Check(self);
        }
        if (is_expr(x) || is_struct(x) || is_format(x)) return true;
        if (depth > kDeepest) return false;
        if (PyList_CheckExact(x) || PyTuple_CheckExact(x)) {
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); ++k)
                if (!self(self, PySequence_Fast_GET_ITEM(x, k), depth + 1)) return false;
            return true;
        }
        if (!PyDict_CheckExact(x)) return false;
        PyObject *key, *value;
        for (Py_ssize_t at = 0; PyDict_Next(x, &at, &key, &value);)
            if (!self(self, key, depth + 1) || !self(self, value, depth + 1)) return false;
        return true;
    };
    if (is_plain_constant(o)) return true;  // a fact since it was found
    if (is_expr(o) || is_struct(o) || is_host_matrix(o)) return true;
    // Views and iterators that Python made of settled operands, or of what made the unit foreign.
    const bool is_container = PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o) ||
                              PyAnySet_Check(o) || PyType_Check(o) || PyModule_Check(o) ||
                              PyFunction_Check(o) || PyMethod_Check(o);
    if (!prov && !is_container && !(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return true;
    if (!is_transparent(is_transparent, o, 0)) return false;
    if (!prov || prov->kind == Prov::Kind::constant) return true;
    if (prov->kind != Prov::Kind::display) {
        const auto has = [&](FactKind k) { return prov->facts & (1u << static_cast<int>(k)); };
        if (has(FactKind::constant) || has_contents(o, prov)) return true;
        if (PyType_Check(o) || PyCFunction_Check(o)) return has(FactKind::type);
        const Ref all = contents_of(o);
        if (all) return fact(prov, FactKind::contents, all.get()), true;
        if (!is_symbolic(o) || PyDict_Check(o)) return false;
        bool each = true;  // an argument that holds values of the kernel
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            each = settle(PySequence_Fast_GET_ITEM(o, k),
                          item(prov, Ref::steal(PyLong_FromSsize_t(k)).get())) &&
                   each;
        return each;
    }
    bool all = true;
    for (size_t k = 0; k < prov->operands.size(); ++k)
        all = settle(PySequence_Fast_GET_ITEM(o, static_cast<Py_ssize_t>(k)), prov->operands[k]) &&
              all;
    return all;
}

bool Unit::answers_alike(Prov* place, PyObject* result) {
    const Ref before = std::exchange(place->answer, Ref::borrow(result));
    if (!before || before.get() == result) return true;
    if (Py_TYPE(before.get()) != Py_TYPE(result)) return false;
    const Ref then = contents_of(before.get()), now = contents_of(result);
    if (static_cast<bool>(then) != static_cast<bool>(now)) return false;
    return !then || PyUnicode_Compare(then.get(), now.get()) == 0;
}

void Unit::consume(PyObject* o, Prov* prov, int depth) {
    if (is_expr(o) || is_plain_constant(o)) return;  // a fact since it was found
    if (!prov && is_enum_member(o)) return;          // so is this
    refuse_at_launch(prov);
    if (!prov) return untracked(o);
    if (has_own_order(o)) return opaque(kOrderOfSet);
    if (prov->kind == Prov::Kind::constant || is_host_matrix(o) || is_struct_field(o)) return;
    const auto has = [&](FactKind k) { return prov->facts & (1u << static_cast<int>(k)); };
    if (has(FactKind::constant) || has_contents(o, prov) || has(FactKind::field) ||
        has(FactKind::function) || has(FactKind::module) || has(FactKind::meaning) ||
        has(FactKind::array) || callable_id(o))
        return;
    if (prov->kind != Prov::Kind::display)
        if (const Ref all = contents_of(o)) return fact(prov, FactKind::contents, all.get());
    if ((PyList_CheckExact(o) || PyTuple_CheckExact(o)) && depth < kDeepest) {
        each_item(*this, o, prov,
                  [&](PyObject* part, Prov* place) { consume(part, place, depth + 1); });
        return;
    }
    opaque("the contents of a " + std::string(Py_TYPE(o)->tp_name));
}

// A plain helper without (a lambda, code in the interpreter) is known by what it answers.
static bool has_source(PyObject* fn) {
    try {
        (void)source_of(fn);
        return true;
    } catch (const PyError&) {
        forget_error();
    } catch (const Diag&) {
    }
    return false;
}

void guard_class(Unit& u, PyObject* o, Prov* prov) {
    u.fact(prov, FactKind::type, kind_id(o).get());
}

// What the generated code may depend on when it uses `o`, found at `prov`.
void guard_value(Unit& u, PyObject* o, Prov* prov) {
    if (is_plain_constant(o) || is_dtype(o) || is_enum_member(o) || is_numpy_scalar(o)) {
        u.fact(prov, FactKind::constant, normalised(o).get());
    } else if (is_field(o)) {
        u.fact(prov, FactKind::field, field_signature(o).get(), o);
        u.field_places.try_emplace(o, prov);
    } else if (is_struct_field(o)) {
        u.fact(prov, FactKind::type, kind_id(o).get());
        Prov* members = u.attribute(prov, interned("field_dict").get());
        const Ref fields = Ref::steal(PyObject_GetAttrString(o, "field_dict"));
        guard_value(u, fields.get(), members);
        PyObject *key, *field;
        for (Py_ssize_t at = 0; PyDict_Next(fields.get(), &at, &key, &field);)
            guard_value(u, unwrap(field), u.item(members, key));
        const Ref methods = Ref::steal(PyObject_GetAttrString(o, "struct_methods"));
        guard_methods(u, methods.get(), u.attribute(prov, interned("struct_methods").get()));
    } else if (tensor_type_of(o) || is_struct_type(o)) {
        guard_type(u, o, prov);
    } else if (PyModule_Check(o)) {
        Ref name = Ref::steal_or_null(PyModule_GetNameObject(o));
        if (name) u.fact(prov, FactKind::module, name.get());
        forget_error();
    } else if (const Ref name = callable_id(o)) {
        u.fact(prov, FactKind::type, name.get());
    } else if (PyObject* fn = plain_function_of(o); fn && (func_of(o) || has_source(fn))) {
        u.fact(prov, FactKind::function, fn);
        u.fact(prov, FactKind::type, kind_id(o).get());
        if (const Ref signature = signature_text(o))
            u.fact(prov, FactKind::signature, signature.get());
    } else if (PyTuple_Check(o) || PyList_Check(o) || PyDict_Check(o)) {
        if (const Ref all = contents_of(o, kMostContents))
            return u.fact(prov, FactKind::contents, all.get());
        u.fact(prov, FactKind::type, kind_id(o).get());
        Ref n = Ref::steal(PyLong_FromSsize_t(PyObject_Size(o)));
        u.fact(prov, FactKind::length, n.get());
    } else {
        ArrayInfo a;
        if (is_ndarray(o) && array_info(o, a))
            u.fact(prov, FactKind::array, array_signature(a).get());
        else
            u.fact(prov, FactKind::type, kind_id(o).get());
        if (const Ref all = contents_of(o, kMostContents))
            u.fact(prov, FactKind::contents, all.get());
        else if (is_external_array(o))
            u.opaque("the contents of a large NumPy array");
        if (is_host_matrix(o)) guard_components(u, o, prov);
        // Users' own are known by what they answer; ours are called without asking.
        if ((PyFunction_Check(o) && is_own_code(o)) || is_ufunc(o))
            u.opaque("a function that has no name");
    }
}

bool fact_holds(const Fact& f, PyObject* now) {
    now = unwrap(now);  // facts are about what a qd.Tensor holds
    switch (f.kind) {
        case FactKind::constant: {
            const Ref plain = normalised(now);
            now = plain.get();
            if (Py_TYPE(now) != Py_TYPE(f.value.get())) return false;
            if (now == f.value.get()) return true;
            if (PyFloat_CheckExact(now)) {  // -0.0 and 0.0 are different constants, NaN is one
                const double a = PyFloat_AS_DOUBLE(now), b = PyFloat_AS_DOUBLE(f.value.get());
                return std::memcmp(&a, &b, sizeof a) == 0;
            }
            if (const int same = PyObject_RichCompareBool(now, f.value.get(), Py_EQ); same >= 0)
                return same == 1;
            forget_error();
            return false;
        }
        case FactKind::type: {
            if (const Ref name = callable_id(now))
                return PyObject_RichCompareBool(name.get(), f.value.get(), Py_EQ) == 1;
            return PyObject_RichCompareBool(kind_id(now).get(), f.value.get(), Py_EQ) == 1;
        }
        case FactKind::length: {
            const Py_ssize_t n = PyObject_Size(now);
            if (n < 0) forget_error();
            return n == PyLong_AsSsize_t(f.value.get());
        }
        case FactKind::function:
            return plain_function_of(now) == f.value.get();
        case FactKind::field:
            return is_field(now) &&
                   PyObject_RichCompareBool(field_signature(now).get(), f.value.get(), Py_EQ) == 1;
        case FactKind::array: {
            ArrayInfo a;
            return array_info(now, a) &&
                   PyObject_RichCompareBool(array_signature(a).get(), f.value.get(), Py_EQ) == 1;
        }
        case FactKind::module:
            return PyModule_Check(now);
        case FactKind::contents: {
            const Ref all = contents_of(now);
            return all && PyObject_RichCompareBool(all.get(), f.value.get(), Py_EQ) == 1;
        }
        case FactKind::meaning:
            return (tensor_type_of(now) || is_struct_type(now)) &&
                   PyObject_RichCompareBool(meaning_of(now).get(), f.value.get(), Py_EQ) == 1;
        case FactKind::signature: {
            const Ref text = signature_text(now);
            return text && PyObject_RichCompareBool(text.get(), f.value.get(), Py_EQ) == 1;
        }
        case FactKind::object:
            return true;  // of the launches of one process
    }
    return false;
}

}  // namespace qd::frontend
