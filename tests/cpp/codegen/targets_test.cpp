// Every op on every type for every CPU level and both tiers: all of them compile, and what this
// machine can run equals the interpreter. Each op stands in a loop of its own width and in one
// whose width doubles set, because LLVM treats the vectors that come of it differently.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <regex>
#include <set>

#include "codegen/llvm/codegen.h"
#include "compiler/artefact.h"
#include "ir/interpreter.h"
#include "ir/ir.h"
#include "machine.h"
#include "pass/pass.h"
#include "runtime/cpu/float_mode.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/pool.h"

namespace qd {
namespace {

using ir::Op;
using ir::Prim;

struct Target {
    const char *cpu, *triple;
    bool runs;  // on this machine
};

std::vector<Target> targets() {
    std::vector<Target> all;
    for (const char* cpu :
         {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "sapphirerapids"})
        all.push_back({cpu, "x86_64-linux-gnu", test::machine_runs(cpu)});
    for (const char* cpu : {"neoverse-v2", "apple-m1"})
        all.push_back({cpu, "aarch64-linux-gnu", false});
    all.push_back({"", "", true});
    return all;
}

constexpr int kCells = 67;  // no multiple of a vector

// A kernel, and the storage of its fields in their order.
struct Program {
    std::string fields, body;
    std::vector<std::pair<Prim, int>> storage;
    int names = 0;

    std::string add_field(Prim p) {
        const std::string name = "@f" + std::to_string(storage.size());
        const std::string type = type::info(p).name;
        fields += "field " + name + " \"" + name.substr(1) + "\" : " + type + " shape [" +
                  std::to_string(kCells) + "] offset [0] terms [0 / 1 % 0 * " +
                  std::to_string(type::bytes(p)) + "] components [0] group " +
                  std::to_string(storage.size() + 1) + "\n";
        storage.emplace_back(p, kCells);
        return name;
    }
    // `text` defines %r; $ in it makes its names its own.
    void loop(const std::string& text) {
        const std::string n = std::to_string(names++);
        body += "  for %i" + n + " = %zero to %cells parallel {\n    ";
        for (const char c : text) body += c == '$' ? n : std::string(1, c);
        body += "\n  }\n";
    }
    static std::string load(const std::string& to, const std::string& field, Prim p) {
        return "%p" + to + "$ = field_place " + field + ", %i$ : place<" + type::info(p).name +
               ">\n    %" + to + "$ = load %p" + to + "$\n    ";
    }
    static std::string store(const std::string& value, const std::string& field, Prim p) {
        return "\n    %po" + field.substr(1) + "$ = field_place " + field + ", %i$ : place<" +
               type::info(p).name + ">\n    store %po" + field.substr(1) + "$, " + value;
    }
    std::string text() const {
        return "module \"sweep\"\n" + fields +
               "func @k() {\n  %zero = constant 0 : i32\n  %cells = constant " +
               std::to_string(kCells) + " : i32\n" + body + "}\n";
    }
};

const Prim kAll[] = {Prim::u1,  Prim::i8,  Prim::i16, Prim::i32, Prim::i64, Prim::u8,
                     Prim::u16, Prim::u32, Prim::u64, Prim::f16, Prim::f32, Prim::f64};

struct Step {
    std::string text;  // of operands %a$ and %b$ of the type, %e$ of i32
    Prim result;
};

std::vector<Step> steps(Prim p) {
    std::vector<Step> out;
    for (int k = 0; k < int(Op::count_); ++k) {
        const ir::OpInfo& op = ir::info(Op(k));
        if (op.kind != ir::Kind::elementwise || Op(k) == Op::fma) continue;
        if (op.takes == (type::is_float(p) ? ir::Takes::ints : ir::Takes::floats)) continue;
        const std::string name = op.name;
        if (Op(k) == Op::cast || Op(k) == Op::bit_cast) {
            for (const Prim to : kAll) {
                const bool bits = Op(k) == Op::bit_cast;
                if (to == p || (bits && (type::bytes(to) != type::bytes(p) || to == Prim::u1 ||
                                         p == Prim::u1)))
                    continue;
                out.push_back({name + " %a$ : " + type::info(to).name, to});
            }
            continue;
        }
        const Prim result = op.rule == ir::Rule::boolean   ? Prim::u1
                            : op.rule == ir::Rule::count32 ? Prim::i32
                                                           : p;
        out.push_back({name + (Op(k) == Op::select ? " %c$, %b$, %a$"
                               : Op(k) == Op::powi ? " %a$, %e$"
                               : op.operands == 2  ? " %a$, %b$"
                                                   : " %a$"),
                       result});
    }
    if (type::is_float(p))  // units: they flush a subnormal operand and do nothing else
        for (const char* step : {"mul %a$, %one$", "div %a$, %one$"}) out.push_back({step, p});
    return out;
}

constexpr size_t kStepsOfALoop = 12;

Program sweep(Prim p) {
    Program out;
    const std::string x = out.add_field(p), y = out.add_field(p), e = out.add_field(Prim::i32),
                      wide = out.add_field(Prim::f64), index = out.add_field(Prim::u8);
    const std::string name = type::info(p).name;
    const std::vector<Step> all = steps(p);
    for (const bool mixed : {false, true}) {
        if (mixed && p == Prim::f64) continue;
        for (size_t first = 0; first < all.size(); first += kStepsOfALoop) {
            std::string loop = Program::load("a", x, p) + Program::load("b", y, p) +
                               Program::load("e", e, Prim::i32) + "%one$ = constant 1 : " + name +
                               "\n    %k$ = constant 2 : i32\n    %c$ = lt %e$, %k$\n    ";
            if (mixed) loop += Program::load("w", wide, Prim::f64);
            for (size_t k = first; k < std::min(all.size(), first + kStepsOfALoop); ++k) {
                const std::string n = "%r" + std::to_string(k) + "x$";
                loop += "\n    " + n + " = " + all[k].text;
                if (!mixed || all[k].result == Prim::f64) {
                    loop += Program::store(n, out.add_field(all[k].result), all[k].result);
                } else {  // where doubles are near, a vector holds few
                    const std::string m = std::to_string(k) + "x$";
                    loop += "\n    %d" + m + " = cast " + n + " : f64\n    %s" + m + " = sub %d" +
                            m + ", %w$" +
                            Program::store("%s" + m, out.add_field(Prim::f64), Prim::f64);
                }
            }
            out.loop(loop);
        }
    }
    // Atomics on cells that several iterations meet in, and on one.
    for (int k = 0; k < int(Op::count_); ++k) {
        const ir::OpInfo& op = ir::info(Op(k));
        if (op.kind != ir::Kind::atomic || Op(k) == Op::atomic_cas) continue;
        if (op.takes == ir::Takes::ints && type::is_float(p)) continue;
        const std::string end = std::string("\n    %old$ = ") + op.name + " %at$, %a$";
        out.loop(Program::load("a", x, p) + Program::load("j", index, Prim::u8) +
                 "%at$ = field_place " + out.add_field(p) + ", %j$ : place<" + name + ">" + end);
        if (Op(k) == Op::atomic_min || Op(k) == Op::atomic_max)
            out.loop(Program::load("a", x, p) + "%at$ = field_place " + out.add_field(p) +
                     ", %zero : place<" + name + ">" + end);
    }
    return out;
}

using Storage = std::vector<std::vector<uint8_t>>;

Storage values(const Program& program) {
    Storage all;
    std::mt19937_64 random(3);
    for (size_t f = 0; f < program.storage.size(); ++f) {
        const auto [p, cells] = program.storage[f];
        const size_t size = size_t(type::bytes(p));
        std::vector<uint8_t> bytes(size * size_t(cells) + 64);
        const double special[] = {0,    -0.0, 1,    -1,     NAN,   INFINITY, -INFINITY, 0.5,
                                  -2.5, 3,    1e-3, 5.5e-8, 1e-40, 1e-310,   65519,     -7};
        for (int k = 0; k < cells; ++k) {
            uint64_t bits = random() >> random() % 60;
            if (type::is_float(p)) {
                const double ordinary = double(int64_t(random()) >> random() % 60) * 0x1p-24;
                bits = ir::bits_of_double(p, k % 3 ? special[random() % 16] : ordinary);
            }
            if (p == Prim::u1 || f == 4) bits %= f == 4 ? 7 : 2;  // field 4 is the index
            if (f == 2) bits = (random() % 9) - (random() % 2 ? 4 : 0);
            std::memcpy(bytes.data() + size * size_t(k), &bits, size);
        }
        all.push_back(std::move(bytes));
    }
    return all;
}

std::vector<void*> addresses(Storage& s) {
    std::vector<void*> out;
    for (auto& bytes : s) out.push_back(bytes.data());
    return out;
}

std::unique_ptr<ir::Module> module_of(const std::string& text) {
    auto m = ir::parse(text);
    m->options.fast_math = false;  // what is compared is exact
    return m;
}

Storage by_interpreter(const Program& program, bool fused) {
    Storage s = values(program);
    const auto m = module_of(program.text());
    const auto bindings = addresses(s);
    int32_t stop = 0;
    std::vector<uint8_t> temps(1024);
    abi::Runtime runtime{};
    abi::Context c{};
    c.runtime = &runtime;
    c.bindings = bindings.data();
    c.temps = temps.data();
    c.stop = &stop;
    ir::interpret(*m, c, {.fused = fused});
    return s;
}

Storage by_code(const Program& program, std::span<const uint8_t> artefact) {
    Storage s = values(program);
    const auto bindings = addresses(s);
    const auto image = runtime::load_artefact(artefact, "sweep");
    runtime::Pool pool(1);
    abi::Context c{};
    c.bindings = bindings.data();
    runtime::LaunchOutcome outcome;
    runtime::launch(*image, c, pool, {}, outcome);
    return s;
}

bool is_nan(Prim p, const uint8_t* at) {
    uint64_t bits = 0;
    std::memcpy(&bits, at, size_t(type::bytes(p)));
    return type::is_float(p) && std::isnan(ir::double_of_bits(p, bits));
}

void compare(const Program& program, const Storage& expect, const Storage& got) {
    for (size_t f = 0; f < expect.size(); ++f) {
        const auto [p, cells] = program.storage[f];
        const size_t size = size_t(type::bytes(p));
        for (size_t k = 0; k < size_t(cells); ++k) {
            const uint8_t *e = &expect[f][k * size], *g = &got[f][k * size];
            if (std::memcmp(e, g, size) == 0 || (is_nan(p, e) && is_nan(p, g))) continue;
            const size_t at = program.body.find("@f" + std::to_string(f) + ",");
            const size_t from = at == std::string::npos ? 0 : program.body.rfind("  for", at);
            uint64_t eb = 0, gb = 0;
            std::memcpy(&eb, e, size), std::memcpy(&gb, g, size);
            ADD_FAILURE() << "f" << f << "[" << k << "]: expect " << std::hex << eb << " got " << gb
                          << "\n"
                          << program.body.substr(from, program.body.find("\n  }", at) - from);
            return;
        }
    }
}

// Compiled for each processor, and run where this machine can.
void expect_the_same_on_every_target(const Program& program) {
    Storage expected[2];
    for (const Target& t : targets()) {
        const ir::Target target = codegen::target_of(t.cpu, t.triple);
        const bool fused = target.fused;
        pass::PipelineOptions options;
        options.target = target;
        const auto prepared =
            codegen::prepare(pass::run_pipeline(module_of(program.text()), options));
        for (const int tier : {0, 1}) {
            SCOPED_TRACE(std::string(t.cpu) + " tier " + std::to_string(tier));
            codegen::Options wanted;
            wanted.tier = tier;
            wanted.cpu = t.cpu;
            wanted.triple = t.triple;
            const auto emitted = codegen::emit(prepared, wanted);
            EXPECT_GT(emitted.objects.at(0).size(), 500u);
            if (!t.runs) continue;
            if (expected[fused].empty()) expected[fused] = by_interpreter(program, fused);
            compare(program, expected[fused],
                    by_code(program, compiler::write_artefact(prepared, emitted, nullptr)));
        }
    }
}

class every_target : public testing::TestWithParam<Prim> {};

TEST_P(every_target, compile_every_op_and_run_it_where_they_can) {
    expect_the_same_on_every_target(sweep(GetParam()));
}

std::string assembly_of(const std::string& text, const std::string& cpu) {
    pass::PipelineOptions options;
    options.target = codegen::target_of(cpu, "x86_64-linux-gnu");
    auto module = module_of(text);
    module->options.fast_math = true;
    const auto prepared = codegen::prepare(pass::run_pipeline(std::move(module), options));
    codegen::Options wanted;
    wanted.cpu = cpu, wanted.triple = "x86_64-linux-gnu";
    wanted.want = codegen::Options::Want::assembly;
    const auto bytes = codegen::emit(prepared, wanted).objects.at(0);
    return {bytes.begin(), bytes.end()};
}

size_t matches(const std::string& text, const std::string& pattern) {
    const std::regex wanted(pattern);
    return size_t(std::distance(std::sregex_iterator(text.begin(), text.end(), wanted), {}));
}

// How many registers of a kind a sum over an array is collected in: each takes its operand from
// memory.
size_t registers_of_a_sum(const std::string& loop, const std::string& cpu,
                          const std::string& kind) {
    const std::string text = assembly_of(R"(
module "sum"
param array<f32, 1> offset=0 "y"
results f32
func @sum(%y: array<f32, 1>) {
  %zero = constant 0.0 : f32
  %s = slot : place<f32>
  store %s, %zero
  %n = array_shape %y : i32
  %begin = constant 0 : i32
)" + loop + R"(
  %r = load %s : f32
  set_result %r
  return
}
)",
                                         cpu);
    const std::regex addition(R"(vaddps\s+[-0-9]*\(%r(?!sp)[^)]*\), %)" + kind + R"((\d+), %)" +
                              kind + R"(\1\b)");
    std::set<std::string> registers;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), addition);
         at != std::sregex_iterator(); ++at)
        registers.insert((*at)[1]);
    return registers.size();
}

TEST(lanes, stay_in_registers_as_wide_as_the_cpu_likes) {
    const std::string parallel = R"(
  for %i = %begin to %n parallel {
    %p = array_place %y, %i : place<f32>
    %x = load %p : f32
    %old = atomic_add %s, %x : f32
    continue
  }
)";
    const std::string serial = R"(
  for %i = %begin to %n parallel {
    %t = slot : place<f32>
    store %t, %zero
    for %j = %begin to %n {
      %p = array_place %y, %j : place<f32>
      %x = load %p : f32
      %old = load %t : f32
      %new = add %old, %x : f32
      store %t, %new
      continue
    }
    %sum = load %t : f32
    %most = atomic_max %s, %sum : f32
    continue
  }
)";
    // 64 lanes and 16. LLVM knows which CPUs run slower with registers of 16.
    EXPECT_EQ(registers_of_a_sum(parallel, "x86-64-v3", "ymm"), 8u);
    EXPECT_EQ(registers_of_a_sum(parallel, "skylake-avx512", "ymm"), 8u);
    EXPECT_EQ(registers_of_a_sum(parallel, "znver4", "zmm"), 4u);
    EXPECT_EQ(registers_of_a_sum(serial, "x86-64-v3", "ymm"), 2u);
    EXPECT_EQ(registers_of_a_sum(serial, "znver4", "zmm"), 1u);
}

TEST(stores, to_places_apart_are_one_each) {
    const std::string members_of_structs = R"(
module "step"
field @x "x" : vec<f32, 3> shape [50000] offset [0] terms [0 / 1 % 0 * 28] components [0, 4, 8] group 1
field @v "v" : vec<f32, 3> shape [50000] offset [0] terms [0 / 1 % 0 * 28] components [0, 4, 8] group 2
func @step() {
  %begin = constant 0 : i32
  %n = constant 50000 : i32
  for %i = %begin to %n parallel {
    %x = field_place @x, %i : place<vec<f32, 3>>
    %v = field_place @v, %i : place<vec<f32, 3>>
    %dt = constant 0.01 : f32
    %speed = load %v : vec<f32, 3>
    %all = splat %dt : vec<f32, 3>
    %way = mul %all, %speed : vec<f32, 3>
    %old = atomic_add %x, %way : vec<f32, 3>
    continue
  }
  return
}
)";
    for (const char* cpu : {"skylake-avx512", "sapphirerapids", "znver4"})
        EXPECT_EQ(matches(assembly_of(members_of_structs, cpu), "scatter"), 0u) << cpu;
}

TEST(sine_and_cosine, of_one_angle_reduce_it_once) {
    const auto program = [](const std::string& op) {
        return R"(
module "turn"
param array<f32, 1> offset=0 "y"
func @turn(%y: array<f32, 1>) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %p = array_place %y, %zero : place<f32>
  %q = array_place %y, %one : place<f32>
  %x = load %p : f32
  %s = sin %x : f32
  %c = )" + op +
               R"( %x : f32
  store %p, %s
  store %q, %c
  return
}
)";
    };
    const size_t alone = assembly_of(program("neg"), "x86-64-v3").size();
    const size_t both = assembly_of(program("cos"), "x86-64-v3").size();
    EXPECT_LT(double(both), 1.2 * double(alone));
}

// A sine of many: three quarters of its instructions are for angles beyond 2^13.
TEST(a_loop_of_vectors, branches_around_what_no_lane_needs) {
    const std::string program = R"(
module "wave"
param array<f32, 1> offset=0 "y"
func @wave(%y: array<f32, 1>) {
  %n = array_shape %y : i32
  %begin = constant 0 : i32
  for %i = %begin to %n parallel {
    %p = array_place %y, %i : place<f32>
    %x = load %p : f32
    %s = sin %x : f32
    store %p, %s
    continue
  }
  return
}
)";
    // A test of all lanes at once.
    EXPECT_GE(matches(assembly_of(program, "x86-64-v3"), "v(movmskps|testps|ptest)"), 1u);
    EXPECT_GE(matches(assembly_of(program, "znver4"), "kortest"), 1u);
}

// Fields of vectors x and v, side by side in memory, and a loop over both.
Program of_vectors(Prim p, int n, const std::string& body) {
    Program out;
    const std::string type =
        std::string("vec<") + type::info(p).name + ", " + std::to_string(n) + ">";
    std::string components;
    for (int k = 0; k < n; ++k) components += (k ? ", " : "") + std::to_string(k * type::bytes(p));
    for (const char* name : {"x", "v"}) {
        out.fields += std::string("field @") + name + " \"" + name + "\" : " + type + " shape [" +
                      std::to_string(kCells) + "] offset [0] terms [0 / 1 % 0 * " +
                      std::to_string(n * type::bytes(p)) + "] components [" + components +
                      "] group " + (*name == 'x' ? "1" : "2") + "\n";
        out.storage.emplace_back(p, n * kCells);
    }
    out.loop("%px = field_place @x, %i$ : place<" + type + ">\n%pv = field_place @v, %i$ : place<" +
             type +
             ">\n%x = load %px\n%v = load %pv\n%half = constant 0.5 : " + type::info(p).name +
             "\n%c = splat %half : " + type + "\n" + body + "\nstore %px, %r\n");
    return out;
}

const std::string kAlike[] = {"%r = add %x, %v", "%q = mul %v, %c\n%r = sub %x, %q",
                              "%q = neg %v\n%s = sqrt %x\n%t = mul %c, %q\n%r = div %t, %s"};
// Something else for each component is put together, or other components are.
const std::string kUnlike[] = {
    "%a = extract %v #0\n%b = extract %v #1\n%p = mul %a, %b\n%s = insert %v, %p #1\n"
    "%r = add %x, %s",
    "%a = extract %x #0\n%b = extract %x #1\n%s = insert %x, %b #0\n%y = insert %s, %a #1\n"
    "%r = add %y, %v"};

// Of whole registers; the rest of the iterations has its own.
size_t shuffles(const Program& program) {
    return matches(assembly_of(program.text(), "x86-64-v3"),
                   "v(perm|shuf|unpck|blend|insert)[a-z0-9]*\t[^\n]*%ymm");
}

TEST(groups_of_components, are_worked_on_as_they_lie_in_memory) {
    for (const Prim p : {Prim::f32, Prim::f64})
        for (const int n : {2, 3, 4}) {
            for (const std::string& body : kAlike) {
                const Program program = of_vectors(p, n, body);
                expect_the_same_on_every_target(program);
                // Of f64 the vectoriser loads some one by one.
                EXPECT_TRUE(p == Prim::f64 || shuffles(program) == 0) << program.text();
            }
            for (const std::string& body : kUnlike)
                expect_the_same_on_every_target(of_vectors(p, n, body));
        }
}

// What is added differs by component: it is put together, and x not taken apart.
TEST(groups_of_components, are_put_together_once) {
    const auto of = [](const std::string& with) {
        return shuffles(of_vectors(Prim::f32, 3,
                                   "%a = extract %v #0\n%b = extract %v #1\n%p = mul %a, %b\n"
                                   "%q = sqrt %a\n%y = build %p, %q, %b : vec<f32, 3>\n" +
                                       with));
    };
    EXPECT_EQ(of("%r = add %x, %y"), of("%r = neg %y"));
}

TEST(a_short_loop, that_branches_is_written_out_once_it_runs_often) {
    const std::string text = assembly_of(R"(
module "around"
param array<f32, 1> offset=0 "y"
func @around(%y: array<f32, 1>) {
  %zero = constant 0.0 : f32
  %n = array_shape %y : i32
  %begin = constant 0 : i32
  %three = constant 3 : i32
  for %i = %begin to %n parallel {
    %t = slot : place<f32>
    store %t, %zero
    for %k = %begin to %three {
      %at = add %i, %k : i32
      %in = lt %at, %n : u1
      if %in {
        %p = array_place %y, %at : place<f32>
        %x = load %p : f32
        %some = gt %x, %zero : u1
        if %some {
          %r = sqrt %x : f32
          %old = load %t : f32
          %new = add %old, %r : f32
          store %t, %new
          continue
        }
        yield
      }
      continue
    }
    %sum = load %t : f32
    %q = array_place %y, %i : place<f32>
    store %q, %sum
    continue
  }
  return
}
)",
                                         "x86-64-v3");
    EXPECT_EQ(matches(text, "vsqrtss"), 3u);
}

std::string constant_text(Prim p, uint64_t bits) {
    if (!type::is_float(p))
        return type::is_signed(p) ? std::to_string(ir::int_of_bits(p, bits)) : std::to_string(bits);
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
    return text;
}

// Each op with a constant on either side: what passes and LLVM make of it.
Program sweep_constants(Prim p) {
    Program out;
    const std::string x = out.add_field(p), name = type::info(p).name;
    (void)out.add_field(p), (void)out.add_field(Prim::i32);
    std::vector<uint64_t> constants;
    const int width = type::bits(p);
    if (type::is_float(p)) {
        for (const double v :
             {0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 1e-40, double(INFINITY), double(NAN)})
            constants.push_back(ir::bits_of_double(p, v));
    } else {
        const uint64_t ones = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
        for (const uint64_t v :
             {uint64_t(0), uint64_t(1), ones, uint64_t(2), uint64_t(7), ones >> 1,
              uint64_t(1) << (width - 1), uint64_t(width), uint64_t(width - 1)})
            constants.push_back(v & ones);
    }
    std::string loop;
    size_t count = 0;
    const auto flush = [&] {
        if (count) out.loop(Program::load("a", x, p) + loop);
        loop.clear(), count = 0;
    };
    const auto add = [&](const std::string& op, const std::string& operands, Prim result) {
        const std::string r = "%r" + std::to_string(count++) + "x$";
        loop += "\n    " + r + " = " + op + " " + operands +
                Program::store(r, out.add_field(result), result);
        if (count >= 3 * kStepsOfALoop) flush();
    };
    for (const uint64_t c : constants) {
        const std::string k = "%k" + std::to_string(out.names) + "x" + std::to_string(c) + "$";
        const auto define = [&](const std::string& to, uint64_t bits) {
            loop += "\n    " + to + " = constant " + constant_text(p, bits) + " : " + name;
        };
        define(k, c);
        for (int o = 0; o < int(Op::count_); ++o) {
            const ir::OpInfo& op = ir::info(Op(o));
            if (op.kind != ir::Kind::elementwise || op.operands != 2 || Op(o) == Op::powi) continue;
            if (op.takes == (type::is_float(p) ? ir::Takes::ints : ir::Takes::floats)) continue;
            const Prim result = op.rule == ir::Rule::boolean ? Prim::u1 : p;
            add(op.name, "%a$, " + k, result);
            if (count == 0) define(k, c);
            add(op.name, k + ", %a$", result);
            if (count == 0) define(k, c);
        }
        flush();
    }
    return out;
}

TEST_P(every_target, constants_give_what_values_give) {
    const Program program = sweep_constants(GetParam());
    for (const char* cpu : {"x86-64", ""}) {
        const char* triple = *cpu ? "x86_64-linux-gnu" : "";
        const ir::Target target = codegen::target_of(cpu, triple);
        const bool fused = target.fused;
        const Storage expect = by_interpreter(program, fused);
        pass::PipelineOptions options;
        options.target = target;
        const auto prepared =
            codegen::prepare(pass::run_pipeline(module_of(program.text()), options));
        for (const int tier : {0, 1}) {
            SCOPED_TRACE(std::string(cpu) + " tier " + std::to_string(tier));
            codegen::Options wanted;
            wanted.tier = tier;
            wanted.cpu = cpu;
            wanted.triple = triple;
            const auto emitted = codegen::emit(prepared, wanted);
            compare(program, expect,
                    by_code(program, compiler::write_artefact(prepared, emitted, nullptr)));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(codegen, every_target, testing::ValuesIn(kAll),
                         [](const auto& of) { return std::string(type::info(of.param).name); });

}  // namespace
}  // namespace qd
