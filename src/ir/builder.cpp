// Appends instructions. Types results by the op table; simplifies nothing.

#include "ir/ir.h"
#include "support/error.h"

namespace qd::ir {

Type rule_type(Op op, std::span<Value* const> operands) {
    const auto operand_type = [&](size_t k) {
        QD_CHECK(k < operands.size(), info(op).name);
        return operands[k]->type;
    };
    switch (info(op).rule) {
        case Rule::same0:
            return operand_type(0);
        case Rule::same1:
            return operand_type(1);
        case Rule::boolean:
            return operand_type(0).with(Prim::u1);
        case Rule::count32:
            return operand_type(0).with(Prim::i32);
        case Rule::component:
            return operand_type(0).element();
        case Rule::loaded:
            return operand_type(0).value();
        case Rule::given:
        case Rule::regions:
        case Rule::none:
            break;
    }
    return type::kNone;
}

Inst* Builder::emit(Op op, std::span<Value* const> operands, std::span<const Type> result_types,
                    int region_count) {
    Inst* i = function->new_inst(op, static_cast<int>(operands.size()),
                                 static_cast<int>(result_types.size()), region_count);
    for (size_t k = 0; k < operands.size(); ++k) i->operands[k] = resolve(operands[k]);
    for (size_t k = 0; k < result_types.size(); ++k) i->results[k].type = result_types[k];
    i->loc = loc;
    if (before) {
        i->insert_before(*before);
    } else {
        i->append_to(*region);
    }
    return i;
}

Value* Builder::op(Op op, std::initializer_list<Value*> operands, uint64_t imm, const void* ref) {
    const std::span<Value* const> list{operands.begin(), operands.size()};
    const Type t = rule_type(op, list);
    const bool has_result = !t.is_none();
    QD_CHECK(has_result || info(op).rule == Rule::none, info(op).name);
    Inst* i = emit(op, list, {&t, has_result ? size_t(1) : size_t(0)});
    i->imm = imm;
    i->ref = ref;
    return has_result ? i->result() : nullptr;
}

Value* Builder::typed(Op op, Type type, std::span<Value* const> operands, uint64_t imm,
                      const void* ref) {
    Inst* i = emit(op, operands, {&type, type.is_none() ? size_t(0) : size_t(1)});
    i->imm = imm;
    i->ref = ref;
    return i->result_count ? i->result() : nullptr;
}

Value* Builder::constant(Type scalar, uint64_t bits) {
    return typed(Op::constant, scalar, {}, bits);
}

Value* Builder::int_const(Prim p, int64_t v) {
    if (type::is_float(p)) return float_const(p, static_cast<double>(v));
    if (p == Prim::u1) return constant(Type::scalar(p), v != 0);
    const int width = type::bits(p);
    const uint64_t mask = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
    return constant(Type::scalar(p), static_cast<uint64_t>(v) & mask);
}

Value* Builder::float_const(Prim p, double v) {
    return constant(Type::scalar(p), bits_of_double(p, v));
}

Value* Builder::cast(Value* v, Prim p) {
    v = resolve(v);
    if (v->type.prim == p) return v;
    Value* operands[] = {v};
    return typed(Op::cast, v->type.with(p), operands);
}

Value* Builder::splat(Value* scalar, Type tensor) {
    if (tensor.is_scalar()) return scalar;
    Value* operands[] = {scalar};
    return typed(Op::splat, tensor, operands);
}

Value* Builder::slot(Type value_type) { return typed(Op::slot, value_type.place(), {}); }
Value* Builder::load(Value* place) { return op(Op::load, {place}); }
void Builder::store(Value* place, Value* value) { op(Op::store, {place, value}); }
void Builder::end(Op terminator, std::span<Value* const> values) { emit(terminator, values, {}); }

}  // namespace qd::ir
