// What compile-time objects are, where they came from, and which facts about them the code relies
// on: provenance, units and guards. Private to the front end, but for walking paths again.
//
// A Unit is one separately lowered function: the kernel or a specialisation of a func. It belongs
// to one kernel's lowering and is touched under the compile lock.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/frontend.h"
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
    bool is_kept_method = false;   // a method of another object than the parent's
    bool may_change = false;       // to read it may: each reading is one of the source
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
// Where Python finds o.name, without asking o: guards call it again.
enum class Origin : uint8_t {
    elsewhere,    // its class computes it
    own,          // among the object's own members
    slot,         // likewise, where its class has a place for it
    class_value,  // what the class has for all its objects
    method,       // a function of the class: bound to the object
    computed,     // a property and the like
};
Origin origin_of(PyObject* o, PyObject* name);
PyObject* member_origin(PyObject* module, PyObject* args);  // member_origin(o, name) -> its number
// operators_run_code(o): whether operators of Python may run code of the user for it (hooks.h).
PyObject* operators_run_code(PyObject* module, PyObject* o);
// looks_plainly(callee, operands): see plain_code.h.
PyObject* looks_plainly_face(PyObject* module, PyObject* args);
// function_text(function): its text in its file.
PyObject* function_text(PyObject* module, PyObject* function);
// Raises if Python is about to see values that only launches know; a null place has none.
void refuse_at_launch(const Prov* prov);

// A value while lowering, with its origin if it is a compile-time object.
struct Val {
    Ref obj;
    Prov* prov = nullptr;
    PyObject* get() const { return obj.get(); }
};

// Arguments with their origins.
struct TracedArgs : CallArgs {
    std::vector<Prov*> provs, keyword_provs;
};

struct Fact {
    Prov* prov;
    FactKind kind;
    Ref value;
    Ref field = {};   // FactKind::field: the very one, which code of this process has in it
    int before = -1;  // another fact about the same place
};

// --- units --------------------------------------------------------------------------------------
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
    // Parameters made while the body was walked: the function's last ones, in this order (funcs),
    // or of the module (kernel).
    struct Lazy {
        Prov* prov;
        ir::Value* value;
    };
    std::vector<Lazy> lazy;
    std::vector<Ref> fields;                            // FieldObjects used, once each
    std::unordered_map<PyObject*, Prov*> field_places;  // where each was found
    std::unordered_map<PyObject*, bool> field_seen;
    std::unordered_map<PyObject*, Prov*> mesh_places;  // of meshes' elements and relations
    std::vector<Notice> notices;                       // given while it was lowered
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
                         bool needs_grad = false, ParamSource source = {});
};

Path path_of(const Prov* prov, Unit& kernel_unit);
// Captured values in kernels that promise to depend on their arguments only (purity.cpp): `base` is
// the object that had the attribute, null for a name. note_ marks the place, both report it.
void note_capture(Lowering& l, PyObject* function, PyObject* base, PyObject* o, PyObject* name,
                  Prov* prov);
void report_capture(KernelState& k, Prov* prov, Impurity impurity, PyObject* value);
void guard_value(Unit& unit, PyObject* o, Prov* prov);  // records what the code may depend on
void guard_class(Unit& unit, PyObject* o, Prov* prov);  // its class alone
bool fact_holds(const Fact& f, PyObject* now);
// The same for code of the user: from a guard, which may be answered already, from the body, or for
// a func's second call, which asks as often as its body would.
// Whether to call it may change anything that outlives the call, as far as the text of what it runs
// tells. Facts say what somebody answered, not how often nor when they were asked: who asks what
// may change something makes the kernel foreign. `keywords` as for call_with.
bool may_change(PyObject* callee, std::span<const Ref> operands, PyObject* keywords);
bool member_may_change(PyObject* o, PyObject* name);  // to read o.name
bool item_may_change(PyObject* o, PyObject* index);   // to read o[index]
// Whether the caller is code of the user that a guard asks.
bool answers_guard();
enum class Asker : uint8_t { guard, body, again };
PyObject* walk(const Prov* prov, std::span<PyObject* const> args, Ref& keep,
               Asker asker = Asker::guard);  // null: gone
// Calls; the last operands go by `keywords`, a tuple or null. Null with an exception set.
Ref call_with(PyObject* callee, std::span<const Ref> operands, PyObject* keywords);
// Null `run`: the callee is called.
Ref ask(PyObject* callee, std::span<const Ref> operands, PyObject* keywords, Asker asker,
        const std::function<Ref()>& run = nullptr);
Ref ask_member(PyObject* o, PyObject* name, Asker asker);
Ref ask_item(PyObject* o, PyObject* index, Asker asker);
// Of what a wrapper holds: an attribute, or else an item.
Ref ask_part(PyObject* base, PyObject* key, bool attribute, Asker asker);
void take_answers(bool serve);  // what was asked again serves the call that asked, or its body
int function_index(Unit& kernel_unit, PyObject* function);
void note_written_arrays(LoweredKernel& kernel);  // ParamSource::written (written_arrays.cpp)
void note_races(Unit& kernel, const ir::Module& module);  // in debug mode (races.cpp)

}  // namespace qd::frontend
