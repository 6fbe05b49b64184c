// Meshes: python/quadrants/lang/mesh.py holds their tables as fields.
//
// An element in a kernel is a struct value of its original number, whose type is the object that
// holds the elements of its order; a relation is one of the number of the element that it is of,
// whose type is the relation. Both read their members where the kernel found the mesh, so that
// later processes find the fields there.

#include <cstring>

#include "cpython/names.h"
#include "frontend/body/body.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

// Asked of every struct, mostly by programs without meshes.
bool is_of(PyObject* o, const char* name, PyTypeObject*& cache) {
    if (std::strcmp(Py_TYPE(o)->tp_name, name) != 0) return false;
    PyTypeObject* t = python_class("quadrants.lang.mesh", name, cache);
    return t && Py_IS_TYPE(o, t);
}
bool is_relation(PyObject* o) {
    static PyTypeObject* cache;
    return is_of(o, "MeshRelation", cache);
}

PyObject* type_of_struct(PyObject* o) {
    return is_struct(o) ? reinterpret_cast<StructObject*>(o)->type : Py_None;
}
PyObject* number_of(PyObject* element_or_relation) {
    PyObject* members = reinterpret_cast<StructObject*>(element_or_relation)->members;
    return PyDict_GetItem(members, interned("id").get());
}

Ref numbered(PyObject* type, Ref number) {
    as_expr(number.get())->read_only = true;
    const Ref members = Ref::steal(PyDict_New());
    if (PyDict_SetItem(members.get(), interned("id").get(), number.get()) < 0) throw PyError{};
    return make_struct(type, members.get());
}

// A member of what a mesh holds, as the innermost body that knows where the mesh is sees it.
// `whole`: all that is in it matters.
Ref part(PyObject* of, const char* name, bool whole = false) {
    const Ref key = interned(name);
    for (Lowering* l = current(); l; l = l->caller) {
        Body& body = *l->body;
        const auto place = body.unit.mesh_places.find(of);
        if (place == body.unit.mesh_places.end()) continue;
        const Val v = body.member({Ref::borrow(of), place->second}, key.get());
        if (v.prov && (is_relation(v.get()) || is_mesh_elements(v.get())))
            body.unit.mesh_places.try_emplace(v.get(), v.prov);
        if (whole) body.unit.consume(v);
        return v.obj;
    }
    return Ref::steal(PyObject_GetAttr(of, key.get()));
}

// Of the numbers that a table holds.
Ref entry(PyObject* table, ir::Value* at) {
    const Ref index = make_value(at);
    return make_value(to_value(subscript(table, index.get()).get()));
}

struct Row {
    ir::Value *begin, *size;
    Ref known_size;  // int, if all rows have one length
};
Row row_of(PyObject* relation) {
    PyObject* type = type_of_struct(relation);
    ir::Builder& b = builder();
    ir::Value* id = to_value(number_of(relation));
    Ref size = part(type, "_size");
    if (size.get() != Py_None) {
        ir::Value* n = to_value_as(size.get(), ir::Prim::i32);
        return {b.op(ir::Op::mul, {id, n}), n, std::move(size)};
    }
    const Ref table = part(type, "_begin");
    ir::Value* begin = to_value(entry(table.get(), id).get());
    ir::Value* next = b.op(ir::Op::add, {id, b.int_const(ir::Prim::i32, 1)});
    ir::Value* end = to_value(entry(table.get(), next).get());
    return {begin, b.op(ir::Op::sub, {end, begin}), {}};
}

Ref neighbour(PyObject* relation, const Row& row, ir::Value* k) {
    PyObject* type = type_of_struct(relation);
    const Ref table = part(type, "_targets"), to = part(type, "_to");
    return numbered(to.get(), entry(table.get(), builder().op(ir::Op::add, {row.begin, k})));
}

}  // namespace

bool is_mesh_elements(PyObject* o) {
    static PyTypeObject* cache;
    return is_of(o, "MeshElementField", cache);
}
bool is_mesh_relation(PyObject* o) { return is_relation(type_of_struct(o)); }
bool is_mesh_value(PyObject* o) {
    return is_mesh_relation(o) || is_mesh_elements(type_of_struct(o));
}

Ref mesh_attribute(PyObject* value, PyObject* name) {
    if (!is_mesh_value(value)) return {};
    PyObject* type = type_of_struct(value);
    const std::string word = text(name);
    if (word.starts_with("_")) return {};
    if (is_relation(type)) {
        if (word != "size")
            raise(Kind::type, "a relation of a mesh has no attribute '" + word + "'",
                  "it has `size`, and elements: r[k]");
        Row row = row_of(value);
        return row.known_size ? std::move(row.known_size) : make_value(row.size);
    }
    const Ref known = Ref::steal(PyObject_GetAttr(type, names().__dict___));
    PyObject* found = PyDict_GetItem(known.get(), name);
    if (!found || !(is_relation(found) || is_field(found) || is_struct_field(found))) {
        part(type, "_names", true);  // another mesh may have it
        const std::string guess = similar_name(name, known.get());
        PyErr_Format(PyExc_AttributeError,
                     "%U of this mesh have no '%U': neither an attribute of that name was placed, "
                     "nor has the metadata such a relation%s%s",
                     Ref::steal(PyObject_GetAttrString(type, "_name")).get(), name,
                     guess.empty() ? "" : "; ", guess.c_str());
        throw PyError{};
    }
    const Ref held = part(type, word.c_str());
    if (is_relation(held.get())) return numbered(held.get(), to_rvalue(number_of(value)));
    return subscript(held.get(), number_of(value));
}

Ref mesh_neighbour(PyObject* relation, PyObject* index) {
    const std::vector<Ref> items = index_list(index);
    if (items.size() != 1)
        raise(Kind::index,
              "a relation of a mesh has 1 axis, got " + std::to_string(items.size()) + " indices");
    const Row row = row_of(relation);
    const auto constant = static_int(items[0].get());
    const bool constant_in_row = constant && row.known_size;
    if (constant_in_row && (*constant < 0 || *constant >= PyLong_AsLong(row.known_size.get())))
        raise(Kind::index, "the relation has " + text(row.known_size.get()) +
                               " elements, and none of number " + std::to_string(*constant));
    ir::Value* k = index_value(items[0].get(), 0);
    if (current()->kernel->options.check_indices() && !constant_in_row) {
        ir::Builder& b = builder();
        const Ref fits = make_value(
            b.op(ir::Op::lt, {b.cast(k, ir::Prim::u32), b.cast(row.size, ir::Prim::u32)}));
        CallArgs check;
        check.positional = {
            fits, Ref::steal(PyUnicode_FromString("a relation of a mesh has no such element"))};
        call_builtin("assert", check);
    }
    return neighbour(relation, row, k);
}

Flow Body::mesh_loop(const Node* n, const Val& over) {
    ir::Value* zero = low.b.int_const(ir::Prim::i32, 0);
    Counted loop{Counted::Over::data, {}, {0}};
    check_loop_rank(n, 1, false);
    if (is_mesh_relation(over.get())) {
        const Row row = row_of(over.get());
        loop.bounds.push_back({zero, row.size});
        loop.target = [&](ir::Value* k) { return neighbour(over.get(), row, k); };
        return counted(n, loop);
    }
    if (over.prov) unit.mesh_places.try_emplace(over.get(), over.prov);
    const Ref count = part(over.get(), "_count"), order = part(over.get(), "_order");
    loop.bounds.push_back({zero, to_value_as(count.get(), ir::Prim::i32)});
    loop.target = [&](ir::Value* k) {
        Ref id = order.get() == Py_None ? make_value(k) : entry(order.get(), k);
        return loops.back().element = numbered(over.get(), std::move(id));
    };
    return counted(n, loop);
}

Ref mesh_patch() {
    const std::vector<LoopFrame>& loops = current()->body->loops;
    for (auto frame = loops.rbegin(); frame != loops.rend(); ++frame) {
        if (!frame->element) continue;
        const Ref table = part(type_of_struct(frame->element.get()), "_patch");
        if (table.get() == Py_None) return make_value(builder().int_const(ir::Prim::i32, 0));
        return entry(table.get(), to_value(number_of(frame->element.get())));
    }
    raise(Kind::compilation, "qd.mesh_patch_idx() is only valid within mesh-for loops.");
}

}  // namespace qd::frontend
