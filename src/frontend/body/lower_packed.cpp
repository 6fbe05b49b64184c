// Quantised fields: their numbers lie packed in the words of a hidden field.
//
// An element is a field_place that is never loaded or stored: what reads and writes it is kernel
// code of ours, python/quadrants/_library/packed.py, which works on the words. The place stays as
// what debug checks look at, and goes with dead code.

#include <span>
#include <utility>

#include "cpython/names.h"
#include "frontend/body/body.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

constexpr const char* kLibrary = "quadrants._library.packed";

// The element's place, and which component of it is meant; -1: all.
struct Packed {
    const ir::Inst* place;
    int component;
};

Packed packed_at(ir::Value* place) {
    const ir::Inst* def = ir::resolve(place)->def;
    const ir::Value* chosen = nullptr;
    if (def && def->op == Op::comp_place) {
        chosen = ir::resolve(def->operand(1));
        def = ir::resolve(def->operand(0))->def;
    }
    if (!def || def->op != Op::field_place || !def->field()->packed) return {nullptr, -1};
    if (!chosen) return {def, -1};
    if (ir::is_constant(chosen)) return {def, static_cast<int>(ir::constant_bits(chosen))};
    if (def->field()->elem.count() == 1) return {def, 0};
    raise(Kind::runtime, "Element of the MatrixField is not dynamic indexable.",
          "use a constant index: each component of a quantised element has bits of its own");
}

// Calls the library for one component: with how it is packed, the element's index, and the rest.
Val call(const ir::Inst& place, int component, const char* function, std::vector<Val> rest) {
    Lowering::Body& body = *current()->body;
    PyObject* field = current()->kernel->special_fields.at(place.field());
    const Val all = body.field_member(reinterpret_cast<FieldObject*>(field), "_packed");
    const Ref number = Ref::steal(PyLong_FromLong(component));
    std::vector<Value*> index;
    for (int k = 0; k < place.operand_count; ++k) index.push_back(place.operand(k));
    std::vector<Val> args{body.element(all, number.get())};
    args.push_back({index.empty() ? make_value(builder().int_const(Prim::i32, 0))
                                  : index_tensor(std::move(index))});
    for (Val& v : rest) args.push_back(std::move(v));
    return body.library(kLibrary, function, std::move(args));
}

// Of one component, or of every one of the element.
template <class F>
Value* for_components(const Packed& at, F&& of_one) {
    const Type t = at.place->field()->elem;
    if (at.component >= 0 || t.rank == 0) return of_one(at.component < 0 ? 0 : at.component);
    std::vector<Value*> parts;
    for (int k = 0; k < t.count(); ++k) parts.push_back(of_one(k));
    return parts[0] ? build(t, parts) : nullptr;
}

Value* part_of(Value* v, int component) {
    return v->type.rank ? frontend::component(v, component) : v;
}

// Nothing flows through bits; who gave the field a gradient expects that something does.
void refuse_gradient(const ir::Inst& place) {
    auto* field =
        reinterpret_cast<FieldObject*>(current()->kernel->special_fields.at(place.field()));
    const bool tangents = current()->kernel->out->derivative > 1;
    const Val has = current()->body->field_member(field, tangents ? "_has_dual" : "_has_grad");
    if (has.get() == Py_True)
        raise(Kind::runtime, "gradients do not flow through quantised fields",
              "copy field " + place.field()->name + " to an ordinary one in a kernel of its own");
}

}  // namespace

bool is_packed(ir::Value* place) { return packed_at(place).place; }

Value* load_place(Value* place) {
    const Packed at = packed_at(place);
    if (!at.place) return builder().load(place);
    if (current()->kernel->out->derivative) refuse_gradient(*at.place);
    return for_components(at,
                          [&](int k) { return to_value(call(*at.place, k, "load", {}).get()); });
}

void store_packed(Value* place, Value* v) {
    const Packed at = packed_at(place);
    for_components(at, [&](int k) -> Value* {
        call(*at.place, k, "store", {{make_value(part_of(v, k))}});
        return nullptr;
    });
}

Value* update_packed(Value* place, const char* atomic, Value* operand) {
    const Packed at = packed_at(place);
    return for_components(at, [&](int k) {
        const Ref op = Ref::steal(PyUnicode_InternFromString(atomic));
        return to_value(
            call(*at.place, k, "update", {{make_value(part_of(operand, k))}, {op}}).get());
    });
}

}  // namespace qd::frontend
