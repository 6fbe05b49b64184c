// Small relocatable objects and artefacts, made by hand: code bytes in, the loader's input out.

#pragma once

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/abi.h"
#include "support/format_table.h"

namespace qd::test {

using Bytes = std::vector<uint8_t>;

struct Relocation {
    uint64_t offset;
    uint32_t type;
    uint32_t symbol;  // number in `symbols`, from 1
    int64_t addend;
};

struct Symbol {
    std::string name;
    uint16_t section;  // Object::kText, kData, kBss, or SHN_UNDEF
    uint64_t value = 0;
};

struct Object {
    enum : uint16_t { kText = 1, kData, kBss, kRela, kSymbols, kStrings, kCount };
    Bytes text, data;
    uint64_t bss = 0;
    std::vector<Symbol> symbols;
    std::vector<Relocation> relocations;

    Bytes elf() const {
        Elf64_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_type = ET_REL;
        header.e_machine = EM_X86_64;
        header.e_shentsize = sizeof(Elf64_Shdr);
        header.e_shnum = kCount;
        Bytes out(sizeof header);
        Elf64_Shdr sections[kCount] = {};
        auto add = [&](int k, uint32_t type, uint64_t flags, const void* at, size_t bytes,
                       uint64_t align) {
            out.resize((out.size() + 15) & ~size_t(15));
            sections[k].sh_type = type;
            sections[k].sh_flags = flags;
            sections[k].sh_offset = out.size();
            sections[k].sh_size = bytes;
            sections[k].sh_addralign = align;
            auto* b = static_cast<const uint8_t*>(at);
            if (b) out.insert(out.end(), b, b + bytes);
        };
        add(kText, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, text.data(), text.size(), 16);
        add(kData, SHT_PROGBITS, SHF_ALLOC, data.data(), data.size(), 8);
        add(kBss, SHT_NOBITS, SHF_ALLOC | SHF_WRITE, nullptr, bss, 64);
        std::vector<Elf64_Rela> rela;
        for (const Relocation& r : relocations)
            rela.push_back({r.offset, ELF64_R_INFO(uint64_t(r.symbol), r.type), r.addend});
        add(kRela, SHT_RELA, 0, rela.data(), rela.size() * sizeof(Elf64_Rela), 8);
        sections[kRela].sh_info = kText;
        sections[kRela].sh_link = kSymbols;
        std::string names(1, '\0');
        std::vector<Elf64_Sym> table(1);
        for (const Symbol& s : symbols) {
            Elf64_Sym e{};
            e.st_name = uint32_t(names.size());
            e.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE);
            e.st_shndx = s.section;
            e.st_value = s.value;
            names += s.name + '\0';
            table.push_back(e);
        }
        add(kSymbols, SHT_SYMTAB, 0, table.data(), table.size() * sizeof(Elf64_Sym), 8);
        sections[kSymbols].sh_link = kStrings;
        add(kStrings, SHT_STRTAB, 0, names.data(), names.size(), 1);
        out.resize((out.size() + 15) & ~size_t(15));
        header.e_shoff = out.size();
        auto* b = reinterpret_cast<const uint8_t*>(sections);
        out.insert(out.end(), b, b + sizeof sections);
        std::memcpy(out.data(), &header, sizeof header);
        return out;
    }
};

// mov eax, 42; ret
inline Object answer(const char* name = "task0") {
    Object o;
    o.text = {0xb8, 42, 0, 0, 0, 0xc3};
    o.symbols = {{name, Object::kText, 0}};
    return o;
}

inline Bytes artefact(const std::vector<abi::Task>& tasks, const std::vector<Bytes>& objects,
                      const std::vector<support::FormatEntry>& formats = {}) {
    abi::Artefact h{};
    std::memcpy(h.magic, "QDART\0\0", 8);
    h.abi_version = abi::kAbiVersion;
    h.tier = 1;
    h.temps_bytes = h.args_bytes = h.result_bytes = 64;
    Bytes out(sizeof h);
    auto append = [&](const void* at, size_t bytes) {
        out.resize((out.size() + 15) & ~size_t(15));
        const auto offset = uint32_t(out.size());
        auto* b = static_cast<const uint8_t*>(at);
        if (bytes) out.insert(out.end(), b, b + bytes);
        return offset;
    };
    const Bytes table = support::write_format_table(formats);
    h.task_count = uint32_t(tasks.size());
    h.tasks = append(tasks.data(), tasks.size() * sizeof(abi::Task));
    h.format_bytes = uint32_t(table.size());
    h.formats = append(table.data(), table.size());
    std::vector<abi::ObjectRange> ranges(objects.size());
    h.object_count = uint32_t(objects.size());
    h.objects = append(ranges.data(), ranges.size() * sizeof ranges[0]);
    for (size_t k = 0; k < objects.size(); ++k)
        ranges[k] = {append(objects[k].data(), objects[k].size()), uint32_t(objects[k].size())};
    h.first_object = ranges.at(0).offset;
    std::memcpy(out.data() + h.objects, ranges.data(), ranges.size() * sizeof ranges[0]);
    h.bytes = out.size();
    std::memcpy(out.data(), &h, sizeof h);
    return out;
}

}  // namespace qd::test
