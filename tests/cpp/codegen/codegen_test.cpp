// Compiled code against the interpreter, bit for bit: every element-wise op over every type and
// many special values, loops, calls, memory and tensors; both tiers, several CPU levels.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "codegen/llvm/codegen.h"
#include "compiler/artefact.h"
#include "ir/elementwise.h"
#include "ir/interpreter.h"
#include "ir/ir.h"
#include "machine.h"
#include "pass/passes.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/loader.h"
#include "support/abi.h"

namespace qd {
namespace {

using ir::Op;
using ir::Prim;

// A text of functions; functions[0] is the body of task 0.
pass::Plan plan_of(const std::string& text) {
    pass::Plan plan;
    plan.module = ir::parse(text);
    ir::verify(*plan.module);
    pass::Task t;
    t.body = plan.module->functions[0];
    t.name = "test";
    for (size_t k = 1; k < plan.module->functions.size(); ++k)
        plan.callees.push_back(plan.module->functions[k]);
    plan.tasks.push_back(t);
    std::vector<ir::Function*> order = plan.callees;
    order.push_back(t.body);
    plan.arrays = pass::find_arrays(*plan.module, order);
    return plan;
}

codegen::Prepared prepare(const std::string& text) {
    pass::Plan plan = plan_of(text);
    pass::write_out(plan);
    return codegen::prepare(std::move(plan));
}

struct World {  // what a launch provides
    std::vector<uint8_t> args, temps = std::vector<uint8_t>(1024),
                               results = std::vector<uint8_t>(256),
                               partials = std::vector<uint8_t>(4096);
    std::vector<void*> bindings;
    std::vector<int64_t> bounds = {0, 0, 0, 0};
    int32_t stop = 0;
    abi::Runtime runtime{};
    abi::Context context{};
    abi::Thread thread{};

    void prepare() {
        context.runtime = &runtime;
        context.bindings = bindings.data();
        context.args = args.data();
        context.results = results.data();
        context.temps = temps.data();
        context.partials = partials.data();
        context.bounds = bounds.data();
        context.launch_key = 42;
        context.stop = &stop;
        thread = {};
        thread.context = &context;
        thread.tile = 1, thread.tiles = 1;
    }
    void add_array(void* data, std::vector<int32_t> shape) {
        args.resize((args.size() + 7) & ~size_t(7));
        const size_t at = args.size();
        args.resize(at + ir::array_desc_bytes(int(shape.size())));
        ir::ArrayDesc d{data, nullptr};
        std::memcpy(args.data() + at, &d, sizeof d);
        std::memcpy(args.data() + at + sizeof d, shape.data(), 4 * shape.size());
    }
};

struct Level {
    const char* cpu;
    int tier;
};
std::vector<Level> levels() {
    std::vector<Level> all = {{"", 0}, {"", 1}};
    for (const char* cpu : {"x86-64", "x86-64-v3", "x86-64-v4"})
        for (int tier : {0, 1})
            if (test::machine_runs(cpu)) all.push_back({cpu, tier});
    return all;
}

void run_compiled(const codegen::Prepared& p, Level level, World& world, int64_t begin,
                  int64_t end) {
    codegen::Options options;
    options.tier = level.tier;
    options.verify = true;
    options.cpu = level.cpu;
    if (level.cpu[0]) options.triple = "x86_64-linux-gnu";
    const auto object = codegen::emit(p, options).objects.at(0);
    runtime::LoadedObject loaded(object);
    auto entry = reinterpret_cast<abi::TaskFn>(loaded.find("task0"));
    ASSERT_NE(entry, nullptr);
    world.prepare();
    runtime::StandardFloats mode;
    entry(&world.thread, begin, end, 0);
}

void run_interpreted(const pass::Plan& p, bool fused, World& world, int64_t begin, int64_t end) {
    world.prepare();
    ir::InterpretOptions options;
    options.fused = fused;
    ir::interpret_task(*p.module, *p.tasks[0].body, world.thread, begin, end, 0, options);
}

bool fused(Level level) {
    return codegen::target_of(level.cpu, level.cpu[0] ? "x86_64-linux-gnu" : "").fused;
}

std::vector<uint64_t> special_values(Prim p, size_t count) {
    std::vector<uint64_t> v;
    std::mt19937_64 random(7);
    if (type::is_float(p)) {
        for (double d : {0.0,
                         -0.0,
                         1.0,
                         -1.0,
                         0.5,
                         -0.5,
                         1.5,
                         2.5,
                         -2.5,
                         3.0,
                         0.1,
                         -0.3,
                         1e-3,
                         1e10,
                         -1e10,
                         3.7e4,
                         1e30,
                         -1e300,
                         0.7853981,
                         1.5707963,
                         3.1415926,
                         6.2831853,
                         100.25,
                         -7.0,
                         88.0,
                         -88.0,
                         127.0,
                         255.4,
                         2147483647.0,
                         -2147483648.0,
                         1e19,
                         double(INFINITY),
                         -double(INFINITY),
                         double(NAN)})
            v.push_back(ir::bits_of_double(p, d));
        const uint64_t sign = uint64_t{1} << (type::bits(p) - 1);
        for (uint64_t subnormal : {1, 0x155}) {
            v.push_back(subnormal);
            v.push_back(sign | subnormal);
        }
        while (v.size() < count) {
            const double scale = std::exp2(double(int(random() % 60)) - 30);
            v.push_back(ir::bits_of_double(p, (double(random() >> 11) * 0x1p-52 - 1) * scale));
        }
    } else {
        const uint64_t mask =
            type::bits(p) == 64 ? ~uint64_t(0) : (uint64_t(1) << type::bits(p)) - 1;
        for (int64_t x :
             {0ll, 1ll, -1ll, 2ll, -2ll, 3ll, -3ll, 7ll, 10ll, -10ll, 127ll, -128ll, 255ll, 32767ll,
              2147483647ll, -2147483648ll, (long long)INT64_MAX, (long long)INT64_MIN})
            v.push_back(uint64_t(x) & mask);
        while (v.size() < count) v.push_back(random() & mask >> random() % uint64_t(type::bits(p)));
    }
    return v;
}

std::vector<uint8_t> pack(Prim p, const std::vector<uint64_t>& v) {
    std::vector<uint8_t> out(v.size() * size_t(type::bytes(p)));
    for (size_t k = 0; k < v.size(); ++k)
        std::memcpy(out.data() + k * size_t(type::bytes(p)), &v[k], size_t(type::bytes(p)));
    return out;
}

bool is_nan(Prim p, const uint8_t* at) {
    uint64_t bits = 0;
    std::memcpy(&bits, at, size_t(type::bytes(p)));
    return type::is_float(p) && std::isnan(ir::double_of_bits(p, bits));
}

// body: text that defines %r of type `result` from %a, %b, %c.
void check_elementwise(const std::string& name, const std::string& body, Prim a, Prim b, Prim c,
                       Prim result) {
    const auto n = [](Prim p) { return std::string(type::info(p).name); };
    const std::string text = "func @task(%x: array<" + n(a) + ", 1>, %y: array<" + n(b) +
                             ", 1>, %z: array<" + n(c) + ", 1>, %o: array<" + n(result) +
                             ", 1>) {\n  %first = task_value #0 : i64\n  %last = task_value #1 : "
                             "i64\n  for %i = %first to %last {\n"
                             "    %xp = array_place %x, %i : place<" +
                             n(a) +
                             ">\n    %a = load %xp\n"
                             "    %yp = array_place %y, %i : place<" +
                             n(b) +
                             ">\n    %b = load %yp\n"
                             "    %zp = array_place %z, %i : place<" +
                             n(c) + ">\n    %c = load %zp\n    " + body +
                             "\n    %op = array_place %o, %i : place<" + n(result) +
                             ">\n    store %op, %r\n  }\n}\n";
    SCOPED_TRACE(text);
    const auto x = special_values(a, 40);
    const size_t base = x.size();
    std::vector<uint64_t> xs, ys, zs;
    const auto y = special_values(b, 40), z = special_values(c, 40);
    for (size_t k = 0; k < base; ++k)
        for (size_t j = 0; j < y.size(); ++j) {
            xs.push_back(x[k]);
            ys.push_back(y[j]);
            zs.push_back(z[(k * 31 + j) % z.size()]);
        }
    const int32_t count = int32_t(xs.size());
    auto xb = pack(a, xs), yb = pack(b, ys), zb = pack(c, zs);
    const auto p = prepare(text);
    const pass::Plan oracle = plan_of(text);
    const auto run = [&](auto how, std::vector<uint8_t>& out) {
        out.assign(xs.size() * size_t(type::bytes(result)), 0xcd);
        World w;
        w.add_array(xb.data(), {count});
        w.add_array(yb.data(), {count});
        w.add_array(zb.data(), {count});
        w.add_array(out.data(), {count});
        how(w);
    };
    std::vector<uint8_t> expected[2];
    for (const Level level : levels()) {
        const std::string cpu = level.cpu;
        if (level.tier == 0 && !cpu.empty()) continue;
        if (!type::is_float(a) && cpu != "" && cpu != "x86-64") continue;
        if (body.find("fma") != std::string::npos && !fused(level)) continue;
        std::vector<uint8_t> got;
        std::vector<uint8_t>& expect = expected[fused(level)];
        if (expect.empty())
            run([&](World& w) { run_interpreted(oracle, fused(level), w, 0, count); }, expect);
        run([&](World& w) { run_compiled(p, level, w, 0, count); }, got);
        int bad = 0;
        const size_t size = size_t(type::bytes(result));
        for (size_t k = 0; k < xs.size() && bad < 3; ++k) {
            if (std::memcmp(&expect[k * size], &got[k * size], size) == 0) continue;
            if (is_nan(result, &expect[k * size]) && is_nan(result, &got[k * size])) continue;
            uint64_t e = 0, g = 0;
            std::memcpy(&e, &expect[k * size], size);
            std::memcpy(&g, &got[k * size], size);
            ADD_FAILURE() << name << " cpu '" << level.cpu << "' tier " << level.tier
                          << ": a=" << ir::double_of_bits(a, xs[k])
                          << " b=" << ir::double_of_bits(b, ys[k])
                          << " c=" << ir::double_of_bits(c, zs[k]) << " expect " << std::hex << e
                          << " got " << g;
            ++bad;
        }
        if (bad) return;
    }
}

const std::vector<Prim> kInts = {Prim::u1, Prim::i8,  Prim::i16, Prim::i32, Prim::i64,
                                 Prim::u8, Prim::u16, Prim::u32, Prim::u64};
const std::vector<Prim> kFloats = {Prim::f16, Prim::f32, Prim::f64};

// Each row of the op table whose operands have one type, and powi.
void check_ops(Prim p) {
    const ir::Takes other = type::is_int(p) ? ir::Takes::floats : ir::Takes::ints;
    for (int k = 0; k < int(Op::count_); ++k) {
        const Op op = Op(k);
        const ir::OpInfo& row = ir::info(op);
        if ((op == Op::fma && p == Prim::f16) || (op != Op::powi && !ir::is_uniform(op, other)))
            continue;
        std::string body = std::string("%r = ") + row.name + " %a";
        for (int operand = 1; operand < row.operands; ++operand)
            body += operand == 1 ? ", %b" : ", %c";
        const Prim result = row.rule == ir::Rule::boolean   ? Prim::u1
                            : row.rule == ir::Rule::count32 ? Prim::i32
                                                            : p;
        check_elementwise(row.name, body, p, op == Op::powi ? Prim::i32 : p, p, result);
    }
}

TEST(codegen, integer_ops) {
    for (Prim p : kInts) check_ops(p);
}

TEST(codegen, float_ops) {
    for (Prim p : kFloats) check_ops(p);
}

TEST(codegen, integer_division_by_constants) {
    for (Prim p : {Prim::i8, Prim::i32, Prim::i64, Prim::u8, Prim::u32})
        for (const char* divisor : {"0", "1", "2", "3", "7", "16", "64"})
            for (Op op : {Op::floordiv, Op::mod, Op::raw_div, Op::raw_mod})
                check_elementwise(ir::info(op).name,
                                  std::string("%k = constant ") + divisor + " : " +
                                      type::info(p).name + "\n    %r = " + ir::info(op).name +
                                      " %a, %k",
                                  p, p, p, p);
    for (Prim p : {Prim::i8, Prim::i32, Prim::i64})
        for (const char* divisor : {"-1", "-2", "-7", "-16", "-128"})
            for (Op op : {Op::floordiv, Op::mod, Op::raw_div, Op::raw_mod})
                check_elementwise(ir::info(op).name,
                                  std::string("%k = constant ") + divisor + " : " +
                                      type::info(p).name + "\n    %r = " + ir::info(op).name +
                                      " %a, %k",
                                  p, p, p, p);
}

TEST(codegen, products_are_never_contracted) {
    for (Prim p : kFloats)
        check_elementwise("mul add", "%m = mul %a, %b\n    %r = add %m, %c", p, p, p, p);
}

TEST(codegen, casts) {
    std::vector<Prim> all = kInts;
    all.insert(all.end(), kFloats.begin(), kFloats.end());
    for (Prim from : all)
        for (Prim to : all) {
            if (from == to) continue;
            check_elementwise("cast", std::string("%r = cast %a : ") + type::info(to).name, from,
                              from, from, to);
        }
    check_elementwise("bit_cast", "%r = bit_cast %a : i32", Prim::f32, Prim::f32, Prim::f32,
                      Prim::i32);
    check_elementwise("bit_cast", "%r = bit_cast %a : f64", Prim::u64, Prim::f32, Prim::f32,
                      Prim::f64);
    check_elementwise("bit_cast", "%r = bit_cast %a : f16", Prim::i16, Prim::f32, Prim::f32,
                      Prim::f16);
}

// LLVM takes an integer of few significant bits for one that f16 holds exactly, whatever its size.
TEST(codegen, integers_beyond_f16_become_infinite) {
    for (Prim p : kInts)
        for (const char* op : {"shl", "lshr", "bit_and"})
            for (const char* k : {"5", "11", "27", "48"})
                check_elementwise(op,
                                  std::string("%k = constant ") + k + " : " + type::info(p).name +
                                      "\n    %s = " + op +
                                      " %a, %k\n    %h = cast %s : f16\n    %r = cast %h : f32",
                                  p, p, p, Prim::f32);
}

// Constants of either sign of zero decide which operands can be subnormal, accumulators are known
// not to be, unless something else is stored in them.
TEST(codegen, minima_beside_constants_and_of_accumulators) {
    for (Prim p : {Prim::f16, Prim::f32, Prim::f64}) {
        const std::string name = type::info(p).name;
        for (const std::string op : {"min ", "max "}) {
            const uint64_t sign = uint64_t{1} << (type::bits(p) - 1);
            for (uint64_t bits :
                 {uint64_t{0}, sign, ir::bits_of_double(p, 1), ir::bits_of_double(p, -1),
                  uint64_t{1}, sign | 1, ir::bits_of_double(p, NAN)}) {
                const std::string k =
                    fmt::format("%k = constant {:#x} : {}\n    %r = {}", bits, name, op);
                check_elementwise(op, k + "%a, %k", p, p, p, p);
                check_elementwise(op, k + "%k, %a", p, p, p, p);
            }
            for (const std::string first : {"%a", "%k"})
                for (const std::string stored : {"%n", "%c", "%neg"}) {
                    const std::string body =
                        "%k = constant 1 : " + name + "\n    %s = slot : place<" + name +
                        ">\n    store %s, " + first +
                        "\n    %zero = constant 0 : i64\n    %two = constant 2 : i64"
                        "\n    for %j = %zero to %two {\n      %m = load %s\n      %n = " +
                        op + "%m, %b\n      %neg = neg %n\n      store %s, " + stored +
                        "\n    }\n    %l = load %s\n    %r = " + op + "%l, %b";
                    check_elementwise(op, body, p, p, p, p);
                }
        }
    }
}

// LLVM turns a comparison of a bit pattern with zero into one of integers, where subnormals differ.
TEST(codegen, subnormal_bit_patterns_equal_zero) {
    constexpr std::pair<Prim, Prim> kCasts[] = {{Prim::i16, Prim::f16},
                                                {Prim::i32, Prim::f32},
                                                {Prim::u32, Prim::f32},
                                                {Prim::i64, Prim::f64},
                                                {Prim::u64, Prim::f64}};
    for (const auto& [from, to] : kCasts) {
        const std::string name = type::info(to).name;
        const std::string value = "%f = bit_cast %a : " + name + "\n    %z = constant 0 : " + name;
        for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
            const std::string compare = std::string("\n    %r = ") + op;
            for (const char* x : {"%f", "%n = neg %f", "%n = abs %f", "%n = max %f, %z",
                                  "%q = lt %a, %b\n    %n = select %q, %f, %z"}) {
                const bool plain = x == std::string("%f");
                check_elementwise(op,
                                  value + (plain ? "" : std::string("\n    ") + x) + compare +
                                      (plain ? " %f, %z" : " %n, %z"),
                                  from, from, from, Prim::u1);
            }
        }
        check_elementwise("cast", value + "\n    %r = cast %f : u1", from, from, from, Prim::u1);
        for (const char* step : {"mul %f, %k", "div %f, %k", "mul %k, %f"})
            for (const char* k : {"1", "-1"})
                check_elementwise(
                    step, value + "\n    %k = constant " + k + " : " + name + "\n    %r = " + step,
                    from, from, from, to);
        for (const char* step : {"sub %f, %z", "sub %k, %f", "add %f, %k", "add %k, %f"})
            check_elementwise(step,
                              value + "\n    %k = constant -0.0 : " + name + "\n    %r = " + step,
                              from, from, from, to);
        for (const std::string& choice : {std::string("select %q, %k, %m"),
                                          "if %q : " + name + " {\n yield %m } else { yield %k }"})
            for (const char* step :
                 {"mul %f, %s", "mul %s, %f", "div %f, %s", "sub %f, %s", "add %s, %f"})
                for (const auto& [k, m] : {std::pair("1", "-1"), std::pair("0", "-0.0")})
                    check_elementwise(step,
                                      value + "\n    %k = constant " + k + " : " + name +
                                          "\n    %m = constant " + m + " : " + name +
                                          "\n    %q = lt %a, %b\n    %s = " + choice +
                                          "\n    %r = " + step,
                                      from, from, from, to);
        for (const char* op : {"min", "max"})
            check_elementwise(op, value + "\n    %r = " + op + " %f, %z", from, from, from, to);
    }
}

TEST(codegen, select_and_if) {
    check_elementwise("select", "%q = lt %a, %b\n    %r = select %q, %a, %c", Prim::f32, Prim::f32,
                      Prim::f32, Prim::f32);
    check_elementwise(
        "if",
        "%q = lt %a, %b\n    %r = if %q : f32 {\n %s = sqrt %b\n yield %s } else { yield %c }",
        Prim::f32, Prim::f32, Prim::f32, Prim::f32);
}

// Runs a whole text on buffers (bindings of fields, then arrays) and compares all of them.
struct Buffer {
    size_t bytes;
    std::vector<int32_t> shape;  // of an array parameter; empty: a field's storage
};

void check_program(const std::string& text, const std::vector<Buffer>& buffers, int64_t begin,
                   int64_t end, const std::vector<uint8_t>& scalars = {}) {
    SCOPED_TRACE(text);
    const auto p = prepare(text);
    const pass::Plan oracle = plan_of(text);
    const auto run = [&](auto how) {
        World w;
        std::vector<std::vector<uint64_t>> memory;
        std::mt19937 random(3);
        for (const Buffer& b : buffers) {
            std::vector<uint64_t> m(b.bytes / 8 + 1);
            auto* f = reinterpret_cast<float*>(m.data());
            for (size_t k = 0; k < b.bytes / 4; ++k) f[k] = float(int(random() % 2000) - 1000) / 64;
            memory.push_back(std::move(m));
        }
        w.args = scalars;
        for (size_t k = 0; k < buffers.size(); ++k) {
            if (buffers[k].shape.empty())
                w.bindings.push_back(memory[k].data());
            else
                w.add_array(memory[k].data(), buffers[k].shape);
        }
        w.bounds = {begin, end, 0, 0};
        how(w);
        for (const auto* v : {&w.temps, &w.results, &w.partials}) {
            std::vector<uint64_t> m(v->size() / 8);
            std::memcpy(m.data(), v->data(), v->size());
            memory.push_back(m);
        }
        return memory;
    };
    for (const Level level : levels()) {
        const auto expect =
            run([&](World& w) { run_interpreted(oracle, fused(level), w, begin, end); });
        const auto got = run([&](World& w) { run_compiled(p, level, w, begin, end); });
        EXPECT_EQ(expect, got) << "cpu '" << level.cpu << "' tier " << level.tier;
    }
}

const std::string kFields = R"(
field @f "f" : f32 shape [16, 32] offset [0, 0] terms [0 / 1 % 0 * 128, 1 / 1 % 0 * 4] components [0] group 1
field @v "v" : vec<f32, 3> shape [64] offset [-3] terms [0 / 1 % 0 * 12] components [0, 4, 8] group 2
field @t "t" : f32 shape [16, 16] offset [0, 0] terms [0 / 4 % 0 * 256, 1 / 4 % 0 * 64, 0 / 1 % 4 * 16, 1 / 1 % 4 * 4] components [0] group 3
)";

TEST(codegen, stencil_over_a_field_and_an_array) {
    check_program(kFields + R"(
func @task(%o: array<f32, 2>) {
  %u = task_value #0 : i64
  %w = task_value #1 : i64
  for %i = %u to %w {
    %z = constant 1 : i64
    %n = constant 31 : i64
    for %j = %z to %n {
      %i32 = cast %i : i32
      %j32 = cast %j : i32
      %one = constant 1 : i32
      %left = sub %j32, %one
      %right = add %j32, %one
      %up = sub %i32, %one
      %a = field_place @f, %i32, %left : place<f32>
      %b = field_place @f, %i32, %right : place<f32>
      %c = field_place @f, %up, %j32 : place<f32>
      %x = load %a
      %y = load %b
      %q = load %c
      %s = add %x, %y
      %r = add %s, %q
      %p = array_place %o, %i32, %j32 : place<f32>
      store %p, %r
    }
  }
})",
                  {{2048, {}}, {64 * 12, {}}, {1024, {}}, {16 * 32 * 4, {16, 32}}}, 1, 15);
}

TEST(codegen, components_in_cells_of_different_sizes) {
    check_program(R"(
field @u "u" : vec<f32, 2> shape [8] offset [0] terms [0 / 1 % 0 * 8] terms [0 / 1 % 0 * 8] terms [0 / 1 % 0 * 4] components [0, 64] group 1

func @task(%x: f32) {
  %z = constant 0 : i32
  %n = constant 8 : i32
  for %i = %z to %n {
    %p = field_place @u, %i : place<vec<f32, 2>>
    %v = load %p
    %one = constant 1 : i32
    %c = comp_place %p, %one : place<f32>
    store %c, %x
    %w = load %p
    %s = add %v, %w
    store %p, %s
  }
})",
                  {{96, {}}}, 0, 1, {0, 0, 0, 64});
}

TEST(codegen, blocked_layout_offsets_and_components) {
    check_program(kFields + R"(
func @task(%x: f32) {
  %z = constant 0 : i32
  %n = constant 16 : i32
  for %i, %j = %z to %n, %z to %n {
    %a = field_place @t, %i, %j : place<f32>
    %k = sub %i, %j
    %three = constant 3 : i32
    %kk = max %k, %z
    %at = sub %kk, %three
    %v = field_place @v, %at : place<vec<f32, 3>>
    %m = mod %j, %three
    %c = comp_place %v, %m : place<f32>
    %l = load %c
    %w = load %v
    %n1 = neg %w
    store %v, %n1
    %y = load %a
    %s = mul %y, %x
    %r = add %s, %l
    store %a, %r
  }
})",
                  {{2048, {}}, {64 * 12, {}}, {1024, {}}}, 0, 1, {0, 0, 0, 64});
}

TEST(codegen, loops_calls_and_early_exits) {
    check_program(R"(
func @task(%o: array<i32, 1>) {
  %first = task_value #0 : i64
  %last = task_value #1 : i64
  for %i = %first to %last {
    %n = cast %i : i32
    %steps, %big = call @collatz, %n : i32, i32
    %p = array_place %o, %n : place<i32>
    %zero = constant 0 : i32
    %ten = constant 10 : i32
    %sum = for %j, %k = %zero to %n, %zero to %ten carry %acc = %zero : i32 {
      %x = mul %j, %k
      %a = add %acc, %x
      %limit = constant 5000 : i32
      %stop = gt %a, %limit
      if %stop {
        break %a
      } else {
        yield
      }
      continue %a
    }
    %s = add %steps, %sum
    %r = bit_xor %s, %big
    store %p, %r
  }
}
func @collatz(%n: i32) -> i32, i32 {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %steps, %most = loop carry %k = %zero, %x = %n : i32, i32 {
    %done = le %x, %one
    if %done {
      break %k, %x
    } else {
      yield
    }
    %odd = bit_and %x, %one
    %is_odd = ne %odd, %zero
    %next = if %is_odd : i32 {
      %three = constant 3 : i32
      %t = mul %x, %three
      %u = add %t, %one
      yield %u
    } else {
      %h = shr %x, %one
      yield %h
    }
    %kk = add %k, %one
    continue %kk, %next
  }
  return %steps, %most
})",
                  {{4 * 100, {100}}}, 0, 100);
}

TEST(codegen, loops_without_a_second_turn_and_returns_inside) {
    check_program(R"(
func @task(%o: array<i32, 1>) {
  %first = task_value #0 : i64
  %last = task_value #1 : i64
  for %i = %first to %last {
    %n = cast %i : i32
    %r = call @find, %n : i32
    %zero = constant 0 : i32
    %once = for %j = %zero to %n carry %c = %r : i32 {
      %d = add %c, %j
      break %d
    }
    %l = loop carry %k = %once : i32 {
      %neg = neg %k
      break %neg
    }
    %wide = constant 4294967297 : i64
    %big = add %wide, %i
    %low = cast %big : i32
    %turns = for %t = %zero to %low carry %u = %l : i32 {
      %u2 = add %u, %t
      continue %u2
    }
    %p = array_place %o, %n : place<i32>
    store %p, %turns
  }
}
func @find(%n: i32) -> i32 returns_early {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %big = constant 20 : i32
  for %i, %j = %zero to %n, %zero to %n {
    %p = mul %i, %j
    %hit = gt %p, %big
    if %hit {
      return %p
    } else {
      yield
    }
  }
  %large = gt %n, %big
  if %large {
    return %one
  } else {
    return %n
  }
  return %zero
})",
                  {{4 * 64, {64}}}, 0, 40);
}

TEST(codegen, atomics_slots_random_and_large_tensors) {
    check_program(R"(
func @task(%o: array<f32, 1>, %q: array<i32, 1>, %m: array<mat<f32, 9, 9>, 1>) {
  %first = task_value #0 : i64
  %last = task_value #1 : i64
  for %i = %first to %last {
    seed %i #3
    %n = cast %i : i32
    %three = constant 3 : i32
    %at = mod %n, %three
    %p = array_place %o, %at : place<f32>
    %r = random : f32
    %old = atomic_add %p, %r
    %most = atomic_max %p, %old
    %pq = array_place %q, %at : place<i32>
    %ri = random : i32
    %o1 = atomic_add %pq, %ri
    %o2 = atomic_min %pq, %o1
    %o3 = atomic_mul %pq, %n
    %o4 = atomic_xor %pq, %ri
    %s = slot : place<vec<i32, 12>>
    %k = splat %ri : vec<i32, 12>
    store %s, %k
    %c = comp_place %s, %at : place<i32>
    %o5 = atomic_add %c, %n
    %v = load %s
    %e = extract_dyn %v, %at
    %o6 = atomic_add %pq, %e
    %t = reduce_add %v
    %o7 = atomic_or %pq, %t
    %zero = constant 0 : i32
    %pm = array_place %m, %zero : place<mat<f32, 9, 9>>
    %x = load %pm
    %y = transpose %x : mat<f32, 9, 9>
    %z = matmul %x, %y : mat<f32, 9, 9>
    %w = call @scaled, %z, %r : mat<f32, 9, 9>
    store %pm, %w
  }
}
func @scaled(%a: mat<f32, 9, 9>, %s: f32) -> mat<f32, 9, 9> {
  %small = constant 0.001 : f32
  %f = mul %s, %small
  %t = splat %f : mat<f32, 9, 9>
  %r = mul %a, %t
  return %r
})",
                  {{16, {3}}, {16, {3}}, {9 * 9 * 4, {1}}}, 0, 20);
}

// Short ones and those that are loops of their own.
TEST(codegen, products_of_matrices_are_rounded_once_or_twice_a_term) {
    for (const std::string n : {"3", "9"}) {
        const std::string type = "mat<f32, " + n + ", " + n + ">";
        check_program("func @task(%m: array<" + type + ", 1>) {\n%z = constant 0 : i32\n" +
                          "%p = array_place %m, %z : place<" + type + ">\n%x = load %p\n" +
                          "%y = transpose %x : " + type + "\n%a = matmul %x, %y : " + type +
                          "\n%b = matmul %y, %x !nofastmath : " + type +
                          "\n%r = sub %a, %b\nstore %p, %r\n}",
                      {{size_t(4 * std::stoi(n) * std::stoi(n)), {1}}}, 0, 1);
    }
}

TEST(codegen, several_emissions_at_once) {
    const auto p = prepare(
        "func @task(%o: array<f64, 1>) {\n %a = task_value #0 : i64\n %b = task_value #1 : i64\n "
        "for %i = %a to %b {\n"
        " %q = array_place %o, %i : place<f64>\n %x = load %q\n %y = tan %x\n store %q, %y\n "
        "}\n}\n");
    std::vector<std::vector<uint8_t>> objects(8);
    std::vector<std::thread> threads;
    for (int k = 0; k < 8; ++k)
        threads.emplace_back([&, k] {
            codegen::Options options;
            options.tier = k % 2;
            objects[size_t(k)] = codegen::emit(p, options).objects.at(0);
        });
    for (auto& t : threads) t.join();
    for (size_t k = 2; k < 8; ++k) EXPECT_EQ(objects[k], objects[k % 2]);
}

// Each branch would cut the block anew: compiling took time that grew with the square of them.
TEST(codegen, quick_code_selects_without_branches) {
    std::string text =
        "func @task(%o: array<f32, 1>, %n: array<i64, 1>) {\n %z = constant 0 : i32\n"
        " %a = array_place %o, %z : place<f32>\n %b = array_place %n, %z : place<i64>\n"
        " %x = load %a\n %k = load %b\n %v0 = splat %x : vec<f32, 16>\n";
    constexpr int kSteps = 20;
    for (int k = 0; k < kSteps; ++k) {
        const std::string n = std::to_string(k), next = std::to_string(k + 1);
        text += " %v" + next + " = insert_dyn %v" + n + ", %x, %k\n";
    }
    text += " %s = reduce_add %v" + std::to_string(kSteps) + "\n store %a, %s\n}\n";
    codegen::Options options;
    options.tier = 0;
    options.triple = "x86_64-linux-gnu";
    options.want = codegen::Options::Want::assembly;
    const auto bytes = codegen::emit(prepare(text), options).objects.at(0);
    const std::string assembly(bytes.begin(), bytes.end());
    size_t jumps = 0;
    for (size_t at = 0; (at = assembly.find("\tj", at)) != assembly.npos; ++at) ++jumps;
    EXPECT_LT(jumps, 10u) << assembly;
}

TEST(codegen, other_processors) {
    const auto p = prepare(
        "func @task(%o: array<f16, 1>) {\n %z = constant 0 : i32\n %a = array_place %o, %z : "
        "place<f16>\n %x = load %a\n"
        " %s = sin %x\n %q = atomic_add %a, %s\n store %a, %q\n}\n");
    for (int tier : {0, 1}) {
        codegen::Options options;
        options.tier = tier;
        options.triple = "aarch64-linux-gnu";
        const auto object = codegen::emit(p, options).objects.at(0);
        ASSERT_GT(object.size(), 64u);
        EXPECT_EQ(object[18], 183);  // e_machine: AArch64
        options.want = codegen::Options::Want::assembly;
        const auto text = codegen::emit(p, options).objects.at(0);
        EXPECT_NE(std::string(text.begin(), text.end()).find("\tret"), std::string::npos);
        options.cpu = "no-such-cpu";
        EXPECT_THROW((void)codegen::emit(p, options), support::Error);
    }
}

}  // namespace
}  // namespace qd
