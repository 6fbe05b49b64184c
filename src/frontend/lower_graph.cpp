// Constructs of graph kernels: `while qd.graph.do_while(flag)` and the `with` blocks.
//
// A do-while loop is an ordinary `loop` with a mark; its body stays at the kernel's top level, so
// the loops inside are tasks and the launcher repeats them (pass/offload.cpp). Parallel sections
// and streams promise that their blocks are independent; here they run one after another.

#include <algorithm>

#include "frontend/lower.h"
#include "frontend/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;
using K = NodeKind;
using Section = KernelState::Section;

const char* const kAllowed =
    "Allowed: for-loops, qd.graph.do_while() while-loops, bare assignments, and @qd.func calls "
    "(freely mixed and nested).";

std::string class_of(const Node* n) {
    const std::string_view full = Py_TYPE(n->ast)->tp_name;
    const size_t dot = full.rfind('.');
    return std::string(dot == full.npos ? full : full.substr(dot + 1));
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
                     " may not contain a " + class_of(n) + " statement. " + kAllowed +
                     " [offending stmt " + std::to_string(k) + ": " + class_of(n) + "]");
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
                     std::to_string(k) + ": " + class_of(n) + "]");
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
                     std::to_string(k) + ": " + class_of(n) +
                     ", body_len=" + std::to_string(all.size()) + "]");
    }
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
        PyErr_Clear();
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
    const Node* n = call->list[0];
    Ref flag;
    if (n->kind == K::Name || n->kind == K::Attribute) {
        try {
            flag = expr(n).obj;
        } catch (const Diag&) {
        } catch (const PyError&) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
            PyErr_Clear();
        }
    }
    const auto is_flag = [](const ExprObject& e) {
        const ir::Type t = e.value->type;
        return e.kind == ExprKind::array && t.prim == ir::Prim::i32 && !t.rank && !t.ndim;
    };
    if (flag && is_expr(flag.get()) && is_flag(*as_expr(flag.get()))) return flag;
    raise_at(n, Kind::syntax,
             "qd.graph.do_while(...) got '" + source_text(source, n->ast) +
                 "' which does not resolve to an ndarray kernel parameter of '" +
                 std::string(function_name) +
                 "'. The argument must reference an ndarray kernel parameter (e.g. `flag`) or a "
                 "@qd.data_oriented member ndarray (e.g. `self.flag`); other expressions are not "
                 "supported.",
             "the flag is a 0-d i32 array");
}

Flow Body::do_while(const Node* n) {
    KernelState& kernel = *low.kernel;
    check_spelling(*this, n->a);
    low.node = n->ast;
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
        raise(Kind::syntax,
              "qd.graph.do_while() must be at the kernel top level or directly nested inside "
              "another qd.graph.do_while(); it cannot appear inside a for-loop.");
    if (low.kind == FunctionKind::kernel) check_statements(*this, source.body, "the kernel body");
    check_statements(*this, n->list, "a qd.graph.do_while() body");
    const Ref flag = loop_flag(n->a);

    ir::Inst* loop = low.b.emit(ir::Op::loop, {}, {}, 1);
    loop->imm = ir::kGraphLoop;
    InRegion in(low, loop->regions[0]);
    loops.push_back({LoopFrame::Kind::graph});
    {
        Scope scope(*this);
        block(n->list);
    }
    loops.pop_back();
    low.node = n->ast;
    set_location(n);
    // Volatile, so that no pass decides the condition.
    const Ref place = array_element(as_expr(flag.get()), nullptr, 0);
    ir::Value* again =
        low.b.cast(low.b.op(ir::Op::volatile_load, {as_expr(place.get())->value}), ir::Prim::u1);
    ir::Inst* branch = low.b.emit(ir::Op::if_, {&again, 1}, {}, 2);
    {
        InRegion then(low, branch->regions[0]);
        low.b.end(ir::Op::yield);
    }
    {
        InRegion otherwise(low, branch->regions[1]);
        low.b.end(ir::Op::break_);
    }
    low.b.end(ir::Op::continue_);
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
    low.node = n->ast;
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
        return block(n->list2);
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
        return block(n->list2);
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
        raise(Kind::runtime, "qd.checkpoint is not available in this build yet");
    }
    if (kernel.checkpoints)
        raise(Kind::syntax,
              "qd.graph.parallel_context() cannot be used in a checkpoints=True kernel");
    take_no_arguments(call, "qd.graph.parallel_context");
    check_region(*this, n->list2);
    InSection in(kernel.section, Section::region);
    return block(n->list2);
}

}  // namespace qd::frontend
