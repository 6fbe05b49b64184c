// Parts of an LLVM module, and how they are kept.
//
// What is made of a part follows from its bitcode, the target and a few options: their hash is its
// key, so whether a kept part is right needs no further question. Bitcode costs a twentieth of
// quick code.

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/Instructions.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/ValueMapper.h>

#include "codegen/llvm/parts.h"
#include "support/bytes.h"

namespace qd::codegen {

void drop_unused_declarations(llvm::Module& part) {
    for (llvm::Function& f : llvm::make_early_inc_range(part))
        if (f.isDeclaration() && f.use_empty()) f.eraseFromParent();
}

namespace {

using PartOf = llvm::DenseMap<const llvm::Function*, uint32_t>;  // of a plan's functions
using Functions = llvm::DenseSet<const llvm::Function*>;

void add_helpers(const llvm::Function& user, const PartOf& part_of, Functions& wanted) {
    for (const llvm::BasicBlock& block : user)
        for (const llvm::Instruction& i : block) {
            const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
            const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
            if (!callee || callee->isDeclaration() || part_of.contains(callee)) continue;
            if (wanted.insert(callee).second) add_helpers(*callee, part_of, wanted);
        }
}

// Each part has helpers of its own, and declares what it calls alone: others are none of its
// concern.
std::unique_ptr<llvm::Module> copy_part(const llvm::Module& whole, const PartOf& part_of,
                                        uint32_t number) {
    Functions wanted;
    for (const auto& [f, part] : part_of) {
        if (part != number) continue;
        wanted.insert(f);
        add_helpers(*f, part_of, wanted);
    }
    if (wanted.empty()) return nullptr;
    llvm::ValueToValueMapTy values;
    auto copy = llvm::CloneModule(whole, values, [&](const llvm::GlobalValue* g) {
        const auto* f = llvm::dyn_cast<llvm::Function>(g);
        return !f || wanted.contains(f);
    });
    drop_unused_declarations(*copy);
    return copy;
}

}  // namespace

void let_other_parts_call(llvm::Function& f) {
    f.setLinkage(llvm::GlobalValue::ExternalLinkage);
    f.setDSOLocal(true);  // hidden ones would be in the symbol table without being used
}

std::vector<std::unique_ptr<llvm::Module>> cut(llvm::Module& whole, const Prepared& prepared,
                                               std::span<const std::string> names) {
    PartOf part_of;
    for (size_t f = 0; f < names.size(); ++f)
        if (const llvm::Function* alive = whole.getFunction(names[f]))
            part_of[alive] = prepared.part_of[f];
    for (llvm::Function& f : whole) {
        const auto own = part_of.find(&f);
        if (own == part_of.end()) continue;
        for (const llvm::User* user : f.users()) {
            const auto* call = llvm::cast<llvm::CallInst>(user);
            if (part_of.lookup(call->getFunction()) != own->second) let_other_parts_call(f);
        }
    }
    std::vector<std::unique_ptr<llvm::Module>> parts;
    for (uint32_t number = 0; number < prepared.parts; ++number)
        if (auto part = copy_part(whole, part_of, number)) parts.push_back(std::move(part));
    return parts;
}

PartKey key_of(const llvm::Module& part, std::string_view how) {
    llvm::SmallVector<char, 0> bitcode;
    {
        llvm::BitcodeWriter writer(bitcode);
        writer.writeModule(part, /*ShouldPreserveUseListOrder=*/false, /*Index=*/nullptr,
                           /*GenerateHash=*/false);
        writer.writeStrtab();
    }
    bitcode.append(how.begin(), how.end());
    const XXH128_hash_t h = XXH3_128bits(bitcode.data(), bitcode.size());
    PartKey key;
    static_assert(sizeof key == sizeof h);
    std::memcpy(key.data(), &h, sizeof h);
    return key;
}

std::vector<uint8_t> write_part(const MadePart& part) {
    support::ByteWriter w;
    std::vector<std::string> names;
    for (const auto& [name, bytes] : part.frames) names.push_back(name);
    std::ranges::sort(names);
    w.number(uint32_t(names.size()));
    for (const std::string& name : names) {
        w.text(name);
        w.number(part.frames.at(name));
    }
    w.bytes(part.object);
    return std::move(w.out);
}

MadePart read_part(std::span<const uint8_t> bytes) {
    support::ByteReader r{bytes, "part"};
    MadePart part;
    for (uint32_t left = r.count(12); left > 0; --left) {
        const std::string name = r.text();
        part.frames[name] = r.number<uint64_t>();
    }
    part.object = r.bytes();
    return part;
}

}  // namespace qd::codegen
