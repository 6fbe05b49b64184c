// Checks every rule of ir.h that code generation relies on: structure, definitions before uses,
// operand and result types. Throws support::Error naming the function and printing the instruction.
// O(instructions); run between passes in debug.

#include <algorithm>
#include <array>

#include "ir/ir.h"
#include "support/error.h"

namespace qd::ir {
namespace {

struct Verifier {
    const Module& m;
    const Function* function = nullptr;
    std::vector<const Value*> visible;  // Value::id is its index here
    int loop_depth = 0;

    [[noreturn]] [[gnu::cold]] void fail(const Inst* i, const std::string& what) const {
        std::string text = "invalid IR in @" + function->name + ": " + what;
        if (i) {
            text += std::string(" (") + info(i->op).name;
            for (int k = 0; k < i->operand_count; ++k) {
                text += (k ? ", " : " ") + type::to_string(i->operand(k)->type);
            }
            for (int k = 0; k < i->result_count; ++k) {
                text += (k ? ", " : " : ") + type::to_string(i->results[k].type);
            }
            text += ")";
            if (i->loc) text += " at line " + std::to_string(i->loc->line);
        }
        throw support::Error(text);
    }
    void need(bool condition, const Inst& i, const char* what) const {
        if (!condition) fail(&i, what);
    }

    void define(const Value* v) {
        const_cast<Value*>(v)->id = static_cast<uint32_t>(visible.size());
        visible.push_back(v);
    }
    bool is_visible(const Value* v) const { return v->id < visible.size() && visible[v->id] == v; }

    static bool index_type(Type t) {
        return t.is_scalar() && (t.prim == Prim::i32 || t.prim == Prim::i64);
    }
    static bool same_shape(Type a, Type b) { return a.rank == b.rank && a.n == b.n && a.m == b.m; }

    void check_types(const Inst& i) {
        const OpInfo& row = info(i.op);
        const auto in = [&](int k) { return i.operand(k)->type; };
        const Type out = i.result_count ? i.results[0].type : type::kNone;
        if (row.operands >= 0) need(i.operand_count == row.operands, i, "wrong number of operands");
        if (row.rule == Rule::none) need(i.result_count == 0, i, "has a result");
        if (row.rule == Rule::regions) return;
        if (row.rule != Rule::none) need(i.result_count == 1, i, "needs one result");
        if (row.rule != Rule::none && row.rule != Rule::given) {
            Value* list[] = {i.operand_count > 0 ? i.operand(0) : nullptr,
                             i.operand_count > 1 ? i.operand(1) : nullptr};
            const size_t n = std::min<size_t>(i.operand_count, 2);
            need(out == rule_type(i.op, {list, n}), i, "result type breaks the rule");
        }
        const char* letter = row.args;
        if (*letter) {
            const Type first = i.operand_count ? in(0) : type::kNone;
            if (row.takes == Takes::floats)
                need(type::is_float(first.prim), i, "takes floats only");
            if (row.takes == Takes::ints) need(type::is_int(first.prim), i, "takes integers only");
            for (int k = 0; k < i.operand_count; ++k) {
                check_operand(i, *letter, k ? in(k) : first, first, out);
                if (letter[1]) ++letter;
            }
        }
        if (!row.gives.is_none()) need(out == row.gives, i, "result of another type");
        if (row.root != Root::none) need(out.is_place(), i, "result is not a place");
        if (row.refers == Refers::field) need(i.ref != nullptr, i, "no field");
        if (row.refers == Refers::format) need(i.ref != nullptr, i, "no format");
        check_particulars(i, in, out);
    }

    // By its letter in OpInfo::args.
    void check_operand(const Inst& i, char letter, Type t, Type first, Type out) const {
        switch (letter) {
            case 'v':
                return need(t.is_value(), i, "operand is not a value");
            case '=':
                return need(t == first, i, "operands differ in type");
            case 'e':
                return need(t == first.element(), i, "component of another type");
            case 'r':
                return need(t == out.element(), i, "component of another type");
            case 'i':
                return need(t.is_scalar() && type::is_int(t.prim), i, "index is not an integer");
            case 'n':
                return need(index_type(t), i, "bad index");
            case 'u':
                return need(t == type::kU1, i, "condition is not u1");
            case 'l':
                return need(t == type::kI64, i, "operand is not i64");
            case 'p':
                return need(t.is_place(), i, "needs a place");
            case 'w':
                return need(t == first.value(), i, "value does not fit the place");
            case 'a':
                return need(t.is_array(), i, "needs an array");
            default:
                fail(&i, "the op table has an unknown letter");
        }
    }

    // What no column says.
    template <class In>
    void check_particulars(const Inst& i, const In& in, Type out) const {
        switch (i.op) {
            case Op::constant:
                need(out.is_scalar(), i, "constants are scalars");
                need(type::bits(out.prim) == 64 || i.imm >> type::bits(out.prim) == 0, i,
                     "bits beyond the type");
                break;
            case Op::splat:
                need(out.is_value(), i, "result is not a value");
                break;
            case Op::build:
                need(i.operand_count == out.count() && out.is_value(), i,
                     "wrong number of components");
                break;
            case Op::extract:
            case Op::insert:
                need(i.imm < static_cast<uint64_t>(in(0).count()), i, "component out of range");
                break;
            case Op::matmul:
                need(in(0).rank == 2 && in(1).rank >= 1 && in(0).m == in(1).n &&
                         in(0).prim == in(1).prim,
                     i, "shapes do not fit");
                need(out == (in(1).rank == 1 ? Type::vector(in(0).prim, in(0).n)
                                             : Type::matrix(in(0).prim, in(0).n, in(1).m)),
                     i, "wrong result shape");
                need(i.imm == 0 || (i.imm == kFusedProducts && type::is_float(out.prim)), i,
                     "unknown kind of product");
                break;
            case Op::transpose:
                need(in(0).rank == 2 && out == Type::matrix(in(0).prim, in(0).m, in(0).n), i,
                     "wrong result shape");
                break;
            case Op::powi:
                need(same_shape(in(0), in(1)) && index_type(in(1).element()), i, "bad exponent");
                break;
            case Op::select:
                need(in(0).prim == Prim::u1, i, "condition is not u1");
                need(in(0).is_scalar() || same_shape(in(0), in(1)), i,
                     "condition of another shape");
                need(in(1) == in(2), i, "operands differ in type");
                break;
            case Op::bit_cast:
                need(type::bytes(out.prim) == type::bytes(in(0).prim), i, "widths differ");
                [[fallthrough]];
            case Op::cast:
                need(out == in(0).with(out.prim) && out.prim != Prim::none, i,
                     "casts change the primitive only");
                break;
            case Op::field_place:
                need(i.operand_count == i.field()->ndim, i, "one index per axis");
                need(out == i.field()->elem.place(), i, "result type is not the field's");
                break;
            case Op::array_place:
                need(i.operand_count >= 1 && i.operand_count == 1 + in(0).ndim, i,
                     "one index per axis");
                need(out == in(0).place(), i, "result type is not the array's");
                break;
            case Op::displace:
                need(out.is_place(), i, "result is not a place");
                need(i.operand_count == 1 || i.operand_count == 2, i, "wrong number of operands");
                break;
            case Op::thread_word:
                need(out == type::kU64.place(), i, "words are u64");
                need(i.imm <= uint64_t(ThreadWord::random_draw), i, "no such word");
                break;
            case Op::tape:
                need(in(0) == type::kI64, i, "the tape is counted in i64");
                break;
            case Op::array_extent:
                need(i.imm < in(0).ndim, i, "bad axis");
                break;
            case Op::comp_place:
                need(out == in(0).element().place(), i, "result is not a component's place");
                break;
            case Op::array_shape:
                need(i.imm < in(0).ndim, i, "bad axis");
                break;
            case Op::atomic_cas:
                need(in(1).is_scalar(), i, "scalar values only");
                break;
            case Op::random:
                need(out.is_scalar(), i, "result is not a scalar");
                break;
            case Op::assert_:
                need(i.operand_count >= 1, i, "needs a condition");
                break;
            case Op::set_result:
                need(function == &m.kernel() || function->result_types.empty(), i,
                     "outside the kernel");
                need(i.imm < m.results.size() && in(0) == m.results[i.imm], i, "no such result");
                break;
            default:
                break;
        }
    }

    template <class Types>
    void match(const Inst& i, int from, const Types& types, const char* what) {
        need(i.operand_count - from == static_cast<int>(types.size()), i, what);
        int k = from;
        for (const Type t : types) need(i.operand(k++)->type == t, i, what);
    }
    static std::vector<Type> types_of(std::span<const Value> values) {
        std::vector<Type> list;
        for (const Value& v : values) list.push_back(v.type);
        return list;
    }

    void check_terminator(const Inst& i, const Region& r) {
        const Inst* owner = r.owner;
        switch (i.op) {
            case Op::return_:
                need(!owner || function->returns_early, i,
                     "early return in a function without returns_early");
                match(i, 0, function->result_types, "returns other types than the function");
                break;
            case Op::yield:
                need(owner && !owner->is_loop(), i, "yield outside an if or a group");
                if (owner->is_group() && info(owner->op).repeats)
                    match(i, 0, std::array{type::kU1}, "yields no condition to go on");
                else
                    match(i, 0, types_of(owner->result_values()),
                          "yields other types than the results");
                break;
            case Op::continue_:
            case Op::break_: {
                const Inst* loop = owner;
                while (loop && !loop->is_loop() && !loop->is_group()) loop = loop->parent->owner;
                if (loop && loop->is_group()) loop = nullptr;
                need(loop != nullptr, i, "outside a loop");
                if (loop->op == Op::for_ && i.op == Op::break_) {
                    need(!loop->loop_config() || !loop->loop_config()->parallel, i,
                         "break in a parallel loop");
                }
                if (i.op == Op::break_) {
                    match(i, 0, types_of(loop->result_values()),
                          "breaks with other types than the loop's results");
                } else {
                    std::vector<Type> types;
                    const uint32_t first =
                        loop->op == Op::for_ ? static_cast<uint32_t>(loop->imm) : 0;
                    for (uint32_t k = first; k < loop->body().params.size(); ++k)
                        types.push_back(loop->body().params[k]->type);
                    match(i, 0, types, "continues with other types than the loop carries");
                }
                break;
            }
            default:
                break;
        }
    }

    void check_loop(const Inst& i) {
        const Region::Params& params = i.body().params;
        size_t indices = 0;
        if (i.op == Op::for_) {
            indices = i.imm;
            need(i.imm >= 1 && i.imm <= 12 && i.operand_count >= 2 * i.imm, i,
                 "bad number of dimensions");
            for (size_t k = 0; k < 2 * indices; ++k) {
                const Type t = i.operand(static_cast<int>(k))->type;
                need(index_type(t) && t == i.operand(0)->type, i,
                     "bounds are not of one index type");
            }
        }
        need(params.size() + indices == i.operand_count, i, "parameters do not match operands");
        for (uint32_t k = 0; k < params.size(); ++k) {
            const Type expected =
                k < indices ? i.operand(0)->type : i.operand(static_cast<int>(k + indices))->type;
            need(params[k]->type == expected, i, "parameter of another type");
        }
        if (i.op == Op::for_) {
            need(i.result_count + indices == params.size(), i,
                 "results do not match carried values");
            for (int k = 0; k < i.result_count; ++k) {
                need(i.results[k].type == params[static_cast<uint32_t>(k + indices)]->type, i,
                     "result of another type");
            }
            if (i.loop_config() && i.loop_config()->parallel) {
                need(is_at_top(i) && i.result_count == 0, i,
                     "parallel loops stand in the kernel's body or a group and carry nothing");
            }
        }
    }

    // In the kernel's body, or in groups there.
    bool is_at_top(const Inst& i) const {
        const Inst* owner = i.parent->owner;
        while (owner && owner->is_group()) owner = owner->parent->owner;
        return !owner && function == m.functions[0];
    }

    void check_group(const Inst& i) const {
        need(is_at_top(i) && !function->returns_early, i,
             "groups stand in the body of a kernel that does not return early, or in a group");
        need(i.body().params.size() == 0, i, "groups carry nothing");
        for (const Inst* o = i.parent->owner; o && i.operand_count; o = o->parent->owner)
            need(o->op != i.op, i, "stands in another of its kind");
        for (const Inst* c = i.body().first; c; c = c->next)
            need(c->effect() == Effect::pure || c == i.body().last || info(c->op).inside == i.op ||
                     !holds_its_own(i.op),
                 *c, "stands where only sections may");
        const Op around = info(i.op).inside;
        need(around == Op::count_ || (i.parent->owner && i.parent->owner->op == around), i,
             "stands outside the group that it is a part of");
    }
    static bool holds_its_own(Op group) {
        return std::ranges::any_of(kOps, [&](const OpInfo& row) { return row.inside == group; });
    }

    void check_call(const Inst& i) {
        need(i.ref != nullptr, i, "no callee");
        const Function& f = *i.callee();
        std::vector<Type> types;
        for (const Value* p : f.body->params) types.push_back(p->type);
        match(i, 0, types, "arguments do not match the callee");
        need(types_of(i.result_values()) == f.result_types, i, "results do not match the callee");
    }

    void region(const Region& r) {
        const size_t outer = visible.size();
        for (const Value* p : r.params) define(p);
        if (!r.last || r.last->effect() != Effect::terminator) {
            fail(r.last ? r.last : r.owner, "region does not end in a terminator");
        }
        const Inst* before = nullptr;
        for (const Inst* i = r.first; i; i = i->next) {
            need(i->parent == &r && i->prev == before, *i, "broken links");
            before = i;
            for (int k = 0; k < i->operand_count; ++k) {
                need(i->operands[k] != nullptr, *i, "operand missing");
                need(is_visible(i->operand(k)), *i, "operand used before its definition");
            }
            check_types(*i);
            need(i->effect() != Effect::terminator || i == r.last, *i,
                 "terminator inside a region");
            if (i == r.last) check_terminator(*i, r);
            need(i->region_count == info(i->op).regions, *i, "wrong number of regions");
            if (i->op == Op::if_) need(i->operand(0)->type == type::kU1, *i, "condition is not u1");
            if (i->is_loop()) check_loop(*i);
            if (i->is_group()) check_group(*i);
            if (i->op == Op::call) check_call(*i);
            for (const Region* c : i->region_list()) {
                need(c->owner == i, *i, "region of another owner");
                region(*c);
            }
            for (const Value& v : i->result_values()) define(&v);
        }
        visible.resize(outer);
    }

    void run() {
        for (const Function* f : m.functions) {
            function = f;
            visible.clear();
            region(*f->body);
        }
        function = m.functions[0];
        if (m.params.size() != function->body->params.size())
            fail(nullptr, "parameters do not match Module::params");
        for (uint32_t k = 0; k < function->body->params.size(); ++k) {
            if (!(m.params[k].type == function->body->params[k]->type))
                fail(nullptr, "parameters do not match Module::params");
        }
    }
};

}  // namespace

void verify(const Module& m) {
    if (m.functions.empty()) throw support::Error("invalid IR: no function");
    Verifier{.m = m}.run();
}

}  // namespace qd::ir
