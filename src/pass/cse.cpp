// Common subexpressions.
//
// A pure instruction equal to one that dominates it (earlier in its region or in an enclosing one)
// is replaced. A hash table over the open scopes; leaving a region takes its entries out again.
// Operands of commutative ops are compared in either order.
//
// Cost: O(instructions) expected.

#include "pass/passes.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Table {
    std::vector<Inst*> slots;
    std::vector<uint32_t> order;  // filled slots, oldest first
    uint32_t mask;

    static uint64_t word(const Value* v) { return reinterpret_cast<uintptr_t>(v) >> 4; }
    static uint64_t hash(const Inst& i) {
        uint64_t h = static_cast<uint64_t>(i.op) * 0x9e3779b97f4a7c15 ^ i.imm * 0xff51afd7ed558ccd;
        h ^= reinterpret_cast<uintptr_t>(i.ref) ^ i.results[0].type.word() * 0xc4ceb9fe1a85ec53;
        if (info(i.op).commutes) {
            const uint64_t a = word(i.operand(0)) * 0xff51afd7ed558ccd,
                           b = word(i.operand(1)) * 0xff51afd7ed558ccd;
            h += (a ^ a >> 29) + (b ^ b >> 29);
        } else {
            for (int k = 0; k < i.operand_count; ++k) {
                h = (h ^ word(i.operand(k))) * 0xff51afd7ed558ccd;
                h ^= h >> 32;
            }
        }
        h *= 0x9e3779b97f4a7c15;
        return h ^ h >> 32;
    }
    static bool same(const Inst& a, const Inst& b) {
        if (a.op != b.op || a.imm != b.imm || a.ref != b.ref || a.flags != b.flags) return false;
        if (a.operand_count != b.operand_count || !(a.results[0].type == b.results[0].type))
            return false;
        if (info(a.op).commutes && a.operand(0) == b.operand(1) && a.operand(1) == b.operand(0))
            return true;
        for (int k = 0; k < a.operand_count; ++k) {
            if (a.operand(k) != b.operand(k)) return false;
        }
        return true;
    }
    Inst* find_or_add(Inst& i) {
        for (auto at = static_cast<uint32_t>(hash(i)) & mask;; at = (at + 1) & mask) {
            if (!slots[at]) {
                slots[at] = &i;
                order.push_back(at);
                return nullptr;
            }
            if (same(*slots[at], i)) return slots[at];
        }
    }
    void shrink(size_t count) {  // newest first, so probing chains stay whole
        while (order.size() > count) {
            slots[order.back()] = nullptr;
            order.pop_back();
        }
    }
};

bool scan(const Session& s, Region& r, Table& table) {
    bool changed = false;
    const size_t outer = table.order.size();
    for (Inst& i : r) {
        if (i.effect() == Effect::pure) {
            Inst* earlier = table.find_or_add(i);
            if (earlier && (earlier->parent == &r || !may_be_steep(s, i))) {
                replace(i.result(), earlier->result());
                i.remove();
                changed = true;
            }
        }
        for (Region* c : i.region_list()) changed |= scan(s, *c, table);
    }
    table.shrink(outer);
    return changed;
}

}  // namespace

bool cse(Session& s, Function& f) {
    uint32_t size = 16;
    for (const uint32_t count = count_instructions(f); size < 2 * count;) size *= 2;
    Table table{std::vector<Inst*>(size), {}, size - 1};
    return scan(s, *f.body, table);
}

}  // namespace qd::pass
