// See records.h.

#include "autodiff/records.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "support/abi.h"

namespace qd::autodiff {
namespace {

// Work that is worth while to compute a value again: with something that is kept for it, and from
// what is at hand. What is computed again serves all, so it is a second forward sweep at most.
constexpr int kCheap = 4, kWorthIt = 64;
// Trips, known beforehand, up to which a loop inside another is not divided.
constexpr int64_t kShort = 64;

int weight(const Inst& i) {
    const OpInfo& row = info(i.op);
    if (row.elementary && !row.in_place) return 8;
    if (i.op == Op::div || i.op == Op::floordiv || i.op == Op::mod || i.op == Op::powi ||
        i.op == Op::sqrt || i.op == Op::rsqrt || i.op == Op::matmul)
        return 4;
    return 1;
}

uint64_t aligned(uint64_t bytes, uint64_t to) { return (bytes + to - 1) & ~(to - 1); }

// A component of what is kept, of the record or state that begins there. Each is an access of its
// own, since a GPU has those of many threads side by side.
Value* on_tape(Builder& b, Value* record, uint64_t offset, Type type, int component) {
    const Type one = type.element();
    const int64_t at = int64_t(offset) + int64_t{component} * one.size_bytes();
    Value* where = b.op(Op::add, {record, b.int_const(Prim::i64, at)});
    return b.typed(Op::tape, one.place(), {{where}});
}
// Integers of 8 bytes travel as halves: a GPU's tape has words of 4 then, where no float is as
// large.
bool in_halves(Prim p) { return type::is_int(p) && type::bytes(p) == 8; }
constexpr int64_t kHalf = 32;

void push(Builder& b, Value* record, uint64_t offset, Value* v) {
    for (int c = 0; c < v->type.count(); ++c) {
        Value* x = v->type.is_scalar() ? v : b.op(Op::extract, {v}, static_cast<uint64_t>(c));
        const Prim p = x->type.prim;
        if (!in_halves(p)) {
            b.store(on_tape(b, record, offset, v->type, c), x);
            continue;
        }
        const Type halves = Type::vector(Prim::u32, 2);
        const uint64_t at = offset + 8 * static_cast<uint64_t>(c);
        b.store(on_tape(b, record, at, halves, 0), b.cast(x, Prim::u32));
        Value* high = b.op(Op::lshr, {x, b.int_const(p, kHalf)});
        b.store(on_tape(b, record, at, halves, 1), b.cast(high, Prim::u32));
    }
}
Value* pull(Builder& b, Value* record, uint64_t offset, Type type) {
    std::vector<Value*> parts;
    const Prim p = type.prim;
    for (int c = 0; c < type.count(); ++c) {
        if (!in_halves(p)) {
            parts.push_back(b.load(on_tape(b, record, offset, type, c)));
            continue;
        }
        const Type halves = Type::vector(Prim::u32, 2);
        const uint64_t at = offset + 8 * static_cast<uint64_t>(c);
        Value* low = b.cast(b.load(on_tape(b, record, at, halves, 0)), p);
        Value* high = b.cast(b.load(on_tape(b, record, at, halves, 1)), p);
        high = b.op(Op::shl, {high, b.int_const(p, kHalf)});
        parts.push_back(b.op(Op::bit_or, {high, low}));
    }
    return type.is_scalar() ? parts[0] : b.typed(Op::build, type, parts);
}

Value* add(Builder& b, Value* v, uint64_t bytes) {
    return b.op(Op::add, {v, b.int_const(Prim::i64, int64_t(bytes))});
}

}  // namespace

// --- values

Records::Records(const Iteration& of)
    : of_(of), f_(*of.root.function), back_(of.back ? *of.back->function : f_) {
    if (!of.back) return;
    Builder head{&back_, of.back, nullptr, of.root.first->loc};
    begin_record(loops_[&of.root], head);
}

// The body of the innermost serial loop around a region, or the root. Null: outside.
const Region* Records::frame(const Region* r) const {
    for (; r && r != &of_.root && !loops_.contains(r); r = r->owner ? r->owner->parent : nullptr)
        if (const auto at = frames_.find(r); at != frames_.end()) return at->second;
    return r;
}

// Looks no further than it takes to know that it is too much.
void Records::price(Value* v, Price& p) const {
    v = resolve(v);
    if (p.work > kWorthIt || is_at_hand(v) || again_.contains(v) || is_constant(v)) return;
    if (!p.seen.insert(v).second) return;
    const Inst* d = v->def;
    if (kept_.contains(v)) {
        ++p.work;
    } else if (!can_compute(d)) {
        ++p.work, ++p.to_keep;
    } else {
        p.work += d->op == Op::load ? 4 : weight(*d);
        for (int k = 0; k < d->operand_count; ++k) price(d->operand(k), p);
    }
}

bool Records::can_compute(const Inst* d) const {
    if (!d || d->result_count != 1) return false;
    if (d->effect() == Effect::pure) return true;
    const uint64_t from = d->op == Op::load ? of_.storage.memory_class(d->operand(0)) : 0;
    return from % 4 && !may_be_among(of_.written, from);
}

bool Records::worth_computing(Value* v) const {
    if (kept_.contains(v) || !can_compute(v->def)) return false;
    if (v->type.is_place() || v->type.is_array()) return true;
    Price p;
    price(v, p);
    return p.to_keep ? p.to_keep == 1 && p.work <= kCheap : p.work <= kWorthIt;
}

Builder Records::entry(const Region* r) const {
    const Back& back = backs_.at(r);
    return {&back_, back.region, back.entry, back.entry->loc};
}

Value* Records::get(Value* v) {
    v = resolve(v);
    if (is_at_hand(v)) return v;
    if (const auto at = again_.find(v); at != again_.end()) return at->second;
    Value* found = is_constant(v) || worth_computing(v) ? compute(v) : fetch(v);
    return again_[v] = found;
}

Value* Records::compute(Value* v) {
    const Inst& d = *v->def;
    std::vector<Value*> operands;
    for (int k = 0; k < d.operand_count; ++k) operands.push_back(get(d.operand(k)));
    Builder b = entry(home(v));
    b.loc = d.loc;
    return emit_like(b, d, operands)->result();
}

// Keeps it on the way there.
Value* Records::fetch(Value* v) {
    kept_.insert(v);
    Region* at = home(v);
    const Region* body = frame(at);
    if (body == &of_.root && !of_.back) {
        Builder begin{&f_, &of_.root, of_.root.first, of_.root.first->loc};
        Value* place = begin.slot(v->type);
        behind(v).store(place, v);
        return entry(at).load(place);
    }
    Loop& loop = loops_.at(body);
    loop.bytes = aligned(loop.bytes, static_cast<uint64_t>(type::bytes(v->type.prim)));
    loop.kept.push_back({v, loop.bytes});
    loop.bytes += static_cast<uint64_t>(v->type.size_bytes());
    Builder b = entry(at);  // what lies behind the tape's end is overwritten later
    return pull(b, loop.base, loop.kept.back().offset, v->type);
}

Builder Records::behind(Value* v) const {
    Region* r = home(v);
    Inst* next = v->def ? v->def->next : r->first;
    return {&f_, r, next, next->loc};
}

// --- loops

Value* Records::top() {
    if (top_) return top_;
    Builder b{&f_, &of_.root, of_.root.first, of_.root.first->loc};
    top_ = b.slot(type::kI64);
    b.store(top_, of_.top ? of_.top : b.int_const(Prim::i64, 0));
    return top_;
}

Value* Records::top_back() {
    if (!of_.back) return top();
    if (top_back_) return top_back_;
    Region& r = *of_.back;
    Builder b{&back_, &r, r.first, of_.root.first->loc};
    top_back_ = b.slot(type::kI64);
    b.store(top_back_, of_.top_back);
    return top_back_;
}

void Records::begin_loop(Inst& i, Builder& head) {
    Loop& l = loops_[&i.body()];
    l.plain = true;
    walk(i.body(), [&](Inst& j) {
        l.plain &= !j.is_loop() && (j.op != Op::call || !of_.ways.contains(j.callee()));
    });
    begin_record(l, head);
}

void Records::begin_branch(Region& r, Builder& head) {
    const auto around = loops_.find(frame(&r));
    if (around != loops_.end() && !around->second.plain) begin_record(loops_[&r], head);
}

void Records::end_branch(Region& r) {
    const auto at = loops_.find(&r);
    if (at == loops_.end() || at->second.kept.empty()) return;
    record(at->second, *r.last);
    note_push(r.owner->parent);
}

void Records::begin_record(Loop& l, Builder& head) {
    Value* bytes = head.int_const(Prim::i64, 0);
    l.bytes_back = bytes->def;
    l.base = head.op(Op::sub, {head.load(top_back()), bytes});
    head.store(top_back(), l.base);
}

void Records::note_push(const Region* r) {
    for (; r && r != &of_.root; r = r->owner ? r->owner->parent : nullptr)
        if (const auto at = loops_.find(r); at != loops_.end()) at->second.pushes = true;
}

Value* Records::end_function() {
    Inst& end = *of_.root.last;
    record(loops_.at(&of_.root), end);
    Builder b{&f_, &of_.root, &end, end.loc};
    return b.load(top());
}

// Set to 0 in front of the loop; end_loop makes it count.
Value* Records::turns(Inst& i) {
    Loop& l = loops_.at(&i.body());
    if (l.turns) return l.turns;
    Builder b{&f_, i.parent, &i, i.loc};
    l.turns = b.slot(type::kI64);
    b.store(l.turns, b.int_const(Prim::i64, 0));
    return l.turns;
}

Value* Records::count(Inst& i) {
    loops_[&i.body()] = {};
    Builder behind{&f_, i.parent, i.next, i.loc};
    return get(behind.load(turns(i)));
}

void Records::end_loop(Inst& i, const Counterpart& c) {
    Loop& l = loops_.at(&i.body());
    record(l, end_of_iteration(i));
    l.pushes |= !l.kept.empty();
    if (l.pushes) note_push(i.parent);
    if (l.pushes && can_repeat(i)) divide(i, l, c);
    if (!l.turns) return;
    Inst& end = end_of_iteration(i);
    Builder b{&f_, end.parent, &end, i.loc};
    b.store(l.turns, add(b, b.load(l.turns), 1));
}

// What is kept goes on the tape at the end. Where the record begins is known from the start if
// nothing else goes there; then branches write to it themselves, and hand nothing on for it.
void Records::record(Loop& l, Inst& end) {
    if (l.kept.empty()) return;
    l.bytes = aligned(l.bytes, 8);
    l.bytes_back->imm = l.bytes;
    Region& body = *end.parent;
    Builder b{&f_, &body, &end, end.loc};
    Builder begin = l.plain ? Builder{&f_, &body, body.first, end.loc} : b;
    Value* at = begin.load(top());
    Value* after = add(begin, at, l.bytes);
    require_room(begin, after);
    if (of_.request.most_records > 0) limit_records(b);
    for (const Kept& k : l.kept) {
        Value* v = resolve(k.value);
        if (home(v) == &body) {
            push(b, at, k.offset, v);
        } else {
            Builder in = behind(v);
            push(in, at, k.offset, v);
        }
    }
    b.store(top(), after);
}

// --- segments

// What a loop carries into an iteration, as it lies on the tape behind that iteration's number.
struct Records::State {
    std::vector<uint64_t> offsets;
    uint64_t bytes = 8;
    Value *first = nullptr, *segment = nullptr;  // places of i64, in front of the loop:
                                                 // first iteration, and where its records begin

    explicit State(const Inst& loop) {
        const uint32_t n = dimensions(loop);
        for (uint32_t k = n; k < loop.body().params.size(); ++k) {
            const Type t = loop.body().params[k]->type;
            bytes = aligned(bytes, static_cast<uint64_t>(type::bytes(t.prim)));
            offsets.push_back(bytes);
            bytes += static_cast<uint64_t>(t.size_bytes());
        }
        bytes = aligned(bytes, 8);
    }
    template <class Carried>
    Value* save(Builder& b, Value* at, Value* number, Carried carried) const {
        push(b, at, 0, number);
        for (size_t k = 0; k < offsets.size(); ++k) push(b, at, offsets[k], carried(k));
        return autodiff::add(b, at, bytes);
    }
};

// Whether iterations can run a second time, and it may be worth while.
bool Records::can_repeat(Inst& loop) const {
    if (of_.request.most_records > 0) return false;
    const bool nested = of_.top || frame(loop.parent) != &of_.root;
    if (nested && loop.op == Op::for_) {
        int64_t trips = 1;
        for (int k = 0; k < static_cast<int>(2 * loop.imm) && trips <= kShort; k += 2) {
            const Value *low = loop.operand(k), *high = loop.operand(k + 1);
            const bool known = is_constant(low) && is_constant(high);
            trips = known ? trips * (constant_int(high) - constant_int(low)) : kShort + 1;
        }
        if (trips <= kShort) return false;
    }
    const std::unordered_set<const Value*> used = used_values(loop.body());
    bool yes = true;
    walk(loop.body(), [&](Inst& i) {
        const Inst* place = i.operand_count && i.operand(0)->type.is_place()
                                ? root_of_place(i.operand(0))->def
                                : nullptr;
        const bool to_tape = place && place->op == Op::tape;
        switch (i.effect()) {
            case Effect::read:
                yes &= !may_be_among(of_.written, of_.storage.memory_class(i.operand(0)));
                return;
            case Effect::write:
            case Effect::atomic:
                if (i.op == Op::volatile_load) yes = false;
                if (place && place->op == Op::slot) {
                    yes &= (top_ && place == top_->def) || is_inside(place->results, loop);
                } else if (!to_tape && !(place && of_.storage.has(i.operand(0)))) {
                    yes &= !i.result_count || !used.contains(i.result());
                }
                return;
            case Effect::check:
                return;
            case Effect::io:
                yes &= !i.result_count;
                return;
            case Effect::call:  // choose_calls saw to it
                return;
            default:
                yes &= !i.is_group();
        }
    });
    return yes;
}

void Records::divide(Inst& i, Loop& l, const Counterpart& c) {
    State s(i);
    turns(i);
    Builder front{&f_, i.parent, &i, i.loc};
    s.first = front.slot(type::kI64);
    s.segment = front.slot(type::kI64);
    front.store(s.first, front.int_const(Prim::i64, 0));
    front.store(s.segment, front.load(top()));
    Builder behind{&f_, i.parent, i.next, i.loc};
    Value* first = get(behind.load(s.first));

    // One segment after the other, last first.
    Builder b{&back_, c.back->parent, c.back, i.loc};
    Value *begin = b.slot(type::kI64), *end = b.slot(type::kI64);
    Value* none = b.int_const(Prim::i64, 0);
    b.store(begin, first);
    b.store(end, c.extents->count);
    Inst* each = b.emit(Op::loop, {}, {}, 1);
    Builder in{&back_, &each->body(), nullptr, i.loc};
    Value* last = in.load(end);
    c.back->operands[1] = in.op(Op::sub, {last, in.load(begin)});
    c.last->operands[0] = last;
    c.back->remove();
    c.back->append_to(each->body());
    Value* at_begin = in.load(begin);
    Value* over[] = {in.op(Op::eq, {at_begin, none})};
    Inst* test = in.emit(Op::if_, over, {}, 2);
    Builder{&back_, test->regions[0], nullptr, i.loc}.end(Op::break_);
    Builder{&back_, test->regions[1], nullptr, i.loc}.end(Op::yield);
    record_again(i, c, s, begin, end, in);
    in.end(Op::continue_);
    Builder after{&back_, each->parent, each->next, i.loc};
    Value* divided = after.op(Op::ne, {first, none});
    Value* rest =
        after.op(Op::select, {divided, after.int_const(Prim::i64, int64_t(s.bytes)), none});
    after.store(top_back(), after.op(Op::sub, {after.load(top_back()), rest}));

    begin_segments(i, l, s);
}

// On the way there, at the begin of an iteration.
void Records::begin_segments(Inst& i, Loop& l, const State& s) {
    Builder front{&f_, i.parent, &i, i.loc};
    Value* room = front.typed(Op::tape_bytes, type::kI64, {});
    Value* most = front.op(
        Op::raw_div, {front.op(Op::sub, {room, front.load(top())}), front.int_const(Prim::i64, 2)});
    Region& body = i.body();
    Builder b{&f_, &body, body.first, i.loc};
    Value* segment = b.load(s.segment);
    Value* full[] = {b.op(Op::gt, {b.op(Op::sub, {b.load(top()), segment}), most})};
    Inst* test = b.emit(Op::if_, full, {}, 2);
    Builder{&f_, test->regions[1], nullptr, i.loc}.end(Op::yield);
    Builder in{&f_, test->regions[0], nullptr, i.loc};
    Value* none = in.int_const(Prim::i64, 0);
    Value* where = in.slot(type::kI64);
    in.store(where, segment);
    require_room(in, add(in, segment, 2 * s.bytes));
    Value* is_first[] = {in.op(Op::eq, {in.load(s.first), none})};
    Inst* begins = in.emit(Op::if_, is_first, {}, 2);
    Builder{&f_, begins->regions[1], nullptr, i.loc}.end(Op::yield);
    const auto n = dimensions(i);
    Builder once{&f_, begins->regions[0], nullptr, i.loc};
    once.store(where, s.save(once, segment, none,
                             [&](size_t k) { return i.operand(static_cast<int>(2 * n + k)); }));
    once.end(Op::yield);
    Value* number = in.load(l.turns);
    Value* behind = s.save(in, in.load(where), number,
                           [&](size_t k) { return body.params[n + static_cast<uint32_t>(k)]; });
    in.store(top(), behind);
    in.store(s.segment, behind);
    in.store(s.first, number);
    in.end(Op::yield);
}

static void count_again(Builder& b) {
    constexpr auto kAt = int64_t(offsetof(abi::TapeCounts, recorded_again));
    Value* where = b.int_const(Prim::i64, kAt - int64_t(sizeof(abi::TapeCounts)));
    Value* count = b.typed(Op::tape, Type{Prim::u32}.place(), {{where}});
    b.store(count, b.op(Op::add, {b.load(count), b.int_const(Prim::u32, 1)}));
}

// On the way back, a segment's iterations once more. The state at the tape's end is the one that
// comes behind them; theirs lies in front of it and stays.
void Records::record_again(Inst& i, const Counterpart& c, const State& s, Value* begin, Value* end,
                           Builder& b) {
    Value* at = b.op(Op::sub, {b.load(top_back()), b.int_const(Prim::i64, int64_t(2 * s.bytes))});
    Value* number = pull(b, at, 0, type::kI64);
    Value* old = b.load(begin);
    b.store(end, old);
    b.store(begin, number);
    b.store(top_back(), add(b, at, s.bytes));
    count_again(b);
    Region& body = i.body();
    const auto n = dimensions(i);
    std::vector<Value*> operands = {b.int_const(Prim::i64, 0), b.op(Op::sub, {old, number})};
    std::vector<Type> types;
    for (size_t k = 0; k < s.offsets.size(); ++k) {
        types.push_back(body.params[n + static_cast<uint32_t>(k)]->type);
        operands.push_back(pull(b, at, s.offsets[k], types.back()));
    }
    Inst* out = b.emit(Op::for_, operands, types, 1);
    out->imm = 1;
    Region& to = out->body();
    Builder in{&back_, &to, nullptr, i.loc};
    std::vector<std::pair<const Value*, Value*>> map;
    Value* turn = back_.add_param(to, type::kI64);
    if (n) {
        const std::vector<Value*> indices =
            indices_at(in, in.op(Op::add, {number, turn}), *c.extents);
        for (uint32_t d = 0; d < n; ++d)
            map.emplace_back(body.params[d], in.cast(indices[d], body.params[d]->type.prim));
    }
    for (uint32_t k = n; k < body.params.size(); ++k)
        map.emplace_back(body.params[k], back_.add_param(to, body.params[k]->type));
    Numbers numbers(body);
    std::unordered_set<const Value*> seen;
    walk(body, [&](Inst& j) {
        for (int k = 0; k < j.operand_count; ++k) {
            Value* v = j.operand(k);
            if (is_inside(v, i) || !seen.insert(v).second) continue;
            numbers.note(v);
            if (Value* found = v == top_ ? top_back() : get(v); found != v)
                map.emplace_back(v, found);
        }
    });
    Region* copy = clone_into(body, back_, std::move(map));
    if (Inst* test = copy->last->prev; &end_of_iteration(i) != body.last) test->remove();
    drop_effects(*copy);
    while (Inst* first = copy->first) {
        first->remove();
        first->append_to(to);
    }
}

// What a second time must not do.
void Records::drop_effects(Region& r) const {
    std::vector<Inst*> gone;
    walk(r, [&](Inst& i) {
        const Effect e = i.effect();
        if (e == Effect::io || (e == Effect::check && !own_checks_.contains(i.ref)))
            gone.push_back(&i);
        if (e != Effect::write && e != Effect::atomic) return;
        const Inst* place = root_of_place(i.operand(0))->def;
        if (!place || (place->op != Op::slot && place->op != Op::tape)) gone.push_back(&i);
    });
    for (Inst* i : gone) {
        if (i->result_count) {
            Builder b{&back_, i->parent, i, i->loc};
            replace(i->result(), b.load(i->operand(0)));
        }
        i->remove();
    }
}

// --- limits

void Records::check(Builder& b, Value* holds, std::initializer_list<Format::Piece> text,
                    std::initializer_list<Value*> values) {
    of_.m.owned_formats.push_back(std::make_unique<Format>());
    Format* format = of_.m.owned_formats.back().get();
    format->pieces = text;
    own_checks_.insert(format);
    std::vector<Value*> operands = {holds};
    operands.insert(operands.end(), values);
    b.emit(Op::assert_, operands, {})->ref = format;
}

void Records::require_room(Builder& b, Value* behind) {
    Value* room = b.typed(Op::tape_bytes, type::kI64, {});
    check(b, b.op(Op::le, {behind, room}),
          {{"Adstack overflow: the reverse sweep of a loop needs more than ", 0},
           {"", 'd'},
           {" bytes for what one iteration of the loop around it keeps. Offending task: kernel `" +
                of_.m.name + "` offload task #" + std::to_string(of_.task) +
                ". Advice: fewer variables that a loop carries, a smaller range, or "
                "splitting the kernel",
            0}},
          {room});
}

// As if each loop had a stack of so many slots.
void Records::limit_records(Builder& b) {
    Builder begin{&f_, &of_.root, of_.root.first, of_.root.first->loc};
    Value* used = begin.slot(type::kI64);
    begin.store(used, begin.int_const(Prim::i64, 0));
    Value* count = add(b, b.load(used), 1);
    b.store(used, count);
    const std::string most = std::to_string(of_.request.most_records);
    check(b, b.op(Op::le, {count, b.int_const(Prim::i64, of_.request.most_records)}),
          {{"Adstack overflow: a loop keeps values of more iterations than ad_stack_size=" + most +
                " has slots for. Offending task: kernel `" + of_.m.name + "` offload task #" +
                std::to_string(of_.task) +
                ". Raise ad_stack_size, or set it to 0, which has no limit",
            0}},
          {});
}

}  // namespace qd::autodiff
