// Random well-typed kernels for comparing the interpreter with passes and backends.

#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ir/ir.h"

namespace qd::test {

struct RandomProgram {
    std::mt19937 random;
    std::unique_ptr<ir::Module> m = std::make_unique<ir::Module>();
    ir::Builder b;
    std::vector<ir::Value*> values;  // visible scalars
    std::vector<ir::Value*> slots;   // visible slots
    int budget = 0;
    int loops = 0;  // around the current point, in this function
    bool is_kernel = false;
    bool parallel = false;   // inside a parallel loop
    bool float_sums = true;  // their order, and so their bits, changes with reductions
    bool groups = false;     // of tasks, too
    int group_depth = 0;
    bool in_checkpoint = false;

    static constexpr type::Prim kPrims[] = {type::Prim::i32, type::Prim::i64, type::Prim::u8,
                                            type::Prim::f32, type::Prim::f64, type::Prim::u1};

    explicit RandomProgram(uint32_t seed) : random(seed) {}
    int below(int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); }
    type::Prim prim() { return kPrims[below(6)]; }

    ir::Value* constant(type::Prim p) {
        if (type::is_float(p)) {
            const double pool[] = {0, 1, -1, 0.5, 2, 3.25, -7.5, 1e10, 1e-3};
            return b.float_const(p, pool[below(9)]);
        }
        const int64_t pool[] = {0, 1, 2, 3, -1, 7, 100, 255, -128};
        return b.int_const(p, pool[below(9)]);
    }
    ir::Value* any(type::Prim p) {
        for (int attempt = 0; attempt < 4 && !values.empty(); ++attempt) {
            ir::Value* v = values[static_cast<size_t>(below(static_cast<int>(values.size())))];
            if (v->type.prim == p) return v;
        }
        if (!values.empty() && below(2)) {
            return keep(
                b.cast(values[static_cast<size_t>(below(static_cast<int>(values.size())))], p));
        }
        return keep(constant(p));
    }
    ir::Value* keep(ir::Value* v) {
        values.push_back(v);
        return v;
    }
    ir::Value* index(int n) {  // 0 <= index < n
        ir::Value* x = b.cast(any(type::Prim::i32), type::Prim::i32);
        return b.op(ir::Op::mod, {x, b.int_const(type::Prim::i32, n)});
    }
    ir::Value* cell(const ir::Field& f) {
        std::vector<ir::Value*> indices;
        for (int k = 0; k < f.ndim; ++k) {
            ir::Value* at = index(static_cast<int>(f.shape[k]));
            if (f.offset[k])
                at = b.op(ir::Op::add, {at, b.int_const(type::Prim::i32, f.offset[k])});
            indices.push_back(at);
        }
        return b.typed(ir::Op::field_place, f.elem.place(), indices, 0, &f);
    }
    const ir::Field& field() {
        return *m->fields[static_cast<size_t>(below(static_cast<int>(m->fields.size())))];
    }
    ir::Value* place(type::Prim& p) {
        if (below(3) == 0) {
            const ir::Field* f = &field();
            ir::Value* at = cell(*f);
            p = f->elem.prim;
            if (f->elem.rank == 0) return at;
            const bool known = below(2) || !f->component_stride();
            ir::Value* operands[] = {
                at, known ? b.int_const(type::Prim::i32, below(f->elem.n)) : index(f->elem.n)};
            return b.typed(ir::Op::comp_place, f->elem.element().place(), operands);
        }
        if (is_kernel && below(3) == 0) {
            ir::Value* a = b.function->body->params[2];
            ir::Value* operands[] = {a, index(16)};
            p = a->type.prim;
            return b.typed(ir::Op::array_place, a->type.place(), operands);
        }
        if (slots.empty()) {
            p = prim();
            ir::Value* s = b.slot(type::Type::scalar(p));
            b.store(s, any(p));
            slots.push_back(s);
            return s;
        }
        ir::Value* s = slots[static_cast<size_t>(below(static_cast<int>(slots.size())))];
        p = s->type.prim;
        if (s->type.rank == 0) return s;
        ir::Value* operands[] = {
            s, below(4) ? b.int_const(type::Prim::i32, below(s->type.n)) : index(s->type.n)};
        return b.typed(ir::Op::comp_place, s->type.value().element().place(), operands);
    }

    // A whole cell, often a vector: read, written, or changed by an atomic.
    void whole_cell() {
        using ir::Op;
        const ir::Field& f = field();
        ir::Value* at = cell(f);
        const type::Prim p = f.elem.prim;
        const auto value = [&] {
            std::vector<ir::Value*> components;
            for (int k = 0; k < f.elem.count(); ++k) components.push_back(any(p));
            return f.elem.rank ? b.typed(Op::build, f.elem, components) : components[0];
        };
        ir::Value* old = nullptr;
        switch (below(4)) {
            case 0:
                return b.store(at, value());
            case 1:
                old = below(4) ? b.load(at) : b.op(Op::volatile_load, {at});
                break;
            default: {
                // Sums of floats may be joined in lanes, which float_sums allows.
                const Op ops[] = {Op::atomic_min, Op::atomic_max, Op::atomic_exchange,
                                  Op::atomic_mul, Op::atomic_add, Op::atomic_sub};
                old = b.op(ops[below(type::is_float(p) && !float_sums ? 3 : 6)], {at, value()});
            }
        }
        if (below(2))
            keep(f.elem.rank
                     ? b.typed(Op::extract, f.elem.element(), {{old}}, uint64_t(f.elem.n - 1))
                     : old);
    }

    void arithmetic() {
        using ir::Op;
        const type::Prim p = prim();
        if (type::is_float(p)) {
            const Op ops[] = {Op::add, Op::sub, Op::mul, Op::div, Op::min, Op::max, Op::floordiv};
            const Op unary[] = {Op::neg, Op::abs, Op::sqrt, Op::floor, Op::round, Op::tanh};
            if (below(4) == 0) {
                keep(b.op(unary[below(6)], {any(p)}));
            } else {
                keep(b.op(ops[below(7)], {any(p), any(p)}));
            }
        } else {
            const Op ops[] = {Op::add,     Op::sub,     Op::mul, Op::floordiv, Op::mod,
                              Op::raw_div, Op::raw_mod, Op::min, Op::max,      Op::bit_and,
                              Op::bit_or,  Op::bit_xor, Op::shl, Op::shr,      Op::lshr};
            const Op unary[] = {Op::neg, Op::abs, Op::bit_not, Op::popcnt, Op::clz};
            if (below(5) == 0) {
                keep(b.op(unary[below(5)], {any(p)}));
            } else {
                keep(b.op(ops[below(15)], {any(p), any(p)}));
            }
        }
    }
    ir::Value* condition() {
        using ir::Op;
        const Op ops[] = {Op::lt, Op::le, Op::gt, Op::ge, Op::eq, Op::ne};
        const type::Prim p = prim();
        return b.op(ops[below(6)], {any(p), any(p)});
    }

    void tensor() {
        const type::Type t = type::Type::vector(type::Prim::f32, 3);
        ir::Value* parts[] = {any(type::Prim::f32), any(type::Prim::f32), any(type::Prim::f32)};
        ir::Value* v = b.typed(ir::Op::build, t, parts);
        if (below(2))
            v = b.op(ir::Op::insert, {v, any(type::Prim::f32)}, static_cast<uint64_t>(below(3)));
        if (below(2)) v = b.op(ir::Op::add, {v, b.splat(any(type::Prim::f32), t)});
        keep(b.op(ir::Op::extract, {v}, static_cast<uint64_t>(below(3))));
        if (below(2)) keep(b.op(ir::Op::extract_dyn, {v, index(3)}));
        if (below(2)) keep(b.op(ir::Op::reduce_add, {v}));
        if (below(3) == 0) {
            ir::Value* s = b.slot(t);
            b.store(s, v);
            slots.push_back(s);
        }
    }

    // Runs `make` with what is visible now; what it adds goes out of sight again.
    template <class Make>
    void scope(ir::Region& r, ir::Op end, Make make) {
        const ir::Builder outer = b;
        const size_t value_count = values.size(), slot_count = slots.size();
        b.region = &r;
        make();
        if (!r.last || ir::info(r.last->op).effect != ir::Effect::terminator) b.end(end);
        b = outer;
        values.resize(value_count);
        slots.resize(slot_count);
    }

    void leave_sometimes() {  // at the end of a branch inside a loop
        if (loops && below(4) == 0)
            b.end(below(2) && !parallel_innermost ? ir::Op::break_ : ir::Op::continue_);
    }
    bool parallel_innermost = false;

    void branch(int depth) {
        ir::Value* c = condition();
        ir::Inst* i = b.emit(ir::Op::if_, {&c, 1}, {}, 2);
        scope(*i->regions[0], ir::Op::yield, [&] { block(depth + 1), leave_sometimes(); });
        scope(*i->regions[1], ir::Op::yield, [&] {
            if (below(2)) block(depth + 1), leave_sometimes();
        });
    }

    void for_loop(int depth, bool in_parallel) {
        std::vector<ir::Value*> bounds;
        const int dims = 1 + below(2);
        for (int k = 0; k < dims; ++k) {
            bounds.push_back(b.int_const(type::Prim::i32, below(3) - 1));
            bounds.push_back(below(2) ? b.int_const(type::Prim::i32, below(6)) : index(5));
        }
        ir::Inst* i = b.emit(ir::Op::for_, bounds, {}, 1);
        i->imm = static_cast<uint64_t>(dims);
        if (in_parallel) {
            m->owned_loops.push_back(std::make_unique<ir::LoopConfig>());
            m->owned_loops.back()->parallel = true;
            i->ref = m->owned_loops.back().get();
        }
        const bool was = parallel_innermost, was_parallel = parallel;
        parallel_innermost = in_parallel;
        parallel |= in_parallel;
        ++loops;
        scope(i->body(), ir::Op::continue_, [&] {
            for (int k = 0; k < dims; ++k) keep(b.function->add_param(i->body(), type::kI32));
            block(depth + 1);
        });
        --loops;
        parallel_innermost = was;
        parallel = was_parallel;
    }

    void while_loop(int depth) {  // counts in a slot, so that it ends
        ir::Value* count = b.slot(type::kI32);
        b.store(count, b.int_const(type::Prim::i32, 0));
        ir::Inst* i = b.emit(ir::Op::loop, {}, {}, 1);
        const bool was = parallel_innermost;
        parallel_innermost = false;
        ++loops;
        scope(i->body(), ir::Op::continue_, [&] {
            ir::Value* n = b.load(count);
            b.store(count, b.op(ir::Op::add, {n, b.int_const(type::Prim::i32, 1)}));
            ir::Value* done = b.op(ir::Op::ge, {n, b.int_const(type::Prim::i32, below(5))});
            ir::Inst* leave = b.emit(ir::Op::if_, {&done, 1}, {}, 2);
            scope(*leave->regions[0], ir::Op::break_, [] {});
            scope(*leave->regions[1], ir::Op::yield, [] {});
            block(depth + 1);
        });
        --loops;
        parallel_innermost = was;
    }

    // What stands in groups may assign variables from outside.
    void group() {
        using ir::Op;
        const Op ops[] = {Op::do_while, Op::sections, Op::stream, Op::checkpoint};
        const Op op = ops[below(in_checkpoint ? 3 : 4)];
        std::vector<ir::Value*> operands;
        if (op == Op::checkpoint) operands.push_back(condition());
        ir::Value* turns = b.slot(type::kI32);
        b.store(turns, b.int_const(type::Prim::i32, 0));
        ir::Inst* i = b.emit(op, operands, {}, 1);
        ++group_depth;
        const bool was = in_checkpoint;
        in_checkpoint |= op == Op::checkpoint;
        scope(i->body(), Op::yield, [&] {
            for (int k = op == Op::sections ? below(3) : 0; k-- > 0;) {
                ir::Inst* section = b.emit(Op::section, {}, {}, 1);
                scope(section->body(), Op::yield, [&] { block(0); });
            }
            if (op == Op::sections) return;
            block(0);
            if (op != Op::do_while) return;
            ir::Value* n = b.op(Op::add, {b.load(turns), b.int_const(type::Prim::i32, 1)});
            b.store(turns, n);
            ir::Value* again = b.op(Op::lt, {n, b.int_const(type::Prim::i32, 1 + below(3))});
            b.end(Op::yield, {&again, 1});
        });
        in_checkpoint = was;
        --group_depth;
    }

    void statement(int depth) {
        type::Prim p;
        switch (below(13)) {
            case 0:
            case 1:
            case 2:
                arithmetic();
                break;
            case 3:
                keep(condition());
                break;
            case 4: {
                ir::Value* c = condition();
                p = prim();
                keep(b.op(ir::Op::select, {c, any(p), any(p)}));
                break;
            }
            case 5:
            case 6: {
                ir::Value* at = place(p);
                b.store(at, any(p));
                break;
            }
            case 7:
            case 8: {
                ir::Value* at = place(p);
                keep(b.load(at));
                break;
            }
            case 9: {
                ir::Value* at = place(p);
                const ir::Op ops[] = {ir::Op::atomic_min, ir::Op::atomic_max,
                                      ir::Op::atomic_exchange, ir::Op::atomic_add};
                ir::Value* old =
                    b.op(ops[below(type::is_float(p) && !float_sums ? 3 : 4)], {at, any(p)});
                if (below(2)) keep(old);
                break;
            }
            case 10:
                if (below(2))
                    tensor();
                else
                    whole_cell();
                break;
            case 11:
                if (below(6) == 0) {
                    keep(b.typed(ir::Op::random,
                                 type::Type::scalar(below(2) ? type::Prim::f32 : type::Prim::i32),
                                 {}));
                } else if (is_kernel && m->functions.size() > 1) {
                    const ir::Function* f =
                        m->functions[1 + static_cast<size_t>(
                                             below(static_cast<int>(m->functions.size()) - 1))];
                    std::vector<ir::Value*> arguments;
                    for (const ir::Value* v : f->body->params)
                        arguments.push_back(any(v->type.prim));
                    ir::Inst* i = b.emit(ir::Op::call, arguments, f->result_types);
                    i->ref = f;
                    for (ir::Value& v : i->result_values()) keep(&v);
                }
                break;
            default:
                if (depth > 3) break;
                if (below(2)) {
                    branch(depth);
                } else if (below(2)) {
                    for_loop(depth, false);
                } else {
                    while_loop(depth);
                }
        }
    }
    void block(int depth) {
        const int n = 2 + below(depth ? 6 : 12);
        for (int k = 0; k < n && budget > 0; ++k, --budget) {
            if (is_kernel && depth == 0 && groups && group_depth < 3 && below(5) == 0) {
                group();
            } else if (is_kernel && depth == 0 && below(4) == 0) {
                for_loop(0, true);
            } else {
                statement(depth);
            }
        }
    }

    void fields() {
        const auto add = [&](const char* name, type::Type elem, int ndim,
                             uint64_t group) -> ir::Field& {
            m->owned_fields.push_back(std::make_unique<ir::Field>());
            ir::Field& f = *m->owned_fields.back();
            f.name = name;
            f.elem = elem;
            f.ndim = ndim;
            f.alias_group = group;
            int64_t stride = elem.size_bytes();
            for (int k = ndim - 1; k >= 0; --k) {
                f.shape[k] = 3 + k;
                f.terms.push_back({k, 1, 0, stride});
                stride *= f.shape[k];
            }
            if (elem.rank) {
                for (int k = 0; k < elem.n; ++k)
                    f.component_offsets.push_back(k * type::bytes(elem.prim));
            }
            m->fields.push_back(&f);
            return f;
        };
        add("a", type::kI32, 1, 1);
        add("b", type::kF32, 2, 2);
        add("v", type::Type::vector(type::Prim::f32, 3), 1, 3);
        add("c", type::Type::scalar(type::Prim::i64), 0, 4);
        // Components behind each other, cells in tiles of four, and components in cells of their
        // own.
        add("apart", type::Type::vector(type::Prim::i32, 2), 1, 5).component_offsets = {4, 40};
        m->owned_fields.back()->terms[0].stride = 4;
        ir::Field& tiles = add("tiles", type::kI32, 1, 6);
        tiles.shape[0] = 7;
        tiles.offset[0] = -2;
        tiles.terms = {{0, 4, 0, 32}, {0, 1, 4, 8}};
        ir::Field& uneven = add("uneven", type::Type::vector(type::Prim::f32, 2), 1, 7);
        uneven.terms = {{0, 1, 0, 4}};
        uneven.uneven_terms = {{{0, 1, 0, 4}}, {{0, 3, 0, 24}, {0, 1, 3, 8}}};
        uneven.component_offsets = {0, 64};
    }

    std::unique_ptr<ir::Module> make() {
        m->name = "random";
        m->options.fast_math = false;
        fields();
        m->owned.push_back(std::make_unique<ir::Function>("kernel"));
        m->functions.push_back(m->owned[0].get());
        for (int k = 0; k < 2; ++k) {
            m->owned.push_back(std::make_unique<ir::Function>("f" + std::to_string(k)));
            ir::Function& f = *m->owned.back();
            values.clear(), slots.clear();
            b = {&f, f.body};
            for (int a = below(4); a > 0; --a)
                keep(f.add_param(*f.body, type::Type::scalar(prim())));
            budget = 10;
            block(1);
            for (int r = below(3); r > 0; --r) f.result_types.push_back(type::Type::scalar(prim()));
            std::vector<ir::Value*> results;
            for (const type::Type t : f.result_types) results.push_back(any(t.prim));
            b.end(ir::Op::return_, results);
            m->functions.push_back(&f);
        }
        ir::Function& kernel = m->kernel();
        values.clear(), slots.clear();
        b = {&kernel, kernel.body};
        is_kernel = true;
        const type::Type params[] = {type::kI32, type::kF32, type::Type::array(type::kF32, 1)};
        for (const type::Type t : params) m->params.push_back({t, 0, false, "p"});
        ir::lay_out_params(*m);
        keep(kernel.add_param(*kernel.body, params[0]));
        keep(kernel.add_param(*kernel.body, params[1]));
        kernel.add_param(*kernel.body, params[2]);
        m->results = {type::kI32, type::kF32};
        budget = 60;
        block(0);
        b.op(ir::Op::set_result, {any(type::Prim::i32)}, 0);
        b.op(ir::Op::set_result, {any(type::Prim::f32)}, 1);
        b.end(ir::Op::return_);
        return std::move(m);
    }
};

}  // namespace qd::test
