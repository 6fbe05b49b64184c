// Tiles (qd.simt.Tile16x16, Tile32x32): square matrices whose row t lies in lane t of a subgroup.
//
// A tile is a struct of N scalar variables, its row, so that it lives in registers. Other lanes'
// numbers come by shuffles, which all lanes take part in; lanes beyond the last row compute what
// nobody reads. Everything over columns is written out, since registers have no index.
//
// Parts of arrays and outer products are Python objects (lang/simt/_tile.py) of what a later
// operation on a tile reads.

#include <algorithm>

#include "frontend/specialise.h"
#include "frontend/values/builtins.h"
#include "frontend/values/structs.h"

namespace qd::frontend {
namespace {

constexpr const char* kModule = "quadrants.lang.simt._tile";

bool is_part(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, kModule, "_TileSliceProxy", cache);
}
bool is_column(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, kModule, "_VecSliceProxy", cache);
}
bool is_product(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, kModule, "_OuterProduct", cache);
}

Ref module_object(const char* name) {
    const Ref module = Ref::steal(PyImport_ImportModule(kModule));
    return Ref::steal(PyObject_GetAttrString(module.get(), name));
}

bool tiles_exist() {
    if (!PyDict_GetItem(PyImport_GetModuleDict(), interned(kModule).get())) return false;
    return PyDict_Size(module_object("_tile_cache").get()) > 0;
}

// --- numbers ------------------------------------------------------------------------------------

Value* constant(int64_t v) { return builder().int_const(Prim::i32, v); }
Value* op(Op o, Value* a, Value* b) { return builder().op(o, {a, b}); }
Value* index_of(PyObject* o) { return builder().cast(index_value(o, 0), Prim::i32); }
Value* lane() {
    return builder().typed(Op::thread_index, type::kI32, {}, uint64_t(ir::ThreadNumber::lane));
}
Value* of_lane(Value* v, int k) {
    ir::Builder& b = builder();
    Value* all = b.int_const(Prim::u32, 0xffffffff);
    return b.op(Op::shuffle, {v, b.int_const(Prim::u32, k), all}, uint64_t(ir::Shuffle::lane));
}

template <class F>
void when(Value* condition, F then) {
    ir::Builder& b = builder();
    ir::Region* home = b.region;
    Value* operands[] = {condition};
    ir::Inst* branch = b.emit(Op::if_, operands, {}, 2);
    b.region = branch->regions[0];
    then();
    b.end(Op::yield);
    b.region = branch->regions[1];
    b.end(Op::yield);
    b.region = home;
}

struct Tile {
    std::vector<PyObject*> row;  // places, of the struct
    Prim prim;

    int size() const { return int(row.size()); }
    Value* get(int k) const { return to_value(row[size_t(k)]); }
    void set(int k, Value* v) const { assign(row[size_t(k)], make_value(v).get()); }
    // v as an element, in every lane.
    Value* element(PyObject* v) const { return builder().cast(to_value(v), prim); }
};

Tile tile_of(PyObject* o) {
    if (!is_tile(o)) raise(Kind::type, "a tile is expected, got '" + type_text(o) + "'");
    Tile t{{}, Prim::none};
    PyObject *key, *member;
    for (Py_ssize_t at = 0;
         PyDict_Next(reinterpret_cast<StructObject*>(o)->members, &at, &key, &member);)
        t.row.push_back(member);
    t.prim = type_of(t.row.at(0)).prim;
    return t;
}

// --- parts of arrays ----------------------------------------------------------------------------

int axes_of(PyObject* array) {
    if (is_expr(array)) return as_expr(array)->type().ndim;
    array = unwrap(array);
    if (is_field(array)) return bind_field(reinterpret_cast<FieldObject*>(array))->ndim;
    return int(PyTuple_GET_SIZE(attribute_of(array, "shape").get()));
}

// The first index of an axis that does not exist.
Value* end_of(PyObject* array, int axis) {
    if (is_expr(array)) return array_extent(array, axis);
    array = unwrap(array);
    if (is_field(array)) {
        const ir::Field* f = bind_field(reinterpret_cast<FieldObject*>(array));
        return constant(f->offset[axis] + f->shape[axis]);
    }
    const Ref shape = attribute_of(array, "shape");
    return constant(static_int(PyTuple_GET_ITEM(shape.get(), axis)).value_or(0));
}

// Where a tile or a column lies in an array.
struct Part {
    Ref array, batch;
    Value *first_row, *row_end, *first_column, *column_end;

    Ref element(Value* row, Value* column) const {
        Ref index;
        const Ref r = make_value(row), c = make_value(column);
        if (batch.get() == Py_None)
            index = Ref::steal(PyTuple_Pack(2, r.get(), c.get()));
        else
            index = Ref::steal(PyTuple_Pack(3, batch.get(), r.get(), c.get()));
        return subscript(array.get(), index.get());
    }
};

Part part_of(PyObject* proxy) {
    Part p{attribute_of(proxy, "arr"), attribute_of(proxy, "batch_idx"), {}, {}, {}, {}};
    const auto index = [&](const char* name) { return index_of(attribute_of(proxy, name).get()); };
    const int row_axis = p.batch.get() == Py_None ? 0 : 1;
    p.first_row = index("row_start");
    p.row_end = op(Op::min, index("row_stop"), end_of(p.array.get(), row_axis));
    p.first_column = index(is_part(proxy) ? "col_start" : "col");
    p.column_end = end_of(p.array.get(), row_axis + 1);
    if (is_part(proxy)) p.column_end = op(Op::min, index("col_stop"), p.column_end);
    return p;
}

Value* within_rows(const Part& p, Value* row, int size) {
    return op(Op::bit_and, op(Op::lt, lane(), constant(size)), op(Op::lt, row, p.row_end));
}

Value* number_at(const Part& p, Value* row, Value* column, Prim prim) {
    Value* v = to_value(p.element(row, column).get());
    if (!v->type.is_scalar()) raise(Kind::type, "the elements of a tile are numbers");
    return builder().cast(v, prim);
}

// f(k, row, column) for each element of this lane's row that lies in the part.
template <class F>
void for_row(const Part& p, int size, F f) {
    Value* row = op(Op::add, p.first_row, lane());
    when(within_rows(p, row, size), [&] {
        Value* count = op(Op::sub, p.column_end, p.first_column);
        for (int k = 0; k < size; ++k)
            when(op(Op::lt, constant(k), count),
                 [&] { f(k, row, op(Op::add, p.first_column, constant(k))); });
    });
}

void load(const Tile& t, const Part& p) {
    for_row(p, t.size(),
            [&](int k, Value* row, Value* column) { t.set(k, number_at(p, row, column, t.prim)); });
}

void store(const Tile& t, const Part& p) {
    for_row(p, t.size(), [&](int k, Value* row, Value* column) {
        const Ref place = p.element(row, column);
        Value* v = builder().cast(t.get(k), type_of(place.get()).prim);
        assign(place.get(), make_value(v).get());
    });
}

// This lane's number of a column; 0 outside.
Value* column_value(const Part& p, const Tile& t) {
    ir::Builder& b = builder();
    Value* slot = b.slot(Type::scalar(t.prim));
    b.store(slot, const_of(t.prim, 0));
    Value* row = op(Op::add, p.first_row, lane());
    when(op(Op::bit_and, within_rows(p, row, t.size()), op(Op::lt, p.first_column, p.column_end)),
         [&] { builder().store(slot, number_at(p, row, p.first_column, t.prim)); });
    return b.load(slot);
}

Ref bound_of(PyObject* o) { return is_expr(o) ? make_value(index_value(o, 0)) : Ref::borrow(o); }

void refuse_negative(PyObject* array, PyObject* index) {
    const auto n = static_int(index);
    if (n && *n < 0 && !is_field(unwrap(array)))
        raise(Kind::syntax, "Negative indices are not supported in Quadrants kernels.");
}

std::pair<Ref, Ref> bounds_of(PyObject* array, PyObject* slice) {
    const auto& s = *reinterpret_cast<PySliceObject*>(slice);
    if (s.start == Py_None || s.stop == Py_None)
        raise(Kind::syntax, "both start and stop indices are required in a slice of an array");
    if (s.step != Py_None) raise(Kind::syntax, "a slice of an array takes no step");
    refuse_negative(array, s.start);
    refuse_negative(array, s.stop);
    return {bound_of(s.start), bound_of(s.stop)};
}

// --- operations ---------------------------------------------------------------------------------

Value* operand_of(PyObject* o, const Tile& t) {
    if (is_column(o)) return column_value(part_of(o), t);
    if (is_part(o))
        raise(Kind::type, "an operand of qd.outer is a column, x[r0:r1, c], or a number a lane");
    Value* v = t.element(o);
    if (!v->type.is_scalar())
        raise(Kind::type, "an operand of qd.outer is a number a lane, got '" + type_text(o) + "'");
    return v;
}

void subtract_product(const Tile& t, PyObject* a, PyObject* b) {
    Value* x = operand_of(a, t);
    Value* y = a == b ? x : operand_of(b, t);
    for (int k = 0; k < t.size(); ++k)
        t.set(k, op(Op::sub, t.get(k), op(Op::mul, x, of_lane(y, k))));
}

Value* unit(int k, Prim prim) {
    Value* here = op(Op::eq, lane(), constant(k));
    return builder().op(Op::select, {here, const_of(prim, 1), const_of(prim, 0)});
}

// Right-looking: each column is divided by its pivot and taken from those behind it. What is above
// the diagonal gets no meaning. Golub and Van Loan, Matrix Computations, 4th ed., 4.2.5.
void factor(const Tile& t, PyObject* eps) {
    Value* least = t.element(eps);
    for (int k = 0; k < t.size(); ++k) {
        Value* own = builder().op(Op::sqrt, {op(Op::max, t.get(k), least)});
        Value* pivot = of_lane(own, k);
        Value* below = op(Op::div, t.get(k), pivot);
        Value* l = builder().op(Op::select, {op(Op::eq, lane(), constant(k)), pivot, below});
        t.set(k, l);
        for (int j = k + 1; j < t.size(); ++j)
            t.set(j, op(Op::sub, t.get(j), op(Op::mul, l, of_lane(l, j))));
    }
}

// x <- y with y L^T = x, by columns.
void solve(const Tile& l, const Tile& x) {
    if (l.size() != x.size() || l.prim != x.prim)
        raise(Kind::type, "a tile is solved by one of its size and dtype");
    for (int k = 0; k < l.size(); ++k) {
        Value* column = l.get(k);
        Value* y = op(Op::div, x.get(k), of_lane(column, k));
        x.set(k, y);
        for (int j = k + 1; j < l.size(); ++j)
            x.set(j, op(Op::sub, x.get(j), op(Op::mul, y, of_lane(column, j))));
    }
}

PyObject* argument(const CallArgs& a, size_t k) {
    if (k >= a.positional.size()) raise(Kind::compilation, "internal error: too few operands");
    return a.positional[k].get();
}
Ref nothing() { return Ref::borrow(Py_None); }

Ref tile_load(Lowering&, const CallArgs& a) {
    return load(tile_of(argument(a, 0)), part_of(argument(a, 1))), nothing();
}
Ref tile_store(Lowering&, const CallArgs& a) {
    return store(tile_of(argument(a, 0)), part_of(argument(a, 1))), nothing();
}
Ref tile_subtract(Lowering&, const CallArgs& a) {
    subtract_product(tile_of(argument(a, 0)), argument(a, 1), argument(a, 2));
    return nothing();
}
Ref tile_identity(Lowering&, const CallArgs& a) {
    const Tile t = tile_of(argument(a, 0));
    for (int k = 0; k < t.size(); ++k) t.set(k, unit(k, t.prim));
    return nothing();
}
// What a row of the identity has: of so many numbers, of a dtype.
Ref tile_unit_row(Lowering&, const CallArgs& a) {
    const int size = int_argument(argument(a, 0), "tile", "size");
    const Prim prim = prim_argument(argument(a, 1), "tile");
    Ref row = Ref::steal(PyTuple_New(size));
    for (int k = 0; k < size; ++k)
        PyTuple_SET_ITEM(row.get(), k, make_value(unit(k, prim)).release());
    return row;
}
Ref tile_factor(Lowering&, const CallArgs& a) {
    return factor(tile_of(argument(a, 0)), argument(a, 1)), nothing();
}
Ref tile_solve(Lowering&, const CallArgs& a) {
    return solve(tile_of(argument(a, 0)), tile_of(argument(a, 1))), nothing();
}

// One column's number of this lane, the column known when the kernel runs.
Ref tile_column(Lowering&, const CallArgs& a) {
    const Tile t = tile_of(argument(a, 0));
    Value* wanted = index_of(argument(a, 1));
    Value* found = t.get(0);
    for (int k = 1; k < t.size(); ++k)
        found = builder().op(Op::select, {op(Op::eq, wanted, constant(k)), t.get(k), found});
    return make_value(found);
}
Ref tile_set_column(Lowering&, const CallArgs& a) {
    const Tile t = tile_of(argument(a, 0));
    Value *wanted = index_of(argument(a, 1)), *v = t.element(argument(a, 2));
    for (int k = 0; k < t.size(); ++k)
        t.set(k, builder().op(Op::select, {op(Op::eq, wanted, constant(k)), v, t.get(k)}));
    return nothing();
}

// The operand as it is now.
Ref tile_operand(Lowering&, const CallArgs& a) { return to_rvalue(argument(a, 0)); }

const Builtin kRows[] = {
    {"simt.tile_load", tile_load},
    {"simt.tile_store", tile_store},
    {"simt.tile_subtract", tile_subtract},
    {"simt.tile_identity", tile_identity},
    {"simt.tile_unit_row", tile_unit_row},
    {"simt.tile_factor", tile_factor},
    {"simt.tile_solve", tile_solve},
    {"simt.tile_column", tile_column},
    {"simt.tile_set_column", tile_set_column},
    {"simt.tile_operand", tile_operand},
};

}  // namespace

std::span<const Builtin> tile_builtins() { return kRows; }

bool is_tile_type(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, kModule, "TileType", cache);
}
bool is_tile(PyObject* o) {
    return is_struct(o) && is_tile_type(reinterpret_cast<StructObject*>(o)->type);
}
bool is_array_part(PyObject* o) { return is_part(o) || is_column(o); }
bool is_tile_operand(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, kModule, "_TileOperand", cache);
}

Ref array_part(PyObject* array, std::span<const Ref> indices) {
    if (!tiles_exist()) return {};
    const size_t count = indices.size();
    const bool batched = count == 3;
    const auto is_slice = [&](size_t k) { return PySlice_Check(indices[k].get()) != 0; };
    if ((count != 2 && count != 3) || count != size_t(axes_of(array)) || (batched && is_slice(0)) ||
        !is_slice(count - 2))
        raise(Kind::syntax,
              "a part of an array is x[r0:r1, c0:c1] or x[r0:r1, c], behind the index of a batch "
              "if the array has three axes");
    const Ref batch = batched ? bound_of(indices[0].get()) : nothing();
    if (batched) refuse_negative(array, batch.get());
    const auto [r0, r1] = bounds_of(array, indices[count - 2].get());
    if (is_slice(count - 1)) {
        const auto [c0, c1] = bounds_of(array, indices[count - 1].get());
        return Ref::steal(PyObject_CallFunctionObjArgs(module_object("_TileSliceProxy").get(),
                                                       array, r0.get(), r1.get(), c0.get(),
                                                       c1.get(), batch.get(), nullptr));
    }
    refuse_negative(array, indices[count - 1].get());
    const Ref column = bound_of(indices[count - 1].get());
    return Ref::steal(PyObject_CallFunctionObjArgs(module_object("_VecSliceProxy").get(), array,
                                                   r0.get(), r1.get(), column.get(), batch.get(),
                                                   nullptr));
}

void assign_tile(PyObject* tile, PyObject* index, PyObject* value) {
    const auto* s = PySlice_Check(index) ? reinterpret_cast<PySliceObject*>(index) : nullptr;
    if (!s || s->start != Py_None || s->stop != Py_None || s->step != Py_None)
        raise(Kind::type, "a tile is loaded as a whole: tile[:] = x[r0:r1, c0:c1]");
    if (!is_part(value))
        raise(Kind::type,
              "tile[:] takes a part of an array, x[r0:r1, c0:c1], got '" + type_text(value) + "'");
    load(tile_of(tile), part_of(value));
}

void store_part(PyObject* part, PyObject* value) {
    if (!is_part(part) || !is_tile(value))
        raise(Kind::type, "x[r0:r1, c0:c1] = ... takes a tile, got '" + type_text(value) + "'");
    store(tile_of(value), part_of(part));
}

void update_tile(Op with, PyObject* tile, PyObject* value) {
    if (!is_product(value))
        raise(Kind::type,
              "unsupported augmented assignment: a tile takes `-= qd.outer(a, b)`, got '" +
                  type_text(value) + "'");
    if (with != Op::sub)
        raise(Kind::type,
              "unsupported augmented assignment op: a tile takes `-= qd.outer(a, b)` only");
    subtract_product(tile_of(tile), attribute_of(value, "a").get(), attribute_of(value, "b").get());
}

}  // namespace qd::frontend
