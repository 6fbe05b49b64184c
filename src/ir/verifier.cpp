// Checks every rule of ir.h that code generation relies on: structure, definitions before uses,
// operand and result types. Throws support::Error naming the function and printing the instruction.
// O(instructions); run between passes in debug.

#include <algorithm>

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
        const auto [kind, takes] = std::pair(info(i.op).kind, info(i.op).takes);
        if (takes == Takes::floats) need(type::is_float(in(0).prim), i, "takes floats only");
        if (takes == Takes::ints) need(type::is_int(in(0).prim), i, "takes integers only");
        const auto all_values = [&] {
            for (int k = 0; k < i.operand_count; ++k)
                need(in(k).is_value(), i, "operand is not a value");
        };
        const auto all_same = [&] {
            all_values();
            for (int k = 1; k < i.operand_count; ++k)
                need(in(k) == in(0), i, "operands differ in type");
        };
        const auto component_index = [&](Type tensor) {
            need(i.imm < static_cast<uint64_t>(tensor.count()), i, "component out of range");
        };
        const auto place = [&](Type value) {
            need(in(0).is_place(), i, "needs a place");
            need(in(0).value() == value, i, "value does not fit the place");
        };
        switch (i.op) {
            case Op::constant:
                need(out.is_scalar(), i, "constants are scalars");
                need(type::bits(out.prim) == 64 || i.imm >> type::bits(out.prim) == 0, i,
                     "bits beyond the type");
                break;
            case Op::splat:
                need(in(0).is_scalar() && in(0) == out.element(), i, "splat of another type");
                break;
            case Op::build:
                all_values();
                need(i.operand_count == out.count() && out.is_value(), i,
                     "wrong number of components");
                for (int k = 0; k < i.operand_count; ++k)
                    need(in(k) == out.element(), i, "component of another type");
                break;
            case Op::extract:
                need(in(0).is_value(), i, "needs a value"), component_index(in(0));
                break;
            case Op::insert:
                need(in(0).is_value() && in(1) == in(0).element(), i, "component of another type");
                component_index(in(0));
                break;
            case Op::extract_dyn:
                need(in(0).is_value() && index_type(in(1)), i, "bad index");
                break;
            case Op::insert_dyn:
                need(in(0).is_value() && in(1) == in(0).element() && index_type(in(2)), i,
                     "bad component or index");
                break;
            case Op::matmul:
                need(in(0).rank == 2 && in(1).rank >= 1 && in(0).m == in(1).n &&
                         in(0).prim == in(1).prim,
                     i, "shapes do not fit");
                need(out == (in(1).rank == 1 ? Type::vector(in(0).prim, in(0).n)
                                             : Type::matrix(in(0).prim, in(0).n, in(1).m)),
                     i, "wrong result shape");
                break;
            case Op::transpose:
                need(in(0).rank == 2 && out == Type::matrix(in(0).prim, in(0).m, in(0).n), i,
                     "wrong result shape");
                break;
            case Op::powi:
                all_values();
                need(same_shape(in(0), in(1)) &&
                         (in(1).prim == Prim::i32 || in(1).prim == Prim::i64),
                     i, "bad exponent");
                break;
            case Op::select:
                need(in(0).prim == Prim::u1 && in(0).is_value(), i, "condition is not u1");
                need(in(0).is_scalar() || same_shape(in(0), in(1)), i,
                     "condition of another shape");
                need(in(1) == in(2) && in(1).is_value(), i, "operands differ in type");
                break;
            case Op::cast:
                need(in(0).is_value() && out == in(0).with(out.prim) && out.prim != Prim::none, i,
                     "casts change the primitive only");
                break;
            case Op::bit_cast:
                need(in(0).is_value() && out == in(0).with(out.prim), i,
                     "casts change the primitive only");
                need(type::bytes(out.prim) == type::bytes(in(0).prim), i, "widths differ");
                break;
            case Op::slot:
            case Op::temp:
                need(out.is_place(), i, "result is not a place");
                break;
            case Op::partial:
                need(out.is_place() && in(0) == type::kI64, i, "bad partial");
                break;
            case Op::field_place: {
                need(i.ref != nullptr, i, "no field");
                need(i.operand_count == i.field()->ndim, i, "one index per axis");
                for (int k = 0; k < i.operand_count; ++k)
                    need(in(k).is_scalar() && type::is_int(in(k).prim), i,
                         "index is not an integer");
                need(out == i.field()->elem.place(), i, "result type is not the field's");
                break;
            }
            case Op::array_place:
                need(i.operand_count >= 1 && in(0).is_array(), i, "needs an array");
                need(i.operand_count == 1 + in(0).ndim, i, "one index per axis");
                for (int k = 1; k < i.operand_count; ++k)
                    need(in(k).is_scalar() && type::is_int(in(k).prim), i,
                         "index is not an integer");
                need(out == in(0).place(), i, "result type is not the array's");
                break;
            case Op::comp_place:
                need(in(0).is_place() && index_type(in(1)), i, "needs a place and an index");
                need(out == in(0).element().place(), i, "result is not a component's place");
                break;
            case Op::address:
                need(in(0).is_place() && out == Type::scalar(Prim::u64), i,
                     "address of a place is u64");
                break;
            case Op::array_shape:
                need(in(0).is_array() && i.imm < in(0).ndim && out == type::kI32, i, "bad axis");
                break;
            case Op::load:
            case Op::volatile_load:
                need(in(0).is_place(), i, "needs a place");
                break;
            case Op::store:
                place(in(1));
                break;
            case Op::atomic_cas:
                place(in(1)), need(in(1) == in(2) && in(1).is_scalar(), i, "scalar values only");
                break;
            case Op::random:
                need(out.is_scalar(), i, "result is not a scalar");
                break;
            case Op::thread_index:
                need(out == type::kI32, i, "result is not i32");
                break;
            case Op::stack_left:
                need(out == Type::scalar(Prim::u1), i, "result is not u1");
                break;
            case Op::clock:
                need(out == type::kI64, i, "result is not i64");
                break;
            case Op::task_value:
                need(out == type::kI64, i, "result is not i64");
                break;
            case Op::seed:
                need(in(0) == type::kI64, i, "iteration is not i64");
                break;
            case Op::prefetch:
                need(in(0).is_place(), i, "operand is no place");
                break;
            case Op::print:
                need(i.ref != nullptr, i, "no format");
                break;
            case Op::assert_:
                need(i.operand_count >= 1 && in(0) == type::kU1 && i.ref, i,
                     "needs a condition and a format");
                break;
            case Op::set_result:
                need(function == &m.kernel() || function->result_types.empty(), i,
                     "outside the kernel");
                need(i.imm < m.results.size() && in(0) == m.results[i.imm], i, "no such result");
                break;
            default:
                if (kind == Kind::elementwise || kind == Kind::tensor) all_same();
                if (kind == Kind::atomic) place(in(1));
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
                need(owner && owner->op == Op::if_, i, "yield outside an if");
                match(i, 0, types_of(owner->result_values()), "yields other types than the if");
                break;
            case Op::continue_:
            case Op::break_: {
                const Inst* loop = owner;
                while (loop && !loop->is_loop()) loop = loop->parent->owner;
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
                const Inst* owner = i.parent->owner;
                while (owner && owner->is_graph_loop()) owner = owner->parent->owner;
                const bool top = !owner && function == m.functions[0];
                need(top && i.result_count == 0, i,
                     "parallel loops stand in the kernel's body or a graph loop and carry nothing");
            }
        }
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
