// The intermediate representation: typed, SSA, structured regions.
//
// A Module is one kernel: functions[0] is the kernel itself, the others are the specialisations of
// `@qd.func` that it calls. A Function owns an arena; everything inside it (instructions, values,
// regions) lives there and is referred to by plain pointers until the function dies.
//
// Regions hold a list of instructions that ends in exactly one terminator:
//   if_    operand: condition (u1). regions: then, else. Each ends in `yield v...` (the results of
//          the if) or in break_/continue_/return_ (then it yields nothing).
//   for_   n = imm dimensions. operands: begin0, end0, ... begin(n-1), end(n-1) of one integer type
//          (i32 or i64), then the initial values of what the loop carries. One region with
//          parameters: n indices, then the carried values. Visits indices in ascending
//          lexicographic order, last dimension fastest; bounds are evaluated once. The region ends
//          in `continue_ v...` (next iteration's carried values); `break_ v...` leaves the whole
//          loop. Results: the carried values at the end. ref: LoopConfig or null. A for_ with
//          LoopConfig::parallel stands in the kernel function's body or in groups there, carries
//          nothing, breaks never, and becomes a task whose iterations may run at the same time; run
//          by one thread it must equal ascending serial order.
//   loop   operands: initial carried values; region parameters: the carried values. Repeats until a
//          `break_ v...`; its results are those values. Ends in continue_/break_.
//   return_ v... leaves the function; at the end of a body always, elsewhere only in functions
//          with Function::returns_early.
// Groups say how the tasks of a kernel belong together; pass `offload` makes a list of them. They
// stand in the body of a kernel that does not return early, or in another group there, carry
// nothing and end in `yield`:
//   do_while    runs its region, and again as long as that ends in `yield` of a true u1.
//   checkpoint  operand: u1. Runs its region if that is true. No checkpoint stands in another.
//   sections    holds `section`s, which may run at the same time; what follows waits for all.
//   section     runs its region.
//   stream      runs its region; those that follow each other may run at the same time.
// One after the other is what they mean; that nothing else comes out when they run at the same time
// is the user's promise.
// A value may be used where its definition dominates: earlier in the same region or in an
// enclosing one, so none goes from a group to the next. Callees are reached through Inst::ref and
// never contain parallel loops or groups.
//
// Variables start as `slot`s with loads and stores; pass `promote` turns them into SSA values.
// Memory is reached through places (`field_place`, `array_place`, `slot`, `temp`, `comp_place`). At
// the very end pass `lower_places` says where they lie: `field_base`, `array_base` and `displace`.
//
// Replacement: `a->replace_with(b)` leaves a forwarding pointer; readers use Inst::operand(), which
// follows and shortens it. No use lists are kept.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/options.h"
#include "support/arena.h"
#include "type/type.h"

namespace qd::ir {

using type::Prim;
using type::Type;

enum class Op : uint8_t {
#define OP(name, ...) name,
#include "ir/ops.inc"
    count_,
};

enum class Rule : uint8_t {
    given,      // the builder is told the type
    same0,      // type of operand 0
    same1,      // type of operand 1
    boolean,    // shape of operand 0, u1
    count32,    // shape of operand 0, i32
    component,  // scalar of operand 0's primitive
    loaded,     // value held by operand 0's place
    regions,    // any number of results, given
    none,       // no result
};

enum class Effect : uint8_t {
    pure,    // may be removed, duplicated, reordered, hoisted: never traps
    alloc,   // slot
    read,    // reads memory
    write,   // writes memory
    atomic,  // reads and writes memory, ordered
    check,   // may end the launch (assert_): kept, ordered with other effects
    io,      // kept and ordered
    region,  // effects of its regions
    call,    // effects of the callee's summary
    terminator,
};

// What an op is about. Who goes through all ops asks for this and needs no list of them.
enum class Kind : uint8_t {
    constant,
    tensor,       // components of tensors: building, taking apart, products, reductions
    elementwise,  // fold() knows it, component by component
    place,        // makes a place
    memory,       // reads or writes places, the launch's block or the thread's
    atomic,
    control,
    threads,  // what threads of a block do together: neither moved nor doubled
    outside,  // random numbers, text
};

enum class Takes : uint8_t { any, ints, floats };
// How results follow small changes of the operands: what gradients ask of an op.
enum class Slope : uint8_t {
    zero,       // not at all, but for jumps; or it is about integers and places
    linear,     // its derivative needs no value: nothing is kept for it
    nonlinear,  // it needs operands or the result: ir/partials.h has it, of element-wise ops
    forbidden,  // an error where a gradient would have to pass
    inner,      // as its regions or its callee say
};
enum class Refers : uint8_t { nothing, field, function, loop, format };  // Inst::ref
enum class Root : uint8_t { none, slot, temp, partial, thread, tape, shared, field, array };
enum class Neutral : uint8_t { none, zero, most, least, ones };
enum class Word : uint8_t { none, launch_key, results, temps, partials };  // of abi::Context

struct Span {
    float low = 0, high = 0;
};

// A column that no C++ reads, but cmake/op_functions.py and tests.
struct ForPython {
    consteval ForPython(auto...) {}
};

struct OpInfo {
    const char* name;  // IR text; without the trailing underscore of C++ keywords
    int8_t operands;   // -1: any number
    Rule rule;
    Effect effect;
    Kind kind;
    Takes takes;
    Slope slope;
    const char* python;  // name of the Python function or operator, "" if none
    // A letter an operand, the last also for those behind it. v: a value; =: one of operand 0's
    // type; e, r: a scalar of operand 0's, of the result's primitive; i: an integer; n: i32 or i64;
    // u: u1; l: i64; p: a place; w: what place 0 holds; a: an array.
    const char* args = "";
    bool elementary = false;  // its meaning is a template of elementary.h ...
    bool in_place = false;    // ... so short that code generation makes no function of it
    const char* symbol = "";  // how messages write it: Python's operator ...
    const char* method = "";  // ... if it has a special method, which has this name
    bool promotes = false;    // integers become the default float; else functions of floats refuse
    bool widens = false;      // its Python function makes f16 operands f32
    bool whole = false;       // its results are whole numbers, and it takes a dtype for them
    bool assigns = false;     // `x op= y` is this where other threads may see x
    Span tested = {-8, 8};    // operands that tests draw ...
    Span against = {-8, 8};   // ... and second operands
    const char* names[3] = {"a", "b"};  // parameters of the Python function; of one operand x
    ForPython ulp = 0;       // units in the last place that a result may differ from NumPy's
    ForPython doc = "";      // first sentence for users; of operators the expression
    ForPython given = "";    // documentation of each parameter, where facts do not say it
    ForPython raises = "";   // as doc, where facts do not say it
    ForPython numpy = "";    // what plain Python computes: the expression, else np.NAME(...)
    ForPython face = "";     // decorator in lang/_ops/operation.py: what plain Python may do
    ForPython at = "";       // where users find it: "qd", "math"; elementary functions in both
    Type gives = {};         // where the builder is told the type, but it is always this one
    bool commutes = false;   // operands 0 and 1 (min and max keep the payload of one NaN)
    bool cheap = false;      // rather computed on both sides of a branch than branched over
    bool recompute = false;  // rather computed again by another task than kept for it
    uint8_t regions = 0;
    bool group = false;      // of tasks: its region stands for the kernel's body
    bool repeats = false;    // may run its region more than once
    Word word = Word::none;  // what of the launch it looks at
    Op inside = Op::count_;  // the group that it stands in, which holds nothing else
    bool fences = false;     // of memory all but slots may be another behind it
    int8_t component = -1;   // which operand is a component's number, known at run time alone
    Refers refers = Refers::nothing;
    Root root = Root::none;           // what memory the place that it makes lies in
    Op step = Op::count_;             // what an atomic or a reduction does with each component
    Op joins = Op::count_;            // what joins partial results of a chain of it
    Neutral neutral = Neutral::none;  // what such a partial result begins with
};

struct OpName {  // the enumerator without a keyword's underscore
    char text[20] = {};
    consteval OpName(const char* op) {
        for (size_t k = 0; op[k] && (op[k] != '_' || op[k + 1]); ++k) text[k] = op[k];
    }
};
inline constexpr OpName kOpNames[] = {
#define OP(name, ...) #name,
#include "ir/ops.inc"
};
inline constexpr OpInfo kOps[] = {
#define OP(op, of, by, does, about, of_type, bends, called, ...) \
    {.name = kOpNames[int(Op::op)].text,                         \
     .operands = of,                                             \
     .rule = Rule::by,                                           \
     .effect = Effect::does,                                     \
     .kind = Kind::about,                                        \
     .takes = Takes::of_type,                                    \
     .slope = Slope::bends,                                      \
     .python = called __VA_OPT__(, ) __VA_ARGS__},
#include "ir/ops.inc"
};
inline const OpInfo& info(Op op) { return kOps[int(op)]; }
bool parse_op(std::string_view name, Op& out);

struct Inst;
struct Region;
struct Function;

// Where in the user's source an instruction comes from. Lines are 1-based, columns 0-based
// (characters), end exclusive. `caller` is the call site of an inlined function, else null.
struct Loc {
    std::string_view file, function;
    int line = 0, col = 0, end_line = 0, end_col = 0;
    const Loc* caller = nullptr;
};

struct Value {
    Type type;
    Inst* def = nullptr;      // null for a region parameter
    Region* owner = nullptr;  // region of a parameter, else null
    uint32_t index = 0;       // result or parameter number
    uint32_t id = 0;          // scratch for passes, printer, code generation
    Value* replaced = nullptr;
};

// Bits of array_place's imm.
struct ArrayAccess {
    uint64_t layout = 0;  // 4 bits per memory level, outermost first: canonical axis; 0 = identity
    bool grad = false;    // the gradient's storage
    bool clamp = false;   // boundary="clamp"
    uint64_t pack() const { return layout | uint64_t(grad) << 48 | uint64_t(clamp) << 49; }
    static ArrayAccess unpack(uint64_t imm) {
        return {imm & ((uint64_t(1) << 48) - 1), (imm >> 48 & 1) != 0, (imm >> 49 & 1) != 0};
    }
};

// What op task_value reads. bound + k is the k-th of begin0, end0, begin1, end1, ...
enum class TaskValue : uint32_t {
    begin,            // entry's argument: first unit; 0 in a serial task and in `finish`
    end,              // entry's argument: behind the last unit; number of chunks in `finish`
    chunk,            // entry's argument: number of the chunk
    tile,             // Thread::tile
    tiles,            // Thread::tiles
    bound,            // Context::bounds[k]
    launch_key = 64,  // Context::launch_key, random bits
    alone,            // Thread::alone
    // Where each thread has an iteration (Target::threads) `begin` is its number, `end` that of all
    // threads of the task, `chunk` that of its block, and
    in_block,  // its number in there
};

// What op thread_index is: the number of the thread that runs the iteration (of a GPU in the grid),
// and, of targets with blocks, its number in the block and in the subgroup.
enum class ThreadNumber : uint32_t { thread, in_block, lane };

// What ops on all threads of a block (block_vote) or on those of a subgroup (vote) find out. same:
// whether all are true or none; bits: the lanes where it is true; number: of threads where it is;
// equal, all_equal: of any value, the lanes that have this one's, or all of the mask or none.
enum class Vote : uint32_t { all, any, same, bits, number, equal, all_equal };
enum class Shuffle : uint32_t { lane, up, down, flip };   // whose value: operand 1 says how far
enum class Fence : uint32_t { subgroup, block, device };  // for whom it orders

// Bits of shared_place's imm: which array of the kernel, and its elements.
struct SharedArray {
    uint32_t number = 0, count = 0;
    uint64_t pack() const { return uint64_t(number) << 32 | count; }
    static SharedArray unpack(uint64_t imm) { return {uint32_t(imm >> 32), uint32_t(imm)}; }
};

// What op thread_word is a place of.
enum class ThreadWord : uint32_t { random_key, random_draw };  // u64

// Dense storage of a field as an address: base + sum over terms of
// (((index[axis] - offset[axis]) / div) % mod) * stride   (mod 0: no remainder taken).
// The base pointer is bound per kernel (Module::fields order), so a Field holds no address.
struct Field {
    std::string name;  // for messages
    Type elem;         // value type of one cell's member
    int ndim = 0;
    int64_t shape[12] = {}, offset[12] = {};
    struct Term {
        int axis;
        int64_t div, mod, stride;  // stride in bytes
        bool operator==(const Term&) const = default;
    };
    std::vector<Term> terms;
    std::vector<int64_t> component_offsets;  // bytes from the cell's member to component k
    // Terms of each component, where components lie in containers of different cells; else empty.
    std::vector<std::vector<Term>> uneven_terms;
    const std::vector<Term>& terms_of(int k) const {
        return uneven_terms.empty() ? terms : uneven_terms[static_cast<size_t>(k)];
    }
    // Distance of neighbouring components if constant, else 0 (then only constant indices work).
    int64_t component_stride() const;
    uint64_t alias_group = 0;  // fields of different groups never overlap
    uint64_t sparse = 0;       // tells the sparse nodes above it apart; 0 if there are none
    bool packed = false;       // its numbers lie in words of another field: places have no address
    uint64_t layout_hash() const;
};

struct LoopConfig {
    bool parallel = false;
    bool strictly_serial = false;  // loop_config(serialize=True)
    int block_dim = 0;
    int max_threads = 0;  // 0: no limit
    bool units = false;   // the innermost loop over what a call of a range task gets
    std::string name;
};

// Text of print and assert. pieces[k] is either literal text or the conversion of the next operand.
struct Format {
    struct Piece {
        std::string text;  // literal, or printf-like spec without '%' and conversion, e.g. "-8.3"
        char conversion =
            0;  // 0: literal; 'd','u','x','f','e','g',... ; '*': the type's natural one
    };
    std::vector<Piece> pieces;
    std::string function;  // print: the check that reports, "" for the user's own prints
};

struct Inst {
    Op op;
    uint8_t flags = 0;  // kXxx below
    uint16_t operand_count = 0, result_count = 0, region_count = 0;
    Value** operands = nullptr;
    Value* results = nullptr;
    Region** regions = nullptr;
    uint64_t imm = 0;
    const void* ref = nullptr;  // Field, Function, LoopConfig or Format, as the op says
    const Loc* loc = nullptr;
    Inst *prev = nullptr, *next = nullptr;
    Region* parent = nullptr;

    Value* operand(int k) const {  // follows replacements
        if (unsigned(k) < operand_count && !operands[k]->replaced) return operands[k];
        return replaced_operand(k);
    }
    Value* replaced_operand(int k) const;  // its other half
    Value* result(int k = 0) const { return results + k; }
    std::span<Value*> operand_slots() const { return {operands, operand_count}; }
    std::span<Value> result_values() const { return {results, result_count}; }
    std::span<Region*> region_list() const { return {regions, region_count}; }
    bool is_loop() const { return op == Op::for_ || op == Op::loop; }
    bool is_group() const { return info(op).group; }
    Region& body() const { return *regions[0]; }
    const Field* field() const { return static_cast<const Field*>(ref); }
    Function* callee() const { return static_cast<Function*>(const_cast<void*>(ref)); }
    const LoopConfig* loop_config() const { return static_cast<const LoopConfig*>(ref); }
    const Format* format() const { return static_cast<const Format*>(ref); }
    Effect effect() const { return info(op).effect; }

    void remove();  // unlink; its values must have been replaced or be unused
    void move_before(Inst& other);
    void append_to(Region& region);
    void insert_before(Inst& other);
};
// Immediate of op matmul: products are added with one rounding.
inline constexpr uint64_t kFusedProducts = 1;

inline constexpr uint8_t kNoFastMath = 1;
inline constexpr uint8_t kPrivateField =
    2;                                  // an atomic on a field of which threads may have copies
inline constexpr uint8_t kNoWrap = 4;   // the result fits its type; a narrowing cast loses nothing
inline constexpr uint8_t kOrdered = 8;  // an atomic that orders the accesses around it
inline constexpr uint8_t kStopsGradient = 32;  // a load that is a constant to gradients
inline constexpr uint8_t kOverData = 16;  // a loop over the cells of a field, to be differentiated
inline constexpr uint8_t kDeeper = 16;  // an access of a loop inside the outermost, in a derivative
// Of a sparse tree's cells or of words of quantised numbers: no gradient goes through it, and done
// once more it changes nothing.
inline constexpr uint8_t kUpkeep = 64;
inline constexpr uint8_t kForGradient =
    128;           // a call, and what comes of it: upkeep for the way back
struct FlagName {  // as IR text has it
    uint8_t flag;
    const char* name;
};
inline constexpr FlagName kFlagNames[] = {
    {kPrivateField, "private"}, {kNoFastMath, "nofastmath"},   {kNoWrap, "nowrap"},
    {kOrdered, "ordered"},      {kOverData, "data"},           {kStopsGradient, "stop"},
    {kUpkeep, "upkeep"},        {kForGradient, "for_gradient"}};

struct Region {
    Inst *first = nullptr, *last = nullptr;
    Inst* owner = nullptr;  // null: a function's body
    Function* function = nullptr;
    struct Params {  // in the function's arena
        Value** data = nullptr;
        uint32_t count = 0, capacity = 0;
        Value** begin() const { return data; }
        Value** end() const { return data + count; }
        uint32_t size() const { return count; }
        Value* operator[](uint32_t k) const { return data[k]; }
    } params;

    // Walks while the current instruction may be removed or moved.
    struct Iterator {
        Inst *at, *next;
        Inst& operator*() const { return *at; }
        Iterator& operator++() {
            at = next;
            next = at ? at->next : nullptr;
            return *this;
        }
        bool operator!=(const Iterator& o) const { return at != o.at; }
    };
    Iterator begin() const { return {first, first ? first->next : nullptr}; }
    Iterator end() const { return {nullptr, nullptr}; }
    Inst* terminator() const { return last; }
};

inline Value* resolve(Value* v) {
    while (v->replaced) v = v->replaced;
    return v;
}
// The place at the bottom of a chain of components and displacements: a slot, or an element or the
// base of a field or array.
inline Value* root_of_place(Value* place) {
    place = resolve(place);
    while (place->def && (place->def->op == Op::comp_place || place->def->op == Op::displace))
        place = resolve(place->def->operands[0]);
    return place;
}
inline bool is_element(Op op) {
    return info(op).root == Root::field || info(op).root == Root::array;
}
inline void replace(Value* from, Value* to) {
    if (resolve(from) != resolve(to)) resolve(from)->replaced = resolve(to);
}

struct Function {
    support::Arena arena;
    std::string name;
    Region* body = nullptr;  // its params are the function's parameters
    std::vector<Type> result_types;
    bool returns_early = false;
    bool never_inline = false;
    uint64_t content_hash = 0;  // 0: not computed
    uint32_t id = 0;            // scratch: number in a module

    explicit Function(std::string name);
    Region* new_region(Inst* owner);
    Value* add_param(Region& region, Type type);
    Inst* new_inst(Op op, int operands, int results, int regions);
    const Loc* new_loc(const Loc& loc);
    std::string_view new_string(std::string_view text);
};

// A parameter of the kernel after flattening; parameter k is functions[0]->body->params[k].
// Values are stored at `offset` in the argument block with natural alignment, tensors packed
// row-major, u1 as one byte. Arrays are stored as ArrayDesc (8-byte aligned).
struct Param {
    Type type;  // value or array
    uint32_t offset = 0;
    bool needs_grad = false;
    std::string name;
    uint32_t number = 0;  // in messages
};
struct ArrayDesc {  // followed by int32_t shape[ndim], canonical order
    void* data;
    void* grad;
};
inline constexpr uint32_t array_desc_bytes(int ndim) { return 16 + 4 * ((ndim + 1) & ~1); }

struct Module {
    std::string name;                  // of the kernel, for messages and dumps
    std::vector<Function*> functions;  // [0] is the kernel; callees before or after, any order
    std::vector<const Field*> fields;  // binding k is the base address of fields[k]
    std::vector<Param> params;
    std::vector<Type> results;  // set_result k writes results[k] at result_offset(k)
    ModuleOptions options;
    bool arrays_may_overlap = false;  // array arguments of a launch share memory

    std::vector<std::unique_ptr<Function>> owned;  // functions that die with the module
    std::vector<std::unique_ptr<Field>> owned_fields;
    std::vector<std::unique_ptr<LoopConfig>> owned_loops;
    std::vector<std::unique_ptr<Format>> owned_formats;

    Function& kernel() const { return *functions[0]; }
    uint32_t result_offset(int k) const;  // each result is 8-byte aligned
    uint32_t result_bytes() const;
};

// Walks every instruction of a region, parents before children / children before parents.
template <class F>
void walk(Region& r, F&& f) {
    for (Inst& i : r) {
        for (Region* c : i.region_list()) (void)c;
        f(i);
        for (Region* c : i.region_list()) walk(*c, f);
    }
}
template <class F>
void walk_post(Region& r, F&& f) {
    for (Inst& i : r) {
        for (Region* c : i.region_list()) walk_post(*c, f);
        f(i);
    }
}

// --- building -----------------------------------------------------------------------------
// Appends to the end of a region (or before an instruction). Results of rule-typed ops are typed
// by the op table. Does no simplification beyond nothing: passes do that.
struct Builder {
    Function* function = nullptr;
    Region* region = nullptr;
    Inst* before = nullptr;  // null: append
    const Loc* loc = nullptr;

    Inst* emit(Op op, std::span<Value* const> operands, std::span<const Type> result_types,
               int regions = 0);
    Value* op(Op op, std::initializer_list<Value*> operands, uint64_t imm = 0,
              const void* ref = nullptr);  // rule-typed
    Value* typed(Op op, Type type, std::span<Value* const> operands, uint64_t imm = 0,
                 const void* ref = nullptr);  // rule `given`
    Value* constant(Type scalar, uint64_t bits);
    Value* int_const(Prim p, int64_t v);
    Value* float_const(Prim p, double v);
    Value* cast(Value* v, Prim p);  // no-op if it already has that primitive
    Value* splat(Value* scalar, Type tensor);
    Value* slot(Type value_type);
    Value* load(Value* place);
    void store(Value* place, Value* value);
    void end(Op terminator, std::span<Value* const> values = {});
};

Type rule_type(Op op, std::span<Value* const> operands);  // by the op table; none if it is `given`

bool is_constant(const Value* v);  // defined by Op::constant
uint64_t constant_bits(const Value* v);
uint64_t bits_of_double(Prim p, double v);  // rounds to p (f16 too), or converts to the integer
double double_of_bits(Prim p, uint64_t bits);
int64_t int_of_bits(Prim p, uint64_t bits);  // sign- or zero-extended
int64_t constant_int(const Value* v);

// --- whole-module services (each in its own .cpp) -------------------------------------------
void complete(Module& m);  // appends functions reached by calls and fields they use, if missing
void lay_out_params(Module& m);  // Param::offset, in order, naturally aligned

// printer.cpp
std::string quote(std::string_view text);  // as a literal of IR text
std::string constant_text(Type t, uint64_t bits);
std::string print(const Module& m);
std::string print(const Function& f);
std::unique_ptr<Module> parse(
    std::string_view text);    // parser.cpp; throws support::Error with line:col
void verify(const Module& m);  // verifier.cpp; throws support::Error

// serialise.cpp. Deterministic: equal modules give equal bytes. Functions reached by calls are
// included even if Module::functions lacks them; fields must all be in Module::fields (they number
// the bindings). Uses Value::id and Function::id of every function as scratch.
struct SerialiseOptions {
    bool locations = true;
    bool names = true;  // of the kernel, functions, fields and parameters
};
constexpr int kMostNestedRegions = 2000;  // that can be read back
std::vector<uint8_t> serialise(const Module& m, SerialiseOptions options = {});
std::unique_ptr<Module> deserialise(std::span<const uint8_t> bytes);  // bad bytes: support::Error

// Hash of everything that decides the code: names and locations count only if checks can print
// them.
struct Hash128 {
    uint64_t low = 0, high = 0;
    bool operator==(const Hash128&) const = default;
};
Hash128 content_hash(const Module& m);

// Copies a region's parameters and instructions into a new region of `to` (owner null). Operands
// from outside map through `params`, else stay. With `caller` every location gets that call site
// appended to its chain. Uses Value::id as scratch. clone.cpp
Region* clone_into(const Region& from, Function& to,
                   std::vector<std::pair<const Value*, Value*>> params,
                   const Loc* caller = nullptr);
}  // namespace qd::ir
