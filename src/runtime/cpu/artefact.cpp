// Reads an artefact into a KernelImage; every offset is checked, since the bytes may come from a
// damaged file.

#include <algorithm>
#include <cstring>

#include "runtime/cpu/kernel.h"
#include "runtime/cuda/code.h"
#include "support/error.h"

namespace qd::runtime {
namespace {

using support::Error;

template <class T>
std::span<const T> table(std::span<const uint8_t> bytes, uint64_t offset, uint64_t count) {
    if (offset % alignof(T) || offset > bytes.size() || count > (bytes.size() - offset) / sizeof(T))
        throw Error("artefact: table outside the file");
    return {reinterpret_cast<const T*>(bytes.data() + offset), count};
}

size_t count_tasks(std::span<const LoadedTask> tasks) {
    size_t count = 0;
    std::vector<std::pair<int64_t, int32_t>> computed;  // arguments, and what is added
    const LoadedTask* before = nullptr;
    for (const LoadedTask& t : tasks) {
        count += t.counted;
        bool more = false;
        if (!t.ends_serial)
            for (const abi::Bound& b : t.bounds)
                if (const std::pair sum(b.value, b.addend);
                    b.kind == abi::BoundKind::arg &&
                    std::ranges::find(computed, sum) == computed.end()) {
                    computed.push_back(sum);
                    more = true;
                }
        if (more && (!before || !before->ends_serial)) ++count;
        before = &t;
    }
    return count;
}

}  // namespace

std::unique_ptr<KernelImage> load_artefact(std::span<const uint8_t> bytes, std::string name) {
    auto image = std::make_unique<KernelImage>();
    if (bytes.size() < sizeof(abi::Artefact)) throw Error("artefact: too short");
    abi::Artefact header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, "QDART\0\0", 8) != 0) throw Error("artefact: not one");
    if (header.abi_version != abi::kAbiVersion) throw Error("artefact: of another version");
    if (header.bytes != bytes.size()) throw Error("artefact: truncated");
    std::vector<std::span<const uint8_t>> objects;
    for (const auto& o : table<abi::ObjectRange>(bytes, header.objects, header.object_count))
        objects.push_back(table<uint8_t>(bytes, o.offset, o.bytes));
    if (header.first_object < sizeof header || header.first_object > bytes.size())
        throw Error("artefact: object outside the file");
    const auto ir = table<uint8_t>(bytes, header.ir, header.ir_bytes);
    image->ir.assign(ir.begin(), ir.end());
    image->optimise_us = header.optimise_us;
    image->artefact.assign(bytes.begin(), bytes.begin() + header.first_object);
    const std::span<const uint8_t> kept = image->artefact;
    const auto tasks = table<abi::Task>(kept, header.tasks, header.task_count);
    const auto pieces = table<abi::Piece>(kept, header.pieces, header.piece_count);
    const auto strings = table<char>(kept, header.strings, header.strings_bytes);
    const std::string_view texts(strings.data(), strings.size());
    image->formats =
        support::read_format_table(table<uint8_t>(kept, header.formats, header.format_bytes));
    const bool on_gpu = header.machine == abi::Machine::cuda;
    if (!on_gpu) image->code = std::make_unique<LoadedObject>(objects, name);
    image->stack_bytes = header.stack_bytes;
    image->temps_bytes = header.temps_bytes;
    image->result_bytes = header.result_bytes;
    image->args_bytes = header.args_bytes;
    image->tier = header.tier;
    image->uses_random = header.uses_random;
    image->uses_print = header.uses_print;
    image->uses_tape = header.uses_tape;
    image->array_use = header.arrays;
    image->name = std::move(name);
    for (size_t k = 0; k < tasks.size(); ++k) {
        const abi::Task& t = tasks[k];
        if (t.kind != abi::TaskKind::serial && t.kind != abi::TaskKind::range)
            throw Error("artefact: unknown kind of task");
        if (t.dims > abi::kMaxDims || (t.kind == abi::TaskKind::range) != (t.dims > 0))
            throw Error("artefact: wrong number of dimensions");
        if (t.privates > abi::kMaxPrivateFields) throw Error("artefact: too many private fields");
        if (t.again >= 0 && (t.from > k || uint64_t(t.again) + 4 > header.temps_bytes))
            throw Error("artefact: loop of tasks outside its block");
        if (t.gate >= 0 && (t.behind <= k || uint64_t(t.gate) + 4 > header.temps_bytes))
            throw Error("artefact: checkpoint outside its block");
        if (t.first_piece > pieces.size() || t.piece_count > pieces.size() - t.first_piece)
            throw Error("artefact: pieces outside their table");
        const auto handed = pieces.subspan(t.first_piece, t.piece_count);
        for (const abi::Piece& p : handed) {
            const uint64_t bytes =
                p.of_bindings ? 8 * uint64_t{header.binding_count} : header.args_bytes;
            if (uint64_t{p.from} + p.bytes > bytes || uint64_t{p.to} + p.bytes > t.record_bytes)
                throw Error("artefact: piece outside its block");
        }
        if (on_gpu && t.kind == abi::TaskKind::range && (t.block_dim < 1 || t.block_dim > 1024))
            throw Error("artefact: unusual block");
        auto entry = [&](const char* prefix) -> abi::TaskFn {
            if (on_gpu) return nullptr;
            void* at = image->code->find(prefix + std::to_string(k));
            if (!at) throw Error("artefact: entry point missing");
            return reinterpret_cast<abi::TaskFn>(at);
        };
        for (int b = 0; b < 2 * t.dims; ++b) {
            const abi::Bound& bound = t.bounds[b];
            if (bound.kind == abi::BoundKind::constant) continue;
            if (bound.kind != abi::BoundKind::arg && bound.kind != abi::BoundKind::temp)
                throw Error("artefact: unknown kind of loop bound");
            const uint64_t limit =
                bound.kind == abi::BoundKind::arg ? header.args_bytes : header.temps_bytes;
            if ((bound.bytes != 4 && bound.bytes != 8) || bound.value < 0 ||
                uint64_t(bound.value) + bound.bytes > limit)
                throw Error("artefact: loop bound outside its block");
            if (bound.addend && bound.sum_bytes != 4 && bound.sum_bytes != 8)
                throw Error("artefact: unknown sum in a loop bound");
        }
        image->tasks.push_back({t.kind,
                                t.dims,
                                entry("task"),
                                t.partial_bytes ? entry("finish") : nullptr,
                                t.partial_bytes,
                                t.max_threads,
                                t.block_dim,
                                {t.bounds, size_t(2 * t.dims)},
                                {t.private_fields, t.privates},
                                t.private_atomics,
                                t.polls != 0,
                                t.ends_serial != 0,
                                t.counted,
                                t.from,
                                t.again,
                                t.behind,
                                t.gate,
                                t.region,
                                t.branch,
                                t.shared_bytes,
                                t.iterations,
                                handed,
                                t.record_bytes,
                                texts.substr(std::min<size_t>(t.name, texts.size()))});
        std::string_view& name = image->tasks.back().name;
        name = name.substr(0, name.find('\0'));
    }
    if (on_gpu && !objects.empty())
        image->gpu = cuda::load_code(objects, image->tasks, header.stack_bytes > 0);
    if (!image->code && !image->gpu) throw Error("artefact: no code");
    image->counted_tasks = count_tasks(image->tasks);
    return image;
}

}  // namespace qd::runtime
