// See accessors.h.

#include "data/accessors.h"

#include <memory>
#include <vector>

#include "cpython/cpython.h"
#include "session/session.h"
#include "session/stored_code.h"

namespace qd::data {
namespace {

using namespace session;
using session::session;

using type::Prim;
using type::Type;

std::string name_of(const ir::Field& f, bool writes) {
    return (writes ? "snode_writer_" : "snode_reader_") + std::to_string(f.alias_group);
}

// kernel(indices ...) -> element, or kernel(indices ..., element).
std::unique_ptr<ir::Module> kernel_of(const ir::Field& f, bool writes) {
    auto m = std::make_unique<ir::Module>();
    m->name = name_of(f, writes);
    m->owned.push_back(std::make_unique<ir::Function>(m->name));
    m->functions = {m->owned[0].get()};
    m->owned_fields.push_back(std::make_unique<ir::Field>(f));
    m->fields = {m->owned_fields[0].get()};
    ir::Function& fn = *m->functions[0];
    ir::Builder b{&fn, fn.body};
    const auto param = [&](Type t, std::string name) {
        m->params.push_back({.type = t, .name = std::move(name)});
        return fn.add_param(*fn.body, t);
    };
    std::vector<ir::Value*> indices;
    for (int k = 0; k < f.ndim; ++k)
        indices.push_back(param(Type::scalar(Prim::i32), "i" + std::to_string(k)));
    ir::Value* value = writes ? param(Type::scalar(f.elem.prim), "value") : nullptr;
    ir::lay_out_params(*m);
    ir::Value* place = b.typed(ir::Op::field_place, f.elem.place(), indices, 0, m->fields[0]);
    if (writes) {
        b.store(place, value);
    } else {
        m->results = {Type::scalar(f.elem.prim)};
        b.op(ir::Op::set_result, {b.load(place)});
    }
    b.end(ir::Op::return_);
    return m;
}

void show(const std::string& name, const std::vector<uint8_t>& module) {
    const auto python =
        cpython::Ref::steal_or_null(PyImport_ImportModule("quadrants.lang._inspect.inspection"));
    const auto done = python ? cpython::Ref::steal_or_null(PyObject_CallMethod(
                                   python.get(), "show_accessor", "sy#", name.c_str(),
                                   reinterpret_cast<const char*>(module.data()),
                                   static_cast<Py_ssize_t>(module.size())))
                             : cpython::Ref();
    if (!done) cpython::forget_error();
}

std::string place_text(const FieldPlace& p) {
    return " tree " + std::to_string(p.tree) + " at " + std::to_string(p.base);
}

void keep(const std::string& text, const std::vector<uint8_t>& more = {}) {
    std::vector<uint8_t> entry(text.begin(), text.end());
    entry.push_back('\n');
    entry.insert(entry.end(), more.begin(), more.end());
    note_accessor(std::move(entry));
}

}  // namespace

void note_access(const FieldPlace& p, bool writes) {
    const ir::Options& o = session().options;
    const bool shown = o.print_ir && o.print_accessor_ir;
    if (!o.offline_cache && !shown) return;
    const auto kernel = kernel_of(p.field, writes);
    if (shown) show(kernel->name, ir::serialise(*kernel));
    // Numbers of fields count up over a process, places begin anew with each session.
    kernel->owned_fields[0]->alias_group = 0;
    keep((writes ? "writer" : "reader") + place_text(p), ir::serialise(*kernel, {.names = false}));
}

void note_conversion(const FieldPlace& p, const std::string& operation) {
    keep(operation + place_text(p) + " layout " + std::to_string(p.field.layout_hash()));
}

void note_conversion(const std::string& kind, const std::string& operation) {
    keep(operation + " " + kind);
}

}  // namespace qd::data
