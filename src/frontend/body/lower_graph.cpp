// Constructs of graph kernels: `while qd.graph.do_while(flag)` and the `with` blocks.
//
// Each is a group of the IR (ir/ir.h), whose body stays at the kernel's top level: the loops inside
// are tasks. What sections and streams leave behind is the matter of values/outlive.cpp; those that
// assign the same name first of all have a variable each.

#include <algorithm>
#include <utility>

#include "frontend/body/body.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;
using Section = KernelState::Section;

const char* const kAllowed =
    "Allowed: for-loops, qd.graph.do_while() while-loops, bare assignments, and @qd.func calls "
    "(freely mixed and nested).";

std::string class_of(const Body& body, const Node* n) {
    return Py_TYPE(ast_of(body.source, *n))->tp_name;
}

bool is_docstring(const Node* n) { return n->kind == K::Expr && n->a->kind == K::Constant; }

// The name behind `a.b.name(...)` or `name(...)`.
std::string spelling(const Node* call) { return text(call->a->name); }

// The flat names are deprecated, each on its own.
void check_spelling(Body& body, const Node* call) {
    const std::string name = spelling(call);
    if (!name.starts_with("graph_")) return;
    locate(body.source, const_cast<Node&>(*call));
    const std::string message = "qd." + name +
                                "() is deprecated and will be removed in a future release; use "
                                "qd.graph." +
                                name.substr(6) + "() instead.";
    body.unit.notice({Notice::Category::deprecation, message, body.source.file->name,
                      static_cast<uint32_t>(call->line)});
}

void check_statements(Body& body, std::span<Node* const> list, const char* where) {
    static const K kinds[] = {K::For,       K::With,      K::If,  K::Assign,
                              K::AnnAssign, K::AugAssign, K::Expr};
    for (size_t k = 0; k < list.size(); ++k) {
        const Node* n = list[k];
        if (std::ranges::find(kinds, n->kind) != std::end(kinds)) continue;
        if (n->kind == K::While && body.graph_op(n->a) == "graph_do_while") continue;
        raise_at(n, Kind::syntax,
                 "When a kernel uses qd.graph.do_while(), " + std::string(where) +
                     " may not contain a " + class_of(body, n) + " statement. " + kAllowed +
                     " [offending stmt " + std::to_string(k) + ": " + class_of(body, n) + "]");
    }
}

// A region holds sections only, behind static choices.
void check_region(Body& body, std::span<Node* const> list) {
    for (size_t k = 0; k < list.size(); ++k) {
        const Node* n = list[k];
        if (n->kind == K::Pass || is_docstring(n)) continue;
        if (n->kind == K::With && n->list.size() == 1 &&
            body.graph_op(n->list[0]->a) == "graph_parallel")
            continue;
        if (n->kind == K::If && body.is_static_call(n->a)) {
            check_region(body, n->list);
            check_region(body, n->list2);
            continue;
        }
        if (n->kind == K::For && body.is_static_call(n->b)) {
            check_region(body, n->list);
            continue;
        }
        raise_at(n, Kind::syntax,
                 "A qd.graph.parallel_context() region may contain only 'with "
                 "qd.graph.parallel():' blocks (optionally inside 'if qd.static(...)' or 'for ... "
                 "in qd.static(...)'). Move other work outside the region. [offending stmt " +
                     std::to_string(k) + ": " + class_of(body, n) + "]");
    }
}

void check_streams(Body& body) {
    const std::span<Node* const> all = body.source.body;
    for (size_t k = 0; k < all.size(); ++k) {
        const Node* n = all[k];
        if (is_docstring(n)) continue;
        if (n->kind == K::With && n->list.size() == 1 &&
            body.graph_op(n->list[0]->a) == "stream_parallel")
            continue;
        raise_at(n, Kind::syntax,
                 "When using qd.stream_parallel(), all top-level statements in the kernel must be "
                 "'with qd.stream_parallel():' blocks. Move non-parallel code to a separate "
                 "kernel. [stmt " +
                     std::to_string(k) + ": " + class_of(body, n) +
                     ", body_len=" + std::to_string(all.size()) + "]");
    }
}

bool is_compile_time(Body& body, const Node* n) {
    const Node* decides = n->kind == K::For ? n->b : n->a;
    return decides->kind == K::Call && body.is_static_call(decides);
}

// Whether `n` is in the list, at any depth. `around`: the innermost statement around it that is no
// matter of compile time, if there is one.
bool contains(Body& body, std::span<Node* const> list, const Node* n, const Node*& around) {
    for (const Node* s : list) {
        if (s == n) return true;
        const bool branches = s->kind == K::For || s->kind == K::While || s->kind == K::If;
        if (!branches && s->kind != K::With) continue;
        if (!contains(body, s->list2, n, around) &&
            (s->kind == K::With || !contains(body, s->list, n, around)))
            continue;
        if (!around && branches && !is_compile_time(body, s)) around = s;
        return true;
    }
    return false;
}

[[noreturn]] void raise_not_at_top(Body& body, const Node* n) {
    const Node* around = nullptr;
    contains(body, body.source.body, n, around);
    body.low.node = n;
    std::string where = std::string(body.function_name) + "() is called";
    std::string hint;
    if (around) {
        locate(body.source, const_cast<Node&>(*around));
        const char* what = around->kind == K::For  ? "a for-loop"
                           : around->kind == K::If ? "an if-statement"
                                                   : "a while-loop";
        where = "it cannot appear inside " + std::string(what) + " (line " +
                std::to_string(around->line) + ").";
        if (around->kind == K::If)
            hint = "put the condition into the loop's body, or decide with `if qd.static(...)`";
    } else {
        where += " inside a loop or an if-statement.";
    }
    raise(Kind::syntax,
          "qd.graph.do_while() must be at the kernel top level or directly nested inside another "
          "qd.graph.do_while(); " +
              where,
          hint);
}

// Sets the section for the time of a block.
struct InSection {
    Section& now;
    Section before;
    InSection(Section& s, Section value) : now(s), before(s) { s = value; }
    InSection(const InSection&) = delete;
    ~InSection() { now = before; }
};

void take_no_arguments(const Node* call, const char* name) {
    if (!call->list.empty() || !call->list2.empty())
        raise_at(call, Kind::syntax, std::string(name) + "() takes no arguments");
}

}  // namespace

// Which construct a call is; empty for any other expression.
std::string_view Body::graph_op(const Node* n) {
    if (n->kind != K::Call || (n->a->kind != K::Name && n->a->kind != K::Attribute)) return {};
    if (n->a->kind == K::Name && find(n->a->name)) return {};
    Val callable;
    try {
        callable = expr(n->a);
    } catch (const Diag&) {
        return {};
    } catch (const PyError&) {
        forget_error();
        return {};
    }
    const std::string_view op = operation_of(callable.get());
    return op.starts_with("graph_") || op == "checkpoint" || op == "stream_parallel"
               ? op
               : std::string_view{};
}

// The 0-d i32 array that decides on another turn.
Ref Body::loop_flag(const Node* call) {
    if (call->list.size() != 1 || !call->list2.empty())
        raise_at(call, Kind::type,
                 "TypeError when calling `graph_do_while`: graph_do_while() takes 1 positional "
                 "argument");
    return flag_array(call->list[0], "qd.graph.do_while(...)");
}

// The 0-d i32 array parameter that an expression names.
Ref Body::flag_array(const Node* n, const char* construct) {
    Ref flag;
    if (n->kind == K::Name || n->kind == K::Attribute) {
        try {
            flag = expr(n).obj;
        } catch (const Diag&) {
        } catch (const PyError&) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
            forget_error();
        }
    }
    const auto is_flag = [](const ExprObject& e) {
        const ir::Type t = e.type();
        return e.kind == ExprKind::array && t.prim == ir::Prim::i32 && !t.rank && !t.ndim;
    };
    if (flag && is_expr(flag.get()) && is_flag(*as_expr(flag.get()))) return flag;
    raise_at(n, Kind::syntax,
             std::string(construct) + " got '" + source_text(source, n) +
                 "' which does not resolve to an ndarray kernel parameter of '" +
                 std::string(function_name) +
                 "'. The argument must reference an ndarray kernel parameter (e.g. `flag`) or a "
                 "@qd.data_oriented member ndarray (e.g. `self.flag`); other expressions are not "
                 "supported.",
             "the flag is a 0-d i32 array");
}

// A group whose body is what `fill` makes.
Flow Body::group(ir::Op op, std::span<ir::Value* const> operands,
                 const std::function<Flow()>& fill) {
    ir::Inst* made = low.b.emit(op, operands, {}, 1);
    InRegion in(low, made->regions[0]);
    const Flow flow = fill();
    low.b.end(ir::Op::yield);
    return flow;
}

// What may run beside others. In a run-time branch or loop there are no tasks: the statements
// follow each other.
Flow Body::beside(ir::Op op, std::span<Node* const> statements) {
    // A derivative is no graph, and its tasks run one after the other.
    const bool apart = op == ir::Op::stream && low.kernel->out->derivative;
    if (low.runtime_depth == 0 && low.parallel_depth == 0 && !apart)
        return group(op, {}, [&] { return block(statements); });
    return block(statements);
}

Flow Body::do_while(const Node* n) {
    KernelState& kernel = *low.kernel;
    check_spelling(*this, n->a);
    low.node = n;
    if (!kernel.graph) raise(Kind::syntax, "qd.graph.do_while() requires @qd.kernel(graph=True)");
    if (!n->list2.empty())
        raise(Kind::syntax, "'else' clause for 'while' not supported in Quadrants kernels");
    if (kernel.section == Section::branch)
        raise(Kind::syntax,
              "qd.graph.do_while() cannot appear inside a qd.graph.parallel() section; a section "
              "body must be straight-line task work (put the qd.graph.parallel_context() region "
              "inside the qd.graph.do_while() loop, not the other way around)");
    if (!unit.is_kernel && !is_real && low.runtime_depth == entry_depth) throw HoldsTask{};
    if (!unit.is_kernel || low.runtime_depth > 0 || low.parallel_depth > 0)
        raise_not_at_top(*this, n);
    if (low.kind == FunctionKind::kernel) check_statements(*this, source.body, "the kernel body");
    check_statements(*this, n->list, "a qd.graph.do_while() body");
    if (kernel.gate && !std::exchange(kernel.gate_stands, true)) {  // the whole loop is skipped
        const Flow flow =
            group(ir::Op::checkpoint, {&kernel.gate, 1}, [&] { return repeat_tasks(n, {}); });
        kernel.gate_stands = false;
        return flow;
    }
    return repeat_tasks(n, kernel.gate ? std::span<Node* const>() : n->list);
}

// `own_checkpoints`: statements of the loop's body whose loops are checkpoints by themselves.
Flow Body::repeat_tasks(const Node* n, std::span<Node* const> own_checkpoints) {
    KernelState& kernel = *low.kernel;
    const Ref flag = loop_flag(n->a);
    GraphTable& table = kernel.out->graph;
    const int outer = kernel.level;
    kernel.level = static_cast<int>(table.levels.size());
    table.levels.push_back({source_text(source, n->a->list[0]), outer});
    const std::span<Node* const> outer_tasks = std::exchange(task_statements, own_checkpoints);

    const auto read_flag = [&] {  // volatile, so that no pass decides the condition
        const Ref place = array_element(as_expr(flag.get()), nullptr, 0);
        return low.b.op(ir::Op::volatile_load, {as_expr(place.get())->value()});
    };
    const bool skips = kernel.checkpoints && !kernel.gate;
    if (skips) set_graph_word(kGraphStateWords + kernel.level, read_flag());
    ir::Inst* loop = low.b.emit(ir::Op::do_while, {}, {}, 1);
    InRegion in(low, loop->regions[0]);
    loops.push_back({LoopFrame::Kind::graph});
    {
        Scope scope(*this);
        block(n->list);
    }
    loops.pop_back();
    const int this_level = std::exchange(kernel.level, outer);
    task_statements = outer_tasks;
    low.node = n;
    set_location(n);
    ir::Value* again = low.b.cast(read_flag(), ir::Prim::u1);
    if (skips) again = next_turn(again, this_level);
    low.b.end(ir::Op::yield, {&again, 1});
    return Flow::normal;
}

// --- checkpoints ---------------------------------------------------------------------------------
// Where to begin and who yielded are two words of a small array that comes with each launch; in
// front of each checkpoint stands what decides by them whether it runs. Only its loops are groups
// of the IR, one each: so their bounds are computed where that is, by one task.

bool Body::is_task_statement(const Node* n) const {
    return low.kernel->checkpoints && low.kind == FunctionKind::kernel && !low.kernel->gate &&
           std::ranges::find(task_statements, n) != task_statements.end();
}

Ref Body::graph_place(int word) {
    const Ref array = make_array(low.kernel->graph_state, {});
    const Ref index = Ref::steal(PyLong_FromLong(word));
    PyObject* indices[] = {index.get()};
    return array_element(as_expr(array.get()), indices, 1);
}

ir::Value* Body::graph_word(int word) {
    const Ref place = graph_place(word);
    return low.b.op(ir::Op::volatile_load, {as_expr(place.get())->value()});
}

void Body::set_graph_word(int word, ir::Value* v) {
    const Ref place = graph_place(word);
    low.b.store(as_expr(place.get())->value(), v);
}

// At the end of a loop of tasks: whether it takes another turn. A yield ends every loop. If the
// label to resume at lies behind this one, its first turn skips checkpoints, and others follow
// unless its flag was zero before: then it had ended, and only a bare statement changed the flag.
// While it takes further turns the first word is negative, in a band of the loop's own, so that an
// inner loop does not take it back; when it is left, what lies between it and the label is skipped
// again.
ir::Value* Body::next_turn(ir::Value* again, int level) {
    ir::Builder& b = low.b;
    const auto number = [&](int64_t v) { return b.int_const(ir::Prim::i32, v); };
    const auto both = [&](ir::Value* x, ir::Value* y) { return b.op(ir::Op::bit_and, {x, y}); };
    ir::Value *zero = number(0), *band = number(int64_t{level + 1} * kMostCheckpoints);
    ir::Value* first = graph_word(kFirstCheckpoint);
    ir::Value* skipped = b.op(ir::Op::gt, {first, zero});
    ir::Value* goes_on = b.op(ir::Op::ne, {graph_word(kGraphStateWords + level), zero});
    goes_on = b.op(ir::Op::bit_or, {goes_on, b.op(ir::Op::le, {first, zero})});
    again = both(again, b.op(ir::Op::lt, {graph_word(kYieldedCheckpoint), zero}));
    again = both(again, goes_on);

    ir::Value *below = b.op(ir::Op::sub, {first, band}), *above = b.op(ir::Op::add, {first, band});
    // Loops around this one have lower levels: theirs and no band lie too high.
    ir::Value* ours = b.op(ir::Op::lt, {above, number(kMostCheckpoints)});
    set_graph_word(kFirstCheckpoint,
                   b.op(ir::Op::select, {again, b.op(ir::Op::select, {skipped, below, first}),
                                         b.op(ir::Op::select, {ours, above, first})}));
    return again;
}

// Begins a checkpoint; whether its tasks run.
ir::Value* Body::enter_checkpoint(GraphTable::Checkpoint row) {
    KernelState& kernel = *low.kernel;
    GraphTable& table = kernel.out->graph;
    const bool named = !row.label.empty();
    ir::Value* id = low.b.int_const(ir::Prim::i32, static_cast<int64_t>(table.checkpoints.size()));
    table.checkpoints.push_back(std::move(row));
    ir::Value* zero = low.b.int_const(ir::Prim::i32, 0);
    ir::Value* first = graph_word(kFirstCheckpoint);
    ir::Value* open =
        low.b.op(ir::Op::bit_and, {low.b.op(ir::Op::lt, {graph_word(kYieldedCheckpoint), zero}),
                                   low.b.op(ir::Op::le, {first, id})});
    if (named)  // reached: from here on nothing is skipped
        set_graph_word(kFirstCheckpoint,
                       low.b.op(ir::Op::select, {low.b.op(ir::Op::eq, {first, id}), zero, first}));
    return open;
}

Flow Body::gated_for(const Node* n) {
    low.kernel->gate = enter_checkpoint({});
    const Flow flow = for_stmt(n);
    low.kernel->gate = nullptr;
    return flow;
}

// The text of a label that later processes can look up: an int, a global name of one, or a member
// of an IntEnum.
std::string Body::checkpoint_label(const Node* n) {
    const auto refuse = [&] {
        raise_at(n, Kind::syntax,
                 "qd.checkpoint() first argument must be an int literal or an IntEnum value (e.g. "
                 "`Stage.SIM`), not negative and known before the kernel runs; got '" +
                     source_text(source, n) + "'");
    };
    const bool literal = n->kind == K::Constant;
    if (!literal && n->kind != K::Attribute && (n->kind != K::Name || find(n->name))) refuse();
    Val v;
    try {
        v = expr(n);
    } catch (const PyError&) {
        forget_error();
        refuse();
    }
    PyObject* o = v.get();
    if (!PyLong_Check(o) || PyBool_Check(o)) refuse();
    const long label = PyLong_AsLong(o);
    if (label < 0) forget_error(), refuse();
    unit.consume(v);
    std::vector<long>& known = low.kernel->labels;
    if (std::ranges::find(known, label) != known.end())
        raise_at(n, Kind::syntax,
                 "qd.checkpoint(cp_id=" + std::to_string(label) +
                     ", ...) declares a cp_id that is already used by another checkpoint in "
                     "kernel '" +
                     std::string(function_name) + "'",
                 "every label is used once, so that kernel.resume(from_checkpoint=...) is clear");
    known.push_back(label);
    return literal ? std::to_string(label) : source_text(source, n);
}

Flow Body::checkpoint(const Node* n, const Node* call) {
    KernelState& kernel = *low.kernel;
    const Node *label = nullptr, *flag = nullptr;
    if (!call->list.empty()) label = call->list[0];
    if (call->list.size() > 1) flag = call->list[1];
    for (const Node* keyword : call->list2) {
        const std::string name = text(keyword->name);
        if (name != "cp_id" && name != "yield_on")
            raise_at(call, Kind::syntax,
                     "qd.checkpoint() got unexpected keyword argument '" + name +
                         "'; only 'cp_id' and 'yield_on' are supported");
        const Node*& given = name == "cp_id" ? label : flag;
        if (given)
            raise_at(call, Kind::syntax,
                     "qd.checkpoint() got `" + name + "` both positionally and as a keyword");
        given = keyword->a;
    }
    if ((!label && !flag) || call->list.size() > 2)
        raise_at(call, Kind::syntax,
                 "qd.checkpoint() takes two arguments: `qd.checkpoint(cp_id, yield_on=flag)`");
    if (!flag)
        raise_at(call, Kind::syntax,
                 "qd.checkpoint() is missing required argument `yield_on` (e.g. `qd.checkpoint(0, "
                 "yield_on=flag)`)");
    if (!label)
        raise_at(call, Kind::syntax,
                 "qd.checkpoint() is missing required argument `cp_id` (e.g. `qd.checkpoint(0, "
                 "yield_on=flag)`)");
    if (kernel.gate || low.runtime_depth > 0)
        raise(Kind::syntax,
              "qd.checkpoint() cannot be nested inside another qd.checkpoint() or a for-loop or a "
              "branch; checkpoints stand side by side at the top level of the kernel or of a "
              "qd.graph.do_while() body");
    for (const Node* s : n->list2)
        if (s->kind == K::Assign || s->kind == K::AugAssign || s->kind == K::AnnAssign ||
            (s->kind == K::Expr && !is_docstring(s)))
            raise_at(s, Kind::syntax,
                     "qd.checkpoint() body holds a bare top-level " + class_of(*this, s) +
                         " statement, which would run on every launch",
                     "wrap it in `for _ in range(1):`");
    if (flag->kind != K::Name && flag->kind != K::Attribute)
        raise_at(flag, Kind::syntax,
                 "qd.checkpoint(yield_on=...) must reference a kernel ndarray argument -- e.g. "
                 "`yield_on=flag`, `yield_on=self.flag` or `yield_on=params.flag`; other "
                 "expressions are not supported");
    const Ref array = flag_array(flag, "qd.checkpoint(yield_on=...)");
    const size_t id = kernel.out->graph.checkpoints.size();
    ir::Value* open = enter_checkpoint({checkpoint_label(label), source_text(source, flag)});
    for (const Node* s : n->list2) {
        const bool serial = s->kind == K::If || (s->kind == K::While && graph_op(s->a).empty());
        if (serial && !(s->kind == K::If && is_static_call(s->a))) {
            ir::Inst* branch = low.b.emit(ir::Op::if_, {&open, 1}, {}, 2);
            {
                InRegion in(low, branch->regions[0]);
                const Deeper deeper(low.runtime_depth);
                Scope scope(*this);
                stmt(s);
                low.b.end(ir::Op::yield);
            }
            InRegion otherwise(low, branch->regions[1]);
            low.b.end(ir::Op::yield);
            continue;
        }
        kernel.gate = open;
        stmt(s);
        kernel.gate = nullptr;
    }
    low.node = n;
    set_location(n);
    const Ref place = array_element(as_expr(array.get()), nullptr, 0);
    ir::Value* raised =
        low.b.cast(low.b.op(ir::Op::volatile_load, {as_expr(place.get())->value()}), ir::Prim::u1);
    set_graph_word(
        kYieldedCheckpoint,
        low.b.op(ir::Op::select, {low.b.op(ir::Op::bit_and, {open, raised}),
                                  low.b.int_const(ir::Prim::i32, static_cast<int64_t>(id)),
                                  graph_word(kYieldedCheckpoint)}));
    return Flow::normal;
}

Flow Body::with_stmt(const Node* n) {
    KernelState& kernel = *low.kernel;
    if (n->list.size() != 1)
        raise(Kind::syntax, "'with' in Quadrants kernels only supports a single context manager");
    if (n->list[0]->b)
        raise(Kind::syntax, "'with ... as ...' is not supported in Quadrants kernels");
    const Node* call = n->list[0]->a;
    if (call->kind != K::Call)
        raise(Kind::syntax, "'with' in Quadrants kernels requires a call expression");
    const std::string_view op = graph_op(call);
    low.node = n;
    if (op.empty() || op == "graph_do_while")
        raise(Kind::syntax,
              "'with' in Quadrants kernels only supports qd.stream_parallel(), qd.checkpoint(), "
              "qd.graph.parallel_context(), or qd.graph.parallel()");
    check_spelling(*this, call);
    const std::string shown = op == "stream_parallel"  ? "qd.stream_parallel()"
                              : op == "checkpoint"     ? "qd.checkpoint()"
                              : op == "graph_parallel" ? "qd.graph.parallel()"
                                                       : "qd.graph.parallel_context()";
    if (op == "graph_parallel") {
        if (kernel.section == Section::branch)
            raise(Kind::syntax, "qd.graph.parallel() sections cannot be nested inside one another");
        if (kernel.section != Section::region || low.kind != FunctionKind::kernel)
            raise(Kind::syntax,
                  "qd.graph.parallel() can only be used directly inside a "
                  "qd.graph.parallel_context() region");
        take_no_arguments(call, "qd.graph.parallel");
        InSection in(kernel.section, Section::branch);
        return beside(ir::Op::section, n->list2);
    }
    if (low.kind != FunctionKind::kernel)
        raise(Kind::syntax, shown + " can only be used inside @qd.kernel, not @qd.func");
    if (op == "stream_parallel") {
        if (kernel.graph)
            raise(Kind::syntax,
                  "qd.stream_parallel() is not compatible with graph=True kernels. Streams and "
                  "graphs cannot be combined; remove graph=True or the qd.stream_parallel() "
                  "block.");
        if (kernel.section == Section::stream)
            raise(Kind::compilation, "Nested stream_parallel blocks are not supported");
        if (std::ranges::find(source.body, n) != source.body.end()) check_streams(*this);
        InSection in(kernel.section, Section::stream);
        return beside(ir::Op::stream, n->list2);
    }
    if (kernel.section == Section::branch)
        raise(Kind::syntax, shown + " cannot appear inside a qd.graph.parallel() section");
    if (!kernel.graph) raise(Kind::syntax, shown + " requires @qd.kernel(graph=True)");
    if (op == "checkpoint") {
        if (!kernel.checkpoints)
            raise(Kind::syntax, "qd.checkpoint() found in kernel '" + std::string(function_name) +
                                    "', but this kernel was not decorated with "
                                    "`checkpoints=True`. Add `checkpoints=True` to the decorator "
                                    "-- e.g. `@qd.kernel(graph=True, checkpoints=True)` -- to opt "
                                    "into the pause / resume model.");
        return checkpoint(n, call);
    }
    if (kernel.checkpoints)
        raise(Kind::syntax,
              "qd.graph.parallel_context() cannot be used in a checkpoints=True kernel");
    take_no_arguments(call, "qd.graph.parallel_context");
    check_region(*this, n->list2);
    InSection in(kernel.section, Section::region);
    return beside(ir::Op::sections, n->list2);
}

}  // namespace qd::frontend
