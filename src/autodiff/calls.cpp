// See calls.h.

#include "autodiff/calls.h"

#include <algorithm>
#include <set>

#include "autodiff/records.h"

namespace qd::autodiff {
namespace {

// Instructions, as the front end makes them, up to which a kernel is expanded anyway; how many
// times its source expansion may be; and functions that are expanded in any case.
constexpr uint64_t kSmall = 4000, kTimes = 3, kTiny = 40;

// --- which ones

struct Facts {
    bool fits = true;                  // nothing in it has to be seen by its callers
    std::set<uint64_t> loads, stores;  // classes of storage with gradients, callees' too
    uint64_t size = 0, expanded = 0;
    int callers = 0;
};

struct Chooser {
    Module& m;
    std::vector<Function*> order;
    Storage storage;
    std::vector<Facts> facts;  // by Function::id
    std::vector<uint64_t> written;

    Facts& of(const Function& f) { return facts[f.id]; }

    bool is_variable(const Value* place) const {
        const Inst* d = root_of_place(const_cast<Value*>(place))->def;
        return d && d->op == Op::slot;
    }

    void look_at(const Inst& i, Facts& out) {
        const Value* place =
            i.operand_count && i.operand(0)->type.is_place() ? i.operand(0) : nullptr;
        switch (i.effect()) {
            case Effect::read:
                if (!place || !root_of_place(const_cast<Value*>(place))->def) out.fits = false;
                if (!place || is_variable(place)) return;
                if (storage.has(place)) {
                    out.loads.insert(storage.memory_class(place));
                } else if (may_be_among(written, storage.memory_class(place))) {
                    out.fits = false;
                }
                return;
            case Effect::write:
            case Effect::atomic:
                if (place && is_variable(place)) return;
                if (!place || !storage.has(place)) {
                    out.fits = false;
                } else if (i.op == Op::store) {
                    out.stores.insert(storage.memory_class(place));
                } else if (i.op != Op::atomic_add && i.op != Op::atomic_sub) {
                    out.fits = false;
                }
                return;
            case Effect::call:
                return;
            case Effect::io:
            case Effect::check:
                out.fits = false;
                return;
            default:
                if (info(i.op).kind == Kind::threads || i.is_group()) out.fits = false;
        }
    }

    void join(Facts& out, const Facts& callee) {
        out.fits &= callee.fits;
        out.loads.insert(callee.loads.begin(), callee.loads.end());
        out.stores.insert(callee.stores.begin(), callee.stores.end());
        out.expanded += callee.expanded;
    }

    void look_at(Function& f) {
        Facts& out = of(f);
        walk(*f.body, [&](Inst& i) {
            ++out.size;
            look_at(i, out);
            if (i.op == Op::call) ++of(*i.callee()).callers, join(out, of(*i.callee()));
        });
        out.expanded += out.size;
        out.fits &= !f.never_inline;
        for (const Value* p : f.body->params)
            out.fits &= p->type.is_value() || (p->type.is_array() && storage.knows(p));
        for (const Type t : f.result_types) out.fits &= t.is_value();
    }

    // Of what a task both loads and stores it is asked whether its iterations meet (checks.cpp), so
    // all of that must be seen.
    void find_recurrences(Region& task) {
        Facts all;
        walk(task, [&](Inst& i) {
            look_at(i, all);
            if (i.op == Op::call) join(all, of(*i.callee()));
        });
        std::set<uint64_t> both;
        std::ranges::set_intersection(all.loads, all.stores, std::inserter(both, both.end()));
        if (both.empty()) return;
        const auto touches = [&](const std::set<uint64_t>& some) {
            return std::ranges::any_of(some, [&](uint64_t c) { return both.contains(c); });
        };
        for (Facts& f : facts)
            if (touches(f.loads) || touches(f.stores)) f.fits = false;
    }

    pass::KeptCalls run() {
        for (Function* f : order)
            walk(*f->body, [&](Inst& i) {
                const bool writes = i.effect() == Effect::write || i.effect() == Effect::atomic;
                if (!writes || i.op == Op::volatile_load || is_variable(i.operand(0))) return;
                if (!storage.has(i.operand(0)))
                    written.push_back(m.arrays_may_overlap ? kAnyMemory
                                                           : storage.memory_class(i.operand(0)));
            });
        uint64_t source = 0;
        for (Function* f : order) {
            look_at(*f);
            source += of(*f).size;
        }
        Function& kernel = m.kernel();
        const bool all = !pass::enabled(m.options, "inline_calls");
        if (!all && of(kernel).expanded <= std::max(kSmall, kTimes * source)) return {};
        for (Inst& i : *kernel.body)
            if (is_parallel_loop(i)) find_recurrences(i.body());
        pass::KeptCalls out;
        for (Function* f : order) {  // with what is expanded in them
            uint64_t size = of(*f).size;
            walk(*f->body, [&](Inst& i) {
                if (i.op == Op::call && !out.contains(i.callee())) size += of(*i.callee()).size;
            });
            of(*f).size = size;
            const bool worth_it = all || (size > kTiny && of(*f).callers > 1);
            if (f != &kernel && of(*f).fits && worth_it) out.insert(f);
        }
        return out;
    }
};

// --- their ways

// Gives the copy of a function's region the numbers of its values.
void copy_numbers(const Region& from, const Region& to) {
    for (uint32_t k = 0; k < from.params.size(); ++k) to.params[k]->id = from.params[k]->id;
    const Inst* c = to.first;
    for (const Inst* i = from.first; i; i = i->next, c = c->next) {
        for (int k = 0; k < i->result_count; ++k) c->results[k].id = i->results[k].id;
        for (int k = 0; k < i->region_count; ++k) copy_numbers(*i->regions[k], *c->regions[k]);
    }
}

Function& new_function(Module& m, const Function& f, const char* what) {
    m.owned.push_back(std::make_unique<Function>(f.name + what));
    return *m.owned.back();
}

struct Maker {
    Module& m;
    Storage& storage;
    const Activity& activity;
    const Request& request;
    const GradientUses& uses;
    const std::vector<uint64_t>& written;
    Ways ways;

    // Parameters among the first n that nothing asks for go, but arrays.
    static std::vector<bool> drop_parameters(Function& f, uint32_t n) {
        std::unordered_set<const Value*> used = used_values(*f.body);
        walk(*f.body, [&](Inst& i) {
            if (i.effect() == Effect::check)
                for (int k = 0; k < i.operand_count; ++k) used.insert(i.operand(k));
        });
        std::vector<bool> takes;
        Region::Params& params = f.body->params;
        Builder b{&f, f.body, f.body->first, f.body->first->loc};
        uint32_t kept = 0;
        for (uint32_t k = 0; k < params.size(); ++k) {
            Value* p = params[k];
            const bool takes_it = k >= n || used.contains(p) || !p->type.is_value();
            if (k < n) takes.push_back(takes_it);
            if (takes_it) {
                p->index = kept;
                params.data[kept++] = p;
            } else {
                replace(p, zero(b, p->type));
            }
        }
        params.count = kept;
        return takes;
    }

    void make(Function& f) {
        Way way;
        bool any = false, calls = false;
        walk(*f.body, [&](Inst& i) { calls |= i.op == Op::call && ways.contains(i.callee()); });
        const Inst& last = *f.body->last;
        for (int k = 0; k < last.operand_count; ++k) {
            way.from.push_back(activity.active(last.operand(k)));
            any |= way.from.back();
        }
        for (const Value* p : f.body->params) way.gives.push_back(activity.active(p));
        if (!any && uses.at(&f).writes.empty()) return;

        const auto n = f.body->params.size();
        Function* there = calls ? &copy_function(m, storage, f, "_forward") : nullptr;
        Function& back =
            calls ? new_function(m, f, "_reverse") : copy_function(m, storage, f, "_reverse");
        if (there)
            for (const Value* p : f.body->params) back.add_param(*back.body, p->type);
        std::vector<Value*> seeds;
        for (size_t k = 0; k < way.from.size(); ++k)
            seeds.push_back(way.from[k] ? back.add_param(*back.body, f.result_types[k]) : nullptr);
        Value* top_back = back.add_param(*back.body, type::kI64);
        Value* top = there ? there->add_param(*there->body, type::kI64) : top_back;
        const Iteration of{.m = m,
                           .storage = storage,
                           .request = request,
                           .activity = activity,
                           .ways = ways,
                           .uses = uses,
                           .written = written,
                           .task = 0,
                           .root = there ? *there->body : *back.body,
                           .back = there ? back.body : nullptr,
                           .top = top,
                           .top_back = top_back};
        FunctionEnds ends;
        try {
            ends = sweep_function(of, seeds, way.gives);
        } catch (Refused& r) {
            r.in = &f;
            throw;
        }
        if (there) return_at_end(*there, ends.results);
        return_at_end(back, ends.adjoints);
        way.takes = drop_parameters(back, n);
        way.there = there;
        way.back = &back;
        drop_effects(*f.body, storage, true);
        ways.emplace(&f, std::move(way));
    }
};

}  // namespace

Function& copy_function(Module& m, Storage& storage, Function& f, const char* what) {
    Function& out = new_function(m, f, what);
    {
        const Numbers numbers(*f.body);
        out.body = clone_into(*f.body, out, {});
    }
    copy_numbers(*f.body, *out.body);
    for (uint32_t k = 0; k < f.body->params.size(); ++k)
        storage.alias(out.body->params[k], f.body->params[k]);
    out.result_types = f.result_types;
    return out;
}

void return_at_end(Function& f, std::span<Value* const> values) {
    if (f.body->last && f.body->last->op == Op::return_) f.body->last->remove();
    const Loc* loc = f.body->first ? f.body->first->loc : nullptr;
    Builder{&f, f.body, nullptr, loc}.end(Op::return_, values);
    f.result_types.clear();
    for (const Value* v : values) f.result_types.push_back(v->type);
}

pass::KeptCalls choose_calls(Module& m, const Request& request) {
    if (request.most_records > 0) return {};
    std::vector<Function*> order = pass::callees_first(m);
    for (Function* f : order) {
        bool stops = false;
        walk(*f->body, [&](Inst& i) { stops |= i.op == Op::stop_grad; });
        if (stops) return {};  // a block of a caller may mean loads of a callee
    }
    Storage storage(m, request);
    storage.find_arrays(order);
    const size_t n = order.size();
    return Chooser{m, std::move(order), std::move(storage), std::vector<Facts>(n), {}}.run();
}

Ways make_ways(Module& m, Storage& storage, const Activity& activity, const Request& request,
               const GradientUses& uses, const std::vector<uint64_t>& written) {
    Maker maker{m, storage, activity, request, uses, written, {}};
    for (Function* f : pass::callees_first(m))
        if (f != &m.kernel()) maker.make(*f);
    return std::move(maker.ways);
}

}  // namespace qd::autodiff
