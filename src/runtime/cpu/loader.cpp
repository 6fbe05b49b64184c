// See loader.h.

#include "runtime/cpu/loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "runtime/cpu/perf_map.h"
#include "support/error.h"

namespace qd::runtime {
namespace {

using support::Error;

constexpr size_t kStubBytes = 16;
constexpr size_t kLargest = size_t(1) << 30;  // of a section: 32-bit relocations reach no further

struct Input {
    std::span<const uint8_t> bytes;

    template <class T>
    T read(uint64_t offset) const {
        if (offset > bytes.size() || sizeof(T) > bytes.size() - offset)
            throw Error("object file: offset outside the file");
        T value;
        std::memcpy(&value, bytes.data() + offset, sizeof(T));
        return value;
    }
    const uint8_t* range(uint64_t offset, uint64_t size) const {
        if (offset > bytes.size() || size > bytes.size() - offset)
            throw Error("object file: range outside the file");
        return bytes.data() + offset;
    }
    std::string_view text(const Elf64_Shdr& table, uint64_t offset) const {
        const uint8_t* start = range(table.sh_offset, table.sh_size);
        if (offset >= table.sh_size) throw Error("object file: string outside its table");
        const void* end = std::memchr(start + offset, 0, table.sh_size - offset);
        if (!end) throw Error("object file: string without end");
        return {reinterpret_cast<const char*>(start + offset)};
    }
};

// A damaged addend may be anything: addresses wrap.
int64_t plus(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t minus(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

size_t align_up(size_t n, size_t align) { return (n + align - 1) / align * align; }

// The target of a relocation inside the mapping, bounds-checked.
struct Patch {
    char* at;   // address to patch
    char* end;  // end of its section
    void write(const void* value, size_t bytes) const {
        if (at + bytes > end) throw Error("object file: relocation outside its section");
        std::memcpy(at, value, bytes);
    }
    uint32_t word() const {
        if (at + 4 > end) throw Error("object file: relocation outside its section");
        uint32_t w;
        std::memcpy(&w, at, 4);
        return w;
    }
    void signed32(int64_t value) const {
        if (value != static_cast<int32_t>(value))
            throw Error("object file: relocation out of range");
        const auto v = static_cast<int32_t>(value);
        write(&v, 4);
    }
};

// Everything a relocation may need to know about its symbol.
struct Target {
    int64_t value;  // S + A
    int64_t stub;   // address of a jump to S, for far calls; 0 if S is in the mapping
    int64_t got;    // address of a pointer to S
};

void relocate_x86(uint32_t type, const Patch& p, const Target& t, int64_t addend) {
    const auto place = reinterpret_cast<int64_t>(p.at);
    switch (type) {
        case R_X86_64_NONE:
            return;
        case R_X86_64_64:
            return p.write(&t.value, 8);
        case R_X86_64_PC64: {
            const int64_t v = minus(t.value, place);
            return p.write(&v, 8);
        }
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
            return p.signed32(minus(t.stub ? plus(t.stub, addend) : t.value, place));
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
            return p.signed32(minus(plus(t.got, addend), place));
        default:
            throw Error("object file: unknown x86-64 relocation " + std::to_string(type));
    }
}

int64_t page_of(int64_t address) { return address & ~int64_t(0xfff); }

void patch_bits(const Patch& p, uint32_t mask, uint32_t bits) {
    const uint32_t w = (p.word() & ~mask) | (bits & mask);
    p.write(&w, 4);
}

void adr_page(const Patch& p, int64_t target) {
    const int64_t pages = (page_of(target) - page_of(reinterpret_cast<int64_t>(p.at))) >> 12;
    if (pages < -(1 << 20) || pages >= (1 << 20))
        throw Error("object file: page relocation out of range");
    const auto u = static_cast<uint32_t>(pages);
    patch_bits(p, 0x60ffffe0, (u & 3) << 29 | (u >> 2 & 0x7ffff) << 5);
}

void low12(const Patch& p, int64_t target, int shift) {
    patch_bits(p, 0x3ffc00, static_cast<uint32_t>((target & 0xfff) >> shift) << 10);
}

void relocate_aarch64(uint32_t type, const Patch& p, const Target& t, int64_t addend) {
    const auto place = reinterpret_cast<int64_t>(p.at);
    switch (type) {
        case R_AARCH64_NONE:
            return;
        case R_AARCH64_ABS64:
            return p.write(&t.value, 8);
        case R_AARCH64_PREL64: {
            const int64_t v = minus(t.value, place);
            return p.write(&v, 8);
        }
        case R_AARCH64_PREL32:
            return p.signed32(minus(t.value, place));
        case R_AARCH64_CALL26:
        case R_AARCH64_JUMP26: {
            const int64_t d = (minus(t.stub ? plus(t.stub, addend) : t.value, place)) >> 2;
            if (d < -(1 << 25) || d >= (1 << 25)) throw Error("object file: branch out of range");
            return patch_bits(p, 0x03ffffff, static_cast<uint32_t>(d));
        }
        case R_AARCH64_ADR_PREL_PG_HI21:
            return adr_page(p, t.value);
        case R_AARCH64_ADD_ABS_LO12_NC:
        case R_AARCH64_LDST8_ABS_LO12_NC:
            return low12(p, t.value, 0);
        case R_AARCH64_LDST16_ABS_LO12_NC:
            return low12(p, t.value, 1);
        case R_AARCH64_LDST32_ABS_LO12_NC:
            return low12(p, t.value, 2);
        case R_AARCH64_LDST64_ABS_LO12_NC:
            return low12(p, t.value, 3);
        case R_AARCH64_LDST128_ABS_LO12_NC:
            return low12(p, t.value, 4);
        case R_AARCH64_ADR_GOT_PAGE:
            return adr_page(p, plus(t.got, addend));
        case R_AARCH64_LD64_GOT_LO12_NC:
            return low12(p, plus(t.got, addend), 3);
        default:
            throw Error("object file: unknown AArch64 relocation " + std::to_string(type));
    }
}

void write_stub(char* at, uint16_t machine, int64_t target) {
    if (machine == EM_X86_64) {
        const unsigned char jump[8] = {0xff, 0x25, 2, 0, 0, 0, 0x90, 0x90};  // jmp *[rip+2]
        std::memcpy(at, jump, 8);
    } else {
        const uint32_t jump[2] = {0x58000050, 0xd61f0200};  // ldr x16, #8; br x16
        std::memcpy(at, jump, 8);
    }
    std::memcpy(at + 8, &target, 8);
}

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif

// One of the objects, and where its parts lie in the mapping: offsets first, addresses once there
// is one.
struct Object {
    Input in;
    std::vector<Elf64_Shdr> sections;
    const Elf64_Shdr* symtab = nullptr;
    size_t symbols = 0;  // how many

    std::vector<size_t> start;  // by section; SIZE_MAX: not loaded
    size_t stubs = 0, pointers = 0;
    std::vector<int64_t> address;  // by symbol
    std::vector<bool> external;    // by symbol: outside the mapping

    explicit Object(std::span<const uint8_t> elf) : in{elf} {
        const auto header = in.read<Elf64_Ehdr>(0);
        if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
            header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_REL)
            throw Error("object file: not a relocatable ELF64 object");
        if (header.e_machine != kMachine) throw Error("object file: made for another machine");
        if (header.e_shnum > 4096) throw Error("object file: too many sections");
        sections.resize(header.e_shnum);
        for (size_t k = 0; k < sections.size(); ++k)
            sections[k] = in.read<Elf64_Shdr>(header.e_shoff + k * sizeof(Elf64_Shdr));
        for (const Elf64_Shdr& s : sections)
            if (s.sh_type == SHT_SYMTAB) symtab = &s;
        if (!symtab || symtab->sh_link >= sections.size())
            throw Error("object file: no symbol table");
        symbols = symtab->sh_size / sizeof(Elf64_Sym);
        (void)in.range(symtab->sh_offset, symtab->sh_size);
        start.assign(sections.size(), SIZE_MAX);
        address.assign(symbols, 0);
        external.assign(symbols, false);
    }

    void place(bool writable, size_t page, size_t& size) {
        for (size_t k = 0; k < sections.size(); ++k) {
            const Elf64_Shdr& s = sections[k];
            if (!(s.sh_flags & SHF_ALLOC) || bool(s.sh_flags & SHF_WRITE) != writable) continue;
            if (s.sh_type == 0x70000001) continue;  // unwind tables: nothing here unwinds
            if (s.sh_size > kLargest || s.sh_addralign > page || size > kLargest)
                throw Error("object file: section too large");
            size = align_up(size, s.sh_addralign ? s.sh_addralign : 1);
            start[k] = size;
            size += s.sh_size;
        }
    }
    void place_tables(size_t& size) {
        stubs = align_up(size, 16);
        pointers = stubs + symbols * kStubBytes;
        size = pointers + symbols * 8;
        if (size > kLargest) throw Error("object file: too many symbols");
    }
    void copy_to(char* memory) const {
        for (size_t k = 0; k < sections.size(); ++k)
            if (start[k] != SIZE_MAX && sections[k].sh_type != SHT_NOBITS)
                std::memcpy(memory + start[k], in.range(sections[k].sh_offset, sections[k].sh_size),
                            sections[k].sh_size);
    }

    template <class See>
    void each_symbol(See see) const {
        for (size_t k = 1; k < symbols; ++k) {
            const auto symbol = in.read<Elf64_Sym>(symtab->sh_offset + k * sizeof(Elf64_Sym));
            see(k, symbol, in.text(sections[symtab->sh_link], symbol.st_name));
        }
    }
    void define(char* memory, std::string_view name,
                std::unordered_map<std::string, void*>& functions) {
        each_symbol([&](size_t k, const Elf64_Sym& symbol, std::string_view label) {
            if (symbol.st_shndx == SHN_ABS) {
                address[k] = static_cast<int64_t>(symbol.st_value);
            } else if (symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < sections.size() &&
                       start[symbol.st_shndx] != SIZE_MAX) {
                const Elf64_Shdr& section = sections[symbol.st_shndx];
                if (symbol.st_value > section.sh_size)
                    throw Error("object file: symbol outside its section");
                address[k] =
                    reinterpret_cast<int64_t>(memory + start[symbol.st_shndx] + symbol.st_value);
                const bool code = section.sh_flags & SHF_EXECINSTR;
                if (code && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL)
                    functions.emplace(label, reinterpret_cast<void*>(address[k]));
                if (code && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
                    note_code(address[k], symbol.st_size, name, label);
            }
        });
    }
    // What is not here is a function of another of the objects or a helper.
    void resolve(char* memory, const std::unordered_map<std::string, void*>& functions) {
        each_symbol([&](size_t k, const Elf64_Sym& symbol, std::string_view label) {
            if (symbol.st_shndx == SHN_UNDEF && !label.empty()) {
                const auto other = functions.find(std::string(label));
                if (other != functions.end()) {
                    address[k] = reinterpret_cast<int64_t>(other->second);
                } else {
                    void* helper = helper_routine(label);
                    if (!helper && label != "_GLOBAL_OFFSET_TABLE_")
                        throw Error("object file: unknown symbol '" + std::string(label) + "'");
                    address[k] = reinterpret_cast<int64_t>(helper);
                    external[k] = true;
                    write_stub(memory + stubs + k * kStubBytes, kMachine, address[k]);
                }
            }
            std::memcpy(memory + pointers + k * 8, &address[k], 8);
        });
    }
    void relocate(char* memory) const {
        for (const Elf64_Shdr& s : sections) {
            if (s.sh_type != SHT_RELA || s.sh_info >= sections.size() ||
                start[s.sh_info] == SIZE_MAX)
                continue;
            char* base = memory + start[s.sh_info];
            const size_t limit = sections[s.sh_info].sh_size;
            for (size_t r = 0; r < s.sh_size / sizeof(Elf64_Rela); ++r) {
                const auto rela = in.read<Elf64_Rela>(s.sh_offset + r * sizeof(Elf64_Rela));
                const size_t symbol = ELF64_R_SYM(rela.r_info);
                if (symbol >= symbols || rela.r_offset >= limit)
                    throw Error("object file: relocation outside its section");
                const Patch patch{base + rela.r_offset, base + limit};
                const Target target{plus(address[symbol], rela.r_addend),
                                    external[symbol] ? reinterpret_cast<int64_t>(
                                                           memory + stubs + symbol * kStubBytes)
                                                     : 0,
                                    reinterpret_cast<int64_t>(memory + pointers + symbol * 8)};
                if constexpr (kMachine == EM_X86_64)
                    relocate_x86(ELF64_R_TYPE(rela.r_info), patch, target, rela.r_addend);
                else
                    relocate_aarch64(ELF64_R_TYPE(rela.r_info), patch, target, rela.r_addend);
            }
        }
    }
};

}  // namespace

LoadedObject::LoadedObject(std::span<const std::span<const uint8_t>> files, std::string_view name) {
    std::vector<Object> objects;
    for (const auto& file : files) objects.emplace_back(file);

    // Code and constants first, then what stays writable on pages of its own.
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t size = 0;
    for (Object& o : objects) o.place(false, page, size);
    for (Object& o : objects) o.place_tables(size);
    const size_t executable = align_up(size, page);
    size = executable;
    for (Object& o : objects) o.place(true, page, size);
    size_ = align_up(size ? size : 1, page);
    memory_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) {
        memory_ = nullptr;
        throw Error("out of memory for the code");
    }
    try {
        for (const Object& o : objects) o.copy_to(memory_);
        for (Object& o : objects) o.define(memory_, name, symbols_);
        for (Object& o : objects) o.resolve(memory_, symbols_);
        for (const Object& o : objects) o.relocate(memory_);
        if (mprotect(memory_, executable, PROT_READ | PROT_EXEC) != 0)
            throw Error("object file: cannot make code executable");
        __builtin___clear_cache(memory_, memory_ + executable);
    } catch (...) {
        munmap(memory_, size_);
        throw;
    }
}

LoadedObject::LoadedObject(std::span<const uint8_t> file, std::string_view name)
    : LoadedObject({&file, 1}, name) {}

LoadedObject::~LoadedObject() {
    if (memory_) munmap(memory_, size_);
}

void* LoadedObject::find(std::string_view symbol) const {
    const auto it = symbols_.find(std::string(symbol));
    return it == symbols_.end() ? nullptr : it->second;
}

}  // namespace qd::runtime
