// The op table, instructions, functions, fields and the layout of arguments and results.

#include "ir/ir.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "support/error.h"
#include "support/half.h"

namespace qd::ir {
bool parse_op(std::string_view name, Op& out) {
    static const auto index = [] {
        std::unordered_map<std::string_view, Op> m;
        for (int k = 0; k < static_cast<int>(Op::count_); ++k) m.emplace(kOps[k].name, Op(k));
        return m;
    }();
    const auto found = index.find(name);
    if (found == index.end()) return false;
    out = found->second;
    return true;
}

// --- instructions

Value* Inst::replaced_operand(int k) const {
    QD_CHECK(static_cast<unsigned>(k) < operand_count, info(op).name);
    Value* v = operands[k];
    Value* const end = resolve(v);
    while (v != end) {  // every value on the way now points at the end: chains stay short
        Value* const next = v->replaced;
        v->replaced = end;
        v = next;
    }
    end->replaced = nullptr;
    return operands[k] = end;
}

void Inst::remove() {
    (prev ? prev->next : parent->first) = next;
    (next ? next->prev : parent->last) = prev;
    prev = next = nullptr;
    parent = nullptr;
}

void Inst::insert_before(Inst& other) {
    parent = other.parent;
    prev = other.prev;
    next = &other;
    (prev ? prev->next : parent->first) = this;
    other.prev = this;
}

void Inst::move_before(Inst& other) {
    if (&other == this) return;
    remove();
    insert_before(other);
}

void Inst::append_to(Region& region) {
    parent = &region;
    prev = region.last;
    next = nullptr;
    (prev ? prev->next : region.first) = this;
    region.last = this;
}

// --- functions

Function::Function(std::string name) : name(std::move(name)) { body = new_region(nullptr); }

Region* Function::new_region(Inst* owner) {
    Region* r = arena.make<Region>();
    r->owner = owner;
    r->function = this;
    return r;
}

Value* Function::add_param(Region& region, Type type) {
    Region::Params& p = region.params;
    if (p.count == p.capacity) {
        const uint32_t capacity = p.capacity ? 2 * p.capacity : 4;
        Value** grown = arena.array<Value*>(capacity);
        std::copy_n(p.data, p.count, grown);
        p.data = grown;
        p.capacity = capacity;
    }
    Value* v = arena.make<Value>();
    v->type = type;
    v->owner = &region;
    v->index = p.count;
    return p.data[p.count++] = v;
}

Inst* Function::new_inst(Op op, int operands, int results, int regions) {
    QD_CHECK(operands <= UINT16_MAX && results <= UINT16_MAX && regions <= UINT16_MAX);
    Inst* i = arena.make<Inst>();
    i->op = op;
    i->operand_count = static_cast<uint16_t>(operands);
    i->result_count = static_cast<uint16_t>(results);
    i->region_count = static_cast<uint16_t>(regions);
    i->operands = arena.array<Value*>(operands);
    i->results = arena.array<Value>(results);
    i->regions = arena.array<Region*>(regions);
    for (int k = 0; k < results; ++k) {
        i->results[k].def = i;
        i->results[k].index = static_cast<uint32_t>(k);
    }
    for (int k = 0; k < regions; ++k) i->regions[k] = new_region(i);
    return i;
}

const Loc* Function::new_loc(const Loc& loc) { return arena.make<Loc>(loc); }

std::string_view Function::new_string(std::string_view text) {
    if (text.empty()) return {};
    char* copy = static_cast<char*>(arena.allocate(text.size(), 1));
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
}

// --- fields

int64_t Field::component_stride() const {
    if (component_offsets.size() < 2) return type::bytes(elem.prim);
    if (!uneven_terms.empty()) return 0;
    const int64_t stride = component_offsets[1] - component_offsets[0];
    for (size_t k = 2; k < component_offsets.size(); ++k) {
        if (component_offsets[k] - component_offsets[k - 1] != stride) return 0;
    }
    return stride;
}

uint64_t Field::layout_hash() const {
    uint64_t h = 0x9e3779b97f4a7c15;
    const auto add = [&](uint64_t v) {
        h = (h ^ v) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
    };
    add(elem.word());
    add(static_cast<uint64_t>(ndim));
    for (int k = 0; k < ndim; ++k)
        add(static_cast<uint64_t>(shape[k])), add(static_cast<uint64_t>(offset[k]));
    const auto add_terms = [&](const std::vector<Term>& list) {
        for (const Term& t : list) {
            add(static_cast<uint64_t>(t.axis));
            add(static_cast<uint64_t>(t.div)), add(static_cast<uint64_t>(t.mod)),
                add(static_cast<uint64_t>(t.stride));
        }
    };
    add_terms(terms);
    for (const auto& list : uneven_terms) add(list.size()), add_terms(list);
    for (const int64_t c : component_offsets) add(static_cast<uint64_t>(c));
    if (sparse) add(sparse);
    if (packed) add(1);
    return h;
}

// --- modules

uint32_t Module::result_offset(int k) const {
    uint32_t at = 0;
    for (int j = 0; j < k; ++j) at += (static_cast<uint32_t>(results[j].size_bytes()) + 7) & ~7u;
    return at;
}
uint32_t Module::result_bytes() const { return result_offset(static_cast<int>(results.size())); }

void complete(Module& m) {
    std::unordered_map<const void*, bool> seen;
    for (const Function* f : m.functions) seen[f] = true;
    for (const Field* f : m.fields) seen[f] = true;
    for (size_t k = 0; k < m.functions.size(); ++k) {  // grows while it runs
        walk(*m.functions[k]->body, [&](Inst& i) {
            if (i.op == Op::call && seen.emplace(i.ref, true).second)
                m.functions.push_back(i.callee());
            if (i.op == Op::field_place && seen.emplace(i.ref, true).second)
                m.fields.push_back(i.field());
        });
    }
}

void lay_out_params(Module& m) {
    uint32_t at = 0;
    for (Param& p : m.params) {
        const uint32_t align = p.type.is_array() ? 8 : std::max(1, type::bytes(p.type.prim));
        const uint32_t size = p.type.is_array() ? array_desc_bytes(p.type.ndim)
                                                : static_cast<uint32_t>(p.type.size_bytes());
        at = (at + align - 1) & ~(align - 1);
        p.offset = at;
        at += size;
    }
}

// --- constants

bool is_constant(const Value* v) { return v->def && v->def->op == Op::constant; }
uint64_t constant_bits(const Value* v) {
    QD_CHECK(is_constant(v));
    return v->def->imm;
}

double double_of_bits(Prim p, uint64_t bits) {
    switch (p) {
        case Prim::f16:
            return support::half_to_double(static_cast<uint16_t>(bits));
        case Prim::f32:
            return std::bit_cast<float>(static_cast<uint32_t>(bits));
        case Prim::f64:
            return std::bit_cast<double>(bits);
        default:
            break;
    }
    const int64_t v = int_of_bits(p, bits);
    return type::is_signed(p) ? static_cast<double>(v)
                              : static_cast<double>(static_cast<uint64_t>(v));
}

int64_t int_of_bits(Prim p, uint64_t bits) {
    const int shift = 64 - type::bits(p);
    if (shift >= 64) return 0;
    if (type::is_signed(p)) return static_cast<int64_t>(bits << shift) >> shift;
    return static_cast<int64_t>(bits << shift >> shift);
}

int64_t constant_int(const Value* v) { return int_of_bits(v->type.prim, constant_bits(v)); }

namespace {

// Truncates to `width` bits; what does not fit, NaN too, is the smallest integer, as on x86. The
// limits are exact doubles, so the comparisons are too.
uint64_t signed_bits_of_double(int width, double v) {
    const bool fits = std::fabs(v) < std::ldexp(1.0, width - 1);
    return fits ? static_cast<uint64_t>(static_cast<int64_t>(v)) : uint64_t(1) << (width - 1);
}

// Narrow integers are the low bits of the conversion to 32 bits. The upper half of the unsigned
// ones is reached through the lower.
uint64_t int_bits_of_double(Prim p, double v) {
    const int width = std::max(type::bits(p), 32);
    const double half = std::ldexp(1.0, width - 1);
    const bool upper = !type::is_signed(p) && type::bits(p) == width && !(v < half);
    const uint64_t bits = upper
                              ? signed_bits_of_double(width, v - half) ^ uint64_t(1) << (width - 1)
                              : signed_bits_of_double(width, v);
    return type::bits(p) == 64 ? bits : bits & ((uint64_t(1) << type::bits(p)) - 1);
}

}  // namespace

uint64_t bits_of_double(Prim p, double v) {
    switch (p) {
        case Prim::f16:
            return support::double_to_half(v);
        case Prim::f32:
            return std::bit_cast<uint32_t>(static_cast<float>(v));
        case Prim::f64:
            return std::bit_cast<uint64_t>(v);
        case Prim::u1:
            return v != 0;
        default:
            break;
    }
    return int_bits_of_double(p, v);
}

}  // namespace qd::ir
