// See warm.h.
//
// On disk, below the folder of this format:
//   kernels/<key>/<recipe>   recipes of one kernel; key = hash of all that a process knows before
//                            it reads one: options, the code object, constants that it names,
//                            types of the arguments
// and code as cache/kernel_folder.h says.
// The key only narrows the search (a code object does not see everything: local annotations leave
// no trace in it). What makes a recipe right is that all its guards hold, source texts among them.

#include "launcher/warm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>

#include "cache/store.h"
#include "cpython/names.h"
#include "frontend/facts/annotations.h"
#include "frontend/facts/facts.h"
#include "frontend/facts/places.h"
#include "frontend/source/ast.h"
#include "frontend/values/values.h"
#include "launcher/compile_report.h"
#include "launcher/encode.h"
#include "launcher/keys.h"
#include "launcher/misses.h"
#include "session/stored_code.h"
#include "session/target.h"
#include "support/error.h"

namespace qd::launcher {
namespace {

using cache::Bytes;
using frontend::FactKind;
using frontend::Guard;
using frontend::LoweredKernel;
using frontend::ParamSource;
using frontend::SourceFunction;
using frontend::Step;

constexpr size_t kMostRecipes = 256;  // of one key: a first call may read them all

// --- recipes as bytes ---------------------------------------------------------------------------
void write_path(Writer& w, const Path& p) {
    w.number(static_cast<uint8_t>(p.root));
    w.number(int32_t(p.argument));
    w.number(int32_t(p.function));
    w.object(p.name.get());
    w.number(uint32_t(p.steps.size()));
    if (p.root == Path::Root::display) {
        w.number(uint32_t(p.items.size()));
        for (const Path& item : p.items) write_path(w, item);
    }
    for (const Step& s : p.steps) {
        w.number(static_cast<uint8_t>(s.kind));
        w.object(s.key.get());
        if (s.kind != Step::Kind::call) continue;
        w.number(uint32_t(s.operands.size()));
        for (const Path& operand : s.operands) write_path(w, operand);
    }
}

Path read_path(Reader& r) {
    Path p{};
    const auto root = r.number<uint8_t>();
    if (root > static_cast<uint8_t>(Path::Root::display))
        throw support::Error("recipe: unknown root");
    p.root = static_cast<Path::Root>(root);
    p.argument = r.number<int32_t>();
    p.function = r.number<int32_t>();
    p.name = r.object();
    p.steps.resize(r.count(2));
    if (p.root == Path::Root::display) {
        p.items.resize(r.count(14));
        for (Path& item : p.items) item = read_path(r);
    }
    for (Step& s : p.steps) {
        s.kind = static_cast<Step::Kind>(r.number<uint8_t>());
        s.key = r.object();
        if (s.kind == Step::Kind::call) {
            const uint32_t operands = r.count(14);
            for (uint32_t k = 0; k < operands; ++k) s.operands.push_back(read_path(r));
            if (s.key && (!PyTuple_CheckExact(s.key.get()) ||
                          static_cast<uint32_t>(PyTuple_GET_SIZE(s.key.get())) > operands))
                throw support::Error("recipe: keywords without operands");
            continue;
        }
        if (!s.key) throw support::Error("recipe: step without key");
        if (PyUnicode_CheckExact(s.key.get())) {  // attribute look-ups like interned names
            PyObject* key = s.key.release();
            PyUnicode_InternInPlace(&key);
            s.key = Ref::steal(key);
        }
    }
    return p;
}

// Struct types are not written: a later process takes them from the kernel's return annotation.
void write_results(Writer& w, const std::vector<ResultShape>& results) {
    w.number(uint32_t(results.size()));
    for (const ResultShape& r : results) {
        w.number(static_cast<uint8_t>(r.kind));
        w.number(r.type.word());
        w.number(int32_t(r.result));
        w.text(r.name);
        if (r.kind == ResultShape::Kind::structure) write_results(w, r.members);
    }
}

std::vector<ResultShape> read_results(Reader& r) {
    std::vector<ResultShape> results(r.count(13));
    for (ResultShape& s : results) {
        s.kind = static_cast<ResultShape::Kind>(r.number<uint8_t>());
        s.type = std::bit_cast<Type>(r.number<uint64_t>());
        s.result = r.number<int32_t>();
        s.name = r.text();
        if (s.kind == ResultShape::Kind::structure) s.members = read_results(r);
    }
    return results;
}

struct FieldFact {
    uint64_t layout, alias;
    std::string name;  // if code reports it
};

struct Place {
    std::string file;
    int32_t line;
};

// Checks name lines and fields in what they report, and warnings their lines.
bool reports_places() { return session().options.check_indices(); }
bool reports_places(const LoweredKernel& k) {
    return reports_places() || std::ranges::any_of(k.notices, [](const frontend::Notice& n) {
               return n.shows_place();
           });
}

// What a function means: its source, and which of its names are variables of functions around it,
// of which that source says nothing.
struct FunctionText {
    std::string text, free;
};

std::string free_names(PyObject* function) {
    const Ref all = Ref::steal_or_null(
        PyObject_GetAttr(PyFunction_GetCode(function), cpython::names().co_freevars_));
    return all ? cpython::text(all.get()) : "";
}

Place place_of(PyObject* function) {
    const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GetCode(function));
    return {cpython::text(code->co_filename), code->co_firstlineno};
}

uint64_t layout_of(const Ref& array) {
    PyObject* o = array ? data::unwrap(array.get()) : nullptr;
    return o && data::is_ndarray(o) ? reinterpret_cast<data::NdarrayObject*>(o)->layout : 0;
}

struct StoredRecipe {
    Recipe recipe;
    std::vector<uint32_t> field_groups;  // parallel to the guards
    std::vector<bool> replaced;          // likewise: what has a name of ours is not ours
    std::vector<FunctionText> texts;
    std::vector<FieldFact> fields;
    std::vector<uint64_t> layouts;  // of the parameters that are arrays
    std::vector<Place> places;      // if code reports where it stands: of the functions
};

StoredRecipe read_recipe(const Bytes& bytes) {
    Reader r{bytes};
    StoredRecipe s;
    LoweredKernel& k = s.recipe.kernel;
    if (r.number<uint32_t>() != kRecipeVersion) throw support::Error("recipe: of another version");
    s.recipe.code_hash = r.bytes();
    s.texts.resize(r.count(4));
    for (FunctionText& t : s.texts) t = {r.text(), r.text()};
    s.places.resize(r.count(8));
    for (Place& p : s.places) {
        p.file = r.text();
        p.line = r.number<int32_t>();
    }
    k.functions.resize(s.texts.size());
    k.guards.resize(r.count(19));
    for (Guard& g : k.guards) {
        g.path = read_path(r);
        g.kind = static_cast<FactKind>(r.number<uint8_t>());
        s.replaced.push_back(r.number<uint8_t>() != 0);
        g.value = r.object();
        s.field_groups.push_back(r.number<uint32_t>());
    }
    const uint32_t params = r.count(20);
    k.params.resize(params);
    s.recipe.params.resize(params);
    for (uint32_t n = 0; n < params; ++n) {
        k.params[n].path = read_path(r);
        const auto kind = r.number<uint8_t>();
        if (kind > static_cast<uint8_t>(ParamSource::Kind::graph_state))
            throw support::Error("recipe: unknown kind of parameter");
        k.params[n].kind = static_cast<ParamSource::Kind>(kind);
        s.recipe.params[n].type = std::bit_cast<Type>(r.number<uint64_t>());
        s.recipe.params[n].offset = r.number<uint32_t>();
        s.recipe.params[n].needs_grad = r.number<uint8_t>();
        const auto bits = r.number<uint8_t>();
        k.params[n].written = bits & 1;
        k.params[n].no_gradient = bits & 2;
        k.params[n].splits = bits & 4;
        k.params[n].only_foreign = bits & 8;
        k.params[n].only_own = bits & 16;
        s.recipe.params[n].name = r.text();
        s.layouts.push_back(r.number<uint64_t>());
    }
    k.field_paths.resize(r.count(20));
    s.fields.resize(k.field_paths.size());
    for (size_t n = 0; n < s.fields.size(); ++n) {
        k.field_paths[n] = read_path(r);
        s.fields[n].layout = r.number<uint64_t>();
        s.fields[n].alias = r.number<uint64_t>();
        s.fields[n].name = r.text();
    }
    k.returns_tuple = r.number<uint8_t>();
    k.has_print = r.number<uint8_t>();
    k.notices.resize(r.count(13));
    for (frontend::Notice& n : k.notices) {
        n.category = static_cast<frontend::Notice::Category>(r.number<uint8_t>());
        if (n.category > frontend::Notice::Category::log)
            throw support::Error("recipe: unknown warning");
        n.text = r.text();
        n.file = r.text();
        n.line = r.number<uint32_t>();
    }
    k.graph.levels.resize(r.count(8));
    for (frontend::GraphTable::Level& l : k.graph.levels) {
        l.flag = r.text();
        l.parent = static_cast<int>(r.number<uint32_t>());
    }
    k.graph.checkpoints.resize(r.count(8));
    for (frontend::GraphTable::Checkpoint& c : k.graph.checkpoints) {
        c.label = r.text();
        c.flag = r.text();
    }
    k.results = read_results(r);
    return s;
}

// --- guards -------------------------------------------------------------------------------------
// Whether a function's source now is `wanted`: its lines in the file, and nothing more that belongs
// to the same block behind them.
bool source_is(PyObject* function, const FunctionText& wanted) {
    const std::string& text = wanted.text;
    if (free_names(function) != wanted.free) return false;
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GetCode(function));
    const frontend::SourceFile* file =
        frontend::source_file(code->co_filename, PyFunction_GetCode(function));
    if (!file || !frontend::is_source_of(*file, PyFunction_GetCode(function))) return false;
    const int first = code->co_firstlineno;
    int lines = 0;
    for (const char c : text) lines += c == '\n';
    if (!text.empty() && text.back() != '\n') ++lines;
    if (first < 1 || first + lines - 1 > static_cast<int>(file->lines.size())) return false;
    if (frontend::slice_of(*file, first, first + lines - 1) != text) return false;
    auto indent = [](std::string_view line) { return line.find_first_not_of(" \t\f\r"); };
    const size_t own = indent(file->lines[static_cast<size_t>(first) - 1]);
    for (size_t next = static_cast<size_t>(first + lines) - 1; next < file->lines.size(); ++next) {
        const std::string_view line = file->lines[next];
        const size_t depth = indent(line);
        if (depth == std::string_view::npos || line[depth] == '#') continue;
        return depth <= own;
    }
    return true;
}

struct Walker {
    PyObject* definition;  // of the kernel
    std::span<PyObject* const> args;
    std::vector<Ref> functions;  // plain Python functions by index; null: not reached yet

    Ref root(const Path& p) const {
        if (p.root == Path::Root::constant) return p.name;
        if (p.root == Path::Root::display) return display(p);
        if (p.root == Path::Root::module) return p.name ? frontend::module_of(p.name.get()) : Ref();
        if (p.root == Path::Root::argument)
            return p.argument >= 0 && static_cast<size_t>(p.argument) < args.size()
                       ? Ref::borrow(args[static_cast<size_t>(p.argument)])
                       : Ref();
        if (p.root == Path::Root::annotation) return annotation(p.argument);
        if (p.function < 0 || static_cast<size_t>(p.function) >= functions.size()) return {};
        PyObject* fn = functions[static_cast<size_t>(p.function)].get();
        if (!fn || !p.name) return {};
        return p.root == Path::Root::global ? frontend::global_of(fn, p.name.get())
                                            : frontend::cell_of(fn, p.name.get());
    }

    Ref annotation(int parameter) const {
        const Ref params = Ref::steal_or_null(PyObject_GetAttrString(definition, "params"));
        const Ref row =
            params ? Ref::steal_or_null(PySequence_GetItem(params.get(), parameter)) : Ref();
        const Ref found = row ? Ref::steal_or_null(PySequence_GetItem(row.get(), 1)) : Ref();
        return found ? Ref::borrow(frontend::strip_optional(found.get())) : Ref();
    }

    // False: one of them is gone.
    bool find_all(std::span<const Path> paths, std::vector<Ref>& out) const {
        for (const Path& p : paths) {
            out.push_back(find(p));
            if (!out.back()) return false;
        }
        return true;
    }

    Ref display(const Path& p) const {
        std::vector<Ref> items;
        return find_all(p.items, items) ? frontend::display_of(items, p.argument) : Ref();
    }

    Ref call(PyObject* callee, const Step& step) const {
        std::vector<Ref> values;
        if (!find_all(step.operands, values)) return {};
        return frontend::ask(callee, values, step.key.get(), frontend::Asker::guard);
    }

    Ref find(const Path& p) const {
        Ref at = root(p);
        for (const Step& s : p.steps) {
            if (!at) break;
            at = s.kind == Step::Kind::call
                     ? call(data::unwrap(at.get()), s)
                     : frontend::ask_part(at.get(), s.key.get(), s.kind == Step::Kind::attribute,
                                          frontend::Asker::guard);
        }
        if (!at) cpython::forget_error();
        return at;
    }
};

// The name of our package that a guard on a callable begins with; null if it doesn't. `package`
// gets the module.
PyObject* name_of_ours(const Guard& g, const Walker& walker, Ref& package) {
    if (g.kind != FactKind::type || g.path.root == Path::Root::argument || g.path.steps.empty())
        return nullptr;
    package = walker.root(g.path);
    if (!package || !PyModule_Check(package.get())) return nullptr;
    const char* name = PyModule_GetName(package.get());
    return name && !std::strcmp(name, "quadrants") ? g.path.steps[0].key.get() : nullptr;
}

// Whether somebody put something else under it.
bool is_replaced_name(const Guard& g, const Walker& walker) {
    Ref package;
    PyObject* name = name_of_ours(g, walker, package);
    if (!name) return false;
    const Ref own = Ref::steal_or_null(PyObject_CallMethod(package.get(), "_is_own", "(O)", name));
    cpython::forget_error();
    return own.get() != Py_True;
}

// A name of our package that nobody has looked up in this process: the build, which is part of the
// key, decides what it is, and finding out would import its module.
bool is_untouched_name(const Guard& g, const Walker& walker) {
    Ref package;
    PyObject* name = name_of_ours(g, walker, package);
    return name && !PyDict_Contains(PyModule_GetDict(package.get()), name);
}

// Guards on fields say which of them are one field: swapping in a different pattern is a change.
Bytes write_recipe(PyObject* definition, const LoweredKernel& k, std::span<PyObject* const> args,
                   std::span<const ir::Param> params, std::span<const uint8_t> code_hash) {
    Walker walker{definition, args, {}};
    for (const SourceFunction& f : k.functions) walker.functions.push_back(f.function);
    std::map<PyObject*, uint32_t> fields;
    Writer w;
    w.number(kRecipeVersion);
    w.bytes(code_hash);
    w.number(uint32_t(k.functions.size()));
    for (const SourceFunction& f : k.functions) {
        w.text(f.text);
        w.text(free_names(f.function.get()));
    }
    w.number(reports_places(k) ? uint32_t(k.functions.size()) : 0);
    for (const SourceFunction& f : k.functions) {
        if (!reports_places(k)) break;
        const Place place = place_of(f.function.get());
        w.text(place.file);
        w.number(place.line);
    }
    w.number(uint32_t(k.guards.size()));
    for (const Guard& g : k.guards) {
        write_path(w, g.path);
        w.number(static_cast<uint8_t>(g.kind));
        w.number(static_cast<uint8_t>(is_replaced_name(g, walker)));
        w.object(g.value.get());
        uint32_t group = 0;
        if (g.kind == FactKind::field) {
            const Ref now = walker.find(g.path);
            if (!now) return {};
            group =
                fields.try_emplace(data::unwrap(now.get()), static_cast<uint32_t>(fields.size()))
                    .first->second;
        }
        w.number(group);
    }
    w.number(uint32_t(params.size()));
    for (size_t n = 0; n < params.size(); ++n) {
        write_path(w, k.params[n].path);
        w.number(static_cast<uint8_t>(k.params[n].kind));
        w.number(params[n].type.word());
        w.number(params[n].offset);
        w.number(uint8_t(params[n].needs_grad));
        w.number(uint8_t(k.params[n].written | k.params[n].no_gradient << 1 |
                         k.params[n].splits << 2 | k.params[n].only_foreign << 3 |
                         k.params[n].only_own << 4));
        w.text(params[n].name);
        w.number(k.params[n].kind == ParamSource::Kind::array
                     ? layout_of(walker.find(k.params[n].path))
                     : 0);
    }
    w.number(uint32_t(k.field_paths.size()));
    for (size_t n = 0; n < k.field_paths.size(); ++n) {
        write_path(w, k.field_paths[n]);
        const auto* f = reinterpret_cast<const data::FieldObject*>(k.fields[n].get());
        w.number(f->field->layout_hash());
        w.number(f->field->alias_group);
        w.text(reports_places() ? f->field->name : "");
    }
    w.number(uint8_t(k.returns_tuple));
    w.number(uint8_t(k.has_print));
    w.number(uint32_t(k.notices.size()));
    for (const frontend::Notice& n : k.notices) {
        w.number(static_cast<uint8_t>(n.category));
        w.text(n.text);
        w.text(n.file);
        w.number(n.line);
    }
    w.number(uint32_t(k.graph.levels.size()));
    for (const frontend::GraphTable::Level& l : k.graph.levels) {
        w.text(l.flag);
        w.number(static_cast<uint32_t>(l.parent));
    }
    w.number(uint32_t(k.graph.checkpoints.size()));
    for (const frontend::GraphTable::Checkpoint& c : k.graph.checkpoints) {
        w.text(c.label);
        w.text(c.flag);
    }
    write_results(w, k.results);
    if (w.failed) return {};
    return std::move(w.out);
}

bool guard_holds(size_t n, Walker& walker, const StoredRecipe& s) {
    const Guard& g = s.recipe.kernel.guards[n];
    if (!s.replaced[n] && is_untouched_name(g, walker)) return true;
    const Ref now = walker.find(g.path);
    if (!now) return false;
    if (g.kind == FactKind::function) {
        const long index =
            g.value && PyLong_Check(g.value.get()) ? PyLong_AsLong(g.value.get()) : -1;
        if (index < 0 || static_cast<size_t>(index) >= s.texts.size()) return false;
        Ref fn = plain_function(now.get());
        if (!fn) return false;
        Ref& known = walker.functions[static_cast<size_t>(index)];
        // Two functions of one text have cells of their own, and guards on them.
        if (known) return known.get() == fn.get();
        if (!source_is(fn.get(), s.texts[static_cast<size_t>(index)])) return false;
        known = std::move(fn);
        return true;
    }
    return g.value && frontend::fact_holds({nullptr, g.kind, g.value}, now.get());
}

bool resolve(StoredRecipe& s, KernelObject& k, std::span<PyObject* const> args) {
    Walker walker{k.definition, args, {}};
    walker.functions.resize(s.texts.size());
    if (s.texts.empty()) return false;
    walker.functions[0] = plain_function(k.definition);
    if (!walker.functions[0] || !source_is(walker.functions[0].get(), s.texts[0]))
        return refuse("the source of the kernel changed");
    std::map<uint32_t, PyObject*> field_of;
    std::map<PyObject*, uint32_t> group_of;
    for (size_t n = 0; n < s.recipe.kernel.guards.size(); ++n) {
        const Guard& g = s.recipe.kernel.guards[n];
        if (!guard_holds(n, walker, s)) {
            cpython::forget_error();
            // To find it again may call the user's helpers once more.
            return asked_misses && refuse_guard(g, walker.find(g.path).get(), k);
        }
        if (g.kind != FactKind::field) continue;
        const Ref now = walker.find(g.path);
        PyObject* field = now ? data::unwrap(now.get()) : nullptr;
        if (field_of.try_emplace(s.field_groups[n], field).first->second != field ||
            group_of.try_emplace(field, s.field_groups[n]).first->second != s.field_groups[n])
            return refuse([&] { return "which fields are one changed at " + describe(g.path, k); });
    }
    std::set<PyObject*> seen;
    std::map<uint64_t, uint64_t> groups;  // stored alias group to live one, and back
    std::map<uint64_t, uint64_t> back;
    for (size_t n = 0; n < s.fields.size(); ++n) {
        const Path& path = s.recipe.kernel.field_paths[n];
        const Ref found = walker.find(path);
        PyObject* o = found ? data::unwrap(found.get()) : nullptr;
        if (!o || !data::is_field(o) || !seen.insert(o).second)
            return refuse([&] { return "no field of its own any more: " + describe(path, k); });
        const auto* f = reinterpret_cast<data::FieldObject*>(o);
        if (!f->field || !f->base || f->destroyed || f->generation != session().generation)
            return false;
        if (f->field->layout_hash() != s.fields[n].layout)
            return refuse([&] { return "the layout changed of " + describe(path, k); });
        if (reports_places() && f->field->name != s.fields[n].name)
            return refuse([&] { return "the name changed of " + describe(path, k); });
        const uint64_t live = f->field->alias_group;
        if (groups.try_emplace(s.fields[n].alias, live).first->second != live) return false;
        if (back.try_emplace(live, s.fields[n].alias).first->second != s.fields[n].alias)
            return false;
        s.recipe.kernel.fields.push_back(Ref::borrow(o));
    }
    for (size_t n = 0; n < s.recipe.kernel.params.size(); ++n) {
        const ParamSource& p = s.recipe.kernel.params[n];
        if (p.kind == ParamSource::Kind::graph_state) continue;
        const Ref found = walker.find(p.path);
        if (!found) return refuse([&] { return "gone: " + describe(p.path, k); });
        if (p.kind == ParamSource::Kind::array && layout_of(found) != s.layouts[n])
            return refuse([&] { return "the layout changed of " + describe(p.path, k); });
    }
    for (size_t n = 0; n < s.places.size(); ++n) {
        PyObject* fn = n < walker.functions.size() ? walker.functions[n].get() : nullptr;
        if (!fn) continue;
        const Place now = place_of(fn);
        if (now.file != s.places[n].file || now.line != s.places[n].line)
            return refuse([&] { return "the place in its file changed of " + cpython::text(fn); });
    }
    for (size_t n = 0; n < walker.functions.size(); ++n)
        s.recipe.kernel.functions[n].function = std::move(walker.functions[n]);
    return frontend::bind_results(k.definition, s.recipe.kernel.results);
}

}  // namespace

std::unique_ptr<Specialisation> find_recipe(KernelObject& k, PyObject* const* args, size_t count,
                                            const AcceptRecipe& accept,
                                            std::vector<std::string>* misses) {
    if (!keeps_cache()) return nullptr;
    const AskMisses asking(misses);
    const std::string key = kernel_key(k, {args, count});
    if (key.empty()) return nullptr;
    const std::string folder = "kernels/" + key;
    for (const std::string& name : store().list(folder)) {
        cpython::let_handlers_raise();
        try {
            const auto bytes = store().read(folder + "/" + name);
            if (!bytes) continue;
            StoredRecipe s = read_recipe(*bytes);
            if (!resolve(s, k, {args, count})) continue;
            auto artefact = find_artefact(s.recipe.code_hash);
            if (!artefact) {
                refuse("its code is gone");
                continue;
            }
            s.recipe.artefact = std::move(*artefact);
            if (auto made = accept(s.recipe)) return made;
            refuse("the arguments are of other kinds");
            if (PyErr_Occurred()) cpython::forget_error();
        } catch (const support::Error&) {  // damaged: a miss
        } catch (const cpython::PyError&) {
            cpython::forget_error();
        } catch (const frontend::Diag&) {  // what an argument is not cannot be a fact about it
        }
    }
    return nullptr;
}

std::string store_recipe(KernelObject& k, PyObject* const* args, size_t count,
                         const LoweredKernel& kernel, std::span<const ir::Param> params,
                         std::span<const uint8_t> code_hash) {
    if (!keeps_cache()) return "";
    if (!kernel.cacheable) return kernel.uncacheable_reason;
    const std::string key = kernel_key(k, {args, count});
    const Bytes bytes = write_recipe(k.definition, kernel, {args, count}, params, code_hash);
    if (key.empty() || bytes.empty()) return "no key or a value that cannot be written";
    cpython::let_handlers_raise();  // a question that one interrupted has a wrong answer
    const std::string folder = "kernels/" + key;
    const std::string file = folder + "/" + cache::hex(hash_of(bytes));
    (void)store().write(file, bytes);
    store().trim(folder, kMostRecipes);
    if (reports_compiling()) note_recipe(file);
    return "";
}

std::optional<std::string> kernel_text(const std::string& file) try {
    const auto bytes = store().read(file);
    if (!bytes) return {};
    Reader r{*bytes};
    if (r.number<uint32_t>() != kRecipeVersion) return {};
    (void)r.bytes();
    if (!r.count(4)) return {};
    return r.text();
} catch (const support::Error&) {
    return {};
}

Fit fit_of(const std::string& file, KernelObject& k, PyObject* const* args, size_t count) try {
    const Ref fn = plain_function(k.definition);
    const auto bytes = store().read(file);
    if (!bytes || !fn) return Fit::none;
    StoredRecipe s = read_recipe(*bytes);
    if (s.texts.empty()) return Fit::none;
    if (!source_is(fn.get(), s.texts[0])) return Fit::other_source;
    return resolve(s, k, {args, count}) ? Fit::whole : Fit::some_guard_fails;
} catch (const support::Error&) {
    return Fit::none;
} catch (const cpython::PyError&) {
    return cpython::forget_error(), Fit::none;
} catch (const frontend::Diag&) {
    return Fit::none;
}

}  // namespace qd::launcher
