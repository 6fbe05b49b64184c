// What both modes share: which storage has gradients, which values carry them, and formulas that
// build IR. Private to autodiff.

#pragma once

#include <initializer_list>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autodiff/autodiff.h"
#include "ir/edit.h"
#include "ir/partials.h"

namespace qd::autodiff {

using namespace ir;

inline constexpr uint64_t kAnyMemory = ~uint64_t{0};
bool may_be_among(const std::vector<uint64_t>& classes, uint64_t one);

struct Refused {  // thrown by either mode
    pass::Refusal why;
    Function* in = nullptr;  // the function that it stands in, if that is known
};
[[noreturn]] void refuse(std::string what, const Inst& at);

// Storage and its companions.
class Storage {
  public:
    Storage(const Module& m, const Request& request);
    // Whether what lies there has gradients (tangents): a place of a field, an array or a variable.
    bool has(const Value* place) const;
    // Storage that may be the same has equal numbers; multiples of 4: it is no field and no array.
    uint64_t memory_class(const Value* place) const;
    uint64_t gradient_class(const Value* place) const;  // kAnyMemory: arrays that may overlap

    // What array parameters of callees are.
    void find_arrays(std::span<Function* const> callees_first);
    bool knows(const Value* array) const { return arrays_.root(array).only; }
    void alias(const Value* copy, const Value* array);  // of a copied function
    // Makes companions of variables, where there are none yet; whether there was such a one.
    bool add_variables(std::span<Inst* const> slots);
    // The companion of the place, whose indices are what `at` says of the place's.
    template <class At>
    Value* companion(Builder& b, Value* place, At at) const;

  private:
    const Field* companion_of(const Field* f) const;
    const Module& m_;
    std::unordered_map<const Field*, const Field*> fields_;
    std::unordered_map<const Inst*, Value*> variables_;
    pass::ArrayClasses arrays_;
};

template <class At>
Value* Storage::companion(Builder& b, Value* place, At at) const {
    const Inst& d = *resolve(place)->def;
    if (d.op == Op::slot) return variables_.at(&d);
    std::vector<Value*> operands;
    if (d.op == Op::comp_place) {
        operands = {companion(b, d.operand(0), at), at(d.operand(1))};
        return b.typed(Op::comp_place, d.results[0].type, operands);
    }
    for (int k = 0; k < d.operand_count; ++k) operands.push_back(at(d.operand(k)));
    if (d.op == Op::field_place) {
        const Field* of = companion_of(d.field());
        return b.typed(Op::field_place, of->elem.place(), operands, 0, of);
    }
    ArrayAccess access = ArrayAccess::unpack(d.imm);
    access.grad = true;
    return b.typed(Op::array_place, d.results[0].type, operands, access.pack());
}

// Which values carry derivatives. `varied`: they follow small changes of storage with gradients.
// `useful`: such storage follows theirs. Value::id numbers all values of the kernel meanwhile.
class Activity {
  public:
    Activity(std::span<Function* const> callees_first, const Storage& storage);
    bool varied(const Value* v) const { return v->id < varied_.size() && varied_[v->id]; }
    bool active(const Value* v) const {
        return v->id < varied_.size() && varied_[v->id] && useful_[v->id];
    }
    void check_smooth() const;  // refuses what has no derivative

  private:
    bool flow(Region& r);
    bool flow(Inst& i);
    bool set(std::vector<bool>& of, const Value* v, bool yes);
    bool back(Region& r);
    bool back(Inst& i);

    const std::span<Function* const> functions_;
    const Storage& storage_;
    std::vector<bool> varied_, useful_;
};

// Whether operand k of an op may carry a derivative to its result.
bool carries(const Inst& i, int k);
// The domain of ir/partials.h that builds IR.
struct Formulas : ByName<Formulas, Value*> {
    Builder& b;
    explicit Formulas(Builder& builder) : b(builder) {}

    Value* emit(Op op, std::initializer_list<Value*> of) { return b.op(op, of); }
    Value* number(Value* like, double v) {
        const Prim p = like->type.prim;
        return b.splat(b.constant(Type::scalar(p), bits_of_double(p, v)), like->type);
    }
    Value* as(Value* v, Value* like) { return b.cast(v, like->type.prim); }
};

bool is_float(Type t);  // a value of floats
// Reductions by products, minima and maxima, as chains of element-wise steps: those have formulas.
void expand_reductions(Function& f);

// They refuse. On the kernel as the front end made it; straightened.
void check_mixed(const Module& m);
void check_statements(const Module& m, const Request& request);
void check_gradients_of_arrays(const Module& m);
void enclose_serial_loops(Module& m);
void check_inner_loops(Region& kernel);
void check_recurrences(Module& m, const Storage& storage);
void forget_depths(Module& m);  // takes off kDeeper

// Clones leave numbers of their own in values; this gives them back.
struct Numbers {
    std::vector<std::pair<Value*, uint32_t>> of;
    explicit Numbers(Region& r) {
        add(r);
        walk(r, [&](Inst& i) {
            for (Value& v : i.result_values()) of.emplace_back(&v, v.id);
            for (Region* c : i.region_list()) add(*c);
        });
    }
    void add(Region& r) {
        for (Value* p : r.params) of.emplace_back(p, p->id);
    }
    void note(Value* v) { of.emplace_back(v, v->id); }
    ~Numbers() {
        for (const auto& [v, id] : of) v->id = id;
    }
    Numbers(const Numbers&) = delete;
};

void reverse(Module& m, const Request& request);
// Takes out what is stored to storage with gradients, and activates them, or all other effects.
void drop_effects(Region& r, const Storage& storage, bool gradients);
bool is_effect(const Inst& i, const Storage& storage);  // one of the others

// What code, with what it calls, does to storage that has gradients, by memory class. Going back, a
// load adds to the gradient, a store takes it, an addition reads it.
struct GradientUse {
    std::unordered_set<uint64_t> loads, writes;
    bool stores = false;  // some write is no addition

    void add(const GradientUse& other);
    bool writes_to(uint64_t memory) const;
    // Whether iterations of a loop around it see each other's gradients.
    bool has_order() const;
};
using GradientUses = std::unordered_map<const Function*, GradientUse>;
GradientUse gradient_use(Region& r, const Storage& storage, const GradientUses& callees);

bool is_parallel_loop(const Inst& i);
// The values in there that something asks for, but checks, prints and what is computed for them;
// nor what is idle.
struct Idle {
    uint8_t flags = 0;                 // of instructions
    const Storage* effects = nullptr;  // those on storage without gradients
};
std::unordered_set<const Value*> used_values(Region& r, const Idle& idle = {});
uint32_t dimensions(const Inst& loop);  // indices among the parameters of its body
// The end of an iteration: its terminator, or in front of that the test whether there is another.
Inst& end_of_iteration(const Inst& loop);

void merge_loads(Region& root, const Storage& storage, const GradientUses& uses,
                 const std::vector<uint64_t>& writes);  // of reverse mode, as the next
void hoist_loads(Function& f, const Storage& storage, const GradientUses& uses,
                 const std::vector<uint64_t>& writes);  // of reverse mode; to these
void gather(Module& m);                                 // additions of reverse mode that meet
void forward(Module& m, const Request& request);
void validate(Module& m, const Request& request);

}  // namespace qd::autodiff
