// Kernels as native callables.
//
// A KernelObject holds the definition made by the decorator and its specialisations. A call tries
// the last specialisation first: compare what it depends on (types, identities, array features),
// pack the arguments into a block on the stack, launch. No Python code runs on that path. Anything
// else (keywords, a new specialisation, errors) is a separate cold function.
//
// Files: kernel.cpp (the type and the call), bound_kernel.cpp (methods), pack.cpp (arguments to
// block, block to results), bind.cpp (keywords and binding errors), build.cpp (find, lower,
// compile, bind a specialisation), code.cpp (code of a module), assemble.cpp (put it together).
//
// Touched under the GIL; the compile queue's thread may put better code into `slot`.

#pragma once

#include <Python.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "data/objects.h"
#include "frontend/specialise.h"
#include "launcher/compile_report.h"
#include "launcher/interpret.h"
#include "runtime/compile_queue.h"
#include "runtime/cpu/kernel.h"
#include "session/session.h"

namespace qd::launcher {

using namespace cpython;
using namespace data;
using namespace session;
using frontend::Path;
using frontend::ResultShape;
using session::session;
using type::Prim;
using type::Type;

// Whether a weak reference is to this object, which the caller holds: a dead one is to None.
inline bool refers_to(PyObject* weak, PyObject* object) {
    return reinterpret_cast<PyWeakReference*>(weak)->wr_object == object;
}

// What tells an argument or member from others: what a wrapper holds, the function of a method.
inline PyObject* identity_of(PyObject* o) {
    return PyMethod_Check(o) ? PyMethod_GET_FUNCTION(o) : data::unwrap(o);
}

// What a specialisation depends on besides array features: an argument (or member of one) that
// must be the same object, or an equal value.
struct IdentityCheck {
    int argument;
    std::vector<Ref> attributes;  // path below the argument
    PyObject*
        object;  // expected object, owned through `strong` or watched by `weak`; null: any array
    Ref strong, weak;
    bool by_value;          // numbers, strings, tuples, enums, objects with their own __eq__
    bool of_owner = false;  // of what a method is bound to, not of the value itself
    Py_hash_t hash = -1;    // by_value: what equal values must share; -1: numbers and strings
    bool rehash = false;    // a tuple of objects that hash by what may change in them
    bool no_array = false;  // without an object: anything but an array, or nothing at all
    Ref members = {};       // by_value, of a data-oriented object: what it held
};

// One flattened parameter: where it comes from and where it goes.
struct PackStep {
    enum class Kind : uint8_t { scalar, tensor, array, graph_state } kind;
    bool needs_grad = false;
    bool refuses_grad = false;  // it was made for an array without gradient, which matters
    bool written = false;       // an array whose elements the kernel stores to
    bool has_grad = false;      // the array that it was made for has a gradient
    // Arrays of others: whether no other array may be bound, whether one was bound last, and one
    // that other processes may see.
    enum Foreign : uint8_t { kOnlyForeign = 1, kLastForeign = 2, kLastShared = 4 };
    uint8_t foreign = 0;
    bool cacheable : 1 = false;    // reached through frozen dataclasses only, a Quadrants ndarray
    bool only_own : 1 = false;     // no array of others
    bool splits : 1 = false;       // the last axes of others' arrays are an element's
    bool asks_shared : 1 = false;  // the code's atomics depend on whether other processes see it
    uint16_t argument = 0;
    uint32_t offset = 0;
    uint32_t structs = 0;         // bit k: attribute k is asked of a struct value
    Type type;                    // scalar, tensor, or array (element and rank)
    uint64_t layout = 0;          // of an array
    std::vector<Ref> attributes;  // interned str: attribute, of a dict the item; other: item
    std::vector<Ref> classes;     // the objects that have these must be of; null: of any
    std::string name, kernel;     // for messages

    bool asks_struct(size_t k) const { return k < 32 && (structs >> k & 1); }
};

// A frozen dataclass argument whose arrays are in the cached block; watched, not kept alive.
struct CachedRoot {
    int argument;
    PyObject* object = nullptr;  // compared only while `weak` still refers to it
    Ref weak;
};

// Checkpoints of a graph kernel.
struct GraphFace {
    frontend::GraphTable table;
    std::vector<Ref> labels;    // of the checkpoints: int, member of an IntEnum, None
    bool named = false;         // there is a label: launches say where they stopped
    uint32_t state_offset = 0;  // of the launch's words in the block; 0: none
    int32_t state_words() const {
        return frontend::kGraphStateWords + static_cast<int32_t>(table.levels.size());
    }
};

struct ClassCheck {  // an argument must be of the very class it had
    int argument;
    Ref type;
};

struct Specialisation {
    std::vector<IdentityCheck> identities;
    std::vector<ClassCheck> classes;
    std::vector<PackStep> steps;
    std::vector<void*> bindings;  // base addresses, parallel to the module's fields
    std::vector<Ref> fields;      // keeps them alive
    std::vector<ResultShape> results;
    bool returns_tuple = false;
    bool asks_shared = false;  // some step does
    uint32_t args_bytes = 0, result_bytes = 0;
    std::shared_ptr<runtime::ImageSlot> slot;  // code; shared by kernels with equal IR
    std::unique_ptr<Interpreted> interpreted;  // instead of code
    uint32_t interpreted_array_use = 0;        // what its derivative was made for
    uint32_t generation = 0;                   // of the runtime whose storage it is bound to
    int64_t last_ns = 1 << 30;  // duration of the last launch: long ones release the GIL
    // Cached block for frozen dataclass arguments: valid while these roots are the same objects.
    std::vector<CachedRoot> cached_roots;
    std::vector<uint8_t> cached_block;
    std::vector<Ref> cached_arrays;  // weak references to those in it
    uint64_t cached_at = 0;          // storages_freed() when they were there
    // The last block whose arrays were compared (arrays_overlap), and the answer.
    std::vector<uint8_t> compared_block;
    bool overlapped = false;
    std::vector<Ref> lacking;          // of a derivative: companions that had no storage
    std::string name;                  // unique in a runtime, for profiles
    std::string code;                  // key of its code in the cache
    uint32_t number = 0;               // specialisations made before it
    std::unique_ptr<GraphFace> graph;  // of kernels with do-while loops or checkpoints
    bool has_native_graph = false;     // that was counted

    uint32_t array_use() const {  // of abi::ArrayUse what is about overlaps
        if (interpreted) return interpreted_array_use;
        return slot ? slot->current()->array_use & ~uint32_t{abi::kAtomicArrays} : 0;
    }
};

struct Parameter {  // read from the definition once per runtime
    enum class Kind : uint8_t {
        integer,
        real,
        tensor,
        array,
        template_,
        any_tensor,
        dataclass,
        structure,
        buffer_view,
        other
    } kind;
    Prim prim = Prim::none;
    bool optional = false;
    Ref annotation, name;
};

// What calls use that began before the runtime was reset and are not over.
struct Retired {
    std::unique_ptr<std::vector<Parameter>> parameters;
    std::unique_ptr<std::vector<std::unique_ptr<Specialisation>>> specialisations;
};

struct KernelObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject* dict;
    PyObject* weakrefs;
    PyObject* definition;
    PyObject* reverse;       // its reverse mode, once asked for; or null
    uint32_t generation;     // of `parameters` and `specialisations`
    uint32_t active;         // calls in progress: they use both, so neither is cleared
    uint32_t active_forks;   // Session::forks when they were counted: a parent's are not here
    uint64_t launches;       // calls so far
    uint64_t refused;        // the last of them for which no specialisation could be made
    uint8_t derivative;      // frontend::LoweredKernel::derivative
    bool is_graph;           // graph=True, and no derivative
    std::string* signature;  // the annotations as text: part of the cache key
    std::vector<Parameter>* parameters;
    std::vector<std::unique_ptr<Specialisation>>* specialisations;  // most recently used first
    std::vector<Retired>* retired;                                  // until no call is in progress
};

bool add_kernel(PyObject* module);  // the callable that users launch

// pack.cpp ------------------------------------------------------------------------------------
enum class Match : uint8_t { yes, no, error };
// Whether a specialisation fits these arguments; if so the block is filled. `error`: a Python
// exception is set (for instance a float given for an integer parameter).
// What a launch works on and the caller's arguments may let go of meanwhile: arrays of others that
// were found below arguments, and what a property made.
class Kept {
  public:
    Kept() = default;
    ~Kept() {
        for (size_t n = 0; n < count_; ++n) Py_DECREF(few_[n]);
        for (PyObject* o : more_) Py_DECREF(o);
    }
    Kept(const Kept&) = delete;
    void add(PyObject* owned) {
        if (count_ < 4)
            few_[count_++] = owned;
        else
            more_.push_back(owned);
    }

  private:
    PyObject* few_[4];
    size_t count_ = 0;
    std::vector<PyObject*> more_;
};
// To be kept while the block is used.
Match match_and_pack(Specialisation& s, const std::vector<Parameter>& parameters,
                     PyObject* const* args, uint8_t* block, Kept& kept);
// Whether array arguments share memory: with each other, if `use` says that code relies on that
// they do not (abi::ArrayUse), or with a field.
bool arrays_overlap(const Specialisation& s, const uint8_t* block, uint32_t use);
PyObject* build_results(const Specialisation& s, const uint8_t* results);
// Follows a path below an argument; new reference, null with an exception set.
// What PackStep::attributes and IdentityCheck::attributes hold of a step that is no call: a str
// names an attribute, all else an item, whose text is of a class of its own.
Ref key_of(const frontend::Step& step);
PyObject* follow_step(PyObject* at, PyObject* key);
PyObject* follow(PyObject* root, const std::vector<Ref>& attributes);

// bind.cpp ------------------------------------------------------------------------------------
// Arguments in parameter order from positional and keyword ones; false with an exception set.
bool bind_arguments(KernelObject& k, PyObject* const* args, Py_ssize_t count, PyObject* names,
                    std::vector<PyObject*>& bound, uint64_t& stream);
bool read_parameters(KernelObject& k, std::vector<Parameter>& out);
std::string kernel_name(const KernelObject& k);

// bound_kernel.cpp ----------------------------------------------------------------------------
// The kernel as a method of `instance`; itself without one.
PyObject* bind_kernel(PyObject* kernel, PyObject* instance, PyObject* owner);
bool ready_bound_kernel();

// graph.cpp -----------------------------------------------------------------------------------
// Reads the table of a graph kernel; false with an exception set.
bool make_graph_face(Specialisation& s, PyObject* definition, const frontend::GraphTable& table);
// Before and after a launch whose block is filled: where to begin, and what to return.
bool begin_graph(const KernelObject& k, const Specialisation& s, uint8_t* block);
PyObject* graph_status(const GraphFace& graph, const uint8_t* block);
void forget_native_graphs();     // of a runtime that ends; native_graphs.cpp
extern long yield_of_last_call;  // the checkpoint that ended it, counted in the source; -1: none
extern PyMethodDef graph_functions[];
Ref graph_tables_of(const Specialisation* s);  // of a graph; null: an exception is set
PyObject* graph_tables(PyObject* kernel, void*);

// kernel_face.cpp -----------------------------------------------------------------------------
// For `kernel._primal`: a list of dictionaries, most recently used first.
Ref describe(const KernelObject& k, const Specialisation& s);
PyObject* describe_specialisations(PyObject* kernel, void*);
// Whether it is declared fastcache=True and entries are wanted.
bool has_entries(KernelObject& k);
// With qd.init(print_non_pure=True) names a kernel that is not declared fastcache=True. False: an
// exception is set.
bool show_non_pure(KernelObject& k);
// Tells the log, and the definition for its observations, where the code of a new specialisation
// came from.
bool tell(KernelObject& k, std::span<PyObject* const> args, const Specialisation& made,
          std::span<const frontend::SourceFunction> source, Making::From from, bool cacheable);

// code.cpp ------------------------------------------------------------------------------------
// Asks for the optimised tier of all code that is in use.
void optimise_all();
void forget_code();  // of the session that ends

// build.cpp -----------------------------------------------------------------------------------
// A specialisation for these arguments, from the cache or compiled; null with an exception set, or
// with `others`: while this thread waited, another made some, which may fit.
std::unique_ptr<Specialisation> build_specialisation(KernelObject& k, PyObject* const* args,
                                                     size_t count, bool* others = nullptr);

}  // namespace qd::launcher
