// See listing.h.
//
//   $3 = offloaded range_for(0, 16) grid_dim=0 block_dim=32 loop_name=first
//   body {
//     <*i32> $4 = global tmp var (offset = 0 B)
//     <i32> $5 = global load $4
//     $6 : global store [$7 <- $5]
//
// Statements are numbered through the whole text. Types stand in front: <*T> is a place of T.

#include "pass/listing.h"

#include <algorithm>
#include <unordered_map>

#include "ir/ir.h"

namespace qd::pass {
namespace {

using namespace ir;

std::string type_text(Type t) {
    if (t.is_place()) return "*" + type_text(t.value());
    if (t.is_array()) return "*array";
    const std::string name = type::info(t.prim).name;
    if (t.rank == 0) return name;
    const std::string rows = std::to_string(t.n);
    return "[Tensor (" + rows + (t.rank == 2 ? ", " + std::to_string(t.m) : "") + ") " + name + "]";
}

struct Lister {
    const Module& m;
    std::string out;
    int depth = 0;
    uint32_t next = 0;
    std::unordered_map<const Value*, uint32_t> numbers;
    const Function* kernel = nullptr;  // whose parameters are arguments of the launch
    bool located = false;

    std::string line() { return std::string(static_cast<size_t>(2 * depth), ' '); }
    std::string fresh() { return "$" + std::to_string(next++); }
    std::string define(const Value* v) {
        numbers[v] = next;
        return "<" + type_text(v->type) + "> " + fresh() + " = ";
    }
    std::string use(Value* v) {
        v = resolve(v);
        const auto found = numbers.find(v);
        return found == numbers.end() ? "$?" : "$" + std::to_string(found->second);
    }
    std::string uses(const Inst& i, int from, const char* between = ", ") {
        std::string text;
        for (int k = from; k < i.operand_count; ++k)
            text += (k > from ? between : "") + use(i.operand(k));
        return text;
    }
    static bool local(const Value* place) {
        const Value* root = root_of_place(const_cast<Value*>(place));
        return root->def && root->def->op == Op::slot;
    }

    // What is an element of the statement's text behind its number.
    std::string text(const Inst& i) {
        const std::string name = info(i.op).name;
        switch (i.op) {
            case Op::constant:
                return "const " + constant_text(i.result()->type, i.imm);
            case Op::slot:
                return "alloca";
            case Op::temp:
                return "global tmp var (offset = " + std::to_string(i.imm) + " B)";
            case Op::partial:
                return "partial result of chunk " + use(i.operand(0)) +
                       " (offset = " + std::to_string(i.imm & UINT32_MAX) + " B)";
            case Op::field_place:
                return "global ptr [" + i.field()->name + "], index [" + uses(i, 0) +
                       "] activate=false";
            case Op::array_place: {
                const ArrayAccess a = ArrayAccess::unpack(i.imm);
                return "external_ptr " + use(i.operand(0)) + ", [" + uses(i, 1) +
                       "] layout=AOS is_grad=" + (a.grad ? "true" : "false");
            }
            case Op::comp_place:
                return "shift ptr [" + use(i.operand(0)) + " + " + use(i.operand(1)) + "]";
            case Op::array_shape:
                return "external_tensor_shape_along_axis " + std::to_string(i.imm) + " " +
                       use(i.operand(0));
            case Op::load:
                return local(i.operand(0)) ? "local load [" + use(i.operand(0)) + "]"
                                           : "global load " + use(i.operand(0));
            case Op::volatile_load:
                return "global load volatile " + use(i.operand(0));
            case Op::build:
                return "[" + uses(i, 0) + "]";
            case Op::extract:
                return "extract " + use(i.operand(0)) + ", " + std::to_string(i.imm);
            case Op::insert:
                return "insert " + uses(i, 0) + ", " + std::to_string(i.imm);
            case Op::cast:
                return "cast_value<" + type_text(i.result()->type) + "> " + use(i.operand(0));
            case Op::div:
                return "div " + uses(i, 0, " ");
            case Op::bit_cast:
                return "cast_bits<" + type_text(i.result()->type) + "> " + use(i.operand(0));
            case Op::call:
                return "call \"" + i.callee()->name + "\", args = {" + uses(i, 0) + "}";
            case Op::random:
                return "rand()";
            case Op::task_value:
                return "task value " + std::to_string(i.imm);
            default:
                break;
        }
        if (info(i.op).kind == Kind::atomic)
            return "atomic " + name.substr(name.find('_') + 1) + "(" + uses(i, 0) + ")";
        const std::string python = info(i.op).python;
        return (info(i.op).kind == Kind::elementwise && !python.empty() ? python : name) +
               (i.operand_count ? " " + uses(i, 0, " ") : "");
    }

    std::string message(const Inst& i, int operand) {
        std::string text;
        for (const Format::Piece& p : i.format()->pieces) {
            if (!text.empty()) text += ", ";
            text += p.conversion && operand < i.operand_count ? use(i.operand(operand++))
                                                              : quote(p.text);
        }
        return text;
    }

    void region(const Region& r) {
        ++depth;
        for (Inst& i : r) inst(i);
        --depth;
    }

    void terminator(const Inst& i) {
        // The end of a branch or a turn without values says nothing.
        const Inst* owner = i.parent->owner;
        const bool ends_turn = i.op == Op::continue_ && owner && owner->is_loop();
        if (!i.operand_count && (i.op == Op::yield || ends_turn)) return;
        if (i.op == Op::return_ && i.parent == i.parent->function->body && !i.operand_count) return;
        out += line() + fresh() + " : " + info(i.op).name + (i.operand_count ? " " : "") +
               uses(i, 0) + "\n";
    }

    void control(const Inst& i) {
        const uint32_t number = next;
        out += line() + fresh() + " : ";
        if (i.op == Op::if_) {
            out += "if " + use(i.operand(0)) + " {\n";
            region(*i.regions[0]);
            out += line() + "}";
            const Inst* otherwise = i.regions[1]->first;
            if (otherwise && (otherwise->op != Op::yield || otherwise->operand_count)) {
                out += " else {\n";
                region(*i.regions[1]);
                out += line() + "}";
            }
            out += "\n";
        } else {
            const int bounds = i.op == Op::for_ ? 2 * static_cast<int>(i.imm) : 0;
            if (i.is_group()) {
                out += info(i.op).name + (i.operand_count ? " " + uses(i, 0) : "") + " {\n";
            } else if (i.op == Op::for_) {
                std::string ranges;
                for (int k = 0; k < bounds; k += 2)
                    ranges += (k ? " x " : "") + std::string("range(") + use(i.operand(k)) + ", " +
                              use(i.operand(k + 1)) + ")";
                const LoopConfig* c = i.loop_config();
                out += "for in " + ranges + (c && c->parallel ? " parallel" : "") + " {\n";
            } else {
                out += "while true {\n";
            }
            ++depth;
            const Region& body = i.body();
            for (uint32_t k = 0; k < body.params.size(); ++k) {
                const int axis = static_cast<int>(k), dims = bounds / 2;
                out += line() + define(body.params[k]);
                if (axis < dims) {
                    out += "loop $" + std::to_string(number) + " index " + std::to_string(k);
                } else {
                    const int first = bounds + axis - dims;
                    out += "carried, at first " +
                           (first < i.operand_count ? use(i.operand(first)) : std::string("$?"));
                }
                out += "\n";
            }
            --depth;
            region(body);
            out += line() + "}\n";
        }
        for (int k = 0; k < i.result_count; ++k)
            out += line() + define(i.result(k)) + "result " + std::to_string(k) + " of $" +
                   std::to_string(number) + "\n";
    }

    void inst(const Inst& i) {
        const size_t before = out.size();
        statement(i);
        if (!located || !i.loc || out.size() == before) return;
        out += line() + "\x01";
        for (const int n : {i.loc->line, i.loc->col, i.loc->end_line, i.loc->end_col})
            out += std::to_string(n) + " ";
        out += std::string(i.loc->function) + " " + std::string(i.loc->file) + "\n";
    }

    void statement(const Inst& i) {
        if (i.region_count) return control(i);
        if (i.effect() == Effect::terminator) return terminator(i);
        if (i.op == Op::store) {
            const bool is_local = local(i.operand(0));
            out += line();
            if (is_local) out += "<" + type_text(i.operand(1)->type) + "> ";
            out += fresh() + (is_local ? " : local store [" : " : global store [") +
                   use(i.operand(0)) + " <- " + use(i.operand(1)) + "]\n";
        } else if (i.op == Op::print && i.ref) {
            out += line() + "print " + message(i, 0) + "\n";
        } else if (i.op == Op::assert_ && i.ref) {
            out +=
                line() + fresh() + " : assert " + use(i.operand(0)) + ", " + message(i, 1) + "\n";
        } else if (i.op == Op::set_result) {
            out += line() + fresh() + " : return " + std::to_string(i.imm) + " " +
                   use(i.operand(0)) + "\n";
        } else if (!i.result_count) {
            out += line() + fresh() + " : " + text(i) + "\n";
        } else {
            const std::string body = text(i);
            out += line() + define(i.result(0)) + body + "\n";
            for (int k = 1; k < i.result_count; ++k)
                out += line() + define(i.result(k)) + "get_element(" + use(i.result(0)) + ", " +
                       std::to_string(k) + ")\n";
        }
    }

    // Parameters of the launch that the body uses, then the body.
    void body(const Function& f, bool of_kernel) {
        std::unordered_map<const Value*, bool> used;
        walk(*f.body, [&](Inst& i) {
            for (int k = 0; k < i.operand_count; ++k) used[i.operand(k)] = true;
        });
        ++depth;
        for (uint32_t k = 0; k < f.body->params.size(); ++k) {
            const Value* p = f.body->params[k];
            if (!used.contains(p)) continue;
            const std::string number = std::to_string(k);
            out += line() + define(p) +
                   (!of_kernel           ? "parameter " + number
                    : p->type.is_array() ? "argaddr[" + number + "]"
                                         : "argload[" + number + "]") +
                   "\n";
        }
        --depth;
        region(*f.body);
    }

    static std::string bound(const abi::Bound& b) {
        const std::string value = std::to_string(b.value);
        if (b.kind == abi::BoundKind::constant) return value;
        return (b.kind == abi::BoundKind::arg ? "arg(offset=" : "tmp(offset=") + value + "B)" +
               (b.addend
                    ? (b.addend < 0 ? " - " : " + ") + std::to_string(std::abs(int64_t{b.addend}))
                    : "");
    }

    void task(const Task& t, size_t number) {
        out += line() + fresh() + " = offloaded ";
        if (t.kind == abi::TaskKind::range) {
            out += "range_for(";
            for (int k = 0; k < 2 * t.dims; ++k) out += (k ? ", " : "") + bound(t.bounds[k]);
            out += ") grid_dim=0 block_dim=" +
                   (t.block_dim ? std::to_string(t.block_dim) : std::string("adaptive"));
            if (!t.name.empty() && t.name != "range" + std::to_string(number))
                out += " loop_name=" + t.name;
        }
        out += " \n" + line() + "body {\n";
        body(*t.body, true);
        out += line() + "}\n";
        if (!t.finish) return;
        out += line() + "finish {\n";
        body(*t.finish, true);
        out += line() + "}\n";
    }

    void functions(const std::vector<Function*>& all, std::span<const Task> tasks) {
        for (const Function* f : all) {
            bool listed = f == kernel;
            for (const Task& t : tasks) listed |= f == t.body || f == t.finish;
            if (!listed) function(*f);
        }
    }

    void function(const Function& f) {
        out += "function " + f.name + " {\n";
        body(f, false);
        out += "}\n";
    }

    void only(std::span<const Task> tasks, const Function& f) {
        const auto of_task = std::ranges::find_if(
            tasks, [&](const Task& t) { return &f == t.body || &f == t.finish; });
        const bool of_kernel = tasks.empty() && &f == &m.kernel();
        if (of_task == tasks.end() && !of_kernel) return function(f);
        out += "kernel {\n";
        if (of_kernel) {
            body(f, true);
        } else {
            ++depth;
            task(*of_task, size_t(of_task - tasks.begin()));
        }
        out += "}\n";
    }
};

}  // namespace

std::string listing(const Module& m, std::span<const Task> tasks, bool located) {
    Lister l{.m = m, .out = {}, .numbers = {}, .kernel = nullptr, .located = located};
    l.out = "kernel {\n";
    if (tasks.empty()) {
        l.kernel = &m.kernel();
        l.body(m.kernel(), true);
    }
    ++l.depth;
    for (size_t k = 0; k < tasks.size(); ++k) l.task(tasks[k], k);
    --l.depth;
    l.out += "}\n";
    if (!tasks.empty() && !m.functions.empty()) l.kernel = m.functions[0];
    l.functions(m.functions, tasks);
    return l.out;
}

std::string listing(const Module& m, std::span<const Task> tasks, const Function& f) {
    Lister l{.m = m, .out = {}, .numbers = {}, .kernel = nullptr};
    l.only(tasks, f);
    return l.out;
}

}  // namespace qd::pass
