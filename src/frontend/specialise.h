// Kernels and functions as units of lowering: what the launcher asks for and what it gets.
//
// Parameters are discovered lazily: a leaf of a dataclass, an array reached through `self` or an
// argument becomes a module parameter when the body first touches it, so unused members cost
// nothing. Each parameter says how to fetch its value from the Python arguments at every launch.
//
// Provenance: every compile-time object reached from a root (argument, global, closure cell)
// through attributes and items has a Path. Guards are facts about paths; array leaves are fetched
// by path.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/frontend.h"
#include "ir/ir.h"

namespace qd::frontend {

// --- provenance and guards ----------------------------------------------------------------------
struct Path;
struct Step {
    // call: what the path leads to is a Python function; it is called again.
    enum class Kind : uint8_t { attribute, item, call } kind;
    Ref key;  // str for attributes; int, str or other constant for items; a call's keywords or null
    std::vector<Path> operands = {};  // of a call; the last ones go by keyword
};
struct Path {
    enum class Root : uint8_t {
        argument,
        global,
        cell,
        constant,
        module,
        annotation,
        display  // a tuple or list of `items`
    } root;
    int argument = 0;  // index of the kernel's parameter, or of the one that has the annotation;
                       // display: 1 for a tuple
    int function = 0;  // global/cell: index into LoweredKernel::functions
    Ref name;          // str: global, free variable or imported module; constant: the value
    std::vector<Step> steps;
    std::vector<Path> items = {};
};

enum class FactKind : uint8_t {
    constant,   // a bool/int/float/str/None/enum member/dtype: its type and value
    type,       // exact type of an object (module + qualname)
    length,     // len() of a container
    function,   // a Python or Quadrants function: its source text and the facts it depends on
                // (functions[k])
    field,      // a field: type, shape, offsets, layout hash, whether gradients have storage
    module,     // a module, by name
    array,      // an array: element type, axes, access
    contents,   // of a container: all that is in it, constants only
    meaning,    // a type of vectors, matrices or structs: what values of it are
    signature,  // a Quadrants function: its annotations and default values
    object,     // a template member of a dataclass argument: launches look for the very object
};
struct Guard {
    Path path;
    FactKind kind;
    Ref value;  // what it was: constant, type name, length, function index, layout hash
};

// A Python function whose source the code depends on; reached by the guards that name it.
struct SourceFunction {
    Ref function;  // the plain Python function
    std::string file;
    int first_line = 0;
    std::string text;  // its source, decorators included
};

// --- the launcher's side ---------------------------------------------------------------------
// How one flattened parameter gets its value: args[argument], then the steps.
struct ParamSource {
    Path path = {};  // root == argument; may also end in the pseudo attributes of BufferView
    // graph_state: a 1-d i32 array of the launch itself (GraphTable), not of the caller
    enum class Kind : uint8_t { scalar, tensor, array, graph_state } kind = Kind::scalar;
    bool written = false;      // array: the kernel, or a func that it calls, stores to its elements
    bool no_gradient = false;  // array: its annotation says needs_grad=False
    bool splits = false, only_foreign = false;  // array: as ArrayInfo
    bool only_own = false;  // array: others' are no arguments there, but constants or refused
};
// How results become Python objects: one entry per returned object.
struct ResultShape {
    enum class Kind : uint8_t { scalar, tensor, structure } kind;
    ir::Type type;                     // scalar, tensor
    Ref struct_type;                   // structure: the StructType
    std::vector<ResultShape> members;  // structure
    std::string name;                  // of a member
    int result = 0;                    // first number in Module::results
};

// A Python warning, or a line in the log, that compiling gives. It is stored, since a process that
// finds the code in the cache gives it again.
struct Notice {
    enum class Category : uint8_t { syntax, general, deprecation, user, log } category;
    std::string text;
    std::string file = {};  // "": where the kernel is called
    uint32_t line = 0;

    bool shows_place() const { return category != Category::log && !file.empty(); }
};
void give(const Notice& notice);  // throws PyError if the user made warnings errors

// Completes stored results from the kernel's return annotation; false if they do not fit it.
bool bind_results(PyObject* definition, std::vector<ResultShape>& results);

// The constructs of a graph kernel, in the order of the source. A kernel with checkpoints has a
// parameter of kind graph_state: [0] is the first checkpoint that runs, [1] the one that yielded or
// -1.
struct GraphTable {
    struct Level {  // a do-while loop
        std::string flag;
        int parent = -1;
    };
    struct Checkpoint {
        std::string label, flag;  // source text; both empty: a loop, which nobody can name
    };
    std::vector<Level> levels;
    std::vector<Checkpoint> checkpoints;
};
// Behind them stands a word for each loop of tasks: its flag when it was entered.
enum GraphStateWord { kFirstCheckpoint, kYieldedCheckpoint, kGraphStateWords };
inline constexpr int kMostCheckpoints = 1 << 18;  // of a kernel; a loop's band of the first word

struct LoweredKernel {
    std::unique_ptr<ir::Module> module;
    std::vector<ParamSource> params;  // parallel to module->params
    std::vector<Ref> fields;          // FieldObjects, parallel to module->fields
    std::vector<Path> field_paths;    // how a later process finds them
    std::vector<ResultShape>
        results;  // empty: returns None; more than one or tuple annotation: a tuple
    bool returns_tuple = false;
    GraphTable graph;
    std::vector<SourceFunction> functions;  // [0] is the kernel
    std::vector<Guard> guards;
    bool cacheable = true;  // false: some fact could not be guarded (reason says which)
    std::string uncacheable_reason;
    std::vector<Notice> notices;
    bool has_print = false;
    // What is wanted of it: 0 itself, 1 its reverse mode, 2 its forward mode, 3 itself with checks
    // of what it overwrites. Of fields[k] the number of the field that holds its gradients,
    // tangents or marks of what was read, -1: none does.
    uint8_t derivative = 0;
    std::vector<int32_t> companions;
    uint32_t funcs_lowered = 0, func_calls = 0;  // bodies of funcs walked, and calls of funcs
    std::shared_ptr<void> functions_owner;       // keeps the callees' IR alive while the module is
};

// File, line, code and carets of what is being lowered (diag.cpp).
std::string location_text(const Lowering& low);

// What values ask of the bodies being lowered.
void notice_here(Notice notice);  // gives it, and keeps it where it is met
bool callers_are_known();         // the innermost is the kernel's own, or within a real function
std::string kernel_function_name();

// What the lowerings of one kernel share (Lowering::kernel).
struct KernelState {
    ir::Module* module = nullptr;
    LoweredKernel* out = nullptr;
    ir::CodeOptions options;
    uint64_t options_id = 0;      // equal for equal options
    uint64_t number = 0;          // of this lowering: stamps checks done once per kernel
    Ref frame;                    // of Python, that calls the kernel; null if there is none
    bool has_print = false;       // set by print
    bool held_in_python = false;  // a HoldsTask left through code of the user
    uint64_t user_runs = 0;       // of code of the user that may change what facts say
    int regions = 0;              // around the statement being lowered
    uint32_t shared_arrays = 0;   // made so far
    // What the statement being lowered stands in: constructs of graphs and streams.
    enum class Section : uint8_t { none, region, branch, stream } section = Section::none;
    bool graph = false, checkpoints = false;  // options of the decorator
    int level = -1;                           // the innermost do-while loop, in GraphTable::levels
    ir::Value* graph_state = nullptr;         // its parameter
    ir::Value* gate = nullptr;  // u1: whether the checkpoint's loops run; null: no checkpoint
    bool gate_stands = false;   // around all that is being lowered
    std::vector<long> labels;   // of checkpoints so far
    std::unordered_map<const ir::Value*, ir::Value*>
        outliving;  // in variables (values/outlive.cpp)
    // Those sparse or packed ones that it uses.
    std::unordered_map<const ir::Field*, PyObject*> special_fields;
    bool pure = false;  // depends on its arguments only: captured values are reported
    std::vector<std::string> captures;  // reported already
};

// Parses and lowers one specialisation. `definition` is the Python KernelDef object (attributes:
// fn, params, returns, is_method, ...); `args` the bound arguments, one per parameter, in
// order. Throws Diag/PyError already converted: on failure a Python exception is set and null is
// returned.
std::unique_ptr<LoweredKernel> lower_kernel(PyObject* definition, std::span<PyObject* const> args,
                                            const ir::Options& options, const std::string& name);

// Says in the Python exception that is set that arguments of this kernel were being bound.
void prefix_binding_error(PyObject* definition);
// Throws PyError where it cannot be hashed, as the argument of a template parameter must.
void check_template_hash(PyObject* value);

// What code of the user answered while one specialisation is looked for or made. Guards of several
// recipes and the walk over the body ask the same questions in turn: each is asked once, so that a
// helper with a state of its own gives what it gives without a cache.
struct Answers {
    Answers();
    ~Answers();
    Answers(const Answers&) = delete;

    struct Answer {
        Ref callee, keywords, result;
        Ref raised;  // an exception instead of a result
        std::vector<Ref> operands;
        bool taken;          // by the walk over the body, which may ask again
        bool again = false;  // asked for a func's second call
        bool of_guard = false;
    };
    std::vector<Answer> all;
    Answers* previous;
};

// While it lives, this thread lowers functions for itself alone: another thread is in the middle of
// lowering, and does not go on.
class OwnFunctions {
    std::shared_ptr<void> before_;

  public:
    OwnFunctions();
    ~OwnFunctions();
    OwnFunctions(const OwnFunctions&) = delete;
};

// Forget function specialisations, and what is known of Python objects (qd.init, qd.reset).
void clear_function_cache();
// Without freeing it: in a forked child, whose Python is not ready yet.
void abandon_function_cache();

}  // namespace qd::frontend
