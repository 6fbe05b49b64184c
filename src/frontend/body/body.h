// Walking syntax trees: what the files of this folder, calls and specialise share.
//
// A Body is one function body being walked; a func that is expanded in place has a Body of its own
// inside the caller's Unit. It is touched under the compile lock.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cpython/names.h"
#include "frontend/diag.h"
#include "frontend/facts/annotations.h"
#include "frontend/facts/callables.h"
#include "frontend/facts/facts.h"
#include "frontend/source/ast.h"
#include "frontend/values/containers.h"

namespace qd::frontend {

enum class Flow : uint8_t { normal, ended, returned, static_break, static_continue };

struct Binding {
    enum class Kind : uint8_t { variable, fixed, loop_variable, kernel_argument };
    PyObject* name;  // interned, borrowed from the tree or the code object
    Val value;
    Kind kind;
    int parallel_depth;  // where it was made
    Ref shared;          // the same variable as other threads see it
    int hidden;          // index of the binding it hides, -1
};

// An ndarray that no argument leads to. Calls of real functions say it in their own words.
struct ForeignArray : Diag {
    Ref array;
};

struct LoopFrame {
    enum class Kind : uint8_t { runtime, parallel, repeated, unrolled, graph } kind;
    int runtime_ifs = 0;  // entered since the loop began
    Ref element = {};     // of a mesh, that a loop over all of one order visits
};

struct LoopSettings {
    bool serialize = false;
    int threads = 0, block_dim = 0;
    std::string name;
};

struct Lowering::Body {
    Lowering& low;
    Unit& unit;
    FunctionSource& source;
    Ref function;    // Python function
    Ref definition;  // KernelDef or FuncDef
    const ir::Loc* call_site = nullptr;
    bool is_real = false;
    Ref declared;  // real function: skeleton of its results
    std::vector<ir::Value*>
        reference_slots;         // real function: copies of variables passed by reference
    size_t parameter_count = 0;  // bindings[0, n) are the parameters
    int entry_depth = 0;         // runtime_depth where the body begins
    std::span<Node* const> task_statements;  // of the kernel or the do-while loop around

    std::vector<Binding> bindings;
    std::unordered_map<PyObject*, int> visible;
    std::vector<LoopFrame> loops;
    struct OuterName {
        Val value;
        Ref object;          // that the name was bound to
        uint64_t user_runs;  // when it was looked up last
    };
    std::unordered_map<PyObject*, OuterName> outer_names;  // globals, cells and builtins so far
    LoopSettings settings;
    bool settings_used = true;
    bool has_return = false;
    Val result;
    Ref returns;  // return annotation, empty if none
    std::string_view file_name, function_name;
    Ref cells;  // dict: free variable -> cell

    Body(Lowering& l, Unit& u, PyObject* definition);

    // names (lower_name.cpp)
    struct Scope;
    Binding* find(PyObject* name);
    void declare(PyObject* name, Val value, Binding::Kind kind);
    Val lookup(PyObject* name);
    bool is_as_it_was(PyObject* name, OuterName& seen);
    void leave_shared_views();  // at the end of a parallel loop
    Val adopt(Ref value, Prov* prov);
    Val member(const Val& base, PyObject* name);
    Val element(const Val& base, PyObject* index);
    Val bind_parameter_member(PyObject* annotation, Ref item, Prov* prov);
    Val bind_member(PyObject* annotation, Ref item, Prov* prov);
    Val unit_item(const Val& over, Ref item, Py_ssize_t at);
    bool truth(const Val& v);  // of a compile-time object
    void bind_static_target(const Node* target, const Val& v);
    Prov* find_place(
        PyObject* array);  // an array reached through arguments in a way that was not tracked

    // expressions (lower_expr.cpp, lower_condition.cpp)
    Val expr(const Node* n);
    Ref value(const Node* n) {  // all of it is looked at
        Val v = expr(n);
        unit.consume(v);
        return std::move(v.obj);
    }
    Ref index(const Node* n);
    Val binary_op(const Node* n, ir::Op op, const Val& a, const Val& b);
    Val bool_op(const Node* n, size_t first = 0);
    Val if_exp(const Node* n);
    Val known_side(const Node* n, bool condition);
    Val known_left(Val left, bool decided, const Node* n, size_t rest);
    Val compare_chain(const Node* n);
    Val comprehension(const Node* n);
    void generators(const Node* n, size_t k, PyObject* out, std::vector<Prov*>& places);
    Val iterable(const Val& over);
    Ref joined_string(const Node* n);
    bool is_static_call(const Node* n, PyObject** op = nullptr);  // Call of qd.static
    Val static_value(const Node* call);
    bool static_truth(const Node* call);
    void check_static(PyObject* o);
    bool is_direct_argument(const Node* n);
    Ref dict_display(const Node* n);

    // calls (lower_call.cpp)
    Val call(const Node* n);
    void own_super(TracedArgs& args);
    Val call_super(const Node* n, const Val& f);
    struct SuperObject {
        Ref made;
        Val object;  // whose it is
    };
    std::unordered_map<PyObject*, SuperObject> super_objects;
    Val call_known(const Node* n, const Val& f, PyObject* callable, TracedArgs args);
    Val call_known_func(const Node* n, PyObject* definition, TracedArgs args);
    Val call_special(const Node* n, std::string_view op, bool& handled);
    void spread(const Node* call, const Node* starred, CallArgs& out, std::vector<Prov*>* provs);
    void arguments(const Node* n, CallArgs& out, std::vector<Prov*>* provs,
                   std::vector<Prov*>* keyword_provs);
    void traced_arguments(const Node* n, TracedArgs& out) {
        arguments(n, out, &out.provs, &out.keyword_provs);
    }
    void consume(const TracedArgs& args);
    void consume_number(const Val& v);
    Val method_self(const Val& method, const Val& base);
    bool all_host(const Known& known, const CallArgs& args);

    // calls that Python makes (call_python.cpp)
    struct PythonCall;
    Val call_python(const Node* n, const Val& f, const TracedArgs& args);
    PythonCall gather_call(const Node* n, const Val& f, const TracedArgs& args);
    Ref run_call(const PythonCall& c);
    Val call_ours(const PythonCall& c);
    Val call_harmless(const PythonCall& c);
    Val call_changing(const PythonCall& c, Prov* owner, bool direct);
    Val call_users(const PythonCall& c);
    // What a Python function of the user answers; later processes ask it again.
    Val call_again(const Val& f, std::span<const Ref> arguments, std::span<Prov* const> provs,
                   PyObject* keywords);
    void consume_owner(PyObject* self, Prov* method);
    Val object_operator(const Node* n, const Val& left, const Val& right, ir::Op op);
    [[noreturn]] void refused(const Node* n, bool symbolic);

    // what Python evaluates (recorder.cpp)
    Val recorded(const char* name, Prov* callee, std::span<const Val> operands, PyObject* keywords,
                 bool is_pure, const std::function<Ref()>& run);
    // A function of Python's that may run code of the operands' classes.
    Val evaluated(const char* module, const char* name, std::span<const Val> operands,
                  const std::function<Ref()>& run);
    Val operation(const char* name, std::span<const Val> operands, const std::function<Ref()>& run);
    Val builtin(const char* name, std::span<const Val> operands, const std::function<Ref()>& run);
    // The same, where it may run code of the operands' classes.
    Ref asked(const std::string& name, PyObject* callee, std::span<const Val> operands,
              PyObject* keywords, const std::function<Ref()>& run);
    void user_code_runs();
    void changing_code_runs(const std::string& what);
    void note_changes(const std::string& name, PyObject* callee, std::span<const Val> operands,
                      PyObject* keywords);
    Ref next_item(const Val& over, PyObject* iterator);  // null at the end, or an exception is set
    Val result_of(Ref result, Prov* place);
    Val read_member(const Val& base, PyObject* name, const Val* otherwise);  // getattr
    Val iterated(const Val& callee, std::span<const Val> operands, Ref result);
    Ref format_call(PyObject* format, const CallArgs& args);

    // statements (lower_stmt.cpp)
    Flow block(std::span<Node* const> list);
    Flow stmt(const Node* n);
    void probe(const Node* n);
    Flow if_stmt(const Node* n);
    Flow while_stmt(const Node* n);
    Flow jump(const Node* n, bool is_break);
    Flow return_stmt(const Node* n);
    void assign_to(const Node* target, Val value, bool is_static);
    [[noreturn]] void immutable_member(const Node* target);
    [[noreturn]] void not_assignable(const Node* target);
    bool is_local_container(const Node* n);
    void assign_name(const Node* target, Val value, bool is_static);
    Ref own_variable(PyObject* place, PyObject* value);
    void unpack(const Node* target, const Val& value, bool is_static);
    void aug_assign(const Node* n);
    void ann_assign(const Node* n);
    void assert_stmt(const Node* n);
    void set_kernel_result(const Val& v);
    void emit_real_return();
    Ref percent_format(PyObject* format, PyObject* values);
    void set_location(const Node* n);
    struct CheckedHere {  // where indices are checked, a failure shows this very expression
        Body& body;
        const ir::Loc* saved;
        CheckedHere(Body& b, const Node* n) : body(b), saved(b.low.b.loc) {
            if (b.low.kernel->options.check_indices()) b.set_location(n);
        }
        ~CheckedHere() { body.low.b.loc = saved; }
    };

    // graph constructs (lower_graph.cpp)
    std::string_view graph_op(const Node* n);
    Ref loop_flag(const Node* call);
    Ref flag_array(const Node* n, const char* construct);
    Flow do_while(const Node* n);
    Flow repeat_tasks(const Node* n, std::span<Node* const> own_checkpoints);
    Ref graph_place(int word);
    ir::Value* graph_word(int word);
    void set_graph_word(int word, ir::Value* v);
    ir::Value* enter_checkpoint(GraphTable::Checkpoint row);
    ir::Value* next_turn(ir::Value* again, int level);
    std::string checkpoint_label(const Node* n);
    Flow checkpoint(const Node* n, const Node* call);
    Flow gated_for(const Node* n);
    Flow group(ir::Op op, std::span<ir::Value* const> operands, const std::function<Flow()>& fill);
    Flow beside(ir::Op op, std::span<Node* const> statements);
    bool is_task_statement(const Node* n) const;
    Flow with_stmt(const Node* n);

    // loops (lower_loop.cpp)
    Flow for_stmt(const Node* n);
    Flow unrolled(const Node* n, const Val& iterable);
    Flow range_loop(const Node* n, const Node* call);
    Flow ndrange_loop(const Node* n, const Node* call, bool grouped);
    Flow data_loop(const Node* n, const Val& over, bool grouped);
    struct Bounds {
        ir::Value *begin, *end;
    };
    struct Counted {  // what a loop that is not unrolled runs over
        enum class Over : uint8_t { range, box, data } over;
        std::vector<Bounds> bounds;  // by axis
        std::vector<int> order;      // the axes, outermost first
        bool grouped = false;        // one target has all indices
        // Over active cells: what the indices are, given those of the loop; `is_guarded`: the loop
        // is over all elements, of which those in active cells count.
        const Val* cells = nullptr;
        std::function<std::vector<ir::Value*>(std::span<ir::Value* const>)> indices;
        bool is_guarded = false;
        std::function<Ref(ir::Value*)> target;  // what the one index stands for, if not itself
    };
    Flow counted(const Node* n, const Counted& c);
    std::vector<const Node*> targets_of(const Node* n, const Counted& c);
    LoopSettings take_settings(const Counted& c);
    ir::Inst* emit_for(const Counted& c, const LoopSettings& chosen, bool parallel);
    std::vector<ir::Value*> bind_targets(const Node* n, const std::vector<const Node*>& targets,
                                         const Counted& c, const ir::Region& body);
    void set_loop_config(const Node* call);
    FieldObject* first_field(PyObject* o);
    void check_loop_rank(const Node* n, size_t rank, bool grouped);
    Flow guarded_block(const Node* n, const Counted& c, std::span<ir::Value* const> index);

    // sparse trees (lower_sparse.cpp)
    struct Visited {
        Val cells;
        std::vector<ir::Value*> index;
    };
    std::vector<Visited> visited;  // by the loops around
    void visit(const Node* loop, const Val& cells, std::vector<ir::Value*> index);
    Val library(const char* module, const char* name, std::vector<Val> given);
    bool add_triplet(const Node* n, ir::Op op);  // A[i, j] += v of a sparse matrix builder
    void refuse_items(PyObject* base);           // anything else of it
    std::vector<Val> cells_of(FieldObject* f);
    Val field_member(FieldObject* f, const char* name);
    void touch(const ir::Inst& place);
    void touch(FieldObject* f, std::span<ir::Value* const> index);
    bool is_own_library() const;
    bool is_of(std::string_view module) const;
    void mark_upkeep();
    std::optional<Val> list_call(const Node* n);  // x.append(v), x[i].length() and the like
    bool is_visited(const Val& cells, std::span<ir::Value* const> index);
    Flow sparse_loop(const Node* n, const Val& cells, bool grouped);
    Flow mesh_loop(const Node* n, const Val& over);  // lower_mesh.cpp
    [[noreturn]] void throw_index(const std::string& message);
};

bool targets_have_blocks();  // lower_loop.cpp

struct Lowering::Body::Scope {
    Body& body;
    size_t mark;
    explicit Scope(Body& b) : body(b), mark(b.bindings.size()) {}
    Scope(const Scope&) = delete;
    ~Scope();
};

// Makes a Lowering the innermost one while it lives.
struct Active {
    Lowering* previous;
    explicit Active(Lowering& l);
    ~Active();
};

// Region being filled, restored on exit.
struct InRegion {
    Lowering& low;
    ir::Region* saved;
    InRegion(Lowering& l, ir::Region* r) : low(l), saved(l.b.region) {
        if (++l.kernel->regions >= ir::kMostNestedRegions)
            raise(Kind::compilation, "branches and loops are nested too deeply",
                  "split it into functions under @qd.real_func, or index a table");
        l.b.region = r;
    }
    ~InRegion() {
        low.b.region = saved;
        --low.kernel->regions;
    }
};

// A deeper level of something, undone on exit.
struct Deeper {
    int& depth;
    explicit Deeper(int& d) : depth(d) { ++depth; }
    Deeper(const Deeper&) = delete;
    ~Deeper() { --depth; }
};

void check_end(PyObject* over, Py_ssize_t turn);  // of a loop over compile-time items
Ref all_items(PyObject* over);                    // as a list; raises if they seem to have no end

}  // namespace qd::frontend
