// Checks every index before it is used.
//
// In front of each place of a field or array stands an assert_ whose message names what was
// accessed; components chosen at run time are checked too, and in debug the exponents of integers.
// Runs first, so that equal checks fold and disappear with the code they guard. Arrays with clamped
// indices need none.
//
// Cost: O(indices).

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Checker {
    Session& s;
    const Function& f;

    Format* format(std::string head, const std::string& tail, int indices) {
        s.m.owned_formats.push_back(std::make_unique<Format>());
        Format* out = s.m.owned_formats.back().get();
        out->pieces.push_back({std::move(head), 0});
        for (int k = 0; k < indices; ++k) {
            if (k) out->pieces.push_back({", ", 0});
            out->pieces.push_back({"", '*'});
        }
        out->pieces.push_back({tail, 0});
        return out;
    }

    void require(Builder& b, Value* ok, const std::vector<Value*>& shown, const Format* format) {
        std::vector<Value*> operands = {ok};
        operands.insert(operands.end(), shown.begin(), shown.end());
        Inst* i = b.emit(Op::assert_, operands, {});
        i->ref = format;
    }
    static Value* both(Builder& b, Value* x, Value* y) { return x ? b.op(Op::bit_and, {x, y}) : y; }
    static Value* within(Builder& b, Value* x, Value* low, Value* high) {
        return b.op(Op::bit_and, {b.op(Op::ge, {x, low}), b.op(Op::lt, {x, high})});
    }

    static std::string list(const int64_t* values, int n) {
        std::string out = "(";
        for (int k = 0; k < n; ++k) out += (k ? ", " : "") + std::to_string(values[k]);
        return out + ")";
    }

    void field(Inst& i) {
        const Field& field = *i.field();
        if (field.ndim == 0) return;
        Builder b = before(i);
        Value* ok = nullptr;
        std::vector<Value*> shown;
        bool offset = false;
        for (int k = 0; k < field.ndim; ++k) {
            Value* x = b.cast(i.operand(k), Prim::i64);
            ok = both(b, ok,
                      within(b, x, b.int_const(Prim::i64, field.offset[k]),
                             b.int_const(Prim::i64, field.offset[k] + field.shape[k])));
            shown.push_back(i.operand(k));
            offset |= field.offset[k] != 0;
        }
        std::string head = "(kernel=" + s.m.name + ") Accessing field (" + field.name + "<" +
                           type::info(field.elem.prim).name + ">) of size " +
                           list(field.shape, field.ndim);
        if (offset) head += " offset " + list(field.offset, field.ndim);
        require(b, ok, shown, format(head + " with indices (", ")", field.ndim));
    }

    // The kernel's argument that an array is; if it is several, what the func calls it.
    std::string argument(const Value& array) const {
        size_t k = array.index;
        if (&f != &s.m.kernel()) {
            const ArrayClasses::Root of = s.arrays.root(&array);
            if (!of.only || of.parameter < 0) return "of func " + f.name;
            k = static_cast<size_t>(of.parameter);
        }
        return std::to_string(s.m.params.at(k).number);
    }

    void array(Inst& i) {
        if (ArrayAccess::unpack(i.imm).clamp || i.operand_count == 1) return;
        Builder b = before(i);
        Value* ok = nullptr;
        std::vector<Value*> shown;
        for (int k = 1; k < i.operand_count; ++k) {
            Value* operands[] = {i.operand(0)};
            Value* extent =
                b.typed(Op::array_shape, type::kI32, operands, static_cast<uint64_t>(k - 1));
            Value* x = b.cast(i.operand(k), Prim::i64);
            ok = both(b, ok, within(b, x, b.int_const(Prim::i64, 0), b.cast(extent, Prim::i64)));
            shown.push_back(i.operand(k));
        }
        std::string head = "[kernel=" + s.m.name + "] Out of bound access to ndarray at arg ";
        head += argument(*i.operand(0)) + " with indices [";
        require(b, ok, shown, format(head, "]", i.operand_count - 1));
    }

    void power(Inst& i) {
        Builder b = before(i);
        const Type t = i.operand(1)->type;
        Value* ok = b.op(Op::ge, {i.operand(1), zero(b, t)});
        if (t.is_tensor()) ok = b.op(Op::reduce_and, {ok});
        require(b, ok, {}, format("Negative exponent in pow(int, int) is not allowed.", "", 0));
    }

    static std::string shape_text(Type t) {
        return t.rank == 2 ? "[" + std::to_string(t.n) + ", " + std::to_string(t.m) + "]"
                           : "[" + std::to_string(t.n) + "]";
    }
    void component(Inst& i, Type t, Value* index) {
        if (is_constant(index)) {
            const int64_t k = constant_int(index);
            if (k >= 0 && k < t.count()) return;
        }
        Builder b = before(i);
        Value* x = b.cast(index, Prim::i64);
        Value* ok = within(b, x, b.int_const(Prim::i64, 0), b.int_const(Prim::i64, t.count()));
        require(b, ok, {index},
                format("[kernel=" + s.m.name + "] Out of bound access to a " + shape_text(t) +
                           " matrix with index [",
                       "]", 1));
    }
};

// Integers to a negative power are undefined; a constant one never gets here.
bool integer_power(const Inst& i) {
    return i.op == Op::powi && type::is_int(i.operand(0)->type.prim) && !is_constant(i.operand(1));
}

}  // namespace

bool debug_checks(Session& s, Function& f) {
    Checker c{s, f};
    std::vector<Inst*> places;
    walk(*f.body, [&](Inst& i) {
        if (is_element(i.op) || info(i.op).component >= 0) places.push_back(&i);
        if (s.m.options.debug && integer_power(i)) places.push_back(&i);
    });
    for (Inst* i : places) {
        if (i->op == Op::powi) {
            c.power(*i);
        } else if (i->op == Op::field_place) {
            c.field(*i);
        } else if (i->op == Op::array_place) {
            c.array(*i);
        } else {
            c.component(*i, i->operand(0)->type.value(), i->operand(info(i->op).component));
        }
    }
    return !places.empty();
}

void insert_checks(Module& m) {
    Session s{.m = m, .options = {}};
    s.arrays = find_arrays(m, callees_first(m));
    for (Function* f : m.functions) debug_checks(s, *f);
}

}  // namespace qd::pass
