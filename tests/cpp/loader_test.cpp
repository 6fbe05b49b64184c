// The object loader and the artefact reader: what they accept runs, and no damaged input gets past
// an exception. Objects are x86-64.

#include "runtime/cpu/loader.h"

#include <gtest/gtest.h>

#include <random>

#include "objects.h"
#include "runtime/cpu/kernel.h"
#include "support/error.h"
#include "type/type.h"

#if defined(__x86_64__)

namespace qd::runtime {
namespace {

using test::Bytes;
using test::Object;

int call(const LoadedObject& o, const char* name) {
    return reinterpret_cast<int (*)()>(o.find(name))();
}

TEST(loader, runs_code) {
    const LoadedObject o(test::answer("f").elf());
    ASSERT_NE(o.find("f"), nullptr);
    EXPECT_EQ(o.find("g"), nullptr);
    EXPECT_EQ(call(o, "f"), 42);
}

// mov eax, [rip + data]; ret
Object reads_data() {
    Object o;
    o.text = {0x8b, 0x05, 0, 0, 0, 0, 0xc3};
    o.data = {7, 0, 0, 0, 9, 0, 0, 0};
    o.symbols = {{"f", Object::kText, 0}, {"data", Object::kData, 4}};
    o.relocations = {{2, R_X86_64_PC32, 2, -4}};
    return o;
}

// The same through a pointer: mov rax, [rip + got]; mov eax, [rax]; ret
Object reads_through_pointer(uint32_t type) {
    Object o = reads_data();
    o.text = {0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x8b, 0x00, 0xc3};
    o.relocations = {{3, type, 2, -4}};
    return o;
}

// movabs rax, address; mov eax, [rax]; ret
Object reads_absolute() {
    Object o = reads_data();
    o.text = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0x8b, 0x00, 0xc3};
    o.relocations = {{2, R_X86_64_64, 2, -4}};
    return o;
}

// int f(int* to): memset(to, 5, 4) by a call that the stub carries; then returns *to.
// push rdi; push rdi; sub rsp,8; mov esi,5; mov edx,4; call; add rsp,8; pop rdi; mov eax,[rdi]; pop
// rdi; ret
Object calls_helper(const char* name) {
    Object o;
    o.text = {0x57, 0x57, 0x48, 0x83, 0xec, 8, 0xbe, 5,    0,    0, 0,    0xba, 4,    0,    0,
              0,    0xe8, 0,    0,    0,    0, 0x48, 0x83, 0xc4, 8, 0x5f, 0x8b, 0x07, 0x5f, 0xc3};
    o.symbols = {{"f", Object::kText, 0}, {name, SHN_UNDEF, 0}};
    o.relocations = {{17, R_X86_64_PLT32, 2, -4}};
    return o;
}

// add dword [rip + counter], 1; mov eax, [rip + counter]; ret
Object writes_data() {
    Object o;
    o.text = {0x83, 0x05, 0, 0, 0, 0, 1, 0x8b, 0x05, 0, 0, 0, 0, 0xc3};
    o.bss = 128;
    o.symbols = {{"f", Object::kText, 0}, {"counter", Object::kBss, 64}};
    o.relocations = {{2, R_X86_64_PC32, 2, -5}, {9, R_X86_64_PC32, 2, -4}};
    return o;
}

// LLVM counts some loops with 128 bits.
TEST(loader, wide_divisions_are_known) {
    using Wide = unsigned __int128;
    const auto wide = [](const char* name, Wide a, Wide b) {
        return reinterpret_cast<Wide (*)(Wide, Wide)>(runtime::helper_routine(name))(a, b);
    };
    const Wide a = Wide{7} << 100 | 12345, b = Wide{3} << 40 | 1;
    EXPECT_TRUE(wide("__udivti3", a, b) == a / b);
    EXPECT_TRUE(wide("__umodti3", a, b) == a % b);
    const auto negative = static_cast<__int128>(-a), divisor = static_cast<__int128>(b);
    EXPECT_TRUE(wide("__divti3", -a, b) == static_cast<Wide>(negative / divisor));
    EXPECT_TRUE(wide("__modti3", -a, b) == static_cast<Wide>(negative % divisor));
}

TEST(loader, relocations) {
    EXPECT_EQ(call(LoadedObject(reads_data().elf()), "f"), 9);
    for (const uint32_t type : {R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX})
        EXPECT_EQ(call(LoadedObject(reads_through_pointer(type).elf()), "f"), 9);
    EXPECT_EQ(call(LoadedObject(reads_absolute().elf()), "f"), 7);
    const LoadedObject helper(calls_helper("memset").elf());
    int to = 0;
    EXPECT_EQ(reinterpret_cast<int (*)(int*)>(helper.find("f"))(&to), 0x05050505);
    const LoadedObject counter(writes_data().elf());
    EXPECT_EQ(call(counter, "f"), 1);
    EXPECT_EQ(call(counter, "f"), 2);
}

// sub rsp, 8; call other; add eax, more; add rsp, 8; ret
Object calls_other(const char* name, const char* other, uint8_t more) {
    Object o;
    o.text = {0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0x83, 0xc0, more, 0x48, 0x83, 0xc4, 8, 0xc3};
    o.symbols = {{name, Object::kText, 0}, {other, SHN_UNDEF, 0}};
    o.relocations = {{5, R_X86_64_PLT32, 2, -4}};
    return o;
}

TEST(loader, objects_call_each_other) {
    Object counter = writes_data();
    counter.symbols[0].name = "k";
    const Bytes files[] = {calls_other("f", "g", 1).elf(), calls_other("g", "h", 2).elf(),
                           counter.elf(), test::answer("h").elf()};
    const std::span<const uint8_t> forward[] = {files[0], files[1], files[2], files[3]},
                                   back[] = {files[3], files[2], files[1], files[0]},
                                   less[] = {files[0], files[1]};
    for (const auto& order : {std::span(forward), std::span(back)}) {
        const LoadedObject all(order);
        EXPECT_EQ(call(all, "f"), 45);
        EXPECT_EQ(call(all, "k"), 1);
        EXPECT_EQ(call(all, "k"), 2);
    }
    EXPECT_THROW(LoadedObject{std::span(less)}, support::Error);
}

template <class Change>
void refuses(const char* text, Change change) {
    Object o = reads_data();
    change(o);
    try {
        LoadedObject loaded(o.elf());
        ADD_FAILURE() << "accepted: " << text;
    } catch (const support::Error& e) {
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
}

TEST(loader, says_what_is_wrong) {
    refuses("unknown symbol 'system'",
            [](Object& o) { o.symbols.push_back({"system", SHN_UNDEF}); });
    refuses("unknown x86-64 relocation", [](Object& o) { o.relocations[0].type = R_X86_64_TLSGD; });
    refuses("outside its section", [](Object& o) { o.relocations[0].offset = 5; });
    refuses("outside its section", [](Object& o) { o.relocations[0].offset = ~uint64_t(0); });
    refuses("outside its section", [](Object& o) { o.relocations[0].symbol = 77; });
    refuses("outside its section", [](Object& o) { o.symbols[1].value = 9; });
    refuses("out of range", [](Object& o) { o.relocations[0].addend = int64_t(1) << 40; });
    refuses("too large", [](Object& o) { o.bss = uint64_t(1) << 62; });
    EXPECT_THROW(LoadedObject(Bytes{}), support::Error);
    EXPECT_THROW(LoadedObject(Bytes(3, 0x7f)), support::Error);
    EXPECT_THROW(LoadedObject(Bytes(4096, 0xff)), support::Error);
}

TEST(loader, sections_lie_within_the_file) {
    const Bytes good = test::answer().elf();
    Elf64_Ehdr header;
    std::memcpy(&header, good.data(), sizeof header);
    const std::pair<uint64_t, uint64_t> ranges[] = {
        {good.size() - 8, 16}, {good.size() + 1, 1}, {0, good.size() + 1}};
    for (const uint16_t k : {Object::kText, Object::kSymbols, Object::kStrings}) {
        for (const auto& [offset, size] : ranges) {
            Bytes bad = good;
            const size_t at = header.e_shoff + k * sizeof(Elf64_Shdr);
            std::memcpy(bad.data() + at + offsetof(Elf64_Shdr, sh_offset), &offset, 8);
            std::memcpy(bad.data() + at + offsetof(Elf64_Shdr, sh_size), &size, 8);
            EXPECT_THROW(LoadedObject{bad}, support::Error) << k << ' ' << offset << ' ' << size;
        }
    }
}

template <class Read>
void survives_damage(const Bytes& good, Read read) {
    auto attempt = [&](const Bytes& bytes) {
        try {
            read(bytes);
        } catch (const support::Error&) {
        }
    };
    for (size_t n = 0; n < good.size(); ++n)
        attempt(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(n)));
    for (size_t k = 0; k < good.size(); ++k) {
        for (const uint8_t flip : {0x01, 0x80, 0xff, 0x41}) {
            Bytes bad = good;
            bad[k] ^= flip;
            attempt(bad);
        }
    }
    std::mt19937 random(11);
    for (int round = 0; round < 2000; ++round) {
        Bytes bad = good;
        for (int n = 0; n < 4; ++n) {
            const size_t at = random() % bad.size() & ~size_t(7);
            const uint64_t values[] = {0,          ~uint64_t(0), uint64_t(1) << 63,
                                       bad.size(), 0x7fffffff,   random()};
            const uint64_t v = values[random() % 6];
            std::memcpy(bad.data() + at, &v, std::min<size_t>(8, bad.size() - at));
        }
        attempt(bad);
    }
}

TEST(loader, damaged_objects) {
    Object all = calls_helper("memset");
    all.data = Bytes(24, 1);
    all.bss = 100;
    all.symbols.push_back({"data", Object::kData, 8});
    all.relocations.push_back({2, R_X86_64_PC32, 3, 0});
    all.relocations.push_back({6, R_X86_64_GOTPCREL, 3, 0});
    survives_damage(all.elf(), [](const Bytes& b) { LoadedObject o(b); });
    const Bytes caller = calls_other("f", "g", 1).elf(), called = test::answer("g").elf();
    const auto beside = [](const Bytes& a, const Bytes& b) {
        const std::span<const uint8_t> both[] = {a, b};
        LoadedObject o{std::span(both)};
    };
    survives_damage(caller, [&](const Bytes& b) { beside(b, called); });
    survives_damage(called, [&](const Bytes& b) { beside(caller, b); });
}

abi::Task range_task() {
    abi::Task t{};
    t.kind = abi::TaskKind::range;
    t.dims = 2;
    t.finish = UINT32_MAX;
    t.again = t.gate = -1;
    t.bounds[1] = {.kind = abi::BoundKind::constant, .bytes = 8, .value = 10};
    t.bounds[2] = {abi::BoundKind::arg, 4, 8, -1, 8};
    t.bounds[3] = {.kind = abi::BoundKind::temp, .bytes = 8, .value = 16};
    return t;
}

Bytes sample() {
    support::FormatEntry e;
    e.pieces = {{"x = ", 0}, {"8.3", 'f'}, {"\n", 0}};
    e.operands = {{static_cast<uint8_t>(type::Prim::f32), 0, 1, 1}};
    e.sites = {{"a.py", "k", 3, 4, 3, 8}, {"b.py", "g", 1, 0, 2, 1}};
    return test::artefact({range_task()}, {test::answer().elf(), test::answer("other").elf()}, {e});
}

TEST(artefact, loads) {
    const auto image = load_artefact(sample(), "k");
    ASSERT_EQ(image->tasks.size(), 1u);
    EXPECT_EQ(image->tasks[0].dims, 2);
    const auto& sites = image->formats.at(0).sites;
    ASSERT_EQ(sites.size(), 2u);
    EXPECT_EQ(sites[0], (support::SourceSite{"a.py", "k", 3, 4, 3, 8}));
    EXPECT_EQ(sites[1].function, "g");
    EXPECT_EQ(image->header().tier, 1u);
}

TEST(artefact, damaged) {
    survives_damage(sample(), [](const Bytes& b) { (void)load_artefact(b, "k"); });
}

template <class Change>
void refuses_task(Change change) {
    abi::Task t = range_task();
    change(t);
    EXPECT_THROW((void)load_artefact(test::artefact({t}, {test::answer().elf()}), "k"),
                 support::Error);
}

TEST(artefact, refuses_impossible_tasks) {
    refuses_task([](abi::Task& t) { t.dims = 13; });
    refuses_task([](abi::Task& t) { t.dims = 0; });
    refuses_task([](abi::Task& t) { t.kind = static_cast<abi::TaskKind>(7); });
    refuses_task([](abi::Task& t) { t.kind = abi::TaskKind::serial; });
    refuses_task([](abi::Task& t) { t.partial_bytes = 8; });  // no finish in the object
    refuses_task([](abi::Task& t) { t.again = 61; });
    refuses_task([](abi::Task& t) { t.again = 0, t.from = 1; });
    refuses_task([](abi::Task& t) { t.gate = 61, t.behind = 1; });
    refuses_task([](abi::Task& t) { t.gate = 0, t.behind = 0; });
    refuses_task([](abi::Task& t) { t.bounds[2].value = 61; });
    refuses_task([](abi::Task& t) { t.bounds[2].value = -4; });
    refuses_task([](abi::Task& t) { t.bounds[2].bytes = 3; });
    refuses_task([](abi::Task& t) { t.bounds[2].sum_bytes = 5; });
    refuses_task([](abi::Task& t) { t.bounds[2].kind = static_cast<abi::BoundKind>(9); });
    EXPECT_THROW(
        (void)load_artefact(test::artefact({range_task()}, {test::answer("other").elf()}), "k"),
        support::Error);
}

}  // namespace
}  // namespace qd::runtime

#endif
