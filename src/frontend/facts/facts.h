// Walking syntax trees: what the lower_*.cpp files, guards and specialise share. Private to them.
//
// A Unit is one separately lowered function: the kernel or a specialisation of a func. A Body is
// one function body being walked; a func that is expanded in place has a Body of its own inside the
// caller's Unit. Both belong to one kernel's lowering and are touched under the compile lock.

#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cpython/names.h"
#include "frontend/frontend.h"
#include "frontend/source/ast.h"
#include "frontend/specialise.h"

namespace qd::frontend {

// --- provenance ---------------------------------------------------------------------------------
// Where a compile-time object came from: a tree per Unit, one node per (parent, step).
enum class Impurity : uint8_t { none, warned, refused };
struct Prov {
    // display: of a list or tuple that the source writes; `operands` are the places of its items,
    // and `argument` is 1 for a tuple.
    enum class Kind : uint8_t {
        argument,
        global,
        cell,
        constant,
        annotation,
        module,
        display,
        attribute,
        item,
        call
    };
    Kind kind;
    Prov* parent = nullptr;
    int argument = 0;              // root argument, annotation: parameter number of the Unit
    bool flattened = false;        // reached through a parameter annotated with a dataclass
    bool component = false;        // of a host matrix: kernels see it as a number of Python
    bool runtime_members = false;  // primitives of this data-oriented object are run-time arguments
    uint16_t facts = 0;            // bit k: FactKind k is recorded
    int last_fact = -1;            // of this place, in Unit::facts
    uint64_t settled_at = 0;       // KernelState::user_runs when its contents were compared last
    Impurity impurity =
        Impurity::none;  // what a pure kernel makes of this place if it is a global one
    Ref key;             // name, attribute or item
    Ref function;        // root global or cell: the Python function
    Ref leaf;            // the Expr of a parameter made for this place
    Ref answer;          // what a call gave: another answer later is none to rely on
    Ref at_launch;       // the object itself, if its members have their values at launches only
    std::unordered_map<PyObject*, Prov*> attributes;
    std::vector<Prov*> items;     // and results of calls
    Ref places;                   // dict: item -> its place in `items`
    std::vector<Prov*> operands;  // of a call (its `key` names the last ones), of a display
    Ref calls;                    // dict: operands of a call -> its place in `items`

    const Prov* root() const {
        const Prov* p = this;
        while (p->parent) p = p->parent;
        return p;
    }
    bool from_argument() const { return root()->kind == Kind::argument; }
};
// Raises if Python is about to see values that only launches know; a null place has none.
void refuse_at_launch(const Prov* prov);

// A value while lowering, with its origin if it is a compile-time object.
struct Val {
    Ref obj;
    Prov* prov = nullptr;
    PyObject* get() const { return obj.get(); }
};

struct Fact {
    Prov* prov;
    FactKind kind;
    Ref value;
    Ref field = {};   // FactKind::field: the very one, which code of this process has in it
    int before = -1;  // another fact about the same place
};

// --- units --------------------------------------------------------------------------------------
struct Entry;  // a cached specialisation (lower_call.cpp)

struct Unit {
    KernelState* kernel = nullptr;
    ir::Function* function = nullptr;
    bool is_kernel = false;
    bool foreign = false;  // ran Python that guards cannot see, printed or warned
    std::string foreign_reason;
    bool could_hold_task =
        false;  // a func with a loop that is a task when the call is at top level
    std::deque<Prov> provs;
    std::unordered_map<int, Prov*> arguments;
    std::map<std::pair<PyObject*, PyObject*>, Prov*> globals;  // by function and name
    std::vector<Fact> facts;
    // Parameters made while the body was walked; place k of `lazy` is function parameter
    // first_lazy + k (funcs) or module parameter (kernel).
    struct Lazy {
        Prov* prov;
        ir::Value* value;
    };
    std::vector<Lazy> lazy;
    std::vector<Ref> fields;                            // FieldObjects used, once each
    std::unordered_map<PyObject*, Prov*> field_places;  // where each was found
    std::unordered_map<PyObject*, bool> field_seen;
    std::vector<Notice> notices;                   // given while it was lowered
    std::vector<Entry*> callees;                   // once each
    std::unordered_map<PyObject*, int> functions;  // kernel: index into LoweredKernel::functions
    std::unordered_set<PyObject*> called;          // functions whose bodies were walked

    Prov* argument(int index);
    Prov* annotation(int index, PyObject* annotation);  // of a kernel's parameter
    Prov* display(std::vector<Prov*> items, bool is_tuple);
    Prov* global(Prov::Kind kind, PyObject* function, PyObject* name);
    Prov* attribute(Prov* base, PyObject* name);
    Prov* item(Prov* base, PyObject* key);
    // The result of calling `callee` with these arguments; null if a later process could not call
    // it again: an argument is neither a constant nor found anywhere.
    // `keywords`: null, or a tuple that names the last arguments.
    Prov* call(Prov* callee, std::span<const Ref> arguments, std::span<Prov* const> provs,
               PyObject* keywords = nullptr);
    // A function of a module of Python, as the callee of a call.
    Prov* function_of(const char* module, const char* name);
    // Whether facts say all that Python can see of `o`: a constant, or a container of constants.
    bool settle(PyObject* o, Prov* prov);
    void fact(Prov* prov, FactKind kind, PyObject* value, PyObject* field = nullptr);
    // Whether a call gave this place the same as before; notes what it gave.
    bool answers_alike(Prov* place, PyObject* result);
    // Whether the contents of `o`, found at `prov`, are a fact: compared again after code of the
    // user.
    bool has_contents(PyObject* o, Prov* prov);
    void opaque(const std::string& reason);             // some fact cannot be guarded
    void see_changes(std::span<PyObject* const> args);  // by code of the user, at the end
    static bool is_default_known(PyObject* value);  // by the signature of the func it belongs to
    // Python code looks at all of `o`, found at `prov`: its facts must say everything.
    void consume(PyObject* o, Prov* prov, int depth = 0);
    // Records what the items of a list or tuple are, at any depth.
    void guard_items(PyObject* o, Prov* prov, int depth = 0);
    // Something is read from `o`, which nobody knows where to find again.
    void untracked(PyObject* o);
    void consume(const Val& v) { consume(v.get(), v.prov); }
    void notice(Notice notice);  // gives and keeps it
    // The parameter for what lies at `prov`; one per place.
    ir::Value* parameter(Prov* prov, ParamSource::Kind kind, ir::Type type, const std::string& name,
                         bool needs_grad = false);
};

Path path_of(const Prov* prov, Unit& kernel_unit);
// Captured values in kernels that promise to depend on their arguments only (purity.cpp): `base` is
// the object that had the attribute, null for a name. note_ marks the place, both report it.
void note_capture(Lowering& l, PyObject* function, PyObject* base, PyObject* o, PyObject* name,
                  Prov* prov);
bool is_harmless(PyObject* callable);  // Python's own, which does what it says
bool is_own_code(PyObject* callable);  // a function, class or method of this package
void report_capture(KernelState& k, Prov* prov, Impurity impurity, PyObject* value);
void guard_value(Unit& unit, PyObject* o, Prov* prov);  // records what the code may depend on
void guard_class(Unit& unit, PyObject* o, Prov* prov);  // its class alone
bool fact_holds(const Fact& f, PyObject* now);
// The same for code of the user: from a guard, which may be answered already, from the body, or for
// a func's second call, which asks as often as its body would.
enum class Asker : uint8_t { guard, body, again };
PyObject* walk(const Prov* prov, std::span<PyObject* const> args, Ref& keep,
               Asker asker = Asker::guard);  // null: gone
// Calls; the last operands go by `keywords`, a tuple or null. Null with an exception set.
Ref call_with(PyObject* callee, std::span<const Ref> operands, PyObject* keywords);
Ref ask(PyObject* callee, std::span<const Ref> operands, PyObject* keywords, Asker asker);
void take_answers(bool serve);  // what was asked again serves the call that asked, or its body
int function_index(Unit& kernel_unit, PyObject* function);

// --- arrays --------------------------------------------------------------------------------------
struct ArrayInfo {
    ir::Type elem;
    int ndim = 0;
    ir::ArrayAccess access;
    bool has_grad = false;
};
bool is_external_array(PyObject* o);                           // NumPy array or torch tensor
bool array_info(PyObject* o, ArrayInfo& out);                  // any array; false if it is none
std::optional<ir::Prim> prim_of(PyObject* annotation);         // dtype objects, int, float, bool
std::optional<ir::Type> tensor_type_of(PyObject* annotation);  // vector and matrix types
bool is_template(PyObject* annotation);
bool is_ndarray_annotation(PyObject* annotation);
bool is_tensor_annotation(PyObject* annotation);  // qd.Tensor
bool is_dataclass(PyObject* type);
bool is_instance_field(PyObject* field);  // of a dataclass
bool is_buffer_view_annotation(PyObject* annotation);
bool is_struct_type(PyObject* annotation);       // qd.types.struct, qd.dataclass
PyObject* strip_optional(PyObject* annotation);  // X | None -> X (borrowed)
bool is_empty(PyObject* annotation);             // no annotation

void check_array_expr(PyObject* annotation, const ExprObject* array, const std::string& name);
void bind_array_type(PyObject* annotation, PyObject* array, const std::string& name,
                     ArrayInfo& a);                         // checks; compound elements
std::string_view operation_of(PyObject* callable);          // its _qd_op, "" if none
Ref make_struct(PyObject* struct_type, PyObject* members);  // StructValue

// --- bodies --------------------------------------------------------------------------------------
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
    std::unordered_map<PyObject*, Val> outer_names;  // globals, cells and builtins seen so far
    LoopSettings settings;
    bool settings_used = true;
    bool has_return = false;
    Val result;
    Ref returns;  // return annotation, empty if none
    std::string_view file_name, function_name;
    Ref cells;  // dict: free variable -> cell

    Body(Lowering& l, Unit& u, PyObject* definition);

    // names (lower_expr.cpp)
    struct Scope;
    Binding* find(PyObject* name);
    void declare(PyObject* name, Val value, Binding::Kind kind);
    Val lookup(PyObject* name);
    void leave_shared_views();  // at the end of a parallel loop
    Val adopt(Ref value, Prov* prov);
    Val member(const Val& base, PyObject* name);
    Val element(const Val& base, PyObject* index);
    Val bind_parameter_member(PyObject* annotation, Ref item, Prov* prov);
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
    Val binary_op(const Node* n, BinOp op, const Val& a, const Val& b);
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
    // What a Python function of the user answers; later processes ask it again.
    Val call_again(const Val& f, std::span<const Ref> arguments, std::span<Prov* const> provs,
                   PyObject* keywords);
    Val method_self(const Val& method, const Val& base);
    void consume_owner(PyObject* self, Prov* method);
    Val call_python(const Node* n, const Val& f, const CallArgs& args,
                    const std::vector<Prov*>& provs, const std::vector<Prov*>& keyword_provs);
    Val object_operator(const Node* n, const Val& left, const Val& right, const char* method);
    [[noreturn]] void refused(const Node* n, bool symbolic);
    bool all_host(const auto& known, const CallArgs& args);
    bool needs_no_kernel(PyObject* o);

    // what Python evaluates (recorder.cpp)
    Val recorded(const char* name, Prov* callee, std::span<const Val> operands, PyObject* keywords,
                 bool is_pure, const std::function<Ref()>& run);
    Val operation(const char* name, std::span<const Val> operands, const std::function<Ref()>& run);
    Val result_of(Ref result, Prov* place);
    Val read_member(const Val& base, PyObject* name, const Val* otherwise);  // getattr
    Val iterated(const Val& callee, std::span<const Val> operands, Ref result);
    Ref format_call(PyObject* format, const CallArgs& args);
    Val call_special(const Node* n, std::string_view op, bool& handled);
    void arguments(const Node* n, CallArgs& out, std::vector<Prov*>* provs,
                   std::vector<Prov*>* keyword_provs);

    // statements (lower_stmt.cpp)
    Flow block(std::span<Node* const> list);
    Flow stmt(const Node* n);
    Flow if_stmt(const Node* n);
    Flow while_stmt(const Node* n);
    Flow jump(const Node* n, bool is_break);
    Flow return_stmt(const Node* n);
    void assign_to(const Node* target, Val value, bool is_static);
    [[noreturn]] void immutable_member(const Node* target);
    [[noreturn]] void not_assignable(const Node* target);
    bool is_local_container(const Node* n);
    void assign_name(const Node* target, Val value, bool is_static);
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
    Ref graph_place(GraphStateWord word);
    ir::Value* graph_word(GraphStateWord word);
    void set_graph_word(GraphStateWord word, ir::Value* v);
    ir::Value* enter_checkpoint(GraphTable::Checkpoint row);
    std::string checkpoint_label(const Node* n);
    Flow checkpoint(const Node* n, const Node* call);
    Flow gated_for(const Node* n);
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
    Flow counted(const Node* n, std::span<const Bounds> bounds, std::span<const int> order,
                 bool grouped, bool one_name, bool over_data);
    void set_loop_config(const Node* call);
    FieldObject* first_field(PyObject* o);
    [[noreturn]] void throw_index(const std::string& message);
};

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

// --- calls of funcs -----------------------------------------------------------------------------

Val call_definition(PyObject* definition, const CallArgs& args, const std::vector<Prov*>& provs,
                    const std::vector<Prov*>& keyword_provs);
// For an ndarray that no argument of the kernel leads to, as an argument of a real function: raises
// if the parameter, found by name or position, takes arrays or templates.
void refuse_array_of_real_func(PyObject* definition, size_t position, PyObject* name,
                               PyObject* array);
PyObject* func_of(PyObject* callable);  // FuncDef behind a callable, borrowed; null if it is none
bool is_kernel_callable(PyObject* callable);
void check_end(PyObject* over, Py_ssize_t turn);  // of a loop over compile-time items
Ref all_items(PyObject* over);                    // as a list; raises if they seem to have no end
Ref map_leaves(PyObject* o, const std::function<Ref(PyObject* expr)>& f);
// Containers of kernels (containers.cpp).
Ref copy_tree(PyObject* o);                            // other containers, the same leaves
bool same_tree(PyObject* a, PyObject* b);              // equal forms, the same leaves
void join_shared_view(PyObject* own, PyObject* view);  // what was done to the view is done to `own`
                                                       // // containers and structs rebuilt
Ref constant_repr(PyObject* o);                        // repr, with ints of any length in it
[[noreturn]] void raise_at(const Node* n, Kind kind, std::string message, std::string hint = {});

// --- specialisation cache --------------------------------------------------------------------
struct FunctionCache;
FunctionCache& function_cache();
std::shared_ptr<void> functions_owner();
void use_field(Unit& unit, PyObject* field);
void finish_unit(Unit& kernel_unit);              // callees, fields and guards into the module
void note_written_arrays(LoweredKernel& kernel);  // ParamSource::written (written_arrays.cpp)

// --- errors ----------------------------------------------------------------------------------
// Remembers where an exception passed: called once per Body while it unwinds.
void add_frame(Lowering& l);
std::string source_text(const FunctionSource& s, const Node* n);  // the code of one node
void begin_errors(const ir::Options& options);
// A Python exception that leaves this scope is about an argument: it reaches the caller as it is.
struct ArgumentErrors {
    ArgumentErrors() = default;
    ArgumentErrors(const ArgumentErrors&) = delete;
    ~ArgumentErrors();
};
[[noreturn]] void raise_undefined(PyObject* name, PyObject* function, PyObject* locals,
                                  PyObject* cells);  // of an unknown name
void forget_failure();  // the Python exception and the frames that were noted for it
void raise_python();    // turns the C++ exception in flight into a Python exception

}  // namespace qd::frontend
