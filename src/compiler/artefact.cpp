// The parts follow each other, each at a multiple of 16 bytes; gaps are zero, so equal inputs give
// equal bytes.

#include "compiler/artefact.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "support/abi.h"
#include "support/error.h"
#include "support/format_table.h"

namespace qd::compiler {
namespace {

uint32_t append(std::vector<uint8_t>& out, const void* data, size_t bytes) {
    out.resize((out.size() + 15) & ~size_t(15));
    const size_t at = out.size();
    if (at + bytes > UINT32_MAX) throw support::Error("the compiled kernel exceeds 4 GiB");
    out.resize(at + bytes);
    if (bytes) std::memcpy(out.data() + at, data, bytes);
    return uint32_t(at);
}

// In the order in which they lie; those that lie in both places side by side are one.
void add_pieces(const pass::Record& record, abi::Task& task, std::vector<abi::Piece>& pieces) {
    task.first_piece = uint32_t(pieces.size());
    task.record_bytes = record.bytes;
    std::vector<pass::Record::Piece> all = record.pieces;
    std::ranges::sort(all, {}, &pass::Record::Piece::to);
    for (const pass::Record::Piece& p : all) {
        const bool binding = p.kind == pass::Input::Kind::binding;
        const abi::Piece piece{binding, binding ? 8 * p.from : p.from, p.bytes, p.to};
        if (pieces.size() > task.first_piece) {
            abi::Piece& last = pieces.back();
            const bool goes_on = last.of_bindings == piece.of_bindings &&
                                 piece.from - last.from == piece.to - last.to &&
                                 piece.from > last.from && piece.to - last.to - last.bytes < 8;
            if (goes_on) {
                last.bytes = piece.to - last.to + piece.bytes;
                continue;
            }
        }
        pieces.push_back(piece);
    }
    task.piece_count = uint32_t(pieces.size()) - task.first_piece;
}

}  // namespace

std::vector<uint8_t> write_artefact(const codegen::Prepared& prepared,
                                    const codegen::Emitted& emitted, const Upgrade* upgrade) {
    const pass::Plan& plan = prepared.plan;
    std::string strings(1, '\0');  // offset 0 is the empty string
    std::vector<abi::Task> tasks;
    std::vector<abi::Piece> pieces;
    const std::vector<pass::Turns> turns = pass::turns_in_order(plan);
    for (const pass::Task& t : plan.tasks) {
        const pass::Turns& at = turns[tasks.size()];
        abi::Task out;
        std::memset(static_cast<void*>(&out), 0, sizeof out);
        out.kind = t.kind;
        out.dims = uint8_t(t.dims);
        out.finish = t.finish ? 0 : UINT32_MAX;
        out.partial_bytes = t.partial_bytes;
        out.block_dim = t.block_dim;
        out.max_threads = t.max_threads;
        out.polls = t.polls;
        out.counted = uint32_t(t.counted);
        out.ends_serial = t.ends_serial;
        out.from = at.from;
        out.again = at.again;
        out.behind = at.behind;
        out.gate = at.gate;
        out.region = at.region;
        out.branch = at.branch;
        out.shared_bytes = t.shared_bytes;
        out.iterations = uint32_t(t.iterations);
        out.privates = uint32_t(t.private_fields.size());
        out.private_atomics = t.private_atomics;
        std::copy(t.private_fields.begin(), t.private_fields.end(), out.private_fields);
        out.name = uint32_t(strings.size());
        strings += t.name;
        strings += '\0';
        std::copy_n(t.bounds, 2 * t.dims, out.bounds);
        if (plan.target.threads) add_pieces(t.record, out, pieces);
        tasks.push_back(out);
    }
    const std::vector<uint8_t> formats = support::write_format_table(prepared.format_table);

    abi::Artefact header;
    std::memset(static_cast<void*>(&header), 0, sizeof header);
    std::memcpy(header.magic, "QDART\0\0", 8);
    header.abi_version = abi::kAbiVersion;
    header.tier = upgrade ? 0 : 1;
    header.stack_bytes = emitted.stack_bytes;
    header.temps_bytes = plan.temps_bytes;
    header.result_bytes = plan.module->result_bytes();
    header.args_bytes = pass::args_bytes(*plan.module);
    header.task_count = uint32_t(tasks.size());
    header.format_bytes = uint32_t(formats.size());
    header.strings_bytes = uint32_t(strings.size());
    header.object_count = uint32_t(emitted.objects.size());
    header.uses_random = plan.uses_random;
    header.binding_count = uint32_t(plan.module->fields.size());
    header.machine = plan.target.threads ? abi::Machine::cuda : abi::Machine::cpu;
    header.uses_print = plan.uses_print;
    header.uses_tape = plan.uses_tape;
    header.instructions = plan.instructions;
    header.arrays = plan.module->arrays_may_overlap
                        ? abi::kOverlappingArrays
                        : (plan.assumes_distinct_arrays ? abi::kDistinctArrays : 0u) |
                              (plan.assumes_own_fields ? abi::kOwnFields : 0u);
    if (plan.array_atomics) header.arrays |= abi::kAtomicArrays;

    std::vector<uint8_t> out;
    append(out, &header, sizeof header);
    header.tasks = append(out, tasks.data(), tasks.size() * sizeof(abi::Task));
    header.formats = append(out, formats.data(), formats.size());
    header.strings = append(out, strings.data(), strings.size());
    header.piece_count = uint32_t(pieces.size());
    header.pieces = append(out, pieces.data(), pieces.size() * sizeof(abi::Piece));
    std::vector<abi::ObjectRange> objects(emitted.objects.size());
    header.objects = append(out, objects.data(), objects.size() * sizeof objects[0]);
    for (size_t k = 0; k < objects.size(); ++k) {
        const std::vector<uint8_t>& object = emitted.objects[k];
        objects[k] = {append(out, object.data(), object.size()), uint32_t(object.size())};
    }
    header.first_object = objects.at(0).offset;
    std::memcpy(out.data() + header.objects, objects.data(), objects.size() * sizeof objects[0]);
    if (upgrade) {
        header.optimise_us = upgrade->optimise_us;
        header.ir_bytes = uint32_t(upgrade->ir.size());
        header.ir = append(out, upgrade->ir.data(), upgrade->ir.size());
    }
    header.bytes = out.size();
    std::memcpy(out.data(), &header, sizeof header);
    return out;
}

}  // namespace qd::compiler
