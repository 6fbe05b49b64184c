// Regions that are left at their end alone.
//
// A break, continue or early return sets variables that say so, and what would have followed it, to
// the end of each region that it leaves, stands in branches that ask them. A loop that something
// leaves becomes
//   loop { ...; if done { break } ; continue }
// and a function returns at its end. For gradients, whose way back begins where the way there
// ended.
//
// Needs: variables in slots, loops that carry nothing: as the front end makes functions.
// Keeps: the order of everything.
// Cost:  O(instructions); nests a region deeper for each jump of a region.

#include <algorithm>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

// Whether something in there jumps, but the end of a loop's body to its begin.
bool jumps(const Region& r, Op op) {
    for (const Inst* i = r.first; i; i = i->next) {
        if (i->op == op && !(op == Op::continue_ && i->parent->owner->is_loop())) return true;
        if (i->is_loop() && op != Op::return_) continue;
        for (const Region* c : i->region_list())
            if (jumps(*c, op)) return true;
    }
    return false;
}

struct Straightener {
    Function& f;
    Value* returned = nullptr;  // whether it did; null: it has no early return
    std::vector<Value*> results;

    // What the iteration of the innermost loop is to do: skip what is left of it, be the last.
    struct Flags {
        Value *skip = nullptr, *done = nullptr;
    } now;

    static Value* flag(Builder& b) {
        Value* place = b.slot(type::kU1);
        set(b, place, false);
        return place;
    }
    static void set(Builder& b, Value* place, bool to) {
        b.store(place, b.int_const(Prim::u1, to));
    }

    // The rest of the region, from `i` on, happens only if nothing was left. Its last instruction
    // belongs to it if that is a jump of its own.
    Region& guard(Inst& i, Value* unless) {
        Region& r = *i.parent;
        Builder b = before(i);
        Value* on[] = {b.op(Op::eq, {b.load(unless), b.int_const(Prim::u1, 0)})};
        Inst* test = b.emit(Op::if_, on, {}, 2);
        Region& rest = *test->regions[0];
        Inst* end = r.last;
        const bool takes_end = is_jump(*end);
        for (Inst* at = &i; at && (at != end || takes_end);) {
            Inst* next = at->next;
            at->remove();
            at->append_to(rest);
            at = next;
        }
        if (!takes_end) Builder{&f, &rest, nullptr, i.loc}.end(Op::yield);
        Builder{&f, test->regions[1], nullptr, i.loc}.end(Op::yield);
        if (takes_end && r.owner) Builder{&f, &r, nullptr, i.loc}.end(ending(r));
        return rest;
    }
    static Op ending(const Region& r) {
        return r.owner && r.owner->is_loop() ? Op::continue_ : Op::yield;
    }
    bool is_jump(const Inst& end) const {
        return end.op == Op::break_ || (end.op == Op::return_ && returned) ||
               (end.op == Op::continue_ && !end.parent->owner->is_loop());
    }

    // Sets what the jump means instead of it.
    void jump(Inst& end) {
        Builder b = before(end);
        if (end.op == Op::return_) {
            for (int k = 0; k < end.operand_count; ++k)
                b.store(results[static_cast<size_t>(k)], end.operand(k));
            set(b, returned, true);
        }
        if (now.skip) set(b, now.skip, true);
        if (now.done && end.op != Op::continue_) set(b, now.done, true);
        Region& r = *end.parent;
        end.remove();
        if (!r.owner) return;  // the function's end is made last
        Builder last{&f, &r, nullptr, end.loc};
        std::vector<Value*> none;  // results of the branch, that nobody will ask for
        if (r.owner->op == Op::if_)
            for (const Value& v : r.owner->result_values()) none.push_back(zero(last, v.type));
        last.end(ending(r), none);
    }

    // Returns whether what follows the region may have to be skipped.
    bool region(Region& r) {
        bool leaves = false;
        for (Inst* i = r.first; i; i = i->next) {
            if (i->effect() == Effect::terminator) {
                if (!is_jump(*i)) break;
                jump(*i);
                return true;
            }
            bool left = false;
            if (i->is_loop()) {
                left = loop(i);
            } else {
                for (Region* c : i->region_list()) left |= region(*c);
            }
            if (!left) continue;
            leaves = true;
            Inst* next = i->next;
            if (next->effect() == Effect::terminator && !is_jump(*next)) break;
            region(guard(*next, now.skip ? now.skip : returned));
            break;
        }
        return leaves;
    }

    // Returns whether the function may have returned inside; `i` becomes what stands there.
    bool loop(Inst*& i) {
        const bool returns = returned && jumps(i->body(), Op::return_);
        const bool ends = returns || i->op == Op::loop || jumps(i->body(), Op::break_);
        if (i->op == Op::for_ && ends) i = counted(*i);
        Region& body = i->body();
        if (!ends && !jumps(body, Op::continue_)) {
            region_of_loop(body, {});
            return false;
        }
        Builder b = before(*body.first);
        Flags own{.skip = flag(b), .done = ends ? flag(b) : nullptr};
        region_of_loop(body, own);
        if (!ends) return false;
        Builder end = before(*body.last);
        Value* on[] = {end.load(own.done)};
        Inst* test = end.emit(Op::if_, on, {}, 2);
        Builder{&f, test->regions[0], nullptr, i->loc}.end(Op::break_);
        Builder{&f, test->regions[1], nullptr, i->loc}.end(Op::yield);
        if (!returns) return false;
        if (now.skip) {
            Builder behind{&f, i->parent, i->next, i->loc};
            for (Value* place : {now.skip, now.done})
                behind.store(place,
                             behind.op(Op::bit_or, {behind.load(place), behind.load(returned)}));
            i = behind.before->prev;
        }
        return true;
    }
    void region_of_loop(Region& body, Flags flags) {
        std::swap(now, flags);
        region(body);
        std::swap(now, flags);
    }

    // A loop over a range that something leaves, as one that counts.
    Inst* counted(Inst& i) {
        QD_CHECK(i.operand_count == 2 * i.imm, "a loop carries values already");
        Builder b = before(i);
        const Extents extents = extents_of(b, i, i.operand_slots());
        Value* position = b.slot(type::kI64);
        b.store(position, b.int_const(Prim::i64, 0));
        Inst* out = b.emit(Op::loop, {}, {}, 1);
        Region& body = i.body();
        out->regions[0] = &body;
        body.owner = out;
        Builder in = before(*body.first);
        Value* at = in.load(position);
        Value* on[] = {in.op(Op::lt, {at, extents.count})};
        Inst* test = in.emit(Op::if_, on, {}, 2);
        Builder{&f, test->regions[0], nullptr, i.loc}.end(Op::yield);
        Builder{&f, test->regions[1], nullptr, i.loc}.end(Op::break_);
        in.store(position, in.op(Op::add, {at, in.int_const(Prim::i64, 1)}));
        const std::vector<Value*> indices = indices_at(in, at, extents);
        for (uint32_t d = 0; d < indices.size(); ++d)
            replace(body.params[d], in.cast(indices[d], body.params[d]->type.prim));
        body.params.count = 0;
        i.remove();
        return out;
    }

    void run() {
        bool early = false;
        for (Inst& i : *f.body)
            for (Region* c : i.region_list()) early |= jumps(*c, Op::return_);
        if (early) {
            Builder b = before(*f.body->first);
            returned = flag(b);
            for (const Type t : f.result_types) results.push_back(b.slot(t));
        }
        region(*f.body);
        f.returns_early = false;
        if (!early) return;
        Builder b{&f, f.body, nullptr, f.body->first->loc};
        std::vector<Value*> values;
        for (Value* place : results) values.push_back(b.load(place));
        b.end(Op::return_, values);
    }
};

}  // namespace

void single_exit(Function& f) { Straightener{.f = f, .returned = {}, .results = {}}.run(); }

}  // namespace qd::pass
