// Forward mode: beside each value that follows small changes stands its tangent.
//
// Tangents that branches hand on or loops carry are variables, which pass `promote` turns into what
// they hand on and carry. A store replaces a tangent in storage, an addition adds to it.
//
// Needs: pass::straighten. Cost: O(instructions).

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "autodiff/calls.h"

namespace qd::autodiff {
namespace {

// A function that stays one, with tangents of those parameters and results.
struct WithTangents {
    Function* function;
    std::vector<bool> takes, gives;
};
using Functions = std::unordered_map<const Function*, WithTangents>;

struct Tangents {
    Function& f;
    const Storage& storage;
    const Activity& activity;
    const Functions& functions;
    std::unordered_map<const Value*, Value*> of = {};

    Value* get(Builder& b, Value* v) {
        const auto at = of.find(resolve(v));
        return at == of.end() ? zero(b, v->type) : at->second;
    }
    bool varied(const Value* v) const { return activity.varied(v); }

    static Builder behind(Inst& i) { return {i.parent->function, i.parent, i.next, i.loc}; }

    Value* companion(Builder& b, Value* place) {
        return storage.companion(b, place, [](Value* v) { return resolve(v); });
    }

    void elementwise(Builder& b, Inst& i) {
        Value* sum = nullptr;
        for (int k = 0; k < i.operand_count; ++k) {
            if (!carries(i, k) || !varied(i.operand(k))) continue;
            Value* t = get(b, i.operand(k));
            Value* part;
            if (i.op == Op::cast) {
                part = b.cast(t, i.result()->type.prim);
            } else {
                Formulas formulas(b);
                Value* x[2] = {};
                for (int n = 0; n < 2 && n < i.operand_count; ++n) x[n] = i.operand(n);
                Derivative<Formulas> d{formulas, t, x[0], x[1], i.result()};
                part = derivative(i.op, d, k);
            }
            sum = sum ? b.op(Op::add, {sum, part}) : part;
        }
        of[i.result()] = sum;
    }

    void tensor(Builder& b, Inst& i) {
        if (i.op == Op::matmul) {
            Value* sum = nullptr;
            for (int k = 0; k < 2; ++k) {
                if (!varied(i.operand(k))) continue;
                Value* operands[] = {i.operand(0), i.operand(1)};
                operands[k] = get(b, i.operand(k));
                Value* part = b.typed(Op::matmul, i.result()->type, operands);
                sum = sum ? b.op(Op::add, {sum, part}) : part;
            }
            of[i.result()] = sum;
            return;
        }
        // The others are linear: the same is done to the tangents.
        std::vector<Value*> operands;
        for (int k = 0; k < i.operand_count; ++k)
            operands.push_back(is_float(i.operand(k)->type) ? get(b, i.operand(k)) : i.operand(k));
        of[i.result()] = b.typed(i.op, i.result()->type, operands, i.imm, i.ref);
    }

    void memory(Inst& i) {
        Builder b = behind(i);
        if (!storage.has(i.operand(0))) return;
        switch (i.op) {
            case Op::load:
            case Op::volatile_load:
                if (varied(i.result())) of[i.result()] = b.load(companion(b, i.operand(0)));
                return;
            case Op::store:
                b.store(companion(b, i.operand(0)), get(b, i.operand(1)));
                return;
            case Op::atomic_add:
            case Op::atomic_sub: {
                Value* place = companion(b, i.operand(0));
                Value* old = b.op(i.op, {place, get(b, i.operand(1))});
                of[i.result()] = old;
                return;
            }
            default:
                refuse(std::string("Not supported. The derivative of ") + info(i.op).name +
                           ", of a place that has a dual",
                       i);
        }
    }

    // Places for the tangents of varied ones among the results.
    std::vector<Value*> places(Builder& b, Inst& i, uint32_t first_param) {
        std::vector<Value*> out(i.result_count);
        for (int k = 0; k < i.result_count; ++k) {
            const bool carried =
                i.is_loop() && varied(i.body().params[first_param + static_cast<uint32_t>(k)]);
            if (varied(i.result(k)) || carried)
                out[static_cast<size_t>(k)] = b.slot(i.result(k)->type);
        }
        return out;
    }
    void hand_on(Inst& end, const std::vector<Value*>& to) {
        Inst& last = end.op == Op::yield ? end : end_of_iteration(*end.parent->owner);
        Builder b{&f, end.parent, &last, end.loc};
        std::vector<Value*> values(to.size());
        for (size_t k = 0; k < to.size(); ++k)
            if (to[k]) values[k] = get(b, end.operand(static_cast<int>(k)));
        for (size_t k = 0; k < to.size(); ++k)
            if (to[k]) b.store(to[k], values[k]);
    }
    void take(Inst& i, const std::vector<Value*>& from) {
        Builder b = behind(i);
        for (size_t k = 0; k < from.size(); ++k)
            if (from[k]) of[i.result(static_cast<int>(k))] = b.load(from[k]);
    }

    void branch(Inst& i) {
        Builder b{&f, i.parent, &i, i.loc};
        const std::vector<Value*> to = places(b, i, 0);
        for (Region* r : i.region_list()) {
            region(*r);
            if (r->last->op == Op::yield) hand_on(*r->last, to);
        }
        take(i, to);
    }

    void loop(Inst& i) {
        Builder b{&f, i.parent, &i, i.loc};
        const uint32_t n = dimensions(i);
        const std::vector<Value*> to = places(b, i, n);
        for (size_t k = 0; k < to.size(); ++k)
            if (to[k]) b.store(to[k], get(b, i.operand(static_cast<int>(2 * n + k))));
        Region& body = i.body();
        Builder in{&f, &body, body.first, i.loc};
        for (size_t k = 0; k < to.size(); ++k)
            if (to[k]) of[body.params[n + static_cast<uint32_t>(k)]] = in.load(to[k]);
        region(body);
        hand_on(*body.last, to);
        take(i, to);
    }

    void call(Inst& i) {
        const auto at = functions.find(i.callee());
        if (at == functions.end()) return;
        const WithTangents& to = at->second;
        Builder b{&f, i.parent, &i, i.loc};
        std::vector<Value*> operands;
        std::vector<Type> types;
        for (int k = 0; k < i.operand_count; ++k) operands.push_back(i.operand(k));
        for (int k = 0; k < i.operand_count; ++k)
            if (to.takes[static_cast<size_t>(k)]) operands.push_back(get(b, i.operand(k)));
        for (const Value& v : i.result_values()) types.push_back(v.type);
        for (int k = 0; k < i.result_count; ++k)
            if (to.gives[static_cast<size_t>(k)]) types.push_back(i.result(k)->type);
        Inst* now = b.emit(Op::call, operands, types);
        now->ref = to.function;
        int next = i.result_count;
        for (int k = 0; k < i.result_count; ++k) {
            now->result(k)->id = i.result(k)->id;
            if (to.gives[static_cast<size_t>(k)]) of[now->result(k)] = now->result(next++);
            replace(i.result(k), now->result(k));
        }
        i.remove();
    }

    void region(Region& r) {
        std::vector<Inst*> list;
        for (Inst* i = r.first; i; i = i->next) list.push_back(i);
        for (Inst* i : list) {
            const Kind kind = info(i->op).kind;
            if (i->op == Op::if_) {
                branch(*i);
            } else if (i->is_loop()) {
                loop(*i);
            } else if (i->op == Op::call) {
                call(*i);
            } else if (i->op == Op::load || i->op == Op::store || i->effect() == Effect::atomic) {
                memory(*i);
            } else if (i->result_count && varied(i->result())) {
                Builder b = behind(*i);
                kind == Kind::tensor ? tensor(b, *i) : elementwise(b, *i);
            }
        }
    }
};

// Variables of the kernel that stayed ones, of those that follow small changes: storage beside
// which others are for the tangents. Its outermost loops share them, or did until their stores
// folded away.
std::vector<Inst*> kept_variables(const Function& kernel, const Activity& activity) {
    std::unordered_set<const Inst*> varied;
    std::vector<Inst*> out;
    walk(*kernel.body, [&](Inst& i) {
        if (i.operand_count > 1 && i.operand(0)->type.is_place() && activity.varied(i.operand(1)))
            varied.insert(root_of_place(i.operand(0))->def);
    });
    walk(*kernel.body, [&](Inst& i) {
        if (i.op == Op::slot && varied.contains(&i)) out.push_back(&i);
    });
    return out;
}

void check(const Module& m, const Activity& activity) {
    for (const Param& p : m.params)
        if (p.type.is_array())
            throw Refused{{"ndarrays are not supported in forward mode: parameter '" + p.name +
                               "' is one. Use fields",
                           nullptr}};
    for (Function* f : m.functions)
        walk(*f->body, [&](Inst& i) {
            if ((i.op == Op::floor || i.op == Op::ceil) && activity.varied(i.operand(0)))
                refuse(std::string("Not supported. The derivative of ") + info(i.op).name +
                           " in forward mode",
                       i);
        });
    activity.check_smooth();
}

// Whether tangents pass through a function, or it touches storage that has some.
bool concerns(const Function& f, const Storage& storage, const Activity& activity,
              const Functions& functions) {
    bool yes = false;
    for (const Value* p : f.body->params) yes |= activity.varied(p);
    walk(*f.body, [&](Inst& i) {
        yes |= i.operand_count && i.operand(0)->type.is_place() && storage.has(i.operand(0));
        yes |= i.op == Op::call && functions.contains(i.callee());
    });
    return yes;
}

WithTangents with_tangents(Module& m, Storage& storage, const Activity& activity,
                           const Functions& functions, Function& from) {
    Function& f = copy_function(m, storage, from, "_tangents");
    WithTangents out{&f, {}, {}};
    Tangents t{f, storage, activity, functions};
    const uint32_t n = f.body->params.size();
    for (uint32_t k = 0; k < n; ++k) {
        Value* p = f.body->params[k];
        out.takes.push_back(activity.varied(p));
        if (out.takes.back()) t.of[p] = f.add_param(*f.body, p->type);
    }
    t.region(*f.body);
    Inst& last = *f.body->last;
    Builder b{&f, f.body, &last, last.loc};
    std::vector<Value*> results, tangents;
    for (int k = 0; k < last.operand_count; ++k) {
        Value* v = last.operand(k);
        results.push_back(v);
        out.gives.push_back(activity.varied(v));
        if (out.gives.back()) tangents.push_back(t.get(b, v));
    }
    results.insert(results.end(), tangents.begin(), tangents.end());
    return_at_end(f, results);
    return out;
}

}  // namespace

void forward(Module& m, const Request& request) {
    const std::vector<Function*> order = pass::callees_first(m);
    Storage storage(m, request);
    storage.find_arrays(order);
    // What is read from such a variable may make others follow small changes.
    std::optional<Activity> found(std::in_place, order, storage);
    while (storage.add_variables(kept_variables(m.kernel(), *found))) found.emplace(order, storage);
    const Activity& activity = *found;
    check(m, activity);
    Functions functions;
    for (Function* f : order)
        if (f != &m.kernel() && concerns(*f, storage, activity, functions))
            functions.emplace(f, with_tangents(m, storage, activity, functions, *f));
    Tangents{m.kernel(), storage, activity, functions}.region(*m.kernel().body);
}

}  // namespace qd::autodiff
