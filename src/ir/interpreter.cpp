// The interpreter: a frame of 64-bit cells per call, one cell a scalar.
//
// A place takes two cells: address, and the field that knows its component offsets (or null); an
// array handle is the address of its descriptor.

#include "ir/interpreter.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "ir/fold.h"
#include "ir/random.h"
#include "support/error.h"

namespace qd::ir {
namespace {

enum class Flow { next, yield, again, leave, done };

struct Stopped {};  // a check failed

uint64_t load_scalar(Prim p, const uint8_t* at) {
    uint64_t bits = 0;
    std::memcpy(&bits, at, static_cast<size_t>(type::bytes(p)));
    return p == Prim::u1 ? bits != 0 : bits;
}
void store_scalar(Prim p, uint8_t* at, uint64_t bits) {
    std::memcpy(at, &bits, static_cast<size_t>(type::bytes(p)));
}

uint32_t cells_of(Type t) {
    return t.is_place() ? 2 : t.is_array() ? 1 : static_cast<uint32_t>(t.count());
}

struct Layout {  // of one function's frame
    uint32_t cells = 0;
    uint32_t slot_bytes = 0;
    std::unordered_map<const Inst*, uint32_t> slots;
};

constexpr uint64_t kStopSteps = 1 << 16;

struct Interpreter {
    const Module& m;
    const abi::Context& context;
    abi::Thread& thread;
    InterpretOptions options;
    int64_t begin = 0, end = 0, chunk = 0;
    std::unordered_map<const Function*, Layout> layouts;
    std::unordered_map<const Format*, uint32_t> format_numbers;
    uint64_t steps = 0;
    int depth = 0;

    // Random numbers of the kernel (ir/random.h): where those of a top-level loop or group begin,
    // and those behind it.
    struct Stretch {
        uint64_t loops = 0;   // parallel ones before it
        uint64_t number = 0;  // since the last of them
    };
    struct Streams {
        Stretch inside, behind;
    };
    std::unordered_map<const Inst*, Streams> streams;
    uint64_t launch_key = context.launch_key;

    Stretch number_streams(const Region& r, Stretch now) {
        for (const Inst& i : r) {
            const Stretch inside = {now.loops, now.number + 1};
            if (i.is_group()) {
                now = number_streams(i.body(), inside);
                ++now.number;
            } else if (is_parallel(i)) {
                now = {now.loops + 1, 0};
            } else {
                continue;
            }
            streams[&i] = {inside, now};
        }
        return now;
    }
    static bool is_parallel(const Inst& i) {
        return i.op == Op::for_ && i.loop_config() && i.loop_config()->parallel;
    }
    void begin_stretch(Stretch s) { seed(2 * s.loops, s.number); }

    struct Frame {
        const Layout& layout;
        std::vector<uint64_t> cells;
        std::vector<uint8_t> slots;
        std::vector<uint64_t> passed;  // values of the last terminator
        const Function& function;
    };

    void lay_out(Layout& l, const Region& r) {
        const auto place = [&](Value& v) {
            v.id = l.cells;
            l.cells += cells_of(v.type);
        };
        for (Value* p : r.params) place(*p);
        for (Inst* i = r.first; i; i = i->next) {
            for (Value& v : i->result_values()) place(v);
            if (i->op == Op::slot) {
                l.slot_bytes = (l.slot_bytes + 7) & ~7u;
                l.slots[i] = l.slot_bytes;
                l.slot_bytes += static_cast<uint32_t>(i->results[0].type.size_bytes());
            }
            for (Region* c : i->region_list()) lay_out(l, *c);
        }
    }
    const Layout& layout(const Function& f) {
        const auto [found, fresh] = layouts.try_emplace(&f);
        if (fresh) lay_out(found->second, *f.body);
        return found->second;
    }

    // --- access
    static uint64_t* at(Frame& f, const Value* v) { return f.cells.data() + v->id; }
    static uint64_t* in(Frame& f, const Inst& i, int k) { return at(f, i.operand(k)); }
    static uint64_t* out(Frame& f, const Inst& i) { return at(f, i.results); }
    static int64_t integer(Frame& f, const Inst& i, int k) {
        const Value* v = i.operand(k);
        return int_of_bits(v->type.prim, *at(f, v));
    }

    static void set_place(uint64_t* cells, uint8_t* address, const Field* field) {
        cells[0] = reinterpret_cast<uint64_t>(address);
        cells[1] = reinterpret_cast<uint64_t>(field);
    }
    static uint8_t* component(const uint64_t* place, Prim p, int64_t k) {
        uint8_t* base = reinterpret_cast<uint8_t*>(place[0]);
        const auto* field = reinterpret_cast<const Field*>(place[1]);
        if (!field || field->component_offsets.empty()) return base + k * type::bytes(p);
        const auto& offsets = field->component_offsets;
        if (k >= 0 && k < static_cast<int64_t>(offsets.size()))
            return base + offsets[static_cast<size_t>(k)];
        return base + offsets[0] + k * field->component_stride();
    }
    uint8_t* component(Frame& f, const Inst& i, int64_t k) {
        const Inst* place = i.operand(0)->def;
        if (place && place->op == Op::field_place && !place->field()->uneven_terms.empty()) {
            const auto c = std::clamp<int64_t>(k, 0, i.operand(0)->type.count() - 1);
            return field_cell(f, *place, static_cast<int>(c)) +
                   place->field()->component_offsets[static_cast<size_t>(c)];
        }
        return component(in(f, i, 0), i.operand(0)->type.prim, k);
    }

    void* binding(const Field& field) const {
        const auto at = std::ranges::find(m.fields, &field);
        if (at == m.fields.end()) throw support::Error("field not in the module: " + field.name);
        return context.bindings[at - m.fields.begin()];
    }

    uint8_t* field_cell(Frame& f, const Inst& i, int component) {
        const Field& field = *i.field();
        auto* address = static_cast<uint8_t*>(binding(field));
        for (const Field::Term& t : field.terms_of(component)) {
            int64_t v = (integer(f, i, t.axis) - field.offset[t.axis]) / t.div;
            if (t.mod) v %= t.mod;
            address += v * t.stride;
        }
        return address;
    }

    static uint8_t* array_data(Frame& f, const Inst& i, bool grad) {
        ArrayDesc d;
        std::memcpy(&d, reinterpret_cast<const uint8_t*>(*in(f, i, 0)), sizeof d);
        return static_cast<uint8_t*>(grad ? d.grad : d.data);
    }
    static int32_t array_extent(Frame& f, const Inst& i, int axis) {
        const auto* desc = reinterpret_cast<const uint8_t*>(*in(f, i, 0));
        int32_t extent;
        std::memcpy(&extent, desc + sizeof(ArrayDesc) + 4 * axis, 4);
        return extent;
    }

    static uint8_t* array_cell(Frame& f, const Inst& i) {
        const ArrayAccess access = ArrayAccess::unpack(i.imm);
        const int ndim = i.operand_count - 1;
        int64_t linear = 0;
        for (int level = 0; level < ndim; ++level) {
            const int axis =
                access.layout ? static_cast<int>(access.layout >> (4 * level) & 15) : level;
            const int32_t extent = array_extent(f, i, axis);
            int64_t x = integer(f, i, 1 + axis);
            if (access.clamp) x = std::max<int64_t>(std::min<int64_t>(x, extent - 1), 0);
            linear = linear * extent + x;
        }
        return array_data(f, i, access.grad) + linear * i.results[0].type.size_bytes();
    }

    uint8_t* partial_cell(Frame& f, const Inst& i) {
        const auto stride = static_cast<int64_t>(i.imm >> 32);
        return context.partials + integer(f, i, 0) * stride + (i.imm & 0xffffffff);
    }
    uint8_t* displaced_cell(Frame& f, const Inst& i) {
        const auto by = static_cast<int64_t>(i.imm);
        const int64_t n = i.operand_count > 1 ? integer(f, i, 1) : 1;
        return component(f, i, 0) + n * by;
    }
    uint8_t* thread_word(uint64_t which) {
        uint64_t* const words[] = {&thread.random_key, &thread.random_draw};
        return reinterpret_cast<uint8_t*>(words[which]);
    }

    uint64_t random(Prim p) {
        const uint64_t r = random_bits(thread.random_key, thread.random_draw++);
        switch (p) {
            case Prim::u1:
                return r >> 63;
            case Prim::f32:
                return bits_of_double(p, static_cast<double>(r >> 40) * 0x1p-24);
            case Prim::f64:
                return bits_of_double(p, static_cast<double>(r >> 11) * 0x1p-53);
            case Prim::f16:
                return bits_of_double(p, static_cast<double>(r >> 40) * 0x1p-24);
            case Prim::i64:
            case Prim::u64:
                return r;
            default:
                return r >> 32 & ((uint64_t(1) << type::bits(p)) - 1);
        }
    }
    void seed(uint64_t stream, uint64_t iteration) {
        thread.random_key = random_key(launch_key, stream, iteration);
        thread.random_draw = 0;
    }

    uint64_t task_value(uint64_t which) const {
        const int64_t values[] = {begin, end, chunk, thread.tile, thread.tiles};
        const auto bound = static_cast<uint64_t>(TaskValue::bound);
        if (which < bound) return static_cast<uint64_t>(values[which]);
        if (which == static_cast<uint64_t>(TaskValue::launch_key)) return context.launch_key;
        if (which == static_cast<uint64_t>(TaskValue::alone))
            return static_cast<uint64_t>(thread.alone);
        if (which == static_cast<uint64_t>(TaskValue::in_block))
            return static_cast<uint64_t>(begin % options.block_dim);
        return static_cast<uint64_t>(context.bounds[which - bound]);
    }

    std::vector<abi::Cell> cells_for_format(Frame& f, const Inst& i, int from) {
        std::vector<abi::Cell> cells;
        for (int k = from; k < i.operand_count; ++k) {
            const Value* v = i.operand(k);
            for (int c = 0; c < v->type.count(); ++c) {
                abi::Cell cell;
                const uint64_t bits = at(f, v)[c];
                if (type::is_float(v->type.prim)) {
                    cell.f = double_of_bits(v->type.prim, bits);
                } else {
                    cell.i = int_of_bits(v->type.prim, bits);
                }
                cells.push_back(cell);
            }
        }
        return cells;
    }

    // --- instructions
    void element_wise(Frame& f, const Inst& i) {
        const Type t = i.results[0].type;
        Scalar operands[3];
        uint64_t* result = out(f, i);
        for (int c = 0; c < t.count(); ++c) {
            for (int k = 0; k < i.operand_count; ++k) {
                const Value* v = i.operand(k);
                operands[k] = {v->type.prim, at(f, v)[v->type.is_scalar() ? 0 : c]};
            }
            result[c] = fold(i.op, t.prim, {operands, i.operand_count}, options.fused);
        }
    }
    uint64_t binary(Op op, Prim p, uint64_t a, uint64_t b) const {
        const Scalar operands[] = {{p, a}, {p, b}};
        return fold(op, p, operands, options.fused);
    }

    void reduce(Frame& f, const Inst& i) {
        const Op step = info(i.op).step;
        const Type t = i.operand(0)->type;
        const uint64_t* x = in(f, i, 0);
        uint64_t v = x[0];
        for (int k = 1; k < t.count(); ++k) v = binary(step, t.prim, v, x[k]);
        *out(f, i) = v;
    }

    static void extract_dynamic(Frame& f, const Inst& i) {
        const int64_t k = integer(f, i, 1);
        const bool inside = k >= 0 && k < i.operand(0)->type.count();
        *out(f, i) = inside ? in(f, i, 0)[k] : 0;
    }
    static void insert(Frame& f, const Inst& i, int64_t k) {
        const int count = i.results[0].type.count();
        for (int c = 0; c < count; ++c) out(f, i)[c] = c == k ? *in(f, i, 1) : in(f, i, 0)[c];
    }
    static void transpose(Frame& f, const Inst& i) {
        const Type t = i.results[0].type;
        for (int r = 0; r < t.n; ++r) {
            for (int c = 0; c < t.m; ++c) out(f, i)[r * t.m + c] = in(f, i, 0)[c * t.n + r];
        }
    }

    void matmul(Frame& f, const Inst& i) {
        const Type a = i.operand(0)->type, b = i.operand(1)->type;
        const uint64_t *x = in(f, i, 0), *y = in(f, i, 1);
        uint64_t* result = out(f, i);
        for (int r = 0; r < a.n; ++r) {
            for (int c = 0; c < b.m; ++c) {
                uint64_t v = binary(Op::mul, a.prim, x[r * a.m], y[c]);
                for (int k = 1; k < a.m; ++k) {
                    const uint64_t p = x[r * a.m + k], q = y[k * b.m + c];
                    if (i.imm == kFusedProducts) {
                        const Scalar of[] = {{a.prim, p}, {a.prim, q}, {a.prim, v}};
                        v = fold(Op::fma, a.prim, of, options.fused);
                    } else {
                        v = binary(Op::add, a.prim, v, binary(Op::mul, a.prim, p, q));
                    }
                }
                result[r * b.m + c] = v;
            }
        }
    }

    void load(Frame& f, const Inst& i) {
        const Type t = i.results[0].type;
        for (int k = 0; k < t.count(); ++k) out(f, i)[k] = load_scalar(t.prim, component(f, i, k));
    }
    void store(Frame& f, const Inst& i) {
        const Type t = i.operand(1)->type;
        for (int k = 0; k < t.count(); ++k)
            store_scalar(t.prim, component(f, i, k), in(f, i, 1)[k]);
    }
    void set_result(Frame& f, const Inst& i) {
        const Type t = m.results[i.imm];
        uint8_t* base = context.results + m.result_offset(static_cast<int>(i.imm));
        for (int k = 0; k < t.count(); ++k)
            store_scalar(t.prim, base + k * type::bytes(t.prim), in(f, i, 0)[k]);
    }

    void print(Frame& f, const Inst& i) {
        const auto cells = cells_for_format(f, i, 0);
        context.runtime->print(&thread, format_numbers.at(i.format()), cells.data());
    }
    [[noreturn]] void fail(Frame& f, const Inst& i) {
        const auto cells = cells_for_format(f, i, 1);
        context.runtime->fail(&thread, format_numbers.at(i.format()), cells.data());
        throw Stopped{};
    }

    void atomic(Frame& f, const Inst& i) {
        const Type t = i.operand(0)->type;
        const uint64_t* v = in(f, i, 1);
        uint64_t* result = out(f, i);
        for (int k = 0; k < t.count(); ++k) {
            uint8_t* address = component(f, i, k);
            const uint64_t old = load_scalar(t.prim, address);
            uint64_t next = old;
            if (i.op == Op::atomic_exchange)
                next = v[k];
            else if (i.op == Op::atomic_cas)
                next = old == v[k] ? in(f, i, 2)[k] : old;
            else
                next = binary(info(i.op).step, t.prim, old, v[k]);
            store_scalar(t.prim, address, next);
            result[k] = old;
        }
    }

    void pass_values(Frame& f, const Inst& i, int from = 0) {
        f.passed.clear();
        for (int k = from; k < i.operand_count; ++k) {
            const Value* v = i.operand(k);
            f.passed.insert(f.passed.end(), at(f, v), at(f, v) + cells_of(v->type));
        }
    }
    template <class Values>
    static void receive(Frame& f, const Values& values) {
        size_t at_cell = 0;
        for (const Value* v : values) {
            for (uint32_t c = 0; c < cells_of(v->type); ++c) at(f, v)[c] = f.passed[at_cell++];
        }
    }
    Flow end_region(Frame& f, const Inst& i, Flow flow) {
        pass_values(f, i);
        return flow;
    }
    static std::vector<Value*> results_of(const Inst& i) {
        std::vector<Value*> list;
        for (int k = 0; k < i.result_count; ++k) list.push_back(i.result(k));
        return list;
    }

    Flow run_if(Frame& f, const Inst& i) {
        const Flow flow = region(f, *i.regions[*in(f, i, 0) ? 0 : 1]);
        if (flow != Flow::yield) return flow;
        receive(f, results_of(i));
        return Flow::next;
    }

    Flow run_loop(Frame& f, const Inst& i) {
        pass_values(f, i);
        for (;;) {
            receive(f, i.body().params);
            const Flow flow = region(f, i.body());
            if (flow == Flow::done) return flow;
            if (flow == Flow::leave) break;
        }
        receive(f, results_of(i));
        return Flow::next;
    }

    Flow run_for(Frame& f, const Inst& i) {
        const int dims = static_cast<int>(i.imm);
        const Prim p = i.operand(0)->type.prim;
        std::vector<int64_t> low, high, x;
        bool empty = false;
        for (int k = 0; k < dims; ++k) {
            low.push_back(integer(f, i, 2 * k));
            high.push_back(integer(f, i, 2 * k + 1));
            empty |= low[static_cast<size_t>(k)] >= high[static_cast<size_t>(k)];
        }
        x = low;
        pass_values(f, i, 2 * dims);
        const auto known = streams.find(&i);
        const bool parallel = known != streams.end();
        const uint64_t stream = parallel ? 2 * known->second.inside.loops + 1 : 0;
        std::vector<Value*> carried(i.body().params.begin() + dims, i.body().params.end());
        const uint64_t mask = type::bits(p) == 64 ? ~uint64_t(0) : 0xffffffff;
        for (uint64_t iteration = 0; !empty; ++iteration) {
            if (parallel) seed(stream, iteration);
            receive(f, carried);
            for (int k = 0; k < dims; ++k) {
                *at(f, i.body().params[static_cast<uint32_t>(k)]) =
                    static_cast<uint64_t>(x[static_cast<size_t>(k)]) & mask;
            }
            const Flow flow = region(f, i.body());
            if (flow == Flow::done) return flow;
            if (flow == Flow::leave) break;
            int k = dims - 1;
            while (k >= 0 && ++x[static_cast<size_t>(k)] >= high[static_cast<size_t>(k)]) {
                x[static_cast<size_t>(k)] = low[static_cast<size_t>(k)];
                --k;
            }
            if (k < 0) break;
        }
        receive(f, results_of(i));
        if (parallel) begin_stretch(known->second.behind);
        return Flow::next;
    }

    Flow run_group(Frame& f, const Inst& i) {
        const Streams& s = streams.at(&i);
        bool again = i.operand_count == 0 || *in(f, i, 0);
        while (again) {
            begin_stretch(s.inside);
            const Flow flow = region(f, i.body());
            if (flow == Flow::done) return flow;
            again = info(i.op).repeats && f.passed[0];
            if (again) launch_key = abi::key_of_next_turn(launch_key);
        }
        begin_stretch(s.behind);
        return Flow::next;
    }

    void call(Frame& f, const Inst& i) {
        if (++depth > 1000) throw support::Error("calls nested too deeply");
        pass_values(f, i);
        const Function& callee = *i.callee();
        Frame inner{layout(callee), {}, {}, {}, callee};
        inner.passed = f.passed;
        run(inner);
        f.passed = std::move(inner.passed);
        receive(f, results_of(i));
        --depth;
    }

    void count_step() {
        ++steps;
        if (options.max_steps && steps > options.max_steps) throw support::Error("too many steps");
        if (options.stop && steps % kStopSteps == 0 && options.stop()) throw Stopped{};
    }

    // Longer than a page because it is the table of the ops, a case each: one jump finds any of
    // them, and a second switch would be a second jump an instruction.
    Flow inst(Frame& f, const Inst& i) {
        count_step();
        if (info(i.op).kind == Kind::elementwise) {
            element_wise(f, i);
            return Flow::next;
        }
        if (info(i.op).kind == Kind::atomic) {
            atomic(f, i);
            return Flow::next;
        }
        switch (i.op) {
            case Op::constant:
                *out(f, i) = i.imm;
                break;
            case Op::splat:
                for (int k = 0; k < i.results[0].type.count(); ++k) out(f, i)[k] = *in(f, i, 0);
                break;
            case Op::build:
                for (int k = 0; k < i.operand_count; ++k) out(f, i)[k] = *in(f, i, k);
                break;
            case Op::extract:
                *out(f, i) = in(f, i, 0)[i.imm];
                break;
            case Op::extract_dyn:
                extract_dynamic(f, i);
                break;
            case Op::insert:
                insert(f, i, static_cast<int64_t>(i.imm));
                break;
            case Op::insert_dyn:
                insert(f, i, integer(f, i, 2));
                break;
            case Op::matmul:
                matmul(f, i);
                break;
            case Op::transpose:
                transpose(f, i);
                break;
            case Op::reduce_add:
            case Op::reduce_mul:
            case Op::reduce_min:
            case Op::reduce_max:
            case Op::reduce_and:
            case Op::reduce_or:
                reduce(f, i);
                break;
            case Op::slot:
                set_place(out(f, i), f.slots.data() + f.layout.slots.at(&i), nullptr);
                break;
            case Op::temp:
                set_place(out(f, i), context.temps + i.imm, nullptr);
                break;
            case Op::partial:
                set_place(out(f, i), partial_cell(f, i), nullptr);
                break;
            case Op::field_base:
                set_place(out(f, i), static_cast<uint8_t*>(binding(*i.field())), nullptr);
                break;
            case Op::array_base:
                set_place(out(f, i), array_data(f, i, i.imm != 0), nullptr);
                break;
            case Op::thread_word:
                set_place(out(f, i), thread_word(i.imm), nullptr);
                break;
            case Op::displace:
                set_place(out(f, i), displaced_cell(f, i), nullptr);
                break;
            case Op::tape:
                set_place(out(f, i), thread.tape + integer(f, i, 0), nullptr);
                break;
            case Op::field_place:
                set_place(out(f, i), field_cell(f, i, 0), i.field());
                break;
            case Op::array_place:
                set_place(out(f, i), array_cell(f, i), nullptr);
                break;
            case Op::comp_place:
                set_place(out(f, i), component(f, i, integer(f, i, 1)), nullptr);
                break;
            case Op::address:
                *out(f, i) = reinterpret_cast<uint64_t>(component(f, i, 0));
                break;
            case Op::array_shape:
            case Op::array_extent:
                *out(f, i) = static_cast<uint32_t>(array_extent(f, i, static_cast<int>(i.imm)));
                break;
            case Op::load:
            case Op::volatile_load:
                load(f, i);
                break;
            case Op::store:
                store(f, i);
                break;
            case Op::if_:
                return run_if(f, i);
            case Op::for_:
                return run_for(f, i);
            case Op::loop:
                return run_loop(f, i);
            case Op::do_while:
            case Op::checkpoint:
            case Op::sections:
            case Op::section:
            case Op::stream:
                return run_group(f, i);
            case Op::call:
                call(f, i);
                break;
            case Op::yield:
                return end_region(f, i, Flow::yield);
            case Op::continue_:
                return end_region(f, i, Flow::again);
            case Op::break_:
                return end_region(f, i, Flow::leave);
            case Op::return_:
                return end_region(f, i, Flow::done);
            case Op::random:
                *out(f, i) = random(i.results[0].type.prim);
                break;
            case Op::thread_index:
                *out(f, i) = static_cast<uint32_t>(thread.index);
                break;
            case Op::block_fold:  // a block of one thread
                *out(f, i) = *in(f, i, 0);
                break;
            case Op::active_mask:
            case Op::vote:  // whoever is alone agrees
                QD_CHECK(i.op == Op::active_mask || Vote(i.imm) == Vote::all_equal, "no such vote");
                *out(f, i) = 1;
                break;
            case Op::tape_bytes:
                *out(f, i) = static_cast<uint64_t>(thread.tape_bytes);
                break;
            case Op::stop_grad:
                break;
            case Op::stack_left:
                *out(f, i) = context.runtime->stack_left(&thread) != 0;
                break;
            case Op::clock:
                *out(f, i) = static_cast<uint64_t>(context.runtime->clock());
                break;
            case Op::print:
                print(f, i);
                break;
            case Op::assert_:
                if (!*in(f, i, 0)) fail(f, i);
                break;
            case Op::set_result:
                set_result(f, i);
                break;
            case Op::task_value:
                *out(f, i) = task_value(i.imm);
                break;
            case Op::prefetch:
                break;
            case Op::seed:
                seed(i.imm, static_cast<uint64_t>(integer(f, i, 0)));
                break;
            case Op::block_sync:
                (void)meet(i, false);
                break;
            case Op::block_vote:
                if (Vote(i.imm) != Vote::any) throw support::Error("cannot interpret this vote");
                *out(f, i) = meet(i, integer(f, i, 0) != 0) > 0;
                break;
            default:
                throw support::Error(std::string("cannot interpret ") + info(i.op).name);
        }
        return Flow::next;
    }

    int meet(const Inst& i, bool condition) {
        if (!options.meet)
            throw support::Error(std::string("cannot interpret ") + info(i.op).name +
                                 " by one thread");
        return options.meet(options.meet_data, condition);
    }

    Flow region(Frame& f, const Region& r) {
        for (const Inst* i = r.first; i; i = i->next) {
            const Flow flow = inst(f, *i);
            if (flow != Flow::next) return flow;
        }
        throw support::Error("a region without terminator");
    }

    // Arguments arrive in, results leave by `passed`.
    void run(Frame& f) {
        f.cells.resize(f.layout.cells);
        f.slots.resize(f.layout.slot_bytes + 8);
        receive(f, f.function.body->params);
        region(f, *f.function.body);
    }

    bool start(const Function& function) {
        uint32_t n = 0;
        for (const Format* format : formats_of(m)) format_numbers[format] = n++;
        Frame f{layout(function), {}, {}, {}, function};
        for (uint32_t k = 0; k < function.body->params.size(); ++k) {
            const Type t = function.body->params[k]->type;
            uint8_t* at_arg = context.args + m.params[k].offset;
            if (t.is_array()) {
                f.passed.push_back(reinterpret_cast<uint64_t>(at_arg));
            } else {
                for (int c = 0; c < t.count(); ++c)
                    f.passed.push_back(load_scalar(t.prim, at_arg + c * type::bytes(t.prim)));
            }
        }
        try {
            run(f);
        } catch (const Stopped&) {
            return false;
        }
        return true;
    }
};

}  // namespace

std::vector<const Format*> formats_of(const Module& m) {
    std::vector<const Format*> list;
    std::unordered_map<const Format*, bool> seen;
    for (const Function* f : m.functions) {
        walk(*f->body, [&](Inst& i) {
            const bool has_format = info(i.op).refers == Refers::format;
            if (has_format && seen.emplace(i.format(), true).second) list.push_back(i.format());
        });
    }
    return list;
}

bool interpret(const Module& m, const abi::Context& context, const InterpretOptions& options) {
    abi::Thread thread{};
    thread.tape = options.tape;
    thread.tape_bytes = options.tape_bytes;
    thread.context = &context;
    Interpreter run{.m = m,
                    .context = context,
                    .thread = thread,
                    .options = options,
                    .layouts = {},
                    .format_numbers = {}};
    run.number_streams(*m.kernel().body, {});
    run.seed(0, 0);
    return run.start(m.kernel());
}

bool interpret_task(const Module& m, const Function& task, abi::Thread& thread, int64_t begin,
                    int64_t end, int64_t chunk, const InterpretOptions& options) {
    Interpreter run{.m = m,
                    .context = *thread.context,
                    .thread = thread,
                    .options = options,
                    .begin = begin,
                    .end = end,
                    .chunk = chunk,
                    .layouts = {},
                    .format_numbers = {}};
    return run.start(task);
}

}  // namespace qd::ir
