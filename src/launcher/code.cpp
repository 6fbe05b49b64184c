// See code.h.

#include "launcher/code.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>

#include "cpython/entry.h"
#include "ir/ir.h"
#include "runtime/cuda/assembler.h"
#include "runtime/device.h"
#include "runtime/first_code.h"
#include "runtime/stage.h"
#include "session/stored_code.h"
#include "session/target.h"
#include "support/bytes.h"
#include "support/error.h"

namespace qd::launcher {
namespace {

// Code by hash of its IR: kernels with equal IR share one slot until qd.reset. Behind that it comes
// from the cache, whose folder may be another, or is compiled again.
using Slots = std::map<std::vector<uint8_t>, std::weak_ptr<runtime::ImageSlot>>;
Slots& slots = *new Slots;  // under the GIL; outlives static destruction

std::shared_ptr<runtime::ImageSlot> known_slot(const std::vector<uint8_t>& hash) {
    const auto it = slots.find(hash);
    return it == slots.end() ? nullptr : it->second.lock();
}

// What went wrong while code was improved, to be said by a thread that holds the GIL.
struct Complaints {
    std::mutex lock;  // guards texts
    std::vector<std::string> texts;
};
Complaints& complaints() {
    static auto* all = new Complaints;  // the queue may add to it during exit
    return *all;
}

int show_complaints(void*) {
    Complaints& c = complaints();
    std::vector<std::string> texts;
    {
        std::lock_guard guard(c.lock);
        texts.swap(c.texts);
    }
    for (const std::string& text : texts) cpython::try_to_log("warn", text);
    return 0;
}

// Any thread.
void complain(const std::string& kernel, const char* what) noexcept {
    if (interpreter_ends()) return;
    try {
        Complaints& c = complaints();
        std::lock_guard guard(c.lock);
        c.texts.push_back(kernel + " could not be optimised and keeps its quick code: " + what);
    } catch (const std::bad_alloc&) {
        return;
    }
    Py_AddPendingCall(cpython::entry<show_complaints>, nullptr);
}

decltype(runtime::Target::tell) tell_optimised(const std::string& name) {
    if (!reports_compiling()) return {};
    return [name](const abi::Artefact& code, int64_t passes_ns, int64_t emission_ns) {
        if (!interpreter_ends()) report_optimising(name, code, passes_ns, emission_ns);
    };
}

runtime::Target target_of(const std::vector<uint8_t>& hash, const std::string& name) {
    const Session& s = session();
    const std::string path = s.options.offline_cache ? s.options.offline_cache_file_path : "";
    return {name,
            s.cpu,
            [hash, path](std::span<const uint8_t> a) { store_artefact(path, hash, a); },
            [name](const char* what) { complain(name, what); },
            tell_optimised(name),
            path.empty() ? nullptr : std::make_shared<cache::PartFolder>(path, build_identity())};
}

std::shared_ptr<runtime::ImageSlot> make_slot(std::unique_ptr<runtime::KernelImage> image,
                                              runtime::Target target) {
    if (session().tier >= 0) image->ir.clear();  // a forced tier stays
    auto slot = std::make_shared<runtime::ImageSlot>(std::move(image), std::move(target));
    // Launches don't tell what a GPU's code costs, and its assembler takes none of our threads'
    // time.
    if (slot->current()->gpu && !slot->settled()) runtime::optimise(slot);
    return slot;
}

// Where the GPU's assembler may be: looked for with the first code that is made.
void find_assembler() {
    static bool told = false;  // under the GIL
    if (told) return;
    told = true;
    std::vector<std::string> folders;
    PyObject* path = PySys_GetObject("path");  // borrowed
    for (Py_ssize_t k = 0; path && PyList_Check(path) && k < PyList_GET_SIZE(path); ++k) {
        PyObject* folder = PyList_GET_ITEM(path, k);
        const char* text = PyUnicode_Check(folder) ? PyUnicode_AsUTF8(folder) : nullptr;
        if (text && *text) folders.emplace_back(text);
        cpython::forget_error();
    }
    runtime::cuda::find_assembler_in(folders);
}

// Whether options or the environment ask to see what is compiled.
bool is_inspected() {
    for (const char* variable : {"QD_DUMP_IR", "QD_DUMP_SIMPLIFY", "QD_DUMP_CFG", "QD_DUMP_AST",
                                 "QD_SHOW_COMPILING", "QD_LOAD_IR"}) {
        const char* value = std::getenv(variable);
        if (value && *value) return true;
    }
    const ir::Options& o = session().options;
    return o.print_ir || o.print_preprocessed_ir || o.print_kernel_llvm_ir ||
           o.print_kernel_llvm_ir_optimized || o.print_kernel_asm;
}

void inspect(PyObject* definition, const std::string& name, const std::vector<uint8_t>& module) {
    if (!is_inspected()) return;
    const cpython::Ref python =
        cpython::Ref::steal(PyImport_ImportModule("quadrants.lang._inspect.inspection"));
    cpython::Ref::steal(PyObject_CallMethod(python.get(), "show", "Osy#", definition, name.c_str(),
                                            reinterpret_cast<const char*>(module.data()),
                                            static_cast<Py_ssize_t>(module.size())));
}

// LLVM IR of tasks that files in the dump folder hold, if QD_LOAD_IR asks to read them.
std::vector<runtime::EditedTask> edited_tasks(const std::string& kernel,
                                              const std::vector<uint8_t>& module) {
    const char* wanted = std::getenv("QD_LOAD_IR");
    if (!wanted || std::strtol(wanted, nullptr, 10) == 0) return {};
    const cpython::Ref python =
        cpython::Ref::steal(PyImport_ImportModule("quadrants.lang._inspect.inspection"));
    const cpython::Ref list = cpython::Ref::steal(PyObject_CallMethod(
        python.get(), "edited_tasks", "sy#", kernel.c_str(),
        reinterpret_cast<const char*>(module.data()), static_cast<Py_ssize_t>(module.size())));
    std::vector<runtime::EditedTask> tasks;
    for (Py_ssize_t k = 0; k < PyList_Size(list.get()); ++k) {
        unsigned task = 0;
        const char *file = nullptr, *text = nullptr;
        Py_ssize_t file_size = 0, size = 0;
        if (!PyArg_ParseTuple(PyList_GetItem(list.get(), k), "Is#s#", &task, &file, &file_size,
                              &text, &size))
            throw cpython::PyError{};
        tasks.push_back(
            {task, {file, static_cast<size_t>(file_size)}, {text, static_cast<size_t>(size)}});
    }
    return tasks;
}

struct AtWork {
    AtWork() { ++session().compiling; }
    ~AtWork() { --session().compiling; }
};

// Compiles without the GIL. A signal handler that raises ends it. Throws PyError, support::Error.
std::shared_ptr<runtime::ImageSlot> compile(PyObject* definition, const ir::Module& module,
                                            const std::vector<uint8_t>& hash, Making& making) {
    const Session& s = session();
    runtime::FirstCodeRequest request{.ir = ir::serialise(module), .cpu = s.cpu};
    inspect(definition, module.name, request.ir);
    request.edited = edited_tasks(module.name, request.ir);
    request.tier = s.tier;
    if (!s.device->is_host) find_assembler();
    request.time_passes = s.options.compile_report > 1;
    request.name = module.name;
    request.threads = s.options.print_ir ? 1 : s.options.num_compile_threads;
    const bool edited = !request.edited.empty();
    const runtime::Target target = target_of(hash, module.name);
    const auto parts = request.parts = edited ? nullptr : target.parts;
    std::unique_ptr<runtime::KernelImage> image;
    {
        const AtWork at_work;
        Released released;
        const auto leave = [](void* r) { return static_cast<Released*>(r)->handler_raises(); };
        const auto code = runtime::make_first_code(std::move(request), {leave, &released});
        if (!code) throw cpython::PyError{};
        making.loading_ns += code->loading_ns;
        making.passes_ns += code->passes_ns;
        making.emission_ns += code->emission_ns;
        making.assembling_ns += code->assembling_ns;
        if (parts) making.parts_made += parts->made, making.parts_reused += parts->reused;
        {
            const runtime::Stage stage("load", module.name, making.load_ns);
            image = runtime::load_artefact(code->artefact, target.name);
        }
        if (!code->complaint.empty()) {  // no tier 1 will follow, and none is to be in the cache
            target.complain(code->complaint.c_str());
            image->ir.clear();
        } else if (!edited) {
            target.store(code->artefact);
        }
    }
    auto slot = make_slot(std::move(image), target);
    if (edited) return slot;  // not what this hash stands for
    slots[hash] = slot;
    return slot;
}

}  // namespace

std::vector<uint8_t> code_hash_of(const ir::Module& module) {
    const auto hash = ir::content_hash(module);
    const Session& s = session();
    support::ByteWriter w;
    w.bytes({reinterpret_cast<const uint8_t*>(&hash), sizeof hash});
    w.text(ir::kernel_key_of(s.options));
    w.text(s.cpu);
    w.number(int32_t(s.tier));
    return hash_of(w.out);
}

std::shared_ptr<runtime::ImageSlot> slot_of_artefact(const std::vector<uint8_t>& hash,
                                                     std::span<const uint8_t> artefact,
                                                     const std::string& name, int64_t& load_ns) {
    if (auto slot = known_slot(hash)) return slot;
    const runtime::Stage stage("load", name, load_ns);
    auto slot = make_slot(runtime::load_artefact(artefact, name), target_of(hash, name));
    slots[hash] = slot;
    return slot;
}

std::shared_ptr<runtime::ImageSlot> code_of(PyObject* definition, const ir::Module& module,
                                            const std::vector<uint8_t>& hash, Making& making) {
    using enum Making::From;
    auto slot = is_inspected() ? nullptr : known_slot(hash);  // else nothing would be shown
    making.from = slot ? memory : stored_code;
    if (slot && reports_compiling()) making.shared = slot->current()->name;
    if (!slot) {
        if (auto artefact = find_artefact(hash)) {
            try {
                slot = slot_of_artefact(hash, *artefact, module.name, making.load_ns);
            } catch (const support::Error&) {  // damaged: a miss
            }
        }
    }
    if (!slot) {
        ++session().cache_misses;
        making.from = compiler;
        slot = compile(definition, module, hash, making);
    }
    if (reports_compiling()) count_code(making, slot->current()->header());
    return slot;
}

void forget_code() { slots.clear(); }

void optimise_all() {
    for (const auto& [hash, slot] : slots)
        if (const auto live = slot.lock()) runtime::optimise(live);
}

}  // namespace qd::launcher
