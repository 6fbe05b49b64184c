// Lowering a kernel: parameters by their annotations, the body, results, and what the launcher and
// the cache must know about it.

#include "frontend/specialise.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "frontend/body/body.h"
#include "frontend/calls/calls.h"
#include "frontend/diag.h"
#include "frontend/values/structs.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

thread_local Lowering* innermost = nullptr;
uint64_t lowered_kernels = 0;

Ref get(PyObject* o, PyObject* name) { return Ref::steal(PyObject_GetAttr(o, name)); }

[[noreturn]] void bad_return(const std::string& got, PyObject* wanted) {
    const Ref shown = is_tensor_type_object(wanted)
                          ? Ref::steal(PyObject_CallMethod(wanted, "to_string", nullptr))
                          : Ref::borrow(wanted);
    raise(Kind::runtime_type,
          "Return (type=" + got + ") cannot be converted into required type " + text(shown.get()));
}

std::string shape_text(ir::Type t) {
    return t.rank == 1 ? "(" + std::to_string(t.n) + ",)"
                       : "(" + std::to_string(t.n) + ", " + std::to_string(t.m) + ")";
}

// Stores one returned object into the module's results.
ResultShape store_result(Body& body, PyObject* annotation, PyObject* value) {
    Lowering& l = body.low;
    ir::Module& m = *l.kernel->module;
    ResultShape shape;
    shape.result = static_cast<int>(m.results.size());
    const auto emit = [&](ir::Value* v) {
        ir::Value* operands[] = {v};
        ir::Inst* i = l.b.emit(ir::Op::set_result, operands, {});
        i->imm = m.results.size();
        m.results.push_back(v->type);
        shape.type = v->type;
    };
    if (const auto p = prim_of(annotation)) {
        shape.kind = ResultShape::Kind::scalar;
        if (is_struct(value) || (!is_expr(value) && !PyNumber_Check(value)))
            bad_return(type_name(value), annotation);
        ir::Value* v = to_value(value);
        if (!v->type.is_scalar()) bad_return(type::to_user_string(v->type), annotation);
        emit(l.b.cast(v, *p));
        return shape;
    }
    if (const auto t = tensor_type_of(annotation)) {
        need_sizes(*t, "what is returned");
        shape.kind = ResultShape::Kind::tensor;
        if (is_struct(value)) bad_return(type_name(value), annotation);
        ir::Value* v = to_value(value);
        if (is_expr(value) && v->type.is_scalar())
            bad_return(type::to_user_string(v->type), annotation);
        if (v->type.rank != t->rank)
            raise(Kind::runtime_type,
                  "Return matrix ndim mismatch, expecting=" + std::to_string(t->rank) +
                      ", got=" + std::to_string(v->type.rank) + ".");
        if (v->type.n != t->n || v->type.m != t->m)
            raise(Kind::runtime_type, "Return matrix shape mismatch, expecting=" + shape_text(*t) +
                                          ", got=" + shape_text(v->type) + ".");
        const ir::Prim p = t->prim == ir::Prim::none ? v->type.prim : t->prim;
        if (type::is_int(p) && type::is_float(v->type.prim))
            bad_return(type::to_user_string(v->type), annotation);
        emit(l.b.cast(v, p));
        return shape;
    }
    if (is_struct_type(annotation)) {
        shape.kind = ResultShape::Kind::structure;
        shape.struct_type = Ref::borrow(annotation);
        check_returned_struct(annotation, value);
        Ref members = get(annotation, names().members_);
        PyObject* given = reinterpret_cast<StructObject*>(value)->members;
        PyObject *key, *type;
        for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &key, &type);) {
            shape.members.push_back(store_result(body, type, PyDict_GetItem(given, key)));
            shape.members.back().name = text(key);
        }
        return shape;
    }
    raise(Kind::syntax, "Invalid return type annotation: " + text(annotation));
}

// Finds the struct types of a stored shape; false if the annotation says something else.
bool bind_result(ResultShape& shape, PyObject* annotation) {
    switch (shape.kind) {
        case ResultShape::Kind::scalar: {
            const auto p = prim_of(annotation);  // int and float: by the options, which are facts
            return p && (PyType_Check(annotation) || ir::Type::scalar(*p) == shape.type);
        }
        case ResultShape::Kind::tensor: {
            const auto t = tensor_type_of(annotation);
            return t && t->rank == shape.type.rank && t->n == shape.type.n && t->m == shape.type.m;
        }
        case ResultShape::Kind::structure:
            break;
    }
    if (!is_struct_type(annotation)) return false;
    const Ref members = get(annotation, names().members_);
    if (PyDict_Size(members.get()) != static_cast<Py_ssize_t>(shape.members.size())) return false;
    shape.struct_type = Ref::borrow(annotation);
    PyObject *key, *type;
    size_t k = 0;
    for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &key, &type); ++k)
        if (shape.members[k].name != text(key) || !bind_result(shape.members[k], type))
            return false;
    return true;
}

// Syntax trees are many tracked objects without garbage: the collector only walks them in vain.
struct CollectorPause {
    const bool was_on = PyGC_Disable() == 1;
    ~CollectorPause() {
        if (was_on) PyGC_Enable();
    }
};

// Definition attributes.
struct Signature {
    Ref fn, returns;
    std::vector<Ref> names, annotations;
};

Signature read_signature(PyObject* definition) {
    Signature s;
    s.fn = get(definition, names().fn_);
    s.returns = get(definition, names().returns_);
    Ref params = get(definition, names().params_);
    Ref list = Ref::steal(PySequence_Tuple(params.get()));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list.get()); ++k) {
        PyObject* row = PyTuple_GET_ITEM(list.get(), k);
        PyObject* name = Py_NewRef(PyTuple_GetItem(row, 0));
        PyUnicode_InternInPlace(&name);
        s.names.push_back(Ref::steal(name));
        s.annotations.push_back(Ref::borrow(PyTuple_GetItem(row, 1)));
    }
    return s;
}

// The Python exception that is set says first what was being done; its class stays.
void prefix_error(PyObject* fn) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (text(value).starts_with("Non contiguous"))  // chapter 20: the message begins so
        return PyErr_Restore(type, value, traceback);
    const Ref owned[] = {Ref::steal_or_null(type), Ref::steal_or_null(value),
                         Ref::steal_or_null(traceback)};
    PyErr_SetString(
        type,
        ("exception while trying to ensure compiled " + text(fn) + ":\n" + text(value)).c_str());
}

void lower_body(Lowering& l, Body& body, const Signature& s, std::span<PyObject* const> args) {
    Active active(l);
    try {
        for (size_t k = 0; k < s.names.size(); ++k) {
            Prov* prov = body.unit.argument(static_cast<int>(k));
            prov->key = s.names[k];
            PyObject* annotation = strip_optional(s.annotations[k].get());
            if (is_struct_type(annotation))  // its methods; the rest is in the kernel's key
                guard_value(body.unit, annotation,
                            body.unit.annotation(static_cast<int>(k), annotation));
            Val v = body.bind_parameter_member(s.annotations[k].get(), Ref::borrow(args[k]), prov);
            // A struct is the call's own: its members may be written to.
            if (is_struct_type(annotation)) {
                const ir::Loc* loc = std::exchange(l.b.loc, nullptr);
                v = {new_variable(v.get())};
                l.b.loc = loc;
            }
            body.declare(s.names[k].get(), std::move(v), Binding::Kind::kernel_argument);
        }
        body.parameter_count = s.names.size();
    } catch (const Diag& d) {  // argument errors carry no source
        set_python_error(d);
        if (d.kind == Kind::runtime_type || d.kind == Kind::type) prefix_error(s.fn.get());
        throw PyError{};
    } catch (const PyError&) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) prefix_error(s.fn.get());
        throw;
    }
    try {
        if (l.kernel->checkpoints) {
            const ir::Type words = ir::Type::array(type::kI32, 1);
            l.kernel->graph_state = body.unit.function->add_param(*body.unit.function->body, words);
            ir::Param p;
            p.type = words;
            p.name = "graph state";
            l.kernel->module->params.push_back(std::move(p));
            l.kernel->out->params.push_back({{}, ParamSource::Kind::graph_state});
        }
        body.task_statements = body.source.body;
        body.block(body.source.body);
        bool is_tuple = false;
        l.node = nullptr;
        if (!result_annotations(s.returns.get(), is_tuple).empty() && !body.has_return)
            raise(Kind::syntax, "Kernel has a return type but does not have a return statement");
        l.b.end(ir::Op::return_);
    } catch (...) {
        add_frame(l);
        throw;
    }
}

}  // namespace

bool traces_for_caller() {
    return current() ? !amid_handler(current()->kernel->frame.get()) : answers_guard();
}

void note_opaque(const char* reason) {
    if (current() && current()->body) current()->body->unit.opaque(reason);
}

void prefix_binding_error(PyObject* definition) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError))
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const Ref fn = get(definition, names().fn_);
    PyErr_Restore(type, value, traceback);
    prefix_error(fn.get());
}

Lowering* current() { return innermost; }

Lowering& current_or_raise(const char* what) {
    if (!innermost) {
        (void)answers_guard();  // which notes that a kernel was needed
        PyErr_Format(PyExc_AssertionError, "%s cannot be called in Python-scope", what);
        throw PyError{};
    }
    return *innermost;
}

namespace {
thread_local bool not_tracing = false;
}
NotTracing::NotTracing() : kept_(innermost), before_(not_tracing) {
    innermost = nullptr;
    not_tracing = true;
}
NotTracing::~NotTracing() {
    innermost = kept_;
    not_tracing = before_;
}
bool NotTracing::active() { return not_tracing; }

int tracing = 0;
Active::Active(Lowering& l) : previous(innermost) {
    innermost = &l;
    ++tracing;
}
Active::~Active() {
    innermost = previous;
    --tracing;
}

Lowering::Body::Body(Lowering& l, Unit& u, PyObject* definition_object)
    : low(l),
      unit(u),
      source(source_of(get(definition_object, names().fn_).get())),
      function(get(definition_object, names().fn_)),
      definition(Ref::borrow(definition_object)) {
    returns = get(definition_object, names().returns_);
    file_name = source.file->name;
    function_name = source.name;
    PyObject* closure = PyFunction_GetClosure(function.get());
    if (!closure) return;
    Ref free = get(PyFunction_GetCode(function.get()), names().co_freevars_);
    cells = Ref::steal(PyDict_New());
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(closure); ++k)
        PyDict_SetItem(cells.get(), PyTuple_GET_ITEM(free.get(), k), PyTuple_GET_ITEM(closure, k));
}

void Lowering::Body::set_kernel_result(const Val& v) {
    bool is_tuple = false;
    const std::vector<Ref> annotations = result_annotations(returns.get(), is_tuple);
    if (annotations.empty()) {
        if (v.get() == Py_None) return;
        raise(Kind::syntax,
              "A kernel with a return value must be annotated with a return type, e.g. def func() "
              "-> qd.f32");
    }
    // A tuple of one type may mean that type alone.
    const bool items_given = PyTuple_Check(v.get()) || PyList_Check(v.get());
    if (annotations.size() == 1 && !(items_given && PySequence_Fast_GET_SIZE(v.get()) == 1))
        is_tuple = false;
    LoweredKernel& out = *low.kernel->out;
    out.returns_tuple = is_tuple;
    if (!is_tuple) {
        out.results.push_back(store_result(*this, annotations[0].get(), v.get()));
        return;
    }
    if (!items_given) bad_return(type_name(v.get()), returns.get());
    Ref items = Ref::steal(PySequence_List(v.get()));
    if (static_cast<size_t>(PyList_GET_SIZE(items.get())) != annotations.size())
        raise(Kind::syntax, "The number of returned values (" +
                                std::to_string(PyList_GET_SIZE(items.get())) +
                                ") is not equal to the return type's (" +
                                std::to_string(annotations.size()) + ")");
    for (size_t k = 0; k < annotations.size(); ++k)
        out.results.push_back(store_result(
            *this, annotations[k].get(), PyList_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k))));
}

// An array that was reached in a way that left no track (through zip, a helper): found again from
// the arguments. Members of dataclasses, data-oriented objects, lists and dicts, breadth first.
Prov* Lowering::Body::find_place(PyObject* array) {
    std::vector<Val> queue;
    for (size_t k = 0; k < parameter_count; ++k)
        if (bindings[k].value.prov) queue.push_back(bindings[k].value);
    std::vector<PyObject*> seen;
    for (size_t at = 0; at < queue.size() && at < 4096; ++at) {
        const Val v = queue[at];
        PyObject* o = v.get();
        if (std::find(seen.begin(), seen.end(), o) != seen.end()) continue;
        seen.push_back(o);
        const auto consider = [&](PyObject* item, Prov* prov) {
            if (unwrap(item) == array) return prov;
            if (PyList_Check(item) || PyTuple_Check(item) || PyDict_Check(item) ||
                has_attribute(item, "__dict__"))
                if (!PyType_Check(item) && !PyModule_Check(item) && !PyFunction_Check(item) &&
                    !is_field(item))
                    queue.push_back({Ref::borrow(item), prov});
            return static_cast<Prov*>(nullptr);
        };
        if (PyList_Check(o) || PyTuple_Check(o)) {
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
                if (Prov* p = consider(PySequence_Fast_GET_ITEM(o, k),
                                       unit.item(v.prov, Ref::steal(PyLong_FromSsize_t(k)).get())))
                    return p;
            continue;
        }
        Ref dict = PyDict_Check(o) ? Ref::borrow(o)
                                   : Ref::steal_or_null(PyObject_GetAttr(o, names().__dict___));
        forget_error();
        if (!dict || !PyDict_Check(dict.get())) continue;
        PyObject *key, *item;
        for (Py_ssize_t i = 0; PyDict_Next(dict.get(), &i, &key, &item);) {
            if (is_expr(item)) continue;
            if (Prov* p = consider(
                    item, PyDict_Check(o) ? unit.item(v.prov, key) : unit.attribute(v.prov, key)))
                return p;
        }
    }
    return nullptr;
}

// --- fields
// ------------------------------------------------------------------------------------------

void use_field(Unit& u, PyObject* field) {
    if (!u.field_seen.try_emplace(field, true).second) return;
    u.fields.push_back(Ref::borrow(field));
}

[[noreturn]] static void raise_unplaced(PyObject* field) {
    const Ref primal = Ref::steal(PyObject_GetAttrString(field, "_companion_of"));
    const std::string name = text(Ref::steal(PyObject_GetAttrString(field, "_name")).get());
    if (primal.get() == Py_None &&
        Ref::steal(PyObject_CallMethod(field, "_is_placed", nullptr)).get() == Py_True)
        raise(Kind::plain_runtime,
              "Field " + name +
                  " has no allocation: there was no memory for the fields declared with it, or "
                  "another "
                  "thread has not placed all of its own",
              "declare them again with smaller shapes; or place those of the other thread first");
    if (primal.get() == Py_None)
        raise(Kind::plain_runtime, "Field " + name + " has not been placed",
              "give it a shape, or place it in a node before a kernel uses it");
    const std::string which = name.substr(name.rfind('.') + 1);
    raise(Kind::plain_runtime,
          "Gradient ." + which + " has not been placed, check whether `needs_grad=True`",
          "create the field with needs_" + which + "=True, or call qd.root.lazy_" + which + "()");
}

const ir::Field* bind_field(FieldObject* f) {
    Lowering& l = current_or_raise("A field");
    if (f->generation != current_generation())
        raise(
            Kind::runtime,
            "This field belongs to a runtime that no longer exists (qd.init or qd.reset ended it)");
    if (f->destroyed) raise(Kind::runtime, "SNode tree has been destroyed");
    if (!f->field) raise_unplaced(reinterpret_cast<PyObject*>(f));
    use_field(l.body->unit, reinterpret_cast<PyObject*>(f));
    return f->field;
}

// The field that holds a field's gradients or tangents; null: it has none.
static PyObject* companion_of(Unit& u, PyObject* field, PyObject* name) {
    const Ref found = Ref::steal(PyObject_GetAttr(field, name));
    if (!is_field(found.get())) return nullptr;
    const auto it = u.field_places.find(field);
    if (it != u.field_places.end())  // whether it has storage
        guard_value(u, found.get(), u.attribute(it->second, name));
    PyObject* companion = found.get();  // which the field keeps
    return reinterpret_cast<FieldObject*>(companion)->field ? companion : nullptr;
}

// They are fields of the kernel like those that it names.
static void use_companions(Unit& u) {
    LoweredKernel& out = *u.kernel->out;
    PyObject* const of[] = {names().grad_, names().dual_, names()._checkbit_};
    PyObject* name = of[out.derivative - 1];
    if (out.derivative == 3) u.opaque("marks belong to a program");
    const std::vector<Ref> primal = u.fields;
    std::vector<PyObject*> companions;
    for (const Ref& f : primal) {
        companions.push_back(companion_of(u, f.get(), name));
        if (companions.back()) use_field(u, companions.back());
    }
    out.companions.assign(u.fields.size(), -1);
    for (size_t k = 0; k < companions.size(); ++k) {
        const auto at =
            std::ranges::find_if(u.fields, [&](const Ref& f) { return f.get() == companions[k]; });
        if (companions[k]) out.companions[k] = static_cast<int32_t>(at - u.fields.begin());
    }
}

void finish_unit(Unit& u) {
    LoweredKernel& out = *u.kernel->out;
    constexpr size_t kMostParameters = 512;
    if (out.params.size() > kMostParameters)
        raise(Kind::runtime, "The kernel has " + std::to_string(out.params.size()) +
                                 " parameters, members of dataclasses that it uses counted singly. "
                                 "Do not exceed 512 on x64 backend.");
    function_index(u, out.functions.empty() ? nullptr : out.functions[0].function.get());
    if (out.derivative) use_companions(u);
    for (const Ref& f : u.fields) {
        u.kernel->module->fields.push_back(reinterpret_cast<FieldObject*>(f.get())->field);
        out.fields.push_back(f);
        const auto it = u.field_places.find(f.get());
        if (it == u.field_places.end())
            u.opaque("a field was reached in a way that is not recorded");
        out.field_paths.push_back(it == u.field_places.end() ? Path{} : path_of(it->second, u));
    }
    out.notices = u.notices;
    for (const std::string& message : u.kernel->captures)
        out.notices.push_back({Notice::Category::user, message});
    for (const Fact& f : u.facts) {
        Guard g{path_of(f.prov, u), f.kind, f.value};
        if (f.kind == FactKind::function)
            g.value = Ref::steal(PyLong_FromLong(function_index(u, f.value.get())));
        out.guards.push_back(std::move(g));
    }
    std::unordered_set<PyObject*> guarded;
    for (const Fact& f : u.facts)
        if (f.kind == FactKind::function) guarded.insert(f.value.get());
    for (PyObject* fn : u.called)
        if (!guarded.contains(fn) && !is_own_code(fn))
            u.opaque("a func was reached in a way that is not recorded: " + text(fn));
    if (u.foreign) {
        out.cacheable = false;
        if (out.uncacheable_reason.empty()) out.uncacheable_reason = u.foreign_reason;
    }
}

// --- kernels
// -----------------------------------------------------------------------------------------

static uint64_t id_of(const ir::CodeOptions& options, uint8_t derivative) {
    static auto* seen = new std::vector<std::string>;
    std::string key = ir::key_of(options) + char('0' + derivative);
    const auto at = std::ranges::find(*seen, key);
    const auto id = static_cast<uint64_t>(at - seen->begin());
    if (at == seen->end()) seen->push_back(std::move(key));
    return id;
}

// As messages count arguments: members of dataclasses that are used singly, and behind all what the
// kernel finds in other objects.
static void number_arguments(ir::Module& m, const LoweredKernel& k,
                             std::span<PyObject* const> args) {
    std::vector<std::tuple<bool, int, size_t>> order;
    for (size_t n = 0; n < k.params.size(); ++n) {
        const Path& p = k.params[n].path;
        const bool argument = p.root == Path::Root::argument;
        const bool found =
            !argument || (!p.steps.empty() && !is_dataclass(reinterpret_cast<PyObject*>(
                                                  Py_TYPE(args[static_cast<size_t>(p.argument)]))));
        order.emplace_back(found, argument ? p.argument : 0, n);
    }
    std::ranges::sort(order);
    for (size_t at = 0; at < order.size(); ++at)
        m.params[std::get<2>(order[at])].number = static_cast<uint32_t>(at);
}

std::unique_ptr<LoweredKernel> lower_kernel(PyObject* definition, std::span<PyObject* const> args,
                                            const ir::Options& options, const std::string& name) {
    const CollectorPause pause;
    begin_errors(options);
    auto out = std::make_unique<LoweredKernel>();
    out->module = std::make_unique<ir::Module>();
    ir::Module& m = *out->module;
    m.name = name;
    m.options = options;
    m.owned.push_back(std::make_unique<ir::Function>(name));
    m.functions.push_back(m.owned.back().get());
    KernelState state;
    state.frame = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    state.module = &m;
    state.out = out.get();
    state.options = options;
    const Ref derivative = get(definition, names().derivative_);
    out->derivative = static_cast<uint8_t>(PyLong_AsLong(derivative.get()));
    state.options_id = id_of(options, out->derivative);
    state.number = ++lowered_kernels;
    Unit unit;
    unit.kernel = &state;
    unit.function = m.functions[0];
    unit.is_kernel = true;
    Lowering l;
    l.kernel = &state;
    l.kind = FunctionKind::kernel;
    l.b.function = unit.function;
    l.b.region = unit.function->body;
    try {
        const Signature s = read_signature(definition);
        if (args.size() != s.names.size())
            raise(Kind::type, "the kernel takes " + std::to_string(s.names.size()) +
                                  " arguments, not " + std::to_string(args.size()));
        const Ref pure = get(definition, names().is_pure_);
        state.pure = pure.get() == Py_True;
        state.graph = get(definition, names().graph_).get() == Py_True;
        state.checkpoints = get(definition, names().checkpoints_).get() == Py_True;
        function_index(unit, s.fn.get());
        Body body(l, unit, definition);
        l.body = &body;
        l.b.loc =
            unit.function->new_loc({body.file_name, body.function_name, body.source.first_line});
        lower_body(l, body, s, args);
        if (state.user_runs) unit.see_changes(args);
        if (options.debug) note_races(unit, m);
        finish_unit(unit);
        ir::complete(m);
        ir::lay_out_params(m);
        if (options.check_indices()) number_arguments(m, *out, args);
        note_written_arrays(*out);
        let_handlers_raise();
    } catch (...) {
        raise_python();
        return nullptr;
    }
    out->has_print = state.has_print;
    out->functions_owner = functions_owner();
    return out;
}

bool bind_results(PyObject* definition, std::vector<ResultShape>& results) {
    bool is_tuple = false;
    const std::vector<Ref> annotations =
        result_annotations(get(definition, names().returns_).get(), is_tuple);
    if (results.empty()) return true;
    if (annotations.size() != results.size()) return false;
    for (size_t k = 0; k < results.size(); ++k)
        if (!bind_result(results[k], annotations[k].get())) return false;
    return true;
}

void notice_here(Notice notice) { current()->body->unit.notice(std::move(notice)); }

bool callers_are_known() {
    if (current()->body->unit.is_kernel) return true;
    for (const Lowering* l = current(); l; l = l->caller)
        if (l->body->is_real) return true;
    return false;
}

std::string kernel_function_name() {
    const Lowering* root = current();
    while (root->caller) root = root->caller;
    return std::string(root->body->function_name);
}

}  // namespace qd::frontend
