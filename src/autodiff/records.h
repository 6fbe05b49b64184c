// What the way back needs of the way there, of one iteration of a parallel loop or of a kernel
// without such loops:
//   - is at hand, if it was computed outside of branches and loops or is an index of a loop;
//   - or is computed again: constants, loads of what this kernel does not overwrite, cheap
//     arithmetic on such;
//   - or is kept: in a variable if it stems from a branch, on the thread's tape if from a loop.
//
// The record of a loop's iteration lies behind those of the loops inside it, so the way back finds
// it at the tape's end. Its branches have records of their own, likewise; or, if nothing in the
// iteration may leave something else there, write to the iteration's. A loop whose records take
// more than half of the room drops them and keeps what it carries instead, which is enough to
// record that segment again when its turn comes:
//   [state 0][state of the second segment] ... [state of the last][records of the last]
// A function that has a way there and a way back of its own (calls.h) is like a loop's iteration:
// of its instructions nothing is at hand, and its record lies on the tape too. Private to reverse
// mode.

#pragma once

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autodiff/calls.h"
#include "autodiff/parts.h"

namespace qd::autodiff {

// What one sweep is about.
struct Iteration {
    Module& m;
    const Storage& storage;
    const Request& request;
    const Activity& activity;
    const Ways& ways;                           // of the functions that it calls
    const GradientUses& uses;                   // of all functions, as they were given
    const std::vector<uint64_t>& written;       // classes of memory that the kernel still writes to
    const size_t task;                          // of those that go back, for messages
    Region& root;                               // the way there
    Region* back = nullptr;                     // the way back; null: behind the way there
    Value *top = nullptr, *top_back = nullptr;  // of the tape, where they begin; null: it is empty
};

// The way back stands at the end of the root.
void sweep(const Iteration& of);
// Of a function: its results and adjoints of its parameters, where it is to return. `seeds`: those
// of the results, or null.
struct FunctionEnds {
    std::vector<Value*> results, adjoints;
};
FunctionEnds sweep_function(const Iteration& of, std::span<Value* const> seeds,
                            const std::vector<bool>& gives);

class Records {
  public:
    explicit Records(const Iteration& of);

    // The counterpart of a region: what is found again goes in front of `entry`.
    void counterpart(const Region& r, Region& back, Inst& entry) {
        frames_[&r] = frame(&r);
        backs_[&r] = {&entry, &back};
    }
    Builder entry(const Region* r) const;

    static Region* home(const Value* v) { return v->def ? v->def->parent : v->owner; }
    bool is_outside(const Value* v) const { return frame(home(v)) == nullptr; }
    bool is_at_hand(const Value* v) const {
        return is_outside(v) || (!of_.back && home(v) == &of_.root);
    }
    Value* get(Value* v);  // on the way back, where its region begins
    void set(const Value* v, Value* back) { again_[v] = back; }

    // A serial loop. `head` builds the begin of its counterpart's body.
    void begin_loop(Inst& i, Builder& head);
    // How many iterations a loop had whose bounds do not say; before it begins.
    Value* count(Inst& i);
    bool keeps_nothing(const Inst& i) const {
        const auto at = loops_.find(&i.body());
        return at == loops_.end() || (at->second.kept.empty() && !at->second.pushes);
    }
    struct Counterpart {
        Inst* back;
        Inst* last;  // the position that it begins with: its operand 0, less 1
        const Extents* extents;
    };
    void end_loop(Inst& i, const Counterpart& c);
    // A branch, likewise: `head` as for loops, the end behind all that its counterpart does.
    void begin_branch(Region& r, Builder& head);
    void end_branch(Region& r);
    // What stands in the region leaves something on the tape.
    void note_push(const Region* r);
    // A function with a way back of its own: the record of all of it, and where the tape ends then.
    Value* end_function();
    // Places of i64: where the tape ends, on either way.
    Value* top();
    Value* top_back();

  private:
    struct Back {
        Inst* entry = nullptr;
        Region* region = nullptr;
    };
    struct Kept {
        Value* value;
        uint64_t offset;  // in the record
    };
    struct Loop {                    // its iterations; also a branch that has a record of its own
        Value* base = nullptr;       // going back: where the record lies
        Inst* bytes_back = nullptr;  // constants, set when the record is complete
        std::vector<Kept> kept;
        uint64_t bytes = 0;
        bool pushes = false;     // something, or what is in it
        bool plain = false;      // nothing in it may
        Value* turns = nullptr;  // place of i64: iterations so far
    };
    struct Price {
        int work = 0;
        int to_keep = 0;  // values
        std::unordered_set<const Value*> seen = {};
    };
    struct State;

    const Region* frame(const Region* r) const;
    void price(Value* v, Price& p) const;
    bool can_compute(const Inst* d) const;
    bool worth_computing(Value* v) const;
    Value* compute(Value* v);
    Value* fetch(Value* v);
    Builder behind(Value* v) const;

    void begin_record(Loop& l, Builder& head);
    Value* turns(Inst& i);
    void record(Loop& l, Inst& end);
    bool can_repeat(Inst& i) const;
    void divide(Inst& i, Loop& l, const Counterpart& c);
    void begin_segments(Inst& i, Loop& l, const State& s);
    void record_again(Inst& i, const Counterpart& c, const State& s, Value* begin, Value* end,
                      Builder& b);
    void drop_effects(Region& r) const;
    void require_room(Builder& b, Value* behind);
    void limit_records(Builder& b);
    void check(Builder& b, Value* holds, std::initializer_list<Format::Piece> text,
               std::initializer_list<Value*> values);

    const Iteration& of_;
    Function &f_, &back_;  // with either way

    std::unordered_map<const Region*, const Region*> frames_;  // of regions with counterparts
    std::unordered_map<const Region*, Back> backs_;
    std::unordered_map<const Region*, Loop> loops_;  // by body; branches by region
    std::unordered_map<const Value*, Value*> again_;
    std::unordered_set<const Value*> kept_;
    std::unordered_set<const void*> own_checks_;
    Value *top_ = nullptr, *top_back_ = nullptr;
};

}  // namespace qd::autodiff
