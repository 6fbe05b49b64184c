// See assemble.h.

#include "launcher/assemble.h"

#include <algorithm>

#include "cpython/names.h"
#include "data/external.h"
#include "data/objects.h"
#include "frontend/facts/annotations.h"
#include "frontend/source/ast.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"
#include "ir/ir.h"
#include "session/stored_code.h"

namespace qd::launcher {
namespace {

bool compares_by_value(PyObject* o) {
    if (o == Py_None || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) ||
        PyTuple_Check(o))
        return true;
    if (data::is_field(o) || PyType_Check(o) || PyFunction_Check(o)) return false;
    // What hashes by identity is itself alone, whatever `==` says (vectors, for instance).
    static PyObject* const hash = PyUnicode_InternFromString("__hash__");
    if (_PyType_Lookup(Py_TYPE(o), hash) == _PyType_Lookup(&PyBaseObject_Type, hash)) return false;
    return Py_TYPE(o)->tp_richcompare != PyBaseObject_Type.tp_richcompare &&
           Py_TYPE(o)->tp_hash != PyObject_HashNotImplemented;
}

// Whether a tuple that stays the same object may become another value.
bool may_change(PyObject* tuple) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) {
        PyObject* item = PyTuple_GET_ITEM(tuple, k);
        if (PyTuple_Check(item) ? !frontend::is_stack_short() && may_change(item)
                                : item != Py_None && !PyLong_Check(item) && !PyFloat_Check(item) &&
                                      !PyUnicode_Check(item) && compares_by_value(item))
            return true;
    }
    return false;
}

// Numbers and strings that are equal hash alike. Of others the hash is kept: an object may have
// been changed since, and vectors in a tuple are equal to any other, but hash by identity.
void remember_hash(IdentityCheck& check) {
    PyObject* o = check.object;
    if (PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_CheckExact(o)) return;
    check.hash = PyObject_Hash(o);
    if (check.hash == -1) cpython::forget_error();
    check.rehash = check.hash != -1 && PyTuple_Check(o) && may_change(o);
}

// Of data-oriented objects not all that they hold need count for `==`: what they held is kept.
// Dataclasses are compared by their fields.
void remember_members(IdentityCheck& check) {
    PyTypeObject* type = Py_TYPE(check.object);
    if (!_PyType_Lookup(type, cpython::names()._data_oriented_) ||
        _PyType_Lookup(type, cpython::names().__dataclass_fields___))
        return;
    const Ref dict = Ref::steal_or_null(PyObject_GetAttr(check.object, cpython::names().__dict___));
    if (!dict) cpython::forget_error();
    check.by_value = dict && PyDict_Check(dict.get());
    if (check.by_value) check.members = Ref::steal(PyDict_Copy(dict.get()));
}

void watch(IdentityCheck& check) {
    if (check.by_value) remember_members(check);
    if (check.by_value) remember_hash(check);
    if (!check.by_value) {
        check.weak = Ref::steal_or_null(PyWeakref_NewRef(check.object, nullptr));
        if (!check.weak) cpython::forget_error();
    }
    if (!check.weak) check.strong = Ref::borrow(check.object);
}

// What a method is bound to, unless the path to the method leads there anyway: null.
PyObject* foreign_owner(PyObject* o, PyObject* root, const std::vector<Ref>& attributes) {
    if (!PyMethod_Check(o)) return nullptr;
    PyObject* owner = PyMethod_GET_SELF(o);
    if (attributes.empty()) return owner;
    const Ref parent = Ref::steal_or_null(
        follow(root, std::vector<Ref>(attributes.begin(), attributes.end() - 1)));
    if (!parent) cpython::forget_error();
    return parent.get() == owner ? nullptr : owner;
}

void add_identity(Specialisation& s, int argument, std::vector<Ref> attributes, PyObject* root,
                  PyObject* object) {
    PyObject* owner = foreign_owner(object, root, attributes);
    object = identity_of(object);
    IdentityCheck check{argument, attributes, object, {}, {}, compares_by_value(object)};
    watch(check);
    s.identities.push_back(std::move(check));
    if (!owner) return;
    IdentityCheck bound{argument, std::move(attributes), owner, {}, {}, false, true};
    watch(bound);
    s.identities.push_back(std::move(bound));
}

bool is_host_view(PyObject* o) {
    static PyTypeObject* cache;
    return Py_TYPE(o) == frontend::python_class("quadrants.lang.buffer_view", "BufferView", cache);
}

// Structs, views and dataclasses on the way to a leaf must be of the class they had: whatever else
// has attributes of these names is refused, which only a new specialisation does.
void note_classes(PackStep& step, const Parameter& p, PyObject* root) {
    step.classes.resize(step.attributes.size());
    Ref at = Ref::borrow(root);
    for (size_t k = 0; at && k < step.attributes.size(); ++k) {
        PyTypeObject* type = Py_TYPE(at.get());
        const bool is_struct = frontend::is_host_struct(at.get());
        if (is_struct && k < 32) step.structs |= 1u << k;
        if (is_struct || is_host_view(at.get()) ||
            (p.kind == Parameter::Kind::dataclass &&
             _PyType_Lookup(type, cpython::names().__dataclass_fields___)))
            step.classes[k] = Ref::borrow(reinterpret_cast<PyObject*>(type));
        at = Ref::steal_or_null(follow_step(at.get(), step.attributes[k].get()));
    }
    if (!at) cpython::forget_error();
}

// What the annotations say of a member: of a struct type, or of a dataclass.
Ref member_annotation(PyObject* annotation, PyObject* name) {
    const bool is_struct = frontend::is_struct_type(annotation);
    const Ref all = Ref::steal_or_null(
        PyObject_GetAttr(annotation, is_struct ? cpython::names().members_
                                               : cpython::names().__dataclass_fields___));
    PyObject* member =
        all && PyDict_Check(all.get()) ? PyDict_GetItemWithError(all.get(), name) : nullptr;
    if (!member) return cpython::forget_error(), Ref();
    Ref type = is_struct ? Ref::borrow(member)
                         : Ref::steal_or_null(PyObject_GetAttr(member, cpython::names().type_));
    if (!type) return cpython::forget_error(), Ref();
    return Ref::borrow(frontend::strip_optional(type.get()));
}

bool has_class(PyObject* annotation) {
    return frontend::is_struct_type(annotation) ||
           (PyType_Check(annotation) && _PyType_Lookup(reinterpret_cast<PyTypeObject*>(annotation),
                                                       cpython::names().__dataclass_fields___));
}

std::vector<Ref> keys_of(const Path& path) {
    std::vector<Ref> keys;
    for (const frontend::Step& step : path.steps) keys.push_back(key_of(step));
    return keys;
}

bool takes_object(const Parameter& p, PyObject* arg) {
    // Of what has no kind of its own nothing is known: it is compared as templates are.
    if (p.kind == Parameter::Kind::template_ || p.kind == Parameter::Kind::other) return true;
    const bool arrays =
        p.kind == Parameter::Kind::any_tensor || p.kind == Parameter::Kind::array || p.optional;
    return arrays && (arg == Py_None || data::is_field(data::unwrap(arg)) ||
                      frontend::is_struct_field(data::unwrap(arg)));
}

bool is_call(const frontend::Step& step) { return step.kind == frontend::Step::Kind::call; }

bool is_named_item(const frontend::Step& step) {
    return step.kind == frontend::Step::Kind::item && PyUnicode_Check(step.key.get());
}

void add_identities(Specialisation& s, const std::vector<Parameter>& parameters,
                    PyObject* const* args, const frontend::LoweredKernel& kernel) {
    for (size_t k = 0; k < parameters.size(); ++k) {
        if (takes_object(parameters[k], args[k]))
            add_identity(s, static_cast<int>(k), {}, args[k], args[k]);
        else if (parameters[k].optional || parameters[k].kind == Parameter::Kind::any_tensor)
            s.identities.push_back({static_cast<int>(k),
                                    {},
                                    nullptr,
                                    {},
                                    {},
                                    false});  // an array, not None or a field
        using enum Parameter::Kind;
        static const Parameter::Kind exact[] = {dataclass, structure, buffer_view};
        if (std::ranges::find(exact, parameters[k].kind) != std::end(exact))
            s.classes.push_back(
                {static_cast<int>(k), Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(args[k])))});
    }
    for (const frontend::Guard& g : kernel.guards) {
        if (g.path.root != Path::Root::argument || g.path.steps.empty()) continue;
        const auto n = static_cast<size_t>(g.path.argument);
        if (n >= parameters.size()) continue;
        using frontend::FactKind;
        if (parameters[n].kind != Parameter::Kind::dataclass) {
            // Template objects are baked; but of two that are equal each has its own fields.
            const bool equals = takes_object(parameters[n], args[n]) &&
                                compares_by_value(args[n]) && !PyTuple_Check(args[n]);
            if (!equals || g.kind != FactKind::field) continue;
        }
        static const FactKind kinds[] = {FactKind::constant, FactKind::field,   FactKind::function,
                                         FactKind::contents, FactKind::meaning, FactKind::object};
        if (std::ranges::find(kinds, g.kind) == std::end(kinds)) continue;
        // What Python answers follows from the objects it was asked about.
        if (std::ranges::any_of(g.path.steps, is_call)) continue;
        std::vector<Ref> keys = keys_of(g.path);
        PyObject* object = follow(args[n], keys);
        if (!object) {  // an item of a user's container: the container stands for it
            cpython::forget_error();
            const auto named = std::ranges::find_if(g.path.steps, is_named_item);
            keys.resize(static_cast<size_t>(named - g.path.steps.begin()));
            if (!keys.empty()) object = follow(args[n], keys);
        }
        if (!object) {
            cpython::forget_error();
            continue;
        }
        add_identity(s, static_cast<int>(n), std::move(keys), args[n], object);
        Py_DECREF(object);
    }
}

// Whether every object on the way to a leaf is a frozen dataclass.
bool reached_through_frozen(PyObject* root, const std::vector<Ref>& keys) {
    Ref at = Ref::borrow(root);
    for (const Ref& key : keys) {
        const Ref params = Ref::steal_or_null(PyObject_GetAttrString(
            reinterpret_cast<PyObject*>(Py_TYPE(at.get())), "__dataclass_params__"));
        const Ref frozen =
            params ? Ref::steal_or_null(PyObject_GetAttrString(params.get(), "frozen")) : Ref();
        if (!frozen || frozen.get() != Py_True || !PyUnicode_CheckExact(key.get()))
            return cpython::forget_error(), false;
        at = Ref::steal_or_null(PyObject_GetAttr(at.get(), key.get()));
        if (!at) return cpython::forget_error(), false;
    }
    return !keys.empty() && (data::is_ndarray(data::unwrap(at.get())) || PyLong_Check(at.get()) ||
                             PyFloat_Check(at.get()));
}

PyObject* leaf_of(PyObject* root, const std::vector<Ref>& keys) {
    PyObject* leaf = follow(root, keys);
    if (!leaf) cpython::forget_error();
    return leaf;
}

void add_steps(Specialisation& s, const KernelObject& of, PyObject* const* args,
               const frontend::LoweredKernel& kernel, std::span<const ir::Param> params) {
    const std::vector<Parameter>& parameters = *of.parameters;
    for (size_t k = 0; k < params.size(); ++k) {
        const frontend::ParamSource& source = kernel.params[k];
        PackStep step{};
        step.kind = static_cast<PackStep::Kind>(source.kind);
        step.argument = static_cast<uint16_t>(source.path.argument);
        step.offset = params[k].offset;
        step.type = params[k].type;
        step.needs_grad = params[k].needs_grad;
        step.refuses_grad = of.derivative && !step.needs_grad && !source.no_gradient;
        step.name = params[k].name;
        step.kernel = kernel_name(of);
        step.written = source.written;
        step.splits = source.splits;
        step.only_own = source.only_own;
        if (source.only_foreign) step.foreign = PackStep::kOnlyForeign;
        step.attributes = keys_of(source.path);
        if (!step.attributes.empty())
            note_classes(step, parameters[step.argument], args[step.argument]);
        if (step.kind == PackStep::Kind::array)
            if (PyObject* leaf = leaf_of(args[step.argument], step.attributes)) {
                PyObject* bare = data::unwrap(leaf);
                if (data::is_ndarray(bare)) {
                    const auto& array = *reinterpret_cast<data::NdarrayObject*>(bare);
                    step.layout = array.layout;
                    step.has_grad = array.grad;
                }
                Py_DECREF(leaf);
            }
        step.cacheable = step.kind != PackStep::Kind::graph_state &&  // which no argument brings
                         reached_through_frozen(args[step.argument], step.attributes);
        if (step.cacheable) {
            bool known = false;
            for (const CachedRoot& root : s.cached_roots) known |= root.argument == step.argument;
            if (!known) s.cached_roots.push_back({step.argument, nullptr, {}});
        }
        const uint32_t bytes = step.type.is_array() ? ir::array_desc_bytes(step.type.ndim)
                                                    : static_cast<uint32_t>(step.type.size_bytes());
        s.args_bytes = std::max(s.args_bytes, (step.offset + bytes + 7) & ~7u);
        s.steps.push_back(std::move(step));
    }
}

bool bind_fields(Specialisation& s, const frontend::LoweredKernel& kernel) {
    for (const Ref& f : kernel.fields) {
        const auto* field = reinterpret_cast<data::FieldObject*>(f.get());
        if (!field->base) {
            set_error("QuadrantsRuntimeError", "a field used by this kernel has no storage");
            return false;
        }
        s.bindings.push_back(field->base);
        s.fields.push_back(f);
    }
    return true;
}

// Gradients or tangents of its fields that have no storage yet: with it, they make another.
void note_lacking(Specialisation& s, uint8_t derivative) {
    PyObject* const of[] = {cpython::names().grad_, cpython::names().dual_,
                            cpython::names()._checkbit_};
    for (const Ref& f : s.fields) {
        Ref companion = Ref::steal_or_null(PyObject_GetAttr(f.get(), of[derivative - 1]));
        if (!companion) cpython::forget_error();
        if (companion && data::is_field(companion.get()) &&
            !reinterpret_cast<data::FieldObject*>(companion.get())->field)
            s.lacking.push_back(std::move(companion));
    }
}

}  // namespace

bool classes_fit(const std::vector<Parameter>& parameters, PyObject* const* args,
                 const frontend::LoweredKernel& kernel) {
    std::vector<PyObject*> known;
    const auto fits = [&](const Path& path) {
        const Parameter& p = parameters[static_cast<size_t>(path.argument)];
        if (p.kind != Parameter::Kind::structure && p.kind != Parameter::Kind::dataclass)
            return true;
        Ref type = Ref::borrow(p.annotation.get());
        Ref at = Ref::borrow(args[path.argument]);
        for (size_t k = 0; has_class(type.get()); ++k) {
            if (std::ranges::find(known, at.get()) == known.end()) {
                if (PyObject_IsInstance(at.get(), type.get()) != 1)
                    return cpython::forget_error(), false;
                known.push_back(at.get());  // kept by what it is a member of
            }
            if (k == path.steps.size()) break;
            const frontend::Step& step = path.steps[k];
            type = member_annotation(type.get(), step.key.get());
            at = type ? Ref::steal_or_null(follow_step(at.get(), key_of(step).get())) : Ref();
            if (!at || at.get() == Py_None) {
                cpython::forget_error();
                break;
            }
        }
        return true;
    };
    for (const frontend::ParamSource& source : kernel.params)
        if (!fits(source.path)) return false;
    for (const frontend::Guard& g : kernel.guards)
        if (g.path.root == Path::Root::argument && !fits(g.path)) return false;
    return true;
}

// What was an array of this object in a former specialisation and is none now is asked for at each
// launch from here on: when it is an array again, that is read anew.
void note_former_arrays(Specialisation& s, const KernelObject& k, PyObject* const* args) {
    const auto same_key = [](const Ref& a, const Ref& b) {
        if (a.get() == b.get()) return true;
        if (Py_TYPE(a.get()) != Py_TYPE(b.get())) return false;
        const int same = PyObject_RichCompareBool(a.get(), b.get(), Py_EQ);
        if (same < 0) cpython::forget_error();
        return same == 1;
    };
    const auto same_path = [&](const auto& a, const auto& b) {
        return a.argument == b.argument && std::ranges::equal(a.attributes, b.attributes, same_key);
    };
    for (const auto& former : *k.specialisations)
        for (const PackStep& step : former->steps) {
            const int n = step.argument;
            if (step.kind != PackStep::Kind::array || step.attributes.empty() ||
                (*k.parameters)[step.argument].kind != Parameter::Kind::template_)
                continue;
            const bool same_object =
                std::ranges::any_of(former->identities, [&](const IdentityCheck& c) {
                    return c.argument == n && c.attributes.empty() && c.object &&
                           c.object == identity_of(args[n]);
                });
            const auto is_it = [&](const auto& other) { return same_path(other, step); };
            const bool known =
                std::ranges::any_of(s.steps, is_it) || std::ranges::any_of(s.identities, is_it);
            if (!same_object || known) continue;
            const Ref now = Ref::steal_or_null(leaf_of(args[n], step.attributes));
            PyObject* bare = now ? data::unwrap(now.get()) : nullptr;
            if (bare && data::is_ndarray(bare)) continue;  // which this one does not read
            if (bare && data::is_external(bare)) {         // which is a constant here
                add_identity(s, n, step.attributes, args[n], bare);
                continue;
            }
            s.identities.push_back({n, step.attributes, nullptr, {}, {}, false});
            s.identities.back().no_array = true;
        }
}

std::unique_ptr<Specialisation> assemble(KernelObject& k, PyObject* const* args,
                                         const frontend::LoweredKernel& kernel,
                                         std::span<const ir::Param> params,
                                         std::shared_ptr<runtime::ImageSlot> slot,
                                         const std::vector<uint8_t>& code_hash) {
    auto s = std::make_unique<Specialisation>();
    s->generation = session().generation;
    s->slot = std::move(slot);
    s->results = kernel.results;
    s->returns_tuple = kernel.returns_tuple;
    for (const auto& other : *k.specialisations) s->number = std::max(s->number, other->number + 1);
    add_identities(*s, *k.parameters, args, kernel);
    add_steps(*s, k, args, kernel, params);
    note_former_arrays(*s, k, args);
    if (s->slot) {
        s->asks_shared = s->slot->current()->array_use & abi::kAtomicArrays;
        for (PackStep& step : s->steps)
            step.asks_shared = step.kind == PackStep::Kind::array && s->asks_shared;
        s->code = note_kernel(code_hash);
        s->result_bytes = s->slot->current()->result_bytes;
        s->args_bytes = std::max(s->args_bytes, s->slot->current()->args_bytes);
    } else {
        s->result_bytes = kernel.module->result_bytes();
    }
    if (!bind_fields(*s, kernel)) return nullptr;
    if (k.derivative) note_lacking(*s, k.derivative);
    if (!make_graph_face(*s, k.definition, kernel.graph)) return nullptr;
    return s;
}

}  // namespace qd::launcher
