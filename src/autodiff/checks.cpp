// What reverse mode does not accept of a kernel, and says before it begins (chapter 60, 9.1).

#include <cstdlib>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autodiff/parts.h"

namespace qd::autodiff {

// Kernel code of ours that finds the active cells of sparse trees, or the bits of quantised
// numbers: nothing flows through it.
static bool is_upkeep(const Inst& i) {
    if (i.op == Op::call) {
        const Inst* first = i.callee()->body->first;
        return first && is_upkeep(*first);
    }
    const std::string_view file = i.loc ? std::string_view(i.loc->file) : "";
    return file.ends_with("quadrants/_library/sparse.py") ||
           file.ends_with("quadrants/_library/packed.py");
}

// What debug mode reports of overflows.
static bool reports(const Inst& i) {
    if (i.op != Op::if_ || i.result_count) return false;
    for (Region* r : i.region_list())
        for (const Inst& inner : *r)
            if (inner.op != Op::print && inner.op != Op::yield && inner.effect() != Effect::pure &&
                inner.effect() != Effect::read)
                return false;
    return true;
}

// Variables that something in the source may write to: others are copies of struct arguments.
static std::unordered_set<const Inst*> written_variables(const Function& f) {
    std::unordered_set<const Inst*> out;
    walk(*f.body, [&](Inst& i) {
        const Effect e = i.effect();
        if (!i.loc || (e != Effect::write && e != Effect::atomic && e != Effect::call)) return;
        for (int k = 0; k < i.operand_count; ++k)
            if (i.operand(k)->type.is_place()) out.insert(root_of_place(i.operand(k))->def);
    });
    return out;
}

// A kernel has either loops that are tasks, or statements.
void check_mixed(const Module& m) {
    const std::unordered_set<const Inst*> written = written_variables(m.kernel());
    const auto is_copy = [&](const Inst& i) {
        return i.op == Op::store && !i.loc && !written.contains(root_of_place(i.operand(0))->def);
    };
    const Inst* statement = nullptr;
    bool loops = false;
    for (Inst& i : *m.kernel().body) {
        loops |= i.op == Op::for_;
        const Effect e = i.effect();
        const bool acts = e == Effect::write || e == Effect::atomic || e == Effect::io ||
                          e == Effect::call || i.op == Op::if_ || i.op == Op::loop;
        if (acts && i.op != Op::stop_grad && !statement && !is_upkeep(i) && !is_copy(i) &&
            !reports(i))
            statement = &i;
    }
    if (loops && statement)
        refuse(
            "Invalid program input for autodiff: Mixed usage of for-loops and statements without "
            "looping. Split them into two kernels",
            *statement);
}

// Beside loops whose iterations go back on their own a serial one is the only iteration of another.
void enclose_serial_loops(Module& m) {
    Function& f = m.kernel();
    bool any = false;
    for (Inst& i : *f.body) any |= i.op == Op::for_ && i.loop_config() && i.loop_config()->parallel;
    if (!any) return;
    Inst* seed = nullptr;  // of random numbers behind it; the first loop that draws some has it
    bool drew = false;
    for (Inst& i : *f.body) {
        if (i.op == Op::seed) seed = &i, drew = false;
        if (i.op != Op::for_ || (i.loop_config() && i.loop_config()->parallel)) continue;
        Builder b{&f, f.body, &i, i.loc};
        Value* once[] = {b.int_const(Prim::i32, 0), b.int_const(Prim::i32, 1)};
        Inst* around = b.emit(Op::for_, once, {}, 1);
        around->imm = 1;
        around->flags = kOverData | kStopsGradient;
        m.owned_loops.push_back(std::make_unique<LoopConfig>());
        m.owned_loops.back()->parallel = true;
        around->ref = m.owned_loops.back().get();
        f.add_param(around->body(), type::kI32);
        if (pass::draws(i.body())) {
            if (drew)
                refuse(
                    "Not supported. Random numbers in several serial loops of a kernel that is "
                    "differentiated. Split them into two kernels",
                    i);
            drew = true;
            Builder in{&f, &around->body(), nullptr, i.loc};
            const int64_t number = constant_int(seed->operand(0));
            in.op(Op::seed, {in.int_const(Prim::i64, number)}, seed->imm);
        }
        i.remove();
        i.append_to(around->body());
        Builder{&f, &around->body(), nullptr, i.loc}.end(Op::continue_);
    }
}

// Whether the user's code asks for cells of sparse trees, which the way back activates.
static bool asks_for_activity(const Inst& i) {
    if (i.op != Op::call || !i.loc || std::string_view(i.loc->file).ends_with("_library/sparse.py"))
        return false;
    const Inst* first = i.callee()->body->first;
    return first && is_upkeep(*first) && i.callee()->name == "is_active";
}

// As the source has it, whether or not anything depends on it.
void check_statements(const Module& m, const Request& request) {
    for (Function* function : m.functions)
        walk(*function->body, [&](Inst& i) {
            const char* what = nullptr;
            if (request.mode == Mode::reverse && asks_for_activity(i))
                refuse(
                    "Not supported. qd.is_active in a kernel that is differentiated in reverse "
                    "mode: going back activates cells. Keep the answer in a field, made by "
                    "another kernel",
                    i);
            if (pass::is_elimination(i) || is_upkeep(i)) return;
            if (i.op == Op::loop) what = "while loop";
            if (i.op == Op::break_ && i.parent->owner->op != Op::loop) what = "break";
            if (i.op == Op::continue_ && !(i.parent->owner && i.parent->owner->is_loop()))
                what = "continue";
            if (request.general_control) what = nullptr;
            if (i.is_group())
                refuse(
                    "graph does not support autograd: the kernel has do-while loops, checkpoints "
                    "or streams",
                    i);
            const bool counts_bits = i.op == Op::popcnt || i.op == Op::clz || i.op == Op::ctz;
            if (counts_bits && !request.general_control)
                refuse(
                    "Not supported. Bits are counted in a kernel that is differentiated: do that "
                    "in another kernel, or use qd.init(ad_general_control=True)",
                    i);
            if (i.op == Op::random && !request.general_control)
                refuse(
                    "RandStmt not supported in a kernel that is differentiated: draw the numbers "
                    "in another kernel, or use qd.init(ad_general_control=True) and a qd.ad.Tape",
                    i);
            if (what)
                refuse(std::string("Not supported. A kernel that is differentiated has no ") +
                           what +
                           ", but with "
                           "qd.init(ad_general_control=True)",
                       i);
        });
}

// Gradients have none.
void check_gradients_of_arrays(const Module& m) {
    for (Function* function : m.functions)
        walk(*function->body, [](Inst& i) {
            if (i.op == Op::array_place && ArrayAccess::unpack(i.imm).grad)
                refuse("Cannot automatically differentiate through a grad tensor", i);
        });
}

namespace {

using Place = std::pair<const Function*, bool>;  // called, in a loop or not

void check_loops(Region& r, bool inside, std::set<Place>& seen) {
    for (Inst& i : r) {
        const bool encloses = pass::is_only_iteration(i);
        const bool is_inner = i.op == Op::for_ && inside && !encloses && !is_upkeep(i);
        if (is_inner && i.flags & kOverData)
            refuse(
                "Not supported. A loop over a field inside another loop, in a kernel that is "
                "differentiated, needs qd.init(ad_stack_experimental_enabled=True)",
                i);
        if (is_inner && i.imm == 1)  // several dimensions are no range
            throw Refused{
                {"Cannot use non static range in Backwards mode: a loop inside a loop needs "
                 "qd.init(ad_stack_experimental_enabled=True), or qd.static(range(...))",
                 i.loc, true}};
        if (i.op == Op::call && seen.emplace(i.callee(), inside).second)
            check_loops(*i.callee()->body, inside, seen);
        for (Region* c : i.region_list())
            check_loops(*c, !encloses && (inside || i.is_loop()), seen);
    }
}

}  // namespace

void check_inner_loops(Region& kernel) {
    std::set<Place> seen;
    check_loops(kernel, false, seen);
}

namespace {

// An index as what it is computed from: constant +- param of a loop, or something else.
struct Index {
    bool depends = false;  // on the loop's index
    bool linear = false;   // it is that times `sign`, plus `constant`
    int64_t sign = 1, constant = 0;
};

// Whether arithmetic leads from the one to the other.
bool depends_on(const Value* v, const Value* param) {
    std::unordered_set<const Value*> seen;
    std::vector<const Value*> work = {v};
    while (!work.empty()) {
        const Value* at = resolve(const_cast<Value*>(work.back()));
        work.pop_back();
        if (at == param) return true;
        if (!at->def || at->def->effect() != Effect::pure || !seen.insert(at).second) continue;
        for (int k = 0; k < at->def->operand_count; ++k) work.push_back(at->def->operand(k));
    }
    return false;
}

Index index_of(const Value* v, const Value* param) {
    Index x{depends_on(v, param), true};
    for (v = resolve(const_cast<Value*>(v)); v != param;) {
        const Inst* d = v->def;
        const bool sum = d && (d->op == Op::add || d->op == Op::sub);
        if (sum && is_constant(d->operand(1))) {
            const int64_t c = constant_int(d->operand(1));
            x.constant += x.sign * (d->op == Op::add ? c : -c);
        } else if (sum && d->op == Op::sub && is_constant(d->operand(0))) {
            x.constant += x.sign * constant_int(d->operand(0));
            x.sign = -x.sign;
            v = d->operand(1);
            continue;
        } else if (!d || d->op != Op::cast) {
            x.linear = false;
            break;
        }
        v = d->operand(0);
    }
    return x;
}

struct Access {
    const Inst* inst;
    const Inst* place;
    bool is_sure;  // no condition stands before it
};

void collect(Region& r, const Storage& storage, bool is_sure, std::vector<Access>& loads,
             std::vector<Access>& stores) {
    for (Inst& i : r) {
        if (i.op == Op::if_)
            for (Region* c : i.region_list()) collect(*c, storage, false, loads, stores);
        if (i.flags & kDeeper && !i.region_count) continue;
        const Effect e = i.effect();
        const bool loaded = e == Effect::read || i.op == Op::volatile_load;
        if (!loaded && e != Effect::write && e != Effect::atomic) continue;
        if (!i.operand_count || !i.operand(0)->type.is_place() || !storage.has(i.operand(0)))
            continue;
        (loaded ? loads : stores).push_back({&i, root_of_place(i.operand(0))->def, is_sure});
    }
}

bool same_storage(const Inst& a, const Inst& b) {
    if (a.op != b.op) return false;
    return a.op == Op::field_place ? a.field() == b.field() : a.operand(0) == b.operand(0);
}

// The iterations of a loop along a dimension, if they are known.
int64_t trips_of(const Inst& loop, int dimension = 0) {
    const Value *begin = loop.operand(2 * dimension), *end = loop.operand(2 * dimension + 1);
    if (!is_constant(begin) || !is_constant(end)) return INT64_MAX;
    int64_t trips;
    return __builtin_sub_overflow(constant_int(end), constant_int(begin), &trips) ? INT64_MAX
                                                                                  : trips;
}

// Whether iterations meet in what one loads and another stores. Of arrays and of additions that
// must be certain, and in serial loops the store must come later: what came before goes back
// exactly. (Additions of parallel loops come in no order.)
bool crosses(const Access& loaded, const Access& stored, const Inst& loop) {
    const Inst &load = *loaded.place, &store = *stored.place;
    const Value* param = loop.body().params[0];
    const bool serial = !is_parallel_loop(loop), array = load.op == Op::array_place;
    const bool adds = stored.inst->op != Op::store;
    if (adds && !serial) return false;
    bool load_depends = false, store_depends = false, apart = false, differs = false;
    for (int k = array; k < load.operand_count; ++k) {
        const Value *x = load.operand(k), *y = store.operand(k);
        const Index a = index_of(x, param), b = index_of(y, param);
        load_depends |= a.depends;
        store_depends |= b.depends;
        const bool linear = a.linear && b.linear && a.sign == b.sign;
        const bool same = linear ? a.constant == b.constant : x == y && !(serial && a.depends);
        differs |= a.depends && b.depends ? !same : a.depends || b.depends;
        // As many apart as there are iterations: these are halves, which never meet.
        const int64_t later = a.sign * (a.constant - b.constant);
        apart |= linear && (serial ? later > 0 : later != 0) && std::abs(later) < trips_of(loop);
    }
    if (!load_depends || !store_depends) return false;
    const bool is_sure = loaded.is_sure && stored.is_sure;
    return array || adds ? apart && is_sure : differs;
}

// An index of a loop of several dimensions: constant +- what does not change in the loop, if that
// is known. Null: nothing.
struct Term {
    bool is_known = false;
    const Value* of = nullptr;
    int64_t sign = 1, constant = 0;
};

// Holds all indices: what is narrower wraps around.
bool counts(Type t) { return t.is_scalar() && (t.prim == Prim::i32 || t.prim == Prim::i64); }

// Component c of a vector, or of a scalar the value itself.
const Value* component_of(const Value* v, uint64_t c) {
    v = resolve(const_cast<Value*>(v));
    const Inst* d = v->def;
    if (d && d->op == Op::build) return resolve(d->operand(static_cast<int>(c)));
    return d && d->op == Op::splat ? resolve(d->operand(0)) : v;
}

Term term_of(const Value* v, const Inst& loop) {
    Term t;
    uint64_t c = 0;  // the component of v that is asked for
    for (;;) {
        v = component_of(v, c);
        const Inst* d = v->def;
        const bool sum = d && (d->op == Op::add || d->op == Op::sub);
        const Value* x = sum ? component_of(d->operand(0), c) : nullptr;
        const Value* y = sum ? component_of(d->operand(1), c) : nullptr;
        if (is_constant(v)) {
            t.constant += t.sign * constant_int(v);
            t.is_known = true;
            return t;
        } else if (sum && is_constant(y)) {
            t.constant += t.sign * (d->op == Op::add ? 1 : -1) * constant_int(y);
            v = x;
        } else if (sum && is_constant(x)) {
            t.constant += t.sign * constant_int(x);
            if (d->op == Op::sub) t.sign = -t.sign;
            v = y;
        } else if (d && d->op == Op::extract) {
            c = d->imm;
            v = d->operand(0);
        } else if (d && d->op == Op::cast && counts(v->type) && counts(d->operand(0)->type)) {
            v = d->operand(0);
        } else {
            break;
        }
    }
    t.of = v;
    t.is_known = v->type.is_scalar() && (v->owner == &loop.body() || !is_inside(v, loop));
    return t;
}

// What it takes along a dimension for a load and a store to meet: how much later the store comes,
// or the one iteration that loads, or stores.
struct Meeting {
    std::optional<int64_t> later, loads_at, stores_at;

    static bool set(std::optional<int64_t>& to, int64_t value) {
        if (to && *to != value) return false;
        to = value;
        return true;
    }
    // One follows from the others; whether they can all be.
    bool complete() {
        if (later && loads_at && !set(stores_at, *loads_at + *later)) return false;
        if (later && stores_at && !set(loads_at, *stores_at - *later)) return false;
        return !loads_at || !stores_at || set(later, *stores_at - *loads_at);
    }
};

bool has_iteration(const Inst& loop, int dimension, int64_t at) {
    const Value *begin = loop.operand(2 * dimension), *end = loop.operand(2 * dimension + 1);
    return is_constant(begin) && is_constant(end) && constant_int(begin) <= at &&
           at < constant_int(end);
}

// Of loops of several dimensions: whether it is certain that iterations meet, and in serial loops
// that the store comes later. Such loops go over halves of their elements, under conditions, over
// triangles or over levels, more often than not.
bool certainly_crosses(const Access& loaded, const Access& stored, const Inst& loop) {
    const Inst &load = *loaded.place, &store = *stored.place;
    const bool serial = !is_parallel_loop(loop), array = load.op == Op::array_place;
    if (!loaded.is_sure || !stored.is_sure || (stored.inst->op != Op::store && !serial))
        return false;
    const auto component = [](const Access& a) {
        const Inst* d = a.inst->operand(0)->def;
        return d->op == Op::comp_place ? resolve(d->operand(1)) : nullptr;
    };
    const Value *one = component(loaded), *other = component(stored);
    if (one && other &&
        (!is_constant(one) || !is_constant(other) || constant_int(one) != constant_int(other)))
        return false;
    std::vector<Meeting> meetings(dimensions(loop));
    const auto of_loop = [&](const Term& t) {
        return t.of && t.of->owner == &loop.body() && t.of->index < meetings.size();
    };
    bool load_depends = false, store_depends = false;
    for (int k = array; k < load.operand_count; ++k) {
        const Term a = term_of(load.operand(k), loop), b = term_of(store.operand(k), loop);
        if (!a.is_known || !b.is_known) return false;
        load_depends |= of_loop(a);
        store_depends |= of_loop(b);
        const int64_t between = a.constant - b.constant;
        if (a.of == b.of) {
            if (a.sign != b.sign) return false;
            if (of_loop(a) ? !Meeting::set(meetings[a.of->index].later, a.sign * between) : between)
                return false;
        } else if (of_loop(a) && !b.of) {
            if (!Meeting::set(meetings[a.of->index].loads_at, a.sign * -between)) return false;
        } else if (of_loop(b) && !a.of) {
            if (!Meeting::set(meetings[b.of->index].stores_at, b.sign * between)) return false;
        } else {
            return false;
        }
    }
    if (!load_depends || !store_depends) return false;
    bool crosses = false, decided = false;
    for (int d = 0; d < static_cast<int>(meetings.size()); ++d) {
        Meeting& m = meetings[static_cast<size_t>(d)];
        if (!m.complete()) return false;
        for (const auto& at : {m.loads_at, m.stores_at})
            if (at && !has_iteration(loop, d, *at)) return false;
        if (m.later && std::abs(*m.later) >= trips_of(loop, d)) return false;
        if (decided || (!m.later && !m.loads_at && !m.stores_at)) continue;
        const bool may_be_later = m.later      ? *m.later > 0
                                  : m.loads_at ? has_iteration(loop, d, *m.loads_at + 1)
                                               : has_iteration(loop, d, *m.stores_at - 1);
        const bool may_be_earlier = m.later      ? *m.later < 0
                                    : m.loads_at ? has_iteration(loop, d, *m.loads_at - 1)
                                                 : has_iteration(loop, d, *m.stores_at + 1);
        crosses |= may_be_later || (!serial && may_be_earlier);
        decided = crosses || (m.later && *m.later);
    }
    return crosses;
}

// The outermost loop over a range that is this or, beside parallel ones, stands alone in it.
const Inst* range_loop(Inst& i) {
    if (i.op != Op::for_) return nullptr;
    if (!(i.flags & kOverData)) return &i;
    if (!pass::is_only_iteration(i)) return nullptr;
    for (Inst& inner : i.body())
        if (inner.op == Op::for_ && !(inner.flags & kOverData)) return &inner;
    return nullptr;
}

}  // namespace

void forget_depths(Module& m) {
    for (Function* f : m.functions)
        walk(*f->body, [](Inst& i) {
            if (!i.region_count) i.flags &= uint8_t(~kDeeper);
        });
}

// Iterations go back on their own: what one reads must not be what another stored.
void check_recurrences(Module& m, const Storage& storage) {
    for (Inst& i : *m.kernel().body) {
        const Inst* loop = range_loop(i);
        if (!loop) continue;
        std::vector<Access> loads, stores;
        collect(loop->body(), storage, true, loads, stores);
        for (const Access& load : loads)
            for (const Access& store : stores) {
                if (!same_storage(*load.place, *store.place)) continue;
                if (!(loop->imm == 1 ? crosses : certainly_crosses)(load, store, *loop)) continue;
                const bool field = load.place->op == Op::field_place;
                refuse(
                    "Cross-iteration read-after-write on the `needs_grad` " +
                        (field ? "field '" + load.place->field()->name + "'"
                               : std::string("array")) +
                        " in an outermost loop, whose iterations are differentiated each on its "
                        "own. Put the loop inside another for-loop of the kernel, which makes it "
                        "serial",
                    *store.inst);
            }
    }
}

}  // namespace qd::autodiff
